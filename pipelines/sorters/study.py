"""A comparison of losses on ranks with losses that ignore ranks.

Each task trains a small model with each loss and several seeds, at the learning rate that is best on the
validation part, and evaluates the test part with the metric that the loss approximates.
"""

import dataclasses
import functools
import hashlib
import itertools
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.stats
import sklearn.metrics
import tensorflow as tf

from rank4class import losses
from rank4class.data.sorting import sorting_tasks
from rank4class.pipelines import config
from rank4class.pipelines.config import rank_functions
from rank4class.pipelines.evaluation import statistics
from rank4class.pipelines.storage import files
from rank4class.pipelines.storage.run_directory import check_folder, read_json, write_json
from rank4class.pipelines.task import loading

LIST = 100  # number of instances that are ranked together
SEEDS = (0, 1, 2, 3, 4)
RANK_LOSS_WEIGHT = 0.1  # of a loss on ranks that is added to the cross entropy
LEARNING_RATES = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
L1_FRACTION = 0.1  # of the epochs, at the start, add the mean absolute error to a loss on ranks
RANK_FNS = ("handcrafted", "cnn", "lstm", "equivariant", "neural_sort", "soft_sort")


@dataclasses.dataclass(frozen=True)
class Study:
    """A task that compares losses.

    Attributes:
      plain: names of the losses that ignore ranks; the first is the baseline.
      ranked: names of the losses on a rank function.
      epochs: of each training.
      measures: names of the metrics; the first selects the learning rate.
      load: function of a seed to split -> arrays.
      build: function of the arrays to a Keras model.
      loss: function of a loss's name, a rank function or None, and the weight of the mean absolute error, to
        a Keras loss.
      evaluate: function of a model and a split's arrays to metric -> value; higher is better.
    """

    plain: tuple[str, ...]
    ranked: tuple[str, ...]
    epochs: int
    measures: tuple[str, ...]
    load: Callable
    build: Callable
    loss: Callable
    evaluate: Callable


def run(
    study: Study,
    rank_fns: Sequence[str],
    folder: str | os.PathLike,
    *,
    seeds: Sequence[int] = SEEDS,
    log: Callable[[str], None] = print,
) -> dict[str, dict[str, list[float]]]:
    """Trains a task's model with each of its losses. Finished trainings are not repeated.

    Args:
      study: the task.
      rank_fns: names, for the losses on ranks.
      folder: of the results, one file for each training.
      seeds: of data, weights and the order of the examples.
      log: receives each line of results.

    Returns:
      Title of a loss -> metric -> a test value for each seed; minus infinity if the training diverged at
      every learning rate.

    Raises:
      ValueError: a rank function or a seed is invalid, or the folder holds trainings on other data.
      OSError: the folder cannot be written.
    """
    for seed in seeds:
        config.check_seed(seed)
    for rank_fn_name in rank_fns:
        rank_functions.get(rank_fn_name, LIST)  # fails before anything is trained
    pairs = itertools.chain(((name, None) for name in study.plain), itertools.product(study.ranked, rank_fns))
    folder = check_folder(folder, "study of sorters")
    files.make_writable(folder)
    loaded = {}
    for seed in seeds:
        parts = study.load(seed)
        loaded[seed] = parts, _hash(parts)
    test_values = {}
    for name, rank_fn in pairs:
        train = functools.partial(_train_seeds, study, name, rank_fn, loaded, folder, log)
        rate, results = search_learning_rate(
            train, functools.partial(_validation_mean, study), LEARNING_RATES
        )
        title = _title(name, rank_fn)
        test_values[title] = {m: [result["test"][m] for result in results] for m in study.measures}
        means = ", ".join(f"{m} {_format_mean(values)}" for m, values in test_values[title].items())
        log(f"{title}, learning rate {rate:g}: {means}")
    return test_values


def search_learning_rate(
    train: Callable[[Any], Any], value: Callable[[Any], float], rates: Sequence[Any]
) -> tuple[Any, Any]:
    """Tries learning rates, starting in the middle, until the best one has been compared to its neighbours.

    Args:
      train: function of a rate to results.
      value: function of results to a number; higher is better.
      rates: in ascending order; the best may be the first or the last of them.

    Returns:
      The best rate, and its results.

    >>> search_learning_rate(lambda rate: -abs(rate - 6), float, range(10))
    (6, 0)
    """
    results, center, best = {}, None, len(rates) // 2
    while best != center:
        center = best
        for i in range(max(center - 1, 0), min(center + 2, len(rates))):
            if i not in results:
                results[i] = train(rates[i])
        best = max(results, key=lambda i: value(results[i]))
    return rates[best], results[best]


