"""The numbers of the plots by hand, and the colors of the plots."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_rgb

from rank4class.pipelines.evaluation import reliability
from rank4class.pipelines.evaluation.calibration import Temperature
from rank4class.pipelines.reporting import plots


def has_color(pixels, color):
    """Returns whether an image has a patch of a color, up to one step of each channel."""
    wanted = 255 * np.array(to_rgb(color))
    return (np.abs(pixels - wanted).max(axis=2) <= 1.0).sum() > 400


def assert_is_picture(pixels, most):
    assert (pixels.dtype, pixels.ndim, pixels.shape[2]) == (np.uint8, 3, 3)
    assert max(pixels.shape) <= most


def test_classes_that_are_not_shown_count_as_other():
    counts = plots.confusion_counts(
        np.array([1, 1, 1, 3, 4, 9]), np.array([1, 4, 9, 1, 1, 9]), np.array([1, 4])
    )
    assert counts.tolist() == [[1, 1, 1], [1, 0, 0]]  # classes 3 and 9 have no row


def test_the_classes_with_the_most_errors():
    labels = np.array([0, 0, 0, 1, 2, 2, 3, 4, 4])
    predicted = np.array([3, 3, 0, 1, 3, 2, 3, 4, 4])
    # Errors: class 3 in 3, class 0 in 2, class 2 in 1; then class 4 has two examples, class 1 one.
    for count, expected in ((1, [3]), (2, [0, 3]), (3, [0, 2, 3]), (4, [0, 2, 3, 4])):
        assert plots.most_confused(labels, predicted, 6, count).tolist() == expected


@pytest.mark.parametrize("n", [1, 2, 4, 5, 6, 12, 13, 28, 1_000, 1_000_000])
def test_rank_bars_cover_all_ranks(n):
    edges = plots.rank_edges(n)
    assert (edges[0], edges[-1]) == (1, n + 1)
    assert (np.diff(edges) > 0).all()
    assert len(edges) - 1 <= 12
    assert set(range(1, min(n, 5) + 1)) <= set(edges)


def test_every_rank_is_counted():
    ranks = np.array([1, 1, 1, 2, 5, 6, 13, 14, 1_000, np.inf], np.float32)
    fractions = plots.rank_fractions(ranks, plots.rank_edges(1_000))  # 1, 2, 3, 4, 5, 6-13, 14-32, ...
    np.testing.assert_allclose(fractions, np.array([3, 1, 0, 0, 1, 2, 1, 0, 0, 0, 1, 1]) / 10)
    assert fractions.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("n", [1, 13, 1_000_000])
@pytest.mark.filterwarnings("error")  # of classes without an example
def test_confusion_matrices_of_any_size_are_drawn(n):
    labels = np.array([n - 1, n // 2, n // 2])
    figure = plots.confusion_matrix(labels, labels // 2, ["$\\frac{$\tb\nc"] * n)  # drawn without markup
    assert_is_picture(plots.pixels(figure), 1_700)


def test_correct_is_blue_and_errors_are_orange():
    labels = np.arange(3)
    errors = np.array([1, 2, 0])
    figures = [plots.confusion_matrix(labels, guess, ["a", "b", "c"]) for guess in (labels, errors)]
    right, wrong = map(plots.pixels, figures)
    for pixels, present, absent in ((right, plots.RIGHT, plots.WRONG), (wrong, plots.WRONG, plots.RIGHT)):
        assert has_color(pixels, present)
        assert not has_color(pixels, absent)


def test_infinite_ranks_have_a_bar():
    figures = [plots.rank_histogram(np.array([1.0, 2.0, last]), 3) for last in (3.0, np.inf)]
    finite, not_finite = map(plots.pixels, figures)
    assert has_color(not_finite, plots.NOT_FINITE)
    assert not has_color(finite, plots.NOT_FINITE)
    assert plt.get_fignums() == []


PROBABILITIES = np.array([[0.0, 0.7, 0.3, 0.0, 0.0], [0.0, 0.1, 0.9, 0.0, 0.0], [0.0, 0.5, 0.5, 0.0, 0.0]])


def test_counts_missing_in_training_are_highlighted():
    known = np.array([1, 2, 2])
    pixels = plots.pixels(plots.count_distributions(PROBABILITIES, [1, 2, 1], known))
    assert has_color(pixels, plots.RIGHT)
    assert not has_color(pixels, plots.WRONG)
    shifted = np.roll(PROBABILITIES, 1, axis=1)
    assert has_color(plots.pixels(plots.count_distributions(shifted, [1, 2, 1], known)), plots.WRONG)


def diagram(scores, labels, calibration):
    calibrated = reliability.evaluate(calibration, np.asarray(scores, np.float64), labels)
    return plots.pixels(plots.reliability_diagram(calibrated))


def test_diagrams_show_the_calibration():
    scores = np.eye(3)
    labels = np.array([0, 1, 0])
    pixels = diagram(scores, labels, Temperature(1.0))
    assert_is_picture(pixels, 720)
    middle = pixels.shape[1] // 2
    other = diagram(scores, labels, Temperature(0.1))
    assert other.shape == pixels.shape
    assert np.array_equal(other[40:, : middle - 10], pixels[40:, : middle - 10])  # before
    assert not np.array_equal(other[40:, middle:], pixels[40:, middle:])  # after


def test_risk_coverage_is_drawn_before_and_after_the_calibration():
    scores = np.array([[9.0, 0.0, 0.0], [2.0, 2.0, 0.0], [1.0, 0.0, 0.0]])
    labels = np.array([0, 1, 1])
    low, high = (
        plots.pixels(plots.risk_coverage(reliability.evaluate(Temperature(t), scores, labels)))
        for t in (0.01, 1.0)
    )
    for pixels in (low, high):
        assert has_color(pixels, plots.RIGHT)
    assert not np.array_equal(low, high)  # certain predictions share their place
