"""Pages of results and claims: every figure comes from a result."""

import pathlib
import re

import numpy as np
import pytest

from rank4class.pipelines.storage.run_directory import read_json
from rank4class.pipelines.sweep import grid_summary
from rank4class.scripts.research.papers import figure_data, pages, results
from rank4class.scripts.research.papers.reproductions import REPRODUCTIONS

DOCS = pathlib.Path(__file__).parents[3] / "docs"


@pytest.fixture
def result():
    cells = [
        grid_summary.Cell({"loss": loss, "interaction": "dot"}, [0, 1], {"top1_error": np.array(values)})
        for loss, values in {"softmax": [0.40, 0.42], "mse": [0.50, 0.5202]}.items()
    ]
    baseline = {"loss": "softmax", "interaction": "dot"}
    return {
        "name": "rank4class/tiny",
        "title": "A tiny grid",
        "claims": ["R3"],
        "paper": "rank4class/table7",
        "commands": ["rank4class sweep"],
        "commits": ["abc"],
        "packages": {"tensorflow": "2.20.0"},
        "seconds": 7200,
        "examples": {"training": 10, "validation": 5, "test": 360},
        "tuned": [],
        "notes": [],
        **grid_summary.summarize(cells, baseline=baseline),
    }


def test_paper_beside_ours(result):
    rows = pages.paper_table(result)
    assert rows[1][:4] == ["loss=softmax,interaction=dot", "top1_error (%)", "41.00", "41.00"]
    assert rows[1][4].startswith("+0.00 [")  # Student's t of 40 and 42: 12.7
    assert [row[0] for row in rows[2:]] == ["loss=mse,interaction=dot"]
    with pytest.raises(ValueError, match="interaction': 'dot'}: 2 cells have this name. Name more of its"):
        pages.find(result["cells"], {"interaction": "dot"})


def test_figures_that_are_not_finite(result):
    figures = result["cells"][1]["metrics"]["top1_error"]
    figures |= {"mean": None, "interval": None}
    assert pages.paper_table(result)[2][3:] == ["not finite", "-"]
    assert "(not finite)" in pages.cells_page({"rank4class/tiny": result}, {"rows": [["metric"]]})
    figures["mean"] = 41.0
    assert pages.paper_table(result)[2][3].startswith("41.00")
    assert pages.paper_table(result)[2][4].endswith(" no interval")


def test_curves():
    curve = {"name": {"loss": "mse"}, "metric": "mrr", "epochs": [4.1, 8.2, 12.3, 16.4, 20.5]}
    curve["values"] = [[1.0, 3.0, 2.0, 4.0, 3.5], [2.0, 2.5, 1.0]]
    assert pages._curve_rows([curve]) == [
        ["loss", "4", "8", "16", "best", "last", "epoch of the best"],
        ["mse", "1.50", "2.75", "3.25", "3.25", "2.25", "12.30"],
    ]


def test_tuned_values_and_notes(result):
    mse = {"loss": "mse", "interaction": "dot"}
    softmax = {"loss": "softmax", "interaction": "dot"}
    rates = [(softmax, 0.001), (mse, 0.01), (softmax, 0.003), (softmax, 0.001)]  # of two and three splits
    result |= {
        "tuned": [{"name": name, "fields": {"optimizer.learning_rate": rate}} for name, rate in rates],
        "notes": ["mse-dot: optimizer.learning_rate=0.01 is at the high end"],
        "commits": ["0123456789-dirty"],
    }
    result["tuned"].append({"name": mse, "fields": {"loss.k": 3}})
    page = pages.results_page({"rank4class/tiny": result})
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines()]
    assert ["softmax", "dot", "0.001, 0.003", "-"] in cells
    assert ["mse", "dot", "0.01, -", "-, 3"] in cells
    assert "\n- mse-dot: optimizer.learning_rate=0.01 is at the high end\n" in page
    assert "commit 0123456-dirty;" in page


def test_results_are_stored(result, tmp_path):
    path = results.write(result, tmp_path)
    assert pages.read_all(tmp_path) == {"rank4class/tiny": result}
    pathlib.Path(path).rename(tmp_path / "other.json")
    with pytest.raises(ValueError, match="name='rank4class/tiny': not the name of the file"):
        pages.read_all(tmp_path)


def test_every_result_has_a_section():
    committed = pages.read_all(DOCS / "results")
    rendered = pages.render(DOCS)
    assert rendered["results.md"].count("\n## ") == len(committed)
    assert "| softmax | dot | 73.90 (70.28) (" in rendered["rank4class_cells.md"]


def test_results_are_of_the_commands_that_reproduce_them():
    for name, result in pages.read_all(DOCS / "results").items():
        commands = [re.sub(r" --widen=\d", "", line) for line in result["commands"]]  # sweeps had that flag
        assert commands == REPRODUCTIONS[name].command_lines(), name


def test_the_reanalysis_is_that_of_the_papers():
    committed = read_json(str(DOCS / "figures" / "reanalysis.json"))
    assert figure_data.measure_reanalysis("")["rows"] == committed["rows"]


CLAIM = re.compile(
    r"^- (?P<cell>.+) - (?P<baseline>.+), (?P<heading>\S+(?: \(%\))?): "
    r"(?P<effect>\S+ \[.+\]), (?P<verdict>.+)\.\n  \[`(?P<result>.+)`\]\(results.md#",
    re.MULTILINE,
)


def test_differences_in_the_claims_are_those_of_the_results():
    text = (DOCS / "claims.md").read_text()
    committed = pages.read_all(DOCS / "results")
    matches = [match.groupdict() for match in CLAIM.finditer(text)]
    assert len(matches) == text.count("  [`")
    for claim in matches:
        result = committed[claim["result"]]
        effects = [
            f"{pages._signed(one['difference'])} {pages._interval(one['interval'], pages._signed)}"
            for one in result["comparisons"]
            if " ".join(one["name"].values()) == claim["cell"]
            and pages.heading(result, one["metric"]) == claim["heading"]
            and one["verdict"] == claim["verdict"]
        ]
        assert effects == [claim["effect"]], claim
        assert " ".join(result["baseline"].values()) == claim["baseline"]


def test_every_claim_has_a_verdict_and_its_tests_exist():
    text = (DOCS / "claims.md").read_text()
    verdicts = re.findall(r"^## [RKSN]\d: (.+)$", text, re.MULTILINE)
    assert len(verdicts) == 24
    for verdict in set(verdicts):
        assert f"{verdict} {verdicts.count(verdict)}" in text
    for file, name in re.findall(r"`(\S+_test\.py)::(\w+)`", text):
        assert f"def {name}(" in (DOCS.parent / file).read_text()
