"""Sorters and soft ranks, value and gradient, against the exact sort, which has no gradient.

Time does not depend on the weights, so sorters of one length have random ones.
"""

import functools
from collections.abc import Callable

import tensorflow as tf

from rank4class.losses.ops import ranks
from rank4class.models import sorters
from rank4class.scripts.research.benchmarks import suite
from rank4class.scripts.research.sorters import (
    LEARNED,
    networks,  # noqa: F401, registers its sorters
)

_FORMULAS = {"neural_sort": ranks.neural_sort_ranks, "soft_sort": ranks.soft_sort_ranks}
_SLOW_UNDER_XLA = {"lstm"}  # compiles long and is no faster on a CPU
_OF_PAIRS = {"handcrafted", *_FORMULAS}
_MOST_PAIRS = 2e8  # of scores in a batch; more do not fit in memory
_OF_ONE_LENGTH = {"cnn", "lstm"}
_LONGEST = 1000  # scores of a list for these


def _contenders(size: suite.Size) -> list[suite.Step]:
    batch, n = size
    of_pairs = _OF_PAIRS if batch * n * n > _MOST_PAIRS else set()
    too_long = of_pairs | (_OF_ONE_LENGTH if n > _LONGEST else set())
    return [
        suite.Step(name, xla, ("sort",))
        for name in ("handcrafted", *LEARNED, *_FORMULAS)
        if name not in too_long
        for xla in ((False,) if name in _SLOW_UNDER_XLA else (False, True))
    ]


def _build(step: suite.Step, size: suite.Size) -> suite.Compiled:
    batch, n = size
    scores, labels = suite.scores_and_labels(batch, n)
    if step.name == "sort":
        exact = sorters.get("exact")
        return suite.Compiled(lambda s: tf.reduce_mean(exact(s)[:, 0]), step.xla, scores)
    function = functools.partial(_true_rank, _rank_fn(step.name, n))
    return suite.Compiled(suite.value_and_gradient(function), step.xla, scores, labels)


def _rank_fn(name: str, n: int) -> Callable:
    if name in _FORMULAS:
        return _FORMULAS[name]
    if name == "handcrafted":
        return sorters.get(name, n=n).rank_fn
    return sorters.get(name, n=n, trained=sorters.SHIPPED if name == "equivariant" else None).rank_fn


def _true_rank(rank_fn: Callable, scores: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(tf.gather(rank_fn(scores), labels, batch_dims=1))


SUITE = suite.Suite(
    axes="BATCHxCLASSES",
    sizes=("256x10", "256x100", "16x1000", "16x100000"),
    contenders=_contenders,
    build=_build,
)
