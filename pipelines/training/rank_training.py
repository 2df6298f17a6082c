"""Training of a rank model: from an experiment to a folder with its best checkpoint and its results."""

import dataclasses
import functools
import os
import time
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from rank4class import data, losses, models
from rank4class.pipelines import config, distribution
from rank4class.pipelines.evaluation.trained_model import restore
from rank4class.pipelines.storage import files
from rank4class.pipelines.storage.cache import Cache
from rank4class.pipelines.storage.run_directory import TrainingDirectory
from rank4class.pipelines.task_data import checks, frozen_features, hashing
from rank4class.pipelines.task_data.loading import load_data
from rank4class.pipelines.task_data.task_data import TaskData
from rank4class.pipelines.training import heads, optimization, optimizers
from rank4class.pipelines.training.initialization import initialize
from rank4class.pipelines.training.schedule import build_schedule
from rank4class.pipelines.training.time_budget import Budget, Speed
from rank4class.pipelines.training.train_state import has_checkpoint
from rank4class.pipelines.training.train_step import build_steps
from rank4class.pipelines.training.trainable_rank_model import Draw, Report, TrainableRankModel
from rank4class.pipelines.training.trainer import Trainer
from rank4class.registry import OPTIMIZERS

_NO_DETECTOR = {"unknown": None, "data.unknown": None, "data.unknown_train": None}
_LEAST_RATE_OF_HEAD = 5e-4
# The vectors have one length, so stronger penalties gain nothing; nor do strengths between these.
_OF_WORDS = {"C": optimizers.STRENGTHS[2::2], "tol": 3e-3}


def train(
    experiment: config.Experiment,
    path: str | os.PathLike,
    *,
    dataset: data.Dataset | None = None,
    strategy: tf.distribute.Strategy | None = None,
    task_data: TaskData | None = None,
    progress: bool = True,
    draw: Draw | None = None,
    report: Report | None = None,
    started: float | None = None,
) -> dict[str, Any]:
    """Trains an experiment, or resumes an interrupted run of it; returns the results, as in `results.json`.

    All workers see the same folder. Those of a finished run are returned without loading its data. A
    `dataset` in memory, which may lack a test split, replaces that of the experiment, whose `data` is then
    "memory". `draw`, such as `plots.draw_evaluation`, draws an evaluation for TensorBoard;
    `report`, such as `run_page.write`, writes the report of the training. The time of `minutes` begins at
    `started`, a value of `time.monotonic`; None is this call.

    Raises:
      ValueError, FileNotFoundError: the experiment cannot run; the message says why.
      OSError: the folder cannot be written, or another worker was lost. The checkpoints stay.
      FloatingPointError: the loss or its gradient was not finite. The checkpoints are those from before.
      Interrupted: after SIGTERM or Ctrl-C. The run has saved, and the same call resumes it.
    """
    if dataset is not None:
        experiment = config.override(experiment, {"data.name": "memory"})
    checks.check(experiment)
    started = time.monotonic() if started is None else started
    strategy = strategy or tf.distribute.get_strategy()
    distribution.check(strategy, experiment)
    run_dir = TrainingDirectory(path, experiment)
    results = run_dir.results()
    if dataset is not None:
        task_data = load_data(experiment, run_dir.path, dataset=dataset, progress=progress)
    if results:
        logging.info("%s is finished already", run_dir.path)
        if task_data is not None:
            run_dir.check_data(task_data.hashes, task_data.class_texts)
        return results
    try:
        if distribution.is_chief(strategy):
            run_dir.lock()
        task_data = task_data or load_data(experiment, run_dir.path, progress=progress)
        task_data = dataclasses.replace(task_data, hashes=task_data.hashes | hashing.file_hashes(experiment))
        run_dir.check_data(task_data.hashes, task_data.class_texts)
        inputs = task_data.inputs
        if inputs.num_texts and inputs.cells is None and "cells" in inputs.specs:
            raise ValueError(
                f"data.feature_columns={inputs.columns[inputs.num_texts :]}: columns beside texts join their "
                "words. Set words='auto' without class texts and data.held_out, or data.text_column alone."
            )
        if distribution.reads_remotely(strategy) and task_data.splits["train"].kind.tokenizes:
            raise ValueError(
                "data.cache=False: the servers of this TPU cannot tokenize text. Set it to True to send "
                "tokens."
            )
        if isinstance(strategy, tf.distribute.TPUStrategy):
            task_data = task_data.with_static_lengths()
        if experiment.data.on_invalid_row == "fail" and not has_checkpoint(run_dir.checkpoints):
            _check_evaluated_images(task_data, experiment.evaluation_batch_size)
        budget = None
        if experiment.minutes is not None:
            if "learning_rate" in experiment.optimizer.fields:
                budget = Budget(run_dir.path, experiment.minutes, started)
            else:
                note = "minutes=%g: a solved head takes its own time, and nothing trains after it"
                logging.warning(note, experiment.minutes)
        return build_trainer(experiment, task_data, run_dir, strategy, progress, draw, report, budget).train()
    finally:
        run_dir.unlock()


