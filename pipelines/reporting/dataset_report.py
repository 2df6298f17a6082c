"""A described dataset for people: text in the terminal, Markdown, and plots."""

import dataclasses
import os
import textwrap

import numpy as np
import tensorflow as tf
from matplotlib.figure import Figure

from rank4class.pipelines.reporting import plots, tables
from rank4class.pipelines.reporting.dataset_summary import FEW
from rank4class.pipelines.storage import files
from rank4class.pipelines.task import preprocessing

ROWS = 50  # of a table or a list in the terminal
NAMED = 60  # classes that a plot has room to name
SHOWN_CLASSES = 10  # of which examples are shown
SHOWN_IMAGES = 4  # of a class, and as many augmented
SHOWN_TEXTS = 2  # of a class
TEXT_WIDTH = 90  # characters of an example
IMBALANCED = 20  # largest class over smallest, from where a plot takes a log axis
CUT = {95: "at most 5%", 99: "at most 1%", 100: "none"}  # percentile of the lengths -> what is longer
WIDTH = 100  # of a paragraph in the terminal


@dataclasses.dataclass(frozen=True)
class Section:
    """A part of the report, in this order.

    Attributes:
      title: its heading.
      text: paragraphs.
      table: rows of cells, the header first.
      lines: to be shown as they are, but for control characters.
      shown: how many of the lines a terminal shows.
      pictures: file name -> function of (description, path) that draws it.
    """

    title: str
    text: tuple = ()
    table: tuple = ()
    lines: tuple = ()
    shown: int = ROWS
    pictures: dict = dataclasses.field(default_factory=dict)


def text(description):
    """Returns the report for a terminal; long tables are cut."""
    blocks = []
    for section in _sections(description):
        blocks.append(f"{section.title}\n{'=' * len(section.title)}")
        blocks += [textwrap.fill(paragraph, WIDTH) for paragraph in section.text]
        if section.table:
            blocks.append(_cut(tables.text_table(tables.aligned(section.table)).splitlines(), ROWS))
        if section.lines:
            blocks.append(_cut([f"  {files.printable(line)}" for line in section.lines], section.shown))
    return "\n\n".join(blocks)


def write(description, folder):
    """Writes `data.md` and its plots to a folder that is there; returns the path of `data.md`."""
    blocks = [f"# {description.experiment.data.name}"]
    for section in _sections(description):
        blocks.append(f"## {section.title}")
        blocks += section.text
        if section.table:
            rows = [[cell.replace("|", "\\|") for cell in row] for row in tables.aligned(section.table)]
            blocks.append("\n".join(tables.markdown_table(rows)))
        if section.lines:
            blocks.append("\n".join(f"    {files.printable(line)}" for line in section.lines))
        for file, draw in section.pictures.items():
            draw(description, os.path.join(folder, file))
            blocks.append(f"![{section.title}]({file})")
    path = os.path.join(folder, "data.md")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n\n".join(blocks) + "\n")
    return path


def _cut(lines, count):
    more = len(lines) - count
    return "\n".join([*lines[:count], f"  ... and {more:,} more, see data.md"] if more > 0 else lines)


def _sections(description):
    yield _source(description)
    if description.dataset.skipped:
        yield _skipped(description)
    yield _lists(description) if description.lists else _classes(description)
    if description.lengths:
        yield _texts(description)
    if description.sizes or description.pixels:
        yield _images(description)
    if description.repeats:
        yield _duplicates(description)
    if description.lengths:
        yield _examples(description)


def _source(description):
    dataset, section = description.dataset, description.experiment.data
    sizes = ", ".join(f"{len(split):,} {name}" for name, split in description.whole.items())
    origin = f" from {section.path}" if section.path else ""
    what = f"{len(description.class_names):,} classes"
    if description.lists:
        _, most, width = description.splits["train"].features["items"].shape
        what = f"lists of up to {most:,} items with {width:,} features each"
    paragraphs = [f"Dataset {section.name}{origin}: {sizes} examples of {what}."]
    if section.max_examples is not None:
        looked = ", ".join(
            f"{len(description.splits[name]) + len(description.unreadable.get(name, ())):,} of "
            f"{len(split):,} {name}"
            for name, split in description.whole.items()
        )
        paragraphs.append(f"What follows looks at {looked} examples (data.max_examples).")
    if section.held_out:
        paragraphs.append("The classes of data.held_out are counted as all others are.")
    lines = [f"{path}  sha256 {digest}" for path, digest in dataset.files.items()]
    return Section("Source", tuple(paragraphs), lines=tuple(lines))


