"""Metrics of the classes that a rule, such as a threshold, decides for, from counts over all examples."""

import tensorflow as tf
from tensorflow.types.experimental import TensorLike

__all__ = ["balanced_accuracy", "f1_macro", "f1_micro", "macro_top1_error"]


def f1_micro(hits: TensorLike, decided: TensorLike, relevant: TensorLike) -> tf.Tensor:
    r"""Returns the F1 score of all pairs of example and class, `[...]`, in [0, 1].

    $$\text{F1} = \frac{2 \, TP}{2 \, TP + FP + FN}$$

    It is that of `sklearn.metrics.f1_score` with `average="micro"` and `zero_division=0`.

    Args:
      hits, decided, relevant: floats `[..., n]`, for how many examples each class is both decided and true,
        decided, and true.

    >>> print(f1_micro([1.0, 1.0], [1.0, 3.0], [2.0, 2.0]).numpy())  # 2 * 2 / (4 + 4)
    0.5
    """
    return _f1(*(tf.reduce_sum(counts, axis=-1) for counts in (hits, decided, relevant)))


def f1_macro(hits: TensorLike, decided: TensorLike, relevant: TensorLike) -> tf.Tensor:
    """Returns the mean of the F1 scores of the classes, `[...]`; the arguments are those of `f1_micro`.

    A class that is never decided and never true counts as 0, as with scikit-learn's `zero_division=0`.

    >>> print(f1_macro([1.0, 1.0, 0.0], [1.0, 3.0, 0.0], [1.0, 1.0, 0.0]).numpy())  # (1 + 1/2 + 0) / 3
    0.5
    """
    return tf.reduce_mean(_f1(hits, decided, relevant), axis=-1)


def balanced_accuracy(hits: TensorLike, decided: TensorLike, relevant: TensorLike) -> tf.Tensor:
    r"""Returns the mean recall of the classes, `[...]`, in [0, 1]; the arguments are those of `f1_micro`.

    $$\frac{1}{|C|} \sum_{j \in C} \frac{TP_j}{TP_j + FN_j}, \quad C = \{j : TP_j + FN_j > 0\}$$

    A class without examples is left out, and without any example the value is 0. For examples of one class,
    each with one decided class, it is that of `sklearn.metrics.balanced_accuracy_score`.

    References:
      Brodersen, Ong, Stephan, Buhmann (2010), "The balanced accuracy and its posterior distribution".

    >>> print(balanced_accuracy([4.0, 1.0, 0.0], [4.0, 2.0, 1.0], [5.0, 2.0, 0.0]).numpy())  # (4/5 + 1/2) / 2
    0.65
    """
    del decided
    recalls = tf.math.divide_no_nan(hits, relevant)
    present = tf.math.count_nonzero(relevant, axis=-1, dtype=recalls.dtype)
    return tf.math.divide_no_nan(tf.reduce_sum(recalls, axis=-1), present)


def macro_top1_error(hits: TensorLike, decided: TensorLike, relevant: TensorLike) -> tf.Tensor:
    """Returns one minus the `balanced_accuracy`, `[...]`: the mean of the top-1 errors of the classes.

    The decided class of each example is the one with the highest score.

    References:
      Menon, Jayasumana, Rawat, Jain, Veit, Kumar (2021), "Long-tail learning via logit adjustment",
      section 2.

    >>> print(macro_top1_error([4.0, 1.0, 0.0], [4.0, 2.0, 1.0], [5.0, 2.0, 0.0]).numpy().round(2))
    0.35
    """
    return 1.0 - balanced_accuracy(hits, decided, relevant)


def _f1(hits: TensorLike, decided: TensorLike, relevant: TensorLike) -> tf.Tensor:
    return tf.math.divide_no_nan(tf.multiply(hits, 2.0), tf.add(decided, relevant))
