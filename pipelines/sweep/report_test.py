import dataclasses
import json

import numpy as np
import pytest
import scipy.stats

from rank4class.pipelines import config
from rank4class.pipelines.evaluation import evaluator
from rank4class.pipelines.reporting import tables
from rank4class.pipelines.storage import files
from rank4class.pipelines.storage.run_directory import RunDirectory
from rank4class.pipelines.sweep import grid_summary, grid_tables, plots, report
from rank4class.pipelines.sweep.parallel import GridRun


def run(loss, seed, top1, ndcg):
    summary = {
        "top1_error": top1,
        "ndcg@5": ndcg,
        "examples": 1200,
        "intervals": {"top1_error": [top1 - 1, top1 + 1], "ndcg@5": [ndcg - 2, ndcg + 2]},
    }
    experiment = config.override(config.Experiment(), {"loss.name": loss, "seed": seed})
    return GridRun(experiment, "nowhere", results={"validation": summary, "test": summary})


def test_a_runs_table_by_hand():
    expected = """\
metric          validation (1,200 examples)  test (1,200 examples)
--------------  ---------------------------  ---------------------
top1_error (%)  3.25  [2.25, 4.25]           3.25  [2.25, 4.25]
ndcg@5 (%)      90.00  [88.00, 92.00]        90.00  [88.00, 92.00]"""
    assert tables.results_table(run("mse", 0, 3.25, 90.0).results) == expected
    one = run("mse", 0, 3.25, 90.0).results["test"]
    one["intervals"]["top1_error"] = None
    assert tables.results_table({"train": one}).startswith("metric          train")
    assert "3.25  no interval" in tables.results_table({"train": one})


def stored(folder, loss, seed, errors):
    """Returns a run with a folder whose test examples have these errors."""
    values_of = {"top1_error": np.array(errors, np.float32), "mean_rank": 1.0 + np.array(errors, np.float32)}
    matrix = np.stack(list(values_of.values()), axis=1)
    summary = evaluator.summarize(matrix, list(values_of))
    path = folder / f"{loss}-{seed}"
    path.mkdir()
    run_dir = RunDirectory(path)
    run_dir.write_test_values(values_of, matrix)
    session = {"command": ["python3", "-m", "a b"], "git": "5eed"}
    differing = (("2026-01-01", 1.25, "two", "1"), ("2026-01-02", 2.0, "one", "2"))
    run_dir.write_sessions(
        [
            session | {"started": start, "seconds": seconds, "host": host, "packages": {"numpy": numpy}}
            for start, seconds, host, numpy in differing
        ]
    )
    fields = {"loss.name": loss, "seed": seed, "monitor": "top1_error"}
    results = {"validation": summary, "test": summary, "train_examples": 64, "best_step": 2, "steps": 4}
    return GridRun(config.override(config.Experiment(), fields), str(path), results=results)


def stored_grid(folder):
    return [
        stored(folder, loss, seed, [1.0] * wrong + [0.0] * (40 - wrong))
        for loss, wrongs in (("softmax", (1, 2)), ("mse", (31, 30)))
        for seed, wrong in enumerate(wrongs)
    ]


def test_a_grids_summary(tmp_path):
    runs = stored_grid(tmp_path)
    summary = report.summarize(
        report.cells(runs), {"batch_size": (32,)}, baseline=report.BASELINE, margin=2.0
    )
    cells = report.grid_cells(report.cells(runs))
    assert [cell.values["top1_error"].sum(axis=1).tolist() for cell in cells] == [[1, 2], [31, 30]]
    expected = grid_summary.summarize(cells, baseline=report.BASELINE, margin=2.0)
    for key in ("metrics", "baseline", "margin", "comparisons", "best"):
        assert summary[key] == expected[key]
    for cell, of_cells in zip(summary["cells"], expected["cells"], strict=True):
        training = {"tuned": {"batch_size": 32}, "best_epochs": [1.0, 1.0], "epochs": [2.0, 2.0]}
        assert cell == of_cells | training
    assert summary["title"] == "digits with mlp"
    assert summary["command"] == "python -m 'a b'"
    assert (summary["commits"], summary["seconds"]) == (["5eed"], 13.0)
    assert summary["packages"] == {"numpy": "1, 2"}  # of all sessions
    examples = {"train_examples": 64, "validation_examples": 40, "test_examples": 40}
    assert summary["dataset"] == {"name": "digits"} | examples
    assert (summary["encoder"], summary["monitor"]) == ("mlp", "top1_error")
    assert "calibration" not in summary


