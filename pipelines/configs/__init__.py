"""Packaged experiments, one per file, and the loading of experiments and of modules of users.

In a checkout those of the papers alone, in `scripts/research/configs`, are modules of this package too.
"""

import importlib
import os
import re
import sys
import tokenize
import types

from rank4class.pipelines import config
from rank4class.registry import did_you_mean

_PAPERS = os.path.join(os.path.dirname(__file__), *("..", "..", "scripts", "research", "configs"))
__path__ += [_PAPERS] if os.path.isdir(_PAPERS) else []


def paths() -> dict[str, str]:
    """Returns the file of each packaged experiment, by its name."""
    names = {name: os.path.join(folder, name) for folder in __path__ for name in os.listdir(folder)}
    return {name[:-3]: names[name] for name in sorted(names) if re.fullmatch(r"[a-z].*\.py", name)}


def get_config(name: str | os.PathLike) -> config.Experiment:
    """Returns a new experiment by its name, as `--config` does.

    Args:
      name: path of a Python file that defines `get_config()`, or name of a packaged experiment.

    Raises:
      FileNotFoundError: neither exists; the message lists the packaged experiments.
      ValueError: the file raises an error, or returns no experiment.

    >>> get_config("digits_mlp").batch_size
    64
    """
    packaged, path = paths(), os.fspath(name)
    if not os.path.isfile(path):
        if path not in packaged:
            hint = did_you_mean(os.path.splitext(os.path.basename(path))[0], packaged)
            raise FileNotFoundError(
                f"config={name}: neither a file nor a packaged config. {hint}Packaged: {', '.join(packaged)}."
            )
        path = packaged[path]
    try:
        experiment = vars(_import_file(path))["get_config"]()
        if not isinstance(experiment, config.Experiment):
            raise TypeError(f"get_config() returns {type(experiment).__name__}, not config.Experiment")
        config.check_types(experiment)
    except Exception as error:  # the user's file may raise any exception
        raise ValueError(
            f"config={path}: the file cannot be loaded. {type(error).__name__}: {error}"
        ) from error
    return experiment


def _import_file(path: str) -> types.ModuleType:
    """Runs a Python file as a module of the name of its absolute path, by which `--import` takes it again."""
    path = os.path.abspath(path)
    module = types.ModuleType(path)
    module.__file__ = path
    with tokenize.open(path) as file:
        program = compile(file.read(), path, "exec")
    sys.modules[path] = module
    try:
        exec(program, vars(module))
    except BaseException:
        del sys.modules[path]
        raise
    return module


def import_user_module(name: str) -> None:
    """Imports a Python file or a module, by its path or name, unless that is done already.

    >>> import_user_module("json")
    """
    if not os.path.isfile(name):
        importlib.import_module(name)
    elif os.path.abspath(name) not in sys.modules:
        _import_file(name)
