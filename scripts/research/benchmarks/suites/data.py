"""Input pipelines against one thread.

A step reads many batches of a new iterator, so that nothing is read ahead while another step is measured.
"""

import tensorflow as tf

from rank4class.pipelines.training import rank_training
from rank4class.scripts.research.benchmarks import datasets, suite

BATCHES = 400  # per step; making the iterator takes some 0.2 seconds
LARGE_BATCHES = 20  # of images that are decoded


class Reading(suite.Workload):
    """Reads batches and discards them."""

    def __init__(self, batches: tf.data.Dataset, count: int):
        self._batches = batches.take(count)
        self()

    def __call__(self) -> None:
        for _ in self._batches:
            pass


def _build(step: suite.Step, size: suite.Size) -> Reading:
    experiment = datasets.EXPERIMENTS[step.contender]()
    [experiment.batch_size] = size
    task_data = rank_training.load_data(experiment, datasets.root())
    batches = task_data.training_batches(experiment.batch_size, experiment.seed)
    batches = batches.with_options(_one_thread()) if step.kind == "one_thread" else batches
    return Reading(batches, _count(step))


def _count(step: suite.Step) -> int:
    return LARGE_BATCHES if "imagenet" in step.name else BATCHES


def _one_thread() -> tf.data.Options:
    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    options.threading.max_intra_op_parallelism = 1
    return options


SUITE = suite.Suite(
    axes="BATCH",
    sizes=("32",),
    contenders=lambda size: [
        suite.Step(name, against=(f"one_thread:{name}",)) for name in datasets.EXPERIMENTS
    ],
    build=_build,
    examples=lambda step, size: _count(step) * size[0],
    values=lambda size: size[0] * 224 * 224 * 3,
)
