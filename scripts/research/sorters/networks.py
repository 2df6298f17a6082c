"""The sorters of the SoDeep paper, a CNN and an LSTM, of lists of one length.

Import this module to use them by name; commands have `--import=rank4class.scripts.research.sorters.networks`.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from rank4class import arguments
from rank4class.models import precision
from rank4class.models.sorters import LearnedSorter
from rank4class.models.sorters.order_statistics import descending, list_size, standardize
from rank4class.registry import SORTERS


def only_size(sizes: Sequence[int]) -> int | None:
    """Returns the length of lists; None if there are several."""
    return sizes[0] if len(set(sizes)) == 1 else None


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
        scores = tf.ensure_shape(scores, [None, self.n])
        size = list_size(scores, where)
        if where is not None:
            scores = fill_masked(scores, where)
        n = tf.cast(tf.shape(scores)[1], tf.float32)
        ranks = n * self.net(standardize(scores)[..., None], training=training)
        if where is not None:
            ranks = ranks_without_masked(ranks, where)
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
      layers: number of convolutions, the last one included.
      trained: see `LearnedSorter`.

    >>> Cnn(n=10)(tf.zeros([2, 10])).shape
    TensorShape([2, 10])

    References:
      Engilberge et al. (2019), section 3.1.1, where the last layer has one position with `n` channels;
      figure 4 compares numbers of layers.
    """

    FILTERS, WIDTH = 24, 25  # of each convolution; the kernel of the first has the width 1
    SAVED = ("n", "layers")

    def __init__(self, n: int | None = None, layers: int = 8, trained: str | None = None, **kwargs: Any):
        super().__init__(n, trained, **kwargs)
        self.layers = layers
        self.net = tf.keras.Sequential(name="net")
        # Spreads the kinks of the first ReLUs over the range of scores, which would take long to learn.
        kernel_width = 1
        beta = tf.keras.initializers.RandomUniform(-2.0, 2.0)
        with precision.scope("float32"):
            for i in range(layers - 1):
                options = {"padding": "same", "use_bias": False, "name": f"convolution_{i}"}
                self.net.add(tf.keras.layers.Conv1D(self.FILTERS, kernel_width, **options))
                self.net.add(tf.keras.layers.BatchNormalization(beta_initializer=beta, name=f"norm_{i}"))
                self.net.add(tf.keras.layers.ReLU(name=f"relu_{i}"))
                kernel_width = self.WIDTH
                beta = "zeros"
            self.net.add(tf.keras.layers.Conv1D(1, self.WIDTH, padding="same", name="readout"))
            self.net.add(tf.keras.layers.Reshape([-1], name="ranks"))

    @property
    def shipped_file(self) -> str:
        return f"{super().shipped_file.removesuffix('.safetensors')}-{self.n}.safetensors"


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
        self.units = units
        self.layers = layers
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


def fill_masked(scores: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
    """Spreads masked classes evenly among the others, which gives lists like those of the training.

    The `j`-th of `f` masked classes gets the score at rank `(j - 1/6) m / f + 1/2` of the other `m` classes,
    interpolated between neighbors: a third of a step past the middle, where it rarely equals one of them.
    """
    scores = tf.where(where, scores, 0.0)
    sorted_scores = tf.gather(scores, descending(scores, where), batch_dims=1)
    size = list_size(scores, where)
    num_masked = _num_masked(where)
    # Multiples of the golden ratio give an order that is evenly spread and looks random.
    key = tf.cumsum(tf.cast(~where, tf.int32), axis=1) * 40_503 % 65_536
    shuffled = tf.argsort(tf.argsort(tf.where(where, 65_536, key), axis=1, stable=True), axis=1)
    rank = (tf.cast(shuffled, tf.float32) + 5 / 6) * size / tf.maximum(num_masked, 1.0) + 0.5
    rank_above = tf.clip_by_value(tf.floor(rank), 1.0, tf.maximum(size - 1.0, 1.0))
    higher, lower = (
        tf.gather(sorted_scores, tf.cast(neighbor, tf.int32) - 1, batch_dims=1)
        for neighbor in (rank_above, tf.minimum(rank_above + 1.0, size))
    )
    return tf.where(where, scores, higher + (rank - rank_above) * (lower - higher))


def ranks_without_masked(ranks: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
    """Converts ranks in a list of `fill_masked` to ranks without masked classes; exact ranks stay exact."""
    size = list_size(ranks, where)
    num_masked = _num_masked(where)

    def filled_rank(rank: tf.Tensor) -> tf.Tensor:
        return rank + tf.floor((rank - 0.5) * num_masked / size + 1 / 6)

    # The inverse, linear between integers. The search starts at most one below the result.
    estimate = tf.floor(0.5 + (ranks - 1 / 6) * size / (size + num_masked))
    rank = estimate - 1.0 + sum(tf.cast(filled_rank(estimate + i) <= ranks, tf.float32) for i in (0, 1))
    rank = tf.stop_gradient(tf.clip_by_value(rank, 1.0, tf.maximum(size - 1.0, 1.0)))
    return rank + (ranks - filled_rank(rank)) / (filled_rank(rank + 1.0) - filled_rank(rank))


def _num_masked(where: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.cast(~where, tf.float32), axis=1, keepdims=True)
