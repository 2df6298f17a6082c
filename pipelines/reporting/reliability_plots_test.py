"""Reliability diagrams of all kinds of predictions are drawn."""

import numpy as np
import pytest
import scipy.sparse

from rank4class.pipelines.evaluation import reliability
from rank4class.pipelines.evaluation.calibration import Platt, Temperature
from rank4class.pipelines.reporting import reliability_plots


def diagram(scores, labels, calibration):
    calibrated = reliability.evaluate(calibration, np.asarray(scores, np.float64), labels)
    return reliability_plots.reliability_diagram(calibrated)


def test_diagrams_show_the_calibration():
    scores, labels = np.eye(3), np.array([0, 1, 0])
    pixels = diagram(scores, labels, Temperature(1.0))
    assert (pixels.dtype, pixels.ndim, pixels.shape[2]) == (np.uint8, 3, 3)
    assert max(pixels.shape) <= 720
    middle = pixels.shape[1] // 2
    other = diagram(scores, labels, Temperature(0.1))
    assert other.shape == pixels.shape
    assert np.array_equal(other[40:, : middle - 10], pixels[40:, : middle - 10])  # before
    assert not np.array_equal(other[40:, middle:], pixels[40:, middle:])  # after


@pytest.mark.parametrize("score", [-1e6, 1e6])
def test_diagrams_of_certain_predictions(score):
    labels = scipy.sparse.csr_array(np.eye(4, 5))
    assert diagram(np.full([4, 5], score), labels, Platt((1.0,), (0.0,))).any()
