"""The report of a dataset before training: classes, lengths, sizes, duplicates, baselines and images."""

import dataclasses
import os
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from rank4class import data
from rank4class.data.readers.rows import listed
from rank4class.models import checkpoints
from rank4class.pipelines import config
from rank4class.pipelines.evaluation import baselines, evaluator
from rank4class.pipelines.reporting import dataset_contents, plots, tables
from rank4class.pipelines.storage import files
from rank4class.pipelines.task import inputs, loading, split_steps

SHOWN_LINES = 50  # of a list in the terminal, and classes in their table
SHOWN_PAIRS = 3  # duplicates, unreadable images and skipped rows in the terminal
SHOWN_CLASSES = 10  # classes with examples
SHOWN_IMAGES = 4  # of a class
TEXT_WIDTH = 45  # characters of an example
PARAGRAPH_WIDTH = 100  # characters of a line in the terminal


@dataclasses.dataclass(frozen=True)
class Section:
    """A title, paragraphs, a table with its header, lines, and plots (name -> function of a path)."""

    title: str
    paragraphs: Sequence[str] = ()
    table: Sequence[Sequence[str]] = ()
    lines: Sequence[str] = ()
    shown_lines: int = SHOWN_LINES  # in the terminal
    plots: Mapping[str, Callable[[str], None]] = dataclasses.field(default_factory=dict)


