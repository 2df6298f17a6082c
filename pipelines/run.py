"""Train, load and compare runs, and predict, evaluate and export with them."""

import functools
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import tensorflow as tf

from rank4class import arguments, data
from rank4class.data.readers.rows import BadRows
from rank4class.pipelines import config
from rank4class.pipelines.evaluation import comparison, evaluator, trained_model, worst_examples
from rank4class.pipelines.evaluation.evaluator import EvaluationResult
from rank4class.pipelines.export import exporting, prediction, prediction_files
from rank4class.pipelines.export.answers import Answers
from rank4class.pipelines.export.prediction import Predictor
from rank4class.pipelines.reporting import plots, run_html, run_page
from rank4class.pipelines.storage import files
from rank4class.pipelines.task_data import class_frequencies, description
from rank4class.pipelines.task_data.task_data import TaskData
from rank4class.pipelines.training import rank_training

SPLITS = ("train", "validation", "test")


class Run:
    """The model of a finished or interrupted run.

    It is restored from the run's folder alone, without the data and the encoder checkpoint of its training.

    Attributes:
      workdir: the run's folder.
      experiment: the `config.Experiment` of the run.
      class_names: names of the classes, by id; for lists of items, of the positions in the longest list.
      step: training steps of the model's checkpoint.
      answers: the model as functions of raw inputs, an `Answers`.

    Args:
      workdir: the run's folder, on disk or in object storage.
      strategy: a `tf.distribute.Strategy`; None is one device. Only `evaluate` accepts several machines.

    Raises:
      FileNotFoundError: the folder holds no run, or the run has no checkpoint.
      ValueError: a file of the run is damaged, or a part of the user is not registered.

    >>> run = rank4class.load("runs/digits")
    >>> run
    Run('...runs/digits', 10 classes, step 102)
    >>> run.class_names
    ('0', '1', '2', '3', '4', '5', '6', '7', '8', '9')
    """

    def __init__(self, workdir: str | os.PathLike, strategy: tf.distribute.Strategy | None = None):
        workdir = os.fspath(workdir)
        if workdir and files.is_local(workdir):  # the program may change its working directory
            workdir = os.path.abspath(workdir)
        self._trained = trained_model.restore(workdir, strategy)
        self.workdir = self._trained.run_dir.path
        self.experiment: config.Experiment = self._trained.experiment
        self.class_names = self._trained.description.class_names
        self.step = self._trained.step
        self.answers = Answers(self._trained)
        self._lock = threading.Lock()
        self._cached_predictor = functools.lru_cache(maxsize=8)(self._new_predictor)

    @property
    def model(self) -> tf.keras.Model:
        """The Keras model, of preprocessed features; `run.model.save("model.keras")` saves it.

        The run predicts with the class vectors that it was loaded with.
        """
        return self._trained.model

    def __repr__(self) -> str:
        of_list = "items in the longest list" if self.answers.has_items else "classes"
        return f"Run({self.workdir!r}, {len(self.class_names)} {of_list}, step {self.step})"

    def _repr_html_(self) -> str:
        return run_html.render(repr(self), self.results, self.history, self.experiment.monitor)

    @property
    def results(self) -> dict[str, Any] | None:
        """The content of `results.json`; None before the run is finished."""
        return self._trained.run_dir.results()

    @property
    def history(self) -> pd.DataFrame:
        """A row for each evaluation: step, training loss, learning rate and validation metrics.

        >>> rank4class.load("runs/digits").history[["step", "ndcg@5"]].round()
           step  ndcg@5
        0    34    ...
        1    68    ...
        2   102    ...
        """
        return pd.DataFrame(self._trained.run_dir.history())

    def predict(
        self,
        inputs: Iterable[Any],
        k: int | None = None,
        coverage: float | None = None,
        prior: str | os.PathLike | None = None,
    ) -> pd.DataFrame:
        """Predicts the best classes of some inputs, or sets that contain their classes.

        Args:
          inputs: texts, or pairs of texts; paths of images; names of ids; or an array of vectors or images
            `[N, ...]`, or of the items of each list, with numbers in the range of the training data. A
            warning counts the texts that are empty or white space. For a model of a table's columns also a
            DataFrame with these.
          k: number of classes per input; None is 5, or all if there are fewer, and all items of a list. With
            a coverage None are the classes of each prediction set, which may be empty.
          coverage: in (0, 1), the probability with which a prediction set contains the class of an input; of
            several classes, the expected share of them in the set. See `prediction_sets.PredictionSets`.
          prior: class frequencies of the inputs, "uniform" or a file with one class per line: name, tab,
            frequency; None are those of the training. See `Answers.score`.

        Returns:
          A frame with a row for each input and class, the best first: "input", the input's index, "rank",
          "class", "score", and "probability" if the model is calibrated; with `k` and a coverage, thresholds
          or a count prior also "in_set", whether the class is decided; and if the run detects unknown inputs
          "unknown" and "p_value" of the input, see `detector.Detector`.

        Raises:
          ValueError: an input that the model does not take, or a coverage or prior that does not fit the run.

        >>> run = rank4class.load("runs/digits")
        >>> images = data.get("digits").splits["test"].features["image"]  # float32 [360, 8, 8, 1]
        >>> predictions = run.predict(images[1:3], k=2)
        >>> list(predictions.columns)
        ['input', 'rank', 'class', 'score', 'probability']
        >>> predictions[predictions["rank"] == 1][["input", "class"]]
           input class
        0      0     8
        2      1     6
        """
        predicted_k = prediction_files.default_k(k, coverage, self.class_names)
        predictor = self._predictor(predicted_k, False, coverage, prior)
        predictions = predictor(self._raw(inputs), self._batch_size, BadRows("fail", None))
        if self.answers.has_items and k:
            predictions = (each.first(k) for each in predictions)
        return prediction.frame(predictions, predictor.outputs)

    def predict_file(
        self,
        path: str | os.PathLike,
        output: str | os.PathLike | None = None,
        *,
        k: int | None = None,
        coverage: float | None = None,
        max_set_size: int | None = None,
        prior: str | os.PathLike | None = None,
        exclude_known: bool = False,
        text_column: str | None = None,
        text_pair_column: str | None = None,
        on_invalid_row: str = "fail",
        batch_size: int | None = None,
        wide: bool = False,
        keep: Sequence[str] | None = None,
        neighbors: int | None = None,
        informative: int | None = None,
    ) -> tuple[int, list[str]]:
        """Predicts the inputs of a file or folder, in constant memory.

        Args:
          path: see `data.Kind.read`.
          output: see `prediction_files.write`; None prints TSV.
          k, coverage, prior: see `predict`.
          max_set_size: adds `abstain`, whether a prediction set is larger or empty; None does not.
          exclude_known: whether to leave out the items that a user is known to have.
          text_column, text_pair_column: of the texts or ids in a file with columns; None are those of the
            training.
          on_invalid_row: "fail" stops at an input that cannot be used, "skip" skips it.
          batch_size: inputs per call of the model on a device; None is `evaluation_batch_size` of the run, or
            fewer for many classes.
          wide: whether the output has a column for each class; see `prediction_files.write`.
          keep: columns of a table of inputs to write beside `input`, such as `["text"]`; `["*"]` keeps all;
            None keeps "id", if there is one.
          neighbors: number of training examples to write beside each input, see `neighbors`; or None.
          informative: writes this number of inputs alone, those whose labels would teach the model most, see
            `labeling.choose_indices`, with all columns and an empty one for the label; or None. The
            probabilities of all inputs are then in memory.

        Returns:
          The number of predictions, and a message for each skipped input.

        Raises:
          FileNotFoundError, ValueError: no input can be used, an argument does not fit the inputs, or the
            output is the input or in its folder.
          OSError: the output cannot be written.
        """
        arguments.check_positive(batch_size=batch_size)
        written = prediction_files.FileOutput(
            path,
            output,
            self.class_names,
            self.answers.has_items,
            self._trained.description.multi_label,
            k,
            coverage,
            max_set_size,
            wide,
            keep,
            informative,
        )
        path = os.fspath(path)
        model_inputs = self.answers.inputs
        kind = model_inputs.kind
        selected = (("text_column", text_column), ("text_pair_column", text_pair_column))
        text_columns = {name: column for name, column in selected if column is not None}
        kind.check_columns(path, **text_columns)
        bad_rows = BadRows(on_invalid_row, "on_invalid_row")
        columns = model_inputs.file_columns(self.experiment.data.options() | text_columns)
        ids = self._trained.description.instance_ids
        inputs = kind.read(path, self.answers.specs, bad_rows, columns, ids)
        predictor = self._predictor(written.predicted_k, exclude_known, coverage, prior, neighbors)
        predictions = predictor(inputs, batch_size or self._batch_size, bad_rows)
        return written.write(predictions, columns, bad_rows), bad_rows.messages

    def neighbors(self, inputs: Iterable[Any], k: int = 5) -> pd.DataFrame:
        """Returns the nearest training examples of some inputs, by the cosine of the model's vectors.

        The first call encodes the training data, and writes `neighbors.npz` to the run's folder; see
        `TrainedModel.neighbors` for its errors, and `predict` for the inputs.

        Returns:
          A frame with a row for each input and one of `k` examples, the nearest first: "input", the input's
          index, "rank", "neighbor", the text or path of the example, or where it was read, "class", its
          classes joined by ", ", and "similarity", the cosine.

        >>> images = data.get("digits").splits["test"].features["image"]
        >>> rank4class.load("runs/digits").neighbors(images[1:2], k=2)[["rank", "class"]]
           rank class
        0     1     8
        1     2     8
        """
        return prediction.neighbors_frame(self.outputs(inputs, neighbors=k))

    def store_neighbors(self, dataset: data.Dataset | None = None) -> None:
        """Writes what `neighbors` needs, of the training data, or of the same dataset in memory."""
        self._trained.neighbors(1, dataset)

    def scores(self, inputs: Iterable[Any]) -> np.ndarray:
        """Returns the scores of all classes for some inputs, float32 `[N, n]`; see `predict`.

        For lists of items, `n` is the length of the longest list, and scores after the end of a list are
        minus infinity.

        >>> images = data.get("digits").splits["test"].features["image"]
        >>> scores = rank4class.load("runs/digits").scores(images)
        >>> scores.shape
        (360, 10)
        """
        return self.outputs(inputs)["scores"]

    def outputs(
        self, inputs: Iterable[Any], coverage: float | None = None, neighbors: int | None = None
    ) -> dict[str, np.ndarray]:
        """Returns the `scores`, and by name the other outputs of `Answers.score`, such as "probabilities".

        With a `coverage`, see `predict`, there are sets, and with `neighbors` those of `Neighbors.find`.
        """
        predictor = self._predictor(prediction.ALL, False, coverage, None, neighbors)
        outputs = list(predictor(self._raw(inputs), self._batch_size, BadRows("fail", None)))
        return prediction.stacked(outputs, len(self.class_names))

    def evaluate(
        self, path: str | os.PathLike | None = None, *, split: str = "test", on_invalid_row: str = "fail"
    ) -> dict[str, Any]:
        """Evaluates the model; returns the metrics with their intervals, as in `results.json`.

        Args:
          path: a labeled file or folder of the layout of the training data; None are the training data.
          split: "train", "validation" or "test" of the training data; without a path.
          on_invalid_row: "fail" or "skip" for rows of the file that cannot be used.

        Raises:
          FileNotFoundError, ValueError: the data cannot be loaded, have other classes, or have changed since
            the training.

        >>> metrics = rank4class.load("runs/digits").evaluate()
        >>> metrics["examples"], metrics["top1_error"] < 10.0  # percent
        (360, True)
        >>> low, high = metrics["intervals"]["top1_error"]
        >>> low < metrics["top1_error"] < high
        True
        """
        return self._evaluated(split, path, on_invalid_row)[1].summarize()

    def evaluate_examples(self, split: str = "test", path: str | os.PathLike | None = None) -> pd.DataFrame:
        """Returns the metrics of each example of a split or a labeled file; fractions are in 0..1."""
        _, result = self._evaluated(split, path)
        return pd.DataFrame(result.values, columns=list(result.names))

    def predictions(self, split: str = "test") -> pd.DataFrame:
        """Returns a row for each example of a split, with its true and its predicted class.

        Its columns are "example", "class", "predicted", "rank" of the class, "predicted score", and of a
        calibrated run "probability" of the class and "predicted probability".

        >>> table = rank4class.load("runs/digits").predictions()
        >>> pd.crosstab(table["class"], table["predicted"]).shape  # the confusion matrix
        (10, 10)
        """
        task_data, result = self._evaluated(split, keep_scores=True, best=1)
        return worst_examples.frame(result, task_data.splits[split], task_data.scored_class_names(split))

    def _evaluated(
        self, split: str, path: Any = None, on_invalid_row: str = "fail", **options: Any
    ) -> tuple[TaskData, EvaluationResult]:
        arguments.check_choice(SPLITS, split=split)
        task_data = self._trained.load(path, on_invalid_row)
        return task_data, self._trained.evaluate(task_data, split, **options)

    @property
    def data_hashes(self) -> dict[str, str]:
        """Hashes of the classes, of the examples of each split, and of files of weights."""
        return self._trained.run_dir.data_hashes()

    def export(
        self,
        folder: str | os.PathLike,
        k: int | None = None,
        *,
        coverage: float | None = None,
        index: str = "exact",
        format: str = "saved_model",
        neighbors: int | None = None,
        quantize: str = "none",
        max_loss: float | None = None,
    ) -> dict[str, Any] | None:
        """Exports the model; returns the report of an ONNX model, see `onnx_export.save`, or None.

        Args:
          folder: must not exist.
          k: number of classes per input; None is 5, or all if there are fewer, and all with a coverage. Of
            lists of items, all are ranked.
          coverage: of the prediction sets that `in_set` and `set_size` return, see `predict`; None returns
            the classes decided by thresholds or a count prior, if there are any.
          index: "exact" scores all classes, "scann" searches them; see `approximate.ApproximateAnswers`.
          format: "saved_model" exports the whole model, see `saved_model.save`; "onnx" one of texts for
            programs without TensorFlow, see `onnx_export.save`, without `k`, `index` and `neighbors`;
            "huggingface" the text encoder alone, and "static" static vectors that imitate it, see
            `text_encoder.save`, both without these and `coverage`.
          neighbors: number of training examples, which the export then holds, beside each answer; or None.
          quantize: "none", or "int8" for eight bits in the encoder of an ONNX model.
          max_loss: largest loss of top-1 error by the quantization, in points; None is any.

        Raises:
          FileExistsError: the folder exists.
          ValueError, ImportError, OSError: see there.

        >>> rank4class.load("runs/digits").export("models/digits/1", k=3)
        >>> model = tf.saved_model.load("models/digits/1")
        >>> images = tf.constant(data.get("digits").splits["test"].features["image"][:2])
        >>> model.signatures["classify"](image=images)["classes"].shape
        TensorShape([2, 3])
        """
        options = k, coverage, index, format, neighbors, quantize, max_loss
        return exporting.export(self._trained, folder, *options)

    @property
    def _batch_size(self) -> int:
        """Inputs per call of the model, whose scores of all classes are in memory together."""
        return evaluator.batch_size(self.experiment.evaluation_batch_size, len(self.class_names))

    def _answers(self, *options: Any) -> Answers:
        return self.answers if set(options) == {None} else Answers(self._trained, *options)

    def _predictor(
        self,
        k: int | None,
        exclude_known: bool,
        coverage: float | None,
        prior: Any,
        neighbors: int | None = None,
    ) -> Predictor:
        frequencies = None if prior is None else class_frequencies.read(prior, self.class_names)
        with self._lock:  # or each thread would trace another function
            return self._cached_predictor(k, exclude_known, coverage, frequencies, neighbors)

    def _new_predictor(self, k: int | None, exclude_known: bool, *answers: Any) -> Predictor:
        known = description.read_known(self._trained.run_dir.model) if exclude_known else None
        return Predictor(self._answers(*answers), k, known, self._trained.strategy)

    def _raw(self, inputs: Iterable[Any]) -> Iterator[data.RawInput]:
        return prediction.named_inputs(inputs, self.answers, self._trained.description.instance_ids)


