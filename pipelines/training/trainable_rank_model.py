"""A rank model as a task of the trainer: its losses, batches, evaluations and pictures."""

import dataclasses
import functools
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from rank4class import arguments, data, losses, models
from rank4class.data.candidates import Mined, Sampled, nearest_wrong
from rank4class.pipelines import config, distribution
from rank4class.pipelines.evaluation import calibration, detector, evaluator
from rank4class.pipelines.evaluation.chain import Chain
from rank4class.pipelines.evaluation.model_building import (
    build_evaluators,
    build_model,
    build_rank_fn,
    new_model,
)
from rank4class.pipelines.evaluation.stages.calibration import ranked_classes
from rank4class.pipelines.evaluation.stages.stage import Context, Fitted
from rank4class.pipelines.storage import files
from rank4class.pipelines.storage.run_directory import RunDirectory
from rank4class.pipelines.task_data import class_frequencies, count_priors, description
from rank4class.pipelines.task_data.task_data import ModelOutputs, TaskData
from rank4class.pipelines.training import optimization, tensorboard
from rank4class.pipelines.training.schedule import Schedule
from rank4class.registry import CANDIDATES

_MANY_TEXTS = 320  # classes, from which on a warning names the costs of encoding their texts in each step

Draw = Callable[..., dict[str, np.ndarray]]  # data, split, evaluation and counts to name -> pixels
Report = Callable[..., None]  # of a finished training, see `run_page.write`


