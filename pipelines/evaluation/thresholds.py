"""Thresholds of the scores above which classes are decided, fitted on the validation split.

A registered function rates the thresholds of a class. It takes, for each threshold, the number of examples
above it that have the class, `hits`, and of all above it, `decided`, floats `[T]`, and the number of all that
have the class, `relevant`. The highest rating wins, and of equal ones that of the highest threshold. A class
is never decided if no rating is positive.

Neighboring scores that differ by rounding errors are taken for equal, so that no threshold is between the
scores that an input has in two batches: by less than `ROUNDING` of the largest score, or of many examples by
less than the mean difference.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse
import scipy.stats
import tensorflow as tf

from rank4class import arguments
from rank4class.registry import THRESHOLDS

LEAST = 10  # positive examples that the threshold of a class needs
# A bound on the relative difference of a float32 score between two batches, or an export and its run: the
# largest that was seen is a tenth of it.
ROUNDING = 2.0**-15
_STEPS = 8  # tested thresholds until the number of decided examples has doubled


@THRESHOLDS.register("f1")
def f1(hits: np.ndarray, decided: np.ndarray, relevant: int) -> np.ndarray:
    """The highest F1 score.

    >>> f1(np.array([1.0, 1.0]), np.array([1.0, 2.0]), 2).round(2)
    array([0.67, 0.5 ])
    """
    return 2.0 * hits / (decided + relevant)


@THRESHOLDS.register("precision")
def precision(
    hits: np.ndarray, decided: np.ndarray, relevant: int, at_least: float, confidence: float = 0.0
) -> np.ndarray:
    """The highest recall with a precision of at least `at_least`, in (0, 1).

    With a `confidence` in (0, 1) the class has this precision on new examples too, in that fraction of all
    draws of the fitted ones. Thresholds with `k` decided examples, `k` from a geometric grid, reject a lower
    precision by a binomial test, in sequences that begin at each doubling of `k` and end with a failure.

    References:
      Angelopoulos, Bates, Candès, Jordan, Lei (2021), "Learn then test", fixed sequences
      with several starts.

    >>> precision(np.array([98.0]), np.array([100.0]), 200, at_least=0.9, confidence=0.95)
    array([0.49])
    >>> precision(np.array([95.0]), np.array([100.0]), 200, at_least=0.9, confidence=0.95)
    array([0.])
    """
    arguments.check_fraction(False, at_least=at_least)
    arguments.check_fraction(confidence=confidence)
    is_precise = hits / decided >= at_least
    if confidence:
        first = math.log(1.0 - confidence) / math.log(at_least)  # fewer examples do not suffice
        grid = np.ceil(first * 2.0 ** (np.arange(512) / _STEPS))
        tested = np.searchsorted(decided, grid[grid <= decided[-1]])
        level = (1.0 - confidence) / max(1, math.ceil(len(tested) / _STEPS))
        rejects = scipy.stats.binom.sf(hits[tested] - 1.0, decided[tested], at_least) <= level
        is_precise[:], certain = False, False
        for i, threshold in enumerate(tested):
            certain = rejects[i] and (certain or i % _STEPS == 0)
            is_precise[threshold] |= certain
    return np.where(is_precise, hits / relevant, 0.0)


@THRESHOLDS.register("recall")
def recall(hits: np.ndarray, decided: np.ndarray, relevant: int, at_least: float) -> np.ndarray:
    """The highest precision with a recall of at least `at_least`, in (0, 1)."""
    arguments.check_fraction(False, at_least=at_least)
    return np.where(hits / relevant >= at_least, hits / decided, 0.0)


@dataclasses.dataclass(frozen=True)
class Thresholds:
    """A threshold for each class, or one for all; a class is decided if its score is above it."""

    values: tuple[float, ...]

    def decide(self, scores: tf.types.experimental.TensorLike, where: Any = None) -> tf.Tensor:
        """Returns the decided classes, bool `[B, n]`; `where` is False for excluded classes."""
        decided = tf.cast(scores, tf.float64) > tf.constant(self.values, tf.float64)
        return decided if where is None else decided & where

    def to_json(self) -> dict[str, Any]:
        """Returns the thresholds, of types that JSON has; None is infinity."""
        return {"thresholds": [None if value == math.inf else value for value in self.values]}

    @staticmethod
    def from_json(content: dict[str, Any]) -> "Thresholds":
        """Returns the thresholds that `to_json` described."""
        return Thresholds(tuple(math.inf if value is None else value for value in content["thresholds"]))


def fit(
    rate: Callable[..., np.ndarray],
    scores: np.ndarray,
    labels: scipy.sparse.csr_array,
    where: np.ndarray | None = None,
    least: int = LEAST,
) -> Thresholds:
    """Fits thresholds to scores `[N, n]`, by a registered function with its options.

    Classes with fewer than `least` examples share a threshold, fitted to all of their pairs of example and
    class, or to the pairs of all classes if these pairs have fewer than `least` positives. Examples with a
    score that is not finite are left out. Each class takes `O(N log N)`.
    """
    finite = np.isfinite(scores).all(axis=1)
    ranked = np.repeat(finite[:, None], scores.shape[1], axis=1) if where is None else where & finite[:, None]
    positive = (labels.toarray() > 0) & ranked
    counts = positive.sum(axis=0)
    few = counts < least
    pool = few if counts[few].sum() >= least else np.full_like(few, True)
    shared = pool & ranked
    values = np.full(
        scores.shape[1], _best(rate, scores[shared], positive[shared]) if few.any() else math.inf
    )
    for j in np.flatnonzero(~few):
        values[j] = _best(rate, scores[ranked[:, j], j], positive[ranked[:, j], j])
    return Thresholds(tuple(values.tolist()))


def _best(rate: Callable[..., np.ndarray], scores: np.ndarray, positive: np.ndarray) -> float:
    """Returns the best threshold of scores `[P]`, midway between two of them."""
    if not positive.any():
        return math.inf
    order = np.argsort(-scores, kind="stable")
    scores = np.append(scores[order], -np.inf).astype(np.float64)
    margin = np.abs(scores[:-1]).max() * min(ROUNDING, 1.0 / len(scores))
    last = np.flatnonzero(scores[:-1] - scores[1:] > margin)  # of equal scores
    hits = np.cumsum(positive[order])[last]
    values = rate(hits.astype(np.float64), last + 1.0, int(hits[-1]))
    best = int(np.argmax(values))
    lowest = scores[last[best]]
    next_lower = scores[last[best] + 1]
    if not values[best] > 0.0:
        return math.inf
    below = np.nextafter(lowest - margin, -np.inf)
    return float(below if next_lower == -np.inf else (lowest + next_lower) / 2)
