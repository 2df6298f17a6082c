"""The report of a dataset: text in the terminal, and Markdown with plots."""

import dataclasses
import itertools
import os
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import tensorflow as tf

from rank4class.pipelines.reporting import dataset_plots, tables
from rank4class.pipelines.reporting.dataset_summary import SHOWN_PAIRS, Description
from rank4class.pipelines.storage import files
from rank4class.pipelines.task import preprocessing

SHOWN_LINES = 50  # of a list in the terminal, rows of a table there, and classes in their table
SHOWN_CLASSES = 10  # classes with examples
SHOWN_IMAGES = 4  # of a class
SHOWN_TEXTS = 2  # of a class
SHOWN_NAMES = 20  # of missing classes
TEXT_WIDTH = 90  # characters of an example
PARAGRAPH_WIDTH = 100  # characters of a line in the terminal
CUT_FRACTIONS = {95: "at most 5%", 99: "at most 1%", 100: "none"}  # percentile of the lengths -> longer texts


@dataclasses.dataclass(frozen=True)
class Section:
    """A section of the report, in this order.

    Attributes:
      title: its heading.
      paragraphs: of text.
      table: rows of cells, the first one is the header.
      lines: shown as they are, except for control characters.
      shown_lines: number of lines in the terminal.
      plots: file name -> function of a path that writes the plot.
    """

    title: str
    paragraphs: Sequence[str] = ()
    table: Sequence[Sequence[str]] = ()
    lines: Sequence[str] = ()
    shown_lines: int = SHOWN_LINES
    plots: Mapping[str, Callable[[str], None]] = dataclasses.field(default_factory=dict)


def text(description: Description) -> str:
    """Returns the report for a terminal, with shortened tables."""
    blocks = []
    for section in _sections(description):
        blocks.append(f"{section.title}\n{'=' * len(section.title)}")
        blocks += [textwrap.fill(paragraph, PARAGRAPH_WIDTH) for paragraph in section.paragraphs]
        if section.table:
            rows = section.table[: SHOWN_LINES + 1]
            table = tables.text_table(rows, tables.figure_alignment(section.table))
            blocks.append(table + _note_hidden(len(section.table) - len(rows)))
        if section.lines:
            lines = [f"  {files.printable(line)}" for line in section.lines[: section.shown_lines]]
            blocks.append("\n".join(lines) + _note_hidden(len(section.lines) - len(lines)))
    return "\n\n".join(blocks)


def _note_hidden(count):
    return f"\n  ... and {count:,} more, see data.md" if count else ""


def write(description: Description, folder: str | os.PathLike) -> str:
    """Writes `data.md` and its plots to an existing folder; returns the path of `data.md`."""
    blocks = [f"# {description.experiment.data.name}"]
    for section in _sections(description):
        blocks += [f"## {section.title}", *section.paragraphs]
        if section.table:
            blocks.append(tables.markdown_table(section.table, tables.figure_alignment(section.table)))
        if section.lines:
            blocks.append("\n".join(f"    {files.printable(line)}" for line in section.lines))
        for name, plot in section.plots.items():
            plot(os.path.join(folder, name))
            blocks.append(f"![{section.title}]({name})")
    path = os.path.join(folder, "data.md")
    files.write(path, "\n\n".join(blocks) + "\n")
    return path


def _sections(description: Description) -> Iterator[Section]:
    yield _source(description)
    if description.dataset.skipped:
        yield _skipped(description.dataset.skipped)
    yield _lists(description) if description.has_lists else _classes(description)
    if description.lengths:
        yield _texts(description)
    if description.sizes:
        yield _image_files(description)
    if description.pixels:
        yield _images_in_memory(description)
    if description.duplicates:
        yield _duplicates(description)
    if description.lengths:
        yield _examples(description)


