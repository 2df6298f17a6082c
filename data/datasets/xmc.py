"""Extreme multi-label classification: the formats of the Extreme Classification Repository."""

import array
import dataclasses
import os
import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import scipy.sparse

from rank4class import arguments, strict_json
from rank4class.data.dataset import Dataset, Split, draw_uniformly
from rank4class.data.labels import distinct_names
from rank4class.data.lazy_arrays import Origins
from rank4class.data.readers import files, rows
from rank4class.data.registry import DATASETS

TEXTS = ("trn.json.gz", "tst.json.gz", "lbl.json.gz")
SPARSE = ("train.txt", "test.txt")
LABEL_NAMES = ("labels.txt", "Y.txt")
FILTER = "filter_labels_test.txt"


@DATASETS.register("xmc")
def xmc(path: str, validation_fraction: float = 0.1, split_seed: int = 0) -> Dataset:
    """Examples with several of very many labels, in the formats of the Extreme Classification Repository.

    Sparse features are in `train.txt` and `test.txt`. The first line has the numbers of points, features and
    labels, each other line an example, `LABEL,LABEL FEATURE:VALUE FEATURE:VALUE`, with ids from 0. It begins
    with a blank if the example has no label. `labels.txt` or `Y.txt` may have the names of the labels, one
    per line; without it they are the ids.

    Texts are in `trn.json.gz` and `tst.json.gz`. Each line is a JSON object with `title`, `content` and
    `target_ind`, the ids of the labels. Each line of `lbl.json.gz` has the `title` of a label.

    Args:
      path: a folder with the files of either format. Test examples do not rank the labels that
        `filter_labels_test.txt` there, with lines `EXAMPLE LABEL` from 0, excludes.
      validation_fraction: fraction of the training examples to draw for validation at random, in (0, 1).
      split_seed: seed of the draw, at least 0.

    Returns:
      A `Dataset` with the feature `embedding`, a sparse float32 `[N, d]`, or `text`, strings `[N]`, title and
      content with a blank between them; and sparse labels. Equal names have their ids in brackets after them.

    References:
      Bhatia et al. (2016), The extreme classification repository: multi-label datasets and code.
    """
    arguments.check_fraction(False, section="data.", validation_fraction=validation_fraction)
    present = [names for names in (TEXTS, SPARSE) if os.path.isfile(os.path.join(path, names[0]))]
    if not present:
        raise FileNotFoundError(
            f"data.path={path}: neither {TEXTS[0]} nor {SPARSE[0]} there. Set it to the folder of one."
        )
    paths = [os.path.join(path, name) for name in present[0]]
    if present[0] == TEXTS:
        names = [title for _, [title] in _json_rows(paths[2], title=str)]
        train, test = (_read_texts(each, len(names)) for each in paths[:2])
    else:
        train, test = map(_read_sparse, paths)
        num_labels = train.labels.shape[1]
        paths += [each for name in LABEL_NAMES if os.path.isfile(each := os.path.join(path, name))][:1]
        names = [line for _, line in rows.lines(paths[2])] if paths[2:] else list(map(str, range(num_labels)))
    if os.path.isfile(filter_path := os.path.join(path, FILTER)):
        test = _exclude(test, filter_path)
        paths.append(filter_path)
    drawn = draw_uniformly(len(train), {"validation": validation_fraction}, seed=split_seed)
    splits = {name: train.select(part) for name, part in drawn.items()} | {"test": test}
    hashes = {each: files.sha256(each) for each in paths}
    return Dataset(distinct_names(names, range(len(names))), splits, files=hashes)


