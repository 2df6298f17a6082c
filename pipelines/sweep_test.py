import itertools
import json
import re

import pytest

from rank4class.pipelines import config, report, sweep, trainer
from rank4class.pipelines.configs import digits_mlp
from rank4class.pipelines.workdir import Workdir

RATE = "optimizer.learning_rate"


def base():
    return config.override(digits_mlp.get_config(), {"epochs": 1.0, "encoder.hidden": (16,)})


def grid(root, **changes):
    axes = {"losses": ["softmax", "mse"], "interactions": ["dot", "lc_mlp"], "seeds": [0, 1]}
    return sweep.run_grid(base(), str(root), **{**axes, **changes})


@pytest.mark.nightly
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


@pytest.mark.nightly
def test_a_cell_of_a_grid_is_the_run_that_train_makes(tmp_path):
    runs = grid(tmp_path / "grid", losses=["mse"], interactions=["lc_mlp"], seeds=[0, 3])
    trainer.train(runs[1].experiment, str(tmp_path / "alone"), progress=False)
    assert Workdir(str(tmp_path / "alone")).history() == Workdir(runs[1].path).history()


def test_finished_cells_are_kept(tmp_path):
    first = grid(tmp_path, losses=["mse"], interactions=["dot"], seeds=[0])
    stamps = [json.dumps(run.results) for run in first]
    again = grid(tmp_path, losses=["mse"], interactions=["dot"])
    assert [json.dumps(run.results) for run in again if run.experiment.seed == 0] == stamps


@pytest.mark.nightly
def test_the_learning_rate_is_chosen_on_the_validation_set(tmp_path, capsys):
    runs = grid(tmp_path, losses=["softmax"], interactions=["dot"], tune={RATE: (1e-6, 1e-2)})
    assert [run.experiment.optimizer.learning_rate for run in runs] == [1e-2, 1e-2]
    tried = [Workdir(str(path)).results() for path in sorted((tmp_path / "tuning").iterdir())]  # 0.01 first
    assert len(tried) == 2
    printed = capsys.readouterr().out
    values = [f"{results['validation']['ndcg@5']:.2f}" for results in tried]
    for number, rate, value in ((1, "1e-06", values[1]), (2, "0.01", values[0])):
        assert f"[  {number}/4] tuning/softmax-dot-{RATE}={rate}: validation top1_error" in printed
        assert f"ndcg@5 {value}%" in printed
    note = f"softmax-dot: {RATE}=0.01 is the highest value tried; try higher values"
    assert f"  {note}\n" in printed
    report.write_grid(runs, str(tmp_path), {RATE: (1e-6, 1e-2)})
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert f"- Tuned on the first seed alone (0): {RATE}.\n- {note}.\n" in text
    header, row = report.training_table(runs, str(tmp_path), (RATE,))
    assert header[2] == RATE
    assert row == ["softmax", "dot", "0.01", "1.01", "1.01", f"1e-06: {values[1]}, 0.01: {values[0]}"]


@pytest.mark.nightly
def test_a_rate_that_diverges_loses(tmp_path, capsys):
    axes = {"losses": ["mse"], "interactions": ["dot"], "seeds": [0]}
    (run,) = grid(tmp_path / "a", **axes, tune={RATE: (1e30, 1e-2)})
    assert run.experiment.optimizer.learning_rate == 1e-2
    assert "[  1/3] tuning/mse-dot-optimizer.learning_rate=1e+30: loss 'mse' is" in capsys.readouterr().out
    with pytest.raises(FloatingPointError, match=f"mse-dot diverges with all values of {RATE}"):
        grid(tmp_path / "b", **axes, tune={RATE: (1e30, 1e29)})


