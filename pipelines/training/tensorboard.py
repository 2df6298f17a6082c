"""What TensorBoard shows of a run besides its curves and pictures, and how a resumed run takes points back.

Summaries go to the default summary writer.
"""

import dataclasses
import io
import os
import re
import shlex
import textwrap
import time

import numpy as np
import tensorflow as tf
from absl import logging
from tensorboard.compat.proto import event_pb2
from tensorboard.plugins import projector
from tensorboard.plugins.hparams import api, api_pb2, summary

from rank4class.pipelines import config

MAX_POINTS = 100_000  # the projector asks for no more
MAX_NUMBERS = 4_000_000  # points x width: some 40 MB, and seconds to write and to load
SKEW = 2.0  # seconds to wait at most for a clock


def write_hparams(experiment):
    """Writes an experiment's fields as the hyperparameters of its run.

    The run has a row of its own in the HParams tab, called as its folder is: it names no group to share
    one with.

    Args:
      experiment: a `config.Experiment`.
    """
    api.hparams(hyperparameters(experiment), trial_id="")


def hyperparameters(experiment):
    """Returns an experiment's fields that are set, dotted name -> number, bool or string.

    >>> found = hyperparameters(config.override(config.Experiment(), {"encoder.hidden": (64, 32)}))
    >>> found["loss.name"], found["encoder.hidden"], found["seed"], "steps" in found
    ('softmax', '64, 32', 0, False)
    """
    return dict(_flattened(dataclasses.asdict(experiment)))


def _flattened(fields, prefix=""):
    for name, value in fields.items():
        if isinstance(value, dict):
            yield from _flattened(value, f"{prefix}{name}.")
        elif isinstance(value, tuple):
            if value:
                yield prefix + name, ", ".join(map(str, value))
        elif value is not None:
            yield prefix + name, value


def write_best(results, metrics, step):
    """Writes a run's figures, `best/validation/<metric>` and `test/<metric>`, and that it is finished.

    Args:
      results: of the run; "validation" and "test" hold what `evaluation.summarize` returns.
      metrics: names; one that a split does not have is left out there.
      step: int, of the model that was judged.
    """
    for split, prefix in (("validation", "best/validation"), ("test", "test")):
        for name in metrics:
            if name in results[split]:
                tf.summary.scalar(f"{prefix}/{name}", results[split][name], step=step)
    end = summary.session_end_pb(api_pb2.STATUS_SUCCESS)
    tf.summary.experimental.write_raw_pb(end.SerializeToString(), step=step)


def write_text(experiment, command, git, packages, step=0):
    """Writes what a run was started with as the texts `config`, `command` and `versions`.

    Args:
      experiment: a `config.Experiment`.
      command: the words of the command line; they are quoted so that a shell reads them again.
      git: the commit of the code, or None outside a checkout.
      packages: name -> version.
      step: int, where the run starts or goes on.
    """
    versions = [f"# code {git or 'outside a git checkout'}"]
    versions += [f"{name}=={version}" for name, version in packages.items()]
    texts = {
        "config": config.to_json(experiment),
        "command": shlex.join(command),
        "versions": "\n".join(versions),
    }
    for name, text in texts.items():
        # Markdown shows indented lines as they are.
        tf.summary.text(name, textwrap.indent(text, "    "), step=step)


def write_projector(folder, class_names, vectors):
    """Writes the vectors of the classes, with their names, for the projector.

    Of more than `MAX_POINTS` classes, or `MAX_NUMBERS` numbers in all, the first are written.

    Args:
      folder: that of the run's event files.
      class_names: `n` names.
      vectors: float `[n, d]`.

    Raises:
      ValueError: there is not one vector a name.
    """
    vectors = np.asarray(vectors, np.float32)
    if vectors.ndim != 2 or len(vectors) != len(class_names):
        raise ValueError(
            f"vectors of shape {vectors.shape} are not one for each of {len(class_names)} classes"
        )
    points = min(len(vectors), MAX_POINTS, MAX_NUMBERS // vectors.shape[1])
    if points < len(vectors):
        logging.info("The projector gets the first %d of %d classes", points, len(vectors))
    tsv = io.StringIO()
    np.savetxt(tsv, vectors[:points], fmt="%.6g", delimiter="\t")
    _write(os.path.join(folder, "tensors.tsv"), tsv.getvalue())
    # One column has no header; a line that is blank would be skipped.
    labels = [" ".join(name.split()) or str(i) for i, name in enumerate(class_names[:points])]
    _write(os.path.join(folder, "metadata.tsv"), "".join(f"{label}\n" for label in labels))
    embedding = projector.EmbeddingInfo(
        tensor_name="classes",
        tensor_shape=[points, vectors.shape[1]],
        tensor_path="tensors.tsv",
        metadata_path="metadata.tsv",
    )
    projector.visualize_embeddings(folder, projector.ProjectorConfig(embeddings=[embedding]))


def _write(path, text):
    with tf.io.gfile.GFile(path, "w") as file:
        file.write(text)


def purge_after(folder, step):
    """Takes back what a run wrote after a step, before a writer of the run that goes on there is made.

    TensorBoard drops what it read before of the steps that a restart is going to repeat. Its Python loader
    does so at the second START of a folder, hence two; its data server has no use for them, there the
    points of a tag give way to a new one of that tag at their step or an earlier one.

    TensorBoard reads a folder's files in the order of their names, which hold seconds: this waits for the
    next one where the last file is as new, but no longer than `SKEW` for another machine's clock.

    Args:
      folder: that of the run's event files. Nothing happens where there is none.
      step: int, the last one to keep.
    """
    paths = tf.io.gfile.glob(os.path.join(folder, "events.out.tfevents.*"))
    times = [int(match[1]) for match in (re.search(r"tfevents\.(\d+)", path) for path in paths) if match]
    if not times:
        return
    newest = max(times)
    time.sleep(min(max(0.0, newest + 1 - time.time()), SKEW))
    start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
    # The shortest name of its second sorts before a writer's.
    with tf.io.TFRecordWriter(os.path.join(folder, f"events.out.tfevents.{int(time.time()):010d}")) as file:
        for fields in ({"file_version": "brain.Event:2"}, *[{"step": step + 1, "session_log": start}] * 2):
            file.write(event_pb2.Event(wall_time=time.time(), **fields).SerializeToString())