def _title(name, rank_fn):
    return name if rank_fn is None else f"{name}@{rank_fn}"


def _train_seeds(study, name, rank_fn, loaded, folder, log, rate):
    """Trains a model for each seed without a result in the folder; returns the results of all seeds."""
    results = []
    for seed, (parts, data_hash) in loaded.items():
        path = os.path.join(folder, f"{_title(name, rank_fn)}-rate{rate:g}-seed{seed}.json")
        if not files.exists(path):
            write_json(path, {"data": data_hash, **_train(study, name, rank_fn, parts, rate, seed)})
        measures = read_json(path)
        if measures.pop("data", None) != data_hash:
            raise ValueError(f"{path} is of a training on other data: choose another --workdir")
        results.append({split: _null_to_worst(values) for split, values in measures.items()})
    measure = study.measures[0]
    mean = _format_mean([result["validation"][measure] for result in results])
    log(f"  {_title(name, rank_fn)}, learning rate {rate:g}: validation {measure} {mean}")
    return results


def _hash(parts):
    """Returns the SHA-256 of the arrays of all splits."""
    digest = hashlib.sha256()
    for name, arrays in parts.items():
        digest.update(name.encode())
        for array in arrays:
            digest.update(f"{array.dtype} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _null_to_worst(measures):
    """Returns measures as they were written: JSON holds null for those of a diverged training."""
    return {name: -np.inf if value is None else value for name, value in measures.items()}


def _validation_mean(study, results):
    return np.mean([result["validation"][study.measures[0]] for result in results])


def _format_mean(values):
    return _with_interval([np.mean(values)])


def table(study: Study, test_values: dict[str, dict[str, list[float]]]) -> list[list[str]]:
    """Returns the results of `run` as rows: the mean of each metric, and its difference to the baseline.

    With several seeds, each value has a 95% interval over them; differences are paired by seed.
    """
    measure, baseline = study.measures[0], study.plain[0]
    rows = [["loss", *study.measures, f"{measure} against {baseline}"]]
    first = np.array(test_values[baseline][measure])
    for title, measures in test_values.items():
        cells = [_with_interval(values) for values in measures.values()]
        with np.errstate(invalid="ignore"):  # inf - inf, if both diverged
            difference = np.array(measures[measure]) - first
        rows.append([title, *cells, "-" if title == baseline else _with_interval(difference, "+.2f")])
    return rows


def _with_interval(values, form=".2f"):
    if not np.isfinite(values).all():
        return "diverged"
    mean, half = statistics.mean_and_half_width(values)
    if len(values) < 2:
        return f"{mean:{form}}"
    return f"{mean:{form}} ± {half:.2f}" if half > 0.0 else f"{mean:{form}}, all seeds"


def _train(study, name, rank_fn, parts, rate, seed):
    """Trains one model; returns split -> its metrics after the epoch that is best on validation."""
    tf.keras.utils.set_random_seed(seed)
    model = study.build(parts["train"])
    # The mean absolute error first moves the scores into the range that the sorter was trained on.
    l1 = tf.Variable(0.0 if rank_fn is None else 1.0, trainable=False)
    ranks = None if rank_fn is None else rank_functions.get(rank_fn, LIST)
    loss = study.loss(name, ranks, l1)
    optimizer = tf.keras.optimizers.Adam(rate)
    *features, labels = map(tf.constant, parts["train"])

    @tf.function
    def train_epoch(batches):
        for batch in batches:
            with tf.GradientTape() as tape:
                scores = model([tf.gather(x, batch) for x in features], training=True)
                value = tf.reduce_mean(loss(tf.gather(labels, batch), scores))
            optimizer.minimize(value, model.trainable_variables, tape=tape)

    steps = len(labels) // LIST
    rng = np.random.default_rng(seed)
    worst = dict.fromkeys(study.measures, -np.inf)
    best = {"validation": worst, "test": worst}
    for epoch in range(study.epochs):
        if epoch >= L1_FRACTION * study.epochs:
            l1.assign(0.0)
        train_epoch(rng.permutation(len(labels))[: steps * LIST].reshape(steps, LIST))
        if not all(np.isfinite(weight).all() for weight in model.get_weights()):
            break  # diverged
        validation = study.evaluate(model, parts["validation"])
        measure = study.measures[0]
        if validation[measure] > best["validation"][measure]:
            best = {"validation": validation, "test": study.evaluate(model, parts["test"])}
    return best


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


def _spearman_loss(name, rank_fn, l1):
    if name == "mse":
        return tf.keras.losses.MeanSquaredError()
    if name == "l1":
        return tf.keras.losses.MeanAbsoluteError()
    return losses.Spearman(rank_fn=rank_fn, l1=l1)


def _evaluate_spearman(model, arrays):
    features, targets = arrays
    correlation = scipy.stats.spearmanr(model(features)[:, 0], targets).statistic
    return {"spearman": 100.0 * correlation}


def _precision_loss(name, rank_fn, l1):
    if name == "sigmoid_cross_entropy":
        return losses.SigmoidCrossEntropy()
    if name == "hinge_ap":
        return lambda labels, scores: hinge_ap(scores[:, 0], labels[:, 0])
    form = name.removeprefix("map_")
    return losses.MeanAveragePrecision(rank_fn=rank_fn, form=form, l1=l1)


def _evaluate_precision(model, arrays):
    features, labels = arrays
    return {"map": 100.0 * sklearn.metrics.average_precision_score(labels, model(features), average="macro")}


def _combined_loss(name, rank_fn, l1):
    """Returns the cross entropy plus the weighted loss on ranks."""
    plain = losses.SigmoidCrossEntropy()
    if name == "sigmoid_cross_entropy":
        return plain
    ranked = _precision_loss(name, rank_fn, l1)
    return lambda labels, scores: plain(labels, scores) + RANK_LOSS_WEIGHT * ranked(labels, scores)


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


def _recall_loss(name, rank_fn, l1):
    del l1  # pairs have no target scores
    if name == "triplet":
        return lambda labels, scores: score_triplet(scores)
    return losses.RecallTriplet(rank_fn=rank_fn)


def _evaluate_recall(model, arrays):
    scores = model(arrays[:2]).numpy()
    ranks = np.concatenate([(s >= np.diag(s)[:, None]).sum(axis=1) for s in (scores, scores.T)])
    return {"recall@1": 100.0 * np.mean(ranks <= 1), "recall@5": 100.0 * np.mean(ranks <= 5)}


def score_triplet(scores: tf.types.experimental.TensorLike, margin: float = 0.2) -> tf.Tensor:
    """Triplet loss of the scores with the hardest negative of each row and column.

    Args:
      scores: float32 `[B, B]`, with the pairs on the diagonal.
      margin: smallest difference without a loss.

    Returns:
      float32 `[B]`.
    """
    positives = tf.linalg.diag_part(scores)
    negatives = tf.linalg.set_diag(scores, tf.fill(tf.shape(positives), -float("inf")))
    return sum(tf.nn.relu(margin + tf.reduce_max(negatives, axis=axis) - positives) for axis in (0, 1))


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


TASKS = {
    "spearman": Study(
        plain=("mse", "l1"),
        ranked=("spearman",),
        epochs=100,
        measures=("spearman",),
        load=sorting_tasks.diabetes,
        build=_mlp(10, 32, 1),
        loss=_spearman_loss,
        evaluate=_evaluate_spearman,
    ),
    "map": Study(
        plain=("sigmoid_cross_entropy", "hinge_ap"),
        ranked=("map_ranks", "map_precision"),
        epochs=20,
        measures=("map",),
        load=_load_relevant,
        build=_mlp(20, 64, 1),
        loss=_precision_loss,
        evaluate=_evaluate_precision,
    ),
    "recall": Study(
        plain=("triplet",),
        ranked=("recall_triplet",),
        epochs=20,
        measures=("recall@1", "recall@5"),
        load=_load_pairs,
        build=_pair_model,
        loss=_recall_loss,
        evaluate=_evaluate_recall,
    ),
}


def multi_label(experiment: config.Experiment, cache_dir: str | os.PathLike) -> Study:
    """Returns the `Study` of a multi-label dataset with a linear model of its features.

    Args:
      experiment: a `config.Experiment` whose features are vectors, from a frozen encoder or the dataset.
      cache_dir: folder for a frozen encoder's outputs.

    Raises:
      FileNotFoundError, ValueError: see `loading.load`; or the dataset has no vectors or one label each.
    """
    config.check(experiment)
    loaded = loading.load(experiment, check_folder(cache_dir, "study of sorters"))
    train = loaded.splits["train"]
    if "embedding" not in train.features or not train.multi_label:
        raise ValueError(
            f"dataset {experiment.data.name!r} has no vectors with several labels: set "
            "--config.data.multi_label=True, and an encoder that is frozen or features that are vectors"
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
    )
