"""Candidates: training steps that score 4,096 sampled classes, or all, of learned vectors.

A step reads its batch, draws the candidates, and updates the rows that it has read. Its baselines are the
step on all classes, and the sampled step among `FEW` classes.
"""

import numpy as np
import tensorflow as tf

from rank4class import data, models
from rank4class.data.candidates import Sampled
from rank4class.pipelines import config
from rank4class.pipelines.task_data.inputs import Inputs
from rank4class.pipelines.task_data.task_data import TaskData
from rank4class.pipelines.training import optimization, train_step
from rank4class.scripts.research.benchmarks import suite

STEPS = 4  # in a row of one measurement
COUNT = 4_096
FEW = 100_000
ALL_BELOW = 4 * 10**9  # bytes of the scores of all classes, of which a step has several copies
EXAMPLES = 100_000


class Steps(suite.Workload):
    """Steps of softmax on the dot products of random vectors with those of the classes."""

    def __init__(self, batch_size: int, num_classes: int, width: int, count: int | None):
        rng = np.random.default_rng(0)
        vectors = rng.normal(size=[EXAMPLES, width]).astype(np.float32)
        split = data.Split({"embedding": vectors}, rng.integers(num_classes, size=EXAMPLES, dtype=np.int32))
        task = TaskData((), {"train": split}, None, lambda: None, Inputs({}))
        candidates = None if count is None else Sampled(split, num_classes, batch_size, count=count)
        model = models.RankModel(
            models.get("encoder", "identity", width=width),
            models.get("class_encoder", "embedding", num_classes=num_classes, width=width),
            models.get("interaction", "dot"),
            num_classes=num_classes,
        )
        model({"embedding": vectors[:1]})
        part = config.Optimizer("adam" if count is None else "lazy_adam")
        optimizer = optimization.build_optimizer(part, 0.01)
        optimizer.build(model.trainable_variables)
        self._steps = train_step.build_steps(
            tf.distribute.get_strategy(),
            model,
            task.scorer(model, "train"),
            optimization.build_loss(config.Loss("softmax"), log_q=True),
            optimizer,
            config.Experiment(batch_size=batch_size, optimizer=part),
        )
        self._batches = iter(task.training_batches(batch_size, seed=0, candidates=candidates))
        self()

    def __call__(self) -> None:
        self._steps(self._batches, 0, STEPS)


def _build(step: suite.Step, size: suite.Size) -> suite.Workload:
    batch_size, num_classes, width = size
    if step.name == "few_classes":
        num_classes = FEW
    return Steps(batch_size, num_classes, width, None if step.name == "all" else COUNT)


def _contenders(size: suite.Size) -> list[suite.Step]:
    baselines = ["all"] if 4 * size[0] * size[1] < ALL_BELOW else []
    return [suite.Step("sampled", against=(*baselines, "few_classes"))]


SUITE = suite.Suite(
    axes="BATCHxCLASSESxWIDTH",
    sizes=("128x100000x64", "128x1000000x64", "128x10000000x64"),
    contenders=_contenders,
    build=_build,
    examples=lambda step, size: STEPS * size[0],
    values=lambda size: size[1] * size[2],
)
