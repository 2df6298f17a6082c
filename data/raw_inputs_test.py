"""Raw inputs: each file in its places, and one clear line for what a model does not take."""

import numpy as np
import pytest
import tensorflow as tf

from rank4class import data
from rank4class.data import raw_inputs
from rank4class.data.readers.rows import BadRows
from rank4class.data.readers.text_rows import Columns

TEXT = {"text": tf.TensorSpec([None], tf.string)}
PAIR = {**TEXT, "text_pair": tf.TensorSpec([None], tf.string)}
VECTOR = {"embedding": tf.TensorSpec([None, 3], tf.float32)}
TEXT_COLUMN = Columns("text")
ID = {"id": tf.TensorSpec([None], tf.int32)}


def read(path, specs, policy="fail", columns=TEXT_COLUMN, names=()):
    bad_rows = BadRows(policy, "on_invalid_row")
    return list(raw_inputs.read(str(path), specs, bad_rows, columns=columns, names=names)), bad_rows.messages


def test_texts_by_hand(tmp_path):
    path = tmp_path / "in.txt"
    path.write_bytes("\ufeffone\r\n\r\ntw\u00f6 words\n".encode())
    rows, messages = read(path, TEXT, "skip")
    assert rows == [(f"{path}:1", {"text": "one"}), (f"{path}:3", {"text": "tw\u00f6 words"})]
    assert messages == [f"{path}:2: 'text' is empty."]
    path = tmp_path / "in.csv"
    path.write_text('a,b,n\n"x, ""y""\nz",q,1\nlast,,2\n')
    rows, _ = read(path, PAIR, columns=Columns("a", "b"))
    assert rows == [
        (f"{path}:2", {"text": 'x, "y"\nz', "text_pair": "q"}),
        (f"{path}:4", {"text": "last", "text_pair": ""}),
    ]
    with pytest.raises(ValueError, match=r"text_pair_column=None: the model takes pairs of texts\. Name the"):
        read(path, PAIR)


def test_ids_have_names(tmp_path):
    path = tmp_path / "users.txt"
    path.write_text("17\n5\n18\n")
    rows, messages = read(path, ID, "skip", names=("5", "17"))
    assert rows == [("17", {"id": 1}), ("5", {"id": 0})]
    assert messages == [f"{path}:3: '18' is not in the training data. Remove the row."]


def test_arrays(tmp_path):
    vectors = np.arange(6.0).reshape(2, 3)
    np.save(tmp_path / "a.npy", np.asfortranarray(vectors))
    np.savez(tmp_path / "one.npz", x=vectors)
    np.savez(tmp_path / "two.npz", x=vectors, embedding=vectors + 1)
    np.savez(tmp_path / "others.npz", x=vectors, y=vectors)
    for name, expected in (("a.npy", vectors), ("one.npz", vectors), ("two.npz", vectors + 1)):
        rows, _ = read(tmp_path / name, VECTOR)
        assert [row for row, _ in rows] == [f"{tmp_path / name}[{i}]" for i in range(2)]
        for (_, features), row in zip(rows, expected, strict=True):
            assert features["embedding"].dtype == np.float32
            np.testing.assert_array_equal(features["embedding"], row)
    with pytest.raises(ValueError, match=r"others\.npz: cannot be read: arrays x, y\. Name one of them"):
        read(tmp_path / "others.npz", VECTOR)
    np.save(tmp_path / "float.npy", np.zeros([2, 4]))
    with pytest.raises(ValueError, match=r"float\.npy: float64, expected uint8\. Convert the array"):
        read(tmp_path / "float.npy", {"image": tf.TensorSpec([None, 4], tf.uint8)})


def test_images_of_folders(tmp_path):
    (tmp_path / "b").mkdir()
    for name in ("b/2.PNG", "1.jpg", ".hidden.jpg"):
        (tmp_path / name).write_bytes(b"x")
    specs = {"image_bytes": tf.TensorSpec([None], tf.string)}
    rows, _ = read(tmp_path, specs)
    assert rows == [(str(tmp_path / name), {"image_bytes": b"x"}) for name in ("1.jpg", "b/2.PNG")]
    assert read(tmp_path / "1.jpg", specs)[0] == rows[:1]
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"empty: no image \(\.jpg, .*\)\. Add one\."):
        read(tmp_path / "empty", specs)


def test_single_values():
    assert raw_inputs.features_of(("a", "b"), PAIR) == {"text": "a", "text_pair": "b"}
    assert raw_inputs.features_of(5, ID, ("4", "5")) == {"id": 1}
    for value, specs, message in (
        ("a", PAIR, "input 'a': the model takes text and text_pair. Give strings."),
        (3, TEXT, "input 3: the model takes text. Give strings."),
        (None, TEXT, "input None: the model takes text. Give strings."),
        (6, ID, "input 6: not in the training data. Remove it."),
        ([1.0, 2.0], VECTOR, r"input of shape \[2\]: the model takes \(3,\)\."),
    ):
        with pytest.raises(ValueError, match=message):
            raw_inputs.features_of(value, specs)


def test_labelled_images(tmp_path, caplog):
    for name in ("cat/1.jpg", "dog/2.jpg", "dog/3.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    split = data.get_labelled("image_folder", ("dog", "bird", "cat"), path=tmp_path, image_size=3)
    assert split.labels.tolist() == [2, 0, 0]
    assert split.features["file"][0] == str(tmp_path / "cat" / "1.jpg")
    with pytest.raises(
        ValueError, match=r"dog: class 'dog' is not one of the model's\. To skip it, set data"
    ):
        data.get_labelled("image_folder", ("cat", "bird"), path=tmp_path)
    split = data.get_labelled("image_folder", ("cat", "bird"), path=tmp_path, on_invalid_row="skip")
    assert split.labels.tolist() == [0]
    assert "1 left out, the first: " in caplog.text
    with pytest.raises(ValueError, match=r": no image of the model's classes\. Add one\."):
        data.get_labelled("image_folder", ("bird",), path=tmp_path, on_invalid_row="skip")
    with pytest.raises(
        FileNotFoundError, match=r"data\.path=.*nowhere: no such folder\. Set it to a folder of"
    ):
        data.get_labelled("image_folder", ("bird",), path=tmp_path / "nowhere")
