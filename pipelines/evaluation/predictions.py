"""What an evaluation leaves in a folder, so that runs can be compared example by example.

evaluation.json  what was judged, and the metrics with their intervals; written last
classes.tsv      the figures of each class, see `per_class.PerClass`
predictions.npz       of each example: scores, labels, values of the metrics, where it was read; and the
                 log-probabilities of its counts, if there is a prior of them

In predictions.npz the labels of examples of several classes are three arrays, `labels_data`, `labels_indices`
and `labels_indptr`, those of a `scipy.sparse.csr_array`: as a matrix, those of many classes would not fit.
"""

import dataclasses
import os
import zipfile

import numpy as np
import scipy.sparse
import tensorflow as tf

from rank4class import losses
from rank4class.pipelines.evaluation.evaluator import metric_heading
from rank4class.pipelines.storage import files

_ROUNDING = 1e-5  # of a metric in float32
LARGEST_SCORES = 4 * 10**9  # bytes; twice that is held while the batches are joined


@dataclasses.dataclass(frozen=True)
class Scored:
    """The examples of a `predictions.npz`.

    Attributes:
      labels: as in `data.Split`.
      class_names: of the `n` classes that they were ranked among, str `[n]`.
      origins: where each example was read, str `[N]`.
      metrics: names of the `M` metrics, str `[M]`.
      values: of the metrics, float32 `[N, M]`.
      scores: float32 `[N, n]`, or None.
    """

    labels: np.ndarray | scipy.sparse.csr_array
    class_names: np.ndarray
    origins: np.ndarray
    metrics: np.ndarray
    values: np.ndarray
    scores: np.ndarray | None = None


def check_size(examples, classes):
    """Raises ValueError where the scores of so many examples and classes are too many to hold.

    >>> check_size(10_000, 1_000_000)
    Traceback (most recent call last):
    ...
    ValueError: the scores of 10,000 examples and 1,000,000 classes take 40.0 GB, and 4.0 GB are the most \
that is kept: --nokeep_scores leaves them out, and everything else is written
    """
    size = 4 * examples * classes
    if size > LARGEST_SCORES:
        raise ValueError(
            f"the scores of {examples:,} examples and {classes:,} classes take {size / 1e9:.1f} GB, and "
            f"{LARGEST_SCORES / 1e9:.1f} GB are the most that is kept: --nokeep_scores leaves them out, and "
            "everything else is written"
        )


def prepare(folder):
    """Makes the folder, and takes an earlier `evaluation.json` away: where there is one, all is there.

    Raises:
      OSError: it cannot be written.
    """
    files.make_writable(folder)
    files.remove([os.path.join(folder, "evaluation.json")])


def write(folder, summary, table, judged, split, class_names):
    """Writes an evaluation to a folder that is there.

    Args:
      folder: on disk or in object storage.
      summary: for `evaluation.json`.
      table: a `per_class.PerClass`.
      judged: an `evaluation.EvaluationResult`.
      split: the `data.Split` that was judged.
      class_names: of the classes that it was ranked among.

    Raises:
      OSError: it cannot be written.
    """
    arrays = {
        **_labels_to_arrays(split),
        "class_names": np.array(class_names, str),
        "origins": np.array([split.origin(i) for i in range(len(split))], str),
        "metrics": np.array(judged.names, str),
        "values": judged.values,
        "scores": judged.scores,
        "log_counts": judged.log_counts,
    }
    with (
        files.writing(os.path.join(folder, "predictions.npz")) as file,
        zipfile.ZipFile(_Stream(file), "w") as npz,
    ):
        for name, array in arrays.items():
            if array is not None:
                with npz.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
    lines = ["\t".join(row) + "\n" for row in _class_rows(table)]
    files.write(os.path.join(folder, "classes.tsv"), "".join(lines))
    files.write(os.path.join(folder, "evaluation.json"), files.to_json(summary, indent=2) + "\n")


def _class_rows(table):
    """Returns the header and the rows of `classes.tsv`."""
    header = ["class", "examples"]
    for metric in table.metrics:
        header += [metric_heading(metric), f"{metric} low", f"{metric} high"]
    yield [*header, "top class of", "right (%)", "right low", "right high", "taken for", "times"]
    for i, name in enumerate(table.class_names):
        row = [files.printable(name), str(table.examples[i])]
        for mean, interval in zip(table.means[i], table.intervals[i], strict=True):
            row += map(_figure, (mean, *interval))
        row += [str(table.named[i]), *map(_figure, (table.precision[i], *table.precision_intervals[i]))]
        mistaken = files.printable(table.class_names[table.most_confused_with[i]]) if table.taken[i] else "-"
        yield [*row, mistaken, str(table.taken[i])]


def _figure(value):
    return "-" if np.isnan(value) else f"{value:.4f}"


CSR = ("labels_data", "labels_indices", "labels_indptr")


