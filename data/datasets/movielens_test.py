"""MovieLens: published layouts, the split of the pairs, and errors for invalid files."""

import hashlib
import re

import numpy as np
import pytest
import tensorflow_datasets as tfds
from tensorflow_datasets.core.download.download_manager import NonMatchingChecksumError

from rank4class import data
from rank4class.data.datasets import movielens
from rank4class.data.readers import rows as data_rows

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
        text = "".join(
            f"{row}\r\n" for row in ("userId,movieId,rating,timestamp", *rows(",")[::-1])
        )  # in reverse order
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
        {
            (split.origin(row), dataset.class_names[column])
            for row, column in zip(*part.nonzero(), strict=True)
        }
        for part in (split.labels, split.excluded)
        if part is not None
    ]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("as_file", [False, True])
def test_published_layouts(tmp_path, layout, as_file):
    file = write(tmp_path, layout)
    dataset = data.get("movielens", path=str(file if as_file else tmp_path))
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
        assert [split.origin(i) for i in range(len(split))] == [
            f"user {USERS[i]}" for i in split.features["id"]
        ]
        assert split.labels.dtype == np.float32
        assert set(split.labels.data) == {1.0}
    assert dataset.splits["train"].features["id"].tolist() == [0, 1, 2, 3, 4]
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(tmp_path.iterdir())]
    assert [digest for _, digest in sorted(dataset.files.items())] == digests


def test_known_movies_are_ranked_on_request(tmp_path):
    write(tmp_path, "u.data")
    with_known = data.get("movielens", path=tmp_path, exclude_known=False)
    without_known = data.get("movielens", path=tmp_path)
    for name, split in with_known.splits.items():
        assert split.excluded is None
        assert pairs_of(split, with_known)[0] == pairs_of(without_known.splits[name], without_known)[0]


@pytest.mark.parametrize("columns", [3, 4])
@pytest.mark.parametrize("change", [str.lower, str.upper, '"{}"'.format])
def test_header_variants(tmp_path, columns, change):
    expected = data.get("movielens", path=str(write(tmp_path / "published", "ratings.csv")))
    file = write(tmp_path, "ratings.csv")
    titles = file.parent / "movies.csv"
    for path, names in ((file, movielens.COLUMNS[:columns]), (titles, ("movieId", "title", "genres"))):
        lines = path.read_text().splitlines()
        if path == file:
            lines = [",".join(line.split(",")[:columns]) for line in lines]
        path.write_text("".join(f"{line}\n" for line in [",".join(map(change, names)), *lines[1:]]))
    dataset = data.get("movielens", path=str(tmp_path))
    assert dataset.class_names == expected.class_names
    for name, split in dataset.splits.items():
        assert pairs_of(split, dataset) == pairs_of(expected.splits[name], expected)
    for row in ("4,99", "4,99,3,8,9", "4,99,3" if columns == 4 else "4,99,3,8"):
        before = file.read_text()
        file.write_text(f"{before}{row}\n")
        message = f"{file}:22: {row!r} is not {','.join(movielens.COLUMNS[:columns])!r}"
        with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
            data.get("movielens", path=str(tmp_path))
        file.write_text(before)


def test_without_titles(tmp_path):
    write(tmp_path, "u.data")
    (tmp_path / "u.item").unlink()
    dataset = data.get("movielens", path=str(tmp_path))
    assert dataset.class_names == tuple(f"movie {i}" for i in MOVIES)
    assert list(dataset.files) == [str(tmp_path / "u.data")]


def test_split_fractions(tmp_path):
    write(tmp_path, "u.data")
    splits = data.get("movielens", path=str(tmp_path), validation_fraction=0.3, test_fraction=0.2).splits
    assert [split.labels.nnz for split in splits.values()] == [10, 6, 4]


INVALID_ROWS = {
    row: rf"{row[:80]!r} is not 'userId\tmovieId\trating\ttimestamp', two ids from 0 to 2147483647 and finite"
    for row in (
        "4\t2\t3",
        "4\t2\t3\t8\t9",
        "4 2 3 8",
        "four\t2\t3\t8",
        "4\t2.5\t3\t8",
        "4\t-2\t3\t8",
        "2147483648\t2\t3\t8",
        f"{'9' * 5000}\t2\t3\t8",
        "4\t99\tnan\t8",
        "4\t99\t\t8",
        "4\t99\t3\tinf",
        "4\t99\t3\tnow",
    )
} | {"4\t3\t5\t9": "{file}:1 already has user 4 and movie 3."}


