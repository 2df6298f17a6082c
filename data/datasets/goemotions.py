"""GoEmotions: comments by emotion."""

import dataclasses
import os

import numpy as np
from scipy.sparse import csr_array

from rank4class.data.dataset import Dataset, Split
from rank4class.data.datasets import table
from rank4class.data.readers import class_tables, files, prepared, rows, tables
from rank4class.data.readers.columns import Columns
from rank4class.data.registry import DATASETS

FILES = {"train": "train.tsv", "validation": "dev.tsv", "test": "test.tsv"}
COLUMNS = Columns(text_column="1", label_column="2", label_separator=",")  # the third has the comment's id


@DATASETS.register("goemotions")
def goemotions(path: str | None = None, multi_label: bool = False, tfds_dir: str | None = None) -> Dataset:
    """GoEmotions, the comments with exactly one emotion (Rank4Class, appendix B.1), or all comments.

    Args:
      path: folder of the published files, `{train,dev,test}.tsv` (text, comma-separated label ids,
        comment id; see `rows.tsv_records`) and `emotions.txt` (one name per line, in the order of the
        ids). None downloads the dataset once with TensorFlow Datasets.
      multi_label: whether to keep the comments with several emotions.
      tfds_dir: folder of prepared datasets; None is TensorFlow Datasets' default.

    Returns:
      A `Dataset` with the feature `text`, strings `[N]`; labels are sparse with `multi_label`.
    """
    names, splits, hashes = _from_folder(path) if path else _from_tfds(tfds_dir)
    if not multi_label:
        for name, split in splits.items():
            single = split.select(split.num_relevant() == 1)
            splits[name] = dataclasses.replace(single, labels=single.label_matrix.indices.astype(np.int32))
    return Dataset(names, splits, files=hashes)


def _from_folder(folder):
    """Returns the class names, split -> all comments, and path -> SHA-256."""
    names_path = os.path.join(folder, "emotions.txt")
    names = class_tables.class_names(names_path)
    ids = list(map(str, range(len(names))))
    known = f"one of the ids 0 to {len(names) - 1}"
    paths = {split: os.path.join(folder, file) for split, file in FILES.items()}
    bad_rows = rows.BadRows("fail", None)
    reader = tables.Reader(COLUMNS, bad_rows)
    splits = {
        split: table.to_split(path, reader.table([path]), ids, known, bad_rows)
        for split, path in paths.items()
    }
    return names, splits, {path: files.sha256(path) for path in (names_path, *paths.values())}


def _from_tfds(tfds_dir):
    """Returns the same as `_from_folder`, without hashes."""
    builder = prepared.builder("goemotions", "GoEmotions", tfds_dir)
    names = tuple(name for name in builder.info.features if name != "comment_text")
    splits = {}
    for split in FILES:
        examples = list(builder.as_dataset(split=split, shuffle_files=False).as_numpy_iterator())
        texts = np.array([example["comment_text"].decode() for example in examples], object)
        labels = np.array([[example[name] for name in names] for example in examples], np.float32)
        origins = np.array([f"goemotions {split} {i}" for i in range(len(examples))], object)
        splits[split] = Split({"text": texts}, csr_array(labels), origins)
    return names, splits, {}
