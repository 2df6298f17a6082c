"""A comparison of losses on ranks with losses that ignore ranks.

Each task trains a small model with each loss and several seeds, at the learning rate that is best on the
validation part, and evaluates the test part with the metric that the loss approximates. The tasks are in
`studies`.
"""

import dataclasses
import functools
import hashlib
import itertools
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.stats
import tensorflow as tf

from rank4class import arguments
from rank4class.pipelines.storage import files
from rank4class.pipelines.storage.run_directory import SORTER_TRAINING, check_folder, read_json, write_json
from rank4class.pipelines.task import rank_functions
from rank4class.pipelines.training.session import provenance
from rank4class.scripts.research.sorters import SEEDS

LIST = 100  # number of instances that are ranked together
LEARNING_RATES = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
L1_FRACTION = 0.1  # of the epochs, at the start, add the mean absolute error to a loss on ranks


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
      loss: function of a loss's name, a rank function or None, the weight of the mean absolute error, and one
        of `weights`, to a Keras loss.
      evaluate: function of a model and a split's arrays to metric -> value; higher is better.
      weights: weights of a loss on ranks to choose from.
    """

    plain: tuple[str, ...]
    ranked: tuple[str, ...]
    epochs: int
    measures: tuple[str, ...]
    load: Callable
    build: Callable
    loss: Callable
    evaluate: Callable
    weights: tuple[float, ...] = (1.0,)


def run(
    study: Study,
    rank_fns: Sequence[str],
    folder: str | os.PathLike,
    *,
    seeds: Sequence[int] = SEEDS,
    log: Callable[[str], None] = print,
) -> dict[str, dict[str, list[float]]]:
    """Trains a task's model with each of its losses. Finished trainings are not repeated.

    The test values of all losses are in `study.json` of the folder then.

    Args:
      study: the task.
      rank_fns: names, for the losses on ranks.
      folder: of the results, one file for each training.
      seeds: of data, weights and the order of the examples.
      log: receives each line of results.

    Returns:
      Title of a loss -> metric -> a test value for each seed, of the epoch that is best on validation; minus
      infinity if the training diverged in its first epoch, at the best learning rate.

    Raises:
      ValueError: a rank function or a seed is invalid, a seed is repeated, or the folder holds trainings on
        other data.
      OSError: the folder cannot be written.
    """
    check_seeds(seeds)
    for rank_fn_name in rank_fns:
        rank_functions.get(rank_fn_name, LIST)  # fails before anything is trained
    pairs = itertools.chain(((name, None) for name in study.plain), itertools.product(study.ranked, rank_fns))
    folder = check_folder(folder, "study of sorters")
    files.make_writable(folder)
    loaded = {}
    for seed in seeds:
        parts = study.load(seed)
        loaded[seed] = parts, _hash(parts)
    data = {str(seed): data_hash for seed, (_, data_hash) in loaded.items()}
    check_result(folder, data)
    test_values, notes = {}, []
    for name, rank_fn in pairs:
        choices = {}
        for weight in study.weights if rank_fn else (1.0,):
            train = functools.partial(_train_seeds, study, name, rank_fn, weight, loaded, folder, log)
            rate, results = search_learning_rate(
                train, functools.partial(_validation_mean, study), LEARNING_RATES
            )
            choices[weight] = rate, results
        weight = max(choices, key=lambda weight: _validation_mean(study, choices[weight][1]))
        rate, results = choices[weight]
        title = _title(name, rank_fn)
        test_values[title] = {m: [result["test"][m] for result in results] for m in study.measures}
        means = ", ".join(f"{m} {_format_mean(values)}" for m, values in test_values[title].items())
        log(f"{title}{_weight_text(study, rank_fn, weight)}, learning rate {rate:g}: {means}")
        notes += boundary_notes(title, "learning rate", rate, LEARNING_RATES)
        if rank_fn:
            notes += boundary_notes(title, "weight", weight, study.weights)
    names = [name for name in files.names_in(folder) if SORTER_TRAINING.fullmatch(name)]
    trainings = [read_json(os.path.join(folder, name)) for name in names]
    sessions = [
        training["session"]
        for training in trainings
        if training.get("data") in data.values() and "session" in training  # not of an earlier version
    ]
    examples = {part: len(arrays[0]) for part, arrays in loaded[seeds[0]][0].items()}
    write_result(folder, seeds, test_values, examples, data, sessions, notes)
    return test_values


def check_seeds(seeds: Sequence[int]) -> None:
    """Raises ValueError if a seed is out of range or repeated."""
    for i, seed in enumerate(seeds):
        arguments.check_seed(seed)
        if seed in seeds[:i]:
            raise ValueError(f"seed={seed}: repeated, so its training would count twice. Remove one.")


def boundary_notes(title: str, name: str, value: float, tried: Sequence[float]) -> list[str]:
    """Returns a note if the best value is the first or the last of several that were tried.

    >>> boundary_notes("mse", "rate", 0.1, [0.01, 0.1]), boundary_notes("mse", "rate", 2, [1, 2, 3])
    (['mse: rate=0.1 is at the high end of the values tried'], [])
    """
    if len(tried) < 2 or value not in (min(tried), max(tried)):
        return []
    end = "low" if value == min(tried) else "high"
    return [f"{title}: {name}={value:g} is at the {end} end of the values tried"]


def check_result(folder: str | os.PathLike, data: Mapping[str, str]) -> None:
    """Raises ValueError if a folder holds the result of another study; see `write_result`."""
    path = os.path.join(folder, "study.json")
    known = read_json(path).get("data") if files.exists(path) else None
    if not known:
        return
    common = known.keys() & data.keys()
    if not common or any(known[name] != data[name] for name in common):
        raise ValueError(f"{path}: the result of a study of other data or seeds. Choose another --workdir.")


def write_result(
    folder: str | os.PathLike,
    seeds: Sequence[int],
    test_values: Mapping[str, Mapping[str, Sequence[Any]]],
    examples: Mapping[str, int],
    data: Mapping[str, str],
    sessions: Sequence[Mapping[str, Any]],
    notes: Sequence[str] = (),
    test_hash: str | None = None,
) -> None:
    """Writes `study.json`, the result of a study.

    Args:
      folder: of the file, which is made.
      seeds: of the trainings, `[S]`.
      test_values: title of a loss -> metric -> its values in percent, `[S]` or, per test example, `[S, N]`.
      examples: split -> number of its examples.
      data: seed, file or split -> hash of the data, and settings that determine the result.
      sessions: the `session` of each training; those that differ in their seconds alone are joined.
      notes: sentences on the search.
      test_hash: hash of the test examples, by which they are compared with those of runs.

    Raises:
      OSError: the file cannot be written.
    """
    files.make_folder(folder)
    result = {
        "seeds": list(seeds),
        "test": test_values,
        "examples": examples,
        "notes": list(notes),
        "data": dict(data),
        "test_hash": test_hash,
        "sessions": _joined(sessions),
    }
    write_json(os.path.join(folder, "study.json"), result)


def session(started: float, **packages: str) -> dict[str, Any]:
    """Returns the record of a training: its seconds, and the versions that determine its results.

    Args:
      started: `time.monotonic()` at its start.
      **packages: versions of more packages.
    """
    origin = provenance()
    origin["packages"] |= packages
    return {**origin, "seconds": round(time.monotonic() - started, 1)}


def _joined(sessions: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns the sessions of different versions, each with the sum of its seconds."""
    joined: list[dict[str, Any]] = []
    for one in sessions:
        same = next((other for other in joined if {**other, "seconds": one["seconds"]} == one), None)
        if same:
            same["seconds"] = round(same["seconds"] + one["seconds"], 1)
        else:
            joined.append(dict(one))
    return joined


