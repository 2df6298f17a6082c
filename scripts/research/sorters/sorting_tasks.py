"""Small tasks evaluated by a rank correlation, a mean average precision or a recall."""

import os
from collections.abc import Sequence

import numpy as np
import pandas as pd

PARTS = ("train", "validation", "test")
Task = dict[str, tuple[np.ndarray, ...]]  # split -> arrays of float32


def table(path: str | os.PathLike, target: str, seed: int) -> Task:
    """Returns features `[N, d]` and targets `[N]` from a CSV file with a header, split 60/20/20.

    Columns of text become one column of 0 and 1 for each of their values. Rows with an empty or infinite cell
    are left out. All have mean 0 and variance 1 in training; a feature that is constant there is 0.
    """
    try:
        frame = pd.read_csv(path).replace([np.inf, -np.inf], np.nan).dropna()
    except (UnicodeDecodeError, pd.errors.EmptyDataError, pd.errors.ParserError) as error:
        raise ValueError(f"table={path}: not a CSV file with a header: {error}. Correct it.") from error
    if target not in frame or not pd.api.types.is_numeric_dtype(frame[target]):
        raise ValueError(f"target={target!r}: no column of numbers of {path}. Choose another.")
    if len(frame) < 10:
        raise ValueError(f"table={path}: only {len(frame)} complete rows. Use a larger table.")
    order = np.random.default_rng(seed).permutation(len(frame))
    splits = np.split(order, [round(0.6 * len(order)), round(0.8 * len(order))])

    def scaled(values: np.ndarray) -> np.ndarray:
        train = values[splits[0]]
        deviation = train.std(axis=0)
        return ((values - train.mean(axis=0)) / np.where(deviation > 0.0, deviation, 1.0)).astype(np.float32)

    features = scaled(pd.get_dummies(frame.drop(columns=target)).to_numpy(np.float64))
    targets = scaled(frame[target].to_numpy(np.float64))
    return {name: (features[split], targets[split]) for name, split in zip(PARTS, splits, strict=True)}


def relevant_vectors(seed: int, counts: Sequence[int] = (5_000, 1_000, 2_000)) -> Task:
    """Returns vectors `[N, 20]`; the fifth with the highest scores of a random network is relevant, `[N, 1]`.

    The scores have a standard deviation of 1 and noise of 0.3.

    >>> print(relevant_vectors(seed=0, counts=(50, 20, 30))["train"][1].sum())
    10.0
    """
    rng = np.random.default_rng(seed)
    width = 20
    weights = [rng.normal(size=[width, 32]), rng.normal(size=[32, 32]), rng.normal(size=[32])]

    def draw(count: int) -> tuple[np.ndarray, np.ndarray]:
        vectors = rng.normal(size=[count, width])
        hidden = np.tanh(vectors @ weights[0] / np.sqrt(width) * 2)
        scores = np.tanh(hidden @ weights[1] / np.sqrt(32) * 2) @ weights[2]
        scores = scores / scores.std() + 0.3 * rng.normal(size=count)
        relevant = scores >= np.quantile(scores, 0.8)
        return vectors.astype(np.float32), relevant[:, None].astype(np.float32)

    return {name: draw(count) for name, count in zip(PARTS, counts, strict=True)}


def pairs(seed: int, counts: Sequence[int] = (5_000, 1_000, 1_000)) -> Task:
    """Returns two views, `[N, 60]` and `[N, 40]`, of the same hidden vectors, and zeros `[N]` for targets.

    A view is a random linear map of a random layer of tanh units on a hidden vector of 16, with noise of
    standard deviation 0.5 on coordinates of standard deviation about 1.

    >>> [view.shape for view in pairs(seed=0)["test"]]
    [(1000, 60), (1000, 40), (1000,)]
    """
    rng = np.random.default_rng(seed)
    maps = [(rng.normal(size=[16, 64]) / 4, rng.normal(size=[64, width]) / 6) for width in (60, 40)]

    def draw(count: int) -> tuple[np.ndarray, ...]:
        hidden = rng.normal(size=[count, 16])
        views = [np.tanh(hidden @ first) @ second for first, second in maps]
        noisy = [(view + 0.5 * rng.normal(size=view.shape)).astype(np.float32) for view in views]
        return (*noisy, np.zeros(count, np.float32))

    return {name: draw(count) for name, count in zip(PARTS, counts, strict=True)}
