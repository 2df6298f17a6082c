"""Statistics over seeds and examples: values by hand, and simulations of coverage and of false verdicts."""

import itertools
import math

import numpy as np
import pytest
import scipy.stats

from rank4class.pipelines.evaluation import statistics
from rank4class.pipelines.sweep import inference


def crossed(rng, seeds, examples, of_seeds=0.0, of_examples=0.0):
    """Returns normal values [seeds, examples] with effects of these standard deviations and rest of 1."""
    effects = of_seeds * rng.normal(size=[seeds, 1]) + of_examples * rng.normal(size=[1, examples])
    return effects + rng.normal(size=[seeds, examples])


def mean_squares(values):
    """Returns the mean squares of seeds, examples and rest, as sums over all values."""
    (seeds, examples), mean = values.shape, np.mean(values)
    sums = [0.0, 0.0, 0.0]
    for s, i in itertools.product(range(seeds), range(examples)):
        row = np.mean(values[s])
        column = np.mean(values[:, i])
        for k, term in enumerate((row - mean, column - mean, values[s, i] - row - column + mean)):
            sums[k] += term**2
    return sums[0] / (seeds - 1), sums[1] / (examples - 1), sums[2] / ((seeds - 1) * (examples - 1))


@pytest.mark.parametrize("effects", [(0.0, 0.0), (1.0, 0.5), (0.0, 2.0), None])
def test_variances_written_out(rng, effects):
    values = crossed(rng, 3, 7, *effects) if effects else np.eye(3, 7)
    a, b, e = mean_squares(values)
    if not effects:  # each seed errs on another example: the variance of the mean is that of the rest
        assert e == pytest.approx(2 / 12)  # 3 (1 - 1/3)^2 + 6 (1/3)^2 of 12 degrees of freedom
        assert max(a, b) < e
    of_seeds, of_examples = inference.crossed_variances(values)
    np.testing.assert_allclose(of_seeds, [a / 21, 2], atol=1e-15)
    np.testing.assert_allclose(of_examples, [max(b - e, e - a, 0.0) / 21, 6])
    of_seeds, of_examples = inference.crossed_variances(values, 0.5, (0.25, 4.5))
    np.testing.assert_allclose(of_seeds, [(1 + 3 * 0.5) * 0.25 / 3, 4.5])
    np.testing.assert_allclose(of_examples, [max((b - e) / 21, e / 21 - 0.25 / 3, 0.0), 6])


def test_the_variance_of_all_cells_written_out(rng):
    values = rng.normal(size=[4, 3, 5]) + 2.0 * rng.normal(size=[3, 1])
    means = values.mean(axis=2)
    shared = sum((means[:, s].mean() - means.mean()) ** 2 for s in range(3)) / 2
    parts = means - means.mean(axis=0) - means.mean(axis=1, keepdims=True) + means.mean()
    unshared = (parts**2).sum() / (4 * 2)
    variance, freedom = inference.pooled_variance(values)
    assert variance == pytest.approx(shared + unshared)
    assert freedom == pytest.approx(variance**2 / (shared**2 / 2 + unshared**2 / (3 * 2)))
    # Cells that are deterministic or not finite are left out.
    others = np.stack([np.repeat(values[0, :1], 3, axis=0), np.full([3, 5], np.inf)])
    assert inference.pooled_variance(np.concatenate([others, values])) == (variance, freedom)
    assert inference.crossed_variances(others[0], 0.0, (variance, freedom))[0] == (0.0, 2.0)
    assert inference.pooled_variance(values[:2]) is None
    assert inference.pooled_variance(values[:, :1]) is None
    assert inference.pooled_variance(np.zeros([3, 2, 2])) is None
    rates = np.array([0.1, 0.2, 0.5])[:, None, None]
    one = 0.03 * np.array([[1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]])[:, :, None]
    variance, freedom = inference.pooled_variance(one)
    of_rates = inference.pooled_variance(rates + one * np.sqrt(rates * (1.0 - rates)), bounded=True)
    assert of_rates == pytest.approx((variance, freedom))
    values = rates[2] + one[0]
    wilson = statistics.wilson(np.array(0.5), np.array(4 / variance), -scipy.special.stdtrit(freedom, 0.025))
    np.testing.assert_allclose(inference.crossed_interval(values, bounded=True, pooled=of_rates), wilson)


