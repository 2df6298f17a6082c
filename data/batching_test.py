"""Batches: order by seed and step, evaluation, workers, class weights, and unreadable examples."""

import dataclasses

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import tensorflow as tf
from scipy.sparse import csr_array

from rank4class import data


def numbered_split(size):
    return data.Split({"image": np.arange(size, dtype=np.float32)[:, None]}, np.arange(size, dtype=np.int32))


def take(batches, count):
    return [labels.numpy().tolist() for _, labels, _ in batches.take(count)]


def with_lengths(split, count=3):
    """Returns a split with some lengths, in turns."""
    return dataclasses.replace(split, lengths=8 * (1 + np.arange(len(split)) % count))


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize(("size", "batch_size"), [(7, 7), (3, 5), (1, 2), (100, 8)])
def test_every_epoch_has_every_example_once(size, batch_size, grouped):
    epochs = 3
    split = with_lengths(numbered_split(size)) if grouped else numbered_split(size)
    batches = data.training_batches(split, batch_size=batch_size, seed=0)
    seen = np.concatenate(take(batches, -(-epochs * size // batch_size)))[: epochs * size]
    for epoch in seen.reshape(epochs, size):
        assert sorted(epoch) == list(range(size))
    if size == 100:
        assert seen[:100].tolist() != seen[100:200].tolist()
        assert seen[:100].tolist() != sorted(seen[:100])


@pytest.mark.parametrize("grouped", [False, True])
def test_start_step_continues_the_same_batches(grouped):
    split = with_lengths(numbered_split(10)) if grouped else numbered_split(10)
    whole = take(data.training_batches(split, batch_size=4, seed=3), 20)
    assert take(data.training_batches(split, batch_size=4, seed=3, start_step=12), 8) == whole[12:]


def test_batches_group_examples_of_equal_lengths():
    split = with_lengths(numbered_split(203), count=4)
    batches = np.array(take(data.training_batches(split, batch_size=8, seed=1), 75))
    longest = split.lengths[batches].max(axis=1)
    shortest = split.lengths[batches].min(axis=1)
    # In each epoch, a batch at each change of the length, and one with examples of the next epoch.
    assert np.sum(longest > shortest) <= 3 * (3 + 1)
    first_epoch = longest[: 203 // 8]
    assert len(set(first_epoch)) == 4
    assert np.sum(np.diff(first_epoch) != 0) > 8  # sorted batches would change three times
    assert not np.array_equal(first_epoch, longest[-len(first_epoch) :])


def test_evaluation_starts_with_the_longest_examples():
    split = with_lengths(numbered_split(10), count=3)
    batches = list(data.evaluation_batches(split, batch_size=4))
    labels, indices = (np.concatenate([batch[i] for batch in batches]) for i in (1, 2))
    assert (np.diff(split.lengths[labels]) <= 0).all()
    assert indices.tolist() == [*labels[:10], -1, -1]
    np.testing.assert_array_equal(data.in_order(labels, indices), np.arange(10))


CASES = {
    "size": st.integers(1, 40),
    "replicas": st.sampled_from([1, 2, 4, 6]),
    "per_replica": st.integers(1, 4),
    "seed": st.integers(0, 2**31),
    "start": st.integers(0, 50),
}
# A case takes a tenth of a second, so shrinking a failure would take minutes.
few = hypothesis.settings(max_examples=8, deadline=None, derandomize=True, phases=[hypothesis.Phase.generate])


def contexts(workers, replicas):
    return [tf.distribute.InputContext(workers, i, replicas) for i in range(workers)]


def with_seeds(features, seeds):
    return {**features, "seeds": seeds}


def join(workers_batches, replicas, steps):
    """Concatenates the workers' batches of each step, in the order of replicas."""
    streams = [list(batches.take(steps * replicas // len(workers_batches))) for batches in workers_batches]
    count = replicas // len(streams)
    return [
        tf.nest.map_structure(
            lambda *parts: np.concatenate(parts),
            *(batch for stream in streams for batch in stream[step * count : (step + 1) * count]),
        )
        for step in range(steps)
    ]


def assert_equal_batches(actual, expected):
    for actual_batch, expected_batch in zip(actual, expected, strict=True):
        tf.nest.map_structure(np.testing.assert_array_equal, actual_batch, expected_batch)


@pytest.mark.nightly
@few
@hypothesis.given(workers=st.sampled_from([1, 2]), sparse=st.booleans(), **CASES)
def test_workers_have_the_batches_of_one_worker(workers, sparse, size, replicas, per_replica, seed, start):
    hypothesis.assume(replicas % workers == 0)
    split = sparse_split(size, classes=size)[0] if sparse else numbered_split(size)
    options = {
        "batch_size": replicas * per_replica,
        "seed": seed,
        "start_step": start,
        "preprocess": with_seeds,
        "class_weights": np.arange(size) + 0.5,
    }
    expected_batches = list(data.training_batches(split, **options).take(3))
    inputs = contexts(workers, replicas)
    evaluation = {"batch_size": options["batch_size"]}
    parts = [data.training_batches(split, **options, context=each) for each in inputs]
    assert_equal_batches(join(parts, replicas, 3), expected_batches)
    expected_batches = list(data.evaluation_batches(split, **evaluation))
    parts = [data.evaluation_batches(split, **evaluation, context=each) for each in inputs]
    assert parts[0].element_spec[1].shape == [per_replica, *([size] if sparse else [])]
    assert_equal_batches(join(parts, replicas, len(expected_batches)), expected_batches)


@pytest.mark.nightly
@few
@hypothesis.given(**CASES)
def test_start_step_at_random(size, replicas, per_replica, seed, start):
    """The batches after a restart are the same, and all examples have different seeds."""
    split = with_lengths(numbered_split(size)) if seed % 2 else numbered_split(size)
    options = {"batch_size": replicas * per_replica, "seed": seed, "preprocess": with_seeds}
    whole = list(data.training_batches(split, **options).take(start + 2))
    rest = list(data.training_batches(split, **options, start_step=start).take(2))
    assert_equal_batches(rest, whole[start:])
    seeds = np.concatenate([features["seeds"] for features, _, _ in whole])
    assert len(np.unique(seeds, axis=0)) == len(seeds)
    assert (seeds[:, 0] == seed).all()
    indices = data.training_indices(split, batch_size=replicas * per_replica, seed=seed, start_step=start)
    for (_, labels, _), expected in zip(rest, indices.take(2), strict=True):
        np.testing.assert_array_equal(labels, expected)


def test_distant_seeds_and_epochs_have_different_orders():
    def order(seed, epoch):
        batches = data.training_batches(numbered_split(50), batch_size=50, seed=seed, start_step=epoch)
        return tuple(take(batches, 1)[0])

    assert order(3, 1) == order(3, 1)
    assert len({order(seed, epoch) for seed in (3, 259, 65539) for epoch in (0, 1, 256)}) == 9


def test_preprocess_runs_on_batches_without_exclusions():
    split, _, excluded = sparse_split(4)

    def preprocess(features, seeds=None):
        return {"names": ",".join(features), "double": 2 * features["id"]}

    evaluation = data.evaluation_batches(split, batch_size=4, preprocess=preprocess)
    training = data.training_batches(split, batch_size=4, seed=0, preprocess=preprocess)
    for features, labels, _ in (next(iter(evaluation)), next(iter(training))):
        assert features["names"] == b"id"
        ids = features["double"] // 2
        np.testing.assert_array_equal(features["excluded"], excluded[ids])
        np.testing.assert_array_equal(labels, split.labels.toarray()[ids])
    with pytest.raises(ValueError, match="batch_size=6: not divisible by 4 replicas"):
        data.training_batches(split, batch_size=6, seed=0, context=contexts(2, 4)[0])


def test_class_weights():
    options = {"batch_size": 6, "seed": 0, "class_weights": [0.5, 0.0, 2.0]}
    for _, labels, weights in data.training_batches(numbered_split(3), **options).take(2):
        np.testing.assert_array_equal(weights, np.array([0.5, 0.0, 2.0], np.float32)[labels])
    gains = np.array([[1, 0, 0], [1, 1, 0], [3, 1, 2], [0, 0, 0], [0, 2, 0]], np.float32)
    split = data.Split({"id": np.arange(5)}, csr_array(gains))
    options = {"batch_size": 4, "seed": 1, "class_weights": [0.5, 0.0, 4.0]}
    expected = np.array([0.5, (0.5 + 0.0) / 2, (0.5 + 0.0 + 4.0) / 3, 1.0, 0.0], np.float32)
    for features, _, weights in data.training_batches(split, start_step=2, **options).take(4):
        np.testing.assert_array_equal(weights, expected[features["id"]])


def sparse_split(size, classes=6):
    """Returns a split with graded labels and exclusions, and both as dense arrays. Example 1 has no label."""
    rng = np.random.default_rng(size)
    dense = (rng.integers(-3, 4, size=[size, classes]).clip(0) / 2).astype(np.float32)
    dense[1:2] = 0.0
    excluded = (rng.random([size, classes]) < 0.3) & (dense == 0.0)
    split = data.Split({"id": np.arange(size)}, csr_array(dense), None, csr_array(excluded))
    return split, dense, excluded


def assert_labels_and_exclusions(batches, dense, excluded):
    for features, labels, _ in batches:
        assert labels.shape == [len(features["id"]), dense.shape[1]]
        assert (labels.dtype, features["excluded"].dtype) == (tf.float32, tf.bool)
        np.testing.assert_array_equal(labels, dense[features["id"]])
        np.testing.assert_array_equal(features["excluded"], excluded[features["id"]])


@pytest.mark.parametrize("size", [10, 8, 1])
def test_batches_of_sparse_labels_are_dense(size):
    split, dense, excluded = sparse_split(size)
    batches = data.evaluation_batches(split, batch_size=4)
    assert batches.element_spec[1].shape == batches.element_spec[0]["excluded"].shape == [4, 6]
    assert_labels_and_exclusions(batches, dense, excluded)
    indices = np.concatenate([indices for _, _, indices in batches])
    assert indices.tolist() == [*range(size), *[-1] * (-size % 4)]
    training = data.training_batches(split, batch_size=4, seed=0, start_step=1)
    assert training.element_spec[1].shape == [4, 6]
    assert_labels_and_exclusions(training.take(5), dense, excluded)


def raise_on_seven(features):
    with tf.control_dependencies([tf.debugging.assert_none_equal(features["image"], 7.0, message="a seven")]):
        return {"image": tf.identity(features["image"])}


@pytest.mark.parametrize("origins", [None, np.array([f"row {i}" for i in range(10)], object)])
def test_unreadable_example_is_named(origins):
    split = data.Split(numbered_split(10).features, numbered_split(10).labels, origins)
    name = "example 7" if origins is None else "row 7"
    batches = data.evaluation_batches(split, batch_size=4, preprocess=raise_on_seven)
    batches = iter(data.naming_errors(batches, split, 4, raise_on_seven))
    np.testing.assert_array_equal(next(batches)[1], [0, 1, 2, 3])
    with pytest.raises(ValueError, match=f"{name}: cannot be read: .*a seven"):
        next(batches)
    [(index, message)] = data.unreadable(split, raise_on_seven)
    assert index == 7
    assert message.startswith(f"{name}: cannot be read")
    batches = data.evaluation_batches(numbered_split(6), batch_size=4)
    assert_equal_batches(data.naming_errors(batches, numbered_split(6), 4, None), batches)
    assert list(data.unreadable(numbered_split(6), raise_on_seven)) == []


def test_vectors_on_disk_and_sparse_vectors_are_those_in_memory(tmp_path):
    vectors = np.round(np.random.default_rng(0).normal(size=[23, 4])).astype(np.float32)  # with zeros
    np.save(tmp_path / "x.npy", vectors)
    stored = data.StoredRows.of_npy(tmp_path / "x.npy")
    assert (stored.shape, stored.dtype, np.asarray(stored[5:9][[2, 0]]).tolist()) == (
        (23, 4), np.float32, vectors[[7, 5]].tolist()
    )  # fmt: skip
    assert np.asarray(stored[[]]).shape == (0, 4)
    selected = np.arange(23) % 3 > 0
    splits = [
        data.Split({"embedding": array}, np.arange(23, dtype=np.int32)).select(selected)
        for array in (vectors, stored, csr_array(vectors))
    ]
    batches = [[*data.training_batches(split, batch_size=4, seed=2).take(9)] for split in splits]
    ordered = [[*data.evaluation_batches(split, batch_size=4)] for split in splits]
    for rows in (*zip(*batches, strict=True), *zip(*ordered, strict=True)):
        expected, *others = (np.c_[features["embedding"], labels, third] for features, labels, third in rows)
        for other in others:
            np.testing.assert_array_equal(other, expected)
    assert [features["embedding"].shape for features, _, _ in ordered[1]] == [(4, 4)] * 4
    dense, on_disk, _ = (split.kind.contents(split.features) for split in splits)
    np.testing.assert_array_equal(dense, on_disk)
    (tmp_path / "x.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:-4])
    with pytest.raises(ValueError, match="truncated"):
        np.asarray(splits[1].features["embedding"])


@pytest.mark.parametrize(("seed", "batch_size"), [(7, 20), (0, 5)])
def test_epochs_are_uniform_permutations(seed, batch_size):
    size = 20
    epochs = 400
    split = numbered_split(size) if batch_size == size else with_lengths(numbered_split(size), count=2)
    batches = data.training_batches(split, batch_size=batch_size, seed=seed)
    orders = np.reshape(take(batches, epochs * size // batch_size), [epochs, size])
    assert len(np.unique(orders, axis=0)) == epochs
    # Every example is at every position equally often: chi-square with 19 * 19 degrees of freedom.
    counts = np.array([np.bincount(orders[:, position], minlength=size) for position in range(size)])
    chi_square = np.sum((counts - epochs / size) ** 2) / (epochs / size)
    degrees = (size - 1) ** 2
    assert abs(chi_square - degrees) < 4 * np.sqrt(2 * degrees)


def test_replicas_of_a_strategy_have_the_batches_of_one_worker(mirrored):
    strategy = mirrored
    expected_batches = list(data.training_batches(numbered_split(10), batch_size=4, seed=1).take(5))
    batches = strategy.distribute_datasets_from_function(
        lambda context: data.training_batches(numbered_split(10), batch_size=4, seed=1, context=context)
    )
    iterator = iter(batches)
    for expected in expected_batches:
        actual = tf.nest.map_structure(
            lambda value: np.concatenate(strategy.experimental_local_results(value)), next(iterator)
        )
        tf.nest.map_structure(np.testing.assert_array_equal, actual, expected)
