"""Collection of the runs of a reproduction."""

import glob
import json

import numpy as np
import pytest

from rank4class.pipelines import config
from rank4class.pipelines.configs import digits_mlp
from rank4class.pipelines.storage.run_directory import RunDirectory
from rank4class.pipelines.sweep import grid, report
from rank4class.pipelines.sweep.grid_summary import Cell
from rank4class.scripts.research.papers import results
from rank4class.scripts.research.papers.reproductions import Command, Reproduction

QUICK = {"epochs": 1.0, "encoder.hidden": (8,)}


def reproduction(*names):
    commands = tuple(Command("sweep --config=digits_mlp", name) for name in names)
    return Reproduction("digits", commands, curves=True)


def test_collects_the_runs_of_all_sweeps(tmp_path):
    base = config.override(digits_mlp.get_config(), QUICK)
    for i, rate in enumerate((0.001, 0.01)):
        one = config.override(base, {"optimizer.learning_rate": rate})
        root = str(tmp_path / str(i))
        runs = grid.run_grid(one, root, losses=["mse"], interactions=["dot"], seeds=[3, 5])
        report.write_grid(runs, root)
    collected = results.collect("digits", reproduction({"rate": "low"}, {"rate": "high"}), str(tmp_path))
    assert [cell["name"]["rate"] for cell in collected["cells"]] == ["low", "high"]
    assert collected["cells"][1]["seeds"] == [3, 5]
    figures = collected["cells"][1]["metrics"]["top1_error"]
    expected = [run.results["test"]["top1_error"] for run in runs]
    np.testing.assert_allclose(figures["values"], expected, rtol=1e-6)
    assert figures["examples"] == 360
    assert collected["examples"] == {"train": 1078, "validation": 359, "test": 360}
    sweep = "rank4class sweep --config=digits_mlp --workdir=WORKDIR"
    assert collected["commands"] == [f"{sweep}/{i}" for i in (0, 1)]
    after = collected["calibration"]["cells"][1]["metrics"]["nll after"]["values"]
    assert after == [run.results["test"]["calibration"]["after"]["nll"] for run in runs]
    values = [[round(run.results["validation"]["ndcg@5"], 4)] for run in runs]  # of the only evaluation
    name = {"loss": "mse", "interaction": "dot", "rate": "high"}
    curve = {"name": name, "metric": "ndcg@5", "epochs": [1.01], "values": values}
    assert collected["curves"][1] == curve
    assert collected["seconds"] > 0
    assert json.loads(json.dumps(collected, allow_nan=False)) == collected


def test_tuned_values(tmp_path):
    base = config.override(digits_mlp.get_config(), {**QUICK, "calibration": "none"})
    tune = {"optimizer.learning_rate": (1e-6, 0.01)}
    axes = {"losses": ["mse"], "interactions": ["dot"], "vary": {"encoder.dropout": (0.5,)}, "seeds": [0]}
    axes |= {"tuning_seeds": 1}
    root = str(tmp_path / "0")
    runs = grid.run_grid(base, root, tune=tune, **axes)
    report.write_grid(runs, root)
    collected = results.collect("digits", reproduction({}), str(tmp_path))
    paths = [run.path for run in runs] + glob.glob(str(tmp_path / "0/tuning/*-seed*"))
    assert len(paths) == 1 + 2
    seconds = [session["seconds"] for path in paths for session in RunDirectory(path).sessions()]
    assert collected["seconds"] == round(sum(seconds)) > 0
    fields = {"optimizer.learning_rate": 0.01}
    name = {"loss": "mse", "interaction": "dot", "encoder.dropout": "0.5"}
    assert collected["tuned"] == [{"name": name, "fields": fields}]
    end = "optimizer.learning_rate=0.01 is at the high end of the values tried: try values beyond it"
    assert collected["notes"] == [f"mse-dot-0.5: {end}"]
    assert len(collected["cells"]) == 1  # runs of the tuning do not count
    assert "calibration" not in collected


def test_sweep_without_runs(tmp_path):
    with pytest.raises(FileNotFoundError, match="0: no finished sweep. Run the reproduction first"):
        results.collect("digits", reproduction({}), str(tmp_path))


def cell(seeds, values, **name):
    return Cell(name, seeds, {"mrr": np.array(values)})


def test_parts_of_the_test_set_are_joined():
    folds = [cell([0, 1], [[0.1, 0.2], [0.3, 0.4]], loss="mse"), cell([0, 1], [[0.5], [0.6]], loss="mse")]
    [joined] = results._joined(folds)
    np.testing.assert_array_equal(joined.values["mrr"], [[0.1, 0.2, 0.5], [0.3, 0.4, 0.6]])
    assert joined.seeds == [0, 1]
    [averaged] = results._joined([cell([0, 1], [0.2, 0.4], loss="mse"), cell([0, 1], [0.4, 0.8], loss="mse")])
    np.testing.assert_allclose(averaged.values["mrr"], [0.3, 0.6])
    with pytest.raises(ValueError, match="^cell=mse: commands share some of their seeds. Use all or none"):
        results._joined([cell([0, 1], [0.1, 0.2], loss="mse"), cell([1, 2], [0.2, 0.3], loss="mse")])


def test_cells_of_other_test_examples_are_refused():
    first = cell([0], [[0.1]], loss="mse")
    second = cell([0], [[0.1]], loss="softmax")
    part = {"runs": ["a run"], "cells": [first], "test_examples": [("a", ())]}
    results._check_test_examples([part, {**part, "cells": [second]}])
    results._check_test_examples([part, {"cells": [second], "test_examples": []}])  # a study of sorters
    with pytest.raises(ValueError, match="^cell=softmax: other test examples .* with the same --data.$"):
        results._check_test_examples([part, {**part, "cells": [second], "test_examples": [("b", ())]}])


def test_splits_of_the_data_have_a_figure_each():
    splits = [cell([0], [[0.1, 0.3]], loss="mse"), cell([1], [[0.5, 0.7]], loss="mse")]
    other = cell([0, 1], [0.0, 1.0], loss="softmax")
    first, second = results._joined([splits[0], other, splits[1]])
    assert first.seeds == [0, 1]
    np.testing.assert_allclose(first.values["mrr"], [0.2, 0.6])
    assert second is other


def test_studies(tmp_path):
    study = {
        "seeds": [0, 1],
        "test": {
            "mse": {"spearman": [90.0, 92.0], "map": [50.0, 50.0]},
            "spearman@lstm": {"spearman": [91.0, 94.0], "map": [50.0, 50.0]},
        },
        "examples": {"train": 10, "validation": 5, "test": 5},
        "sessions": [{"git": "abc", "packages": {}, "environment": {"TF_SET": "BF16"}, "seconds": 60}],
        "test_hash": None,
        "notes": ["mse: learning rate=0.1 is at the high end of the values tried"],
    }
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / "study.json").write_text(json.dumps(study))
    one = Reproduction("a study", (Command("study"),), baseline={"loss": "mse"}, metrics=("spearman",))
    collected = results.collect("sodeep/a", one, str(tmp_path))
    assert collected["cells"][1]["metrics"]["spearman"]["values"] == pytest.approx([91.0, 94.0])
    assert collected["comparisons"][0]["difference"] == pytest.approx(1.5)
    assert list(collected["metrics"]) == ["spearman"]
    assert collected["notes"] == study["notes"]
    assert (collected["commits"], collected["seconds"]) == (["abc"], 60)
    assert collected["environment"] == ["TF_SET=BF16"]
