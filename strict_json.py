"""JSON without repeated keys, and with an error for every text that cannot be used."""

import collections
import json
from typing import Any, NoReturn


def parse(text: str, constants: bool = True) -> Any:
    """Returns the value of a JSON text.

    Args:
      text: the JSON.
      constants: whether it may have NaN and infinities, as Python writes them.

    Raises:
      json.JSONDecodeError: the text is not JSON.
      ValueError: the text is JSON, but is not accepted. The message continues the name of the file.

    >>> parse('{"a": 1, "a": 2}')
    Traceback (most recent call last):
    ...
    ValueError: has the key 'a' twice
    """
    try:
        return json.loads(
            text,
            object_pairs_hook=_unique_keys,
            parse_int=_integer,
            parse_constant=None if constants else _reject_constant,
        )
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error


def parse_object(where: str, text: str, constants: bool = True) -> dict[str, Any]:
    """Returns the value of a JSON object.

    Args:
      where: the file, and the line if the file has one object per line; errors name it.
      text: the object.
      constants: see `parse`.

    Raises:
      ValueError: the text is not a JSON object, or has a key twice.

    >>> parse_object("file.jsonl:3", '{"label": 1, "label": 2}')
    Traceback (most recent call last):
    ...
    ValueError: file.jsonl:3: the text has the key 'label' twice.
    """
    try:
        value = parse(text, constants)
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}, " if error.lineno > 1 else ""
        raise ValueError(f"{where}: not JSON: {error.msg} at {line}column {error.colno}.") from error
    except ValueError as error:
        raise ValueError(f"{where}: the text {error}.") from error
    if not isinstance(value, dict):
        raise ValueError(f"{where}: not a JSON object.")
    return value


def _integer(digits: str) -> int:
    try:
        return int(digits)
    except ValueError as error:  # Python limits the number of digits
        raise ValueError("has an integer of too many digits") from error


def _reject_constant(constant: str) -> NoReturn:
    raise ValueError(f"has {constant}, which is not a number in JSON")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        [(repeated, _)] = collections.Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"has the key {repeated[:80]!r} twice")
    return fields
