"""MovieLens: published layouts, the split of the pairs, and errors for invalid files."""

import hashlib

import numpy as np
import pytest
import tensorflow_datasets as tfds

from rank4class import data
from rank4class.data.datasets import movielens

TITLES = {2: "Toy Story (1995)", 3: "Léon, or so (1994)", 7: "Emma (1996)", 30: "Emma (1996)", 31: "Unseen"}
USERS, MOVIES = (4, 9, 10, 11, 25), (2, 3, 5, 7, 30)  # movie 5 has no title, movie 31 no rating
PAIRS = [(user, movie) for user in USERS for movie in MOVIES if (user + movie) % 6]


def rows(separator):
    return [separator.join((str(u), str(m), f"{(u + m) % 5 + 1}", f"{880000000 + u}")) for u, m in PAIRS]


def write(folder, layout):
    """Writes the pairs and titles in a release's layout; returns the file of ratings."""
    folder.mkdir(parents=True, exist_ok=True)
    if layout == "ratings.csv":
        quoted = {i: f'"{title}"' if "," in title else title for i, title in TITLES.items()}
        titles = ["movieId,title,genres", *(f"{i},{title},Drama|War" for i, title in quoted.items())]
        (folder / "movies.csv").write_text("\r\n".join(titles) + "\r\n", "utf-8", newline="")
        text = "".join(f"{row}\r\n" for row in ("userId,movieId,rating,timestamp", *rows(",")[::-1]))
    elif layout == "u.data":
        flags = "|".join("0" * 19)
        titles = [f"{i}|{title}|01-Jan-1995||http://us.imdb.com/M|{flags}" for i, title in TITLES.items()]
        (folder / "u.item").write_text("\n".join(titles) + "\n", "latin-1")
        text = "".join(f"{row}\n" for row in rows("\t"))
    else:
        titles = [f"{i}::{title}::Animation|Children's" for i, title in TITLES.items()]
        (folder / "movies.dat").write_text("\n".join(titles) + "\n", "latin-1")
        text = "".join(f"{row}\n" for row in rows("::"))
    (folder / layout).write_text(text, newline="")
    return folder / layout


LAYOUTS = [layout.ratings for layout in movielens.LAYOUTS]


def pairs_of(split, dataset):
    """Returns the labels and the excluded pairs of a split, each as a set of (origin, class name)."""
    return [
        {(split.origin(row), dataset.class_names[i]) for row, i in zip(*part.nonzero(), strict=True)}
        for part in (split.labels, split.excluded)
        if part is not None
    ]


def load(path, **options):
    return data.get("movielens", path=path, **options)


def assert_same(dataset, expected):
    assert dataset.class_names == expected.class_names
    for name, split in dataset.splits.items():
        assert pairs_of(split, dataset) == pairs_of(expected.splits[name], expected)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("as_file", [False, True])
def test_published_layouts(tmp_path, layout, as_file):
    file = write(tmp_path, layout)
    dataset = load(file if as_file else tmp_path)
    names = ("Toy Story (1995)", "Léon, or so (1994)", "movie 5", "Emma (1996) [7]", "Emma (1996) [30]")
    assert dataset.class_names == names
    actual = {name: pairs_of(split, dataset) for name, split in dataset.splits.items()}
    (train,), (validation, before_validation), (test, before_test) = actual.values()
    everything = {(f"user {u}", names[MOVIES.index(m)]) for u, m in PAIRS}
    assert train | validation | test == everything
    assert (len(train), len(validation), len(test)) == (16, 2, 2)
    users = {user for user, _ in validation}
    assert before_validation == {pair for pair in train if pair[0] in users}
    users = {user for user, _ in test}
    assert before_test == {pair for pair in train | validation if pair[0] in users}
    for split in dataset.splits.values():
        assert split.features["id"].dtype == np.int32
        assert split.origins.tolist() == [f"user {USERS[i]}" for i in split.features["id"]]
        assert split.labels.dtype == np.float32
        assert set(split.labels.data) == {1.0}
    assert dataset.splits["train"].features["id"].tolist() == [0, 1, 2, 3, 4]
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(tmp_path.iterdir())]
    assert [digest for _, digest in sorted(dataset.files.items())] == digests


def test_known_movies_are_ranked_on_request(tmp_path):
    write(tmp_path, "u.data")
    splits = load(tmp_path, validation_fraction=0.3, test_fraction=0.2).splits
    assert [split.labels.nnz for split in splits.values()] == [10, 6, 4]
    with_known = load(tmp_path, exclude_known=False)
    without_known = load(tmp_path)
    for name, split in with_known.splits.items():
        assert split.excluded is None
        assert pairs_of(split, with_known)[0] == pairs_of(without_known.splits[name], without_known)[0]


def test_columns_in_another_order_and_without_timestamps(tmp_path):
    file = write(tmp_path, "ratings.csv")
    expected = load(file)
    lines = [line.split(",") for line in file.read_text("utf-8").splitlines()]
    file.write_text("".join(f"{movie},{user},{rating}\n" for user, movie, rating, _ in lines), "utf-8-sig")
    dataset = load(tmp_path)
    assert_same(dataset, expected)


