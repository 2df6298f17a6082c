"""Training a rank model: from an experiment to a folder with its best checkpoint and its results."""

import contextlib
import math
import os

import numpy as np
import tensorflow as tf
from absl import logging

from rank4class import data, losses, models
from rank4class.pipelines import config, distribution
from rank4class.pipelines.config import rank_functions
from rank4class.pipelines.evaluation import evaluator
from rank4class.pipelines.reporting import plots
from rank4class.pipelines.storage import files
from rank4class.pipelines.storage.run_directory import RunDirectory, check_folder
from rank4class.pipelines.task import count_checks, loading
from rank4class.pipelines.training import optimization, tensorboard
from rank4class.pipelines.training.train_state import TrainState, best_model, run_of
from rank4class.pipelines.training.trainer import Trainer


def train(experiment, path, *, strategy=None, loaded=None, progress=True):
    """Trains an experiment, or goes on where an interrupted run of it stopped.

    Args:
      experiment: a `config.Experiment`.
      path: the run's folder, `RunDirectory`; all workers see the same one.
      strategy: a `tf.distribute.Strategy`; None is one device.
      loaded: the experiment's `task.Task`, if it is there already.
      progress: whether to show a progress bar.

    Returns:
      The results, as they stand in `results.json`.

    Raises:
      ValueError, FileNotFoundError: the experiment cannot run; the message says why.
      OSError: the folder cannot be written, or another worker was lost. The checkpoints stay.
      FloatingPointError: the loss or its gradient was not finite. The checkpoints are those from before.
      Interrupted: SIGTERM or Ctrl-C came; the run has saved, and the same call goes on.
    """
    config.check(experiment)
    strategy = strategy or tf.distribute.get_strategy()
    distribution.check(experiment, strategy)
    path = check_folder(path, "training")
    workdir = RunDirectory(path)
    workdir.check_owner(experiment)
    if workdir.results():
        logging.info("%s is finished already", path)
        return workdir.results()
    with contextlib.ExitStack() as stack:
        stack.callback(workdir.unlock)
        if distribution.is_chief(strategy) and files.exists(path):
            workdir.lock()
        loaded = loaded or loading.load(experiment, path)
        workdir.check_data(loaded.hashes)
        workdir.check_class_texts(loaded.class_texts)
        if distribution.reads_elsewhere(strategy) and isinstance(loaded.preprocess, data.WordPiece):
            raise ValueError(
                "the servers of this TPU cannot cut texts into tokens: set data.cache=True to send them cut"
            )
        return RankTraining(experiment, strategy, loaded, workdir, progress).run()


