"""MovieLens: users by the movies that they have rated."""

import array
import collections
import io
import itertools
import math
import os
import warnings
from typing import NamedTuple

import numpy as np
import scipy.sparse
import tensorflow as tf

from rank4class.data import sources
from rank4class.data.dataset import Dataset, draw_pairs
from rank4class.data.registry import DATASETS

RELEASES = ("latest-small", "100k", "1m", "20m", "25m")
COLUMNS = ("userId", "movieId", "rating", "timestamp")
TITLE_COLUMNS = ("movieId", "title")
TYPE = np.dtype(list(zip(COLUMNS, (np.int32, np.int32, np.float32, np.float64), strict=True)))
LARGEST_ID = np.iinfo(np.int32).max
BATCH = 10_000  # ratings that are read from TensorFlow Datasets at a time


class Layout(NamedTuple):
    """How a release is published: its files, what separates their columns, and whether they have a header."""

    ratings: str
    separator: str
    names: str
    names_separator: str
    header: bool = False


LAYOUTS = (
    Layout("ratings.csv", ",", "movies.csv", ",", header=True),
    Layout("u.data", "\t", "u.item", "|"),
    Layout("ratings.dat", "::", "movies.dat", "::"),
)


@DATASETS.register("movielens")
def movielens(
    path=None,
    release="latest-small",
    validation_fraction=0.1,
    test_fraction=0.1,
    split_seed=0,
    on_invalid_row="fail",
    tfds_dir=None,
):
    """MovieLens, users by the movies that they have rated (Rankmax, section 4).

    Every rating says that a movie is relevant to a user, however many stars it gives. What the paper calls
    Movielens 100k has 101 thousand pairs of 600 users and 9 thousand movies (its Table 1), which is the
    release "latest-small" (100,836 of 610 and 9,724), and not "100k" (100,000 of 943 and 1,682).

    The pairs of a user and a movie are split at random, as `dataset.draw_pairs` does. Validation ranks
    the movies without those of the user's training, the test those of its validation either: a movie
    that a user is known to have rated cannot be asked for again. The paper ranks "all movies" and does not
    say whether these are among them.

    A file of 20 million ratings takes 30 s and 1.5 GB on one core.

    Args:
      path: a folder that holds `ratings.csv` (latest, 20M, 25M), `u.data` (100K) or `ratings.dat` (1M, 10M)
        as published, or that file. `ratings.csv` may lack the column of timestamps, and its header may be
        in other case. The titles are those of `movies.csv`, `u.item` or `movies.dat` beside it, if it is
        there; a movie without one is `movie 17`. Without a path the dataset comes from TensorFlow
        Datasets, which downloads it once.
      release: one of `RELEASES`, without a path.
      validation_fraction, test_fraction: how many of the pairs to draw, in (0, 1).
      split_seed: int.
      on_invalid_row: "fail" or "skip", see `sources.BadRows`. A row is bad that has other columns, an id that
        is no number, a rating or a time that is no finite one, or a user and a movie that a row before it
        has; in the file of titles one without a title, or with a movie that a row before it has; and in
        either one that repeats the header line.
      tfds_dir: folder of what TensorFlow Datasets has prepared; None takes its own.

    Returns:
      A `Dataset` with the feature `id`, int32 `[N]`, a user's place among all users by id, the same in
      all splits, and sparse labels float32 `[N, n]`. The classes are the movies that anyone has rated,
      by id; where two have one title, their ids follow it in brackets.

    Raises:
      FileNotFoundError: no such file.
      OSError: TensorFlow Datasets cannot download it.
      ValueError: the release is unknown; the folder holds several layouts; a file is empty or has another
        header; a row is bad, the message names file and line; what TensorFlow Datasets has prepared is
        damaged; a share is too small or too large.
    """
    bad_rows = sources.BadRows(on_invalid_row)
    if path:
        layout, ratings_path, names_path = _files(path)
        users, movies = _ratings(ratings_path, layout, bad_rows)
        titles = _titles(names_path, layout, bad_rows) if names_path else {}
        files = {file: sources.sha256(file) for file in (ratings_path, names_path) if file}
    else:
        users, movies, titles = _from_tfds(release, tfds_dir, bad_rows)
        files = {}
    user_ids, users = np.unique(users, return_inverse=True)
    movie_ids, movies = np.unique(movies, return_inverse=True)
    rated = _pairs(users, movies, (len(user_ids), len(movie_ids)))
    origins = np.array([f"user {i}" for i in user_ids], object)
    shares = {"validation": validation_fraction, "test": test_fraction}
    splits = draw_pairs(rated, shares, seed=split_seed, origins=origins)
    return Dataset(_class_names(movie_ids, titles), splits, tuple(bad_rows.messages), files)


