"""The report of a dataset before training: classes, lengths, sizes, duplicates, baselines and images."""

import dataclasses
import os
import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import tensorflow as tf

from rank4class import data
from rank4class.data.labels import listed
from rank4class.models import checkpoints
from rank4class.pipelines import config
from rank4class.pipelines.evaluation import baselines, evaluator
from rank4class.pipelines.reporting import dataset_contents, page, plots, tables
from rank4class.pipelines.storage import files
from rank4class.pipelines.task_data import inputs, loading, split_steps

SHOWN_LINES = 50  # of a list in the terminal, and classes in their table
SHOWN_PAIRS = 3  # duplicates, unreadable images and skipped rows in the terminal
SHOWN_CLASSES = 10  # classes with examples
SHOWN_IMAGES = 4  # of a class
TEXT_WIDTH = 45  # characters of an example
PARAGRAPH_WIDTH = 100  # characters of a line in the terminal


@dataclasses.dataclass(frozen=True)
class Section:
    """A title, paragraphs, tables, lines, and plots (name -> function of a path)."""

    title: str
    paragraphs: Sequence[str] = ()
    tables: Sequence[pd.DataFrame] = ()
    lines: Sequence[str] = ()
    shown_lines: int = SHOWN_LINES  # in the terminal
    plots: Mapping[str, Callable[[str], None]] = dataclasses.field(default_factory=dict)


