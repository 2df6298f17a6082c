"""The trainer: steps, evaluations and checkpoints of a rank model, resumed to the bit."""

import contextlib
import math
import signal
import time
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import tensorflow as tf
from absl import logging

from rank4class import data
from rank4class.pipelines import config, distribution
from rank4class.pipelines.evaluation.evaluator import EvaluationResult
from rank4class.pipelines.storage.run_directory import TrainingDirectory, run_hash, write_json
from rank4class.pipelines.training import optimization
from rank4class.pipelines.training.preemption import Interrupted, Interruption
from rank4class.pipelines.training.schedule import Schedule
from rank4class.pipelines.training.session import Session
from rank4class.pipelines.training.tensorboard import Summaries
from rank4class.pipelines.training.time_budget import Budget, Speed
from rank4class.pipelines.training.train_state import TrainState
from rank4class.pipelines.training.train_step import StepResults
from rank4class.pipelines.training.trainable_rank_model import TrainableRankModel
from rank4class.progress import Progress, time_left

SUMMARIES_BETWEEN_EVALUATIONS = 20


class Trainer:
    """Trains a task in a run directory, which it claims, from the newest checkpoint to the end."""

    def __init__(
        self,
        task: TrainableRankModel,
        optimizer: tf.keras.optimizers.Optimizer,
        steps: Callable[..., StepResults],
        run_dir: TrainingDirectory,
        schedule: Schedule,
        experiment: config.Experiment,
        strategy: tf.distribute.Strategy,
        *,
        progress: bool = True,
        budget: Budget | None = None,
    ):
        self._task = task
        self._optimizer = optimizer
        self._run_dir = run_dir
        self._schedule = schedule
        self._experiment = experiment
        self._strategy = strategy
        self._is_chief = distribution.is_chief(strategy)
        self._verbose = progress and self._is_chief
        self._summary_steps = max(1, schedule.evaluation_steps // SUMMARIES_BETWEEN_EVALUATIONS)
        self._interruption = Interruption()
        self._steps = steps
        self._budget = budget
        if self._is_chief:
            run_dir.claim(task.hashes, task.class_texts, task.describe)
        run = run_hash(experiment, task.hashes)
        folder = run_dir.checkpoints
        self._state = TrainState(folder, task.model, optimizer, task.monitor, run, self._is_chief)
        self._progress = self._state.progress

    @property
    def model(self) -> tf.keras.Model:
        """The model, after `train` with the selected weights."""
        return self._task.model

    @property
    def out_of_fold(self) -> Callable[[int], np.ndarray]:
        """See `TrainableRankModel`."""
        assert self._task.out_of_fold is not None
        return self._task.out_of_fold

    def train(self) -> dict[str, Any]:
        """Trains to the end; returns the results. Its errors are those of `rank_training.train`."""
        errors = distribution.lost_worker_errors(self._strategy)
        with self._interruption, errors, contextlib.ExitStack() as stack:
            self.resume()
            stack.push(lambda error, *_: self._summaries.close(error is None))
            while self._evaluation_is_due() or not self._is_at_end():
                if not self._evaluation_is_due():
                    self.take_steps(self._schedule.next_stop(self._progress.step))
                if self._evaluation_is_due():
                    evaluation = self._evaluate()
                    self._save()
                    self._show(evaluation)
                    if self._task.mines and not self._is_at_end():
                        self._open_batches()
                else:
                    self._save()
            return self._finish()

    def resume(self) -> None:
        """Restores the newest checkpoint, and opens the batches and summaries from its step on."""
        self._state.restore()
        step = self._progress.step
        distribution.check_agreement(self._strategy, step, self._run_dir.path)
        if not self._is_chief:  # the chief claimed the folder before the workers agreed
            self._run_dir.check_shared(self._task.hashes, self._task.class_texts)
        schedule = self._schedule
        if self._verbose:
            sizes = f"steps={schedule.total_steps:,}"
            if schedule.epochs is not None:
                sizes = f"epochs={round(schedule.epochs, 1):,g}, {sizes}"
                sizes += f", batch_size={self._experiment.batch_size:,}"
            print(f"Training: {sizes}", flush=True)
        if step:
            logging.info("Resuming after step %d of %d", step, schedule.total_steps)
        if self._is_chief and step:
            # A kill may have come after the last checkpoint and before the history was written.
            self._run_dir.write_history(self._progress.history)
        self._session = Session(self._run_dir, self._strategy, step)
        self._summaries = Summaries(self._run_dir.path, writes=self._is_chief)
        self._summaries.write_start(self._run_dir.experiment())
        self._open_batches()

    def speed(self, seconds: float) -> Speed:
        """Returns the speed of the training, timed for some seconds after a first step."""
        self.resume()
        self.take_steps(1)
        started = time.perf_counter()
        while (of_steps := time.perf_counter() - started) < seconds and not self._is_at_end():
            self.take_steps(self._progress.step + 1)
        started = time.perf_counter()
        self._task.evaluate("validation", self._should_stop, self._progress.step)
        self._summaries.close(False)
        return Speed(of_steps / max(1, self._progress.step - 1), time.perf_counter() - started)

    def _open_batches(self) -> None:
        """Opens the training batches from the next step on."""
        step = self._progress.step
        if self._task.mines and not self._is_at_end():
            evaluated = max(0, self._progress.evaluated)
            if not self._task.mine(self._run_dir, step, evaluated, self._should_stop):
                raise self._interrupted()
        self._batches = iter(
            self._strategy.distribute_datasets_from_function(
                lambda context: self._task.training_batches(step, context)
            )
        )

    def _is_at_end(self) -> bool:
        patience_ended = self._progress.gave_up(self._task.monitor, self._schedule.patience)
        return patience_ended or self._progress.step == self._schedule.total_steps or self._is_late()

    def _is_late(self) -> bool:
        """Returns whether the time for steps is over."""
        return self._budget is not None and self._budget.left <= 0.0

    def _evaluation_is_due(self) -> bool:
        step = self._progress.step
        is_due = self._schedule.evaluates_after(step) or self._is_late()
        return is_due and step > self._progress.evaluated

    def take_steps(self, until: int) -> None:
        """Trains until a number of steps in total."""
        progress = self._progress
        first = self._progress.step
        loss_sum = 0.0
        started = time.perf_counter()
        waited = 0.0
        examples = 0
        total = self._schedule.total_steps
        with Progress("training", "step", total, initial=first, disable=not self._verbose) as shown:
            while progress.step < until and not (progress.step > first and self._is_late()):
                results = self._run_steps(min(self._schedule.steps_per_execution, until - progress.step))
                waited += results.waited
                seconds = time.perf_counter() - started
                examples += results.examples
                speed = examples / seconds
                for loss, norm in zip(results.losses.tolist(), results.gradient_norms.tolist(), strict=True):
                    progress.step += 1
                    progress.loss_sum += loss
                    if progress.step % self._summary_steps == 0:
                        self._write_step_summaries(loss, norm, speed, waited / seconds)
                loss_sum += float(results.losses.sum())
                if self._verbose:
                    loss = loss_sum / (progress.step - first)
                    state = f"{self._position()}, loss {loss:.4f}"
                    shown.set_postfix_str(state, refresh=False)
                    shown.update(len(results.losses))
                if results.stopping:
                    self._save_and_stop()
        if self._verbose and self._evaluation_is_due():
            left = time_left(seconds, progress.step - first, total - progress.step)
            state += f", {speed:,.1f} examples/s, waited for data {waited / seconds:.1%} of the time"
            print(f"step {progress.step:,} of {total:,}, {state}{left and f', {left}'}", flush=True)

    def _position(self) -> str:
        """Returns the epoch, or the strength of the solver's penalty, after the last step."""
        step = self._progress.step
        epochs = self._schedule.epochs
        if epochs is None:
            return f"C {self._schedule.values(step - 1)['C']:g}"
        epoch = round(step / self._schedule.total_steps * epochs, 1)
        return f"epoch {epoch:,g} of {round(epochs, 1):,g}"

    def _run_steps(self, count: int) -> StepResults:
        """Runs steps on the next batches; raises FloatingPointError if one of them is not finite."""
        first = self._progress.step
        try:
            results = self._steps(self._batches, first, count, self._interruption.requested)
        except data.UNREADABLE:
            # Reading the examples one by one finds the unreadable one; if there is none, the error stays.
            for step in range(first, first + count):
                self._task.raise_first_unreadable(step)
            raise
        # With float16 the optimizer skips a step whose gradient is too large, and lowers its scale down to 1.
        scales = isinstance(self._optimizer, tf.keras.mixed_precision.LossScaleOptimizer)
        skips = scales and float(self._optimizer.loss_scale) > 1.0
        for i, (loss, norm) in enumerate(zip(results.losses, results.gradient_norms, strict=True)):
            if not math.isfinite(loss + (0.0 if skips else norm)):
                self._raise_not_finite(first + i, float(loss))
        return results

    def _raise_not_finite(self, step: int, loss: float) -> NoReturn:
        """Reports a step, from 0, whose loss or gradient is not finite, and raises FloatingPointError."""
        changing = self._schedule.values(step)
        name = self._task.loss_name
        examples = self._task.example_names(step)
        value = f"{loss} but its gradient is not finite" if math.isfinite(loss) else str(loss)
        if self._is_chief:
            report = {"step": step + 1, "loss": name, "value": value, **changing}
            write_json(self._run_dir.not_finite, {**report, "examples": examples})
        shown = ", ".join(f"{name.replace('_', ' ')} {each:.3g}" for name, each in changing.items())
        first_names = ", ".join(examples[:3])
        more = f" and {len(examples) - 3} more" if len(examples) > 3 else ""
        raise FloatingPointError(
            f"loss={name!r}: {value} at step {step + 1}, {shown}. Lower the learning rate, "
            f"or look at the data ({first_names}{more}; all in {self._run_dir.not_finite}); the last "
            "checkpoint is from before."
        )

    def _write_step_summaries(self, loss: float, norm: float, speed: float, waiting: float) -> None:
        step = self._progress.step
        values = {
            f"loss/train/{self._task.loss_name}": loss,  # losses differ in their scales
            "optimization/gradient_norm": norm,
            "speed/examples_per_second": speed,
            "speed/waiting_share": waiting,
        }
        values |= {f"optimization/{name}": each for name, each in self._schedule.values(step - 1).items()}
        self._summaries.write_scalars(values, step)

    def _evaluate(self) -> EvaluationResult:
        """Evaluates the validation split, and writes the model if it is the best so far."""
        with optimization.averaged(self._task.model, self._optimizer):
            evaluation = self._task.evaluate("validation", self._should_stop, self._progress.step)
            if evaluation is not None:
                values = self._schedule.values(max(0, self._progress.step - 1))
                metrics = evaluation.means() | evaluation.likelihood()
                self._progress.add_evaluation(values, metrics)
                self._state.save_best()
        if evaluation is None:
            self._save_and_stop()
        return evaluation

    def _should_stop(self) -> bool:
        # Several workers would have to agree on the batch to stop at.
        return self._interruption.requested and not distribution.has_several_workers(self._strategy)

    def _show(self, evaluation: EvaluationResult) -> None:
        """Shows the last evaluation in TensorBoard and in the terminal."""
        step = self._progress.step
        history = self._progress.history[-1]
        names = dict.fromkeys([*self._task.metrics, self._task.monitor])
        values = {f"metrics/validation/{name}": history[name] for name in names if name in history}
        if evaluation.loss is not None:
            values[f"loss/validation/{self._task.loss_name}"] = evaluation.loss
        self._summaries.write_scalars(values, step)
        if self._summaries.pictures_are_due():
            self._summaries.write_pictures("validation", self._task.pictures("validation", evaluation), step)
        if self._verbose:
            print(f"  validation: {evaluation.line()}")

    def _save(self) -> None:
        self._state.save()
        if self._is_chief:
            self._run_dir.write_history(self._progress.history)
            self._session.write(self._progress.step)
            if self._budget is not None:
                self._budget.save()

    def _save_and_stop(self) -> NoReturn:
        self._save()
        raise self._interrupted()

    def _interrupted(self) -> Interrupted:
        saved = f"after step {self._progress.step}"
        return Interrupted(saved, self._interruption.signal or signal.SIGTERM)

    def _finish(self) -> dict[str, Any]:
        """Evaluates the selected model, and writes the results."""
        distribution.check_agreement(self._strategy, self._progress.step, self._run_dir.path)
        self._state.restore_best()
        self._task.finalize_weights()
        selected = self._progress.step if self._state.best_step is None else self._state.best_step
        evaluations = {}
        for split in self._task.evaluated:
            evaluation = self._task.evaluate(split, self._should_stop, selected)
            if evaluation is None:
                raise self._interrupted()
            evaluations[split] = evaluation
        results = {
            "train_examples": self._task.train_examples,
            **{split: evaluation.summarize() for split, evaluation in evaluations.items()},
            "best_step": self._state.best_step,
            "monitor": self._task.monitor,
            "steps": self._progress.step,
            "seed": self._experiment.seed,
        }
        if (words := self._task.words) is not None:
            results["words"] = {"terms": words.kernel.shape[0], "weight": float(words.weight)}
        if self._is_chief:
            if test := evaluations.get("test"):
                self._summaries.write_pictures("test", self._task.pictures("test", test), selected)
            self._summaries.write_end(results, self._task.metrics, selected)
            self._task.write_artifacts(self._run_dir, results, evaluations)
            self._session.write(self._progress.step)
            self._run_dir.write_results(results)
            self._summaries.write_files(self._run_dir.final_files())
        return results
