"""The XMC repository's formats: sparse features, texts, excluded labels, and invalid files."""

import gzip
import json

import numpy as np
import pytest

from rank4class import data

TRAIN = "5 4 3\n0,2 0:0.5 3:2\n1 1:1.5\n 2:3\n2,1 3:1 0:0.25\n0\n"
TEST = "2 4 3\n2 0:1\n0,1 1:1e-1\n"


@pytest.fixture
def sparse(tmp_path):
    (tmp_path / "train.txt").write_text(TRAIN)
    (tmp_path / "test.txt").write_text(TEST)
    return tmp_path


def write_lines(path, rows):
    path.write_bytes(gzip.compress("".join(f"{json.dumps(row)}\n" for row in rows).encode()))


@pytest.fixture
def texts(tmp_path):
    rows = [{"uid": f"B{i}", "title": f"title {i}", "content": "", "target_ind": [i % 3]} for i in range(5)]
    write_lines(tmp_path / "trn.json.gz", rows)
    write_lines(tmp_path / "tst.json.gz", [{"title": "a", "content": "long é", "target_ind": [2, 0]}])
    write_lines(tmp_path / "lbl.json.gz", [{"title": "pen"}, {"title": "ink"}, {"title": "pen"}])
    return tmp_path


def load(folder, **options):
    return data.get("xmc", path=folder, **{"validation_fraction": 0.2} | options)


def test_sparse_features(sparse):
    dataset = load(sparse)
    assert dataset.class_names == ("0", "1", "2")
    test = dataset.splits["test"]
    np.testing.assert_array_equal(test.labels.toarray(), [[0, 0, 1], [1, 1, 0]])
    np.testing.assert_allclose(test.features["embedding"].toarray(), [[1, 0, 0, 0], [0, 0.1, 0, 0]])
    assert test.origins[1] == f"{sparse}/test.txt:3"
    parts = [dataset.splits[name] for name in ("train", "validation")]
    assert [len(part) for part in parts] == [4, 1]
    order = np.argsort(np.concatenate([part.origins for part in parts]))  # lines 2 to 6
    vectors = np.concatenate([part.features["embedding"].toarray() for part in parts])[order]
    labels = np.concatenate([part.labels.toarray() for part in parts])[order]
    expected = [[0.5, 0, 0, 2], [0, 1.5, 0, 0], [0, 0, 3, 0], [0.25, 0, 0, 1], [0, 0, 0, 0]]
    np.testing.assert_allclose(vectors, expected)
    np.testing.assert_array_equal(labels, [[1, 0, 1], [0, 1, 0], [0, 0, 0], [0, 1, 1], [1, 0, 0]])
    batch, _, _ = next(iter(data.evaluation_batches(test, batch_size=2)))
    np.testing.assert_allclose(batch["embedding"], test.features["embedding"].toarray())


@pytest.mark.parametrize("name", ["labels.txt", "Y.txt"])
def test_names_and_excluded_labels(sparse, name):
    (sparse / name).write_text("pen\nink\npen\n")
    (sparse / "filter_labels_test.txt").write_text("1 0\n0 1\n")
    dataset = load(sparse)
    assert dataset.class_names == ("pen [0]", "ink", "pen [2]")
    test = dataset.splits["test"]
    np.testing.assert_array_equal(test.labels.toarray(), [[0, 0, 1], [0, 1, 0]])
    np.testing.assert_array_equal(test.excluded.toarray(), [[0, 1, 0], [1, 0, 0]])
    assert len(dataset.files) == 4


def test_texts(texts):
    dataset = load(texts)
    assert dataset.class_names == ("pen [0]", "ink", "pen [2]")
    assert {n: len(split) for n, split in dataset.splits.items()} == {"train": 4, "validation": 1, "test": 1}
    assert dataset.splits["test"].features["text"].tolist() == ["a long é"]
    np.testing.assert_array_equal(dataset.splits["test"].labels.toarray(), [[1, 0, 1]])
    train = dataset.splits["train"]
    number = int(train.features["text"][-1].removeprefix("title "))
    np.testing.assert_array_equal(train.labels.toarray()[-1], np.eye(3)[number % 3])
    assert train.origins[3] == f"{texts}/trn.json.gz:{number + 1}"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train.txt", TRAIN[:-2], r"train\.txt: 4 rows, but 5 in the first line\. Download it again"),
        ("train.txt", TRAIN.partition("\n")[2], r"train\.txt:1: '0,2 0:0\.5 3:2' is not the numbers of"),
        ("train.txt", TRAIN.replace("\n2,1", "\n2,3"), r"train\.txt:5: label 3 is not one of 0 to 2"),
        ("train.txt", TRAIN.replace(" 2:3", " 4:3"), r"train\.txt:4: feature 4 is not one of 0 to 3"),
        ("train.txt", TRAIN.replace("2:3", "2:nan"), r"train\.txt:4: feature 2 is not finite\. Correct it"),
        ("train.txt", TRAIN.replace("2:3", "2:"), r"train\.txt:4: not LABEL,LABEL FEATURE:VALUE"),
        ("train.txt", TRAIN.replace("1 1:1.5", "a 1:1.5"), r"train\.txt:3: not LABEL,LABEL FEATURE:VALUE"),
        ("Y.txt", "pen\nink\n", r"labels: 3 classes in the train split, but 2 class_names\. Give a name for"),
        ("filter_labels_test.txt", "2 0\n", r"filter_labels_test\.txt: not lines of an example and a label"),
    ],
)
def test_invalid_sparse_files(sparse, name, content, message):
    (sparse / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        load(sparse)


def test_invalid_texts(texts):
    for row, message in (
        ({"target_ind": [3]}, r"tst\.json\.gz:1: label 3 is not one of 0 to 2\. Correct it"),
        ({"target_ind": ["0"]}, r"tst\.json\.gz:1: target_ind has another id than whole numbers"),
        ({"content": None}, r"tst\.json\.gz:1: no 'content' of type str\. Correct it"),
    ):
        write_lines(texts / "tst.json.gz", [{"title": "a", "content": "", "target_ind": [0]} | row])
        with pytest.raises(ValueError, match=message):
            load(texts)


def test_truncated_and_missing_files(texts):
    content = (texts / "trn.json.gz").read_bytes()
    (texts / "trn.json.gz").write_bytes(content[:-9])
    with pytest.raises(ValueError, match=r"trn\.json\.gz: not a complete gzip file .*Download it again"):
        load(texts)
    (texts / "lbl.json.gz").unlink()
    with pytest.raises(FileNotFoundError, match=r"lbl\.json\.gz: no such file"):
        load(texts)
    with pytest.raises(FileNotFoundError, match=r"data.path=.*/no: neither trn.json.gz nor train.txt there"):
        load(texts / "no")
