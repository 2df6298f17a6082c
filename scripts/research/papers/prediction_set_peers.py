"""Prediction sets beside those of MAPIE and crepes, and the coverages of random splits beside their law.

Both packages are optional: `pip install mapie crepes`.
"""

import importlib
import importlib.metadata
from typing import Any

import numpy as np
import scipy.stats
import tensorflow as tf
from sklearn.base import BaseEstimator, ClassifierMixin

from rank4class.pipelines.evaluation import prediction_sets, trained_model
from rank4class.pipelines.reporting import tables

COVERAGES = prediction_sets.COVERAGES
SCORES = ("rank", "threshold", "adaptive")
SPLIT_COVERAGE = 0.9  # of the random splits


def compare(workdir: str, splits: int) -> dict[str, Any]:
    """Prints how many sets of the test examples equal those of the peers, and the law of the coverage.

    Returns the mean size of the sets of each score, for the `COVERAGES` of an evaluation, and the coverages
    of random splits of the calibration and test examples together.
    """
    trained = trained_model.restore(workdir)
    loaded = trained.load_task()
    parts = []
    for split in ("calibration", "test"):
        scores = trained.evaluate(loaded, split, keep_scores=True).scores
        assert trained.calibration is not None
        assert scores is not None
        # Probabilities of float64 have no ties, of which MAPIE's top_k takes all.
        parts.append((trained.calibration.probabilities(scores), loaded.splits[split].labels))
    versions = {name: importlib.metadata.version(name) for name in ("mapie", "crepes")}
    rows = [["sets", "peer", "examples", "equal"]]
    sizes = {}
    for name in SCORES:
        sizes[name] = [round(float(_sets(name, parts, c).sum(axis=1).mean()), 4) for c in COVERAGES]
        for peer, theirs in _peers(name, parts).items():
            same = [(_sets(name, parts, c) == theirs(c)).all(axis=1) for c in COVERAGES]
            title = f"{peer} {versions[peer.split()[0].lower()]}"
            rows.append([name, title, f"{np.size(same):,}", f"{np.sum(same):,}"])
    print(tables.text_table(rows))
    coverages = _random_splits(parts, splits)
    examples, tested = (len(labels) for _, labels in parts)
    rank = int(np.ceil((examples + 1) * SPLIT_COVERAGE))
    law = scipy.stats.betabinom(tested, rank, examples + 1 - rank)
    quantiles = np.percentile(coverages, [2.5, 50, 97.5]), law.ppf([0.025, 0.5, 0.975]) / tested
    print(f"Coverage of {splits} splits, and its beta-binomial law, quantiles 2.5, 50, 97.5%:", *quantiles)
    return {
        "coverages": COVERAGES,
        "sizes": sizes,
        "examples": [examples, tested],
        "versions": versions,
        "splits": np.round(np.sort(coverages), 5).tolist(),
        "split_coverage": SPLIT_COVERAGE,
    }


def _sets(name: str, parts: list, coverage: float) -> np.ndarray:
    (first, labels), (second, _) = parts
    scores = prediction_sets.true_scores(name, {}, _block(first), labels)
    sets = prediction_sets.fit(name, {}, scores, labels)
    return sets.scores(*_block(second)).numpy() <= sets.limits(coverage)


def _block(probabilities: np.ndarray) -> prediction_sets.Block:
    return tf.cast(probabilities, tf.float32), probabilities, None


def _peers(name: str, parts: list) -> dict[str, Any]:
    """Returns peer -> a function of a coverage to the sets of the test examples, bool `[N, n]`."""
    (first, labels), (second, _) = parts
    unfitted = prediction_sets.PredictionSets(name, {}, *[np.zeros(0)] * 4)
    alphas = unfitted.scores(*_block(first), calibrates=True).numpy()[np.arange(len(first)), labels]
    test_alphas = unfitted.scores(*_block(second)).numpy()
    of_crepes = importlib.import_module("crepes").ConformalClassifier().fit(alphas)

    def in_crepes(coverage: float) -> np.ndarray:
        # It compares with 1 - confidence, which rounding may put below a p-value: 1 - 0.8 < 0.2.
        return of_crepes.predict_set(test_alphas, confidence=coverage - 1e-9, smoothing=False) > 0

    peers = {"crepes": in_crepes}
    theirs = {"rank": "top_k", "threshold": "lac"}.get(name)
    if theirs:
        classifier = _Probabilities().fit(first, labels)
        conformal = importlib.import_module("mapie.classification").SplitConformalClassifier

        def in_mapie(coverage: float) -> np.ndarray:
            sets = conformal(classifier, coverage, conformity_score=theirs)
            return sets.conformalize(first, labels).predict_set(second)[1][:, :, 0]

        peers[f"MAPIE ({theirs})"] = in_mapie
    return peers


class _Probabilities(ClassifierMixin, BaseEstimator):
    """A classifier whose inputs are the probabilities."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> "_Probabilities":
        del y
        self.classes_ = np.arange(X.shape[1])
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        return X

    def predict(self, X: np.ndarray) -> np.ndarray:
        return X.argmax(axis=1)


def _random_splits(parts: list, splits: int) -> np.ndarray:
    """Returns the coverage of the test examples of random splits of both parts, `[splits]`."""
    (_, first), _ = parts
    probabilities, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    coverages = []
    for seed in range(splits):
        rows = np.split(np.random.default_rng(seed).permutation(len(labels)), [len(first)])
        drawn = [(probabilities[each], labels[each]) for each in rows]
        in_set = _sets("threshold", drawn, SPLIT_COVERAGE)
        coverages.append(np.take_along_axis(in_set, drawn[1][1][:, None], axis=1).mean())
    return np.array(coverages)
