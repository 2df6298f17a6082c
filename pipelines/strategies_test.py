"""A few steps and an evaluation of each kind of input, on each strategy, with and without accumulation."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from rank4class.pipelines import config, distribution, tpu_test
from rank4class.pipelines.storage.run_directory import RunDirectory
from rank4class.pipelines.training import rank_training

make = tpu_test.make

KINDS = {
    "digits_mlp": "images in arrays",
    "image_folder_cnn": "image files",
    "goemotions_bert": "texts grouped by length",
    "goemotions_minilm_frozen": "outputs of a frozen encoder",
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
    sizes = {"batch_size": 16, "evaluation_batch_size": 14, "steps": 3, "jit_compile": False}
    experiment = make(name, accumulation_steps=accumulation_steps, **sizes)
    folder = str(tmp_path / "run")
    results = rank_training.train(experiment, folder, strategy=distribution.get(strategy), progress=False)
    assert results["steps"] == 3
    assert results["train_examples"] % 16
    assert results["test"]["examples"] % 14
    assert np.isfinite([line["loss"] for line in RunDirectory(folder).history()]).all()


TRAININGS = """
import json, sys
from rank4class.pipelines import config
from rank4class.pipelines.training import rank_training
for i, experiment in enumerate(json.load(sys.stdin)):
    experiment = config.from_json(experiment, "experiment")
    results = rank_training.train(experiment, f"{sys.argv[1]}/{i}", progress=False)
    print("steps:", results["steps"])
"""


@pytest.mark.nightly
def test_inputs_with_deterministic_operations(make, tmp_path):
    """TensorFlow reads the variable once a process."""
    changes = {name: {} for name in KINDS} | {
        "digits_mlp": {"encoder.dropout": 0.2},
        "retrieval_synthetic": {"optimizer.name": "lazy_adam"},
    }
    experiments = []
    for name, change in changes.items():
        experiments.append(config.to_json(make(name, batch_size=16, steps=2, jit_compile=False, **change)))
    finished = subprocess.run(
        [sys.executable, "-c", TRAININGS, str(tmp_path / "runs")],
        input=json.dumps(experiments),
        env={**os.environ, "TF_DETERMINISTIC_OPS": "1"},
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.count("steps: 2\n") == len(experiments)
