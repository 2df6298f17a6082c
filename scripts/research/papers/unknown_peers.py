"""Detection of unknown inputs beside the scores of other methods, on the vectors and scores of one run.

References:
  Hendrycks, Gimpel (2017), "A baseline for detecting misclassified and out-of-distribution examples in neural
  networks"; Liu, Wang, Owens, Li (2020), "Energy-based out-of-distribution detection"; Lee, Lee, Lee, Shin
  (2018), "A simple unified framework for detecting out-of-distribution samples and adversarial attacks"; Ren
  et al. (2021), "A simple fix to Mahalanobis distance for improving near-OOD detection"; Sun, Ming, Zhu, Li
  (2022), "Out-of-distribution detection with deep nearest neighbors".
"""

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.special
import sklearn.covariance
import sklearn.ensemble
import sklearn.neighbors
import tensorflow as tf

from rank4class.pipelines.evaluation import detector, trained_model
from rank4class.pipelines.reporting import tables
from rank4class.pipelines.task_data.loading import load_data

MEASURES = ("auroc", "fpr95")


def compare(workdirs: Sequence[str]) -> dict[str, Any]:
    """Prints the AUROC and the FPR at 95% of each method on each run; returns them in percent."""
    return {os.path.basename(os.path.abspath(each)): _of_run(each) for each in workdirs}


def _of_run(workdir: str) -> dict[str, Any]:
    trained = trained_model.restore(workdir)
    loaded = load_data(trained.experiment, workdir)  # as a training does, with the unknown inputs
    size = trained.experiment.evaluation_batch_size
    splits = {name: _outputs(trained, loaded, name, size) for name in ("train", "test", "unknown")}
    assert trained.detector is not None
    p_values = {
        name: trained.detector.p_values_of(
            detector.Outputs(vectors, detector.logits_of(tf.constant(scores)).numpy())
        )
        for name, (vectors, scores) in splits.items()
        if name != "train"
    }
    methods: dict[str, tuple[np.ndarray, ...]] = {"detector": (p_values["test"], p_values["unknown"])}
    methods |= _others(splits, loaded.splits["train"].labels)
    rows = [["method", "AUROC (%)", "FPR at 95% (%)"]]
    measures: dict[str, Any] = {}
    for name, (known, unknown) in methods.items():
        measured = detector.measure(trained.detector, known, unknown)
        measures[name] = {each: round(measured[each], 2) for each in MEASURES}
        measures[name]["intervals"] = {each: measured["intervals"][each] for each in MEASURES}
        intervals = measures[name]["intervals"]
        cells = (f"{measures[name][each]:.2f} {tables.format_interval(intervals[each])}" for each in MEASURES)
        rows.append([name, *cells])
    print(f"{workdir}\n\n{tables.text_table(rows)}\n")
    sizes = {name: len(splits[name][0]) for name in ("test", "unknown")}
    return {**sizes, "methods": measures}


def _outputs(trained: Any, loaded: Any, split: str, batch_size: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the vectors `[N, d]` and the scores `[N, n]` of a split."""
    model = trained.model

    @tf.function(autograph=False, reduce_retracing=True)
    def outputs(features: Any) -> dict[str, tf.Tensor]:
        return {"h": model.encoder(features, training=False), "scores": model(features, training=False)}

    collected = loaded.without_labels().collect(split, batch_size, outputs, "")
    return collected["h"], collected["scores"]


def _others(splits: dict[str, Any], labels: np.ndarray) -> dict[str, tuple[np.ndarray, ...]]:
    """Returns name -> values of the test examples and of unknown inputs, high for known ones."""
    train = splits["train"][0].astype(np.float64)
    means = np.stack([train[labels == j].mean(axis=0) for j in np.unique(labels)])
    places = np.unique(labels, return_inverse=True)[1]
    within, all_ = (
        np.linalg.inv(sklearn.covariance.ledoit_wolf(each, assume_centered=True)[0])
        for each in (train - means[places], train - train.mean(axis=0))
    )
    unit = train / np.linalg.norm(train, axis=1, keepdims=True)

    def distances(x: np.ndarray, centers: np.ndarray, inverse: np.ndarray) -> np.ndarray:
        return np.min(
            [np.einsum("ij,jk,ik->i", x - m, inverse, x - m, optimize=True) for m in centers], axis=0
        )

    def nearest(x: np.ndarray) -> np.ndarray:
        return (x / np.linalg.norm(x, axis=1, keepdims=True) @ unit.T).max(axis=1)

    of_classes = {name: distances(splits[name][0], means, within) for name in ("test", "unknown")}
    of_all = {name: distances(splits[name][0], train.mean(axis=0)[None], all_) for name in of_classes}
    methods: dict[str, Callable[..., np.ndarray]] = {
        "largest probability": lambda h, s, _: scipy.special.softmax(s, axis=1).max(axis=1),
        "largest score": lambda h, s, _: s.max(axis=1),
        "energy": lambda h, s, _: scipy.special.logsumexp(s, axis=1),
        "nearest example": lambda h, s, _: nearest(h),
        "Mahalanobis": lambda h, s, name: -of_classes[name],
        "relative Mahalanobis": lambda h, s, name: of_all[name] - of_classes[name],
    }
    results = {
        title: tuple(score(*splits[name], name) for name in ("test", "unknown"))
        for title, score in methods.items()
    }
    for title, estimator in (
        ("scikit-learn's LocalOutlierFactor", sklearn.neighbors.LocalOutlierFactor(novelty=True)),
        ("scikit-learn's IsolationForest", sklearn.ensemble.IsolationForest(random_state=0)),
    ):
        estimator.fit(train)
        results[title] = tuple(estimator.score_samples(splits[name][0]) for name in ("test", "unknown"))
    return results
