"""Baselines by the vectors of an encoder, against rankings by NumPy."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse

from rank4class import data
from rank4class.pipelines.evaluation import baselines
from rank4class.pipelines.task_data.inputs import Inputs
from rank4class.pipelines.task_data.task_data import TaskData

N, D = 7, 4  # the last class has no training example


def encoded(rng, *, several=False):
    """Returns a task of random vectors, and their labels as bool `[N, n]`."""
    splits = {}
    labels = {}
    for name, size in (("train", 50), ("test", 23)):
        ids = rng.integers(0, N - 1, size)
        labels[name] = np.eye(N, dtype=bool)[ids]
        if several:
            labels[name] |= np.roll(labels[name], 2, axis=1) & (np.arange(N) < N - 1)
        stored = scipy.sparse.csr_array(labels[name].astype(np.float32)) if several else ids.astype(np.int32)
        splits[name] = data.Split({"embedding": rng.normal(size=[size, D]).astype(np.float32)}, stored)
    names = tuple(map(str, range(N)))
    vectors = rng.normal(size=[N, D]).astype(np.float32)
    return TaskData(names, splits, None, lambda: None, Inputs({}), class_inputs={"vectors": vectors}), labels


def cosines(left, right):
    return (left @ right.T) / np.outer(np.linalg.norm(left, axis=1), np.linalg.norm(right, axis=1))


@pytest.mark.parametrize("several", [False, True])
def test_baselines_are_rankings_by_cosine(rng, monkeypatch, several):
    monkeypatch.setattr(baselines, "_BLOCK", 16)  # the training examples take several blocks
    loaded, labels = encoded(rng, several=several)
    train, test = (loaded.splits[name].features["embedding"] for name in ("train", "test"))
    by_name = cosines(test, loaded.class_inputs["vectors"])
    near = cosines(test, train)
    by_example = np.stack(
        [near[:, members].max(axis=1, initial=-2.0) for members in labels["train"].T], axis=1
    )
    summaries = baselines.evaluate(loaded, "test", ["top1_error", "mean_rank", "exact_match"], 8)
    for title, scores in (("nearest class name", by_name), ("nearest training example", by_example)):
        assert list(summaries[title])[:2] == ["top1_error", "mean_rank"]  # without a metric of sets
        # Of the classes of the nearest example, which tie, those that the example lacks rank first.
        errors = np.any((scores == scores.max(axis=1, keepdims=True)) & ~labels["test"], axis=1)
        np.testing.assert_allclose(summaries[title]["top1_error"], 100 * np.mean(errors))
        if several:  # ties
            continue
        ranks = 1 + np.argsort(np.argsort(-scores, axis=1), axis=1)
        expected = np.mean([rank[row].mean() for rank, row in zip(ranks, labels["test"], strict=True)])
        np.testing.assert_allclose(summaries[title]["mean_rank"], expected, rtol=1e-6)


def test_baselines_rank_the_classes_of_the_split(rng):
    loaded, _ = encoded(rng)
    seen = np.array([0, 2, 3, 4, 5, 6])
    rank_of = np.searchsorted(seen, [0, 0, 2, 3, 4, 5, 6])  # class 1 becomes class 0
    train = loaded.splits["train"]
    splits = {**loaded.splits, "train": dataclasses.replace(train, labels=rank_of[train.labels])}
    held_out = dataclasses.replace(loaded, splits=splits, seen=seen)
    near = cosines(loaded.splits["test"].features["embedding"], train.features["embedding"])
    nearest = np.where(train.labels == 1, 0, train.labels)[near.argmax(axis=1)]
    summary = baselines.evaluate(held_out, "test", ["top1_error"], 8)["nearest training example"]
    wrong = 100 * np.mean(nearest != loaded.splits["test"].labels)
    np.testing.assert_allclose(summary["top1_error"], wrong)


def test_larger_splits_are_sampled(rng, monkeypatch):
    monkeypatch.setattr(baselines, "MAX_EXAMPLES", 5)
    loaded, _ = encoded(rng)
    summaries = baselines.evaluate(loaded, "test", ["top1_error"], 8)
    assert {summary["examples"] for summary in summaries.values()} == {5}