@pytest.mark.parametrize("row", INVALID_ROWS)
def test_invalid_rows_raise_or_are_skipped(tmp_path, row):
    file = write(tmp_path, "u.data")
    message = f"{file}:22: {INVALID_ROWS[row]}".format(file=file)
    expected = data.get("movielens", path=str(file))
    assert len(PAIRS) == 20
    file.write_text(f"{file.read_text()}\n{row}\n")  # after a blank line, which is ignored
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        data.get("movielens", path=str(file))
    dataset = data.get("movielens", path=str(file), on_invalid_row="skip")
    assert len(dataset.skipped) == 1
    assert dataset.skipped[0].startswith(message)
    for name, split in dataset.splits.items():
        assert pairs_of(split, dataset) == pairs_of(expected.splits[name], expected)


@pytest.mark.parametrize("layout", ["ratings.csv", "ratings.dat"])
def test_invalid_rows_of_the_other_layouts(tmp_path, layout):
    file = write(tmp_path, layout)
    separator = "," if layout == "ratings.csv" else "::"
    with file.open("a") as opened:
        opened.write(separator.join("four") + "\n")
    line = 22 if layout == "ratings.csv" else 21
    with pytest.raises(ValueError, match=f"^{file}:{line}: {separator.join('four')!r} is not"):
        data.get("movielens", path=str(file))
    assert len(data.get("movielens", path=str(file), on_invalid_row="skip").skipped) == 1


def test_concatenated_files(tmp_path):
    file, titles = write(tmp_path, "ratings.csv"), tmp_path / "movies.csv"
    expected = data.get("movielens", path=str(file))
    with file.open("a") as opened:
        opened.write("\ufeffuserId,movieId,rating,timestamp\n")
    with titles.open("a") as opened:
        opened.write("movieId,title,genres\n")
    with pytest.raises(ValueError, match=f"^{file}:22: .* is not 'userId,.* To skip it"):
        data.get("movielens", path=str(file))
    dataset = data.get("movielens", path=str(file), on_invalid_row="skip")
    assert [message.rpartition(": ")[0] for message in dataset.skipped] == [f"{file}:22", f"{titles}:7"]
    assert dataset.class_names == expected.class_names


TITLE_ROWS = {
    "5": "['5'] does not start with an id and a title. Correct it.",
    "five|Heat|": "['five', 'Heat', ''] does not start with an id",
    "5| |": "['5', ' ', ''] does not start with an id and a title.",
    "2|Heat|": "{file}:1 already has movie 2.",
}


@pytest.mark.parametrize("row", TITLE_ROWS)
def test_invalid_titles_raise_or_are_skipped(tmp_path, row):
    write(tmp_path, "u.data")
    file = tmp_path / "u.item"
    file.write_text(f"{file.read_text('latin-1')}{row}\n", "latin-1")
    message = f"{file}:6: {TITLE_ROWS[row]}".format(file=file)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        data.get("movielens", path=str(tmp_path))
    dataset = data.get("movielens", path=str(tmp_path), on_invalid_row="skip")
    assert len(dataset.skipped) == 1
    assert dataset.class_names[2] == "movie 5"


@pytest.mark.parametrize(("row", "columns"), [("5,Heat, The,Crime", 4), ("5,Heat", 2)])
def test_titles_with_a_wrong_number_of_columns(tmp_path, row, columns):
    file = write(tmp_path, "ratings.csv").parent / "movies.csv"
    with file.open("a") as opened:
        opened.write(f"{row}\n")
    message = f"{file}:7: {columns} columns, but 3 in the header. Put double quotes around"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        data.get("movielens", path=str(tmp_path))
    assert data.get("movielens", path=str(tmp_path), on_invalid_row="skip").class_names[2] == "movie 5"


@pytest.mark.parametrize("layout", ["u.data", "ratings.dat"])
def test_title_encodings(tmp_path, layout):
    file = write(tmp_path, layout).parent / {"u.data": "u.item", "ratings.dat": "movies.dat"}[layout]
    text = file.read_text("latin-1")
    for encoding in ("latin-1", "utf-8", "utf-8-sig"):
        file.write_text(text + "\n", encoding)  # a blank line is ignored
        assert data.get("movielens", path=str(tmp_path)).class_names[1] == "Léon, or so (1994)"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "movies.csv: the file is empty"),
        ("\n\n", "movies.csv: header '', expected 'movieId,title,genres'"),
        (
            "2,Heat (1995),Crime\n",
            "movies.csv:1: header '2,Heat (1995),Crime', expected 'movieId,title,genres'",
        ),
    ],
)
def test_titles_without_a_header(tmp_path, text, message):
    write(tmp_path, "ratings.csv")
    (tmp_path / "movies.csv").write_text(text)
    with pytest.raises(ValueError, match=re.escape(message)):
        data.get("movielens", path=str(tmp_path))


