"""What a user's file or folder holds: texts, images or vectors, and the columns of them and of the labels."""

import collections
import itertools
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rank4class.data.labels import listed
from rank4class.data.readers import arrays, files, row_values, rows, split_files, tables, text_rows
from rank4class.data.readers.columns import normalize_text

SEPARATORS = ";|,"


class Recognized(NamedTuple):
    """What a path holds."""

    inputs: str  # "text", "image" or "vector"
    dataset: str
    options: dict[str, Any]  # of the dataset, those that were not given
    rows: int  # of the first 1,000 of a table; 0 where none are read

    def __str__(self) -> str:
        """Returns what was recognized, and the flags that choose otherwise."""
        if self.dataset == "image_folder":
            return "images, in a folder for each class"
        shown = {
            "text_column": "texts in column {!r}",
            "image_column": "images in column {!r}",
            "feature_columns": "beside them the columns {}",
            "label_column": "labels in column {!r}",
            "label_separator": "several of them joined by {!r}",
        }
        parts = [
            shown[name].format(listed(value) if isinstance(value, tuple) else value)
            for name, value in self.options.items()
        ]
        parts += ["inputs in other columns"] if self.inputs == "vector" and self.rows else []
        flags = [f"--config.data.{name}" for name in self.options]
        return f"{', '.join(parts)} (or choose with {listed(flags)})" if parts else "an array of vectors"


def recognize(path: str, given: Mapping[str, str]) -> Recognized:
    """Returns what a table, a folder with the tables of splits, or a folder of images holds.

    A header line with a cell that is in a row below too is a row, and the columns are their positions from 1.
    A column is taken by a usual name, or else by the cells of the first 1,000 rows: texts have three words or
    more, labels repeat. Several labels in a cell are recognized by parts that repeat in other cells.

    Args:
      path: see the datasets `table` and `image_folder`.
      given: options of the dataset that the user has set, as strings; they are not chosen.

    Raises:
      ValueError: several columns may be the inputs or the labels, or none; a file that cannot be read.
      FileNotFoundError: no file or folder, or none of the training split.
    """
    if _is_folder_of_images(path):
        return Recognized("image", "image_folder", {}, 0)
    splits = split_files.find_splits(path, given.get("classes"), rows.BadRows("skip"))
    [table, *_] = splits["train"]
    if arrays.is_arrays(table):
        return Recognized("vector", "table", {}, 0)
    by_position = given.get("label_column", "").isdecimal()
    head = tables.head(table, by_position)
    if "label_column" not in given and _is_row(head):
        by_position = True
        head = tables.head(table, by_position)
    cells: dict[str, list[Any]] = collections.defaultdict(list)
    for row in head:
        for name, cell in row.items():
            if name:  # "": the index of a pandas frame
                cells[name].append(cell)
    options: dict[str, Any] = {}
    labels = [given[name] for name in ("label_column", "label_columns") if name in given]
    if not labels:
        options["label_column"] = _choose(table, "label", cells, text_rows.LABEL_NAMES, _may_be_label)
        labels = [options["label_column"]]
    others = {name: column for name, column in cells.items() if name not in labels[0].split(",")}
    if "label_separator" not in given and (separator := _separator(cells.get(labels[0], ()))):
        options["label_separator"] = separator
    by_field = {"text_column": "text", "image_column": "image", "vector_column": "vector"}
    for field, inputs in {**by_field, "feature_columns": "vector"}.items():
        if field in given:
            return Recognized(inputs, "table", options, len(head))
    for field, is_one in (("image_column", _are_images), ("text_column", row_values.are_texts)):
        names = text_rows.TEXT_NAMES if field == "text_column" else ()
        if (column := _choose(table, by_field[field], others, names, is_one)) is not None:
            found = {field: column}
            taken = {column, *labels[0].split(","), *given.values()}
            beside = _beside(head, taken, labels[0]) if field == "text_column" else ()
            firsts = [tables.head(other, by_position)[0] for other, *_ in splits.values() if beside]
            if beside := tuple(name for name in beside if all(name in first for first in firsts)):
                found["feature_columns"] = beside
            return Recognized(by_field[field], "table", {**found, **options}, len(head))
    return Recognized("vector", "table", options, len(head))  # chosen by `tables.choose_inputs`


