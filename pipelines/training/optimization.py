"""Losses, optimizers and their schedules as an experiment describes them."""

import contextlib

import tensorflow as tf
from official.modeling.optimization import lr_schedule

from rank4class import losses
from rank4class.losses.ops import set_sizes
from rank4class.models import sorters
from rank4class.pipelines.config.optimizers import OPTIMIZERS


def build_loss(experiment, total_steps, max_relevant=None, rank_fn=None, l1_steps=None):
    """Builds the loss that `config.Loss` describes.

    Args:
      experiment: a checked `config.Experiment`.
      total_steps: over which a temperature changes.
      max_relevant: how many classes an example has at most, for the losses that ask; None where they are ids.
      rank_fn: of a loss that takes one, or None for its own.
      l1_steps: how many steps the mean absolute error runs beside the loss; None: all.

    Returns:
      A function of a step's number, from 0, labels, `task.ModelOutputs` and weights to the losses, float32
      `[B]`.
    """
    name, knobs = experiment.loss.name, experiment.loss.options()
    known = losses.option_names(name)
    given = {"seed": experiment.seed, "max_relevant": max_relevant, "rank_fn": rank_fn}
    knobs |= {knob: value for knob, value in given.items() if knob in known}
    temperature = build_temperature(experiment.loss, total_steps)

    def loss(number, labels, outputs, weights):
        changing = {} if temperature is None else {"temperature": temperature(number)}
        if l1_steps is not None:
            changing["l1"] = tf.where(number < l1_steps, knobs["l1"], 0.0)
        each = losses.get(name, **{**knobs, **changing})
        value = each.of_scores(outputs.scores, labels, where=outputs.where, weights=weights)
        if experiment.loss.fine_tune:
            value += weights * _sorting_error(rank_fn.sorter, outputs, name)
        if experiment.count_prior.name != "learned":
            return value
        return value + weights * set_sizes.count_nll(outputs.log_counts, labels, where=outputs.where)

    return loss


def _sorting_error(sorter, outputs, loss_name):
    """Returns how far a sorter's ranks of a model's scores are off, from which the sorter alone learns."""
    lists, where = tf.stop_gradient(outputs.scores), outputs.where
    if loss_name in losses.BATCH_LOSSES:
        lists, where = tf.transpose(lists), None if where is None else tf.transpose(where)
    return tf.reduce_mean(tf.abs(sorter(lists, where=where) - sorters.Exact()(lists, where=where)))


def build_temperature(section, total_steps):
    """Builds the temperature over the steps: a Keras schedule, or None where `config.Loss` has it stay."""
    if section.final_temperature is None:
        return None
    first = losses.get(section.name, **section.options()).options["temperature"]
    last_step = max(1, total_steps - 1)
    rate = section.final_temperature / first
    return tf.keras.optimizers.schedules.ExponentialDecay(first, last_step, rate)


def build_schedule(section, total_steps):
    """Builds the learning rate over the steps that `config.Optimizer` describes."""
    schedule = _decay(section, total_steps)
    warmup_steps = round(section.warmup_fraction * total_steps)
    if not warmup_steps:
        return schedule
    return lr_schedule.LinearWarmup(schedule, warmup_steps, warmup_learning_rate=0.0)


def _decay(section, total_steps):
    if section.decay == "cosine":
        return tf.keras.optimizers.schedules.CosineDecay(section.learning_rate, total_steps)
    end = 0.0 if section.decay == "linear" else section.learning_rate
    return tf.keras.optimizers.schedules.PolynomialDecay(section.learning_rate, total_steps, end)


def build_optimizer(section, schedule, precision="float32"):
    """Builds the Keras optimizer that `config.Optimizer` describes.

    Args:
      section: a `config.Optimizer`.
      schedule: the learning rate, a float or a Keras schedule.
      precision: of the model; float16 needs the loss scaled, which the optimizer then does.
    """
    average = {"use_ema": section.ema_momentum is not None, "ema_momentum": section.ema_momentum or 0.0}
    optimizer = OPTIMIZERS[section.name](schedule, **section.options(), **average)
    if precision == "mixed_float16":
        return tf.keras.mixed_precision.LossScaleOptimizer(optimizer)
    return optimizer


@contextlib.contextmanager
def averaged(model, optimizer):
    """Gives the model the moving averages of its weights within the block, where the optimizer keeps any."""
    if not optimizer.use_ema:
        yield
        return
    variables = model.trainable_variables
    kept = [variable.numpy() for variable in variables]
    optimizer.finalize_variable_values(variables)
    try:
        yield
    finally:
        for variable, value in zip(variables, kept, strict=True):
            variable.assign(value)