def search_learning_rate(
    train: Callable[[Any], Any], value: Callable[[Any], float], rates: Sequence[Any]
) -> tuple[Any, Any]:
    """Tries learning rates, starting in the middle, until the best one has been compared to its neighbors.

    Of equal ones the lowest is the best: where trainings diverge, all lower rates are tried.

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
        best = max(results, key=lambda i: (value(results[i]), -i))
    return rates[best], results[best]


def _title(name, rank_fn):
    return name if rank_fn is None else f"{name}@{rank_fn}"


def _weight_text(study, rank_fn, weight):
    return f"-weight{weight:g}" if rank_fn and len(study.weights) > 1 else ""


def _train_seeds(study, name, rank_fn, weight, loaded, folder, log, rate):
    """Trains a model for each seed without a result in the folder; returns the results of all seeds."""
    results, title = [], _title(name, rank_fn) + _weight_text(study, rank_fn, weight)
    for seed, (parts, data_hash) in loaded.items():
        path = os.path.join(folder, f"{title}-epochs{study.epochs}-rate{rate:g}-seed{seed}.json")
        if not files.exists(path):
            started = time.monotonic()
            result = _train(study, name, rank_fn, weight, parts, rate, seed)
            write_json(path, {"data": data_hash, "session": session(started), **result})
        training = read_json(path)
        if training.get("data") != data_hash or "session" not in training:
            raise ValueError(
                f"{path}: trained on other data, or by an earlier version. Choose another --workdir."
            )
        results.append({split: _null_to_worst(training[split]) for split in ("validation", "test")})
    measure = study.measures[0]
    mean = _format_mean([result["validation"][measure] for result in results])
    log(f"  {title}, learning rate {rate:g}: validation {measure} {mean}")
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
    """Returns the results of `run` as rows: the mean of each metric, and its difference from the baseline.

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
    mean = np.mean(values)
    if len(values) < 2:
        return f"{mean:{form}}"
    half = scipy.stats.t.ppf(0.975, len(values) - 1) * scipy.stats.sem(values)
    return f"{mean:{form}} ± {half:.2f}" if half > 0.0 else f"{mean:{form}}, all seeds"


def _train(study, name, rank_fn, weight, parts, rate, seed):
    """Trains one model; returns split -> its metrics after the epoch that is best on validation."""
    tf.keras.utils.set_random_seed(seed)
    model = study.build(parts["train"])
    # The mean absolute error first moves the scores into the range that the sorter was trained on.
    l1 = tf.Variable(0.0 if rank_fn is None else 1.0, trainable=False)
    ranks = None if rank_fn is None else rank_functions.get(rank_fn, LIST)
    loss = study.loss(name, ranks, l1, weight)
    optimizer = tf.keras.optimizers.Adam(rate)
    *features, labels = map(tf.constant, parts["train"])

    @tf.function
    def train_epoch(batches, features, labels):  # as arguments: a graph keeps what it captures
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
        batches = rng.permutation(len(labels))[: steps * LIST].reshape(steps, LIST)
        train_epoch(batches, features, labels)
        if not all(np.isfinite(weight).all() for weight in model.get_weights()):
            break  # diverged
        validation = study.evaluate(model, parts["validation"])
        measure = study.measures[0]
        if validation[measure] > best["validation"][measure]:
            best = {"validation": validation, "test": study.evaluate(model, parts["test"])}
    return best
