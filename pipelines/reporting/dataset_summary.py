"""What a dataset holds, found out before anyone trains on it."""

import collections
import dataclasses
import functools
import hashlib
import itertools
import sys

import numpy as np
import sklearn.preprocessing
import tensorflow as tf

from rank4class import data, losses
from rank4class.models import checkpoints
from rank4class.pipelines.evaluation import evaluator
from rank4class.pipelines.storage import files
from rank4class.pipelines.task import loading, preprocessing, task

BASELINE_EXAMPLES = 20_000


@dataclasses.dataclass(frozen=True)
class Repeats:
    """Examples of a split whose content stands in another split too, or earlier in the same.

    Attributes:
      split: theirs.
      of: the split that holds their content too.
      count: how many.
      relabelled: how many of them have a label there that is not theirs.
      pairs: the first few, as (index in `split`, index in `of`).
    """

    split: str
    of: str
    count: int
    relabelled: int
    pairs: tuple


@dataclasses.dataclass(frozen=True)
class Description:
    """What a dataset holds.

    Attributes:
      experiment: the `config.Experiment` that would train on it.
      dataset: the `data.Dataset`, whole.
      whole: name -> `data.Split`; those that are one, ImageNet's validation and test, under one name.
      splits: name -> what was looked at: at most `data.max_examples`, and of image files the readable.
      counts: split -> the number of examples of each class, int64 `[n]`.
      unreadable: split -> a message for each image file that cannot be read.
      lengths: what is counted ("tokens", say) -> split -> int64 `[N]`; empty without texts.
      most_tokens: of a text that the encoder takes, or None where no tokens are counted.
      sizes: split -> height and width of the image files, int32 `[N, 2]`; empty without them.
      pixels: mean and standard deviation of each channel over the training images in memory, or None.
      repeats: a `Repeats` for every split, and for every pair of two; none where the splits share instances
        by intent, each with other classes.
      class_weights: class name -> what its training examples weigh; empty where all weigh 1.
    """

    experiment: object
    dataset: data.Dataset
    whole: dict
    splits: dict
    counts: dict
    unreadable: dict
    lengths: dict
    most_tokens: int | None
    sizes: dict
    pixels: tuple | None
    repeats: tuple
    class_weights: dict

    @functools.cached_property
    def class_names(self):
        """The names of the classes, as they are shown."""
        return tuple(map(files.printable, self.dataset.class_names))

    @property
    def multi_label(self):
        return self.splits["train"].multi_label

    def missing(self, split):
        """Returns the names of the classes that a split has no example of."""
        return [self.class_names[i] for i in np.flatnonzero(self.counts[split] == 0)]

    def most_frequent(self):
        """Returns the id of the class with the most training examples."""
        return int(self.counts["train"].argmax())

    def imbalance(self):
        """Returns how often the largest class of the training split holds the smallest that is there."""
        counts = self.counts["train"]
        return counts.max() / counts[counts > 0].min()

    def rank_metrics(self, num_classes):
        """Returns the experiment's metrics of a ranking of so many classes; those of sets need a model."""
        names = [name for name in self.experiment.metrics if name not in losses.metrics.SET_METRICS]
        return evaluator.applicable_metrics(names, num_classes)

    def baseline(self, split):
        """Returns the `rank_metrics`, in percent, of one ranking for every example of a split.

        The classes stand in the order of their training examples, the most frequent first; what is excluded
        for an example stands behind. Of a larger split `BASELINE_EXAMPLES` are drawn.
        """
        counts = self.counts["train"]
        places = np.empty(len(counts), np.float32)
        places[np.argsort(counts, kind="stable")] = np.arange(len(counts))

        def popularity(features, training):
            scores = tf.broadcast_to(places, [tf.shape(features["place"])[0], len(places)])
            return task.ModelOutputs(scores, ~features["excluded"] if "excluded" in features else None)

        examples = loading.subsample(self.splits[split], BASELINE_EXAMPLES, seed=0)
        examples = dataclasses.replace(examples, features={"place": np.arange(len(examples))})
        names = self.rank_metrics(len(counts))
        judge = evaluator.Evaluator(popularity, names, max_relevant=examples.max_relevant())
        batches = data.evaluation_batches(examples, batch_size=self.experiment.evaluation_batch_size)
        return judge(batches).summarize()

    @property
    def lists(self):
        """Whether the classes of an example are the places in its list of items."""
        return "items" in self.splits["train"].features

    def random_order(self, split):
        """Returns the `rank_metrics`, in percent, of a split's items, mean over all their orders."""
        examples = self.splits[split]
        labels, where = examples.labels.toarray(), ~examples.excluded.toarray()
        scores = evaluator.mask_scores(tf.zeros(labels.shape), where)
        names = self.rank_metrics(labels.shape[1])
        metrics = [losses.get_metric(name, ties="average") for name in names]
        return evaluator.summarize(np.stack([m.of_scores(scores, labels) for m in metrics], axis=1), names)

    def classes_of(self, split, i):
        """Returns the names of an example's classes, as one text."""
        labels = self.splits[split].labels
        if not self.multi_label:
            return self.class_names[labels[i]]
        return ", ".join(self.class_names[j] for j in labels[[i]].indices) or "no class"


