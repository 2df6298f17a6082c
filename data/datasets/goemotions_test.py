"""GoEmotions: labels, origins, TensorFlow Datasets, and errors for invalid files."""

import pathlib

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from rank4class import data


def load(path, **options):
    return data.get("goemotions", path=path, **options)


def test_single_label_keeps_comments_with_one_emotion(tiny_goemotions):
    dataset = load(tiny_goemotions)
    assert dataset.class_names == ("joy", "anger", "neutral")
    assert {n: len(s) for n, s in dataset.splits.items()} == {"train": 40, "validation": 10, "test": 11}
    train = dataset.splits["train"]
    assert train.features["text"][1] == "awful bad mess 1"
    np.testing.assert_array_equal(train.labels[:4], [0, 1, 2, 0])
    assert train.labels.dtype == np.int32
    names = ("emotions.txt", "train.tsv", "dev.tsv", "test.tsv")
    assert set(dataset.files) == {str(tiny_goemotions / name) for name in names}
    path = tiny_goemotions / "dev.tsv"
    path.write_text("both\t0,1\tidfirst\n" + path.read_text())
    validation = load(tiny_goemotions).splits["validation"]
    assert list(validation.origins) == [f"{path}:{i}" for i in range(2, 12)]


def test_multi_label_keeps_all_comments(tiny_goemotions):
    single = load(tiny_goemotions).splits["test"]
    test = load(tiny_goemotions, multi_label=True).splits["test"]
    assert (len(single), len(test)) == (11, 12)
    assert test.labels.dtype == np.float32
    np.testing.assert_array_equal(test.labels.toarray(), [*np.eye(3)[single.labels], [1, 1, 0]])
    assert test.features["text"][-1] == "both at once"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (b"only text\n", r"train\.tsv:42: 1 column, but 3 in the first line"),
        (b"text\t3\tid\n", r"train\.tsv:42: class '3' is not one of the ids 0 to 2"),
        (b"text\tjoy\tid\n", r"train\.tsv:42: class 'joy' is not one of the ids"),
        ("text\t٣\tid\n".encode(), r"train\.tsv:42: class '٣' is not one of the ids"),
        (b"text\t1,1\tid\n", r"train\.tsv:42: 2 '1' is repeated"),
        (b" \t1\tid\n", r"train\.tsv:42: '1' is empty"),
    ],
)
def test_invalid_rows(tiny_goemotions, row, message):
    with open(tiny_goemotions / "train.tsv", "ab") as file:
        file.write(row)
    with pytest.raises(ValueError, match=message):
        load(tiny_goemotions)


def test_missing_and_empty_files(tiny_goemotions):
    (tiny_goemotions / "dev.tsv").write_text("")
    with pytest.raises(ValueError, match=r"dev\.tsv: the file is empty"):
        load(tiny_goemotions)
    (tiny_goemotions / "dev.tsv").write_text("two labels\t0,1\tid\n")
    with pytest.raises(ValueError, match="the validation split has no example"):
        load(tiny_goemotions)
    (tiny_goemotions / "dev.tsv").unlink()
    with pytest.raises(FileNotFoundError, match=r"dev\.tsv: no such file"):
        load(tiny_goemotions)


@pytest.fixture
def published():
    """Makes TensorFlow Datasets return the same four comments for every split of GoEmotions."""

    def as_dataset(builder, *_args, **_kwargs):
        spec = {name: tf.TensorSpec([], feature.dtype) for name, feature in builder.info.features.items()}

        def examples():
            for i in range(4):
                labels = {"joy": i != 3, "anger": i in (2, 3)}
                yield dict.fromkeys(spec, False) | labels | {"comment_text": f"comment {i}"}

        return tf.data.Dataset.from_generator(examples, output_signature=spec)

    with tfds.testing.mock_data(as_dataset_fn=as_dataset):
        yield


@pytest.mark.nightly
def test_goemotions_from_tfds(published):
    dataset = data.get("goemotions")
    assert len(dataset.class_names) == 28
    train = dataset.splits["train"]
    assert list(train.features["text"]) == ["comment 0", "comment 1", "comment 3"]
    assert [dataset.class_names[label] for label in train.labels] == ["joy", "joy", "anger"]
    assert train.origins.tolist() == [f"goemotions train {i}" for i in (0, 1, 3)]
    labels = data.get("goemotions", multi_label=True).splits["test"].labels.toarray()
    names = [[dataset.class_names[i] for i in np.flatnonzero(row)] for row in labels]
    assert names == [["joy"], ["joy"], ["anger", "joy"], ["anger"]]


@pytest.mark.nightly
def test_real_goemotions_has_the_sizes_of_the_paper(real_data):
    dataset = load(real_data("goemotions"))
    sizes = {name: len(split) for name, split in dataset.splits.items()}
    assert sizes == {"train": 36308, "validation": 4548, "test": 4590}
    assert len(dataset.class_names) == 28
    names = pathlib.Path(real_data("goemotions"), "emotions.txt").read_text().split()
    assert dataset.class_names == tuple(names)
    assert dataset.skipped == ()
    several = load(real_data("goemotions"), multi_label=True).splits
    assert [split.labels.shape for split in several.values()] == [(43410, 28), (5426, 28), (5427, 28)]
    assert several["train"].labels.sum(axis=1).min() == 1.0
