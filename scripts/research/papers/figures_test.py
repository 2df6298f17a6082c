"""Figures of the documentation are those of its committed files."""

import pathlib
import re

import pytest

from rank4class.scripts.research.papers import figures

DOCS = pathlib.Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize("name", figures.FIGURES)
def test_committed_figures_are_drawn_from_committed_files(name):
    committed = (DOCS / "images" / f"{name}.svg").read_text()
    drawn = figures.to_svg(figures.FIGURES[name](str(DOCS)))
    versions = [re.search(r"Matplotlib v([^,]*)", text)[1] for text in (committed, drawn)]
    if versions[0] != versions[1]:
        pytest.skip(f"drawn by Matplotlib {versions[0]}, not {versions[1]}")
    assert drawn == committed
