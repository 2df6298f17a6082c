"""Summary of a dataset before training: classes, lengths, sizes, duplicates and baselines."""

import collections
import dataclasses
import functools
import hashlib
import itertools
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import sklearn.preprocessing
import tensorflow as tf

from rank4class import data, losses
from rank4class.models import checkpoints
from rank4class.pipelines import config
from rank4class.pipelines.evaluation import baselines, evaluator
from rank4class.pipelines.storage import files
from rank4class.pipelines.task import loading, preprocessing, task
from rank4class.progress import Progress

SHOWN_PAIRS = 3  # duplicates that are listed
_BATCH = 1_000  # examples in memory at a time


@dataclasses.dataclass(frozen=True)
class Duplicates:
    """Examples of a split whose content is also in another split, or earlier in the same one.

    Attributes:
      split: name of the split.
      other: name of the split that holds the same content.
      count: number of duplicates in `split`.
      relabeled: number of them with another label in `other`.
      pairs: the first few, as (index in `split`, index in `other`).
    """

    split: str
    other: str
    count: int
    relabeled: int
    pairs: tuple[tuple[int, int], ...]


@dataclasses.dataclass(frozen=True)
class Description:
    """Summary of a dataset.

    Attributes:
      experiment: the experiment to train on it.
      dataset: the whole dataset.
      all_splits: name -> split; equal splits, such as ImageNet's validation and test, have one name.
      splits: name -> the described examples: at most `data.max_examples`, and of image files the readable.
      counts: split -> number of examples of each class, int64 `[n]`.
      unreadable: split -> a message for each unreadable image file.
      lengths: unit, such as "tokens" -> split -> int64 `[N]`; empty without texts.
      max_tokens: limit of the encoder, or None if no tokens are counted.
      sizes: split -> height and width of the image files, int32 `[N, 2]`; empty without them.
      pixels: mean and standard deviation of each channel over the training images in memory, or None.
      duplicates: of every split, and of every pair of splits; empty if the splits share instances by design.
      class_weights: class name -> its weight in training; empty if all are 1.
      encoder_baselines: split -> `baselines.evaluate`; empty if they are left out.
    """

    experiment: config.Experiment
    dataset: data.Dataset
    all_splits: dict[str, data.Split]
    splits: dict[str, data.Split]
    counts: dict[str, np.ndarray]
    unreadable: dict[str, list[str]]
    lengths: dict[str, dict[str, np.ndarray]]
    max_tokens: int | None
    sizes: dict[str, np.ndarray]
    pixels: tuple[np.ndarray, np.ndarray] | None
    duplicates: tuple[Duplicates, ...]
    class_weights: dict[str, float]
    encoder_baselines: dict[str, dict[str, dict[str, Any]]] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def class_names(self) -> tuple[str, ...]:
        """The printable names of the classes."""
        return tuple(map(files.printable, self.dataset.class_names))

    @property
    def multi_label(self) -> bool:
        return self.splits["train"].multi_label

    @property
    def has_lists(self) -> bool:
        """Whether the classes of an example are the positions in its list of items."""
        return "items" in self.splits["train"].features

    def missing(self, split: str) -> list[str]:
        """Returns the names of the classes without examples in a split."""
        return [self.class_names[i] for i in np.flatnonzero(self.counts[split] == 0)]

    def by_frequency(self) -> np.ndarray:
        """Returns the ids of the classes, int `[n]`, those with the most training examples first."""
        return np.argsort(-self.counts["train"], kind="stable")

    def imbalance(self) -> float:
        """Returns the ratio of the largest to the smallest class of the training split that is not empty."""
        counts = self.counts["train"]
        return counts.max() / counts[counts > 0].min()

    def rank_metrics(self, num_classes: int) -> tuple[str, ...]:
        """Returns the experiment's metrics of a ranking of so many classes; metrics of sets need a model."""
        names = [name for name in self.experiment.metrics if name not in losses.metrics.SET_METRICS]
        return evaluator.applicable_metrics(names, num_classes)

    def baseline(self, split: str) -> dict[str, Any]:
        """Returns a summary of the `rank_metrics` of one ranking for every example of a split.

        The ranking orders the classes as `by_frequency`, the most frequent first. Excluded classes
        rank behind all others. Of a larger split, `baselines.MAX_EXAMPLES` are drawn.
        """
        n = len(self.class_names)
        class_scores = np.empty(n, np.float32)
        class_scores[self.by_frequency()] = -np.arange(n)

        def popularity(features, training):
            scores = tf.broadcast_to(class_scores, [tf.shape(features["index"])[0], n])
            return task.ModelOutputs(scores, ~features["excluded"] if "excluded" in features else None)

        examples = loading.subsample(self.splits[split], baselines.MAX_EXAMPLES, seed=0)
        examples = dataclasses.replace(examples, features={"index": np.arange(len(examples))})
        names = self.rank_metrics(n)
        evaluate = evaluator.Evaluator(popularity, names, max_relevant=examples.max_relevant())
        batches = data.evaluation_batches(examples, batch_size=self.experiment.evaluation_batch_size)
        result = evaluate(batches)
        assert result is not None
        return result.summarize()

    def random_order(self, split: str) -> dict[str, Any]:
        """Returns a summary of the `rank_metrics` of a split's items, mean over all their orders."""
        examples = self.splits[split]
        assert examples.excluded is not None
        labels, where = examples.label_matrix.toarray(), ~examples.excluded.toarray()
        scores = evaluator.mask_scores(tf.zeros(labels.shape), where)
        names = self.rank_metrics(labels.shape[1])
        values = []
        for name in names:
            metric = losses.get_metric(name, ties="average")
            assert isinstance(metric, losses.RankingMetric)
            values.append(metric.of_scores(scores, labels))
        return evaluator.summarize(np.stack(values, axis=1), names)

    def classes_of(self, split: str, i: int) -> str:
        """Returns the names of an example's classes, separated by commas."""
        examples = self.splits[split]
        if not self.multi_label:
            return self.class_names[examples.labels[i]]
        return ", ".join(self.class_names[j] for j in examples.label_matrix[[i]].indices) or "no class"


