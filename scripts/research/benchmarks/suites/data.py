"""Input pipelines against one thread, and training steps of MiniLM against steps on one batch.

A step reads many batches of a new iterator, so that nothing is read ahead while another step is measured.
"""

import time
from collections.abc import Callable

import tensorflow as tf

from rank4class.pipelines.evaluation.model_building import new_model
from rank4class.pipelines.training import optimization, rank_training
from rank4class.pipelines.training.train_step import build_steps
from rank4class.scripts.research.benchmarks import datasets, suite

BATCHES = 400  # per step; making the iterator takes some 0.2 seconds
LARGE_BATCHES = 20  # of images that are decoded, and of training steps


class Reading(suite.Workload):
    """Reads batches and discards them."""

    def __init__(self, batches: tf.data.Dataset, count: int):
        self._batches = batches.take(count)
        self()

    def __call__(self) -> None:
        for _ in self._batches:
            pass


class Training(suite.Workload):
    """Takes training steps, on new batches or on one batch."""

    def __init__(self, steps: Callable, batches: tf.data.Dataset, one_batch: bool):
        self._steps = steps
        self._batches = batches.take(1).cache().repeat() if one_batch else batches
        self()

    def __call__(self) -> None:
        batches, waited, started = iter(self._batches), 0.0, time.perf_counter()
        for _ in range(LARGE_BATCHES):
            waited += self._steps(batches, first=0, count=1).waited
        self.waiting_share = waited / (time.perf_counter() - started)


def _build(step: suite.Step, size: suite.Size) -> suite.Workload:
    trains = step.contender == "minilm_step"
    experiment = datasets.EXPERIMENTS["goemotions" if trains else step.contender]()
    [experiment.batch_size] = size
    loaded = rank_training.load_data(experiment, datasets.root())
    batches = loaded.training_batches(experiment.batch_size, experiment.seed)
    if not trains:
        batches = batches.with_options(_one_thread()) if step.kind == "one_thread" else batches
        return Reading(batches, _count(step))
    model = new_model(experiment, loaded)
    optimizer = optimization.build_optimizer(experiment.optimizer, experiment.optimizer.learning_rate)
    optimizer.build(model.trainable_variables)
    strategy = tf.distribute.get_strategy()
    loss = optimization.build_loss(experiment.loss, seed=experiment.seed)
    scorer = loaded.scorer(model, "train")
    steps = build_steps(strategy, model, scorer, loss, optimizer, experiment)
    return Training(steps, batches, one_batch=step.kind == "step")


def _count(step: suite.Step) -> int:
    return LARGE_BATCHES if "imagenet" in step.name or "minilm" in step.name else BATCHES


def _one_thread() -> tf.data.Options:
    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    options.threading.max_intra_op_parallelism = 1
    return options


SUITE = suite.Suite(
    axes="BATCH",
    sizes=("32",),
    contenders=lambda size: [
        *(suite.Step(name, against=(f"one_thread:{name}",)) for name in datasets.EXPERIMENTS),
        suite.Step("minilm_step", against=("step:minilm_step",)),
    ],
    build=_build,
    examples=lambda step, size: _count(step) * size[0],
    values=lambda size: size[0] * 224 * 224 * 3,
)
