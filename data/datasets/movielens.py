"""MovieLens: users by the movies that they have rated."""

import array
import collections
import dataclasses
import io
import math
import os
from typing import NamedTuple

import numpy as np
import pyarrow.csv
import scipy.sparse
import tensorflow as tf

from rank4class import arguments
from rank4class.data.dataset import Dataset, check_fractions, draw_pairs
from rank4class.data.readers import files, prepared, rows
from rank4class.data.registry import DATASETS

RELEASES = ("latest-small", "100k", "1m", "20m", "25m")
COLUMNS = ("userId", "movieId", "rating", "timestamp")
TITLE_COLUMNS = ("movieId", "title")
LARGEST_ID = np.iinfo(np.int32).max
SEPARATOR = b"\x1f"  # of one byte, in place of "::"
BATCH = 10_000  # ratings per read from TensorFlow Datasets


class Layout(NamedTuple):
    """The files of a release: their names, their separators, and whether they have a header."""

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

    Every rated movie is relevant to its user, whatever the rating. The paper's "Movielens 100k" has 101
    thousand pairs of 600 users and 9 thousand movies (its Table 1). That is the release "latest-small"
    (100,836 pairs of 610 and 9,724), not "100k" (100,000 of 943 and 1,682).

    `dataset.draw_pairs` splits the pairs of a user and a movie at random. Validation ranks the movies
    without those of the user's training, test without those of the user's validation either: a movie that
    the user is known to have rated is not a candidate. The paper's models "rank all movies for each user";
    it does not say whether these include the known ones, which `exclude_known=False` ranks.

    A valid file is parsed by pyarrow. A file with an invalid row is read line by line, to name the line.

    Args:
      path: a folder with `ratings.csv` (latest, 20M, 25M), `u.data` (100K) or `ratings.dat` (1M, 10M)
        as published, or that file. `ratings.csv` may lack the timestamps, and its header may be in any
        case. Titles are read from `movies.csv`, `u.item` or `movies.dat` beside it if present; a movie
        without a title is `movie 17`. None takes the dataset from TensorFlow Datasets, which downloads it
        once.
      release: one of `RELEASES`; ignored with a path.
      validation_fraction, test_fraction: fraction of the pairs to draw, in (0, 1).
      split_seed: seed of the splits, at least 0.
      on_invalid_row: "fail" or "skip", see `rows.BadRows`. A rating is invalid if it has other columns, an
        id that is not a number, a rating or time that is not finite, or the user and movie of an earlier
        row; a title if it is empty, or of the movie of an earlier row; both if they repeat the header.
      tfds_dir: folder of prepared datasets; None is TensorFlow Datasets' default.
      exclude_known: whether validation and test leave out the movies that are known of a user. Otherwise
        the movies of the user's training, which a good model ranks first, count as wrong.

    Returns:
      A `Dataset` with the feature `id`, int32 `[N]`, the user's index among all users by id, the same in
      all splits, and sparse labels float32 `[N, n]`. The classes are the rated movies, by id. Movies of
      one title have their ids in brackets after it.

    Raises:
      FileNotFoundError: no such file.
      OSError: TensorFlow Datasets cannot download the dataset.
      ValueError: an argument out of range, an unknown release, a folder with several layouts, an empty file,
        an unknown header, an invalid row (named by file and line), or damaged prepared files.
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
    relevant = _relevant(users, movies, (len(user_ids), len(movie_ids)))
    origins = np.array([f"user {i}" for i in user_ids], object)
    splits = draw_pairs(relevant, fractions, seed=split_seed, origins=origins)
    if not exclude_known:
        splits = {name: dataclasses.replace(split, excluded=None) for name, split in splits.items()}
    return Dataset(_class_names(movie_ids, titles), splits, tuple(bad_rows.messages), hashes)


def _relevant(users, movies, shape):
    """Returns a CSR array, float32, of 1 for each movie that a user has rated."""
    relevant = scipy.sparse.coo_array((np.ones(len(users), np.float32), (users, movies)), shape).tocsr()
    relevant.data[:] = 1.0  # repeated pairs were summed
    return relevant


def _class_names(ids, titles):
    names = [titles.get(i, f"movie {i}") for i in ids.tolist()]
    counts = collections.Counter(names)
    return tuple(name if counts[name] == 1 else f"{name} [{i}]" for name, i in zip(names, ids, strict=True))


def _find_files(path):
    """Returns the layout of a path, the file of ratings, and the file of titles or None."""
    folder, name = (path, None) if os.path.isdir(path) else os.path.split(path)
    present = [
        layout
        for layout in LAYOUTS
        if name in (None, layout.ratings) and os.path.isfile(os.path.join(folder, layout.ratings))
    ]
    if len(present) != 1:
        names = ", ".join(layout.ratings for layout in LAYOUTS)
        if not present:
            raise FileNotFoundError(f"data.path={path}: no {names}. Set it to one of them, or to its folder.")
        names = " and ".join(layout.ratings for layout in present)
        raise ValueError(f"data.path={path}: the folder has {names}. Set it to one of them.")
    [layout] = present
    titles = os.path.join(folder, layout.titles)
    return layout, os.path.join(folder, layout.ratings), titles if os.path.isfile(titles) else None