class _Rows:
    """Ids in the lines of a file, such as the labels of examples."""

    def __init__(self, path: str, first_line: int):
        self._path = path
        self._first_line = first_line
        self._ids = array.array("q")
        self._ends = array.array("q", [0])

    def append(self, ids: Iterable[int]) -> None:
        """Adds the ids of a line."""
        self._ids.extend(ids)
        self._ends.append(len(self._ids))

    def matrix(self, name: str, width: int, values: Any = None) -> scipy.sparse.csr_array:
        """Returns a sparse matrix, by default of ones; raises ValueError for an id that is out of range."""
        ids = np.frombuffer(self._ids, np.int64)
        values = np.ones(len(ids), np.float32) if values is None else np.frombuffer(values, np.float32)
        wrong = np.flatnonzero((ids < 0) | (ids >= width) | ~np.isfinite(values))
        if len(wrong):
            line = self._first_line + np.searchsorted(self._ends, wrong[0], side="right") - 1
            problem = f"is not one of 0 to {width - 1}" if np.isfinite(values[wrong[0]]) else "is not finite"
            raise ValueError(f"{self._path}:{line}: {name} {ids[wrong[0]]} {problem}. Correct it.")
        matrix = scipy.sparse.csr_array((values, ids, self._ends), shape=(len(self._ends) - 1, width))
        matrix.sum_duplicates()
        return matrix

    def origins(self) -> Origins:
        """Returns the names of the lines."""
        numbers = np.arange(self._first_line, self._first_line + len(self._ends) - 1)
        return Origins([f"{self._path}:{{}}"], np.zeros(len(numbers), np.int32), numbers)


def _read_sparse(path: str) -> Split:
    """Returns the examples of a file of sparse features; errors of scikit-learn's reader name no line."""
    lines = rows.lines(path)
    where, line = next(lines)
    sizes = re.fullmatch(r"(\d+) (\d+) (\d+) *", line)
    if not sizes:
        raise ValueError(
            f"{where}: {line[:80]!r} is not the numbers of points, features and labels. Write them there."
        )
    labels = _Rows(path, 2)
    features = _Rows(path, 2)
    values = array.array("f")
    for where, line in lines:
        head, _, tail = line.partition(" ")
        numbers = tail.replace(":", " ").split()
        try:
            labels.append(map(int, head.split(",") if head else ()))
            features.append(map(int, numbers[::2]))
            values.extend(map(float, numbers[1::2]))
            is_valid = len(numbers) == 2 * tail.count(":")
        except (ValueError, OverflowError):
            is_valid = False
        if not is_valid:
            raise ValueError(f"{where}: not LABEL,LABEL FEATURE:VALUE FEATURE:VALUE. Correct it.")
    points, width, num_labels = map(int, sizes.groups())
    matrix = labels.matrix("label", num_labels)
    if matrix.shape[0] != points:
        raise files.damaged(path, f"{rows.counted(matrix.shape[0], 'row')}, but {points:,} in the first line")
    return Split({"embedding": features.matrix("feature", width, values)}, matrix, labels.origins())


def _read_texts(path: str, num_labels: int) -> Split:
    """Returns the examples of a file of texts."""
    texts = []
    labels = _Rows(path, 1)
    for where, (title, content, ids) in _json_rows(path, title=str, content=str, target_ind=list):
        texts.append(f"{title} {content}".strip())
        try:
            labels.append(ids)
        except (TypeError, OverflowError) as error:
            raise ValueError(f"{where}: target_ind has another id than whole numbers. Correct it.") from error
    matrix = labels.matrix("label", num_labels)
    return Split({"text": np.array(texts, object)}, matrix, labels.origins())


def _json_rows(path: str, **types: type) -> Iterator[tuple[str, list[Any]]]:
    """Yields (`path:line`, values of some keys) for the JSON objects in the lines of a gzip file."""
    for where, line in rows.lines(path):
        row = strict_json.parse_object(where, line)
        for name, expected in types.items():
            if not isinstance(row.get(name), expected):
                raise ValueError(f"{where}: no {name!r} of type {expected.__name__}. Correct it.")
        yield where, [row[name] for name in types]


def _exclude(test: Split, path: str) -> Split:
    """Returns test examples that do not rank the labels of the pairs in a file."""
    try:
        examples, labels = np.loadtxt(path, np.int64, ndmin=2).T
        ones = np.ones(len(labels), bool)
        excluded = scipy.sparse.coo_array((ones, (examples, labels)), test.labels.shape).tocsr()
    except ValueError as error:
        raise ValueError(f"{path}: not lines of an example and a label ({error}). Correct it.") from error
    matrix = test.label_matrix - test.label_matrix.multiply(excluded)
    matrix.eliminate_zeros()
    return dataclasses.replace(test, labels=matrix, excluded=excluded)
