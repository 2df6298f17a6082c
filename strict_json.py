"""JSON without repeated keys, with errors that name the file."""

import collections
import json
from typing import Any


def read_object(path: str) -> dict[str, Any]:
    """Returns the value of a JSON object in a local file, with or without a byte order mark."""
    with open(path, encoding="utf-8-sig") as file:
        return parse_object(path, file.read())


def parse_object(where: str, text: str) -> dict[str, Any]:
    """Returns the value of a JSON object; errors name the file, and the line if it has one object per line.

    >>> parse_object("file.jsonl:3", '{"label": 1, "label": 2}')
    Traceback (most recent call last):
    ...
    ValueError: file.jsonl:3: the text has the key 'label' twice.
    """
    try:
        value = json.loads(text, object_pairs_hook=_unique_keys)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}, " if error.lineno > 1 else ""
        raise ValueError(f"{where}: not JSON: {error.msg} at {line}column {error.colno}.") from error
    except UnicodeEncodeError as error:  # half of an emoji, as a program leaves that cuts texts in UTF-16
        raise ValueError(f"{where}: the text is not Unicode: {error.reason}. Correct it.") from error
    except ValueError as error:
        raise ValueError(f"{where}: the text {error}.") from error
    if not isinstance(value, dict):
        raise ValueError(f"{where}: not a JSON object.")
    return value


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        [(repeated, _)] = collections.Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"has the key {repeated[:80]!r} twice")
    return fields
