"""Predictions of raw inputs, one after another in constant memory."""

import functools
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
import tensorflow as tf

from rank4class import compat, data
from rank4class.data.readers.rows import BadRows
from rank4class.pipelines.export import prediction_files
from rank4class.pipelines.export.answers import Answers
from rank4class.pipelines.export.outputs import LISTS, OF_DETECTOR, Prediction

Numbered = tuple[int, data.RawInput]
ALL: Any = object()  # in place of a number of classes
SORTED_BATCHES = 16  # number of batches of texts that are sorted by length at a time


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
        self._k = k
        self._known = known
        self._replicas = strategy.num_replicas_in_sync
        self._kind = answers.inputs.kind
        self._tokenizer = answers.inputs.tokenizer

        def answer_batch(features: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            if k is ALL:
                results = answers.score(features)
                ranked = tf.where(features.get("excluded", False), -np.inf, results["scores"])
                return {**results, "scores": ranked}
            return answers.rank(features) if answers.has_items else answers.classify(features, k)

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

        Warnings at the end count the texts that are empty or white space, and those that are cut.

        ValueError: `bad_rows` does not skip an input that cannot be decoded, or scores are not finite.
        """
        inputs = iter(inputs)
        empty = cut = 0
        tokenizer = self._tokenizer
        limit = tokenizer and tokenizer.most_tokens
        batches = self._replicas if tokenizer is None else SORTED_BATCHES
        while window := list(itertools.islice(inputs, batch_size * batches)):
            empty += sum("text" in each and not each["text"].strip() for _, each in window)
            order = np.arange(len(window))
            if tokenizer is not None:
                lengths = tokenizer.lengths(self._kind.stack([features for _, features in window])).numpy()
                cut += np.count_nonzero(lengths > limit)
                order = np.argsort(lengths, kind="stable")
            yield from self._predict_window(window, order, batch_size, bad_rows)
        prediction_files.warn(empty, cut, limit)

    def _predict_window(
        self, window: list[data.RawInput], order: np.ndarray, batch_size: int, bad_rows: BadRows
    ) -> Iterator[Any]:
        """Yields the predictions of inputs as they stand, computed in another order."""
        numbered = [(i, window[i]) for i in order]
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
                yield number, of_input if self._k is ALL else _prediction(name, values, of_input)

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
    pad = functools.partial(tf.keras.utils.pad_sequences, dtype="float32", padding="post", value=-np.inf)
    return {name: pad(rows) if name == "scores" else np.array(rows) for name, rows in arrays.items()}


def frame(predictions: Iterable[Prediction], outputs: Collection[str]) -> pd.DataFrame:
    """Returns a row for each input and class; see `Run.predict` and `Predictor.outputs`."""
    lists = [name for name in LISTS if name in {"classes", "scores", *outputs}]
    of_inputs = [name for name in OF_DETECTOR if name in outputs]
    rows = (
        (number, rank, *values, *(columns[name] for name in of_inputs))
        for number, columns in enumerate(each.columns for each in predictions)
        for rank, values in enumerate(zip(*(columns[name] for name in lists), strict=True), start=1)
    )
    return pd.DataFrame(rows, columns=["input", "rank", *(LISTS[name] for name in lists), *of_inputs])


def neighbors_frame(outputs: Mapping[str, np.ndarray]) -> pd.DataFrame:
    """Returns a row for each input and training example; see `Run.neighbors`."""
    size, k = outputs["similarities"].shape
    columns: dict[str, Any] = {
        "input": np.repeat(np.arange(size), k),
        "rank": np.tile(np.arange(1, k + 1), size),
    }
    for name, values in (("neighbor", "neighbors"), ("class", "neighbor_classes")):
        columns[name] = [value.decode() for value in outputs[values].ravel()]
    return pd.DataFrame({**columns, "similarity": outputs["similarities"].ravel()})


def named_inputs(inputs: Iterable[Any], answers: Answers, ids: Mapping[str, int]) -> Iterator[data.RawInput]:
    """Yields inputs with their place as the name; see `data.Kind.features_of`."""
    if isinstance(inputs, str | bytes):
        raise ValueError(f"inputs={inputs[:80]!r}: a single text. Give a list of inputs.")
    if isinstance(inputs, pd.DataFrame) and (columns := answers.inputs.columns):
        frame = inputs.rename(columns=str)
        if missing := [name for name in columns if name not in frame]:
            raise ValueError(f"inputs: no column {missing[0]!r}, which the model takes. Add it.")
        inputs = frame[list(columns)].to_numpy(object if "cells" in answers.specs else np.float32)
        if texts := answers.inputs.num_texts:
            inputs = ((*row[:texts], row[texts:]) for row in inputs)
    if isinstance(inputs, pd.DataFrame | Mapping) or not isinstance(inputs, Iterable):
        raise ValueError(f"inputs: a {type(inputs).__name__}. Give a list of inputs, such as a column.")
    for i, value in enumerate(inputs):
        yield f"inputs[{i}]", answers.inputs.kind.features_of(value, answers.specs, ids, f"inputs[{i}]")


def _prediction(name: str, raw: dict[str, Any], result: dict[str, np.ndarray]) -> Prediction:
    """Returns the prediction of an input from its outputs of a model."""
    if "positions" in result:
        keep = np.arange(len(result["scores"])) < len(raw["items"])
        classes = [str(1 + position) for position in result["positions"][keep]]
    else:
        keep = result["scores"] != -np.inf  # the classes at the end are left out; NaN is kept
        classes = [each.decode() for each in result["classes"][keep]]
    best = {key: values[keep] if key in LISTS else values for key, values in result.items()}
    return Prediction.of(name, classes, best)
