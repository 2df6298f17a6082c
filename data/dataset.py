"""Datasets: splits of features and labels in memory, and random splits."""

import collections
import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse
import sklearn.model_selection
from absl import logging

from rank4class import arguments
from rank4class.data.kind import kind_of
from rank4class.data.labels import listed
from rank4class.data.lazy_arrays import Origins


@dataclasses.dataclass(frozen=True)
class Split:
    """Examples of one split.

    Attributes:
      features: name -> array with the `N` examples on its first axis; also a `scipy.sparse.csr_array` of
        vectors, or `StoredRows` on disk, of which batches read their rows.
      labels: int32 `[N]`, class ids; or for several classes per example a `scipy.sparse.csr_array`, float32
        `[N, n]`, sorted and without zeros, with 1, or the gain, of each class of an example.
      origins: object `[N]` or `Origins`, where each example was read (`train.tsv:17`), or None.
      excluded: a `scipy.sparse.csr_array`, bool `[N, n]`, of the classes that are not ranked for an example,
        or None.
      lengths: int `[N]`, the sequence lengths that examples are padded to, by which batches group them; or
        None.
      weights: float32 `[N]`, of the training examples in the loss, not negative, in addition to those of
        classes; None are ones.
      inputs: object `[N]`, the texts or paths of images that features were made of, for reports; or None.

    Raises:
      ValueError: labels of another type, gains that are not positive and finite, or arrays of other sizes.
    """

    features: Mapping[str, Any]
    labels: np.ndarray | scipy.sparse.csr_array
    origins: np.ndarray | Origins | None = None
    excluded: scipy.sparse.csr_array | None = None
    lengths: np.ndarray | None = None
    weights: np.ndarray | None = None
    inputs: np.ndarray | None = None

    def __post_init__(self):
        self._check_labels()
        arrays = {f"feature {name!r}": array for name, array in self.features.items()}
        arrays |= {
            name: getattr(self, name) for name in ("origins", "excluded", "lengths", "weights", "inputs")
        }
        for name, array in arrays.items():
            shape = getattr(array, "shape", ())
            if array is not None and shape[:1] != (len(self),):
                size = f"an array of {shape[0]} examples" if shape else f"a {type(array).__name__}"
                raise ValueError(f"{name}: {size} for {len(self)} labels. Give an array of as many examples.")

    def _check_labels(self):
        labels = self.labels
        if isinstance(labels, np.ndarray) and labels.ndim == 1 and labels.dtype.kind in "iu":
            return
        if not (isinstance(labels, scipy.sparse.csr_array) and labels.ndim == 2):
            shape = f", shape {labels.shape}, dtype {labels.dtype}" if isinstance(labels, np.ndarray) else ""
            raise ValueError(
                f"labels: a {type(labels).__name__}{shape}. Give numpy.array(labels, numpy.int32) of class "
                "ids, or a scipy.sparse.csr_array for several classes per example."
            )
        if not labels.has_canonical_format:
            raise ValueError("labels: unsorted or repeated entries. Call labels.sum_duplicates().")
        wrong = np.flatnonzero(~((labels.data > 0) & (labels.data < np.inf)))  # NaN too
        if len(wrong):
            raise ValueError(
                f"labels: an entry of {labels.data[wrong[0]]}. Store gains that are positive and finite, and "
                "leave out zeros."
            )

    def __len__(self) -> int:
        return self.labels.shape[0]

    @property
    def kind(self) -> Any:
        """The kind of its examples, see `kinds.arrays.Kind`."""
        return kind_of(self.features)

    @property
    def multi_label(self) -> bool:
        """Whether an example may have several classes."""
        return self.labels.ndim == 2

    @property
    def label_matrix(self) -> scipy.sparse.csr_array:
        """The labels of a multi-label split."""
        assert not isinstance(self.labels, np.ndarray)
        return self.labels

    def select(self, indices: Sequence[int] | np.ndarray) -> "Split":
        """Returns the examples of some indices, in their order, or of a mask.

        >>> split = Split({"text": np.array(["a", "b", "c"], object)}, np.array([0, 1, 0]))
        >>> split.select([2, 0]).features["text"].tolist()
        ['c', 'a']
        """
        arrays = (self.origins, self.excluded, self.lengths, self.weights, self.inputs)
        others = [None if array is None else array[indices] for array in arrays]
        features = {name: values[indices] for name, values in self.features.items()}
        return Split(features, self.labels[indices], *others)

    def origin(self, i: int) -> str:
        """Returns the name of example `i` in messages."""
        return f"example {i}" if self.origins is None else str(self.origins[i])

    def class_counts(self, num_classes: int) -> np.ndarray:
        """Returns the number of examples of each class, int64 `[n]`.

        >>> Split({}, np.array([2, 0, 2])).class_counts(4).tolist()
        [1, 0, 2, 0]
        """
        ids = self.labels if isinstance(self.labels, np.ndarray) else self.labels.indices
        return np.bincount(ids, minlength=num_classes)

    def class_matrix(self, num_classes: int) -> scipy.sparse.csr_array:
        """Returns whether an example has a class, bool `[N, n]`.

        >>> Split({}, np.array([1, 0])).class_matrix(2).toarray().tolist()
        [[False, True], [True, False]]
        """
        if self.multi_label:
            return self.label_matrix.astype(bool)
        rows = np.arange(len(self))
        return scipy.sparse.csr_array(
            (np.ones(len(self), bool), (rows, self.labels)), (len(self), num_classes)
        )

    def max_relevant(self) -> int | None:
        """Returns the largest number of classes of an example, at least 1; None if single-label.

        >>> Split({}, scipy.sparse.csr_array([[1.0, 1.0], [0.0, 1.0]])).max_relevant()
        2
        """
        return max(1, int(self.num_relevant().max())) if self.multi_label else None

    def num_relevant(self) -> np.ndarray:
        """Returns the number of classes of each example of a multi-label split, int `[N]`."""
        return np.diff(self.label_matrix.indptr)


