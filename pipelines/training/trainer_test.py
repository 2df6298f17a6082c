"""The trainer on the smallest task: one weight that learns a constant."""

import dataclasses

import numpy as np
import tensorflow as tf

from rank4class.pipelines import config
from rank4class.pipelines.storage.run_directory import RunDirectory, TrainingDirectory
from rank4class.pipelines.training.schedule import Schedule
from rank4class.pipelines.training.train_step import build_steps
from rank4class.pipelines.training.trainer import Trainer


@dataclasses.dataclass
class Errors:
    error: float
    loss: float | None = None

    def means(self):
        return {"top1_error": self.error}

    summarize = means

    def likelihood(self):
        return {}

    def line(self):
        return str(self.error)


class Constant:
    """A task of the trainer: the weight `w` has the loss `|w - 3|`."""

    loss_name = "distance"
    metrics = ("top1_error",)
    monitor = "top1_error"
    train_examples = 4
    class_texts = None
    words = None
    mines = False
    evaluated = ("validation", "test")

    def __init__(self):
        self.model = tf.keras.Sequential([tf.keras.layers.Dense(1, use_bias=False)])
        self.model.build([None, 1])
        self.model.set_weights([np.zeros([1, 1])])
        self.calls = []
        self.hashes = {"train": "0"}

    def forward(self, features, training):
        return self.model(features, training=training)

    def loss(self, step, labels, outputs, weights):
        return weights * tf.abs(outputs[:, 0] - labels)

    def training_batches(self, step, context):
        self.calls.append(f"batches from {step}")
        return tf.data.Dataset.from_tensors((tf.ones([4, 1]), tf.fill([4], 3.0), tf.ones([4]))).repeat()

    def raise_first_unreadable(self, step):
        raise AssertionError(step)

    def example_names(self, step):
        return ["one"]

    def evaluate(self, split, should_stop, step):
        self.calls.append(f"evaluate {split}")
        return Errors(abs(float(self.model.get_weights()[0][0, 0]) - 3.0))

    def pictures(self, split, evaluation):
        return {}

    def describe(self, folder):
        self.calls.append("describe")

    def finalize_weights(self):
        self.calls.append("finalize")

    def write_artifacts(self, run_dir, results, test):
        self.calls.append("artifacts")


def train(task, path, total_steps):
    schedule = Schedule(
        total_steps=total_steps,
        epochs=1.0,
        evaluation_steps=2,
        learning_rate=lambda step: 0.5,
    )
    optimizer = tf.keras.optimizers.SGD(0.5)
    strategy = tf.distribute.get_strategy()
    run_dir = TrainingDirectory(path, config.Experiment())
    experiment = config.Experiment(batch_size=4)
    try:
        optimizer.build(task.model.trainable_variables)
        steps = build_steps(strategy, task.model, task.forward, task.loss, optimizer, experiment)
        trainer = Trainer(task, optimizer, steps, run_dir, schedule, experiment, strategy, progress=False)
        return trainer.train()
    finally:
        run_dir.unlock()


def test_tasks_are_trained_evaluated_and_resumed(tmp_path):
    task = Constant()
    results = train(task, tmp_path, total_steps=3)
    evaluations = ["evaluate validation", "evaluate validation"]
    ends = ["finalize", "evaluate validation", "evaluate test", "artifacts"]
    assert task.calls == ["describe", "batches from 0", *evaluations, *ends]
    # Each step moves the weight by the learning rate 0.5 towards 3.
    assert results["validation"] == results["test"] == {"top1_error": 1.5}
    assert (results["steps"], results["best_step"], results["train_examples"]) == (3, 3, 4)
    history = RunDirectory(tmp_path).history()
    assert [(line["step"], line["loss"], line["top1_error"]) for line in history] == [
        (2, (3.0 + 2.5) / 2, 2.0),
        (3, 2.0, 1.5),
    ]
    resumed = Constant()
    assert train(resumed, tmp_path, total_steps=4)["test"] == {"top1_error": 1.0}
    assert resumed.calls[0] == "batches from 3"


def test_a_schedule_stops_at_evaluations_and_checkpoints():
    schedule = Schedule(
        total_steps=10, epochs=1.0, evaluation_steps=4, checkpoint_steps=3, learning_rate=float
    )
    stops = [0]
    while stops[-1] < 10:
        stops.append(schedule.next_stop(stops[-1]))
    assert stops == [0, 3, 4, 6, 8, 9, 10]
    assert [step for step in range(11) if schedule.evaluates_after(step)] == [4, 8, 10]
