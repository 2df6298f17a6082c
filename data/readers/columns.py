"""The columns of a table that are read, and errors for missing ones."""

import reprlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from rank4class.data.labels import listed
from rank4class.registry import did_you_mean

Row = Mapping[str, Any]  # by column


class Columns(NamedTuple):
    """The columns to read, by name or position: options of dataset `table`."""

    text_column: str | None = None
    text_pair_column: str | None = None
    label_column: str | None = None
    image_column: str | None = None
    vector_column: str | None = None
    feature_columns: tuple[str, ...] = ()
    label_columns: tuple[str, ...] = ()
    label_separator: str | None = None
    has_header: bool = False  # though all columns may be positions
    is_mixed: bool = False  # whether `feature_columns` have other cells than numbers, or miss some

    @classmethod
    def of_options(cls, options: Mapping[str, Any]) -> "Columns":
        """Returns the columns that the options of a dataset, among others, select."""
        columns = cls(**{name: options[name] for name in cls._fields if name in options})
        return columns._replace(label_column=None) if columns.label_columns else columns

    def without_labels(self) -> "Columns":
        """Returns the columns of the inputs alone."""
        return self._replace(label_column=None, label_columns=(), label_separator=None)

    @property
    def is_labeled(self) -> bool:
        """Whether there is a column of labels."""
        return bool(self.label_column or self.label_columns)

    @property
    def by_position(self) -> bool:
        """Whether the columns of labels, by default "label", are positions."""
        return all(map(str.isdecimal, self.label_columns or (self.label_column or "label",)))

    @property
    def has_vectors(self) -> bool:
        """Whether the inputs are vectors."""
        return bool(self.vector_column or (self.feature_columns and not self.is_mixed))

    def by_column(self) -> dict[str, str]:
        """Returns column -> field that selects it; raises ValueError if two fields select one."""
        section = "data." if self.is_labeled else ""  # predictions have other flags
        selected: dict[str, str] = {}
        for field, value in zip(self._fields[:-3], self[:-3], strict=True):
            for column in (value,) if isinstance(value, str) else value or ():
                if column in selected:
                    raise ValueError(
                        f"{selected[column]}={column}, {section}{field}={column}: the same column twice. "
                        "Choose different columns."
                    )
                selected[column] = f"{section}{field}"
        return selected

    def check(self, path: str, names: Sequence[str], hint: str | None = None) -> None:
        """Raises ValueError for a column that a file with columns of these names lacks, or has twice."""
        for column in self.by_column():
            if names.count(column) != 1:
                count = "several columns" if column in names else "no column"
                raise ValueError(
                    f"{path}: {count} {_alternatives(column, names)}{hint or self._remedy(column, names)}"
                )

    def cell(self, where: str, row: Row, column: str) -> Any:
        """Returns a cell of a row; raises ValueError if there is none."""
        if column not in row:
            remedy = self._remedy(column, list(row))
            raise ValueError(f"{where}: no {_alternatives(column, list(row))}{remedy}")
        return row[column]

    def string(self, where: str, row: Row, column: str) -> str:
        """Returns a cell of a row; raises ValueError if it is not a text."""
        return check_string(where, column, self.cell(where, row, column))

    def _remedy(self, column: str, names: Collection[str]) -> str:
        """Returns the remedy for a repeated or missing column, with the fields that select missing ones."""
        if column in names:
            return " Rename all but one."
        missing = dict.fromkeys(field for name, field in self.by_column().items() if name not in names)
        return f" Choose among them with {' and '.join(missing)}, or rename one."


def check_string(where: str, column: str, value: Any) -> str:
    """Returns a cell; raises ValueError if it is not a text."""
    if value is None:
        raise ValueError(f"{where}: {column!r} is empty.")
    if not isinstance(value, str):
        raise ValueError(f"{where}: {column} {reprlib.repr(value)} is not a string. Put it in quotes.")
    return value


def normalize_text(text: str) -> str:
    """Returns a text in the form in which texts are compared, without differences in case and white space."""
    return " ".join(text.casefold().split())


def _alternatives(column: str, names: Sequence[str]) -> str:
    """Returns the missing column and the existing ones for a message."""
    hint = did_you_mean(column, [name for name in names if name != column])
    return f"{column!r}. {hint}The columns are {listed([repr(name[:40]) for name in names])}."
