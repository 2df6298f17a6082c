"""Predictions of raw inputs, one after another in constant memory."""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse
import tensorflow as tf
from absl import logging

from rank4class import compat, data
from rank4class.data.readers.rows import BadRows
from rank4class.pipelines.export.answers import Answers

Numbered = tuple[int, data.RawInput]
ALL: Any = object()  # in place of a number of classes
SORTED_BATCHES = 16  # number of batches of texts that are sorted by length at a time


class Prediction(NamedTuple):
    """The answer to one input: its best classes, the best first, or the positions of its items, from 1."""

    name: str  # of the input
    classes: list[str]
    scores: np.ndarray  # float32 `[k]`
    probabilities: np.ndarray | None = None  # float32 `[k]`; None for a model without calibration
    set_size: int | None = None  # of all decided classes; None without coverage, count prior and thresholds
    in_set: np.ndarray | None = None  # whether each of the best classes is decided, bool `[k]`; or None

    def first(self, k: int) -> "Prediction":
        """Returns the prediction with the `k` best alone."""
        probabilities = None if self.probabilities is None else self.probabilities[:k]
        return self._replace(classes=self.classes[:k], scores=self.scores[:k], probabilities=probabilities)


class Predictor:
    """Predictions of raw inputs, in their order.

    Texts of similar lengths are predicted together, since a batch is padded to its longest text. Each replica
    predicts separate batches, so that the predictions do not depend on the number of replicas.

    Args:
      answers: the model.
      k: number of classes per prediction, or None for the classes of its prediction set; of lists of items,
        all are ranked. `ALL` predicts the outputs of `Answers.score`, name -> array.
      known: bool `[num_ids, n]`, the classes to leave out of the predictions of each id; None ranks all.
      strategy: of the model, on one machine.
    """

    def __init__(
        self,
        answers: Answers,
        k: int | None,
        known: scipy.sparse.csr_array | None,
        strategy: tf.distribute.Strategy,
    ):
        if k is not None and k is not ALL:
            answers.check_k(k)
        self._k, self._known, self._num_classes = k, known, len(answers.class_names)
        self._replicas = strategy.num_replicas_in_sync
        self._kind, preprocess = answers.inputs.kind, answers.inputs.preprocess
        self._lengths_of = preprocess.padded_lengths if self._kind.tokenizes else None

        def answer_batch(features: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            if k is ALL:
                results = answers.score(features)
                ranked = tf.where(features.get("excluded", False), -np.inf, results["scores"])
                return {**results, "scores": ranked}
            if answers.has_items:
                return answers.rank(features)
            return answers.classify_sets(features) if k is None else answers.classify(features, k)

        signature = [answers.specs_of_batch(known is not None)] * self._replicas

        @tf.function(input_signature=[signature], autograph=False)
        def answer(batches: list[dict[str, tf.Tensor]]) -> dict[str, Sequence[tf.Tensor]]:
            features = strategy.experimental_distribute_values_from_function(
                lambda context: batches[context.replica_id_in_sync_group]
            )
            results = strategy.run(answer_batch, args=(features,))
            return {name: strategy.experimental_local_results(values) for name, values in results.items()}

        self._answer = answer
        # The names of the model's outputs; this traces it now, once for all threads.
        self.outputs = frozenset(answer.get_concrete_function().structured_outputs)

    def __call__(self, inputs: Iterable[data.RawInput], batch_size: int, bad_rows: BadRows) -> Iterator[Any]:
        """Yields the predictions of inputs, `batch_size` of them per call of the model on a replica.

        A warning at the end counts the texts that are empty or white space.

        ValueError: `bad_rows` does not skip an input that cannot be decoded, or scores are not finite.
        """
        inputs, empty = iter(inputs), 0
        batches = self._replicas if self._lengths_of is None else SORTED_BATCHES
        while window := list(itertools.islice(inputs, batch_size * batches)):
            empty += sum("text" in each and not each["text"].strip() for _, each in window)
            yield from self._predict_window(window, batch_size, bad_rows)
        if empty:
            logging.warning("%s texts are empty or white space, and are predicted like others", f"{empty:,}")

    def _predict_window(
        self, window: list[data.RawInput], batch_size: int, bad_rows: BadRows
    ) -> Iterator[Any]:
        """Yields the predictions of inputs in their order, computed in the order of their lengths."""
        numbered = list(enumerate(window))
        if self._lengths_of is not None:
            lengths = self._lengths_of(self._kind.stack([features for _, features in window])).numpy()
            numbered.sort(key=lambda pair: lengths[pair[0]])
        batches = [numbered[first : first + batch_size] for first in range(0, len(window), batch_size)]
        predictions: dict[int, Any] = {}
        for first in range(0, len(batches), self._replicas):
            predictions |= self._predict(batches[first : first + self._replicas], bad_rows)
        yield from (predictions[i] for i in sorted(predictions))

    def _predict(self, group: list[list[Numbered]], bad_rows: BadRows) -> Iterator[tuple[int, Any]]:
        """Yields the predictions, with their numbers, of at most as many batches as there are replicas."""
        features = [self._features(batch) for batch in group]
        idle = self._replicas - len(group)  # they repeat the first batch
        try:
            results = self._answer([*features, *features[:1] * idle])
            arrays = {name: [values.numpy() for values in each] for name, each in results.items()}
        except data.UNREADABLE as error:
            # One by one, to name the input.
            parts = [[batch] for batch in group] if len(group) > 1 else [[[raw]] for raw in group[0]]
            if len(parts) > 1:
                for part in parts:
                    yield from self._predict(part, bad_rows)
                return
            [[(_, (name, _))]] = group
            with bad_rows.row():
                raise ValueError(f"{name}: cannot be read: {compat.reason(error)}.") from error
            return
        for i, batch in enumerate(group):
            for j, (number, (name, values)) in enumerate(batch):
                of_input = {key: each[i][j] for key, each in arrays.items()}
                if self._k is ALL:
                    yield number, of_input
                else:
                    yield number, _prediction(name, values, of_input, self._num_ranked(values, of_input))

    def _num_ranked(self, raw: dict[str, Any], result: dict[str, np.ndarray]) -> int:
        """Returns the number of classes of an input that are not excluded, or are in its prediction set."""
        if self._k is None:
            return int(result["set_size"])
        if self._known is None:
            return self._num_classes
        start, end = self._known.indptr[raw["id"] : raw["id"] + 2]
        return self._num_classes - int(end - start)

    def _features(self, batch: list[Numbered]) -> dict[str, Any]:
        features = self._kind.stack([features for _, (_, features) in batch])
        if self._known is not None:
            features["excluded"] = self._known[features["id"]].toarray()
        return features


def stacked(outputs: Sequence[dict[str, np.ndarray]], num_classes: int) -> dict[str, np.ndarray]:
    """Returns name -> `[N, ...]` of all outputs; the scores after the end of a list are minus infinity."""
    if not outputs:
        return {"scores": np.empty([0, num_classes], np.float32)}
    arrays = {name: [each[name] for each in outputs] for name in outputs[0]}
    lengths = list(map(len, arrays["scores"]))
    if min(lengths) < (width := max(lengths)):
        arrays["scores"] = [
            np.pad(scores, (0, width - len(scores)), constant_values=-np.inf) for scores in arrays["scores"]
        ]
    return {name: np.array(rows) for name, rows in arrays.items()}


_COLUMNS = {"probabilities": "probability", "in_set": "in_set"}  # of optional outputs of a model


def frame(predictions: Iterable[Prediction], outputs: Collection[str]) -> pd.DataFrame:
    """Returns a row for each input and class; see `Run.predict` and `Predictor.outputs`."""
    present = (column for output, column in _COLUMNS.items() if output in outputs)
    return pd.DataFrame(_rows(predictions), columns=["input", "rank", "class", "score", *present])


def _rows(predictions: Iterable[Prediction]) -> Iterator[dict[str, Any]]:
    for number, prediction in enumerate(predictions):
        for i, (name, score) in enumerate(zip(prediction.classes, prediction.scores, strict=True)):
            row = {"input": number, "rank": i + 1, "class": name, "score": score}
            if prediction.probabilities is not None:
                row["probability"] = prediction.probabilities[i]
            if prediction.in_set is not None:
                row["in_set"] = bool(prediction.in_set[i])
            yield row


def named_inputs(inputs: Iterable[Any], answers: Answers, ids: Mapping[str, int]) -> Iterator[data.RawInput]:
    """Yields inputs with their place as the name; see `data.Kind.features_of`."""
    if isinstance(inputs, str | bytes):
        raise ValueError(f"inputs={inputs[:80]!r}: a single text. Give a list of inputs.")
    if isinstance(inputs, pd.DataFrame) and (columns := answers.inputs.columns):
        frame = inputs.rename(columns=str)
        if missing := [name for name in columns if name not in frame]:
            raise ValueError(f"inputs: no column {missing[0]!r}, which the model takes. Add it.")
        inputs = frame[list(columns)].to_numpy(np.float32)
    if isinstance(inputs, pd.DataFrame | Mapping) or not isinstance(inputs, Iterable):
        raise ValueError(f"inputs: a {type(inputs).__name__}. Give a list of inputs, such as a column.")
    for i, value in enumerate(inputs):
        yield f"inputs[{i}]", answers.inputs.kind.features_of(value, answers.specs, ids, f"inputs[{i}]")


def _prediction(name: str, raw: dict[str, Any], result: dict[str, np.ndarray], num_ranked: int) -> Prediction:
    """Returns the prediction of an input, of whose classes `num_ranked` are not left out."""
    scores = result["scores"]
    is_complete = True
    if "positions" in result:
        size = len(raw["items"])
        classes, scores = [str(1 + position) for position in result["positions"][:size]], scores[:size]
    else:
        keep = scores != -np.inf  # the classes at the end are left out; NaN is kept
        is_complete = np.count_nonzero(keep) == min(len(scores), num_ranked)
        classes, scores = [each.decode() for each in result["classes"][keep]], scores[keep]
    if not (is_complete and np.isfinite(scores).all()):
        raise ValueError(f"{name}: its scores are not finite. Look at the input, or train again.")
    probabilities, in_set = (
        result[key][: len(scores)] if key in result else None for key in ("probabilities", "in_set")
    )
    if probabilities is not None and not np.isfinite(probabilities).all():
        raise ValueError(f"{name}: its probabilities are not finite. Look at the input, or train again.")
    set_size = int(result["set_size"]) if "set_size" in result else None
    return Prediction(name, classes, scores, probabilities, set_size, in_set)