def _labels_to_arrays(split):
    """Returns what of `predictions.npz` holds the labels, name -> array."""
    if not split.multi_label:
        return {"labels": split.labels}
    return dict(zip(CSR, (split.labels.data, split.labels.indices, split.labels.indptr), strict=True))


def _labels_from_arrays(npz, num_classes):
    """Returns the labels that `_labels_to_arrays` wrote; raises ValueError where there are none."""
    if "labels" in npz.files:
        return npz["labels"]
    data, indices, indptr = (npz[name] for name in CSR)
    shape = (len(indptr) - 1, num_classes)
    return scipy.sparse.csr_array((data, indices, indptr), shape=shape)


class _Stream:
    """A file that is written from start to end, as all that object storage takes, in parts of the whole."""

    def __init__(self, file):
        self._file = file

    def write(self, content):
        self._file.write(bytes(content))
        return len(content)

    def flush(self):
        self._file.flush()


def read(path, *, with_scores=False):
    """Returns the `Scored` of a `predictions.npz`, with its scores if they are wanted and there.

    Raises:
      FileNotFoundError: there is none.
      ValueError: it is damaged, or no such file.
    """
    if not files.exists(path) or tf.io.gfile.isdir(path):
        raise FileNotFoundError(
            f"no file {path}: scripts.evaluate --output=FOLDER writes FOLDER/predictions.npz"
        )
    wanted = [field.name for field in dataclasses.fields(Scored) if field.name not in ("labels", "scores")]
    try:
        with files.errors_of(path), tf.io.gfile.GFile(path, "rb") as file, np.load(file) as npz:
            files.check_stored(npz)
            arrays = {name: npz[name] for name in wanted}
            arrays["labels"] = _labels_from_arrays(npz, len(arrays["class_names"]))
            if "scores" in npz.files:
                arrays["scores"] = npz["scores"]
        _check(**arrays)
    # NumPy raises TypeError where the file holds a single array, which is no context.
    except (zipfile.BadZipFile, ValueError, KeyError, EOFError, TypeError, MemoryError) as error:
        raise ValueError(
            f"{path} is damaged or was not written by scripts.evaluate ({error}): evaluate again"
        ) from error
    if not with_scores:
        arrays.pop("scores", None)
    return Scored(**arrays)


def _check(labels, class_names, origins, metrics, values, scores=None):
    if isinstance(labels, np.ndarray) and labels.ndim != 1:
        raise ValueError("its labels are a matrix")
    size = labels.shape[0]
    if values.shape != (size, len(metrics)) or len(origins) != size or not size:
        raise ValueError("its arrays do not fit each other")
    if scores is not None and scores.shape != (size, len(class_names)):
        raise ValueError("its scores do not fit its examples and classes")
    if isinstance(labels, np.ndarray) and (labels.min() < 0 or labels.max() >= len(class_names)):
        raise ValueError(f"a label is outside the classes 0..{len(class_names) - 1}")
    finite = np.full(size, True) if scores is None else np.isfinite(scores).all(axis=1)
    for name, column in zip(metrics.tolist(), values.T, strict=True):
        metric = losses.get_metric(name)
        highest = 1.0 if metric.percent else np.inf
        if not ((column >= 0.0) & (column <= highest + _ROUNDING)).all():  # NaN is neither
            raise ValueError(f"a value of {name} is outside [0, {highest:g}]")
        worst = 0.0 if metric.higher_is_better else highest
        if not np.isclose(column[~finite], worst, atol=_ROUNDING).all():
            raise ValueError(f"{name} of an example whose scores are not finite is not the worst value")


def check_same_examples(first, second, first_name, second_name):
    """Raises ValueError where two `Scored` are not of the same examples and classes in the same order.

    Args:
      first, second: each a `Scored`.
      first_name, second_name: what to call them.
    """
    if not np.array_equal(first.class_names, second.class_names):
        raise ValueError(
            f"{first_name} and {second_name} are not about the same classes: compare runs of one dataset"
        )
    if len(first.origins) != len(second.origins):
        raise ValueError(
            f"{first_name} has {len(first.origins):,} examples and {second_name} {len(second.origins):,}: "
            "compare evaluations of the same split"
        )
    if first.labels.ndim != second.labels.ndim:
        raise ValueError(
            f"{first_name} and {second_name} do not hold the same examples: in one of them an example may "
            "have several classes"
        )
    other = first.labels != second.labels
    same = (first.origins == second.origins) & ~(other if other.ndim == 1 else other.sum(axis=1) > 0)
    if not same.all():
        i = int(np.argmin(same))
        raise ValueError(
            f"{first_name} and {second_name} do not hold the same examples: number {i + 1} is "
            f"{_called(first, i)} in the one and {_called(second, i)} in the other"
        )


def _called(scored, i):
    own = scored.labels[[i]]
    own = own if own.ndim == 1 else own.indices
    return f"{scored.origins[i]} ({', '.join(scored.class_names[own]) or 'no class'})"
