"""Prediction sets: the classes of an example that contain its class with a stated probability.

A registered function scores how unusual each class is for an example. A set has the classes whose score is at
most a limit, which split conformal prediction takes from the true classes of calibration examples. If these
and a new example are exchangeable, its set contains its class with at least the stated probability.

The last bits of a score depend on the batch and on the path that computes it. So a limit is above the score
that it comes from by `thresholds.ROUNDING`, relative to one plus its absolute value: inputs that repeat, as
those of a table with few distinct rows, have the same set in training, predictions, exports and a server.

For examples of several classes conformal risk control takes the limit: the expected recall of the set is at
least the stated one. With one class per example, both are the same.

The functions take the probabilities, float32 `[B, n]`, and the places of the classes in the ranking, int32
`[B, n]` from 0, and return scores, float32 `[B, n]`.

References:
  Papadopoulos, Proedrou, Vovk, Gammerman (2002), "Inductive confidence machines for regression".
  Angelopoulos, Bates, Fisch, Lei, Schuster (2024), "Conformal risk control", eq. 4.
  Ding, Angelopoulos, Bates, Jordan, Tibshirani (2023), "Class-conditional conformal prediction with many
  classes".
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import scipy.stats
import sklearn.cluster
import tensorflow as tf

from rank4class import arguments
from rank4class.pipelines.evaluation.calibration import Labels
from rank4class.pipelines.evaluation.thresholds import ROUNDING
from rank4class.registry import SET_SCORES

LEAST_PER_GROUP = 100  # calibration examples of a class, or a cluster of classes, with a separate limit
LEAST_TO_CLUSTER = 10  # calibration examples of a class that is in a cluster
COVERAGES = (*(percent / 100 for percent in range(50, 100, 5)), 0.99)  # that an evaluation measures
_QUANTILES = (0.5, 0.6, 0.7, 0.8, 0.9)  # of the scores of a class, by which classes are clustered
_STEPS = 64.0  # steps of the gap of two log-probabilities, in a unit, that have different draws
_GOLDEN = 0.6180339887  # multiples of it, modulo 1, are spread evenly
_ROUNDING = 1e-9

Block = tuple[Any, Any, Any]  # probabilities and ranking `[B, n]`, and `where`, bool `[B, n]` or None


@SET_SCORES.register("rank")
def rank(probabilities: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
    """The rank of the class: all sets have the same number of classes.

    >>> print(rank(None, tf.constant([[1, 0, 2]])).numpy())
    [[2. 1. 3.]]
    """
    return tf.cast(places + 1, tf.float32)


@SET_SCORES.register("threshold")
def threshold(probabilities: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
    r"""A threshold of the probability: the smallest sets on average, of which some may be empty.

    $$-\log p_j$$

    References:
      Sadinle, Lei, Wasserman (2019), "Least ambiguous set-valued classifiers with bounded error levels".

    >>> print(threshold(tf.constant([[0.5, 0.25, 0.25]]), None).numpy().round(2))
    [[0.69 1.39 1.39]]
    """
    return -tf.math.log(tf.maximum(probabilities, 1e-37))  # infinite scores are in no set


@SET_SCORES.register("adaptive")
def adaptive(
    probabilities: tf.Tensor, places: tf.Tensor, penalty: float = 0.01, free_ranks: int = 5, seed: int = 0
) -> tf.Tensor:
    r"""The probability of better classes, which adapts the size to the example; no set is empty (RAPS).

    $$\sum_{i \prec j} p_i + u\, p_j + \text{penalty} \cdot \max(\text{rank}_j - \text{free\_ranks}, 0)$$

    The draw `u` in [0, 1) is a function of the seed and of the gap between the log-probabilities of the two
    best classes, in steps of 1/64: rounding errors, of some 1e-6, do not change it, so that an example has
    the same set in any batch. The penalty shortens large sets.

    References:
      Angelopoulos, Bates, Malik, Jordan (2021), "Uncertainty sets for image classifiers using conformal
      prediction", algorithm 2.

    >>> scores = adaptive(tf.constant([[0.25, 0.5, 0.25]]), tf.constant([[1, 0, 2]]))
    >>> bool(scores[0, 1] < 0.5 <= scores[0, 0] < 0.75 <= scores[0, 2] < 1.0)
    True
    """
    arguments.check_at_least(0.0, penalty=penalty)
    arguments.check_integer(0, free_ranks=free_ranks)
    arguments.check_seed(seed)
    order = tf.argsort(places)
    best_first = tf.gather(probabilities, order, batch_dims=1)
    before = tf.gather(tf.cumsum(best_first, axis=1, exclusive=True), places, batch_dims=1)
    first, second = tf.unstack(tf.math.log(tf.maximum(best_first[:, :2], 1e-37)), axis=1)
    step = tf.floor(_STEPS * (first - second))
    draw = tf.math.floormod(_GOLDEN * step + np.float32(seed * np.sqrt(2.0) % 1.0), 1.0)
    penalties = penalty * tf.cast(tf.maximum(places + 1 - free_ranks, 0), tf.float32)
    return before + draw[:, None] * probabilities + penalties


@dataclasses.dataclass(frozen=True)
class PredictionSets:
    """Scores of the true classes of calibration examples, from which the limit for any coverage follows.

    The scores are of the `P` pairs of an example and a true class. Classes of one group share a limit.
    """

    name: str  # of the score
    options: Mapping[str, Any]
    # Whether `rank4class calibrate` has fitted them, so that the run's results are of others.
    after_training: bool = dataclasses.field(default=False, kw_only=True)
    values: np.ndarray  # the scores in increasing order, float32 `[P]`
    weights: np.ndarray  # one over the number of classes of the example, float64 `[P]`
    groups: np.ndarray  # int32 `[P]`
    examples: np.ndarray  # number of calibration examples of each group, int64 `[G]`
    class_groups: np.ndarray | None = None  # group of each class, int32 `[n]`; None for a single group

    def limits(self, coverage: float) -> np.ndarray:
        """Returns the largest score in a set, float32 `[n]`, or `[1]` for all classes.

        It is minus infinity where empty sets suffice.

        Raises:
          ValueError: the coverage is not in (0, 1), or needs more calibration examples.
        """
        arguments.check_fraction(False, coverage=coverage)
        limits = np.empty(len(self.examples), np.float32)
        for group, count in enumerate(self.examples.tolist()):
            allowed = count - (count + 1) * coverage + _ROUNDING * count  # missed examples
            if allowed < 0.0:
                of_group = f" of each class or group of classes, and one has {count}"
                of_all = f", and there are {count}"
                raise ValueError(
                    f"coverage={coverage}: needs {least_examples(coverage):,} calibration examples"
                    f"{of_all if len(limits) == 1 else of_group}. Lower it, or calibrate with more."
                )
            values, weights = (each[self.groups == group] for each in (self.values, self.weights))
            total = weights.sum()
            missed = total - np.cumsum(weights)  # with a limit at each value
            score = values[np.argmax(missed <= allowed)]
            limits[group] = -np.inf if total <= allowed else score + ROUNDING * (1.0 + abs(score))
        limits = np.minimum(limits, np.finfo(np.float32).max)  # an infinite score is in no set
        return limits if self.class_groups is None else limits[self.class_groups]

    def scores(
        self, probabilities: tf.Tensor, ranking: tf.Tensor, where: Any = None, *, calibrates: bool = False
    ) -> tf.Tensor:
        """Returns the scores of all classes, float32 `[B, n]`, of which a set has those up to its limit.

        They are infinite for excluded classes, where `where` is False, and for examples that are not finite.
        The best class by "adaptive" has the score 0, so that no set is empty, except in the calibration.
        "rank" does not read the probabilities `[B, n]`. By the ranking, floats `[B, n]`, the best class has
        the highest value, and of equals the first.
        """
        finite = tf.reduce_all(tf.math.is_finite(ranking), axis=1, keepdims=True)
        if where is not None:
            ranking = tf.where(where, ranking, -np.inf)
        order = tf.argsort(ranking, axis=1, direction="DESCENDING", stable=True)
        places = tf.argsort(order, axis=1)
        scores = SET_SCORES[self.name](probabilities, places, **self.options)
        if self.name == "adaptive" and not calibrates:
            scores = tf.where(places == 0, 0.0, scores)
        scores = tf.where(finite & ~tf.math.is_nan(scores), scores, np.inf)
        return scores if where is None else tf.where(where, scores, np.inf)

    def to_json(self) -> dict[str, Any]:
        """Returns the fields, of types that JSON has; `files.to_json` turns infinite scores into null."""
        return {name: v.tolist() if isinstance(v, np.ndarray) else v for name, v in vars(self).items()}

    @staticmethod
    def from_json(content: dict[str, Any]) -> "PredictionSets":
        """Returns the sets that `to_json` described."""
        types = {"weights": np.float64, "groups": np.int32, "examples": np.int64, "class_groups": np.int32}
        lists = {name: content[name] for name in types if content[name] is not None}
        arrays = {name: np.array(values, types[name]) for name, values in lists.items()}
        values = [np.inf if value is None else value for value in content["values"]]
        arrays["values"] = np.array(values, np.float32)
        return PredictionSets(**{**content, **arrays})


def true_scores(name: str, options: Mapping[str, Any], block: Block, labels: Labels) -> np.ndarray:
    """Returns the scores of the pairs of an example and a true class of it, in order, float32 `[P]`."""
    unfitted = PredictionSets(name, options, *[np.zeros(0)] * 4)
    return unfitted.scores(*block, calibrates=True).numpy()[_pairs(labels)]


def _pairs(labels: Labels) -> tuple[np.ndarray, np.ndarray]:
    return (np.arange(len(labels)), labels) if isinstance(labels, np.ndarray) else labels.nonzero()


def fit(
    name: str,
    options: Mapping[str, Any],
    pairs: np.ndarray,
    labels: Labels,
    by_class: bool = False,
    num_classes: int | None = None,
) -> PredictionSets:
    """Returns the sets that the `true_scores` `[P]` of all calibration examples define.

    The labels are class ids, int `[N]`, or for several classes a `scipy.sparse.csr_array` `[N, n]`. An
    example without a class counts as one whose set has recall 1.

    With `by_class`, each class with `LEAST_PER_GROUP` examples has a separate limit. Classes with
    `LEAST_TO_CLUSTER` are clustered by half of their examples, and the other half sets the limit of their
    cluster. All other classes share the limit of their examples; if these are fewer than `LEAST_PER_GROUP`,
    the groups with the fewest examples join them. The coverage holds in each of these groups.
    """
    rows, classes = _pairs(labels)
    size = labels.shape[0]
    weights = 1.0 / np.bincount(rows, minlength=size)[rows]
    groups = [np.arange(len(pairs))]
    class_groups = None
    examples = [size]
    if by_class:
        assert num_classes is not None
        groups, class_groups = _by_class(pairs, classes, num_classes)
        examples = list(map(len, groups))
    groups = [pairs_of[np.argsort(pairs[pairs_of], kind="stable")] for pairs_of in groups]
    ids = np.repeat(np.arange(len(groups), dtype=np.int32), [len(each) for each in groups])
    order = np.concatenate(groups)
    counts = np.array(examples, np.int64)
    return PredictionSets(name, options, pairs[order], weights[order], ids, counts, class_groups)


@dataclasses.dataclass(frozen=True)
class Evaluated:
    """The prediction sets of `N` examples for `C` coverages."""

    score: str  # name of the score
    coverages: np.ndarray  # the stated ones, in increasing order, float64 `[C]`
    sizes: np.ndarray  # number of classes in each set, int32 `[N, C]`
    covered: np.ndarray  # fraction of the example's classes in each set, float32 `[N, C]`; 1 without a class

    def metrics(self, coverage: float) -> dict[str, np.ndarray]:
        """Returns the metrics of the sets for a coverage, name -> `[N]`."""
        column = np.searchsorted(self.coverages, coverage)
        percent = f"{100.0 * coverage:.6g}"
        columns = {"set_coverage": self.covered[:, column], "set_size": self.sizes[:, column]}
        return {f"{name}@{percent}": values for name, values in columns.items()}


def evaluated_coverages(sets: PredictionSets, coverages: Iterable[float] = ()) -> np.ndarray:
    """Returns these coverages and those of `COVERAGES` for which there are enough calibration examples."""
    possible = [each for each in COVERAGES if least_examples(each) <= sets.examples.min()]
    return np.unique([*possible, *coverages])


def measure(
    sets: PredictionSets, block: Block, labels: Labels, limits: Iterable[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Returns `Evaluated.sizes` and `covered` of a block of examples, for the limits of the coverages."""
    scores = sets.scores(*block).numpy()
    in_sets = [scores <= limit for limit in limits]
    sizes = np.stack([each.sum(axis=1, dtype=np.int32) for each in in_sets], axis=1)
    return sizes, np.stack([_recall(each, labels) for each in in_sets], axis=1)


