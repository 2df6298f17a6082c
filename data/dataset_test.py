"""Splits: random draws, selection, and invalid labels and arrays."""

import re

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from scipy.sparse import csr_array, csr_matrix

from rank4class import data

few = hypothesis.settings(max_examples=50, deadline=None, derandomize=True)


@pytest.mark.parametrize(("origins", "name"), [(None, "example 1"), (np.array(["a:1", "a:2"]), "a:2")])
@pytest.mark.parametrize("label", [2, -1])
def test_labels_outside_the_class_ids(origins, name, label):
    split = data.Split({}, np.array([0, label]), origins)
    with pytest.raises(ValueError, match=rf"{name}: label {label} in the test split is outside .* ids"):
        data.Dataset(("a", "b"), {"test": split})


def test_warns_of_classes_without_a_training_example(caplog):
    split = data.Split({"image": np.zeros([2, 1])}, np.array([0, 3]))
    data.Dataset(tuple("abcd"), {"train": split, "test": split})
    assert "no training example of: b, c" in caplog.text
    caplog.clear()
    data.Dataset(tuple(map(str, range(20))), {"train": split})
    assert caplog.text.strip().endswith("1, 2, 4, 5, 6, 7, 8, 9, 10, 11 and 8 more")


RAGGED = [[0, 1], [2]]
CSR = csr_array(np.eye(2, 3, dtype=np.float32))
INVALID_SPLITS = {
    "labels: a list. Give numpy.array(labels, numpy.int32) of class ids, or": {"labels": RAGGED},
    "labels: a csr_matrix. Give": {"labels": csr_matrix(np.eye(2, 3))},
    "labels: a NoneType. Give": {"labels": None},
    "labels: a ndarray, shape (2,), dtype float64. Give": {"labels": np.array([0.0, 1.0])},
    "labels: a ndarray, shape (2, 3), dtype float64. Give": {"labels": np.eye(2, 3)},
    "labels: unsorted or repeated entries. Call": {"labels": csr_array(([1.0, 1.0], [1, 1], [0, 2, 2]))},
    "labels: an entry of 0.0. Store gains that": {"labels": csr_array(([1.0, 0.0], [0, 1], [0, 1, 2]))},
    "labels: an entry of -1.0. Store gains that": {"labels": csr_array(np.array([[0.0, -1.0], [1.0, 0.0]]))},
    "labels: an entry of nan. Store gains that": {"labels": CSR * np.nan},
    "labels: an entry of inf. Store gains that": {"labels": CSR * np.inf},
    "feature 'x': an array of 3 examples for 2 labels": {"features": {"x": np.zeros([3, 1])}},
    "feature 'x': a list for 2 labels": {"features": {"x": RAGGED}},
    "origins: an array of 1 examples for": {"origins": np.array(["a"])},
    "excluded: an array of 3 examples for": {"labels": CSR, "excluded": csr_array(np.eye(3, dtype=bool))},
}


@pytest.mark.parametrize("message", INVALID_SPLITS)
def test_invalid_splits(message):
    fields = {"features": {}, "labels": np.array([0, 1]), **INVALID_SPLITS[message]}
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        data.Split(**fields)


def test_invalid_datasets():
    for names, labels, message in (
        (("a", "b"), np.array([], np.int64), r"test split has no example\. Give it one\. The first .* row"),
        (("a", "b"), CSR, "labels: 3 classes in the test split, but 2 class_names"),
        (("a", "b", "a"), CSR, "class_names: 'a' is repeated. Rename one"),
    ):
        with pytest.raises(ValueError, match=message):
            data.Dataset(names, {"test": data.Split({}, labels)}, skipped=("a:1: no text.",))


def examples(labels):
    labels = np.array(labels, np.int32)
    numbers = np.arange(len(labels))
    return data.Split({"image": numbers}, labels, np.array([f"row {i}" for i in numbers]))


def test_select_with_exclusions():
    labels = csr_array(np.eye(3, 4, dtype=np.float32))
    excluded = csr_array(np.eye(3, 4, 1, bool))
    split = data.Split({"id": np.arange(3)}, labels, None, excluded)
    for indices in ([2, 0], np.array([True, False, True]), [1], []):
        selected = split.select(indices)
        assert len(selected) == len(selected.features["id"])
        np.testing.assert_array_equal(selected.labels.toarray(), labels.toarray()[indices])
        np.testing.assert_array_equal(selected.excluded.toarray(), excluded.toarray()[indices])
    selected = examples([0, 1, 2, 1]).select(np.array([False, True, False, True]))
    assert (selected.labels.tolist(), selected.excluded) == ([1, 1], None)
    assert [selected.origin(i) for i in range(2)] == ["row 1", "row 3"]