class TrainableRankModel:
    """A rank model that learns to rank the classes of a dataset, for the trainer; steps count from 0.

    Attributes:
      model: the Keras model, with its variables created under the strategy.
      forward: function of features and `training` to the model's outputs for the loss.
      loss: function of a step, labels, outputs and weights to the losses, `[B]`.
      loss_name: name of the loss, in error messages and TensorBoard.
      metrics: names of the metrics.
      monitor: name of the metric that selects the best model, or `evaluator.LIKELIHOOD`.
      train_examples: their number.
      evaluated: the splits of the final evaluation.
      hashes: of the data, by which a run directory recognizes them.
      class_texts: descriptions of the classes, or None.
      out_of_fold: function of a step to `Lbfgs.out_of_fold` after it, if the training examples validate.
      word_scores: the same scores of the words alone, or None.
      words: the `models.AddedScores` of the model, or None.
      mines: whether the training batches depend on the model at the last evaluation.

    A loss, metric, count prior or calibration that does not fit the dataset raises ValueError.
    """

    def __init__(
        self,
        experiment: config.Experiment,
        task_data: TaskData,
        schedule: Schedule,
        strategy: tf.distribute.Strategy,
        progress: bool = True,
        draw: Draw | None = None,
        report: Report | None = None,
    ):
        part = experiment.loss
        splits = task_data.splits
        self._experiment = experiment
        self._data = task_data
        self._strategy = strategy
        self._progress = progress
        self._draw = draw
        self._report = report
        self._batch_size = experiment.batch_size
        self._seed = experiment.seed
        self._evaluation_batch_size = evaluator.batch_size(
            experiment.evaluation_batch_size, len(task_data.class_names), strategy.num_replicas_in_sync
        )
        self._sorter = part.sorter if part.fine_tune else None
        self._chain = Chain(experiment, (task_data.training_counts("test"), len(splits["train"])))
        self._fitted = Fitted()
        self._is_final = False
        self.loss_name = part.name
        self.train_examples = len(splits["train"])
        self.hashes = task_data.hashes
        self.class_texts = task_data.class_texts
        self.evaluated = task_data.evaluated
        num_classes = task_data.num_scored("validation")
        self.metrics = evaluator.applicable_metrics(experiment.metrics, num_classes)
        if experiment.monitor not in self.metrics:
            problem = f"not defined for {num_classes} classes. Choose another metric."
            raise ValueError(f"monitor={experiment.monitor!r}: {problem}")
        self.monitor = experiment.monitor
        k = getattr(part, "k", 0)
        num_trained = task_data.num_scored("train")
        if k >= num_trained:  # the loss would always be 0
            raise ValueError(f"loss.k={k}: selects all {num_trained} training classes. Lower it.")
        self._count_prior = count_priors.get(experiment.count_prior)
        self._count_prior.check_examples(part, splits["train"])
        log_prior = class_frequencies.log_prior(part, splits["train"], task_data.training_counts("train"))
        self._candidates = build_candidates(experiment, task_data, strategy)
        self.mines = isinstance(self._candidates, Mined)
        self._chain.check(task_data)
        if experiment.unknown is not None:
            detector.check(experiment.unknown, task_data)
        is_solved = schedule.C is not None
        if is_solved and self._chain.calibrates and experiment.optimizer.selection == "likelihood":
            self.monitor = evaluator.LIKELIHOOD
        make = functools.partial(new_model, experiment, task_data)
        self.model = build_model(experiment, make, num_trained, strategy)
        self.out_of_fold: Callable[[int], np.ndarray] | None = None
        self.word_scores: np.ndarray | None = None
        self.words: Any = getattr(self.model, "words", None)
        self.forward = task_data.scorer(self.model, "train", self._count_prior)
        rank_fn = None
        if hasattr(self.model, "rank_sorter"):
            rank_fn = self.model.rank_sorter.rank_fn
        elif part.rank_fn is not None:
            rank_fn = build_rank_fn(experiment, num_trained, strategy)

        def loss_of(*names: str) -> Callable[..., tf.Tensor]:
            return optimization.build_loss(
                part,
                seed=experiment.seed,
                temperature=schedule.temperature,
                count_prior=self._count_prior,
                max_relevant=task_data.max_relevant(*names),
                rank_fn=rank_fn,
                log_prior=log_prior,
                log_q=getattr(experiment.candidates, "log_q", False),
            )

        def validation_loss(labels: Any, outputs: ModelOutputs) -> tf.Tensor:
            return of_all(last_step, labels, outputs, tf.ones(tf.shape(outputs.scores)[:1]))

        of_all = loss_of(*splits)
        last_step = tf.constant(max(0, schedule.total_steps - 1), tf.int64)
        self.loss = loss_of("train")
        encode_classes = getattr(self.model, "encode_classes", None)
        self._miner = evaluator.Evaluator(self.forward, (), strategy=strategy, encode_classes=encode_classes)
        loss = None if part.name in losses.BATCH_LOSSES else validation_loss
        self._validation_loss = loss
        self._evaluators_of_folds: dict[str, evaluator.Evaluator] = {}
        self._evaluators = build_evaluators(experiment, task_data, self.model, strategy=strategy, loss=loss)

    def training_batches(self, step: int, context: tf.distribute.InputContext) -> tf.data.Dataset:
        """Returns a worker's batches from a step on, each of features, labels and weights."""
        return self._data.training_batches(self._batch_size, self._seed, step, context, self._candidates)

    def mine(self, run_dir: RunDirectory, step: int, evaluated: int, should_stop: Callable[[], bool]) -> bool:
        """Finds the nearest wrong classes of the training examples by the model at the last evaluation.

        Returns False if it should stop before it has them. They are in a file from which a training resumes
        between two evaluations.
        """
        assert isinstance(self._candidates, Mined)
        path = os.path.join(run_dir.checkpoints, f"nearest-{evaluated}.npz")
        if step > evaluated or files.exists(path):
            nearest = files.read_npz(path)["nearest"]
        else:
            split = self._data.splits["train"]
            count = self._candidates.num_nearest
            left_out = split.class_matrix(self._candidates.num_classes)
            if split.excluded is not None:
                left_out += split.excluded
            best = min(count + int(np.diff(left_out.indptr).max()), self._candidates.num_classes)
            batches = self._read("train", self._data.without_labels(), "mining")
            result = self._miner(batches, best=best, stopping=should_stop)
            if result is None:
                return False
            assert result.best_classes is not None
            nearest = nearest_wrong(result.best_classes, left_out, count)
            if distribution.is_chief(self._strategy):
                tf.io.gfile.makedirs(run_dir.checkpoints)
                older = tf.io.gfile.glob(os.path.join(run_dir.checkpoints, "nearest-*.npz"))
                files.write_npz(path, {"nearest": nearest})
                files.remove(older)
        self._candidates = build_candidates(self._experiment, self._data, self._strategy, nearest)
        return True

    def raise_first_unreadable(self, step: int) -> None:
        """Raises ValueError for the first example of a step that cannot be read."""
        indices = self._data.training_examples(self._batch_size, self._seed, step)
        data.raise_first_unreadable(self._data.splits["train"], indices, self._data.preprocess)

    def example_names(self, step: int) -> list[str]:
        """Returns the names of the examples of a step."""
        split = self._data.splits["train"]
        return [split.origin(i) for i in self._data.training_examples(self._batch_size, self._seed, step)]

    def _read(self, split: str, task_data: TaskData, title: str = "evaluating") -> Iterable[tuple]:
        title = title if self._progress else ""
        return task_data.read(split, self._evaluation_batch_size, self._strategy, title)

    def evaluate(
        self, split: str, should_stop: Callable[[], bool], step: int
    ) -> evaluator.EvaluationResult | None:
        """Evaluates a split; None if `should_stop`, called before each batch, returned True.

        The model has the weights after `step`, by which the solver finds the scores of folds.
        """
        evaluators = self._evaluators
        task_data = self._data
        if split == "validation":
            if task_data.folds is not None:
                evaluators, task_data = self._of_folds(step)
            elif not self._weigh_words(should_stop):
                return None

        def score(
            split: str, keep_scores: bool | np.ndarray, best: int, consume: evaluator.Consume | None
        ) -> evaluator.EvaluationResult | None:
            return evaluators[split](
                self._read(split, task_data),
                keep_scores=keep_scores,
                best=best,
                stopping=should_stop,
                consume=consume,
            )

        if split == "validation":
            calibrates = self.monitor == evaluator.LIKELIHOOD
            options = {"is_last": self._is_final, "calibrates": calibrates}
            evaluated = self._chain.validate(self._data, score, self._fitted, **options)
        else:
            evaluated = self._chain.evaluate(Context(self._data, split, self._fitted), score)
        if evaluated is None:
            return None
        result, self._fitted = evaluated
        return result

    def _of_folds(self, step: int) -> tuple[dict[str, evaluator.Evaluator], TaskData]:
        """Returns evaluators of the scores of folds, and a task whose features these are."""
        assert self.out_of_fold is not None
        assert self._data.folds is not None
        is_in = self._data.folds >= 0
        examples = self._data.splits["validation"]
        if self.word_scores is not None and not self._is_final:
            self._weigh(self.out_of_fold(step)[is_in], self.word_scores[is_in], examples)
        scores = self._scores_of_folds(step)[is_in]
        of_scores = dataclasses.replace(examples, features={"scores": scores}, lengths=None)
        splits = {name: of_scores for name in self._data.splits if name != "test"}
        task_data = dataclasses.replace(self._data, splits=splits, preprocess=None)

        def model(features: dict[str, tf.Tensor], training: bool) -> tf.Tensor:
            return features["scores"]

        if not self._evaluators_of_folds:
            self._evaluators_of_folds = build_evaluators(
                self._experiment, task_data, model, strategy=self._strategy, loss=self._validation_loss
            )
        return self._evaluators_of_folds, task_data

    def _scores_of_folds(self, step: int) -> np.ndarray:
        """Returns the scores of all training examples by models without their folds, float32 `[N, n]`."""
        assert self.out_of_fold is not None
        scores = self.out_of_fold(step)
        return scores if self.word_scores is None else scores + self.words.weight.numpy() * self.word_scores

    def _weigh_words(self, should_stop: Callable[[], bool]) -> bool:
        """Assigns the weight of the words' scores by the validation examples; returns False if stopped."""
        if self.words is None or self._is_final:
            return True
        split = self._data.splits["validation"]
        rows = np.arange(len(split))[
            :: 1 + len(split) * len(self._data.class_names) // calibration.MAX_FITTED
        ]
        self.words.weight.assign(0.0)
        result = self._evaluators["validation"](
            self._read("validation", self._data), keep_scores=rows, stopping=should_stop
        )
        if result is None:
            return False
        assert result.scores is not None
        examples = split.select(rows)
        if np.isfinite(result.scores).all():
            added = examples.features["words"] @ self.words.kernel.numpy() + self.words.bias.numpy()
            self._weigh(result.scores, added, examples)
        return True

    def _weigh(self, scores: np.ndarray, added: np.ndarray, examples: data.Split) -> None:
        weight = calibration.weigh(scores, added, examples.labels, ranked_classes(examples))
        self.words.weight.assign(weight)

    def pictures(self, split: str, evaluation: evaluator.EvaluationResult) -> dict[str, np.ndarray]:
        """Returns name -> pixels of an evaluation for TensorBoard."""
        if self._draw is None:
            return {}
        return self._draw(self._data, split, evaluation, self._count_distributions(split))

    def _count_distributions(self, split):
        """Returns the distributions of the number of classes for a split's first batch, and the numbers."""
        if not self._count_prior.is_model:
            return None
        batches = self._data.evaluation_batches(split, self._evaluation_batch_size)
        features, _, indices = next(iter(batches))
        log_counts = self._data.scorer(self.model, split, self._count_prior)(features).log_counts
        assert log_counts is not None
        is_example = indices.numpy() >= 0
        counts = self._data.splits[split].num_relevant()[indices.numpy()[is_example]]
        return np.exp(log_counts.numpy()[is_example]), counts

    def describe(self, folder: str) -> None:
        """Writes all from which the model is built without its data."""
        description.write(folder, self._data, self.model)
        if self._sorter:
            files.write(os.path.join(folder, description.SORTER), files.read_bytes(self._sorter))

    def finalize_weights(self) -> None:
        """Includes the calibration and the prediction sets in the evaluations from here on."""
        self._is_final = True

    def write_artifacts(
        self,
        run_dir: RunDirectory,
        results: dict[str, Any],
        evaluations: Mapping[str, evaluator.EvaluationResult],
    ) -> None:
        """Writes the test values, what the run has fitted, the vectors of classes and the report."""
        test = evaluations.get("test")
        rate = self._experiment.unknown
        if rate is not None and results["best_step"] is not None:
            evaluations = self._detect_unknown(rate, run_dir, results, evaluations)
        if self._report is not None:
            self._report(run_dir, self._data, results, evaluations)
        if test is not None:
            run_dir.write_test_values(test.names, test.values)
        fitted = self._fitted
        for name, each in (
            ("calibration", fitted.calibration),
            ("thresholds", fitted.thresholds),
            ("prediction_sets", fitted.sets),
        ):
            if each is not None:
                run_dir.write_fitted(name, each.to_json())
        if isinstance(self.model, models.RankModel):
            vectors = self.model.encode_classes(training=False)
            if "features" in self._data.class_inputs:  # predictions would encode all texts again
                run_dir.write_class_vectors(vectors.numpy())
            with files.errors_of(run_dir.path):
                counts = self._data.training_counts("test")
                columns = self._class_columns(test)
                tensorboard.write_projector(run_dir.path, self._data.class_names, vectors, columns, counts)

    def _detect_unknown(
        self,
        rate: float,
        run_dir: RunDirectory,
        results: dict[str, Any],
        evaluations: Mapping[str, evaluator.EvaluationResult],
    ) -> dict[str, evaluator.EvaluationResult]:
        """Writes a detector of unknown inputs; returns the evaluations with its p-values.

        Its measures become "unknown" of the results, if there are examples that it has not seen.
        """
        labels = self._data.splits["train"].labels
        title = "detecting" if self._progress else ""
        read = detector.reader(self.model, self._evaluation_batch_size, title)
        outputs = functools.partial(read, self._data)
        train = outputs("train")
        unknown = outputs("unknown_train").vectors if "unknown_train" in self._data.splits else None
        if self._data.folds is None:
            fitted = detector.fit(train.vectors, labels, unknown)
            fitted = fitted.calibrated(fitted.scores_of(outputs("calibration")), rate)
        else:
            scores = self._scores_of_folds(results["best_step"])
            train = train._replace(logits=detector.logits_of(tf.constant(scores)).numpy())
            fitted = detector.fit_out_of_folds(train, labels, self._data.folds, rate, unknown)
        run_dir.write_fitted_arrays("detector", fitted.to_arrays())
        known = "test" if "test" in evaluations else "validation"
        if known == "validation" and self._data.folds is not None:  # the detector has seen these examples
            return {**evaluations}
        measured = [name for name in (known, "unknown") if name in self._data.splits]
        p_values = {name: fitted.p_values_of(outputs(name)) for name in measured}
        results["unknown"] = detector.measure(fitted, p_values[known], p_values.get("unknown"))
        return {**evaluations, known: dataclasses.replace(evaluations[known], p_values=p_values[known])}

    def _class_columns(self, test: evaluator.EvaluationResult | None) -> dict[str, np.ndarray]:
        """Returns the test error, NaN without test examples, and the number of training examples, `[n]`."""
        training = {"training examples": self._data.training_counts("test")}
        if test is None:
            return training
        classes = self._data.splits["test"].class_matrix(len(self._data.class_names)).astype(np.float64)
        with np.errstate(invalid="ignore"):
            percent = 100.0 * ((test.right == 0) @ classes) / classes.sum(axis=0)
        return {"top1_error of test (%)": percent, **training}


