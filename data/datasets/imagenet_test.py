"""ImageNet: its layouts, stored indices of records, and errors for invalid files."""

import itertools
import os

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from rank4class import data


def load(path, **options):
    return data.get("imagenet", path=path, **options)


@pytest.fixture
def tiny_imagenet(tmp_path):
    """Writes a small folder in ImageNet's published layout; returns its path."""
    for folder, size in (("train/n02", 3), ("train/n01", 2), ("val/n01", 1), ("val/n02", 2)):
        (tmp_path / folder).mkdir(parents=True)
        for i in range(size):
            (tmp_path / folder / f"image_{i}.JPEG").write_bytes(b"")
    (tmp_path / "train" / "synsets.txt").write_text("n01\nn02\n")
    return tmp_path


@pytest.mark.parametrize("validation", ["val", "validation"])
def test_image_folders(tiny_imagenet, validation):
    (tiny_imagenet / "val").rename(tiny_imagenet / validation)
    dataset = load(tiny_imagenet)
    assert dataset.class_names == ("n01", "n02")
    for name, folder, sizes in (("train", "train", (2, 3)), ("validation", validation, (1, 2))):
        split = dataset.splits[name]
        files = [file.removeprefix(f"{tiny_imagenet}/{folder}/") for file in split.features["file"]]
        expected = [(f"n0{c + 1}/image_{i}.JPEG", c) for c in (0, 1) for i in range(sizes[c])]
        assert list(zip(files, split.labels, strict=True)) == expected
    assert dataset.splits["test"] is dataset.splits["validation"]


def test_invalid_folders(tiny_imagenet):
    def message():
        with pytest.raises((ValueError, FileNotFoundError)) as caught:
            load(tiny_imagenet)
        return str(caught.value).replace(str(tiny_imagenet), "FOLDER")

    (tiny_imagenet / "val" / "n03").mkdir()
    (tiny_imagenet / "val" / "n03" / "image.JPEG").write_bytes(b"")
    assert message() == "FOLDER/val/n03: the class is not in FOLDER/train. Add it."
    (tiny_imagenet / "val").rename(tiny_imagenet / "elsewhere")
    assert message() == "FOLDER/val: no such folder, nor FOLDER/validation. Add one."
    (tiny_imagenet / "train").rename(tiny_imagenet / "training")
    assert message() == "data.path=FOLDER: no folder with train/ and val/, or with records. Set it to one."


def gray(value):
    """Returns a JPEG image of one shade of gray."""
    return tf.io.encode_jpeg(tf.fill([20, 30, 3], tf.constant(value, tf.uint8))).numpy()


def greys(dataset, name):
    """Decodes the images of a split; returns their shades of gray, rounded to multiples of 10."""
    features = {key: tf.constant(values) for key, values in dataset.splits[name].features.items()}
    images = data.DecodeAndCrop(8)(features)["image"].numpy()
    return (images.mean(axis=(1, 2, 3)) * 25.5).round().astype(int) * 10


def write_records(path, rows):
    with tf.io.TFRecordWriter(str(path)) as writer:
        for row in rows:
            example = tf.train.Example()
            for name, value in row.items():
                if isinstance(value, int):
                    example.features.feature[name].int64_list.value.append(value)
                else:
                    example.features.feature[name].bytes_list.value.append(value)
            writer.write(example.SerializeToString())


def garden_row(label, value, **changes):
    return {
        "image/encoded": gray(value),
        "image/format": b"JPEG",
        "image/class/label": label,
        "image/class/synset": f"n0{label}".encode(),
        "image/filename": b"image.JPEG",
        **changes,
    }


@pytest.fixture
def garden(tmp_path):
    """Writes a few images as the Model Garden's records; returns their folder."""
    shards = {
        "train-00000-of-00002": [(2, 10), (1, 20), (3, 30)],
        "train-00001-of-00002": [(1, 40), (2, 50)],
        "validation-00000-of-00001": [(3, 60), (1, 70)],
    }
    for name, rows in shards.items():
        write_records(tmp_path / name, [garden_row(*row) for row in rows])
    return tmp_path


@pytest.mark.nightly
def test_model_garden_records(garden):
    dataset = load(garden)
    assert dataset.class_names == ("n01", "n02", "n03")
    assert dataset.splits["train"].labels.tolist() == [1, 0, 2, 0, 1]
    assert dataset.splits["train"].labels.dtype == np.int32
    assert greys(dataset, "train").tolist() == [10, 20, 30, 40, 50]
    assert dataset.splits["validation"].labels.tolist() == [2, 0]
    assert greys(dataset, "validation").tolist() == [60, 70]
    assert dataset.splits["test"] is dataset.splits["validation"]
    assert dataset.splits["train"].features["offset"].dtype == np.int64
    assert dataset.splits["train"].origin(4) == f"{garden}/train-00001-of-00002 record 2"


def test_record_index_is_stored(garden, tmp_path, monkeypatch):
    def indices(folder):
        return sorted(path.name for path in folder.glob("*records-*.npz"))

    first = load(garden)
    assert len(indices(garden)) == 2
    elsewhere = tmp_path / "elsewhere" / "tfds"
    load(garden, tfds_dir=elsewhere)
    assert indices(elsewhere) == indices(garden)

    monkeypatch.setattr(tf.data, "TFRecordDataset", None)
    second = load(garden)
    for name, split in second.splits.items():
        for key, values in first.splits[name].features.items():
            np.testing.assert_array_equal(split.features[key], values)
        np.testing.assert_array_equal(split.labels, first.splits[name].labels)
    monkeypatch.undo()

    path = garden / "train-00001-of-00002"
    size = path.stat().st_size
    write_records(path, [garden_row(2, 40), garden_row(1, 50)])
    os.utime(path, (0, 0))  # only the time differs; file times may count seconds
    assert path.stat().st_size == size
    assert load(garden).splits["train"].labels.tolist() == [1, 0, 2, 1, 0]
    assert len(indices(garden)) == 3


