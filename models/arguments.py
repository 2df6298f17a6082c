"""Range checks of the arguments of encoders, class encoders and interactions."""

import numbers
from collections.abc import Iterable


def check_widths(name: str, widths: Iterable[int], least: int = 1) -> None:
    """Raises ValueError unless all widths of layers are positive integers, and there are enough of them.

    >>> check_widths("hidden", (8, 0))
    Traceback (most recent call last):
    ...
    ValueError: hidden=(8, 0): 0 is not a positive integer. Choose one.
    """
    widths = tuple(widths)
    if len(widths) < least:
        raise ValueError(f"{name}={widths}: at least {least} needed. Add a width.")
    for width in widths:
        if not isinstance(width, numbers.Integral) or isinstance(width, bool) or width < 1:
            raise ValueError(f"{name}={widths}: {width!r} is not a positive integer. Choose one.")


def check_units(name: str, units: int | None) -> None:
    """Raises ValueError unless a width or a count is a positive integer."""
    if not isinstance(units, numbers.Integral) or isinstance(units, bool) or units < 1:
        raise ValueError(f"{name}={units!r}: not a positive integer. Choose one.")


def check_rate(name: str, rate: float) -> None:
    """Raises ValueError unless a dropout rate is in [0, 1)."""
    if not 0.0 <= rate < 1.0:
        raise ValueError(f"{name}={rate}: not in [0, 1). Choose another rate.")


def check_not_negative(name: str, value: float) -> None:
    """Raises ValueError unless a number is at least 0."""
    if not value >= 0.0:
        raise ValueError(f"{name}={value}: negative. Choose at least 0.")
