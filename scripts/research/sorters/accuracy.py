"""The accuracy of rank functions, and of the ranks that their gradients predict after the scores move."""

import functools
import itertools
import os
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from rank4class import arguments
from rank4class.pipelines.storage.run_directory import check_folder
from rank4class.pipelines.task_data import rank_functions
from rank4class.scripts.research.sorters import (
    networks,  # noqa: F401, registers its sorters
    score_vectors,
    study,
)

RankFn = Callable[[tf.Tensor], tf.Tensor]  # of scores `[B, n]` to ranks in `1..n`
SIZES = (10, 28, 100, 1_000)
MOVE = 1.0  # largest move, in ranks
MOVES = {
    "l1": (0.0, "mean absolute error of the ranks"),
    "moved_l1": (MOVE, f"of the ranks after a move of up to {MOVE:g} place, predicted"),
}
STUDY_METRICS = [f"{name}@{n}" for name in MOVES for n in SIZES[:3]]  # of `run`
_MAX_PAIRS = 5e7  # of scores that are compared at once


def run(names: Sequence[str], folder: str | None = None) -> dict[str, dict[str, np.ndarray]]:
    """Measures rank functions; with a folder, writes their `STUDY_METRICS` to `study.json` in it."""
    if folder is None:
        return measure(names)
    data = {"held-out vectors": ", ".join(STUDY_METRICS)}
    started = time.monotonic()
    study.check_result(check_folder(folder, "study of sorters"), data)
    for name, n in itertools.product(names, SIZES[:3]):
        rank_functions.get_rank_fn(name, n)  # fails before anything is measured
    measured = measure(names)
    test = {name: {m: [(100.0 * measured[name][m]).tolist()] for m in STUDY_METRICS} for name in names}
    examples = {"test": len(measured["exact"][STUDY_METRICS[0]])}
    study.write_result(folder, [0], test, examples, data, [study.session(started)])
    return measured


def measure(
    names: Sequence[str], sizes: Sequence[int] = SIZES, log: Callable[[str], None] = print
) -> dict[str, dict[str, np.ndarray]]:
    """Measures rank functions, and as the first the exact ranks, on the held-out test vectors.

    Returns:
      Rank function -> metric, `l1@N` for vectors of length N and `moved_l1@N` after small moves -> `errors`;
      a metric is left out if there are no weights for that length.
    """
    result: dict[str, dict[str, np.ndarray]] = {}
    for name in dict.fromkeys(("exact", *names)):
        rank_fns = {n: rank_fn for n in sizes if (rank_fn := _rank_fn(name, n))}
        if not rank_fns:
            rank_functions.get_rank_fn(name, sizes[0])  # raises the error
        result[name] = {
            f"{metric}@{n}": errors(rank_fn, n, move)
            for metric, (move, _) in MOVES.items()
            for n, rank_fn in rank_fns.items()
        }
        log(f"{name}: {', '.join(f'{metric} {v.mean():.5f}' for metric, v in result[name].items())}")
    return result


def tables(measured: Mapping[str, Mapping[str, np.ndarray]]) -> list[list[list[str]]]:
    """Returns a table of the ranks, and one of the ranks that value and gradient predict after small moves.

    The cells are mean absolute errors of the ranks over `n`, with a 95% interval over the vectors; "-" if
    there are no weights for that length.
    """
    sizes = dict.fromkeys(int(metric.partition("@")[2]) for values in measured.values() for metric in values)
    result = []
    for metric, (_, title) in MOVES.items():
        rows = [[title, "parameters", *(f"n = {n}" for n in sizes)]]
        for name, values in measured.items():
            counts = sorted({_num_parameters(rank_fn) for n in sizes if (rank_fn := _rank_fn(name, n))})
            cells = [_cell(values.get(f"{metric}@{n}", ())) for n in sizes]
            rows.append([name, " or ".join(f"{count:,}" for count in counts), *cells])
        result.append(rows)
    return result


def table_of_run(names: Sequence[str], path: str | os.PathLike) -> list[list[str]]:
    """Returns a table of rank functions on the scores of a run, a `predictions.npz` of `rank4class evaluate`.

    The cells are the mean absolute error, in ranks, of the classes with rank 1, 2 and 3, 4 to 7 and so on,
    with a 95% interval over the examples; "-" if there are no weights for that length, or ties leave no class
    at these ranks.
    """
    if not os.path.isfile(path):
        raise FileNotFoundError(f"{path}: no such file. Write it with rank4class evaluate --output=FOLDER.")
    with np.load(path) as npz:
        if "scores" not in npz:
            raise ValueError(f"{path}: no scores of all classes. Evaluate again with --keep_scores.")
        scores = npz["scores"]
        origins = npz["origins"]
    finite = np.isfinite(scores).all(axis=1)
    if not finite.all():
        i = int(np.argmin(finite))
        raise ValueError(
            f"{path}: the scores of example {i + 1} ({origins[i]}) are not all finite. Train again."
        )
    n = scores.shape[1]
    firsts = _first_ranks(n)
    lasts = [min(2 * first - 1, n) for first in firsts]
    ranges = [f"{a}" if a == b else f"{a}-{b}" for a, b in zip(firsts, lasts, strict=True)]
    rows = [["places off, of classes in place", *ranges]]
    for name in names:
        rank_fn = _rank_fn(name, n)
        off = np.full([1, len(firsts)], np.nan) if rank_fn is None else places_off(rank_fn, scores)
        rows.append([name, *(_cell(column[~np.isnan(column)], ".2f") for column in off.T)])
    return rows


