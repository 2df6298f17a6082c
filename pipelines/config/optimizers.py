"""Keras optimizers by name. The arguments of a function become the fields of `config.Optimizer`."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from rank4class.registry import Registry

OPTIMIZERS = Registry("optimizer")
Schedule: TypeAlias = float | tf.keras.optimizers.schedules.LearningRateSchedule
WITHOUT_DECAY = ["bias", "beta", "gamma"]  # biases, and offsets and scales of normalizations


@OPTIMIZERS.register("adam")
def adam(schedule: Schedule, **average: Any) -> tf.keras.optimizers.Optimizer:
    """Returns Adam."""
    return _Adam(schedule, **average)


@OPTIMIZERS.register("lazy_adam")
def lazy_adam(schedule: Schedule, **average: Any) -> tf.keras.optimizers.Optimizer:
    """Returns Adam that updates only the rows of embeddings that a batch looked up.

    The weights and moments of the other rows stay, where Adam moves them by their decaying moments. A step
    is faster by the time that all rows take, and its result differs from Adam's.
    """
    return _Adam(schedule, **average)


@OPTIMIZERS.register("adamw")
def adamw(schedule: Schedule, weight_decay: float = 0.0, **average: Any) -> tf.keras.optimizers.Optimizer:
    """Returns Adam with decoupled weight decay, except of biases and normalization scales."""
    _check_weight_decay(weight_decay)
    optimizer = _Adam(schedule, weight_decay=weight_decay or None, **average)
    optimizer.exclude_from_weight_decay(var_names=WITHOUT_DECAY)
    return optimizer


@OPTIMIZERS.register("adagrad")
def adagrad(schedule: Schedule, **average: Any) -> tf.keras.optimizers.Optimizer:
    """Returns Adagrad."""
    return tf.keras.optimizers.Adagrad(schedule, **average)


@OPTIMIZERS.register("sgd")
def sgd(
    schedule: Schedule, momentum: float = 0.0, nesterov: bool = False, **average: Any
) -> tf.keras.optimizers.Optimizer:
    """Returns stochastic gradient descent, with momentum or Nesterov's momentum."""
    _check_fraction("momentum", momentum)
    if nesterov and not momentum:
        raise ValueError("nesterov=True: it has no effect without momentum. Set momentum.")
    return tf.keras.optimizers.SGD(schedule, momentum=momentum, nesterov=nesterov, **average)


@OPTIMIZERS.register("lamb")
def lamb(
    schedule: Schedule,
    weight_decay: float = 0.0,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    **average: Any,
) -> tf.keras.optimizers.Optimizer:
    """Returns LAMB, for large batches; biases and normalizations have Adam's steps and no weight decay."""
    _check_weight_decay(weight_decay)
    _check_fraction("beta_1", beta_1)
    _check_fraction("beta_2", beta_2)
    optimizer = _Lamb(schedule, weight_decay, beta_1, beta_2, **average)
    optimizer.exclude_from_weight_decay(var_names=WITHOUT_DECAY)
    return optimizer


class _Adam(tf.keras.optimizers.Adam):
    """Keras's Adam with TensorFlow's fused kernel, a third of the passes over the weights.

    Of a sparse gradient, whose rows differ, only these rows are updated: see `lazy_adam`.
    """

    def update_step(self, gradient: tf.Tensor | tf.IndexedSlices, variable: tf.Variable) -> None:
        index = self._index_dict[self._var_key(variable)]
        m, v = self._momentums[index], self._velocities[index]
        dtype = variable.dtype
        step, rate = tf.cast(self.iterations + 1, dtype), tf.cast(self.learning_rate, dtype)
        beta_1, beta_2 = tf.constant(self.beta_1, dtype), tf.constant(self.beta_2, dtype)
        power_1, power_2 = tf.pow(beta_1, step), tf.pow(beta_2, step)
        if not isinstance(gradient, tf.IndexedSlices):
            tf.raw_ops.ResourceApplyAdam(
                **{"var": variable.handle, "m": m.handle, "v": v.handle, "grad": gradient, "lr": rate},
                **{"beta1": beta_1, "beta2": beta_2, "beta1_power": power_1, "beta2_power": power_2},
                epsilon=tf.constant(self.epsilon, dtype),
            )
            return
        rows, values = gradient.indices, gradient.values
        old_m, old_v = tf.gather(m, rows), tf.gather(v, rows)
        new_m = old_m + (values - old_m) * (1.0 - beta_1)
        new_v = old_v + (tf.square(values) - old_v) * (1.0 - beta_2)
        update = new_m * (rate * tf.sqrt(1.0 - power_2) / (1.0 - power_1)) / (tf.sqrt(new_v) + self.epsilon)
        m.scatter_update(tf.IndexedSlices(new_m, rows))
        v.scatter_update(tf.IndexedSlices(new_v, rows))
        variable.scatter_sub(tf.IndexedSlices(update, rows))


