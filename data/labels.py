"""Labels by name, of one or several classes per example."""

import array
import collections
import itertools
import re
from collections.abc import Collection, Iterable, Sequence

import numpy as np
import scipy.sparse


class Labels:
    """The labels of examples, one example after another; `codes` has a number for each distinct one."""

    def __init__(self, several: bool = False):
        self.codes: dict[str, int] = {}
        self.several = several
        self._entries = array.array("i")
        self._ends = array.array("q", [0])

    def append(self, names: Iterable[str]) -> None:
        """Adds an example with these labels."""
        codes = self.codes
        self._entries.extend([codes.setdefault(name, len(codes)) for name in names])
        self._ends.append(len(self._entries))

    def __len__(self) -> int:
        return len(self._ends) - 1

    def encode(self, class_names: Sequence[str]) -> tuple[np.ndarray | scipy.sparse.csr_array, np.ndarray]:
        """Returns the labels as those of a `Split`, and a mask of the examples with a label of no class.

        >>> labels = Labels()
        >>> for name in ("ham", "eggs", "spam"):
        ...     labels.append([name])
        >>> labels.encode(["spam", "ham"])
        (array([ 1, -1,  0], dtype=int32), array([False,  True, False]))
        """
        ids = {name: i for i, name in enumerate(class_names)}
        of_codes = np.array([ids.get(name, -1) for name in self.codes], np.int32)
        entries = of_codes[np.frombuffer(self._entries, np.int32)] if self._entries else of_codes[:0]
        rows = np.repeat(np.arange(len(self)), np.diff(self._ends))
        is_known = entries >= 0
        is_unknown_row = np.zeros(len(self), bool)
        is_unknown_row[rows[~is_known]] = True
        if not self.several:
            return entries, is_unknown_row
        ones = np.ones(np.count_nonzero(is_known), np.float32)
        shape = len(self), len(class_names)
        return scipy.sparse.csr_array((ones, (rows[is_known], entries[is_known])), shape), is_unknown_row

    def most(self) -> int:
        """Returns the largest number of labels of an example."""
        return int(np.diff(self._ends).max())

    def names_of(self, i: int) -> list[str]:
        """Returns the labels of an example."""
        names = list(self.codes)
        return [names[code] for code in self._entries[self._ends[i] : self._ends[i + 1]]]


def distinct_names(names: Sequence[str], ids: Iterable[int]) -> tuple[str, ...]:
    """Returns names in which repeated ones have their id in brackets after them.

    >>> distinct_names(["Hamlet", "Emma", "Hamlet"], [1, 2, 3])
    ('Hamlet [1]', 'Emma', 'Hamlet [3]')
    """
    counts = collections.Counter(names)
    return tuple(f"{name} [{i}]" if counts[name] > 1 else name for name, i in zip(names, ids, strict=True))


def sort_names(names: Collection[str]) -> list[str]:
    """Returns names of classes in their order: by value if all are integers, otherwise as strings.

    >>> sort_names(["10", "9"]), sort_names(["10", "9", "a"])
    (['9', '10'], ['10', '9', 'a'])
    """
    if all(re.fullmatch("-?[0-9]+", name) for name in names):
        return sorted(names, key=lambda name: (int(name), name))
    return sorted(names)


def listed(names: Sequence[str]) -> str:
    """Returns at most ten names for a message.

    >>> listed("abcdefghijklm")
    'a, b, c, d, e, f, g, h, i, j and 3 more'
    """
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return ", ".join(names[:10]) + more


def similar_names(names: Iterable[str]) -> list[tuple[str, str]]:
    """Returns pairs of names that may be one: alike but for case, spaces and marks, or for one letter.

    Names that differ in a digit, or have fewer than five letters and differ in one, are not alike. It takes
    time in proportion to the squares of their lengths.

    >>> similar_names(["Delivery", "refund", "delivery ", "refunds", "room 1", "room 2"])
    [('Delivery', 'delivery '), ('refund', 'refunds')]
    """
    by_form: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
    for name in names:
        plain = "".join(filter(str.isalnum, name.casefold()))
        letters = "".join(character for character in plain if not character.isdigit())
        forms = {plain}
        if len(letters) >= 5:
            forms |= {plain[:i] + plain[i + 1 :] for i in range(len(plain))}
        digits = "".join(filter(str.isdigit, plain))
        for form in forms:
            by_form[form, digits].append(name)
    pairs = (pair for group in by_form.values() for pair in itertools.combinations(group, 2))
    return list(dict.fromkeys(pairs))
