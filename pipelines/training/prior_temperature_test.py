"""Logit adjustment: identities of the losses, closed forms, and the frequencies that a training uses."""

import numpy as np
import pytest
import tensorflow as tf
from scipy.sparse import csr_array
from scipy.special import log_softmax

from rank4class import data, losses
from rank4class.pipelines import config
from rank4class.pipelines.task_data import class_frequencies
from rank4class.pipelines.task_data.task_data import ModelOutputs
from rank4class.pipelines.training import optimization, rank_training
from rank4class.pipelines.training.trainable_rank_model import TrainableRankModel

TRAINED = [
    name
    for name in losses.LOSSES
    if name not in losses.BATCH_LOSSES and losses.LOSSES[name].of_classes and not losses.LOSSES[name].heads
]


def build_loss(part, train, counts):
    loss = optimization.build_loss(part, log_prior=class_frequencies.log_prior(part, train, np.array(counts)))
    return lambda scores, labels: loss(0, labels, ModelOutputs(scores), tf.ones(len(labels)))


@pytest.mark.parametrize("name", [*TRAINED, "gumbel_softmax"])
def test_a_loss_is_that_of_scores_plus_log_frequencies(name, rng):
    labels = np.array([2, 0, 1, 5])
    counts = np.array([50, 9, 30, 0, 4, 6])
    scores = rng.normal(size=[4, 6]).astype(np.float32)
    part = config.Loss(name, prior_temperature=0.7)
    scale = losses.get(name).options.get("temperature", 1.0)
    # Noise depends on all bits of the scores.
    adjusted = scores + scale * np.float32(0.7 * np.log(np.array([50, 9, 30, 1, 4, 6]) / 100))
    expected = losses.get(name).of_scores(adjusted, labels)
    result = build_loss(part, data.Split({}, labels), counts)(scores, labels)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-6)
    assert not np.allclose(result, losses.get(name).of_scores(scores, labels), rtol=1e-3)


def task_of(labels, **changes):
    labels = [csr_array(each) if np.ndim(each) > 1 else np.array(each, np.int32) for each in labels]
    splits = {
        name: data.Split({"embedding": np.ones([each.shape[0], 2], np.float32)}, each)
        for name, each in zip(("train", "validation"), labels, strict=True)
    }
    experiment = config.Experiment(
        data=config.Data("memory"),
        encoder=config.Encoder("identity"),
        class_encoder=config.ClassEncoder("embedding", init="zeros"),
        loss=config.Loss("softmax", prior_temperature=1.0),
        metrics=("top1_error",),
        monitor="top1_error",
    )
    trained = config.override(experiment, changes)
    loaded = rank_training.load_data(trained, "unused", dataset=data.Dataset(("a", "b", "c", "d"), splits))
    schedule = rank_training.build_schedule(trained, len(loaded.splits["train"]))
    task = TrainableRankModel(trained, loaded, schedule, tf.distribute.get_strategy(), progress=False)
    return task, loaded


@pytest.mark.parametrize("changes", [{}, {"data.max_train_examples": 9}, {"data.held_out": ("c",)}])
def test_frequencies_are_those_of_the_training_examples(changes):
    train = [0] * 7 + [1] * 4 + [2] * 3
    validation = [3, 1, 1]
    if changes.get("data.held_out"):
        changes = {**changes, "data.class_weights": "balanced"}
    task, loaded = task_of((train, validation), **changes)
    classes = 3 if "data.held_out" in changes else 4
    counts = np.bincount(loaded.splits["train"].labels, minlength=classes)
    assert counts.sum() == {4: changes.get("data.max_train_examples", 14), 3: 11}[classes]
    log_pi = log_softmax(np.log(np.maximum(counts, 1)))
    evaluation = task.evaluate("validation", lambda: False, step=0)
    assert evaluation.loss == pytest.approx(-log_pi[loaded.splits["validation"].labels].mean())
    assert evaluation.top_classes.tolist() == [0, 0, 0]
    features, labels, weights = next(iter(task.training_batches(0, tf.distribute.InputContext())))
    result = task.loss(0, labels, task.forward(features), weights)
    np.testing.assert_allclose(result, -weights * log_pi[labels.numpy()], rtol=1e-5)


def test_examples_of_several_classes_are_refused():
    with pytest.raises(ValueError, match=r"^loss\.prior_temperature=1\.0: examples may have several classes"):
        task_of((np.eye(4), np.eye(4)))
