"""Figures of the documentation are those of its committed files."""

import pathlib
import re

import pytest

from rank4class.pipelines.storage.run_directory import read_json
from rank4class.pipelines.sweep import plots
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


def test_every_grid_has_a_figure():
    paths = list(DOCS.glob("results/*/*.json"))
    assert paths
    for path in paths:
        summary = read_json(str(path))
        if summary.get("comparisons"):
            assert len(plots.differences(summary).axes) == len(summary["metrics"])


def test_sorters_end_at_the_ranks_of_the_ends():
    ranks = read_json(str(DOCS / "figures" / "sorters.json"))["ranks"]
    assert [ranks["exact"][i] for i in (0, -1)] == [1.0, 0.1]
    for values in ranks.values():
        assert abs(values[0] - 1.0) < 0.05
        assert abs(values[-1] - 0.1) < 0.05
