"""Training of a rank model: from an experiment to a folder with its best checkpoint and its results."""

import dataclasses
import math
import os
from collections.abc import Collection
from typing import Any

import numpy as np
import tensorflow as tf

from rank4class import data
from rank4class.pipelines import config, distribution
from rank4class.pipelines.evaluation import (
    calibration,
    evaluator,
    prediction_sets,
    predictions,
    unknown_inputs,
)
from rank4class.pipelines.evaluation.calibration import Calibration, Temperature
from rank4class.pipelines.evaluation.evaluator import EvaluationResult
from rank4class.pipelines.evaluation.prediction_sets import PredictionSets
from rank4class.pipelines.evaluation.thresholds import Thresholds
from rank4class.pipelines.storage import files
from rank4class.pipelines.storage.run_directory import RunDirectory, TrainingDirectory, run_hash
from rank4class.pipelines.task import checks, description, hashing, loading
from rank4class.pipelines.task.loading import load_data
from rank4class.pipelines.task.task import TaskData
from rank4class.pipelines.training import (
    optimization,
    run_calibration,
    run_decisions,
    run_sets,
    run_split_metrics,
)
from rank4class.pipelines.training.initialization import initialize
from rank4class.pipelines.training.train_state import best_checkpoints, has_checkpoint
from rank4class.pipelines.training.trainable_rank_model import (
    Draw,
    TrainableRankModel,
    build_evaluators,
    build_model,
)
from rank4class.pipelines.training.trainer import Schedule, Trainer, open_folder


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
    run_dir, results = open_folder(experiment, path, strategy)
    if dataset is not None:
        loaded = load_data(experiment, run_dir.path, dataset=dataset)
    if results:
        if loaded is not None:
            run_dir.check_data(loaded.hashes, loaded.class_texts)
        return results
    try:
        if distribution.is_chief(strategy):
            run_dir.lock()
        loaded = loaded or load_data(experiment, run_dir.path)
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
    if experiment.init_from is not None and not has_checkpoint(run_dir.checkpoints):
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


def build_schedule(experiment: config.Experiment, train_examples: int) -> Schedule:
    """Returns the `Schedule` of an experiment with a number of training examples."""
    # Products before quotients: 50 epochs of 11 examples in batches of 10 are 55 steps, not 56 by rounding.
    steps_of_epochs = math.ceil(experiment.epochs * train_examples / experiment.batch_size)
    total_steps = experiment.steps or max(experiment.min_steps, steps_of_epochs)
    is_of_epochs = total_steps == steps_of_epochs
    epochs = experiment.epochs if is_of_epochs else total_steps * experiment.batch_size / train_examples
    evaluated_examples = experiment.batch_size * experiment.evaluations_per_epoch
    return Schedule(
        total_steps=total_steps,
        epochs=epochs,
        evaluation_steps=math.ceil(train_examples / evaluated_examples),
        learning_rate=optimization.build_schedule(experiment.optimizer, max(1, total_steps)),
        temperature=optimization.build_temperature(experiment.loss, total_steps),
        checkpoint_steps=experiment.checkpoint_steps,
        steps_per_execution=experiment.steps_per_execution,
        monitor=experiment.monitor,
        patience=experiment.patience,
    )


