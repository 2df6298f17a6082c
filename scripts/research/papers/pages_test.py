"""Pages of results and claims: every figure comes from a result, and committed pages are up to date."""

import pathlib
import re

import numpy as np
import pytest

from rank4class.pipelines.sweep import grid_summary
from rank4class.scripts.research.papers import pages, results
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
        **grid_summary.summarize(cells, baseline=baseline, margin=0.5),
    }


def test_paper_beside_ours(result):
    rows = pages.paper_table(result)
    assert rows[1][:4] == ["loss=softmax,interaction=dot", "top1_error (%)", "41.00", "41.00"]
    assert rows[1][4].startswith("+0.00 [")  # Student's t of 40 and 42: 12.7
    assert [row[0] for row in rows[2:]] == ["loss=mse,interaction=dot"]


def test_figures_that_are_not_finite(result):
    figures = result["cells"][1]["metrics"]["top1_error"]
    figures |= {"mean": None, "interval": None}
    assert pages.paper_table(result)[2][3:] == ["not finite", "-"]
    assert "(not finite)" in pages.cells_page({"rank4class/tiny": result})
    figures["mean"] = 41.0
    assert pages.paper_table(result)[2][3].startswith("41.00")
    assert pages.paper_table(result)[2][4].endswith(" no interval")


def test_a_name_of_several_cells_is_refused(result):
    with pytest.raises(ValueError, match="interaction': 'dot'}: 2 cells have this name. Name more of its"):
        pages._find(result["cells"], {"interaction": "dot"})


def test_claim_with_its_effect(result):
    claim = {
        "id": "R3",
        "claim": "Ranking losses are better.",
        "verdict": "does not hold",
        "evidence": [
            {"result": "rank4class/tiny", "cell": {"loss": "mse"}, "metric": "top1_error"},
            {"test": "a_test.py::test"},
        ],
        "note": "a note",
    }
    page = pages.claims_page([claim], {"rank4class/tiny": result})
    assert "mse - softmax dot: +10.01 [" in page
    assert "top1_error (%), worse.<br>A note." in page
    [row] = [line.split("|") for line in page.splitlines() if "<br>A note." in line]
    assert [cell.strip() for cell in row[5:7]] == ["2", "360"]
    assert page.endswith(": `reproduce --only=rank4class/tiny`, abc; `a_test.py::test`\n")
    assert "does not hold 1, not separable 0" in page
    second = claim | {"evidence": [*claim["evidence"], claim["evidence"][0] | {"result": "rank4class/other"}]}
    page = pages.claims_page([second], {"rank4class/tiny": result, "rank4class/other": result})
    assert re.findall(r"(\w+): mse - softmax dot: ", page) == ["tiny", "other"]
    with pytest.raises(ValueError, match="verdict='maybe': unknown. There are: holds"):
        pages.claims_page([claim | {"verdict": "maybe"}], {})
    with pytest.raises(ValueError, match="no such file. Run rank4class reproduce --only=rank4class/tiny"):
        pages.claims_page([claim], {})
    interval, result["comparisons"][0]["interval"] = result["comparisons"][0]["interval"], None
    with pytest.raises(ValueError, match="has no interval of top1_error. Choose other evidence."):
        pages.claims_page([claim], {"rank4class/tiny": result})
    result["comparisons"][0]["interval"] = interval
    claim["evidence"][0]["cell"] = {"loss": "hinge"}
    with pytest.raises(ValueError, match="compares no such cell in top1_error"):
        pages.claims_page([claim], {"rank4class/tiny": result})


def test_curves():
    values = [[1.0, 3.0, 2.0, 4.0, 3.5], [2.0, 2.5, 1.0]]
    curve = {
        "name": {"loss": "mse"},
        "metric": "mrr",
        "epochs": [4.1, 8.2, 12.3, 16.4, 20.5],
        "values": values,
    }
    assert pages._curve_rows([curve]) == [
        ["loss", "4", "8", "16", "best", "last", "epoch of the best"],
        ["mse", "1.50", "2.75", "3.25", "3.25", "2.25", "12.30"],
    ]


def test_tuned_values_and_notes(result):
    mse, softmax = {"loss": "mse", "interaction": "dot"}, {"loss": "softmax", "interaction": "dot"}
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


def test_cells_of_the_paper(result):
    page = pages.cells_page({"rank4class/tiny": result})
    assert page.count("| softmax") == 18
    assert "41.00 (41.00)" in page


def test_results_are_stored(result, tmp_path):
    path = results.write(result, tmp_path)
    assert results.read_all(tmp_path) == {"rank4class/tiny": result}
    pathlib.Path(path).rename(tmp_path / "other.json")
    with pytest.raises(ValueError, match="name='rank4class/tiny': not the name of the file"):
        results.read_all(tmp_path)


def test_committed_pages_are_those_of_the_results():
    for name, text in pages.render(DOCS).items():
        assert (DOCS / name).read_text() == text, f"Run rank4class render_docs: {name} is out of date."


def test_results_are_of_the_commands_that_reproduce_them():
    for name, result in results.read_all(DOCS / "results").items():
        assert result["commands"] == REPRODUCTIONS[name].command_lines(), name


def test_tests_of_claims_exist():
    claims = pages.read_json(str(DOCS / "claims.json"))["claims"]
    for claim in claims:
        for evidence in claim["evidence"]:
            if "test" in evidence:
                file, name = evidence["test"].split("::")
                assert f"def {name}(" in (DOCS.parent / file).read_text()
