"""Small tasks evaluated by a rank correlation, a mean average precision or a recall."""

import os
from collections.abc import Sequence

import numpy as np
import pandas as pd
import sklearn.datasets

PARTS = ("train", "validation", "test")
Task = dict[str, tuple[np.ndarray, np.ndarray]]


def diabetes(seed: int) -> Task:
    """Returns scikit-learn's regression set of 442 patients: ten measurements, and the progression in a year.

    Args:
      seed: seed of the split into 242 for training, 100 for validation and 100 for the test.

    Returns:
      Split -> (float32 `[N, 10]`, float32 `[N]`), both of mean 0 and variance 1 in training.

    >>> [len(targets) for _, targets in diabetes(seed=0).values()]
    [242, 100, 100]
    """
    features, targets = sklearn.datasets.load_diabetes(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(targets))
    return _standardized_split(features, targets, order, (242 / 442, 342 / 442))


def table(path: str | os.PathLike, target: str, seed: int) -> Task:
    """Returns a regression set from a CSV file.

    Columns of text become one column of 0 and 1 for each of their values. Rows with an empty or infinite cell
    are left out.

    Args:
      path: of a file with a header.
      target: name of the column to predict; the others are features.
      seed: seed of the split, 60/20/20.

    Returns:
      Split -> (float32 `[N, d]`, float32 `[N]`), both of mean 0 and variance 1 in training; a feature that is
      constant there is 0.

    Raises:
      FileNotFoundError: no such file.
      ValueError: the file is not CSV, has no such column of numbers, or less than ten complete rows.
    """
    try:
        frame = pd.read_csv(path).replace([np.inf, -np.inf], np.nan).dropna()
    except (UnicodeDecodeError, pd.errors.EmptyDataError, pd.errors.ParserError) as error:
        raise ValueError(f"table={path}: not a CSV file with a header: {error}. Correct it.") from error
    if target not in frame or not pd.api.types.is_numeric_dtype(frame[target]):
        raise ValueError(f"target={target!r}: no column of numbers of {path}. Choose another.")
    if len(frame) < 10:
        raise ValueError(f"table={path}: only {len(frame)} complete rows. Use a larger table.")
    features = pd.get_dummies(frame.drop(columns=target)).to_numpy(np.float64)
    order = np.random.default_rng(seed).permutation(len(frame))
    return _standardized_split(features, frame[target].to_numpy(np.float64), order, (0.6, 0.8))


def _standardized_split(
    features: np.ndarray, targets: np.ndarray, order: np.ndarray, ends: Sequence[float]
) -> Task:
    """Returns the splits of an order, whose ends are fractions, in deviations of the training split."""
    first, second = (round(end * len(order)) for end in ends)
    train = order[:first]

    def scaled(values: np.ndarray) -> np.ndarray:
        deviation = values[train].std(axis=0)
        centered = values - values[train].mean(axis=0)
        return (centered / np.where(deviation > 0.0, deviation, 1.0)).astype(np.float32)

    features, targets = scaled(features), scaled(targets)
    parts = np.split(order, [first, second])
    return {name: (features[part], targets[part]) for name, part in zip(PARTS, parts, strict=True)}


def relevant_vectors(seed: int, counts: Sequence[int] = (5_000, 1_000, 2_000)) -> Task:
    """Returns vectors; the fifth with the highest scores of a random network is relevant.

    The scores have a standard deviation of 1 and noise of 0.3.

    Args:
      seed: seed of all draws.
      counts: numbers of examples of the three splits.

    Returns:
      Split -> (float32 `[N, 20]`, float32 `[N]` of 0 and 1).

    >>> print(relevant_vectors(seed=0, counts=(50, 20, 30))["train"][1].sum())
    10.0
    """
    rng, width = np.random.default_rng(seed), 20
    weights = [rng.normal(size=[width, 32]), rng.normal(size=[32, 32]), rng.normal(size=[32])]

    def draw(count: int) -> tuple[np.ndarray, np.ndarray]:
        vectors = rng.normal(size=[count, width])
        hidden = np.tanh(vectors @ weights[0] / np.sqrt(width) * 2)
        scores = np.tanh(hidden @ weights[1] / np.sqrt(32) * 2) @ weights[2]
        scores = scores / scores.std() + 0.3 * rng.normal(size=count)
        relevant = scores >= np.quantile(scores, 0.8)
        return vectors.astype(np.float32), relevant.astype(np.float32)

    return {name: draw(count) for name, count in zip(PARTS, counts, strict=True)}


def pairs(
    seed: int,
    counts: Sequence[int] = (5_000, 1_000, 1_000),
    widths: tuple[int, int] = (60, 40),
    noise: float = 0.5,
) -> Task:
    """Returns two views of the same hidden vectors, such as an image and its caption.

    A view is a random linear map of a random layer of tanh units on a hidden vector of 16, with noise.

    Args:
      seed: seed of all draws.
      counts: numbers of examples of the three splits.
      widths: lengths of the two views.
      noise: standard deviation of the noise on coordinates of standard deviation about 1.

    Returns:
      Split -> (float32 `[N, widths[0]]`, float32 `[N, widths[1]]`), with matching rows.

    >>> [view.shape for view in pairs(seed=0)["test"]]
    [(1000, 60), (1000, 40)]
    """
    rng = np.random.default_rng(seed)
    maps = [(rng.normal(size=[16, 64]) / 4, rng.normal(size=[64, width]) / 6) for width in widths]

    def draw(count: int) -> tuple[np.ndarray, np.ndarray]:
        hidden = rng.normal(size=[count, 16])
        views = (np.tanh(hidden @ first) @ second for first, second in maps)
        first, second = ((v + noise * rng.normal(size=v.shape)).astype(np.float32) for v in views)
        return first, second

    return {name: draw(count) for name, count in zip(PARTS, counts, strict=True)}
