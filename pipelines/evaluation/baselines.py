"""Baselines that need no training: frequent classes, random orders, and the nearest text.

The nearest text is a class name or a training example: that of the highest cosine by the pretrained encoder.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from rank4class import data, losses
from rank4class.losses.metrics.names import is_of_scores
from rank4class.pipelines import config
from rank4class.pipelines.evaluation import evaluator
from rank4class.pipelines.task_data import loading, split_steps
from rank4class.pipelines.task_data.task_data import ModelOutputs, TaskData

MAX_EXAMPLES = 20_000  # that a baseline is measured on
_BLOCK = 16_384  # training examples that a batch is compared with at a time


def rank_metrics(names: Sequence[str], num_classes: int) -> tuple[str, ...]:
    """Returns the metrics of a ranking of `num_classes`; metrics of sets need a model."""
    of_prior = losses.metrics.SET_METRICS
    plain = [name for name in names if name not in of_prior and is_of_scores(name)]
    return evaluator.applicable_metrics(plain, num_classes)


def most_frequent(
    split: data.Split, order: np.ndarray, metrics: Sequence[str], batch_size: int
) -> dict[str, Any]:
    """Returns the summary of one ranking, of class ids, for at most `MAX_EXAMPLES` examples of a split."""
    n = len(order)
    class_scores = np.empty(n, np.float32)
    class_scores[order] = -np.arange(n)

    def scores(features: dict[str, tf.Tensor], training: bool) -> ModelOutputs:
        scores = tf.broadcast_to(class_scores, [tf.shape(features["index"])[0], n])
        return ModelOutputs(scores, ~features["excluded"] if "excluded" in features else None)

    examples = split_steps.subsample(split, MAX_EXAMPLES, seed=0)
    examples = dataclasses.replace(examples, features={"index": np.arange(len(examples))})
    batches = data.evaluation_batches(examples, batch_size=evaluator.batch_size(batch_size, n))
    return _summary(scores, rank_metrics(metrics, n), examples.max_relevant(), batches)


def random_order(split: data.Split, metrics: Sequence[str]) -> dict[str, Any]:
    """Returns the summary of a split's lists of items, mean over all orders of a list."""
    assert split.excluded is not None
    labels = split.label_matrix.toarray()
    where = ~split.excluded.toarray()
    scores = evaluator.mask_scores(tf.zeros(labels.shape), where)
    names = rank_metrics(metrics, labels.shape[1])
    values = []
    for name in names:
        metric = losses.get_metric(name, ties="average")
        assert isinstance(metric, losses.RankingMetric)
        values.append(metric.of_scores(scores, labels))
    return evaluator.summarize(np.stack(values, axis=1), names)


def load(experiment: config.Experiment, workdir: str, dataset: data.Dataset | None = None) -> TaskData:
    """Loads the task of an experiment with `encoder.path`; its features are the initial encoder's outputs.

    The dataset is that of the experiment; None reads it.
    """
    frozen = config.override(experiment, {"encoder.frozen": True})
    frozen.class_encoder = config.ClassEncoder("frozen_text", texts=experiment.class_encoder.texts)
    return loading.load_data(frozen, workdir, dataset=dataset)


def evaluate(
    task_data: TaskData, split: str, metrics: Sequence[str], batch_size: int
) -> dict[str, dict[str, Any]]:
    """Returns the summaries, by name, of baselines on at most `MAX_EXAMPLES` examples of a split."""
    examples = split_steps.subsample(task_data.splits[split], MAX_EXAMPLES, seed=0)
    task_data = dataclasses.replace(task_data, splits={**task_data.splits, split: examples})
    names = rank_metrics(metrics, task_data.num_scored(split))
    most = task_data.max_relevant(split)
    batch_size = evaluator.batch_size(batch_size, len(task_data.class_names))
    models = {"class name": _nearest_name(task_data), "training example": _nearest_example(task_data)}
    return {
        f"nearest {title}": _summary(
            task_data.scorer(model, split), names, most, task_data.read(split, batch_size)
        )
        for title, model in models.items()
    }


def _summary(
    scorer: Callable, names: Sequence[str], max_relevant: int | None, batches: Any
) -> dict[str, Any]:
    result = evaluator.Evaluator(scorer, names, max_relevant=max_relevant)(batches)
    assert result is not None  # nothing stops it
    return result.summarize()


def _nearest_name(task_data: TaskData) -> Callable[..., tf.Tensor]:
    """Returns a function of features to the cosines with the names of the classes, `[B, n]`."""
    names = tf.math.l2_normalize(task_data.class_inputs["vectors"], axis=1)

    def scores(features: dict[str, tf.Tensor], training: bool = False) -> tf.Tensor:
        return tf.matmul(tf.math.l2_normalize(features["embedding"], axis=1), names, transpose_b=True)

    return scores


def _nearest_example(task_data: TaskData) -> Callable[..., tf.Tensor]:
    """Returns a function of features to the highest cosine with each class's examples, `[B, n]`, or -2."""
    train = task_data.splits["train"]
    n = len(task_data.class_names)
    rows, classes = train.class_matrix(task_data.num_scored("train")).nonzero()
    if task_data.seen is not None:
        classes = task_data.seen[classes]
    vectors = tf.math.l2_normalize(train.features["embedding"], axis=1)
    blocks = [slice(start, start + _BLOCK) for start in range(0, len(rows), _BLOCK)]

    def scores(features: dict[str, tf.Tensor], training: bool = False) -> tf.Tensor:
        h = tf.math.l2_normalize(features["embedding"], axis=1)
        nearest = tf.fill([n, tf.shape(h)[0]], -2.0)
        for block in blocks:
            cosines = tf.matmul(tf.gather(vectors, rows[block]), h, transpose_b=True)
            nearest = tf.maximum(nearest, tf.math.unsorted_segment_max(cosines, classes[block], n))
        return tf.transpose(nearest)

    return scores