@dataclasses.dataclass(frozen=True)
class TrainedModel:
    """The model of a run, restored without the data and the encoder checkpoint of its training.

    The `calibration`, the `thresholds`, the `sets` and the `class_vectors` of texts are None if the run has
    none.
    """

    run_dir: RunDirectory
    experiment: config.Experiment
    description: description.Description
    model: tf.keras.Model
    step: int
    strategy: tf.distribute.Strategy
    calibration: Calibration | None = None
    thresholds: Thresholds | None = None
    sets: PredictionSets | None = None
    class_vectors: np.ndarray | None = None

    def encode_classes(self) -> tf.Tensor:
        """Returns the vectors of all classes, `[n, d]`, as the run has written them, or encoded now."""
        if self.class_vectors is None:
            return self.model.encode_classes(training=False)
        return tf.constant(self.class_vectors)

    def load_task(self) -> TaskData:
        """Loads the data of the training, which may not have changed since."""
        try:
            loaded = load_data(self.experiment, self.run_dir.path, self.description.inputs)
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{self.run_dir.path}: its data are not here. {error}") from error
        self.run_dir.check_data(loaded.hashes)
        return loaded

    def trained_on(self, path: str | None) -> bool:
        """Returns whether a path is that of the data of the training."""
        trained = str(self.experiment.data.path)
        return path is not None and os.path.realpath(path) == os.path.realpath(trained)

    def load_labeled(self, path: str | os.PathLike, on_invalid_row: str = "fail") -> TaskData:
        """Returns all examples of another labeled file, with the layout of the training's, as each split."""
        name = self.experiment.data.name
        if name not in data.LABELED:
            raise ValueError(
                f"data.path={path}: dataset {name!r} reads no other labeled files. They can be read for "
                f"{', '.join(data.LABELED)}."
            )
        data_config = config.override(self.experiment, {"data.on_invalid_row": on_invalid_row}).data
        described = self.description
        return loading.load_labeled(data_config, described.inputs, described.class_names, path)

    def evaluate(
        self,
        loaded: TaskData,
        split: str = "test",
        *,
        keep_scores: bool = False,
        best: int = 0,
        coverages: Collection[float] = (),
    ) -> EvaluationResult:
        """Evaluates the model on a split, and its calibration and prediction sets if it has them.

        The result holds the `best` classes of each example, and with `keep_scores` the scores, if they take
        at most `LARGEST_SCORES`. Sets have these `coverages` too, besides `prediction_sets.COVERAGES`.
        """
        examples = loaded.splits[split]
        keep_scores &= predictions.scores_fit(len(examples), loaded.num_scored(split))
        kept: bool | np.ndarray = keep_scores or run_decisions.need_scores(self.experiment, examples)
        if self.calibration is not None and not kept:
            kept = run_calibration.measured_examples(len(examples), loaded.num_scored(split))
        sets = None
        if self.sets is not None:
            sets = run_sets.Measurement(self.experiment, examples, self.sets, self.calibration, coverages)
        num_best = run_split_metrics.num_best(self.experiment, loaded.num_scored(split))
        result = self._score(loaded, split, kept, max(best, num_best), sets.add if sets else None)
        result = run_calibration.measure(result, self.calibration, split, examples)
        sizes = self.description.training_counts, self.description.num_train
        result = run_split_metrics.measure(result, self.experiment, loaded, split, sizes)
        result = run_decisions.measure(result, self.experiment, loaded, split, self.thresholds)
        result = sets.add_to(result) if sets else result
        result = dataclasses.replace(result, unseen=loaded.unseen(split))
        return result if keep_scores else dataclasses.replace(result, scores=None)

    def calibrate(self, loaded: TaskData, sets: config.Sets) -> PredictionSets:
        """Fits prediction sets to the split "calibration", writes them to the run's folder, and returns them.

        Raises:
          ValueError: the run is not finished, or the examples or the sets do not fit the run.
        """
        path = self.run_dir.path
        if self.run_dir.results() is None:
            raise ValueError(f"{path}: not finished, so that its checkpoint may change. Train it to the end.")
        if "calibration" not in loaded.splits:
            raise ValueError(
                f"{path}: trained without calibration examples. Train with --sets=threshold, or set "
                "data.path to labeled examples that the run has not seen, if its dataset reads them."
            )
        examples, hashes = loaded.splits["calibration"], self.run_dir.data_hashes()
        for split in ("train", "validation"):
            if hashes[split] == loaded.hashes["calibration"]:
                raise ValueError(
                    f"data.path: the {split} split of the run. Set it to examples that the run has not seen."
                )
        size, needed = len(examples), prediction_sets.least_examples(0.9)
        if size < needed:  # they would replace sets that the run may have
            raise ValueError(f"data.path: {size} examples; sets for 90% need {needed}. Give more examples.")
        experiment = dataclasses.replace(self.experiment, sets=sets)
        checks.check(experiment)
        run_sets.check_examples(sets, examples)
        if not run_sets.can_fit(experiment, self.calibration):
            raise ValueError(f"sets={sets.name!r}: the scores are not calibrated. Choose 'rank'.")
        fit = run_sets.Fit(sets, examples, self.calibration)
        self._score(loaded, "calibration", consume=fit.add)
        fitted = dataclasses.replace(fit.sets(), after_training=True)
        if distribution.is_chief(self.strategy):
            self.run_dir.write_fitted("prediction_sets", fitted.to_json())
        return fitted

    def _score(
        self,
        loaded: TaskData,
        split: str,
        keep_scores: bool | np.ndarray = False,
        best: int = 0,
        consume: evaluator.Consume | None = None,
    ) -> EvaluationResult:
        """Evaluates the model on a split, see `evaluator.Evaluator`, without what the run has fitted."""
        replicas = self.strategy.num_replicas_in_sync
        batch_size = -(-self.experiment.evaluation_batch_size // replicas) * replicas
        batch_size = evaluator.batch_size(batch_size, len(self.description.class_names), replicas)
        evaluate = build_evaluators(self.experiment, loaded, self.model, strategy=self.strategy)[split]
        if isinstance(self.strategy, tf.distribute.TPUStrategy):
            loaded = loaded.with_static_lengths()
        batches = loaded.read(split, batch_size, self.strategy, "evaluating")
        with distribution.lost_worker_errors(self.strategy):
            result = evaluate(batches, keep_scores=keep_scores, best=best, consume=consume)
        assert result is not None  # nothing stops it
        return result

    def evaluate_unknown(self, loaded: TaskData, test: EvaluationResult) -> dict[str, Any] | None:
        """Tells the test examples, of the classes `data.held_out`, from those of validation by their scores.

        Both have the scores of the trained classes; see `unknown_inputs.evaluate`. None without finite
        scores, or if these exceed `LARGEST_SCORES`.
        """
        known = self.evaluate(loaded, "validation", keep_scores=True).scores
        if known is None or test.scores is None:
            return None
        unknown = test.scores[:, loaded.seen]
        if not (np.isfinite(known).all() and np.isfinite(unknown).all()):
            return None
        temperature = self.calibration.temperature if isinstance(self.calibration, Temperature) else 1.0
        return unknown_inputs.evaluate(known, unknown, temperature)


def restore(path: str | os.PathLike, strategy: tf.distribute.Strategy | None = None) -> TrainedModel:
    """Restores a run's model with the weights of its best checkpoint, or their moving averages.

    It raises FileNotFoundError if there is no such checkpoint, and ValueError if it is damaged.
    """
    strategy = strategy or tf.distribute.get_strategy()
    run_dir = RunDirectory(path)
    experiment, results = run_dir.experiment(), run_dir.results()
    checks.check(experiment)
    described = description.read(run_dir.model)
    sorter = os.path.join(run_dir.model, description.SORTER)  # the copy of its file, if there is one
    copied = config.override(experiment, {"loss.sorter": sorter}) if files.exists(sorter) else experiment
    model = build_model(copied, described, strategy)
    run = run_hash(experiment, run_dir.data_hashes())
    checkpoints = best_checkpoints(run_dir.checkpoints, model, run, writes=False)
    if results is None:
        step = checkpoints.read_newest()
    elif (step := results["best_step"]) is not None:
        checkpoints.read(step)
    if step is None:
        never = "no checkpoint, as no value of the monitor was a number. Train again."
        remedy = never if results else "no checkpoint yet. Train it first."
        raise FileNotFoundError(f"{run_dir.path}: {remedy}")
    fitted = (
        run_dir.fitted("calibration", calibration.from_json),
        run_dir.fitted("thresholds", Thresholds.from_json),
        run_dir.fitted("prediction_sets", PredictionSets.from_json),
    )
    vectors = run_dir.class_vectors() if results else None
    return TrainedModel(run_dir, experiment, described, model, step, strategy, *fitted, vectors)