class Report:
    """The report of a dataset. All image files are read.

    Without `encoder.path` no tokens are counted, and without a `cache_dir` (see `loading.load`) there are no
    baselines by the encoder. Equal splits, such as ImageNet's validation and test, have one name.
    """

    def __init__(self, experiment: config.Experiment, dataset: data.Dataset, cache_dir: str | None = None):
        section = experiment.data
        train = dataset.splits["train"]
        self.experiment = experiment
        self._kind = train.kind
        split_steps.check_held_out(dataset.class_names, section.held_out)
        loading.check_class_weights(section, train)
        self._preprocess: Any = None
        if experiment.encoder.path or not self._kind.tokenizes:
            self._preprocess = inputs.build_inputs(section, experiment.encoder, train).preprocess
        self._augment = None
        if section.augmentation != "none":
            self._augment = train.kind.augment(section.augmentation, section.image_size, self._preprocess)
        self._class_names = [*map(files.printable, dataset.class_names)]
        all_splits = _merge_equal(dataset.splits)
        self.splits = split_steps.limit_examples(section, all_splits)
        self._by_split = pd.DataFrame({"split": [*all_splits], "examples": [*map(len, all_splits.values())]})
        if section.max_examples is not None:
            self._by_split["read (data.max_examples)"] = [*map(len, self.splits.values())]
        images = self._read_images() if self._kind.reads_files else None
        self.counts = {name: s.class_counts(len(self._class_names)) for name, s in self.splits.items()}
        self._order = np.argsort(-self.counts["train"], kind="stable")
        shown = self._order[:SHOWN_CLASSES]
        self._frequent = shown[self.counts["train"][shown] > 0]
        self.sections = [self._source(dataset)]
        if dataset.skipped:
            skipped = f"Rows and examples left out: {len(dataset.skipped):,}."
            self.sections.append(Section("Skipped", [skipped], [], dataset.skipped, SHOWN_PAIRS))
        encoded = None
        if self._kind.tokenizes and experiment.encoder.path and cache_dir is not None:
            encoded = baselines.load(experiment, cache_dir, dataset)
        baseline = self._baselines(encoded)
        self.sections.append(self._lists(baseline) if self._kind.ranks_items else self._classes(baseline))
        if self._kind.tokenizes:
            self.sections.append(self._texts())
        if images or self._kind.has_pixels:
            self.sections.append(images or self._images_in_memory())
        if not self._kind.has_ids:  # otherwise the splits hold other classes of the same users
            self.sections.append(self._duplicates())

    def text(self) -> str:
        """Returns the report for a terminal, with shortened lists."""
        return self._render(tables.text_table, "  ", shortened=True)

    def write(self, folder: str | os.PathLike) -> str:
        """Writes `data.md`, its plots, and `data.html` of both to an existing folder; returns its path."""
        for section in self.sections:
            for name, plot in section.plots.items():
                plot(os.path.join(folder, name))
        path = os.path.join(folder, "data.md")
        files.write(path, self._render(tables.markdown_table, " " * 4) + "\n")
        return page.write_beside(path)

    def _render(self, format_table, indent, shortened=False):
        """Returns the report in Markdown, or for a terminal shortened and without plots."""
        section = self.experiment.data
        blocks = [f"# {os.path.basename(getattr(section, 'path', None) or section.name)}"]
        for part in self.sections:
            blocks += [
                f"## {part.title}",
                *(textwrap.fill(each, PARAGRAPH_WIDTH) for each in part.paragraphs),
            ]
            for table in filter(len, part.tables):
                rows = [list(table), *([*map(_cell, row)] for row in table.itertuples(index=False))]
                blocks.append(format_table(rows, tables.figure_alignment(rows)))
            lines = [indent + files.printable(line) for line in part.lines]
            hidden = len(lines) - part.shown_lines
            if shortened and hidden > 0:
                lines = [*lines[: part.shown_lines], f"{indent}... and {hidden:,} more, see data.md"]
            blocks += ["\n".join(lines)] if lines else []
            blocks += [] if shortened else [f"![{part.title}]({name})" for name in part.plots]
        return "\n\n".join(blocks)

    def _source(self, dataset):
        section = self.experiment.data
        splits = self.splits.values()
        of_split = self._by_split
        size = f"{len(self._class_names):,} classes"
        noun = "classes"
        if self._kind.ranks_items:
            _, longest, width = self.splits["train"].features["items"].shape
            size = f"lists of up to {longest:,} items with {width:,} features each"
            noun = "relevant items"
            of_split["items"] = [_spread(_list_sizes(split)) for split in splits]
        if self.splits["train"].multi_label:
            of_split[f"{noun}, mean"] = [split.num_relevant().mean() for split in splits]
            of_split[f"no {noun}"] = [int(np.sum(split.num_relevant() == 0)) for split in splits]
        path = getattr(section, "path", None)
        origin = f"Dataset {section.name}{f' from {path}' if path else ''}: {size}."
        hashes = [f"{file}  sha256 {digest}" for file, digest in dataset.files.items()]
        return Section("Source", [origin], [of_split], hashes)

    def _lists(self, baseline):
        totals = pd.Series({name: _list_sizes(split).sum() for name, split in self.splits.items()})
        grades = {name: pd.Series(split.labels.data).value_counts() for name, split in self.splits.items()}
        counts = pd.DataFrame(grades).fillna(0).astype(int)
        counts.loc[0.0] = totals - counts.sum()
        counts = counts.sort_index()
        counts.index = counts.index.map("{:g}".format)
        return Section("Lists", [], [_with_shares(counts, totals, "grade"), baseline])

    def _classes(self, baseline):
        names = self._class_names
        counts = pd.DataFrame(self.counts)
        paragraphs = [self._imbalance()]
        for split in counts:
            if missing := [names[i] for i in np.flatnonzero(counts[split] == 0)]:
                paragraphs.append(f"No {split} example of {len(missing):,} classes: {listed(missing)}.")
        counts = counts.set_axis(names).iloc[self._order]
        sizes = pd.Series({name: len(split) for name, split in self.splits.items()})
        shown = [baseline, _with_shares(counts[:SHOWN_LINES], sizes, "class")]
        if len(names) > SHOWN_LINES:
            paragraphs.append(
                f"The table has the {SHOWN_LINES} classes with the most training examples. Below it are the "
                "numbers of classes by their number of examples."
            )
            shown.append(dataset_contents.class_sizes(self.counts))
        plot = partial(plots.plot_class_counts, [*counts.index], {n: v.to_numpy() for n, v in counts.items()})
        return Section("Classes", paragraphs, shown, plots={"classes.png": plot})

    def _imbalance(self):
        """Returns a sentence on the ratio of the largest to the smallest class that is not empty."""
        counts = pd.Series(self.counts["train"], self._class_names)
        counts = counts[counts > 0]
        return (
            f"Imbalance: the largest class of train ({counts.idxmax()}, {counts.max():,}) has "
            f"{counts.max() / counts.min():,.1f} times the examples of the smallest "
            f"({counts.idxmin()}, {counts.min():,})."
        )

    def _baselines(self, encoded):
        """Returns a table of the baselines, on all splits except train, also by the outputs of an encoder."""
        metrics = self.experiment.metrics
        batch_size = self.experiment.evaluation_batch_size
        rows = []
        for name, split in self.splits.items():
            summaries: dict[str, Any] = {}
            if name == "train":
                continue
            if self._kind.ranks_items:
                summaries["mean over all orders"] = baselines.random_order(split, metrics)
            elif baselines.rank_metrics(metrics, len(self._class_names)):
                first = self._class_names[self._order[0]]
                summary = baselines.most_frequent(split, self._order, metrics, batch_size)
                summaries[f"classes by training examples, {first} first"] = summary
            if encoded:
                by_encoder = baselines.evaluate(encoded, name.partition(" and ")[0], metrics, batch_size)
                summaries |= {f"{title} by the encoder's cosine": one for title, one in by_encoder.items()}
            for title, one in summaries.items():
                values = {evaluator.metric_heading(n): one[n] for n in evaluator.metric_names(one)}
                rows.append({"baseline": title, "split": name, **values})
        return pd.DataFrame(rows)

    def _texts(self):
        max_length = self.experiment.data.max_length
        path = self.experiment.encoder.path
        splits = self.splits
        limit = "No tokens are counted. Set encoder.path to see which texts data.max_length cuts."
        lengths = {
            (f"characters of {feature}", name): np.array([*map(len, split.features[feature])])
            for feature in ("text", "text_pair")
            if feature in splits["train"].features
            for name, split in splits.items()
        }
        if path is not None:
            tokens = {name: inputs.token_counts(self._preprocess, s.features) for name, s in splits.items()}
            lengths |= {("tokens", name): counts for name, counts in tokens.items()}
            most = checkpoints.find(path).max_tokens
            max_length = self._preprocess.most_tokens
            limit = (
                f"Texts of more than {max_length} tokens are cut, see data.max_length and data.windows. The "
                f"encoder takes at most {most:,} tokens."
            )
        rows = [
            [
                unit,
                name,
                *np.percentile(values, (50, 95, 100), method="higher").tolist(),
                np.mean(values > max_length) * (100.0 if unit == "tokens" else np.nan),
            ]
            for (unit, name), values in lengths.items()
        ]
        columns = ["length in", "split", "median", "95%", "longest", f"over {max_length} (%)"]
        return Section("Texts", [limit], [pd.DataFrame(rows, columns=columns)])

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

    def _read_images(self):
        """Reads the image files, replaces the splits by the readable ones, and returns their section."""
        side = self.experiment.data.image_size
        unreadable = []
        read = {name: dataset_contents.read_images(name, split) for name, split in self.splits.items()}
        for name, images in read.items():
            is_readable = images["error"].isna()
            self.splits[name] = self.splits[name].select(is_readable.to_numpy())
            unreadable += images["error"].dropna().tolist()
            read[name] = images[is_readable]
        self._digests = {name: images["digest"].to_numpy() for name, images in read.items()}
        sizes = {name: images[["height", "width"]].astype(int) for name, images in read.items()}
        paragraphs = [
            f"A square of each image is cropped and resized to {side} x {side} (data.image_size).",
            "Pixels: smallest / median / largest; sizes: number of different ones.",
        ]
        if unreadable:
            paragraphs.append(
                f"Unreadable images: {len(unreadable):,}. They stop a training unless "
                "data.on_invalid_row=skip, and no figure here includes them."
            )
        rows = [
            [
                name,
                len(each.drop_duplicates()),
                *map(_spread, each.to_numpy().T),
                100.0 * np.mean(each.min(axis=1) < side),
            ]
            for name, each in sizes.items()
        ]
        table = pd.DataFrame(rows, columns=["split", "sizes", "height", "width", f"a side under {side} (%)"])
        plot = {"examples.png": self._plot_examples}
        return Section("Images", paragraphs, [table], unreadable, SHOWN_PAIRS, plot)

    def _plot_examples(self, path):
        """Shows training images of the most frequent classes as evaluated and as trained on."""
        train = self.splits["train"]
        has_class = train.class_matrix(len(self._class_names)).tocsc()
        by_class = [has_class[:, [c]].nonzero()[0][:SHOWN_IMAGES] for c in self._frequent]
        indices = np.concatenate(by_class)
        ends = np.cumsum(list(map(len, by_class)))[:-1]
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
        examples = {
            name: pd.DataFrame(
                {
                    "content": self._digests[name]
                    if self._kind.reads_files
                    else self._kind.contents(s.features),
                    "label": data.Kind().contents({"labels": s.labels}),
                }
            )
            for name, s in self.splits.items()
        }
        rows = []
        lines = []
        leaked = 0
        for i, name in enumerate(examples):
            for other in list(examples)[: i + 1]:
                first, relabeled = dataset_contents.find_duplicates(examples[name], examples[other])
                leaked += len(first) if other == "train" != name else 0
                share = 100.0 * len(first) / len(examples[name])
                rows.append(
                    [name, f"{other}, earlier" if other == name else other, len(first), share, relabeled]
                )
                for j, k in first[:SHOWN_PAIRS].items():
                    text = self.splits[name].features.get("text")
                    shown = "" if text is None else f": {tables.shortened(text[j], TEXT_WIDTH)}"
                    lines.append(f"{self._name_of(name, j)} = {self._name_of(other, k)}{shown}")
        paragraphs = [self._kind.duplicates]
        if leaked:
            paragraphs.append(
                f"{leaked:,} examples of the other splits are also in train: for these, metrics reward "
                "memorization. If the labels differ, no model is right on both."
            )
        columns = ["examples of", "also in", "count", "%", "with another label"]
        return Section("Duplicates", paragraphs, [pd.DataFrame(rows, columns=columns)], lines)

    def _name_of(self, name, i):
        """Returns an example of a split with its classes."""
        split = self.splits[name]
        ids = split.label_matrix[[i]].indices if split.multi_label else [split.labels[i]]
        return f"{name} {split.origin(i)} ({', '.join(self._class_names[j] for j in ids) or 'no class'})"


def _cell(value):
    """Returns a value as the text in a table: numbers with two decimals if not whole, nothing for NaN."""
    if isinstance(value, str):
        return files.printable(value)
    return f"{value:,}" if isinstance(value, int) else "" if np.isnan(value) else f"{value:,.2f}"


def _with_shares(counts, totals, title):
    """Returns a table of counts by split with their percentages of some totals, under a title of the rows."""
    shares = (100.0 * counts / totals).add_suffix(" (%)")
    return pd.concat([counts, shares], axis=1).rename_axis(title).reset_index()


def _merge_equal(splits):
    """Returns each split once, under the names of all splits that are the same object."""
    names: dict[int, list[str]] = {}
    for name, split in splits.items():
        names.setdefault(id(split), []).append(name)
    return {" and ".join(equal): splits[equal[0]] for equal in names.values()}


def _list_sizes(split):
    return np.sum(~split.excluded.toarray(), axis=1)


def _spread(values):
    """Returns the smallest, the median and the largest value as text."""
    return " / ".join(f"{value:,}" for value in np.percentile(values, (0, 50, 100), method="higher"))