@pytest.mark.nightly
def test_several_fields_are_tuned_together(tmp_path, capsys):
    tune = {RATE: (1e-3, 1e-2), "encoder.dropout": (0.0, 0.9)}
    axes = {"losses": ["softmax"], "interactions": ["dot"], "seeds": [0, 1]}
    runs = grid(tmp_path, **axes, tune=tune)
    printed = capsys.readouterr().out
    values = {}
    for rate, dropout in itertools.product(*tune.values()):
        run = Workdir(str(tmp_path / "tuning" / f"softmax-dot-{RATE}={rate},encoder.dropout={dropout}"))
        experiment = run.experiment()
        assert (experiment.optimizer.learning_rate, experiment.encoder.dropout) == (rate, dropout)
        values[rate, dropout] = run.results()["validation"]["ndcg@5"]
    assert len(set(values.values())) == 4  # so that each value has reached its model
    assert max(values, key=values.get) == (1e-2, 0.0)
    for run in runs:
        assert (run.experiment.optimizer.learning_rate, run.experiment.encoder.dropout) == (1e-2, 0.0)
    assert f"  softmax-dot: {RATE}=0.01 is the highest value tried; try higher values\n" in printed
    assert "encoder.dropout=0 is" not in printed  # nothing is lower
    header, row = report.training_table(runs, str(tmp_path), tuple(tune))
    assert header[2:4] == list(tune)
    assert row[2:4] == ["0.01", "0"]
    assert row[-1].startswith(f"0.001 0: {values[1e-3, 0.0]:.2f}, 0.001 0.9: ")
    # The tuned model is the one that `train` makes of that experiment.
    trainer.train(runs[0].experiment, str(tmp_path / "alone"), progress=False)
    assert Workdir(str(tmp_path / "alone")).history() == Workdir(runs[0].path).history()


@pytest.mark.nightly
def test_a_knob_that_a_loss_lacks_is_not_tried(tmp_path, capsys):
    axes = {"losses": ["softmax", "mse"], "interactions": ["dot"], "seeds": [0]}
    runs = grid(tmp_path, **axes, tune={"loss.temperature": (0.5, 1.0)})
    assert "[  4/4] mse-dot-seed0" in capsys.readouterr().out
    assert len(list((tmp_path / "tuning").iterdir())) == 2
    rows = report.training_table(runs, str(tmp_path), ("loss.temperature",))[1:]
    assert [row[2] for row in rows][1] == rows[1][-1] == "-"
    report.write_grid(runs, str(tmp_path), {"loss.temperature": (0.5, 1.0)})
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "\n- mse-dot has no loss.temperature: ignored.\n" in text
    assert "softmax-dot has no" not in text


