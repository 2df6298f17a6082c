"""Trainings of each kind of input with deterministic operations, most of them on two devices."""

import json
import os
import subprocess
import sys

import pytest

from rank4class.pipelines import config, tpu_test

make = tpu_test.make

# Config -> its changes. Other tests train each kind on one device, with the usual operations.
MIRRORED = {
    "image_folder_cnn": {"encoder.dropout": 0.2, "data.image_size": 16},  # image files
    "goemotions_bert": {"accumulation_steps": 2},  # texts grouped by length
    "movielens_100k": {"accumulation_steps": 2},  # ids, with excluded classes
    "letor_linear": {"loss.name": "softmax", "metrics": ("ndcg@10",)},  # lists of items
}
ON_ONE_DEVICE = {"movielens_20m": {"optimizer.name": "lazy_adam"}}
TRAININGS = """
import json, sys
import tensorflow as tf
tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
import numpy as np
from rank4class.pipelines import config, distribution
from rank4class.pipelines.evaluation import statistics
from rank4class.pipelines.storage.run_directory import RunDirectory
from rank4class.pipelines.training import rank_training
statistics.RESAMPLES = 100
for name, (strategy, experiment) in json.load(sys.stdin).items():
    experiment = config.from_json(experiment, "experiment")
    path, strategy = f"{sys.argv[1]}/{name}", distribution.get(strategy)
    results = rank_training.train(experiment, path, strategy=strategy, progress=False)
    losses = [line["loss"] for line in RunDirectory(path).history()]
    sizes = results["train_examples"] % 16, results["test"]["examples"] % 14
    assert results["steps"] == 2 and np.isfinite(losses).all() and all(sizes), (name, results)
    print("trained", name)
"""


@pytest.mark.nightly
def test_inputs_with_deterministic_operations(make, tmp_path):
    """The batches divide neither the training nor the test split.

    TensorFlow reads the variable once a process.
    """
    sizes = {"batch_size": 16, "evaluation_batch_size": 14, "steps": 2, "jit_compile": False}
    experiments = {}
    for strategy, configs in (("mirrored", MIRRORED), ("default", ON_ONE_DEVICE)):
        for name, changes in configs.items():
            experiments[name] = strategy, config.to_json(make(name, **sizes, **changes))
    finished = subprocess.run(
        [sys.executable, "-c", TRAININGS, str(tmp_path / "runs")],
        input=json.dumps(experiments),
        env={**os.environ, "TF_DETERMINISTIC_OPS": "1"},
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stderr
    trained = [line for line in finished.stdout.splitlines() if line.startswith("trained ")]
    assert trained == [f"trained {name}" for name in experiments]
