"""AUROC of unknown inputs against arithmetic and scikit-learn."""

import numpy as np
import pytest
import scipy.special
import sklearn.metrics

from rank4class.pipelines.evaluation import unknown_inputs


def test_scikit_learn_and_its_resamples(rng):
    known = rng.normal(size=[150, 5]).round(1)
    unknown = 0.7 * rng.normal(size=[60, 5]).round(1)
    result = unknown_inputs.evaluate(known, unknown, temperature=0.5)
    scores = np.concatenate([known, unknown])
    is_unknown = np.arange(210) >= 150
    measures = {
        "maximum_probability": -scipy.special.softmax(scores / 0.5, axis=1).max(axis=1),
        "energy": -0.5 * np.log(np.exp(scores / 0.5).sum(axis=1)),
    }
    for name, values in measures.items():
        assert result[name] == pytest.approx(100 * sklearn.metrics.roc_auc_score(is_unknown, values))
    rows = [rng.integers(210, size=210) for _ in range(300)]
    draws = [100 * sklearn.metrics.roc_auc_score(is_unknown[each], values[each]) for each in rows]
    np.testing.assert_allclose(result["intervals"]["energy"], np.percentile(draws, [2.5, 97.5]), atol=1.2)


def test_few_and_separated_examples():
    known = np.array([[9.0, 0.0], [0.0, 8.0]])
    unknown = np.array([[1.0, 0.0]])
    result = unknown_inputs.evaluate(known, unknown)  # some resamples have no unknown example
    assert (result["maximum_probability"], result["energy"]) == (100.0, 100.0)
    assert result["intervals"] == {"maximum_probability": None, "energy": None}
