"""The suites of the benchmark, one module each, by the name of the module."""

import importlib
import pkgutil
import typing

if typing.TYPE_CHECKING:
    from rank4class.scripts.research.benchmarks.suite import Suite


def names() -> tuple[str, ...]:
    """Returns the names of all suites, without importing their modules."""
    return tuple(module.name for module in pkgutil.iter_modules(__path__))


def get(name: str) -> "Suite":
    """Returns the suite of a name: `SUITE` of its module."""
    return importlib.import_module(f"{__name__}.{name}").SUITE
