"""Exports in Hugging Face's layout: those of a published folder are its tensors again."""

import json

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

from rank4class import models
from rank4class.models import checkpoints

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"word{i}" for i in range(16)))


def write(folder, encoder, words=WORDS):
    folder.mkdir()
    contents = checkpoints.hugging_face_files(encoder, words.index("[PAD]"))
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return json.loads(contents["config.json"])


KINDS = [("bert", "pooler"), ("bert", "mean"), ("electra", "cls"), ("mpnet", "mean"), ("xlm-roberta", "cls")]


@pytest.mark.parametrize(("kind", "pooling"), KINDS)
def test_an_imported_encoder_is_exported_as_it_was(tmp_path, write_bert_folder, kind, pooling):
    published = write_bert_folder(tmp_path / "published", WORDS, kind=kind, hidden_act="gelu_new")
    del published["embeddings.position_ids"]  # a buffer that only old versions save
    encoder = models.get("encoder", kind, path=str(tmp_path / "published"), pooling=pooling)
    stated = write(tmp_path / "export", encoder)
    tensors = safetensors.numpy.load_file(tmp_path / "export" / "model.safetensors")
    assert set(tensors) == set(published)
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(tensor, published[name], name)
    with safetensors.safe_open(tmp_path / "export" / "model.safetensors", "numpy") as file:
        assert file.metadata() == {"format": "pt"}
    original = json.loads((tmp_path / "published" / "config.json").read_text())
    assert stated.items() >= original.items()
    assert stated["layer_norm_eps"] == (1e-12 if kind in ("bert", "electra") else 1e-5)
    assert stated["pad_token_id"] == 0

    again = models.get("encoder", kind, path=str(tmp_path / "export"))
    assert again.pooling == pooling  # stated by the export, not by the caller
    features = {name: tf.constant([[2, 5, 3, 0]]) for name in encoder.FEATURES}
    features |= {"input_mask": tf.constant([[1, 1, 1, 0]]), "input_type_ids": tf.constant([[0, 0, 1, 0]])}
    np.testing.assert_array_equal(again(features), encoder(features))


def test_a_stated_pooling_precedes_that_of_the_export(tmp_path, write_bert_folder):
    write_bert_folder(tmp_path, pooling="mean")
    assert models.get("encoder", "bert", path=str(tmp_path)).pooling == "mean"
    assert models.get("encoder", "bert", path=str(tmp_path), pooling="cls").pooling == "cls"
    write_bert_folder(tmp_path, pooling="max")
    with pytest.raises(ValueError, match="not describe this encoder: pooling='max': unknown. There are"):
        models.get("encoder", "bert", path=str(tmp_path))


def write_sentence_files(folder, pooling, *others):
    """Writes the files of sentence-transformers for a pooling mode, and other modules."""
    modules = [("Transformer", ""), ("Pooling", "1_Pooling"), *((name, f"2_{name}") for name in others)]
    types = [{"type": f"sentence_transformers.models.{name}", "path": path} for name, path in modules]
    (folder / "modules.json").write_text(json.dumps(types))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    modes = {f"pooling_mode_{mode}": mode == pooling for mode in ("cls_token", "mean_tokens", "max_tokens")}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 8, **modes}))


def test_the_pooling_is_that_of_sentence_transformers(tmp_path, write_bert_folder, caplog):
    write_bert_folder(tmp_path, kind="mpnet")
    for pooling, others, expected in (
        ("mean_tokens", ["Normalize"], "normalized_mean"),
        ("cls_token", ["Normalize"], "normalized_cls"),
        ("cls_token", [], "cls"),
    ):
        write_sentence_files(tmp_path, pooling, *others)
        assert models.get("encoder", "mpnet", path=str(tmp_path)).pooling == expected
        assert not caplog.text
    newer = tmp_path / "1_Pooling" / "config.json"
    newer.write_text('{"embedding_dimension": 8, "pooling_mode": "cls"}')
    assert checkpoints.sentence_pooling(str(tmp_path)) == "cls"
    newer.write_text('{"embedding_dimension": 8, "pooling_mode": ["cls", "mean"]}')
    assert checkpoints.sentence_pooling(str(tmp_path)) is None
    assert "modules.json: cls, mean is not supported, and left out" in caplog.text
    write_sentence_files(tmp_path, "max_tokens", "Dense")
    assert models.get("encoder", "mpnet", path=str(tmp_path)).pooling == "pooler"
    assert "modules.json: Dense, max_tokens is not supported, and left out" in caplog.text
    assert models.get("encoder", "mpnet", path=str(tmp_path), pooling="mean").pooling == "mean"
    newer.unlink()
    with pytest.raises(FileNotFoundError, match=r"1_Pooling/config\.json: no such file, which .*Download"):
        checkpoints.sentence_pooling(str(tmp_path))
    (tmp_path / "modules.json").write_text("[{")
    with pytest.raises(ValueError, match=r"modules\.json: not JSON"):
        checkpoints.sentence_pooling(str(tmp_path))
