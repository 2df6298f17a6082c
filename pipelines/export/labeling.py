"""The choice of inputs without labels whose labels would teach a model most."""

import sys
import warnings
from collections.abc import Iterable, Sequence

import numpy as np
import sklearn.cluster
import sklearn.metrics
from sklearn.exceptions import ConvergenceWarning

from rank4class import arguments
from rank4class.pipelines.export.prediction import Prediction
from rank4class.progress import Progress

_ITERATIONS = 10
_LEAST_ERROR = 1e-6


def choose_indices(scores: np.ndarray, errors: np.ndarray, count: int) -> np.ndarray:
    r"""Chooses inputs to label: the model is likely to be wrong on them, and they differ from each other.

    k-means finds `count` clusters of the scores $s_i$, minus their mean, in which each input has the weight
    $e_i$, the probability that the model is wrong on it. The input next to each mean is chosen, that of the
    cluster with the largest sum of weights first. Where fewer are different, the inputs with the largest
    weights follow. It takes `O(N n count)` time.

    Args:
      scores: float `[N, n]`, of all classes.
      errors: float `[N]`, expected number of wrong decisions for each input.
      count: of inputs to choose.

    Returns:
      int `[min(count, N)]`, the indices of the inputs.

    >>> scores = np.array([[0.1, 0.0], [0.0, 0.1], [5.0, 0.0], [0.1, 0.0]])
    >>> choose_indices(scores, np.array([0.47, 0.47, 0.01, 0.47]), 2).tolist()
    [0, 1]

    References:
      Zhdanov (2019), "Diverse mini-batch active learning".
    """
    errors = np.maximum(errors, _LEAST_ERROR)
    order = np.argsort(-errors, kind="stable")
    if count < len(errors):
        centered = scores - scores.mean(axis=1, keepdims=True)
        means = sklearn.cluster.KMeans(count, n_init=1, max_iter=_ITERATIONS, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # fewer different inputs than means
            means.fit(centered, sample_weight=errors)
        weights = np.bincount(means.labels_, errors, count)
        nearest = sklearn.metrics.pairwise_distances_argmin(means.cluster_centers_, centered)
        order = np.concatenate([nearest[np.argsort(-weights, kind="stable")], order])
    _, first = np.unique(order, return_index=True)
    return order[np.sort(first)][:count]


def choose(
    predictions: Iterable[Prediction], class_names: Sequence[str], several: bool, count: int, k: int
) -> list[Prediction]:
    """Returns the predictions to label, see `choose_indices`, with their `k` best classes.

    Args:
      predictions: of all classes, the best first.
      class_names: of all classes.
      several: whether an input may have several classes, each of which is decided by its probability.
      count: of predictions to return.
      k: number of classes.

    Raises:
      ValueError: the predictions have no probabilities.
    """
    arguments.check_integer(1, informative=count)
    ids = {name: i for i, name in enumerate(class_names)}
    scores, errors, shown = [], [], []
    for prediction in Progress("", "input", file=sys.stderr).over(predictions):
        columns = prediction.columns
        if "probabilities" not in columns:
            raise ValueError(
                f"informative={count}: the model has no probabilities. Train with calibration='auto'."
            )
        row = np.empty(len(ids), np.float32)
        row[[ids[name] for name in columns["classes"]]] = columns["scores"]
        p = columns["probabilities"]
        scores.append(row)
        errors.append(np.minimum(p, 1.0 - p).sum() if several else 1.0 - p[0])
        shown.append(prediction.first(k))
    return [shown[i] for i in choose_indices(np.array(scores), np.array(errors), count)]
