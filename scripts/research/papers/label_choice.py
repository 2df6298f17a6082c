"""Test errors after labeling examples that are chosen at random, by margin, or by `labeling`."""

import os
from typing import Any

import numpy as np

import rank4class
from rank4class.pipelines import config, configs
from rank4class.pipelines.export import labeling
from rank4class.pipelines.reporting import tables
from rank4class.pipelines.task_data import loading


def compare(path: str, fraction: float, count: int, repetitions: int) -> dict[str, Any]:
    """Prints and returns the test errors in percent before and after each choice, one for each repetition.

    The examples of one class each that train or validate are labeled at first, a random fraction of them, or
    may be chosen. The models are those of `RankClassifier`.
    """
    name, changes, _ = configs.for_data(path, {})
    changes = {"data.path": path, **changes, "data.validation_fraction": 0.0}
    dataset = loading.read_dataset(config.override(configs.get_config(name), changes).data)
    parts = [dataset.splits[name] for name in ("train", "validation") if name in dataset.splits]
    [feature] = parts[0].features
    x = np.concatenate([part.features[feature] for part in parts])
    y = np.concatenate([part.labels for part in parts])
    test = dataset.splits["test"]
    errors: dict[str, list[float]] = {}

    def fit(title: str, rows: np.ndarray) -> rank4class.RankClassifier:
        classifier = rank4class.RankClassifier().fit(x[rows], y[rows])
        error = 100.0 * (1.0 - classifier.score(test.features[feature], test.labels))
        errors.setdefault(title, []).append(round(error, 3))
        print(f"{path}: {title} {error:.2f}", flush=True)
        return classifier

    for seed in range(repetitions):
        order = np.random.default_rng(seed).permutation(len(y))
        labeled, others = np.split(order, [round(fraction * len(y))])
        classifier = fit(f"{len(labeled):,} examples", labeled)
        p = classifier.predict_proba(x[others])
        best = np.sort(p, axis=1)[:, -2:]
        chosen = {
            "random": np.arange(count),  # the others are in random order
            "margin": np.argsort(best[:, 1] - best[:, 0])[:count],
            "informative": labeling.choose_indices(p, count),
        }
        for title, indices in chosen.items():
            fit(title, np.concatenate([labeled, others[indices]]))
    rows = [[title, f"{np.mean(each):.2f}", f"{np.std(each, ddof=1):.2f}"] for title, each in errors.items()]
    header = ["chosen", "test error (%)", "sd"]
    print(f"\n{os.path.basename(path)}\n\n{tables.text_table([header, *rows])}\n", flush=True)
    return {"examples": len(y), "count": count, "test_error": errors}
