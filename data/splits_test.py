"""Splits: what is drawn from them, and what does not fit the classes."""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from rank4class import data

few = hypothesis.settings(max_examples=50, deadline=None, derandomize=True)


def test_labels_outside_the_classes_are_refused():
    split = data.Split({"image": np.zeros([3, 1])}, np.array([0, 2, 1]))
    with pytest.raises(
        ValueError, match=r"example 1 of the test split has label 2, outside the classes 0\.\.1"
    ):
        data.Dataset(("a", "b"), {"test": split})


def test_origins_are_in_the_message():
    split = data.Split({"image": np.zeros([2, 1])}, np.array([0, -1]), np.array(["a:1", "a:2"], object))
    with pytest.raises(ValueError, match="a:2 of the test split has label -1"):
        data.Dataset(("a", "b"), {"test": split})


def test_classes_without_a_training_example_are_named(caplog):
    split = data.Split({"image": np.zeros([2, 1])}, np.array([0, 3]))
    data.Dataset(tuple("abcd"), {"train": split, "test": split})
    assert "no training example of: b, c" in caplog.text
    caplog.clear()
    data.Dataset(tuple(map(str, range(20))), {"train": split})
    assert caplog.text.strip().endswith("1, 2, 4, 5, 6, 7, 8, 9, 10, 11 and 8 more")


def test_examples_of_several_classes_are_counted_in_each():
    split = data.Split({}, np.array([[1, 0, 1], [0, 0, 1]], np.float32))
    assert split.multi_label
    assert split.class_counts(3).tolist() == [1, 0, 2]


def examples(labels):
    labels = np.array(labels, np.int32)
    return data.Split(
        {"image": np.arange(len(labels))}, labels, np.array([f"row {i}" for i in range(len(labels))])
    )


def test_selected_examples_stay_together():
    chosen = examples([0, 1, 2, 1]).select(np.array([False, True, False, True]))
    assert chosen.features["image"].tolist() == [1, 3]
    assert chosen.labels.tolist() == [1, 1]
    assert [chosen.origin(i) for i in range(2)] == ["row 1", "row 3"]


@few
@hypothesis.given(
    counts=st.lists(st.integers(0, 40), min_size=2, max_size=6).filter(lambda counts: sum(counts) >= 40),
    seed=st.integers(0, 1000),
)
def test_drawn_splits_share_out_every_class(counts, seed):
    split = examples(np.repeat(np.arange(len(counts)), counts))
    shares = {"test": 0.25, "validation": 0.25}
    parts = data.draw(split, shares, seed=seed)
    places = np.concatenate([part.features["image"] for part in parts.values()])
    assert sorted(places) == list(range(len(split)))
    for name, share in shares.items():
        found = parts[name].class_counts(len(counts))
        for count, part in zip(counts, found, strict=True):
            assert abs(part - share * count) <= (2 if count >= 3 else share * count)
    assert (parts["train"].class_counts(len(counts)) > 0).tolist() == [count > 0 for count in counts]
    again = data.draw(split, shares, seed=seed)
    for name, part in parts.items():
        np.testing.assert_array_equal(part.features["image"], again[name].features["image"])


def test_another_seed_draws_others():
    split = examples([0, 1] * 50)
    tests = [data.draw(split, {"test": 0.2}, seed=seed)["test"].features["image"] for seed in (0, 1)]
    assert tests[0].tolist() != tests[1].tolist()


def test_too_few_examples_to_draw_from():
    for labels, share, message in (
        (
            np.repeat(np.arange(12), [*[9] * 11, 1]),
            0.1,
            "a test split of 10% of 100 examples is 10, too few for one of each of 11 classes: raise "
            "data.test_share, or give the split",
        ),
        (
            [0, 1, 2, 3] * 3,
            0.75,
            "a test split of 75% of 12 examples is 9, too many to leave one of each of 4 classes for "
            "training: lower data.test_share",
        ),
        ([0] * 4 + [1, 1, 2, 2, 3, 3], 0.4, "of 40% of 10 examples is 4, too many"),
        ([0, 1, 2, 0], 0.1, "no class has examples enough for a test split, at least three: give the split"),
    ):
        with pytest.raises(ValueError, match=message):
            data.draw(examples(labels), {"test": share}, seed=0)


def test_a_class_of_which_one_example_is_left_stays_in_training():
    shares = {"validation": 0.5, "test": 0.25}
    for seed in range(9):
        parts = data.draw(examples([0] * 3 + [1] * 9), shares, seed=seed)
        assert parts["train"].class_counts(2).all()
