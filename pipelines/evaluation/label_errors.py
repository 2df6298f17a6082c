r"""Labels that look wrong, by scores of each example that its own label has no part in.

The scores are those of a ridge regression of the classes on a Gaussian kernel of the examples' vectors, whose
predictions without one example follow in closed form from the fit with all of them.

References:
  Rifkin, Lippert (2007), "Notes on regularized least squares", section 4.
  Williams, Seeger (2001), "Using the Nystroem method to speed up kernel machines", eq. 3.
  Northcutt, Jiang, Chuang (2021), "Confident learning: estimating uncertainty in dataset labels", whose
  thresholds of the classes are a likelihood here.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.optimize
import scipy.sparse
import scipy.special
import sklearn.metrics.pairwise
import sklearn.utils.extmath

from rank4class import data
from rank4class.pipelines.evaluation import calibration
from rank4class.pipelines.task_data.task_data import TaskData

LANDMARKS = 4_096  # examples whose kernels span the regression
STRENGTHS = (0.03, 0.1, 0.3, 1.0, 3.0)  # of the penalty
MAX_UNLIKE = 20  # examples
MAX_LISTED = 10_000  # labels, the most suspicious ones
_BLOCK = 2_048  # examples at a time
_MAX_FITTED = 8_192  # examples by which the strength and the probabilities are fitted
_SIMILARITY = 0.3  # weight of the distance beyond the nearest class mean in the order of the labels
_LEAST = 1e-6  # part of the kernel of an example that no other has, for equal examples


class Suspicions(NamedTuple):
    """Labels that look wrong, the most suspicious first."""

    rows: np.ndarray  # of the examples, int `[K]`
    labels: np.ndarray  # class ids, int `[K]`; -1 where one seems to be missing
    suggested: np.ndarray  # class ids, int `[K]`; -1 where the label seems to be superfluous
    probabilities: np.ndarray  # of the suggested class, or that a label is superfluous, float64 `[K]`


@dataclasses.dataclass(frozen=True)
class Judgement:
    """The labels of `N` examples with one class each; see `judge`."""

    suspicions: Suspicions
    scores: np.ndarray  # high for labels that look wrong, float64 `[N]`; minus infinity without a judgement
    share: float  # of the judged labels, in percent, that are wrong at random
    interval: list[float]  # of 95%
    unlike: np.ndarray  # rows of the `MAX_UNLIKE` examples that are farthest from all class means, int


def pool(task_data: TaskData) -> data.Split:
    """Returns the examples of all splits as one, each of them once, by the vectors of a frozen encoder."""
    splits = list({id(split.labels): split for split in task_data.splits.values()}.values())
    labels = [split.labels for split in splits]
    vectors = [split.features["embedding"] for split in splits]
    origins = [split.origin(i) for split in splits for i in range(len(split))]
    inputs = None
    if splits[0].inputs is not None:
        inputs = np.concatenate([split.inputs for split in splits])
    return data.Split(
        {"embedding": _stacked(vectors)}, _stacked(labels), np.array(origins, object), inputs=inputs
    )


def judge(vectors: Any, labels: np.ndarray, num_classes: int) -> Judgement:
    r"""Judges the labels of examples that have one class each.

    With predictions $f$ of `LeaveOneOut`, $p = \mathrm{softmax}(s f)$ are the probabilities of the true
    class. A label is the true class, or with a probability of $\eta$ any class alike, and so has the
    probability $(1 - \eta) p_j + \eta / n$. Both $s$ and $\eta$ have the highest likelihood of the labels.
    Then $\eta (1 - 1 / n)$ is an estimate of the share of wrong labels. It counts those that name any class
    in full, and those that name a similar class only in part: an example between two classes looks the same.

    Labels are ordered by $-\log p_y \, (1 + 0.3 g)$, with $g$ the squared distance to the mean of their
    class, without the example, beyond the least one to any class, over the standard deviation of such
    distances. Of mistakes that name any class this finds more. Labels are listed if another class is more
    probable. A class of a single example has no judgement.

    Args:
      vectors: float `[N, d]`, an array or a `scipy.sparse.csr_array`.
      labels: class ids, int `[N]`.
      num_classes: `n`, at least 2.

    >>> rng = np.random.default_rng(0)
    >>> labels = np.arange(300) % 3
    >>> vectors = np.eye(3)[labels] + rng.normal(size=[300, 3]) / 5
    >>> labels[[7, 60]] = 0, 2
    >>> judgement = judge(vectors, labels, num_classes=3)
    >>> sorted(judgement.suspicions.rows[:2].tolist()), judgement.suspicions.suggested[:2].tolist()
    ([7, 60], [0, 1])
    """
    size = len(labels)
    counts = np.bincount(labels, minlength=num_classes)
    is_judged = counts[labels] > 1
    one_hot = data.Split({}, labels).class_matrix(num_classes).astype(np.float64)
    regression = LeaveOneOut(vectors, one_hot)
    some = sample(np.flatnonzero(is_judged))
    strength = regression.best_strength(some)
    scale = fit_scale(regression.predict(some, strength), labels[some])
    means = one_hot.T @ vectors / np.maximum(counts, 1)[:, None]
    nearness = _nearness(vectors, labels, counts, means, some)
    spread = nearness.std() or 1.0
    closest = np.full(size, np.inf)
    of_label, of_best, scores = np.zeros(size), np.zeros(size), np.full(size, -np.inf)
    best = labels.copy()
    for rows in blocks(np.flatnonzero(is_judged)):
        log_p = scipy.special.log_softmax(scale * regression.predict(rows, strength), axis=1)
        nearness = _nearness(vectors, labels, counts, means, rows)
        place = (np.arange(len(rows)), labels[rows])
        best[rows] = log_p.argmax(axis=1)
        of_label[rows] = log_p[place]
        of_best[rows] = log_p.max(axis=1)
        closest[rows] = nearness.max(axis=1)
        beyond = (closest[rows] - nearness[place]) / spread
        scores[rows] = -log_p[place] * (1.0 + _SIMILARITY * beyond)
    noise, error = _noise(np.exp(of_label[is_judged]), num_classes)
    order = np.argsort(-scores, kind="stable")
    order = order[best[order] != labels[order]][:MAX_LISTED]
    limits = (np.clip(noise + side * error, 0.0, 1.0) for side in (-1.96, 1.96))
    others = 100.0 * (1.0 - 1.0 / num_classes)
    return Judgement(
        Suspicions(order, labels[order], best[order], np.exp(of_best[order])),
        scores,
        others * noise,
        [others * float(limit) for limit in limits],
        np.argsort(closest, kind="stable")[:MAX_UNLIKE],
    )


def judge_several(vectors: Any, labels: scipy.sparse.csr_array) -> Suspicions:
    """Returns the labels of examples with several classes that look superfluous, and those that look missing.

    The probability of a class is that of `LeaveOneOut`, calibrated by `calibration.fit`. A class is missing
    if it is more probable than not, and superfluous if it is less probable than for any example.

    Args:
      vectors: float `[N, d]`, an array or a `scipy.sparse.csr_array`.
      labels: positive for each class of an example, `[N, n]`.
    """
    is_label = (labels > 0).astype(np.float64)
    regression = LeaveOneOut(vectors, is_label)
    some = sample(np.arange(labels.shape[0]))
    strength = regression.best_strength(some)
    shares = is_label.mean(axis=0)
    calibrated = calibration.fit(regression.predict(some, strength), is_label[some])
    found: list[tuple[np.ndarray, ...]] = []
    for rows in blocks(np.arange(labels.shape[0])):
        has_class = is_label[rows].toarray() > 0.0
        p = calibrated.probabilities(regression.predict(rows, strength))
        wrong = np.where(has_class, 1.0 - p, p)
        places, classes = np.nonzero(np.where(has_class, p < shares, p > 0.5))
        is_present = has_class[places, classes]
        found.append(
            (
                rows[places],
                np.where(is_present, classes, -1),
                np.where(is_present, -1, classes),
                wrong[places, classes],
            )
        )
    columns = [np.concatenate(column) for column in zip(*found, strict=True)]
    order = np.argsort(-columns[-1], kind="stable")[:MAX_LISTED]
    return Suspicions(*(column[order] for column in columns))


class LeaveOneOut:
    r"""Kernel ridge regression, with the predictions for each example by a fit without it.

    With kernels $K$ `[N, m]` of the examples and `m` of them, the landmarks, and $M$ `[m, m]` of any two
    landmarks, the fit minimizes $\|Y - \bar y - (K - \bar k) W\|^2 + \lambda\, \mathrm{tr}(W^T M W)$. It
    has the predictions $F = H Y$ for a matrix $H$ that does not depend on $Y$, so that the prediction for
    example $i$ without it is $(F_i - H_{ii} Y_i) / (1 - H_{ii})$. The width of the kernel is the root mean
    square distance of two examples. The landmarks are drawn without a look at the labels.

    It takes `O(N m (d + m + n))` time for `N` examples of `d` numbers and `n` classes, and `O(m (m + n))`
    memory.

    >>> x = np.array([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2], [5.3]])
    >>> y = scipy.sparse.csr_array(np.eye(2)[[0, 0, 0, 1, 1, 1, 0]])  # the last label is wrong
    >>> LeaveOneOut(x, y).predict(np.arange(7), strength=0.1).argmax(axis=1).tolist()
    [0, 0, 0, 1, 1, 1, 1]
    """

    def __init__(self, vectors: Any, targets: scipy.sparse.csr_array, landmarks: int = LANDMARKS):
        """Fits all strengths at once.

        Args:
          vectors: float `[N, d]`, an array or a `scipy.sparse.csr_array`.
          targets: `[N, n]`.
          landmarks: largest number of them.
        """
        self._vectors = vectors
        self._targets = targets.astype(np.float64)
        size = vectors.shape[0]
        chosen = np.sort(np.random.default_rng(0).permutation(size)[:landmarks])
        self._landmarks = vectors[chosen].astype(np.float64)
        squares = sklearn.utils.extmath.row_norms(self._landmarks, squared=True).mean()
        center = np.asarray(self._landmarks.mean(axis=0))
        self._gamma = 0.5 / max(squares - center @ center, np.finfo(np.float64).tiny)
        among = self._kernels(self._landmarks)
        among[np.diag_indices(len(among))] += _LEAST
        root = scipy.linalg.cholesky(among, lower=True)
        products = np.zeros([len(chosen), len(chosen)])
        sums = np.zeros(len(chosen))
        with_targets = np.zeros([len(chosen), targets.shape[1]])
        for rows in blocks(np.arange(size)):
            kernels = self._kernels(vectors[rows])
            products += kernels.T @ kernels
            sums += kernels.sum(axis=0)
            with_targets += (self._targets[rows].T @ kernels).T
        self._means = np.asarray(self._targets.mean(axis=0))
        products -= np.outer(sums, sums) / size
        with_targets -= np.outer(sums, self._means)
        half = scipy.linalg.solve_triangular(root, products, lower=True)
        whitened = scipy.linalg.solve_triangular(root, half.T, lower=True)
        variances, axes = scipy.linalg.eigh(whitened, driver="evd")
        self._variances = np.maximum(variances, 0.0)
        self._rotation = scipy.linalg.solve_triangular(root, axes, lower=True, trans="T")
        self._shift = sums / size @ self._rotation
        self._products = self._rotation.T @ with_targets

    def predict(self, rows: np.ndarray, strength: float) -> np.ndarray:
        """Returns the predictions for some examples, each without itself, float64 `[K, n]`."""
        [predictions] = self._predictions(rows, (strength,))
        return predictions

    def best_strength(self, rows: np.ndarray) -> float:
        """Returns the strength, of `STRENGTHS`, with the least squared error on some examples."""
        targets = self._targets[rows]
        errors = [np.mean(np.square(each - targets.toarray())) for each in self._predictions(rows, STRENGTHS)]
        return STRENGTHS[int(np.argmin(errors))]

    def _predictions(self, rows: np.ndarray, strengths: tuple[float, ...]) -> Iterator[np.ndarray]:
        coordinates = self._kernels(self._vectors[rows]) @ self._rotation - self._shift
        targets = self._targets[rows]
        for strength in strengths:
            weights = 1.0 / (self._variances + strength)
            own = np.square(coordinates) @ weights + 1.0 / self._vectors.shape[0]
            predictions = coordinates @ (weights[:, None] * self._products) + self._means
            predictions -= targets.multiply(own[:, None]).toarray()
            yield predictions / np.maximum(1.0 - own, 1e-9)[:, None]

    def _kernels(self, vectors: Any) -> np.ndarray:
        vectors = vectors.astype(np.float64)
        return sklearn.metrics.pairwise.rbf_kernel(vectors, self._landmarks, gamma=self._gamma)


def fit_scale(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Returns the scale of the predictions with the highest likelihood, beside a share of random labels."""
    n = predictions.shape[1]

    def loss(parameters: np.ndarray) -> float:
        scale, noise = np.exp(parameters[0]), scipy.special.expit(parameters[1])
        log_p = scipy.special.log_softmax(scale * predictions, axis=1)[np.arange(len(labels)), labels]
        return -float(np.mean(np.log((1.0 - noise) * np.exp(log_p) + noise / n)))

    start = [np.log(1.5 / max(predictions.std(), 1e-9)), -3.0]
    fitted = scipy.optimize.minimize(
        loss, start, method="Nelder-Mead", options={"xatol": 0.01, "fatol": 1e-6}
    )
    return float(np.exp(fitted.x[0]))