def describe(experiment, dataset):
    """Finds out what a dataset holds. Image files are all read; encoder weights are not.

    The classes of `data.held_out` are described as all others are.

    Args:
      experiment: a checked `config.Experiment`; without `encoder.path` no tokens are counted.
      dataset: its `data.Dataset`.

    Returns:
      A `Description`.

    Raises:
      FileNotFoundError, ValueError: the tokenizer or the class weights cannot be loaded; a split has no
        readable image; `data.held_out` or `data.augmentation` does not fit the dataset.
    """
    section = experiment.data
    loading.check_held_out(dataset.class_names, section.held_out)
    loading.check_class_weights(section, dataset.splits["train"])
    preprocessing.augment_of(experiment, dataset)  # raises where there is nothing to augment
    whole = _each_once(dataset.splits)
    splits, unreadable, sizes = loading.limit_examples(whole, section), {}, {}
    if _has_files(dataset):
        read = {name: _read_images(name, split) for name, split in splits.items()}
        splits = {name: images.readable for name, images in read.items()}
        unreadable = {name: images.unreadable for name, images in read.items()}
        sizes = {name: images.sizes for name, images in read.items()}
        contents = {name: images.digests for name, images in read.items()}
    else:
        contents = {name: _contents(split) for name, split in splits.items()}
    counts = {name: split.class_counts(len(dataset.class_names)) for name, split in splits.items()}
    return Description(
        experiment,
        dataset,
        whole,
        splits,
        counts,
        unreadable,
        _lengths(experiment, dataset, splits),
        _most_tokens(experiment, dataset),
        sizes,
        _pixels(splits["train"]),
        () if _is_retrieval(dataset) else tuple(_all_repeats(splits, contents)),
        _class_weights(section, dataset.class_names, counts["train"]),
    )


def _each_once(splits):
    names = {}
    for name, split in splits.items():
        names.setdefault(id(split), []).append(name)
    return {" and ".join(own): splits[own[0]] for own in names.values()}


def _has_files(dataset):
    return "file" in dataset.splits["train"].features


def _is_retrieval(dataset):
    return "id" in dataset.splits["train"].features


@dataclasses.dataclass(frozen=True)
class _Images:
    readable: data.Split
    sizes: np.ndarray
    digests: list
    unreadable: list