class RankTraining(Trainer):
    """A training of a rank model on a problem.

    Args:
      experiment: a checked `config.Experiment`.
      loaded: its `task.Task`.
      strategy, workdir, progress: see `Trainer`.
    """

    def __init__(self, experiment, strategy, loaded, workdir, progress):
        self._loaded = loaded
        self.metrics = _metrics(experiment, loaded)
        self.loss_name = experiment.loss.name
        self.patience = experiment.patience
        self.train_examples = len(loaded.splits["train"])
        _check_k(experiment, loaded)
        count_checks.check(experiment, loaded.splits["train"])
        epoch_steps = self.train_examples / experiment.batch_size
        total = experiment.steps or math.ceil(experiment.epochs * epoch_steps)
        self._temperature = optimization.build_temperature(experiment.loss, total)
        super().__init__(
            experiment,
            strategy,
            workdir,
            progress,
            total=total,
            evaluation_steps=math.ceil(epoch_steps / experiment.evaluations_per_epoch),
            hashes=loaded.hashes,
            class_texts=loaded.class_texts,
            monitor=experiment.monitor,
        )

    def build_model(self):
        return build_model(self._experiment, self._loaded, self._strategy)

    def build_scorer(self):
        return self._loaded.scorer(self._model, "train", self._experiment.count_prior.name)

    def build_loss(self):
        section, epoch_steps = self._experiment.loss, self.train_examples / self._experiment.batch_size
        rank_fn = getattr(self._model, "rank_sorter", None)  # one that is fine-tuned
        if rank_fn is not None:
            rank_fn = rank_fn.rank_fn
        elif section.rank_fn is not None:
            rank_fn = build_rank_fn(self._experiment, self._loaded, self._strategy)
        return optimization.build_loss(
            self._experiment,
            self._total,
            self._loaded.max_relevant("train"),
            rank_fn,
            None if section.l1_epochs is None else math.ceil(section.l1_epochs * epoch_steps),
        )

    def build_judges(self):
        self._judges = judges(self._experiment, self._loaded, self._model, self._strategy)

    def batches(self, step, context):
        return self._loaded.training_batches(self._experiment, step, context)

    def judge(self, split, stopping):
        batches = self._loaded.read(self._experiment, split, self._strategy)
        return self._judges[split](batches, stopping=stopping)

    def blame(self, step):
        self._loaded.blame_training(self._experiment, step)

    def examples(self, step):
        split = self._loaded.splits["train"]
        return [split.origin(i) for i in self._loaded.training_examples(self._experiment, step)]

    def scalars(self, step):
        return {} if self._temperature is None else {"train/temperature": self._temperature(step)}

    def pictures(self, name, judged):
        split, loaded = self._loaded.splits[name], self._loaded
        pictures = {
            "rank_of_the_true_class": plots.rank_histogram(
                judged.ranks, loaded.num_scored(name), several=split.multi_label
            )
        }
        judgeable = judged.top_classes >= 0  # the ranks show the others
        if not split.multi_label and judgeable.any():
            pictures["confusion_matrix"] = plots.confusion_matrix(
                split.labels[judgeable], judged.top_classes[judgeable], loaded.scored_class_names(name)
            )
        if self._experiment.count_prior.name != "none":
            pictures["number_of_classes"] = self._picture_counts(name)
        return pictures

    def _picture_counts(self, name):
        """Draws what the model takes for the number of classes of a split's first batch."""
        features, _, weights = next(iter(self._loaded.evaluation_batches(self._experiment, name)))
        scorer = self._loaded.scorer(self._model, name, self._experiment.count_prior.name)
        laws = np.exp(scorer(features).log_counts.numpy()[weights.numpy() > 0])
        known = self._loaded.splits["train"].num_relevant()
        return plots.count_distributions(laws, self._loaded.splits[name].num_relevant()[: len(laws)], known)

    def finish(self, results):
        if isinstance(self._model, models.RankModel):  # items have no vectors of their own
            vectors = self._model.encode_classes(training=False)
            tensorboard.write_projector(self._workdir.tensorboard, self._loaded.class_names, vectors)


def build_model(experiment, loaded, strategy):
    """Builds a problem's model in an experiment's precision under a strategy."""
    before = tf.keras.mixed_precision.global_policy()
    tf.keras.mixed_precision.set_global_policy(experiment.precision)
    try:
        with strategy.scope():
            model = loaded.build_model(experiment)
    finally:
        tf.keras.mixed_precision.set_global_policy(before)
    if experiment.loss.fine_tune:
        model.rank_sorter = build_rank_fn(experiment, loaded, strategy).sorter
    return model


def build_rank_fn(experiment, loaded, strategy):
    """Builds the rank function of an experiment's loss, for lists of its classes or of a replica's batch."""
    section = experiment.loss
    n = loaded.num_scored("train")
    if section.name in losses.BATCH_LOSSES:
        n = experiment.batch_size // strategy.num_replicas_in_sync // experiment.accumulation_steps
    with strategy.scope():
        return rank_functions.get(section.rank_fn, n, section.sorter)


