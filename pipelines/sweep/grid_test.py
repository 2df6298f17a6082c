import concurrent.futures
import contextlib
import io
import itertools
import os
import re

import pytest
import tensorflow as tf

from rank4class.pipelines import config
from rank4class.pipelines.configs import digits_mlp
from rank4class.pipelines.evaluation import trained_model
from rank4class.pipelines.storage import files
from rank4class.pipelines.storage.run_directory import RunDirectory, TrainingDirectory, write_json
from rank4class.pipelines.sweep import grid, parallel, report, space
from rank4class.pipelines.training import rank_training

RATE = "optimizer.learning_rate"


def base():
    return config.override(digits_mlp.get_config(), {"epochs": 1.0, "encoder.hidden": (16,)})


def run_small(root, fields=(), **changes):
    axes = {"losses": ["softmax", "mse"], "interactions": ["dot", "lc_mlp"], "seeds": [0, 1]}
    return grid.run_grid(config.override(base(), dict(fields)), root, **{**axes, **changes})


@pytest.mark.nightly
def test_a_grid_in_object_storage(tmp_path, capsys):
    root = f"ram://{tmp_path.name}"
    runs = run_small(root, interactions=["dot"], seeds=[1], tune={RATE: (0.02,)})
    assert len(runs) == 2
    assert "[  2/2] mse-dot-seed1: test top1_error" in capsys.readouterr().out
    assert trained_model.restore(runs[0].path).model.count_params() > 0
    report.write_grid(runs, root, baseline=report.BASELINE)
    assert "1,078 training, 359 validation, 360 test" in files.read_text(f"{root}/report.md")
    for name in ("differences.png", "curves.png"):
        assert files.read_bytes(f"{root}/{name}").startswith(b"\x89PNG")
    events = [
        folder for folder, _, names in tf.io.gfile.walk(root) if any("events" in name for name in names)
    ]
    assert len(events) == 2  # TensorBoard lists no other run
    # A field with a single value is set without tuning.
    assert [run.experiment.optimizer.learning_rate for run in runs] == [0.02] * 2
    assert not files.exists(f"{root}/tuning")
    assert report.read_search(root) is None
    assert report.training_table(report.cells(runs), (RATE,))[1][:5] == [
        "softmax",
        "dot",
        "0.02",
        "1.01",
        "1.01",
    ]


# Softmax hardly learns at the second temperature; mse has no temperature.
TUNE = {"encoder.dropout": (0.0, 0.9), "loss.temperature": (1.0, 1e7)}


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """Runs a grid that tunes two fields with one seed, then with two.

    Returns:
      Its folder, the runs, the output of the second call, and path -> time of the results after the first.
    """
    root = tmp_path_factory.mktemp("tuned")
    axes = {"interactions": ["dot"], "tune": TUNE, "tuning_seeds": 1}
    with contextlib.redirect_stdout(io.StringIO()):
        run_small(root, seeds=[0], **axes)
    times = {path: path.stat().st_mtime_ns for path in root.rglob("results.json")}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        runs = run_small(root, seeds=[0, 1], **axes)
    return root, runs, printed.getvalue(), times


@pytest.mark.nightly
def test_finished_runs_are_not_repeated(tuned):
    root, runs, printed, times = tuned
    assert len(times) == 6 + 2
    assert {path: path.stat().st_mtime_ns for path in times} == times
    assert len(list(root.rglob("results.json"))) == 6 + 4
    assert [run.experiment.seed for run in runs] == [0, 1, 0, 1]
    assert "[  4/4] mse-dot-seed1: test top1_error" in printed


@pytest.mark.nightly
def test_several_fields_are_tuned_together(tuned):
    root, runs, printed, _ = tuned
    values = {}
    for dropout, temperature in itertools.product(*TUNE.values()):
        name = f"softmax-dot-encoder.dropout={dropout},loss.temperature={temperature}-seed10000"
        run = RunDirectory(root / "tuning" / name)
        experiment = run.experiment()
        assert (experiment.encoder.dropout, experiment.loss.temperature) == (dropout, temperature)
        assert experiment.seed == 10_000
        values[dropout, temperature] = run.results()["validation"]["ndcg@5"]
    assert len(set(values.values())) == 4  # each value has an effect
    assert max(values, key=values.get) == (0.0, 1.0)
    for run in runs[:2]:
        assert (run.experiment.encoder.dropout, run.experiment.loss.temperature) == (0.0, 1.0)
    note = "softmax-dot: loss.temperature=1 is at the low end of the values tried: try values beyond it"
    assert f"  {note}\n" in printed
    assert "encoder.dropout=0 is" not in printed  # 0 is the lowest possible value
    assert len(list((root / "tuning").glob("mse-dot-*"))) == 2  # one for each dropout
    report.write_grid(runs, str(root))
    text = (root / "report.md").read_text(encoding="utf-8")
    assert f"- encoder.dropout: 0, 0.9\n- loss.temperature: 1, 1e+07\n- {note}.\n" in text
    assert "\n- mse-dot has no loss.temperature: ignored.\n" in text
    assert "softmax-dot has no" not in text


