"""The summary of a grid in TensorBoard: a row per cell in the HParams tab, with means and intervals."""

import os
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.plugins.hparams import api
from tensorboard.plugins.scalar import summary_v2

from rank4class.pipelines.storage import files
from rank4class.pipelines.sweep.parallel import GridRun
from rank4class.pipelines.training.tensorboard import hyperparameters

AXES = ("loss.name", "loss.rank_fn", "interaction.name")  # fields that the cells of a grid differ in
# The name is fixed, so that a later sweep replaces it, and sorts after the other files of a run: an open
# TensorBoard reads none that sort before.
EVENTS = "events.out.tfevents.9999999999"


def write_grid(runs: Sequence[GridRun], summary: Mapping[str, Any], tuned: Collection[str] = ()) -> None:
    """Writes the intervals of each cell to its runs, and the fields and metrics of the HParams tab."""
    fields = [hyperparameters(run.experiment) for run in runs]
    shown = [name for name in AXES if len({one.get(name) for one in fields}) > 1] or ["loss.name"]
    shown += [name for name in (*runs[0].varied, *tuned) if any(name in one for one in fields)]
    first, *others = sorted(summary["metrics"], key=lambda name: name != summary["monitor"])
    # TensorBoard shows the first five.
    tags = [f"test/{first}", *_ends(first), *(f"test/{name}" for name in others), *_ends(*others)]
    hparams = [api.HParam(name, _domain([one[name] for one in fields if name in one])) for name in shown]
    columns = api.hparams_config_pb(hparams, list(map(api.Metric, tags)))
    cells = {tuple(cell["name"].values()): cell["metrics"] for cell in summary["cells"]}
    for run in runs:
        scalars = [
            summary_v2.scalar_pb(tag, value)
            for metric, entry in cells[tuple(run.cell.values())].items()
            for tag, value in zip(_ends(metric), entry["interval"] or (None, None), strict=True)
            if value is not None
        ]
        with files.errors_of(run.path), tf.io.TFRecordWriter(os.path.join(run.path, EVENTS)) as file:
            # Some of them are of TensorFlow's class, others of TensorBoard's.
            copies = (summary_pb2.Summary.FromString(s.SerializeToString()) for s in (columns, *scalars))
            for event in ({"file_version": "brain.Event:2"}, *({"summary": one} for one in copies)):
                file.write(event_pb2.Event(wall_time=time.time(), **event).SerializeToString())


def _ends(*metrics: str) -> list[str]:
    return [f"test_interval/{name}_{end}" for name in metrics for end in ("low", "high")]


def _domain(values: Sequence[Any]) -> Any:
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return api.RealInterval(float(min(values)), float(max(values)))
    return api.Discrete(sorted({value if isinstance(value, bool) else str(value) for value in values}))