def _pairs(users, movies, shape):
    """Returns a CSR array, float32, of 1 where a user has rated a movie."""
    rated = scipy.sparse.coo_array((np.ones(len(users), np.float32), (users, movies)), shape).tocsr()
    rated.data[:] = 1.0  # where a row that came twice was left out, too
    return rated


def _class_names(ids, titles):
    names = [titles.get(i, f"movie {i}") for i in ids.tolist()]
    counts = collections.Counter(names)
    return tuple(name if counts[name] == 1 else f"{name} [{i}]" for name, i in zip(names, ids, strict=True))


def _files(path):
    """Returns the layout of what lies there, the file of ratings, and that of titles or None."""
    folder, own = (path, None) if os.path.isdir(path) else os.path.split(path)
    found = [
        layout
        for layout in LAYOUTS
        if own in (None, layout.ratings) and os.path.isfile(os.path.join(folder, layout.ratings))
    ]
    if not found:
        names = ", ".join(layout.ratings for layout in LAYOUTS)
        raise FileNotFoundError(f"{path} is neither a folder that holds one of {names} nor one of these")
    if len(found) > 1:
        names = " and ".join(layout.ratings for layout in found)
        raise ValueError(f"{folder} holds {names}: set data.path to one of them")
    [layout] = found
    names_path = os.path.join(folder, layout.names)
    return layout, os.path.join(folder, layout.ratings), names_path if os.path.isfile(names_path) else None


def _ratings(path, layout, bad_rows):
    """Returns the users and the movies of a file of ratings, int32 `[P]`."""
    columns = _columns(path) if layout.header else COLUMNS
    table = _table(path, layout, TYPE[list(columns)])
    if table is None:
        return _line_by_line(path, layout, columns, bad_rows)
    sources.warn_if_cut_short(path)
    return table["userId"], table["movieId"]


def _columns(path):
    """Returns the columns of a file with a header: all, or those without the timestamp."""
    with open(path, "rb") as file:
        _, header = next(sources.lines_of(file, path))
    for columns in (COLUMNS, COLUMNS[:3]):
        if _is_header(header.split(","), columns):
            return columns
    raise ValueError(f"{path}:1 is {header[:80]!r}, not {','.join(COLUMNS)!r}")


def _is_header(fields, columns):
    """Returns whether fields are the names of columns, in any case, quoted or not."""
    return [field.strip('\ufeff" ').lower() for field in fields] == [column.lower() for column in columns]


def _table(path, layout, dtype):
    """Returns the rows of a file, `[P]` of a type, or None where not every one can be used."""
    with open(path, encoding="latin-1") as file, warnings.catch_warnings():
        warnings.simplefilter("error")  # NumPy warns of an integer that is none, and of no row
        one_mark = len(layout.separator) == 1
        try:
            table = np.loadtxt(
                file if one_mark else (line.replace(layout.separator, "\t") for line in file),
                dtype,
                delimiter=layout.separator if one_mark else "\t",
                comments=None,
                skiprows=int(layout.header),
                ndmin=1,
            )
        except (ValueError, UserWarning):
            return None
    users, movies = table["userId"], table["movieId"]
    finite = all(np.isfinite(table[column]).all() for column in dtype.names[2:])
    sound = finite and min(users.min(), movies.min()) >= 0 and not len(_repeated(users, movies))
    return table if sound else None


def _as_one(users, movies):
    return users.astype(np.int64) << 32 | movies


def _repeated(users, movies):
    """Returns the (user, movie) that are there more than once, int64 `[R, 2]`."""
    pairs = np.sort(_as_one(users, movies))
    again = np.unique(pairs[1:][pairs[1:] == pairs[:-1]])
    return np.stack([again >> 32, again & LARGEST_ID], axis=1)


def _line_by_line(path, layout, columns, bad_rows):
    """Returns what `_ratings` does in several times the time, and tells the lines that are bad."""
    users, movies, numbers = (array.array(kind) for kind in "iiq")
    lines = sources.lines(path, bad_rows)
    for where, line in itertools.islice(lines, int(layout.header), None):
        if line:
            with bad_rows.row():
                user, movie = _pair(where, line, layout.separator, columns)
                users.append(user)
                movies.append(movie)
                numbers.append(int(where.rpartition(":")[2]))
    if not users:
        bad = bad_rows.messages
        raise ValueError(f"{path} has no rating{f', only bad rows, the first: {bad[0]}' if bad else ''}")
    users, movies = np.asarray(users), np.asarray(movies)
    _, first, place = np.unique(_as_one(users, movies), return_index=True, return_inverse=True)
    for i in np.flatnonzero(first[place] != np.arange(len(place))):
        with bad_rows.row():
            raise ValueError(
                f"{path}:{numbers[i]} has user {users[i]} and movie {movies[i]}, which "
                f"{path}:{numbers[first[place[i]]]} has already"
            )
    return users, movies