def _source(description):
    dataset, section = description.dataset, description.experiment.data
    sizes = _per_split({name: f"{len(split):,}" for name, split in description.all_splits.items()})
    path = getattr(section, "path", None)
    origin = f" from {path}" if path else ""
    classes = f"{len(description.class_names):,} classes"
    if description.has_lists:
        _, longest, width = description.splits["train"].features["items"].shape
        classes = f"lists of up to {longest:,} items with {width:,} features each"
    paragraphs = [f"Dataset {section.name}{origin}: {sizes} examples of {classes}."]
    if section.max_examples is not None:
        read = {}
        for name, split in description.all_splits.items():
            count = len(description.splits[name]) + len(description.unreadable.get(name, ()))
            read[name] = f"{count:,} of {len(split):,}"
        paragraphs.append(f"This report looks at {_per_split(read)} examples (data.max_examples).")
    if section.held_out:
        paragraphs.append("The counts include the classes of data.held_out.")
    lines = [f"{path}  sha256 {digest}" for path, digest in dataset.files.items()]
    return Section("Source", paragraphs, lines=lines)


def _per_split(figures):
    """Returns figures, name of a split -> text, as an enumeration.

    >>> _per_split({"train": "3", "test": "1"})
    '3 train, 1 test'
    """
    return ", ".join(f"{figure} {name}" for name, figure in figures.items())


def _skipped(skipped):
    return Section("Skipped", [f"Rows and examples left out: {len(skipped):,}."], [], skipped, SHOWN_PAIRS)


def _lists(description):
    splits = description.splits
    sizes = {name: np.sum(~split.excluded.toarray(), axis=1) for name, split in splits.items()}
    spread = ", ".join(f"{name} {_spread(values)}" for name, values in sizes.items())
    irrelevant = {name: f"{np.sum(split.num_relevant() == 0):,}" for name, split in splits.items()}
    baselines = {name: description.random_order(name) for name in splits if name != "train"}
    paragraphs = [
        f"Items per list, smallest / median / largest: {spread}. Lists without a relevant item: "
        f"{_per_split(irrelevant)}.",
        f"Baseline, mean over all orders of the items: {_summaries(baselines)}.",
    ]
    grades = np.unique(np.concatenate([[0.0], *(split.labels.data for split in splits.values())]))
    columns = [["grade", *(f"{grade:g}" for grade in grades)]]
    for name, split in splits.items():
        relevant, total = split.labels.data, sizes[name].sum()
        counts = [np.sum(relevant == grade) if grade else total - len(relevant) for grade in grades]
        columns += _counts_and_percentages(name, counts, total)
    return Section("Lists", paragraphs, list(zip(*columns, strict=True)))


def _counts_and_percentages(name, counts, total):
    """Returns two columns of a table, each with its header."""
    percentages = [f"{100 * count / total:.2f}" for count in counts]
    return [name, *(f"{count:,}" for count in counts)], ["%", *percentages]


def _summaries(summaries):
    return "; ".join(f"{name} {tables.one_line(summary)}" for name, summary in summaries.items())


