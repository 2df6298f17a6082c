"""Summaries of grids: figures by hand, verdicts on equal cells, and the tables and reports of a summary."""

import json
import math

import numpy as np
import pytest
import scipy.stats

from rank4class.pipelines.sweep import grid_summary, grid_tables, inference
from rank4class.pipelines.sweep.grid_summary import Cell, Metric

SOFTMAX = {"loss": "softmax"}
MSE = {"loss": "mse"}


def errors(wrong, seeds=5, examples=400):
    """Returns the errors of seeds that are wrong on the examples of a slice."""
    values = np.zeros([seeds, examples], np.float32)
    values[:, wrong] = 1.0
    return values


def two_cells(first, second, metric="top1_error", **arguments):
    seeds = range(len(first))
    cells = [Cell(SOFTMAX, seeds, {metric: first}), Cell(MSE, seeds, {metric: second})]
    return grid_summary.summarize(cells, **{"baseline": SOFTMAX, **arguments})


def test_figures_written_out():
    values = errors(slice(0, 8))
    values[0, 8:16] = 1.0  # 16 errors of 400 in the first seed, 8 in the others
    summary = two_cells(values, errors(slice(0, 4)))
    figures = summary["cells"][0]["metrics"]["top1_error"]
    assert figures["values"] == pytest.approx([4.0, 2.0, 2.0, 2.0, 2.0])
    assert figures["mean"] == pytest.approx(2.4)
    expected = inference.crossed_interval(values.astype(float), bounded=True)
    assert figures["interval"] == pytest.approx([100 * end for end in expected])
    [comparison] = summary["comparisons"]
    assert comparison["name"] == MSE
    assert comparison["difference"] == pytest.approx(-1.4)
    difference = inference.paired_estimate(errors(slice(0, 4)) - values.astype(float), bounded=True)
    assert comparison["interval"] == pytest.approx([100 * end for end in difference.interval()])
    assert comparison["p_value"] == pytest.approx(difference.p_value())
    assert comparison["adjusted_p_value"] == pytest.approx(min(1.0, 2 * difference.p_value()))
    best = summary["best"]["top1_error"]
    assert best["name"] == MSE
    apart = inference.unshared_error(np.stack([values, errors(slice(0, 4))]).astype(float))
    assert best["expected_gain"] == pytest.approx(100 * apart / math.sqrt(math.pi))  # of 2 normal values
    assert json.loads(json.dumps(summary)) == summary


@pytest.mark.parametrize(
    ("metric", "wrong", "margin", "verdict"),
    [
        ("top1_error", 40, 0.5, "worse"),
        ("top1_accuracy", 40, 0.5, "better"),
        ("top1_error", 1, 0.5, "not separable"),  # 1 of 400 examples: 3 of 400 would not surprise
        ("top1_error", 1, 2.0, "equivalent"),
        ("top1_error", 40, 30.0, "worse"),
    ],
)
def test_verdicts(metric, wrong, margin, verdict):
    summary = two_cells(errors(slice(0, 0)), errors(slice(0, wrong)), metric, margin=margin)
    [comparison] = summary["comparisons"]
    assert comparison["verdict"] == verdict
    [*_, row] = grid_tables.comparisons_table(summary)
    assert row[-1] == ("worse, within the margin" if margin == 30.0 else verdict)
    separable = verdict in ("better", "worse")
    best = {"better": MSE}.get(verdict, SOFTMAX)
    assert summary["best"][metric]["not_separable"] == ([best] if separable else [SOFTMAX, MSE])


