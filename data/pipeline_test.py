"""Batches: an order that is a pure function of seed and step, and evaluation that counts everyone once."""

import numpy as np
import pytest

from rank4class import data


def numbered(size):
    return data.Split({"image": np.arange(size, dtype=np.float32)[:, None]}, np.arange(size, dtype=np.int32))


def take(batches, count):
    return [labels.numpy().tolist() for _, labels, _ in batches.take(count)]


@pytest.mark.parametrize(("size", "batch_size"), [(10, 4), (7, 7), (3, 5), (1, 2), (100, 8)])
def test_every_epoch_meets_every_example_once(size, batch_size):
    epochs = 3
    batches = data.training_batches(numbered(size), batch_size=batch_size, seed=0)
    seen = np.concatenate(take(batches, -(-epochs * size // batch_size)))[: epochs * size]
    for epoch in seen.reshape(epochs, size):
        assert sorted(epoch) == list(range(size))
    if size == 100:
        assert seen[:100].tolist() != seen[100:200].tolist()
        assert seen[:100].tolist() != sorted(seen[:100])


@pytest.mark.parametrize("start", [0, 1, 5, 12])
def test_starting_at_a_step_goes_on_as_if_from_the_start(start):
    split = numbered(10)
    whole = take(data.training_batches(split, batch_size=4, seed=3), 20)
    assert (
        take(data.training_batches(split, batch_size=4, seed=3, start_step=start), 20 - start)
        == whole[start:]
    )


def test_seeds():
    def order(seed):
        return take(data.training_batches(numbered(50), batch_size=50, seed=seed), 1)

    assert order(1) == order(1)
    assert order(1) != order(2)


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_an_epoch_is_a_uniform_permutation(seed):
    size, epochs = 20, 400
    batches = data.training_batches(numbered(size), batch_size=size, seed=seed)
    orders = np.array(take(batches, epochs))
    assert len(np.unique(orders, axis=0)) == epochs
    # Every example stands at every place equally often: chi-square with 19 * 19 degrees of freedom.
    counts = np.array([np.bincount(orders[:, place], minlength=size) for place in range(size)])
    chi_square = np.sum((counts - epochs / size) ** 2) / (epochs / size)
    degrees = (size - 1) ** 2
    assert abs(chi_square - degrees) < 4 * np.sqrt(2 * degrees)


def test_seeds_and_epochs_far_apart_have_orders_of_their_own():
    def order(seed, epoch):
        return tuple(
            take(data.training_batches(numbered(50), batch_size=50, seed=seed, start_step=epoch), 1)[0]
        )

    assert len({order(seed, epoch) for seed in (3, 259, 65539) for epoch in (0, 1, 256)}) == 9


def test_features_labels_and_weights_stay_together():
    for features, labels, weights in data.training_batches(numbered(10), batch_size=4, seed=0).take(5):
        np.testing.assert_array_equal(features["image"][:, 0], labels)
        np.testing.assert_array_equal(weights, np.ones(4))


@pytest.mark.parametrize(("size", "batch_size"), [(10, 4), (8, 4), (1, 4), (3, 4)])
def test_evaluation_counts_every_example_once(size, batch_size):
    batches = list(data.evaluation_batches(numbered(size), batch_size=batch_size))
    assert all(labels.shape == [batch_size] for _, labels, _ in batches)
    counted = np.concatenate([labels.numpy()[weights.numpy() == 1.0] for _, labels, weights in batches])
    np.testing.assert_array_equal(counted, np.arange(size))
    assert sum(float(weights.numpy().sum()) for _, _, weights in batches) == size


def test_preprocess_runs_on_batches():
    batches = data.training_batches(
        numbered(6),
        batch_size=3,
        seed=0,
        preprocess=lambda features, seeds: {"image": features["image"] * 2.0},
    )
    features, labels, _ = next(iter(batches))
    np.testing.assert_array_equal(features["image"][:, 0], labels.numpy() * 2.0)
