"""Training of a sorter on vectors that are drawn anew at every step."""

import functools
import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from rank4class import arguments
from rank4class.models import sorters
from rank4class.pipelines import config
from rank4class.pipelines.storage import files
from rank4class.pipelines.storage.run_directory import check_folder, read_json, write_json
from rank4class.pipelines.task_data import checks
from rank4class.pipelines.training import optimization
from rank4class.scripts.research.sorters import accuracy, networks, score_vectors

EPOCH = 100_000  # vectors
MAX_SIZE = 10_000  # all vectors of the held-out test are drawn at once


def train(
    path: str | os.PathLike,
    sorter: str,
    optimizer: config.Optimizer,
    *,
    sizes: Sequence[int] = (100,),
    move: float = 0.0,
    epochs: int = 10,
    batch_size: int = 512,
    seed: int = 0,
    command: str = "",
    verbose: int = 2,
) -> dict[str, Any]:
    """Trains a sorter with Keras's `fit`, or resumes an interrupted training after its last epoch.

    Args:
      path: folder of the weights, `sorter.safetensors`, results, checkpoints, and files of TensorBoard.
      sorter: name of a sorter with weights.
      optimizer: its learning rate over the steps is that of a training of a rank model.
      sizes: lengths of the vectors; successive steps cycle through them.
      move: largest distance, in ranks, that the scores move before the sorter ranks them.
      epochs, batch_size, seed: of the training; an epoch has `EPOCH` vectors.
      command: the command that trains the sorter, a part of the file of weights.
      verbose: see `tf.keras.Model.fit`.

    Returns:
      The results, as in `results.json`: split -> metric -> `accuracy.summary`.

    Raises:
      ValueError: an argument is out of its range, or the folder holds another training.
      FloatingPointError: the training diverged.
    """
    for size in sizes:
        arguments.check_integer(2, MAX_SIZE, sizes=size)
    if sorter == "equivariant" and not move:
        raise ValueError(
            "move=0: sorter 'equivariant' needs a positive one, such as 1. Without a move, ever sharper "
            "comparisons rank better, until no gradient is left."
        )
    checks.check_optimizer(optimizer)
    path = check_folder(path, "training of a sorter")
    _claim(os.path.join(path, "config.json"), command)
    results_path = os.path.join(path, "results.json")
    if files.exists(results_path):
        return read_json(results_path)
    tf.keras.utils.set_random_seed(seed)
    model = _Moved(sorters.get(sorter, n=networks.only_size(sizes), trained=None), move)
    steps = math.ceil(EPOCH / batch_size)
    rate = optimization.build_schedule(optimizer, epochs * steps)
    model.compile(optimization.build_optimizer(optimizer, rate), "mae")
    epoch = tf.Variable(0)
    checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer, epoch=epoch)
    manager = tf.train.CheckpointManager(checkpoint, os.path.join(path, "checkpoints"), max_to_keep=1)
    manager.restore_or_initialize()

    def save(number: int, logs: dict[str, float]) -> None:
        epoch.assign(number + 1)
        manager.save()

    first = int(epoch)
    model.fit(
        score_vectors.training_batches(sizes, batch_size, seed, move, start_step=first * steps),
        initial_epoch=first,
        epochs=epochs,
        steps_per_epoch=steps,
        verbose=verbose,
        callbacks=[
            tf.keras.callbacks.LambdaCallback(on_epoch_end=save),
            tf.keras.callbacks.TensorBoard(path),
        ],
    )
    return _finish(model.sorter, path, sorted(set(sizes)), command)


def _claim(path: str, command: str) -> None:
    """Writes the command of a training; raises ValueError if the file has another one."""
    if files.exists(path) and (present := read_json(path)["command"]) != command:
        raise ValueError(f"{path}: of another training ({present}). Choose another --workdir.")
    files.make_folder(os.path.dirname(path))
    write_json(path, {"command": command})


def _finish(sorter: sorters.Sorter, path: str, sizes: Sequence[int], command: str) -> dict[str, Any]:
    """Rounds the weights as their file does, evaluates them, and writes both; returns the results."""
    for weight in sorter.weights:
        weight.assign(tf.cast(tf.cast(weight, tf.float16), tf.float32))
        if not np.isfinite(weight).all():
            raise FloatingPointError("loss='mae': not finite. Lower the learning rate, and train again.")
    results = {
        split: {f"l1@{n}": accuracy.summary(accuracy.errors(sorter.rank_fn, n, split=split)) for n in sizes}
        for split in score_vectors.HELD_OUT
    }
    test = ", ".join(f"{name} {values['mean']:.5f}" for name, values in results["test"].items())
    weights = sorters.to_bytes(sorter, sizes=",".join(map(str, sizes)), l1=test, command=command)
    files.write(os.path.join(path, "sorter.safetensors"), weights)
    write_json(os.path.join(path, "results.json"), results)
    return results


class _Moved(tf.keras.Model):
    """The ranks that a sorter predicts for moved scores, from its value and gradient before the move."""

    def __init__(self, sorter: Any, move: float):
        super().__init__()
        self.sorter = sorter
        self._move = move

    def call(self, features: dict[str, tf.Tensor], training: bool = False) -> tf.Tensor:
        sort = functools.partial(self.sorter, training=training)
        if not self._move:
            return sort(features["scores"])
        return accuracy.extrapolate(sort, features["scores"], features["moves"])
