"""The values that a search tries of each tuned field."""

import dataclasses
import hashlib
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from rank4class.pipelines import config

Value = bool | int | float | str | None
Choice = dict[str, Value]  # tuned field -> its value
LOG_RATIO = 10  # of a range's ends, from which on it is searched on a logarithmic scale
EDGE = 0.1  # fraction of a range at each end that counts as its boundary
DIGITS = 4  # significant digits of values that are drawn
LONGEST_NAME = 150  # characters; file systems allow 255


@dataclasses.dataclass(frozen=True)
class Range:
    """All numbers between two ends; the integers if both ends are integers."""

    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.low:g}:{self.high:g}"

    @property
    def is_log(self) -> bool:
        """Whether the scale is logarithmic: for positive ends with a ratio of at least `LOG_RATIO`."""
        return self.low > 0 and self.high / self.low >= LOG_RATIO

    @property
    def is_integer(self) -> bool:
        """Whether the range holds integers alone."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def position(self, value: float) -> float:
        """Returns the place of a number on the scale of the range: 0 at the low end, 1 at the high end."""
        scale = math.log if self.is_log else float
        return (scale(value) - scale(self.low)) / (scale(self.high) - scale(self.low))


Values = Sequence[Value] | Range
Tune = Mapping[str, Values]  # tuned field -> its values


def parse(cell: config.Experiment, field: str, text: str) -> tuple[Value, ...] | Range:
    """Returns the values of a field of a cell that a text states: `VALUE,VALUE,...` or `LOW:HIGH`."""
    kind, _ = config.value_type(cell, field)
    if kind in (int, float) and ":" in text:
        low, high = (config.parse_value(cell, field, end) for end in text.split(":", 1))
        if not (isinstance(low, int | float) and isinstance(high, int | float) and low < high):
            raise ValueError(f"{field}={text!r}: an empty range. Write LOW:HIGH with LOW below HIGH.")
        return Range(low, high)
    return tuple(config.parse_value(cell, field, value) for value in text.split(","))


def is_numeric(values: Sequence[Value]) -> bool:
    """Returns whether all values are numbers, so that they have an order."""
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def apply(cell: config.Experiment, choice: Mapping[str, Any]) -> config.Experiment:
    """Returns a cell with the values of a choice, without those of fields that it does not have."""
    # Names of parts are set first: they determine which other fields there are.
    named = config.override(cell, {field: value for field, value in choice.items() if is_name(field)})
    return config.override(
        named, {f: value for f, value in choice.items() if not is_name(f) and config.has_field(named, f)}
    )


def is_name(field: str) -> bool:
    """Returns whether a field is the name of a part."""
    section, _, name = field.partition(".")
    return section in config.PARTS and name == "name"


def variants(cell: config.Experiment, tune: Tune) -> list[config.Experiment]:
    """Returns a cell with each combination of the tuned names of parts: all fields that it can have."""
    return [apply(cell, names) for names in _products({f: v for f, v in tune.items() if is_name(f)})]


def combinations(cell: config.Experiment, tune: Tune) -> list[Choice]:
    """Returns the choices that lead to different experiments of a cell, of a range its two ends."""
    choices: list[Choice] = []
    for product in _products(tune):
        experiment = apply(cell, product)
        choice = {field: value for field, value in product.items() if config.has_field(experiment, field)}
        if choice not in choices:
            choices.append(choice)
    return choices


def _products(tune: Tune) -> list[Choice]:
    lists = [(spec.low, spec.high) if isinstance(spec, Range) else spec for spec in tune.values()]
    return [dict(zip(tune, values, strict=True)) for values in itertools.product(*lists)]


def boundary(values: Values, value: Value) -> str | None:
    """Returns "low" or "high" if a value is at an end of the values of a field that has an order, or None.

    A 0 at the low end is no boundary. `None` in a list has no place in the order of the others.
    """
    if isinstance(values, Range):
        assert isinstance(value, int | float)
        position = values.position(value)
        if position <= EDGE and values.low != 0:
            return "low"
        return "high" if position >= 1.0 - EDGE else None
    numbers = [one for one in values if one is not None]
    if len(numbers) < 2 or not is_numeric(numbers):
        return None
    if value == min(numbers) and value != 0:
        return "low"
    return "high" if value == max(numbers) else None


def folder_name(cell: str, choice: Choice, seed: int) -> str:
    """Returns the name of the folder of a trial's run; choices of long or unusual names are hashed."""
    name = ",".join(f"{field}={value}" for field, value in choice.items())
    if len(name) > LONGEST_NAME or not re.fullmatch(r"[\w.,=+-]+", name):
        name = hashlib.sha256(name.encode()).hexdigest()[:16]
    return f"{cell}-{name}-seed{seed}"


def text_of(values: Values) -> str:
    """Returns the values of a field as a text."""
    if isinstance(values, Range):
        return str(values)
    ordered = sorted(values) if is_numeric(values) else values  # type: ignore[type-var]
    return ", ".join(map(format_value, ordered))


def format_value(value: Value) -> str:
    """Returns the value of a field as `--tune` takes it, numbers with at most six digits."""
    if isinstance(value, float):
        return f"{value:g}"
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)
