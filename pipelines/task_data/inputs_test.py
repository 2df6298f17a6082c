"""Inputs survive their files; files of another version are refused."""

import json

import h5py
import numpy as np
import pytest
import tensorflow as tf

from rank4class import data, models
from rank4class.data.preprocessing.tokenizers.wordpiece import WordPiece
from rank4class.pipelines.storage import files
from rank4class.pipelines.task_data import inputs

VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "ball"]


def specs_of(features):
    return data.kind_of(features).specs(features)


def written(folder, given):
    (folder / "inputs.json").write_text(given.to_json())
    return inputs.read(str(folder))


def test_texts(tmp_path):
    specs = specs_of({"text": np.array(["a"], object)})
    given = inputs.Inputs(specs, WordPiece(VOCAB, 6, lower_case=False))
    features = {"text": tf.constant(["ball", "BALL"])}
    again = written(tmp_path, given)
    assert again.specs == specs
    ids = again(features)["input_word_ids"].numpy()
    np.testing.assert_array_equal(ids, given(features)["input_word_ids"])
    assert ids[:, 1].tolist() == [4, 1]  # capitals are kept


def test_the_tokenizer_of_an_encoder(tmp_path, write_bert_folder):
    """Transformers 5 saves `tokenizer.json` and no `vocab.txt`."""
    write_bert_folder(tmp_path, words=[*VOCAB, "BALL"])
    expected = inputs.tokenizer(str(tmp_path), 6).settings
    (tmp_path / "vocab.txt").rename(tmp_path / "vocab.old")
    with pytest.raises(FileNotFoundError, match=r"vocab\.txt: no such file, which a text encoder needs\."):
        inputs.tokenizer(str(tmp_path), 6)
    for vocab, kind, message in (
        ([*VOCAB, "BALL"], "WordPiece", None),
        (VOCAB, "WordPiece", "has 5 pieces, the encoder 6. Use the tokenizer that it was trained"),
        (VOCAB, "BPE", r"tokenizer\.json: not of word pieces\. Give the folder of a BERT encoder\."),
    ):
        ids = {piece: i for i, piece in reversed(list(enumerate(vocab)))}
        content = {"version": "1.0", "model": {"type": kind, "unk_token": "[UNK]", "vocab": ids}}
        (tmp_path / "tokenizer.json").write_text(json.dumps(content))
        if message is None:
            assert inputs.tokenizer(str(tmp_path), 6).settings == expected
        else:
            with pytest.raises(ValueError, match=message):
                inputs.tokenizer(str(tmp_path), 6)


def test_texts_longer_than_the_positions_of_an_encoder(tmp_path, write_bert_folder, monkeypatch):
    write_bert_folder(tmp_path)
    monkeypatch.setattr(models.encoders.Bert, "FIRST_POSITION", 2)  # as in RoBERTa
    with pytest.raises(ValueError, match=r"max_length=31: the encoder of .* has 30 positions\. Lower it\."):
        inputs.tokenizer(str(tmp_path), 31)


def test_an_encoder_of_images_has_no_tokenizer(tmp_path):
    with h5py.File(tmp_path / "vgg.h5", "w") as file:
        layer = file.create_group("conv2d_1")
        layer["conv2d_1/kernel:0"] = np.zeros(1)
        layer.attrs["weight_names"] = ["conv2d_1/kernel:0"]
    with pytest.raises(
        ValueError, match=r"vgg\.h5: the encoder 'vgg16' takes no texts\. Choose a text encod"
    ):
        inputs.tokenizer(str(tmp_path / "vgg.h5"), 6)


def test_images_and_vectors(tmp_path):
    for raw, preprocess in (
        ({"file": np.array(["a.jpg"], object)}, data.DecodeAndCrop(8)),
        ({"image": np.zeros([1, 2, 2, 3], np.uint8)}, data.Rescale()),
        ({"embedding": np.zeros([1, 4], np.float32)}, None),
        ({"items": np.zeros([1, 3, 4], np.float32)}, None),
    ):
        again = written(tmp_path, inputs.Inputs(specs_of(raw), preprocess))
        assert type(again.preprocess) is type(preprocess)
        assert again.specs == specs_of(raw)
        if preprocess is not None:
            assert again.preprocess.settings == preprocess.settings
    assert again.specs["items"].shape.as_list() == [None, None, 4]  # lists of any length


def test_a_frozen_encoder(tmp_path):
    encoder = models.get("encoder", "mlp", hidden=(3, 2))
    features = {"image": tf.random.stateless_normal([5, 2, 2, 1], [0, 1])}
    expected = encoder(features)
    specs = {"image": tf.TensorSpec([None, 2, 2, 1], tf.float32)}
    inputs.write_encoder(str(tmp_path / "encoder"), encoder, specs)
    again = written(tmp_path, inputs.Inputs(specs))
    np.testing.assert_array_equal(again(features)["embedding"], expected)


def test_settings_of_another_version_are_refused(tmp_path):
    given = inputs.Inputs(specs_of({"file": np.array(["a.jpg"], object)}), data.DecodeAndCrop(8))
    content = json.loads(given.to_json())
    content["preprocess"]["settings"]["orientation"] = "none"
    (tmp_path / "inputs.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"inputs\.json: DecodeAndCrop has other settings in this version"):
        inputs.read(str(tmp_path))


def test_a_link_is_a_second_name_or_a_copy(tmp_path, monkeypatch):
    (tmp_path / "a").write_text("content")
    (tmp_path / "b").write_text("old")
    files.link(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").samefile(tmp_path / "a")
    monkeypatch.setattr("os.link", lambda *_: (_ for _ in ()).throw(OSError))
    files.link(tmp_path / "a", tmp_path / "b")
    assert not (tmp_path / "b").samefile(tmp_path / "a")
    assert (tmp_path / "b").read_text() == "content"


def test_a_kind_of_a_user_has_to_be_registered(tmp_path):
    registered = data.KINDS.register("pitch")(type("Pitches", (data.Kind,), {}))
    given = inputs.Inputs({"pitch": tf.TensorSpec([None, 2], tf.float32)})
    assert isinstance(written(tmp_path, given).kind, registered)
    del data.KINDS._entries["pitch"]
    message = (
        rf"inputs\.json: kind of example 'pitch' is not registered\. .* --import={registered.__module__}\."
    )
    with pytest.raises(ValueError, match=message):
        inputs.read(str(tmp_path))
