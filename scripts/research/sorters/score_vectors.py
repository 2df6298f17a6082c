"""Random score vectors with their ranks, the training data of sorters."""

import functools
import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

_plain = tf.autograph.experimental.do_not_convert
KINDS = ("uniform", "normal", "ordered", "shuffled", "mixed")


def draw(count: int, n: int, seed: tf.types.experimental.TensorLike) -> tf.Tensor:
    """Draws vectors float32 `[count, n]`, each from a random one of five distributions.

    "uniform" has numbers from -1 to 1, "normal" numbers of mean 0 and variance 1, "ordered" evenly spaced
    numbers between two random ones in -1..1, "shuffled" the same in a random order. "mixed" draws each number
    from "uniform", "normal" or "shuffled", with random probabilities.

    Reference: Engilberge, Chevallier, Perez, Cord (2019), "SoDeep: a sorting deep net to learn ranking loss
    surrogates", section 3.1.2; it does not define the mixtures.

    >>> draw(4, 3, [0, 1]).shape
    TensorShape([4, 3])
    """
    kind_seed, uniform_seed, normal_seed, end_seed, order_seed, gamma_seed, pick_seed = tf.unstack(
        tf.random.experimental.stateless_split(seed, 7)
    )
    uniform = tf.random.stateless_uniform([count, n], uniform_seed, -1.0, 1.0)
    normal = tf.random.stateless_normal([count, n], normal_seed)
    first, last = tf.unstack(tf.random.stateless_uniform([count, 2, 1], end_seed, -1.0, 1.0), axis=1)
    ordered = first + (last - first) * tf.linspace(0.0, 1.0, n)
    order = tf.argsort(tf.random.stateless_uniform([count, n], order_seed), axis=1)
    shuffled = tf.gather(ordered, order, batch_dims=1)
    # Probabilities from a flat Dirichlet distribution, unnormalized.
    gammas = tf.random.stateless_gamma([count, 3], gamma_seed, alpha=1.0)
    ends = tf.cumsum(gammas, axis=1)
    # The draws of `stateless_categorical` depend on the number of threads.
    pick = ends[:, 2:] * tf.random.stateless_uniform([count, n], pick_seed)
    mixed = tf.where(pick < ends[:, :1], uniform, tf.where(pick < ends[:, 1:2], normal, shuffled))
    kinds = tf.stack([uniform, normal, ordered, shuffled, mixed], axis=1)
    kind = tf.random.stateless_uniform([count], kind_seed, 0, len(KINDS), tf.int32)
    return tf.gather(kinds, kind, batch_dims=1)


def ranks(scores: tf.types.experimental.TensorLike) -> tf.Tensor:
    """Returns the ranks of scores divided by their number, in `(0, 1]`; ties rank by position.

    >>> ranks(tf.constant([[5.0, 7.0, 7.0, 1.0]])).numpy()
    array([[0.75, 0.25, 0.5 , 1.  ]], dtype=float32)
    """
    order = tf.argsort(scores, axis=-1, direction="DESCENDING", stable=True)
    n = tf.shape(scores)[-1]
    return tf.cast(1 + tf.argsort(order, axis=-1), tf.float32) / tf.cast(n, tf.float32)


def moves(scores: tf.Tensor, seed: tf.types.experimental.TensorLike, most: float) -> tf.Tensor:
    """Draws normal perturbations of scores, float32 `[N, n]`.

    Each vector draws its standard deviation from 0 to `most` spacings. A spacing is the distance of evenly
    spaced scores of the same variance.
    """
    spacing = tf.math.reduce_std(scores, axis=1, keepdims=True) * math.sqrt(12.0) / scores.shape[1]
    size_seed, noise_seed = tf.unstack(tf.random.experimental.stateless_split(seed, 2))
    size = tf.random.stateless_uniform([tf.shape(scores)[0], 1], size_seed, 0.0, most)
    return spacing * size * tf.random.stateless_normal(tf.shape(scores), noise_seed)


def training_batches(
    sizes: Sequence[int], batch_size: int, seed: int, move: float = 0.0, *, start_step: int = 0
) -> tf.data.Dataset:
    """Returns endless batches of vectors, a pure function of `seed` and the step.

    Args:
      sizes: lengths of the vectors of successive steps, repeated from the first after the last.
      batch_size: number of vectors.
      seed: of the vectors and moves.
      move: `most` of `moves`; the ranks are those of the moved scores.
      start_step: the first step.

    Returns:
      A `tf.data.Dataset` of features (`scores`, `moves`) and ranks, float32 `[B, n]`.
    """

    @_plain
    def batch(step: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        draw_seed, move_seed = tf.unstack(
            tf.random.experimental.stateless_split(tf.stack([tf.cast(seed, tf.int64), step]), 2)
        )

        def with_moves(n: int) -> tuple[tf.Tensor, tf.Tensor]:
            scores = draw(batch_size, n, draw_seed)
            return scores, moves(scores, move_seed, move)

        branches = [functools.partial(with_moves, n) for n in sizes]
        scores, moved = tf.switch_case(tf.cast(step % len(sizes), tf.int32), branches)
        return {"scores": scores, "moves": moved}, ranks(scores + moved)

    return tf.data.Dataset.counter(tf.cast(start_step, tf.int64)).map(batch).prefetch(tf.data.AUTOTUNE)


HELD_OUT = {"validation": 2_000, "test": 10_000}


def held_out(split: str, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns fixed vectors of a split that training never draws, and their ranks, two float32 `[N, n]`."""
    seed = -1 - list(HELD_OUT).index(split)  # the seeds of training are never negative
    scores = draw(HELD_OUT[split], n, [seed, n])
    return scores.numpy(), ranks(scores).numpy()
