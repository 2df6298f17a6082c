"""Vectors of random numbers with their ranks, drawn fresh at every step: what sorters learn from."""

import functools
import math

import tensorflow as tf

_plain = tf.autograph.experimental.do_not_convert
KINDS = ("uniform", "normal", "ordered", "shuffled", "mixed")


def draw(count, n, seed):
    """Draws vectors from the five distributions, each as likely as the others.

    "uniform" has numbers from -1 to 1, "normal" those of mean 0 and variance 1, "ordered" evenly spaced ones
    from one random number in -1..1 to another, "shuffled" the same in a random order, and "mixed" has each
    number from one of "uniform", "normal" and "shuffled", in random shares.

    Args:
      count: of the vectors.
      n: their length, at least 2.
      seed: int `[2]`; the same draws the same.

    Returns:
      float32 `[count, n]`.

    References:
      Engilberge, Chevallier, Perez, Cord (2019), "SoDeep: a sorting deep net to learn ranking loss
      surrogates", section 3.1.2; how its mixtures are made is our reading.

    >>> draw(4, 3, [0, 1]).shape
    TensorShape([4, 3])
    """
    kind_seed, uniform_seed, normal_seed, end_seed, order_seed, share_seed, pick_seed = tf.unstack(
        tf.random.experimental.stateless_split(seed, 7)
    )
    uniform = tf.random.stateless_uniform([count, n], uniform_seed, -1.0, 1.0)
    normal = tf.random.stateless_normal([count, n], normal_seed)
    first, last = tf.unstack(tf.random.stateless_uniform([count, 2, 1], end_seed, -1.0, 1.0), axis=1)
    ordered = first + (last - first) * tf.linspace(0.0, 1.0, n)
    order = tf.argsort(tf.random.stateless_uniform([count, n], order_seed), axis=1)
    shuffled = tf.gather(ordered, order, batch_dims=1)
    # Shares from a flat Dirichlet distribution.
    shares = tf.random.stateless_gamma([count, 3], share_seed, alpha=1.0)
    ends = tf.cumsum(shares, axis=1)
    # `stateless_categorical` would draw others with another number of threads.
    pick = ends[:, 2:] * tf.random.stateless_uniform([count, n], pick_seed)
    mixed = tf.where(pick < ends[:, :1], uniform, tf.where(pick < ends[:, 1:2], normal, shuffled))
    kinds = tf.stack([uniform, normal, ordered, shuffled, mixed], axis=1)
    kind = tf.random.stateless_uniform([count], kind_seed, 0, len(KINDS), tf.int32)
    return tf.gather(kinds, kind, batch_dims=1)


def ranks(scores):
    """Returns the ranks of the scores over their number, in `(0, 1]`; ties in the order they come.

    >>> ranks(tf.constant([[5.0, 7.0, 7.0, 1.0]])).numpy()
    array([[0.75, 0.25, 0.5 , 1.  ]], dtype=float32)
    """
    order = tf.argsort(scores, axis=-1, direction="DESCENDING", stable=True)
    n = tf.shape(scores)[-1]
    return tf.cast(1 + tf.argsort(order, axis=-1), tf.float32) / tf.cast(n, tf.float32)


def moves(scores, seed, most):
    """Draws how far each score of some vectors may move, normal.

    Args:
      scores: float32 `[N, n]`.
      seed: int `[2]`.
      most: a vector's standard deviation is drawn from 0 to so many places, a place being how far the scores
        would be apart if they were evenly spread with the variance that they have.

    Returns:
      float32 `[N, n]`.
    """
    place = tf.math.reduce_std(scores, axis=1, keepdims=True) * math.sqrt(12.0) / scores.shape[1]
    size_seed, own_seed = tf.unstack(tf.random.experimental.stateless_split(seed, 2))
    size = tf.random.stateless_uniform([tf.shape(scores)[0], 1], size_seed, 0.0, most)
    return place * size * tf.random.stateless_normal(tf.shape(scores), own_seed)


def training_batches(sizes, *, batch_size, seed, move=0.0, start_step=0, context=None):
    """Batches of vectors without end, each drawn from `seed` and its step alone.

    Args:
      sizes: lengths of the vectors, of one step after the other; then again from the first.
      batch_size: `B`, of all workers together.
      seed: int.
      move: how far the scores move at most, see `moves`; the ranks are those they have then.
      start_step: the first batch's step, from 0.
      context: `tf.distribute.InputContext` of a worker, which then gets its replicas' batches alone.

    Returns:
      A `tf.data.Dataset` of features (`scores` and `moves`, float32 `[B, n]`), the ranks float32 `[B, n]` and
      weights float32 `[B]`, all 1. `n` is static where there is one length.
    """
    replicas = 1 if context is None else context.num_replicas_in_sync
    own = 1 if context is None else replicas // context.num_input_pipelines
    first = 0 if context is None else own * context.input_pipeline_id

    @_plain
    def batches(step):
        draw_seed, move_seed = tf.unstack(
            tf.random.experimental.stateless_split(tf.stack([tf.cast(seed, tf.int64), step]), 2)
        )

        def with_moves(n):
            scores = draw(batch_size, n, draw_seed)
            return scores, moves(scores, move_seed, move)

        branches = [functools.partial(with_moves, n) for n in sizes]
        both = tf.switch_case(tf.cast(step % len(sizes), tf.int32), branches)
        n = sizes[0] if len(set(sizes)) == 1 else tf.shape(both[0])[1]
        scores, moved = (
            tf.reshape(x, [replicas, batch_size // replicas, n])[first : first + own] for x in both
        )
        weights = tf.ones([own, batch_size // replicas])
        features = {"scores": scores, "moves": moved}
        return tf.data.Dataset.from_tensor_slices((features, ranks(scores + moved), weights))

    steps = tf.data.Dataset.counter(tf.cast(start_step, tf.int64))
    return steps.flat_map(batches).prefetch(tf.data.AUTOTUNE)


HELD_OUT = {"validation": 2_000, "test": 10_000}


def held_out(split, n):
    """Returns vectors that no training draws and their ranks, always the same ones, two float32 `[N, n]`.

    Args:
      split: "validation", of 2,000, or "test", of 10,000.
      n: their length.
    """
    seed = -1 - list(HELD_OUT).index(split)  # a training's is never negative
    scores = draw(HELD_OUT[split], n, [seed, n])
    return scores.numpy(), ranks(scores).numpy()