def _check_evaluated_images(task_data: TaskData, batch_size: int) -> None:
    """Raises ValueError for the first image of the evaluations that cannot be read.

    It reads them once, as an evaluation does; otherwise training would stop there, maybe hours later.
    """
    if task_data.splits["train"].kind.reads_files:
        by_identity = {id(split): name for name, split in task_data.splits.items() if name != "train"}
        for name in by_identity.values():
            for _ in task_data.read(name, batch_size, title="reading"):
                pass


def solve_head(
    experiment: config.Experiment,
    task_data: TaskData,
    path: str,
    strategy: tf.distribute.Strategy,
    progress: bool = True,
) -> heads.Head:
    """Returns the head that optimizer "lbfgs" solves for the initial encoder, by a run in `starts/probe`."""
    solved = _plain(experiment, task_data)
    task_data = dataclasses.replace(task_data.of_splits("train", "validation").without("words"), augment=None)
    if "frozen" in solved.encoder.fields and not solved.encoder.frozen:
        solved.encoder.frozen = True
        cache = Cache(path, progress)
        batch_size = experiment.evaluation_batch_size
        task_data = frozen_features.encode_splits(experiment.encoder.name, batch_size, cache, task_data)
    return _solve(solved, task_data, os.path.join(path, "starts", "probe"), strategy, progress)[0]


def solve_words(
    experiment: config.Experiment,
    task_data: TaskData,
    path: str,
    strategy: tf.distribute.Strategy,
    progress: bool = True,
) -> tuple[heads.Head, np.ndarray | None]:
    """Returns the head that optimizer "lbfgs" solves for the feature `words`, by a run in `starts/words`.

    If the training examples validate, there are their scores out of their folds too, float32 `[N, n]`.
    """
    solved = _plain(experiment, task_data)
    solved.encoder = config.Encoder("identity")
    solved.class_encoder = config.ClassEncoder(init="zeros")
    solved.interaction = config.Interaction()
    solved.optimizer = config.Optimizer("lbfgs", **_OF_WORDS)
    solved.patience = 1
    splits = {}
    for name in ("train", "validation"):
        split = task_data.splits[name]
        splits[name] = dataclasses.replace(
            split, features={"embedding": split.features["words"]}, lengths=None
        )
    task_data = dataclasses.replace(
        task_data,
        splits=splits,
        preprocess=None,
        augment=None,
        make_encoder=functools.partial(models.get, "encoder", "identity"),
        encoder_files=None,
    )
    return _solve(solved, task_data, os.path.join(path, "starts", "words"), strategy, progress)


def _plain(experiment: config.Experiment, task_data: TaskData) -> config.Experiment:
    """Returns an experiment of which "lbfgs" can solve the head."""
    plain = {"class_encoder.init": "zeros", "candidates.name": "all", "init_from": None, "words": "none"}
    plain |= {"sets.name": "none", **_NO_DETECTOR}
    solved = config.override(experiment, {**plain, "metrics": (experiment.monitor,)})
    if solved.loss.name in losses.BATCH_LOSSES:
        is_several = task_data.splits["train"].multi_label
        solved.loss = config.Loss("sigmoid_cross_entropy" if is_several else "softmax")
    if solved.count_prior.name == "learned":
        solved.count_prior = config.CountPrior("empirical")
    solved.optimizer = config.Optimizer("lbfgs")
    return solved


