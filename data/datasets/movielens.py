"""MovieLens: users by the movies that they have rated."""

import dataclasses
import io
import itertools
import os
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow.csv
import scipy.sparse
import tensorflow as tf

from rank4class import arguments
from rank4class.data.dataset import Dataset, check_fractions, draw_pairs
from rank4class.data.labels import distinct_names
from rank4class.data.readers import files, prepared, rows
from rank4class.data.registry import DATASETS

RELEASES = ("latest-small", "100k", "1m", "20m", "25m")
COLUMNS = ("userId", "movieId", "rating", "timestamp")
TITLE_COLUMNS = ("movieId", "title")
LARGEST_ID = np.iinfo(np.int32).max
SEPARATOR = "\x1f"  # of one byte, in place of "::"
BATCH = 10_000  # ratings per read from TensorFlow Datasets


class Layout(NamedTuple):
    """The names and separators of the files of a release; `ratings.csv` alone has a header."""

    ratings: str
    separator: str
    titles: str
    titles_separator: str
    header: bool = False


LAYOUTS = (
    Layout("ratings.csv", ",", "movies.csv", ",", header=True),
    Layout("u.data", "\t", "u.item", "|"),
    Layout("ratings.dat", "::", "movies.dat", "::"),
)


@DATASETS.register("movielens")
def movielens(
    path: str | None = None,
    release: str = "latest-small",
    validation_fraction: float = 0.1,
    test_fraction: float = 0.1,
    split_seed: int = 0,
    on_invalid_row: str = "fail",
    tfds_dir: str | None = None,
    exclude_known: bool = True,
) -> Dataset:
    """MovieLens, users by the movies that they have rated (Rankmax, section 4).

    Every rated movie is relevant to its user, whatever the rating. `dataset.draw_pairs` splits the pairs. The
    paper's "Movielens 100k" is by its numbers of users and movies the release "latest-small", not "100k".

    Args:
      path: a folder with `ratings.csv` (latest, 20M, 25M; it may lack the timestamps), `u.data` (100K) or
        `ratings.dat` (1M, 10M) as published, or that file. Titles are in `movies.csv`, `u.item` or
        `movies.dat` beside it; a movie without one is `movie 17`. None downloads the dataset once with
        TensorFlow Datasets.
      release: one of `RELEASES`; ignored with a path.
      validation_fraction, test_fraction: fraction of the pairs to draw, in (0, 1).
      split_seed: seed of the splits, at least 0.
      on_invalid_row: "fail" or "skip", see `rows.BadRows`. A rating is invalid if it has other columns,
        values that are not numbers, or the user and movie of an earlier row; a title if it is empty or
        repeated.
      tfds_dir: folder of prepared datasets; None is TensorFlow Datasets' default.
      exclude_known: whether validation and test leave out a user's movies of earlier splits. Otherwise
        these, which a good model ranks first, count as wrong.

    Returns:
      A `Dataset` with the feature `id`, int32 `[N]`, the user's index among all users by id, and sparse
      labels float32 `[N, n]` of the rated movies, by id. Equal titles have their ids in brackets after them.

    Raises:
      FileNotFoundError: no such file.
      OSError: TensorFlow Datasets cannot download the dataset.
      ValueError: an argument out of range, an unknown header, no rating, an invalid row (named by file and
        line), or damaged prepared files.
    """
    arguments.check_choice(RELEASES, section="data.", release=release)
    fractions = check_fractions(validation_fraction, test_fraction)
    bad_rows = rows.BadRows(on_invalid_row)
    if path:
        layout, ratings_path, titles_path = _find_files(path)
        with bad_rows.whole_file():
            users, movies = _read_ratings(ratings_path, layout, bad_rows)
        with bad_rows.whole_file():
            titles = _read_titles(titles_path, layout, bad_rows) if titles_path else {}
        hashes = {file: files.sha256(file) for file in (ratings_path, titles_path) if file}
    else:
        users, movies, titles = _from_tfds(release, tfds_dir)
        hashes = {}
    user_ids, users = np.unique(users, return_inverse=True)
    movie_ids, movies = np.unique(movies, return_inverse=True)
    entries = (np.ones(len(users), np.float32), (users, movies))
    relevant = scipy.sparse.coo_array(entries, (len(user_ids), len(movie_ids))).tocsr()
    relevant.data[:] = 1.0  # repeated pairs were summed
    origins = np.array([f"user {i}" for i in user_ids], object)
    splits = draw_pairs(relevant, fractions, seed=split_seed, origins=origins)
    if not exclude_known:
        splits = {name: dataclasses.replace(split, excluded=None) for name, split in splits.items()}
    names = [titles.get(i, f"movie {i}") for i in movie_ids.tolist()]
    return Dataset(distinct_names(names, movie_ids), splits, tuple(bad_rows.messages), hashes)


