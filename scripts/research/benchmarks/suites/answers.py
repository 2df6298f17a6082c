"""Answers to generated comments by exports of a run of MiniLM and words: ONNX models beside the SavedModel.

The times are from strings to the best classes, of one text and of 64 at a time, whose lengths differ.
"""

import functools
import itertools
import os
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd
import tensorflow as tf
import tensorflow_text  # noqa: F401  the operations of tokenizers

from rank4class.pipelines import config
from rank4class.pipelines import run as pipeline
from rank4class.pipelines.export.onnx_model import OnnxModel
from rank4class.scripts.research.benchmarks import datasets, suite

_FORMATS: dict[str, dict[str, Any]] = {
    "saved_model": {},
    "onnx": {"format": "onnx"},
    "onnx int8": {"format": "onnx", "quantize": "int8"},
}


class Answers(suite.Workload):
    """The answers to texts that differ from call to call."""

    def __init__(self, answer: Callable[[list[str]], Any], texts: Sequence[str], count: int):
        blocks = [list(texts[first : first + count]) for first in range(0, len(texts) - count, count)]
        self._blocks = itertools.cycle(blocks)
        self._answer = answer
        self()

    def __call__(self) -> None:
        self._answer(next(self._blocks))


@functools.cache
def run() -> tuple[pipeline.Run, list[str]]:
    """Returns a run that has trained its words alone, and texts."""
    experiment = datasets.EXPERIMENTS["goemotions"]()
    experiment = config.override(experiment, {"epochs": 0.0, "words": "auto"})
    trained = pipeline.train(experiment, os.path.join(datasets.root(), "answers"), progress=False)
    path = os.path.join(str(experiment.data.path), "train.tsv")
    comments = pd.read_csv(path, sep="\t", header=None)
    return trained, comments[0].tolist()


@functools.cache
def export(name: str) -> str:
    """Exports the run by the name of a format; returns the folder."""
    folder = os.path.join(datasets.root(), name.replace(" ", "_"))
    run()[0].export(folder, **_FORMATS[name])
    return folder


@functools.cache
def _answer(name: str) -> Callable[[list[str]], Any]:
    folder = export(name)
    if name != "saved_model":
        return OnnxModel(folder).predict
    model = tf.saved_model.load(folder)
    classify = model.signatures["classify"]
    return lambda texts: {
        key: value.numpy() for key, value in classify(text=tf.constant(texts)).items() if model
    }


def _build(step: suite.Step, size: suite.Size) -> suite.Workload:
    return Answers(_answer(step.name), run()[1], size[0])


SUITE = suite.Suite(
    axes="TEXTS",
    sizes=("1", "64"),
    contenders=lambda size: [
        suite.Step(name, against=("saved_model",)) for name in _FORMATS if name != "saved_model"
    ],
    build=_build,
    examples=lambda step, size: size[0],
    values=lambda size: size[0] * 64 * 1536,
    min_repeats=30,
)
