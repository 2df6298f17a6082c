"""Losses on projections of many classes to `k` places, against TensorFlow's cross entropy.

"LOSS relevant" has 100 relevant classes per list, or a tenth of all classes if these are fewer.
"""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from rank4class import losses
from rank4class.scripts.research.benchmarks import suite

_RELEVANT = " relevant"


def _contenders(size: suite.Size) -> list[suite.Step]:
    of_ids = ("softmax_ce", "naive:sparsemax")
    of_dense = ("softmax_ce", "dense_ce")
    against = {
        "rankmax": of_ids,
        "rankmax" + _RELEVANT: of_dense,
    }
    if size[2] == 1:  # their only k
        against |= {"sparsemax": of_ids, "warp" + _RELEVANT: of_dense}
    return [
        step for name, baselines in against.items() for step in suite.with_and_without_xla(name, *baselines)
    ]


def _build(step: suite.Step, size: suite.Size) -> suite.Compiled:
    batch, n, k = size
    scores, labels = suite.scores_and_labels(batch, n)
    options = {}
    is_dense = step.name.endswith(_RELEVANT)
    if is_dense or step.name == "dense_ce":
        num_relevant = max(1, min(100, n // 10))
        labels = _relevant(batch, n, num_relevant)
        options["max_relevant"] = num_relevant
    functions: dict[str, Callable] = {
        "softmax_ce": suite.softmax_ce,
        "dense_ce": _dense_ce,
        "naive:sparsemax": _sparsemax_by_sort,
    }
    function = functions.get(step.name)
    if function is None:
        name = step.name.removesuffix(_RELEVANT)
        if name == "rankmax":
            options["k"] = k
        loss = losses.get(name, **options)
        function = lambda s, y: loss(y, s)  # noqa: E731
    return suite.Compiled(suite.value_and_gradient(function), step.xla, scores, labels)


def _relevant(batch: int, n: int, num_relevant: int) -> tf.Tensor:
    """Returns labels `[batch, n]` with that many random relevant classes each."""
    classes = tf.math.top_k(tf.random.stateless_uniform([batch, n], [5, 6]), num_relevant).indices
    labels = np.zeros([batch, n], np.float32)
    np.put_along_axis(labels, classes.numpy(), 1.0, axis=1)
    return tf.constant(labels)


def _dense_ce(scores: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels, scores))


def _sparsemax_by_sort(scores: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Returns the Sparsemax loss by a sort of all scores, as algorithm 1 of its paper defines it."""
    in_order = tf.sort(scores, axis=-1, direction="DESCENDING")
    sums = tf.cumsum(in_order, axis=-1)
    places = tf.range(1.0, scores.shape[-1] + 1.0)
    support = tf.math.count_nonzero(1.0 + places * in_order > sums, axis=-1, dtype=tf.int32)
    level = (tf.gather(sums, support - 1, batch_dims=1) - 1.0) / tf.cast(support, tf.float32)
    shares = tf.stop_gradient(tf.nn.relu(scores - level[:, None]))
    true = tf.gather(scores, labels, batch_dims=1)
    return tf.reduce_mean(tf.reduce_sum(shares * (scores - 0.5 * shares), axis=-1) + 0.5 - true)


SUITE = suite.Suite(
    axes="BATCHxCLASSESxK",
    sizes=tuple(f"16x{n}x{k}" for n in (1000, 100_000, 850_000) for k in (1, 10, 100)),
    contenders=_contenders,
    build=_build,
)
