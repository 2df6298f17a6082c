r"""Sorters: differentiable approximations of the ranks of a list, $f(s) \approx \text{rank}(s) / n$.

A sorter is a Keras layer from scores `[..., n]` to ranks in `(0, 1]`: near `1 / n` for the highest score and
near 1 for the lowest. Its property `rank_fn` is the rank function of a loss, with ranks in `1..n`. Learned
sorters standardize the scores to mean 0 and variance 1, which changes no rank, so they accept scores of any
scale and offset.
"""

from rank4class.models.sorters.layers import (
    Equivariant,
    Exact,
    Handcrafted,
    LearnedSorter,
    RankFunction,
    Sorter,
    get,
)
from rank4class.models.sorters.order_statistics import standardize
from rank4class.models.sorters.weights import SHIPPED, to_bytes
from rank4class.registry import SORTERS
