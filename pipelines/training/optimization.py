"""Losses, optimizers and their schedules, built from the config."""

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from rank4class import losses
from rank4class.models import sorters
from rank4class.pipelines import config
from rank4class.pipelines.task_data import count_priors
from rank4class.pipelines.training.optimizers import ByPart
from rank4class.registry import OPTIMIZERS

LearningRateSchedule: TypeAlias = tf.keras.optimizers.schedules.LearningRateSchedule


def build_loss(
    loss_config: config.Loss,
    *,
    seed: int = 0,
    temperature: LearningRateSchedule | None = None,
    count_prior: count_priors.CountPrior = count_priors.NONE,
    max_relevant: int | None = None,
    rank_fn: Any = None,
    log_prior: np.ndarray | None = None,
    log_q: bool = False,
) -> Callable:
    """Builds the loss that `config.Loss` describes, to which a trained count prior adds its own.

    The `temperature` is a function of a step, see `build_temperature`; `max_relevant` is the largest number
    of classes of an example, None for class ids.
    The loss is that of the scores plus a `log_prior` `[n]`, times the temperature, by which it divides them.
    With `log_q`, a loss that sums exponentials of scores corrects these for the candidates' probabilities.

    Returns:
      A function of a step, from 0, labels, `task_data.ModelOutputs` and weights to the losses, float32 `[B]`.
    """
    name = loss_config.name
    options = loss_config.options()
    known = losses.option_names(name)
    context = {"seed": seed, "max_relevant": max_relevant, "rank_fn": rank_fn}
    options |= {option: value for option, value in context.items() if option in known}

    def loss(number, labels, outputs, weights):
        changing = {} if temperature is None else {"temperature": temperature(number)}
        ranking_loss = losses.get(name, **{**options, **changing})
        shifts = []
        if log_prior is not None:
            ids = outputs.class_ids
            shifts.append(log_prior if ids is None else tf.gather(tf.constant(log_prior), ids))
        if log_q and ranking_loss.sums_exponentials and outputs.log_q is not None:
            shifts.append(-outputs.log_q)
        if shifts:
            shift = ranking_loss.options.get("temperature", 1.0) * sum(shifts)
            outputs = outputs._replace(scores=tf.cast(outputs.scores, tf.float32) + shift)
        value = ranking_loss.of_scores(outputs.scores, labels, where=outputs.where, weights=weights)
        if loss_config.fine_tune:
            value += weights * _sorting_error(rank_fn.sorter, outputs, name)
        count_loss = count_prior.loss(outputs.log_counts, labels, outputs.where)
        return value if count_loss is None else value + weights * count_loss

    return loss


def _sorting_error(sorter, outputs, loss_name):
    """Returns the mean absolute error of a sorter's ranks; its gradient reaches the sorter only."""
    lists = tf.stop_gradient(outputs.scores)
    where = outputs.where
    if loss_name in losses.BATCH_LOSSES:
        lists = tf.transpose(lists)
        where = None if where is None else tf.transpose(where)
    return tf.reduce_mean(tf.abs(sorter(lists, where=where) - sorters.Exact()(lists, where=where)))


def build_temperature(loss_config: config.Loss, total_steps: int) -> LearningRateSchedule | None:
    """Builds the temperature over the steps; returns None if `config.Loss` keeps it constant."""
    if loss_config.final_temperature is None:
        return None
    first = losses.get(loss_config.name, **loss_config.options()).options["temperature"]
    last_step = max(1, total_steps - 1)
    ratio = loss_config.final_temperature / first
    return tf.keras.optimizers.schedules.ExponentialDecay(first, last_step, ratio)