def errors(rank_fn: RankFn, n: int, move: float = 0.0, split: str = "test") -> np.ndarray:
    """Returns the mean absolute error of the ranks of each held-out vector of length `n`, over `n`: `[N]`.

    `move` is the largest move of a score before it is ranked, see `score_vectors.moves`.
    """
    scores, _ = score_vectors.held_out(split, n)
    moves = score_vectors.moves(scores, [n, 0], move).numpy()

    @functools.partial(tf.function, autograph=False)
    def error(scores, moves):
        ranks = extrapolate(rank_fn, scores, moves) if move else rank_fn(scores)
        return tf.reduce_mean(abs(ranks / n - score_vectors.ranks(scores + moves)), axis=1)

    return np.concatenate([error(scores[part], moves[part]) for part in _parts(scores)])


def extrapolate(sorter: RankFn, scores: tf.Tensor, moves: tf.Tensor) -> tf.Tensor:
    """Returns the ranks of a sorter, float32 `[B, n]`, plus the Jacobian times the moves of the scores."""
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            inner.watch(scores)
            ranks = sorter(scores)
        seeds = tf.zeros_like(ranks)
        outer.watch(seeds)
        # The backward pass is linear in its seeds; its derivative is the forward-mode product.
        backward = inner.gradient(ranks, scores, output_gradients=seeds, unconnected_gradients="zero")
    return ranks + outer.gradient(backward, seeds, output_gradients=moves, unconnected_gradients="zero")


def places_off(rank_fn: RankFn, scores: np.ndarray) -> np.ndarray:
    """Returns the absolute error of the ranks of lists, float32 `[N, P]`, by exact rank.

    It is the mean over a list's items with rank 1, with 2 and 3, with 4 to 7 and so on; NaN if ties leave no
    item there.

    >>> places_off(lambda scores: tf.constant([[1.0, 2.5, 2.5]]), np.array([[5.0, 0.0, -5.0]], np.float32))
    array([[0. , 0.5]], dtype=float32)
    """
    exact_ranks = rank_functions.get_rank_fn("exact", scores.shape[1])

    @functools.partial(tf.function, autograph=False)
    def off(scores):
        exact = exact_ranks(scores)
        distance = abs(rank_fn(scores) - exact)
        first = tf.constant(_first_ranks(scores.shape[1]), tf.float32)[:, None]
        inside = tf.cast((exact[:, None] >= first) & (exact[:, None] < 2.0 * first), tf.float32)
        return tf.linalg.matvec(inside, distance) / tf.reduce_sum(inside, axis=-1)

    return np.concatenate([off(scores[part]) for part in _parts(scores)])


def _first_ranks(n):
    """Returns the powers of 2 up to `n`."""
    return [2**i for i in range(n.bit_length())]


def _parts(scores):
    """Returns slices of lists that are small enough to compare all pairs of scores."""
    size = int(min(500, max(1, _MAX_PAIRS // scores.shape[1] ** 2)))
    return [slice(i, i + size) for i in range(0, len(scores), size)]


def summary(values: np.ndarray) -> dict[str, float]:
    """Returns the mean of values, and the ends of its 95% interval, of values that are at least 0."""
    mean = float(values.mean())
    margin = 1.96 * float(values.std()) / len(values) ** 0.5
    return {"mean": mean, "low": max(0.0, mean - margin), "high": mean + margin}


def with_interval(values: Mapping[str, float], form: str = ".5f") -> str:
    """Returns a `summary` as text.

    >>> with_interval({"mean": 0.5, "low": 0.25, "high": 0.75}, ".2f")
    '0.50 [0.25, 0.75]'
    """
    return f"{values['mean']:{form}} [{values['low']:{form}}, {values['high']:{form}}]"


def _cell(values, form=".5f"):
    return with_interval(summary(values), form) if len(values) else "-"


def _rank_fn(name, n):
    """Returns a rank function, or None if it has no weights for lists of that length."""
    arguments.check_choice(rank_functions.names(), rank_fn=name)
    try:
        return rank_functions.get_rank_fn(name, n)
    except ValueError:
        return None


def _num_parameters(rank_fn):
    sorter = getattr(rank_fn, "sorter", None)
    return 0 if sorter is None else sum(int(np.prod(w.shape)) for w in sorter.trainable_weights)
