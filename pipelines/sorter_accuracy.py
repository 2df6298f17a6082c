"""How well rank functions rank, and how well their gradients foretell what a move does to the ranks."""

import functools

import numpy as np
import tensorflow as tf

from rank4class.data import score_vectors
from rank4class.models import sorters
from rank4class.pipelines import rank_functions, sorter_training

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
        ranks = sorter_training.extrapolate(rank_fn, scores, moves) if move else rank_fn(scores)
        return tf.reduce_mean(abs(ranks / n - score_vectors.ranks(scores + moves)), axis=1)

    size = int(min(500, max(1, _PAIRS // n**2)))
    parts = range(0, len(scores), size)
    return np.concatenate([error(scores[i : i + size], moves[i : i + size]) for i in parts])


def _cell(rank_fn, n, move):
    if rank_fn is None:
        return "-"
    summary = sorter_training.Errors({"l1": errors(rank_fn, n, move)}).summarize()
    low, high = summary["intervals"]["l1"]
    return f"{summary['l1']:.5f} [{low:.5f}, {high:.5f}]"


def _rank_fn(name, n):
    """Returns a rank function, None where there are no weights for such lists."""
    try:
        return rank_functions.get(name, n)
    except ValueError:
        return None


def _num_parameters(rank_fn):
    sorter = getattr(rank_fn, "sorter", None)
    return 0 if sorter is None else sum(int(np.prod(w.shape)) for w in sorter.trainable_weights)