def _noise(p: np.ndarray, num_classes: int) -> tuple[float, float]:
    """Returns the most likely share of labels that name any class, and its standard error."""

    def loss(noise: float) -> float:
        return -float(np.mean(np.log((1.0 - noise) * p + noise / num_classes)))

    noise = scipy.optimize.minimize_scalar(loss, bounds=(1e-9, 1.0), method="bounded").x
    slopes = (1.0 / num_classes - p) / ((1.0 - noise) * p + noise / num_classes)
    return float(noise), float(1.0 / np.sqrt(np.square(slopes).sum()))


def _nearness(
    vectors: Any, labels: np.ndarray, counts: np.ndarray, means: np.ndarray, rows: np.ndarray
) -> np.ndarray:
    """Returns negative squared distances to the class means, without the example itself, `[K, n]`."""
    some = vectors[rows].astype(np.float64)
    squares = sklearn.utils.extmath.row_norms(some, squared=True)[:, None]
    distances = squares - 2.0 * (some @ means.T) + np.square(means).sum(axis=1)
    own = counts[labels[rows]]
    distances[np.arange(len(rows)), labels[rows]] *= np.square(own / (own - 1.0))
    return -distances


def sample(rows: np.ndarray) -> np.ndarray:
    """Returns as many random rows as a strength is chosen by, in their order."""
    return np.sort(np.random.default_rng(1).permutation(rows)[:_MAX_FITTED])


def blocks(rows: np.ndarray) -> Iterator[np.ndarray]:
    """Yields rows, as many at a time as fit in memory with their predictions."""
    return (rows[first : first + _BLOCK] for first in range(0, len(rows), _BLOCK))


def _stacked(parts: Sequence[Any]) -> Any:
    """Returns arrays, or sparse ones, below one another."""
    if scipy.sparse.issparse(parts[0]):
        return scipy.sparse.csr_array(scipy.sparse.vstack(parts))
    return np.concatenate(parts)