def describe(
    experiment: config.Experiment, dataset: data.Dataset, cache_dir: str | None = None
) -> Description:
    """Summarizes a dataset. All image files are read.

    The classes of `data.held_out` are described as all others are.

    Args:
      experiment: a checked experiment; without `encoder.path` no tokens are counted.
      dataset: its dataset.
      cache_dir: see `loading.load`; None leaves out the baselines by the encoder, which read its weights.

    Raises:
      FileNotFoundError, ValueError: the tokenizer or the class weights cannot be loaded; a split has no
        readable image; `data.held_out` or `data.augmentation` does not fit the dataset.
    """
    section = experiment.data
    loading.check_held_out(dataset.class_names, section.held_out)
    loading.check_class_weights(section, dataset.splits["train"])
    preprocess = None
    encoder_path = experiment.encoder.path
    if encoder_path or "text" not in dataset.splits["train"].features:
        preprocess = preprocessing.build_preprocess(section, experiment.encoder, dataset.splits["train"])
    preprocessing.build_augment(section, dataset.splits["train"], preprocess)  # raises if it does not fit
    all_splits = _merge_equal(dataset.splits)
    splits, unreadable, sizes = loading.limit_examples(section, all_splits), {}, {}
    features = dataset.splits["train"].features
    if "file" in features:
        images = {name: _read_images(name, split) for name, split in splits.items()}
        splits = {name: read.readable for name, read in images.items()}
        unreadable = {name: read.unreadable for name, read in images.items()}
        sizes = {name: read.sizes for name, read in images.items()}
        contents = {name: read.digests for name, read in images.items()}
    else:
        contents = {name: _contents(split) for name, split in splits.items()}
    counts = {name: split.class_counts(len(dataset.class_names)) for name, split in splits.items()}
    lengths, max_tokens = _character_counts(splits), None
    if "text" in features and encoder_path:
        lengths["tokens"] = {name: _token_counts(preprocess, split) for name, split in splits.items()}
        max_tokens = checkpoints.find(encoder_path).settings.get("max_positions", sys.maxsize)
    encoder_baselines = {}
    if "text" in features and encoder_path and cache_dir is not None:
        encoded = baselines.load(experiment, cache_dir)
        names, batch_size = experiment.metrics, experiment.evaluation_batch_size
        encoder_baselines = {
            split: baselines.evaluate(encoded, split, names, batch_size) for split in ("validation", "test")
        }
    shares_instances = "id" in features  # the splits hold other classes of the same users
    return Description(
        experiment,
        dataset,
        all_splits,
        splits,
        counts,
        unreadable,
        lengths,
        max_tokens,
        sizes,
        _pixel_statistics(splits["train"].features["image"]) if "image" in features else None,
        () if shares_instances else tuple(_find_duplicates(splits, contents)),
        _class_weights(section, dataset.class_names, counts["train"]),
        encoder_baselines,
    )