def build_schedule(optimizer_config: config.Optimizer, total_steps: int) -> LearningRateSchedule:
    """Builds the learning rate over the steps."""
    rate = optimizer_config.learning_rate
    if optimizer_config.decay == "cosine":
        schedule = tf.keras.optimizers.schedules.CosineDecay(rate, total_steps)
    else:
        end = 0.0 if optimizer_config.decay == "linear" else rate
        schedule = tf.keras.optimizers.schedules.PolynomialDecay(rate, total_steps, end)
    warmup_steps = min(round(optimizer_config.warmup_fraction * total_steps), total_steps - 1)
    if not warmup_steps:
        return schedule
    return _Warmup(schedule, warmup_steps)


class _Warmup(LearningRateSchedule):
    """Rises from 0 over the first steps to the rate of a schedule, which it follows then."""

    def __init__(self, schedule: LearningRateSchedule, steps: int):
        self._schedule = schedule
        self._steps = steps
        self._end = schedule(steps)

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        step = tf.cast(step, tf.float32)
        return tf.where(step < self._steps, step / self._steps * self._end, self._schedule(step))


def build_optimizer(
    optimizer_config: config.Optimizer,
    schedule: LearningRateSchedule | float,
    precision: str = "float32",
    model: tf.keras.Model | None = None,
) -> tf.keras.optimizers.Optimizer:
    """Builds the Keras optimizer; with "mixed_float16" it scales the loss.

    The parts of the `model` have separate learning rates; see `rate_factors`.
    """
    momentum = optimizer_config.ema_momentum
    average = {"use_ema": momentum is not None, "ema_momentum": momentum or 0.0}
    # On a GPU Keras would start a program of XLA for each variable.
    options = {**optimizer_config.options(), **average, "jit_compile": False}
    optimizer = OPTIMIZERS[optimizer_config.name](schedule, **options)
    if model is not None and (factors := rate_factors(optimizer_config, model)):
        if not isinstance(optimizer, ByPart):
            raise ValueError(f"optimizer={optimizer_config.name!r}: has one learning rate. Choose 'adamw'.")
        optimizer.set_factors({optimizer._var_key(v.deref()): factor for v, factor in factors.items()})
    if precision == "mixed_float16":
        return tf.keras.mixed_precision.LossScaleOptimizer(optimizer)
    return optimizer


def rate_factors(optimizer_config: config.Optimizer, model: tf.keras.Model) -> dict[Any, float]:
    """Returns the factors other than 1 of the learning rates, by the references of variables.

    Raises:
      ValueError: the model has no such part, or does not train it.
    """
    factors: dict[Any, float] = {}
    for part in ("encoder", "class_encoder", "interaction"):
        field = f"{part}_multiplier"
        if (factor := getattr(optimizer_config, field)) != 1.0:
            variables = getattr(getattr(model, part, None), "trainable_variables", None)
            if not variables:
                raise ValueError(f"optimizer.{field}={factor}: no weights of the {part} train. Leave it out.")
            factors |= {variable.ref(): factor for variable in variables}
    if (decay := optimizer_config.layer_decay) != 1.0:
        encoder: Any = getattr(model, "encoder", None)
        named = encoder.named_variables() if hasattr(encoder, "named_variables") else {}
        layers = {name: int(match[1]) for name in named if (match := re.search(r"layer_(\d+)/", name))}
        if not layers:
            raise ValueError(f"optimizer.layer_decay={decay}: for encoders of texts only. Leave it out.")
        top = max(layers.values()) + 1
        for name, variable in named.items():
            layer = top if "pooler" in name else layers.get(name, -1)  # embeddings are below all
            factors[variable.ref()] = factors.get(variable.ref(), 1.0) * decay ** (top - layer)
    return factors


@contextlib.contextmanager
def averaged(model: tf.keras.Model, optimizer: tf.keras.optimizers.Optimizer) -> Iterator[None]:
    """Sets the model's weights to their moving averages, if the optimizer computes any, within the block."""
    if not optimizer.use_ema:
        yield
        return
    variables = model.trainable_variables
    values = [variable.numpy() for variable in variables]
    optimizer.finalize_variable_values(variables)
    try:
        yield
    finally:
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