class Report:
    """The report of a dataset. All image files are read.

    Without `encoder.path` no tokens are counted, and without a `cache_dir` (see `loading.load`) there are no
    baselines by the encoder. Equal splits, such as ImageNet's validation and test, have one name.
    """

    def __init__(self, experiment: config.Experiment, dataset: data.Dataset, cache_dir: str | None = None):
        section, train = experiment.data, dataset.splits["train"]
        kind = train.kind
        self.experiment, self.dataset, self._cache_dir = experiment, dataset, cache_dir
        split_steps.check_held_out(dataset.class_names, section.held_out)
        loading.check_class_weights(section, train)
        self._preprocess: Any = None
        if experiment.encoder.path or not kind.tokenizes:
            self._preprocess = inputs.build_inputs(section, experiment.encoder, train).preprocess
        self._augment = None
        if section.augmentation != "none":
            self._augment = kind.augment(section.augmentation, section.image_size, self._preprocess)
        self._class_names = tuple(map(files.printable, dataset.class_names))
        self._all_splits = _merge_equal(dataset.splits)
        self.splits = split_steps.limit_examples(section, self._all_splits)
        self.sections = [self._source()]
        self._images: dict[str, dataset_contents.Images] = {}
        if kind.reads_files:
            self._images = {name: dataset_contents.read_images(name, s) for name, s in self.splits.items()}
            self.splits = {name: read.readable for name, read in self._images.items()}
        self.counts = {name: s.class_counts(len(self._class_names)) for name, s in self.splits.items()}
        self._order = np.argsort(-self.counts["train"], kind="stable")
        shown = self._order[:SHOWN_CLASSES]
        self._frequent = shown[self.counts["train"][shown] > 0]
        if dataset.skipped:
            skipped = f"Rows and examples left out: {len(dataset.skipped):,}."
            self.sections.append(Section("Skipped", [skipped], [], dataset.skipped, SHOWN_PAIRS))
        sections = {
            self._lists: kind.ranks_items,
            self._classes: not kind.ranks_items,
            self._texts: kind.tokenizes,
            self._image_files: kind.reads_files,
            self._images_in_memory: kind.has_pixels,
            self._duplicates: not kind.has_ids,  # otherwise the splits hold other classes of the same users
        }
        self.sections += [section() for section, is_shown in sections.items() if is_shown]

    def text(self) -> str:
        """Returns the report for a terminal, with shortened lists."""
        blocks = []
        for section in self.sections:
            blocks.append(f"{section.title}\n{'=' * len(section.title)}")
            blocks += [textwrap.fill(paragraph, PARAGRAPH_WIDTH) for paragraph in section.paragraphs]
            lines = list(section.lines[: section.shown_lines])
            if hidden := len(section.lines) - len(lines):
                lines.append(f"... and {hidden:,} more, see data.md")
            blocks += _table_and_lines(section.table, lines, tables.text_table, "  ")
        return "\n\n".join(blocks)

    def write(self, folder: str | os.PathLike) -> str:
        """Writes `data.md` and its plots to an existing folder; returns the path of `data.md`."""
        blocks = [f"# {self.experiment.data.name}"]
        for section in self.sections:
            blocks += [f"## {section.title}", *section.paragraphs]
            blocks += _table_and_lines(section.table, section.lines, tables.markdown_table, " " * 4)
            for name, plot in section.plots.items():
                plot(os.path.join(folder, name))
                blocks.append(f"![{section.title}]({name})")
        path = os.path.join(folder, "data.md")
        files.write(path, "\n\n".join(blocks) + "\n")
        return path

    def _source(self):
        dataset, section = self.dataset, self.experiment.data
        path = getattr(section, "path", None)
        classes = f"{len(self._class_names):,} classes"
        if self.splits["train"].kind.ranks_items:
            _, longest, width = self.splits["train"].features["items"].shape
            classes = f"lists of up to {longest:,} items with {width:,} features each"
        sizes = _per_split(self._all_splits, lambda split: f"{len(split):,}")
        origin = f" from {path}" if path else ""
        paragraphs = [f"Dataset {section.name}{origin}: {sizes} examples of {classes}."]
        if section.max_examples is not None:
            read = {n: f"{len(self.splits[n]):,} of {len(split):,}" for n, split in self._all_splits.items()}
            paragraphs.append(f"This report looks at {_per_split(read)} examples (data.max_examples).")
        lines = [f"{file}  sha256 {digest}" for file, digest in dataset.files.items()]
        return Section("Source", paragraphs, lines=lines)

    def _lists(self):
        splits: Mapping[str, Any] = self.splits
        sizes = {n: np.sum(~split.excluded.toarray(), axis=1) for n, split in splits.items()}
        spread = ", ".join(f"{name} {_spread(values)}" for name, values in sizes.items())
        irrelevant = _per_split(self.splits, lambda split: f"{np.sum(split.num_relevant() == 0):,}")
        metrics = self.experiment.metrics
        baseline = self._summaries(lambda name: baselines.random_order(self.splits[name], metrics))
        paragraphs = [
            f"Items per list, smallest / median / largest: {spread}. Lists without a relevant item: "
            f"{irrelevant}.",
            f"Baseline, mean over all orders of the items: {baseline}.",
        ]
        grades = np.unique(np.concatenate([[0.0], *(split.labels.data for split in self.splits.values())]))
        columns = [["grade", *(f"{grade:g}" for grade in grades)]]
        for name, split in self.splits.items():
            relevant, total = split.labels.data, sizes[name].sum()
            counts = [np.sum(relevant == grade) if grade else total - len(relevant) for grade in grades]
            columns += _counts_and_percentages(name, counts, total)
        return Section("Lists", paragraphs, list(zip(*columns, strict=True)))

    def _classes(self):
        splits, names, order = self.splits, self._class_names, self._order
        paragraphs, sizes = [], []
        if splits["train"].multi_label:
            means = _per_split(splits, lambda split: f"{split.num_relevant().mean():.2f}")
            empty = _per_split(splits, lambda split: f"{np.sum(split.num_relevant() == 0):,}")
            paragraphs.append(f"Classes per example, mean: {means}. Examples of no class: {empty}.")
        paragraphs += [self._imbalance(), *self._baselines()]
        for name in splits:
            if missing := [names[i] for i in np.flatnonzero(self.counts[name] == 0)]:
                paragraphs.append(f"No {name} example of {len(missing):,} classes: {listed(missing)}.")
        if len(names) > SHOWN_LINES:
            paragraphs.append(
                f"The table has the {SHOWN_LINES} classes with the most training examples. Below it are the "
                "numbers of classes by their number of examples."
            )
            rows = dataset_contents.class_sizes(self.counts)
            sizes = tables.text_table(rows, ["right"] * len(rows[0])).split("\n")
        shown = order[:SHOWN_LINES]
        columns = [["class", *(names[i] for i in shown)]]
        for name, split in splits.items():
            columns += _counts_and_percentages(name, self.counts[name][shown], len(split))
        counts = {name: values[order] for name, values in self.counts.items()}
        plot = partial(plots.plot_class_counts, [names[i] for i in order], counts)
        table = list(zip(*columns, strict=True))
        return Section("Classes", paragraphs, table, sizes, plots={"classes.png": plot})

    def _imbalance(self):
        """Returns a sentence on the ratio of the largest to the smallest class that is not empty."""
        counts, names = self.counts["train"], self._class_names
        present = np.flatnonzero(counts)
        largest, smallest = self._order[0], present[counts[present].argmin()]
        if counts[largest] == counts[smallest]:
            return f"Balance: {counts[largest]:,} training examples of every class that has any."
        return (
            f"Imbalance: the largest class of train ({names[largest]}, {counts[largest]:,}) has "
            f"{counts[largest] / counts[smallest]:,.1f} times the examples of the smallest "
            f"({names[smallest]}, {counts[smallest]:,})."
        )

    def _baselines(self):
        """Yields a sentence for each baseline."""
        metrics, batch_size = self.experiment.metrics, self.experiment.evaluation_batch_size
        if baselines.rank_metrics(metrics, len(self._class_names)):
            summaries = self._summaries(
                lambda name: baselines.most_frequent(self.splits[name], self._order, metrics, batch_size)
            )
            first = self._class_names[self._order[0]]
            yield f"Baseline, the classes ranked by their training examples, {first} first: {summaries}."
        has_texts = self.splits["train"].kind.tokenizes
        if has_texts and self.experiment.encoder.path and self._cache_dir is not None:
            encoded = baselines.load(self.experiment, self._cache_dir, self.dataset)
            by_split = {
                split: baselines.evaluate(encoded, split.partition(" and ")[0], metrics, batch_size)
                for split in self.splits
                if split != "train"
            }
            for title in next(iter(by_split.values())):
                summaries = self._summaries(lambda split, title=title: by_split[split][title])
                yield f"Baseline, {title} by the encoder's cosine: {summaries}."

    def _summaries(self, measure):
        """Returns summaries of all splits except train, each returned by a function of the split's name."""
        names = [name for name in self.splits if name != "train"]
        return "; ".join(f"{name} {evaluator.one_line(measure(name))}" for name in names)

    def _texts(self):
        max_length, path, splits = self.experiment.data.max_length, self.experiment.encoder.path, self.splits
        truncation = "No tokens are counted. Set encoder.path to see which texts data.max_length cuts."
        lengths = {
            f"characters of {feature}": {
                name: np.array([*map(len, split.features[feature])]) for name, split in splits.items()
            }
            for feature in splits["train"].features
        }
        if path is not None:
            tokens = {name: dataset_contents.token_counts(self._preprocess, s) for name, s in splits.items()}
            lengths["tokens"] = tokens
            limit = checkpoints.find(path).settings.get("max_positions", sys.maxsize)
            truncation = dataset_contents.truncation(tokens["train"], max_length, limit)
        rows = [["length in", "split", "median", "95%", "longest", f"over {max_length}"]]
        for unit, by_split in lengths.items():
            for name, values in by_split.items():
                over = f"{np.mean(values > max_length):.2%}" if unit == "tokens" else ""
                percentiles = np.percentile(values, (50, 95, 100), method="higher")
                rows.append([unit, name, *(f"{length:,}" for length in percentiles), over])
        return Section("Texts", [truncation], rows)

    def _images_in_memory(self):
        images = self.splits["train"].features["image"]
        shape = " x ".join(map(str, images.shape[1:]))
        mean, deviation = (
            " ".join(f"{value:.4g}" for value in values)
            for values in dataset_contents.pixel_statistics(images)
        )
        paragraph = (
            f"Images of {shape} {images.dtype.name} in memory; the channels of the training images have mean "
            f"{mean} and standard deviation {deviation}."
        )
        return Section("Images", [paragraph], plots={"examples.png": self._plot_examples})

    def _image_files(self):
        images, side = self._images, self.experiment.data.image_size
        paragraphs = [f"A square of each image is cropped and resized to {side} x {side} (data.image_size)."]
        for name, read in images.items():
            if read.unreadable:
                paragraphs.append(
                    f"Unreadable images of {name}: {len(read.unreadable):,}. They stop a training unless "
                    "data.on_invalid_row=skip, and no figure here includes them."
                )
        paragraphs.append("Pixels: smallest / median / largest; sizes: number of different ones.")
        rows = [["split", "sizes", "height", "width", f"a side under {side}"]]
        for name, read in images.items():
            under = f"{np.mean(read.sizes.min(axis=1) < side):.2%}"
            distinct = f"{len(np.unique(read.sizes, axis=0)):,}"
            rows.append([name, distinct, *map(_spread, read.sizes.T), under])
        lines = [message for read in images.values() for message in read.unreadable]
        return Section("Images", paragraphs, rows, lines, SHOWN_PAIRS, {"examples.png": self._plot_examples})

    def _plot_examples(self, path):
        """Shows training images of the most frequent classes as evaluated and as trained on."""
        train = self.splits["train"]
        by_class = [_examples_of(train, c, SHOWN_IMAGES) for c in self._frequent]
        indices, ends = np.concatenate(by_class), np.cumsum(list(map(len, by_class)))[:-1]
        features = {name: tf.constant(values[indices]) for name, values in train.features.items()}
        batches = {"as evaluated": self._preprocess(features) if self._preprocess else features}
        if self._augment:
            seeds = np.stack([np.full(len(indices), self.experiment.seed, np.int64), indices], axis=1)
            title = f"as trained on, {self.experiment.data.augmentation}"
            batches[title] = self._augment(features, tf.constant(seeds))
        images = {
            title: np.split(np.clip(batch["image"], 0.0, 1.0), ends) for title, batch in batches.items()
        }
        plots.plot_images([self._class_names[c] for c in self._frequent], images, path)

    def _duplicates(self):
        contents = {
            name: self._images[name].digests if self._images else split.kind.contents(split.features)
            for name, split in self.splits.items()
        }
        labels = {name: data.Kind().contents({"labels": s.labels}) for name, s in self.splits.items()}
        rows, lines, leaked = [["examples of", "also in", "count", "%", "with another label"]], [], 0
        for i, name in enumerate(self.splits):
            for other in list(self.splits)[: i + 1]:
                pairs, relabeled = dataset_contents.find_duplicates(name, other, contents, labels)
                leaked += len(pairs) if other == "train" != name else 0
                percentage = f"{100 * len(pairs) / len(self.splits[name]):.2f}"
                also_in = f"{other}, earlier" if other == name else other
                rows.append([name, also_in, f"{len(pairs):,}", percentage, f"{relabeled:,}"])
                for j, k in pairs[:SHOWN_PAIRS]:
                    text = self.splits[name].features.get("text")
                    shown = "" if text is None else f": {tables.shortened(text[j], TEXT_WIDTH)}"
                    lines.append(f"{self._name_of(name, j)} = {self._name_of(other, k)}{shown}")
        paragraphs = [self.splits["train"].kind.duplicates]
        if leaked:
            paragraphs.append(
                f"{leaked:,} examples of the other splits are also in train: for these, metrics reward "
                "memorization. If the labels differ, no model is right on both."
            )
        return Section("Duplicates", paragraphs, rows, lines)

    def _name_of(self, name, i):
        """Returns an example of a split with its classes."""
        split = self.splits[name]
        ids = split.label_matrix[[i]].indices if split.multi_label else [split.labels[i]]
        return f"{name} {split.origin(i)} ({', '.join(self._class_names[j] for j in ids) or 'no class'})"


