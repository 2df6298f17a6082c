"""Collection of the runs of a reproduction."""

import os

import numpy as np
import pytest

from rank4class.pipelines import config, sweep
from rank4class.pipelines.configs import digits_mlp
from rank4class.pipelines.papers import results
from rank4class.pipelines.papers.reproductions import Command, Reproduction
from rank4class.pipelines.storage.run_directory import RunDirectory

QUICK = {"epochs": 1.0, "encoder.hidden": (8,), "calibration": "none"}


def reproduction(*names):
    return Reproduction(
        "digits", ("R1",), tuple(Command("sweep --config=digits_mlp", name) for name in names)
    )


@pytest.mark.nightly
def test_collects_the_runs_of_all_sweeps(tmp_path):
    base = config.override(digits_mlp.get_config(), QUICK)
    for i, rate in enumerate((0.001, 0.01)):
        one = config.override(base, {"optimizer.learning_rate": rate})
        runs = sweep.run_grid(one, str(tmp_path / str(i)), losses=["mse"], interactions=["dot"], seeds=[3, 5])
    found = results.collect("digits", reproduction({"rate": "low"}, {"rate": "high"}), str(tmp_path))
    # Cells of two sweeps with other names stay apart.
    assert [cell["name"]["rate"] for cell in found["cells"]] == ["low", "high"]
    assert found["cells"][1]["seeds"] == [3, 5]
    figures = found["cells"][1]["metrics"]["top1_error"]
    np.testing.assert_allclose(
        figures["values"], [run.results["test"]["top1_error"] for run in runs], rtol=1e-6
    )
    assert figures["examples"] == 360
    assert found["examples"] == {"train": 1078, "validation": 359, "test": 360}
    assert found["tuned"][1]["fields"] == {"optimizer.learning_rate": [0.01, 0.01]}
    assert found["commands"] == [
        f"rank4class sweep --config=digits_mlp --workdir=WORKDIR/{i}" for i in (0, 1)
    ]

    # Runs without values of the examples, such as those of an earlier version, have a figure per seed.
    for run in runs:
        os.remove(os.path.join(run.path, "test_values.npz"))
    assert RunDirectory(runs[0].path).test_values() is None
    found = results.collect("digits", reproduction({}), str(tmp_path))
    assert found["cells"][0]["metrics"]["top1_error"]["examples"] == 360
    (tmp_path / "1").rename(tmp_path / "2")
    (tmp_path / "0").rename(tmp_path / "1")
    (tmp_path / "2").rename(tmp_path / "0")
    figures = results.collect("digits", reproduction({}), str(tmp_path))["cells"][0]["metrics"]["top1_error"]
    assert figures["examples"] is None
    np.testing.assert_allclose(figures["values"], [run.results["test"]["top1_error"] for run in runs])


def test_sweep_without_runs(tmp_path):
    with pytest.raises(FileNotFoundError, match="0: no finished run. Run the reproduction first"):
        results.collect("digits", reproduction({}), str(tmp_path))
