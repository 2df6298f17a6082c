"""Forecasts of the error of twice as many examples."""

import numpy as np
import pytest

from rank4class.pipelines.evaluation import learning_curve


@pytest.mark.parametrize(("floor", "power"), [(0.0, 0.3), (0.1, 1.0), (0.2, 0.0)])
def test_forecast_of_a_power_law(floor, power):
    sizes = np.array([100, 200, 400, 800])
    errors = floor + 0.05 * (sizes / 800) ** -power
    deviations = np.sqrt(errors * (1 - errors) / sizes)
    forecast = learning_curve._forecast(sizes, errors, deviations)
    assert forecast == pytest.approx(floor + 0.05 * 2.0**-power, abs=2e-3)


def test_errors_fall_and_the_interval_holds_the_error_of_twice_as_many(rng):
    centers = 2.0 * np.eye(10)
    labels = np.arange(800) % 10
    vectors = centers[labels] + rng.normal(size=[800, 10])
    order = rng.permutation(800)
    half = learning_curve.measure(vectors[order[:400]], labels[order[:400]], 10)
    whole = learning_curve.measure(vectors, labels, 10)
    assert half.sizes == [50, 100, 200, 400]
    assert half.errors[0] > half.errors[-1]
    assert half.interval[0] <= whole.errors[-1] <= half.interval[1]
    assert half.interval[0] < half.forecast < half.interval[1]