def _lists(description):
    splits = description.splits
    sizes = {name: np.sum(~split.excluded.toarray(), axis=1) for name, split in splits.items()}
    spread = ", ".join(
        f"{name} {' / '.join(f'{size:,}' for size in _quantiles(own))}" for name, own in sizes.items()
    )
    bare = ", ".join(
        f"{np.sum(np.diff(split.labels.indptr) == 0):,} {name}" for name, split in splits.items()
    )
    judged = {name: description.random_order(name) for name in splits if name != "train"}
    figures = "; ".join(f"{name} {tables.one_line(figures)}" for name, figures in judged.items())
    paragraphs = (
        f"Items a list, least / median / most: {spread}. Lists without a relevant item: {bare}.",
        f"Baseline, a random order (the mean over all): {figures}.",
    )
    rows = [["grade", *(cell for name in splits for cell in (name, "%"))]]
    for grade in np.unique(np.concatenate([[0.0], *(split.labels.data for split in splits.values())])):
        row = [f"{grade:g}"]
        for name, split in splits.items():
            relevant, total = split.labels.data, sizes[name].sum()
            count = np.sum(relevant == grade) if grade else total - len(relevant)
            row += [f"{count:,}", f"{100 * count / total:.2f}"]
        rows.append(row)
    return Section("Lists", paragraphs, tuple(rows))


def _skipped(description):
    skipped = description.dataset.skipped
    return Section("Left out", (f"Of the files: {len(skipped):,}.",), lines=skipped, shown=FEW)


def _classes(description):
    splits = description.splits
    paragraphs = []
    if description.multi_label:
        counts = {name: np.diff(split.labels.indptr) for name, split in splits.items()}
        means = ", ".join(f"{own.mean():.2f} {name}" for name, own in counts.items())
        bare = ", ".join(f"{np.sum(own == 0):,} {name}" for name, own in counts.items())
        paragraphs.append(f"Classes an example, mean: {means}. Examples of no class: {bare}.")
    excluded = {name: split.excluded for name, split in splits.items() if split.excluded is not None}
    if excluded:
        means = ", ".join(f"{np.diff(own.indptr).mean():.2f} {name}" for name, own in excluded.items())
        paragraphs.append(f"Classes excluded from the ranking of an example, mean: {means}.")
    paragraphs.append(_imbalance(description))
    if description.rank_metrics(len(description.class_names)):
        paragraphs.append(_baseline(description))
    for name in splits:
        missing = description.missing(name)
        if missing:
            paragraphs.append(f"No {name} example of {len(missing):,} classes: {_few(missing)}.")
    header = ["class", *(cell for name in splits for cell in (name, "%"))]
    if description.class_weights:
        paragraphs.append("weight: of a training example in the loss (data.class_weights).")
        header.append("weight")
    rows = [_class_row(description, i) for i in _by_frequency(description)]
    return Section("Classes", tuple(paragraphs), (header, *rows), pictures={"classes.png": plot_classes})


def _imbalance(description):
    counts, names = description.counts["train"], description.class_names
    present = np.flatnonzero(counts)
    largest, smallest = description.most_frequent(), present[counts[present].argmin()]
    if counts[largest] == counts[smallest]:
        return f"Balance: {counts[largest]:,} training examples of every class that has any."
    return (
        f"Imbalance: the largest class of train ({names[largest]}, {counts[largest]:,}) holds "
        f"{description.imbalance():,.1f} times the smallest ({names[smallest]}, {counts[smallest]:,})."
    )


def _by_frequency(description):
    return np.argsort(-description.counts["train"], kind="stable")


def _baseline(description):
    most = description.class_names[description.most_frequent()]
    judged = {name: description.baseline(name) for name in description.splits if name != "train"}
    figures = "; ".join(f"{name} {tables.one_line(figures)}" for name, figures in judged.items())
    return f"Baseline, to rank the classes by their training examples, {most} first: {figures}."


