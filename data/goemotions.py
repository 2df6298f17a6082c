"""GoEmotions: comments by emotion."""

import os

import numpy as np

from rank4class.data import sources
from rank4class.data.splits import Dataset, Split


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
    for where, name in sources.lines(names_path):
        if not name.strip() or name in class_names:
            raise ValueError(
                f"{where} has {'no class name' if not name.strip() else f'the class name {name!r} again'}"
            )
        class_names.append(name)
    class_names = tuple(class_names)
    splits = {}
    for name, file in (("train", "train.tsv"), ("validation", "dev.tsv"), ("test", "test.tsv")):
        texts, labels = [], []
        for where, line in sources.lines(os.path.join(folder, file)):
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
    builder = sources.tfds_builder("goemotions", "GoEmotions")
    class_names = tuple(name for name in builder.info.features if name != "comment_text")
    splits = {}
    for name in ("train", "validation", "test"):
        texts, labels = [], []
        for example in builder.as_dataset(split=name, shuffle_files=False).as_numpy_iterator():
            ids = [i for i, emotion in enumerate(class_names) if example[emotion]]
            if len(ids) == 1:
                texts.append(example["comment_text"].decode())
                labels.append(ids[0])
        splits[name] = Split({"text": np.array(texts, object)}, np.array(labels, np.int32))
    return Dataset(class_names, splits)


def _class_id(field, class_names, where):
    if not field.isdecimal():
        raise ValueError(f"{where} has the label {field!r}, which is not a class id")
    if int(field) >= len(class_names):
        raise ValueError(f"{where} has the label {field}, outside the classes 0..{len(class_names) - 1}")
    return int(field)
