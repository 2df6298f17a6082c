"""The report of labels that look wrong, a table of them for a spreadsheet, and the correction of files."""

import collections
import io
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from rank4class.data.labels import listed, similar_names
from rank4class.data.readers import files as input_files
from rank4class.data.readers import relabel, text_rows
from rank4class.data.readers.columns import Columns
from rank4class.pipelines import config
from rank4class.pipelines.evaluation import label_errors, learning_curve, neighbors
from rank4class.pipelines.reporting import page, tables
from rank4class.pipelines.reporting.page import Section
from rank4class.pipelines.reporting.run_page import shown_input
from rank4class.pipelines.storage import files
from rank4class.pipelines.task_data import loading
from rank4class.pipelines.task_data.task_data import TaskData
from rank4class.registry import did_you_mean

TABLE = "labels.csv"
_CORRECT = "correct_label"  # column that a person fills
_SHOWN = 100  # labels on the page
_IN_TERMINAL = 10
_NEAREST = 3  # examples beside each
_NEAR_DUPLICATE = 0.95  # cosine
_PAIRS = 20  # of classes
_LEAST_OF_CURVE = 400  # examples that a learning curve needs
_LONGEST = 300  # characters of a text on the page
_WIDTH = 45  # characters of a text in the terminal
_MEANING = (
    "A label is judged by the other examples, never by itself; the most suspicious come first. The estimate "
    "above counts mistakes that name a similar class only in part, since an example between two classes "
    "looks the same: read the list."
)


def for_vectors(experiment: config.Experiment) -> config.Experiment:
    """Returns an experiment that loads the vectors by which labels are judged, those of a frozen encoder.

    Raises:
      ValueError: it has no encoder that is pretrained, or its examples no classes of their own.
    """
    changes: dict[str, Any] = {"data.held_out": (), "class_encoder.name": "embedding"}
    if getattr(experiment.encoder, "path", None):
        changes["encoder.frozen"] = True
    elif experiment.encoder.name not in ("identity", "words"):
        raise ValueError(
            f"encoder={experiment.encoder.name!r}: not pretrained, and labels are judged by the vectors of "
            "one that is. Set encoder.path, or choose 'identity' for numbers or 'words' for texts."
        )
    return config.override(experiment, changes)