@pytest.mark.parametrize("seeds", [2, 5])
def test_shared_variances_have_their_coverage(rng, seeds):
    """Six equal cells, whose seeds have effects that all cells share, and others."""
    held = []
    for _ in range(200):
        values = rng.normal(size=[6, seeds, 1]) + rng.normal(size=[seeds, 1])
        pooled = inference.pooled_variance(values)
        ends = [inference.crossed_interval(cell, bounded=False, pooled=pooled) for cell in values - 9.0]
        held += [low <= -9.0 <= high for low, high in ends]
    assert 0.92 <= np.mean(held) <= 0.99


@pytest.mark.parametrize("seeds", [2, 5])
def test_unequal_variances_are_refused(rng, seeds):
    """Of equal ones a quarter; of cells with a fifth of the last one's deviation, most."""
    equal = 0
    unequal = 0
    for _ in range(400):
        values = rng.normal(size=[6, seeds, 1]) + 3.0 * rng.normal(size=[seeds, 1])
        equal += inference.pooled_variance(values) is None
        unequal += inference.pooled_variance(values * np.array([1, 1, 1, 1, 1, 8])[:, None, None]) is None
    assert 0.2 < equal / 400 < 0.3
    assert unequal / 400 > (0.65 if seeds == 2 else 0.95)


def test_no_end_is_outside_of_the_range():
    """Calibration errors of 2 and 3 percent: Student's t of two seeds has an end of -3.85."""
    low, high = inference.crossed_interval(np.array([[2.0], [3.0]]), bounded=False)
    assert (low, high) == pytest.approx((0.0, 2.5 + 12.7062 / 2), rel=1e-5)
    low, high = inference.crossed_interval(np.array([[-2.0], [3.0]]), bounded=False)
    assert low < -2.0
    low, high = inference.crossed_interval(np.array([[0.02], [0.03]]), bounded=True)
    assert 0.0 < low < 0.025 < high < 1.0


def test_one_axis_is_students_t(rng):
    values = rng.normal(size=5)
    expected = scipy.stats.t.interval(0.95, 4, loc=values.mean(), scale=scipy.stats.sem(values))
    p_value = scipy.stats.ttest_1samp(values, 0.0).pvalue
    for matrix in (values[:, None], values[None, :]):
        np.testing.assert_allclose(inference.crossed_interval(matrix, bounded=False), expected)
        estimate = inference.paired_estimate(matrix, bounded=False)
        np.testing.assert_allclose(estimate.interval(), expected)
        assert estimate.p_value() == pytest.approx(p_value, rel=1e-9)


def test_splits_of_the_same_examples_have_the_corrected_t_test():
    differences = np.array([[0.5], [0.25], [1.0], [0.125]])
    ratio = 0.25
    estimate = inference.paired_estimate(differences, bounded=True, test_to_train=ratio)
    error = math.sqrt((1 / 4 + ratio) * differences.var(ddof=1))
    assert estimate.error == pytest.approx(error)
    assert estimate.p_value() == pytest.approx(2 * scipy.stats.t.sf(differences.mean() / error, 3))
    low, high = inference.crossed_interval(differences * 10, bounded=False, test_to_train=ratio)
    half = 10 * error * scipy.stats.t.ppf(0.975, 3)
    assert (low, high) == pytest.approx((0.0, 10 * differences.mean() + half))  # no negative end
    values = np.stack([np.zeros([4, 1]), differences])  # their differences have twice the variance of a cell
    assert inference.unshared_error(values, ratio) == pytest.approx(error / math.sqrt(2))