def _find_files(path):
    """Returns the layout of a path, the file of ratings, and the file of titles or None."""
    folder, name = (path, None) if os.path.isdir(path) else os.path.split(path)
    for layout in LAYOUTS:
        ratings, titles = (os.path.join(folder, file) for file in (layout.ratings, layout.titles))
        if name in (None, layout.ratings) and os.path.isfile(ratings):
            return layout, ratings, titles if os.path.isfile(titles) else None
    names = ", ".join(layout.ratings for layout in LAYOUTS)
    raise FileNotFoundError(f"data.path={path}: no {names}. Set it to one of them, or to its folder.")


def _read_ratings(path, layout, bad_rows):
    """Returns the users and the movies of a file of ratings, int32 `[P]`."""
    columns = _rating_columns(path) if layout.header else COLUMNS
    if table := _parse(path, layout, columns):
        rows.warn_if_cut_short(path)
        return table
    first_rows: dict[tuple[int, int], str] = {}
    for where, line in itertools.islice(rows.lines(path, bad_rows), int(layout.header), None):
        if not line:
            continue
        with bad_rows.row():
            fields = line.split(layout.separator)
            numbers = pd.to_numeric(fields[2:], errors="coerce")
            has_values = all(map(_is_id, fields[:2])) and np.isfinite(numbers).all()
            if len(fields) != len(columns) or not has_values:
                raise ValueError(
                    f"{where}: {line[:80]!r} is not {layout.separator.join(columns)!r}, two ids from 0 to "
                    f"{LARGEST_ID} and finite numbers."
                )
            user, movie = int(fields[0]), int(fields[1])
            first = first_rows.setdefault((user, movie), where)
            if first != where:
                raise ValueError(f"{where}: {first} already has user {user} and movie {movie}.")
    if not first_rows:
        messages = bad_rows.messages
        reason = f"All rows are invalid, the first: {messages[0]}" if messages else "Add one."
        raise ValueError(f"{path}: no rating. {reason}")
    users, movies = np.array(list(first_rows), np.int32).T
    return users, movies


def _rating_columns(path):
    """Returns the columns of a file of ratings, which may lack the timestamps."""
    with open(path, "rb") as file:
        header = file.readline().decode("utf-8-sig", "replace").strip()
    for columns in (COLUMNS, COLUMNS[:3]):
        if _is_header(header.split(","), columns):
            return columns
    raise ValueError(f"{path}:1: header {header[:80]!r}, expected {','.join(COLUMNS)!r}. Correct it.")


