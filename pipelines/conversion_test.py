"""Conversion: the converted encoder computes what the source's does."""

import numpy as np
import pytest
import tensorflow as tf

from rank4class import models
from rank4class.pipelines import conversion


@pytest.mark.nightly
def test_a_hugging_face_folder_becomes_our_own(tmp_path, tiny_bert):
    own = str(tmp_path / "own")
    found, weights = conversion.convert(tiny_bert, own)
    assert found == "Hugging Face BERT folder"
    source, converted = (models.get("encoder", "bert", path=path) for path in (tiny_bert, own))
    assert weights == source.count_params()
    features = {name: tf.constant([[2, 5, 3]]) % 2 + i for i, name in enumerate(source.FEATURES)}
    np.testing.assert_array_equal(converted(features), source(features))
    assert (tmp_path / "own" / "vocab.txt").read_text() == (tmp_path / "encoder" / "vocab.txt").read_text()
    assert conversion.convert(own, str(tmp_path / "again")) == ("rank4class folder", weights)
    with pytest.raises(FileExistsError, match="choose another folder"):
        conversion.convert(tiny_bert, own)


def test_what_was_written_is_compared(tmp_path, tiny_bert, monkeypatch):
    save = conversion.checkpoints.save

    def torn(folder, *, variables, **rest):
        save(folder, variables={name: 2.0 * value for name, value in variables.items()}, **rest)

    monkeypatch.setattr(conversion.checkpoints, "save", torn)
    with pytest.raises(OSError, match=r"does not hold the word_embeddings/embeddings that was written"):
        conversion.convert(tiny_bert, str(tmp_path / "own"))
