"""Methods that find wrong labels, on planted mistakes in a table of numbers."""

import sys
import types

import numpy as np
import pytest

from rank4class.scripts.research.papers import label_peers

pytestmark = pytest.mark.nightly


def test_methods_on_a_table(rng, tmp_path, capsys, monkeypatch):
    rank = types.SimpleNamespace(get_label_quality_scores=lambda y, p, method: p[np.arange(len(y)), y])
    count = types.SimpleNamespace(num_label_issues=lambda y, p: np.sum(p.argmax(axis=1) != y))
    for name, module in (("rank", rank), ("count", count)):
        monkeypatch.setitem(sys.modules, f"cleanlab.{name}", module)
    monkeypatch.setitem(sys.modules, "cleanlab", types.ModuleType("cleanlab"))
    classes = np.arange(600) % 5
    rows = 4 * np.eye(5)[classes] + rng.normal(size=[600, 5])
    header = ",".join("vwxyz") + ",label"
    lines = [",".join(map(str, row)) + f",{'abcde'[j]}" for row, j in zip(rows, classes, strict=True)]
    (tmp_path / "table.csv").write_text("\n".join([header, *lines]) + "\n")
    result = label_peers.compare([str(tmp_path / "table.csv")])["table.csv"]
    assert set(result) == {"examples", *(f"{k} {s:g}" for k in label_peers.KINDS for s in label_peers.SHARES)}
    methods = result["random 0.1"]["methods"]
    assert len(methods) == 6
    assert min(each["auroc"] for each in methods.values()) > 95
    assert methods["check_labels"]["estimate"] == pytest.approx(result["random 0.1"]["mistakes"], abs=2.5)
    assert "other labels of ten neighbours" in capsys.readouterr().out
