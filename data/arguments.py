"""Range checks of the arguments of datasets, which are the fields `data.NAME` of a config."""

from collections.abc import Iterable


def check_at_least(minimum: float, **values: float | None) -> None:
    """Raises ValueError for a value below the minimum, or NaN. None is no value.

    >>> check_at_least(1, width=0)
    Traceback (most recent call last):
    ...
    ValueError: data.width=0: too small. Set it to at least 1.
    """
    for name, value in values.items():
        if value is not None and not value >= minimum:
            raise ValueError(f"data.{name}={value}: too small. Set it to at least {minimum}.")


def check_fractions(**values: float) -> None:
    """Raises ValueError for a value outside (0, 1)."""
    for name, value in values.items():
        if not 0.0 < value < 1.0:
            raise ValueError(f"data.{name}={value}: outside (0, 1). Set a fraction such as 0.1.")


def check_choice(name: str, value: str, choices: Iterable[str]) -> None:
    """Raises ValueError for a value that is not one of the choices."""
    if value not in choices:
        raise ValueError(f"data.{name}={value!r}: unknown. Choose one of {', '.join(choices)}.")