def _read_images(name, split):
    kept, sizes, digests, unreadable = [], [], [], []
    # A progress bar is for someone who watches.
    bar = tf.keras.utils.Progbar(len(split), verbose=int(sys.stdout.isatty()), unit_name=f"{name} image")
    for i, (features, message) in enumerate(data.read_each(split, data.ContentAndSize())):
        if message is None:
            kept.append(i)
            sizes.append(features["size"][0].numpy())
            digests.append(_digest(features["content"][0].numpy()))
        else:
            unreadable.append(message)
        bar.add(1)
    if not kept:
        raise ValueError(f"no image of the {name} split can be read, the first: {unreadable[0]}")
    return _Images(split.select(kept), np.array(sizes), digests, unreadable)


def _digest(content):
    return hashlib.blake2b(content, digest_size=16).digest()


def _contents(split):
    """Returns for each example what it is compared by."""
    if "text" in split.features:
        texts = [split.features[name] for name in ("text", "text_pair") if name in split.features]
        return ["\n".join(map(data.normalize_text, both)) for both in zip(*texts, strict=True)]
    arrays = list(split.features.values())
    return [_digest(b"".join(array[i].tobytes() for array in arrays)) for i in range(len(split))]


def _all_repeats(splits, contents):
    names = list(splits)
    labels = {name: _labels(split) for name, split in splits.items()}
    for i, split in enumerate(names):
        for of in names[: i + 1]:
            yield _repeats(split, of, contents, labels)


def _labels(split):
    """Returns for each example what its labels are compared by."""
    if not split.multi_label:
        return split.labels.tolist()
    labels, rows = split.labels, itertools.starmap(slice, itertools.pairwise(split.labels.indptr))
    return [labels.indices[row].tobytes() + labels.data[row].tobytes() for row in rows]


FEW = 3  # pairs of repeats that are shown


def _repeats(split, of, contents, labels):
    first, labels_of = {}, collections.defaultdict(set)

    def add(i):
        first.setdefault(contents[of][i], i)
        labels_of[contents[of][i]].add(labels[of][i])

    if split != of:
        for i in range(len(contents[of])):
            add(i)
    pairs, relabelled = [], 0
    for i, (content, label) in enumerate(zip(contents[split], labels[split], strict=True)):
        if content in first:
            pairs.append((i, first[content]))
            relabelled += labels_of[content] != {label}
        if split == of:
            add(i)  # within a split only what came before counts
    return Repeats(split, of, len(pairs), relabelled, tuple(pairs[:FEW]))


def _lengths(experiment, dataset, splits):
    texts = [name for name in ("text", "text_pair") if name in splits["train"].features]
    lengths = {
        f"characters of {name}": {
            split: np.array([len(text) for text in examples.features[name]])
            for split, examples in splits.items()
        }
        for name in texts
    }
    if texts and experiment.encoder.path:
        tokenizer = preprocessing.preprocess_of(experiment, dataset)
        lengths["tokens"] = {split: _token_counts(tokenizer, part) for split, part in splits.items()}
    return lengths


def _most_tokens(experiment, dataset):
    if "text" not in dataset.splits["train"].features or not experiment.encoder.path:
        return None
    return checkpoints.find(experiment.encoder.path).settings.get("max_positions", sys.maxsize)


def _token_counts(tokenizer, split):
    places = np.arange(0, len(split), 1000)  # a bound on memory
    batches = ({name: texts[i : i + 1000] for name, texts in split.features.items()} for i in places)
    return np.concatenate(
        [tokenizer.lengths({name: tf.constant(texts) for name, texts in batch.items()}) for batch in batches]
    )


def _pixels(split):
    if "image" not in split.features:
        return None
    images = split.features["image"]
    scaler = sklearn.preprocessing.StandardScaler()
    for i in range(0, len(images), 1000):
        scaler.partial_fit(images[i : i + 1000].reshape(-1, images.shape[-1]).astype(np.float64))
    return scaler.mean_, np.sqrt(scaler.var_)


def _class_weights(section, class_names, counts):
    seen = ~np.isin(class_names, section.held_out)
    weights = loading.class_weights(section, class_names, counts * seen)
    return (
        {} if weights is None else {name: float(weights[i]) for i, name in enumerate(class_names) if seen[i]}
    )
