"""Datasets that TensorFlow Datasets prepares, and published images of ten classes, held in memory."""

import contextlib
import io
import sys
from typing import Any

import numpy as np
import sklearn.model_selection
from absl import logging

from rank4class.data.dataset import Dataset, Split


def builder(name: str, title: str, data_dir: str | None = None) -> Any:
    """Returns TensorFlow Datasets' `DatasetBuilder` of that name; OSError if it cannot be prepared."""
    import tensorflow_datasets as tfds  # slow to import
    from tensorflow_datasets.core.download.download_manager import NonMatchingChecksumError

    builder = tfds.builder(name, data_dir=data_dir, try_gcs=False)
    if builder.is_prepared():
        return builder
    logging.info("TensorFlow Datasets prepares %s in %s", builder.name, builder.data_dir)
    tfds.display_progress_bar(sys.stderr.isatty())
    config = tfds.download.DownloadConfig(try_download_gcs=False)  # not from Google's copy
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            builder.download_and_prepare(download_config=config)
    except (OSError, NonMatchingChecksumError) as error:  # the publisher may have changed the files
        raise OSError(
            f"data.tfds_dir={data_dir}: {title} cannot be downloaded to and prepared in {builder.data_dir} "
            f"({error}). Set data.path to a folder of its files."
        ) from error
    return builder


def numbered_split(source: str, images: np.ndarray, labels: np.ndarray) -> Split:
    """Returns a `Split` whose origins are the records of a file, numbered from 1."""
    origins = np.array([f"{source} record {i}" for i in range(1, len(labels) + 1)], object)
    return Split({"image": images}, labels.astype(np.int32), origins)


def from_tfds(name: str, title: str, tfds_dir: str | None) -> tuple[tuple[str, ...], Split, Split]:
    """Returns TensorFlow Datasets' class names, training and test split; see `builder`."""
    source = builder(name, title, tfds_dir)

    def read(part: str) -> Split:
        batches = source.as_dataset(split=part, shuffle_files=False, batch_size=1000)
        images, labels = zip(*((b["image"], b["label"]) for b in batches.as_numpy_iterator()), strict=True)
        return numbered_split(f"{name} {part}", np.concatenate(images), np.concatenate(labels))

    return tuple(source.info.features["label"].names), read("train"), read("test")


def hold_out_tenth(
    class_names: tuple[str, ...], train: Split, test: Split, files: dict[str, str] | None = None
) -> Dataset:
    """Returns a dataset whose validation split is a fixed, stratified tenth of the training images."""
    rest, held_out = sklearn.model_selection.train_test_split(
        np.arange(len(train)), test_size=0.1, random_state=0, stratify=train.labels
    )
    splits = {"train": train.select(rest), "validation": train.select(held_out), "test": test}
    return Dataset(class_names, splits, files=files or {})
