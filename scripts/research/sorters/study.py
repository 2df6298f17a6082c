"""A comparison of losses on ranks with losses that ignore ranks, on the tasks in `studies`.

Each trains a small model with each loss and several seeds, at the learning rate that is best on the
validation part, and evaluates the test part with the metric that the loss approximates.
"""

import dataclasses
import functools
import hashlib
import itertools
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from rank4class import arguments
from rank4class.pipelines.storage import files
from rank4class.pipelines.storage.run_directory import check_folder, read_json, write_json
from rank4class.pipelines.task_data import rank_functions
from rank4class.pipelines.training.session import provenance
from rank4class.scripts.research.sorters import SEEDS
from rank4class.scripts.research.sorters.batch_losses import LOSSES

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
      evaluate: function of a model and a split's arrays to metric -> value; higher is better.
      weights: if there are any, a loss on ranks is added to the cross entropy with one of these weights.
    """

    plain: tuple[str, ...]
    ranked: tuple[str, ...]
    epochs: int
    measures: tuple[str, ...]
    load: Callable
    build: Callable
    evaluate: Callable
    weights: tuple[float, ...] = ()


def run(
    study: Study,
    rank_fns: Sequence[str],
    folder: str | os.PathLike,
    *,
    seeds: Sequence[int] = SEEDS,
    log: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Trains a task's model with each of its losses, rank functions and seeds; see `write_result`.

    The folder gets a file for each training, which is not repeated. The seeds are of data, weights and the
    order of the examples. The test values of a loss are those of the epoch that is best on validation; None
    if the training diverged in its first epoch, at the best learning rate.
    """
    check_seeds(seeds)
    for rank_fn_name in rank_fns:
        rank_functions.get_rank_fn(rank_fn_name, LIST)  # fails before anything is trained
    folder = check_folder(folder, "study of sorters")
    files.make_writable(folder)
    parts = {seed: study.load(seed) for seed in seeds}
    data = {str(seed): _hash(arrays) for seed, arrays in parts.items()}
    check_result(folder, data)
    measure = study.measures[0]
    sessions: list[dict[str, Any]] = []

    @functools.cache
    def train(name: str, rank_fn: str | None, weight: float, rate: float) -> list[dict[str, Any]]:
        """Returns the results of all seeds."""
        title = _title(name, rank_fn) + (f"-weight{weight:g}" if rank_fn and study.weights else "")
        results = []
        for seed in seeds:
            run_name = f"{title}-epochs{study.epochs}-rate{rate:g}-seed{seed}-{data[str(seed)][:8]}"
            path = os.path.join(folder, f"{run_name}.json")
            if not files.exists(path):
                started = time.monotonic()
                result = _train(study, name, rank_fn, weight, parts[seed], rate, seed)
                write_json(path, {**result, "session": session(started)})
            results.append(read_json(path))
        sessions.extend(result["session"] for result in results)
        log(f"  {title}, learning rate {rate:g}: validation {measure} {validation(results):.2f}")
        return results

    def validation(results: Sequence[Mapping[str, Any]]) -> float:
        values = [result["validation"][measure] for result in results]
        return -np.inf if None in values else float(np.mean(values))  # JSON has null for a diverged training

    plain = [(name, None) for name in study.plain]
    test_values = {}
    notes = []
    for name, rank_fn in [*plain, *itertools.product(study.ranked, rank_fns)]:
        choices = []
        for weight in (rank_fn and study.weights) or (1.0,):
            of_rate = functools.partial(train, name, rank_fn, weight)
            rate = search_learning_rate(lambda rate: validation(of_rate(rate)), LEARNING_RATES)  # noqa: B023
            choices.append((weight, rate))
        weight, rate = max(choices, key=lambda choice: validation(train(name, rank_fn, *choice)))
        results = train(name, rank_fn, weight, rate)
        title = _title(name, rank_fn)
        test_values[title] = {m: [result["test"][m] for result in results] for m in study.measures}
        log(f"{title}, learning rate {rate:g}: validation {measure} {validation(results):.2f}")
        notes += boundary_notes(title, "learning rate", rate, LEARNING_RATES)
        notes += boundary_notes(title, "weight", weight, study.weights) if rank_fn else []
    examples = {part: len(arrays[0]) for part, arrays in parts[seeds[0]].items()}
    return write_result(folder, seeds, test_values, examples, data, sessions, notes)


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
    axis: str = "loss",
    minutes: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """Writes `study.json`, the result of a study, and returns its content.

    Args:
      folder: of the file, which is made.
      seeds: of the trainings, `[S]`.
      test_values: title of a loss, or of a value of another `axis` -> metric -> its values in percent, `[S]`
        or, per test example, `[S, N]`.
      examples: split -> number of its examples.
      data: seed, file or split -> hash of the data, and settings that determine the result.
      sessions, notes: the `session` of each training, and sentences on the search.
      test_hash: of the test examples, which are compared with those of runs.
      axis: what the titles name.
      minutes: title -> minutes of one training, if they are compared.
    """
    files.make_folder(folder)
    result = {
        "seeds": list(seeds),
        "test": test_values,
        "examples": examples,
        "notes": list(notes),
        "data": dict(data),
        "test_hash": test_hash,
        "axis": axis,
        "minutes": dict(minutes or {}),
        "sessions": list(sessions),
    }
    path = os.path.join(folder, "study.json")
    write_json(path, result)
    return read_json(path)


