"""GoEmotions: counts, what is kept, and one clear line for every broken file."""

import pathlib

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from rank4class import data


def test_goemotions_keeps_comments_with_one_label(tiny_goemotions):
    dataset = data.get("goemotions", path=str(tiny_goemotions))
    assert dataset.class_names == ("joy", "anger", "neutral")
    assert {name: len(split) for name, split in dataset.splits.items()} == {
        "train": 40,
        "validation": 10,
        "test": 11,
    }
    train = dataset.splits["train"]
    assert train.features["text"][1] == "awful bad mess 1"
    np.testing.assert_array_equal(train.labels[:4], [0, 1, 2, 0])


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (b"only text\n", r"train\.tsv:42 has 1 tab-separated columns, not 3 \(text, label ids, comment id\)"),
        (b"a\tb\t1\tid\n", r"train\.tsv:42 has 4 tab-separated columns"),
        (b"text\t3\tid\n", r"train\.tsv:42 has the label 3, outside the classes 0\.\.2"),
        (b"text\tjoy\tid\n", r"train\.tsv:42 has the label 'joy', which is not a class id"),
        (b"text\t-1\tid\n", r"train\.tsv:42 has the label '-1', which is not a class id"),
        (b"text\t\tid\n", r"train\.tsv:42 has the label '', which is not a class id"),
        (b"text \xff\t0\tid\n", r"train\.tsv:42 is not UTF-8: invalid start byte"),
    ],
)
def test_a_broken_row_is_named(tiny_goemotions, row, message):
    with open(tiny_goemotions / "train.tsv", "ab") as file:
        file.write(row)
    with pytest.raises(ValueError, match=message):
        data.get("goemotions", path=str(tiny_goemotions))


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("joy\n\nanger\n", r"emotions\.txt:2 has no class name"),
        ("joy\nanger\njoy\n", r"emotions\.txt:3 has the class name 'joy' again"),
    ],
)
def test_broken_class_names(tiny_goemotions, names, message):
    (tiny_goemotions / "emotions.txt").write_text(names)
    with pytest.raises(ValueError, match=message):
        data.get("goemotions", path=str(tiny_goemotions))


def test_byte_order_marks_and_windows_line_ends(tiny_goemotions):
    expected = data.get("goemotions", path=str(tiny_goemotions))
    for name in ("emotions.txt", "train.tsv"):
        path = tiny_goemotions / name
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    dataset = data.get("goemotions", path=str(tiny_goemotions))
    assert dataset.class_names == expected.class_names
    texts = [d.splits["train"].features["text"].tolist() for d in (dataset, expected)]
    assert texts[0] == texts[1]


def test_missing_and_empty_files(tiny_goemotions):
    (tiny_goemotions / "dev.tsv").write_text("")
    with pytest.raises(ValueError, match=r"dev\.tsv is empty"):
        data.get("goemotions", path=str(tiny_goemotions))
    (tiny_goemotions / "dev.tsv").write_text("two labels\t0,1\tid\n")
    with pytest.raises(ValueError, match="the validation split has no example"):
        data.get("goemotions", path=str(tiny_goemotions))
    (tiny_goemotions / "dev.tsv").unlink()
    with pytest.raises(FileNotFoundError, match=r"no file .*dev\.tsv"):
        data.get("goemotions", path=str(tiny_goemotions))


def test_goemotions_from_tfds():
    rows = []

    def examples(builder, *_args, **_kwargs):
        features = builder.info.features
        for i in range(4):
            row = dict.fromkeys(features, False) | {
                "comment_text": f"comment {i}",
                "joy": i != 3,
                "anger": i > 1,
            }
            rows.append(row)
            yield row

    def as_dataset(self, *args, **kwargs):
        spec = {name: tf.TensorSpec([], feature.dtype) for name, feature in self.info.features.items()}
        return tf.data.Dataset.from_generator(lambda: examples(self), output_signature=spec)

    with tfds.testing.mock_data(as_dataset_fn=as_dataset):
        dataset = data.get("goemotions")
    assert len(dataset.class_names) == 28
    train = dataset.splits["train"]
    assert list(train.features["text"]) == ["comment 0", "comment 1", "comment 3"]
    assert [dataset.class_names[label] for label in train.labels] == ["joy", "joy", "anger"]


def test_real_goemotions_has_the_papers_counts(real_data):
    dataset = data.get("goemotions", path=real_data("goemotions"))
    assert {name: len(split) for name, split in dataset.splits.items()} == {
        "train": 36308,
        "validation": 4548,
        "test": 4590,
    }
    assert len(dataset.class_names) == 28
    names = pathlib.Path(real_data("goemotions"), "emotions.txt").read_text().split()
    assert dataset.class_names == tuple(names)