@few
@hypothesis.given(
    counts=st.lists(st.integers(0, 12), min_size=1, max_size=30).filter(lambda counts: sum(counts) >= 10),
    fractions=st.tuples(st.floats(0.01, 0.49), st.floats(0.01, 0.49)),
    seed=st.integers(0, 1000),
)
def test_pairs_are_drawn_in_the_requested_fractions(counts, fractions, seed):
    rng = np.random.default_rng(seed)
    dense = np.zeros([len(counts), 15], np.float32)
    for row, count in zip(dense, counts, strict=True):
        row[rng.choice(15, count, replace=False)] = rng.integers(1, 4, size=count)  # graded
    fractions = dict(zip(("validation", "test"), fractions, strict=True))
    origins = np.array([f"user {i}" for i in range(len(counts))], object)
    available = sum(max(0, count - 1) for count in counts)  # each instance has one for training
    expected = {
        name: fraction * min(sum(counts), available / sum(fractions.values()))
        for name, fraction in fractions.items()
    }
    hypothesis.assume(min(expected.values()) >= 1)
    splits = data.draw_pairs(csr_array(dense), fractions, seed=seed, origins=origins)
    assert list(splits) == ["train", "validation", "test"]
    before = np.zeros_like(dense)
    for name, split in splits.items():
        ids = split.features["id"]
        assert split.origins.tolist() == [f"user {i}" for i in ids]
        assert split.labels.has_canonical_format
        assert np.diff(split.labels.indptr).min() > 0
        labels = np.zeros_like(dense)
        labels[ids] = split.labels.toarray()
        assert not (labels * before).any()
        if name == "train":
            assert split.excluded is None
            assert ids.tolist() == [i for i, count in enumerate(counts) if count]
        else:
            np.testing.assert_array_equal(split.excluded.toarray(), before[ids] > 0)
            assert abs(split.labels.nnz - expected[name]) <= 1
        before += labels
    np.testing.assert_array_equal(before, dense)


def test_too_few_pairs_to_draw():
    for fractions, message in (
        ({"validation": 0.5, "test": 0.5}, "data.validation_fraction=0.5 and data.test_fraction=0.5: no"),
        ({"validation": 0.5, "test": 0.1}, "data.test_fraction=0.1: 0 of 4 pairs; 2 can be drawn. Raise"),
    ):
        with pytest.raises(ValueError, match=f"^{message}"):
            data.draw_pairs(csr_array(np.ones([2, 2], np.float32)), fractions, seed=0)


@few
@hypothesis.given(
    counts=st.lists(st.integers(0, 40), min_size=2, max_size=6).filter(lambda counts: sum(counts) >= 40),
    seed=st.integers(0, 1000),
)
def test_drawn_splits_are_stratified(counts, seed):
    split = examples(np.repeat(np.arange(len(counts)), counts))
    fractions = {"test": 0.25, "validation": 0.25}
    parts = data.draw(split, fractions, seed=seed)
    indices = np.concatenate([part.features["image"] for part in parts.values()])
    assert sorted(indices) == list(range(len(split)))
    for name, fraction in fractions.items():
        actual = parts[name].class_counts(len(counts))
        for count, part in zip(counts, actual, strict=True):
            assert abs(part - fraction * count) <= (2 if count >= 3 else fraction * count)
    assert (parts["train"].class_counts(len(counts)) > 0).tolist() == [count > 0 for count in counts]
    again = data.draw(split, fractions, seed=seed)
    for name, part in parts.items():
        np.testing.assert_array_equal(part.features["image"], again[name].features["image"])


def test_too_few_examples_to_draw():
    for labels, fraction, message in (
        ([0, 1, 2, 3] * 3, 0.75, "data.test_fraction=0.75: 9 of 12 examples, but 8 can be drawn and leave"),
        ([0, 1, 2, 0], 0.1, "0.1: no class has 3 examples, one for each split"),
    ):
        with pytest.raises(ValueError, match=message):
            data.draw(examples(labels), {"test": fraction}, seed=0)


@pytest.mark.parametrize("counts", [[9] * 11 + [1], [4, 2, 2, 2]])
def test_many_small_classes_are_drawn_whatever_the_class(counts):
    split = examples(np.repeat(np.arange(len(counts)), counts))
    parts = data.draw(split, {"validation": 0.1, "test": 0.1}, seed=0)
    assert [len(parts[name]) for name in ("validation", "test")] == [len(split) // 10] * 2
    assert parts["train"].class_counts(len(counts)).all()
    rows = np.concatenate([part.features["image"].ravel() for part in parts.values()])
    assert sorted(rows) == sorted(split.features["image"].ravel())


def test_drawing_of_several_classes_leaves_each_class_in_training():
    rng = np.random.default_rng(0)
    dense = (rng.random([400, 30]) < np.linspace(0.003, 0.2, 30)).astype(np.float32)
    split = data.Split({"id": np.arange(400)}, csr_array(dense))
    parts = data.draw(split, {"validation": 0.3, "test": 0.2}, seed=1)
    assert {name: len(part) for name, part in parts.items()} == {"validation": 120, "test": 80, "train": 200}
    ids = np.concatenate([part.features["id"] for part in parts.values()])
    np.testing.assert_array_equal(np.sort(ids), np.arange(400))
    assert (parts["train"].class_counts(30) >= (split.class_counts(30) > 0)).all()
    for part in parts.values():
        np.testing.assert_array_equal(part.labels.toarray(), dense[part.features["id"]])
    again = data.draw(split, {"validation": 0.3, "test": 0.2}, seed=2)
    assert again["test"].features["id"].tolist() != parts["test"].features["id"].tolist()
    one_each = data.Split({"id": np.arange(30)}, csr_array(np.eye(30, dtype=np.float32)))
    with pytest.raises(ValueError, match=r"test_fraction=0.1: 3 of 30 examples, but 0 can be drawn"):
        data.draw(one_each, {"test": 0.1}, seed=0)
