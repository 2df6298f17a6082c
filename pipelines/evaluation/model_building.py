"""Builds the model of an experiment, its rank function, and the evaluators of its splits."""

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from rank4class import losses, models
from rank4class.losses.metrics.names import is_of_scores
from rank4class.models import class_encoders, precision
from rank4class.models.rank_model import create_variables
from rank4class.pipelines import config
from rank4class.pipelines.evaluation import evaluator
from rank4class.pipelines.task_data import count_priors, rank_functions
from rank4class.pipelines.task_data.task_data import TaskData


def build_model(
    experiment: config.Experiment,
    make: Callable[[], tf.keras.Model],
    num_trained: int,
    strategy: tf.distribute.Strategy,
) -> tf.keras.Model:
    """Builds the model of an experiment in its precision under a strategy.

    Args:
      experiment: of which precision, loss and sizes of batches are read.
      make: returns the model, a new one or that of a run.
      num_trained: number of classes that training ranks.
      strategy: of the model.
    """
    with precision.scope(experiment.precision), strategy.scope():
        model = make()
    if experiment.loss.fine_tune:
        model.rank_sorter = build_rank_fn(experiment, num_trained, strategy).sorter
    return model


def new_model(experiment: config.Experiment, task_data: TaskData) -> tf.keras.Model:
    """Returns a new `models.RankModel` with its variables, or a new `models.ItemModel`."""
    n = len(task_data.class_names)
    encoder = task_data.build_encoder(experiment.encoder.name)
    if isinstance(encoder, models.ItemModel):
        return encoder
    features = task_data.first_example()
    width = encoder(features).shape[-1]
    class_encoder = _class_encoder(experiment.class_encoder, n, width, task_data.class_inputs)
    interaction = models.get("interaction", experiment.interaction.name, **experiment.interaction.options())
    count_prior = count_priors.get(experiment.count_prior).layer(task_data.splits["train"])
    words = models.AddedScores(n) if "words" in features else None
    model = models.RankModel(encoder, class_encoder, interaction, n, count_prior, words)
    create_variables(model, features)
    return model


def _class_encoder(
    part: config.ClassEncoder, num_classes: int, width: int, inputs: Mapping[str, Any]
) -> tf.keras.layers.Layer:
    initial = None if part.init == "random" else 0.0  # `heads` assigns the others
    provided = {"num_classes": num_classes, "width": width, "initial": initial, **inputs}
    known = models.CLASS_ENCODERS.options(part.name)
    provided = {name: value for name, value in provided.items() if name in known}
    class_encoder = models.get("class_encoder", part.name, **provided, **part.options())
    return class_encoders.Residual(class_encoder, num_classes, width) if part.residual else class_encoder


def build_rank_fn(experiment: config.Experiment, num_trained: int, strategy: tf.distribute.Strategy) -> Any:
    """Builds the rank function of a loss, for lists of all classes or of a replica's batch."""
    assert experiment.loss.rank_fn is not None
    n = num_trained
    if experiment.loss.name in losses.BATCH_LOSSES:
        n = experiment.batch_size // (strategy.num_replicas_in_sync * experiment.accumulation_steps)
        if n < 2:
            raise ValueError(
                f"batch_size={experiment.batch_size}: loss {experiment.loss.name!r} ranks the examples of a "
                "part of a batch, which has one. Raise it, or lower accumulation_steps."
            )
    with strategy.scope():
        return rank_functions.get_rank_fn(experiment.loss.rank_fn, n, experiment.loss.sorter)


def build_evaluators(
    experiment: config.Experiment,
    task_data: TaskData,
    model: tf.keras.Model,
    *,
    strategy: tf.distribute.Strategy | None = None,
    loss: Callable[..., tf.Tensor] | None = None,
) -> dict[str, evaluator.Evaluator]:
    """Returns split -> its `evaluator.Evaluator`; splits that rank the same classes share one.

    A `loss` is evaluated where the classes are those of the training.
    """
    count_prior = count_priors.get(experiment.count_prior)

    def build(*splits: str) -> evaluator.Evaluator:
        metrics = evaluator.applicable_metrics(experiment.metrics, task_data.num_scored(splits[0]))
        return evaluator.Evaluator(
            task_data.scorer(model, splits[0], count_prior),
            [name for name in metrics if is_of_scores(name)],
            max_relevant=task_data.max_relevant(*splits),
            strategy=strategy,
            jit_compile=experiment.jit_compile,
            loss=loss if "train" in splits else None,
            encode_classes=getattr(model, "encode_classes", None),
        )

    evaluators: dict[str, evaluator.Evaluator] = {}
    for ranks_all in (False, True):
        if splits := [split for split in task_data.splits if task_data.ranks_all(split) == ranks_all]:
            evaluators |= dict.fromkeys(splits, build(*splits))
    return evaluators
