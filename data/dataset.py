"""What a dataset is: a few splits of features and labels, held in memory."""

import dataclasses
import itertools

import numpy as np
import scipy.sparse
import sklearn.model_selection
from absl import logging

from rank4class.data import sources


@dataclasses.dataclass(frozen=True)
class Split:
    """Examples that belong together.

    Attributes:
      features: name -> array; the first axis of each counts the examples.
      labels: int32 `[N]`, ids of classes; or of examples of several a `scipy.sparse.csr_array`, float32
        `[N, n]`, sorted and without a zero, of each class that an example has: 1, or what it gains.
      origins: object `[N]`, where each example was read (`train.tsv:17`), or None.
      excluded: a `scipy.sparse.csr_array`, bool `[N, n]`, of the classes that take no part in the ranking
        of an example, such as those that it is known to have; or None.

    Raises:
      ValueError: the labels are no array of integers or sparse matrix of numbers, such as a ragged list or a
        dense matrix; or the arrays of features, origins or exclusions differ in length.
    """

    features: dict
    labels: np.ndarray | scipy.sparse.csr_array
    origins: np.ndarray | None = None
    excluded: scipy.sparse.csr_array | None = None

    def __post_init__(self):
        self._check_labels()
        arrays = {"origins": self.origins, "excluded": self.excluded}
        arrays = {name: array for name, array in arrays.items() if array is not None}
        for name, array in (
            {f"feature {name!r}": array for name, array in self.features.items()} | arrays
        ).items():
            shape = getattr(array, "shape", ())
            if shape[:1] != (len(self),):
                size = f"an array of {shape[0]} examples" if shape else f"a {type(array).__name__}"
                raise ValueError(
                    f"{name} is {size}, but there are {len(self)} labels. Give an array of as many examples."
                )

    def _check_labels(self):
        labels = self.labels
        if isinstance(labels, scipy.sparse.csr_array) and labels.ndim == 2:
            if labels.dtype.kind not in "biuf":
                raise ValueError(f"labels of dtype {labels.dtype} are no numbers. Give float32.")
            return
        if not isinstance(labels, np.ndarray):
            raise ValueError(
                f"labels are a {type(labels).__name__}, no array. Give numpy.array(labels, numpy.int32) of "
                "class ids, or a scipy.sparse.csr_array for examples of several classes."
            )
        if labels.ndim == 2:
            raise ValueError(
                f"labels of shape {labels.shape} are not sparse: give scipy.sparse.csr_array(labels)"
            )
        if labels.ndim != 1 or labels.dtype.kind not in "iu":
            raise ValueError(
                f"labels of shape {labels.shape} and dtype {labels.dtype} are no class ids. Give an array of "
                "integers [N], or a scipy.sparse.csr_array for examples of several classes."
            )

    def __len__(self):
        return self.labels.shape[0]

    @property
    def multi_label(self):
        return self.labels.ndim == 2

    def select(self, places):
        """Returns the examples at some places: indices in the order wanted, or a mask.

        >>> split = Split({"text": np.array(["a", "b", "c"], object)}, np.array([0, 1, 0]))
        >>> split.select([2, 0]).features["text"].tolist()
        ['c', 'a']
        """
        features = {name: values[places] for name, values in self.features.items()}
        origins = None if self.origins is None else self.origins[places]
        excluded = None if self.excluded is None else self.excluded[places]
        return Split(features, self.labels[places], origins, excluded)

    def origin(self, i):
        """Returns what to call example `i` in a message."""
        return f"example {i}" if self.origins is None else str(self.origins[i])

    def class_counts(self, num_classes):
        """Returns the number of examples of each class, int64 `[n]`.

        >>> Split({}, np.array([2, 0, 2])).class_counts(4).tolist()
        [1, 0, 2, 0]
        """
        if self.multi_label:
            return np.bincount(self.labels.indices, minlength=num_classes)
        return np.bincount(self.labels, minlength=num_classes)

    def max_relevant(self):
        """Returns how many classes an example has at most, at least 1, or None where each has one.

        >>> Split({}, scipy.sparse.csr_array([[1.0, 1.0], [0.0, 1.0]])).max_relevant()
        2
        """
        return max(1, int(self.num_relevant().max())) if self.multi_label else None

    def num_relevant(self):
        """Returns how many classes each example of several has, int `[N]`."""
        return np.diff(self.labels.indptr)


