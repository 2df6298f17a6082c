"""Calibration: probabilities from the scores of ranking losses, fitted on the validation split.

Examples with one class have temperature scaling, those with several classes Platt scaling. Models with a
count prior need none: `losses.ops.set_sizes.marginals` are probabilities.

References:
  Guo, Pleiss, Sun, Weinberger (2017), "On calibration of modern neural networks".
  Platt (1999), "Probabilistic outputs for support vector machines".
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeAlias

import numpy as np
import scipy.optimize
import scipy.sparse
import scipy.special
import tensorflow as tf

MAX_PER_CLASS = 100  # largest number of classes that have a fit each
LEAST_PER_CLASS = 10  # positive and negative examples that a fit of a class needs
MAX_FITTED = 10_000_000  # scores in a fit; of more, it takes a random part of the examples
WEIGHTS = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 5.0, 10.0)  # of added scores
MAX_RANGE = 1e9  # ratio of the scores' spread and the smallest temperature, and of the largest one and both

Labels: TypeAlias = np.ndarray | scipy.sparse.csr_array


class _Parameters:
    method: ClassVar[str]

    def to_json(self) -> dict[str, Any]:
        """Returns the method and its parameters, of types that JSON has; see `from_json`."""
        return {"method": self.method, **vars(self)}


@dataclasses.dataclass(frozen=True)
class Temperature(_Parameters):
    r"""Temperature scaling: $p = \mathrm{softmax}(s / T)$ with positive $T$.

    The scores are `[N, n]`; `where`, bool `[N, n]`, is False for excluded classes.

    >>> Temperature(2.0).probabilities(np.array([[0.0, 2 * np.log(3.0)]])).round(4)
    array([[0.25, 0.75]])
    """

    method = "temperature"
    keeps_order = True  # whether `ranking` has the order of the scores
    temperature: float

    def probabilities(self, scores: np.ndarray, where: np.ndarray | None = None) -> np.ndarray:
        """Returns float64 `[N, n]`: 0 for excluded classes, NaN for scores that are not finite."""
        gaps = _below_highest(scores, where)
        with np.errstate(invalid="ignore"):
            weights = np.exp(gaps / self.temperature)
        return weights / np.maximum(weights.sum(axis=1, keepdims=True), 1.0)

    def apply(self, scores: tf.Tensor, where: tf.Tensor | None = None) -> tf.Tensor:
        """Returns `probabilities` by TensorFlow operations, float32 `[B, n]`, for an exported model."""
        scores = tf.cast(scores, tf.float32)  # TensorFlow Lite has no float64
        if where is not None:
            scores = tf.where(where, scores, scores.dtype.min)
        # The gaps are divided, not the scores: this keeps the precision of large scores.
        gaps = scores - tf.reduce_max(scores, axis=1, keepdims=True)
        return _excluded_to_zero(tf.nn.softmax(gaps / self.temperature), where)

    def ranking(self, scores: tf.Tensor) -> tf.Tensor:
        """Returns float32 `[B, n]` that rank the classes by probability, and equally probable ones by score.

        They are the scores, if that is their order, or NaN for an example with scores that are not finite.
        """
        return tf.cast(scores, tf.float32)

    def negative_log_likelihood(
        self, scores: np.ndarray, labels: np.ndarray, where: np.ndarray | None = None
    ) -> np.ndarray:
        """Returns that of each example, float64 `[N]`, from labels as in `fit`; several are bool `[N, n]`."""
        scaled = _below_highest(scores, where) / self.temperature
        return np.log(np.exp(scaled).sum(axis=1)) - scaled[np.arange(len(labels)), labels]

    def describe(self) -> str:
        """Returns the method and its parameters in a few words."""
        return f"temperature {self.temperature:.4g}"


@dataclasses.dataclass(frozen=True)
class Platt(_Parameters):
    r"""Platt scaling: $p_j = \sigma(a_j s_j + b_j)$, a slope and an intercept for each class or for all.

    See `Temperature` for its methods.

    >>> Platt((1.0,), (0.0,)).probabilities(np.array([[0.0, np.log(3.0)]]))
    array([[0.5 , 0.75]])
    """

    method = "platt"
    slopes: tuple[float, ...]
    intercepts: tuple[float, ...]

    def _logits(self, scores: np.ndarray) -> np.ndarray:
        return np.asarray(scores, np.float64) * self.slopes + self.intercepts

    def probabilities(self, scores: np.ndarray, where: np.ndarray | None = None) -> np.ndarray:
        probabilities = scipy.special.expit(self._logits(scores))
        return probabilities if where is None else np.where(where, probabilities, 0.0)

    def apply(self, scores: tf.Tensor, where: tf.Tensor | None = None) -> tf.Tensor:
        probabilities = tf.sigmoid(self._tf_logits(scores))
        return _excluded_to_zero(tf.cast(probabilities, tf.float32), where)

    @property
    def keeps_order(self) -> bool:
        return len(self.slopes) == 1 and self.slopes[0] >= 0.0

    def ranking(self, scores: tf.Tensor) -> tf.Tensor:
        scores = tf.cast(scores, tf.float32)
        if self.keeps_order:
            return scores
        logits = self._tf_logits(scores)
        by_score = tf.argsort(scores, direction="DESCENDING", stable=True)
        by_logit = tf.argsort(tf.gather(logits, by_score, batch_dims=1), direction="DESCENDING", stable=True)
        order = tf.gather(by_score, by_logit, batch_dims=1)
        ordered = [tf.gather(values, order, batch_dims=1) for values in (logits, scores)]
        is_lower = tf.reduce_any([each[:, 1:] != each[:, :-1] for each in ordered], axis=0)
        places = tf.cumsum(tf.pad(-tf.cast(is_lower, tf.float32), [[0, 0], [1, 0]]), axis=1)
        finite = tf.reduce_all(tf.math.is_finite(scores), axis=1, keepdims=True)
        return tf.where(finite, tf.gather(places, tf.argsort(order), batch_dims=1), np.nan)

    def _tf_logits(self, scores: tf.Tensor) -> tf.Tensor:
        """Returns the logits as float64; they differ where probabilities are rounded to 0 or 1."""
        slopes, intercepts = (tf.constant(values, tf.float64) for values in (self.slopes, self.intercepts))
        return tf.cast(scores, tf.float64) * slopes + intercepts

    def negative_log_likelihood(
        self, scores: np.ndarray, labels: np.ndarray, where: np.ndarray | None = None
    ) -> np.ndarray:
        logits = self._logits(scores)
        values = np.logaddexp(0.0, np.where(labels, -logits, logits))
        return (values if where is None else np.where(where, values, 0.0)).sum(axis=1)

    def describe(self) -> str:
        if len(self.slopes) > 1:
            return f"platt, {len(self.slopes)} classes"
        return f"platt, slope {self.slopes[0]:.4g}, intercept {self.intercepts[0]:.4g}"


Calibration: TypeAlias = Temperature | Platt


def from_json(content: Mapping[str, Any]) -> Calibration:
    """Returns the calibration that `to_json` described."""
    if content["method"] == "temperature":
        return Temperature(content["temperature"])
    return Platt(tuple(content["slopes"]), tuple(content["intercepts"]))


def fit(scores: np.ndarray, labels: Labels, where: np.ndarray | None = None) -> Calibration:
    r"""Fits a calibration to finite scores `[N, n]`.

    Class ids, int `[N]`, have temperature scaling, by the negative log-likelihood over $\log T$. `T` is at
    least the temperature at which the mean probability outside the highest score is `1 / (N + 2)`, the error
    rate by Laplace's rule of succession, and 1 if each example has equal scores.

    A `scipy.sparse.csr_array` `[N, n]`, positive above 0, has Platt scaling: to `(P + 1) / (P + 2)` for `P`
    positive examples, and to `1 / (M + 2)` for `M` negative ones. Up to `MAX_PER_CLASS` classes, each
    class with `LEAST_PER_CLASS` examples of either kind has a separate fit. All others share the fit of all
    pairs of example and class. All slopes are at least 0: a calibration never turns the order of scores.
    """
    if len(scores) > (most := max(1, MAX_FITTED // scores.shape[1])):
        chosen = np.sort(np.random.default_rng(0).choice(len(scores), most, replace=False))
        scores = scores[chosen]
        labels = labels[chosen]
        where = None if where is None else where[chosen]
    if isinstance(labels, np.ndarray):
        return Temperature(_fit_temperature(_below_highest(scores, where), labels))
    positive = labels.toarray() > 0
    ranked = np.full(positive.shape, True) if where is None else where
    curves = [_increasing_platt(scores[ranked], positive[ranked])]
    if scores.shape[1] <= MAX_PER_CLASS:
        curves *= scores.shape[1]
        for j, rows in enumerate(ranked.T):
            of_class = positive[rows, j]
            if min(np.count_nonzero(of_class), np.count_nonzero(~of_class)) >= LEAST_PER_CLASS:
                curves[j] = _increasing_platt(scores[rows, j], of_class)
    slopes, intercepts = zip(*curves, strict=True)
    return Platt(slopes, intercepts)


def weigh(scores: np.ndarray, added: np.ndarray, labels: Labels, where: np.ndarray | None = None) -> float:
    """Returns the weight $w$ at which `scores + w * added` fit the labels best, of `WEIGHTS`.

    It has the least negative log-likelihood by the calibration that `fit` returns: that of a whole split
    varies less from one draw of the examples to another than its errors do.

    Args:
      scores, labels, where: see `fit`.
      added: scores of another model, float `[N, n]`.

    >>> scores = np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    >>> weigh(scores, np.zeros([3, 2]), np.array([1, 0, 0])), weigh(scores, -scores, np.array([0, 1, 0]))
    (0.0, 1.4)
    """
    classes = labels if isinstance(labels, np.ndarray) else labels.toarray() > 0
    likelihoods = []
    for weight in WEIGHTS:
        sums = scores + weight * added
        likelihoods.append(fit(sums, labels, where).negative_log_likelihood(sums, classes, where).mean())
    return WEIGHTS[int(np.argmin(likelihoods))]


def _increasing_platt(scores: np.ndarray, positive: np.ndarray) -> tuple[float, float]:
    """Returns slope and intercept; of scores that are higher for negative examples, the slope is 0."""
    curve = _fit_platt(scores, positive)
    return curve if curve[0] >= 0.0 else _fit_platt(np.zeros(len(scores)), positive)


def _fit_temperature(gaps: np.ndarray, labels: np.ndarray) -> float:
    """Returns the temperature from gaps of `_below_highest` `[N, n]` and class ids `[N]`; see `fit`."""
    spreads = -np.where(np.isfinite(gaps), gaps, 0.0).min(axis=1)
    gaps = gaps[spreads > 0.0]
    labels = labels[spreads > 0.0]
    if not len(labels):
        return 1.0
    scale = np.log(spreads.max())
    lowest = scale - np.log(MAX_RANGE)
    highest = scale + 0.5 * np.log(MAX_RANGE)
    of_label = gaps[np.arange(len(labels)), labels]
    finite = np.where(np.isfinite(gaps), gaps, 0.0)

    def slope(log_t: float) -> float:
        """Derivative of the negative log-likelihood by 1 / T, which increases with 1 / T."""
        weights = np.exp(gaps / np.exp(log_t))
        return float(np.mean((weights * finite).sum(axis=1) / weights.sum(axis=1) - of_label))

    def excess(log_t: float) -> float:
        """Mean probability outside the highest scores, above the least that is allowed."""
        weights = np.exp(gaps / np.exp(log_t))
        outside = np.where(gaps < 0.0, weights, 0.0).sum(axis=1) / weights.sum(axis=1)
        return float(outside.mean()) - 1.0 / (len(labels) + 2)

    log_t = _root(slope, lowest, highest, if_positive=highest, if_negative=lowest)
    if excess(log_t) < 0.0:
        log_t = _root(excess, log_t, highest, if_positive=log_t, if_negative=highest)
    return float(np.exp(log_t))


def _root(
    function: Callable[[float], float], low: float, high: float, *, if_positive: float, if_negative: float
) -> float:
    """Returns the root of a monotone function, or the value for a function without a change of sign."""
    at_low = function(low)
    at_high = function(high)
    if at_low * at_high < 0.0:
        return float(scipy.optimize.brentq(function, low, high, xtol=1e-12, rtol=1e-14))
    return if_positive if at_low + at_high > 0.0 else if_negative


def _fit_platt(scores: np.ndarray, positive: np.ndarray) -> tuple[float, float]:
    """Returns slope and intercept of Platt scaling, for floats `[P]` and bool `[P]`."""
    scores = scores.astype(np.float64)
    ones = np.count_nonzero(positive)
    size = len(positive)
    targets = np.where(positive, (ones + 1) / (ones + 2), 1 / (size - ones + 2))
    constant = float(scipy.special.logit(targets.mean()))
    if np.ptp(scores) == 0.0:
        return 0.0, constant
    mean = scores.mean()
    scale = scores.std()
    inputs = np.stack([(scores - mean) / scale, np.ones(size)])

    def value_and_gradient(weights: np.ndarray) -> tuple[float, np.ndarray]:
        logits = weights @ inputs
        value = np.mean(np.logaddexp(0.0, logits) - targets * logits)
        return float(value), inputs @ (scipy.special.expit(logits) - targets) / size

    def hessian(weights: np.ndarray) -> np.ndarray:
        logits = weights @ inputs
        return (inputs * (scipy.special.expit(logits) * scipy.special.expit(-logits))) @ inputs.T / size

    start = np.array([0.0, constant])
    options = {"gtol": 1e-10}
    slope, intercept = scipy.optimize.minimize(
        value_and_gradient, start, jac=True, hess=hessian, method="trust-exact", options=options
    ).x
    return float(slope / scale), float(intercept - slope * mean / scale)


def _below_highest(scores: np.ndarray, where: np.ndarray | None) -> np.ndarray:
    """Returns the scores minus the highest of their example, float64; minus infinity for excluded classes."""
    scores = np.asarray(scores, np.float64)
    ranked = scores if where is None else np.where(where, scores, -np.inf)
    highest = ranked.max(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        return ranked - np.where(highest == -np.inf, 0.0, highest)


def _excluded_to_zero(probabilities: tf.Tensor, where: tf.Tensor | None) -> tf.Tensor:
    return probabilities if where is None else tf.where(where, probabilities, 0.0)
