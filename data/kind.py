"""Kinds of examples: one class for each, in a file of `data/kinds/`, has all that depends on it."""

from collections.abc import Collection
from typing import Any

from rank4class.registry import Registry

KINDS = Registry("kind of example")  # by the feature that an example of the kind has


def kind_of(features: Collection[str]) -> Any:
    """Returns the kind of examples with some features, an object of `kinds.arrays.Kind`.

    Args:
      features: names of features. The last kind of `KINDS` that is named after one of them is theirs, so that
        texts may have cells beside them; without one they are arrays of numbers.

    >>> kind_of({"text", "text_pair"}).tokenizes, kind_of({"embedding"}).tokenizes
    (True, False)
    """
    return KINDS[next((name for name in reversed([*KINDS]) if name in features), "array")]()
