"""Unknown inputs from a training to its answers, of a table of numbers."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

import rank4class
from rank4class.pipelines import config, configs
from rank4class.pipelines.evaluation import trained_model
from rank4class.pipelines.run import Run

CENTERS = 6.0 * np.eye(4, 3)  # of four classes; the last one is that of unknown inputs


def table(path, **changes):
    """Returns an experiment on a table; the names of changes have "__" for dots."""
    changes = {name.replace("__", "."): value for name, value in changes.items()}
    return config.override(configs.get_config("table_mlp"), {"data.path": str(path), **changes})


def numbers(rng, classes):
    return CENTERS[classes] + rng.normal(size=[len(classes), 3])


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Returns the folder of a table of three classes, and of two files of other inputs."""
    rng = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("detection")
    tables = {"table": np.arange(900) % 3, "unknown": np.full(100, 3), "learned": np.full(50, 3)}
    for name, classes in tables.items():
        header = ["x,y,z,label"] if name == "table" else ["x,y,z"]
        rows = numbers(rng, classes)
        labels = [f",{'abc'[j]}" for j in classes] if name == "table" else [""] * len(rows)
        lines = [",".join(f"{x:.4f}" for x in row) + label for row, label in zip(rows, labels, strict=True)]
        (folder / f"{name}.csv").write_text("\n".join(header + lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def trained(files):
    """Returns the folder of a run that detects unknown inputs."""
    unknown = {"unknown": 0.05, "data__unknown": str(files / "unknown.csv")}
    unknown["data__unknown_train"] = str(files / "learned.csv")
    experiment = table(files / "table.csv", data__validation_fraction=0.4, **unknown)
    rank4class.train(experiment, files / "run", progress=False)
    return files / "run"


def test_measures_and_answers(trained, files, rng, tmp_path):
    run = Run(trained)
    measured = run.results["unknown"]
    assert (measured["rate"], measured["unknown"]) == (5.0, 100)
    assert measured["known"] == run.results["test"]["examples"]
    assert measured["auroc"] > 98
    assert measured["recall"] > 90
    report = (trained / "report.html").read_text()
    assert f"Unknown inputs at 5%: {measured['false_alarms']:.2f}% [" in report
    assert "Unknown inputs that are found, by the share of known ones" in report
    inputs = np.float32(numbers(rng, np.array([0, 1, 2, 3, 3])))
    outputs = run.outputs(inputs)
    assert outputs["unknown"].tolist() == [False, False, False, True, True]
    np.testing.assert_array_equal(outputs["unknown"], outputs["p_value"] <= 0.05)
    table = run.predict(inputs, k=2)
    assert table["unknown"].tolist() == np.repeat(outputs["unknown"], 2).tolist()
    run.predict_file(files / "unknown.csv", tmp_path / "p.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    assert np.mean([row["unknown"] for row in rows]) == pytest.approx(measured["recall"] / 100)
    run.export(tmp_path / "model")
    served = tf.saved_model.load(str(tmp_path / "model")).signatures["serving_default"]
    answers = served(**{next(iter(run.answers.specs)): tf.constant(inputs)})
    np.testing.assert_allclose(answers["p_value"], outputs["p_value"], atol=1e-6)
    np.testing.assert_array_equal(answers["unknown"], outputs["unknown"])
    card = (tmp_path / "model" / "README.md").read_text()
    assert "probability of at most 5%" in card
    assert f"of {measured['known']} known inputs are called unknown" in card


def test_other_examples_calibrate(trained, files, rng, tmp_path):
    lines = (files / "table.csv").read_text().splitlines()
    labeled = tmp_path / "labeled.csv"
    labeled.write_text("\n".join([lines[0], *(line.replace(".", ".1") for line in lines[1:201])]) + "\n")
    restored = trained_model.restore(trained)
    before = restored.detector
    assert len(before.sums) == 180
    assert before.contrast.any()
    task_data = restored.load_labeled(labeled)
    calibrated = restored.calibrate_unknown(task_data, 0.1)
    assert (calibrated.rate, len(calibrated.sums)) == (0.1, 200)
    np.testing.assert_array_equal(calibrated.neighbours, before.neighbours)
    again = trained_model.restore(trained)
    np.testing.assert_array_equal(again.detector.sums, calibrated.sums)
    fitted = dataclasses.replace(again, detector=None).calibrate_unknown(task_data, 0.1)  # trained without it
    assert not fitted.contrast.size  # no unknown examples are read after a training
    np.testing.assert_allclose(fitted.neighbours, before.neighbours, atol=1e-6)
    np.testing.assert_allclose(fitted.means, before.means, atol=1e-3)
    with pytest.raises(
        ValueError, match=r"unknown=0\.001: needs 999 calibration examples, and there are 200"
    ):
        restored.calibrate_unknown(task_data, 0.001)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"unknown": 1.5}, r"unknown=1\.5: not in \(0, 1\)\."),
        (
            {"data__unknown": "x.csv"},
            r"data\.unknown=x\.csv: is for the detection of unknown inputs\. Set unk",
        ),
        (
            {"unknown": 0.05, "data__held_out": ("a",)},
            r"unknown=0\.05: no calibration example has the classes of",
        ),
    ],
)
def test_settings_that_do_not_fit(files, changes, line, tmp_path):
    experiment = table(files / "table.csv", **changes)
    with pytest.raises(ValueError, match=line):
        rank4class.train(experiment, tmp_path / "run", progress=False)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (None, r"data\.unknown: .*others\.csv: no such file"),
        ("", r"data\.unknown: .*others\.csv: the file is empty"),
        ("a,b\n1,2\n", r"data\.unknown: .*Columns have the names of those of the training\."),
    ],
)
def test_files_of_unknown_inputs_that_do_not_fit(files, content, line, tmp_path):
    others = tmp_path / "others.csv"
    if content is not None:
        others.write_text(content)
    experiment = table(files / "table.csv", unknown=0.05, data__unknown=str(others))
    with pytest.raises((ValueError, FileNotFoundError), match=line):
        rank4class.train(experiment, tmp_path / "run", progress=False)


def test_several_labels_have_no_unknown_inputs(files, tmp_path):
    several = tmp_path / "several.csv"
    several.write_text((files / "table.csv").read_text().replace(",a\n", ",a;b\n"))
    experiment = table(several, data__label_separator=";", unknown=0.05)
    with pytest.raises(ValueError, match=r"unknown=0\.05: an example may have several classes\."):
        rank4class.train(experiment, tmp_path / "run", progress=False)