def test_p_values_agree_with_the_intervals():
    estimate = inference.Estimate(0.3, 0.3, ((0.01, 4.0), (0.02, 100.0)))
    t4, t100 = (scipy.stats.t.ppf(0.995, freedom) for freedom in (4, 100))
    assert estimate.half_width(0.01) == pytest.approx(math.sqrt(0.01 * t4**2 + 0.02 * t100**2))
    p_value = estimate.p_value()
    assert estimate.half_width(p_value) == pytest.approx(0.3)
    assert estimate.excludes_zero(1.01 * p_value)
    assert not estimate.excludes_zero(0.99 * p_value)
    # Two one-sided tests at 0.05: the interval of 90% is within the margin.
    margin = 0.3 + estimate.half_width(0.1)
    assert estimate.equivalence_p_value(margin) == pytest.approx(0.05)
    assert estimate.equivalence_p_value(0.3) == pytest.approx(0.5)
    assert estimate.equivalence_p_value(0.1) > 0.5
    assert inference.Estimate(9.0, 9.0, ((1e-9, 4e6),)).p_value() == 1e-100
    assert inference.Estimate(0.0, 0.0, ((1.0, 4.0),)).p_value() == 1.0
    unknown = inference.Estimate(0.0, 0.0)
    assert np.isnan([unknown.p_value(), unknown.equivalence_p_value(1.0), *unknown.interval()]).all()
    assert not unknown.excludes_zero(0.05)


DIFFERENCES = np.array([1.0] * 9 + [-1.0] * 2 + [0.0] * 349)


def test_one_seed_of_errors_has_bonett_and_prices_interval():
    estimate = inference.paired_estimate(DIFFERENCES[None], bounded=True)
    low, high = statistics.difference_interval(DIFFERENCES, bounded=True)
    center = (low + high) / 2
    half = (high - low) / 2
    assert estimate.center == pytest.approx(center)
    # Student's t of 359 degrees of freedom in place of the normal quantile.
    ratio = scipy.stats.t.ppf(0.975, 359) / scipy.stats.norm.ppf(0.975)
    assert estimate.half_width() == pytest.approx(half * ratio)
    assert inference.paired_p_value(DIFFERENCES[None], estimate) == pytest.approx(2 * 67 / 2**11)


def test_seeds_that_agree_count_once():
    """Equal runs are no more than one: the interval of one seed."""
    one, five = (
        inference.paired_estimate(np.tile(DIFFERENCES, [seeds, 1]), bounded=True) for seeds in (1, 5)
    )
    np.testing.assert_allclose(five.interval(), one.interval(), atol=5e-5)
    errors = np.array([1.0] * 4 + [0.0] * 356)
    np.testing.assert_allclose(
        inference.crossed_interval(np.tile(errors, [5, 1]), bounded=True),
        statistics.wilson(np.array(4 / 360), np.array(360), scipy.stats.t.ppf(0.975, 359)),
        rtol=0.01,
    )


def test_equal_values():
    zeros = np.zeros([5, 360])
    estimate = inference.paired_estimate(zeros, bounded=True)
    assert estimate.half_width() == pytest.approx(scipy.stats.t.ppf(0.975, 359) * math.sqrt(2) / 362)
    assert estimate.p_value() == 1.0
    assert not inference.paired_estimate(zeros, bounded=False).is_known
    assert inference.crossed_interval(zeros, bounded=False) is None
    low, high = inference.crossed_interval(zeros + 1.0, bounded=True)
    np.testing.assert_allclose([low, high], statistics.wilson(np.array(1.0), np.array(360)))
    assert inference.crossed_interval(zeros[:, :1], bounded=True) is None  # one figure per seed


@pytest.mark.filterwarnings("error")
def test_values_without_an_interval():
    for values in (np.array([[0.5]]), np.array([[1.0, np.inf], [2.0, 3.0]])):
        assert inference.crossed_interval(values, bounded=False) is None
        assert np.isnan(inference.paired_estimate(values, bounded=False).error)