def session(started: float, **packages: str) -> dict[str, Any]:
    """Returns the record of a training since `time.monotonic()`, with the versions of packages."""
    origin = provenance()
    origin["packages"] |= packages
    return {**origin, "seconds": round(time.monotonic() - started, 1)}


def search_learning_rate(value: Callable[[float], float], rates: Sequence[float]) -> float:
    """Tries ascending learning rates, from the middle, until the best is compared to its neighbors.

    A higher `value` is better. Of equal ones the lowest is the best: where trainings diverge, all lower rates
    are tried.

    >>> search_learning_rate(lambda rate: -abs(rate - 6), range(10))
    6
    """
    tried: set[int] = set()
    center = None
    best = len(rates) // 2
    while best != center:
        center = best
        tried.update(range(max(center - 1, 0), min(center + 2, len(rates))))
        best = max(tried, key=lambda i: (value(rates[i]), -i))
    return rates[best]


def _title(name: str, rank_fn: str | None) -> str:
    return name if rank_fn is None else f"{name}@{rank_fn}"


def _hash(parts):
    """Returns the SHA-256 of the arrays of all splits."""
    digest = hashlib.sha256()
    for name, arrays in parts.items():
        digest.update(name.encode())
        for array in arrays:
            digest.update(f"{array.dtype} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _train(
    study: Study, name: str, rank_fn: str | None, weight: float, parts: Mapping, rate: float, seed: int
) -> dict[str, Any]:
    """Trains one model; returns split -> its metrics after the epoch that is best on validation."""
    tf.keras.utils.set_random_seed(seed)
    model = study.build(parts["train"])
    # The mean absolute error first moves the scores into the range that the sorter was trained on.
    l1 = tf.Variable(0.0 if rank_fn is None else 1.0, trainable=False)
    model.compile(tf.keras.optimizers.Adam(rate), _loss(study, name, rank_fn, weight, l1))
    best = _Best(study, parts, l1)
    steps = len(parts["train"][-1]) // LIST
    batches = _batches(parts["train"], steps, seed)
    model.fit(batches, epochs=study.epochs, steps_per_epoch=steps, callbacks=[best], verbose=0)
    return best.values


def _loss(study: Study, name: str, rank_fn: str | None, weight: float, l1: tf.Variable) -> Callable:
    loss = LOSSES[name](rank_fn and rank_functions.get_rank_fn(rank_fn, LIST), l1)
    if not rank_fn or not study.weights:
        return loss
    plain = LOSSES["sigmoid_cross_entropy"](None, l1)
    return lambda labels, scores: plain(labels, scores) + weight * loss(labels, scores)


def _batches(arrays: Sequence[np.ndarray], steps: int, seed: int) -> tf.data.Dataset:
    """Returns the batches of all epochs, each in another order."""
    *features, labels = arrays

    def batches() -> Iterator[tuple]:
        rng = np.random.default_rng(seed)
        while True:
            for batch in rng.permutation(len(labels))[: steps * LIST].reshape(steps, LIST):
                yield tuple(x[batch] for x in features), labels[batch]

    specs = [tf.TensorSpec([LIST, *x.shape[1:]], x.dtype) for x in arrays]
    return tf.data.Dataset.from_generator(batches, output_signature=(tuple(specs[:-1]), specs[-1]))


class _Best(tf.keras.callbacks.Callback):
    """Keeps the metrics of the best epoch, ends a diverged training, and ends the mean absolute error."""

    def __init__(self, study: Study, parts: Mapping[str, Any], l1: tf.Variable):
        super().__init__()
        self._study = study
        self._parts = parts
        self._l1 = l1
        self.values = dict.fromkeys(("validation", "test"), dict.fromkeys(study.measures, -np.inf))

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if epoch >= L1_FRACTION * self._study.epochs:
            self._l1.assign(0.0)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if not all(np.isfinite(weight).all() for weight in self.model.get_weights()):
            self.model.stop_training = True
            return
        validation = self._study.evaluate(self.model, self._parts["validation"])
        measure = self._study.measures[0]
        if validation[measure] > self.values["validation"][measure]:
            test = self._study.evaluate(self.model, self._parts["test"])
            self.values = {"validation": validation, "test": test}
