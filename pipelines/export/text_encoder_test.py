"""Text encoders of runs in Hugging Face's layout, read again as the encoder of another run."""

import shutil

import numpy as np
import pytest
import tensorflow as tf

import rank4class
from rank4class import data, models
from rank4class.pipelines import config

pytestmark = pytest.mark.nightly

TEXTS = ["great day", "", "awful mess " * 30, "\u00e9t\u00e9 [CLS] \u4e2d\u6587", "The Table"]


@pytest.mark.parametrize(
    ("kind", "encoder", "changes"),
    [
        ("bert", {"pooling": "mean"}, {"precision": "mixed_bfloat16"}),
        ("electra", {"frozen": True, "pooling": "cls"}, {}),
    ],
    ids=["half_precision", "frozen"],
)
def test_the_export_is_read_again(tiny_goemotions, write_bert_folder, tmp_path, kind, encoder, changes):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "great", "happy", "day", "awful", "bad", "mess", "the"]
    source = tmp_path / "encoder"
    published = write_bert_folder(source, words, kind=kind)
    experiment = config.Experiment(
        data=config.Data(name="goemotions", path=str(tiny_goemotions), max_length=8),
        encoder=config.Encoder(name=kind, path=str(source), **encoder),
        optimizer=config.Optimizer(learning_rate=0.01),
        metrics=("top1_error",),
        monitor="top1_error",
        batch_size=8,
        steps=4,
    )
    experiment = config.override(experiment, changes)
    run = rank4class.train(experiment, tmp_path / "run", progress=False)
    shutil.rmtree(source)
    folder = tmp_path / "export"
    run.export(folder, format="huggingface")
    assert {path.name for path in folder.iterdir()} == {
        *("config.json", "model.safetensors", "tokenizer_config.json", "vocab.txt")
    }

    trained = run._trained.description.inputs.encoder or run.model.encoder
    again = models.get("encoder", kind, path=str(folder))
    weights = {name: variable.numpy() for name, variable in again.named_variables().items()}
    for name, variable in trained.named_variables().items():
        np.testing.assert_array_equal(weights[name], variable, name)
    name = "embeddings.word_embeddings.weight"
    is_frozen = encoder.get("frozen", False)
    assert np.array_equal(weights["word_embeddings/embeddings"], published[name]) == is_frozen
    tokenizer = data.WordPiece.from_folder(str(folder), max_length=8)
    assert tokenizer.settings == run._trained.description.inputs.preprocess.settings
    vectors = again(tokenizer({"text": tf.constant(TEXTS)}))
    if not changes:  # the export computes in float32
        np.testing.assert_array_equal(vectors, run.answers.encode({"text": tf.constant(TEXTS)})["vectors"])

    changes = {"encoder.path": str(folder), "encoder.frozen": True, "precision": "float32"}
    other = rank4class.train(config.override(experiment, changes), tmp_path / "other", progress=False)
    np.testing.assert_array_equal(other.answers.encode({"text": tf.constant(TEXTS)})["vectors"], vectors)
