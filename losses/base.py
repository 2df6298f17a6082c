"""The parts that all ranking losses share: argument checks, the two forms of labels, and the Keras class.

A loss is a pure function `loss(scores, labels, *, where=None, weights=None, ...)` and a Keras class of it.
The last axis of the scores holds the classes. The function returns one value per instance, float32 `[...]`,
at least 0 unless its text says otherwise. Labels come in two forms, which give the same value:

- class ids, integers `[...]`, take an exact form with `O(n)` time and memory, gradient included;
- dense labels `[..., n]` (one-hot, multi-label or graded gains) take `O(n log n)`. Pairwise losses other than
  `pairwise_mse`, `approx_*` and `gumbel_approx_ndcg` take `O(k n)` for `k` relevant classes, and
  `O(n^2)` under XLA or with weights of pairs. `unique_softmax` takes `O(n^2)`.

Losses without a form for class ids convert them to one-hot labels.

Common arguments:
  scores: float16, bfloat16, float32 or float64 `[..., n]`, finite and, with `where`, above -1e30; computed in
    float32. To leave a class out, use `where`, not a score of minus infinity.
  labels: integers `[...]` in `0..n-1`, or numbers `[..., n]`, finite and at least 0.
  where: optional bool, broadcastable to `[..., n]`: the classes that take part. A masked list has the loss of
    the shorter list. Without a relevant class a ranking loss is 0. (`mse`, `rescaled_mse`, `pairwise_mse`,
    `sigmoid_cross_entropy`, `asl`, `zlpr`, `ordinal` and `click_em` keep the cost of the irrelevant classes,
    and `calibrated_softmax` that of its virtual class.)
  weights: optional, broadcastable to `[...]`; multiplies the loss of each instance. A weight of 0 does not
    make an invalid label valid.
  temperature: `tau > 0`; divides the scores.
  seed: int32 `[2]`; the noise is a pure function of it.
  samples: number of draws of the noise; time and memory grow with it.

Common errors:
  ValueError: shapes or dtypes do not fit, an argument is not a dense tensor of numbers, an option is out of
    its range, or (in eager mode) a label is outside the classes or not a gain. Compiled functions cannot
    raise: the loss of such an instance is NaN.

Convert the ragged lists that TF-Ranking accepts with `ragged=True`: pass `scores.to_tensor()`,
`labels.to_tensor()` and `where=tf.sequence_mask(labels.row_lengths())`.
"""

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.types.experimental import TensorLike

from rank4class import compat
from rank4class.losses.ops import gumbel, label_checks, ranks, tensors
from rank4class.registry import LOSSES

MEAN = "sum_over_batch_size"  # Keras's name of the reduction to the mean over the batch
# Keras 3 computes losses in the dtype of its configuration, in which float16 could not hold class ids.
FLOAT32 = {"dtype": "float32"} if compat.is_keras_3() else {}


BATCH_LOSSES = ("mean_average_precision", "spearman")  # of a batch, with a rank function