@dataclasses.dataclass(frozen=True)
class Dataset:
    """A classification problem.

    Attributes:
      class_names: the names of the classes, by id.
      splits: "train", "validation" and "test".
      skipped: a line for every row or example that was left out because it could not be used.
      files: path -> SHA-256 of what was read, where that is few files.

    Raises:
      ValueError: a split is empty, has labels of another number of classes, or holds a label outside the
        classes or one that is excluded.
    """

    class_names: tuple
    splits: dict
    skipped: tuple = ()
    files: dict = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        for name, split in self.splits.items():
            if not len(split):
                raise ValueError(f"the {name} split has no example")
            if not split.multi_label:
                self._check_ids(name, split)
            elif split.labels.shape[1] != len(self.class_names):
                raise ValueError(
                    f"the labels of the {name} split are of {split.labels.shape[1]} classes, but class_names "
                    f"has {len(self.class_names)}. Give a name for each."
                )
            if split.excluded is not None:
                self._check_excluded(name, split)
        if "train" in self.splits and "items" not in self.splits["train"].features:
            self._warn_of_untrained_classes()  # a place in a list of items need not have been the best once

    def _check_ids(self, name, split):
        outside = np.flatnonzero((split.labels < 0) | (split.labels >= len(self.class_names)))
        if len(outside):
            raise ValueError(
                f"{split.origin(outside[0])} of the {name} split has label {split.labels[outside[0]]}, "
                f"outside the classes 0..{len(self.class_names) - 1}"
            )

    def _check_excluded(self, name, split):
        both = scipy.sparse.coo_array(split.labels.multiply(split.excluded))
        if both.nnz:
            raise ValueError(
                f"{split.origin(both.row[0])} of the {name} split has {self.class_names[both.col[0]]!r} "
                "both as a label and excluded"
            )

    def _warn_of_untrained_classes(self):
        counts = self.splits["train"].class_counts(len(self.class_names))
        untrained = [name for name, count in zip(self.class_names, counts, strict=True) if not count]
        if untrained:
            logging.warning("no training example of: %s", sources.listed(untrained))


FEW = 3  # examples of a class that cannot be spread over three splits


def draw(split, shares, *, seed):
    """Draws disjoint splits from one, each class by the same shares.

    Classes of fewer than three examples stay in what is left.

    Args:
      split: a single-label `Split`.
      shares: name -> share of the examples, in (0, 1).
      seed: int.

    Returns:
      name -> `Split`, and what is left as "train".

    Raises:
      ValueError: there are too few examples for such a share, the message names `data.{name}_fraction`.

    >>> split = Split({}, np.repeat([0, 1], 50))
    >>> {name: part.labels.sum() for name, part in draw(split, {"test": 0.2}, seed=0).items()}
    {'test': 10, 'train': 40}
    """
    left, kept, places = np.arange(len(split)), [], {}
    least = FEW
    for name, share in shares.items():
        few = np.bincount(split.labels[left])[split.labels[left]] < least
        kept.append(left[few])
        left = left[~few]
        count = _checked_count(name, share, len(split), split.labels[left])
        left, places[name] = sklearn.model_selection.train_test_split(
            left, test_size=count, random_state=seed, stratify=split.labels[left]
        )
        least = 2  # one for the next split, one for training
    places["train"] = np.concatenate([left, *kept])
    return {name: split.select(np.sort(part)) for name, part in places.items()}


def _checked_count(name, share, total, labels):
    """Returns how many examples to draw for a split, of those with these labels."""
    count, classes = round(share * total), len(np.unique(labels))
    if not classes:
        raise ValueError(f"no class has examples enough for a {name} split, at least three: give the split")
    found = f"a {name} split of {share:.0%} of {total} examples is {count}, too"
    each = f"one of each of {classes} classes"
    if count < classes:
        raise ValueError(f"{found} few for {each}: raise data.{name}_fraction, or give the split")
    if len(labels) - count < classes:
        raise ValueError(
            f"{found} many to leave {each} for training: lower data.{name}_fraction, or give the split"
        )
    return count


