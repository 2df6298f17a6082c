"""How well rank functions rank, and how well their gradients foretell what a move does to the ranks."""

import functools

import numpy as np
import tensorflow as tf

from rank4class.data.sorting import score_vectors
from rank4class.models import sorters
from rank4class.pipelines.config import rank_functions
from rank4class.pipelines.evaluation import predictions
from rank4class.pipelines.sorters import training

SIZES = (10, 28, 100, 1_000)
MOVE = 1.0  # at most, in places
_PAIRS = 5e7  # of scores that are compared at once


def tables(names, sizes=SIZES, tell=print):
    """Measures rank functions on vectors of the held-out test.

    Args:
      names: of the rank functions, `rank_functions.NAMES`; the exact ranks come first, whatever they are.
      sizes: lengths of the vectors.
      tell: is told of each error as it is there.

    Returns:
      Title of a table -> its rows: the mean absolute error of the ranks over `n`, with a 95% interval over
      the vectors, of the scores as they are, and of where small moves take them when their ranks are foretold
      by the value and the gradient before the move. "-" is where there are no weights for such lists.

    Raises:
      ValueError: a rank function is not known, or there are no weights of it for any of the sizes.
    """
    names = ("exact", *(name for name in names if name != "exact"))
    of_sizes = {name: [_rank_fn(name, n) for n in sizes] for name in names}
    for name, rank_fns in of_sizes.items():
        if all(rank_fn is None for rank_fn in rank_fns):
            rank_functions.get(name, sizes[0])
    found = {}
    for title, move in (
        ("mean absolute error of the ranks", 0.0),
        (f"of the ranks after a move of up to {MOVE:g} place, foretold", MOVE),
    ):
        rows = [[title, "parameters", *(f"n = {n}" for n in sizes)]]
        for name, rank_fns in of_sizes.items():
            counts = sorted({_num_parameters(rank_fn) for rank_fn in rank_fns if rank_fn is not None})
            cells = [_cell(rank_fn, n, move) for rank_fn, n in zip(rank_fns, sizes, strict=True)]
            tell(f"{name}: {', '.join(cells)}")
            rows.append([name, " or ".join(f"{count:,}" for count in counts), *cells])
        found[title] = rows
    return found


def table_of_run(names, path):
    """Measures rank functions on what a run scored, which a sorter need not be made for.

    Args:
      names: of the rank functions.
      path: a `predictions.npz` of scripts.evaluate.

    Returns:
      The rows of a table: by how many places the classes in place 1, in 2 and 3, in 4 to 7 and so on are
      ranked wrong, the mean over the examples with a 95% interval. "-" is where there are no weights for
      such lists, or where ties leave no class in such a place.

    Raises:
      FileNotFoundError, ValueError: see `predictions.read`; or there are no scores in it, one of them is
        not finite, or a rank function is not known.
    """
    scored = predictions.read(path, with_scores=True)
    if scored.scores is None:
        raise ValueError(f"{path} holds no scores: evaluate again without --nokeep_scores")
    finite = np.isfinite(scored.scores).all(axis=1)
    if not finite.all():
        i = int(np.argmin(finite))
        raise ValueError(f"{path}: the scores of example {i + 1} ({scored.origins[i]}) are not all finite")
    n = len(scored.class_names)
    rank_fns = {name: _rank_fn(name, n) for name in names}
    firsts = _first_places(n)
    lasts = [min(2 * first - 1, n) for first in firsts]
    ranges = [f"{a}" if a == b else f"{a}-{b}" for a, b in zip(firsts, lasts, strict=True)]
    rows = [["places off, of classes in place", *ranges]]
    for name, rank_fn in rank_fns.items():
        off = np.full([1, len(firsts)], np.nan) if rank_fn is None else places_off(rank_fn, scored.scores)
        rows.append([name, *(_with_interval(column[~np.isnan(column)], ".2f") for column in off.T)])
    return rows


def commands(names, sizes=SIZES):
    """Returns the commands that trained what is shipped, name and sizes -> command."""
    found = {}
    for name in names:
        for n in sizes:
            if name in sorters.LEARNED and _rank_fn(name, n) is not None:
                about = sorters.about(name, n)
                found[f"{name}, n = {about['sizes']}"] = about["command"]
    return found


def errors(rank_fn, n, move=0.0):
    """Returns the mean absolute error of each vector of the test, as a share of `n`.

    Args:
      rank_fn: function of scores `[B, n]` to ranks in `1..n`.
      n: length of the vectors.
      move: how far the scores move at most to where they are ranked, see `score_vectors.moves`.

    Returns:
      float32 `[10000]`.
    """
    scores, _ = score_vectors.held_out("test", n)
    moves = score_vectors.moves(scores, [n, 0], move).numpy()

    @functools.partial(tf.function, autograph=False)
    def error(scores, moves):
        ranks = training.extrapolate(rank_fn, scores, moves) if move else rank_fn(scores)
        return tf.reduce_mean(abs(ranks / n - score_vectors.ranks(scores + moves)), axis=1)

    return np.concatenate([error(scores[part], moves[part]) for part in _parts(scores)])


def places_off(rank_fn, scores):
    """Returns how far the ranks of some lists are from the exact ones, in places.

    Args:
      rank_fn: function of scores `[B, n]` to ranks in `1..n`.
      scores: float32 `[N, n]`, finite.

    Returns:
      float32 `[N, P]`: the mean distance of a list's items in place 1, in 2 and 3, in 4 to 7 and so on; NaN
      where ties leave no item there.

    >>> places_off(lambda scores: tf.constant([[1.0, 2.5, 2.5]]), np.array([[5.0, 0.0, -5.0]], np.float32))
    array([[0. , 0.5]], dtype=float32)
    """

    exact_ranks = rank_functions.get("exact", scores.shape[1])

    @functools.partial(tf.function, autograph=False)
    def off(scores):
        exact = exact_ranks(scores)
        distance = abs(rank_fn(scores) - exact)
        first = tf.constant(_first_places(scores.shape[1]), tf.float32)[:, None]
        inside = tf.cast((exact[:, None] >= first) & (exact[:, None] < 2.0 * first), tf.float32)
        return tf.linalg.matvec(inside, distance) / tf.reduce_sum(inside, axis=-1)

    return np.concatenate([off(scores[part]) for part in _parts(scores)])


def _first_places(n):
    """1, 2, 4, 8 and so on, to `n` at most."""
    return [2**i for i in range(n.bit_length())]


def _parts(scores):
    """Slices of lists, of which all pairs of scores can be held."""
    size = int(min(500, max(1, _PAIRS // scores.shape[1] ** 2)))
    return [slice(i, i + size) for i in range(0, len(scores), size)]


def _cell(rank_fn, n, move):
    return "-" if rank_fn is None else _with_interval(errors(rank_fn, n, move), ".5f")


def _with_interval(values, form):
    if not len(values):
        return "-"
    summary = training.RankErrors({"of": values}).summarize()
    low, high = summary["intervals"]["of"]
    return f"{summary['of']:{form}} [{low:{form}}, {high:{form}}]"


def _rank_fn(name, n):
    """Returns a rank function, None where there are no weights for such lists."""
    try:
        return rank_functions.get(name, n)
    except ValueError:
        if name not in rank_functions.NAMES:
            raise
        return None


def _num_parameters(rank_fn):
    sorter = getattr(rank_fn, "sorter", None)
    return 0 if sorter is None else sum(int(np.prod(w.shape)) for w in sorter.trainable_weights)