class _ClassAttribute:
    """An attribute that instances lack: theirs would hide the signature of `__call__` from `tf.function`."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self._value if instance is None else None


class RankingLoss(tf.keras.losses.Loss):
    """A ranking loss for Keras, computed by the class's pure function.

    `y_pred` is `[B, n]`. `y_true` is class ids `[B]` or `[B, 1]`, or one value per class, `[B, n]`; with a
    single class, `[B, 1]` is the value of that class. The losses of the instances are multiplied by
    `sample_weight` and averaged over the batch, as in every Keras loss.

    Class ids lie in `0..n - 1`. In `fit` and `evaluate`, other labels raise `tf.errors.InvalidArgumentError`
    with the smallest and largest label of the batch. XLA (`jit_compile=True`) and TPUs drop that check, and
    the pure functions and `of_scores` do not check inside a `tf.function`. There, "loss: nan" from the first
    step usually means labels outside `0..n - 1`, such as ids that start at 1.

    Losses that draw noise derive it from their `seed` and the bits of the scores (`gumbel.seed_from_scores`):
    every step has new noise, and a run that is repeated or resumed has the same noise.

    Args:
      reduction, name: see `tf.keras.losses.Loss`.
      **options: the keyword arguments of the pure function.

    Raises:
      TypeError: the function has no such option.
      ValueError: raised by a call: labels or scores are not dense tensors of numbers, their shapes do not
        fit, or (in eager mode) a label is outside the classes or not a gain.

    >>> from rank4class import losses
    >>> print(losses.Softmax()([2], [[0., 0., 0., 0.]]).numpy().round(4))  # log 4
    1.3863
    """

    function: Any = None  # the pure function, `class MyLoss(RankingLoss, function=my_loss)`
    heads = False  # whether the scores have one more axis, `[B, n, H]`
    of_classes = True  # whether the scores are of classes, `[B, n]`
    threshold: float | None = None  # above it a class is more likely than not; None: no such score
    sums_exponentials = False  # whether it reads irrelevant scores through the sum of their exponentials

    def __init_subclass__(cls, function: Callable | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if function is not None:
            cls.function = staticmethod(function)
        if callable(cls.function):
            keyword = functools.partial(inspect.Parameter, kind=inspect.Parameter.KEYWORD_ONLY)
            parameters = inspect.signature(cls.function).parameters.values()
            options = {
                p.name: p.replace(default=0) if p.name == "seed" else p
                for p in parameters
                if p.kind is p.KEYWORD_ONLY and p.name not in ("where", "weights")
            }
            cls.defaults = {name: option.default for name, option in options.items()}
            common = [keyword("reduction", default=MEAN), keyword("name", default=None)]
            cls.__signature__ = _ClassAttribute(inspect.Signature([*options.values(), *common]))

    def __init__(self, *, reduction: str = MEAN, name: str | None = None, **options: Any) -> None:
        unknown = sorted(set(options) - set(self.defaults))
        if unknown:
            known = ", ".join(self.defaults) or "none"
            raise TypeError(f"{unknown[0]}: {type(self).__name__} has no such option. It has: {known}.")
        super().__init__(reduction=reduction, name=name or self.function.__name__, **FLOAT32)
        self.options = {**self.defaults, **options}

    @tf.autograph.experimental.do_not_convert
    def call(self, y_true: TensorLike, y_pred: TensorLike) -> tf.Tensor:
        y_pred = tensors.dense("y_pred", y_pred)
        lists = y_pred[..., 0] if self.heads else y_pred
        labels = labels_of(y_true, lists)
        label_checks.assert_valid(labels, lists)
        return self.of_scores(y_pred, labels)

    def of_scores(
        self,
        scores: TensorLike,
        labels: TensorLike,
        *,
        where: TensorLike | None = None,
        weights: TensorLike | None = None,
    ) -> tf.Tensor:
        """Returns the loss of each instance, `[B]`; see `losses.base` for the arguments."""
        options = dict(self.options)
        if "seed" in options:
            options["seed"] = gumbel.seed_from_scores(options["seed"], scores)
        return self.function(scores, labels, where=where, weights=weights, **options)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **self.options}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "RankingLoss":
        restored = {
            key: tf.keras.utils.deserialize_keras_object(value) if isinstance(value, dict) else value
            for key, value in config.items()
        }
        return cls(**restored)


def register(loss: type[RankingLoss]) -> type[RankingLoss]:
    """Registers a Keras loss under its function's name and lets Keras load it."""
    module = sys.modules.get(loss.function.__module__)  # None: of a program that is run from its text
    add_common_arguments(loss.function, getattr(module, "__doc__", None))
    add_common_arguments(loss.function, __doc__)  # if its module has none
    LOSSES.register(loss.function.__name__)(loss)
    return serializable(loss)


def keras_loss(name: str, function: Callable, **attributes: Any) -> type[RankingLoss]:
    """Returns the Keras loss of a pure function, a class of that name with these attributes; registers it.

    >>> from rank4class import losses
    >>> losses.ZLPR.__name__, losses.ZLPR.threshold
    ('ZLPR', 0.0)
    """
    attributes |= {"__module__": function.__module__, "__doc__": f"`{function.__name__}` as a Keras loss."}
    return register(type(name, (RankingLoss,), attributes, function=function))


def add_common_arguments(function: Callable[..., Any], module: str | None) -> None:
    """Appends the common arguments and errors of a module's docstring, for `help` and notebooks."""
    heading = "Common arguments:"
    doc = function.__doc__
    if module and doc and heading in module and heading not in doc:
        function.__doc__ = f"{inspect.cleandoc(doc)}\n\n{module[module.index(heading) :]}"


serializable = tf.keras.utils.register_keras_serializable(package="rank4class")