class _Lamb(tf.keras.optimizers.Optimizer):
    r"""LAMB: Adam's steps, scaled for each tensor of weights to the tensor's norm.

    $$w \leftarrow w - \eta \frac{\lVert w \rVert}{\lVert u \rVert} u, \quad
    u = \frac{\hat m}{\sqrt{\hat v} + \epsilon} + \lambda w$$

    The ratio of the norms is 1 if one of them is 0. It is 1 too for tensors that are excluded from weight
    decay, as in the Model Garden's LAMB. That class is an optimizer of Keras's legacy API: it has neither
    `build` nor moving averages of the weights.

    Args:
      learning_rate: $\eta$, or its schedule.
      decay_rate: $\lambda$. Keras's `weight_decay` would be applied outside of the ratio.
      beta_1, beta_2: decay rates of the moments $m$ and $v$, of which the bias is corrected.
      epsilon: $\epsilon$.
      **average: options of Keras's moving average.

    References:
      You, Li, Reddi, Hseu, Kumar, Bhojanapalli, Song, Demmel, Keutzer, Hsieh (2020), "Large batch
      optimization for deep learning: training BERT in 76 minutes", algorithm 2.
    """

    def __init__(
        self,
        learning_rate: Schedule,
        decay_rate: float,
        beta_1: float,
        beta_2: float,
        epsilon: float = 1e-6,
        **average: Any,
    ):
        super().__init__("lamb", weight_decay=None, **average)
        self._learning_rate = self._build_learning_rate(learning_rate)
        self._decay_rate, self._epsilon = decay_rate, epsilon
        self._beta_1, self._beta_2 = beta_1, beta_2

    def build(self, var_list: Sequence[tf.Variable]) -> None:
        super().build(var_list)
        if not getattr(self, "_built", False):
            self._built = True
            self._m = [self.add_variable_from_reference(variable, "m") for variable in var_list]
            self._v = [self.add_variable_from_reference(variable, "v") for variable in var_list]

    def update_step(self, gradient: tf.Tensor, variable: tf.Variable) -> None:
        index = self._index_dict[self._var_key(variable)]
        m, v = self._m[index], self._v[index]
        m.assign_add((1.0 - self._beta_1) * (gradient - m))
        v.assign_add((1.0 - self._beta_2) * (tf.square(gradient) - v))
        step = tf.cast(self.iterations + 1, variable.dtype)
        unbiased_m = m / (1.0 - tf.pow(self._beta_1, step))
        unbiased_v = v / (1.0 - tf.pow(self._beta_2, step))
        update, ratio = unbiased_m / (tf.sqrt(unbiased_v) + self._epsilon), 1.0
        if self._use_weight_decay(variable):
            update += self._decay_rate * variable
            norm, update_norm = tf.norm(variable), tf.norm(update)
            ratio = tf.where((norm > 0.0) & (update_norm > 0.0), norm / update_norm, 1.0)
        variable.assign_sub(tf.cast(self.learning_rate, variable.dtype) * ratio * update)


def _check_weight_decay(weight_decay: float) -> None:
    if weight_decay < 0.0:
        raise ValueError(f"weight_decay={weight_decay}: negative. Choose at least 0.")


def _check_fraction(name: str, value: float) -> None:
    if not 0.0 <= value < 1.0:
        raise ValueError(f"{name}={value}: not in [0, 1). Choose another value.")