def _recall(in_set: np.ndarray, labels: Labels) -> np.ndarray:
    """Returns the fraction of the classes of each example in its set, float32 `[B]`."""
    rows, classes = _pairs(labels)
    size = labels.shape[0]
    hits = np.bincount(rows, in_set[rows, classes], size)
    counts = np.bincount(rows, minlength=size)
    return np.divide(hits, counts, out=np.ones(size), where=counts > 0).astype(np.float32)


def least_examples(coverage: float) -> int:
    """Returns the number of calibration examples that a coverage needs at least.

    >>> least_examples(0.9), least_examples(0.99)
    (9, 99)
    """
    return math.ceil(coverage / (1.0 - coverage) - 1e-6)


def coverage_interval(examples: int, coverage: float) -> tuple[float, float]:
    """Returns the 95% interval of the coverage over draws of the calibration examples.

    For `m` of them and one class per example, it has the law `Beta(k, m + 1 - k)`, `k = ceil((m + 1) c)`.

    >>> print([round(end, 3) for end in coverage_interval(1000, 0.9)])
    [0.881, 0.918]
    """
    k = math.ceil((examples + 1) * coverage - _ROUNDING * examples)
    low, high = scipy.stats.beta.ppf([0.025, 0.975], k, examples + 1 - k)
    return float(low), float(high)


