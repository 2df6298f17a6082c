"""The benchmark's suite of sorters: the value and the gradient of their ranks, against the exact sort.

"sort" are the exact ranks, which have no gradient; "neural_sort" and "soft_sort" are the rank functions of
relaxed permutation matrices. Time does not hang on weights, so sorters of one length have random ones.
"""

import functools

import tensorflow as tf

from rank4class.losses.ops import ranks
from rank4class.models import sorters
from rank4class.scripts.benchmarks.suite import Compiled, Step, Suite, scores_and_labels, value_and_gradient

_FORMULAS = {"neural_sort": ranks.neural_sort_ranks, "soft_sort": ranks.soft_sort_ranks}
_SLOW_UNDER_XLA = {"lstm"}  # whose step per score XLA does not make faster on a CPU, but compiles long
_PAIRS = {"handcrafted", *_FORMULAS}
_MOST_PAIRS = 2e8  # of scores in a batch; more do not fit
_LONGEST = 1000  # of the sorters of one length


def _steps(size):
    batch, n = size
    steps = []
    for name in ("handcrafted", *sorters.LEARNED, *_FORMULAS):
        if name in _PAIRS and batch * n * n > _MOST_PAIRS:
            continue
        if name in ("cnn", "lstm") and n > _LONGEST:
            continue
        steps += [
            Step(name, xla, ("sort",)) for xla in (False, True) if not xla or name not in _SLOW_UNDER_XLA
        ]
    return steps


def _build(step, size):
    batch, n = size
    scores, labels = scores_and_labels(batch, n)
    if step.name == "sort":
        exact = sorters.get("exact")
        return Compiled(lambda s: tf.reduce_mean(exact(s)[:, 0]), step.xla, scores)
    rank_fn = _FORMULAS.get(step.name)
    if rank_fn is None:
        trained = sorters.SHIPPED if step.name == "equivariant" else None
        knobs = {} if step.name == "handcrafted" else {"trained": trained}
        rank_fn = sorters.get(step.name, n=n, **knobs).rank_fn
    return Compiled(value_and_gradient(functools.partial(_true_rank, rank_fn)), step.xla, scores, labels)


def _true_rank(rank_fn, scores, labels):
    return tf.reduce_mean(tf.gather(rank_fn(scores), labels, batch_dims=1))


SUITE = Suite(
    axes="BATCHxCLASSES",
    sizes=("256x10", "256x100", "16x1000", "16x100000"),
    contenders=_steps,
    build=_build,
)
