"""What a file says of each class: its name alone, a text, or a weight."""

import difflib

import numpy as np

from rank4class.data import sources


def class_names(path):
    """Reads the names of the classes in the order of their ids.

    Args:
      path: UTF-8 file, a name a line.

    Returns:
      name -> `path:number`, where it stands.

    Raises:
      FileNotFoundError: no file.
      ValueError: an empty line, or a name that comes twice.
    """
    places = {}
    for where, line in sources.lines(path):
        name = line.strip()
        if not name:
            raise ValueError(f"{where} has no class name")
        if name in places:
            raise ValueError(f"{where} has the class name {name!r} again")
        places[name] = where
    return places


def class_descriptions(path, class_names):
    """Reads a description for every class.

    Args:
      path: UTF-8 file, a class a line: its name, a tab, its description.
      class_names: all of them.

    Returns:
      The descriptions, in the order of the names.

    Raises:
      FileNotFoundError: no file.
      ValueError: a line of another form, a name that is unknown or comes twice, a class without a line.
    """
    return _table(path, class_names, "description", str)


def class_weights(path, class_names):
    """Reads a weight for every class, as `class_descriptions` reads its text.

    Returns:
      float32 `[n]`, at least 0, not all of them 0.
    """
    weights = np.array(_table(path, class_names, "weight", _weight), np.float32)
    if not weights.any():
        raise ValueError(f"{path} has no weight above 0: give one to a class")
    return weights


def balanced_class_weights(counts):
    """Returns weights float32 `[n]` by which every class weighs the same, and an example 1 on average.

    Args:
      counts: of the training examples of each class; a class of none has weight 0.

    >>> balanced_class_weights([3, 1, 0]).tolist()
    [0.6666666865348816, 2.0, 0.0]
    """
    counts = np.asarray(counts)
    present = np.count_nonzero(counts)
    return np.where(counts > 0, counts.sum() / (present * np.maximum(counts, 1)), 0.0).astype(np.float32)


def _weight(text):
    weight = float(text)
    if not 0.0 <= weight <= np.finfo(np.float32).max:
        raise ValueError
    return weight


def _table(path, class_names, what, parse):
    values, known = {}, set(class_names)
    for where, line in sources.lines(path):
        name, tab, value = line.partition("\t")
        if not tab or not value.strip():
            raise ValueError(f"{where} is not a class name, a tab and a {what}")
        if name not in known:
            close = difflib.get_close_matches(name, class_names, n=1)
            names = sources.listed(list(dict.fromkeys([*close, *class_names])))  # the closest first
            raise ValueError(f"{where} has a {what} of {name!r}, which is none of {names}")
        if name in values:
            raise ValueError(f"{where} has a {what} of {name!r} again")
        try:
            values[name] = parse(value)
        except ValueError as error:
            raise ValueError(
                f"{where} has the {what} {value!r}, which is no number from 0 to 3e38"
            ) from error
    missing = [name for name in class_names if name not in values]
    if missing:
        raise ValueError(f"{path} has no {what} of {sources.listed(missing)}")
    return [values[name] for name in class_names]