def train(
    experiment: config.Experiment,
    workdir: str | os.PathLike,
    *,
    dataset: data.Dataset | None = None,
    strategy: tf.distribute.Strategy | None = None,
    progress: bool = True,
) -> Run:
    """Trains an experiment, or resumes an interrupted run of it; returns the finished run.

    The folder is that of the run. The other arguments and the errors are those of `rank_training.train`.

    >>> import rank4class
    >>> from rank4class.pipelines import config
    >>> experiment = config.Experiment(
    ...     data=config.Data("digits"),
    ...     encoder=config.Encoder("mlp", hidden=(32,)),
    ...     loss=config.Loss("softmax"),
    ...     optimizer=config.Optimizer("adam", learning_rate=0.01),
    ...     epochs=3.0,
    ... )
    >>> run = rank4class.train(experiment, "runs/digits", progress=False)
    >>> run.results["test"]["top1_error"] < 10.0  # percent
    True
    >>> other = config.override(experiment, {"loss.name": "approx_ndcg"})
    >>> run = rank4class.train(other, "runs/digits_ndcg", progress=False)
    """
    rank_training.train(
        experiment,
        workdir,
        dataset=dataset,
        strategy=strategy,
        progress=progress,
        draw=plots.draw_evaluation,
        report=run_page.write,
    )
    return Run(workdir)