def test_holm_written_out():
    adjusted = inference.holm([0.02, np.nan, 0.001, 0.021, 0.9])
    np.testing.assert_allclose(adjusted, [3 * 0.02, np.nan, 4 * 0.001, 3 * 0.02, 0.9])
    assert inference.holm([]).tolist() == []


@pytest.mark.parametrize("cells", [2, 15])
def test_expected_best_of_drawn_cells(rng, cells):
    """Cells share effects of seeds and examples: only separate ones, and the rest, make one the best."""
    error = math.sqrt(0.7**2 / 10 + 1 / 30)
    means = error * rng.normal(size=[20_000, cells])
    assert np.mean(means.max(axis=1)) == pytest.approx(inference.expected_best(error, cells), rel=0.03)
    shared = crossed(rng, 3, 10, 5.0, 5.0)
    errors = []
    for _ in range(2400 // cells):
        separate = 0.7 * rng.normal(size=[cells, 1, 10]) + rng.normal(size=[cells, 3, 10])
        errors.append(inference.unshared_error(shared + separate))
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(error, rel=0.05)


def draw_errors(rng, kind, rate, seeds, examples):
    """Draws errors of seeds on examples, float [seeds, examples], of mean `rate`."""
    if kind == "same errors for all seeds":
        return np.repeat(rng.random([1, examples]) < rate, seeds, axis=0).astype(float)
    rates = {
        "independent": np.full([1, 1], rate),
        "1 of 20 examples is hard": 20 * rate * (rng.random([1, examples]) < 0.05),
        "errors by a coin": 0.5 * (rng.random([1, examples]) < 2 * rate),
        "seeds of different rates": rng.gamma(4.0, rate / 4.0, size=[seeds, 1]),
    }[kind]
    return (rng.random([seeds, examples]) < rates).astype(float)


KINDS = [
    *("independent", "same errors for all seeds", "1 of 20 examples is hard"),
    *("errors by a coin", "seeds of different rates"),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("rate", "seeds", "examples"),
    [
        *((0.003, 5, 360), (0.03, 2, 360)),
        *(pytest.param(*case, marks=pytest.mark.nightly) for case in ((0.003, 2, 360), (0.01, 3, 2000))),
    ],
)
def test_coverage_of_errors(rng, kind, rate, seeds, examples):
    """At one error in 360 examples, Student's t and bootstraps miss the rate in up to a third of cases."""
    held = 0
    repeats = 2000
    for _ in range(repeats):
        low, high = inference.crossed_interval(draw_errors(rng, kind, rate, seeds, examples), bounded=True)
        held += low <= rate <= high
    assert held / repeats >= 0.94


@pytest.mark.parametrize(
    "effects",
    [(0.0, 0.3), (0.3, 0.0), *(pytest.param(e, marks=pytest.mark.nightly) for e in ((0.0, 0.0), (0.1, 0.5)))],
)
def test_differences_have_their_coverage_and_false_equivalence(rng, effects):
    """At a true difference of the margin, equivalence is false."""
    held = 0
    equivalent = 0
    repeats = 2000
    for _ in range(repeats):
        estimate = inference.paired_estimate(0.2 + crossed(rng, 5, 400, *effects), bounded=False)
        low, high = estimate.interval()
        held += low <= 0.2 <= high
        equivalent += estimate.equivalence_p_value(0.2) <= statistics.LEVEL
    assert held / repeats >= 0.945
    assert equivalent / repeats <= 0.06


def test_one_seed_can_pass_the_correction_of_many_comparisons():
    differences = np.random.default_rng(0).uniform(0.2, 0.9, size=[1, 60])
    estimate = inference.paired_estimate(differences, bounded=True)
    for comparisons in (1, 300, 3000):
        p_value = inference.paired_p_value(differences, estimate, comparisons)
        assert 2.0 * comparisons * p_value < statistics.LEVEL
