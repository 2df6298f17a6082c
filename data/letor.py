"""Learning to rank: queries with graded documents, in LETOR's layout or in that of LightGBM's example."""

import functools
import io
import itertools
import math
import os
import re
from typing import NamedTuple

import numpy as np
import scipy.sparse
import sklearn.datasets

from rank4class.data import sources
from rank4class.data.dataset import Dataset, Split
from rank4class.data.registry import DATASETS

LETOR = {"train": "train.txt", "validation": "vali.txt", "test": "test.txt"}
LIGHTGBM = {
    "train": "rank.train",
    "test": "rank.test",
}  # and beside each its queries' sizes, rank.train.query
MOST_BYTES = 8 * 10**9  # of the padded features


class Queries(NamedTuple):
    """The queries of a file, with `R` documents together.

    Attributes:
      values: of the documents' features, a sparse float32 matrix `[R, d]`.
      grades: of the documents, float32 `[R]`.
      bounds: where each query's documents begin, and where the last one's end, int `[Q + 1]`.
      origins: what to call the queries, object `[Q]`.
    """

    values: scipy.sparse.csr_matrix
    grades: np.ndarray
    bounds: np.ndarray
    origins: np.ndarray

    def select(self, places):
        """Returns some of the queries, by their indices."""
        sizes = np.diff(self.bounds)[places]
        rows = np.concatenate([np.arange(*self.bounds[i : i + 2]) for i in places])
        return Queries(self.values[rows], self.grades[rows], _bounds(sizes), self.origins[places])


@DATASETS.register("letor")
def letor(path=None, validation_fraction=0.2, split_seed=0):
    """Queries with graded documents: an instance is a query, its classes are its documents.

    Two layouts are told apart by the names of the files. LETOR's (MSLR's too) has `train.txt`, `vali.txt` and
    `test.txt` with rows `grade qid:ID 1:value 2:value ... # comment`. LightGBM's example has `rank.train` and
    `rank.test`, whose rows have no `qid`, and beside them `rank.train.query` and `rank.test.query`: how many
    documents each query has, one number a line. A query's rows stand together. A row's features may be in any
    order; one that is there twice has to have the same value.

    Lists are padded to the longest of all splits, which takes `4 N m d` bytes for `N` queries of at most `m`
    documents with `d` features, and in a training as much again; more than 8 GB are refused.

    A training query without a relevant document, of a grade above 0, is left out: no ranking loss learns from
    it. Validation and test keep theirs. There the metrics have their worst value, an NDCG of 0, as in LETOR's
    own evaluation; where such queries count as 1 or are passed over, figures are higher.

    Args:
      path: a folder of either layout; of LETOR that of one fold.
      validation_fraction: how many of the training queries to hold out where there is no `vali.txt`, in (0,
        1).
      split_seed: which queries are held out hangs on it.

    Returns:
      A `Dataset` with the feature `items`, float32 `[N, m, d]`, zeros where no document is, and sparse labels
      float32 `[N, m]`, the grades. The classes are the places in the list; those that a query has no document
      at are `excluded`, in training too.

    Raises:
      FileNotFoundError: no such folder or file.
      ValueError: the folder holds both layouts; a file is empty; a row is bad or not with its query's others,
        and the message names file and line; the sizes are not those of the rows; the share leaves no query;
        the lists take more memory than they may.
    """
    paths = _paths(path)
    queries = {split: _read(file) for split, file in paths.items()}
    if "validation" not in queries:
        queries |= _held_out(queries["train"], validation_fraction, split_seed)
    length, width = _size(queries.values())
    splits = {name: _padded(queries[name], length, width) for name in ("train", "validation", "test")}
    splits["train"], skipped = _without_irrelevant(splits["train"])
    files = {file: sources.sha256(file) for one in paths.values() for file in (one, _sizes_path(one)) if file}
    return Dataset(tuple(f"document {i}" for i in range(1, length + 1)), splits, skipped, files)