def _table_and_lines(table, lines, format_table, indent):
    """Returns the blocks of a table and of lines, if there are any."""
    blocks = [format_table(table, tables.figure_alignment(table))] if table else []
    return blocks + (["\n".join(indent + files.printable(line) for line in lines)] if lines else [])


def _merge_equal(splits):
    """Returns each split once, under the names of all splits that are the same object."""
    names: dict[int, list[str]] = {}
    for name, split in splits.items():
        names.setdefault(id(split), []).append(name)
    return {" and ".join(equal): splits[equal[0]] for equal in names.values()}


def _examples_of(split, class_id, count):
    """Returns the indices of the first examples of a class."""
    has_class = split.labels[:, [class_id]] if split.multi_label else split.labels == class_id
    return has_class.nonzero()[0][:count]


def _counts_and_percentages(name, counts, total):
    """Returns two columns of a table, each with its header."""
    percentages = [f"{100 * count / total:.2f}" for count in counts]
    return [name, *(f"{count:,}" for count in counts)], ["%", *percentages]


def _spread(values):
    """Returns the smallest, the median and the largest value as text."""
    return " / ".join(f"{value:,}" for value in np.percentile(values, (0, 50, 100), method="higher"))


def _per_split(splits: Mapping[str, Any], figure: Callable[[Any], str] = str) -> str:
    """Returns a figure of each split as an enumeration, such as "3 train, 1 test"."""
    return ", ".join(f"{figure(split)} {name}" for name, split in splits.items())