def test_power_written_out():
    """Two metrics of a cell: 5 seeds whose differences have the variances 0.01 and 0, in points 10 and 0."""
    seeds = np.array([0.1, 0.2, 0.3, 0.2, 0.2])
    cells = [
        Cell(SOFTMAX, range(5), {"top1_error": np.zeros(5), "mean_rank": np.zeros(5)}),
        Cell(MSE, range(5), {"top1_error": seeds, "mean_rank": 10.0 * seeds}),
    ]
    summary = grid_summary.summarize(cells, baseline=SOFTMAX, margin=5.0)
    error = np.sqrt(seeds.var(ddof=1))
    quantiles = [scipy.stats.t.ppf([1.0 - 0.05 / 4 / 2, 0.8], count - 1).sum() for count in range(2, 100)]
    by_seeds = error * np.array(quantiles) / np.sqrt(np.arange(2, 100))
    first, second = (one["power"] for one in summary["comparisons"])
    assert first["least"] == pytest.approx(100.0 * by_seeds[5 - 2])
    assert first["seeds"] == second["seeds"] == 2 + np.argmax(by_seeds <= 0.2)
    assert first["margin_seeds"] == 2 + np.argmax(by_seeds <= 0.05)
    assert second["margin_seeds"] is None
    assert second["least"] == pytest.approx(10.0 * by_seeds[5 - 2])
    least = [[f"{one[key]:.2f}" for key in ("least", "least_of_many")] for one in (first, second)]
    seeds = str(first["seeds"])
    assert grid_tables.power_table(summary)[1:] == [
        ["top1_error (%)", *least[0], str(first["margin_seeds"]), "+20.00 (mse)", seeds],
        ["mean_rank", *least[1], "-", "+2.00 (mse)", seeds],
    ]
    assert "level 0.013 of the first of 2 comparisons" in grid_tables.power_heading(summary)
    small = grid_summary.summarize(cells, baseline=SOFTMAX, margin=0.1)
    assert grid_tables.power_table(small)[1][3] == "over 1,000"
    for nothing in ({"baseline": None}, {"baseline": SOFTMAX, "test_to_train": 0.5}):
        assert len(grid_tables.power_table(grid_summary.summarize(cells, **nothing))) == 1


@pytest.mark.parametrize(
    ("difference", "power", "sentence"),
    [
        (
            -0.4,
            {"seeds": 9, "examples": 13_973, "seeds_share": 0.25},
            "To separate {}, some 9 seeds or some 14,000 test examples would be needed; 25% of the variance "
            "is over the seeds.",
        ),
        (
            0.4,
            {"seeds": None, "examples": None, "seeds_share": 0.5},
            "To separate {}, over 1,000 seeds or over 1,000 times the test examples would be needed; 50% of "
            "the variance is over the seeds.",
        ),
        (
            0.4,
            {"seeds": 1000, "seeds_share": 1.0},  # one figure per seed
            "To separate {}, some 1,000 seeds would be needed; 100% of the variance is over the seeds.",
        ),
        (0.4, {"examples": 700}, "To separate {}, some 700 test examples would be needed."),  # one seed
        (0.0, {"seeds": None, "examples": None}, "No number of seeds or test examples separates {}."),
        (0.4, {}, ""),  # one figure of one seed
    ],
)
def test_the_size_that_would_separate_the_largest_open_difference(difference, power, sentence):
    row = {"metric": "top1_error", "name": {"loss": "b"}, "difference": difference, "power": power}
    expected = sentence.format(f"a difference of {abs(difference):.2f} points by top1_error (b)")
    if expected:
        expected += (
            " In 80% of cases a sweep of that size separates it, if it and the variances are as observed."
        )
    summary = {"metrics": {"top1_error": {"percent": True}}, "comparisons": [], "best": {"top1_error": {}}}
    assert grid_tables.undecided(summary) == ""
    assert grid_tables.undecided({**summary, "best": {"top1_error": {"largest_open": row}}}) == expected
    row["verdict"] = "not separable"
    rows = [row | {"difference": 9.0, "verdict": "worse"}, row | {"difference": difference / 2}, row]
    assert grid_tables.undecided({**summary, "comparisons": rows}) == expected


def crossed(rng, seeds, examples, effects, exact=False):
    """Returns normal values [seeds, examples] of mean 1 with these variances of seeds, examples and rest.

    If exact, their mean squares are equal to the expected ones.
    """
    a, b, rest = (rng.normal(size=shape) for shape in ((seeds, 1), (1, examples), (seeds, examples)))
    of_seeds, of_examples, of_rest = effects
    if exact:
        a = a - a.mean()
        b = b - b.mean()
        rest = rest - rest.mean(axis=0) - rest.mean(axis=1, keepdims=True) + rest.mean()
        freedom = (seeds - 1) * (examples - 1)
        a = a / a.std(ddof=1)
        b = b / b.std(ddof=1)
        rest = rest / np.sqrt(np.sum(rest**2) / freedom)
        of_seeds = of_seeds + of_rest / examples
        of_examples = of_examples + of_rest / seeds
    return 1.0 + np.sqrt(of_seeds) * a + np.sqrt(of_examples) * b + np.sqrt(of_rest) * rest


