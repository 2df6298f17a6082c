import numpy as np
import scipy.stats
from matplotlib.figure import Figure

from rank4class.pipelines import config
from rank4class.pipelines.evaluation import statistics
from rank4class.pipelines.reporting import sweep_plots, sweep_report, tables


def run(loss, seed, top1, ndcg):
    summary = {
        "top1_error": top1,
        "ndcg@5": ndcg,
        "examples": 1200,
        "intervals": {"top1_error": [top1 - 1, top1 + 1], "ndcg@5": [ndcg - 2, ndcg + 2]},
        "information": {name: {"bits": 1.234} for name in ("top1_error", "ndcg@5")},
    }
    experiment = config.override(config.Experiment(), {"loss.name": loss, "seed": seed})
    return sweep_report.Run(experiment, {"validation": summary, "test": summary}, "nowhere")


def test_a_runs_table_by_hand():
    expected = """\
metric          validation (1,200 examples)  bits  test (1,200 examples)  bits
--------------  ---------------------------  ----  ---------------------  ----
top1_error (%)  3.25  [2.25, 4.25]           1.23  3.25  [2.25, 4.25]     1.23
ndcg@5 (%)      90.00  [88.00, 92.00]        1.23  90.00  [88.00, 92.00]  1.23"""
    assert tables.results_table(run("mse", 0, 3.25, 90.0).results) == expected
    assert tables.results_table({"train": run("mse", 0, 3.25, 90.0).results["test"]}).startswith(
        "metric          train"
    )


def test_a_grids_table_by_hand():
    runs = [run("mse", 0, 3.0, 90.0), run("mse", 1, 5.0, 91.0), run("softmax", 0, 2.0, 80.0)]
    half = scipy.stats.t.ppf(0.975, 1)  # t * |a - b| / 2 for two values a, b
    assert sweep_report.grid_table(runs) == [
        ["loss", "interaction", "top1_error", "ndcg@5"],
        ["mse", "dot", f"4.00 ± {half:.2f}", f"90.50* ± {half / 2:.2f}"],
        [
            "softmax",
            "dot",
            "2.00* [1.00, 3.00]",
            "80.00 [78.00, 82.00]",
        ],  # one seed: interval over the examples
    ]


def test_seeds_of_equal_values_have_the_interval_over_examples():
    runs = [run("mse", 0, 0.0, 90.0), run("mse", 1, 0.0, 91.0)]
    runs[1].results["test"]["intervals"]["top1_error"] = [-0.5, 1.5]
    table = sweep_report.grid_table(runs)
    half = scipy.stats.t.ppf(0.975, 1) / 2
    assert table[1] == ["mse", "dot", "0.00 [-1.00, 1.50]", f"90.50 ± {half:.2f}"]  # a single row has no star
    runs[1].results["test"]["intervals"]["top1_error"] = None
    assert sweep_report.grid_table(runs)[1][2] == "0.00 no interval"


def test_metrics_without_an_interval():
    one = run("mse", 0, 3.25, 90.0)
    one.results["test"]["intervals"]["top1_error"] = None
    assert "3.25  no interval      1.23" in tables.results_table({"test": one.results["test"]})


def test_intervals_equal_scipys():
    values = np.random.default_rng(0).normal(size=5)
    mean, half = statistics.mean_and_half_width(values)
    low, high = scipy.stats.t.interval(0.95, 4, loc=values.mean(), scale=scipy.stats.sem(values))
    np.testing.assert_allclose([mean - half, mean + half], [low, high])


def with_calibration(loss, seed, ndcg, *figures):
    """Returns a run with errors and likelihoods before and after, whose intervals are 0.1 to each side."""
    one = run(loss, seed, 3.0, ndcg)
    ece_before, ece_after, nll_before, nll_after = figures
    for when, ece, nll in (("before", ece_before, nll_before), ("after", ece_after, nll_after)):
        intervals = {"ece": [ece - 0.1, ece + 0.1], "nll": [nll - 0.1, nll + 0.1]}
        one.results["test"].setdefault("calibration", {})[when] = {
            "ece": ece, "nll": nll, "intervals": intervals
        }  # fmt: skip
    return one


def test_a_grids_calibration_by_hand():
    runs = [
        with_calibration("mse", 0, 90.0, 4.0, 2.0, 0.5, 0.4),
        with_calibration("mse", 1, 91.0, 6.0, 2.0, 0.7, 0.2),
        with_calibration("softmax", 0, 80.0, 3.0, 1.0, 0.25, 0.3),
        run("approx_ndcg", 0, 2.0, 95.0),  # without calibration
    ]
    t = scipy.stats.t.ppf(0.975, 1)  # the half width of two values a, b is t |a - b| / 2
    assert sweep_report.calibration_table(runs) == [
        ["loss", "interaction", "ece before", "ece after", "nll before", "nll after"],
        # Two seeds of the same value have the interval over the examples.
        [
            *("mse", "dot", f"5.000 ± {t:.3f}", "2.000 [1.900, 2.100]"),
            *(f"0.600 ± {t / 10:.3f}", f"0.300* ± {t / 10:.3f}"),
        ],
        [
            *("softmax", "dot", "3.000* [2.900, 3.100]", "1.000* [0.900, 1.100]"),
            *("0.250* [0.150, 0.350]", "0.300* [0.200, 0.400]"),
        ],
    ]
    assert sweep_report.calibration_table(runs[3:]) == []


