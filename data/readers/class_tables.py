"""Files with one class per line: its name, and a description of it, its weight or its frequency."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from rank4class.data.labels import listed
from rank4class.data.readers import rows
from rank4class.registry import did_you_mean


def class_names(path: str) -> tuple[str, ...]:
    """Reads the names of the classes, one per line in the order of their ids.

    Raises:
      ValueError: a line is empty; the message names it.
      FileNotFoundError: there is no such file.
    """
    names = []
    for where, line in rows.lines(path):
        if not line.strip():
            raise ValueError(f"{where}: no class name. Remove the line.")
        names.append(line.strip())
    return tuple(names)


def class_descriptions(path: str, class_names: Sequence[str]) -> list[str]:
    """Reads the descriptions of classes from a UTF-8 file with lines of a name, a tab and a description.

    Args:
      path: the file; its lines may have any order.
      class_names: the `n` names of the classes, by id.

    Returns:
      The description of each class, `n` strings in the order of `class_names`.

    Raises:
      ValueError: a line of another format, with an unknown or a repeated name, or a class without a line;
        the message names the line or the classes.
      FileNotFoundError: there is no such file.
    """
    return [value for _, value in _table(path, class_names, "description")]


def class_weights(path: str, class_names: Sequence[str]) -> np.ndarray:
    """Reads weights float32 `[n]`, at least 0 and not all 0, in the format of `class_descriptions`.

    Args:
      path, class_names: see `class_descriptions`.

    Raises:
      ValueError: as of `class_descriptions`; or a weight that is not such a number, or all are 0.
      FileNotFoundError: there is no such file.
    """
    weights = _numbers(path, class_names, "weight", 0.0)
    if not weights.any():
        raise ValueError(f"{path}: no weight above 0. Raise one.")
    return weights


def class_frequencies(path: str, class_names: Sequence[str]) -> np.ndarray:
    """Reads frequencies float32 `[n]`, above 0 and of any sum, in the format of `class_descriptions`.

    Args:
      path, class_names: see `class_descriptions`.

    Raises:
      ValueError: as of `class_descriptions`; or a frequency that is not a number of at least 1e-30.
      FileNotFoundError: there is no such file.
    """
    return _numbers(path, class_names, "frequency", 1e-30)


def balanced_class_weights(counts: Sequence[int] | np.ndarray) -> np.ndarray:
    r"""Returns weights float32 `[n]` that give every class the same total weight, and labels a mean of 1.

    $$w_i = \frac{N}{n_+ N_i}$$

    with $N_i$ examples of class $i$, $N = \sum_i N_i$, and $n_+$ classes that have examples. An example of
    several classes counts for each of them. scikit-learn's `compute_class_weight` needs one label per example
    and refuses empty classes.

    Args:
      counts: number of training examples of each class, `[n]`; empty classes get weight 0.

    >>> balanced_class_weights([3, 1, 0]).tolist()
    [0.6666666865348816, 2.0, 0.0]
    """
    sizes = np.asarray(counts)
    present = np.count_nonzero(sizes)
    return np.where(sizes > 0, sizes.sum() / (present * np.maximum(sizes, 1)), 0.0).astype(np.float32)


def _numbers(path: str, class_names: Sequence[str], kind: str, least: float) -> np.ndarray:
    values = _table(path, class_names, kind)
    numbers = pd.to_numeric([value.strip() for _, value in values], errors="coerce").astype(np.float64)
    for (where, value), number in zip(values, numbers, strict=True):
        if not least <= number <= np.finfo(np.float32).max:  # NaN too
            raise ValueError(f"{where}: {kind} {value!r} is not a number from {least:g} to 3e38. Correct it.")
    return numbers.astype(np.float32)


def _table(path: str, class_names: Sequence[str], kind: str) -> list[tuple[str, str]]:
    """Returns (`path:number`, value) of a table in the order of the classes."""
    values = {}
    known = set(class_names)
    for where, line in rows.lines(path):
        name, tab, value = line.partition("\t")
        if not tab or not value.strip():
            raise ValueError(f"{where}: not a class name, a tab and a {kind}. Correct the line.")
        if name not in known:
            hint = f"{did_you_mean(name, class_names)}The classes are {listed(class_names)}."
            raise ValueError(f"{where}: unknown class {name!r}. {hint}")
        if name in values:
            raise ValueError(f"{where}: class {name!r} is repeated. Remove the line.")
        values[name] = where, value
    missing = [name for name in class_names if name not in values]
    if missing:
        raise ValueError(f"{path}: no {kind} of {listed(missing)}. Add a line for each.")
    return [values[name] for name in class_names]