class LabelReport:
    """The labels of all examples of a task that look wrong; see `label_errors`."""

    def __init__(self, task_data: TaskData):
        """Judges the labels; see `for_vectors`.

        Raises:
          ValueError: the examples are lists of items, or known by their ids alone.
        """
        kind = task_data.splits["train"].kind
        if kind.ranks_items or kind.has_ids:
            raise ValueError(
                "data: the examples are lists of items or ids, which have no vectors. Choose other data."
            )
        self._names = task_data.class_names
        self._are_files = task_data.inputs.kind.reads_files
        self._examples = examples = label_errors.pool(task_data)
        self._several = examples.multi_label
        self.judgement = self._curve = None
        vectors = examples.features["embedding"]
        if self._several:
            self._suspicions = label_errors.judge_several(vectors, examples.label_matrix)
        else:
            self.judgement = label_errors.judge(vectors, examples.labels, len(self._names))
            self._suspicions = self.judgement.suspicions
            if len(examples) >= _LEAST_OF_CURVE:
                self._curve = learning_curve.measure(vectors, examples.labels, len(self._names))
        rows = self._suspicions.rows
        self._nearest, self._cosines = neighbors.nearest(
            vectors[rows], vectors, min(_NEAREST, len(examples) - 1), themselves=rows
        )
        self._similar = similar_names(self._names)
        common = os.path.commonprefix([examples.origin(i) for i in range(len(examples))])  # noqa: RUF071, cut at a folder
        self._folder = common.rfind("/") + 1

    @property
    def can_apply(self) -> bool:
        """Whether `apply` takes the table: the examples are lines of files, with one label each."""
        return not self._several and self._examples.origin(0).rpartition(":")[2].isdecimal()

    def answer(self) -> str:
        """Returns the most important figure in a sentence."""
        count = f"{len(self._suspicions.rows):,}"
        if self.judgement is None:
            missing = int(np.sum(self._suspicions.labels < 0))
            return (
                f"In {len(self._examples):,} examples {missing:,} labels look missing, and "
                f"{len(self._suspicions.rows) - missing:,} look superfluous."
            )
        interval = tables.format_interval(self.judgement.interval, 1)
        return (
            f"About {self.judgement.share:.1f}% {interval} of {len(self._examples):,} labels are wrong at "
            f"random; for {count} another class is more probable."
        )

    def text(self) -> str:
        """Returns the report for a terminal."""
        blocks = [self.answer()]
        if len(self._suspicions.rows):
            cells = self.table().head(_IN_TERMINAL)
            cells["example"] = cells["example"].str[self._folder :]
            cells["input"] = [tables.shortened(files.printable(each), _WIDTH) for each in cells["input"]]
            shown = ["example", "input", "label", "suggested", "probability"]
            if self._are_files or self._examples.inputs is None:
                shown.remove("input")
            rows = [shown, *cells[shown].astype(str).values.tolist()]
            blocks.append(tables.text_table(rows, tables.figure_alignment(rows)))
        if self._similar:
            pairs = [" and ".join(map(repr, pair)) for pair in self._similar]
            blocks.append(f"Class names that may be one: {listed(pairs)}.")
        if self._curve is not None:
            blocks.append(self._more_examples())
        return "\n\n".join(blocks)

    def table(self) -> pd.DataFrame:
        """Returns a row for each suspicious label, with an empty column for the correct one."""
        rows, labels, suggested, probabilities = self._suspicions
        names = np.array([*self._names, ""], object)  # -1 is the last of the names
        origin = self._examples.origin
        nearest = [
            f"{origin(ids[0])} ({self._label(ids[0])}, {cosine[0]:.2f})"
            for ids, cosine in zip(self._nearest, self._cosines, strict=True)
        ]
        inputs = self._examples.inputs
        columns = {
            "example": [origin(i) for i in rows],
            "input": "" if inputs is None else inputs[rows],
            "label": names[labels],
            "suggested": names[suggested],
            "probability": [f"{p:.2f}" for p in probabilities],
            "nearest": nearest,
            _CORRECT: "",
        }
        return pd.DataFrame(columns)

    def write(self, folder: str | os.PathLike, commands: Sequence[str] = ()) -> str:
        """Writes `labels.csv` and `labels.html` to an existing folder; returns the path of the page."""
        files.write(os.path.join(folder, TABLE), "\ufeff" + self.table().to_csv(index=False))
        sections = [
            Section("Suspicious labels", _MEANING if self.judgement else "", self._rows()),
            Section("Classes that are often confused", rows=self._confused()),
            Section("Class names that may be one", rows=[["", ""], *self._similar] if self._similar else ()),
            Section("Examples that are unlike all others", rows=self._unlike()),
            Section("More examples", self._more_examples(), self._errors()),
            Section("Next", lines=commands),
        ]
        path = os.path.join(folder, "labels.html")
        title = f"{os.path.basename(os.path.abspath(folder))}: labels of {len(self._names):,} classes"
        shown = [section for section in sections if section.rows or section.lines]
        files.write(path, page.render(title, self.answer(), shown))
        return path

    def _rows(self) -> list[list[Any]]:
        """Returns the rows of the page: each example, and those that are nearest."""
        table = self.table().head(_SHOWN)
        if not len(table):
            return []
        shown: list[list[Any]] = [
            ["example", "label → suggested", *["similar example"] * self._nearest.shape[1]]
        ]
        for i, row in enumerate(table.itertuples(index=False)):
            cells = [
                self._example(self._suspicions.rows[i]),
                page.beside(row.label, f"→ {row.suggested} ({row.probability})"),
            ]
            for other, cosine in zip(self._nearest[i], self._cosines[i], strict=True):
                is_copy = cosine >= _NEAR_DUPLICATE and self._label(other) != row.label
                note = ", near duplicate" if is_copy else ""
                cells.append(page.beside(f"{self._label(other)} ({cosine:.2f}{note})", self._input(other)))
            shown.append(cells)
        return shown

    def _unlike(self) -> list[list[Any]]:
        """Returns examples that are far from all classes, and their labels."""
        if self.judgement is None:
            return []
        shown = ([self._example(i), self._label(i)] for i in self.judgement.unlike.tolist())
        return [["example", "label"], *shown]

    def _more_examples(self) -> str:
        """Returns the error with all examples, and a forecast for twice as many, in a sentence."""
        if (curve := self._curve) is None:
            return ""
        interval = tables.format_interval(curve.interval, 1)
        return (
            f"By all others {curve.errors[-1]:.1f}% of {curve.sizes[-1]:,} examples have another class "
            f"first; with twice as many examples it would be about {curve.forecast:.1f}% {interval}."
        )

    def _errors(self) -> list[list[str]]:
        """Returns the errors by number of examples."""
        if (curve := self._curve) is None:
            return []
        rows = zip(curve.sizes, curve.errors, strict=True)
        return [["examples", "error (%)"], *([f"{size:,}", f"{error:.1f}"] for size, error in rows)]

    def _example(self, i: int) -> Any:
        """Returns where an example was read, and what a person sees of it."""
        return page.beside(self._examples.origin(i)[self._folder :], self._input(i))

    def _input(self, i: int) -> Any:
        return shown_input(self._examples, i, self._are_files)

    def _label(self, i: int) -> str:
        """Returns the names of an example's classes."""
        if not self._several:
            return self._names[self._examples.labels[i]]
        return ", ".join(self._names[j] for j in self._examples.label_matrix[[i]].indices) or "no class"

    def _confused(self) -> list[list[str]]:
        """Returns label, suggested class and count of the most frequent pairs."""
        pairs = zip(self._suspicions.labels.tolist(), self._suspicions.suggested.tolist(), strict=True)
        counts = collections.Counter(pairs).most_common(_PAIRS)
        names = [*self._names, "-"]
        rows = [[names[a], names[b], f"{count:,}"] for (a, b), count in counts]
        return [["label", "suggested", "examples"], *rows] if rows else []


