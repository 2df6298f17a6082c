import numpy as np
import pytest

from rank4class import losses
from rank4class.losses import metrics

# Two examples with the inverse propensities of their first 3 classes, and those of their classes: 2, 4 and 8.
GAINS = [[2.0, 0.0, 8.0], [0.0, 0.0, 0.0]]
IDEAL = [[8.0, 4.0, 2.0], [4.0, 0.0, 0.0]]
SIZES = [3, 1]
D = 1.0 / np.log2(3.0)


def test_by_hand():
    for metric, values, best in (
        (metrics.psp, [2 + 8, 0], [8 + 4 + 2, 4]),
        (metrics.psr, [(2 + 8) / 3, 0], [(8 + 4 + 2) / 3, 4]),
        (metrics.psndcg, [(2 + 8 / 2) / (1 + D + 1 / 2), 0], [(8 + 4 * D + 2 / 2) / (1 + D + 1 / 2), 4]),
    ):
        for actual, expected in zip(metric(GAINS, IDEAL, SIZES), (values, best), strict=True):
            np.testing.assert_allclose(actual, np.array(expected) / np.mean(best), rtol=1e-12)
        assert np.array_equal(metric(np.zeros([2, 3]), np.zeros([2, 3]), [0, 0]), np.zeros([2, 2]))
        assert losses.get_metric(f"{metric.__name__}@3").function is metric


def test_propensities_by_hand():
    c = (np.log(1000) - 1) * (2.6 + 1) ** 0.6
    expected = [1 / (1 + c * (count + 2.6) ** -0.6) for count in (0, 7)]
    np.testing.assert_allclose(metrics.propensities([0, 7], 1000, a=0.6, b=2.6), expected, rtol=1e-12)
    for wrong, message in (({"a": -0.1}, "a=-0.1: too small"), ({"b": 0.0}, "b=0.0: not positive")):
        with pytest.raises(ValueError, match=message):
            metrics.propensities([1], 10, **wrong)


def test_trivial_for_few_classes():
    losses.get_metric("coverage@3").check_classes(4)
    with pytest.raises(ValueError, match="k=3: trivial for 3 classes"):
        losses.get_metric("psp@3").check_classes(3)
    with pytest.raises(ValueError, match=r"metric='psr@0': unknown. There are: topK_accuracy.* coverage@K, "):
        losses.get_metric("psr@0")
