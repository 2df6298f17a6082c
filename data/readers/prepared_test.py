"""Small images from TensorFlow Datasets, and errors of its downloads."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from tensorflow_datasets.core.download.download_manager import NonMatchingChecksumError

from rank4class import data


@pytest.mark.parametrize(("name", "shape"), [("cifar10", [32, 32, 3]), ("mnist", [28, 28, 1])])
def test_from_tfds(name, shape):
    def as_dataset(self, split, **_):
        numbers = np.arange({"train": 100, "test": 20}[split])
        images = np.tile(numbers.astype(np.uint8)[:, None, None, None], [1, *shape])
        return tf.data.Dataset.from_tensor_slices({"image": images, "label": numbers % 10})

    with tfds.testing.mock_data(as_dataset_fn=as_dataset):
        dataset = data.get(name)
    assert len(dataset.class_names) == 10
    assert {n: len(s) for n, s in dataset.splits.items()} == {"train": 90, "validation": 10, "test": 20}
    assert dataset.splits["test"].origin(4) == f"{name} test record 5"
    for split in dataset.splits.values():
        assert split.labels.dtype == np.int32
        np.testing.assert_array_equal(split.features["image"][:, 5, 5, 0] % 10, split.labels)


@pytest.mark.parametrize("error", [OSError("no route"), NonMatchingChecksumError("no route")])
def test_failed_download(monkeypatch, tmp_path, error):
    def fail(*_args, **_kwargs):
        raise error

    monkeypatch.setattr(tfds.core.DatasetBuilder, "download_and_prepare", fail)
    for name, title in (("cifar10", "CIFAR-10"), ("mnist", "MNIST"), ("movielens", "MovieLens")):
        message = rf"{title} cannot be downloaded to .*{tmp_path}/{name}/.*\(no route\)\. Set data\.path"
        with pytest.raises(OSError, match=rf"^data\.tfds_dir={tmp_path}: {message}"):
            data.get(name, tfds_dir=tmp_path)
