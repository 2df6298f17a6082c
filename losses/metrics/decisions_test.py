import numpy as np
import pytest
import sklearn.metrics

from rank4class import losses
from rank4class.losses import metrics

RNG = np.random.default_rng(0)
LABELS = RNG.random([60, 5]) < [0.5, 0.3, 0.1, 0.0, 0.0]  # the last two classes have no example
DECIDED = RNG.random([60, 5]) < [0.4, 0.3, 0.2, 0.1, 0.0]


@pytest.mark.parametrize(
    ("labels", "decided"), [(LABELS, DECIDED), (LABELS, LABELS), (LABELS, 0 * DECIDED > 0)]
)
def test_metrics_equal_scikit_learns(labels, decided):
    for average in ("micro", "macro"):
        expected = sklearn.metrics.f1_score(labels, decided, average=average, zero_division=0)
        value = getattr(metrics, f"f1_{average}")(decided, 3.0 * labels)
        np.testing.assert_allclose(value, expected, rtol=1e-12)
    expected = sklearn.metrics.accuracy_score(labels, decided)
    assert np.mean(metrics.subset_accuracy(decided, labels)) == pytest.approx(expected)


def test_no_class_at_all():
    nothing = np.zeros([2, 3], bool)
    assert metrics.f1_micro(nothing, nothing) == metrics.f1_macro(nothing, nothing) == 0.0
    assert metrics.subset_accuracy(nothing, nothing).numpy().tolist() == [1.0, 1.0]


def test_metrics_by_name():
    for name, metric in metrics.DECISION_METRICS.items():
        assert losses.get_metric(name) is metric
        assert metric.function is getattr(metrics, name)
        assert "Common arguments" in metric.function.__doc__
