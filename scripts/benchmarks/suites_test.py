"""Suites: sizes, and contenders that equal their baselines."""

import numpy as np
import pytest
import tensorflow as tf

from rank4class import losses, models
from rank4class.pipelines.config import rank_functions
from rank4class.scripts.benchmarks import n_choose_k_suite, projections_suite, sorters_suite, suite, suites


@pytest.mark.parametrize("size", ["64", "64x", "x28", "64x1", "0x28", "64x28x2", "-1x28", "64*28"])
def test_a_size_that_is_none(size):
    with pytest.raises(ValueError, match=r"is not of the form BATCHxCLASSES, such as 64x28"):
        suites.SUITES["losses"].parse(size)
    with pytest.raises(ValueError, match=r"is not of the form BATCHxCLASSESxWIDTHxUNITS"):
        suites.SUITES["interactions"].parse(size)


def test_tf_ranking_is_left_out_where_it_does_not_fit():
    def against(name, size):
        steps = suites._loss_steps(size)
        return {b for step in steps if step.name == name for b in step.against}

    assert "tensorflow_ranking:pairwise_logistic" in against("pairwise_logistic", (4, 28))
    assert "tensorflow_ranking:pairwise_logistic" not in against("pairwise_logistic", (16, 1000000))
    assert "tensorflow_ranking:softmax" in against("softmax", (16, 10000))
    assert against("rescaled_mse", (4, 28)) == {"softmax_ce", "floor"}


@pytest.mark.nightly
def test_every_loss_is_measured_and_equals_its_baseline():
    names = {step.name for step in suites._loss_steps((4, 6))}
    assert names >= set(losses.names())
    for name in ("pairwise_logistic", "pairwise_logistic ndcg", "approx_mrr", "ordinal"):
        ours, theirs = (
            suites._build_loss(suite.Step(kind), (4, 6)) for kind in (name, f"tensorflow_ranking:{name}")
        )
        for mine, other in zip(ours.results(), theirs.results(), strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", suites._METRICS)
def test_every_metric_equals_its_baselines(name):
    kinds = (name, name + " dense", f"naive:{name}", f"naive:{name} dense", f"tensorflow_ranking:{name}")
    results = [suites._build_metric(suite.Step(kind), (4, 9)).results() for kind in kinds]
    for other in results[1:]:
        np.testing.assert_allclose(np.ravel(results[0]), np.ravel(other), rtol=1e-5)


@pytest.mark.nightly
@pytest.mark.parametrize("name", models.INTERACTIONS)
def test_every_interaction_is_measured_and_equals_the_naive_form(name):
    steps = suites.SUITES["interactions"].steps("3x5x4x6", [name])
    assert [step.name for step in steps if step.against] == [name, name]
    ours, naive = (
        suites._build_interaction(suite.Step(kind), (3, 5, 4, 6)) for kind in (name, f"naive:{name}")
    )
    for mine, other in zip(ours.results(), naive.results(), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-6)


@pytest.mark.nightly
@pytest.mark.parametrize("n", [5, 32])
def test_the_ways_to_the_sum_over_all_sets_agree(n):
    steps = suites.SUITES["n_choose_k"].steps(f"4x{n}x3")
    # The others are compared by their errors, below.
    compared = [s for s in steps if n == 5 or s.name in ("log_z", "naive", "fft")]
    results = {(s.name, s.xla): n_choose_k_suite._build(s, (4, n, 3)).results() for s in compared}
    ours = results["log_z", True]
    for way in (("log_z", False), ("naive", False), ("fft", False)):
        for mine, other in zip(ours, results[way], strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-7)
    far = suites.SUITES["n_choose_k"].steps("8x100000x10000")
    assert [step.name for step in far] == [
        "softmax_ce",
        "fft",
        *["log_z"] * 2,
        *["log_z_by_count"] * 2,
    ]  # the programme does not fit
    errors = {step.name: n_choose_k_suite._error(step, (4, n, 3)) for step in steps}
    assert errors.pop("softmax_ce") is None
    assert max(errors.values()) < 1e-13
    assert n_choose_k_suite._error(far[2], (8, 100_000, 10_000)) is None  # a reference would take too long
    with pytest.raises(ValueError, match="a size of 3 classes has no 4 to choose"):
        suites.SUITES["n_choose_k"].steps("4x3x4")


@pytest.mark.nightly
@pytest.mark.parametrize("k", [1, 3])
def test_projections_are_measured_and_equal_their_baselines(k):
    size = (4, 30, k)
    steps = suites.SUITES["projections"].steps(f"4x30x{k}")
    results = {step.name: projections_suite._build(step, size).results() for step in steps}
    assert all(np.isfinite(result).all() for each in results.values() for result in each)
    assert results["rankmax relevant"][1].shape == (4, 30)
    if k == 1:
        for ours, theirs in zip(results["sparsemax"], results["naive:sparsemax"], strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-6)
    with pytest.raises(ValueError, match="a size of 3 classes has no 4 places"):
        suites.SUITES["projections"].steps("4x3x4")


@pytest.mark.nightly
def test_sorters_are_measured_and_rank_the_same_under_xla():
    steps = suites.SUITES["sorters"].steps("4x12")
    results = {}
    for step in steps:
        tf.keras.utils.set_random_seed(0)  # for those with random weights
        results[step.name, step.xla] = sorters_suite._build(step, (4, 12)).results()
    assert {name for name, _ in results} == {
        *("sort", "handcrafted", "cnn", "lstm", "equivariant", "neural_sort", "soft_sort")
    }
    scores, labels = suite.scores_and_labels(4, 12)
    for name in ("handcrafted", "equivariant", "neural_sort", "soft_sort"):
        value, gradient = results[name, False]
        ranks = tf.gather(rank_functions.get(name, 12)(scores), labels, batch_dims=1)
        assert float(value) == pytest.approx(np.mean(ranks), rel=1e-5)
        assert np.any(gradient != 0)
    for name in ("handcrafted", "cnn", "equivariant", "neural_sort", "soft_sort"):
        for plain, compiled in zip(results[name, False], results[name, True], strict=True):
            np.testing.assert_allclose(plain, compiled, rtol=1e-3, atol=1e-5)
    of_long_lists = {step.name for step in suites.SUITES["sorters"].steps("16x100000")}
    assert of_long_lists == {"sort", "equivariant"}  # pairs do not fit, the others take one length
