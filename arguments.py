"""Range checks of arguments; a wrong one raises ValueError, `<field>=<value>: <problem>. <remedy>.`

Every function takes the arguments by name, and a section to put before their names, such as "data.".
"""

import contextlib
import numbers
from collections.abc import Collection, Iterator
from typing import Any


def check_integer(least: int = 1, most: int | None = None, /, *, section: str = "", **values: Any) -> None:
    """Requires integers in `least..most`; a `most` of None is unknown.

    >>> check_integer(2, levels=1)
    Traceback (most recent call last):
    ...
    ValueError: levels=1: not an integer of at least 2. Choose one.
    """
    wanted = f"of at least {least}" if most is None else f"in {least}..{most}"
    for name, value in values.items():
        is_integer = isinstance(value, numbers.Integral) and not isinstance(value, bool)
        if not is_integer or int(value) < least or (most is not None and int(value) > most):
            raise ValueError(f"{section}{name}={value!r}: not an integer {wanted}. Choose one.")


def check_widths(at_least: int = 1, /, **widths: Any) -> None:
    """Requires sequences of `at_least` or more positive integers.

    >>> check_widths(hidden=(8, 0))
    Traceback (most recent call last):
    ...
    ValueError: hidden=0: not an integer of at least 1. Choose one.
    """
    for name, values in widths.items():
        if len(values) < at_least:
            raise ValueError(f"{name}={values}: at least {at_least} needed. Add a width.")
        for value in values:
            check_integer(**{name: value})


def check_seed(seed: int) -> None:
    """Requires an integer in `0..2**32 - 1`."""
    check_integer(0, 2**32 - 1, seed=seed)


def check_at_least(least: float, /, *, section: str = "", **values: Any) -> None:
    """Requires numbers that are not smaller; other objects, such as None and tensors, pass."""
    for name, value in values.items():
        if isinstance(value, numbers.Real) and not float(value) >= least:
            raise ValueError(f"{section}{name}={value}: too small. Choose at least {least}.")


def check_positive(*, section: str = "", **values: Any) -> None:
    """Requires numbers above 0; other objects, such as None and tensors, pass."""
    for name, value in values.items():
        if isinstance(value, numbers.Real) and not float(value) > 0.0:
            raise ValueError(f"{section}{name}={value}: not positive. Choose a positive number.")


def check_fraction(with_zero: bool = True, /, *, section: str = "", **values: Any) -> None:
    """Requires numbers in [0, 1), or without zero in (0, 1).

    >>> check_fraction(label_smoothing=1.0)
    Traceback (most recent call last):
    ...
    ValueError: label_smoothing=1.0: not in [0, 1). Choose another value.
    """
    for name, value in values.items():
        in_range = isinstance(value, numbers.Real) and 0.0 <= float(value) < 1.0
        if not in_range or not (with_zero or value):
            interval = "[0, 1)" if with_zero else "(0, 1)"
            raise ValueError(f"{section}{name}={value}: not in {interval}. Choose another value.")


def check_choice(choices: Collection[str], /, *, section: str = "", **values: Any) -> None:
    """Requires values that are among the choices."""
    for name, value in values.items():
        if value not in choices:
            raise ValueError(f"{section}{name}={value!r}: unknown. There are: {', '.join(choices)}.")


@contextlib.contextmanager
def in_section(section: str) -> Iterator[None]:
    """Puts the name of a section before the field in a ValueError that is raised within the block."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{section}{error}") from error
