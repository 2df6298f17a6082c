"""A rank model as a task of the trainer: its losses, batches, evaluations and pictures."""

import dataclasses
import math
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from rank4class import losses, models
from rank4class.models import precision
from rank4class.pipelines import config
from rank4class.pipelines.evaluation import evaluator
from rank4class.pipelines.evaluation.calibration import Calibration
from rank4class.pipelines.storage import files
from rank4class.pipelines.storage.run_directory import RunDirectory
from rank4class.pipelines.task import count_priors, description, rank_functions
from rank4class.pipelines.task.task import ModelOutputs, TaskData
from rank4class.pipelines.training import optimization, run_calibration, tensorboard
from rank4class.pipelines.training.trainer import Schedule
from rank4class.progress import Progress

SPLITS = ("train", "validation", "test")
Draw = Callable[..., dict[str, np.ndarray]]  # data, split, evaluation and counts to name -> pixels


@dataclasses.dataclass(kw_only=True)
class TrainableRankModel:
    """A rank model that learns to rank the classes of a dataset; a `trainer.Trainable`.

    Attributes:
      model: with its variables created under the strategy.
      data: the dataset and the inputs of the model.
      loss: function of a step, labels, outputs and weights to the losses, float32 `[B]`.
      loss_name: for messages and TensorBoard.
      metrics: names of the metrics that are defined for the classes of validation.
      evaluators: split -> its evaluator.
      count_prior: of the number of classes.
      calibration_method: of the scores of the best model; None does not calibrate them.
      batch_size, seed: of the training batches.
      evaluation_batch_size: of evaluations.
      strategy: a `tf.distribute.Strategy`.
      sorter: file of the sorter that is trained further; None without one.
      progress: whether to show the progress of evaluations.
      draw: draws an evaluation for TensorBoard, such as `evaluation_pictures.draw`; None draws none.
    """

    model: tf.keras.Model
    data: TaskData
    loss: Callable[..., tf.Tensor]
    loss_name: str
    metrics: tuple[str, ...]
    evaluators: dict[str, evaluator.Evaluator]
    count_prior: count_priors.CountPrior
    calibration_method: str | None
    batch_size: int
    seed: int
    evaluation_batch_size: int
    strategy: tf.distribute.Strategy
    sorter: str | None = None
    progress: bool = True
    draw: Draw | None = None
    _calibration: Calibration | None = dataclasses.field(default=None, init=False)
    _is_final: bool = dataclasses.field(default=False, init=False)

    def __post_init__(self) -> None:
        self.train_examples = len(self.data.splits["train"])
        self.hashes, self.class_texts = self.data.hashes, self.data.class_texts
        self.forward = self.data.scorer(self.model, "train", self.count_prior)

    def training_batches(self, step: int, context: tf.distribute.InputContext) -> tf.data.Dataset:
        return self.data.training_batches(self.batch_size, self.seed, step, context)

    def raise_first_unreadable(self, step: int) -> None:
        self.data.raise_first_unreadable(self.batch_size, self.seed, step)

    def example_names(self, step: int) -> list[str]:
        split = self.data.splits["train"]
        return [split.origin(i) for i in self.data.training_examples(self.batch_size, self.seed, step)]

    def evaluate(self, split: str, should_stop: Callable[[], bool]) -> evaluator.EvaluationResult | None:
        size = self.evaluation_batch_size
        batches: Iterable[tuple] = self.data.read(split, size, self.strategy)
        if self.progress:
            progress = Progress(f"evaluating {split}", "example", len(self.data.splits[split]))
            batches = progress.over(batches, size)
        # All evaluations keep the scores, so that the last ones run the function that is compiled already.
        examples, n = self.data.splits[split], self.data.num_scored(split)
        calibrated = self.calibration_method is not None
        keep_scores = run_calibration.measured_examples(len(examples), n) if calibrated else False
        result = self.evaluators[split](batches, keep_scores=keep_scores, stopping=should_stop)
        if result is None or self.calibration_method is None:
            return result
        if self._is_final:
            if split == "validation":
                self._calibration = run_calibration.fit(result, self.data)
            result = run_calibration.measure(result, self._calibration, split, self.data.splits[split])
        return run_calibration.without_scores(result)

    def pictures(self, split: str, evaluation: evaluator.EvaluationResult) -> dict[str, np.ndarray]:
        if self.draw is None:
            return {}
        return self.draw(self.data, split, evaluation, self._count_distributions(split))

    def _count_distributions(self, split):
        """Returns the distributions of the number of classes for a split's first batch, and the numbers."""
        if not self.count_prior.is_model:
            return None
        features, _, indices = next(iter(self.data.evaluation_batches(split, self.evaluation_batch_size)))
        scorer = self.data.scorer(self.model, split, self.count_prior)
        log_counts = scorer(features).log_counts
        assert log_counts is not None
        is_example = indices.numpy() >= 0
        counts = self.data.splits[split].num_relevant()[indices.numpy()[is_example]]
        return np.exp(log_counts.numpy()[is_example]), counts

    def describe(self, folder: str) -> None:
        description.write(folder, self.data, self.model)
        if self.sorter:
            files.write(os.path.join(folder, description.SORTER), files.read_bytes(self.sorter))

    def finalize_weights(self) -> None:
        """The weights stay as they are; the evaluations from here on include the calibration."""
        self._is_final = True

    def write_artifacts(
        self, run_dir: RunDirectory, results: dict[str, Any], test: evaluator.EvaluationResult
    ) -> None:
        """Writes the test values, the calibration, and for TensorBoard's projector the vectors of classes."""
        del results
        run_dir.write_test_values(test.names, test.values)
        if self._calibration is not None:
            run_dir.write_calibration(self._calibration.to_json())
        if isinstance(self.model, models.RankModel):
            vectors = self.model.encode_classes(training=False)
            with files.errors_of(run_dir.path):
                tensorboard.write_projector(
                    run_dir.path, self.data.class_names, vectors, self._class_columns(test)
                )

    def _class_columns(self, test: evaluator.EvaluationResult) -> dict[str, np.ndarray]:
        """Returns the test error and the number of training examples of each class, `[n]` each.

        An example with several classes counts for each of them. The error of a class without test examples is
        NaN.
        """
        n, labels = len(self.data.class_names), self.data.splits["test"].labels
        rows, classes = (np.arange(len(labels)), labels) if labels.ndim == 1 else labels.nonzero()
        examples = np.bincount(classes, minlength=n)
        errors = np.bincount(classes, test.right[rows] == 0, minlength=n)
        percent = np.divide(100.0 * errors, examples, out=np.full(n, np.nan), where=examples > 0)
        return {"top1_error of test (%)": percent, "training examples": self.data.training_counts("test")}


