"""Learning to rank: queries with graded documents, as LETOR, LightGBM's example or TF-Ranking store them."""

import glob
import itertools
import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse

from rank4class import arguments
from rank4class.data.dataset import Dataset, Split, draw_uniformly
from rank4class.data.readers import arrays, files, list_records, rows
from rank4class.data.registry import DATASETS

LETOR = {"train": "train.txt", "validation": "vali.txt", "test": "test.txt"}
LIGHTGBM = {"train": "rank.train", "test": "rank.test"}  # each with the sizes of its queries in a .query file
TF_RANKING = {"train": "train*.tfrecord*", "validation": "vali*.tfrecord*", "test": "test*.tfrecord*"}
MAX_BYTES = 8 * 10**9  # of the padded features


class Queries(NamedTuple):
    """The queries of a file, with `R` documents in total."""

    values: scipy.sparse.csr_matrix  # features of the documents, float32 `[R, d]`
    grades: np.ndarray  # of the documents, float32 `[R]`
    bounds: np.ndarray  # row of each query's first document, and `R`, int `[Q + 1]`
    origins: np.ndarray  # names of the queries in messages, object `[Q]`
    skipped: Sequence[str] = ()  # a message for each query without a document


@DATASETS.register("letor")
def letor(
    path: str,
    feature_names: tuple[str, ...] = (),
    label: str = "relevance",
    validation_fraction: float = 0.2,
    split_seed: int = 0,
) -> Dataset:
    """Queries with graded documents: an instance is a query, its classes are its documents.

    LETOR's layout (and MSLR's) is `train.txt`, `vali.txt` and `test.txt` with rows `grade qid:ID 1:value
    2:value ... # comment`. LightGBM's is `rank.train` and `rank.test`, whose rows have no `qid`, and
    `rank.train.query` and `rank.test.query` with the number of documents of each query, one per line. The
    rows of a query are consecutive.

    TF-Ranking's are TFRecord files, or several for one split, `train*.tfrecord*`, `vali*.tfrecord*` and
    `test*.tfrecord*`, with a record for each query: an `ExampleListWithContext` or a `SequenceExample`. The
    values of the named features make up the vector of a document, in the order of the names. Features of the
    context have the same values for each document. As in TF-Ranking, documents with a negative label or
    without one are padding, and are left out.

    Lists are padded to the longest of all splits. That takes `4 N m d` bytes for `N` queries of at most `m`
    documents with `d` features, and twice that in training; more than 8 GB are refused.

    Training queries without a relevant document (grade above 0) are skipped. Validation and test keep them
    with the worst value of each metric, as LETOR's evaluation does.

    Args:
      path: a folder of one of these layouts, for LETOR that of one fold.
      feature_names: of the numeric features in TFRecord files, of documents or of the context.
      label: name of the grade in TFRecord files.
      validation_fraction: fraction of the training queries to hold out if there is no file of validation, in
        (0, 1).
      split_seed: seed of the held-out queries, at least 0.

    Returns:
      A `Dataset` with the feature `items`, float32 `[N, m, d]`, zeros for padding, and sparse labels
      float32 `[N, m]`, the grades. The classes are the positions in the list. Positions without a document
      are `excluded`, in training too.
    """
    arguments.check_fraction(False, section="data.", validation_fraction=validation_fraction)
    paths = _find_files(path)
    in_records = list_records.is_records(paths["train"][0])
    if in_records != bool(feature_names):
        problem = "required for TFRecord files. Name" if in_records else "SVMlight rows have no names. Remove"
        raise ValueError(f"data.feature_names={feature_names}: {problem} the features.")
    if in_records:
        queries = {split: read_records(each, feature_names, label) for split, each in paths.items()}
    else:
        queries = {split: read_queries(file) for split, [file] in paths.items()}
    length, width = _padded_size(queries.values())
    splits = {name: _pad(each, length, width) for name, each in queries.items()}
    if "validation" not in splits:
        train = splits["train"]
        drawn = draw_uniformly(len(train), {"validation": validation_fraction}, seed=split_seed)
        splits |= {name: train.select(part) for name, part in drawn.items()}
    relevant = splits["train"].num_relevant() > 0
    skipped = [message for each in queries.values() for message in each.skipped]
    skipped += [f"{origin}: no relevant document." for origin in splits["train"].origins[~relevant]]
    if not relevant.all():
        splits["train"] = splits["train"].select(relevant)
    sources = [
        file for path in itertools.chain(*paths.values()) for file in (path, _sizes_path(path)) if file
    ]
    hashes = {file: files.sha256(file) for file in sources}
    names = tuple(f"document {i}" for i in range(1, length + 1))
    return Dataset(names, {name: splits[name] for name in LETOR}, tuple(skipped), hashes, feature_names)


def _find_files(folder):
    """Returns split -> paths."""
    for layout in (LETOR, LIGHTGBM, TF_RANKING):
        patterns = {split: os.path.join(glob.escape(folder), name) for split, name in layout.items()}
        paths = {split: sorted(glob.glob(pattern)) for split, pattern in patterns.items()}
        if paths["train"]:
            break
    else:
        raise FileNotFoundError(
            f"data.path={folder}: neither train.txt (a fold of LETOR), rank.train (LightGBM's example) nor "
            "train*.tfrecord* (TF-Ranking). Set it to the folder of one of them."
        )
    if not paths["test"]:
        raise FileNotFoundError(f"{os.path.join(folder, layout['test'])}: no such file. Check the path.")
    return {split: each for split, each in paths.items() if each}


def _sizes_path(path):
    """Returns the file with the sizes of a file's queries, or None if the rows name their query."""
    return f"{path}.query" if os.path.basename(path) in LIGHTGBM.values() else None


