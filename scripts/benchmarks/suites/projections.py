"""The benchmark's suite of projections: losses and projections of many classes to `k` places.

"relevant" has a hundred relevant classes an instance, or a tenth of all.
"""

import functools

import tensorflow as tf

from rank4class import losses
from rank4class.losses.ops import projections
from rank4class.scripts.benchmarks.suite import (
    Compiled,
    Step,
    Suite,
    scores_and_labels,
    softmax_ce,
    value_and_gradient,
)

_RELEVANT = " relevant"


def _steps(size):
    batch, n, k = size
    del batch
    if k > n:
        raise ValueError(f"a size of {n} classes has no {k} places")
    against = {
        "rankmax": ("softmax_ce", "naive:sparsemax"),
        "rankmax" + _RELEVANT: ("softmax_ce", "dense_ce"),
        "euclidean": ("softmax_ce",),
        "entropy": ("softmax_ce",),
    }
    if k == 1:  # they know no other
        against |= {"sparsemax": against["rankmax"], "warp" + _RELEVANT: against["rankmax" + _RELEVANT]}
    return [Step(name, xla, baselines) for name, baselines in against.items() for xla in (False, True)]


def _build(step, size):
    batch, n, k = size
    scores, labels = scores_and_labels(batch, n)
    many = max(1, min(100, n // 10))
    several = step.name.endswith(_RELEVANT)
    if several or step.name == "dense_ce":
        labels = _relevant(batch, n, many)
    function = {
        "softmax_ce": softmax_ce,
        "dense_ce": _dense_ce,
        "naive:sparsemax": _sorted_sparsemax,
        "euclidean": functools.partial(_moved, projections.euclidean, k),
        "entropy": functools.partial(_moved, projections.entropy, k),
    }.get(step.name)
    if function is None:
        name = step.name.removesuffix(_RELEVANT)
        knobs = {"k": k} if name == "rankmax" else {}
        loss = losses.get(name, **knobs, **({"max_relevant": many} if several else {}))
        function = lambda s, y: loss(y, s)  # noqa: E731
    return Compiled(value_and_gradient(function), step.xla, scores, labels)


def _relevant(batch, n, many):
    """Returns labels `[batch, n]` of so many random classes each."""
    classes = tf.math.top_k(tf.random.stateless_uniform([batch, n], [5, 6]), many).indices
    lists = tf.repeat(tf.range(batch), many)
    places = tf.stack([lists, tf.reshape(classes, [-1])], axis=1)
    return tf.scatter_nd(places, tf.ones([batch * many]), [batch, n])


def _dense_ce(scores, labels):
    return tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels, scores))


def _sorted_sparsemax(scores, labels):
    """The Sparsemax loss by a sort of all scores, which is how it is defined (algorithm 1 of its paper)."""
    falling = tf.sort(scores, axis=-1, direction="DESCENDING")
    sums = tf.cumsum(falling, axis=-1)
    places = tf.range(1.0, scores.shape[-1] + 1.0)
    support = tf.math.count_nonzero(1.0 + places * falling > sums, axis=-1, dtype=tf.int32)
    level = (tf.gather(sums, support - 1, batch_dims=1) - 1.0) / tf.cast(support, tf.float32)
    shares = tf.stop_gradient(tf.nn.relu(scores - level[:, None]))
    true = tf.gather(scores, labels, batch_dims=1)
    return tf.reduce_mean(tf.reduce_sum(shares * (scores - 0.5 * shares), axis=-1) + 0.5 - true)


def _moved(project, k, scores, labels):
    """A projection's share of the true class, so that it has a gradient to measure."""
    return tf.reduce_mean(tf.gather(project(scores, k=k), labels, batch_dims=1))


SUITE = Suite(
    axes="BATCHxCLASSESxK",
    sizes=tuple(f"16x{n}x{k}" for n in (1000, 100_000, 850_000) for k in (1, 10, 100)),
    contenders=_steps,
    build=_build,
)
