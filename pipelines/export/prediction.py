"""Predictions of raw inputs, one after another in constant memory."""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
import tensorflow as tf

from rank4class import data
from rank4class.data.raw_inputs import RawInput
from rank4class.data.readers.rows import BadRows
from rank4class.pipelines.export.answers import Answers

SORTED_BATCHES = 16  # number of batches of texts that are sorted by length at a time


class Prediction(NamedTuple):
    """The answer to one input.

    Attributes:
      name: of the input.
      classes: names of the best classes, the best first; or the positions of all items of the input, from 1.
      scores: their scores, float32 `[k]`.
      probabilities: their probabilities, float32 `[k]`; None for a model without calibration.
      set_size: size of the most probable set of classes, which is the first of them; None without a count
        prior.
    """

    name: str
    classes: list[str]
    scores: np.ndarray
    probabilities: np.ndarray | None = None
    set_size: int | None = None


class Predictor:
    """Predictions of raw inputs, in their order.

    Texts of similar lengths are predicted together, since a batch is padded to its longest text.

    Args:
      answers: the model.
      k: number of classes per prediction; of lists of items, all are ranked.
      known: bool `[num_ids, n]`, the classes to leave out of the predictions of each id; None ranks all.

    Raises:
      ValueError: `k` is out of range.
    """

    def __init__(self, answers: Answers, k: int, known: scipy.sparse.csr_array | None = None):
        answers.check_k(k)
        self._known = known
        self._lengths_of = answers.padded_lengths

        @tf.function(input_signature=[answers.specs_of_batch(known is not None)], autograph=False)
        def answer(features: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            return answers.rank(features) if answers.has_items else answers.classify(features, k)

        self._answer = answer
        answer.get_concrete_function()  # traces it now, once for all threads

    def __call__(
        self, inputs: Iterable[RawInput], batch_size: int, bad_rows: BadRows
    ) -> Iterator[Prediction]:
        """Yields the predictions of inputs.

        Args:
          inputs: see `raw_inputs.read`.
          batch_size: inputs per call of the model.
          bad_rows: the policy for inputs that cannot be decoded.

        Raises:
          ValueError: an input cannot be decoded, or its scores are not finite.
        """
        inputs = iter(inputs)
        batches = SORTED_BATCHES if self._lengths_of is not None else 1
        while window := list(itertools.islice(inputs, batch_size * batches)):
            numbered = list(enumerate(window))
            if self._lengths_of is not None:
                lengths = self._lengths_of(stack([features for _, features in window])).numpy()
                numbered.sort(key=lambda pair: lengths[pair[0]])
            predictions = dict(
                itertools.chain.from_iterable(
                    self._predict(numbered[first : first + batch_size], bad_rows)
                    for first in range(0, len(window), batch_size)
                )
            )
            yield from (predictions[i] for i in sorted(predictions))

    def _predict(
        self, batch: list[tuple[int, RawInput]], bad_rows: BadRows
    ) -> Iterator[tuple[int, Prediction]]:
        """Yields the predictions of numbered inputs, with their numbers."""
        features = stack([features for _, (_, features) in batch])
        if self._known is not None:
            features["excluded"] = self._known[features["id"]].toarray()
        try:
            results = {name: values.numpy() for name, values in self._answer(features).items()}
        except data.UNREADABLE as error:
            if len(batch) > 1:  # one by one, to name the input
                for numbered in batch:
                    yield from self._predict([numbered], bad_rows)
                return
            [(_, (name, _))] = batch
            with bad_rows.row():
                raise ValueError(f"{name}: cannot be read: {data.op_reason(error)}.") from error
            return
        for i, (number, (name, values)) in enumerate(batch):
            of_input = {key: result[i] for key, result in results.items()}
            yield number, _prediction(name, values, of_input)


def stack(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the features of a batch; lists of items are padded, and the padding is excluded."""
    if "items" not in rows[0]:
        return {name: np.array([row[name] for row in rows], _dtype(rows[0][name])) for name in rows[0]}
    sizes = np.array([len(row["items"]) for row in rows])
    items = np.zeros([len(rows), sizes.max(), rows[0]["items"].shape[1]], np.float32)
    for i, row in enumerate(rows):
        items[i, : sizes[i]] = row["items"]
    return {"items": items, "excluded": np.arange(sizes.max()) >= sizes[:, None]}


def _dtype(value: Any) -> Any:
    return object if isinstance(value, str | bytes) else value.dtype


def _prediction(name: str, raw: dict[str, Any], result: dict[str, np.ndarray]) -> Prediction:
    scores = result["scores"]
    if "items" in raw:
        size = len(raw["items"])
        classes, scores = [str(1 + position) for position in result["positions"][:size]], scores[:size]
    else:
        keep = scores > -np.inf  # known classes fill the end where few others are left
        classes, scores = [each.decode() for each in result["classes"][keep]], scores[keep]
    if not np.isfinite(scores).all():
        raise ValueError(f"{name}: its scores are not finite. Look at the input, or train again.")
    if "probabilities" not in result:
        return Prediction(name, classes, scores)
    probabilities = result["probabilities"][: len(scores)]
    set_size = int(result["set_size"]) if "set_size" in result else None
    return Prediction(name, classes, scores, probabilities, set_size)
