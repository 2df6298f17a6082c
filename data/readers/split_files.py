"""The files of the splits of a user's data, and their checks, which import no TensorFlow."""

import itertools
import os
import re
from collections.abc import Iterable
from typing import Any

from rank4class.data.readers import arrays, files, rows, tables
from rank4class.data.readers.columns import Columns
from rank4class.registry import FILES

NAMES = {"train": ("train",), "validation": ("validation", "dev", "val", "valid"), "test": ("test",)}
EXPECTED = ", ".join(f"{name} ({', '.join(others)})" if others else name for name, *others in NAMES.values())


def find(folder: str, names: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Returns split -> path of the splits in a folder; raises ValueError if one is there twice.

    The names are (name of the split, name in the folder) of the candidates.
    """
    paths = {}
    candidates = list(names)
    for split, synonyms in NAMES.items():
        present = [name for stem, name in candidates if stem in synonyms]
        if len(present) > 1:
            raise ValueError(
                f"data.path={folder}: {' and '.join(present)} are each a {split} split. Remove all but one."
            )
        if present:
            paths[split] = os.path.join(folder, present[0])
    return paths


@FILES.register("table")
@FILES.register("text_file")
def check(
    path: str, classes: str | None, on_invalid_row: str, added: str | None = None, **options: Any
) -> tuple[Columns, dict[str, list[str]], rows.BadRows]:
    """Returns the columns, split -> files of its table, and the policy with the files that it skipped.

    The last training files are those of `added`. Reads the columns and the first example of each split.

    Raises:
      ValueError: contradictory options; a missing column, or a file that cannot be read.
      FileNotFoundError: no file or folder, or none of the training split.
    """
    columns = Columns.of_options(options)
    bad_rows = rows.BadRows(on_invalid_row)
    _check_labels(columns, classes)
    paths = find_splits(path, classes, bad_rows)
    added_files = tables.files_of(added) if added and os.path.exists(added) else []
    if added and not added_files:
        raise FileNotFoundError(f"data.added={added}: no such table. Check the path.")
    columns = tables.choose_inputs(columns, paths["train"][0])
    is_beside = columns.text_column is not None
    columns = columns._replace(is_mixed=is_beside or tables.are_mixed(paths["train"][0], columns))
    for file in [*(first for first, *_ in paths.values()), *added_files[:1]]:
        if not arrays.is_arrays(file):
            next(tables.Reader(columns, rows.BadRows(on_invalid_row)).examples(file), None)
    if classes:
        rows.check_text(classes)
    paths["train"] += added_files
    return columns, paths, bad_rows


def find_splits(path: str, classes: str | None, bad_rows: rows.BadRows) -> dict[str, list[str]]:
    """Returns split -> files of its table, of a table or a folder with a table for each split.

    Other files of the formats are invalid rows, except hidden ones and the file `classes`: their names may be
    mistakes.
    """
    if os.path.isfile(path):
        return {"train": [path]}
    if not os.path.isdir(path):
        raise FileNotFoundError(f"data.path={path}: no such file or folder. Check the path.")
    by_name: dict[str, list[str]] = {}  # name in messages -> files
    stems = {}
    files_here = []
    for name in sorted(name for name in os.listdir(path) if not name.startswith(".")):
        stem, ending = os.path.splitext(name[: len(files.uncompressed(name))])
        file = os.path.join(path, name)
        if os.path.isdir(file) and (parts := tables.files_of(file)):
            by_name[name], stems[name] = parts, stem
        elif ending.lower() in tables.FORMATS and not os.path.isdir(file):
            shard = re.sub(r"-\d{5}-of-\d{5}(-[0-9a-f]{16})?$", "", stem)  # the Hugging Face Hub's names
            name = name if shard == stem else f"{shard}-*{ending}"
            by_name.setdefault(name, []).append(file)
            stems[name] = shard
            files_here.append(file)
    paths = find(path, [(stem, name) for name, stem in stems.items()])
    if not paths and (parts := tables.files_of(path)):
        return {"train": parts}
    if "train" not in paths:
        candidates = " or ".join(f"train{extension}" for extension in tables.FORMATS)
        raise FileNotFoundError(f"data.path={path}: no {candidates}. Add one.")
    splits = {split: by_name[os.path.basename(name)] for split, name in paths.items()}
    used = {os.path.realpath(file) for file in (*itertools.chain(*splits.values()), classes or path)}
    for file in (file for file in files_here if os.path.realpath(file) not in used):
        with bad_rows.row():
            raise ValueError(
                f"{file}: none of {EXPECTED} with {', '.join(tables.FORMATS)}. Rename or move it."
            )
    return splits


def _check_labels(columns: Columns, classes: str | None) -> None:
    """Raises ValueError for options of labels that contradict each other."""
    columns.by_column()  # raises for a column that is selected twice
    if columns.label_separator == "":
        raise ValueError("data.label_separator='': empty. Set it to the separator of the labels.")
    if columns.label_columns and (
        columns.label_separator is not None or classes or len(columns.label_columns) < 2
    ):
        raise ValueError(
            f"data.label_columns={columns.label_columns}: it takes at least two columns, and neither "
            "data.label_separator nor data.classes. Change it, or leave these out."
        )