def _class_row(description, i):
    row = [description.class_names[i]]
    for split, examples in description.splits.items():
        count = description.counts[split][i]
        row += [f"{count:,}", f"{100 * count / len(examples):.2f}"]
    if description.class_weights:
        weight = description.class_weights.get(description.dataset.class_names[i])
        row.append("held out" if weight is None else f"{weight:.3g}")
    return row


def _few(names, count=20):
    more = len(names) - count
    return ", ".join(names[:count]) + (f" and {more:,} more" if more > 0 else "")


def _texts(description):
    max_length = description.experiment.data.max_length
    rows = [["length in", "split", "median", "95%", "longest", f"over {max_length}"]]
    for what, lengths in description.lengths.items():
        for split, values in lengths.items():
            over = f"{np.mean(values > max_length):.2%}" if what == "tokens" else ""
            median, most, longest = np.percentile(values, (50, 95, 100), method="higher")
            rows.append([what, split, f"{median:,}", f"{most:,}", f"{longest:,}", over])
    return Section("Texts", (_cut_texts(description),), tuple(rows), pictures={"lengths.png": plot_lengths})


def _cut_texts(description):
    max_length = description.experiment.data.max_length
    if "tokens" not in description.lengths:
        return (
            "No tokens are counted: encoder.path is not set. Set it to see which texts data.max_length cuts."
        )
    lengths = description.lengths["tokens"]["train"]
    cut = np.mean(lengths > max_length)
    if not cut:
        return (
            f"data.max_length={max_length} cuts no training text; the longest has {lengths.max():,} tokens."
        )
    most = description.most_tokens
    # Of equal lengths the last stays: none is longer than the longest.
    left = dict(zip(np.percentile(lengths, list(CUT), method="higher"), CUT.values(), strict=True))
    remedies = [f"{n:,} would cut {share}" for n, share in left.items() if max_length < n <= most]
    if lengths.max() > most:
        remedies.append(
            f"{most:,}, the most that the encoder takes, would cut {np.mean(lengths > most):.2%}"
            if max_length < most
            else f"{most:,} is the most that the encoder takes"
        )
    return f"data.max_length={max_length} cuts {cut:.2%} of the training texts; {', '.join(remedies)}."


def _images(description):
    pictures = {"examples.png": plot_examples}
    if not description.sizes:
        images = description.splits["train"].features["image"]
        shape = " x ".join(map(str, images.shape[1:]))
        mean, deviation = (" ".join(f"{value:.4g}" for value in part) for part in description.pixels)
        paragraph = (
            f"Images of {shape} {images.dtype.name} in memory; over the training images the channels have "
            f"mean {mean} and standard deviation {deviation}."
        )
        return Section("Images", (paragraph,), pictures=pictures)
    size = description.experiment.data.image_size
    paragraphs = [f"Of each image a square is cut and resized to {size} x {size} (data.image_size)."]
    lines = []
    for name, messages in description.unreadable.items():
        if messages:
            paragraphs.append(
                f"Images of {name} that cannot be read: {len(messages):,}. They end a training, unless "
                "data.on_invalid_row=skip leaves them out, and are in no figure here."
            )
            lines += messages
    rows = [["split", "sizes", "height", "width", f"a side under {size}"]]
    for name, sizes in description.sizes.items():
        ranges = [f"{low:,} / {middle:,} / {high:,}" for low, middle, high in _quantiles(sizes).T]
        under = f"{np.mean(sizes.min(axis=1) < size):.2%}"
        rows.append([name, f"{len(np.unique(sizes, axis=0)):,}", *ranges, under])
    paragraphs.append("Pixels: smallest / median / largest; sizes: how many different ones.")
    return Section(
        "Images", tuple(paragraphs), tuple(rows), tuple(lines), FEW, {"sizes.png": plot_sizes, **pictures}
    )


def _quantiles(values):
    return np.percentile(values, (0, 50, 100), axis=0, method="higher")


