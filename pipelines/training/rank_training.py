"""Training of a rank model: from an experiment to a folder with its best checkpoint and its results."""

import dataclasses
import os
from typing import Any

import tensorflow as tf
from absl import logging

from rank4class import data
from rank4class.pipelines import config, distribution
from rank4class.pipelines.evaluation.trained_model import restore
from rank4class.pipelines.storage.files import Cache
from rank4class.pipelines.storage.run_directory import TrainingDirectory
from rank4class.pipelines.task import checks, hashing
from rank4class.pipelines.task.loading import load_data
from rank4class.pipelines.task.task import TaskData
from rank4class.pipelines.training import heads, optimization
from rank4class.pipelines.training.initialization import initialize
from rank4class.pipelines.training.schedule import build_schedule
from rank4class.pipelines.training.train_state import has_checkpoint
from rank4class.pipelines.training.trainable_rank_model import Draw, TrainableRankModel
from rank4class.pipelines.training.trainer import Trainer


def train(
    experiment: config.Experiment,
    path: str | os.PathLike,
    *,
    dataset: data.Dataset | None = None,
    strategy: tf.distribute.Strategy | None = None,
    loaded: TaskData | None = None,
    progress: bool = True,
    draw: Draw | None = None,
) -> dict[str, Any]:
    """Trains an experiment, or resumes an interrupted run of it; returns the results, as in `results.json`.

    All workers see the same folder. Those of a finished run are returned without loading its data. A
    `dataset` in memory, which may lack a test split, replaces that of the experiment, whose `data` is then
    "memory". `draw`, such as `plots.draw_evaluation`, draws an evaluation for TensorBoard.

    Raises:
      ValueError, FileNotFoundError: the experiment cannot run; the message says why.
      OSError: the folder cannot be written, or another worker was lost. The checkpoints stay.
      FloatingPointError: the loss or its gradient was not finite. The checkpoints are those from before.
      Interrupted: after SIGTERM or Ctrl-C. The run has saved, and the same call resumes it.
    """
    if dataset is not None:
        experiment = config.override(experiment, {"data.name": "memory"})
    checks.check(experiment)
    strategy = strategy or tf.distribute.get_strategy()
    distribution.check(strategy, experiment)
    run_dir = TrainingDirectory(path, experiment)
    results = run_dir.results()
    if dataset is not None:
        loaded = load_data(experiment, run_dir.path, dataset=dataset, progress=progress)
    if results:
        logging.info("%s is finished already", run_dir.path)
        if loaded is not None:
            run_dir.check_data(loaded.hashes, loaded.class_texts)
        return results
    try:
        if distribution.is_chief(strategy):
            run_dir.lock()
        loaded = loaded or load_data(experiment, run_dir.path, progress=progress)
        loaded = dataclasses.replace(loaded, hashes=loaded.hashes | hashing.file_hashes(experiment))
        run_dir.check_data(loaded.hashes, loaded.class_texts)
        if distribution.reads_remotely(strategy) and loaded.splits["train"].kind.tokenizes:
            raise ValueError(
                "data.cache=False: the servers of this TPU cannot tokenize text. Set it to True to send "
                "tokens."
            )
        if isinstance(strategy, tf.distribute.TPUStrategy):
            loaded = loaded.with_static_lengths()
        if experiment.data.on_invalid_row == "fail" and not has_checkpoint(run_dir.checkpoints):
            _check_evaluated_images(loaded, experiment.evaluation_batch_size)
        return build_trainer(experiment, loaded, run_dir, strategy, progress, draw).train()
    finally:
        run_dir.unlock()


def _check_evaluated_images(loaded: TaskData, batch_size: int) -> None:
    """Raises ValueError for the first image of the evaluations that cannot be read.

    It reads them once, as an evaluation does; otherwise training would stop there, maybe hours later.
    """
    if loaded.splits["train"].kind.reads_files:
        by_identity = {id(split): name for name, split in loaded.splits.items() if name != "train"}
        for name in by_identity.values():
            for _ in loaded.read(name, batch_size, title="reading"):
                pass


def build_trainer(
    experiment: config.Experiment,
    loaded: TaskData,
    run_dir: TrainingDirectory,
    strategy: tf.distribute.Strategy,
    progress: bool = True,
    draw: Draw | None = None,
) -> Trainer:
    """Builds model and optimizer of an experiment, and the trainer that joins them in a run directory."""
    tf.keras.utils.set_random_seed(experiment.seed)
    schedule = build_schedule(experiment, len(loaded.splits["train"]))
    progress &= distribution.is_chief(strategy)
    task = TrainableRankModel(experiment, loaded, schedule, strategy, progress, draw)
    is_new = not has_checkpoint(run_dir.checkpoints)
    if is_new:
        heads.start(task.model, loaded, experiment, Cache(run_dir.path, progress))
    if is_new and experiment.init_from is not None:
        try:
            source = restore(experiment.init_from, strategy=strategy)
            initialize(task.model, loaded, source.model, source.description.class_names)
        except (FileNotFoundError, ValueError) as error:
            raise ValueError(f"init_from={experiment.init_from}: {error}") from error
    with strategy.scope():
        optimizer = optimization.build_optimizer(
            experiment.optimizer, schedule.learning_rate, experiment.precision, task.model
        )
    return Trainer(task, optimizer, run_dir, schedule, experiment, strategy, progress=progress)