def _classes(description):
    splits, names, order = description.splits, description.class_names, description.by_frequency()
    paragraphs = []
    if description.multi_label:
        counts = {name: split.num_relevant() for name, split in splits.items()}
        means = _per_split({name: f"{values.mean():.2f}" for name, values in counts.items()})
        empty = _per_split({name: f"{np.sum(values == 0):,}" for name, values in counts.items()})
        paragraphs.append(f"Classes per example, mean: {means}. Examples of no class: {empty}.")
    excluded = {name: split.excluded for name, split in splits.items() if split.excluded is not None}
    if excluded:
        means = _per_split({name: f"{np.diff(array.indptr).mean():.2f}" for name, array in excluded.items()})
        paragraphs.append(f"Classes excluded from the ranking of an example, mean: {means}.")
    paragraphs.append(_imbalance(description))
    if description.rank_metrics(len(names)):
        baselines = {name: description.baseline(name) for name in splits if name != "train"}
        paragraphs.append(
            f"Baseline, the classes ranked by their training examples, {names[order[0]]} first: "
            f"{_summaries(baselines)}."
        )
    for title in next(iter(description.encoder_baselines.values()), ()):
        summaries = {split: by_title[title] for split, by_title in description.encoder_baselines.items()}
        paragraphs.append(f"Baseline, {title} by the encoder's cosine: {_summaries(summaries)}.")
    for name in splits:
        missing = description.missing(name)
        if missing:
            more = f" and {len(missing) - SHOWN_NAMES:,} more" if len(missing) > SHOWN_NAMES else ""
            shown = ", ".join(missing[:SHOWN_NAMES])
            paragraphs.append(f"No {name} example of {len(missing):,} classes: {shown}{more}.")
    sizes = []
    if len(names) > SHOWN_LINES:
        paragraphs.append(
            f"The table has the {SHOWN_LINES} classes with the most training examples. Below it are the "
            "numbers of classes by their number of examples."
        )
        sizes = tables.text_table(_class_sizes(description.counts), ["right"] * (1 + len(splits))).split("\n")
    shown = order[:SHOWN_LINES]
    columns = [["class", *(names[i] for i in shown)]]
    for name, split in splits.items():
        columns += _counts_and_percentages(name, description.counts[name][shown], len(split))
    if description.class_weights:
        of_several = "; of several classes, the mean" if description.multi_label else ""
        paragraphs.append(
            f"weight: weight of a training example in the loss (data.class_weights){of_several}."
        )
        weights = [description.class_weights.get(description.dataset.class_names[i]) for i in shown]
        columns.append(["weight", *("held out" if weight is None else f"{weight:.3g}" for weight in weights)])
    counts = {name: values[order] for name, values in description.counts.items()}
    plot = partial(
        dataset_plots.plot_class_counts, [names[i] for i in order], counts, description.imbalance()
    )
    table = list(zip(*columns, strict=True))
    return Section("Classes", paragraphs, table, sizes, plots={"classes.png": plot})


def _class_sizes(counts: Mapping[str, np.ndarray]) -> list[list[str]]:
    """Returns the rows of a histogram: numbers of classes by their number of examples in each split.

    >>> _class_sizes({"train": np.array([1, 2, 3, 3]), "test": np.array([0, 0, 0, 1])})
    [['examples', 'train', 'test'], ['0', '0', '3'], ['1', '1', '1'], ['2-3', '3', '0']]
    """
    ends = [0, *(2**i for i in range(int(max(values.max() for values in counts.values())).bit_length() + 1))]
    histograms = [np.histogram(values, ends)[0] for values in counts.values()]
    ranges = [str(a) if b - a == 1 else f"{a:,}-{b - 1:,}" for a, b in itertools.pairwise(ends)]
    rows = zip(ranges, *([f"{count:,}" for count in each] for each in histograms), strict=True)
    return [["examples", *counts], *map(list, rows)]


def _imbalance(description):
    counts, names, order = description.counts["train"], description.class_names, description.by_frequency()
    present = np.flatnonzero(counts)
    largest, smallest = order[0], present[counts[present].argmin()]
    if counts[largest] == counts[smallest]:
        return f"Balance: {counts[largest]:,} training examples of every class that has any."
    return (
        f"Imbalance: the largest class of train ({names[largest]}, {counts[largest]:,}) has "
        f"{description.imbalance():,.1f} times the examples of the smallest ({names[smallest]}, "
        f"{counts[smallest]:,})."
    )


