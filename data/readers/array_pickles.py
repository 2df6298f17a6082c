"""Pickles of NumPy arrays, read without calls.

Python's unpickler calls the functions that a pickle names. Even a pickle that names only NumPy's functions
can read any address and take gigabytes, by a crafted state. This reader records calls instead of making
them, and takes at most a dozen times the size of the file.
"""

import dataclasses
import os
import pickletools
from collections.abc import Iterable
from typing import Any

import numpy as np

from rank4class.data.readers import files


class _Global(str):
    """The name of a function or class in a pickle."""


@dataclasses.dataclass(eq=False, repr=False)
class _Call:
    """A call in a pickle, recorded and not made."""

    function: _Global
    arguments: tuple
    state: object = None

    def __post_init__(self) -> None:
        if not isinstance(self.function, _Global) or not isinstance(self.arguments, tuple):
            raise ValueError("a call without a function")


# The names in pickles of arrays.
_GLOBALS = (
    "numpy.dtype",
    "numpy.ndarray",
    "numpy.core.multiarray._reconstruct",
    "numpy.core.numeric._frombuffer",  # from protocol 5 on
    "_codecs.encode",  # Python 3 writes bytes with it in the formats of Python 2
)
_LITERALS = (
    "BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT", "BINSTRING", "SHORT_BINSTRING",
    "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8",
)  # fmt: skip
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


def read(path: str) -> dict[bytes, Any]:
    """Returns the dict in a pickle, empty if it holds another object.

    `to_bytes` decodes its strings and `to_rows` its arrays; other objects are lists, tuples, dicts,
    numbers and None.

    Raises:
      FileNotFoundError: no file.
      ValueError: the file is truncated, or its pickle holds other objects.
    """
    if not os.path.isfile(path):
        raise FileNotFoundError(f"{path}: no such file. Check data.path.")
    with open(path, "rb") as file:
        content = file.read()
    try:
        content = _run(pickletools.genops(content))
    except (ValueError, IndexError, KeyError, TypeError, AttributeError) as error:
        raise files.damaged(path, f"truncated, or not a pickle of arrays: {error}") from error
    return content if isinstance(content, dict) else {}


def to_rows(path: str, array: Any, width: int) -> np.ndarray:
    """Returns an array uint8 `[N, width]` from a pickle; raises ValueError for any other object."""
    if not isinstance(array, _Call):
        raise files.damaged(path, "no array 'data'")
    function, arguments, state = array.function, array.arguments, array.state
    if function == "numpy.core.multiarray._reconstruct" and isinstance(state, tuple) and len(state) == 5:
        _, shape, dtype, is_fortran, raw = state
    elif function == "numpy.core.numeric._frombuffer" and len(arguments) == 4:
        raw, dtype, shape, order = arguments
        is_fortran = order == "F"
    else:
        raise files.damaged(path, "no array 'data'")
    raw = to_bytes(raw)
    is_uint8 = isinstance(dtype, _Call) and dtype.function == "numpy.dtype" and dtype.arguments[:1] == ("u1",)
    if not is_uint8 or raw is None or shape != (len(raw) // width, width) or len(raw) % width:
        raise files.damaged(path, f"'data' is not uint8 [N, {width}]")
    return np.frombuffer(raw, np.uint8).reshape([-1, width], order="F" if is_fortran else "C")


def to_bytes(value: Any) -> bytes | None:
    """Returns the bytes of a string from a pickle, or None for any other object."""
    if isinstance(value, _Call) and value.function == "_codecs.encode":
        is_latin_1 = len(value.arguments) == 2 and value.arguments[1] in ("latin1", "latin-1")
        value = value.arguments[0] if is_latin_1 else None
    if isinstance(value, str):
        try:
            return value.encode("latin-1")
        except UnicodeEncodeError:
            return None
    return bytes(value) if isinstance(value, bytes | bytearray) else None


def _run(operations: Iterable[tuple[Any, Any, Any]]) -> Any:
    """Returns the value that the operations of a pickle describe."""
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[int, Any] = {}

    def popped(start: int) -> list[Any]:
        values = stack[start:]
        del stack[start:]
        return values

    for operation, argument, _ in operations:
        name = operation.name
        if name in _LITERALS:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in ("EMPTY_LIST", "EMPTY_DICT"):
            stack.append([] if name == "EMPTY_LIST" else {})
        elif name == "MARK":
            marks.append(len(stack))
        elif name == "TUPLE":
            stack.append(tuple(popped(marks.pop())))
        elif name in _TUPLES:
            stack.append(tuple(popped(-_TUPLES[name])))
        elif name in ("APPEND", "APPENDS"):
            values = popped(marks.pop() if name == "APPENDS" else -1)
            stack[-1].extend(values)
        elif name in ("SETITEM", "SETITEMS"):
            values = popped(marks.pop() if name == "SETITEMS" else -2)
            stack[-1].update(zip(map(_key, values[::2]), values[1::2], strict=True))
        elif name in ("BINPUT", "LONG_BINPUT", "MEMOIZE"):
            memo[len(memo) if name == "MEMOIZE" else argument] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(memo[argument])
        elif name == "GLOBAL":
            stack.append(_global(*argument.split(" ", 1)))
        elif name == "STACK_GLOBAL":
            stack.append(_global(*popped(-2)))
        elif name == "REDUCE":
            stack.append(_Call(*popped(-2)))
        elif name == "BUILD":
            [state] = popped(-1)
            if not isinstance(stack[-1], _Call):
                raise ValueError("a state without a call")
            stack[-1].state = state
        elif name == "STOP":
            return stack.pop()
        elif name not in ("PROTO", "FRAME"):
            raise ValueError(f"operation {name}, which arrays do not need")
    raise ValueError("no end")


def _global(module: Any, name: Any) -> _Global:
    if not isinstance(module, str) or not isinstance(name, str):
        raise ValueError("a name that is not a string")
    dotted = f"{module}.{name}".replace("numpy._core", "numpy.core")  # NumPy 2's name
    if dotted not in _GLOBALS:
        raise ValueError(f"name {dotted:.80}, which arrays do not need")
    return _Global(dotted)


def _key(value: Any) -> bytes:
    """Returns a key of a dict as bytes; strings of Python 2 are read as str."""
    encoded = to_bytes(value)
    if encoded is None:
        raise ValueError("a key that is not a string")
    return encoded
