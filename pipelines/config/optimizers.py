"""Keras optimizers by name. The arguments of a function become the fields of `config.Optimizer`."""

from typing import Any, TypeAlias

import tensorflow as tf

from rank4class.registry import Registry

OPTIMIZERS = Registry("optimizer")
Schedule: TypeAlias = float | tf.keras.optimizers.schedules.LearningRateSchedule


@OPTIMIZERS.register("adam")
def adam(schedule: Schedule, **average: Any) -> tf.keras.optimizers.Optimizer:
    """Returns Adam."""
    return tf.keras.optimizers.Adam(schedule, **average)


@OPTIMIZERS.register("adamw")
def adamw(schedule: Schedule, weight_decay: float = 0.0, **average: Any) -> tf.keras.optimizers.Optimizer:
    """Returns Adam with decoupled weight decay, except of biases and normalization scales."""
    if weight_decay < 0.0:
        raise ValueError(f"weight_decay={weight_decay}: negative. Choose at least 0.")
    optimizer = tf.keras.optimizers.AdamW(schedule, weight_decay=weight_decay, **average)
    optimizer.exclude_from_weight_decay(var_names=["bias", "beta", "gamma"])
    return optimizer


@OPTIMIZERS.register("adagrad")
def adagrad(schedule: Schedule, **average: Any) -> tf.keras.optimizers.Optimizer:
    """Returns Adagrad."""
    return tf.keras.optimizers.Adagrad(schedule, **average)
