"""Choices of examples to label, on a table of numbers."""

import pytest

from rank4class.scripts.research.papers import label_choice

pytestmark = pytest.mark.nightly


def test_choices_on_a_table(rng, tmp_path, capsys):
    rows = 3.0 * rng.normal(size=[400, 2])
    names = ["abc"[int(x > 0.0) + int(x > 0.0 and y > 0.0)] for x, y in rows]
    lines = [f"{x},{y},{name}" for (x, y), name in zip(rows, names, strict=True)]
    (tmp_path / "table.csv").write_text("\n".join(["x,y,label", *lines]) + "\n")
    result = label_choice.compare(str(tmp_path / "table.csv"), 0.1, 20, 2)
    assert result["examples"] == 360
    assert list(result["test_error"]) == ["36 examples", "random", "margin", "informative"]
    assert {len(errors) for errors in result["test_error"].values()} == {2}
    assert "informative" in capsys.readouterr().out