@pytest.mark.nightly
def test_index_that_cannot_be_stored_is_rebuilt(garden, caplog):
    (garden / "file").write_text("no folder")
    for _ in range(2):
        dataset = load(garden, tfds_dir=garden / "file" / "folder")
        assert greys(dataset, "train").tolist() == [10, 20, 30, 40, 50]
        assert "cannot be stored and will be rebuilt at every start" in caplog.text
        caplog.clear()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda b: b[:-1], r"train-00000-of-00002: record 3 cannot be read: truncated record at \d+"),
        (lambda b: b + b"\x01\x02", r"train-00000-of-00002: truncated after record 3"),
        (lambda b: b"", r"train-00000-of-00002: truncated after record 0"),
        (lambda b: b[:50] + b"\xff\xff" + b[52:], r"-00002: record 1 cannot be read: corrupted record at 12"),
        (lambda b: b"no record at all" * 9, r"-00002: record 1 cannot be read: corrupted .*Is this even a"),
    ],
)
def test_invalid_record_files(garden, change, message):
    path = garden / "train-00000-of-00002"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ValueError, match=rf"^{garden}/.*{message}"):
        load(garden)
    assert not list(garden.glob("*.npz"))


def test_invalid_model_garden_records(garden):
    times = itertools.count()

    def message(*rows):
        write_records(garden / "train-00001-of-00002", rows)
        os.utime(garden / "train-00001-of-00002", 2 * (next(times),))
        with pytest.raises((ValueError, FileNotFoundError)) as caught:
            load(garden)
        return str(caught.value).replace(str(garden), "FOLDER")

    row = garden_row(1, 0)
    del row["image/class/label"]
    assert message(garden_row(1, 10), row) == (
        "FOLDER/train-00001-of-00002: record 2 cannot be read: Feature: image/class/label (data type: int64) "
        "is required but could not be found. Copy the file again."
    )
    synset = {"image/class/synset": b"n09"}
    for rows, problem in (
        ([garden_row(2, 0), garden_row(2, 0, **synset)], "2: of b'n09', expected 3"),
        ([garden_row(5, 0)], "5: of b'n05', expected 4"),
        ([garden_row(0, 0)], "0: of b'n00', expected 1"),
    ):
        assert message(*rows).startswith(f"image/class/label={problem}. Number the classes")
    (garden / "train-00000-of-00002").unlink()
    assert message() == "FOLDER/train-00000-of-00002: no such file. Copy it there."
    write_records(garden / "train-00000-of-00002", [garden_row(1, 0)])
    (garden / "validation-00000-of-00001").unlink()
    assert message() == "FOLDER: no files validation-*-of-*. Copy them there."


@pytest.fixture
def prepared(tmp_path):
    """Writes a few images as TensorFlow Datasets prepares them; returns their folder."""
    features = tfds.features.FeaturesDict(
        {
            "image": tfds.features.Image(encoding_format="jpeg"),
            "label": tfds.features.ClassLabel(names=["n01", "n02"]),
            "file_name": tfds.features.Text(),
        }
    )
    splits = []
    for name, lengths in (("train", [2, 1]), ("validation", [1])):
        template = tfds.core.ShardedFileTemplate(
            dataset_name="imagenet2012", data_dir=tmp_path, split=name, filetype_suffix="tfrecord"
        )
        sizes = {"shard_lengths": lengths, "num_bytes": 0}
        splits.append(tfds.core.SplitInfo(name=name, filename_template=template, **sizes))
        for i, length in enumerate(lengths):
            rows = [
                {"image": gray(100 * i + 10 * j), "label": (i + j) % 2, "file_name": b"x.JPEG"}
                for j in range(length)
            ]
            write_records(tmp_path / f"imagenet2012-{name}.tfrecord-{i:05}-of-{len(lengths):05}", rows)
    options = {"features": features, "split_infos": splits, "check_data": False}
    tfds.folder_dataset.write_metadata(data_dir=tmp_path, **options)
    return tmp_path


def test_prepared_records(prepared):
    dataset = load(prepared)
    assert dataset.class_names == ("n01", "n02")
    assert dataset.splits["train"].labels.tolist() == [0, 1, 1]
    assert greys(dataset, "train").tolist() == [0, 10, 100]
    assert dataset.splits["test"].origin(0).endswith("validation.tfrecord-00000-of-00001 record 1")
    assert len(list(prepared.glob("records-*.npz"))) == 2


def test_records_in_another_file_system(garden, monkeypatch):
    # TensorFlow's in-memory file system replaces gs://; only `tf.io.gfile` can read either.
    for path in garden.iterdir():
        tf.io.gfile.copy(str(path), f"ram://records/{path.name}", overwrite=True)
    dataset = load("ram://records")
    assert greys(dataset, "train").tolist() == [10, 20, 30, 40, 50]
    assert any(name.startswith("records-") for name in tf.io.gfile.listdir("ram://records"))
    again = load("ram://records")
    assert again.splits["train"].labels.tolist() == dataset.splits["train"].labels.tolist()
