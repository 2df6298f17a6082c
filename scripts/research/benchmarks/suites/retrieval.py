"""Search of the best of many classes by dot product: in blocks, and by ScaNN as exports do it.

The baseline computes all scores and selects the best. Queries are drawn as the vectors are:

random     normal: the hardest case of an approximate search, as no vector is near another
decaying   normal, the i-th coordinate with variance 1/i, as in the principal components of trained vectors
clustered  one of 1,000 normal centers plus normal noise of the same variance
"""

import functools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from rank4class.pipelines.export import approximate
from rank4class.scripts.research.benchmarks import suite

VECTORS = ("random", "decaying", "clustered")
CENTERS = 1_000
BLOCK = 1 << 16  # classes
RECALL_QUERIES = 512


def exact(queries: tf.Tensor, vectors: tf.Tensor, k: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns scores and ids of the best classes from the scores of all."""
    return tf.math.top_k(tf.matmul(queries, vectors, transpose_b=True), k)


def blocked(queries: tf.Tensor, vectors: tf.Tensor, k: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the same from the best classes of each block."""
    starts = range(0, vectors.shape[0], BLOCK)
    blocks = [vectors[start : start + BLOCK] for start in starts]
    best = [exact(queries, block, min(k, block.shape[0])) for block in blocks]
    scores, positions = tf.math.top_k(tf.concat([scores for scores, _ in best], axis=1), k)
    ids = tf.concat([ids + start for (_, ids), start in zip(best, starts, strict=True)], axis=1)
    return scores, tf.gather(ids, positions, batch_dims=1)


@functools.cache  # building takes seconds
def _index(kind: str, n: int, width: int, k: int) -> Any:
    return approximate.build_index(vectors_of(kind, n, width), k)


@functools.lru_cache(maxsize=4)
def _draw(kind: str, count: int, width: int, seed: int) -> tf.Tensor:
    """Returns float32 `[count, width]`, of one of `VECTORS`, with the same centers for all seeds."""
    drawn = tf.random.stateless_normal([count, width], [seed, 0])
    if kind == "random":
        return drawn
    if kind == "decaying":
        return drawn / tf.sqrt(tf.range(1.0, width + 1.0))
    centers = tf.random.stateless_normal([CENTERS, width], [0, 0])
    nearest = tf.random.stateless_uniform([count], [seed, 1], maxval=CENTERS, dtype=tf.int32)
    return drawn + tf.gather(centers, nearest)


vectors_of, queries_of = (functools.partial(_draw, seed=seed) for seed in (1, 2))


def _search(step: suite.Step, size: suite.Size) -> Callable[[tf.Tensor, tf.Tensor], tuple]:
    """Returns the function from queries and vectors to scores and ids of a step."""
    _, n, width, k = size
    method, kind = _parts(step)
    if method == "scann":
        index = _index(kind, n, width, k)
        return lambda queries, vectors: index.search_batched(queries)[::-1]
    function = {"exact": exact, "blocked": blocked}[method]
    return lambda queries, vectors: function(queries, vectors, k)


def _parts(step: suite.Step) -> tuple[str, str]:
    """Returns method and vectors of a step."""
    method, _, kind = step.name.replace(":", " ").partition(" ")
    return method, kind


def _build(step: suite.Step, size: suite.Size) -> suite.Compiled:
    batch, n, width, _ = size
    _, kind = _parts(step)
    drawn = queries_of(kind, batch, width), vectors_of(kind, n, width)
    return suite.Compiled(_search(step, size), False, *drawn)


def _recall(step: suite.Step, size: suite.Size) -> float:
    """Returns the mean fraction of the `k` best classes that a step finds for `RECALL_QUERIES` queries."""
    batch, n, width, _ = size
    _, kind = _parts(step)
    vectors = vectors_of(kind, n, width)
    queries = queries_of(kind, RECALL_QUERIES, width)
    searches = [_search(each, size) for each in (step, suite.Step(f"exact:{kind}"))]
    hits = []
    for start in range(0, RECALL_QUERIES, batch):
        found, best = (search(queries[start : start + batch], vectors)[1].numpy() for search in searches)
        hits += [np.isin(ids, found_ids).mean() for ids, found_ids in zip(best, found, strict=True)]
    return float(np.mean(hits))


@functools.cache
def _has_scann() -> bool:
    try:
        approximate.scann_ops()
    except ImportError as error:
        print(error, file=sys.stderr)
        return False
    return True


SUITE = suite.Suite(
    axes="BATCHxCLASSESxWIDTHxK",
    sizes=("32x850000x64x10",),
    contenders=lambda size: [
        suite.Step(f"{method} {kind}", against=(f"exact:{kind}",))
        for kind in VECTORS
        for method in ("blocked", *(["scann"] if _has_scann() else []))
    ],
    build=_build,
    computed=lambda step, size: {"recall": _recall(step, size)},
    values=lambda size: size[1] * (size[0] + size[2]),
)