def _paths(folder):
    """Returns split -> path of what lies in the folder."""
    if not folder:
        raise ValueError("set data.path to a folder with the files of LETOR or of LightGBM's example")
    found = [names for names in (LETOR, LIGHTGBM) if os.path.isfile(os.path.join(folder, names["train"]))]
    if not found:
        raise FileNotFoundError(
            f"{folder} holds neither train.txt (a fold of LETOR) nor rank.train (LightGBM's example)"
        )
    if len(found) > 1:
        raise ValueError(f"{folder} holds train.txt and rank.train: give each a folder of its own")
    [names] = found
    paths = {split: os.path.join(folder, name) for split, name in names.items()}
    if "validation" in paths and not os.path.isfile(paths["validation"]):
        del paths["validation"]
    return paths


def _sizes_path(path):
    """Returns the file with the sizes of a file's queries, or None where its rows name their query."""
    return f"{path}.query" if os.path.basename(path) in LIGHTGBM.values() else None


def _read(path):
    """Returns the `Queries` of a file."""
    if not os.path.isfile(path):
        raise FileNotFoundError(f"no file {path}")
    lines = [number for number, _ in _rows(path)]
    if not lines:
        raise ValueError(f"{path} has no row")
    sources.warn_if_cut_short(path)
    values, grades, ids = _table(path)
    sizes_path = _sizes_path(path)
    if sizes_path:
        bounds = _bounds(_sizes(sizes_path))
        names = range(1, len(bounds))
        if bounds[-1] != len(lines):
            raise ValueError(
                f"{sizes_path} counts {bounds[-1]:,} documents, {path} has {len(lines):,} rows: they are not "
                "of one data set, or one of them was cut short"
            )
    else:
        starts = np.flatnonzero(np.diff(ids, prepend=ids[0] - 1))
        _check_together(path, ids[starts], starts, lines)
        bounds, names = np.append(starts, len(ids)), ids[starts]
    file = os.path.basename(path)
    origins = [
        f"{file} query {name} (line {lines[start]})" for name, start in zip(names, bounds[:-1], strict=True)
    ]
    return Queries(values, grades, bounds, np.array(origins, object))


def _rows(path):
    """Yields (number of its line, content) for every row of a file; a comment is none."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            content = line.partition(b"#")[0].strip()
            if content:
                yield number, content.decode("latin-1")


def _table(path):
    """Returns the features' values `[R, d]`, the grades and the ids of the queries, `[R]` or empty."""
    by_id = _sizes_path(path) is None
    load = functools.partial(
        sklearn.datasets.load_svmlight_file, dtype=np.float32, zero_based=False, query_id=by_id
    )
    try:
        values, grades, *ids = load(path)
    except (ValueError, OverflowError):  # a row is bad, or has its features in any order
        content = io.BytesIO(b"\n".join(_sound_rows(path, by_id)))
        try:
            values, grades, *ids = load(content)
        except (ValueError, OverflowError) as error:
            raise ValueError(f"{path} is no SVMlight file: {error}") from error
    with np.errstate(over="ignore"):  # which is infinite, and no grade
        grades = grades.astype(np.float32)
    sound = np.isfinite(values.data).all() and np.isfinite(grades).all() and np.min(grades) >= 0.0
    if not sound or (grades != np.floor(grades)).any() or any(len(each) != len(grades) for each in ids):
        for _ in _sound_rows(path, by_id):  # which raises on the first that is bad
            pass
    return values, grades, *(ids or [None])


def _sound_rows(path, by_id):
    """Yields the rows of a file, their features in order and each once; raises ValueError on a bad row."""
    for number, row in _rows(path):
        yield _sound_row(f"{path}:{number}", row, by_id).encode()


