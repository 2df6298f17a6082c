import contextlib
import io
import itertools
import re

import pytest

from rank4class.pipelines import config, sweep
from rank4class.pipelines.configs import digits_mlp
from rank4class.pipelines.reporting import sweep_report
from rank4class.pipelines.storage.run_directory import RunDirectory
from rank4class.pipelines.training import parallel, rank_model_task, rank_training

RATE = "optimizer.learning_rate"


def base():
    return config.override(digits_mlp.get_config(), {"epochs": 1.0, "encoder.hidden": (16,)})


def grid(root, **changes):
    axes = {"losses": ["softmax", "mse"], "interactions": ["dot", "lc_mlp"], "seeds": [0, 1]}
    return sweep.run_grid(base(), str(root), **{**axes, **changes})


@pytest.fixture(scope="module", autouse=True)
def _without_plots():
    """Omits the plots of each run, which take a third of its time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rank_model_task.RankModelTask, "pictures", lambda *_: {})
        yield


@pytest.mark.nightly
def test_run_grid(tmp_path, capsys):
    runs = grid(tmp_path, seeds=[1], tune={RATE: (0.02,)})
    assert len(runs) == 4
    printed = capsys.readouterr().out
    assert "[  4/4] mse-lc_mlp-seed1: test top1_error" in printed
    sweep_report.write_grid(runs, str(tmp_path))
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert text.count("| softmax |") == 4  # for each interaction, a row of metrics and one of the training
    assert "1,078 training, 359 validation, 360 test" in text
    for name in ("metrics.png", "curves.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    # A field with a single value is set without tuning.
    assert [run.experiment.optimizer.learning_rate for run in runs] == [0.02] * 4
    assert not (tmp_path / "tuning").exists()
    assert "value tried" not in printed
    assert [row[-1] for row in sweep_report.training_table(runs, str(tmp_path), (RATE,))[1:]] == ["-"] * 4


@pytest.mark.nightly
def test_learning_rates_are_selected_on_the_validation_split(tmp_path, capsys):
    axes = {"losses": ["mse"], "interactions": ["dot"], "seeds": [0]}
    tune = {RATE: (1e30, 1e-6, 1e-2)}
    runs = grid(tmp_path / "a", **axes, tune=tune)
    assert [run.experiment.optimizer.learning_rate for run in runs] == [1e-2]
    printed = capsys.readouterr().out
    assert (
        f"[  1/4] tuning/mse-dot-{RATE}=1e+30: loss 'mse' is" in printed
    )  # diverging rates are not selected
    values = {}
    for number, rate in ((2, 1e-6), (3, 1e-2)):
        results = RunDirectory(str(tmp_path / "a" / "tuning" / f"mse-dot-{RATE}={rate}")).results()
        values[rate] = f"{results['validation']['ndcg@5']:.2f}"
        assert f"[  {number}/4] tuning/mse-dot-{RATE}={rate}: validation top1_error" in printed
        assert f"ndcg@5 {values[rate]}%" in printed
    assert float(values[1e-2]) > float(values[1e-6])
    assert len(list((tmp_path / "a" / "tuning").iterdir())) == 3
    assert "value tried" not in printed  # the best is not at a boundary
    header, row = sweep_report.training_table(runs, str(tmp_path / "a"), (RATE,))
    assert header[2] == RATE
    assert row == ["mse", "dot", "0.01", "1.01", "1.01", f"1e-06: {values[1e-6]}, 0.01: {values[1e-2]}"]
    with pytest.raises(FloatingPointError, match=f"mse-dot diverges with all values of {RATE}"):
        grid(tmp_path / "b", **axes, tune={RATE: (1e30, 1e29)})


def test_warning_at_the_search_boundary():
    chosen = config.override(base(), {RATE: 0.01, "encoder.dropout": 0.0})
    for rates, end in (
        ((0.001, 0.01), "highest value tried; try higher"),
        ((0.1, 0.01), "lowest value tried; try lower"),
    ):
        notes = sweep_report.boundary_notes(
            chosen, {RATE: rates, "encoder.dropout": (0.0, 0.9)}
        )  # 0 is the lowest possible value
        assert notes == [f"{RATE}=0.01 is the {end} values"]
    assert sweep_report.boundary_notes(chosen, {RATE: (0.001, 0.01, 0.1)}) == []
    assert sweep_report.boundary_notes(chosen, {RATE: (0.01,)}) == []


# Softmax hardly learns at the second temperature; mse has no temperature.
TUNE = {"encoder.dropout": (0.0, 0.9), "loss.temperature": (1.0, 1e7)}


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """Runs a grid that tunes two fields with one seed, then with two.

    Returns:
      Its folder, the runs, what the second call printed, and path -> time of the results after the first.
    """
    root = tmp_path_factory.mktemp("tuned")
    axes = {"losses": ["softmax", "mse"], "interactions": ["dot"], "tune": TUNE}
    with contextlib.redirect_stdout(io.StringIO()):
        grid(root, seeds=[0], **axes)
    times = {path: path.stat().st_mtime_ns for path in root.rglob("results.json")}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        runs = grid(root, seeds=[0, 1], **axes)
    return root, runs, printed.getvalue(), times


@pytest.mark.nightly
def test_finished_runs_are_not_repeated(tuned):
    root, runs, printed, times = tuned
    assert len(times) == 6 + 2
    assert {path: path.stat().st_mtime_ns for path in times} == times
    assert len(list(root.rglob("results.json"))) == 6 + 4
    assert [run.experiment.seed for run in runs] == [0, 1, 0, 1]
    assert "[ 10/10] mse-dot-seed1: test top1_error" in printed


@pytest.mark.nightly
def test_several_fields_are_tuned_together(tuned):
    root, runs, printed, _ = tuned
    values = {}
    for dropout, temperature in itertools.product(*TUNE.values()):
        name = f"softmax-dot-encoder.dropout={dropout},loss.temperature={temperature}"
        run = RunDirectory(str(root / "tuning" / name))
        experiment = run.experiment()
        assert (experiment.encoder.dropout, experiment.loss.temperature) == (dropout, temperature)
        assert experiment.seed == 0
        values[dropout, temperature] = run.results()["validation"]["ndcg@5"]
    assert len(set(values.values())) == 4  # each value has an effect
    assert max(values, key=values.get) == (0.0, 1.0)
    for run in runs[:2]:
        assert (run.experiment.encoder.dropout, run.experiment.loss.temperature) == (0.0, 1.0)
    note = "softmax-dot: loss.temperature=1 is the lowest value tried; try lower values"
    assert f"  {note}\n" in printed
    assert "encoder.dropout=0 is" not in printed  # 0 is the lowest possible value
    header, row, _ = sweep_report.training_table(runs, str(root), tuple(TUNE))
    assert header[2:4] == list(TUNE)
    assert row[2:4] == ["0", "1"]
    assert row[-1].startswith(f"0 1: {values[0.0, 1.0]:.2f}, 0 1e+07: ")
    sweep_report.write_grid(runs, str(root), TUNE)
    text = (root / "report.md").read_text(encoding="utf-8")
    assert f"- Tuned on the first seed alone (0): encoder.dropout, loss.temperature.\n- {note}.\n" in text


@pytest.mark.nightly
def test_fields_that_a_loss_lacks_are_not_tuned(tuned):
    root, runs, _, _ = tuned
    assert len(list((root / "tuning").glob("mse-dot-*"))) == 2  # one for each dropout
    rows = sweep_report.training_table(runs, str(root), tuple(TUNE))[1:]
    assert [row[3] for row in rows] == ["1", "-"]
    sweep_report.write_grid(runs, str(root), TUNE)
    text = (root / "report.md").read_text(encoding="utf-8")
    assert "\n- mse-dot has no loss.temperature: ignored.\n" in text
    assert "softmax-dot has no" not in text


@pytest.mark.nightly
def test_tuned_runs_equal_runs_of_train(tuned, tmp_path):
    _, runs, _, _ = tuned
    rank_training.train(runs[3].experiment, str(tmp_path / "alone"), progress=False)
    assert RunDirectory(str(tmp_path / "alone")).history() == RunDirectory(runs[3].path).history()


@pytest.mark.nightly
@pytest.mark.parametrize("rates", [(0.01, 0.02), (0.02,)])
def test_jobs_do_not_change_results(tmp_path, capsys, rates):
    one, two = (
        grid(tmp_path / str(jobs), interactions=["dot"], tune={RATE: rates}, jobs=jobs) for jobs in (1, 2)
    )
    assert [(run.experiment, run.results, run.ignored) for run in one] == [
        (run.experiment, run.results, run.ignored) for run in two
    ]
    for run, other in zip(one, two, strict=True):
        assert RunDirectory(run.path).history() == RunDirectory(other.path).history()
    numbers = [line[:8] for line in capsys.readouterr().out.splitlines() if line.startswith("[")]
    total = 4 + (4 if len(rates) > 1 else 0)
    assert numbers == [f"[{number:3d}/{total}] " for number in range(1, total + 1)] * 2


@pytest.mark.nightly
def test_a_run_that_diverges_stops_the_grid(tmp_path, capsys):
    with pytest.raises(FloatingPointError, match="loss 'mse' is .* at step 2, learning rate 9"):
        grid(tmp_path, losses=["mse"], interactions=["dot"], tune={RATE: (1e30,)}, jobs=2)
    assert re.search(r"\[  1/2\] mse-dot-seed[01]: loss 'mse' is", capsys.readouterr().out)


@pytest.fixture
def trained_by(monkeypatch):
    """Returns a function that runs a grid without training; it returns the jobs and the folders in order.

    The results are those of a function of the experiment.
    """

    def run(root, value_of, **axes):
        started = []

        def train_all(base, cache_dir, waiting, jobs):
            started.append(jobs)
            running = []
            while waiting or running:
                while waiting and len(running) < jobs:
                    running.append(waiting.pop(0))
                    started.append(running[-1].folder)
                run = running.pop(0)
                yield run, {split: {"ndcg@5": value_of(run.experiment)} for split in ("validation", "test")}

        monkeypatch.setattr(parallel, "train_all", train_all)
        grid(root, **axes)
        return started[0], started[1:]

    return run


def test_final_runs_start_when_their_cell_is_tuned(tmp_path, trained_by):
    axes = {"interactions": ["dot"], "seeds": [0], "tune": {RATE: (0.1, 0.2)}}
    jobs, folders = trained_by(
        tmp_path, lambda experiment: experiment.optimizer.learning_rate, jobs=2, **axes
    )
    assert jobs == 2
    softmax = [f"tuning/softmax-dot-{RATE}={rate}" for rate in (0.1, 0.2)]
    mse = [f"tuning/mse-dot-{RATE}={rate}" for rate in (0.1, 0.2)]
    assert folders == [*softmax, mse[0], "softmax-dot-seed0", mse[1], "mse-dot-seed0"]
    # One job finishes each cell before the next one.
    _, folders = trained_by(tmp_path, lambda _: 1.0, jobs=1, **axes)
    assert folders == [*softmax, "softmax-dot-seed0", *mse, "mse-dot-seed0"]


def test_no_more_processes_than_runs(tmp_path, trained_by):
    jobs, folders = trained_by(tmp_path, lambda _: 1.0, jobs=100)
    assert jobs == len(folders) == 8


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "optimizer.learning_rte=1",
            "optimizer 'adam' has no such option. Did you mean 'learning_rate'?",
        ),
        ("optimizer.learning_rate=0.1,x", "optimizer.learning_rate='x': not a number. Write a number."),
        ("optimizer.learning_rate=0.1,", "optimizer.learning_rate='': not a number. Write a number."),
        ("batch_size=8.5", "batch_size='8.5': not an integer. Write an integer."),
        ("loss.name=mse", "loss.name: not a field of one number. Choose another field."),
        ("encoder.hidden=8", "encoder.hidden: not a field of one number."),
        ("jit_compile=1", "jit_compile: not a field of one number."),
        ("batch_size", "no values. Write --tune=FIELD=VALUE,VALUE."),
        ("epochs=3", "epochs has values already. Give all of them in one --tune."),
    ],
)
def test_fields_that_cannot_be_tuned(text, message):
    with pytest.raises(ValueError, match=re.escape(f"tune={text!r}: ") + ".*" + re.escape(message)):
        sweep.parse_tune(["epochs=1", text], base(), ["softmax", "mse"], ["dot"])


def test_types_of_tuned_fields():
    texts = ["loss.k=1,2", "loss.kappa=1"]
    tune = sweep.parse_tune(texts, base(), ["mse", "rankmax", "rescaled_mse"], ["dot"])
    assert tune == {"loss.k": (1, 2), "loss.kappa": (1.0,)}
    assert isinstance(tune["loss.k"][0], int)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seeds": [0, 1, 0]}, r"seeds=0: repeated, so its runs would count twice\. Remove one\."),
        ({"losses": ["mse", "mse"]}, r"losses='mse': repeated, so its runs would count twice\. Remove one\."),
        ({"jobs": 0}, r"jobs=0: not positive\. Choose a positive number\."),
        ({"losses": []}, r"losses=\(\): a grid needs at least one\. Add one\."),
        ({"seeds": [0, -1]}, r"seed=-1: not in 0\.\.2\*\*32 - 1\. Choose another seed\."),
        (
            {"tune": {RATE: (0.1, -0.1)}},
            r"optimizer\.learning_rate=-0\.1: not positive\. Choose a positive number\.",
        ),
        (
            {"tune": {RATE: (0.1, 0.2, 0.1)}},
            r"values of optimizer\.learning_rate=0\.1: repeated, so its runs would count twice\. Remove",
        ),
        (
            {"tune": {"seed": (0, 1)}},
            r"tune=seed: the seeds show the variation by chance\. Choose another field\.",
        ),
        (
            {"tune": {"data.max_examples": (10, 20)}},
            "all runs of a grid share the data",
        ),
        (
            {"tune": {"loss.name": ("mse",)}},
            r"loss\.name: not a field of one number\. Choose another field\.",
        ),
        (
            {"losses": ["softmax", "softmax@cnn"]},
            "losses=softmax@cnn: this loss takes no rank function. Use 'softmax', or",
        ),
        (
            {"losses": ["mse", "softmax"], "tune": {"loss.kappa": (1.0, 2.0)}},
            "loss.kappa: loss 'softmax' has no such option. Choose an entry that has it with",
        ),
    ],
)
def test_invalid_axes_are_refused_before_training(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        grid(tmp_path / "grid", **changes)
    assert not (tmp_path / "grid").exists()


def test_equal_experiments_are_refused(tmp_path):
    ranked = config.override(base(), {"loss.name": "approx_ndcg", "loss.rank_fn": "handcrafted"})
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
def test_overrides_without_effect_are_refused(changes, message):
    axes = {"losses": ["softmax", "mse"], "interactions": ["dot"], "tune": {RATE: (0.1, 0.2)}}
    with pytest.raises(ValueError, match=message):
        sweep.check_overrides(changes, base(), **axes)


def test_overrides_apply_to_cells_that_have_the_field():
    parts = {"loss.name": "approx_ndcg", "interaction.name": "lc_mlp"}
    changes = {"loss.temperature": 0.5, "loss.rank_fn": "cnn", "epochs": 2.0, "interaction.units": 8}
    changed = config.override(base(), {**parts, **changes})
    axes = {"losses": ["approx_ndcg", "mse"], "interactions": ["dot", "lc_mlp"]}
    sweep.check_overrides(changes, changed, **axes, tune={})
    cells = sweep.build_cells(changed, **axes)
    assert [getattr(cell.loss, "temperature", None) for cell in cells] == [0.5, 0.5, None, None]
    assert [getattr(cell.interaction, "units", None) for cell in cells] == [None, 8, None, 8]
    assert sweep.ignored(changed, cells[2]) == ("loss.temperature", "loss.rank_fn", "interaction.units")
    assert sweep.ignored(changed, cells[1]) == ()


def test_options_of_a_frozen_encoder_cannot_be_tuned(tmp_path):
    frozen = config.override(base(), {"encoder.name": "bert", "encoder.frozen": True})
    axes = {"losses": ["mse"], "interactions": ["dot"], "seeds": [0]}
    with pytest.raises(ValueError, match="tune=encoder.dropout: all runs of a grid share a frozen encoder"):
        sweep.run_grid(frozen, str(tmp_path / "grid"), **axes, tune={"encoder.dropout": (0.1, 0.2)})


def test_invalid_cells_are_refused_before_training(tmp_path):
    with pytest.raises(ValueError, match="loss='softmx': unknown"):
        grid(tmp_path / "grid", losses=["softmax", "softmx"])
    assert not (tmp_path / "grid").exists()
