"""Inputs to predict of each kind: files in their order, and errors for those that a model does not take."""

import gzip
import io
import os

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from rank4class import data
from rank4class.data.readers.columns import Columns
from rank4class.data.readers.rows import BadRows

TEXT = {"text": tf.TensorSpec([None], tf.string)}
PAIR = {**TEXT, "text_pair": tf.TensorSpec([None], tf.string)}
VECTOR = {"embedding": tf.TensorSpec([None, 3], tf.float32)}
TEXT_COLUMN = Columns("text")
ID = {"id": tf.TensorSpec([None], tf.int32)}


FILE = {"file": tf.TensorSpec([None], tf.string)}


def read(path, specs, policy="fail", columns=TEXT_COLUMN, ids=()):
    kind = data.kind_of(specs)
    bad_rows = BadRows(policy, "on_invalid_row")
    return list(kind.read(str(path), kind.raw_specs(specs), bad_rows, columns, ids)), bad_rows.messages


def features_of(value, specs, ids=()):
    kind = data.kind_of(specs)
    return kind.features_of(value, kind.raw_specs(specs), ids, "input")


def test_texts_by_hand(tmp_path):
    (tmp_path / "in.xlsx").touch()
    path = tmp_path / "in.txt"
    path.write_bytes("\ufeffone\r\n\r\ntw\u00f6 words\n\n".encode())
    rows, messages = read(path, TEXT)
    texts = ["one", "", "tw\u00f6 words"]  # a blank line at the end is none
    assert rows == [(f"{path}:{i + 1}", {"text": text}) for i, text in enumerate(texts)]
    assert messages == []
    (tmp_path / "in.txt.gz").write_bytes(gzip.compress(path.read_bytes()))
    assert read(tmp_path / "in.txt.gz", TEXT)[0] == [
        (f"{tmp_path}/in.txt.gz:{i + 1}", row) for i, (_, row) in enumerate(rows)
    ]
    with pytest.raises(ValueError, match=r"in\.xlsx: a spreadsheet\. Export it as CSV\."):
        read(tmp_path / "in.xlsx", TEXT)
    path = tmp_path / "in.CSV"
    path.write_text('a,b,n\n"x, ""y""\nz",q,1\nlast,,2\n')
    rows, _ = read(path, PAIR, columns=Columns("a", "b"))
    first = {"text": 'x, "y"\nz', "text_pair": "q"}
    last = {"text": "last", "text_pair": ""}
    assert rows == [(f"{path}:2", first), (f"{path}:4", last)]
    with pytest.raises(ValueError, match=r"text_pair_column=None: the model takes pairs of texts\. Name the"):
        read(path, PAIR)


def test_numpy_texts_of_a_batch_keep_their_length():
    kind = data.kind_of(TEXT)
    texts = [features_of(text, TEXT) for text in np.array(["ok", "a longer text"])]
    assert kind.stack(texts)["text"].tolist() == ["ok", "a longer text"]


def test_texts_of_a_folder_of_parts(tmp_path):
    for i, text in enumerate(("one", "two")):
        pd.DataFrame({"text": [text]}).to_parquet(tmp_path / f"part-{i}.parquet")
    rows, _ = read(tmp_path, TEXT)
    assert rows == [(f"{tmp_path}/part-{i}.parquet[0]", {"text": t}) for i, t in enumerate(("one", "two"))]


def test_tables_that_cannot_be_read(tmp_path):
    path = tmp_path / "in.tsv"
    path.write_text("comment\ttopic\none\ttwo\n")
    message = r"in\.tsv: no column 'text'\. The columns are 'comment', 'topic'\. Choose among them with text"
    with pytest.raises(ValueError, match=f"{message}_column, or rename one\\.$"):
        read(path, TEXT)
    path = tmp_path / "in.txt"  # has no fields
    path.write_text('"the ""code"" is late"\n')
    assert read(path, TEXT)[0] == [(f"{path}:1", {"text": '"the ""code"" is late"'})]


def test_ids_have_names(tmp_path):
    path = tmp_path / "users.txt"
    path.write_text("17\n5\n18\n")
    rows, messages = read(path, ID, "skip", ids={"5": 0, "17": 1})
    assert rows == [("17", {"id": 1}), ("5", {"id": 0})]
    reason = "not in the training data, whose first ids are 5, 17. Remove it."
    assert messages == [f"{path}:3='18': {reason}"]