@pytest.mark.parametrize(("baseline", "level"), [(SOFTMAX, 0.025), (None, 0.05)])
def test_needed_examples_written_out(rng, baseline, level):
    """A cell of 0, and one of 4 seeds and 32 examples, with the variances 0.01, 16, and 8 of the rest."""
    values = crossed(rng, 4, 32, (0.01, 16.0, 8.0), exact=True)
    summary = two_cells(np.zeros([4, 32]), values, "mean_rank", baseline=baseline)
    one = (summary["comparisons"] or [summary["best"]["mean_rank"]["largest_open"]])[0]
    assert one["difference"] == pytest.approx(1.0)
    assert one["name"] == MSE
    assert one["power"]["seeds_share"] == pytest.approx((0.0025 + 0.0625) / (0.0025 + 0.0625 + 0.5))
    least = []
    count = one["power"]["examples"]
    for n in (count, 0.99 * count):
        of_seeds = 0.01 / 4 + 8.0 / 4 / n
        of_examples = 16.0 / n
        t3, tn = (scipy.stats.t.ppf([1.0 - level / 2, 0.8], freedom) for freedom in (3, n - 1))
        least.append(np.sum(np.sqrt(of_seeds * t3**2 + of_examples * tn**2)))
    assert least[0] <= 1.0 < least[1]


def test_the_power_of_one_seed_and_of_equal_cells(rng):
    values = rng.normal(size=[1, 50])
    assert [*two_cells(0 * values, values, "mean_rank")["comparisons"][0]["power"]] == ["examples"]
    assert two_cells(np.zeros(1), np.ones(1), "mean_rank")["comparisons"][0]["power"] == {}
    power = two_cells(errors(slice(9)), errors(slice(9)))["comparisons"][0]["power"]
    assert (power["seeds"], power["examples"]) == (None, None)


def test_cells_share_a_variance_over_the_seeds(rng):
    """Three cells of one variance by one metric, and of unequal ones by another; the same seeds."""
    signs = np.array([[1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]])
    cells = [
        Cell({"loss": str(i)}, range(4), {"map": 0.5 + 0.01 * signs[i], "nll": 2.0 + 0.01 * 50**i * signs[i]})
        for i in range(3)
    ]
    metrics = {"nll": Metric(False), "map": Metric(True, True)}
    summary = grid_summary.summarize(cells, metrics=metrics)
    # 3 degrees of freedom are of the means of the cells, 6 of the rest.
    assert summary["pooled"] == {"map": pytest.approx(1 / (1 / 27 + 4 / 54), abs=0.05), "nll": None}
    low, high = summary["cells"][0]["metrics"]["map"]["interval"]
    expected = 100 * scipy.stats.t.ppf(0.975, 9) * 0.01 / math.sqrt(3)
    assert (high - low) / 2 == pytest.approx(expected, rel=0.001)
    assert " By map, the rows share one variance" in grid_tables.explanation(summary)
    other = Cell({"loss": "3"}, range(4), {"map": np.full(4, 0.3), "nll": cells[0].values["nll"]})
    summary = grid_summary.summarize([*cells, other], metrics=metrics, baseline={"loss": "3"})
    assert [one["freedom"] for one in summary["comparisons"]] == [9.0] * 3 + [None, 3.0, 3.0]
    text = grid_tables.comparisons_heading(summary)
    assert "By map, the rows share one variance over the seeds." in text


def test_the_verdict_of_a_report():
    cells = [Cell({"loss": str(n)}, range(5), {"top1_error": errors(slice(0, n))}) for n in (0, 1, 40)]
    undecided = grid_summary.summarize(cells[:2], baseline={"loss": "0"})
    assert grid_tables.verdict(undecided) == (
        "**No cell is separable from 0 by top1_error: each difference may be chance.**"
    )
    decided = grid_summary.summarize(cells, baseline={"loss": "0"})
    assert grid_tables.verdict(decided) == (
        "**Cells compared with 0:**\n\n- top1_error: worse 1 (40), not separable 1"
    )
    assert grid_tables.verdict(grid_summary.summarize(cells)) == (
        "- top1_error: the best is 0; 2 of 3 cells are not separable from it."
    )


def test_holm_is_over_all_cells_and_metrics(rng):
    names = ["a", "b", "c"]
    values = {name: (rng.random([5, 300]) < 0.2 + 0.03 * i) for i, name in enumerate(names)}
    cells = [
        Cell({"model": name}, range(5), {"top1_error": values[name], "mrr": 1.0 - 0.5 * values[name]})
        for name in names
    ]
    rows = grid_summary.summarize(cells, baseline={"model": "a"})["comparisons"]
    order = [("top1_error", "b"), ("top1_error", "c"), ("mrr", "b"), ("mrr", "c")]
    assert [(row["metric"], row["name"]["model"]) for row in rows] == order
    expected = 2 * inference.holm([row["p_value"] for row in rows])
    assert [row["adjusted_p_value"] for row in rows] == pytest.approx(np.minimum(expected, 1.0).tolist())