def _solve(
    experiment: config.Experiment,
    task_data: TaskData,
    path: str,
    strategy: tf.distribute.Strategy,
    progress: bool,
) -> tuple[heads.Head, np.ndarray | None]:
    """Returns the head that a run of its own solves, and the scores of `solve_words`."""
    run_dir = TrainingDirectory(path, experiment)
    try:
        trainer = build_trainer(experiment, task_data, run_dir, strategy, progress)
        results = trainer.train()
        scores = None if task_data.folds is None else trainer.out_of_fold(results["best_step"])
    finally:
        run_dir.unlock()
    table = trainer.model.class_encoder.table.numpy()
    interaction = trainer.model.interaction
    return heads.Head(table, interaction.bias.numpy() if interaction.use_bias else None), scores


def build_trainer(
    experiment: config.Experiment,
    task_data: TaskData,
    run_dir: TrainingDirectory,
    strategy: tf.distribute.Strategy,
    progress: bool = True,
    draw: Draw | None = None,
    report: Report | None = None,
    budget: Budget | None = None,
) -> Trainer:
    """Builds model and optimizer of an experiment, and the trainer that joins them in a run directory.

    Heads are solved first. A `budget` then chooses the number of steps by the time that is left.
    """
    is_new = not has_checkpoint(run_dir.checkpoints)
    progress &= distribution.is_chief(strategy)
    parts = experiment, task_data, run_dir.path, strategy, progress
    solved = solve_head(*parts) if is_new and experiment.class_encoder.init == "probe" else None
    words: tuple[heads.Head, np.ndarray | None] | None = None
    if "words" in task_data.first_example() and (is_new or task_data.folds is not None):
        words = solve_words(*parts)
    planned = experiment
    if budget is not None:
        budget.save()
        if budget.steps is None:
            budget.plan(experiment, task_data, _speed(*parts[:4], budget.trial))
        planned = config.override(experiment, {"steps": budget.steps})
    tf.keras.utils.set_random_seed(experiment.seed)
    schedule = build_schedule(planned, len(task_data.splits["train"]))
    task = TrainableRankModel(experiment, task_data, schedule, strategy, progress, draw, report)
    if is_new:
        encoder = experiment.encoder.name
        cache = Cache(run_dir.path, progress)
        sources = heads.Sources(task_data, encoder, experiment.evaluation_batch_size, cache, solved)
        heads.start(task.model, experiment.class_encoder, sources)
    if words is not None:
        head, task.word_scores = words
        if is_new:
            task.words.kernel.assign(head.vectors.T)
            task.words.bias.assign(head.bias)
    if is_new and experiment.init_from is not None:
        try:
            source = restore(experiment.init_from, strategy=strategy)
            initialize(task.model, task_data, source.model, source.description.class_names)
        except (FileNotFoundError, ValueError) as error:
            raise ValueError(f"init_from={experiment.init_from}: {error}") from error
    part = experiment.optimizer
    if experiment.encoder.frozen and getattr(part, "learning_rate", 1.0) < _LEAST_RATE_OF_HEAD:
        logging.warning(
            "optimizer.learning_rate=%g: a rate for fine-tuning, at which the head of a frozen encoder "
            "hardly learns. Set --optimizer=lbfgs, or a rate of 0.001 to 0.01",
            part.learning_rate,
        )
    with strategy.scope():
        if schedule.learning_rate is None:
            optimizer = OPTIMIZERS.build(part.name, **part.options())
            steps = optimizer.build_steps(task.model, task_data, task.loss)
            task.out_of_fold = optimizer.out_of_fold
        else:
            optimizer = optimization.build_optimizer(
                part, schedule.learning_rate, experiment.precision, task.model
            )
            optimizer.build(task.model.trainable_variables)
            steps = build_steps(strategy, task.model, task.forward, task.loss, optimizer, experiment)
    return Trainer(
        task, optimizer, steps, run_dir, schedule, experiment, strategy, progress=progress, budget=budget
    )


def _speed(
    experiment: config.Experiment,
    task_data: TaskData,
    path: str,
    strategy: tf.distribute.Strategy,
    seconds: float,
) -> Speed:
    """Returns the speed of a training, by a trial of some seconds whose folder is removed."""
    changes = {"class_encoder.init": "random", "init_from": None, "minutes": None}
    plain = config.override(experiment, {**changes, **_NO_DETECTOR})
    run_dir = TrainingDirectory(os.path.join(path, "starts", "trial"), plain)
    task_data = task_data.of_splits("train", "validation").without("words")
    try:
        return build_trainer(plain, task_data, run_dir, strategy, progress=False).speed(seconds)
    finally:
        run_dir.unlock()
        files.remove([run_dir.path])