def _parse(path, layout, columns):
    """Returns the users and the movies of a file, int32 `[P]`; None if it has an invalid row or no rating."""
    with open(path, "rb") as file:
        if layout.header:
            file.readline()
        content, separator = file.read(), layout.separator
    if separator == "::":
        content, separator = content.replace(b"::", SEPARATOR.encode()), SEPARATOR
    kinds = [pyarrow.int32(), pyarrow.int32(), pyarrow.float64(), pyarrow.float64()]
    try:
        table = pyarrow.csv.read_csv(
            pyarrow.py_buffer(content),
            pyarrow.csv.ReadOptions(column_names=columns),
            pyarrow.csv.ParseOptions(delimiter=separator, quote_char=False),
            pyarrow.csv.ConvertOptions(column_types=dict(zip(columns, kinds, strict=False)), null_values=[]),
        )
    except pyarrow.ArrowInvalid:
        return None
    users, movies, *numbers = (table[column].to_numpy() for column in columns)
    is_finite = all(np.isfinite(column).all() for column in numbers)
    if not is_finite or min(users.min(), movies.min()) < 0:
        return None
    pairs = users.astype(np.int64) << 32 | movies
    return (users, movies) if len(np.unique(pairs)) == len(pairs) else None


def _is_header(fields, columns):
    """Returns whether fields are the names of columns, in any case, quoted or not."""
    return [field.strip('\ufeff" ').lower() for field in fields] == [column.lower() for column in columns]


def _is_id(text):
    # int() refuses thousands of digits, and accepts signs and underscores.
    return text.isdecimal() and len(text) <= 10 and int(text) <= LARGEST_ID


def _read_titles(path, layout, bad_rows):
    """Returns movie -> title."""
    if layout.header:
        records = rows.csv_records(path, bad_rows)
        where, header = next(records, (path, []))
        if not _is_header(header[:2], TITLE_COLUMNS):
            raise ValueError(
                f"{where}: header {','.join(header)[:80]!r}, expected 'movieId,title,genres'. Correct it."
            )
    else:
        records, header = _records(path, layout.titles_separator), []
    titles: dict[int, str] = {}
    first_rows: dict[int, str] = {}
    for where, fields in records:
        with bad_rows.row():
            if header and len(fields) != len(header):
                raise ValueError(
                    f"{where}: {rows.counted(len(fields), 'column')}, but {len(header)} in the header. Put "
                    "double quotes around a title with a comma."
                )
            if len(fields) < 2 or not _is_id(fields[0]) or not fields[1].strip():
                raise ValueError(f"{where}: {fields} does not start with an id and a title. Correct it.")
            movie = int(fields[0])
            if first_rows.setdefault(movie, where) != where:
                raise ValueError(f"{where}: {first_rows[movie]} already has movie {movie}.")
            titles[movie] = fields[1].strip()
    return titles


def _records(path, separator):
    with open(path, "rb") as file:
        content = file.read()
    try:
        text = content.decode("utf-8-sig")  # the encoding of 10M; 100K and 1M are Latin-1
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    for number, line in enumerate(io.StringIO(text), 1):
        if line.strip():
            yield f"{path}:{number}", line.rstrip("\r\n").split(separator)


def _from_tfds(release, tfds_dir):
    """Returns users and movies, int32 `[P]`, and movie -> title."""
    builder = prepared.builder(f"movielens/{release}-ratings", "MovieLens", tfds_dir)
    names = ("user_id", "movie_id", "movie_title")
    features = {name: tf.io.FixedLenFeature([], tf.string) for name in names}
    # Decoding single ratings in TensorFlow Datasets is slow.
    records = tf.data.TFRecordDataset(builder.info.splits["train"].filepaths).batch(BATCH)
    user_parts, movie_parts = [], []
    titles: dict[int, str] = {}
    try:
        for batch in records.map(lambda batch: tf.io.parse_example(batch, features)).as_numpy_iterator():
            user_parts.append(batch["user_id"].astype(np.int32))
            movie_parts.append(batch["movie_id"].astype(np.int32))
            ids, first = np.unique(movie_parts[-1], return_index=True)
            titles.update(zip(ids.tolist(), map(bytes.decode, batch["movie_title"][first]), strict=True))
    except (tf.errors.DataLossError, tf.errors.NotFoundError) as error:
        raise ValueError(f"{builder.data_dir}: damaged. Remove it to prepare it again.") from error
    return np.concatenate(user_parts), np.concatenate(movie_parts), titles
