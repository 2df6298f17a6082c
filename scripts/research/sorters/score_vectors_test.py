"""Score vectors: distributions, ranks, batches, moves, and fixed held-out vectors."""

import hashlib
import subprocess
import sys

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from rank4class.scripts.research.sorters import score_vectors

# Vectors of all five kinds; the values of a vector show its kind.
DRAWN = score_vectors.draw(4_000, 50, [0, 0]).numpy()


@pytest.fixture
def with_four_threads():
    """Returns a function of a program to its output where an operation takes four threads, here one."""
    threads = "import tensorflow as tf; tf.config.threading.set_intra_op_parallelism_threads(4)\n"

    def run(program):
        return subprocess.check_output([sys.executable, "-c", threads + program], text=True).strip()

    return run


def steps(vectors):
    return np.diff(vectors, axis=1)


def is_even(vectors):
    """Returns whether the sorted scores of each vector have equal steps."""
    gaps = steps(np.sort(vectors, axis=1))
    return np.ptp(gaps, axis=1) < 1e-4


def test_five_kinds_are_equally_frequent():
    even = is_even(DRAWN)
    ordered = even & ((steps(DRAWN) >= 0).all(axis=1) | (steps(DRAWN) <= 0).all(axis=1))
    assert np.mean(ordered) == pytest.approx(0.2, abs=0.03)
    assert np.mean(even & ~ordered) == pytest.approx(0.2, abs=0.03)
    assert np.mean(steps(DRAWN[ordered])[:, 0] > 0) == pytest.approx(0.5, abs=0.06)  # ascending
    assert np.abs(DRAWN[even]).max() <= 1.0
    others = DRAWN[~even]
    distributions = scipy.stats.uniform(-1, 2), scipy.stats.norm
    uniform, normal = (scipy.stats.ks_1samp(others, d.cdf, axis=1).pvalue > 1e-3 for d in distributions)
    bounded = np.abs(others).max(axis=1) <= 1.0
    assert np.sum(bounded & uniform) / len(DRAWN) > 0.19
    assert np.sum(~bounded & normal) / len(DRAWN) > 0.19
    neither = ~uniform & ~normal
    assert 0.01 < np.sum(neither) / len(DRAWN) < 0.2  # mixtures that resemble neither


@pytest.mark.nightly
def test_held_out_vectors_do_not_depend_on_the_number_of_threads(with_four_threads):
    program = (
        "from rank4class.scripts.research.sorters import score_vectors; import hashlib\n"
        "print(hashlib.sha256(score_vectors.held_out('test', 10)[1].tobytes()).hexdigest())"
    )
    here = score_vectors.held_out("test", 10)[1]
    assert with_four_threads(program) == hashlib.sha256(here.tobytes()).hexdigest()


def test_ranks():
    vectors = DRAWN[:50]
    expected = scipy.stats.rankdata(-vectors, method="ordinal", axis=1) / 50
    np.testing.assert_allclose(score_vectors.ranks(vectors), expected, rtol=1e-6)


@pytest.mark.nightly
@pytest.mark.parametrize("sizes", [(7,), (3, 5, 5)])
def test_batches_are_a_function_of_seed_and_step(sizes):
    def first(count, **arguments):
        batches = score_vectors.training_batches(sizes, 4, **arguments)
        return list(batches.take(count).as_numpy_iterator())

    six = first(6, seed=1, move=1.0)
    assert [len(features["scores"][0]) for features, _ in six] == [sizes[i % len(sizes)] for i in range(6)]
    for batch, restarted in zip(six[4:], first(2, seed=1, move=1.0, start_step=4), strict=True):
        for actual, expected in zip(tf.nest.flatten(restarted), tf.nest.flatten(batch), strict=True):
            np.testing.assert_array_equal(actual, expected)
    distinct = {features["scores"].tobytes() for features, _ in six}
    assert len(distinct) == 6
    assert first(1, seed=2)[0][0]["scores"].tobytes() not in distinct
    for features, ranks in six:
        moved = features["scores"] + features["moves"]
        np.testing.assert_array_equal(ranks, score_vectors.ranks(moved))


def test_moves_are_zero_by_default():
    features, ranks = next(iter(score_vectors.training_batches((9,), 4, seed=0)))
    assert not features["moves"].numpy().any()
    np.testing.assert_array_equal(ranks, score_vectors.ranks(features["scores"]))


def test_moves_are_in_spacings():
    vectors = tf.constant(np.tile(np.linspace(0, 99, 100), [2_000, 1]).astype(np.float32))  # steps of 1
    moves = score_vectors.moves(vectors, [0, 0], 2.0).numpy()
    sizes = moves.std(axis=1)
    assert sizes.max() < 2.6
    assert sizes.mean() == pytest.approx(1.0, abs=0.05)
    np.testing.assert_allclose(score_vectors.moves(1e3 * vectors, [0, 0], 2.0), 1e3 * moves, rtol=1e-3)


def test_held_out_vectors_are_fixed():
    scores, ranks = score_vectors.held_out("validation", 10)
    again, _ = score_vectors.held_out("validation", 10)
    np.testing.assert_array_equal(scores, again)
    np.testing.assert_array_equal(ranks, score_vectors.ranks(scores))
    test, _ = score_vectors.held_out("test", 10)
    assert scores.shape == (2_000, 10)
    assert test.shape == (10_000, 10)
    assert not {row.tobytes() for row in scores} & {row.tobytes() for row in test}
