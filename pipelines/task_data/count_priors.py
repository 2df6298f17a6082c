"""Count priors of an experiment: layer, loss, log-probabilities, and checks of options and examples."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from rank4class import arguments, data, losses, models
from rank4class.losses.ops import set_sizes
from rank4class.pipelines import config

CONDITIONAL = ("n_choose_k", "top_k_gain")  # likelihoods of a set of classes, given its size


class CountPrior:
    """A registered layer of log-probabilities, trained by their likelihood."""

    is_model = True  # there are probabilities of the number of classes
    is_trained = True

    def __init__(self, part: config.CountPrior):
        self._part = part

    def check(self, metrics: Sequence[str], loss: config.Loss) -> None:
        """Raises ValueError, with the field, for wrong options, or metrics or a loss that do not fit."""
        if self._part.name not in self._part.others:
            provided = {"most": 1} if "most" in self._part.fields else {}
            with arguments.in_section("count_prior."):
                models.get("count_prior", self._part.name, **{**provided, **self._part.options()})
        if getattr(loss, "levels", 2) != 2:
            raise ValueError(
                f"loss.levels={loss.levels}: count prior {self._part.name!r} counts one level. "
                "Set loss.levels=2 or count_prior.name='none'."
            )

    def check_examples(self, loss: config.Loss, train: data.Split) -> None:
        """Raises ValueError, with the example and the remedy, if it or a loss cannot learn from a split."""
        if not train.multi_label:
            raise ValueError(
                f"count_prior={self._part.name!r}: each example of the dataset has one class. Set it to "
                "'none'."
            )
        self._check_counts(train)
        _check_levels(loss, train)

    def _check_counts(self, train: data.Split) -> None:
        """Raises ValueError if an example has an impossible number of classes."""

    def layer(self, train: data.Split) -> tf.keras.layers.Layer | None:
        """Returns a new layer from vectors of instances to log-probabilities; None if there is none."""
        if self._part.name in self._part.others:
            return None
        return models.get("count_prior", self._part.name, **self._part.options())

    def log_counts(
        self, scores: tf.Tensor, log_counts: tf.Tensor | None, where: tf.Tensor | None, training: bool = False
    ) -> tf.Tensor | None:
        """Returns the log-probabilities that an example has `0..m` of the ranked classes, or None.

        `log_counts` is the output of the layer, `[B, m + 1]`, or None; in training the loss alone needs them.
        """
        return log_counts if log_counts is None or where is None else set_sizes.conditioned(log_counts, where)

    def loss(self, log_counts: tf.Tensor, labels: tf.Tensor, where: tf.Tensor | None) -> tf.Tensor | None:
        """Returns the loss that trains the layer, `[B]`; None if nothing is trained."""
        return set_sizes.count_nll(log_counts, labels, where=where) if self.is_trained else None


class _None(CountPrior):
    is_model = is_trained = False

    def check(self, metrics: Sequence[str], loss: config.Loss) -> None:
        for metric in metrics:
            if metric in losses.metrics.SET_METRICS:
                names = ", ".join(name for name in self._part.names() if name != self._part.name)
                raise ValueError(
                    f"metrics={metric!r}: it requires a count prior. Set count_prior to one of: {names}."
                )

    def check_examples(self, loss: config.Loss, train: data.Split) -> None:
        if not train.multi_label:
            return
        counts = train.num_relevant()
        if loss.name in CONDITIONAL and not counts.all():
            raise ValueError(
                f"{train.origin(int(np.argmin(counts)))}: an example without a class. Loss {loss.name!r} "
                "needs the number of classes. Leave the example out, or set count_prior to 'learned'."
            )
        _check_levels(loss, train)


class _Learned(CountPrior):
    def _check_counts(self, train: data.Split) -> None:
        _check_support("count_prior.most", np.ones(self._most(train) + 1), train)

    def layer(self, train: data.Split) -> tf.keras.layers.Layer:
        return models.get("count_prior", "learned", **{**self._part.options(), "most": self._most(train)})

    def _most(self, train: data.Split) -> int:
        most = self._part.most or train.max_relevant()
        assert most is not None  # of examples with several classes
        return most


class _Fixed(CountPrior):
    is_trained = False

    def _check_counts(self, train: data.Split) -> None:
        _check_support("count_prior.probabilities", np.array(self._part.probabilities), train)


class _Empirical(CountPrior):
    is_trained = False

    def layer(self, train: data.Split) -> tf.keras.layers.Layer:
        frequencies = np.bincount(train.num_relevant()) / len(train)
        return models.get("count_prior", "fixed", probabilities=frequencies)


class _FromScores(CountPrior):
    """No layer: the number of classes follows from the scores, as a Poisson-binomial distribution."""

    is_trained = False

    def log_counts(
        self, scores: tf.Tensor, log_counts: tf.Tensor | None, where: tf.Tensor | None, training: bool = False
    ) -> tf.Tensor | None:
        return None if training else set_sizes.poisson_binomial(scores, where=where)


_PRIORS: dict[str, type[CountPrior]] = {
    "none": _None,
    "learned": _Learned,
    "fixed": _Fixed,
    "empirical": _Empirical,
    "poisson_binomial": _FromScores,
}


def get(part: config.CountPrior) -> CountPrior:
    """Returns the count prior of a configuration."""
    return _PRIORS.get(part.name, CountPrior)(part)


NONE = get(config.CountPrior("none"))


def _check_support(field: str, probabilities: np.ndarray, train: data.Split) -> None:
    """Raises ValueError if the counts of a prior exceed the classes or exclude the count of an example."""
    num_classes = train.labels.shape[1]
    counts = train.num_relevant()
    if len(probabilities) > num_classes + 1:
        raise ValueError(
            f"{field}: counts up to {len(probabilities) - 1}, but there are {num_classes} classes. Lower it."
        )
    possible = np.append(probabilities, np.zeros(num_classes))[counts] > 0.0
    if not possible.all():
        i = int(np.argmin(possible))
        raise ValueError(
            f"{train.origin(i)}: an example of {counts[i]} classes, which has probability 0 by {field}. "
            f"Change {field}, or leave the example out."
        )


def _check_levels(loss: config.Loss, train: data.Split) -> None:
    if loss.name != "n_choose_k":
        return
    matrix = train.label_matrix
    levels = np.unique(train.label_matrix.data)
    if len(levels) and levels[-1] >= loss.levels:
        first = int(np.argmax(matrix.data >= loss.levels))
        i = int(np.searchsorted(matrix.indptr, first, side="right")) - 1
        raise ValueError(
            f"{train.origin(i)}: a label of {matrix.data[first]:g}, not below loss.levels={loss.levels}. Set "
            f"loss.levels={np.floor(levels[-1]) + 1:g}."
        )
    if not np.array_equal(levels, np.arange(1, len(levels) + 1)):
        raise ValueError(
            f"labels: the training labels are {', '.join(f'{level:g}' for level in levels)}. Number the "
            "levels 1, 2, ... without a gap."
        )
