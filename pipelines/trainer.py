"""Training: from an experiment to a folder with its best checkpoint and its results."""

import contextlib
import datetime
import importlib.metadata
import math
import os
import platform
import signal
import subprocess
import sys
import time

import numpy as np
import tensorflow as tf
from absl import logging

from rank4class import data, models
from rank4class.pipelines import (
    config,
    evaluation,
    figures,
    files,
    optimization,
    problem,
    report,
    sets,
    strategies,
    tensorboard,
)
from rank4class.pipelines.interruption import Interrupted, Interruption
from rank4class.pipelines.state import State, best_model, run_of
from rank4class.pipelines.steps import build_steps
from rank4class.pipelines.workdir import Workdir

PACKAGES = (
    "tensorflow",
    "tensorflow-ranking",
    "tf-models-official",
    "tensorflow-text",
    "numpy",
    "scikit-learn",
)
SUMMARIES_BETWEEN_EVALUATIONS = 20
SECONDS_BETWEEN_PICTURES = 60.0


def train(experiment, path, *, strategy=None, loaded=None, progress=True):
    """Trains an experiment, or goes on where an interrupted run of it stopped.

    Args:
      experiment: a `config.Experiment`.
      path: the run's folder, `Workdir`; all workers see the same one.
      strategy: a `tf.distribute.Strategy`; None is one device.
      loaded: the experiment's `problem.Problem`, if it is there already.
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
    strategies.check(experiment, strategy)
    workdir = Workdir(path)
    workdir.check_owner(experiment)
    if workdir.results():
        logging.info("%s is finished already", path)
        return workdir.results()
    with contextlib.ExitStack() as stack:
        stack.callback(workdir.unlock)
        if strategies.is_chief(strategy) and files.exists(path):
            workdir.lock()
        loaded = loaded or problem.load(experiment, path)
        workdir.check_data(loaded.hashes)
        workdir.check_class_texts(loaded.class_texts)
        if strategies.reads_elsewhere(strategy) and isinstance(loaded.preprocess, data.WordPiece):
            raise ValueError(
                "the servers of this TPU cannot cut texts into tokens: set data.cache=True to send them cut"
            )
        training = Training(experiment, strategy, loaded, workdir, progress)
        interruption = stack.enter_context(Interruption())
        with strategies.naming_lost_workers(strategy):
            return training.run(interruption)


class Training:
    """A run in progress: its model, its state, its folder."""

    def __init__(self, experiment, strategy, loaded, workdir, progress):
        self._experiment = experiment
        self._strategy = strategy
        self._loaded = loaded
        self._workdir = workdir
        self._chief = strategies.is_chief(strategy)
        self._verbose = progress and self._chief
        self._metrics = _metrics(experiment, loaded)
        _check_k(experiment, loaded)
        sets.check(experiment, loaded.splits["train"])
        examples = len(loaded.splits["train"])
        epoch_steps = examples / experiment.batch_size
        self._total = experiment.steps or math.ceil(experiment.epochs * epoch_steps)
        if self._total >= 2**31:
            raise ValueError(f"epochs {experiment.epochs:g} make {self._total:g} steps: set it lower")
        self._evaluation_steps = math.ceil(epoch_steps / experiment.evaluations_per_epoch)
        self._summary_steps = max(1, self._evaluation_steps // SUMMARIES_BETWEEN_EVALUATIONS)

        tf.keras.utils.set_random_seed(experiment.seed)
        self._schedule = optimization.build_schedule(experiment.optimizer, self._total)
        self._model = build_model(experiment, loaded, strategy)
        with strategy.scope():
            self._optimizer = optimization.build_optimizer(
                experiment.optimizer, self._schedule, experiment.precision
            )
            self._optimizer.build(self._model.trainable_variables)
        scorer = loaded.scorer(self._model, "train", experiment.count_prior.name)
        self._temperature = optimization.build_temperature(experiment.loss, self._total)
        loss = optimization.build_loss(experiment, self._total, loaded.max_relevant("train"))
        self._steps = build_steps(strategy, self._model, scorer, loss, self._optimizer, experiment)
        self._judges = judges(experiment, loaded, self._model, strategy)
        if self._chief:
            workdir.claim(experiment, loaded.hashes, loaded.class_texts)
        self._state = State(
            workdir.checkpoints,
            self._model,
            self._optimizer,
            experiment.monitor,
            run_of(experiment, loaded.hashes),
            writes=self._chief,
        )
        self._progress = self._state.progress

    def run(self, interruption):
        """Trains to the end, from where the folder's checkpoint stands; returns the results."""
        with self.started(interruption).writer.as_default():
            self._train()
            return self._finish()

    def started(self, interruption):
        """Goes to where the folder's checkpoint stands; returns this training, ready to take steps."""
        self._interruption = interruption
        self._state.restore()
        step = self._progress.step
        strategies.check_agreement(self._strategy, step, self._workdir.path)
        if not self._chief:  # by now the chief has claimed the folder
            self._workdir.check_shared(self._experiment, self._loaded.hashes)
        if step:
            logging.info("Going on after step %d of %d", step, self._total)
        if self._chief and step:
            # A kill may have come between the last checkpoint and the copy of its history.
            self._workdir.write_history(self._progress.history)
        self._session = _Session(self._workdir, self._strategy, step)
        self.writer = self._summary_writer()
        batches = self._strategy.distribute_datasets_from_function(
            lambda context: self._loaded.training_batches(self._experiment, step, context)
        )
        self._batches = iter(batches)
        return self

    def _summary_writer(self):
        if not self._chief:
            return tf.summary.create_noop_writer()
        step = self._progress.step
        with self._logging():
            tensorboard.purge_after(self._workdir.tensorboard, step)
            writer = tf.summary.create_file_writer(self._workdir.tensorboard)
            with writer.as_default():
                tensorboard.write_hparams(self._experiment)
                session = self._session.line
                tensorboard.write_text(
                    self._experiment, session["command"], session["git"], session["packages"], step
                )
        self._pictured = time.monotonic()
        return writer

    def _train(self):
        while True:
            if self._evaluation_due():
                self._evaluate()
            if self._progress.step == self._total or self._gave_up():
                return
            self.take_steps(self._next_stop())
            if not self._evaluation_due():
                self._save()

    def _evaluation_due(self):
        step = self._progress.step
        at_one = step == self._total or step % self._evaluation_steps == 0
        return at_one and step > self._progress.evaluated

    def _gave_up(self):
        return self._progress.gave_up(self._experiment.monitor, self._experiment.patience)

    def _next_stop(self):
        """The step of the next evaluation or checkpoint."""
        step = self._progress.step
        intervals = filter(None, (self._evaluation_steps, self._experiment.checkpoint_steps))
        return min([self._total, *((step // interval + 1) * interval for interval in intervals)])

    def take_steps(self, until):
        """Takes the steps up to one."""
        first = self._progress.step
        # A log file gets one line, a terminal the moving bar.
        verbose = 1 if sys.stdout.isatty() else 2
        bar = tf.keras.utils.Progbar(until - first, verbose=verbose * self._verbose, unit_name="step")
        if self._verbose:
            print(f"Steps {first + 1} to {until}")
        pace = _Pace()
        while self._progress.step < until:
            taken = self._take(min(self._experiment.steps_per_execution, until - self._progress.step))
            pace.add(taken)
            for loss, norm in zip(taken.losses.tolist(), taken.gradient_norms.tolist(), strict=True):
                self._progress.step += 1
                self._progress.loss_sum += loss
                if self._progress.step % self._summary_steps == 0:
                    self._summarize_step(loss, norm, pace)
            bar.update(self._progress.step - first, [("loss", taken.losses.mean())])
            if taken.stopping:
                self._stop()
        if self._verbose:
            rate = pace.steps_a_second() * self._experiment.batch_size
            print(f"  {rate:,.0f} examples a second, waited for data {pace.waiting_share():.1%} of the time")

    def _take(self, count):
        """Takes that many steps; none of them counts if one is not finite."""
        first = self._progress.step
        try:
            taken = self._steps(self._batches, first, count, self._interruption.requested)
        except data.UNREADABLE:
            # Reading the examples one by one tells which it is; where all can be read, it was none.
            for step in range(first, first + count):
                self._loaded.blame_training(self._experiment, step)
            raise
        for i, (loss, norm) in enumerate(zip(taken.losses, taken.gradient_norms, strict=True)):
            # With float16 the optimizer passes over a step whose gradient is too large.
            if not math.isfinite(loss + (0.0 if self._experiment.precision == "mixed_float16" else norm)):
                self._refuse(first + i, float(loss))
        return taken

    def _refuse(self, step, loss):
        """Stops the run at a step, from 0, whose loss or gradient is not finite."""
        split, name = self._loaded.splits["train"], self._experiment.loss.name
        rate = float(self._schedule(step))
        examples = [split.origin(i) for i in self._loaded.training_examples(self._experiment, step)]
        what = f"{loss} but its gradient is not finite" if math.isfinite(loss) else str(loss)
        refused = {"step": step + 1, "loss": name, "value": what, "learning_rate": rate, "examples": examples}
        if self._chief:
            self._workdir.write_not_finite(refused)
        named = ", ".join(examples[:3]) + (f" and {len(examples) - 3} more" if len(examples) > 3 else "")
        raise FloatingPointError(
            f"loss {name!r} is {what} at step {step + 1}, learning rate {rate:.3g}: lower "
            f"optimizer.learning_rate or look at the data ({named}; all in {self._workdir.not_finite}). "
            "The last checkpoint is from before"
        )

    def _logging(self):
        return files.errors_of(self._workdir.tensorboard)

    def _write_scalars(self, scalars):
        with self._logging():
            for name, value in scalars.items():
                tf.summary.scalar(name, value, step=self._progress.step)

    def _summarize_step(self, loss, norm, pace):
        last = self._progress.step - 1
        scalars = {
            "train/loss": loss,
            "train/gradient_norm": norm,
            "train/learning_rate": self._schedule(last),
            "train/examples_per_second": pace.steps_a_second() * self._experiment.batch_size,
            "train/waiting_share": pace.waiting_share(),
        }
        if self._temperature is not None:
            scalars["train/temperature"] = self._temperature(last)
        self._write_scalars(scalars)

    def _evaluate(self):
        with optimization.averaged(self._model, self._optimizer):
            judged = self._judge("validation")
            if judged is not None:
                summary = self._remember(judged)
        if judged is None:
            self._stop()
        self._save()
        self._write_scalars({f"validation/{name}": summary[name] for name in self._metrics})
        if self._chief and time.monotonic() - self._pictured > SECONDS_BETWEEN_PICTURES:
            self._write_pictures("validation", judged)
        if self._verbose:
            print("  validation: " + report.one_line({name: summary[name] for name in self._metrics}))

    def _remember(self, judged):
        """Puts an evaluation into the history, and keeps the model if it is the best; returns its figures."""
        step = self._progress.step
        summary = judged.summarize()
        line = {
            "step": step,
            "loss": self._progress.loss_sum / (step - self._progress.evaluated),
            "learning_rate": float(self._schedule(step)),
            **{name: summary[name] for name in self._metrics},
        }
        self._progress.history.append(line)
        self._progress.loss_sum = 0.0
        self._state.save_best()
        return summary

    def _write_pictures(self, name, judged):
        """Writes what a judged split looks like."""
        split, loaded = self._loaded.splits[name], self._loaded
        pictures = {
            "rank_of_the_true_class": figures.rank_histogram(
                judged.ranks, loaded.num_scored(name), several=split.multi_label
            )
        }
        judgeable = judged.top_classes >= 0  # the ranks show the others
        if not split.multi_label and judgeable.any():
            pictures["confusion_matrix"] = figures.confusion_matrix(
                split.labels[judgeable], judged.top_classes[judgeable], loaded.scored_class_names(name)
            )
        if self._experiment.count_prior.name != "none":
            pictures["number_of_classes"] = self._picture_counts(name)
        with self._logging():
            for kind, picture in pictures.items():
                tf.summary.image(f"{name}/{kind}", picture[None], step=self._progress.step)
        self._pictured = time.monotonic()

    def _picture_counts(self, name):
        """Draws what the model takes for the number of classes of a split's first batch."""
        features, _, weights = next(iter(self._loaded.evaluation_batches(self._experiment, name)))
        scorer = self._loaded.scorer(self._model, name, self._experiment.count_prior.name)
        laws = np.exp(scorer(features).log_counts.numpy()[weights.numpy() > 0])
        known = self._loaded.splits["train"].num_relevant()
        return figures.count_laws(laws, self._loaded.splits[name].num_relevant()[: len(laws)], known)

    def _judge(self, split):
        batches = self._loaded.read(self._experiment, split, self._strategy)
        # Several workers would have to agree on where to stop.
        alone = not strategies.several_workers(self._strategy)
        return self._judges[split](batches, stopping=lambda: alone and self._interruption.requested)

    def _save(self):
        self._state.save()
        if self._chief:
            self._workdir.write_history(self._progress.history)
            self._session.write(self._progress.step)

    def _stop(self):
        self._save()
        raise self._interrupted()

    def _interrupted(self):
        return Interrupted(self._progress.step, self._interruption.signal or signal.SIGTERM)

    def _finish(self):
        strategies.check_agreement(self._strategy, self._progress.step, self._workdir.path)
        self._state.restore_best()
        judged = {}
        for split in ("validation", "test"):
            judged[split] = self._judge(split)
            if judged[split] is None:
                raise self._interrupted()
        results = {
            "train_examples": len(self._loaded.splits["train"]),
            **{split: of_split.summarize() for split, of_split in judged.items()},
            "best_step": self._state.best_step,
            "steps": self._progress.step,
            "seed": self._experiment.seed,
        }
        if self._chief:
            self._write_pictures("test", judged["test"])
            with self._logging():
                tensorboard.write_best(results, self._metrics, self._state.best_step or self._progress.step)
                if isinstance(self._model, models.RankModel):  # items have no vectors of their own
                    vectors = self._model.encode_classes(training=False)
                    tensorboard.write_projector(self._workdir.tensorboard, self._loaded.class_names, vectors)
                self.writer.flush()
            self._session.write(self._progress.step)
            self._workdir.write_results(results)
        return results


class _Pace:
    """How fast steps are taken since it was made, and what share of the time they wait for data."""

    def __init__(self):
        self._started, self._steps, self._waited = time.perf_counter(), 0, 0.0

    def add(self, taken):
        self._steps += len(taken.losses)
        self._waited += taken.waited

    def steps_a_second(self):
        return self._steps / (time.perf_counter() - self._started)

    def waiting_share(self):
        return self._waited / (time.perf_counter() - self._started)


class _Session:
    """The line of `sessions.jsonl` on this start of the command."""

    def __init__(self, workdir, strategy, step):
        self._workdir = workdir
        self._earlier = workdir.sessions()
        self._started = time.monotonic()
        self.line = {
            "started": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "command": sys.orig_argv,
            "git": git_commit(),
            "packages": {name: importlib.metadata.version(name) for name in PACKAGES},
            "host": platform.node(),
            "strategy": type(strategy).__name__,
            "replicas": strategy.num_replicas_in_sync,
            "from_step": step,
        }

    def write(self, step):
        seconds = round(time.monotonic() - self._started, 1)
        line = {**self.line, "to_step": step, "seconds": seconds}
        self._workdir.write_sessions([*self._earlier, line])


def build_model(experiment, loaded, strategy):
    """Builds a problem's model in an experiment's precision under a strategy."""
    before = tf.keras.mixed_precision.global_policy()
    tf.keras.mixed_precision.set_global_policy(experiment.precision)
    try:
        with strategy.scope():
            return loaded.build_model(experiment)
    finally:
        tf.keras.mixed_precision.set_global_policy(before)


def judges(experiment, loaded, model, strategy):
    """Returns split -> `evaluation.Judge` of it, one for the splits that score alike."""

    def judge(*splits):
        metrics = evaluation.meaningful(experiment.metrics, loaded.num_scored(splits[0]))
        return evaluation.Judge(
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
    metrics = evaluation.meaningful(experiment.metrics, num_scored)
    if experiment.monitor not in metrics:
        raise ValueError(f"monitor {experiment.monitor!r} says nothing about {num_scored} classes")
    return metrics


def _check_k(experiment, loaded):
    """A loss that selects `k` classes needs more: of all of them it is always 0."""
    k, num_classes = experiment.loss.k, loaded.num_scored("train")
    if k is not None and k >= num_classes:
        raise ValueError(f"loss.k {k} selects all of the {num_classes} classes that are trained: lower it")


CHECKPOINTS = ("best", "last")


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
      FileNotFoundError: the run has no checkpoint yet.
      ValueError: its data are others by now, or the checkpoint is damaged.
    """
    strategy = strategy or tf.distribute.get_strategy()
    workdir = Workdir(path)
    experiment = workdir.experiment()
    config.check(experiment)
    loaded = problem.load(experiment, path)
    workdir.check_data(loaded.hashes)
    workdir.check_class_texts(loaded.class_texts)
    model = build_model(experiment, loaded, strategy)
    read = {"best": _read_best, "last": _read_last}[which]
    step = read(experiment, workdir, model, run_of(experiment, loaded.hashes), strategy)
    if step is None:
        raise FileNotFoundError(f"{path} has no checkpoint yet: train it first")
    return experiment, loaded, model, step


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
    state = State(workdir.checkpoints, model, optimizer, experiment.monitor, run, writes=False)
    state.restore()
    if optimizer.use_ema:
        optimizer.finalize_variable_values(model.trainable_variables)
    return state.progress.step or None  # nothing is saved before the first step


def git_commit():
    """Returns the commit of the code that runs, with "-dirty" after it where files differ, or None."""
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    try:
        command = ["git", "-C", folder, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