def test_missing_files(tmp_path):
    for path in (tmp_path, tmp_path / "u.data", tmp_path / "other.csv"):
        message = f"data.path={path}: no ratings.csv, u.data, ratings.dat. Set it to one of"
        with pytest.raises(FileNotFoundError, match=message):
            data.get("movielens", path=str(path))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_warns_of_a_possibly_truncated_file(tmp_path, caplog, layout):
    file = write(tmp_path, layout)
    data.get("movielens", path=str(file))
    assert "cut short" not in caplog.text
    file.write_bytes(file.read_bytes().rstrip()[:-2])
    data.get("movielens", path=str(file))
    assert re.search(rf"{file} does not end with a line ending: was the file cut short\?", caplog.text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"ratings\.csv:1: header '', expected"),
        (
            "userId,movieId\n1,2\n",
            r"ratings\.csv:1: header 'userId,movieId', expected 'userId,movieId,rating,",
        ),
        (
            "movieId,userId,rating\n1,2,3\n",
            r"ratings\.csv:1: header 'movieId,userId,rating', expected 'userId,m",
        ),
        (
            "userId;movieId;rating\n1;2;3\n",
            r"ratings\.csv:1: header 'userId;movieId;rating', expected 'userId,m",
        ),
        ("userId,movieId,rating,timestamp\n", r"ratings\.csv: no rating\. Add one\.$"),
        ("\ufeffuserId,movieId,rating,timestamp\n", r"ratings\.csv: no rating\. Add one\.$"),
    ],
)
def test_invalid_headers_and_no_ratings(tmp_path, text, message):
    (tmp_path / "ratings.csv").write_text(text, "utf-8")
    with pytest.raises(ValueError, match=message):
        data.get("movielens", path=str(tmp_path))


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
    expected = data.get("movielens", path=str(tmp_path / "published" / "ml-20m"))
    assert expected.class_names[2] == "Heat (1995)"
    for release in ("latest-small", "20m"):
        dataset = data.get("movielens", release=release, tfds_dir=str(published))
        assert dataset.class_names == expected.class_names
        for name, split in dataset.splits.items():
            assert pairs_of(split, dataset) == pairs_of(expected.splits[name], expected)
        assert dataset.files == {}
    prepared = sorted(path.name for path in (published / "movielens").glob("*-ratings"))
    assert prepared == ["20m-ratings", "latest-small-ratings"]
    [file] = published.rglob("*20m-ratings/*/*tfrecord*")
    for damage in (lambda: file.write_bytes(file.read_bytes()[:-9]), file.unlink):
        damage()
        with pytest.raises(ValueError, match=f"^{file.parent}: damaged. Remove it to prepare it again"):
            data.get("movielens", release="20m", tfds_dir=str(published))


@pytest.mark.parametrize("error", [OSError("no route"), NonMatchingChecksumError("no route")])
def test_failed_download(monkeypatch, tmp_path, error):
    def fail(*_args, **_kwargs):
        raise error

    monkeypatch.setattr(tfds.core.DatasetBuilder, "download_and_prepare", fail)
    message = rf"MovieLens cannot be downloaded to .*{tmp_path}/movielens/.*\(no route\)\. Set data\.path"
    message = rf"^data\.tfds_dir={tmp_path}: {message}"
    with pytest.raises(OSError, match=message):
        data.get("movielens", tfds_dir=str(tmp_path))


@pytest.mark.parametrize("layout", movielens.LAYOUTS)
def test_valid_files_are_parsed_at_once(tmp_path, layout, monkeypatch):
    file = write(tmp_path, layout.ratings)
    users, movies = movielens._parse(str(file), layout, movielens.COLUMNS)
    pairs = list(zip(users.tolist(), movies.tolist(), strict=True))
    assert sorted(pairs) == sorted(PAIRS)
    monkeypatch.setattr(movielens, "_parse", lambda *_: None)
    again = movielens._read_ratings(str(file), layout, data_rows.BadRows("fail"))
    assert list(zip(*map(np.ndarray.tolist, again), strict=True)) == pairs
