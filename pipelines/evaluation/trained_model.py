"""The model of a run, restored to evaluate, calibrate, predict and export."""

import dataclasses
import functools
import os
from collections.abc import Collection
from typing import Any

import numpy as np
import tensorflow as tf

from rank4class import arguments, data
from rank4class.pipelines import config, distribution
from rank4class.pipelines.evaluation import (
    calibration,
    detector,
    evaluator,
    prediction_sets,
    predictions,
    unknown_inputs,
)
from rank4class.pipelines.evaluation.calibration import Calibration, Temperature
from rank4class.pipelines.evaluation.chain import Chain
from rank4class.pipelines.evaluation.detector import Detector
from rank4class.pipelines.evaluation.evaluator import EvaluationResult
from rank4class.pipelines.evaluation.model_building import build_evaluators, build_model
from rank4class.pipelines.evaluation.neighbors import Neighbors
from rank4class.pipelines.evaluation.prediction_sets import PredictionSets
from rank4class.pipelines.evaluation.stages import sets as sets_stage
from rank4class.pipelines.evaluation.stages.stage import Context, Fitted
from rank4class.pipelines.evaluation.thresholds import Thresholds
from rank4class.pipelines.storage import files
from rank4class.pipelines.storage.checkpoints import best_checkpoints
from rank4class.pipelines.storage.run_directory import RunDirectory, run_hash
from rank4class.pipelines.task_data import checks, description, loading
from rank4class.pipelines.task_data.loading import load_data
from rank4class.pipelines.task_data.task_data import TaskData


