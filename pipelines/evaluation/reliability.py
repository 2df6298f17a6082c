"""Reliability of probabilities: calibration error, likelihood and risk-coverage curve.

A prediction is the top class of an example of one class, or each pair of an example and a ranked class if
examples may have several. Its confidence is its probability. Among classes that share the highest score, the
top class is right in the fraction of them that is the example's.

Reference: Geifman, El-Yaniv (2017), "Selective classification for deep neural networks".
"""

import dataclasses
from typing import Any

import numpy as np
import pandas as pd

from rank4class.pipelines.evaluation import statistics
from rank4class.pipelines.evaluation.calibration import Calibration, Labels, Platt, Temperature

BINS = 15  # of equal width in confidence
_BLOCK = 1 << 21  # scores in memory at a time in float64


@dataclasses.dataclass(frozen=True)
class Reliability:
    """The reliability of the probabilities of `N` examples."""

    gaps: np.ndarray  # sums of (right - confidence) of each example's predictions by bin, `[N, BINS]`
    nlls: np.ndarray  # `negative_log_likelihood` of the calibration, `[N]`
    predictions: np.ndarray  # number of each example's predictions, `[N]`
    counts: np.ndarray  # number of predictions by bin, `[BINS]`
    confidences: np.ndarray  # sums of their confidences, `[BINS]`
    top: np.ndarray | None = None  # confidence of the one top class, and whether it is right, `[N, 2]`

    def table(self) -> pd.DataFrame:
        """Returns a row per bin of the reliability diagram, of confidences above "from" and up to "to".

        The means "confidence" and "accuracy", with its Wilson interval, are NaN in an empty bin.
        """
        edges = np.arange(BINS + 1) / BINS
        used = np.where(self.counts > 0, self.counts, np.nan)
        accuracy = (self.confidences + self.gaps.sum(axis=0)) / used
        accuracy = np.clip(accuracy, 0.0, 1.0)  # from rounding errors
        low, high = statistics.wilson(accuracy, self.counts).T
        columns = {"count": self.counts, "confidence": self.confidences / used, "accuracy": accuracy}
        return pd.DataFrame({"from": edges[:-1], "to": edges[1:], **columns, "low": low, "high": high})

    def summarize(self) -> dict[str, Any]:
        r"""Returns "ece" in percent, "nll", "ece_if_calibrated", and "intervals": name -> [low, high].

        "ece" is the expected calibration error $\sum_b (n_b / n) |right_b - confidence_b|$, "nll" the mean.
        Examples of one class have "aurc" in percent too, the area under the `risk_coverage` curve, and
        "aurc_optimal", its value if all right predictions had a higher confidence than the wrong ones.

        The 95% intervals are from a bootstrap of the examples, and None if all resamples are equal. The "ece"
        has none: noise raises it, also that of probabilities that are right. In its place, 95% of the draws
        of labels by a calibrated model with these confidences have an "ece" in "ece_if_calibrated"; see
        `_errors_if_calibrated`.
        """
        columns = np.column_stack([self.nlls, np.ones(len(self.nlls))])
        nll, *nlls = np.divide(*np.vstack([columns.sum(axis=0), *statistics.resampled_sums(columns)]).T)
        intervals = {"nll": np.percentile(nlls, [2.5, 97.5]).tolist()}
        reference = 100.0 * np.percentile(self._errors_if_calibrated(), [2.5, 97.5])
        summary = {"ece": 100.0 * self.ece, "ece_if_calibrated": reference.tolist(), "nll": float(nll)}
        if self.top is not None:
            confidence, right = self.top.T
            errors = 100.0 * (1.0 - right)
            summary["aurc"], intervals["aurc"] = statistics.by_value(_area, -confidence, errors)
            summary["aurc_optimal"], _ = statistics.by_value(_area, errors, errors)
        return {**summary, "intervals": intervals}

    @property
    def nll(self) -> float:
        """The mean negative log-likelihood; see `summarize`."""
        return float(self.nlls.mean())

    @property
    def ece(self) -> float:
        """The expected calibration error, in [0, 1]; see `summarize`."""
        return float(np.abs(self.gaps.sum(axis=0)).sum() / self.counts.sum())

    def _errors_if_calibrated(self) -> np.ndarray:
        """Returns draws of the "ece" of a calibrated model with these confidences, float64 `[R]`.

        The right top classes of a bin have a binomial law with its mean confidence. The pairs of an example
        and its classes depend on one another: their gaps have the normal law whose covariance is the sum of
        the examples' products, those of a calibrated model in the limit of many examples.

        Reference: Bröcker, Smith (2007), "Increasing the reliability of reliability diagrams".
        """
        rng = np.random.default_rng(0)
        draws = statistics.RESAMPLES
        if self.top is None:
            gaps = rng.multivariate_normal(np.zeros(BINS), self.gaps.T @ self.gaps, draws)
        else:
            means = np.clip(self.confidences / np.maximum(self.counts, 1), 0.0, 1.0)
            gaps = rng.binomial(self.counts, means, [draws, BINS]) - self.confidences
        return np.abs(gaps).sum(axis=1) / self.counts.sum()

    def risk_coverage(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the share of at least as confident examples and their error, by confidence, highest first.

        Both are float64 `[V]` in [0, 1].
        """
        assert self.top is not None
        _, groups = np.unique(-self.top[:, 0], return_inverse=True)
        examples = np.bincount(groups).cumsum()
        return examples / examples[-1], np.bincount(groups, 1.0 - self.top[:, 1]).cumsum() / examples


def _area(counts: np.ndarray, errors: np.ndarray) -> np.ndarray:
    r"""Returns $\frac{1}{N} \sum_{k=1}^N e_k / k$ for $e_k$ errors in the first $k$ examples; see `by_value`.

    It is the mean over all orders of examples of equal value.
    """
    ends = counts.cumsum(axis=1)
    rates = errors / np.maximum(counts, 1)
    starts = ends - counts
    before = errors.cumsum(axis=1) - errors
    harmonic = np.append(0.0, np.cumsum(1.0 / np.arange(1, ends.max() + 1)))
    # The sum of (before + rate (k - start)) / k for k from start + 1 to end.
    sums = errors + (before - starts * rates) * (harmonic[ends] - harmonic[starts])
    return sums.sum(axis=1) / ends[:, -1]


@dataclasses.dataclass(frozen=True)
class Calibrated:
    """The reliability of the softmax or sigmoid of raw scores, and of calibrated probabilities."""

    calibration: Calibration
    before: Reliability
    after: Reliability

    def summarize(self) -> dict[str, Any]:
        """Returns "method", "parameters" in words, and "before" and "after"; see `Reliability.summarize`."""
        return {
            "method": self.calibration.method,
            "parameters": self.calibration.describe(),
            "before": self.before.summarize(),
            "after": self.after.summarize(),
        }


def evaluate(
    calibration: Calibration, scores: np.ndarray, labels: Labels, where: np.ndarray | None = None
) -> Calibrated:
    """Returns the reliability of scores before and after a calibration; see `measure`."""
    raw = Temperature(1.0) if calibration.method == "temperature" else Platt((1.0,), (0.0,))
    before, after = (measure(probabilities, scores, labels, where) for probabilities in (raw, calibration))
    return Calibrated(calibration, before, after)


def measure(
    calibration: Calibration, scores: np.ndarray, labels: Labels, where: np.ndarray | None = None
) -> Reliability:
    """Returns the reliability of the probabilities of a calibration; see `calibration.fit`."""
    rows = max(1, _BLOCK // scores.shape[1])
    parts = []
    for first in range(0, len(scores), rows):
        block = slice(first, first + rows)
        of_block = labels[block] if isinstance(labels, np.ndarray) else labels[block].toarray() > 0
        ranked = None if where is None else where[block]
        parts.append(_measure_block(calibration, np.asarray(scores[block], np.float64), of_block, ranked))
    gaps, nlls, predictions, counts, confidences, *top = zip(*parts, strict=True)
    gaps, nlls, predictions, *top = (np.concatenate(each) for each in (gaps, nlls, predictions, *top))
    return Reliability(gaps, nlls, predictions, np.sum(counts, axis=0), np.sum(confidences, axis=0), *top)


def _measure_block(
    calibration: Calibration, scores: np.ndarray, labels: np.ndarray, where: np.ndarray | None
) -> tuple[np.ndarray, ...]:
    """Returns the fields of `measure` for a block; the labels are class ids or bool `[N, n]`."""
    probabilities = calibration.probabilities(scores, where)
    rows: np.ndarray
    if labels.ndim == 1:
        ranked = scores if where is None else np.where(where, scores, -np.inf)
        is_top = ranked == ranked.max(axis=1, keepdims=True)
        rows = np.arange(len(scores))
        confidence = probabilities.max(axis=1)
        right = is_top[rows, labels] / is_top.sum(axis=1)
    else:
        rows, columns = np.nonzero(np.full(scores.shape, True) if where is None else where)
        confidence = probabilities[rows, columns]
        right = labels[rows, columns]
    bins = np.clip(np.ceil(confidence * BINS).astype(int) - 1, 0, BINS - 1)
    gaps = np.bincount(rows * BINS + bins, right - confidence, len(scores) * BINS)
    nlls = calibration.negative_log_likelihood(scores, labels, where)
    predictions = np.bincount(rows, minlength=len(scores))
    counts = np.bincount(bins, minlength=BINS)
    confidences = np.bincount(bins, confidence, BINS)
    top = (np.column_stack([confidence, right]),) if labels.ndim == 1 else ()
    return gaps.reshape(-1, BINS), nlls, predictions, counts, confidences, *top
