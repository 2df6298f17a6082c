"""The sorters as Keras layers, and their rank functions."""

import base64
import inspect
import math
import os
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from rank4class.models.registry import Part
from rank4class.models.sorters import order_statistics, weights
from rank4class.registry import SORTERS

_TensorLike: TypeAlias = tf.types.experimental.TensorLike


class Sorter(Part):
    """Base class of sorters. It computes in float32 under any policy."""

    n: int | None = None  # the only length of lists that it sorts, or None for any

    def __init__(self, **kwargs: Any):
        super().__init__(**{**kwargs, "dtype": "float32"})

    def call(
        self, scores: _TensorLike, where: _TensorLike | None = None, training: bool = False
    ) -> tf.Tensor:
        """Returns the soft ranks of scores, float32 `[..., n]`.

        Args:
          scores: float `[..., n]`, finite, of the length of the sorter.
          where: optional bool, broadcastable to `[..., n]`, the classes to rank. The ranks are those
            of the list without the masked classes, which have the rank after the last one.
          training: whether batch normalization uses the statistics of the batch.
        """
        scores = tf.cast(scores, tf.float32)
        shape = tf.shape(scores)
        flat = tf.reshape(scores, [-1, scores.shape[-1] or shape[-1]])
        if where is None:
            ranks = self.sort(flat, None, training) / tf.cast(shape[-1], tf.float32)
        else:
            where = tf.reshape(tf.broadcast_to(where, shape), tf.shape(flat))
            size = tf.reduce_sum(tf.cast(where, tf.float32), axis=1, keepdims=True)
            ranks = tf.where(where, self.sort(flat, where, training), size + 1.0) / tf.maximum(size, 1.0)
        return tf.ensure_shape(tf.reshape(ranks, shape), scores.shape)

    @property
    def rank_fn(self) -> "RankFunction":
        """The rank function of a loss that this sorter computes."""
        return RankFunction(self)

    def sort(self, scores: tf.Tensor, where: tf.Tensor | None, training: bool = False) -> tf.Tensor:
        """Returns the soft ranks in `1..n` of float32 scores `[N, n]`, with a mask of that shape or None."""
        raise NotImplementedError


@tf.keras.utils.register_keras_serializable(package="rank4class")
class RankFunction:
    """A sorter as the rank function of a loss: from scores `[..., n]` to soft ranks in `1..n`.

    It is saved with a loss, including the weights of the sorter.

    >>> RankFunction(get("exact"))(tf.constant([[7.0, 1.0, 7.0, 9.0]])).numpy()
    array([[2.5, 4. , 2.5, 1. ]], dtype=float32)
    """

    def __init__(self, sorter: Sorter):
        self.sorter = sorter

    def __call__(self, scores: _TensorLike, where: _TensorLike | None = None) -> tf.Tensor:
        scores = tf.convert_to_tensor(scores)
        if where is not None:
            where = tf.broadcast_to(where, tf.shape(scores))
        return self.sorter(scores, where=where) * order_statistics.list_size(scores, where)

    def get_config(self) -> dict[str, Any]:
        # Keras's HDF5 format does not find registered layers: name the sorter by its registration.
        config = {"kind": weights.name_of(self.sorter), "sorter": self.sorter.get_config()}
        if not self.sorter.weights:
            return config
        return {**config, "weights": base64.b64encode(weights.to_bytes(self.sorter, np.float32)).decode()}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "RankFunction":
        sorter = SORTERS[config["kind"]].from_config(config["sorter"])
        sorter(tf.zeros([1, sorter.n or 2]))
        if "weights" in config:
            tensors = weights.safetensors_numpy().load(base64.b64decode(config["weights"]))
            weights.assign(sorter, tensors, "the saved loss")
        return cls(sorter)


@SORTERS.register("exact")
class Exact(Sorter):
    """The exact ranks, with the mean rank for ties. `O(n log n)`; it has no gradient.

    >>> Exact()(tf.constant([[7.0, 1.0, 7.0, 9.0]])).numpy()
    array([[0.625, 1.   , 0.625, 0.25 ]], dtype=float32)
    """

    def sort(self, scores: tf.Tensor, where: tf.Tensor | None, training: bool = False) -> tf.Tensor:
        def ranks(sorted_scores: tf.Tensor, where: tf.Tensor | None) -> tf.Tensor:
            are_ties = order_statistics.gaps(-sorted_scores, where) == 0.0
            return order_statistics.ranks_of_decays(tf.cast(are_ties, tf.float32))

        return tf.stop_gradient(order_statistics.rank_sorted(scores, where, ranks))


