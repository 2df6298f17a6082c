"""Predictions of a file of texts against the bare model on the same batches, already in memory."""

import functools
import os
import tempfile

import tensorflow as tf

from rank4class.data.readers.rows import BadRows
from rank4class.data.readers.text_rows import Columns
from rank4class.pipelines import config
from rank4class.pipelines.run import Run
from rank4class.pipelines.training import rank_training
from rank4class.scripts.research.benchmarks import datasets, suite

BATCH = 256


@functools.cache
def _files(lines: int) -> tuple[str, str]:
    """Trains MiniLM for a step; returns the run's folder and a file of as many comments."""
    experiment = config.override(datasets.EXPERIMENTS["goemotions"](), {"steps": 1})
    folder = tempfile.mkdtemp(dir=datasets.root())
    workdir, path = os.path.join(folder, "run"), os.path.join(folder, "comments.txt")
    rank_training.train(experiment, workdir, progress=False)
    assert experiment.data.path is not None
    with open(os.path.join(experiment.data.path, "train.tsv"), encoding="utf-8") as file:
        comments = [line.split("\t")[0] for line in file]
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(f"{comments[i % len(comments)]}\n" for i in range(lines))
    return workdir, path


class Predict(suite.Workload):
    """From a file of texts to a file of predictions."""

    def __init__(self, lines: int):
        workdir, self._path = _files(lines)
        self._run = Run(workdir)
        self()

    def __call__(self) -> None:
        self._run.predict_file(self._path, f"{self._path}.tsv", batch_size=BATCH)


class Bare(suite.Workload):
    """Tokenizer, model and the best classes, on batches of strings."""

    def __init__(self, lines: int):
        workdir, path = _files(lines)
        answers = Run(workdir).answers
        rows = list(answers.kind.read(path, answers.specs, BadRows("fail"), Columns("text"), {}))
        starts = range(0, lines, BATCH)
        self._batches = [
            answers.kind.stack([features for _, features in rows[i : i + BATCH]]) for i in starts
        ]
        signature = [answers.specs_of_batch()]
        self._classify = tf.function(
            lambda features: answers.classify(features, 5), input_signature=signature, autograph=False
        )
        self()

    def __call__(self) -> None:
        for batch in self._batches:
            self._classify(batch)["scores"].numpy()


SUITE = suite.Suite(
    axes="LINES",
    sizes=("2048",),
    contenders=lambda size: [suite.Step("predict", against=("bare",))],
    build=lambda step, size: (Predict if step.name == "predict" else Bare)(size[0]),
    examples=lambda step, size: size[0],
    values=lambda size: size[0] * 3 * 32,
)
