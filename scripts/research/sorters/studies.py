"""The studies: data, model, losses and metrics of each task; see `study.run`."""

import functools
import os

import numpy as np
import scipy.stats
import sklearn.metrics
import tensorflow as tf

from rank4class.pipelines import config
from rank4class.pipelines.storage.run_directory import check_folder
from rank4class.pipelines.task_data import checks
from rank4class.pipelines.training import rank_training
from rank4class.scripts.research.sorters import sorting_tasks
from rank4class.scripts.research.sorters.study import Study

RANK_LOSS_WEIGHTS = (0.03, 0.1, 0.3, 1.0)  # of a loss on ranks that is added to the cross entropy


def _mlp(width, units, outputs):
    layers = tf.keras.layers
    return lambda arrays: tf.keras.Sequential(
        [layers.Input([width]), layers.Dense(units, activation="relu"), layers.Dense(outputs)]
    )


def _evaluate_spearman(model, arrays):
    features, targets = arrays
    correlation = scipy.stats.spearmanr(model(features)[:, 0], targets).statistic
    return {"spearman": 100.0 * correlation}


def _evaluate_precision(model, arrays):
    features, labels = arrays
    return {"map": 100.0 * sklearn.metrics.average_precision_score(labels, model(features), average="macro")}


def _pair_model(arrays):
    views = [tf.keras.layers.Input([view.shape[1]]) for view in arrays[:2]]
    codes = []
    for view in views:
        hidden = tf.keras.layers.Dense(128, activation="relu")(view)
        codes.append(tf.keras.layers.UnitNormalization()(tf.keras.layers.Dense(32)(hidden)))
    return tf.keras.Model(views, tf.matmul(*codes, transpose_b=True))


def _evaluate_recall(model, arrays):
    scores = model(arrays[:2]).numpy()
    # Negated, so that NaN ranks last.
    ranks = np.concatenate([(~(s < np.diag(s)[:, None])).sum(axis=1) for s in (scores, scores.T)])
    return {"recall@1": 100.0 * np.mean(ranks <= 1), "recall@5": 100.0 * np.mean(ranks <= 5)}


STUDIES = {
    "map": Study(  # of finding relevant instances
        plain=("sigmoid_cross_entropy", "hinge_ap"),
        ranked=("map_ranks", "map_precision"),
        epochs=20,
        measures=("map",),
        load=sorting_tasks.relevant_vectors,
        build=_mlp(20, 64, 1),
        evaluate=_evaluate_precision,
    ),
    "recall": Study(  # of matching pairs of views
        plain=("triplet",),
        ranked=("recall_triplet",),
        epochs=20,
        measures=("recall@1", "recall@5"),
        load=sorting_tasks.pairs,
        build=_pair_model,
        evaluate=_evaluate_recall,
    ),
}


def multi_label(experiment: config.Experiment, cache_dir: str | os.PathLike) -> Study:
    """Returns the study of a multi-label dataset with a linear model of its features.

    The features are vectors, from a frozen encoder, whose outputs are cached, or from the dataset.
    """
    checks.check(experiment)
    loaded = rank_training.load_data(experiment, check_folder(cache_dir, "study of sorters"))
    train = loaded.splits["train"]
    if "embedding" not in train.features or not train.multi_label:
        raise ValueError(
            f"data.name={experiment.data.name!r}: no vectors with several labels. Set data.multi_label=True, "
            "and encoder.frozen=True or features that are vectors."
        )
    parts = {
        name: (split.features["embedding"], split.label_matrix.toarray().astype(np.float32))
        for name, split in loaded.splits.items()
    }
    width = train.features["embedding"].shape[1]
    classes = len(loaded.class_names)
    return Study(
        plain=("sigmoid_cross_entropy",),
        ranked=("map_ranks", "map_precision"),
        epochs=10,
        measures=("map",),
        load=lambda seed: parts,
        build=lambda arrays: tf.keras.Sequential(
            [tf.keras.layers.Input([width]), tf.keras.layers.Dense(classes)]
        ),
        evaluate=_evaluate_precision,
        weights=RANK_LOSS_WEIGHTS,
    )


def regression(path: str | os.PathLike, target: str) -> Study:
    """Returns the study of regression on a CSV file, evaluated by Spearman's correlation."""
    width = sorting_tasks.table(path, target, seed=0)["train"][0].shape[1]
    return Study(
        plain=("mse", "l1"),
        ranked=("spearman",),
        epochs=20,
        measures=("spearman",),
        load=functools.partial(sorting_tasks.table, path, target),
        build=_mlp(width, 32, 1),
        evaluate=_evaluate_spearman,
    )