def _by_class(values: np.ndarray, classes: np.ndarray, n: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Returns the examples of each group, and the group of each class; see `fit`."""
    counts = np.bincount(classes, minlength=n)
    rows_of = np.split(np.argsort(classes, kind="stable"), np.cumsum(counts)[:-1])
    groups = [([j], rows_of[j]) for j in range(n) if counts[j] >= LEAST_PER_GROUP]
    groups += _clusters(
        values, {j: rows_of[j] for j in range(n) if LEAST_TO_CLUSTER <= counts[j] < LEAST_PER_GROUP}
    )
    groups.sort(key=lambda group: -len(group[1]))
    others = sorted(set(range(n)).difference(*(members for members, _ in groups)))
    rest = np.concatenate([np.array([], int), *(rows_of[j] for j in others)])
    while others and groups and len(rest) < LEAST_PER_GROUP:
        members, rows = groups.pop()
        others = [*others, *members]
        rest = np.append(rest, rows)
    groups += [(others, rest)] if others else []
    class_groups = np.empty(n, np.int32)
    for i, (members, _) in enumerate(groups):
        class_groups[members] = i
    return [rows for _, rows in groups], class_groups


def _clusters(values: np.ndarray, rows_of: dict[int, np.ndarray]) -> list[tuple[list[int], np.ndarray]]:
    """Returns the classes of each cluster, and the examples that set its limit; see `fit`."""
    clusters = np.random.default_rng(0).random(len(values)) < 0.5  # these examples cluster the classes
    halves = {j: (rows[clusters[rows]], rows[~clusters[rows]]) for j, rows in rows_of.items()}
    halves = {j: pair for j, pair in halves.items() if len(pair[0])}
    number = min(len(halves), sum(len(rest) for _, rest in halves.values()) // (2 * LEAST_PER_GROUP))
    if number < 1:
        return []
    vectors = [np.quantile(values[first], _QUANTILES, method="higher") for first, _ in halves.values()]
    sizes = np.sqrt([len(first) for first, _ in halves.values()])
    means = sklearn.cluster.KMeans(number, random_state=0)
    labels = means.fit_predict(np.minimum(vectors, np.finfo(np.float32).max), sample_weight=sizes)
    members = [[j for j, label in zip(halves, labels, strict=True) if label == i] for i in range(number)]
    groups = [(each, np.concatenate([halves[j][1] for j in each])) for each in members]
    return [group for group in groups if len(group[1]) >= LEAST_PER_GROUP]