def _sound_row(where, row, by_id):
    grade, *fields = row.split()
    number = _number(grade)
    if not (0.0 <= number < math.inf and number == math.floor(number)):
        raise ValueError(f"{where} has the grade {grade!r}, which is no whole number of at least 0")
    has_id = bool(fields and re.fullmatch(r"qid:\d+", fields[0]))
    if by_id and not has_id:
        raise ValueError(f"{where} has no qid:NUMBER behind its grade, which says what query it is of")
    head, fields = fields[:has_id], fields[has_id:]
    values = {}
    for field in fields:
        feature, mark, value = field.partition(":")
        if not (mark and re.fullmatch(r"\d{1,9}", feature) and int(feature)):
            raise ValueError(f"{where} has {field!r}, which is no feature:value, the features counted from 1")
        if not math.isfinite(_number(value)):
            raise ValueError(f"{where} has feature {feature} of value {value!r}, which is no finite number")
        first = values.setdefault(int(feature), value)
        if _number(first) != _number(value):
            raise ValueError(
                f"{where}: feature {int(feature)} has the values {first} and {value}. Remove one of them."
            )
    return " ".join([grade, *head, *(f"{feature}:{values[feature]}" for feature in sorted(values))])


def _number(text):
    """Returns the number, in float32, that a text stands for, or NaN."""
    try:
        with np.errstate(over="ignore"):
            return float(np.float32(text))
    except ValueError:
        return math.nan


def _sizes(path):
    """Returns how many documents each query has."""
    sizes = []
    for where, line in sources.lines(path):
        if not re.fullmatch(r"0*[1-9]\d{0,8}", line.strip()):
            raise ValueError(f"{where} is {line.strip()[:80]!r}, which is no number of documents")
        sizes.append(int(line))
    return sizes


def _bounds(sizes):
    return np.append(0, np.cumsum(sizes))


def _check_together(path, ids, starts, lines):
    """Raises ValueError where a query's rows are not all in one place."""
    _, first, place = np.unique(ids, return_index=True, return_inverse=True)
    again = np.flatnonzero(first[place] != np.arange(len(ids)))
    if len(again):
        i = again[0]
        raise ValueError(
            f"{path}:{lines[starts[i]]} is of query {ids[i]}, whose first rows are at line "
            f"{lines[starts[first[place[i]]]]}, with others between: put the rows of a query together"
        )


def _held_out(train, share, seed):
    """Returns training and validation, drawn from the training queries."""
    total = len(train.origins)
    count = round(share * total)
    if not 0 < count < total:
        raise ValueError(
            f"a validation split of {share:.0%} of {total:,} queries is {count:,} of them: set "
            "data.validation_fraction to leave some for both"
        )
    order = np.random.default_rng(seed).permutation(total)
    return {
        "train": train.select(np.sort(order[count:])),
        "validation": train.select(np.sort(order[:count])),
    }


def _size(queries):
    """Returns the documents of the longest list and the highest feature."""
    longest = [np.diff(each.bounds).max() for each in queries]
    length, width = max(longest), max(each.values.shape[1] for each in queries)
    total = sum(len(each.origins) for each in queries)
    size = 4 * total * int(length) * width
    if size > MOST_BYTES:
        raise ValueError(
            f"{total:,} queries of up to {length:,} documents with {width:,} features take {size / 1e9:.1f} "
            f"GB, more than {MOST_BYTES / 1e9:.0f} GB: shorten the longest lists, or give fewer queries"
        )
    return int(length), width


def _padded(queries, length, width):
    sizes = np.diff(queries.bounds)
    items = np.zeros([len(sizes), length, width], np.float32)
    for i, (first, end) in enumerate(itertools.pairwise(queries.bounds)):
        items[i, : sizes[i], : queries.values.shape[1]] = queries.values[first:end].toarray()
    places = np.arange(queries.bounds[-1]) - np.repeat(queries.bounds[:-1], sizes)
    labels = scipy.sparse.csr_array((queries.grades, places, queries.bounds), shape=(len(sizes), length))
    labels.eliminate_zeros()
    excluded = scipy.sparse.csr_array(np.arange(length) >= sizes[:, None])
    return Split({"items": items}, labels, queries.origins, excluded)


def _without_irrelevant(split):
    """Returns the examples with a relevant document, and a line for each of the others."""
    relevant = np.diff(split.labels.indptr) > 0
    skipped = tuple(f"{origin} has no relevant document" for origin in split.origins[~relevant])
    return (split.select(relevant) if skipped else split), skipped
