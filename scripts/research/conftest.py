"""Marks the tests of research: they run nightly."""

import pathlib

import pytest


@pytest.hookimpl(tryfirst=True)  # before pytest deselects by -m
def pytest_collection_modifyitems(items):
    for item in items:
        if pathlib.Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.research)
            item.add_marker(pytest.mark.nightly)