def _merge_equal(splits):
    """Returns each split once, under the names of all splits that are the same object."""
    names: dict[int, list[str]] = {}
    for name, split in splits.items():
        names.setdefault(id(split), []).append(name)
    return {" and ".join(equal): splits[equal[0]] for equal in names.values()}


@dataclasses.dataclass(frozen=True)
class _Images:
    readable: data.Split
    sizes: np.ndarray
    digests: list[bytes]
    unreadable: list[str]


def _read_images(name, split):
    readable, sizes, digests, unreadable = [], [], [], []
    images = Progress(f"reading {name}", "image", len(split)).over(
        data.read_each(split, data.ContentAndSize())
    )
    for i, (features, message) in enumerate(images):
        if message is None:
            assert features is not None
            readable.append(i)
            sizes.append(features["size"][0].numpy())
            digests.append(_digest(features["content"][0].numpy()))
        else:
            unreadable.append(message)
    if not readable:
        raise ValueError(f"{name}: no image of this split can be read. The first: {unreadable[0]}")
    return _Images(split.select(readable), np.array(sizes), digests, unreadable)


def _digest(content):
    return hashlib.blake2b(content, digest_size=16).digest()


def _contents(split):
    """Returns a value for each example that equals those of its duplicates."""
    if "text" in split.features:
        texts = [split.features[name] for name in ("text", "text_pair") if name in split.features]
        return ["\n".join(map(data.normalize_text, pair)) for pair in zip(*texts, strict=True)]
    arrays = list(split.features.values())
    return [_digest(b"".join(array[i].tobytes() for array in arrays)) for i in range(len(split))]


def _find_duplicates(
    splits: dict[str, data.Split], contents: dict[str, Sequence[str | bytes]]
) -> Iterator[Duplicates]:
    """Yields the duplicates within each split, and between each split and those before it."""
    names = list(splits)
    labels = {name: _comparable_labels(split) for name, split in splits.items()}
    for i, split in enumerate(names):
        for other in names[: i + 1]:
            yield _duplicates(split, other, contents, labels)


def _comparable_labels(split):
    """Returns a hashable value for the labels of each example."""
    if not split.multi_label:
        return split.labels.tolist()
    labels, rows = split.labels, itertools.starmap(slice, itertools.pairwise(split.labels.indptr))
    return [labels.indices[row].tobytes() + labels.data[row].tobytes() for row in rows]


def _duplicates(split, other, contents, labels):
    first_index: dict[str | bytes, int] = {}
    content_labels = collections.defaultdict(set)

    def add(i):
        first_index.setdefault(contents[other][i], i)
        content_labels[contents[other][i]].add(labels[other][i])

    if split != other:
        for i in range(len(contents[other])):
            add(i)
    pairs, relabeled = [], 0
    for i, (content, label) in enumerate(zip(contents[split], labels[split], strict=True)):
        if content in first_index:
            pairs.append((i, first_index[content]))
            relabeled += content_labels[content] != {label}
        if split == other:
            add(i)  # within a split only earlier examples count
    return Duplicates(split, other, len(pairs), relabeled, tuple(pairs[:SHOWN_PAIRS]))


def _character_counts(splits):
    return {
        f"characters of {name}": {
            split: np.array(list(map(len, examples.features[name]))) for split, examples in splits.items()
        }
        for name in ("text", "text_pair")
        if name in splits["train"].features
    }


def _token_counts(tokenizer, split):
    lengths = []
    progress = Progress("counting tokens", "text", len(split))
    for start in progress.over(range(0, len(split), _BATCH), _BATCH):
        texts = {name: values[start : start + _BATCH] for name, values in split.features.items()}
        lengths.append(tokenizer.lengths({name: tf.constant(values) for name, values in texts.items()}))
    return np.concatenate(lengths)


def _pixel_statistics(images):
    """Returns mean and standard deviation of each channel, `[channels]`."""
    scaler = sklearn.preprocessing.StandardScaler()
    for start in range(0, len(images), _BATCH):
        pixels = images[start : start + _BATCH].reshape(-1, images.shape[-1])
        scaler.partial_fit(pixels.astype(np.float64))
    return scaler.mean_, np.sqrt(scaler.var_)


def _class_weights(section, class_names, counts):
    is_trained = ~np.isin(class_names, section.held_out)
    weights = loading.class_weights(section, class_names, counts * is_trained)
    if weights is None:
        return {}
    return {name: float(weights[i]) for i, name in enumerate(class_names) if is_trained[i]}