@SORTERS.register("handcrafted")
class Handcrafted(Sorter):
    r"""A sorter without weights that compares by sigmoids: `O(n^2)` time and memory.

    $$f_i = \frac{1}{n} \Big( 1 + \sum_{j \ne i} \sigma(\lambda (s_j - s_i)) \Big)$$

    Args:
      sharpness: `lambda`; applies to the scores without standardization.

    >>> Handcrafted()(tf.constant([[9.0, 0.0, -9.0]])).numpy().round(3)
    array([[0.333, 0.667, 1.   ]], dtype=float32)

    References:
      Engilberge, Chevallier, Perez, Cord (2019), "SoDeep: a sorting deep net to learn ranking loss
      surrogates", section 4.1.
    """

    SAVED = ("sharpness",)

    def __init__(self, sharpness: float = 10.0, **kwargs: Any):
        super().__init__(**kwargs)
        self.sharpness = sharpness

    def sort(self, scores: tf.Tensor, where: tf.Tensor | None, training: bool = False) -> tf.Tensor:
        if where is not None:
            scores = tf.where(where, scores, 0.0)  # NaN would reach the gradient through 0 * NaN
        comparisons = tf.sigmoid(self.sharpness * (scores[:, None, :] - scores[:, :, None]))
        if where is not None:
            comparisons = tf.where(where[:, None, :], comparisons, 0.0)
        return 0.5 + tf.reduce_sum(comparisons, axis=2)


class LearnedSorter(Sorter):
    """Base class of sorters with weights: "shipped", those of a file of `to_bytes`, or None to be trained."""

    def __init__(self, trained: str | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        self.trained = trained

    def build(self, shape: tf.TensorShape) -> None:
        super().build(shape)
        if self.trained is not None:
            weights.restore(self, self.trained)

    @property
    def shipped_file(self) -> str:
        """The file of the shipped weights, in `shipped_weights` beside the file of the class."""
        folder = os.path.dirname(inspect.getfile(type(self)))
        return os.path.join(folder, "shipped_weights", f"{weights.name_of(self)}.safetensors")


@SORTERS.register("equivariant")
class Equivariant(LearnedSorter):
    r"""A sorter with one learned weight, the sharpness `lambda`, for lists of any length.

    $$r_i = \frac{1}{2} + \sum_j c(\lambda (u_j - u_i)), \quad
    c(x) = \frac{1}{2} e^x \text{ for } x < 0, \text{ else } 1 - \frac{1}{2} e^{-x}$$

    where `u` are the scores scaled so that evenly spaced ones are 1 apart. The sums over a sorted list follow
    from one neighbor to the next, so it sorts once: `O(n log n)` time, `O(n)` memory.

    A higher score never ranks behind a lower one, equal scores have equal ranks, the ranks of a list sum to
    `1 + ... + n`, and a permutation of the scores permutes the ranks bit for bit.

    Args:
      trained: see `LearnedSorter`.

    >>> get("equivariant")(tf.constant([[9.0, 0.0, -9.0]])).numpy().round(1)
    array([[0.4, 0.7, 1. ]], dtype=float32)
    """

    def build(self, shape: tf.TensorShape) -> None:
        self._log_sharpness = self.add_weight(name="log_sharpness", shape=[], initializer="zeros")
        super().build(shape)

    def sort(self, scores: tf.Tensor, where: tf.Tensor | None, training: bool = False) -> tf.Tensor:
        sharpness = tf.exp(self._log_sharpness)

        def ranks(sorted_scores: tf.Tensor, where: tf.Tensor | None) -> tf.Tensor:
            size = order_statistics.list_size(sorted_scores, where)
            positions = order_statistics.standardize(sorted_scores, where) * size / -math.sqrt(12.0)
            decays = tf.exp(-sharpness * order_statistics.gaps(positions, where))
            return order_statistics.ranks_of_decays(decays)

        return order_statistics.rank_sorted(scores, where, ranks)


def get(name: str, n: int | None = None, trained: str | None = weights.SHIPPED, **options: Any) -> Sorter:
    """Returns a sorter with its variables created.

    Args:
      name: one of `SORTERS`.
      n: length of the lists, for sorters of one length.
      trained: "shipped", a file of `to_bytes`, or None for weights to be trained.
      **options: the other arguments of the sorter's class.

    >>> get("handcrafted", sharpness=1.0)(tf.zeros([4])).numpy()
    array([0.625, 0.625, 0.625, 0.625], dtype=float32)
    """
    context = {"n": n, "trained": trained}
    options |= {option: value for option, value in context.items() if option in SORTERS.options(name)}
    SORTERS.check(name, options)
    sorter = SORTERS[name](name=name, **options)
    sorter(tf.zeros([1, sorter.n or 2]))
    return sorter
