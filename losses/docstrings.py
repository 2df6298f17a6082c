"""Docstrings of functions that share arguments, which their module's docstring describes."""

import inspect
from collections.abc import Callable
from typing import Any


def add_common_arguments(function: Callable[..., Any], module: str | None) -> None:
    """Appends the common arguments and errors of a module's docstring, for `help` and notebooks."""
    if module and function.__doc__ and "Common arguments:" not in function.__doc__:
        common = module[module.index("Common arguments:") :]
        function.__doc__ = f"{inspect.cleandoc(function.__doc__)}\n\n{common}"
