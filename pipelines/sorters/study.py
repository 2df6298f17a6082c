"""The losses on ranks, put to the test: training with them against training with the plain loss.

Each task trains a small model with each loss and several seeds, at the learning rate that is best on its
validation part, and judges its test part by the measure that the loss is about.
"""

import dataclasses
import functools
import hashlib
import itertools
import os
from collections.abc import Callable

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

LIST = 100  # instances that are ranked together
SEEDS = (0, 1, 2, 3, 4)
BESIDE = 0.1  # of a loss on ranks, beside the cross entropy
LEARNING_RATES = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3)  # to search_learning_rate, from the middle
L1_SHARE = 0.1  # of the epochs, in which the mean absolute error runs beside a loss on ranks
RANK_FNS = ("handcrafted", "cnn", "lstm", "equivariant", "neural_sort", "soft_sort")


@dataclasses.dataclass(frozen=True)
class Study:
    """Something to train and to measure.

    Attributes:
      plain: names of the losses that know no ranks; the first is what the others are compared to.
      ranked: names of the losses on a rank function.
      epochs: how long to train.
      measures: names of what is measured; the first chooses the learning rate.
      load: function of a seed to split -> arrays.
      build: function of the arrays to a Keras model.
      loss: function of a loss's name, a rank function or None, and the weight of the mean absolute error, to
        a Keras loss.
      judge: function of a model and a split's arrays to measure -> value, the higher the better.
    """

    plain: tuple
    ranked: tuple
    epochs: int
    measures: tuple
    load: Callable
    build: Callable
    loss: Callable
    judge: Callable


def run(task, rank_fns, folder, *, seeds=SEEDS, tell=print):
    """Trains a task's model with each of its losses; trainings that are finished already are not repeated.

    Args:
      task: a `Study`.
      rank_fns: names, for the losses on ranks.
      folder: for what each training came to, in a file of its own.
      seeds: of data, weights and the order of the examples.
      tell: is told of each line of figures as it is there.

    Returns:
      Title of a loss -> measure -> one figure a seed, of the test part; minus infinity where the training
      came to no figure, at any learning rate.

    Raises:
      ValueError: a rank function or a seed is none, or the folder holds trainings on other data.
      OSError: the folder cannot be written.
    """
    for seed in seeds:
        config.check_seed(seed)
    for rank_fn in rank_fns:
        rank_functions.get(rank_fn, LIST)  # what is not there is better known now
    titles = [(name, None) for name in task.plain] + list(itertools.product(task.ranked, rank_fns))
    folder = check_folder(folder, "study of sorters")
    files.make_writable(folder)
    loaded = {}
    for seed in seeds:
        parts = task.load(seed)
        loaded[seed] = parts, _hash(parts)
    found = {}
    for name, rank_fn in titles:
        of_rate = functools.partial(_of_seeds, task, name, rank_fn, loaded, folder, tell)
        rate, best = search_learning_rate(of_rate, functools.partial(_in_validation, task), LEARNING_RATES)
        title = _title(name, rank_fn)
        found[title] = {m: [judged["test"][m] for judged in best] for m in task.measures}
        means = ", ".join(f"{m} {_mean(values)}" for m, values in found[title].items())
        tell(f"{title}, learning rate {rate:g}: {means}")
    return found


def search_learning_rate(of_rate, value, rates):
    """Tries learning rates from the middle on, until the best has neighbours on both sides.

    Args:
      of_rate: function of a rate to what it leads to.
      value: function of that to a number, the higher the better.
      rates: in order; the best may be the first or the last of them.

    Returns:
      The best rate, and what it leads to.

    >>> search_learning_rate(lambda rate: -abs(rate - 6), float, range(10))
    (6, 0)
    """
    tried, at, best = {}, None, len(rates) // 2
    while best != at:
        at = best
        for i in range(max(at - 1, 0), min(at + 2, len(rates))):
            if i not in tried:
                tried[i] = of_rate(rates[i])
        best = max(tried, key=lambda i: value(tried[i]))
    return rates[best], tried[best]


def _title(name, rank_fn):
    return name if rank_fn is None else f"{name}@{rank_fn}"


