"""Text encoders of runs in Hugging Face's layout, read again."""

import shutil

import numpy as np
import pytest
import tensorflow as tf

import rank4class
from rank4class import data, models
from rank4class.pipelines import config, tpu_test

pytestmark = pytest.mark.nightly
make = tpu_test.make

TEXTS = ["great day", "", "awful mess " * 30, "\u00e9t\u00e9 [CLS] \u4e2d\u6587", "The Table"]


def weights_of(encoder):
    return {name: variable.numpy() for name, variable in encoder.named_variables().items()}


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("goemotions_minilm", {"precision": "mixed_bfloat16"}),
        ("goemotions_electra", {"encoder.frozen": True, "encoder.pooling": "cls"}),
    ],
)
def test_the_export_is_read_again(make, tmp_path, name, changes):
    experiment = make(name, epochs=1.0, steps=None, jit_compile=False, **changes)
    kind = experiment.encoder.name
    source = experiment.encoder.path
    run = rank4class.train(experiment, tmp_path / "run", progress=False)
    shutil.rmtree(source)
    folder = tmp_path / "export"
    run.export(folder, format="huggingface")
    assert {path.name for path in folder.iterdir()} == {
        *("config.json", "model.safetensors", "tokenizer_config.json", "vocab.txt")
    }
    again = models.get("encoder", kind, path=str(folder))
    is_frozen = experiment.encoder.frozen
    trained = weights_of(run._trained.description.inputs.encoder or run.model.encoder)
    for name, weight in weights_of(again).items():
        np.testing.assert_array_equal(weight, trained.pop(name), name)
    assert not trained
    tokenizer = data.TOKENIZERS["WordPiece"].from_folder(str(folder), max_length=experiment.data.max_length)
    assert tokenizer.settings == run._trained.description.inputs.preprocess.settings
    vectors = again(tokenizer({"text": tf.constant(TEXTS)}))
    if is_frozen:  # the export computes in float32
        np.testing.assert_array_equal(vectors, run.answers.encode({"text": tf.constant(TEXTS)})["vectors"])


def test_the_static_export_imitates_the_encoder(make, tmp_path):
    changes = {"epochs": 1.0, "steps": None, "jit_compile": False, "encoder.frozen": True}
    run = rank4class.train(make("goemotions_minilm", **changes), tmp_path / "run", progress=False)
    run.export(tmp_path / "static", format="static")
    static = models.get("encoder", "static", path=str(tmp_path / "static"))
    inputs = run._trained.description.inputs
    vocab = inputs.preprocess.settings["vocab"]
    ids = tf.range(len(vocab))[:, None]
    around = [tf.fill(ids.shape, vocab.index(token)) for token in ("[CLS]", "[SEP]")]
    tokens = tf.concat([around[0], ids, around[1]], axis=1)
    features = {"input_word_ids": tokens, "input_mask": tf.ones_like(tokens)}
    vectors = inputs.encoder({**features, "input_type_ids": tf.zeros_like(tokens)}).numpy()
    np.testing.assert_allclose(
        static.table, models.encoders.static.distill(vectors, vocab).table, rtol=1e-4, atol=1e-8
    )
    assert not static.table.numpy()[[vocab.index("[CLS]"), vocab.index("[SEP]")]].any()
    again = make("goemotions_minilm", **changes)
    again = config.override(again, {"encoder.path": str(tmp_path / "static")})
    trained = rank4class.train(again, tmp_path / "again", progress=False)
    shutil.rmtree(tmp_path / "static")
    assert trained.experiment.encoder.name == "static"
    assert len(trained.predict(["great day"])) == 5
    trained.export(tmp_path / "model")
    with pytest.raises(ValueError, match="^format='static': exports no classes"):
        trained.export(tmp_path / "other", k=3, format="static")
