import numpy as np
import scipy.stats

from rank4class.pipelines import config, report


def run(loss, seed, top1, ndcg):
    judged = {
        "top1_error": top1,
        "ndcg@5": ndcg,
        "examples": 1200,
        "intervals": {"top1_error": [top1 - 1, top1 + 1], "ndcg@5": [ndcg - 2, ndcg + 2]},
        "information": {name: {"bits": 1.234} for name in ("top1_error", "ndcg@5")},
    }
    experiment = config.override(config.Experiment(), {"loss.name": loss, "seed": seed})
    return report.Run(experiment, {"validation": judged, "test": judged}, "nowhere")


def test_a_runs_table_by_hand():
    expected = """\
metric          validation (1,200 examples)  bits  test (1,200 examples)  bits
--------------  ---------------------------  ----  ---------------------  ----
top1_error (%)  3.25  [2.25, 4.25]           1.23  3.25  [2.25, 4.25]     1.23
ndcg@5 (%)      90.00  [88.00, 92.00]        1.23  90.00  [88.00, 92.00]  1.23"""
    assert report.results_table(run("mse", 0, 3.25, 90.0).results) == expected
    assert report.results_table({"train": run("mse", 0, 3.25, 90.0).results["test"]}).startswith(
        "metric          train"
    )


def test_a_grids_table_by_hand():
    runs = [run("mse", 0, 3.0, 90.0), run("mse", 1, 5.0, 91.0), run("softmax", 0, 2.0, 80.0)]
    half = scipy.stats.t.ppf(0.975, 1)  # of two values a, b: t * |a - b| / 2
    assert report.grid_table(runs) == [
        ["loss", "interaction", "top1_error", "ndcg@5"],
        ["mse", "dot", f"4.00 ± {half:.2f}", f"90.50* ± {half / 2:.2f}"],
        ["softmax", "dot", "2.00*", "80.00"],
    ]


def test_the_interval_is_scipys():
    values = np.random.default_rng(0).normal(size=5)
    mean, half = report.mean_and_half_width(values)
    low, high = scipy.stats.t.interval(0.95, 4, loc=values.mean(), scale=scipy.stats.sem(values))
    np.testing.assert_allclose([mean - half, mean + half], [low, high])


def test_equal_means_share_the_star():
    rows = report.grid_table([run("mse", 0, 2.001, 80.0), run("softmax", 0, 1.999, 70.0)])
    assert [row[2] for row in rows[1:]] == ["2.00*", "2.00*"]
