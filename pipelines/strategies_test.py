"""A few steps and an evaluation of each kind of input, on each strategy, with and without accumulation."""

import numpy as np
import pytest

from rank4class.pipelines import distribution, tpu_test
from rank4class.pipelines.storage.run_directory import RunDirectory
from rank4class.pipelines.training import rank_training

make = tpu_test.make

KINDS = {
    "digits_mlp": "images in arrays",
    "image_folder_cnn": "image files",
    "goemotions_bert": "texts grouped by length",
    "goemotions_minilm_frozen": "outputs of a frozen encoder",
    "goemotions_zero_shot": "texts of classes",
    "embedded_digits": "vectors",
    "movielens_100k": "ids, with excluded classes",
    "letor_linear": "lists of items",
}


@pytest.mark.nightly
@pytest.mark.parametrize("accumulation_steps", [1, 2])
@pytest.mark.parametrize("strategy", ["default", "mirrored"])
@pytest.mark.parametrize("name", KINDS, ids=KINDS.get)
def test_inputs_on_strategies(name, strategy, accumulation_steps, make, tmp_path):
    """The sizes of the batches divide neither the training nor the test split."""
    sizes = {"batch_size": 20, "evaluation_batch_size": 14, "steps": 3, "jit_compile": False}
    experiment = make(name, accumulation_steps=accumulation_steps, **sizes)
    folder = str(tmp_path / "run")
    results = rank_training.train(experiment, folder, strategy=distribution.get(strategy), progress=False)
    assert results["steps"] == 3
    assert results["train_examples"] % 20
    assert results["test"]["examples"] % 14
    assert np.isfinite([line["loss"] for line in RunDirectory(folder).history()]).all()
