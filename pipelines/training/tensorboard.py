"""The summaries of a run in TensorBoard, and in other trackers of experiments."""

import contextlib
import csv
import io
import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import tensorflow as tf
from absl import logging
from tensorboard.plugins import projector
from tensorboard.plugins.hparams import api, api_pb2, summary

from rank4class.pipelines import config
from rank4class.pipelines.storage import files
from rank4class.pipelines.training import trackers

MAX_POINTS = 10_000  # of which the projector's layouts stay quick
MAX_NUMBERS = 4_000_000  # points x width: about 40 MB
SECONDS_BETWEEN_PICTURES = 60.0
_VECTORS = "projector/vectors.tsv"
_CLASSES = "projector/classes.tsv"


class Summaries:
    """Writes a run's summaries to TensorBoard and to the trackers of `trackers.start`.

    Only the chief of several workers writes.
    """

    def __init__(self, folder: str, *, writes: bool = True):
        self._folder = folder
        self._writer = tf.summary.create_noop_writer()
        if writes:
            with files.errors_of(folder):
                self._writer = tf.summary.create_file_writer(folder)
        self._trackers = trackers.start(folder) if writes else []
        self._writes = writes
        self._pictures_written = time.monotonic()

    @contextlib.contextmanager
    def _writing(self):
        with files.errors_of(self._folder), self._writer.as_default():
            yield

    def write_start(self, experiment: config.Experiment) -> None:
        """Writes an experiment's fields."""
        with self._writing():
            api.hparams(hyperparameters(experiment), trial_id=group_name(experiment))
        for tracker in self._trackers:
            tracker.put_fields({**hyperparameters(experiment), "seed": experiment.seed})

    def write_scalars(self, values: dict[str, Any], step: int) -> None:
        """Writes tag -> value."""
        with self._writing():
            for tag, value in values.items():
                tf.summary.scalar(tag, value, step=step)
        for tracker in self._trackers:
            tracker.put_values(values, step)

    def pictures_are_due(self) -> bool:
        """Whether the last pictures are old enough for the next ones."""
        return self._writes and time.monotonic() - self._pictures_written > SECONDS_BETWEEN_PICTURES

    def write_pictures(self, split: str, pictures: dict[str, np.ndarray], step: int) -> None:
        """Writes name -> pixels `[height, width, channels]` of a split."""
        with self._writing():
            for name, picture in pictures.items():
                tf.summary.image(f"{split}/{name}", picture[None], step=step)
        self._pictures_written = time.monotonic()

    def write_end(self, results: dict[str, Any], metrics: Iterable[str], step: int) -> None:
        """Writes the metrics of the evaluated model, at its step, and marks the run as finished."""
        values = {
            f"{prefix}/{name}": results[split][name]
            for split, prefix in (("validation", "validation_best"), ("test", "test"))
            for name in metrics
            if name in results.get(split, ())
        }
        for tracker in self._trackers:
            tracker.put_values(values, results["steps"])  # W&B takes no steps before the last one
        with self._writing():
            for tag, value in values.items():
                tf.summary.scalar(tag, value, step=step)
            end = summary.session_end_pb(api_pb2.STATUS_SUCCESS)
            tf.summary.experimental.write_raw_pb(end.SerializeToString(), step=step)
            self._writer.flush()

    def write_files(self, paths: Sequence[str]) -> None:
        """Sends the final files to the trackers."""
        for tracker in self._trackers:
            tracker.put_files(paths)

    def close(self, is_complete: bool) -> None:
        """Ends the run at the trackers."""
        for tracker in self._trackers:
            tracker.close(is_complete)


def group_name(experiment: config.Experiment) -> str:
    """Returns the name that the runs of an experiment with all seeds share in the HParams tab."""
    fields = hyperparameters(experiment)
    digest = files.sha256(json.dumps(fields, sort_keys=True))
    return f"{experiment.loss.name}-{experiment.interaction.name} {digest[:8]}"


def hyperparameters(experiment: config.Experiment) -> dict[str, float | bool | str]:
    """Returns an experiment's fields that are set, except its seed, dotted name -> number, bool or string."""
    return {
        name: ", ".join(map(str, value)) if isinstance(value, tuple) else value
        for name, value in config.values(experiment).items()
        if value is not None and value != () and name != "seed"
    }


def write_projector(
    folder: str,
    class_names: Sequence[str],
    vectors: np.ndarray,
    columns: Mapping[str, np.ndarray],
    frequencies: np.ndarray,
) -> None:
    """Writes classes for the projector: vectors, names, and figures (NaN for none) to color by.

    Of more than it can show, the most frequent are written, by `frequencies` `[n]`.
    """
    n, width = vectors.shape
    points = min(n, MAX_POINTS, MAX_NUMBERS // width)
    if points < n:
        logging.info("TensorBoard's projector shows the %d most frequent of %d classes", points, n)
    shown = np.sort(np.argsort(-frequencies, kind="stable")[:points])
    tf.io.gfile.makedirs(os.path.join(folder, "projector"))
    tsv = io.StringIO()
    np.savetxt(tsv, np.asarray(vectors, np.float32)[shown], fmt="%.6g", delimiter="\t")
    files.write(os.path.join(folder, _VECTORS), tsv.getvalue())
    labels = [" ".join(class_names[i].split()) or str(i) for i in shown.tolist()]
    if all(map(str.isdigit, labels)):  # the projector labels points by the first column that has words
        labels = [f"class {label}" for label in labels]
    figures = {name: np.asarray(column[shown], float) for name, column in columns.items()}
    options = {"sep": "\t", "index": False, "float_format": "%.6g", "quoting": csv.QUOTE_NONE}
    classes = pd.DataFrame({"class": labels, **figures}).to_csv(None, **options)
    files.write(os.path.join(folder, _CLASSES), classes)
    embedding = projector.EmbeddingInfo(
        tensor_name="classes", tensor_shape=[points, width], tensor_path=_VECTORS, metadata_path=_CLASSES
    )
    projector.visualize_embeddings(folder, projector.ProjectorConfig(embeddings=[embedding]))