def test_arrays(tmp_path):
    vectors = np.arange(6.0).reshape(2, 3)
    np.save(tmp_path / "a.npy", np.asfortranarray(vectors))
    np.savez(tmp_path / "one.npz", x=vectors)
    np.savez(tmp_path / "two.npz", x=vectors, embedding=vectors + 1)
    np.savez(tmp_path / "others.npz", a=vectors, b=vectors)
    for name, expected in (("a.npy", vectors), ("one.npz", vectors), ("two.npz", vectors + 1)):
        rows, _ = read(tmp_path / name, VECTOR)
        assert [row for row, _ in rows] == [f"{tmp_path / name}[{i}]" for i in range(2)]
        for (_, features), row in zip(rows, expected, strict=True):
            assert features["embedding"].dtype == np.float32
            np.testing.assert_array_equal(features["embedding"], row)
    with pytest.raises(ValueError, match=r"others\.npz: arrays a, b, no array named .embedding.\. Rename"):
        read(tmp_path / "others.npz", VECTOR)
    np.save(tmp_path / "float.npy", np.zeros([2, 4]))
    with pytest.raises(ValueError, match=r"float\.npy: float64, expected uint8 in 0\.\.255\. Convert the"):
        read(tmp_path / "float.npy", {"image": tf.TensorSpec([None, 4], tf.uint8)})
    np.savez(tmp_path / "A.NPZ.npz", x=vectors)
    os.rename(tmp_path / "A.NPZ.npz", tmp_path / "A.NPZ")
    assert len(read(tmp_path / "A.NPZ", VECTOR)[0]) == 2


def test_tables_of_vectors(tmp_path):
    frame = pd.DataFrame([[1.0, 2.0, 3.0], [0.0, 0.0, 6.0]], columns=["1", "2", "3"])
    features = ("1", "2", "3")
    for name, header in (("named.csv", True), ("positions.csv", False)):
        frame.assign(label="a").to_csv(tmp_path / name, index=False, header=header)
    # The number in place of a class is not read.
    (tmp_path / "rows.svm").write_text("0.5 1:1 2:2 3:3\n7 3:6 4:9\n")
    (tmp_path / "arrays").mkdir()  # as it trains
    np.save(tmp_path / "arrays" / "x.npy", frame)
    np.save(tmp_path / "arrays" / "y.npy", np.arange(2))
    for name, columns in (
        ("named.csv", Columns(feature_columns=features)),  # pandas names columns by integers
        ("positions.csv", Columns(label_column="4", feature_columns=features)),
        ("rows.svm", Columns()),
        ("arrays", TEXT_COLUMN),
    ):
        rows, _ = read(tmp_path / name, VECTOR, columns=columns)
        assert [row["embedding"].tolist() for _, row in rows] == [[1, 2, 3], [0, 0, 6]], name
    path = tmp_path / "short.parquet"
    pd.DataFrame({"v": [[1.0, 2.0]]}).to_parquet(path)
    rows, messages = read(path, VECTOR, "skip", Columns(vector_column="v"))
    assert (rows, messages) == ([], [f"{path}[0]: 2 values, but 3 in the first vector. Correct it."])


def test_arrays_in_another_range_than_the_training(tmp_path):
    pixels = {"image": tf.TensorSpec([None, 2], tf.uint8)}
    scaled = {"image": tf.TensorSpec([None, 2], tf.float32)}
    for values in ([0, 255], np.array([0, 255], np.uint8)):
        image = features_of(values, pixels)["image"]
        assert (image.dtype, image.tolist()) == (np.uint8, [0, 255])
    assert features_of([0.5, 1], scaled)["image"].dtype == np.float32
    assert features_of(np.uint8([1, 2, 3]), VECTOR)["embedding"].tolist() == [1.0, 2.0, 3.0]
    for values, specs, message in (
        ([0.5, 1.0], pixels, r"input: float64, expected uint8 in 0\.\.255\. Convert the array\."),
        ([0, 256], pixels, r"input: int64, expected uint8 in 0\.\.255\."),
        ([0, -1], pixels, r"input: int64, expected uint8 in 0\.\.255\."),
        (np.uint8([0, 255]), scaled, r"input: uint8, expected float32 in the range of the training data"),
        ([0, 255], scaled, r"input: int64, expected float32 in the range of the training data\. Scale the"),
        ([0.5, 1j], scaled, r"input: complex128, expected float32\. Convert the array\."),
        (["0.5", "1"], scaled, r"input: <U3, expected float32\. Convert the array\."),
    ):
        with pytest.raises(ValueError, match=message):
            features_of(values, specs)
    np.save(tmp_path / "pixels.npy", np.array([[0, 255], [0, 256]]))
    rows, messages = read(tmp_path / "pixels.npy", pixels, "skip")
    assert rows[0][1]["image"].tolist() == [0, 255]
    assert messages == [f"{tmp_path}/pixels.npy[1]: int64, expected uint8 in 0..255. Convert the array."]


