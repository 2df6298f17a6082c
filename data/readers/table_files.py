"""The files of a table, and of a folder of tables by split."""

import itertools
import os
import re
from collections.abc import Collection

from rank4class.data.readers import rows, text_rows, user_splits
from rank4class.data.readers.tables import files_of


def find_splits(
    path: str | None, formats: Collection[str], classes: str | None, bad_rows: rows.BadRows
) -> dict[str, list[str]]:
    """Returns split -> files of its table, of a table or a folder with a table for each split.

    Folders are tables unless the formats are `text_rows.FORMATS`. Other files of the formats are invalid
    rows, except hidden ones and the file `classes`: their names may be mistakes.
    """
    if not path:
        raise ValueError(f"data.path={path}: required. Set it to your file, or to a folder of its splits.")
    if os.path.isfile(path):
        return {"train": [path]}
    if not os.path.isdir(path):
        raise FileNotFoundError(f"data.path={path}: no such file or folder. Check the path.")
    tables: dict[str, list[str]] = {}  # name in messages -> files
    stems, files_here = {}, []
    for name in sorted(name for name in os.listdir(path) if not name.startswith(".")):
        stem, ending = os.path.splitext(name)
        file = os.path.join(path, name)
        if os.path.isdir(file) and formats is not text_rows.FORMATS and (files := files_of(file)):
            tables[name], stems[name] = files, stem
        elif ending.lower() in formats and not os.path.isdir(file):
            shard = re.sub(r"-\d{5}-of-\d{5}$", "", stem)  # the Hugging Face Hub's names
            name = name if shard == stem else f"{shard}-*{ending}"
            tables.setdefault(name, []).append(file)
            stems[name] = shard
            files_here.append(file)
    paths = user_splits.find(path, [(stem, name) for name, stem in stems.items()])
    if "train" not in paths and formats is not text_rows.FORMATS and (files := files_of(path)):
        return {"train": files}
    if "train" not in paths:
        candidates = " or ".join(f"train{extension}" for extension in formats)
        raise FileNotFoundError(f"data.path={path}: no {candidates}. Add one.")
    splits = {split: tables[os.path.basename(name)] for split, name in paths.items()}
    used = {os.path.realpath(file) for file in (*itertools.chain(*splits.values()), classes or path)}
    for file in (file for file in files_here if os.path.realpath(file) not in used):
        with bad_rows.row():
            raise ValueError(
                f"{file}: none of {user_splits.EXPECTED} with {', '.join(formats)}. Rename or move it."
            )
    return splits
