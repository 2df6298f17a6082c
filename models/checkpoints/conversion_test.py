"""Conversion: converted encoders equal their sources, and failed writes leave no folder."""

import json

import numpy as np
import pytest
import tensorflow as tf

from rank4class import models
from rank4class.models import checkpoints
from rank4class.models.checkpoints import conversion


@pytest.mark.nightly
def test_converts_a_hugging_face_folder(tmp_path, tiny_bert):
    converted = str(tmp_path / "converted")
    description, num_weights = checkpoints.convert(tiny_bert, converted)
    assert description == "Hugging Face BERT folder"
    source, encoder = (models.get("encoder", "bert", path=path) for path in (tiny_bert, converted))
    assert num_weights == source.count_params()
    features = {name: tf.constant([[2, 5, 3]]) % 2 + i for i, name in enumerate(source.FEATURES)}
    np.testing.assert_array_equal(encoder(features), source(features))
    vocabularies = [(tmp_path / name / "vocab.txt").read_text() for name in ("converted", "encoder")]
    assert vocabularies[0] == vocabularies[1]
    assert checkpoints.convert(converted, str(tmp_path / "again")) == ("rank4class folder", num_weights)
    with pytest.raises(FileExistsError, match=r"not empty\. Choose another folder"):
        checkpoints.convert(tiny_bert, converted)


def test_written_weights_are_verified(tmp_path, tiny_bert, monkeypatch):
    save = conversion.save

    def save_other_weights(folder, *, variables, **rest):
        save(folder, variables={name: 2.0 * value for name, value in variables.items()}, **rest)

    monkeypatch.setattr(conversion, "save", save_other_weights)
    with pytest.raises(OSError, match=r"word_embeddings/embeddings differs from the value written"):
        checkpoints.convert(tiny_bert, str(tmp_path / "converted"))


def test_failed_save_leaves_no_folder(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise OSError("disk full")

    monkeypatch.setattr(json, "dump", fail)
    with pytest.raises(OSError, match="disk full"):
        checkpoints.save(tmp_path / "converted", encoder="vgg16", settings={}, variables={})
    assert not (tmp_path / "converted").exists()