@dataclasses.dataclass(frozen=True)
class Dataset:
    """A classification problem.

    Attributes:
      class_names: the names of the classes, by id.
      splits: "train", "validation" and "test"; one in memory may lack "test", and may have "calibration" for
        prediction sets.
      skipped: one message per skipped row or example.
      files: path -> SHA-256 of the files that were read, if they are few.
      columns: the columns of a table whose numbers are the vectors, in their order.

    Raises:
      ValueError: two classes of one name, or a split that is empty, has labels of another number of classes,
        or a label outside the classes.
    """

    class_names: tuple[str, ...]
    splits: dict[str, Split]
    skipped: tuple[str, ...] = ()
    files: dict[str, str] = dataclasses.field(default_factory=dict)
    columns: tuple[str, ...] = ()

    def __post_init__(self):
        for name, count in collections.Counter(self.class_names).items():
            if count > 1:
                raise ValueError(f"class_names: {name!r} is repeated. Rename one.")
        for name, split in self.splits.items():
            if not len(split):
                first = f" The first skipped row: {self.skipped[0]}" if self.skipped else ""
                raise ValueError(f"data.path: the {name} split has no example. Give it one.{first}")
            if split.multi_label and split.labels.shape[1] != len(self.class_names):
                raise ValueError(
                    f"labels: {split.labels.shape[1]} classes in the {name} split, but "
                    f"{len(self.class_names)} class_names. Give a name for each."
                )
            if not split.multi_label:
                outside = np.flatnonzero((split.labels < 0) | (split.labels >= len(self.class_names)))
                if len(outside):
                    raise ValueError(
                        f"{split.origin(outside[0])}: label {split.labels[outside[0]]} in the {name} split "
                        f"is outside the class ids 0..{len(self.class_names) - 1}. Correct it."
                    )
        if "train" in self.splits and not self.splits["train"].kind.ranks_items:
            counts = self.splits["train"].class_counts(len(self.class_names))
            untrained = [name for name, count in zip(self.class_names, counts, strict=True) if not count]
            if untrained:
                logging.warning("no training example of: %s", listed(untrained))


def map_splits(function: Callable[[Split], Any], splits: Mapping[str, Split]) -> dict[str, Any]:
    """Returns the results of a function of splits; names that share a split share its result."""
    distinct = {id(split): split for split in splits.values()}
    results = {i: function(split) for i, split in distinct.items()}
    return {name: results[id(split)] for name, split in splits.items()}


VALIDATION_FRACTION = 0.1  # of the training examples, by default