@pytest.mark.nightly
def test_a_run_that_diverges_stops_the_grid(tmp_path, capsys):
    with pytest.raises(FloatingPointError, match="loss='mse': .* at step 2, learning rate 9"):
        run_small(tmp_path, losses=["mse"], interactions=["dot"], tune={RATE: (1e30,)})
    assert re.search(r"\[  1/2.*\] mse-dot-seed0: loss='mse': ", capsys.readouterr().out)


@pytest.fixture
def trained_by(monkeypatch):
    """Returns a function that runs a grid without training; it returns the folders in order.

    The results are those of a function of the experiment, and so are the data.
    """

    def run(root, value_of, data_of=lambda _: "data", **axes):
        started = []

        def train(sweep, cache_dir, text, parts, path, draw, environment):
            experiment = config.from_json(text, "experiment")
            started.append(os.path.relpath(path, root))
            os.makedirs(path)
            write_json(os.path.join(path, "data.json"), {"test": data_of(experiment)})
            return {split: {"ndcg@5": value_of(experiment)} for split in ("validation", "test")}

        monkeypatch.setattr(parallel, "_train", train)
        run_small(root, **axes)
        return started

    return run


def test_final_runs_have_seeds_that_the_search_has_not_seen(tmp_path, trained_by):
    axes = {"interactions": ["dot"], "seeds": [0, 1], "tune": {RATE: (0.1, 0.2)}}
    started = trained_by(tmp_path, lambda experiment: experiment.optimizer.learning_rate, **axes)
    searched = [
        f"tuning/{loss}-dot-{RATE}={rate}-seed{seed}"
        for loss in ("softmax", "mse")
        for rate in (0.1, 0.2)
        for seed in (10_000, 10_001, 10_002)
    ]
    final = [f"{loss}-dot-seed{seed}" for loss in ("softmax", "mse") for seed in (0, 1)]
    assert started == [*searched, *final]


def test_each_value_of_a_varied_field_is_a_cell(tmp_path, trained_by):
    vary = {"loss.temperature": (1.0, 0.5)}
    axes = {"interactions": ["dot"], "seeds": [0], "vary": vary, "tune": {RATE: (0.1, 0.2)}}
    started = trained_by(tmp_path, lambda one: one.optimizer.learning_rate, tuning_seeds=1, **axes)
    names = ["softmax-dot-1", "softmax-dot-0.5", "mse-dot--"]  # mse has no temperature
    searched = [f"tuning/{name}-{RATE}={rate}-seed10000" for name in names for rate in (0.1, 0.2)]
    assert started == [*searched, *(f"{name}-seed0" for name in names)]
    cells = grid.build_cells(base(), ["softmax", "mse"], ["dot"], vary)
    assert [getattr(cell.loss, "temperature", None) for cell in cells] == [1.0, 0.5, None]


def test_any_executor_trains_the_runs(tmp_path, trained_by):
    axes = {"losses": ["approx_ndcg", "approx_ndcg@equivariant"], "interactions": ["dot"], "seeds": [0]}
    with concurrent.futures.ThreadPoolExecutor(2) as executor:
        started = trained_by(tmp_path, lambda _: 1.0, jobs=2, executor=executor, **axes)
    assert sorted(started) == ["approx_ndcg-dot-seed0", "approx_ndcg@equivariant-dot-seed0"]
    cells = grid.build_cells(base(), axes["losses"], ["dot"], {})
    assert [cell.loss.rank_fn for cell in cells] == [None, "equivariant"]
    assert parallel.cell_of(cells[1]) == {"loss": "approx_ndcg@equivariant", "interaction": "dot"}