def load(workdir: str | os.PathLike, strategy: tf.distribute.Strategy | None = None) -> Run:
    """Loads a run to predict, evaluate and export with; see `Run`.

    >>> rank4class.load("runs/digits").step
    102
    >>> rank4class.load("runs/nowhere")
    Traceback (most recent call last):
    ...
    FileNotFoundError: ...runs/nowhere: no such folder. Give the --workdir of a training.
    """
    return Run(workdir, strategy)


def compare(
    runs: Sequence[Run | str | os.PathLike], split: str = "test", path: str | os.PathLike | None = None
) -> pd.DataFrame:
    """Compares runs with the first of them, example by example.

    Args:
      runs: at least two, or their folders, which rank the same classes of the same examples.
      split: to evaluate on.
      path: a labeled file or folder to evaluate on in place of a split.

    Propensity-scored metrics are compared only between runs of the same training examples and propensity.

    Returns:
      A frame with a row for each other run and metric of both: "run", its index; "metric"; "first" and
      "second", the means; "difference", second minus first, with its 95% interval "low" to "high"; "p_value".

    Raises:
      ValueError: a single run, or runs of different examples or without a metric in common.

    >>> comparison = rank4class.compare(["runs/digits", "runs/digits_ndcg"]).set_index("metric")
    >>> list(comparison.index)
    ['top1_error', 'top5_error', 'ndcg@5']
    """
    arguments.check_choice(SPLITS, split=split)
    trained = [run._trained if isinstance(run, Run) else trained_model.restore(run) for run in runs]
    return comparison.frame(trained, split, path)
