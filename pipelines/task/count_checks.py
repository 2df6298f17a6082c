"""Checks that the training examples fit n-choose-k models and count priors."""

import numpy as np

from rank4class import data
from rank4class.pipelines import config

CONDITIONAL = ("n_choose_k", "top_k_gain")  # likelihoods of a set of classes, given its size


def check(loss: config.Loss, prior: config.CountPrior, train: data.Split) -> None:
    """Raises ValueError, with the example and the remedy, if a loss or count prior cannot learn from a split.

    Args:
      loss, prior: the checked parts of an experiment.
      train: the training split.
    """
    if not train.multi_label:
        if prior.name != "none":
            raise ValueError(
                f"count_prior={prior.name!r}: each example of the dataset has one class. Set it to 'none'."
            )
        return
    if prior.name == "none":
        _check_not_empty(loss, train)
    if prior.name == "learned":
        largest = prior.most or train.max_relevant()
        assert largest is not None
        num_classes = train.labels.shape[1]
        if largest > num_classes:
            raise ValueError(f"count_prior.most={largest}: there are only {num_classes} classes. Lower it.")
        _check_support("count_prior.most", np.ones(largest + 1), train)
    if prior.name == "fixed":
        _check_support("count_prior.probabilities", np.array(prior.probabilities), train)
    if loss.name == "n_choose_k":
        _check_levels(loss.levels, train)


def _check_not_empty(loss: config.Loss, train: data.Split) -> None:
    counts = train.num_relevant()
    if loss.name in CONDITIONAL and not counts.all():
        raise ValueError(
            f"{train.origin(int(np.argmin(counts)))}: an example without a class. Loss {loss.name!r} needs "
            "the number of classes. Leave the example out, or set count_prior to 'learned'."
        )


def _check_support(field: str, probabilities: np.ndarray, train: data.Split) -> None:
    """Raises ValueError if the counts of a prior exceed the classes or exclude the count of an example."""
    num_classes, counts = train.labels.shape[1], train.num_relevant()
    if len(probabilities) > num_classes + 1:
        raise ValueError(
            f"{field}: counts up to {len(probabilities) - 1}, but there are {num_classes} classes. Lower it."
        )
    missing = max(0, counts.max() + 1 - len(probabilities))
    possible = np.append(probabilities, np.zeros(missing))[counts] > 0.0
    if not possible.all():
        i = int(np.argmin(possible))
        raise ValueError(
            f"{train.origin(i)}: an example of {counts[i]} classes, which has probability 0 by {field}. "
            f"Change {field}, or leave the example out."
        )


def _check_levels(levels: int, train: data.Split) -> None:
    matrix = train.label_matrix
    grades = matrix.data
    outside = np.flatnonzero((grades != np.floor(grades)) | (grades >= levels))
    if outside.size:
        i = np.searchsorted(matrix.indptr, outside[0], side="right") - 1
        raise ValueError(
            f"{train.origin(i)}: a label of {grades[outside[0]]:g}, not an integer below "
            f"loss.levels={levels}. Set "
            f"loss.levels={np.floor(grades.max()) + 1:g}, or number the levels from 0."
        )
    used = sorted(set(grades.astype(int)))
    missing = sorted(set(range(1, max(used, default=0))) - set(used))
    if missing:
        raise ValueError(
            f"labels: the training labels are {', '.join(map(str, used))}, without {missing[0]}. Number the "
            "levels without a gap."
        )