def _pair(where, line, separator, columns):
    fields = line.split(separator)
    if _is_header(fields[:3], COLUMNS[:3]):
        raise ValueError(f"{where}: this row repeats the header line. Remove it.")
    if len(fields) != len(columns):
        raise ValueError(
            f"{where} has {len(fields)} columns separated by {separator!r}, not {len(columns)} "
            f"({', '.join(columns)})"
        )
    pair = _id("user", fields[0], where), _id("movie", fields[1], where)
    for column, field in zip(columns[2:], fields[2:], strict=True):
        _check_number(column, field, where)
    return pair


def _id(what, field, where):
    number = float(field) if field.strip().isdecimal() else math.nan  # int() refuses thousands of digits
    if not number <= LARGEST_ID:
        raise ValueError(f"{where} has the {what} {field[:80]!r}, which is no number from 0 to {LARGEST_ID}")
    return int(number)


def _check_number(what, field, where):
    try:
        value = float(field)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{where} has the {what} {field!r}, which is no finite number")


def _titles(path, layout, bad_rows):
    """Returns movie -> title."""
    if layout.header:
        records = sources.csv_records(path, bad_rows)
        where, header = next(records, (path, []))
        if not _is_header(header[:2], TITLE_COLUMNS):
            raise ValueError(f"{where} is {','.join(header)[:80]!r}, not 'movieId,title,genres'")
    else:
        records, header = _records(path, layout.names_separator), None
    titles, places = {}, {}
    for where, fields in records:
        with bad_rows.row():
            movie, title = _title(where, fields, header)
            first = places.setdefault(movie, where)
            if first != where:
                raise ValueError(f"{where} has movie {movie}, which {first} has already")
            titles[movie] = title
    return titles


def _records(path, separator):
    with open(path, "rb") as file:
        content = file.read()
    try:
        text = content.decode("utf-8-sig")  # as 10M is published; 100K and 1M are Latin-1
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    for number, line in enumerate(io.StringIO(text), 1):
        if line.strip():
            yield f"{path}:{number}", line.rstrip("\r\n").split(separator)


def _title(where, fields, header):
    if _is_header(fields[:2], TITLE_COLUMNS):
        raise ValueError(f"{where}: this row repeats the header line. Remove it.")
    if header and len(fields) != len(header):
        raise ValueError(
            f"{where}: the row has {len(fields)} columns, not {len(header)} as the header line. Put double "
            "quotes around a title that holds a comma."
        )
    if not header and len(fields) < 3:
        raise ValueError(f"{where} has {len(fields)} columns, not a movie, its title and more")
    title = fields[1].strip()
    if not title:
        raise ValueError(f"{where} has no title")
    if any("\ud800" <= mark <= "\udfff" for mark in title):
        raise ValueError(f"{where} has the title {title!r}, which is not UTF-8")
    return _id("movie", fields[0], where), title


def _from_tfds(release, tfds_dir, bad_rows):
    """Returns users and movies, int32 `[P]`, and movie -> title."""
    if release not in RELEASES:
        raise ValueError(f"data.release {release!r} is not one of {', '.join(RELEASES)}")
    name = f"movielens/{release}-ratings"
    builder = sources.tfds_builder(name, "MovieLens", tfds_dir)
    users, movies, titles = [], [], {}
    try:
        for batch in _batches(builder.info.splits["train"].filepaths):
            users.append(batch["user_id"].astype(np.int32))
            movies.append(batch["movie_id"].astype(np.int32))
            own, first = np.unique(movies[-1], return_index=True)
            titles.update(zip(own.tolist(), map(bytes.decode, batch["movie_title"][first]), strict=True))
    except (tf.errors.DataLossError, tf.errors.NotFoundError) as error:
        raise ValueError(f"{builder.data_dir} is damaged: remove it, and it is prepared again") from error
    users, movies = np.concatenate(users), np.concatenate(movies)
    for user, movie in _repeated(users, movies):
        with bad_rows.row():
            raise ValueError(f"{name} has user {user} and movie {movie} twice")
    return users, movies, titles


def _batches(paths):
    """Yields batches of what TensorFlow Datasets has prepared; decoding one rating at a time, it is slow."""
    wanted = ("user_id", "movie_id", "movie_title")
    features = {name: tf.io.FixedLenFeature([], tf.string) for name in wanted}
    records = tf.data.TFRecordDataset(paths).batch(BATCH)
    return records.map(lambda batch: tf.io.parse_example(batch, features)).as_numpy_iterator()
