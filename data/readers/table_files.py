"""The files of a table, and of a folder of tables by split."""

import os
import re
from collections.abc import Collection

from rank4class.data.readers import rows, text_rows, user_splits
from rank4class.data.readers.tables import files_of


def find_splits(
    path: str | None, formats: Collection[str], classes: str | None, bad_rows: rows.BadRows
) -> dict[str, list[str]]:
    """Returns split -> files of its table, of a table or a folder with a table for each split.

    Folders are tables unless the formats are `text_rows.FORMATS`. Other files in the folder that look like
    splits are invalid rows, except the file `classes`: their names may be mistakes.
    """
    if not path:
        raise ValueError(f"data.path={path}: required. Set it to your file, or to a folder of its splits.")
    if os.path.isfile(path):
        return {"train": [path]}
    if not os.path.isdir(path):
        raise FileNotFoundError(f"data.path={path}: no such file or folder. Check the path.")
    tables: dict[str, list[str]] = {}  # name in messages -> files
    stems = {}
    for name in sorted(os.listdir(path)):
        stem, ending = os.path.splitext(name)
        file = os.path.join(path, name)
        if os.path.isdir(file) and formats is not text_rows.FORMATS and (files := files_of(file)):
            tables[name], stems[name] = files, stem
        elif ending.lower() in formats and not os.path.isdir(file):
            shard = re.sub(r"-\d{5}-of-\d{5}$", "", stem)  # the Hugging Face Hub's names
            name = name if shard == stem else f"{shard}-*{ending}"
            tables.setdefault(name, []).append(file)
            stems[name] = shard
    paths = user_splits.find(path, [(stem, name) for name, stem in stems.items()])
    if "train" not in paths and formats is not text_rows.FORMATS and (files := files_of(path)):
        return {"train": files}
    if "train" not in paths:
        candidates = " or ".join(f"train{extension}" for extension in formats)
        raise FileNotFoundError(f"data.path={path}: no {candidates}. Add one.")
    splits = {split: tables[os.path.basename(name)] for split, name in paths.items()}
    known = {file for files in splits.values() for file in files} | ({classes} if classes else set())
    _check_other_files(path, known, formats, bad_rows)
    return splits


def _check_other_files(
    folder: str, known: Collection[str], formats: Collection[str], bad_rows: rows.BadRows
) -> None:
    known = set(map(os.path.realpath, known))
    split_names = set().union(*user_splits.NAMES.values())
    for name in sorted(os.listdir(folder)):
        file = os.path.join(folder, name)
        looks_like_split = not os.path.isdir(file) and (
            any(extension in name.lower() for extension in formats)
            or name.lower().partition(".")[0] in split_names
        )
        if looks_like_split and not name.startswith(".") and os.path.realpath(file) not in known:
            with bad_rows.row():
                raise ValueError(
                    f"{file}: none of {user_splits.EXPECTED} with {', '.join(formats)}. Rename or move it."
                )