def test_a_grids_report(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(report, "_write_curves", lambda _, path: files.write(path, b"png"))
    runs = stored_grid(tmp_path)
    path = report.write_grid(runs, tmp_path, baseline=report.BASELINE)
    assert path == str(tmp_path / "report.html")
    summary = json.loads((tmp_path / "grid.json").read_text())
    assert summary == json.loads(json.dumps(report.summarize(report.cells(runs), baseline=report.BASELINE)))
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    for section in grid_tables.render(summary).split("\n\n"):
        assert section in text
    opening = f"# digits with mlp\n\n{grid_tables.verdict(summary)}\n\n"
    assert text.startswith(opening)
    undecided, plot, power, table, compare, *_ = text.removeprefix(opening).split("\n\n")
    assert plot == "![Differences from the baseline](differences.png)"
    assert (tmp_path / "differences.png").read_bytes().startswith(b"\x89PNG")
    assert power == grid_tables.power_heading(summary)
    assert table == tables.markdown_table(grid_tables.power_table(summary))
    assert undecided == grid_tables.undecided(summary) != ""
    assert undecided in " ".join(capsys.readouterr().out.split())
    assert compare == grid_tables.COMPARE
    assert "![Validation curves](curves.png)" in text
    assert "- Machine: one, two.\n- Duration: 13 seconds of training in 4 runs.\n" in text
    assert "- Seeds 0, 1; code 5eed; numpy 1, 2." in text
    assert "- Adam, batches of 32, 1 epoch at most; the best checkpoint by validation top1_error.\n" in text
    assert "[0](softmax-0), [1](softmax-1)" in text
    report.write_grid(runs[::2], str(tmp_path), baseline=report.BASELINE)
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "One seed does not show how many would decide it." in text


def test_curves_keep_the_names_of_the_losses(tmp_path, monkeypatch):
    """An evaluation has a training loss too."""
    runs = stored_grid(tmp_path)
    for run in runs:
        lines = [{"step": step, "loss": 1.5, "top1_error": 50.0, "mean_rank": 2.0} for step in (2, 4)]
        RunDirectory(run.path).write_history(lines)
    drawn = []
    plot_curves = plots.plot_curves
    monkeypatch.setattr(plots, "plot_curves", lambda *args: drawn.append(args[0]) or plot_curves(*args))
    report.write_grid(runs, str(tmp_path))
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert list(drawn[0]["loss"].unique()) == ["softmax", "mse"]
    assert list(drawn[0]["epochs"].unique()) == [1.0, 2.0]


def test_notes_on_a_tuned_field_and_the_last_command(tmp_path):
    runs = [
        dataclasses.replace(run, experiment=config.override(run.experiment, {"steps": 1500}))
        for run in stored_grid(tmp_path)
    ]
    run_dir = RunDirectory(runs[1].path)
    later = {**run_dir.sessions()[0], "command": ["python3", "-m", "c"], "started": "2026-02-01"}
    run_dir.write_sessions([*run_dir.sessions(), later])
    _, training, command, *_ = report.summarize(report.cells(runs), ("batch_size",))["notes"]
    assert training == (
        "Adam, 1,500 steps at most; the best checkpoint and values of tuned fields by validation top1_error."
    )
    assert command == "Command: `python -m c`."


def test_baselines():
    cells = [config.override(config.Experiment(), {"loss.name": loss}) for loss in ("mse", "softmax")]
    assert report.parse_baseline(None, cells) == {"loss": "softmax", "interaction": "dot"}
    assert report.parse_baseline(None, cells[:1]) is None
    assert report.parse_baseline("mse,dot", cells) == {"loss": "mse", "interaction": "dot"}
    for text in ("mse", "mse,lc_mlp", "mse,dot,0"):
        with pytest.raises(ValueError, match=f"baseline={text}: not a .* of these: mse,dot; softmax,dot"):
            report.parse_baseline(text, cells)
    cells = [config.override(cells[1], {"loss.temperature": value}) for value in (1.0, 0.5)]
    for text, value in ((None, "1"), ("softmax,dot,0.5", "0.5")):
        expected = {"loss": "softmax", "interaction": "dot", "loss.temperature": value}
        assert report.parse_baseline(text, cells, ["loss.temperature"]) == expected


def calibrated(ece_before, ece_after, nll_before, nll_after):
    """Returns the errors and likelihoods before and after, with ranges of 0.1 to each side."""
    calibration = {"parameters": "temperature 2"}
    for when, ece, nll in (("before", ece_before, nll_before), ("after", ece_after, nll_after)):
        intervals = {"nll": [nll - 0.1, nll + 0.1]}
        expected = [ece - 0.1, ece + 0.1]
        calibration[when] = {"ece": ece, "ece_if_calibrated": expected, "nll": nll, "intervals": intervals}
    return {"calibration": calibration}


def with_calibration(loss, seed, ndcg, *figures):
    one = run(loss, seed, 3.0, ndcg)
    one.results["test"] |= calibrated(*figures)
    return one


def test_a_grids_calibration_by_hand():
    runs = [
        with_calibration("mse", 0, 90.0, 4.0, 2.0, 0.5, 0.4),
        with_calibration("mse", 1, 91.0, 6.0, 2.0, 0.7, 0.2),
        with_calibration("approx_ndcg", 0, 90.0, 4.0, 2.0, 0.5, 0.4),
        run("approx_ndcg", 1, 2.0, 95.0),  # without calibration
    ]
    cells = report.calibration_cells(report.cells(runs))
    t = scipy.stats.t.ppf(0.975, 1)  # the half width of two values a, b is t |a - b| / 2
    rows = grid_tables.cells_table(report.summarize_calibration(cells), digits=3)
    assert rows == [
        ["loss", "interaction", "ece before", "ece after", "nll before", "nll after"],
        # Two seeds of the same value have the interval over the examples, which calibration errors have not.
        [
            *("mse", "dot", f"5.000 [0.000, {5 + t:.3f}]", "2.000 no interval"),
            *(f"{mean:.3f} [0.000, {mean + t / 10:.3f}]" for mean in (0.6, 0.3)),
        ],
    ]
    assert report.calibration_cells(report.cells(runs[2:])) == []


def test_calibration_table():
    validation = calibrated(3.0, 0.25, 0.5, 0.125)
    test = calibrated(4.0, 0.25, 0.5, 0.125)
    table = tables.calibration_table({"validation": validation, "test": test})
    header, _, *rows = (" ".join(line.split()) for line in table.splitlines())
    assert header == "temperature 2 validation test"
    assert rows == [
        "ece (%) before 3.000 if calibrated 2.900 to 3.100 4.000 if calibrated 3.900 to 4.100",
        "ece (%) after 0.250 if calibrated 0.150 to 0.350 0.250 if calibrated 0.150 to 0.350",
        "nll before 0.500 [0.400, 0.600] 0.500 [0.400, 0.600]",
        "nll after 0.125 [0.025, 0.225] 0.125 [0.025, 0.225]",
    ]
    assert tables.calibration_table({"test": {"ndcg@5": 1.0}}) == ""
    assert evaluator.metric_names({"ndcg@5": 1.0, **validation}) == ["ndcg@5"]


def test_f1_has_one_figure_per_seed(tmp_path):
    runs = [stored(tmp_path, loss, seed, [0, 1, 0]) for loss in ("mse", "softmax") for seed in (0, 1)]
    for i, one in enumerate(runs):
        one.experiment.metrics = ("top1_error", "f1_macro")
        one.results["test"] |= {"f1_macro": 50.0 + 10.0 * i}
        one.results["test"]["intervals"]["f1_macro"] = [40.0, 90.0]
    summary = report.summarize(report.cells(runs))
    assert [cell["metrics"]["f1_macro"]["values"] for cell in summary["cells"]] == [
        [50.0, 60.0],
        [70.0, 80.0],
    ]
    assert summary["best"]["f1_macro"]["name"] == {"loss": "softmax", "interaction": "dot"}
    alone = report.summarize(report.cells(runs[:1]))["cells"][0]["metrics"]["f1_macro"]
    assert (alone["mean"], alone["interval"]) == (50.0, [40.0, 90.0])