def test_a_grid_without_a_search_has_none_of_an_earlier_one(tmp_path, trained_by):
    axes = {"interactions": ["dot"], "seeds": [0]}
    trained_by(tmp_path, lambda _: 1.0, tune={RATE: (0.1, 0.2)}, **axes)
    assert report.read_search(tmp_path) is not None
    trained_by(tmp_path, lambda _: 1.0, tune={RATE: (0.1,)}, **{**axes, "seeds": [1]})
    assert report.read_search(tmp_path) is None


@pytest.mark.parametrize("first_changed", [10_001, 0])
def test_data_that_change_during_a_grid_are_refused(tmp_path, trained_by, first_changed):
    """They change after the first run of the search, or after its last one."""
    axes = {"losses": ["mse"], "interactions": ["dot"], "seeds": [0], "tune": {RATE: (0.1, 0.2)}}

    def data_of(experiment):
        return "other data" if experiment.seed in (0, first_changed) else "data"

    with pytest.raises(ValueError, match=f"-seed{first_changed}: trained on other data than .*-seed10000."):
        trained_by(tmp_path, lambda _: 1.0, data_of=data_of, **axes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("optimizer.learning_rte=1", "optimizer 'adam' has no such option. Did you mean 'learning_rate'?"),
        ("optimizer.learning_rate=0.1,x", "optimizer.learning_rate='x': not a number. Write a number."),
        ("encoder.hidden=8", "encoder.hidden: holds several values. Choose another field."),
        ("batch_size=8:8", "batch_size='8:8': an empty range. Write LOW:HIGH with LOW below HIGH."),
        ("batch_size", "no values. Write --tune=FIELD=VALUE,VALUE."),
        ("epochs=3", "epochs has values already. Give all in one --tune."),
    ],
)
def test_fields_that_cannot_be_tuned(text, message):
    with pytest.raises(ValueError, match=re.escape(f"tune={text!r}: ") + ".*" + re.escape(message)):
        grid.parse_values("tune", ["epochs=1", text], base(), ["softmax", "mse"], ["dot"])


def test_types_of_tuned_fields():
    texts = ["loss.k=1,2", "loss.kappa=1", "optimizer.weight_decay=0:0.1", "optimizer.name=adam,adamw"]
    tune = grid.parse_values("tune", texts, base(), ["mse", "rankmax", "rescaled_mse"], ["dot"])
    assert tune == {
        "loss.k": (1, 2),
        "loss.kappa": (1.0,),
        "optimizer.weight_decay": space.Range(0.0, 0.1),  # of AdamW
        "optimizer.name": ("adam", "adamw"),
    }
    assert isinstance(tune["loss.k"][0], int)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seeds": [0, 1, 0]}, "seeds=0: repeated, so its runs would count twice. Remove one."),
        ({"jobs": 0}, "jobs=0: not positive. Choose a positive number."),
        ({"losses": []}, r"losses=\(\): a grid needs at least one. Add one."),
        (
            {"tune": {"loss.rank_fn": ("cnn",)}, "losses": ["approx_ndcg"]},
            "tune=loss.rank_fn: --losses=LOSS@",
        ),
        (
            {"tune": {RATE: space.Range(-0.1, 1.0)}, "trials": 3},
            "optimizer.learning_rate=-0.1: not positive. Choose a positive number.",
        ),
        (
            {
                "fields": {"loss.name": "approx_ndcg", "loss.rank_fn": "handcrafted"},
                "losses": ["approx_ndcg", "approx_ndcg@handcrafted"],
            },
            "cells='approx_ndcg@handcrafted-dot': repeated",
        ),
        ({"seeds": [0, 10_002], "tune": {RATE: (0.1, 0.2)}}, "seed=10002: .* seeds 10000 to 10002. Ch"),
        ({"losses": ["softmax", "softmax@cnn"]}, "loss.rank_fn: loss 'softmax' has no such option."),
        ({"tune": {RATE: (0.1, -0.1)}}, "optimizer.learning_rate=-0.1: not positive. Choose a positive"),
        ({"tune": {RATE: (0.1, 0.2, 0.1)}}, "values of optimizer.learning_rate=0.1: repeated, so its runs"),
        ({"tune": {"seed": (0, 1)}}, "tune=seed: the seeds show the variation by chance. Choose another"),
        ({"tune": {"loss.name": ("mse",)}}, "tune=loss.name: --losses of the grid sets this field. Choose"),
        ({"trials": 3}, "trials=3: nothing is tuned. Add --tune, or leave it out."),
        ({"tune": {RATE: space.Range(0.1, 1.0)}}, "learning_rate=0.1:1: a range needs .* --trials=N, or"),
        ({"tune": {"data.max_examples": (10, 20)}}, "all runs of a grid share the data"),
        ({"tune": {"monitor": ("ndcg@5",)}}, "tune=monitor: different metrics cannot be compared. Choose"),
        ({"vary": {"loss.temperatur": (1.0,)}}, "Did you mean 'temperature'"),
        ({"vary": {RATE: space.Range(0.1, 0.2)}}, "vary=optimizer.learning_rate=0.1:0.2: a range .* List"),
        ({"vary": {RATE: (0.1, 0.2)}, "tune": {RATE: (0.1,)}}, "tune=optimizer.learning_rate: --vary sets"),
    ],
)
def test_invalid_axes_are_refused_before_training(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        run_small(tmp_path / "grid", **changes)
    assert not (tmp_path / "grid").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss.name": "mse"}, "config.loss.name: --losses of the grid sets this field"),
        ({"interaction.name": "dot"}, "config.interaction.name: --interactions of the grid sets"),
        ({"seed": 3}, "config.seed: --seed of the grid sets"),
        ({RATE: 0.1}, f"config.{RATE}: --tune of the grid sets"),
        ({"steps": 3}, "config.steps: --tune sets epochs. Leave one of the two out"),
        ({"loss.kappa": 3.0}, "config.loss.kappa: no loss or interaction of this grid has it"),
        ({"interaction.units": 8}, "config.interaction.units: no loss or interaction of this grid has it"),
        ({"loss.rank_fn": "cnn"}, "config.loss.rank_fn: no loss or interaction of this grid has it"),
    ],
)
def test_overrides_without_effect_are_refused(changes, message):
    axes = {
        "losses": ["softmax", "mse"],
        "interactions": ["dot"],
        "tune": {RATE: (0.1, 0.2), "epochs": (1, 2)},
    }
    with pytest.raises(ValueError, match=message):
        grid.check_overrides(changes, base(), **axes)
    axes["losses"], softmax = ["softmax", "approx_ndcg"], config.override(base(), {"loss.name": "softmax"})
    with pytest.raises(ValueError, match="config.loss.temperature=1.0: the default of one part, which does"):
        grid.check_overrides({"loss.temperature": 1.0}, softmax, **axes)


