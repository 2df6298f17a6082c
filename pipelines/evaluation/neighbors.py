"""The nearest examples by the cosine of their vectors, by comparison with all of them."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse
import sklearn.preprocessing
import tensorflow as tf

from rank4class import data

_BLOCK = 256  # queries at a time


@dataclasses.dataclass(frozen=True)
class Neighbors:
    """Training examples that are shown beside answers, by the vectors of the model that answers.

    >>> split = data.Split({}, np.array([0, 1]), inputs=np.array(["a letter", "a bill"], object))
    >>> neighbors = Neighbors.of(np.eye(2), split, ["post", "bills"])
    >>> neighbors.find(tf.constant([[0.6, 0.8]]), 1)["neighbors"].numpy().tolist()
    [[b'a bill']]
    """

    vectors: Any  # of length 1, float32 `[N, d]`; NumPy's, or a variable in an export
    examples: Sequence[str]  # texts, or paths of images, or where the examples were read
    classes: Sequence[str]  # of each example; several are joined by ", "

    @staticmethod
    def of(vectors: np.ndarray, split: data.Split, class_names: Sequence[str]) -> "Neighbors":
        """Returns the examples of a split, by vectors `[N, d]`."""
        shown = split.inputs if split.inputs is not None else map(split.origin, range(len(split)))
        matrix = split.class_matrix(len(class_names))
        ids = np.split(matrix.indices, matrix.indptr[1:-1])
        classes = [", ".join(class_names[j] for j in each) for each in ids]
        return Neighbors(np.float32(sklearn.preprocessing.normalize(vectors)), [*map(str, shown)], classes)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Returns all fields, for a file of NumPy's, which pads strings: they are in JSON."""
        texts = {"examples": list(self.examples), "classes": list(self.classes)}
        encoded = {name: np.frombuffer(json.dumps(each).encode(), np.uint8) for name, each in texts.items()}
        return {"vectors": self.vectors, **encoded}

    @staticmethod
    def from_arrays(arrays: Mapping[str, np.ndarray]) -> "Neighbors":
        """Returns the neighbors that `to_arrays` described."""
        texts = {name: json.loads(arrays[name].tobytes()) for name in ("examples", "classes")}
        return Neighbors(arrays["vectors"], **texts)

    def find(self, vectors: tf.Tensor, count: int) -> dict[str, tf.Tensor]:
        """Returns the nearest examples of vectors `[B, d]`, the nearest first.

        They are "neighbors" and "neighbor_classes", string `[B, count]`, and "similarities", their cosines,
        float32 `[B, count]`. It takes `O(B N d)` time.
        """
        unit = tf.math.l2_normalize(tf.cast(vectors, tf.float32), axis=1)
        cosines = tf.matmul(unit, tf.convert_to_tensor(self.vectors), transpose_b=True)
        similarities, ids = tf.math.top_k(cosines, count)
        texts = {"neighbors": self.examples, "neighbor_classes": self.classes}
        found = {name: tf.gather(tf.constant(each), ids) for name, each in texts.items()}
        return {**found, "similarities": similarities}


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
