"""Text encoders of runs in Hugging Face's layout, read again."""

import shutil

import numpy as np
import pytest
import tensorflow as tf

import rank4class
from rank4class import data, models
from rank4class.pipelines import tpu_test

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
