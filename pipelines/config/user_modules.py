"""Modules and files of users, which register parts of their own."""

import importlib
import os
import sys
import tokenize
import types


def import_file(path: str) -> types.ModuleType:
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
        import_file(name)