def judges(experiment, loaded, model, strategy):
    """Returns split -> `evaluator.Evaluator` of it, one for the splits that score alike."""

    def judge(*splits):
        metrics = evaluator.applicable_metrics(experiment.metrics, loaded.num_scored(splits[0]))
        return evaluator.Evaluator(
            loaded.scorer(model, splits[0], experiment.count_prior.name),
            metrics,
            max_relevant=loaded.max_relevant(*splits),
            strategy=strategy,
            jit_compile=experiment.jit_compile,
        )

    alike = ("train", "validation", "test") if loaded.seen is None else ("train", "validation")
    seen = dict.fromkeys(alike, judge(*alike))
    return seen if loaded.seen is None else {**seen, "test": judge("test")}


def _metrics(experiment, loaded):
    """The metrics that say something about the validation split."""
    num_scored = loaded.num_scored("validation")
    metrics = evaluator.applicable_metrics(experiment.metrics, num_scored)
    if experiment.monitor not in metrics:
        raise ValueError(f"monitor {experiment.monitor!r} says nothing about {num_scored} classes")
    return metrics


def _check_k(experiment, loaded):
    """A loss that selects `k` classes needs more: of all of them it is always 0."""
    k, num_classes = getattr(experiment.loss, "k", None), loaded.num_scored("train")
    if k is not None and k >= num_classes:
        raise ValueError(f"loss.k {k} selects all of the {num_classes} classes that are trained: lower it")


def restore(path, which="best", strategy=None):
    """Loads a run's problem and its model with the weights of a checkpoint.

    Args:
      path: the run's folder.
      which: "best" by the monitored metric, or "last", from which the run would go on; where its
        optimizer keeps moving averages of the weights, the model gets them, as in training's evaluations.
      strategy: a `tf.distribute.Strategy`; None is one device.

    Returns:
      `(experiment, problem, model, step)`, the step that of the checkpoint.

    Raises:
      FileNotFoundError: the run has no such checkpoint yet, or it has been removed.
      ValueError: its data are others by now, or the checkpoint is damaged.
    """
    strategy = strategy or tf.distribute.get_strategy()
    workdir = RunDirectory(path)
    experiment = workdir.experiment()
    config.check(experiment)
    loaded = loading.load(experiment, workdir.path)
    workdir.check_data(loaded.hashes)
    workdir.check_class_texts(loaded.class_texts)
    model = build_model(experiment, loaded, strategy)
    read = {"best": _read_best, "last": _read_last}[which]
    step = read(experiment, workdir, model, run_of(experiment, loaded.hashes), strategy)
    if step is None:
        raise FileNotFoundError(_without_checkpoint(workdir, which))
    return experiment, loaded, model, step


def _without_checkpoint(workdir, which):
    results = workdir.results()
    if results is None:
        return f"{workdir.path} has no checkpoint yet: train it first"
    if which == "best" and results["best_step"] is None:
        return f"{workdir.path}: no evaluation gave a best checkpoint. Read the last one: --checkpoint=last."
    folder = os.path.join(workdir.checkpoints, which)
    return (
        f"{workdir.path}: the run is finished, but its checkpoints are missing. Restore {folder}, or train "
        "again in another --workdir."
    )


def _read_best(experiment, workdir, model, run, strategy):
    del experiment, strategy  # the model stands there alone
    step = best_model(workdir.checkpoints, model, run).read_newest()
    results = workdir.results()
    if step is not None and results and results["best_step"] not in (None, step):
        raise ValueError(f"the best model of {workdir.path}, that of step {results['best_step']}, is damaged")
    return step


def _read_last(experiment, workdir, model, run, strategy):
    # With the optimizer, which holds the averages: every value in the checkpoint then has its variable.
    with strategy.scope():
        schedule = optimization.build_schedule(experiment.optimizer, 1)  # no step will be taken
        optimizer = optimization.build_optimizer(experiment.optimizer, schedule, experiment.precision)
        optimizer.build(model.trainable_variables)
    state = TrainState(workdir.checkpoints, model, optimizer, experiment.monitor, run, writes=False)
    state.restore()
    if optimizer.use_ema:
        optimizer.finalize_variable_values(model.trainable_variables)
    return state.progress.step or None  # nothing is saved before the first step