def draw_together(split, first, shares, *, seed):
    """Draws splits as `draw` does, of the first of each example's copies; the others follow it.

    Args:
      split, shares, seed: see `draw`.
      first: int `[N]`, the place of the first copy of each example; its own where there is none.
    """
    originals = np.unique(first)
    parts = draw(Split({"place": originals}, split.labels[originals]), shares, seed=seed)
    return {name: split.select(np.isin(first, part.features["place"])) for name, part in parts.items()}


def draw_pairs(relevant, shares, *, seed, origins=None):
    """Draws disjoint splits of the pairs of an instance and a class that is relevant to it.

    The first pair of each instance in the order drawn stays in training, so that none is judged that
    was not trained on; where that leaves fewer pairs than the shares say, they are shared out alike.

    Args:
      relevant: `scipy.sparse.csr_array`, float32 `[N, n]`, as the labels of a `Split`.
      shares: name -> share of the pairs, in (0, 1).
      seed: int.
      origins: object `[N]`, what to call the instances, or None.

    Returns:
      name -> `Split` of the instances that have a pair there, "train" before those drawn, with the feature
      `id` int32, an instance's row in `relevant`. In each split the classes of an instance's pairs in
      the splits before it are `excluded`; "train" excludes none.

    Raises:
      ValueError: the shares leave none to train on, or there are too few pairs for a share; the message
        names `data.{name}_fraction`.

    >>> relevant = scipy.sparse.csr_array(np.ones([2, 5], np.float32))
    >>> splits = draw_pairs(relevant, {"validation": 0.2, "test": 0.3}, seed=0)
    >>> {name: split.labels.nnz for name, split in splits.items()}
    {'train': 5, 'validation': 2, 'test': 3}
    >>> np.sum(splits["test"].labels + splits["test"].excluded, axis=1)
    array([5., 5.], dtype=float32)
    """
    part = _parts(relevant, shares, seed)
    splits = {}
    for i, name in enumerate(("train", *shares)):
        own = _where(relevant, part == i)
        rows = np.flatnonzero(np.diff(own.indptr))
        whole = Split(
            {"id": np.arange(relevant.shape[0], dtype=np.int32)},
            own,
            origins,
            _where(relevant, part < i).astype(bool) if i else None,
        )
        splits[name] = whole.select(rows)
    return splits


def _parts(relevant, shares, seed):
    """Returns the split of each pair, int8 `[P]`: 0 for training, then as in `shares`."""
    total = relevant.nnz
    place = np.random.default_rng(seed).permutation(total)  # of each pair in the order drawn
    starts = relevant.indptr[:-1][np.diff(relevant.indptr) > 0]
    free = np.ones(total, bool)
    free[np.minimum.reduceat(place, starts)] = False
    ends = _ends(shares, total, np.count_nonzero(free))
    of_place = np.zeros(total, np.int8)
    free = np.flatnonzero(free)
    for i, (first, end) in enumerate(itertools.pairwise([0, *ends]), 1):
        of_place[free[first:end]] = i
    return of_place[place]


def _ends(shares, total, free):
    """Returns where each split ends among the pairs that are free to be drawn."""
    names = " and ".join(f"data.{name}_fraction" for name in shares)
    wanted = np.cumsum(list(shares.values()))
    if wanted[-1] >= 1.0:
        raise ValueError(f"{names} leave no pair to train on: lower them")
    ends = np.round(wanted * min(total, free / wanted[-1])).astype(int)
    for name, count in zip(shares, np.diff(ends, prepend=0), strict=True):
        if not count:
            raise ValueError(
                f"a {name} split of {shares[name]:.0%} of {total:,} pairs is empty, as {free:,} of them can "
                f"be spared from training: raise data.{name}_fraction, or give more pairs"
            )
    return ends


def _where(matrix, kept):
    """Returns a CSR array of some of the entries of one, a mask."""
    indptr = np.append(0, np.cumsum(kept))[matrix.indptr]
    return scipy.sparse.csr_array((matrix.data[kept], matrix.indices[kept], indptr), shape=matrix.shape)
