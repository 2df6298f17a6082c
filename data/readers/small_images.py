"""Published training and test images of ten classes, held in memory."""

import numpy as np
import sklearn.model_selection

from rank4class.data.dataset import Dataset, Split
from rank4class.data.readers import prepared


def numbered_split(source: str, images: np.ndarray, labels: np.ndarray) -> Split:
    """Returns a `Split` whose origins are the records of a file, numbered from 1."""
    origins = np.array([f"{source} record {i}" for i in range(1, len(labels) + 1)], object)
    return Split({"image": images}, labels.astype(np.int32), origins)


def from_tfds(name: str, title: str, tfds_dir: str | None) -> tuple[tuple[str, ...], Split, Split]:
    """Returns TensorFlow Datasets' class names, training and test split; see `prepared.builder`."""
    builder = prepared.builder(name, title, tfds_dir)

    def read(part: str) -> Split:
        batches = builder.as_dataset(split=part, shuffle_files=False, batch_size=1000)
        images, labels = zip(*((b["image"], b["label"]) for b in batches.as_numpy_iterator()), strict=True)
        return numbered_split(f"{name} {part}", np.concatenate(images), np.concatenate(labels))

    return tuple(builder.info.features["label"].names), read("train"), read("test")


def hold_out_tenth(
    class_names: tuple[str, ...], train: Split, test: Split, files: dict[str, str] | None = None
) -> Dataset:
    """Returns a dataset whose validation split is a fixed, stratified tenth of the training images."""
    rest, held_out = sklearn.model_selection.train_test_split(
        np.arange(len(train)), test_size=0.1, random_state=0, stratify=train.labels
    )
    splits = {"train": train.select(rest), "validation": train.select(held_out), "test": test}
    return Dataset(class_names, splits, files=files or {})
