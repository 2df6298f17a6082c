"""The sorters as Keras layers, and their rank functions."""

import base64
import math
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from rank4class import arguments
from rank4class.models import precision
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

    It is saved with a loss, including the weights of the sorter if they are not the shipped ones.

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
        kind, options = weights.name_of(self.sorter), self.sorter.get_config()
        if not self.sorter.weights or weights.are_shipped(self.sorter):
            return {"kind": kind, "sorter": options}
        # Save the weights themselves: the file may change or disappear.
        tensors = {name: np.array(weight) for name, weight in weights.by_name(self.sorter).items()}
        return {
            "kind": kind,
            "sorter": {**options, "trained": None},
            "weights": base64.b64encode(weights.safetensors_numpy().save(tensors)).decode(),
        }

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

    def get_config(self) -> dict[str, Any]:
        # A saved model has the weights of a file, which may change or disappear.
        shipped = self.trained if self.trained == weights.SHIPPED else None
        return {**super().get_config(), "trained": shipped}


class FixedLengthSorter(LearnedSorter):
    """Base class of sorters of lists of one length, by a network `net` that a subclass sets.

    It fills a list that has masked classes with scores spread evenly among those of the others.
    """

    SAVED: tuple[str, ...] = ("n",)

    def __init__(self, n: int | None = None, trained: str | None = None, **kwargs: Any):
        super().__init__(trained, **kwargs)
        if n is not None:
            arguments.check_integer(2, n=n)
        self.n = n

    def sort(self, scores: tf.Tensor, where: tf.Tensor | None, training: bool = False) -> tf.Tensor:
        if self.n is not None:
            if scores.shape[1] not in (None, self.n):
                raise ValueError(
                    f"scores={scores.shape}: sorter {self.name!r} is for lists of {self.n} scores, not of "
                    f"{scores.shape[1]}. Get a sorter with that n."
                )
            scores = tf.ensure_shape(scores, [None, self.n])
        size = order_statistics.list_size(scores, where)
        if where is not None:
            scores = order_statistics.fill_masked(scores, where)
        n = tf.cast(tf.shape(scores)[1], tf.float32)
        ranks = n * self.net(order_statistics.standardize(scores)[..., None], training=training)
        if where is not None:
            ranks = order_statistics.ranks_without_masked(ranks, where)
        # Clips ranks that are out of bounds, but keeps their gradient.
        ranks += tf.stop_gradient(tf.clip_by_value(ranks, 1.0, size) - ranks)
        return ranks if where is None else tf.where(size > 1.0, ranks, 1.0)

    def build(self, shape: tf.TensorShape) -> None:
        self.net.build([None, self.n, 1])
        super().build(shape)


@SORTERS.register("cnn")
class Cnn(FixedLengthSorter):
    """A CNN: blocks of convolution, batch normalization and ReLU, and a last convolution.

    Args:
      n: length of the lists, at least 2; None for training on several lengths.
      filters: number of filters of the blocks.
      width: kernel width of all convolutions but the first, whose width is 1.
      layers: number of convolutions, the last one included.
      trained: see `LearnedSorter`.

    >>> Cnn(n=10)(tf.zeros([2, 10])).shape
    TensorShape([2, 10])

    References:
      Engilberge et al. (2019), section 3.1.1, where the last layer has one position with `n` channels;
      figure 4 compares numbers of layers.
    """

    SAVED = ("n", "filters", "width", "layers")

    def __init__(
        self,
        n: int | None = None,
        filters: int = 24,
        width: int = 25,
        layers: int = 8,
        trained: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(n, trained, **kwargs)
        arguments.check_integer(layers=layers)
        self.filters, self.width, self.layers = filters, width, layers
        self.net = tf.keras.Sequential(name="net")
        # Spreads the kinks of the first ReLUs over the range of scores, which would take long to learn.
        kernel_width, beta = 1, tf.keras.initializers.RandomUniform(-2.0, 2.0)
        with precision.scope("float32"):
            for i in range(layers - 1):
                options = {"padding": "same", "use_bias": False, "name": f"convolution_{i}"}
                self.net.add(tf.keras.layers.Conv1D(filters, kernel_width, **options))
                self.net.add(tf.keras.layers.BatchNormalization(beta_initializer=beta, name=f"norm_{i}"))
                self.net.add(tf.keras.layers.ReLU(name=f"relu_{i}"))
                kernel_width, beta = width, "zeros"
            self.net.add(tf.keras.layers.Conv1D(1, width, padding="same", name="readout"))
            self.net.add(tf.keras.layers.Reshape([-1], name="ranks"))


@SORTERS.register("lstm")
class Lstm(FixedLengthSorter):
    """Bidirectional LSTMs over the list, and a linear layer at each position.

    Args:
      n: length of the lists; None for training on several lengths.
      units: units of each direction.
      layers: number of stacked LSTMs.
      trained: see `LearnedSorter`.

    >>> Lstm(n=10, units=4)(tf.zeros([2, 10])).shape
    TensorShape([2, 10])

    References:
      Engilberge et al. (2019), section 3.1.1.
    """

    SAVED = ("n", "units", "layers")

    def __init__(
        self,
        n: int | None = None,
        units: int = 128,
        layers: int = 2,
        trained: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(n, trained, **kwargs)
        self.units, self.layers = units, layers
        self.net = tf.keras.Sequential(name="net")
        # Spreads the thresholds of the first gates over the range of scores, which would take long to learn.
        spread = tf.keras.initializers.RandomUniform(-6.0, 6.0)
        init = {"kernel_initializer": spread, "bias_initializer": spread, "unit_forget_bias": False}
        with precision.scope("float32"):
            for i in range(layers):
                lstm = tf.keras.layers.LSTM(units, return_sequences=True, name=f"lstm_{i}", **init)
                self.net.add(tf.keras.layers.Bidirectional(lstm, name=f"both_{i}"))
                init = {}
            self.net.add(tf.keras.layers.Dense(1, name="readout"))
            self.net.add(tf.keras.layers.Reshape([-1], name="ranks"))


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
      **options: the other arguments of the sorter's class; by default those of the file.

    >>> get("handcrafted", sharpness=1.0)(tf.zeros([4])).numpy()
    array([0.625, 0.625, 0.625, 0.625], dtype=float32)
    """
    SORTERS.check(name, options)
    sorter = SORTERS[name]
    if issubclass(sorter, LearnedSorter):
        if trained not in (None, weights.SHIPPED):
            options = {**weights.options(name, trained), **options}
        options["trained"] = trained
    if issubclass(sorter, FixedLengthSorter):
        options["n"] = n
    sorter = sorter(name=name, **options)
    sorter(tf.zeros([1, sorter.n or 2]))
    return sorter
