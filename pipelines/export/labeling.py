"""The choice of inputs without labels whose labels would teach a model most."""

import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import sklearn.cluster
import sklearn.metrics
from sklearn.exceptions import ConvergenceWarning

from rank4class import arguments
from rank4class.pipelines.export.outputs import Prediction
from rank4class.progress import Progress

_ITERATIONS = 10
_LEAST = 1e-4  # probability: smaller ones are alike
_LEAST_WEIGHT = 1e-9


def choose_indices(probabilities: np.ndarray, count: int, several: bool = False) -> np.ndarray:
    r"""Chooses inputs to label: a model is probably wrong on them, and they differ from one another.

    k-means finds `count` clusters of the logarithms of the probabilities $p$. The weight of an input is
    $(1 - m)^2$, where the margin $m$ is the difference of its two largest probabilities. With several classes
    it is $\sum_j (1 - |2 p_j - 1|)^2$. The input next to each mean is chosen, that of the cluster with the
    largest sum of weights first; where these are fewer, the inputs with the largest weights follow. It takes
    `O(N n count)` time.

    Args:
      probabilities: float `[N, n]`, of the classes, by any calibrated model.
      count: number of inputs.
      several: whether an input may have several classes.

    Returns:
      int `[min(count, N)]`, the indices of the inputs, those that represent most uncertain inputs first.

    >>> p = np.array([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [1.0, 0.0, 0.0], [0.5, 0.5, 0.0]])
    >>> choose_indices(p, 2).tolist()
    [0, 1]

    References:
      Zhdanov (2019), "Diverse mini-batch active learning".
    """
    if several:
        weights = np.square(1.0 - np.abs(2.0 * probabilities - 1.0)).sum(axis=1)
    else:
        second, first = np.partition(probabilities, (-2, -1), axis=1)[:, -2:].T
        weights = np.square(1.0 - (first - second))
    weights = np.maximum(weights, _LEAST_WEIGHT)
    order = np.argsort(-weights, kind="stable")
    if count < len(weights):
        points = np.log(probabilities + _LEAST)
        means = sklearn.cluster.KMeans(count, n_init=1, max_iter=_ITERATIONS, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # fewer different inputs than means
            means.fit(points, sample_weight=weights)
        sums = np.bincount(means.labels_, weights, count)
        nearest = sklearn.metrics.pairwise_distances_argmin(means.cluster_centers_, points)
        order = np.concatenate([nearest[np.argsort(-sums, kind="stable")], order])
    _, places = np.unique(order, return_index=True)
    return order[np.sort(places)][:count]


def choose(
    predictions: Iterable[Prediction], class_names: Sequence[str], several: bool, count: int, k: int | None
) -> Iterator[Prediction]:
    """Returns the predictions to label, see `choose_indices`, with their `k` best classes.

    Args:
      predictions: of all classes.
      class_names: of all classes.
      several: whether an input may have several classes.
      count: number of predictions to return.
      k: number of classes; None is all.

    Raises:
      ValueError: the predictions have no probabilities.
    """
    arguments.check_integer(1, informative=count)
    ids = {name: i for i, name in enumerate(class_names)}
    probabilities, shown = [], []
    for prediction in Progress("", "input", file=sys.stderr).over(predictions):
        columns = prediction.columns
        if "probabilities" not in columns:
            raise ValueError(
                f"informative={count}: the model has no probabilities. Train with calibration='auto'."
            )
        row = np.zeros(len(ids), np.float32)
        row[[ids[name] for name in columns["classes"]]] = columns["probabilities"]
        probabilities.append(row)
        shown.append(prediction if k is None else prediction.first(k))
    return (shown[i] for i in choose_indices(np.array(probabilities), count, several))