def labels_of(y_true: TensorLike, y_pred: tf.Tensor) -> tf.Tensor:
    """Returns Keras's labels as the pure functions take them: class ids as integers `[B]`, not as `[B, 1]`.

    Keras 3 gives a loss its class ids as float32, which are exact up to `2**24`.
    """
    y_true = tensors.dense("y_true", y_true)
    is_column = y_true.shape.rank == y_pred.shape.rank and y_true.shape[-1] == 1
    if is_column and y_pred.shape[-1] != 1:
        y_true = tf.squeeze(y_true, axis=-1)
    are_ids = y_true.shape.rank is not None and y_true.shape.rank + 1 == y_pred.shape.rank
    if are_ids and y_true.dtype.is_floating:
        return label_checks.ids_from_floats(y_true, y_pred.shape[-1])
    return y_true


def evaluate(
    of_ids: Callable | None,
    of_dense: Callable,
    scores: TensorLike,
    labels: TensorLike,
    where: TensorLike | None,
    weights: TensorLike | None,
    *,
    heads: bool = False,
) -> tf.Tensor:
    """Checks the arguments and returns the losses in the form that fits the labels.

    A form takes float32 scores `[..., n]`, ids within the classes or float32 labels, and a bool mask (for ids
    it may be None). Without one of ids they become one-hot labels. An instance with invalid labels or scores
    has the loss NaN. With `heads` the scores are `[..., n, H]`. AutoGraph would take seconds to convert the
    forms of a loss, which need no conversion: `do_not_convert` keeps it from that.
    """
    scores, labels, where, are_ids = checked(scores, labels, where, heads)
    if are_ids:
        axis = -2 if heads else -1
        n = scores.shape[axis] or tf.shape(scores)[axis]
        known = label_checks.known(labels, n)
        ids = tf.where(known, labels, 0)
        if of_ids is None:
            losses = _on_gains(of_dense, scores, tf.one_hot(ids, n), where)
        else:
            losses = of_ids(scores, ids, where)
            # Other scores reach the loss: NaN as NaN, and infinity as a class that is always or never ahead.
            scores = ranks.true_score(scores, labels)[..., None]
        losses = tf.where(known, losses, float("nan"))
    else:
        losses = _on_gains(of_dense, scores, labels, where)
    return weighted(nan_unless_finite(losses, scores, heads), weights)


def checked(
    scores: TensorLike, labels: TensorLike, where: TensorLike | None, heads: bool = False
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor | None, bool]:
    """Returns float32 scores, labels, a mask `[..., n]` or None, and whether the labels are class ids."""
    scores = tensors.dense("scores", scores)
    labels = tensors.dense("labels", labels)
    tensors.check_scores(scores, "nH" if heads else "n")
    scores = tf.cast(scores, tf.float32)
    lists = scores[..., 0] if heads else scores
    tensors.check_labels(labels, lists)
    if where is not None:
        where = tensors.broadcast("where", where, tf.bool, lists)
        # A masked score may be anything; infinity or NaN would reach the gradient through 0 * NaN.
        scores = tf.where(where[..., None] if heads else where, scores, 0.0)
    if labels.shape.is_compatible_with(lists.shape[:-1]):
        return scores, label_checks.ids(labels, tf.shape(lists)[-1]), where, True
    return scores, label_checks.gains(labels, lists, where), where, False


def _on_gains(form: Callable, scores: tf.Tensor, labels: tf.Tensor, where: tf.Tensor | None) -> tf.Tensor:
    valid = label_checks.valid_gains(labels, where)
    where = valid if where is None else where & valid
    losses = form(scores, tf.where(where, labels, 0.0), where)
    return tf.where(tf.reduce_all(valid, axis=-1), losses, float("nan"))


def weighted(losses: tf.Tensor, weights: TensorLike | None) -> tf.Tensor:
    """Multiplies losses by weights that broadcast to them, or by nothing if those are None."""
    if weights is None:
        return losses
    return losses * tensors.broadcast("weights", weights, tf.float32, losses)


def is_relevant(labels: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
    """Returns whether the labeled class of each instance takes part, bool `[...]`."""
    return ranks.true_score(where, labels)


def zero_without_relevant(losses: tf.Tensor, labels: tf.Tensor, where: tf.Tensor | None) -> tf.Tensor:
    """Returns 0 for lists whose one relevant class is masked: they have nothing to rank."""
    return losses if where is None else tf.where(is_relevant(labels, where), losses, 0.0)


def nan_unless_finite(losses: tf.Tensor, scores: tf.Tensor, heads: bool = False) -> tf.Tensor:
    """Returns losses `[...]`, NaN for those with a score of NaN or infinity, `[..., n]` or `[..., n, H]`."""
    finite = tf.reduce_all(tf.math.is_finite(scores), axis=[-2, -1] if heads else -1)
    return tf.where(finite, losses, float("nan"))