@dataclasses.dataclass(frozen=True)
class TrainedModel:
    """The model of a run, restored without the data and the encoder checkpoint of its training.

    The `calibration`, the `thresholds`, the `sets`, the `class_vectors` of texts and the `detector` are None
    if the run has none.
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
    detector: Detector | None = None

    def encode_classes(self) -> tf.Tensor:
        """Returns the vectors of all classes, `[n, d]`, as the run has written them, or encoded now."""
        if self.class_vectors is None:
            return self.model.encode_classes(training=False)
        return tf.constant(self.class_vectors)

    def load_task(self, dataset: data.Dataset | None = None) -> TaskData:
        """Loads the data of the training, or the same dataset in memory; it may not have changed since."""
        try:
            task_data = load_data(self.experiment, self.run_dir.path, self.description.inputs, dataset)
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{self.run_dir.path}: its data are not here. {error}") from error
        self.run_dir.check_data(task_data.hashes)
        return task_data

    def neighbors(self, count: int, dataset: data.Dataset | None = None) -> Neighbors:
        """Returns the training examples to show `count` of beside answers.

        The first call writes their vectors to the run's folder; see `load_task` for the data.

        Raises:
          ValueError: the model has no vectors of inputs, or wide ones, or there are fewer examples.
          FileNotFoundError: the training data are not here.
        """
        arrays = self.run_dir.fitted_arrays("neighbors")
        if arrays is None:
            kind = self.description.inputs.kind
            if kind.ranks_items or kind.has_ids:
                raise ValueError(f"neighbors={count}: the model has no vectors of inputs. Leave it out.")
            trained_on = self.load_task(dataset)
            read = detector.reader(self.model, self.experiment.evaluation_batch_size, "encoding")
            vectors = read(trained_on, "train").vectors
            if not vectors.shape[1]:
                raise ValueError(f"neighbors={count}: the vectors are too wide. Train with a text encoder.")
            classes = trained_on.scored_class_names("train")
            arrays = Neighbors.of(vectors, trained_on.splits["train"], classes).to_arrays()
            self.run_dir.write_fitted_arrays("neighbors", arrays)
        stored = Neighbors.from_arrays(arrays)
        arguments.check_integer(1, len(stored.classes), neighbors=count)
        return stored

    def sets_of(self, coverage: float) -> PredictionSets:
        """Returns the prediction sets; raises ValueError if the model has none."""
        if self.description.inputs.kind.ranks_items:
            raise ValueError(f"coverage={coverage}: a list of items has no prediction sets. Leave it out.")
        if self.sets is None:
            raise ValueError(
                f"coverage={coverage}: the run has no prediction sets. Train with --sets=threshold, in "
                "Python with {'sets.name': 'threshold'}, or run: rank4class calibrate --workdir=... "
                "--data.path=..."
            )
        return self.sets

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

    def load(self, path: str | os.PathLike | None = None, on_invalid_row: str = "fail") -> TaskData:
        """Loads the data of the training, or a labeled file."""
        return self.load_task() if path is None else self.load_labeled(path, on_invalid_row)

    def evaluate(
        self,
        task_data: TaskData,
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
        keep_scores &= predictions.scores_fit(len(task_data.examples(split)), task_data.num_scored(split))
        context = Context(task_data, split, self.fitted, coverages)
        score = functools.partial(self._score, task_data)
        evaluated = self._chain(self.experiment).evaluate(context, score, keep_scores=keep_scores, best=best)
        assert evaluated is not None  # nothing stops it
        return evaluated[0]

    @property
    def fitted(self) -> Fitted:
        """All that the run has fitted to its scores."""
        return Fitted(self.calibration, self.thresholds, self.sets)

    def _chain(self, experiment: config.Experiment) -> Chain:
        return Chain(experiment, (self.description.training_counts, self.description.num_train))

    def refitted(self, task_data: TaskData) -> "TrainedModel":
        """Returns the model with all that a training fits to the validation split, fitted to this one."""
        chain = self._chain(self.experiment)
        chain.check(task_data)
        score = functools.partial(self._score, task_data)
        evaluated = chain.validate(task_data, score, Fitted(), is_last=True)
        assert evaluated is not None  # nothing stops it
        return dataclasses.replace(self, **vars(evaluated[1]))

    def calibrate(self, task_data: TaskData, sets: config.Sets) -> PredictionSets:
        """Fits prediction sets to the split "calibration", writes them to the run's folder, and returns them.

        Raises:
          ValueError: the run is not finished, or the examples or the sets do not fit the run.
        """
        self._check_calibration(task_data)
        examples = task_data.splits["calibration"]
        size = len(examples)
        needed = prediction_sets.least_examples(0.9)
        if size < needed:  # they would replace sets that the run may have
            raise ValueError(f"data.path: {size} examples; sets for 90% need {needed}. Give more examples.")
        experiment = dataclasses.replace(self.experiment, sets=sets)
        checks.check(experiment)
        sets_stage.check_examples(sets, examples)
        if not sets_stage.can_fit(experiment, self.calibration):
            raise ValueError(f"sets={sets.name!r}: the scores are not calibrated. Choose 'rank'.")
        score = functools.partial(self._score, task_data)
        calibrated = self._chain(experiment).calibrate(task_data, score, self.fitted)
        assert calibrated is not None  # nothing stops it
        assert calibrated.sets is not None
        fitted = dataclasses.replace(calibrated.sets, after_training=True)
        if distribution.is_chief(self.strategy):
            self.run_dir.write_fitted("prediction_sets", fitted.to_json())
        return fitted

    def calibrate_unknown(self, task_data: TaskData, rate: float) -> Detector:
        """Calibrates a detector of unknown inputs by the split "calibration"; writes it, and returns it.

        A run without a detector fits it to the training data, which have to be here.

        Raises:
          ValueError: the run is not finished, or the examples or the rate do not fit the run.
          FileNotFoundError: the training data are not here.
        """
        self._check_calibration(task_data)
        detector.check(rate, task_data)
        outputs = detector.reader(self.model, self.experiment.evaluation_batch_size)
        fitted = self.detector
        if fitted is None:
            trained_on = self.load_task()
            fitted = detector.fit(outputs(trained_on, "train").vectors, trained_on.splits["train"].labels)
        fitted = fitted.calibrated(fitted.scores_of(outputs(task_data, "calibration")), rate)
        if distribution.is_chief(self.strategy):
            self.run_dir.write_fitted_arrays("detector", fitted.to_arrays())
        return fitted

    def _check_calibration(self, task_data: TaskData) -> None:
        """Raises ValueError if the run is not finished, or the data have no examples that it has not seen."""
        path = self.run_dir.path
        if self.run_dir.results() is None:
            raise ValueError(f"{path}: not finished, so that its checkpoint may change. Train it to the end.")
        if "calibration" not in task_data.splits:
            raise ValueError(
                f"{path}: no calibration examples besides those of the training. Train with validation "
                "examples and --sets or --unknown, or set data.path to labeled examples that the run has not "
                "seen, if its dataset reads them."
            )
        hashes = self.run_dir.data_hashes()
        for split in ("train", "validation"):
            if hashes[split] == task_data.hashes["calibration"]:
                raise ValueError(
                    f"data.path: the {split} split of the run. Set it to examples that the run has not seen."
                )

    def _score(
        self,
        task_data: TaskData,
        split: str,
        keep_scores: bool | np.ndarray,
        best: int,
        consume: evaluator.Consume | None,
    ) -> EvaluationResult:
        """Evaluates the model on a split, see `evaluator.Evaluator`, without what the run has fitted."""
        replicas = self.strategy.num_replicas_in_sync
        batch_size = -(-self.experiment.evaluation_batch_size // replicas) * replicas
        batch_size = evaluator.batch_size(batch_size, len(self.description.class_names), replicas)
        evaluate = build_evaluators(self.experiment, task_data, self.model, strategy=self.strategy)[split]
        if isinstance(self.strategy, tf.distribute.TPUStrategy):
            task_data = task_data.with_static_lengths()
        batches = task_data.read(split, batch_size, self.strategy, "evaluating")
        with distribution.lost_worker_errors(self.strategy):
            result = evaluate(batches, keep_scores=keep_scores, best=best, consume=consume)
        assert result is not None  # nothing stops it
        return result

    def evaluate_unknown(self, task_data: TaskData, test: EvaluationResult) -> dict[str, Any] | None:
        """Tells the test examples, of the classes `data.held_out`, from those of validation by their scores.

        Both have the scores of the trained classes; see `unknown_inputs.evaluate`. None without finite
        scores, or if these exceed `LARGEST_SCORES`.
        """
        known = self.evaluate(task_data, "validation", keep_scores=True).scores
        if known is None or test.scores is None:
            return None
        unknown = test.scores[:, task_data.seen]
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
    experiment = run_dir.experiment()
    results = run_dir.results()
    checks.check(experiment)
    described = description.read(run_dir.model)
    sorter = os.path.join(run_dir.model, description.SORTER)  # the copy of its file, if there is one
    copied = config.override(experiment, {"loss.sorter": sorter}) if files.exists(sorter) else experiment
    model = build_model(copied, described.build_model, described.num_scored("train"), strategy)
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
    arrays = run_dir.fitted_arrays("detector")
    of_unknown = None if arrays is None else Detector.from_arrays(arrays)
    return TrainedModel(run_dir, experiment, described, model, step, strategy, *fitted, vectors, of_unknown)
