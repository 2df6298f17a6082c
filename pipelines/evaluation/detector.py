"""Detection of inputs of no class, at a stated rate of false alarms.

References:
  Lee, Lee, Lee, Shin (2018), "A simple unified framework for detecting out-of-distribution samples and
  adversarial attacks", section 2.1, whose distance counts all directions alike.
  Ren, Fort, Liu, Roy, Padhy, Lakshminarayanan (2021), "A simple fix to Mahalanobis distance for improving
  near-OOD detection", eq. 3 and 4.
  Liu, Wang, Owens, Li (2020), "Energy-based out-of-distribution detection", eq. 4.
  Bates, Candes, Lei, Romano, Sesia (2023), "Testing for outliers with conformal p-values", eq. 2.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
import sklearn.covariance
import sklearn.linear_model
import tensorflow as tf

from rank4class import arguments
from rank4class.pipelines.evaluation import prediction_sets, statistics, unknown_inputs
from rank4class.pipelines.evaluation.thresholds import ROUNDING
from rank4class.pipelines.task_data.task_data import TaskData

NEIGHBOURS = 5  # nearest training examples, over which similarities are averaged
MAX_NEIGHBOURS = 2**13  # training examples that are kept
MAX_WIDTH = 4_096  # of vectors whose directions are computed
MAX_VALUES = 2**26  # numbers in the training vectors from which the covariance is estimated
_BLOCK = 1_024  # examples at a time
_CONTRAST = 0.01  # inverse strength of the penalty of the regression of unknown examples
_SHARES = (0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # of the curve
_LEAST_WEIGHT = 1e-4  # of a direction


class Outputs(NamedTuple):
    """What a model computes of `N` examples: what the detector reads."""

    vectors: np.ndarray  # of the encoder, float32 `[N, d]`
    logits: np.ndarray  # largest score and the logarithm of the sum of all exponentials, float32 `[N, 2]`

    def select(self, rows: np.ndarray) -> "Outputs":
        return Outputs(self.vectors[rows], self.logits[rows])


@dataclasses.dataclass(frozen=True)
class Detector:
    r"""P-values of the hypothesis that an input is like the calibration examples.

    Four scores are high for known inputs: the largest score of a class $\max_j s_j$, $\log \sum_j \exp s_j$,
    the mean cosine of the vector with its `NEIGHBOURS` nearest training examples, and the negative distance

    $$-\min_j \sum_k \frac{b_k}{1 + b_k} (z_k - m_{jk})^2$$

    to the nearest class mean $m_j$ in coordinates $z$ with the covariance 1 within classes and $b_k$ between
    them, so that directions that no class uses are left out. The relative distance of Ren et al. subtracts
    them, by a covariance that is estimated apart: where the two differ, inputs far away have the smallest
    distance of all. If there are unknown examples, a fifth score is that of a logistic regression, in which
    known and unknown examples have the same total weight. With $r_k$ calibration examples, out of $m$, of at
    most the $k$-th score of an input, its sum is $\sum_k \log ((1 + r_k) / (1 + m))$. With $r$ calibration
    examples of at most this sum, its p-value is $(1 + r) / (1 + m)$.

    If the calibration examples and an input are exchangeable, the p-value is at most $\alpha$ with a
    probability of at most $\alpha$, for each $m$ and any distribution of the scores. For sums of ranks among
    all $m + 1$ examples this is the law of a rank. The sums of the calibration examples here leave the input
    out of their ranks, so they are smaller or equal, and the p-value is larger or equal. Nothing follows for
    inputs of other kinds.

    A p-value takes `O(d (r + k) + r n)` operations, for `r < min(d, n)` directions and `k` kept examples. The
    arrays are NumPy's, or variables in an export.

    >>> rng = np.random.default_rng(0)
    >>> classes = np.eye(3)[np.arange(600) % 3]  # three groups of points, 5 apart
    >>> points = np.float32(5 * classes + 0.5 * rng.normal(size=[600, 3]))
    >>> outputs = Outputs(points, logits_of(points).numpy())
    >>> detector = fit(points[:300], np.arange(300) % 3)
    >>> detector = detector.calibrated(detector.scores_of(outputs.select(np.arange(300, 500))), rate=0.05)
    >>> bool((detector.p_values_of(outputs.select(np.arange(500, 600))) <= 0.05).mean() < 0.1)
    True
    >>> between = tf.constant([[5.0, 5.0, 0.0]])
    >>> bool(detector.p_values(between, logits_of(between))[0] <= 0.05)
    True
    """

    rate: float  # largest share of inputs like the calibration examples that are called unknown
    references: Any  # the scores of the calibration examples, each in increasing order, float32 `[s, m]`
    sums: Any  # of the calibration examples, in increasing order, float32 `[m]`
    center: Any  # mean of the training vectors, float32 `[d]`
    directions: Any  # from centered vectors to weighted coordinates, float32 `[d, r]`
    means: Any  # weighted coordinates of the class means, float32 `[n, r]`
    neighbours: Any  # unit vectors of training examples, float32 `[k, d]`
    contrast: Any  # coefficients of a score by which unknown examples are low, float32 `[d]`; may be empty

    @property
    def arrays(self) -> dict[str, Any]:
        """Name -> array of all fields but the rate."""
        return {name: value for name, value in vars(self).items() if name != "rate"}

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Returns all fields, for a file of NumPy's."""
        return {**self.arrays, "rate": np.array(self.rate)}

    @staticmethod
    def from_arrays(arrays: Mapping[str, np.ndarray]) -> "Detector":
        """Returns the detector that `to_arrays` described."""
        return Detector(float(arrays["rate"]), **{n: x for n, x in arrays.items() if n != "rate"})

    def p_values(self, vectors: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        """Returns the p-values of examples, float32 `[B]`, by their `Outputs`.

        They are a millionth smaller, so that those up to a limit are the same whichever way they are rounded.
        """
        sums = _sums(self.references, _raised(self._scores(vectors, logits)), extra=1)
        total = tf.size(self.sums)
        below = tf.searchsorted(tf.convert_to_tensor(self.sums), _raised(sums), side="right")
        return tf.cast(1 + below, tf.float32) / tf.cast(1 + total, tf.float32) * (1.0 - 1e-6)

    def p_values_of(self, outputs: Outputs) -> np.ndarray:
        """Returns the p-values of all examples, float32 `[N]`, in blocks."""
        return _in_blocks(self.p_values, outputs)

    def scores_of(self, outputs: Outputs) -> np.ndarray:
        """Returns the scores of all examples, float32 `[N, s]`, in blocks."""
        return _in_blocks(self._scores, outputs)

    def calibrated(self, scores: np.ndarray, rate: float) -> "Detector":
        """Returns a detector for the `scores_of` calibration examples, `[m, s]`.

        Raises:
          ValueError: the rate needs more examples.
        """
        check_size(len(scores), rate)
        references = np.sort(scores.T, axis=1)
        sums = np.sort(_sums(references, scores, extra=0).numpy())
        return dataclasses.replace(self, rate=rate, references=references, sums=sums)

    def _scores(self, vectors: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        """Returns the scores of examples, float32 `[B, 4]`, or 5, or 2 without vectors.

        All scores of an example are minus infinity if one is not finite.
        """
        if not self.neighbours.shape[0]:
            return _finite(logits)
        vectors = tf.cast(vectors, tf.float32)
        neighbours, means = tf.convert_to_tensor(self.neighbours), tf.convert_to_tensor(self.means)
        cosines = tf.matmul(tf.math.l2_normalize(vectors, axis=1), neighbours, transpose_b=True)
        nearest = tf.math.top_k(cosines, min(NEIGHBOURS, neighbours.shape[0])).values
        z = tf.matmul(vectors - self.center, tf.convert_to_tensor(self.directions))
        products = tf.matmul(z, means, transpose_b=True)
        to_means = tf.reduce_min(tf.reduce_sum(tf.square(means), axis=1) - 2.0 * products, axis=1)
        distances = tf.reduce_sum(tf.square(z), axis=1) + to_means
        scores = [*tf.unstack(logits, axis=1), tf.reduce_mean(nearest, axis=1), -distances]
        if self.contrast.shape[0]:
            scores.append(tf.linalg.matvec(vectors, tf.convert_to_tensor(self.contrast)))
        return _finite(tf.stack(scores, axis=1))


def check(rate: float, task_data: TaskData) -> None:
    """Raises ValueError if the data of a training have no unknown inputs, or too few calibration examples."""
    arguments.check_fraction(False, unknown=rate)
    train = task_data.splits["train"]
    for is_wrong, reason in (
        (train.multi_label, "an example may have several classes"),
        (train.kind.ranks_items, "the items of a list are not classes"),
        (train.kind.has_ids, "the inputs are known by their ids alone"),
    ):
        if is_wrong:
            raise ValueError(f"unknown={rate:g}: {reason}. Leave it out.")
    check_size(len(task_data.splits["calibration"]), rate)


def check_size(size: int, rate: float) -> None:
    """Raises ValueError if a rate needs more calibration examples."""
    needed = prediction_sets.least_examples(1.0 - rate)  # with fewer, no p-value is at most the rate
    if size < needed:
        raise ValueError(
            f"unknown={rate:g}: needs {needed} calibration examples, and there are {size}. "
            "Raise it, data.validation_fraction or sets.fraction, or give more examples."
        )


def logits_of(scores: tf.Tensor) -> tf.Tensor:
    """Returns the `logits` of scores `[B, n]`; see `Outputs`."""
    return tf.stack([tf.reduce_max(scores, axis=1), tf.reduce_logsumexp(scores, axis=1)], axis=1)


def reader(model: tf.keras.Model, batch_size: int, title: str = "") -> Callable[[TaskData, str], Outputs]:
    """Returns a function of a task and a split to the outputs of a rank model for its examples.

    Vectors wider than `MAX_WIDTH`, such as those of words, are left out. A title shows the progress.
    """
    c = model.encode_classes(training=False)

    @tf.function(autograph=False, reduce_retracing=True)
    def outputs(features: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        h = model.encoder(features, training=False)
        scores = model.score(h, features, training=False, class_vectors=c)
        read = h if h.shape[1] <= MAX_WIDTH else h[:, :0]
        return {"vectors": tf.cast(read, tf.float32), "logits": logits_of(scores)}

    def read(task_data: TaskData, split: str) -> Outputs:
        return Outputs(**task_data.without_labels().collect(split, batch_size, outputs, title))

    return read


def fit(train: np.ndarray, labels: np.ndarray, unknown: np.ndarray | None = None) -> Detector:
    """Returns a detector of the vectors of training examples, float `[N, d]`, which is not calibrated.

    It takes `O(N d + MAX_VALUES d + d^3)` time, and memory for a few copies of `MAX_VALUES` numbers.

    Args:
      train: the vectors; of width 0 they are not read.
      labels: the classes of the examples, int `[N]`.
      unknown: vectors of examples of no class, float `[U, d]`, or None.
    """
    empty = {name: np.zeros([0, 0], np.float32) for name in ("directions", "means", "neighbours")}
    empty |= {name: np.zeros(0, np.float32) for name in ("references", "sums", "center", "contrast")}
    if not train.shape[1]:
        return Detector(rate=1.0, **empty)
    _, of_example, counts = np.unique(labels, return_inverse=True, return_counts=True)
    places = (of_example, np.arange(len(train)))
    means = scipy.sparse.csr_array((np.ones(len(train), np.float32), places)) @ train
    means /= counts[:, None].astype(np.float32)
    rng = np.random.default_rng(0)
    some = np.sort(rng.permutation(len(train))[: MAX_VALUES // train.shape[1]])
    center = train.mean(axis=0)
    residuals = train[some] - means[of_example[some]]
    within, _ = sklearn.covariance.ledoit_wolf(residuals, assume_centered=True)
    variances, axes = np.linalg.eigh(within.astype(np.float64))
    least = max(1e-6 * np.var(train[some]), 1e-12)  # where each class has one example, or all are equal
    white = axes / np.sqrt(np.maximum(variances, least))
    coordinates = (means - center) @ white
    between, turns = np.linalg.eigh((coordinates.T * counts / len(train)) @ coordinates)
    weights = np.maximum(between, 0.0) / (1.0 + np.maximum(between, 0.0))
    is_used = weights > _LEAST_WEIGHT
    turns = turns[:, is_used] * np.sqrt(weights[is_used])
    some = np.sort(rng.permutation(len(train))[:MAX_NEIGHBOURS])
    lengths = np.linalg.norm(train[some], axis=1, keepdims=True)
    fitted = {"center": center, "directions": white @ turns, "means": coordinates @ turns}
    fitted["neighbours"] = train[some] / np.maximum(lengths, 1e-12)
    if unknown is not None:
        regression = sklearn.linear_model.LogisticRegression(
            C=_CONTRAST, class_weight="balanced", max_iter=1_000
        )
        scale = train.std()
        regression.fit(
            np.concatenate([train, unknown]) / scale, np.arange(len(train) + len(unknown)) < len(train)
        )
        fitted["contrast"] = regression.coef_[0] / scale
    return Detector(rate=1.0, **empty | {name: np.float32(values) for name, values in fitted.items()})


def fit_out_of_folds(
    train: Outputs, labels: np.ndarray, folds: np.ndarray, rate: float, unknown: np.ndarray | None = None
) -> Detector:
    """Returns a detector that is calibrated by training examples, each by a detector without its fold.

    Args:
      train: outputs of the examples, with the logits of models without their folds.
      labels: their classes, int `[N]`.
      folds: int `[N]`; -1 for examples that calibrate nothing.
      rate: see `Detector`.
      unknown: see `fit`.
    """
    scores = []
    for fold in range(1 + folds.max()):
        rest = folds != fold
        scores.append(fit(train.vectors[rest], labels[rest], unknown).scores_of(train.select(~rest)))
    return fit(train.vectors, labels, unknown).calibrated(np.concatenate(scores), rate)


def measure(detector: Detector, known: np.ndarray, unknown: np.ndarray | None) -> dict[str, Any]:
    """Returns the measures of a detector, in percent, by the p-values of known and of unknown examples.

    Returns:
      "rate", the stated one; "calibration", the number of examples; "known" and "unknown", numbers of
      examples, 0 for None; "false_alarms", the share of known examples that are called unknown; and with
      unknown examples "recall", the share of these that are; "auroc", of telling them apart; and
      "fpr95", the share of them that a limit lets pass which lets 95% of the known examples pass.
      "intervals", name -> [low, high], or None. "curve" has pairs of false alarms and recall at other limits.
    """
    measures = {"false_alarms": _share(known <= detector.rate)}
    curve = []
    if unknown is not None:
        limits = np.quantile(known, _SHARES, method="higher")
        curve = [[100.0 * float((each <= limit).mean()) for each in (known, unknown)] for limit in limits]
        measures["recall"] = _share(unknown <= detector.rate)
        p_values = np.concatenate([known, unknown])
        is_unknown = np.repeat([0.0, 1.0], [len(known), len(unknown)])
        measures["auroc"] = statistics.by_value(unknown_inputs.auroc, -p_values, is_unknown)
        measures["fpr95"] = statistics.by_value(_fpr95, p_values, is_unknown)
    return {
        "rate": 100.0 * detector.rate,
        "calibration": len(detector.sums),
        "known": len(known),
        "unknown": 0 if unknown is None else len(unknown),
        **{name: value for name, (value, _) in measures.items()},
        "intervals": {name: interval for name, (_, interval) in measures.items()},
        "curve": curve,
    }


def _share(is_called: np.ndarray) -> tuple[float, list[float] | None]:
    """Returns a share in percent, and Wilson's interval."""
    share = np.mean(is_called)
    return 100.0 * float(share), (100.0 * statistics.wilson(share, np.array(len(is_called)))).tolist()


def _fpr95(counts: np.ndarray, unknown: np.ndarray) -> np.ndarray:
    """Returns the share in percent, NaN for a resample without known or unknown examples; see `by_value`."""
    known = counts - unknown
    passes = known.cumsum(axis=1) > 0.05 * known.sum(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        return 100.0 * (unknown * passes).sum(axis=1) / unknown.sum(axis=1)


def _sums(references: Any, scores: Any, extra: int) -> tf.Tensor:
    """Returns the sums of the logarithms of the shares of `references` up to each score, float32 `[B]`.

    An `extra` example of 1 is the one itself, which is not among the references.
    """
    references = tf.convert_to_tensor(references)
    below = tf.searchsorted(references, tf.transpose(scores), side="right")
    total = tf.cast(1 + tf.shape(references)[1], tf.float32)
    return tf.reduce_sum(tf.math.log(tf.cast(extra + below, tf.float32) / total), axis=0)


def _finite(scores: tf.Tensor) -> tf.Tensor:
    is_finite = tf.reduce_all(tf.math.is_finite(scores), axis=1, keepdims=True)
    return tf.where(is_finite, scores, -np.inf)


def _raised(values: tf.Tensor) -> tf.Tensor:
    """Returns values with room for the rounding errors of another batch; minus infinity stays."""
    return tf.where(tf.math.is_finite(values), values + ROUNDING * (1.0 + tf.abs(values)), values)


def _in_blocks(function: Callable[..., tf.Tensor], outputs: Outputs) -> np.ndarray:
    blocks = (slice(first, first + _BLOCK) for first in range(0, len(outputs.logits), _BLOCK))
    return np.concatenate([function(*(tf.constant(x[block]) for x in outputs)).numpy() for block in blocks])
