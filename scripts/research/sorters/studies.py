"""The studies: data, model, losses and metrics of each task; see `study.run`."""

import dataclasses
import functools
import os

import numpy as np
import scipy.stats
import sklearn.metrics
import tensorflow as tf

from rank4class import losses
from rank4class.pipelines import config
from rank4class.pipelines.storage.run_directory import check_folder
from rank4class.pipelines.task import checks
from rank4class.pipelines.training import rank_training
from rank4class.scripts.research.sorters import STUDIES, sorting_tasks
from rank4class.scripts.research.sorters.study import Study

RANK_LOSS_WEIGHTS = (0.03, 0.1, 0.3, 1.0)  # of a loss on ranks that is added to the cross entropy


def _mlp(width, units, outputs):
    def build(arrays):
        del arrays
        return tf.keras.Sequential(
            [
                tf.keras.layers.Input([width]),
                tf.keras.layers.Dense(units, activation="relu"),
                tf.keras.layers.Dense(outputs),
            ]
        )

    return build


def _spearman_loss(name, rank_fn, l1, weight):
    del weight
    if name == "mse":
        return tf.keras.losses.MeanSquaredError()
    if name == "l1":
        return tf.keras.losses.MeanAbsoluteError()
    return losses.Spearman(rank_fn=rank_fn, l1=l1)


def _evaluate_spearman(model, arrays):
    features, targets = arrays
    correlation = scipy.stats.spearmanr(model(features)[:, 0], targets).statistic
    return {"spearman": 100.0 * correlation}


def _precision_loss(name, rank_fn, l1, weight):
    del weight
    if name == "sigmoid_cross_entropy":
        return losses.SigmoidCrossEntropy()
    if name == "hinge_ap":
        return lambda labels, scores: hinge_ap(scores[:, 0], labels[:, 0])
    form = name.removeprefix("map_")
    return losses.MeanAveragePrecision(rank_fn=rank_fn, form=form, l1=l1)


def _evaluate_precision(model, arrays):
    features, labels = arrays
    return {"map": 100.0 * sklearn.metrics.average_precision_score(labels, model(features), average="macro")}


def _combined_loss(name, rank_fn, l1, weight):
    """Returns the cross entropy plus the weighted loss on ranks."""
    plain = losses.SigmoidCrossEntropy()
    if name == "sigmoid_cross_entropy":
        return plain
    ranked = _precision_loss(name, rank_fn, l1, weight)
    return lambda labels, scores: plain(labels, scores) + weight * ranked(labels, scores)


def _load_relevant(seed):
    parts = sorting_tasks.relevant_vectors(seed)
    return {name: (vectors, relevant[:, None]) for name, (vectors, relevant) in parts.items()}


def _pair_model(arrays):
    views = [tf.keras.layers.Input([view.shape[1]]) for view in arrays[:2]]
    codes = []
    for view in views:
        hidden = tf.keras.layers.Dense(128, activation="relu")(view)
        codes.append(tf.keras.layers.UnitNormalization()(tf.keras.layers.Dense(32)(hidden)))
    return tf.keras.Model(views, tf.matmul(*codes, transpose_b=True))


def _load_pairs(seed):
    parts = sorting_tasks.pairs(seed)
    return {name: (*views, np.zeros(len(views[0]), np.float32)) for name, views in parts.items()}


def _recall_loss(name, rank_fn, l1, weight):
    del l1, weight  # pairs have no target scores
    if name == "triplet":
        return lambda labels, scores: score_triplet(scores)
    return losses.RecallTriplet(rank_fn=rank_fn)


def _evaluate_recall(model, arrays):
    scores = model(arrays[:2]).numpy()
    # Negated, so that NaN ranks last.
    ranks = np.concatenate([(~(s < np.diag(s)[:, None])).sum(axis=1) for s in (scores, scores.T)])
    return {"recall@1": 100.0 * np.mean(ranks <= 1), "recall@5": 100.0 * np.mean(ranks <= 5)}


def score_triplet(scores: tf.types.experimental.TensorLike) -> tf.Tensor:
    """Triplet loss of the scores with the hardest negative of each row and column, with a margin of 0.2.

    Args:
      scores: float32 `[B, B]`, with the pairs on the diagonal.

    Returns:
      float32 `[B]`.
    """
    positives = tf.linalg.diag_part(scores)
    negatives = tf.linalg.set_diag(scores, tf.fill(tf.shape(positives), -float("inf")))
    return sum(tf.nn.relu(0.2 + tf.reduce_max(negatives, axis=axis) - positives) for axis in (0, 1))


