"""The loop of every training: steps, evaluations, checkpoints, and a resume to the bit.

What is trained is a subclass's affair: `trainer.RankTraining`, `sorter_training.SorterTraining`.
"""

import datetime
import importlib.metadata
import math
import os
import platform
import signal
import subprocess
import sys
import time

import tensorflow as tf
from absl import logging

from rank4class import data
from rank4class.pipelines import distribution
from rank4class.pipelines.reporting import tables
from rank4class.pipelines.storage import files
from rank4class.pipelines.training import optimization, tensorboard
from rank4class.pipelines.training.preemption import Interrupted, Interruption
from rank4class.pipelines.training.train_state import TrainState, run_of
from rank4class.pipelines.training.train_step import build_steps

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


class Trainer:
    """A run in progress: its model, its state, its folder.

    Attributes:
      metrics: names of what is judged.
      loss_name: what an error calls the loss.
      train_examples: how many there are.
      patience: stop after that many evaluations without a better one; 0 never stops early.

    Args:
      experiment: checked; what it says of batches, steps, precision and the optimizer is read here.
      strategy: a `tf.distribute.Strategy`.
      workdir: the run's `RunDirectory`.
      progress: whether to show a progress bar.
      total: how many steps to train.
      evaluation_steps: how many between two evaluations.
      hashes: name -> hash of what is trained on, by which a run knows its own.
      class_texts: what describes the classes, or None.
      monitor: the metric that tells the best model; None: the last is the model.
    """

    metrics = ()
    loss_name = ""
    train_examples = 0
    patience = 0

    def __init__(
        self,
        experiment,
        strategy,
        workdir,
        progress,
        *,
        total,
        evaluation_steps,
        hashes,
        class_texts=None,
        monitor=None,
    ):
        if total >= 2**31:
            raise ValueError(f"epochs {experiment.epochs:g} make {total:g} steps: set it lower")
        self._experiment = experiment
        self._strategy = strategy
        self._workdir = workdir
        self._chief = distribution.is_chief(strategy)
        self._verbose = progress and self._chief
        self._total = total
        self._evaluation_steps = evaluation_steps
        self._summary_steps = max(1, evaluation_steps // SUMMARIES_BETWEEN_EVALUATIONS)
        self._hashes = hashes
        self._monitor = monitor

        tf.keras.utils.set_random_seed(experiment.seed)
        self._schedule = optimization.build_schedule(experiment.optimizer, self._total)
        self._model = self.build_model()
        with strategy.scope():
            self._optimizer = optimization.build_optimizer(
                experiment.optimizer, self._schedule, experiment.precision
            )
            self._optimizer.build(self._model.trainable_variables)
        self._steps = build_steps(
            strategy, self._model, self.build_scorer(), self.build_loss(), self._optimizer, experiment
        )
        self.build_judges()
        if self._chief:
            workdir.claim(experiment, hashes, class_texts)
        self._state = TrainState(
            workdir.checkpoints,
            self._model,
            self._optimizer,
            monitor,
            run_of(experiment, hashes),
            writes=self._chief,
        )
        self._progress = self._state.progress

    # What a subclass says of itself.

    def build_model(self):
        """Returns the model with its variables, made under the strategy."""
        raise NotImplementedError

    def build_scorer(self):
        """Returns a function of features and `training` to what the loss takes."""
        raise NotImplementedError

    def build_loss(self):
        """Returns a function of a step, from 0, its labels, the outputs for them and weights to `[B]`."""
        raise NotImplementedError

    def build_judges(self):
        """Makes ready what `judge` needs of the model."""

    def batches(self, step, context):
        """Returns the batches from a step on, of a worker's `tf.distribute.InputContext`."""
        raise NotImplementedError

    def judge(self, split, stopping):
        """Judges the model on a split: what it returns can `summarize`, None says that it was to stop."""
        raise NotImplementedError

    def blame(self, step):
        """Raises ValueError on the first example of a step that cannot be read, if any."""

    def examples(self, step):
        """Returns the names of a step's examples."""
        raise NotImplementedError

    def pictures(self, split, judged):
        """Returns name -> pixels of what a judged split looks like."""
        raise NotImplementedError

    def scalars(self, step):
        """Returns name -> value of what else changes with the step that was taken last, from 0."""
        del step
        return {}

    def one_line(self, summary):
        """Returns the metrics of a judged split in one line."""
        return tables.one_line(summary)

    def restore_final_weights(self):
        """Gives the model the weights that the results are of."""
        self._state.restore_best()

    def finish(self, results):
        """Writes what else is left of a run, before its results."""

    def run(self):
        """Trains to the end, from where the folder's checkpoint stands; returns the results.

        Raises:
          OSError, FloatingPointError, Interrupted: see `trainer.train`.
        """
        with (
            Interruption() as interruption,
            distribution.naming_lost_workers(self._strategy),
            self.started(interruption).writer.as_default(),
        ):
            self._train()
            return self._finish()

    def started(self, interruption):
        """Goes to where the folder's checkpoint stands; returns this training, ready to take steps."""
        self._interruption = interruption
        self._state.restore()
        step = self._progress.step
        distribution.check_agreement(self._strategy, step, self._workdir.path)
        if not self._chief:  # by now the chief has claimed the folder
            self._workdir.check_shared(self._experiment, self._hashes)
        if step:
            logging.info("Going on after step %d of %d", step, self._total)
        if self._chief and step:
            # A kill may have come between the last checkpoint and the copy of its history.
            self._workdir.write_history(self._progress.history)
        self._session = _Session(self._workdir, self._strategy, step)
        self.writer = self._summary_writer()
        batches = self._strategy.distribute_datasets_from_function(
            lambda context: self.batches(step, context)
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
        return self._progress.gave_up(self._monitor, self.patience)

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
                self.blame(step)
            raise
        for i, (loss, norm) in enumerate(zip(taken.losses, taken.gradient_norms, strict=True)):
            # With float16 the optimizer passes over a step whose gradient is too large.
            if not math.isfinite(loss + (0.0 if self._experiment.precision == "mixed_float16" else norm)):
                self._refuse(first + i, float(loss))
        return taken

    def _refuse(self, step, loss):
        """Stops the run at a step, from 0, whose loss or gradient is not finite."""
        rate = float(self._schedule(step))
        examples = self.examples(step)
        what = f"{loss} but its gradient is not finite" if math.isfinite(loss) else str(loss)
        refused = {
            "step": step + 1,
            "loss": self.loss_name,
            "value": what,
            "learning_rate": rate,
            "examples": examples,
        }
        if self._chief:
            self._workdir.write_not_finite(refused)
        named = ", ".join(examples[:3]) + (f" and {len(examples) - 3} more" if len(examples) > 3 else "")
        raise FloatingPointError(
            f"loss {self.loss_name!r} is {what} at step {step + 1}, learning rate {rate:.3g}: lower "
            f"the learning rate or look at the data ({named}; all in {self._workdir.not_finite}). "
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
        self._write_scalars({**scalars, **self.scalars(last)})

    def _evaluate(self):
        with optimization.averaged(self._model, self._optimizer):
            judged = self._judge("validation")
            if judged is not None:
                summary = self._remember(judged)
        if judged is None:
            self._stop()
        self._save()
        self._write_scalars({f"validation/{name}": summary[name] for name in self.metrics})
        if self._chief and time.monotonic() - self._pictured > SECONDS_BETWEEN_PICTURES:
            self._write_pictures("validation", judged)
        if self._verbose:
            print("  validation: " + self.one_line({name: summary[name] for name in self.metrics}))

    def _remember(self, judged):
        """Puts an evaluation into the history, and keeps the model if it is the best; returns its figures."""
        step = self._progress.step
        summary = judged.summarize()
        line = {
            "step": step,
            "loss": self._progress.loss_sum / (step - self._progress.evaluated),
            "learning_rate": float(self._schedule(step)),
            **{name: summary[name] for name in self.metrics},
        }
        self._progress.history.append(line)
        self._progress.loss_sum = 0.0
        self._state.save_best()
        return summary

    def _write_pictures(self, name, judged):
        """Writes what a judged split looks like."""
        with self._logging():
            for kind, picture in self.pictures(name, judged).items():
                tf.summary.image(f"{name}/{kind}", picture[None], step=self._progress.step)
        self._pictured = time.monotonic()

    def _judge(self, split):
        # Several workers would have to agree on where to stop.
        alone = not distribution.several_workers(self._strategy)
        return self.judge(split, lambda: alone and self._interruption.requested)

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
        distribution.check_agreement(self._strategy, self._progress.step, self._workdir.path)
        self.restore_final_weights()
        judged = {}
        for split in ("validation", "test"):
            judged[split] = self._judge(split)
            if judged[split] is None:
                raise self._interrupted()
        results = {
            "train_examples": self.train_examples,
            **{split: of_split.summarize() for split, of_split in judged.items()},
            "best_step": self._state.best_step,
            "steps": self._progress.step,
            "seed": self._experiment.seed,
        }
        if self._chief:
            self._write_pictures("test", judged["test"])
            with self._logging():
                tensorboard.write_best(results, self.metrics, self._state.best_step or self._progress.step)
                self.finish(results)
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


def git_commit():
    """Returns the commit of the code that runs, with "-dirty" after it where files differ, or None."""
    folder = os.path.dirname(os.path.abspath(__file__))
    try:
        command = ["git", "-C", folder, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
