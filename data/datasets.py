"""Datasets by name: each a few splits of features and integer labels, held in memory."""

import dataclasses
import difflib
import inspect
import os

import numpy as np
import sklearn.datasets
import sklearn.model_selection


@dataclasses.dataclass(frozen=True)
class Split:
    """Examples that belong together.

    Attributes:
      features: name -> array; the first axis of each counts the examples.
      labels: int32 `[N]`, ids of classes.
    """

    features: dict
    labels: np.ndarray

    def __len__(self):
        return len(self.labels)


@dataclasses.dataclass(frozen=True)
class Dataset:
    """A classification problem.

    Attributes:
      class_names: the names of the classes, by id.
      splits: "train", "validation" and "test".

    Raises:
      ValueError: a split is empty, or holds a label outside the classes.
    """

    class_names: tuple
    splits: dict

    def __post_init__(self):
        for name, split in self.splits.items():
            if not len(split):
                raise ValueError(f"the {name} split has no example")
            outside = np.flatnonzero((split.labels < 0) | (split.labels >= len(self.class_names)))
            if len(outside):
                raise ValueError(
                    f"example {outside[0]} of the {name} split has label {split.labels[outside[0]]}, "
                    f"outside the classes 0..{len(self.class_names) - 1}"
                )


def digits():
    """Handwritten digits, 8 x 8 pixels in `[0, 1]`, embedded in scikit-learn.

    The split, 60/20/20 and stratified, is fixed.

    Returns:
      A `Dataset` with the feature `image` float32 `[N, 8, 8, 1]`.

    >>> {name: len(split) for name, split in digits().splits.items()}
    {'train': 1078, 'validation': 359, 'test': 360}
    """
    bunch = sklearn.datasets.load_digits()
    images = (bunch.images / 16.0).astype(np.float32)[..., None]
    labels = bunch.target.astype(np.int32)
    indices = np.arange(len(labels))
    train, rest = sklearn.model_selection.train_test_split(
        indices, test_size=0.4, random_state=0, stratify=labels
    )
    validation, test = sklearn.model_selection.train_test_split(
        rest, test_size=0.5, random_state=0, stratify=labels[rest]
    )
    parts = {"train": train, "validation": validation, "test": test}
    splits = {name: Split({"image": images[part]}, labels[part]) for name, part in parts.items()}
    return Dataset(tuple(str(name) for name in bunch.target_names), splits)


def goemotions(path=None):
    """GoEmotions, the comments with exactly one emotion (Rank4Class, appendix B.1).

    Args:
      path: folder of the published files, `{train,dev,test}.tsv` (text, comma-separated label ids,
        comment id) and `emotions.txt` (a name a line, in the order of the ids). Without it the
        dataset comes from TensorFlow Datasets, which downloads it once.

    Returns:
      A `Dataset` with the feature `text`, strings `[N]`.

    Raises:
      FileNotFoundError: a file is missing.
      ValueError: a row is broken; the message names file and line.
    """
    return _goemotions_from_folder(path) if path else _goemotions_from_tfds()


def _goemotions_from_folder(folder):
    names_path = os.path.join(folder, "emotions.txt")
    class_names = []
    for where, name in _lines(names_path):
        if not name.strip() or name in class_names:
            raise ValueError(
                f"{where} has {'no class name' if not name.strip() else f'the class name {name!r} again'}"
            )
        class_names.append(name)
    class_names = tuple(class_names)
    splits = {}
    for name, file in (("train", "train.tsv"), ("validation", "dev.tsv"), ("test", "test.tsv")):
        texts, labels = [], []
        for where, line in _lines(os.path.join(folder, file)):
            columns = line.split("\t")
            if len(columns) != 3:
                raise ValueError(
                    f"{where} has {len(columns)} tab-separated columns, not 3 (text, label ids, comment id)"
                )
            ids = [_class_id(field, class_names, where) for field in columns[1].split(",")]
            if len(ids) == 1:
                texts.append(columns[0])
                labels.append(ids[0])
        splits[name] = Split({"text": np.array(texts, object)}, np.array(labels, np.int32))
    return Dataset(class_names, splits)


def _goemotions_from_tfds():
    import tensorflow_datasets as tfds  # slow to import, and not needed for a folder

    builder = tfds.builder("goemotions", try_gcs=False)
    try:
        builder.download_and_prepare()
    except OSError as error:
        raise OSError(
            f"GoEmotions could not be downloaded; set data.path to a folder of its files ({error})"
        ) from error
    class_names = tuple(name for name in builder.info.features if name != "comment_text")
    splits = {}
    for name in ("train", "validation", "test"):
        texts, labels = [], []
        for example in tfds.as_numpy(builder.as_dataset(split=name, shuffle_files=False)):
            ids = [i for i, emotion in enumerate(class_names) if example[emotion]]
            if len(ids) == 1:
                texts.append(example["comment_text"].decode())
                labels.append(ids[0])
        splits[name] = Split({"text": np.array(texts, object)}, np.array(labels, np.int32))
    return Dataset(class_names, splits)


def _lines(path):
    """Yields (`path:number`, line) for every line of a UTF-8 file, which may not be empty."""
    if not os.path.isfile(path):
        raise FileNotFoundError(f"no file {path}")
    number = 0
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                # utf-8-sig: some editors put a byte order mark before the first line.
                yield f"{path}:{number}", line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise ValueError(f"{path}:{number} is not UTF-8: {error.reason}") from error
    if not number:
        raise ValueError(f"{path} is empty")


def _class_id(field, class_names, where):
    if not field.isdecimal():
        raise ValueError(f"{where} has the label {field!r}, which is not a class id")
    if int(field) >= len(class_names):
        raise ValueError(f"{where} has the label {field}, outside the classes 0..{len(class_names) - 1}")
    return int(field)


DATASETS = {
    "digits": digits,
    "goemotions": goemotions,
}


def get(name, **knobs):
    """Returns the dataset of that name.

    Args:
      name: one of `DATASETS`.
      **knobs: the dataset's own, such as `path`.

    Raises:
      ValueError: see `check`.
      FileNotFoundError, ValueError: as the dataset's function says.

    >>> len(get("digits").class_names)
    10
    """
    check(name, knobs)
    return DATASETS[name](**knobs)


def check(name, knobs):
    """Raises ValueError for an unknown name, or a knob that the dataset does not have."""
    if name not in DATASETS:
        close = difflib.get_close_matches(name, DATASETS, n=1)
        hint = f", did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"unknown dataset {name!r}{hint}; there are: {', '.join(DATASETS)}")
    known = tuple(inspect.signature(DATASETS[name]).parameters)
    for knob in knobs:
        if knob not in known:
            raise ValueError(f"dataset {name!r} has no knob {knob!r}; it has: {', '.join(known) or 'none'}")
