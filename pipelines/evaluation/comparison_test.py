import numpy as np
import pytest

from rank4class.pipelines.evaluation import comparison, statistics

pytestmark = pytest.mark.usefixtures("all_resamples")


def runs(better=0.0):
    """Returns the values of two runs that find the same examples hard, in [0, 1]."""
    rng = np.random.default_rng(0)
    hard = rng.normal(size=300)
    first, second = (0.9 * hard + (1 - 0.9) * rng.normal(size=300) + more for more in (0.0, better))
    return [1 / (1 + np.exp(-values)) for values in (first, second)]


def test_interval_equals_resampled_pairs():
    first, second = (np.round(values, 1) for values in runs(better=0.1))
    compared = comparison.compare("ndcg@5", first, second)
    rng = np.random.default_rng(1)
    drawn = [rng.integers(300, size=300) for _ in range(20000)]
    low, high = np.percentile([100 * (second[i].mean() - first[i].mean()) for i in drawn], [2.5, 97.5])
    np.testing.assert_allclose(compared.interval, [low, high], atol=0.05 * (high - low))
    assert compared.difference == pytest.approx(100 * (second.mean() - first.mean()))


def test_by_hand():
    # One of four examples is worse by 3/4. It is drawn Binomial(4, 1/4) times: never with probability 0.32,
    # at most twice 0.949, at most three times 0.996.
    compared = comparison.compare("mrr", [1.0, 1.0, 0.5, 1.0], [1.0, 0.25, 0.5, 1.0])
    assert (compared.first, compared.second, compared.difference) == (87.5, 68.75, -18.75)
    assert compared.interval == (-56.25, 0.0)
    assert compared.p_value == 1.0  # both sign patterns are equally extreme
    assert (compared.first_better, compared.second_better, compared.equal) == (1, 0, 3)
    assert compared.conclusion() == "may be chance"


def test_differences_by_rounding_are_none(rng):
    first = rng.random(40)
    result = comparison.compare("ndcg@5", first, first + rng.choice([-6e-8, 6e-8], 40))
    assert (result.equal, result.conclusion(), result.p_value) == (40, "no difference", 1.0)
    assert comparison.compare("ndcg@5", first, first + 1e-4).conclusion() == "B is better"


def test_equal_runs_have_no_difference():
    first, _ = runs()
    compared = comparison.compare("ndcg@5", first, first.copy())
    assert compared.difference == 0.0
    assert compared.p_value == 1.0
    low, high = compared.interval  # (1 + 1) / 302 pairs differ, by the adjusted counts
    np.testing.assert_allclose([low, high], [-0.918, 0.918], atol=1e-3)
    assert (compared.first_better, compared.second_better, compared.equal) == (0, 0, 300)
    assert compared.conclusion() == "no difference"


@pytest.mark.parametrize(
    ("metric", "better", "worse"), [("ndcg@5", "B", "A"), ("top1_error", "A", "B"), ("set_size@90", "A", "B")]
)
def test_better_follows_the_direction_of_the_metric(metric, better, worse):
    first, second = runs(better=0.5)
    compared = comparison.compare(metric, first, second)
    assert compared.difference > 0.0
    assert compared.conclusion() == f"{better} is better"
    more = compared.second_better
    less = compared.first_better
    assert (more > less) == (better == "B")
    turned = comparison.compare(metric, second, first)
    assert turned.conclusion() == f"{worse} is better"
    assert turned.difference == -compared.difference


@pytest.mark.filterwarnings("error")
def test_an_infinite_rank_has_no_interval():
    ranks = np.array([1.0, 2.0, 3.0])
    infinite = np.array([1.0, np.inf, 2.0])
    compared = comparison.compare("mean_rank", ranks, infinite)
    assert (compared.first, compared.second, compared.difference) == (2.0, np.inf, np.inf)
    assert np.isnan(compared.interval).all()
    assert (compared.first_better, compared.second_better, compared.equal) == (1, 1, 1)
    assert compared.conclusion() == "may be chance"
    assert np.isnan(comparison.compare("mean_rank", infinite, infinite).difference)
    assert comparison.compare("mean_rank", infinite, infinite).conclusion() == "no difference"


def test_one_example_has_no_interval():
    compared = comparison.compare("mrr", [0.5], [1.0])
    assert np.isnan(compared.interval).all()
    assert compared.conclusion() == "may be chance"


@pytest.mark.parametrize(
    ("more", "less", "p_value", "conclusion"),
    [
        (5, 0, 2 / 2**5, "may be chance"),
        (7, 1, 2 * 9 / 2**8, "may be chance"),
        (9, 2, 2 * 67 / 2**11, "may be chance"),
        (17, 7, 0.0639, "may be chance"),  # the interval excludes 0, the test does not
        (6, 0, 2 / 2**6, "B is better"),
        (8, 1, 2 * 10 / 2**9, "B is better"),
        (1, 8, 2 * 10 / 2**9, "A is better"),
        (0, 0, 1.0, "no difference"),
    ],
)
def test_few_errors_use_mcnemars_exact_test(more, less, p_value, conclusion):
    """Only the first run errs on `more` examples, only the second on `less` others."""
    first = np.zeros(360)
    second = np.zeros(360)
    first[:more], second[more : more + less] = 1.0, 1.0
    compared = comparison.compare("top1_error", first, second)
    assert compared.p_value == pytest.approx(p_value, abs=1e-4)
    assert compared.conclusion() == conclusion
    low, high = compared.interval
    assert low < high
    assert low <= compared.difference <= high


def test_propensity_scored_metrics_of_other_weights_are_left_out(caplog):
    values = {name: np.array([0.0, 1.0]) for name in ("psp@1", "coverage@1", "top1_error")}
    for same_weights, expected in ((True, [*values]), (False, ["coverage@1", "top1_error"])):
        compared = comparison.compare_all(values, values, same_weights=same_weights)
        assert [each.metric for each in compared] == expected
        assert ("Not compared: psp@1." in caplog.text) is not same_weights


@pytest.mark.nightly
def test_the_test_has_its_rejection_rate_for_equal_runs(rng):
    rejected = {"binary": 0, "graded": 0}
    for _ in range(400):
        differences = rng.choice([-1.0, 1.0], size=14)
        rejected["binary"] += statistics.sign_test(differences) <= statistics.LEVEL
        rejected["graded"] += statistics.sign_test(differences * rng.random(14)) <= statistics.LEVEL
    assert 0 < rejected["binary"] <= 0.05 * 400
    assert 0.02 * 400 <= rejected["graded"] <= 0.08 * 400