def check_fractions(
    validation_fraction: float | None, test_fraction: float, with_folds: bool = False
) -> dict[str, float]:
    """Returns the fractions to draw by split; raises ValueError unless they are in (0, 1).

    With folds, a fraction of 0 draws no validation split; optimizer "lbfgs" then validates by folds. None is
    the default.
    """
    validation_fraction = VALIDATION_FRACTION if validation_fraction is None else validation_fraction
    arguments.check_fraction(with_folds, section="data.", validation_fraction=validation_fraction)
    arguments.check_fraction(False, section="data.", test_fraction=test_fraction)
    return {"validation": validation_fraction, "test": test_fraction}


MIN_TO_SPLIT = 3  # examples of a class, one for each split


def draw(split: Split, fractions: dict[str, float], *, seed: int) -> dict[str, Split]:
    """Draws disjoint splits, of single-label examples the same fraction of each class.

    Classes of fewer than three examples stay in training. Examples of several classes, or of classes of which
    a split cannot have one each, are drawn at random, except one of each class, which stays in training.

    Args:
      split: the examples; those that are not drawn are "train".
      fractions: name -> fraction of the examples, in (0, 1), or 0 for no such split.
      seed: int.

    Raises:
      ValueError: a fraction is too large to leave an example of each class in training, or takes none.

    >>> split = Split({}, np.repeat([0, 1], 50))
    >>> {name: int(part.labels.sum()) for name, part in draw(split, {"test": 0.2}, seed=0).items()}
    {'test': 10, 'train': 40}
    """
    fractions = {name: fraction for name, fraction in fractions.items() if fraction}
    if split.multi_label:
        return _draw_at_random(split, fractions, seed)
    rest = np.arange(len(split))
    training = []
    indices = {}
    min_count = MIN_TO_SPLIT
    for name, fraction in fractions.items():
        too_few = np.bincount(split.labels[rest])[split.labels[rest]] < min_count
        training.append(rest[too_few])
        rest = rest[~too_few]
        count = round(fraction * len(split))
        num_classes = len(np.unique(split.labels[rest]))
        if not num_classes:
            raise ValueError(
                f"data.{name}_fraction={fraction}: no class has {min_count} examples, one for each split. "
                "Give the split, or labels that are classes."
            )
        try:
            rest, indices[name] = sklearn.model_selection.train_test_split(
                rest, test_size=count, random_state=seed, stratify=split.labels[rest]
            )
        except ValueError:  # too few or too many examples to take and leave one of each class
            logging.warning(
                "data.%s_fraction=%s: too few examples for %d classes. They are drawn whatever the class",
                name,
                fraction,
                num_classes,
            )
            return _draw_at_random(split, fractions, seed)
        min_count = 2  # one for the next split, one for training
    indices["train"] = np.concatenate([rest, *training])
    return {name: split.select(np.sort(part)) for name, part in indices.items()}


def _draw_at_random(split, fractions, seed):
    """Returns the splits of `draw` that do not have the same fraction of each class."""
    order = np.random.default_rng(seed).permutation(len(split))
    # The first example of each class in this order stays in training.
    rows, classes = split.class_matrix(1 + int(split.labels.max()))[order].nonzero()
    _, first = np.unique(classes, return_index=True)
    rest = np.delete(order, rows[first])
    indices = {}
    for name, fraction in fractions.items():
        count = round(fraction * len(split))
        if not 0 < count <= len(rest):
            raise ValueError(
                f"data.{name}_fraction={fraction}: {count} of {len(split)} examples, but {len(rest)} can be "
                "drawn and leave an example of each class in training. Change it, or give the split."
            )
        indices[name], rest = rest[:count], rest[count:]
    indices["train"] = np.setdiff1d(order, np.concatenate([order[:0], *indices.values()]))
    return {name: split.select(np.sort(part)) for name, part in indices.items()}