def build_trainable(
    experiment: config.Experiment,
    loaded: TaskData,
    schedule: Schedule,
    strategy: tf.distribute.Strategy,
    progress: bool = True,
    draw: Draw | None = None,
) -> TrainableRankModel:
    """Builds the model, the loss and the evaluators of an experiment.

    Args:
      experiment: a checked `config.Experiment`.
      loaded: its data.
      schedule: of the training.
      strategy, progress, draw: see `TrainableRankModel`.

    Raises:
      ValueError: the loss, the metrics, the count prior or the calibration do not fit the dataset.
    """
    part, splits = experiment.loss, loaded.splits
    metrics = _applicable_metrics(experiment.metrics, experiment.monitor, loaded.num_scored("validation"))
    _check_k(part, loaded.num_scored("train"))
    count_prior = count_priors.get(experiment.count_prior)
    count_prior.check_examples(part, splits["train"])
    calibration_method = run_calibration.method_of(
        experiment.calibration,
        splits["validation"],
        has_items=experiment.encoder.name == "items",
        count_prior=experiment.count_prior.name,
    )
    model = build_model(experiment, loaded, strategy)
    rank_fn = None
    if hasattr(model, "rank_sorter"):
        rank_fn = model.rank_sorter.rank_fn
    elif part.rank_fn is not None:
        rank_fn = build_rank_fn(experiment, loaded, strategy)

    def loss_of(*names: str, l1_steps: int | None = None) -> Callable[..., tf.Tensor]:
        return optimization.build_loss(
            part,
            seed=experiment.seed,
            temperature=schedule.temperature,
            count_prior=count_prior,
            max_relevant=loaded.max_relevant(*names),
            rank_fn=rank_fn,
            l1_steps=l1_steps,
        )

    def validation_loss(labels: Any, outputs: ModelOutputs) -> tf.Tensor:
        return of_all(last_step, labels, outputs, tf.ones(tf.shape(outputs.scores)[:1]))

    of_all, last_step = loss_of(*SPLITS), tf.constant(max(0, schedule.total_steps - 1), tf.int64)
    l1_steps = None
    if part.l1_epochs is not None:
        l1_steps = math.ceil(part.l1_epochs * len(splits["train"]) / experiment.batch_size)
    return TrainableRankModel(
        model=model,
        data=loaded,
        loss=loss_of("train", l1_steps=l1_steps),
        loss_name=part.name,
        metrics=metrics,
        evaluators=build_evaluators(
            loaded,
            model,
            experiment.metrics,
            count_prior,
            strategy=strategy,
            jit_compile=experiment.jit_compile,
            loss=None if part.name in losses.BATCH_LOSSES else validation_loss,
        ),
        count_prior=count_prior,
        calibration_method=calibration_method,
        batch_size=experiment.batch_size,
        seed=experiment.seed,
        evaluation_batch_size=experiment.evaluation_batch_size,
        strategy=strategy,
        sorter=part.sorter if part.fine_tune else None,
        progress=progress,
        draw=draw,
    )


