"""Builds the model of an experiment, its rank function, and the evaluators of its splits."""

from collections.abc import Callable
from typing import Any, TypeAlias

import tensorflow as tf

from rank4class import losses
from rank4class.losses.metrics.names import is_of_scores
from rank4class.models import precision
from rank4class.pipelines import config
from rank4class.pipelines.evaluation import evaluator
from rank4class.pipelines.task import count_priors, description, rank_functions
from rank4class.pipelines.task.task import TaskData

ModelSource: TypeAlias = TaskData | description.Description  # of a new model, or of a trained one


def build_model(
    experiment: config.Experiment, source: ModelSource, strategy: tf.distribute.Strategy
) -> tf.keras.Model:
    """Builds the model of an experiment in its precision under a strategy."""
    with precision.scope(experiment.precision), strategy.scope():
        model = source.build_model(experiment)
    if experiment.loss.fine_tune:
        model.rank_sorter = build_rank_fn(experiment, source, strategy).sorter
    return model


def build_rank_fn(
    experiment: config.Experiment, source: ModelSource, strategy: tf.distribute.Strategy
) -> Any:
    """Builds the rank function of a loss, for lists of all classes or of a replica's batch."""
    assert experiment.loss.rank_fn is not None
    n = source.num_scored("train")
    if experiment.loss.name in losses.BATCH_LOSSES:
        n = experiment.batch_size // (strategy.num_replicas_in_sync * experiment.accumulation_steps)
        if n < 2:
            raise ValueError(
                f"batch_size={experiment.batch_size}: loss {experiment.loss.name!r} ranks the examples of a "
                "part of a batch, which has one. Raise it, or lower accumulation_steps."
            )
    with strategy.scope():
        return rank_functions.get(experiment.loss.rank_fn, n, experiment.loss.sorter)


def build_evaluators(
    experiment: config.Experiment,
    loaded: TaskData,
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
        metrics = evaluator.applicable_metrics(experiment.metrics, loaded.num_scored(splits[0]))
        return evaluator.Evaluator(
            loaded.scorer(model, splits[0], count_prior),
            [name for name in metrics if is_of_scores(name)],
            max_relevant=loaded.max_relevant(*splits),
            strategy=strategy,
            jit_compile=experiment.jit_compile,
            loss=loss if "train" in splits else None,
            encode_classes=getattr(model, "encode_classes", None),
        )

    evaluators: dict[str, evaluator.Evaluator] = {}
    for ranks_all in (False, True):
        if splits := [split for split in loaded.splits if loaded.ranks_all(split) == ranks_all]:
            evaluators |= dict.fromkeys(splits, build(*splits))
    return evaluators