def _texts(description):
    max_length = description.experiment.data.max_length
    rows = [["length in", "split", "median", "95%", "longest", f"over {max_length}"]]
    for unit, lengths in description.lengths.items():
        for split, values in lengths.items():
            over = f"{np.mean(values > max_length):.2%}" if unit == "tokens" else ""
            percentiles = np.percentile(values, (50, 95, 100), method="higher")
            rows.append([unit, split, *(f"{length:,}" for length in percentiles), over])
    limits = {"tokens": ("data.max_length", max_length)}
    plot = partial(dataset_plots.plot_cumulative, description.lengths, limits)
    return Section("Texts", [_truncation(description)], rows, plots={"lengths.png": plot})


def _truncation(description):
    """Returns a sentence on the texts that `data.max_length` cuts, and on lengths that cut fewer."""
    max_length, limit = description.experiment.data.max_length, description.max_tokens
    if limit is None:
        return (
            "No tokens are counted: encoder.path is not set. Set it to see which texts data.max_length cuts."
        )
    lengths = description.lengths["tokens"]["train"]
    cut = np.mean(lengths > max_length)
    if not cut:
        return (
            f"data.max_length={max_length} cuts no training text; the longest has {lengths.max():,} tokens."
        )
    # Of equal lengths the last remains: no text is longer than the longest.
    percentiles = np.percentile(lengths, list(CUT_FRACTIONS), method="higher")
    fractions = dict(zip(percentiles, CUT_FRACTIONS.values(), strict=True))
    remedies = [f"{n:,} would cut {fraction}" for n, fraction in fractions.items() if max_length < n <= limit]
    if lengths.max() > limit > max_length:
        remedies.append(f"{limit:,}, the limit of the encoder, would cut {np.mean(lengths > limit):.2%}")
    elif lengths.max() > limit:
        remedies.append(f"{limit:,} is the limit of the encoder")
    return f"data.max_length={max_length} cuts {cut:.2%} of the training texts; {', '.join(remedies)}."


def _images_in_memory(description):
    images = description.splits["train"].features["image"]
    shape = " x ".join(map(str, images.shape[1:]))
    mean, deviation = (" ".join(f"{value:.4g}" for value in values) for values in description.pixels)
    paragraph = (
        f"Images of {shape} {images.dtype.name} in memory; the channels of the training images have mean "
        f"{mean} and standard deviation {deviation}."
    )
    return Section("Images", [paragraph], plots={"examples.png": partial(_plot_examples, description)})


def _image_files(description):
    size = description.experiment.data.image_size
    paragraphs = [f"A square of each image is cropped and resized to {size} x {size} (data.image_size)."]
    for name, messages in description.unreadable.items():
        if messages:
            paragraphs.append(
                f"Unreadable images of {name}: {len(messages):,}. They stop a training unless "
                "data.on_invalid_row=skip, and no figure here includes them."
            )
    paragraphs.append("Pixels: smallest / median / largest; sizes: number of different ones.")
    rows = [["split", "sizes", "height", "width", f"a side under {size}"]]
    for name, sizes in description.sizes.items():
        under = f"{np.mean(sizes.min(axis=1) < size):.2%}"
        rows.append([name, f"{len(np.unique(sizes, axis=0)):,}", *map(_spread, sizes.T), under])
    lines = [message for messages in description.unreadable.values() for message in messages]
    panels = {
        f"{side}, pixels": {name: sizes[:, i] for name, sizes in description.sizes.items()}
        for i, side in enumerate(("height", "width"))
    }
    limits = dict.fromkeys(panels, ("data.image_size", size))
    plots = {
        "sizes.png": partial(dataset_plots.plot_cumulative, panels, limits),
        "examples.png": partial(_plot_examples, description),
    }
    return Section("Images", paragraphs, rows, lines, SHOWN_PAIRS, plots)


def _spread(values):
    """Returns the smallest, the median and the largest value as text."""
    return " / ".join(f"{value:,}" for value in np.percentile(values, (0, 50, 100), method="higher"))