def _of_seeds(task, name, rank_fn, loaded, folder, tell, rate):
    """Trains a model with each seed where that has not been done; returns what each came to."""
    trained = []
    for seed, (parts, data) in loaded.items():
        path = os.path.join(folder, f"{_title(name, rank_fn)}-rate{rate:g}-seed{seed}.json")
        if not files.exists(path):
            write_json(path, {"data": data, **_trained(task, name, rank_fn, parts, rate, seed)})
        measures = read_json(path)
        if measures.pop("data", None) != data:
            raise ValueError(f"{path} is of a training on other data: choose another --workdir")
        trained.append({split: _restored(of_split) for split, of_split in measures.items()})
    measure = task.measures[0]
    of_validation = _mean([judged["validation"][measure] for judged in trained])
    tell(f"  {_title(name, rank_fn)}, learning rate {rate:g}: validation {measure} {of_validation}")
    return trained


def _hash(parts):
    """Returns the SHA-256 of what a model is trained on and judged by."""
    digest = hashlib.sha256()
    for name, arrays in parts.items():
        digest.update(name.encode())
        for array in arrays:
            digest.update(f"{array.dtype} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array))
    return digest.hexdigest()


def _restored(measures):
    """Returns measures as they were written: null in JSON is the worst value, of a training that diverged."""
    return {name: -np.inf if value is None else value for name, value in measures.items()}


def _in_validation(task, trained):
    return np.mean([judged["validation"][task.measures[0]] for judged in trained])


def _mean(values):
    return _with_interval([np.mean(values)])


def table(task, found):
    """Returns the rows of what `run` found: means with 95% intervals over the seeds where there are
    several, and the differences to the first loss, seed by seed."""
    rows = [["loss", *task.measures, f"{task.measures[0]} against {task.plain[0]}"]]
    first = np.array(found[task.plain[0]][task.measures[0]])
    for title, measures in found.items():
        cells = [_with_interval(values) for values in measures.values()]
        with np.errstate(invalid="ignore"):  # of two that diverged
            difference = np.array(measures[task.measures[0]]) - first
        rows.append([title, *cells, "-" if title == task.plain[0] else _with_interval(difference, "+.2f")])
    return rows


def _with_interval(values, form=".2f"):
    if not np.isfinite(values).all():
        return "diverged"
    mean, half = statistics.mean_and_half_width(values)
    if len(values) < 2:
        return f"{mean:{form}}"
    return f"{mean:{form}} ± {half:.2f}" if half > 0.0 else f"{mean:{form}}, all seeds"


def _trained(task, name, rank_fn, parts, rate, seed):
    """Trains one model; returns split -> measures of it, at its best epoch in validation."""
    tf.keras.utils.set_random_seed(seed)
    model = task.build(parts["train"])
    # Until the scores are such as the sorter knows, their error runs beside the ranks.
    l1 = tf.Variable(0.0 if rank_fn is None else 1.0, trainable=False)
    ranks = None if rank_fn is None else rank_functions.get(rank_fn, LIST)
    loss = task.loss(name, ranks, l1)
    optimizer = tf.keras.optimizers.Adam(rate)
    *features, labels = map(tf.constant, parts["train"])

    @tf.function
    def pass_over(batches):
        for batch in batches:
            with tf.GradientTape() as tape:
                scores = model([tf.gather(x, batch) for x in features], training=True)
                value = tf.reduce_mean(loss(tf.gather(labels, batch), scores))
            optimizer.minimize(value, model.trainable_variables, tape=tape)

    steps = len(labels) // LIST
    order = np.random.default_rng(seed)
    worst = dict.fromkeys(task.measures, -np.inf)
    best = {"validation": worst, "test": worst}
    for epoch in range(task.epochs):
        if epoch >= L1_SHARE * task.epochs:
            l1.assign(0.0)
        pass_over(order.permutation(len(labels))[: steps * LIST].reshape(steps, LIST))
        if not all(np.isfinite(weight).all() for weight in model.get_weights()):
            break  # the rate was too high
        judged = task.judge(model, parts["validation"])
        first = task.measures[0]
        if judged[first] > best["validation"][first]:
            best = {"validation": judged, "test": task.judge(model, parts["test"])}
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


def _judge_spearman(model, arrays):
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


def _judge_precision(model, arrays):
    features, labels = arrays
    return {"map": 100.0 * sklearn.metrics.average_precision_score(labels, model(features), average="macro")}


def _beside_loss(name, rank_fn, l1):
    """Cross entropy, and beside it the loss on ranks."""
    plain = losses.SigmoidCrossEntropy()
    if name == "sigmoid_cross_entropy":
        return plain
    ranked = _precision_loss(name, rank_fn, l1)
    return lambda labels, scores: plain(labels, scores) + BESIDE * ranked(labels, scores)


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
    del l1  # pairs have no scores to come near to
    if name == "triplet":
        return lambda labels, scores: score_triplet(scores)
    return losses.RecallTriplet(rank_fn=rank_fn)


def _judge_recall(model, arrays):
    scores = model(arrays[:2]).numpy()
    ranks = np.concatenate([(s >= np.diag(s)[:, None]).sum(axis=1) for s in (scores, scores.T)])
    return {"recall@1": 100.0 * np.mean(ranks <= 1), "recall@5": 100.0 * np.mean(ranks <= 5)}


def score_triplet(scores, margin=0.2):
    """Triplet loss of the scores with the hardest negative, of rows and columns.

    Args:
      scores: float32 `[B, B]`, those that belong together on the diagonal.

    Returns:
      float32 `[B]`.
    """
    own = tf.linalg.diag_part(scores)
    others = tf.linalg.set_diag(scores, tf.fill(tf.shape(own), -float("inf")))
    return sum(tf.nn.relu(margin + tf.reduce_max(others, axis=axis) - own) for axis in (0, 1))


def hinge_ap(scores, labels):
    r"""Structured hinge loss of average precision, which the margin of every ranking bounds.

    $$\max_{\hat y} \; 1 - AP(\hat y) + F(\hat y) - F(y), \quad
    F(y) = \frac{1}{P N} \sum_{i, j} y_{ij} (s_i - s_j)$$

    over all rankings, with `i` a relevant one and `j` not, and `y_ij` 1 where `i` comes before `j`, else -1.
    The best place of each irrelevant score does not hang on the others', so it takes `O(B^2)`.

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
    others = tf.sort(tf.where(positive, -float("inf"), scores), direction="DESCENDING")
    place = 1.0 + tf.range(tf.shape(scores)[0], dtype=tf.float32)
    num_relevant = tf.reduce_sum(tf.cast(positive, tf.float32))
    num_others = tf.cast(tf.shape(scores)[0], tf.float32) - num_relevant
    both = (place[:, None] <= num_others) & (place[None, :] <= num_relevant)
    k, j = place[None, :], place[:, None]
    lost = (k / (k + j - 1.0) - k / (k + j)) / num_relevant
    apart = tf.where(both, relevant[None, :], 0.0) - tf.where(both, others[:, None], 0.0)
    each = tf.where(both, lost - 2.0 * apart / (num_relevant * num_others), 0.0)
    before = tf.cumsum(each, axis=1, reverse=True)  # of coming before the k-th relevant one and those after
    total = tf.reduce_sum(tf.nn.relu(tf.reduce_max(before, axis=1)))
    return tf.where((num_relevant > 0.0) & (num_others > 0.0), total, 0.0)


TASKS = {
    "spearman": Study(
        plain=("mse", "l1"),
        ranked=("spearman",),
        epochs=100,
        measures=("spearman",),
        load=sorting_tasks.diabetes,
        build=_mlp(10, 32, 1),
        loss=_spearman_loss,
        judge=_judge_spearman,
    ),
    "map": Study(
        plain=("sigmoid_cross_entropy", "hinge_ap"),
        ranked=("map_ranks", "map_precision"),
        epochs=20,
        measures=("map",),
        load=_load_relevant,
        build=_mlp(20, 64, 1),
        loss=_precision_loss,
        judge=_judge_precision,
    ),
    "recall": Study(
        plain=("triplet",),
        ranked=("recall_triplet",),
        epochs=20,
        measures=("recall@1", "recall@5"),
        load=_load_pairs,
        build=_pair_model,
        loss=_recall_loss,
        judge=_judge_recall,
    ),
}


def multi_label(experiment, cache_dir):
    """Returns the `Study` of a multi-label problem with a linear model of its features.

    Args:
      experiment: a `config.Experiment` whose features are vectors, a frozen encoder's or the dataset's own.
      cache_dir: folder for a frozen encoder's outputs.

    Raises:
      FileNotFoundError, ValueError: see `loading.load`; or the labels or the features are of another kind.
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
        name: (split.features["embedding"], split.labels.toarray().astype(np.float32))
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
        loss=_beside_loss,
        judge=_judge_precision,
    )