def build_candidates(
    experiment: config.Experiment,
    task_data: TaskData,
    strategy: tf.distribute.Strategy,
    nearest: np.ndarray | None = None,
) -> Sampled | None:
    """Builds the candidates of the training steps; None if these score all classes."""
    part = experiment.candidates
    n = task_data.num_scored("train")
    candidates = None
    if part.name != "all":
        of_data = {"split": task_data.splits["train"], "num_classes": n, "batch_size": experiment.batch_size}
        interaction = models.interactions.protocol_of(models.INTERACTIONS[experiment.interaction.name])
        is_on_tpu = isinstance(strategy, tf.distribute.TPUStrategy)
        of_data["padded"] = experiment.jit_compile or is_on_tpu or interaction.in_blocks
        with arguments.in_section("candidates."):
            mined = {} if nearest is None else {"nearest": nearest}
            candidates = CANDIDATES.build(part.name, **of_data, **part.options(), **mined)
        if not candidates.covers_all:
            return candidates
        logging.warning(
            "candidates=%r: with up to %d in a step, all %d classes are scored", part.name, candidates.size, n
        )
    if experiment.class_encoder.name == "text" and n > _MANY_TEXTS:
        logging.warning(
            "class_encoder='text': each step encodes all %s class texts, and takes memory for them. "
            "--candidates=sampled encodes some of them, class encoder 'frozen_text' all of them once.",
            f"{n:,}",
        )
    return None
