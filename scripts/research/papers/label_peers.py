"""Wrong labels that are found among planted ones, beside cleanlab and nearest neighbours.

References:
  Northcutt, Jiang, Chuang (2021), "Confident learning: estimating uncertainty in dataset labels".
"""

import importlib
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.special
import sklearn.linear_model
import sklearn.metrics
import sklearn.model_selection
import sklearn.preprocessing

from rank4class import data
from rank4class.pipelines import config, configs
from rank4class.pipelines.evaluation import label_errors, neighbors
from rank4class.pipelines.reporting import label_report, tables
from rank4class.pipelines.task_data.loading import load_data

SHARES = (0.05, 0.1, 0.2)
KINDS = ("random", "confusable")
_SIMILAR = 3  # classes that a confusable mistake may name
_NEIGHBORS = 10
_INVERSE_PENALTY = 10.0  # of the logistic regression on unit vectors


def compare(paths: Sequence[str]) -> dict[str, Any]:
    """Prints AUROC and precision of each method on each folder's training examples; returns them in percent.

    The precision is that of the first `k` labels, for `k` planted mistakes.
    """
    results = {}
    for path in paths:
        name, changes, _ = configs.for_data(path, {})
        changes = {"data.path": path, **changes, "words": "none"}
        experiment = label_report.for_vectors(config.override(configs.get_config(name), changes))
        task_data = load_data(experiment, path).of_splits("train")
        train = task_data.splits["train"]
        vectors, labels = train.features["embedding"], train.labels
        of_path: dict[str, Any] = {"examples": len(labels)}
        rows = [["mistakes", "%", "method", "AUROC (%)", "precision (%)", "estimate (%)"]]
        for kind in KINDS:
            for share in SHARES:
                given = planted(vectors, labels, kind, share)
                is_wrong = given != labels
                measures = {}
                for method, scores, estimate in _methods(vectors, given, len(task_data.class_names)):
                    first = np.argsort(-scores, kind="stable")[: is_wrong.sum()]
                    auroc = sklearn.metrics.roc_auc_score(is_wrong, scores)
                    figures = {"auroc": auroc, "precision": is_wrong[first].mean()}
                    figures |= {} if estimate is None else {"estimate": estimate}
                    measures[method] = {n: round(100.0 * float(x), 2) for n, x in figures.items()}
                    cells = [f"{measures[method][n]:.2f}" if n in figures else "" for n in _FIGURES]
                    rows.append([kind, f"{100.0 * is_wrong.mean():.1f}", method, *cells])
                mistakes = round(100.0 * float(is_wrong.mean()), 2)
                of_path[f"{kind} {share:g}"] = {"mistakes": mistakes, "methods": measures}
        results[os.path.basename(os.path.abspath(path))] = of_path
        print(f"{path}\n\n{tables.text_table(rows)}\n", flush=True)
    return results


_FIGURES = ("auroc", "precision", "estimate")


def planted(vectors: np.ndarray, labels: np.ndarray, kind: str, share: float) -> np.ndarray:
    """Returns labels of which a share names another class: any one, or one of those with the nearest mean.

    >>> labels = np.arange(1000) % 5
    >>> wrong = planted(np.eye(5)[labels] + labels[:, None], labels, "confusable", 0.1) != labels
    >>> bool(0.05 < wrong.mean() < 0.15)
    True
    """
    n = int(labels.max()) + 1
    unit = sklearn.preprocessing.normalize(vectors)
    means = data.Split({}, labels).class_matrix(n).astype(np.float64).T @ unit
    nearest, _ = neighbors.nearest(means, means, min(_SIMILAR, n - 1), themselves=np.arange(n))
    rng = np.random.default_rng(0)
    wrong = np.flatnonzero(rng.random(len(labels)) < share)
    others = rng.integers(1, n, size=len(wrong)) + labels[wrong]
    similar = nearest[labels[wrong], rng.integers(nearest.shape[1], size=len(wrong))]
    given = labels.copy()
    given[wrong] = others % n if kind == "random" else similar
    return given


def _methods(
    vectors: np.ndarray, labels: np.ndarray, n: int
) -> Iterator[tuple[str, np.ndarray, float | None]]:
    """Yields name, scores that are high for labels that look wrong, and an estimate of their share."""
    judgement = label_errors.judge(vectors, labels, n)
    yield "check_labels", judgement.scores, judgement.share / 100.0
    one_hot = data.Split({}, labels).class_matrix(n).astype(np.float64)
    regression = label_errors.LeaveOneOut(vectors, one_hot)
    rows = np.arange(len(labels))
    some = rows[:: max(1, len(rows) // 5_000)]
    strength = regression.best_strength(some)
    scale = label_errors.fit_scale(regression.predict(some, strength), labels[some])
    p = scipy.special.softmax(scale * regression.predict(rows, strength), axis=1)
    yield from _cleanlab(p, labels, "the same probabilities")
    unit = sklearn.preprocessing.normalize(vectors)
    estimator = sklearn.linear_model.LogisticRegression(C=_INVERSE_PENALTY, max_iter=300)
    folds = sklearn.model_selection.StratifiedKFold(5, shuffle=True, random_state=0)
    p = sklearn.model_selection.cross_val_predict(estimator, unit, labels, cv=folds, method="predict_proba")
    yield from _cleanlab(p, labels, "logistic regression in 5 folds")
    nearest, _ = neighbors.nearest(vectors, vectors, _NEIGHBORS, themselves=rows)
    yield "other labels of ten neighbours", (labels[nearest] != labels[:, None]).mean(axis=1), None


def _cleanlab(p: np.ndarray, labels: np.ndarray, title: str) -> Iterator[tuple[str, np.ndarray, float]]:
    count, rank = (importlib.import_module(f"cleanlab.{name}") for name in ("count", "rank"))
    share = count.num_label_issues(labels, p) / len(labels)
    for method in ("self_confidence", "normalized_margin"):
        quality = rank.get_label_quality_scores(labels, p, method=method)
        yield f"cleanlab's {method}, {title}", -quality, share