def _plot_examples(description, path):
    """Shows training images of the most frequent classes as a model receives them."""
    train, classes = description.splits["train"], _frequent_classes(description)
    indices = [_examples_of(train, c, SHOWN_IMAGES) for c in classes]
    ends = np.cumsum(list(map(len, indices)))[:-1]
    images = {
        title: np.split(batch, ends)
        for title, batch in _preprocessed_images(description, np.concatenate(indices)).items()
    }
    names = [description.class_names[c] for c in classes]
    dataset_plots.plot_images(names, images, SHOWN_IMAGES, path)


def _preprocessed_images(description, indices):
    """Returns training images as evaluated and as trained on, title -> `[N, height, width, channels]`."""
    experiment, train = description.experiment, description.dataset.splits["train"]
    examples = description.splits["train"].select(indices)
    features = {name: tf.constant(values) for name, values in examples.features.items()}
    preprocess = preprocessing.build_preprocess(experiment.data, experiment.encoder, train)
    augment = preprocessing.build_augment(experiment.data, train, preprocess)
    batches = {"as evaluated": preprocess(features) if preprocess else features}
    if augment:
        experiment_seeds = np.full(len(indices), experiment.seed, np.int64)
        seeds = tf.constant(np.stack([experiment_seeds, indices], axis=1))
        batches[f"as trained on, {experiment.data.augmentation}"] = augment(features, seeds)
    return {title: np.clip(batch["image"], 0.0, 1.0) for title, batch in batches.items()}


def _duplicates(description):
    rows, lines = [["examples of", "also in", "count", "%", "with another label"]], []
    for group in description.duplicates:
        other = f"{group.other}, earlier" if group.other == group.split else group.other
        percentage = f"{100 * group.count / len(description.splits[group.split]):.2f}"
        rows.append([group.split, other, f"{group.count:,}", percentage, f"{group.relabeled:,}"])
        lines += [_duplicate_line(description, group, i, j) for i, j in group.pairs]
    paragraphs = [_duplicate_definition(description)]
    leaked = sum(group.count for group in description.duplicates if group.other == "train" != group.split)
    if leaked:
        paragraphs.append(
            f"{leaked:,} examples of the other splits are also in train: for these, metrics reward "
            "memorization. If the labels differ, no model is right on both."
        )
    return Section("Duplicates", paragraphs, rows, lines)


def _duplicate_definition(description):
    if description.lengths:
        return "Texts that differ only in case and white space are duplicates."
    if description.sizes:
        return "Images whose files have the same bytes are duplicates."
    return "Examples whose values are all equal are duplicates."


def _duplicate_line(description, group, i, j):
    examples = []
    for name, index in ((group.split, i), (group.other, j)):
        origin = description.splits[name].origin(index)
        examples.append(f"{name} {origin} ({description.classes_of(name, index)})")
    texts = description.splits[group.split].features.get("text")
    line = " = ".join(examples)
    return line if texts is None else f"{line}: {_one_line(texts[i], TEXT_WIDTH // 2)}"


def _examples(description):
    train = description.splits["train"]
    lines = []
    for c in _frequent_classes(description):
        lines.append(f"{description.class_names[c]}:")
        for i in _examples_of(train, c, SHOWN_TEXTS):
            texts = [train.features[name][i] for name in ("text", "text_pair") if name in train.features]
            lines.append("  " + " | ".join(map(_one_line, texts)))
    return Section("Examples", ["Training examples of the most frequent classes."], lines=lines)


def _frequent_classes(description):
    """Returns the ids of the most frequent classes that have training examples."""
    counts = description.counts["train"]
    return [c for c in description.by_frequency()[:SHOWN_CLASSES] if counts[c]]


def _examples_of(split, class_id, count):
    """Returns the indices of the first examples of a class."""
    has_class = split.labels[:, [class_id]] if split.multi_label else split.labels == class_id
    return has_class.nonzero()[0][:count]


def _one_line(words, width=TEXT_WIDTH):
    line = " ".join(words.split())
    return line if len(line) <= width else line[: width - 1] + "…"
