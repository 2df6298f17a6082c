"""The nearest examples by the cosine of their vectors, by comparison with all of them."""

from typing import Any

import numpy as np
import scipy.sparse
import sklearn.preprocessing

_BLOCK = 256  # queries at a time


def nearest(
    queries: Any, examples: Any, count: int, themselves: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the nearest examples of each query, the nearest first, and their cosines.

    It takes `O(K N d)` time and `O(N)` memory beside a copy of the vectors.

    Args:
      queries: float `[K, d]`, an array or a `scipy.sparse.csr_array`.
      examples: likewise `[N, d]`.
      count: of examples, at most `N`, or `N - 1` with `themselves`.
      themselves: int `[K]`, the example that a query is, which is left out; or None.

    Returns:
      Ids, int `[K, count]`, and cosines, float64 `[K, count]`, which are 0 for a vector of 0.

    >>> vectors = np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 3.0]])
    >>> ids, cosines = nearest(vectors[:1], vectors, 2, themselves=np.array([0]))
    >>> ids.tolist(), cosines.round(2).tolist()
    ([[2, 1]], [[0.71, 0.0]])
    """
    examples = sklearn.preprocessing.normalize(examples)
    ids = np.zeros([queries.shape[0], count], int)
    cosines = np.zeros(ids.shape)
    for first in range(0, len(ids), _BLOCK):
        rows = slice(first, first + _BLOCK)
        products = sklearn.preprocessing.normalize(queries[rows]) @ examples.T
        if scipy.sparse.issparse(products):
            products = products.toarray()
        if themselves is not None:
            products[np.arange(len(products)), themselves[rows]] = -np.inf
        ids[rows] = np.argsort(-products, axis=1, kind="stable")[:, :count]
        cosines[rows] = np.take_along_axis(products, ids[rows], axis=1)
    return ids, cosines
