"""GoEmotions: comments by emotion."""

import itertools
import os
import re

import numpy as np
from scipy.sparse import csr_array

from rank4class.data.dataset import Dataset, Split
from rank4class.data.readers import class_tables, files, prepared, rows
from rank4class.data.registry import DATASETS

FILES = {"train": "train.tsv", "validation": "dev.tsv", "test": "test.tsv"}


@DATASETS.register("goemotions")
def goemotions(
    path: str | None = None,
    multi_label: bool = False,
    on_invalid_row: str = "fail",
    tfds_dir: str | None = None,
) -> Dataset:
    """GoEmotions, the comments with exactly one emotion (Rank4Class, appendix B.1), or all comments.

    Args:
      path: folder of the published files, `{train,dev,test}.tsv` (text, comma-separated label ids,
        comment id; see `rows.tsv_records`) and `emotions.txt` (one name per line, in the order of the
        ids). None downloads the dataset once with TensorFlow Datasets.
      multi_label: whether to keep the comments with several emotions.
      on_invalid_row: "fail" or "skip", see `rows.BadRows`. A row is invalid if it has other columns, is not
        UTF-8, has a NUL character or no text, labels that are not different class ids, or the comment id of
        an earlier row in any file.
      tfds_dir: folder of prepared datasets; None is TensorFlow Datasets' default.

    Returns:
      A `Dataset` with the feature `text`, strings `[N]`; labels are sparse with `multi_label`.

    Raises:
      FileNotFoundError: a file is missing.
      OSError: TensorFlow Datasets cannot download the dataset.
      ValueError: an invalid row; the message names file and line.
    """
    bad_rows = rows.BadRows(on_invalid_row)
    names, comments, hashes = _from_folder(path, bad_rows) if path else _from_tfds(tfds_dir, bad_rows)
    splits = {name: _split(each, len(names), multi_label) for name, each in comments.items()}
    return Dataset(names, splits, tuple(bad_rows.messages), hashes)


def _split(comments, num_classes, multi_label):
    """Returns the `Split` of comments (origin, text, label ids)."""
    comments = [comment for comment in comments if multi_label or len(comment[2]) == 1]
    origins, texts = (np.array([comment[i] for comment in comments], object) for i in (0, 1))
    if multi_label:
        lists = [sorted(ids) for _, _, ids in comments]
        ends = np.cumsum([0, *map(len, lists)])
        ids = np.fromiter(itertools.chain.from_iterable(lists), np.int32)
        labels = csr_array((np.ones(len(ids), np.float32), ids, ends), shape=(len(comments), num_classes))
    else:
        labels = np.array([ids[0] for _, _, ids in comments], np.int32)
    return Split({"text": texts}, labels, origins)


def _from_folder(folder, bad_rows):
    """Returns the class names, split -> comments (origin, text, label ids), and path -> SHA-256."""
    names_path = os.path.join(folder, "emotions.txt")
    names = tuple(class_tables.class_names(names_path))
    paths = {split: os.path.join(folder, file) for split, file in FILES.items()}
    comments: dict[str, list[tuple[str, str, list[int]]]] = {}
    first_rows: dict[str, str] = {}
    for split, path in paths.items():
        comments[split] = []
        with bad_rows.whole_file():
            for where, columns in rows.tsv_records(path, bad_rows):
                with bad_rows.row():
                    comments[split].append(_comment(where, columns, len(names), first_rows))
    return names, comments, {path: files.sha256(path) for path in (names_path, *paths.values())}


def _comment(where, columns, num_classes, first_rows):
    """Returns the comment in a row, and adds the row to `first_rows`, which maps comment ids to rows."""
    if len(columns) != 3:
        raise ValueError(
            f"{where}: {rows.counted(len(columns), 'tab-separated column')}, expected 3 (text, label ids, "
            "comment id)."
        )
    text, labels, comment_id = columns
    ids = [_class_id(label, num_classes, where) for label in labels.split(",")]
    if len(set(ids)) < len(ids):
        raise ValueError(f"{where}: a label of {labels} is repeated.")
    if not text.strip():
        raise ValueError(f"{where}: the text is empty.")
    if comment_id in first_rows:
        raise ValueError(f"{where}: {first_rows[comment_id]} already has comment id {comment_id!r}.")
    first_rows[comment_id] = where
    return where, text, ids


def _class_id(field, num_classes, where):
    if not (re.fullmatch("[0-9]{1,9}", field) and int(field) < num_classes):
        raise ValueError(f"{where}: label {field[:80]!r} is not a class id, 0..{num_classes - 1}.")
    return int(field)


def _from_tfds(tfds_dir, bad_rows):
    """Returns the same as `_from_folder`, without hashes."""
    builder = prepared.builder("goemotions", "GoEmotions", tfds_dir)
    names = tuple(name for name in builder.info.features if name != "comment_text")
    comments: dict[str, list[tuple[str, str, list[int]]]] = {}
    for split in FILES:
        comments[split] = []
        examples = builder.as_dataset(split=split, shuffle_files=False).as_numpy_iterator()
        for i, example in enumerate(examples):
            where = f"goemotions {split} {i}"
            ids = [j for j, emotion in enumerate(names) if example[emotion]]
            with bad_rows.row():
                if not ids:
                    raise ValueError(f"{where}: no emotion.")
                comments[split].append((where, example["comment_text"].decode(), ids))
    return names, comments, {}