def test_images_of_folders(tmp_path):
    (tmp_path / "b").mkdir()
    for name in ("b/2.PNG", "1.jpg", ".hidden.jpg"):
        (tmp_path / name).write_bytes(b"x")
    rows, _ = read(tmp_path, FILE)
    assert rows == [(str(tmp_path / name), {"image_bytes": b"x"}) for name in ("1.jpg", "b/2.PNG")]
    assert read(tmp_path / "1.jpg", FILE)[0] == rows[:1]
    (tmp_path / "parts").mkdir()
    path = tmp_path / "parts" / "part-0.parquet"
    pd.DataFrame({"photo": ["../1.jpg"]}).to_parquet(path)
    listed, _ = read(path.parent, FILE, columns=Columns(image_column="photo"))
    assert listed == [(f"{path}[0]", {"image_bytes": b"x"})]
    path.unlink()
    (tmp_path / os.fsdecode(b"x\xff.png")).write_bytes(b"x")
    with pytest.raises(ValueError, match=r"x\\udcff\.png': the name is not UTF-8\. Rename the file\. To"):
        read(tmp_path, FILE)
    others, messages = read(tmp_path, FILE, "skip")
    assert (others, len(messages)) == (rows, 1)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"empty: no image \(\.jpg, .*\)\. Add one\."):
        read(tmp_path / "empty", FILE)


def test_texts_of_standard_input(monkeypatch):
    def standard_input(content):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))

    standard_input("one\ntw\u00f6\n".encode())
    assert read("-", TEXT)[0] == [("stdin:1", {"text": "one"}), ("stdin:2", {"text": "tw\u00f6"})]
    standard_input(b"5\n")
    assert read("-", ID, ids={"4": 0, "5": 1})[0] == [("5", {"id": 1})]
    standard_input(b"")
    with pytest.raises(ValueError, match=r"stdin: the file is empty\. Give a file with rows\."):
        read("-", TEXT)
    with pytest.raises(FileNotFoundError, match=r"-: no such file or folder\. Check the path\."):
        read("-", VECTOR)
    with pytest.raises(ValueError, match=r"/dev/stdin: unknown format\..*, \.txt, or - for standard input\."):
        read("/dev/stdin", TEXT)


def test_columns_that_cannot_be_read(tmp_path):
    data.kind_of(TEXT).check_columns("a.csv", text_column="a")
    for path, specs, columns, message in (
        ("a.TXT", TEXT, {"text_column": "b"}, r"text_column=b: a\.TXT has no columns\. Leave it out, or"),
        ("-", ID, {"text_column": "b"}, r"text_column=b: - has no columns\. Leave it out"),
        ("a.npy", VECTOR, {"text_column": "b"}, r"text_column=b: the inputs of the model have no columns\."),
        ("x", VECTOR, {"text_pair_column": "c"}, r"text_pair_column=c: the inputs of"),
    ):
        with pytest.raises(ValueError, match=message):
            data.kind_of(specs).check_columns(path, **columns)
    (tmp_path / "pairs.txt").write_text("one\n")
    with pytest.raises(ValueError, match=r"pairs\.txt:1: no 'b'\. The columns are 'a'\. Choose among"):
        read(tmp_path / "pairs.txt", PAIR, columns=Columns("a", "b"))
    with pytest.raises(ValueError, match=r"text_pair_column=b: the model takes one text\. Leave it out\."):
        read(tmp_path / "pairs.txt", ID, columns=Columns("a", "b"))


def test_single_values():
    assert features_of(("a", "b"), PAIR) == {"text": "a", "text_pair": "b"}
    assert features_of(5, ID, {"4": 0, "5": 1}) == {"id": 1}
    for value, specs, message in (
        ("a", PAIR, "input='a': the model takes text and text_pair. Give strings."),
        (3, TEXT, "input=3: the model takes text. Give strings."),
        (None, TEXT, "input=None: the model takes text. Give strings."),
        (6, ID, "input=6: not in the training data, whose first ids are 4, 5. Remove it."),
        ([[1.0], [2.0, 3.0]], VECTOR, "inhomogeneous shape"),
        ([1.0, 2.0], VECTOR, r"input: shape \(2,\), but the model takes \(3,\)\."),
    ):
        with pytest.raises(ValueError, match=message):
            features_of(value, specs, {"4": 0, "5": 1})


def test_labeled_images(tmp_path, caplog):
    for name in ("cat/1.jpg", "dog/2.jpg", "dog/3.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    split = data.get_labeled("image_folder", ("dog", "bird", "cat"), path=tmp_path, image_size=3)
    assert split.labels.tolist() == [2, 0, 0]
    assert split.features["file"][0] == str(tmp_path / "cat" / "1.jpg")
    with pytest.raises(ValueError, match=r"dog: class 'dog' is not one of the model's\. To skip it, set"):
        data.get_labeled("image_folder", ("cat", "bird"), path=tmp_path)
    split = data.get_labeled("image_folder", ("cat", "bird"), path=tmp_path, on_invalid_row="skip")
    assert split.labels.tolist() == [0]
    assert "1 left out, the first: " in caplog.text
    with pytest.raises(ValueError, match=r": no image of the model's classes\. Add one\."):
        data.get_labeled("image_folder", ("bird",), path=tmp_path, on_invalid_row="skip")
    with pytest.raises(FileNotFoundError, match=r"data\.path=.*nowhere: no such folder\. Set it to a"):
        data.get_labeled("image_folder", ("bird",), path=tmp_path / "nowhere")