def test_overrides_apply_to_cells_that_have_the_field():
    parts = {"loss.name": "approx_ndcg", "interaction.name": "lc_mlp"}
    changes = {"loss.temperature": 0.5, "loss.rank_fn": "cnn", "epochs": 2.0, "interaction.units": 8}
    changed = config.override(base(), {**parts, **changes})
    axes = {"losses": ["approx_ndcg", "mse"], "interactions": ["dot", "lc_mlp"]}
    grid.check_overrides(changes, changed, **axes, tune={})
    cells = grid.build_cells(changed, **axes)
    assert [getattr(cell.loss, "temperature", None) for cell in cells] == [0.5, 0.5, None, None]
    assert [getattr(cell.interaction, "units", None) for cell in cells] == [None, 8, None, 8]
    assert set(grid.ignored(changed, cells[2])) == {"loss.temperature", "loss.rank_fn", "interaction.units"}
    assert grid.ignored(changed, cells[1]) == ()
    decayed = config.override(base(), {"optimizer.name": "adamw", "optimizer.weight_decay": 0.1})
    assert grid.ignored(decayed, config.override(decayed, {"optimizer.name": "adam"})) == (
        "optimizer.weight_decay",
    )


def test_a_run_folder_of_an_earlier_choice_is_named(tmp_path, trained_by):
    diverging = config.override(base(), {"loss.name": "mse", "seed": 0, RATE: 5.0})
    run = TrainingDirectory(tmp_path / "mse-dot-seed0", diverging)
    run.claim({})
    run.unlock()
    axes = {"losses": ["mse"], "interactions": ["dot"], "seeds": [0], "tuning_seeds": 1}
    with pytest.raises(ValueError, match=r"holds another experiment .* Or remove .*mse-dot-seed0, to train"):
        trained_by(tmp_path, lambda one: -one.optimizer.learning_rate, tune={RATE: (1, 2)}, **axes)


@pytest.mark.nightly
def test_tuned_runs_equal_runs_of_train_and_depend_on_the_seed(tuned, tmp_path):
    _, runs, _, _ = tuned
    rank_training.train(runs[3].experiment, tmp_path / "alone", progress=False)
    other_seed, same = (RunDirectory(run.path).history() for run in runs[2:])
    assert RunDirectory(tmp_path / "alone").history() == same != other_seed
