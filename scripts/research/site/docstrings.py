"""An extension of griffe, which reads docstrings for MkDocs: prepares them for Markdown."""

import re
from typing import Any

import griffe

DOCTEST = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)
# Headings of a module's docstring, and the sections that griffe knows.
SECTIONS = {"Common arguments:": "Args:", "Common errors:": "Raises:"}


def prepared(text: str) -> str:
    """Returns a docstring with each doctest, up to the next empty line, in a code block."""
    for heading, section in SECTIONS.items():
        text = re.sub(f"^{heading}$", section, text, flags=re.MULTILINE)
    return DOCTEST.sub(lambda match: f"\n```pycon\n{match[0]}\n```\n", text)


class Docstrings(griffe.Extension):
    """Changes the docstrings of a package after it is read."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Is called by griffe with each package."""
        _change(pkg)


def _change(object_: griffe.Object) -> None:
    if object_.docstring:
        object_.docstring.value = prepared(object_.docstring.value)
    for member in object_.members.values():
        if isinstance(member, griffe.Object):  # not a name that another module defines
            _change(member)