def _duplicates(description):
    rows, lines = [["examples of", "that stand in", "count", "%", "with another label"]], []
    for found in description.repeats:
        where = f"{found.of}, earlier" if found.of == found.split else found.of
        share = 100 * found.count / len(description.splits[found.split])
        rows.append([found.split, where, f"{found.count:,}", f"{share:.2f}", f"{found.relabelled:,}"])
        lines += [_pair(description, found, i, j) for i, j in found.pairs]
    paragraphs = [_what_is_a_duplicate(description)]
    leaks = sum(found.count for found in description.repeats if found.of == "train" != found.split)
    if leaks:
        paragraphs.append(
            f"{leaks:,} examples of the other splits stand in train too: there the metrics count what is "
            "learnt by heart. Where the labels differ, no model is right on both."
        )
    return Section("Duplicates", tuple(paragraphs), tuple(rows), tuple(lines))


def _what_is_a_duplicate(description):
    if description.lengths:
        return "Two texts count as one where they differ in nothing but case and white space."
    if description.sizes:
        return "Two images count as one where the bytes of their files are the same."
    return "Two examples count as one where all their values are the same."


def _pair(description, found, i, j):
    line = f"{_called(description, found.split, i)} = {_called(description, found.of, j)}"
    words = description.splits[found.split].features.get("text")
    return line if words is None else f"{line}: {_one_line(words[i], TEXT_WIDTH // 2)}"


def _called(description, split, i):
    return f"{split} {description.splits[split].origin(i)} ({description.classes_of(split, i)})"


def _examples(description):
    train = description.splits["train"]
    lines = []
    for c in _shown_classes(description):
        lines.append(f"{description.class_names[c]}:")
        for i in _examples_of(train, c, SHOWN_TEXTS):
            texts = [train.features[name][i] for name in ("text", "text_pair") if name in train.features]
            lines.append("  " + " | ".join(map(_one_line, texts)))
    return Section("Examples", ("Of train, the most frequent classes.",), lines=tuple(lines))


def _shown_classes(description):
    """Returns the ids of the most frequent classes, all of which have an example."""
    counts = description.counts["train"]
    return [c for c in _by_frequency(description)[:SHOWN_CLASSES] if counts[c]]


def _examples_of(split, class_id, count):
    """Returns the first indices of a class's examples."""
    own = split.labels[:, [class_id]] if split.multi_label else split.labels == class_id
    return own.nonzero()[0][:count]


def _one_line(words, width=TEXT_WIDTH):
    line = " ".join(words.split())
    return line if len(line) <= width else line[: width - 1] + "…"


def plot_classes(description, path):
    """Plots how many examples each class has in each split."""
    draw = _bars if len(description.class_names) <= NAMED else _curves
    draw(description, description.imbalance() > IMBALANCED, path)


def _bars(description, log, path):
    order = _by_frequency(description)
    n, height = len(order), 0.8 / len(description.splits)
    figure = Figure(figsize=(7, 1.4 + 0.26 * n))
    axis = figure.subplots()
    for i, (name, color) in enumerate(zip(description.splits, plots.COLORS, strict=False)):
        places = np.arange(n) - 0.4 + (i + 0.5) * height
        axis.barh(places, description.counts[name][order], height, color=color, label=name)
    axis.set_yticks(range(n), [description.class_names[i] for i in order], parse_math=False)
    axis.set_ylim(n - 0.4, -0.6)
    if log:
        axis.set_xscale("log")
        axis.set_xlim(left=0.7)  # shows a bar of one example
    _label_counts(axis.xaxis, log)
    _save(figure, [axis], path)


def _curves(description, log, path):
    """What `_bars` shows where there are too many classes to name."""
    order = _by_frequency(description)
    figure = Figure(figsize=(7, 4))
    axis = figure.subplots()
    for name, color in zip(description.splits, plots.COLORS, strict=False):
        counts = description.counts[name][order]
        axis.plot(np.arange(1, len(order) + 1), counts, color=color, label=name, linewidth=1)
    axis.set_xlabel("classes, by their training examples")
    if log:
        axis.set_yscale("log")
        axis.set_ylim(bottom=0.7)
    _label_counts(axis.yaxis, log)
    _save(figure, [axis], path)


def _label_counts(axis, log):
    axis.set_label_text("examples, log scale" if log else "examples")
    _label_numbers(axis)
    axis.grid(alpha=0.3)


