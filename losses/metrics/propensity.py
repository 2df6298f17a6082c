"""Propensity-scored metrics: relevant classes count by their inverse propensity, rare ones more.

Labels of many classes are incomplete, and those of rare classes most: the propensity of a class is the
probability that it is among the labels of an example for which it is relevant.

Common arguments:
  gains: floats `[N, K]`, of the first K classes of each example, the best first: the inverse propensity if
    the class is relevant, else 0.
  ideal: floats `[N, K]`, the highest inverse propensities of the relevant classes, the highest first,
    then 0.
  num_relevant: the number of relevant classes of each example, `[N]`.

Where scores are equal, the caller's order of the classes decides the gains. The metrics by name, such as
"psp@5", take the worst one: of equal scores, the class with the lower gain is first. So they are at most
those of other packages, which take any order.

Each metric returns its values and the best possible ones, both float64 `[N]` and divided by the mean of the
latter. The mean of the values is the metric of all examples, in [0, 1]; that of some examples is the sum of
their values over the sum of their best ones. It is 0 if no example has a class.

>>> labels = tf.constant([[1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 0.0]], tf.float64)
>>> scores = tf.constant([[4.0, 3.0, 2.0, 1.0], [4.0, 3.0, 2.0, 1.0]])
>>> weighted = labels / propensities([20, 10, 1, 0], num_examples=31)
>>> gains = tf.gather(weighted, tf.math.top_k(scores, 2).indices, batch_dims=1)
>>> values, best = psp(gains, tf.math.top_k(weighted, 2).values, [2, 1])
>>> print(tf.reduce_mean(values).numpy().round(4), tf.reduce_mean(best).numpy().round(4))
0.5251 1.0

References:
  Jain, Prabhu, Varma (2016), "Extreme multi-label loss functions for recommendation, tagging, ranking & other
  missing label applications"; the Extreme Classification Repository (Bhatia et al., 2016).
"""

import math

import tensorflow as tf
from tensorflow.types.experimental import TensorLike

from rank4class import arguments

__all__ = ["propensities", "psndcg", "psp", "psr"]


def propensities(counts: TensorLike, num_examples: int, *, a: float = 0.55, b: float = 1.5) -> tf.Tensor:
    r"""Returns the propensities of the classes by the model of Jain et al. (2016), float64 `[n]`.

    $$p_l = \frac{1}{1 + C (n_l + B)^{-A}}, \quad C = (\log N - 1) (B + 1)^A$$

    Args:
      counts: $n_l$, the number of training examples of each class, `[n]`.
      num_examples: $N$, the number of training examples.
      a, b: $A$, at least 0, and $B$, positive. The repository has 0.5 and 0.4 for data of Wikipedia, 0.6 and
        2.6 for those of Amazon, and the defaults for others.

    >>> propensities([0, 1, 1000], num_examples=100_000).numpy().round(4)
    array([0.067 , 0.0869, 0.7198])
    """
    arguments.check_at_least(0, a=a)
    arguments.check_positive(b=b)
    c = (tf.math.log(tf.cast(num_examples, tf.float64)) - 1.0) * (b + 1.0) ** a
    return 1.0 / (1.0 + c * (tf.cast(counts, tf.float64) + b) ** -a)


def psp(gains: TensorLike, ideal: TensorLike, num_relevant: TensorLike) -> tuple[tf.Tensor, tf.Tensor]:
    r"""Returns the propensity-scored precision, PSP@K, of examples with the gains $g$ and $g^*$.

    $$\frac{\sum_i \sum_{j \le K} g_{ij}}{\sum_i \sum_{j \le K} g^*_{ij}}$$
    """
    return _ratio(gains, ideal, tf.ones_like(num_relevant))


def psndcg(gains: TensorLike, ideal: TensorLike, num_relevant: TensorLike) -> tuple[tf.Tensor, tf.Tensor]:
    r"""Returns the propensity-scored NDCG, PSNDCG@K, of examples with $r_i$ relevant classes.

    $$\frac{\sum_i \frac{1}{z_i} \sum_{j \le K} g_{ij} / \log_2(1 + j)}
           {\sum_i \frac{1}{z_i} \sum_{j \le K} g^*_{ij} / \log_2(1 + j)}, \quad
      z_i = \sum_{j \le \min(K, r_i)} \frac{1}{\log_2(1 + j)}$$
    """
    ranks = tf.range(1, tf.shape(gains)[1] + 1, dtype=tf.float64)
    discounts = math.log(2.0) / tf.math.log1p(ranks)
    counted = ranks <= tf.cast(num_relevant, tf.float64)[:, None]
    gains, ideal = (tf.cast(each, tf.float64) * discounts for each in (gains, ideal))
    return _ratio(gains, ideal, tf.reduce_sum(tf.where(counted, discounts, 0.0), axis=1))


def psr(gains: TensorLike, ideal: TensorLike, num_relevant: TensorLike) -> tuple[tf.Tensor, tf.Tensor]:
    r"""Returns the propensity-scored recall, PSR@K, of examples with $r_i$ relevant classes.

    $$\frac{\sum_i \frac{1}{r_i} \sum_{j \le K} g_{ij}}{\sum_i \frac{1}{r_i} \sum_{j \le K} g^*_{ij}}$$
    """
    return _ratio(gains, ideal, num_relevant)


def _ratio(gains: TensorLike, ideal: TensorLike, sizes: TensorLike) -> tuple[tf.Tensor, tf.Tensor]:
    sums = (tf.reduce_sum(tf.cast(each, tf.float64), axis=1) for each in (gains, ideal))
    values, best = (tf.math.divide_no_nan(each, tf.cast(sizes, tf.float64)) for each in sums)
    mean = tf.reduce_mean(best)
    return tf.math.divide_no_nan(values, mean), tf.math.divide_no_nan(best, mean)