def apply(path: str, data_config: config.Data, folder: str) -> tuple[int, list[str]]:
    """Writes the files of the data with the correct labels of a `LabelReport.table` to a folder.

    Returns:
      The number of labels that changed, and the paths of the new files.

    Raises:
      ValueError: rows may have several labels, a class is unknown, or a file has another format or has
        changed; nothing is written.
    """
    dataset = loading.read_dataset(data_config)
    columns = Columns.of_options(data_config.options())
    if dataset.splits["train"].multi_label:
        raise ValueError(f"apply={path}: rows may have several labels. Correct them in the file itself.")
    corrections: dict[str, dict[int, tuple[str, str]]] = {
        file: {} for file in dataset.files if input_files.uncompressed(file).endswith(text_rows.FORMATS)
    }
    for i, row in enumerate(_read_table(path), 2):
        new = row[_CORRECT].strip()
        if not new or new == row["label"]:
            continue
        if new not in dataset.class_names:
            hint = did_you_mean(new, dataset.class_names)
            raise ValueError(f"{path}:{i}: class {new!r} is not one of the data. {hint}Correct it.")
        file, _, number = row["example"].rpartition(":")
        if file not in corrections or not number.isdecimal():
            formats = ", ".join(text_rows.FORMATS)
            raise ValueError(
                f"{path}:{i}: {row['example']} is not a line of a file of the data that ends in {formats}. "
                f"Leave {_CORRECT} empty there."
            )
        corrections[file][int(number)] = row["label"], new
    contents = {file: relabel.corrected(file, columns, of_file) for file, of_file in corrections.items()}
    files.make_folder(folder)
    written = []
    for file, content in contents.items():
        name = os.path.basename(file)
        written.append(os.path.join(folder, name[: len(input_files.uncompressed(name))]))
        files.write(written[-1], content)
    return sum(map(len, corrections.values())), written


def _read_table(path: str) -> list[Mapping[str, str]]:
    """Returns the rows of `TABLE`, as a spreadsheet may have saved it."""
    try:
        text = files.read_text(path).removeprefix("\ufeff")
        separator = max(",;\t", key=text.partition("\n")[0].count)
        table = pd.read_csv(io.StringIO(text), sep=separator, dtype=str, keep_default_na=False)
    except ValueError as error:  # of pandas too
        raise ValueError(f"{path}: not a table in UTF-8 ({error}). Save it as CSV in UTF-8.") from error
    if missing := {"example", "label", _CORRECT} - set(table):
        raise ValueError(f"{path}: no column {missing.pop()!r}. Give a table that check_labels wrote.")
    return table.to_dict("records")