def _label_numbers(axis):
    axis.set_major_formatter("{x:,.0f}")
    axis.set_minor_formatter("")  # a log axis would write powers there


def plot_lengths(description, path):
    """Plots the share of the texts up to each length."""
    marks = {"tokens": ("data.max_length", description.experiment.data.max_length)}
    _plot_shares(description.lengths, marks, path)


def plot_sizes(description, path):
    """Plots the share of the images up to each height and width."""
    panels = {
        name: {split: sizes[:, side] for split, sizes in description.sizes.items()}
        for side, name in enumerate(("height, pixels", "width, pixels"))
    }
    mark = ("data.image_size", description.experiment.data.image_size)
    _plot_shares(panels, dict.fromkeys(panels, mark), path)


def _plot_shares(panels, marks, path):
    figure = Figure(figsize=(4.2 * len(panels), 3.4))
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)
    for axis, (what, values) in zip(axes[0], panels.items(), strict=True):
        for (split, own), color in zip(values.items(), plots.COLORS, strict=False):
            axis.ecdf(own, color=color, label=split)
        if what in marks:
            name, place = marks[what]
            axis.axvline(place, color="black", linestyle=":", label=f"{name}={place}")
        longest, shortest = (edge([edge(part) for part in values.values()]) for edge in (max, min))
        if longest > 10 * max(shortest, 1):
            axis.set_xscale("log")
        _label_numbers(axis.xaxis)
        axis.yaxis.set_major_formatter("{x:.0%}")
        axis.set_xlabel(what)
        axis.grid(alpha=0.3)
    axes[0, 0].set_ylabel("share up to there")
    _save(figure, axes[0], path)


def plot_examples(description, path):
    """Shows a few training images of the most frequent classes as a model sees them."""
    train = description.splits["train"]
    rows = {c: _examples_of(train, c, SHOWN_IMAGES) for c in _shown_classes(description)}
    sides = _seen(description, np.concatenate(list(rows.values())))
    figure = Figure(figsize=(1 + 3.4 * len(sides), 0.4 + 0.85 * len(rows)))
    spaces = {"wspace": 0.05, "hspace": 0.05}
    axes = figure.subplots(len(rows), len(sides), squeeze=False, gridspec_kw=spaces)
    for column, (title, images) in enumerate(sides.items()):
        tiles = iter(images)
        for row, (c, places) in enumerate(rows.items()):
            axis = axes[row, column]
            axis.imshow(_strip([next(tiles) for _ in places]), cmap="gray", vmin=0.0, vmax=1.0)
            axis.set_axis_off()
            if not column:
                axis.text(
                    -0.02,
                    0.5,
                    description.class_names[c],
                    transform=axis.transAxes,
                    ha="right",
                    va="center",
                    parse_math=False,
                )
        axes[0, column].set_title(title, fontsize=10)
    figure.savefig(path, dpi=150, bbox_inches="tight")


def _seen(description, places):
    """Returns what a model sees -> images `[N, height, width, channels]` of training examples."""
    experiment, dataset = description.experiment, description.dataset
    features = {
        name: tf.constant(values)
        for name, values in description.splits["train"].select(places).features.items()
    }
    preprocess, augment = (
        preprocessing.preprocess_of(experiment, dataset),
        preprocessing.augment_of(experiment, dataset),
    )
    seen = {"as judged": preprocess(features) if preprocess else features}
    if augment:
        seeds = tf.stack(
            [tf.fill([len(places)], tf.cast(experiment.seed, tf.int64)), tf.constant(places)], axis=1
        )
        seen[f"as trained on, {experiment.data.augmentation}"] = augment(features, seeds)
    return {title: np.clip(batch["image"], 0.0, 1.0) for title, batch in seen.items()}


def _strip(images):
    """Returns images side by side, with white between them and where there are fewer than the others have."""
    height, width, channels = images[0].shape
    step = width + max(1, width // 32)
    strip = np.ones([height, SHOWN_IMAGES * step, channels])
    for i, image in enumerate(images):
        strip[:, i * step : i * step + width] = image
    return strip


def _save(figure, axes, path):
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    handles, labels = axes[-1].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncol=len(labels), frameon=False
    )
    figure.savefig(path, dpi=150, bbox_inches="tight")
