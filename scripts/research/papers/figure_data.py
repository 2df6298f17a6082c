"""Measurements for the documentation: small runs on scikit-learn's digits, sorters, the papers' figures.

Each takes seconds, and is committed under `docs/figures`, so that the site is built without them.
"""

import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import scipy.stats

from rank4class import losses
from rank4class.models import sorters
from rank4class.pipelines import config
from rank4class.pipelines.configs import digits_mlp
from rank4class.pipelines.evaluation import trained_model
from rank4class.pipelines.evaluation.reliability import Reliability
from rank4class.pipelines.storage.run_directory import read_json
from rank4class.pipelines.sweep import inference
from rank4class.pipelines.training import rank_training
from rank4class.scripts.research.configs import embedded_digits, embedded_digits_logistic
from rank4class.scripts.research.papers import pages
from rank4class.scripts.research.sorters import networks  # noqa: F401, registers its sorters

RESULTS = pathlib.Path(__file__).parents[3] / "docs" / "results"
BASELINE = "loss=softmax,interaction=dot"  # of Rank4Class's grids
SORTER_SIZE = 10  # scores of a list
SORTER_POINTS = 101
RANK_FUNCTIONS = ("handcrafted", "lstm", "cnn", "equivariant")
COUNT_FIELDS: Mapping[str, Any] = {
    "data.features": "rbm",
    "data.width": 100,
    "data.num_examples": 2_000,
    "epochs": 20.0,
}


def measure_sorters(folder: str) -> dict[str, Any]:
    """Ranks a list of evenly spaced scores with each sorter while one of its scores moves past the others."""
    del folder
    others = np.random.default_rng(0).permutation(np.linspace(-1.0, 1.0, SORTER_SIZE + 1)[1:-1])
    first = np.linspace(-1.0, 1.0, SORTER_POINTS)
    lists = np.column_stack([first, np.tile(others, [SORTER_POINTS, 1])]).astype(np.float32)
    rank_functions = {name: sorters.get(name, n=SORTER_SIZE) for name in ("exact", *RANK_FUNCTIONS)}
    ranks = {name: _rounded(sorter(lists)[:, 0]) for name, sorter in rank_functions.items()}
    return {"n": SORTER_SIZE, "scores": _rounded(lists[:, 0]), "ranks": ranks}


def measure_counts(folder: str) -> dict[str, Any]:
    """Trains n-choose-k with a learned count prior and logistic regression on images of one to four digits.

    The mean distributions of the number of digits are over the test images with each of the true "counts".
    """
    result: dict[str, Any] = {"counts": [1, 2, 3, 4], "models": {}}
    for name, experiment in (
        ("n_choose_k", embedded_digits.get_config()),
        ("logistic_regression", embedded_digits_logistic.get_config()),
    ):
        path = os.path.join(folder, name)
        results = rank_training.train(config.override(experiment, COUNT_FIELDS), path, progress=False)
        trained = trained_model.restore(path)
        task_data = trained.load_task()
        log_counts = trained.evaluate(task_data, keep_scores=True).log_counts
        assert log_counts is not None
        probabilities = np.exp(log_counts)
        true = task_data.splits["test"].num_relevant()
        means = [_rounded(probabilities[true == count].mean(axis=0)) for count in result["counts"]]
        result["models"][name] = {"distributions": means, "nll": round(results["test"]["nll"], 4)}
        result["test_examples"] = len(true)
    return result


def measure_digits(folder: str) -> dict[str, Any]:
    """Trains `digits_mlp`; returns the bins of the test split before and after the calibration.

    The "example" is the image whose class is ranked second by the smallest margin, with its calibrated
    probabilities.
    """
    rank_training.train(digits_mlp.get_config(), folder, progress=False)
    trained = trained_model.restore(folder)
    task_data = trained.load_task()
    evaluation = trained.evaluate(task_data, keep_scores=True)
    calibrated = evaluation.calibrated
    scores = evaluation.scores
    assert calibrated is not None
    assert scores is not None
    probabilities = calibrated.calibration.probabilities(scores)
    split = task_data.splits["test"]
    labels = np.asarray(split.labels)
    margins = probabilities.max(axis=1) - probabilities[np.arange(len(labels)), labels]
    index = int(np.argmin(np.where(evaluation.ranks == 2, margins, np.inf)))
    (pixels,) = split.features.values()
    return {
        "reliability": {
            "parameters": calibrated.calibration.describe(),
            "before": _bins(calibrated.before),
            "after": _bins(calibrated.after),
        },
        "example": {
            "index": index,
            "pixels": _rounded(pixels[index].reshape(8, 8)),
            "label": int(labels[index]),
            "scores": _rounded(scores[index]),
            "probabilities": _rounded(probabilities[index]),
        },
    }


def measure_reanalysis(folder: str) -> dict[str, Any]:
    """Re-analyses the 90 published cells of each metric of Rank4Class's Tables 7 to 12.

    "rows" has the mean over the six settings, a dataset with an encoder, of the gain over softmax with dot in
    points: of the best of the 15 cells; of the cell with the best mean rank on the other settings; of the
    best of 15 equal cells, with the deviation over the seeds of our frozen grid. The p-value is Friedman's,
    of losses with dot that are ranked alike.
    """
    del folder
    frozen = read_json(str(RESULTS / "rank4class" / "goemotions_frozen.json"))
    cells = pd.read_csv(pages.FOLDER / "values.csv")
    cells = cells.assign(cell=cells["cell"].str.replace("rescaled_mse", "mse"))  # ImageNet's form of it
    titles = ("best of 15", "chosen on the other settings", "best of 15 by chance", "Friedman p", "won")
    rows = [["metric", *titles]]
    for metric in ("top1_error", "top5_error", "ndcg@5"):
        seeds = [cell["metrics"][metric]["values"] for cell in frozen["cells"]]
        deviation = float(np.sqrt(np.var(seeds, axis=1, ddof=1).mean()))
        settings = cells[(cells["metric"] == metric) & cells["table"].isin(pages.GRIDS)]
        sign = 1.0 if losses.get_metric(metric).higher_is_better else -1.0
        values = sign * settings.pivot(index="table", columns="cell", values="value")
        gains = values.sub(values[BASELINE], axis=0)
        ranks = values.rank(axis=1)
        chosen = (ranks.sum() - ranks).idxmax(axis=1)  # of each setting, by the others
        with_dot = [values[name] for name in values if name.endswith("interaction=dot")]
        rows.append(
            [
                f"{metric} (%)",
                f"{gains.max(axis=1).mean():.2f}",
                f"{np.mean([gains.loc[setting, name] for setting, name in chosen.items()]):.2f}",
                f"{inference.expected_best(deviation, len(gains.columns)):.2f}",
                f"{scipy.stats.friedmanchisquare(*with_dot).pvalue:.3f}",
                f"{(gains.idxmax(axis=1) != BASELINE).sum()} of {len(gains)}",
            ]
        )
    return {"rows": rows}


def _bins(reliability: Reliability) -> dict[str, Any]:
    table = reliability.table()
    used = table[table["count"] > 0]
    return {"ece": round(reliability.ece, 5), **{name: _rounded(used[name]) for name in table.columns}}


def _rounded(values: Any) -> list:
    return np.round(np.asarray(values, np.float64), 5).tolist()


MEASUREMENTS: Mapping[str, Callable[[str], dict[str, Any]]] = {
    "sorters": measure_sorters,
    "counts": measure_counts,
    "digits": measure_digits,
    "reanalysis": measure_reanalysis,
}