def test_the_best_run_has_the_first_seed_of_the_best_cell():
    figures = (4.0, 2.0, 0.5, 0.4)
    runs = [
        with_calibration("mse", 0, 99.0, *figures),
        with_calibration("mse", 1, 81.0, *figures),  # mean 90
        with_calibration("softmax", 0, 90.0, *figures),
        with_calibration("softmax", 1, 92.0, *figures),  # mean 91
    ]
    assert sweep_report.best_run(runs) is runs[2]
    for one in runs:
        one.experiment.monitor = "top1_error"
    runs[1].results["validation"]["top1_error"] = 2.5
    assert sweep_report.best_run(runs) is runs[0]


def test_all_best_means_have_a_star():
    rows = sweep_report.grid_table([run("mse", 0, 2.001, 80.0), run("softmax", 0, 1.999, 70.0)])
    assert [row[2].split()[0] for row in rows[1:]] == ["2.00*", "2.00*"]


def test_error_bars_equal_the_intervals(tmp_path, monkeypatch):
    """Two seeds: interval over the seeds. One seed: interval over the examples."""
    names = [f"ndcg@{k}" for k in (1, 2, 5)]

    def of(loss, seed, *values):
        summary = {**dict(zip(names, values, strict=True)), "examples": 9}
        summary["intervals"] = {
            name: [value - 3, value + 30] for name, value in zip(names, values, strict=True)
        }
        experiment = config.override(config.Experiment(), {"loss.name": loss, "seed": seed})
        return sweep_report.Run(experiment, {"validation": summary, "test": summary}, "nowhere")

    figures = []
    monkeypatch.setattr(
        sweep_plots, "Figure", lambda **kwargs: figures.append(Figure(**kwargs)) or figures[-1]
    )
    runs = [of("mse", 0, 50, 60, 80), of("softmax", 0, 10, 20, 30), of("softmax", 1, 12, 20, 34)]
    summary = sweep_report.summarize_cells(sweep_report.metrics_frame(runs))
    sweep_plots.plot_cutoffs(summary, {"ndcg": [1, 2, 5]}, str(tmp_path / "cutoffs.png"))
    (axis,) = figures[0].axes
    assert [text.get_text() for text in figures[0].legends[0].get_texts()] == ["mse", "softmax"]
    assert axis.get_xticks().tolist() == [1, 2, 5]
    half = scipy.stats.t.ppf(0.975, 1)
    drawn = [[(low, high) for (_, low), (_, high) in bars.get_segments()] for bars in axis.collections]
    of_seeds = [(max(0, 11 - half), 11 + half), (17, 50), (32 - 2 * half, 32 + 2 * half)]
    expected = [[(47, 80), (57, 90), (77, 100)], np.clip(of_seeds, 0, 100)]
    np.testing.assert_allclose(drawn, expected)
    means = [line.get_ydata().tolist() for line in axis.lines if len(line.get_ydata()) == 3][::3]
    assert means == [[50, 60, 80], [11, 20, 32]]


def calibrated(ece):
    before = {"ece": ece, "nll": 0.5, "intervals": {"ece": [ece - 1, ece + 1], "nll": [0.4, 0.6]}}
    after = {"ece": 0.25, "nll": 0.125, "intervals": {"ece": [0.0, 1.0], "nll": [0.1, 0.2]}}
    return {"calibration": {"parameters": "temperature 2", "before": before, "after": after}}


def test_calibration_table():
    table = tables.calibration_table({"validation": calibrated(3.0), "test": calibrated(4.0)})
    header, _, *rows = (" ".join(line.split()) for line in table.splitlines())
    assert header == "temperature 2 validation test"
    assert rows == [
        "ece (%) before 3.000 [2.000, 4.000] 4.000 [3.000, 5.000]",
        "ece (%) after 0.250 [0.000, 1.000] 0.250 [0.000, 1.000]",
        "nll before 0.500 [0.400, 0.600] 0.500 [0.400, 0.600]",
        "nll after 0.125 [0.100, 0.200] 0.125 [0.100, 0.200]",
    ]
    assert tables.calibration_table({"test": {"ndcg@5": 1.0}}) == ""
    assert tables.metric_names({"ndcg@5": 1.0, **calibrated(3.0)}) == ["ndcg@5"]