class ModelSource(Protocol):
    """A `task.TaskData`, for a new model, or a `description.Description`, for a trained one."""

    def build_model(self, experiment: config.Experiment) -> tf.keras.Model:
        """Returns a new model with its variables."""

    def num_scored(self, split: str) -> int:
        """Returns the number of classes that the model scores for a split."""


def build_model(
    experiment: config.Experiment, source: ModelSource, strategy: tf.distribute.Strategy
) -> tf.keras.Model:
    """Builds the model of an experiment in its precision under a strategy."""
    with precision.scope(experiment.precision), strategy.scope():
        model = source.build_model(experiment)
    if experiment.loss.fine_tune:
        model.rank_sorter = build_rank_fn(experiment, source, strategy).sorter
    return model


def build_rank_fn(
    experiment: config.Experiment, source: ModelSource, strategy: tf.distribute.Strategy
) -> Any:
    """Builds the rank function of a loss, for lists of all classes or of a replica's batch."""
    assert experiment.loss.rank_fn is not None
    n = source.num_scored("train")
    if experiment.loss.name in losses.BATCH_LOSSES:
        parts = strategy.num_replicas_in_sync * experiment.accumulation_steps
        n = experiment.batch_size // parts
        if n < 2:
            raise ValueError(
                f"batch_size={experiment.batch_size}: loss {experiment.loss.name!r} ranks the examples of a "
                f"part of a batch, and each of the {parts} parts has one. Raise it, or lower "
                "accumulation_steps."
            )
    with strategy.scope():
        return rank_functions.get(experiment.loss.rank_fn, n, experiment.loss.sorter)


def build_evaluators(
    loaded: TaskData,
    model: tf.keras.Model,
    metrics: Sequence[str],
    count_prior: count_priors.CountPrior = count_priors.NONE,
    *,
    strategy: tf.distribute.Strategy | None = None,
    jit_compile: bool = False,
    loss: Callable[..., tf.Tensor] | None = None,
) -> dict[str, evaluator.Evaluator]:
    """Returns split -> its `evaluator.Evaluator`; splits that rank the same classes share one.

    Args:
      loaded, model: data and model.
      metrics: names.
      count_prior: of the model.
      strategy, jit_compile: see `evaluator.Evaluator`.
      loss: see there; it is evaluated where the classes are those of the training.
    """

    def build(*splits: str) -> evaluator.Evaluator:
        return evaluator.Evaluator(
            loaded.scorer(model, splits[0], count_prior),
            evaluator.applicable_metrics(metrics, loaded.num_scored(splits[0])),
            max_relevant=loaded.max_relevant(*splits),
            strategy=strategy,
            jit_compile=jit_compile,
            loss=loss if "train" in splits else None,
        )

    if loaded.seen is None:
        return dict.fromkeys(SPLITS, build(*SPLITS))
    return {**dict.fromkeys(("train", "validation"), build("train", "validation")), "test": build("test")}


def _applicable_metrics(metrics: Sequence[str], monitor: str, num_classes: int) -> tuple[str, ...]:
    """Returns the metrics that are defined for the number of classes in validation."""
    applicable = evaluator.applicable_metrics(metrics, num_classes)
    if monitor not in applicable:
        raise ValueError(
            f"monitor={monitor!r}: not defined for {num_classes} classes. Choose another metric."
        )
    return applicable


def _check_k(loss_config, num_classes):
    """Raises ValueError if the loss selects all classes: it would always be 0."""
    k = getattr(loss_config, "k", None)
    if k is not None and k >= num_classes:
        raise ValueError(f"loss.k={k}: selects all {num_classes} training classes. Lower it.")