def _is_row(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Returns whether a header line is a row: a cell of it, none of a usual name, is in its column below."""
    usual = (*text_rows.TEXT_NAMES, *text_rows.LABEL_NAMES)
    if any(normalize_text(name) in usual for name in rows[0]):
        return False
    return any(row.get(name) == name for row in rows for name in rows[0] if name)


def _is_folder_of_images(path: str) -> bool:
    """Returns whether a folder has folders of images, or of such folders."""
    if not os.path.isdir(path):
        return False
    folders = [each for each in _folders(path) for each in (each, *_folders(each))]
    return any(
        name.lower().endswith(files.IMAGE_ENDINGS) for folder in folders for name in os.listdir(folder)[:100]
    )


def _folders(path: str) -> list[str]:
    return [entry.path for entry in os.scandir(path) if entry.is_dir() and not entry.name.startswith(".")]


def _choose(
    path: str,
    kind: str,
    cells: Mapping[str, Sequence[Any]],
    names: Collection[str],
    may_be: Callable[[Sequence[Any]], bool],
) -> Any:
    """Returns the only sensible column of a kind; None without one of inputs."""
    by_name = [name for name in cells if normalize_text(name) in names]
    others = text_rows.TEXT_NAMES if kind == "label" else text_rows.LABEL_NAMES
    by_cells = [
        name
        for name, column in cells.items()
        if normalize_text(name) not in others and may_be(_present(column))
    ]
    found = [kind] if kind in cells else by_name or by_cells
    if len(found) == 1 or (not found and kind != "label"):
        return found[0] if found else None
    problem = f"{listed(found)} may each be the {kind}" if found else "no column of labels is recognized"
    separator = text_rows.separator_hint(list(cells))
    columns = "" if found else f" The columns are {listed([repr(name[:40]) for name in cells])}."
    raise ValueError(f"{path}: {problem}.{columns} Choose with --config.data.{kind}_column.{separator}")


def _present(cells: Iterable[Any]) -> list[Any]:
    return [cell for cell in cells if cell not in (None, "")]


def _beside(rows: Sequence[Mapping[str, Any]], taken: Collection[str], label: str) -> tuple[str, ...]:
    """Returns the columns of all rows that can stand beside texts: of numbers, dates and names that repeat.

    Left out are those with a usual name of labels, `id`, numbers of rows, and other names of the labels.
    """

    def fits(name: str) -> bool:
        column = [row.get(name) for row in rows]
        if not all(name in row for row in rows) or normalize_text(name) in (*text_rows.LABEL_NAMES, "id"):
            return False
        pairs = {
            (str(row.get(label)), row_values.cell_text(cell)) for row, cell in zip(rows, column, strict=True)
        }
        if len(pairs) == len({of_label for of_label, _ in pairs}) == len({cell for _, cell in pairs}):
            return False
        if not all(row_values.kind_of(cell) == "number" for cell in _present(column)):
            return row_values.may_be_names(column)
        numbers = [float(cell) for cell in _present(column)]
        return {1.0} != {after - before for before, after in itertools.pairwise(numbers)}

    return tuple(name for name in rows[0] if name and name not in taken and fits(name))


def _may_be_label(cells: Sequence[Any]) -> bool:
    """Returns whether cells repeat, and are short names or lists of them."""
    if not cells or _are_images(cells):
        return False
    if all(isinstance(cell, list) for cell in cells):
        return all(isinstance(each, str) for cell in cells for each in cell)
    distinct = set(map(str, cells))
    are_names = all(isinstance(cell, str) and row_values.kind_of(cell) == "" for cell in cells)
    return (
        are_names
        and 2 <= len(distinct) <= len(cells) / 2
        and row_values.mean_words(cells) < row_values.WORDS_OF_TEXT
    )


def _are_images(cells: Sequence[Any]) -> bool:
    return bool(cells) and all(str(cell).lower().endswith(files.IMAGE_ENDINGS) for cell in cells)


def _separator(cells: Sequence[Any]) -> str | None:
    """Returns what separates several labels: all parts of nine in ten joined cells are in others too."""
    distinct = {cell for cell in _present(cells) if isinstance(cell, str)}
    for separator in SEPARATORS:
        parts = {cell: {part.strip() for part in cell.split(separator)} for cell in distinct}
        counts = collections.Counter(part for each in parts.values() for part in each)
        joined = [each for each in parts.values() if len(each) > 1]
        repeated = sum(all(counts[part] > 1 for part in each) for each in joined)
        if joined and repeated >= 0.9 * len(joined) and len(counts) < len(distinct):
            return separator
    return None
