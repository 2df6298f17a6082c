"""Prediction sets equal those of MAPIE and crepes, and their coverage has its law, on a run of the digits."""

import pytest

import rank4class
from rank4class.pipelines import config
from rank4class.pipelines.configs import digits_mlp
from rank4class.scripts.research.papers import prediction_set_peers

pytest.importorskip("crepes", reason="the optional package crepes is not installed")
pytest.importorskip("mapie", reason="the optional package mapie is not installed")


def test_sets_of_digits(tmp_path, capsys):
    changes = {"sets.name": "threshold", "epochs": 2.0}
    experiment = config.override(digits_mlp.get_config(), changes)
    run = rank4class.train(experiment, tmp_path / "run", progress=False)
    result = prediction_set_peers.compare(run.workdir, splits=20)
    printed = capsys.readouterr().out
    total = len(prediction_set_peers.COVERAGES) * result["examples"][1]
    rows = [line.split() for line in printed.splitlines() if " crepes " in line or " MAPIE " in line]
    assert len(rows) == 5
    for row in rows:
        equal = int(row[-1].replace(",", ""))
        near_ties = 0.001 * total if "(top_k)" in row else 0  # MAPIE takes classes up to 1e-8 below the K-th
        assert total - near_ties <= equal <= total, printed
    assert len(result["splits"]) == 20
    assert result["sizes"]["threshold"] == sorted(result["sizes"]["threshold"])
