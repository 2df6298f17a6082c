"""Keras optimizers by name. The arguments of a function become the fields of `config.Optimizer`."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from rank4class import arguments
from rank4class.pipelines.training.solver import Lbfgs
from rank4class.registry import OPTIMIZERS

Schedule: TypeAlias = float | tf.keras.optimizers.schedules.LearningRateSchedule
# Losses that are means over the classes need larger ones, by the number of classes.
STRENGTHS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, 10_000.0)
WITHOUT_DECAY = ["bias", "beta", "gamma", "log_temperature"]  # of normalizations: offsets and scales


class ByPart(tf.keras.optimizers.Optimizer):
    """An optimizer whose learning rate and weight decay are multiplied by a factor of the variable."""

    def set_factors(self, factors: Mapping[str, float]) -> None:
        """Sets the factors by the key of the variable; all others are 1."""
        self.__dict__["_factors"] = factors  # an attribute would be in checkpoints

    def _factor(self, variable: tf.Variable) -> float:
        return self.__dict__.get("_factors", {}).get(self._var_key(variable), 1.0)

    @property
    def learning_rate(self) -> tf.Tensor:
        """The rate, times the factor of the variable that is updated."""
        rate = super().learning_rate
        factor = self.__dict__.get("_current", 1.0)
        return rate if factor == 1.0 else factor * rate

    @contextlib.contextmanager
    def _updating(self, variable: tf.Variable) -> Iterator[None]:
        self.__dict__["_current"] = self._factor(variable)
        yield
        self.__dict__["_current"] = 1.0

    def update_step(self, gradient: tf.Tensor | tf.IndexedSlices, variable: tf.Variable) -> None:
        with self._updating(variable):
            super().update_step(gradient, variable)

    def _apply_weight_decay(self, variables: Sequence[tf.Variable]) -> None:
        for variable in variables if self.weight_decay else ():
            with self._updating(variable):
                super()._apply_weight_decay([variable])


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
    arguments.check_at_least(0, weight_decay=weight_decay)
    optimizer = _Adam(schedule, weight_decay=weight_decay or None, **average)
    optimizer.exclude_from_weight_decay(var_names=WITHOUT_DECAY)
    return optimizer


@OPTIMIZERS.register("adagrad")
def adagrad(schedule: Schedule, **average: Any) -> tf.keras.optimizers.Optimizer:
    """Returns Adagrad."""
    return _Adagrad(schedule, **average)


@OPTIMIZERS.register("sgd")
def sgd(schedule: Schedule, momentum: float = 0.0, **average: Any) -> tf.keras.optimizers.Optimizer:
    """Returns stochastic gradient descent, with momentum."""
    arguments.check_fraction(momentum=momentum)
    return _Sgd(schedule, momentum=momentum, **average)


@OPTIMIZERS.register("lbfgs")
def lbfgs(C: tuple[float, ...] = STRENGTHS, tol: float = 1e-4) -> Lbfgs:
    """Returns the solver of the head of frozen features, see `Lbfgs`."""
    if not C or min(C) <= 0.0:
        raise ValueError(f"C={C}: not positive numbers. Choose some.")
    arguments.check_positive(tol=tol)
    return Lbfgs(C, tol)


class _Adagrad(ByPart, tf.keras.optimizers.Adagrad):
    pass


class _Sgd(ByPart, tf.keras.optimizers.SGD):
    pass


class _Adam(ByPart, tf.keras.optimizers.Adam):
    """Keras's Adam with TensorFlow's fused kernel, a third of the passes over the weights.

    Of a sparse gradient, whose rows differ, only these rows are updated: see `lazy_adam`.
    """

    def _compute_current_learning_rate(self) -> None:  # once a step, before its updates
        super()._compute_current_learning_rate()
        step = tf.cast(self.iterations + 1, tf.float32)
        rate = tf.cast(self.learning_rate, tf.float32)
        powers = tf.pow(self.beta_1, step), tf.pow(self.beta_2, step)
        self.__dict__["_of_step"] = rate, *powers  # an attribute would be in checkpoints

    def update_step(self, gradient: tf.Tensor | tf.IndexedSlices, variable: tf.Variable) -> None:
        index = self._index_dict[self._var_key(variable)]
        m = self._momentums[index]
        v = self._velocities[index]
        dtype = variable.dtype
        rate, power_1, power_2 = self._of_step
        if (factor := self._factor(variable)) != 1.0:
            rate = factor * rate
        beta_1 = tf.constant(self.beta_1, dtype)
        beta_2 = tf.constant(self.beta_2, dtype)
        if not isinstance(gradient, tf.IndexedSlices):
            tf.raw_ops.ResourceApplyAdam(
                **{"var": variable.handle, "m": m.handle, "v": v.handle, "grad": gradient, "lr": rate},
                **{"beta1": beta_1, "beta2": beta_2, "beta1_power": power_1, "beta2_power": power_2},
                epsilon=tf.constant(self.epsilon, dtype),
            )
            return
        rows = gradient.indices
        values = gradient.values
        old_m = tf.gather(m, rows)
        old_v = tf.gather(v, rows)
        new_m = old_m + (values - old_m) * (1.0 - beta_1)
        new_v = old_v + (tf.square(values) - old_v) * (1.0 - beta_2)
        update = new_m * (rate * tf.sqrt(1.0 - power_2) / (1.0 - power_1)) / (tf.sqrt(new_v) + self.epsilon)
        m.scatter_update(tf.IndexedSlices(new_m, rows))
        v.scatter_update(tf.IndexedSlices(new_v, rows))
        variable.scatter_sub(tf.IndexedSlices(update, rows))
