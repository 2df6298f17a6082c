"""An extension of griffe, which reads docstrings for MkDocs: puts doctests into code blocks."""

import re
from typing import Any

import griffe

DOCTEST = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)


def fenced(text: str) -> str:
    """Returns a docstring with each doctest, up to the next empty line, in a code block."""
    return DOCTEST.sub(lambda match: f"\n```pycon\n{match[0]}\n```\n", text)


class Doctests(griffe.Extension):
    """Changes the docstrings of a package after it is read."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Is called by griffe with each package."""
        _change(pkg)


def _change(object_: griffe.Object) -> None:
    if object_.docstring:
        object_.docstring.value = fenced(object_.docstring.value)
    for member in object_.members.values():
        if isinstance(member, griffe.Object):  # not a name that another module defines
            _change(member)
