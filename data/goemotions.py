"""GoEmotions: comments by emotion."""

import itertools
import os

import numpy as np
from scipy.sparse import csr_array

from rank4class.data import sources
from rank4class.data.class_tables import class_names
from rank4class.data.dataset import Dataset, Split
from rank4class.data.registry import DATASETS

FILES = {"train": "train.tsv", "validation": "dev.tsv", "test": "test.tsv"}


@DATASETS.register("goemotions")
def goemotions(path=None, multi_label=False, on_invalid_row="fail", tfds_dir=None):
    """GoEmotions, the comments with exactly one emotion (Rank4Class, appendix B.1), or all of them.

    Args:
      path: folder of the published files, `{train,dev,test}.tsv` (text, comma-separated label ids,
        comment id) and `emotions.txt` (a name a line, in the order of the ids). Without it the
        dataset comes from TensorFlow Datasets, which downloads it once.
      multi_label: whether to keep the comments of several emotions too.
      on_invalid_row: "fail" or "skip", see `sources.BadRows`. A row is bad that has other columns, is not
        UTF-8, has a NUL character, has no text, a label that is no class id or comes twice, or a comment id
        that a row before it has, in whichever file.
      tfds_dir: folder of what TensorFlow Datasets has prepared; None takes its own.

    Returns:
      A `Dataset` with the feature `text`, strings `[N]`, and labels int32 `[N]`, or sparse
      float32 `[N, 28]` with `multi_label`.

    Raises:
      FileNotFoundError: a file is missing.
      OSError: TensorFlow Datasets cannot download it.
      ValueError: a row is bad; the message names file and line.
    """
    bad_rows = sources.BadRows(on_invalid_row)
    names, comments, files = _from_folder(path, bad_rows) if path else _from_tfds(tfds_dir, bad_rows)
    splits = {name: _split(rows, len(names), multi_label) for name, rows in comments.items()}
    return Dataset(names, splits, tuple(bad_rows.messages), files)


def _split(comments, num_classes, multi_label):
    """Returns the `Split` of comments (origin, text, label ids)."""
    kept = [comment for comment in comments if multi_label or len(comment[2]) == 1]
    origins, texts = (np.array([comment[i] for comment in kept], object) for i in (0, 1))
    if multi_label:
        ids = [sorted(ids) for _, _, ids in kept]
        ends = np.cumsum([0, *map(len, ids)])
        ids = np.fromiter(itertools.chain.from_iterable(ids), np.int32)
        labels = csr_array((np.ones(len(ids), np.float32), ids, ends), shape=(len(kept), num_classes))
    else:
        labels = np.array([ids[0] for _, _, ids in kept], np.int32)
    return Split({"text": texts}, labels, origins)


def _from_folder(folder, bad_rows):
    """Returns the names of the classes, split -> comments (origin, text, label ids), and the files read."""
    names_path = os.path.join(folder, "emotions.txt")
    names = tuple(class_names(names_path))
    paths = {split: os.path.join(folder, file) for split, file in FILES.items()}
    comments, places = {}, {}
    for split, path in paths.items():
        comments[split] = []
        for where, line in sources.lines(path, bad_rows):
            with bad_rows.row():
                comments[split].append(_comment(where, line, len(names), places))
    return names, comments, {path: sources.sha256(path) for path in (names_path, *paths.values())}


def _comment(where, line, num_classes, places):
    """Reads a row; `places` has the comment ids so far and where they stand."""
    columns = line.split("\t")
    if len(columns) != 3:
        raise ValueError(
            f"{where} has {len(columns)} tab-separated columns, not 3 (text, label ids, comment id)"
        )
    text, labels, comment_id = columns
    ids = []
    for label in labels.split(","):
        i = _class_id(label, num_classes, where)
        if i in ids:
            raise ValueError(f"{where} has the label {label} twice")
        ids.append(i)
    _check_text(where, text)
    if comment_id in places:
        raise ValueError(f"{where} has the comment id {comment_id!r}, which {places[comment_id]} has already")
    places[comment_id] = where
    return where, text, ids


def _class_id(field, num_classes, where):
    if not field.isdecimal():
        raise ValueError(f"{where} has the label {field!r}, which is not a class id")
    if int(field) >= num_classes:
        raise ValueError(f"{where} has the label {field}, outside the classes 0..{num_classes - 1}")
    return int(field)


def _check_text(where, text):
    if not text.strip():
        raise ValueError(f"{where} has no text")


def _from_tfds(tfds_dir, bad_rows):
    """Returns what `_from_folder` does, of no files."""
    builder = sources.tfds_builder("goemotions", "GoEmotions", tfds_dir)
    names = tuple(name for name in builder.info.features if name != "comment_text")
    comments = {}
    for split in FILES:
        comments[split] = []
        examples = builder.as_dataset(split=split, shuffle_files=False).as_numpy_iterator()
        for i, example in enumerate(examples):
            where = f"goemotions {split} {i}"
            ids = [j for j, emotion in enumerate(names) if example[emotion]]
            with bad_rows.row():
                text = example["comment_text"].decode()
                _check_text(where, text)
                if not ids:
                    raise ValueError(f"{where} has no emotion")
                comments[split].append((where, text, ids))
    return names, comments, {}
