"""Methods that detect unknown inputs, on a run of a table of numbers."""

import numpy as np
import pytest

import rank4class
from rank4class.pipelines import config, configs
from rank4class.scripts.research.papers import unknown_peers

pytestmark = pytest.mark.nightly


def test_methods_on_a_table(rng, tmp_path, capsys):
    centers = 6 * np.eye(4, 3)
    for name, classes in (("table", np.arange(600) % 3), ("unknown", np.full(80, 3))):
        rows = centers[classes] + rng.normal(size=[len(classes), 3])
        lines = [f"{x},{y},{z},{'abcd'[j]}" for (x, y, z), j in zip(rows, classes, strict=True)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["x,y,z,label", *lines]) + "\n")
    changes = {"data.path": str(tmp_path / "table.csv"), "data.unknown": str(tmp_path / "unknown.csv")}
    changes |= {"unknown": 0.05, "data.validation_fraction": 0.3, "epochs": 3.0}
    experiment = config.override(configs.get_config("table_mlp"), changes)
    run = rank4class.train(experiment, tmp_path / "run", progress=False)
    result = unknown_peers.compare([run.workdir])["run"]
    methods = result["methods"]
    assert len(methods) == 9
    assert methods["detector"]["auroc"] == pytest.approx(run.results["unknown"]["auroc"], abs=0.01)
    assert min(methods[name]["auroc"] for name in ("nearest example", "Mahalanobis")) > 95
    assert "relative Mahalanobis" in capsys.readouterr().out
