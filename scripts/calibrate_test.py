"""Prediction sets and detectors of a run that was trained without them, from another labeled file."""

import numpy as np
import pytest

from rank4class.pipelines.evaluation import prediction_sets, trained_model

pytestmark = pytest.mark.nightly


@pytest.fixture
def write(tmp_path):
    """Returns a function that writes labeled vectors of three classes as a CSV file."""

    def write_file(name, size, seed, columns=("x", "y", "label")):
        rng = np.random.default_rng(seed)
        labels = rng.integers(0, 3, size)
        vectors = rng.normal(size=[size, 2]) + np.array([[0.0, 0.0], [1.5, 0.0], [0.0, 1.5]])[labels]
        rows = [f"{x},{y},{'abc'[label]}" for (x, y), label in zip(vectors, labels, strict=True)]
        path = tmp_path / name
        path.write_text("\n".join([",".join(columns), *rows]) + "\n")
        return path

    return write_file


def test_sets_of_another_file_cover_new_examples(output_of, error_of, write, tmp_path):
    train, labeled, new = (write(f"{seed}.csv", 400, seed) for seed in range(3))
    run = f"--workdir={tmp_path / 'run'}"
    flags = ("--config.epochs=2", "--config.optimizer.learning_rate=0.03")
    output_of("train", "--config=table_mlp", f"--config.data.path={train}", *flags, run)
    before = (tmp_path / "run/results.json").read_bytes()
    printed = output_of("calibrate", run, f"--data.path={labeled}")
    assert printed.startswith("calibration: 400 examples; sets for 90% will cover 86.9% to 92.8%")
    trained = trained_model.restore(tmp_path / "run")
    assert (trained.sets.name, trained.sets.examples.tolist()) == ("threshold", [400])
    result = trained.evaluate(trained.load_labeled(new))
    position = result.sets.coverages.tolist().index(0.9)
    low, high = prediction_sets.coverage_interval(400, 0.9)
    assert low - 0.03 < result.sets.covered[:, position].mean() < high + 0.03
    assert result.names == tuple(trained.experiment.metrics)  # no metric of sets is asked for
    printed = output_of("calibrate", run, f"--data.path={labeled}", "--sets=rank")
    ranks = trained_model.restore(tmp_path / "run").sets.limits(0.8)
    assert f"80%       {ranks[0]:.0f}" in printed
    assert (tmp_path / "run/results.json").read_bytes() == before
    few = write("few.csv", 8, 3)
    assert "8 examples; sets for 90% need 9. Give" in error_of("calibrate", run, f"--data.path={few}")
    assert trained_model.restore(tmp_path / "run").sets.examples.tolist() == [400]
    line = error_of("calibrate", run, f"--data.path={train}")
    assert f"--data.path={train}: the data of the training. Set it to examples that the run has not" in line
    train.rename(tmp_path / "moved.csv")
    line = error_of("evaluate", run)
    assert f"run: its data are not here. data.path={train}: no such file" in line


def test_files_of_the_training_do_not_calibrate(output_of, error_of, write, tmp_path):
    (tmp_path / "data").mkdir()
    files = {name: write(f"data/{name}.csv", 40, seed) for seed, name in enumerate(("train", "validation"))}
    write("data/test.csv", 40, 2)
    run = f"--workdir={tmp_path / 'run'}"
    output_of("train", "--config=table_mlp", f"--config.data.path={tmp_path}/data", "--config.epochs=0", run)
    for name, path in files.items():
        line = error_of("calibrate", run, f"--data.path={path}")
        assert f"data.path: the {name} split of the run. Set it to examples that the run has not" in line
    assert not (tmp_path / "run/prediction_sets.json").exists()


def test_unknown_inputs_by_commands(output_of, error_of, write, tmp_path):
    train, labeled, new = (write(f"{seed}.csv", 400, seed) for seed in range(3))
    others = tmp_path / "others.csv"
    others.write_text("x,y\n" + "".join(f"{9 + i / 50},{-9 - i / 50}\n" for i in range(50)))
    run = str(tmp_path / "run")
    flags = ("--config=table_mlp", f"--config.data.path={train}", "--config.data.validation_fraction=0.3")
    printed = output_of(
        "train", *flags, "--unknown=0.1", f"--config.data.unknown={others}", f"--workdir={run}"
    )
    [line] = [line for line in printed.splitlines() if line.startswith("Unknown inputs at 10%: ")]
    assert " of 40 known inputs are called unknown, " in line
    assert " of 50 unknown ones, AUROC " in line
    compared = output_of("compare", run, run, f"--output={tmp_path / 'compared'}")
    assert compared.count(line) == 2
    others.rename(tmp_path / "moved.csv")  # a finished run does not need them
    printed = output_of("calibrate", run, str(labeled), "--unknown=0.05")
    assert (
        "calibration: 400 examples; of inputs like them about 3.1% to 7.3% will be called unknown" in printed
    )
    assert not (tmp_path / "run/prediction_sets.json").exists()
    output_of("predict", run, str(new), f"--output={tmp_path / 'p.csv'}", "--top_k=1")
    rows = [line.split(",") for line in (tmp_path / "p.csv").read_text().splitlines()]
    assert rows[0][1:4] == ["unknown", "p_value", "class_1"]
    unknown, p_values = (np.array([row[i] for row in rows[1:]], float) for i in (1, 2))
    np.testing.assert_array_equal(unknown, p_values <= 0.05)
    assert 0.01 < unknown.mean() < 0.1
    assert "unknown=2.0: not in (0, 1)." in error_of("calibrate", run, str(labeled), "--unknown=2")
