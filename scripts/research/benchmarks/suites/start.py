"""Commands from start to end: `predict` of one text by ONNX models, and errors, beside that by a run."""

import os
import subprocess
import sys

from rank4class.scripts.research.benchmarks import datasets, suite
from rank4class.scripts.research.benchmarks.suites import answers

_COMMANDS = {
    "predict run": "predict RUN TEXT",
    "predict onnx": "predict onnx TEXT",
    "predict onnx int8": "predict onnx_int8 TEXT",
    "no such file": "predict RUN nowhere.csv",
    "help": "train --help",
}


class Command(suite.Workload):
    """A command in a process of its own, in the folder of the exports."""

    def __init__(self, line: str):
        trained, texts = answers.run()
        with open(os.path.join(datasets.root(), "text.txt"), "w", encoding="utf-8") as file:
            file.write(texts[0])
        line = line.replace("RUN", trained.workdir).replace("TEXT", "text.txt")
        self._command = [sys.executable, "-m", "rank4class", *line.split()]
        self()

    def __call__(self) -> None:
        subprocess.run(self._command, cwd=datasets.root(), capture_output=True, check=False)


def _build(step: suite.Step, size: suite.Size) -> suite.Workload:
    if "onnx" in step.name:
        answers.export(step.name.removeprefix("predict "))
    return Command(_COMMANDS[step.name])


SUITE = suite.Suite(
    axes="TEXTS",
    sizes=("1",),
    contenders=lambda size: [
        suite.Step(name, against=("predict run",)) for name in _COMMANDS if name != "predict run"
    ],
    build=_build,
    min_repeats=5,
)
