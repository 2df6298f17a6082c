"""Corrected labels in a user's text files; all other lines stay as they are."""

import csv
import io
import json
from collections.abc import Mapping
from typing import Any

from rank4class import strict_json
from rank4class.data.readers import files, rows, text_rows
from rank4class.data.readers.columns import Columns


def corrected(path: str, columns: Columns, corrections: Mapping[int, tuple[str, str]]) -> str:
    """Returns the content of a file with other labels in some of its rows.

    Args:
      path: a file of `text_rows.FORMATS`, which may be compressed.
      columns: of which the label is read.
      corrections: number of the first line of a row, from 1 -> the label that it has, and the new one.

    Raises:
      ValueError: the file has another format, or a row another label, since the file has changed.
    """
    ending = files.uncompressed(path).rpartition(".")[2]
    if f".{ending}" not in text_rows.FORMATS:
        raise text_rows.unknown_format(path, *text_rows.FORMATS)
    dialect: dict[str, Any] = {"delimiter": "," if ending == "csv" else "\t"}
    if ending == "tsv" and not rows.has_csv_quotes(path):
        dialect |= {"quoting": csv.QUOTE_NONE, "quotechar": None}
    with files.opened(path, "rt", encoding="utf-8", newline="" if ending == "csv" else "\n") as file:
        lines = list(file)
    column = str(columns.label_column)
    if ending != "jsonl" and not columns.by_position:
        header = next(csv.reader(lines, **dialect))
        column = str(1 + [name.removeprefix("\ufeff") for name in header].index(column))
    for number, (old, new) in corrections.items():
        first = last = number - 1
        if first >= len(lines):
            raise ValueError(f"{path}:{number}: no such line any more. Check the labels of this file again.")
        if ending == "jsonl":
            row = strict_json.parse_object(f"{path}:{number}", lines[first])
            label = row.get(column)
            row[column] = int(new) if isinstance(label, int) else new
            line = json.dumps(row, ensure_ascii=False)
        else:
            reader = csv.reader((lines[i] for i in range(first, len(lines))), **dialect)
            fields = next(reader)
            last += reader.line_num - 1
            label = fields[int(column) - 1]
            fields[int(column) - 1] = new
            written = io.StringIO()
            csv.writer(written, lineterminator="", **dialect).writerow(fields)
            line = written.getvalue()
        if str(label).strip() != old:
            raise ValueError(
                f"{path}:{number}: label {str(label)!r}, but {old!r} when it was checked. Check the "
                "labels of this file again."
            )
        line += lines[last][len(lines[last].rstrip("\r\n")) :]
        lines[first : last + 1] = [line] + [""] * (last - first)  # the numbers of the others stay
    return "".join(lines)
