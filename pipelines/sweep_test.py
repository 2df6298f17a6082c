import json

import pytest

from rank4class.pipelines import config, report, sweep, trainer
from rank4class.pipelines.configs import digits_mlp
from rank4class.pipelines.workdir import Workdir


def base():
    return config.override(digits_mlp.get_config(), {"epochs": 1.0, "encoder.hidden": (16,)})


def grid(root, **changes):
    axes = {"losses": ["softmax", "mse"], "interactions": ["dot", "lc_mlp"], "seeds": [0, 1]}
    return sweep.run_grid(base(), str(root), **{**axes, **changes})


def test_a_grid_runs_every_cell_and_reports_it(tmp_path, capsys):
    runs = grid(tmp_path, seeds=[1])
    assert len(runs) == 4
    assert "[  4/4] mse-lc_mlp-seed1: test top1_error" in capsys.readouterr().out
    report.write_grid(runs, str(tmp_path))
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert text.count("| softmax |") == 4  # a row of figures and one of the training for each interaction
    assert "1,078 training, 359 validation, 360 test" in text
    for name in ("metrics.png", "curves.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_a_cell_of_a_grid_is_the_run_that_train_makes(tmp_path):
    runs = grid(tmp_path / "grid", losses=["mse"], interactions=["lc_mlp"], seeds=[0, 3])
    trainer.train(runs[1].experiment, str(tmp_path / "alone"), progress=False)
    assert Workdir(str(tmp_path / "alone")).history() == Workdir(runs[1].path).history()


def test_finished_cells_are_kept(tmp_path):
    first = grid(tmp_path, losses=["mse"], interactions=["dot"], seeds=[0])
    stamps = [json.dumps(run.results) for run in first]
    again = grid(tmp_path, losses=["mse"], interactions=["dot"])
    assert [json.dumps(run.results) for run in again if run.experiment.seed == 0] == stamps


def test_the_learning_rate_is_chosen_on_the_validation_set(tmp_path, capsys):
    runs = grid(tmp_path, losses=["softmax"], interactions=["dot"], learning_rates=[1e-6, 1e-2])
    assert [run.experiment.optimizer.learning_rate for run in runs] == [1e-2, 1e-2]
    tried = [Workdir(str(path)).results() for path in sorted((tmp_path / "tuning").iterdir())]
    assert len(tried) == 2
    printed = capsys.readouterr().out
    values = [f"{results['validation']['ndcg@5']:.2f}" for results in tried]
    for number, rate, value in ((1, "1e-06", values[1]), (2, "0.01", values[0])):
        assert f"[  {number}/4] tuning/softmax-dot-rate{rate}: validation top1_error" in printed
        assert f"ndcg@5 {value}%" in printed
    assert "softmax-dot: learning rate 0.01 by validation ndcg@5; higher may be better" in printed
    (row,) = report.training_table(runs, str(tmp_path))[1:]
    assert row == ["softmax", "dot", "0.01", "1.01", "1.01", f"1e-06: {values[1]}, 0.01: {values[0]}"]


def test_a_rate_that_diverges_loses(tmp_path, capsys):
    axes = {"losses": ["mse"], "interactions": ["dot"], "seeds": [0]}
    (run,) = grid(tmp_path / "a", **axes, learning_rates=[1e30, 1e-2])
    assert run.experiment.optimizer.learning_rate == 1e-2
    assert "[  1/3] tuning/mse-dot-rate1e+30: loss 'mse' is" in capsys.readouterr().out
    with pytest.raises(FloatingPointError, match="mse-dot diverges at every learning rate"):
        grid(tmp_path / "b", **axes, learning_rates=[1e30, 1e29])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seeds": [0, 1, 0]}, "the seeds of a grid repeat 0: a run would count twice"),
        ({"losses": ["mse", "mse"]}, "the losses of a grid repeat 'mse'"),
        ({"losses": []}, "a grid needs losses"),
        ({"seeds": [0, -1]}, r"seed -1 is not in 0 \.\. 2\*\*32 - 1"),
        ({"learning_rates": [0.1, -0.1]}, "optimizer.learning_rate -0.1 is not positive"),
    ],
)
def test_a_bad_axis_is_refused_before_anything_runs(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        grid(tmp_path / "grid", **changes)
    assert not (tmp_path / "grid").exists()


def test_a_bad_cell_is_refused_before_anything_runs(tmp_path):
    with pytest.raises(ValueError, match="unknown loss 'softmx'"):
        grid(tmp_path / "grid", losses=["softmax", "softmx"])
    assert not (tmp_path / "grid").exists()