def test_figures_of_seeds_alone():
    """One figure per seed, of an unknown metric: only the seeds count, and nothing is equivalent."""
    cells = [
        Cell({"sorter": "lstm"}, [0, 1, 2], {"error": np.array([0.03, 0.04, 0.05])}),
        Cell({"sorter": "cnn"}, [0, 1, 2], {"error": np.array([0.13, 0.15, 0.14])}),
    ]
    metrics = {"error": Metric(higher_is_better=False)}
    summary = grid_summary.summarize(cells, baseline={"sorter": "lstm"}, metrics=metrics)
    t = scipy.stats.t.ppf(0.975, 2)
    figures = summary["cells"][0]["metrics"]["error"]
    assert figures["examples"] is None
    assert figures["interval"] == pytest.approx([0.04 - t * 0.01 / 3**0.5, 0.04 + t * 0.01 / 3**0.5])
    [comparison] = summary["comparisons"]
    expected = scipy.stats.ttest_1samp([0.10, 0.11, 0.09], 0.0).pvalue
    assert comparison["p_value"] == pytest.approx(expected)
    assert comparison["equivalence_p_value"] is None
    assert comparison["verdict"] == "worse"
    text = grid_tables.explanation(summary)
    assert "over the seeds alone: there are no values per example that all runs share." in text
    assert "paired over seeds. A cell" in grid_tables.comparisons_heading(summary)


def test_seeds_without_an_interval_have_that_of_the_examples():
    cells = [
        Cell(SOFTMAX, [0], {"top1_error": np.array([0.25])}, {"top1_error": (0.125, 0.5)}),
        Cell(MSE, [0], {"top1_error": np.array([0.25])}, {"top1_error": None}),
    ]
    summary = grid_summary.summarize(cells, baseline=MSE)
    rows = grid_tables.cells_table(summary)
    assert [row[1] for row in rows[1:]] == ["25.00 [12.50, 50.00]", "25.00 no interval"]
    assert grid_tables.comparisons_table(summary)[1][2:] == [
        "0.00", "no interval", "-", "-", "not separable"
    ]  # fmt: skip


def test_the_interval_of_a_negative_correlation_holds_its_mean():
    correlations = np.array([-0.05, 0.01, -0.08, 0.02, -0.06])
    summary = two_cells(
        correlations, correlations + 0.5, "spearman", metrics={"spearman": Metric(True, True)}
    )
    for cell, mean in zip(summary["cells"], (-3.2, 46.8), strict=True):
        low, high = cell["metrics"]["spearman"]["interval"]
        assert low < cell["metrics"]["spearman"]["mean"] < high
        assert cell["metrics"]["spearman"]["mean"] == pytest.approx(mean)


@pytest.mark.filterwarnings("error")
def test_infinite_ranks():
    ranks = np.array([[1.0, 2.0, 3.0]] * 2)
    infinite = ranks.copy()
    infinite[0, 0] = np.inf
    summary = json.loads(json.dumps(two_cells(infinite, ranks, "mean_rank")))
    best = summary["best"]["mean_rank"]
    assert (best["name"], best["not_separable"]) == (MSE, [MSE])
    rows = grid_tables.cells_table(summary)[1:]
    assert [row[1] for row in rows] == ["not finite no interval", "2.00† [0.00, 4.48]"]
    row = grid_tables.comparisons_table(summary)[1]
    assert (row[2], row[-1]) == ("-", "not finite")
    heading = grid_tables.comparisons_heading(summary)
    assert "paired over seeds and examples. A cell" in heading
    assert "percentage points is ruled out; mean_rank has no such margin." in heading
    assert "by an unknown difference (mean_rank)" in grid_tables.best_by_chance(summary)


def test_values_that_are_not_known_are_not_the_best():
    values = {"a": [0.1, 0.2], "b": [np.nan, 0.9], "c": [0.5, 0.6]}
    for metric, best in (("mrr", "c"), ("top1_error", "a")):
        cells = [Cell({"loss": name}, [0, 1], {metric: np.array(one)}) for name, one in values.items()]
        assert grid_summary.summarize(cells)["best"][metric]["name"] == {"loss": best}


def test_equal_differences_prove_nothing():
    """The mean of 0.1, 0.1 and 0.1 differs from 0.1 by a rounding error."""
    cells = [Cell({"loss": str(rate)}, [0, 1, 2], {"mrr": np.full(3, rate)}) for rate in (0.0, 0.1, 0.07)]
    summary = grid_summary.summarize(cells, baseline={"loss": "0.0"})
    assert [row["verdict"] for row in summary["comparisons"]] == ["not separable"] * 2
    assert [row["interval"] for row in summary["comparisons"]] == [None, None]
    assert [cell["metrics"]["mrr"]["interval"] for cell in summary["cells"]] == [None] * 3


