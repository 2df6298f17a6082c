"""The experiments of the papers that can be run here, by the table or figure that they reproduce."""

import dataclasses
import importlib
import itertools
import pathlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from rank4class.registry import did_you_mean

tomllib = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
FILE = pathlib.Path(__file__).with_suffix(".toml")


@dataclasses.dataclass(frozen=True)
class Command:
    """A sweep, a study of sorters, or LightGBM.

    Attributes:
      line: the command with its flags, without `--workdir`. FOLDER is the folder of the data and CHECKPOINT
        that of an encoder's weights.
      name: parts of a cell's name besides its loss and its interaction.
    """

    line: str
    name: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Reproduction:
    """A table or a figure of a paper, or a study of a claim: an entry of `FILE`.

    Attributes:
      title: of the measurement.
      commands: cells of equal names in several of them are one cell: of more seeds, or of parts
        of a test set such as folds.
      claims: ids of the claims that it tests.
      data: the contents of FOLDER and CHECKPOINT; None if the data are generated or installed.
      baseline: name of the cell that the others are compared with.
      paper: name of the paper's table in `values.csv`, if there is one.
      metrics: metrics that the cells are compared in; all of their config if empty.
      curves: whether the validation values of all evaluations are results too; for a monitored metric whose
        higher values are better.
      test_to_train: number of test examples over that of training examples, if each seed draws another split
        of the same examples.
    """

    title: str
    commands: tuple[Command, ...]
    claims: tuple[str, ...] = ()
    data: str | None = None
    baseline: Mapping[str, str] | None = None
    paper: str | None = None
    metrics: tuple[str, ...] = ()
    curves: bool = False
    test_to_train: float = 0.0

    def command_lines(self) -> list[str]:
        """Returns the command lines, with `--workdir`."""
        return [f"rank4class {command.line} --workdir=WORKDIR/{i}" for i, command in enumerate(self.commands)]


def get(name: str) -> Reproduction:
    """Returns a reproduction by its name.

    >>> get("rankmax/table2").claims
    ('K1', 'K5')
    >>> get("rankmax/table_2")
    Traceback (most recent call last):
    ...
    ValueError: only='rankmax/table_2': no such reproduction. Did you mean 'rankmax/table2'? \
See --list for all of them.
    """
    if name not in REPRODUCTIONS:
        hint = did_you_mean(name, REPRODUCTIONS)
        raise ValueError(f"only={name!r}: no such reproduction. {hint}See --list for all of them.")
    return REPRODUCTIONS[name]


def _read() -> dict[str, Reproduction]:
    tables = tomllib.loads(FILE.read_text(encoding="utf-8"))
    texts = tables.pop("texts")
    return {name: _parse(table, texts) for name, table in tables.items()}


def _parse(table: Mapping[str, Any], texts: Mapping[str, str]) -> Reproduction:
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in table.items()}
    values["commands"] = tuple(command for one in table["commands"] for command in _expand(one, texts))
    return Reproduction(**values)


def _expand(command: str | Mapping[str, Any], texts: Mapping[str, str]) -> Iterator[Command]:
    """Yields a command for each combination of the values of its `for`."""
    if isinstance(command, str):
        command = {"line": command}
    values = command.get("for", {})
    for choice in itertools.product(*values.values()):
        words = {**texts, **dict(zip(values, choice, strict=True))}
        name = {axis: value.format(**words) for axis, value in command.get("name", {}).items()}
        yield Command(command["line"].format(**words), name)


REPRODUCTIONS = _read()
