"""LightGBM's LambdaRank on the queries of a config, the baseline of learning to rank.

LightGBM is an optional package, of the extra `lightgbm`.
"""

import importlib
import itertools
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rank4class import compat, data, losses
from rank4class.pipelines import config
from rank4class.pipelines.storage.run_directory import check_folder
from rank4class.pipelines.task_data import checks, hashing, loading, split_steps
from rank4class.scripts.research.sorters import study

LEAVES = (7, 15, 31)
LEARNING_RATES = (0.03, 0.1)
ROUNDS, PATIENCE = 500, 50  # trees, and trees without a better validation value
PADDING = -1e9  # score of a position without a document
TITLE = "LightGBM lambdarank"
Splits = Mapping[str, data.Split]


def train(experiment: config.Experiment, folder: str | os.PathLike, seeds: Sequence[int]) -> None:
    """Trains LambdaRank for each seed, and writes the test values of its metrics to `study.json`.

    The numbers of leaves and the learning rate are those with the best validation value of the monitored
    metric, over the seeds; so is the number of trees of each training. The dataset has the feature `items`.
    """
    checks.check(experiment, trains=False)
    if not experiment.monitor.startswith("ndcg@"):
        raise ValueError(
            f"monitor={experiment.monitor!r}: LightGBM stops by the NDCG of the first K. Use ndcg@K."
        )
    for name in experiment.metrics:
        if not isinstance(losses.get_metric(name), losses.metrics.RankingMetric):
            raise ValueError(f"metrics={name!r}: is not a function of scores. Leave it out.")
    study.check_seeds(seeds)
    compat.require_extra("lightgbm")
    lightgbm = importlib.import_module("lightgbm")
    dataset = loading.read_dataset(experiment.data)
    started = time.monotonic()
    if "items" not in dataset.splits["train"].features:
        raise ValueError(f"data.name={experiment.data.name!r}: no documents with features. Use 'letor'.")
    splits = split_steps.limit_examples(experiment.data, dataset.splits)
    hashes = hashing.data_hashes(dataset.class_names, splits)
    settings = {
        "seeds": str(list(seeds)),
        "monitor": experiment.monitor,
        "metrics": ", ".join(experiment.metrics),
    }
    record = {**dataset.files, **hashes, **settings}
    study.check_result(check_folder(folder, "study of sorters"), record)
    tried = []
    for leaves, rate in itertools.product(LEAVES, LEARNING_RATES):
        results = [_train(lightgbm, splits, experiment, leaves, rate, seed) for seed in seeds]
        value = float(np.mean([validation for validation, _ in results]))
        print(f"{leaves} leaves, learning rate {rate:g}: validation {experiment.monitor} {100 * value:.2f}")
        tried.append((value, [test for _, test in results], leaves, rate))
    _, tests, leaves, rate = max(tried, key=lambda one: one[0])
    metrics = {name: [(100.0 * test[name]).tolist() for test in tests] for name in experiment.metrics}
    examples = {name: len(split) for name, split in splits.items()}
    notes = study.boundary_notes(TITLE, "leaves", leaves, LEAVES)
    notes += study.boundary_notes(TITLE, "learning rate", rate, LEARNING_RATES)
    sessions = [study.session(started, lightgbm=lightgbm.__version__)]
    study.write_result(folder, seeds, {TITLE: metrics}, examples, record, sessions, notes, hashes["test"])


def _train(
    lightgbm: Any, splits: Splits, experiment: config.Experiment, leaves: int, rate: float, seed: int
) -> tuple[float, dict[str, np.ndarray]]:
    """Returns the validation value of the monitor, and metric -> its values for the test queries, `[N]`."""
    train, valid = (lightgbm.Dataset(**_rows(splits[name])) for name in ("train", "validation"))
    options = {
        "objective": "lambdarank",
        "num_leaves": leaves,
        "learning_rate": rate,
        "bagging_fraction": 0.8,
        "bagging_freq": 1,
        "feature_fraction": 0.8,
        "eval_at": [int(experiment.monitor.partition("@")[2])],
        "seed": seed,
        "num_threads": 1,
        "verbose": -1,
    }
    stop = lightgbm.early_stopping(PATIENCE, verbose=False)
    ranker = lightgbm.train(options, train, ROUNDS, valid_sets=[valid], callbacks=[stop])
    of_validation = _values(ranker, splits["validation"], [experiment.monitor])
    test = _values(ranker, splits["test"], experiment.metrics)
    return float(of_validation[experiment.monitor].mean()), test


def _present(split: data.Split) -> np.ndarray:
    """Returns which positions of the lists hold a document, bool `[N, m]`."""
    shape = split.features["items"].shape[:2]
    return np.ones(shape, bool) if split.excluded is None else ~split.excluded.toarray().astype(bool)


def _rows(split: data.Split) -> dict[str, np.ndarray]:
    """Returns the documents' features `[R, d]` and grades `[R]`, and the number of documents per query."""
    present = _present(split)
    features = split.features["items"]
    grades = split.label_matrix.toarray()
    return {"data": features[present], "label": grades[present], "group": present.sum(axis=1)}


def _values(ranker: Any, split: data.Split, metrics: Sequence[str]) -> dict[str, np.ndarray]:
    """Returns metric -> its values for the queries of a split, `[N]`."""
    present = _present(split)
    scores = np.full(present.shape, PADDING, np.float32)
    scores[present] = ranker.predict(split.features["items"][present])
    labels = split.label_matrix.toarray().astype(np.float32)
    ranking: Any = losses.get_metric
    return {name: ranking(name).of_scores(scores, labels).numpy() for name in metrics}