def test_without_titles(tmp_path):
    write(tmp_path, "u.data")
    (tmp_path / "u.item").unlink()
    dataset = load(tmp_path)
    assert dataset.class_names == tuple(f"movie {i}" for i in MOVIES)
    assert list(dataset.files) == [str(tmp_path / "u.data")]


@pytest.mark.parametrize(("layout", "user"), zip(LAYOUTS, ["four", "4.5", "2147483648"], strict=True))
def test_ids_that_are_no_whole_numbers(tmp_path, layout, user):
    file = write(tmp_path, layout)
    separator = movielens.LAYOUTS[LAYOUTS.index(layout)].separator
    with file.open("a") as opened:
        opened.write(separator.join((user, "2", "3", "8")) + "\n")
    row = 22 if layout == "ratings.csv" else 21
    message = rf"^{file}: In CSV column #0: Row #{row}: CSV conversion error to int32: invalid value '{user}'"
    with pytest.raises(ValueError, match=rf"{message}\. Write rows 'userId"):
        load(file)


def test_repeated_pairs_count_once(tmp_path):
    file = write(tmp_path, "u.data")
    expected = load(file).splits["train"].labels.toarray()
    file.write_text(f"{file.read_text()}\n{rows(chr(9))[0]}\n")  # after a blank line, which is ignored
    labels = load(file).splits["train"].labels
    np.testing.assert_array_equal(labels.toarray(), expected)


@pytest.mark.parametrize("row", ["4", "4\t2\t3\t8\t9"])
def test_rows_with_other_columns(tmp_path, row):
    file = write(tmp_path, "u.data")
    file.write_text(f"{file.read_text()}{row}\n")
    with pytest.raises(ValueError, match=rf"^{file}: CSV parse error: Row #21: Expected 4 .*Write"):
        load(file)


@pytest.mark.parametrize(
    ("layout", "row", "problem"),
    [
        ("u.data", "five|Heat|", "invalid literal for int.*'five'"),
        ("ratings.csv", "5,Heat, The,Crime", "Expected 3 fields in line 7, saw 4"),
        ("ratings.csv", "Heat,5", "invalid literal for int.*'Heat'"),
    ],
)
def test_invalid_titles(tmp_path, layout, row, problem):
    file = write(tmp_path, layout).parent / {"u.data": "u.item", "ratings.csv": "movies.csv"}[layout]
    with file.open("a", encoding="latin-1") as opened:
        opened.write(f"{row}\n")
    with pytest.raises(ValueError, match=f"^{file}: .*{problem}.* Write rows 'movieId.title', a title"):
        load(tmp_path)


@pytest.mark.parametrize("layout", ["u.data", "ratings.dat"])
def test_title_encodings(tmp_path, layout):
    file = write(tmp_path, layout).parent / {"u.data": "u.item", "ratings.dat": "movies.dat"}[layout]
    text = file.read_text("latin-1")
    for encoding in ("latin-1", "utf-8", "utf-8-sig"):
        file.write_text(text + "\n", encoding)  # a blank line is ignored
        assert load(tmp_path).class_names[1] == "Léon, or so (1994)"


def test_missing_files(tmp_path):
    for path in (tmp_path, tmp_path / "u.data", tmp_path / "other.csv"):
        message = f"data.path={path}: no ratings.csv, u.data, ratings.dat. Set it to one of"
        with pytest.raises(FileNotFoundError, match=message):
            load(path)


def test_invalid_headers_and_no_ratings(tmp_path):
    for text, message in (
        ("", "Empty CSV file"),
        ("userId;movieId;rating\n1;2;3\n", "Column 'userId' in include_columns does not exist in CSV file"),
        ("\ufeffuserId,movieId,rating,timestamp\n", r"no rating\. Add one\.$"),
    ):
        (tmp_path / "ratings.csv").write_text(text, "utf-8")
        with pytest.raises(ValueError, match=rf"ratings\.csv: {message}"):
            load(tmp_path)


@pytest.fixture
def published(tmp_path, monkeypatch):
    """Makes TensorFlow Datasets download two small releases; returns the folder of prepared data."""
    for release in ("latest-small", "20m"):
        folder = write(tmp_path / "published" / f"ml-{release}", "ratings.csv").parent
        with (folder / "movies.csv").open("a") as file:
            file.write("5,Heat (1995),Crime\n")

    def download(manager, url):
        assert url.startswith("https://files.grouplens.org/datasets/movielens/")
        return str(tmp_path / "published")

    monkeypatch.setattr(tfds.download.DownloadManager, "download_and_extract", download)
    return tmp_path / "prepared"


def test_from_tfds(published, tmp_path, monkeypatch):
    monkeypatch.setattr(movielens, "BATCH", 7)
    expected = load(tmp_path / "published" / "ml-20m")
    assert expected.class_names[2] == "Heat (1995)"
    for release in ("latest-small", "20m"):
        dataset = data.get("movielens", release=release, tfds_dir=published)
        assert_same(dataset, expected)
        assert dataset.files == {}
    prepared = sorted(path.name for path in (published / "movielens").glob("*-ratings"))
    assert prepared == ["20m-ratings", "latest-small-ratings"]