def test_one_cell_has_no_best():
    summary = grid_summary.summarize([Cell(MSE, [0, 1], {"mrr": np.ones([2, 9])})])
    assert summary["best"] == {}
    assert summary["comparisons"] == []
    assert "separable" not in grid_tables.render(summary)


@pytest.mark.parametrize("changes", [{"seeds": [0, 2]}, {"values": {"top1_error": np.ones([2, 3])}}])
def test_cells_that_do_not_compare(changes):
    other = {"name": MSE, "seeds": [0, 1], "values": {"top1_error": np.ones([2, 4])}}
    with pytest.raises(ValueError, match="^seeds: the cells have different|must have the same shape"):
        grid_summary.summarize([Cell(**other), Cell(**{**other, **changes})])


def equal_cells(rng, kind, cells, seeds):
    """Draws a grid of cells that differ by chance alone."""
    shape = [cells, seeds, 360]
    if kind == "seeds alone":
        return rng.normal(size=[cells, seeds]), Metric(higher_is_better=True)
    hard, unshared, of_seeds, rate = {
        "few errors": (1.0, 0.3, 0.0, 0.005),
        "errors with effects of seeds": (1.0, 0.3, 0.2, 0.2),
        "unshared errors": (0.0, 1.0, 0.0, 0.1),
        "scores": (1.0, 0.5, 0.3, None),
    }[kind]
    scores = rng.normal(size=shape) + hard * rng.normal(size=360)
    scores += unshared * rng.normal(size=[cells, 1, 360]) + of_seeds * rng.normal(size=[cells, seeds, 1])
    if rate is None:
        return scores, Metric(higher_is_better=True)
    scores /= math.sqrt(1.0 + hard**2 + unshared**2 + of_seeds**2)
    return scores > scipy.stats.norm.isf(rate), Metric(higher_is_better=False, percent=True)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("kind", "seeds", "cells"),
    [
        *(("few errors", 1, 15), ("few errors", 5, 15), ("unshared errors", 5, 6), ("scores", 5, 6)),
        *(("errors with effects of seeds", 2, 15), ("errors with effects of seeds", 20, 6)),
        *(("seeds alone", 2, 6), ("seeds alone", 20, 15)),
    ],
)
def test_false_verdicts_on_equal_cells(rng, monkeypatch, kind, seeds, cells):
    monkeypatch.setattr(inference, "MOST_SEEDS", 20)  # limits the computation of the power, which is not read
    counts = np.zeros(3)
    for _ in range(600):
        values, metric = equal_cells(rng, kind, cells, seeds)
        named = [Cell({"cell": str(i)}, range(len(one)), {"m": one}) for i, one in enumerate(values)]
        summary = grid_summary.summarize(named, baseline={"cell": "0"}, metrics={"m": metric})
        compared = any(row["verdict"] in ("better", "worse") for row in summary["comparisons"])
        selected = len(summary["best"]["m"]["not_separable"]) < cells
        counts += [compared, selected, compared or selected]
    compared, selected, either = counts / 600
    assert compared <= 0.05  # 2.5%, and three standard errors of the simulation
    assert selected <= 0.05
    assert either <= 0.08
    if kind == "seeds alone" and seeds == 20:
        assert either >= 0.02  # the levels are not far too small


@pytest.mark.nightly
@pytest.mark.parametrize(("axis", "effects"), [("seeds", (2.0, 4.0, 4.0)), ("examples", (0.1, 20.0, 4.0))])
def test_four_of_five_sweeps_of_the_needed_size_separate(rng, axis, effects):
    first = two_cells(np.zeros([10, 60]), crossed(rng, 10, 60, effects, exact=True), "mean_rank")
    assert first["comparisons"][0]["verdict"] == "not separable"
    count = first["comparisons"][0]["power"][axis]
    shape = (count, 60) if axis == "seeds" else (10, count)
    repeats = 1000
    verdicts = [
        two_cells(np.zeros(shape), crossed(rng, *shape, effects), "mean_rank")["comparisons"][0]["verdict"]
        for _ in range(repeats)
    ]
    print(f"\n{count} {axis}: {100 * verdicts.count('worse') / repeats:.1f}% of sweeps separate")
    assert 0.75 < verdicts.count("worse") / repeats < 0.85