def draw_uniformly(
    count: int, fractions: dict[str, float], *, seed: int, stays: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """Draws disjoint splits of examples whatever their classes; returns their indices, "train" first.

    Args:
      count: number of the examples.
      fractions, seed: see `draw`.
      stays: bool `[count]`, whether an example stays in training, or None.

    >>> stays = np.arange(10) < 7
    >>> {name: part.tolist() for name, part in draw_uniformly(10, {"test": 0.3}, seed=0, stays=stays).items()}
    {'train': [0, 1, 2, 3, 4, 5, 6], 'test': [7, 8, 9]}
    """
    order = np.random.default_rng(seed).permutation(count)
    if stays is not None:
        order = np.concatenate([order[~stays[order]], order[stays[order]]])
    ends = np.cumsum([round(fraction * count) for fraction in fractions.values()])
    *parts, rest = map(np.sort, np.split(order, ends))
    return {"train": rest, **dict(zip(fractions, parts, strict=True))}


def draw_pairs(
    relevant: scipy.sparse.csr_array,
    fractions: dict[str, float],
    *,
    seed: int,
    origins: np.ndarray | None = None,
) -> dict[str, Split]:
    """Draws disjoint splits of the pairs of an instance and a relevant class.

    One random pair of each instance stays in training, so that every evaluated instance has been trained.
    If too few pairs remain, all fractions are reduced by the same factor.

    Args:
      relevant: `scipy.sparse.csr_array`, float32 `[N, n]`, as the labels of a `Split`.
      fractions, seed: see `draw`; the fractions are of the pairs.
      origins: object `[N]`, names of the instances in messages, or None.

    Returns:
      name -> `Split` of the instances that have a pair in it, "train" first, with the feature `id` int32, the
      row in `relevant`. A split excludes the classes of its instances' pairs in earlier ones.

    Raises:
      ValueError: fractions that leave no training pairs, or too few pairs for a fraction.

    >>> relevant = scipy.sparse.csr_array(np.ones([2, 5], np.float32))
    >>> splits = draw_pairs(relevant, {"validation": 0.2, "test": 0.3}, seed=0)
    >>> {name: split.labels.nnz for name, split in splits.items()}
    {'train': 5, 'validation': 2, 'test': 3}
    >>> np.sum(splits["test"].labels + splits["test"].excluded, axis=1)
    array([5., 5.], dtype=float32)
    """
    part = _parts(relevant, fractions, seed)
    splits = {}
    for i, name in enumerate(("train", *fractions)):
        labels = _masked(relevant, part == i)
        excluded = _masked(relevant, part < i).astype(bool) if i else None
        ids = np.arange(relevant.shape[0], dtype=np.int32)
        split = Split({"id": ids}, labels, origins, excluded)
        splits[name] = split.select(np.flatnonzero(np.diff(labels.indptr)))
    return splits


def _parts(relevant, fractions, seed):
    """Returns the split of each pair, int8 `[P]`: 0 for training, then as in `fractions`."""
    total = relevant.nnz
    position = np.random.default_rng(seed).permutation(total)  # of each pair in the order drawn
    starts = relevant.indptr[:-1][np.diff(relevant.indptr) > 0]
    free = np.ones(total, bool)  # not the first of its instance
    free[np.minimum.reduceat(position, starts)] = False
    ends = _ends(fractions, total, np.count_nonzero(free))
    parts = np.zeros(total, np.int8)
    free = np.flatnonzero(free)
    for i, (first, end) in enumerate(itertools.pairwise([0, *ends]), 1):
        parts[free[first:end]] = i
    return parts[position]


def _ends(fractions, total, free):
    """Returns the end of each split among the pairs that can be drawn."""
    cumulative = np.cumsum(list(fractions.values()))
    if cumulative[-1] >= 1.0:
        fields = " and ".join(f"data.{name}_fraction={value}" for name, value in fractions.items())
        raise ValueError(f"{fields}: no pair remains for training. Lower them.")
    ends = np.round(cumulative * min(total, free / cumulative[-1])).astype(int)
    for name, count in zip(fractions, np.diff(ends, prepend=0), strict=True):
        if not count:
            raise ValueError(
                f"data.{name}_fraction={fractions[name]}: 0 of {total:,} pairs; {free:,} can "
                "be drawn. Raise it, or give more pairs."
            )
    return ends


def _masked(matrix, mask):
    """Returns a CSR array of the entries of another that a mask selects."""
    indptr = np.append(0, np.cumsum(mask))[matrix.indptr]
    return scipy.sparse.csr_array((matrix.data[mask], matrix.indices[mask], indptr), shape=matrix.shape)
