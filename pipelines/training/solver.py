"""The head of frozen features, solved by L-BFGS: one strength of an L2 penalty per step."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.linalg
import scipy.optimize
import scipy.sparse
import tensorflow as tf
import threadpoolctl
from absl import logging

from rank4class import data
from rank4class.pipelines.task_data.task_data import ModelOutputs, TaskData
from rank4class.pipelines.task_data.words import MAX_PRODUCTS
from rank4class.pipelines.training.train_step import Loss, StepResults

MAX_ITERATIONS = 1_000  # for one strength
_BLOCK = 2**22  # scores, or values of dense features, at a time
_FEW_PRODUCTS = 10**8  # done sooner than TensorFlow's threads have started
_LEAST_VARIANCE = 1e-7  # of a direction of the features, over the largest
_LIKE_UNITS = 10.0  # largest ratio of the deviations of columns that have one penalty
_MOST_DIRECTIONS = 2_048  # of the features; of more the single variances are used


class Lbfgs(tf.Module):
    r"""Solves the class vectors and biases of dot products with fixed features, for each strength in turn.

    With weights $w_i$, losses $\ell_i$ and features $h_i$ of the training examples it minimizes

    $$\sum_i w_i \ell_i(V h_i + b) + \frac{\sigma^2}{2 C} \lVert V \rVert^2, \quad
    \sigma^2 = \frac{1}{N} \sum_i \lVert h_i - \mu \rVert^2,$$

    where $\mu$ is the mean of the features, or 0 without biases. So `C` is that of scikit-learn's
    `LogisticRegression` on features divided by $\sigma$, and no change of their unit or origin matters. If
    the standard deviations $\sigma_j$ of dense columns differ by more than ten times, the penalty is that of
    $\sum_j d \sigma_j^2 \lVert V_j \rVert^2$, as for scikit-learn's `StandardScaler` and features over $\sqrt
    d$. The first strength starts from 0, each other one from the solution of the one before. The variables
    are $\sigma V (\Sigma / n + I / (C N))^{1 / 2}$, with the covariance $\Sigma$ of the features over
    $\sigma^2$, of many sparse ones its diagonal: their curvatures are alike, which takes down to a third of
    the passes. Where there are fewer sparse examples than columns, the space of the examples takes the place
    of the columns: of 847 texts with 5,559 words a strength takes a tenth of the time. The result has no
    seed, no learning rate and no batches; for a convex loss it is the only minimum. A pass over `N` examples
    costs `O(N n d)` time, `O(nnz n)` for sparse features, and memory for a block of scores; a strength takes
    some 20 to 100 passes.

    Args:
      C: inverse strengths of the penalty, positive, in their order.
      tol: largest absolute derivative, of the objective over `N` by these variables, at which it stops.

    References:
      Liu, Nocedal (1989), "On the limited memory BFGS method for large scale optimization".
    """

    use_ema = False  # as a Keras optimizer without moving averages

    def __init__(self, C: tuple[float, ...], tol: float):
        super().__init__()
        self._strengths = C
        self._tol = tol

    def build_steps(
        self, model: tf.keras.Model, task_data: TaskData, loss: Loss
    ) -> Callable[..., StepResults]:
        """Returns a function as that of `train_step.build_steps`; a step is a strength.

        Raises:
          ValueError: the training data are too large.
        """
        head = self._head = _Head(model, task_data, loss)

        def take_steps(batches: Any, first: int, count: int, stopping: bool = False) -> StepResults:
            if first == 0:
                head.reset()
            solved = [head.solve(self._strengths[step], self._tol) for step in range(first, first + count)]
            values, norms, passes = np.array(solved).T
            examples = int(passes.sum()) * head.num_examples
            return StepResults(values, norms, waited=0.0, stopping=stopping, examples=examples)

        return take_steps

    def out_of_fold(self, step: int) -> np.ndarray:
        """Returns the scores of each training example by a head without the examples of its fold.

        These heads have the strength of a step, counted from 1, and start from those of the strength before,
        the first from 0: the head of all examples knows theirs. The scores are float32 `[N, n]`, for the
        classes of the labels; those of each step stay in memory.
        """
        for strength in self._strengths[len(self._head.scores_of_folds) : step]:
            self._head.solve_folds(strength, self._tol)
        return self._head.scores_of_folds[step - 1]


def _product(left: Any, right: np.ndarray, transposed: bool = False) -> np.ndarray:
    """Returns the product of features, sparse or dense, or of their transpose, with a dense matrix."""
    if scipy.sparse.issparse(left) or left.size * right.shape[1] < _FEW_PRODUCTS:
        return (left.T if transposed else left) @ right
    return tf.matmul(left, right, transpose_a=transposed).numpy()


class _Head:
    """The class vectors and biases of a model, and the objective that they minimize."""

    def __init__(self, model: tf.keras.Model, task_data: TaskData, loss: Loss):
        split = task_data.splits["train"]
        self._split = split
        self._features = split.features["embedding"]
        self._weights = data.example_weights(split, task_data.class_weights)
        self._folds = task_data.folds
        self._table = model.class_encoder.table
        self._bias = model.interaction.bias if model.interaction.use_bias else None
        self._classes = np.arange(len(task_data.class_names)) if task_data.seen is None else task_data.seen
        self.scores_of_folds: list[np.ndarray] = []  # by the strengths so far
        self._solutions_of_folds: dict[int, np.ndarray] = {}
        self.num_examples, width = self._features.shape
        stored = getattr(self._features, "nnz", self.num_examples * width)
        products = stored * len(self._classes)
        if products > MAX_PRODUCTS:
            raise ValueError(
                f"optimizer='lbfgs': a pass takes {products:.1e} multiplications, more than "
                f"{MAX_PRODUCTS:.0e}. Choose optimizer 'adam' with learning_rate=0.001, or to fine-tune "
                "class_encoder.init='random'."
            )
        self._block_size = max(1, _BLOCK // max(len(self._classes), stored // self.num_examples))
        is_sparse = scipy.sparse.issparse(self._features)
        self._basis: Any = None
        if is_sparse and self.num_examples < min(width, _MOST_DIRECTIONS):
            # The class vectors are sums of the examples', so their space is that of the features.
            values, vectors = np.linalg.eigh((self._features @ self._features.T).toarray().astype(np.float64))
            is_large = values > _LEAST_VARIANCE * values[-1]
            lengths = np.sqrt(values[is_large])
            self._basis = self._features.T @ (vectors[:, is_large] / lengths)
            self._features = (vectors[:, is_large] * lengths).astype(np.float32)
            is_sparse, width = False, len(lengths)
        self._width = width
        squares = np.zeros(width)
        sums = np.zeros(width)
        for _, rows in self._blocks():
            squares += (rows.power(2) if is_sparse else np.square(rows)).sum(axis=0, dtype=np.float64)
            sums += rows.sum(axis=0)
        # Of centered features the weights and the bias are independent: fewer passes, and the same solution.
        self._center = sums / self.num_examples if model.interaction.use_bias else np.zeros(width)
        variances = np.maximum(squares / self.num_examples - np.square(self._center), 0.0)
        self._scale = np.full(width, np.sqrt(max(variances.sum(), 1e-12)))
        varies = variances > 1e-12 * variances.max()
        is_given = not is_sparse and self._basis is None  # or the directions have no units
        if is_given and variances.max() > _LIKE_UNITS**2 * variances[varies].min(initial=np.inf):
            self._scale[varies] = np.sqrt(variances[varies] * varies.sum())
        of_bias = np.ones(int(self._bias is not None))
        self._variances = np.append(variances / self._scale**2, of_bias)
        self._directions: Any = scipy.sparse.identity(len(self._variances), format="csr")
        if not is_sparse and width <= _MOST_DIRECTIONS:
            moments = sum(rows.T @ rows for _, rows in self._blocks()) / self.num_examples
            covariance = moments - np.outer(self._center, self._center)
            covariance /= np.outer(self._scale, self._scale)
            self._variances, self._directions = np.linalg.eigh(scipy.linalg.block_diag(covariance, *of_bias))

        def of_scores(scores, labels, where, weights):
            with tf.GradientTape() as tape:
                tape.watch(scores)
                losses = loss(tf.constant(0, tf.int64), labels, ModelOutputs(scores, where), weights)
                total = tf.reduce_sum(tf.cast(losses, tf.float64))
            return total, tape.gradient(total, scores)

        self._of_scores = tf.function(of_scores, autograph=False, reduce_retracing=True)

    def reset(self) -> None:
        """Sets the vectors and biases of the trained classes to 0."""
        for variable in filter(lambda each: each is not None, (self._table, self._bias)):
            values = variable.numpy()
            values[self._classes] = 0.0
            variable.assign(values)

    def solve(self, C: float, tol: float) -> tuple[float, float, int]:
        """Solves for a strength; returns the mean loss, the norm of the gradient and the number of passes."""
        solution = self._minimize(self._start(), C, tol, self._weights, self._changes(C))
        head = solution.x.reshape(len(self._classes), -1)
        width = self._width
        vectors = head[:, :width] / self._scale
        table = self._table.numpy()
        table[self._classes] = vectors if self._basis is None else vectors @ self._basis.T
        self._table.assign(table)
        if self._bias is not None:
            bias = self._bias.numpy()
            bias[self._classes] = head[:, width] - vectors @ self._center
            self._bias.assign(bias)
        penalty = np.square(head[:, :width]).sum() / (2.0 * C * self.num_examples)
        return solution.fun - penalty, float(np.linalg.norm(solution.jac)), solution.nfev

    def solve_folds(self, C: float, tol: float) -> None:
        """Appends the scores of each example by a head that is solved without its fold; see `Lbfgs`."""
        assert self._folds is not None
        changes = self._changes(C)
        zeros = np.zeros(len(self._classes) * len(self._variances))
        scores = np.zeros([self.num_examples, len(self._classes)], np.float32)
        for fold in range(1 + self._folds.max()):
            is_in = self._folds == fold
            weights = np.where(is_in, np.float32(0.0), self._weights)
            start = self._solutions_of_folds.get(fold, zeros)
            self._solutions_of_folds[fold] = solution = self._minimize(start, C, tol, weights, changes).x
            columns, offsets = self._columns(solution)
            for block, features in self._blocks():
                rows = is_in[block]
                scores[block][rows] = features[rows] @ columns + offsets
        self.scores_of_folds.append(scores)

    def _start(self) -> np.ndarray:
        """Returns the weights of the model, as the solver has them, `[n (d + 1)]`."""
        vectors = self._table.numpy()[self._classes].astype(np.float64)
        if self._basis is not None:
            vectors = vectors @ self._basis
        start = [self._scale * vectors]
        if self._bias is not None:
            start.append((self._bias.numpy()[self._classes] + vectors @ self._center)[:, None])
        return np.concatenate(start, axis=1).ravel()

    def _minimize(
        self, start: np.ndarray, C: float, tol: float, weights: np.ndarray, changes: tuple[Any, Any]
    ) -> Any:
        shape = len(self._classes), -1
        to_head, to_variables = changes

        def of_variables(flat: np.ndarray) -> tuple[float, np.ndarray]:
            head = flat.reshape(shape) @ to_head
            value, gradient = self._objective(head.ravel(), 1.0 / C, weights)
            return value, (gradient.reshape(shape) @ to_head).ravel()

        # One BLAS thread is faster for vectors of this size than several, which compete with TensorFlow's.
        with threadpoolctl.threadpool_limits(1, "blas"):
            solution = scipy.optimize.minimize(
                of_variables,
                (start.reshape(shape) @ to_variables).ravel(),
                jac=True,
                method="L-BFGS-B",
                options={"gtol": tol, "ftol": 0.0, "maxiter": MAX_ITERATIONS, "maxfun": 2 * MAX_ITERATIONS},
            )
        if solution.nit == MAX_ITERATIONS:
            logging.warning("optimizer='lbfgs': C=%g has not converged after %d iterations", C, solution.nit)
        solution.x = (solution.x.reshape(shape) @ to_head).ravel()
        return solution

    def _changes(self, C: float) -> tuple[Any, Any]:
        """Returns the matrices that take rows of variables to those of the head, and back; see `Lbfgs`.

        They are symmetric, `[d + 1, d + 1]`, or `[d, d]` without biases.
        """
        curvatures = np.maximum(self._variances, 0.0) / len(self._classes) + 1.0 / (C * self.num_examples)
        scales = (scipy.sparse.diags(np.power(curvatures, power)) for power in (-0.5, 0.5))
        to_head, to_variables = (self._directions @ scale @ self._directions.T for scale in scales)
        return to_head, to_variables

    def _columns(self, flat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the factors of the features, float32 `[d, n]`, and the offsets of the scores, `[n]`."""
        width = self._width
        head = flat.reshape(len(self._classes), -1)
        columns = (head[:, :width] / self._scale).T.astype(np.float32)
        offsets = -self._center @ columns
        if self._bias is not None:
            offsets += head[:, width]
        return columns, offsets.astype(np.float32)

    def _objective(self, flat: np.ndarray, penalty: float, weights: np.ndarray) -> tuple[float, np.ndarray]:
        """Returns the objective and its gradient, over the number of examples."""
        width = self._width
        head = flat.reshape(len(self._classes), -1)
        vectors = head[:, :width]
        columns, offsets = self._columns(flat)
        value = 0.0
        products = np.zeros([width, len(self._classes)])
        sums = np.zeros(len(self._classes))
        for block, features in self._blocks():
            scores = _product(features, columns) + offsets
            loss, slopes = self._of_scores(scores, *self._targets(block), weights[block])
            slopes = slopes.numpy()
            value += float(loss)
            products += _product(features, slopes, transposed=True)
            sums += slopes.sum(axis=0, dtype=np.float64)
        products -= np.outer(self._center, sums)
        gradient = np.zeros_like(head)
        gradient[:, :width] = products.T / self._scale + penalty * vectors
        gradient[:, width:] = sums[:, None]
        value += 0.5 * penalty * np.square(vectors).sum()
        return value / self.num_examples, gradient.ravel() / self.num_examples

    def _blocks(self) -> Iterator[tuple[slice, Any]]:
        """Yields slices of the examples, and their features, dense or sparse."""
        for first in range(0, self.num_examples, self._block_size):
            block = slice(first, first + self._block_size)
            rows = self._features[block]
            yield block, rows if scipy.sparse.issparse(rows) else np.asarray(rows)

    def _targets(self, block: slice) -> tuple[Any, Any]:
        """Returns labels of a block of examples, and which classes are ranked."""
        labels = (
            self._split.label_matrix[block].toarray()
            if self._split.multi_label
            else self._split.labels[block]
        )
        excluded = self._split.excluded
        where = None if excluded is None else ~excluded[block].toarray()
        return labels, where
