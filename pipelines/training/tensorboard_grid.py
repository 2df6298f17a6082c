"""The summary of a grid in TensorBoard: a row per cell in the HParams tab, with means and intervals."""

import os
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.plugins.hparams import api, api_pb2, summary
from tensorboard.plugins.scalar import summary_v2

from rank4class.pipelines.storage import files
from rank4class.pipelines.training.tensorboard import group_name, hyperparameters

AXES = ("loss.name", "loss.rank_fn", "interaction.name")  # fields that the cells of a grid differ in
EVENTS = "events.out.tfevents.0000000000"  # its name is fixed, so that a later summary replaces it


def write_grid(
    root: str,
    cells: Mapping[str, Any],
    intervals: Sequence[Mapping[str, Sequence[float | None] | None]],
    monitor: str,
    tuned: Collection[str] = (),
) -> None:
    """Writes the intervals of each cell of a grid, and which hyperparameters and metrics TensorBoard shows.

    The runs of a cell and the interval share a row of the HParams tab. It shows the `AXES` in which cells
    differ, the tuned fields, and the test metrics.

    Args:
      root: folder of the grid; each cell gets a folder there.
      cells: name of a cell -> the experiment of one of its runs, a `config.Experiment`.
      intervals: metric -> test interval, of each cell; None, or an end that is None, is not written.
      monitor: the metric that is shown first.
      tuned: names of the tuned fields.
    """
    fields = [hyperparameters(experiment) for experiment in cells.values()]
    shown = [name for name in AXES if len({one.get(name) for one in fields}) > 1] or ["loss.name"]
    shown += [name for name in tuned if any(name in one for one in fields)]
    first, *others = sorted(intervals[0], key=lambda name: name != monitor)
    # TensorBoard shows the first five.
    tags = [f"test/{first}", *_ends(first), *(f"test/{name}" for name in others), *_ends(*others)]
    hparams = [api.HParam(name, _domain([one[name] for one in fields if name in one])) for name in shown]
    for (name, experiment), values, interval in zip(cells.items(), fields, intervals, strict=True):
        summaries = [
            api.hparams_config_pb(hparams, list(map(api.Metric, tags))),
            api.hparams_pb(values, trial_id=group_name(experiment)),
            summary.session_end_pb(api_pb2.STATUS_SUCCESS),
        ]
        for metric, ends in interval.items():
            for tag, value in zip(_ends(metric), ends or (None, None), strict=True):
                if value is not None:
                    summaries.append(summary_v2.scalar_pb(tag, value))
        _write(os.path.join(root, name), summaries)


def _ends(*metrics: str) -> list[str]:
    return [f"test_interval/{name}_{end}" for name in metrics for end in ("low", "high")]


def _domain(values: Sequence[Any]) -> Any:
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return api.RealInterval(float(min(values)), float(max(values)))
    return api.Discrete(sorted({value if isinstance(value, bool) else str(value) for value in values}))


def _write(folder: str, summaries: Sequence[Any]) -> None:
    # Some of them are of TensorFlow's class, others of TensorBoard's.
    copies = [summary_pb2.Summary.FromString(one.SerializeToString()) for one in summaries]
    path = os.path.join(folder, EVENTS)
    partial = f"{path}.{os.getpid()}"  # processes that share a sweep end together
    with files.errors_of(folder):
        tf.io.gfile.makedirs(folder)
        with tf.io.TFRecordWriter(partial) as file:
            for fields in ({"file_version": "brain.Event:2"}, *({"summary": one} for one in copies)):
                file.write(event_pb2.Event(wall_time=time.time(), **fields).SerializeToString())
        tf.io.gfile.rename(partial, path, overwrite=True)
