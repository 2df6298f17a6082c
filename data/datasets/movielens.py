"""MovieLens: users by the movies that they have rated."""

import csv
import dataclasses
import io
import os
import re
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow.csv
import scipy.sparse
import tensorflow as tf

from rank4class import arguments
from rank4class.data.dataset import Dataset, check_fractions, draw_pairs
from rank4class.data.labels import distinct_names
from rank4class.data.readers import files, prepared
from rank4class.data.registry import DATASETS

RELEASES = ("latest-small", "100k", "1m", "20m", "25m")
COLUMNS = ("userId", "movieId", "rating", "timestamp")
TITLE_COLUMNS = ("movieId", "title")
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
      tfds_dir: folder of prepared datasets; None is TensorFlow Datasets' default.
      exclude_known: whether validation and test leave out a user's movies of earlier splits. Otherwise
        these, which a good model ranks first, count as wrong.

    Returns:
      A `Dataset` with the feature `id`, int32 `[N]`, the user's index among all users by id, and sparse
      labels float32 `[N, n]` of the rated movies, by id. Equal titles have their ids in brackets after them.
    """
    arguments.check_choice(RELEASES, section="data.", release=release)
    fractions = check_fractions(validation_fraction, test_fraction)
    if path:
        layout, ratings_path, titles_path = _find_files(path)
        users, movies = _read_ratings(ratings_path, layout)
        titles = _read_titles(titles_path, layout) if titles_path else {}
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
    names = [titles.get(i) or f"movie {i}" for i in movie_ids.tolist()]
    return Dataset(distinct_names(names, movie_ids), splits, files=hashes)


def _find_files(path):
    """Returns the layout of a path, the file of ratings, and the file of titles or None."""
    folder, name = (path, None) if os.path.isdir(path) else os.path.split(path)
    for layout in LAYOUTS:
        ratings, titles = (os.path.join(folder, file) for file in (layout.ratings, layout.titles))
        if name in (None, layout.ratings) and os.path.isfile(ratings):
            return layout, ratings, titles if os.path.isfile(titles) else None
    names = ", ".join(layout.ratings for layout in LAYOUTS)
    raise FileNotFoundError(f"data.path={path}: no {names}. Set it to one of them, or to its folder.")


def _read_ratings(path, layout):
    """Returns the users and the movies of a file of ratings, int32 `[P]`."""
    with open(path, "rb") as file:
        content = file.read()
        separator = layout.separator
    if separator == "::":
        content = content.replace(b"::", SEPARATOR.encode())
        separator = SEPARATOR
    types = dict.fromkeys(COLUMNS[:2], pyarrow.int32())
    try:
        table = pyarrow.csv.read_csv(
            pyarrow.py_buffer(content),
            pyarrow.csv.ReadOptions(use_threads=False, column_names=None if layout.header else COLUMNS),
            pyarrow.csv.ParseOptions(delimiter=separator, quote_char=False),
            pyarrow.csv.ConvertOptions(column_types=types, include_columns=COLUMNS[:2], null_values=[]),
        )
    except (pyarrow.ArrowInvalid, KeyError) as error:
        form = layout.separator.join(COLUMNS)
        raise ValueError(f"{path}: {error.args[0]}. Write rows {form!r}.") from error
    if not table.num_rows:
        raise ValueError(f"{path}: no rating. Add one.")
    return table["userId"].to_numpy(), table["movieId"].to_numpy()


def _read_titles(path, layout):
    """Returns movie -> title."""
    with open(path, "rb") as file:
        content = file.read()
    try:
        text = content.decode("utf-8-sig")  # the encoding of 10M; 100K and 1M are Latin-1
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    options = {} if layout.header else {"header": None, "quoting": csv.QUOTE_NONE, "engine": "python"}
    try:
        table = pd.read_csv(
            io.StringIO(text),
            sep=re.escape(layout.titles_separator),
            dtype=str,
            keep_default_na=False,
            **options,
        )
        return {int(movie): title.strip() for movie, title, *_ in table.itertuples(index=False, name=None)}
    except ValueError as error:
        form = layout.titles_separator.join(TITLE_COLUMNS)
        raise ValueError(
            f"{path}: {str(error).strip()}. Write rows {form!r}, a title with a comma in double quotes."
        ) from error


def _from_tfds(release, tfds_dir):
    """Returns users and movies, int32 `[P]`, and movie -> title."""
    builder = prepared.builder(f"movielens/{release}-ratings", "MovieLens", tfds_dir)
    names = ("user_id", "movie_id", "movie_title")
    features = {name: tf.io.FixedLenFeature([], tf.string) for name in names}
    # Decoding single ratings in TensorFlow Datasets is slow.
    records = tf.data.TFRecordDataset(builder.info.splits["train"].filepaths).batch(BATCH)
    user_parts = []
    movie_parts = []
    titles: dict[int, str] = {}
    for batch in records.map(lambda batch: tf.io.parse_example(batch, features)).as_numpy_iterator():
        user_parts.append(batch["user_id"].astype(np.int32))
        movie_parts.append(batch["movie_id"].astype(np.int32))
        ids, first = np.unique(movie_parts[-1], return_index=True)
        titles.update(zip(ids.tolist(), map(bytes.decode, batch["movie_title"][first]), strict=True))
    return np.concatenate(user_parts), np.concatenate(movie_parts), titles