def hinge_ap(scores: tf.types.experimental.TensorLike, labels: tf.types.experimental.TensorLike) -> tf.Tensor:
    r"""Structured hinge loss of average precision.

    $$\max_{\hat y} \; 1 - AP(\hat y) + F(\hat y) - F(y), \quad
    F(y) = \frac{1}{P N} \sum_{i, j} y_{ij} (s_i - s_j)$$

    over all rankings, with `i` relevant and `j` not, and `y_ij` 1 where `i` comes before `j`, else -1.
    The best rank of each irrelevant score is independent of the others, so the loss takes `O(B^2)`.

    Args:
      scores: float32 `[B]`.
      labels: 0 or 1, `[B]`.

    Returns:
      A float32 scalar.

    References:
      Yue, Finley, Radlinski, Joachims (2007), "A support vector method for optimizing average precision".
    """
    positive = labels > 0.0
    relevant = tf.sort(tf.where(positive, scores, -float("inf")), direction="DESCENDING")
    irrelevant = tf.sort(tf.where(positive, -float("inf"), scores), direction="DESCENDING")
    rank = 1.0 + tf.range(tf.shape(scores)[0], dtype=tf.float32)
    num_relevant = tf.reduce_sum(tf.cast(positive, tf.float32))
    num_irrelevant = tf.cast(tf.shape(scores)[0], tf.float32) - num_relevant
    valid = (rank[:, None] <= num_irrelevant) & (rank[None, :] <= num_relevant)
    k, j = rank[None, :], rank[:, None]
    lost_precision = (k / (k + j - 1.0) - k / (k + j)) / num_relevant
    difference = tf.where(valid, relevant[None, :], 0.0) - tf.where(valid, irrelevant[:, None], 0.0)
    terms = tf.where(valid, lost_precision - 2.0 * difference / (num_relevant * num_irrelevant), 0.0)
    before_k = tf.cumsum(terms, axis=1, reverse=True)  # of ranking j before the k-th relevant score
    total = tf.reduce_sum(tf.nn.relu(tf.reduce_max(before_k, axis=1)))
    return tf.where((num_relevant > 0.0) & (num_irrelevant > 0.0), total, 0.0)


@STUDIES.register("spearman")
def spearman() -> Study:
    """Returns the study of regression, evaluated by Spearman's correlation."""
    return Study(
        plain=("mse", "l1"),
        ranked=("spearman",),
        epochs=100,
        measures=("spearman",),
        load=sorting_tasks.diabetes,
        build=_mlp(10, 32, 1),
        loss=_spearman_loss,
        evaluate=_evaluate_spearman,
    )


@STUDIES.register("map")
def mean_average_precision() -> Study:
    """Returns the study of finding relevant instances, evaluated by mean average precision."""
    return Study(
        plain=("sigmoid_cross_entropy", "hinge_ap"),
        ranked=("map_ranks", "map_precision"),
        epochs=20,
        measures=("map",),
        load=_load_relevant,
        build=_mlp(20, 64, 1),
        loss=_precision_loss,
        evaluate=_evaluate_precision,
    )


@STUDIES.register("recall")
def recall() -> Study:
    """Returns the study of matching pairs of views, evaluated by recall."""
    return Study(
        plain=("triplet",),
        ranked=("recall_triplet",),
        epochs=20,
        measures=("recall@1", "recall@5"),
        load=_load_pairs,
        build=_pair_model,
        loss=_recall_loss,
        evaluate=_evaluate_recall,
    )


def multi_label(experiment: config.Experiment, cache_dir: str | os.PathLike) -> Study:
    """Returns the `Study` of a multi-label dataset with a linear model of its features.

    Args:
      experiment: a `config.Experiment` whose features are vectors, from a frozen encoder or the dataset.
      cache_dir: folder for a frozen encoder's outputs.

    Raises:
      FileNotFoundError, ValueError: see `load_data`; or the dataset has no vectors or one label each.
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
    width, classes = train.features["embedding"].shape[1], len(loaded.class_names)
    return Study(
        plain=("sigmoid_cross_entropy",),
        ranked=("map_ranks", "map_precision"),
        epochs=10,
        measures=("map",),
        load=lambda seed: parts,
        build=lambda arrays: tf.keras.Sequential(
            [tf.keras.layers.Input([width]), tf.keras.layers.Dense(classes)]
        ),
        loss=_combined_loss,
        evaluate=_evaluate_precision,
        weights=RANK_LOSS_WEIGHTS,
    )


def regression(path: str | os.PathLike, target: str) -> Study:
    """Returns the study of regression on a CSV file, evaluated by Spearman's correlation.

    Args:
      path: of the file, see `sorting_tasks.table`.
      target: name of the column to predict.

    Raises:
      FileNotFoundError, ValueError: see `sorting_tasks.table`.
    """
    width = sorting_tasks.table(path, target, seed=0)["train"][0].shape[1]
    load = functools.partial(sorting_tasks.table, path, target)
    return dataclasses.replace(spearman(), epochs=20, load=load, build=_mlp(width, 32, 1))
