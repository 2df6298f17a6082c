r"""Candidates: the classes that a training step scores in place of all `n`.

They are the classes of the batch's examples and others that are drawn, so that the time and memory of a step
do not depend on `n`. The probability $\pi_c$ that class `c` is a candidate for an example of other classes is
known, and a sum over these classes is estimated without bias from the candidates `C`:

$$\mathbb{E} \sum_{c \in C} f(s_c) / \pi_c = \sum_c f(s_c).$$

For $f = \exp$ that is the sum of $\exp(s_c - \log \pi_c)$, the correction by "log Q" of sampled softmax.
Softmax takes the logarithm of the sum, so the bias of its gradient is of the order of one over the number of
candidates.

References:
  Bengio, Senécal (2008), "Adaptive importance sampling to accelerate training of a neural probabilistic
  language model"; Yi et al. (2019), "Sampling-bias-corrected neural modeling for large corpus item
  recommendations"; Horvitz, Thompson (1952), "A generalization of sampling without replacement".
"""

import numpy as np
import scipy.sparse
import scipy.special
import tensorflow as tf

from rank4class import arguments
from rank4class.data.dataset import Split
from rank4class.registry import CANDIDATES

_STREAM = 1 << 33  # keeps the seeds of the draws apart from those of the order of the examples