def read_queries(path: str) -> Queries:
    """Returns the `Queries` of a file."""
    rows.check_text(path)
    with open(path, "rb") as file:
        lines = [number for number, line in enumerate(file, 1) if line.partition(b"#")[0].strip()]
    if not lines:
        raise ValueError(f"{path}: no row. Give a file with rows.")
    sizes_path = _sizes_path(path)
    head = "GRADE" if sizes_path else "GRADE qid:ID"
    values, grades, *ids = arrays.svmlight(path, head, query_id=sizes_path is None)
    grades = grades.astype(np.float32)
    if ids and len(ids[0]) < len(grades):
        missing = len(grades) - len(ids[0])
        raise ValueError(f"{path}: {rows.counted(missing, 'row')} without qid:ID. Add the id of the query.")
    _check_rows(lambda row: f"{path}:{lines[row]}", values, grades)
    if sizes_path:
        sizes = []
        for where, line in rows.lines(sizes_path):
            if not line.strip().isdecimal():
                raise ValueError(f"{where}: {line!r} is not a number of documents. Correct it.")
            sizes.append(int(line))
        bounds = np.append(0, np.cumsum(sizes))
        names = range(1, len(bounds))
        if np.diff(bounds).min(initial=1) < 1 or bounds[-1] != len(lines):
            raise ValueError(
                f"{sizes_path}: {bounds[-1]:,} documents, but {path} has {len(lines):,} rows. Give the two "
                "complete files of one dataset."
            )
    else:
        starts = np.flatnonzero(np.diff(ids[0], prepend=ids[0][0] - 1))
        bounds = np.append(starts, len(lines))
        names = ids[0][starts]
        _, first = np.unique(names, return_index=True)
        if len(again := np.setdiff1d(np.arange(len(names)), first)):
            raise ValueError(
                f"{path}:{lines[starts[again[0]]]}: query {names[again[0]]} starts again, with other queries "
                "in between. Put the rows of a query together."
            )
    file_name = os.path.basename(path)
    origins = [
        f"{file_name} query {name} (line {lines[start]})"
        for name, start in zip(names, bounds[:-1], strict=True)
    ]
    return Queries(values, grades, bounds, np.array(origins, object))


def _check_rows(name: Callable, values: scipy.sparse.csr_matrix, grades: np.ndarray) -> None:
    """Raises ValueError, with the name of the row, for an invalid grade or value."""
    for i in np.flatnonzero(~((grades >= 0.0) & (grades < np.inf) & (grades == np.floor(grades)))):
        raise ValueError(f"{name(i)}: grade {grades[i]:g} is not a whole number of at least 0. Correct it.")
    for i in np.flatnonzero(~np.isfinite(values.data)):
        row = np.searchsorted(values.indptr, i, side="right") - 1
        raise ValueError(f"{name(row)}: a value is not finite. Correct it.")


def read_records(paths: Sequence[str], features: Sequence[str], label: str | None) -> Queries:
    """Returns the `Queries` of TFRecord files; without a label those of all documents, with grades of 0."""
    values = []
    grades = []
    sizes = []
    names = []
    for path in paths:
        numbers = itertools.count(1)
        for block_sizes, block, labels in list_records.blocks(path, features, label):
            queries = [f"{os.path.basename(path)} query {next(numbers)}" for _ in block_sizes]
            is_document = ~(labels < 0.0)
            query_of = np.repeat(np.arange(len(queries)), block_sizes)[is_document]
            values.append(scipy.sparse.csr_matrix(block[is_document]))
            grades.append(labels[is_document])
            sizes.append(np.bincount(query_of, minlength=len(queries)))
            names += queries
            _check_rows(np.array(queries)[query_of].__getitem__, values[-1], grades[-1])
    counts = np.concatenate(sizes)
    origins = np.array(names, object)
    if not counts.any():
        raise ValueError(f"{paths[0]}: no document. Give a file with documents.")
    skipped = [f"{origin}: no document." for origin in origins[counts == 0]]
    bounds = np.append(0, np.cumsum(counts[counts > 0]))
    documents = scipy.sparse.vstack(values, "csr"), np.concatenate(grades)
    return Queries(*documents, bounds, origins[counts > 0], skipped)


def _padded_size(queries):
    """Returns the length of the longest list and the number of features."""
    length = int(max(np.diff(each.bounds).max() for each in queries))
    width = max(each.values.shape[1] for each in queries)
    total = sum(len(each.origins) for each in queries)
    size = 4 * total * length * width
    if size > MAX_BYTES:
        raise ValueError(
            f"data.path: {total:,} queries of up to {length:,} documents with {width:,} features take "
            f"{size / 1e9:.1f} GB, more than {MAX_BYTES / 1e9:.0f} GB. Shorten the longest lists, or give "
            "fewer queries."
        )
    return length, width


def _pad(queries, length, width):
    """Returns the `Split` of queries."""
    sizes = np.diff(queries.bounds)
    items = np.zeros([len(sizes), length, width], np.float32)
    for i, (first, end) in enumerate(itertools.pairwise(queries.bounds)):
        items[i, : sizes[i], : queries.values.shape[1]] = queries.values[first:end].toarray()
    positions = np.arange(queries.bounds[-1]) - np.repeat(queries.bounds[:-1], sizes)
    labels = scipy.sparse.csr_array((queries.grades, positions, queries.bounds), shape=(len(sizes), length))
    labels.eliminate_zeros()
    excluded = scipy.sparse.csr_array(np.arange(length) >= sizes[:, None])
    return Split({"items": items}, labels, queries.origins, excluded)