def _read_ratings(path, layout, bad_rows):
    """Returns the users and the movies of a file of ratings, int32 `[P]`."""
    if table := _parse(path, layout):
        rows.warn_if_cut_short(path)
        return table
    lines = rows.lines(path, bad_rows)
    columns: tuple[str, ...] = COLUMNS
    if layout.header:
        _, header = next(lines)
        columns = next((each for each in (COLUMNS, COLUMNS[:3]) if _is_header(header.split(","), each)), ())
        if not columns:
            raise ValueError(f"{path}:1: header {header[:80]!r}, expected {','.join(COLUMNS)!r}. Correct it.")
    user_ids, movie_ids, numbers = (array.array(kind) for kind in "iiq")
    for where, line in lines:
        if not line:
            continue
        with bad_rows.row():
            user, movie = _pair(where, line, layout.separator, columns)
            user_ids.append(user)
            movie_ids.append(movie)
            numbers.append(int(where.rpartition(":")[2]))
    if not user_ids:
        reason = (
            f" All rows are invalid, the first: {bad_rows.messages[0]}" if bad_rows.messages else " Add one."
        )
        raise ValueError(f"{path}: no rating.{reason}")
    users, movies = np.asarray(user_ids), np.asarray(movie_ids)
    pairs = users.astype(np.int64) << 32 | movies
    _, first, inverse = np.unique(pairs, return_index=True, return_inverse=True)
    for i in np.flatnonzero(first[inverse] != np.arange(len(inverse))):
        with bad_rows.row():
            raise ValueError(
                f"{path}:{numbers[i]}: line {numbers[first[inverse[i]]]} already has user {users[i]} and "
                f"movie {movies[i]}."
            )
    return users, movies


def _parse(path, layout):
    """Returns the users and the movies of a file, int32 `[P]`; None if it has an invalid row or no rating."""
    with open(path, "rb") as file:
        header = file.readline() if layout.header else b""
        content = file.read().replace(b"::", SEPARATOR) if layout.separator == "::" else file.read()
    columns = COLUMNS[:3] if header.count(b",") == 2 else COLUMNS
    if header and not _is_header(header.decode("utf-8-sig", "replace").strip().split(","), columns):
        return None
    kinds = [pyarrow.int32(), pyarrow.int32(), pyarrow.float64(), pyarrow.float64()]
    separator = SEPARATOR.decode() if layout.separator == "::" else layout.separator
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


def _pair(where, line, separator, columns):
    fields = line.split(separator)
    if len(fields) != len(columns) or not fields[0].isdecimal():
        if _is_header(fields[:3], COLUMNS[:3]):
            raise ValueError(f"{where}: the row repeats the header line. Remove it.")
        if len(fields) != len(columns):
            count = rows.counted(len(fields), "column")
            expected = f"{len(columns)} ({', '.join(columns)})"
            raise ValueError(f"{where}: {count} separated by {separator!r}, expected {expected}.")
    pair = _id("user", fields[0], where), _id("movie", fields[1], where)
    for column, field in zip(columns[2:], fields[2:], strict=True):
        try:
            is_finite = math.isfinite(float(field))
        except ValueError:
            is_finite = False
        if not is_finite:
            raise ValueError(f"{where}: {column} {field!r} is not a finite number.")
    return pair


def _id(kind, text, where):
    # int() refuses thousands of digits, and accepts signs and underscores.
    if not text.isdecimal() or len(text) > 10 or int(text) > LARGEST_ID:
        raise ValueError(f"{where}: {kind} {text[:80]!r} is not an id from 0 to {LARGEST_ID}.")
    return int(text)


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
        records, header = _records(path, layout.titles_separator), None
    titles: dict[int, str] = {}
    first_rows: dict[int, str] = {}
    for where, fields in records:
        with bad_rows.row():
            movie, title = _title(where, fields, header)
            first = first_rows.setdefault(movie, where)
            if first != where:
                raise ValueError(f"{where}: {first} already has movie {movie}.")
            titles[movie] = title
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


def _title(where, fields, header):
    """Returns the movie and the title in a row; raises ValueError with `where`."""
    if _is_header(fields[:2], TITLE_COLUMNS):
        raise ValueError(f"{where}: the row repeats the header line. Remove it.")
    count, title = rows.counted(len(fields), "column"), fields[1].strip() if len(fields) > 1 else ""
    if header and len(fields) != len(header):
        raise ValueError(
            f"{where}: {count}, but {len(header)} in the header. Put double quotes around a title with a "
            "comma."
        )
    if not header and len(fields) < 3:
        raise ValueError(f"{where}: {count}, expected at least 3 (movie, title, ...).")
    if not title:
        raise ValueError(f"{where}: the title is empty.")
    return _id("movie", fields[0], where), title


def _from_tfds(release, tfds_dir):
    """Returns users and movies, int32 `[P]`, and movie -> title."""
    builder = prepared.builder(f"movielens/{release}-ratings", "MovieLens", tfds_dir)
    user_parts, movie_parts = [], []
    titles: dict[int, str] = {}
    try:
        for batch in _batches(builder.info.splits["train"].filepaths):
            user_parts.append(batch["user_id"].astype(np.int32))
            movie_parts.append(batch["movie_id"].astype(np.int32))
            ids, first = np.unique(movie_parts[-1], return_index=True)
            titles.update(zip(ids.tolist(), map(bytes.decode, batch["movie_title"][first]), strict=True))
    except (tf.errors.DataLossError, tf.errors.NotFoundError) as error:
        raise ValueError(f"{builder.data_dir}: damaged. Remove it to prepare it again.") from error
    return np.concatenate(user_parts), np.concatenate(movie_parts), titles


def _batches(paths):
    """Yields batches of prepared ratings; decoding single ratings in TensorFlow Datasets is slow."""
    names = ("user_id", "movie_id", "movie_title")
    features = {name: tf.io.FixedLenFeature([], tf.string) for name in names}
    records = tf.data.TFRecordDataset(paths).batch(BATCH)
    return records.map(lambda batch: tf.io.parse_example(batch, features)).as_numpy_iterator()