@CANDIDATES.register("sampled")
class Sampled:
    """The classes of a batch, and others that are drawn from all.

    The draw is a function of a seed and the step. It is stratified: each of `count` parts of the classes, of
    equal probability, gives one class, in `O(count log n)` time.

    Args:
      split: the training examples.
      num_classes: `n`.
      batch_size: `B`, of all replicas together.
      count: number of drawn classes, at most `n`.
      power: of the class frequencies that the probabilities are proportional to, up to 1 each; 0 draws
        uniformly. A class without an example counts as having one.
      padded: whether all steps have the same number of candidates, as a program in XLA needs. Else they have
        one of few numbers, since losses call functions of XLA, which are compiled for each number.

    Attributes:
      size: the largest number of candidates of a step, `m` if padded.
      certain: the classes that are candidates whenever an example is in the batch, bool `[N, n]`.

    Raises:
      ValueError: an option is out of its range.
    """

    def __init__(
        self,
        split: Split,
        num_classes: int,
        batch_size: int,
        count: int = 4_096,
        power: float = 0.0,
        padded: bool = False,
    ):
        check_count(count, num_classes)
        arguments.check_at_least(0, power=power)
        self.num_classes = num_classes
        self.count = count
        self.padded = padded
        self.certain = self._certain(split)
        self._row_ends = tf.constant(self.certain.indptr, tf.int64)
        self._columns = tf.constant(self.certain.indices, tf.int32)
        largest = np.sort(np.diff(self.certain.indptr))[-batch_size:]
        self.size = count + int(largest.sum())
        weights = np.maximum(split.class_counts(num_classes), 1.0) ** power
        self._ends = np.append(0.0, np.cumsum(_proportional(weights, count)))
        examples = np.bincount(self.certain.indices, minlength=num_classes)
        in_batch = _probability_in_batch(examples, len(split), batch_size)
        self._log_q = np.float32(np.log(1.0 - (1.0 - _probability_of_draw(self._ends)) * (1.0 - in_batch)))

    def _certain(self, split: Split) -> scipy.sparse.csr_array:
        return split.class_matrix(self.num_classes)

    @property
    def covers_all(self) -> bool:
        """Whether there are at least as many candidates as classes; then all classes are to be scored."""
        return (self.size if self.padded else self.count) >= self.num_classes

    def of_step(self, seed: int, step: tf.Tensor, indices: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the candidates of a step, from 0, with the examples of some indices, int64 `[B]`.

        They are the ids of the classes, int32 `[m]`, increasing, of which padding repeats the last one; and
        which are repeated, bool `[m]`.
        """
        starts, stops = (tf.gather(self._row_ends, i) for i in (indices, indices + 1))
        certain = tf.gather(self._columns, tf.ragged.range(starts, stops).flat_values)
        ids, _ = tf.unique(tf.sort(tf.concat([self.draw(seed, step), certain], axis=0)))
        size = self.size if self.padded else tf.minimum(_round_up(tf.size(ids)), self.num_classes)
        places = tf.range(size)
        last = tf.size(ids) - 1
        return tf.gather(ids, tf.minimum(places, last)), places > last

    def draw(self, seed: int, step: tf.Tensor) -> tf.Tensor:
        """Returns the ids of the drawn classes of a step, int32 `[count]`; few are drawn twice."""
        seeds = tf.stack([tf.constant(seed + _STREAM, tf.int64), tf.cast(step, tf.int64)])
        places = tf.random.stateless_uniform([self.count], seeds, dtype=tf.float64)
        places += tf.range(self.count, dtype=tf.float64)
        drawn = tf.searchsorted(tf.constant(self._ends), places, side="right") - 1
        return tf.minimum(drawn, self.num_classes - 1)

    def log_q(self, ids: tf.Tensor) -> tf.Tensor:
        r"""Returns $\log \pi$ of classes, float32 `[m]`.

        The examples of a batch count as drawn from one epoch. In a batch that spans two, an example may be
        twice, and the probability of its classes is up to that of one more example too high.
        """
        return tf.gather(tf.constant(self._log_q), ids)


@CANDIDATES.register("mined")
class Mined(Sampled):
    """The classes of a batch, the nearest wrong classes of its examples, and others that are drawn.

    Args:
      nearest: classes with the highest scores that an example does not have, int32 `[N, k]`; None before
        they are known.
      split, num_classes, batch_size, power, padded: see `Sampled`.
      count: number of nearest and drawn classes together.
      fraction: of the nearest ones among them, in (0, 1); each example has the same number, at least 1.
    """

    def __init__(
        self,
        split: Split,
        num_classes: int,
        batch_size: int,
        nearest: np.ndarray | None = None,
        count: int = 4_096,
        power: float = 0.0,
        fraction: float = 0.5,
        padded: bool = False,
    ):
        check_count(count, num_classes)
        arguments.check_fraction(False, fraction=fraction)
        self._nearest = nearest
        self.num_nearest = max(1, round(fraction * count / batch_size))
        drawn = max(1, count - batch_size * self.num_nearest)
        super().__init__(split, num_classes, batch_size, drawn, power, padded)
        if nearest is None:  # so that steps do not cover all classes once they are known
            self.size += min(batch_size, len(split)) * self.num_nearest

    def _certain(self, split: Split) -> scipy.sparse.csr_array:
        matrix = super()._certain(split)
        if self._nearest is None:
            return matrix
        rows = np.repeat(np.arange(len(split)), self._nearest.shape[1])
        ones = np.ones(self._nearest.size, bool)
        return matrix + scipy.sparse.csr_array((ones, (rows, self._nearest.ravel())), matrix.shape)


def _round_up(size: tf.Tensor) -> tf.Tensor:
    """Returns one of eight sizes from each power of 2 to the next.

    >>> [int(_round_up(tf.constant(size))) for size in (5, 1000, 1024, 1025, 4910)]
    [5, 1024, 1024, 1152, 5120]
    """
    power = tf.math.ceil(tf.math.log(tf.cast(size, tf.float32)) / tf.math.log(2.0))
    step = tf.maximum(1, tf.cast(2.0**power, tf.int32) // 16)
    return -(-size // step) * step


def check_count(count: int, num_classes: int) -> None:
    """Raises ValueError if there are fewer classes than a step should draw."""
    arguments.check_integer(count=count)
    if count > num_classes:
        raise ValueError(
            f"count={count}: more than the {num_classes} classes of the training. Choose fewer, or "
            "--candidates=all."
        )


def nearest_wrong(best: np.ndarray, left_out: scipy.sparse.csr_array, count: int) -> np.ndarray:
    """Returns the first `count` of the best classes, int32 `[N, k]`, that are not left out, bool `[N, n]`.

    >>> left_out = scipy.sparse.csr_array([[False, True, False], [False, True, False]])
    >>> nearest_wrong(np.array([[0, 1, 2], [2, 0, 1]]), left_out, 2)
    array([[0, 2],
           [2, 0]])
    """
    rows, columns = left_out.nonzero()
    keys = np.arange(len(best), dtype=np.int64)[:, None]
    n = left_out.shape[1]
    is_left_out = np.isin(keys * n + best, rows.astype(np.int64) * n + columns)
    first = np.argsort(is_left_out, axis=1, kind="stable")[:, :count]
    return np.take_along_axis(best, first, axis=1)


def _proportional(weights: np.ndarray, count: int) -> np.ndarray:
    """Returns probabilities in proportion to weights, at most 1 each, with the sum `count`."""
    is_less = np.ones(len(weights), bool)
    while True:
        share = (count - np.count_nonzero(~is_less)) / weights[is_less].sum() if is_less.any() else 0.0
        probabilities = np.where(is_less, weights * share, 1.0)
        if not (probabilities > 1.0).any():
            return probabilities
        is_less &= probabilities < 1.0


def _probability_of_draw(ends: np.ndarray) -> np.ndarray:
    """Returns the probability that a class is drawn, whose part of the line from 0 to `count` has these ends.

    A point is drawn from each unit of the line, so a class whose part lies in two units has two chances.
    """
    start = ends[:-1]
    end = ends[1:]
    second = np.where(np.floor(end) > start, end - np.floor(end), 0.0)
    return 1.0 - (1.0 - (end - start - second)) * (1.0 - second)


def _probability_in_batch(examples: np.ndarray, total: int, batch_size: int) -> np.ndarray:
    """Returns the probability that one of `examples` is among the `batch_size - 1` others in a batch of one.

    The others are drawn without replacement from all `total` examples except that one.
    """
    others = min(batch_size, total) - 1
    possible = np.maximum(total - 1 - examples, 0)
    # The second term is infinite where fewer than `others` are possible.
    log_none = scipy.special.gammaln(possible + 1) - scipy.special.gammaln(possible - others + 1)
    log_none -= scipy.special.gammaln(total) - scipy.special.gammaln(total - others)
    return 1.0 - np.exp(log_none)