@pytest.mark.nightly
def test_a_field_of_one_value_is_set(tmp_path, capsys):
    (run,) = grid(tmp_path, losses=["mse"], interactions=["dot"], seeds=[0], tune={RATE: (0.02,)})
    assert run.experiment.optimizer.learning_rate == 0.02
    assert not (tmp_path / "tuning").exists()
    assert "value tried" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "optimizer.learning_rte=1",
            "no field 'optimizer.learning_rte', did you mean 'optimizer.learning_rate'?",
        ),
        ("optimizer.learning_rate=0.1,x", "optimizer.learning_rate 'x' is no number"),
        ("optimizer.learning_rate=0.1,", "optimizer.learning_rate '' is no number"),
        ("batch_size=8.5", "batch_size '8.5' is no whole number"),
        ("loss.name=mse", "loss.name is not a field of one number"),
        ("encoder.hidden=8", "encoder.hidden is not a field of one number"),
        ("jit_compile=1", "jit_compile is not a field of one number"),
        ("batch_size", "give FIELD=VALUE,VALUE"),
        ("epochs=3", "another --tune has epochs already: give all its values in one"),
    ],
)
def test_what_cannot_be_tuned_is_named(text, message):
    with pytest.raises(ValueError, match=re.escape(f"--tune={text}: ") + ".*" + re.escape(message)):
        sweep.parse_tune(["epochs=1", text])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seeds": [0, 1, 0]}, "the seeds of a grid repeat 0: a run would count twice"),
        ({"losses": ["mse", "mse"]}, "the losses of a grid repeat 'mse'"),
        ({"losses": []}, "a grid needs losses"),
        ({"seeds": [0, -1]}, r"seed -1 is not in 0 \.\. 2\*\*32 - 1"),
        ({"tune": {RATE: (0.1, -0.1)}}, "optimizer.learning_rate -0.1 is not positive"),
        ({"tune": {RATE: (0.1, 0.2, 0.1)}}, "the values of optimizer.learning_rate of a grid repeat 0.1"),
        ({"tune": {"seed": (0, 1)}}, "seed cannot be tuned: a grid's seeds tell"),
        (
            {"tune": {"data.validation_share": (0.1, 0.2)}},
            "data.validation_share cannot be tuned: a grid's runs",
        ),
        ({"tune": {"loss.name": ("mse",)}}, "loss.name is not a field of one number"),
        (
            {"losses": ["softmax", "softmax@cnn"]},
            "losses=softmax@cnn: this loss takes no rank function. Use 'softmax', or",
        ),
        (
            {"losses": ["mse", "softmax"], "tune": {"loss.kappa": (1.0, 2.0)}},
            "tune=loss.kappa: no loss or interaction of this grid has it",
        ),
    ],
)
def test_a_bad_axis_is_refused_before_anything_runs(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        grid(tmp_path / "grid", **changes)
    assert not (tmp_path / "grid").exists()


def test_cells_that_are_the_same_experiment_are_refused(tmp_path):
    ranked = config.override(base(), {"loss.rank_fn": "handcrafted"})
    axes = {"losses": ["approx_ndcg", "approx_ndcg@handcrafted"], "interactions": ["dot"], "seeds": [0]}
    with pytest.raises(ValueError, match="approx_ndcg@handcrafted-dot: the grid has this cell twice"):
        sweep.run_grid(ranked, str(tmp_path / "grid"), **axes)
    assert not (tmp_path / "grid").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss.name": "mse"}, "config.loss.name: --losses of the grid sets this field"),
        ({"interaction.name": "dot"}, "config.interaction.name: --interactions of the grid sets"),
        ({"seed": 3}, "config.seed: --seed of the grid sets"),
        ({RATE: 0.1}, f"config.{RATE}: --tune of the grid sets"),
        ({"loss.kappa": 3.0}, "config.loss.kappa: no loss or interaction of this grid has it"),
        ({"interaction.units": 8}, "config.interaction.units: no loss or interaction of this grid has it"),
        ({"loss.rank_fn": "cnn"}, "config.loss.rank_fn: no loss or interaction of this grid has it"),
    ],
)
def test_a_field_of_the_command_line_without_effect_is_refused(changes, message):
    axes = {"losses": ["softmax", "mse"], "interactions": ["dot"], "tune": {RATE: (0.1, 0.2)}}
    with pytest.raises(ValueError, match=message):
        sweep.check_overrides(changes, config.override(base(), changes), **axes)


def test_a_field_of_the_command_line_may_apply_to_some_cells():
    changes = {"loss.temperature": 0.5, "loss.rank_fn": "cnn", "epochs": 2.0, "interaction.units": 8}
    axes = {"losses": ["approx_ndcg", "mse"], "interactions": ["dot", "lc_mlp"], "tune": {}}
    sweep.check_overrides(changes, config.override(base(), changes), **axes)


def test_knobs_of_a_frozen_encoder_cannot_be_tuned(tmp_path):
    frozen = config.override(base(), {"encoder.frozen": True})
    axes = {"losses": ["mse"], "interactions": ["dot"], "seeds": [0]}
    with pytest.raises(ValueError, match="encoder.dropout cannot be tuned: the encoder is frozen"):
        sweep.run_grid(frozen, str(tmp_path / "grid"), **axes, tune={"encoder.dropout": (0.1, 0.2)})


def test_a_bad_cell_is_refused_before_anything_runs(tmp_path):
    with pytest.raises(ValueError, match="unknown loss 'softmx'"):
        grid(tmp_path / "grid", losses=["softmax", "softmx"])
    assert not (tmp_path / "grid").exists()
