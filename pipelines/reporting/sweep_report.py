"""The report of a sweep: tables in the terminal and in Markdown, and plots."""

import dataclasses
import glob
import itertools
import os

import numpy as np
from matplotlib.figure import Figure

from rank4class import losses
from rank4class.pipelines import config
from rank4class.pipelines.evaluation import evaluator, statistics
from rank4class.pipelines.reporting import plots, tables
from rank4class.pipelines.storage.run_directory import TUNING, RunDirectory


@dataclasses.dataclass(frozen=True)
class Run:
    """A finished run of a grid.

    Attributes:
      experiment: its `config.Experiment`.
      results: see `trainer.train`.
      path: its folder.
      ignored: names of the fields of the grid's config that its loss or its interaction does not take.
    """

    experiment: object
    results: dict
    path: str
    ignored: tuple = ()


def grid_table(runs):
    """Returns the rows of a grid: loss, interaction, and each test metric's mean and interval.

    The interval is that over the seeds. For one seed, or if all seeds have the same value, it is the interval
    over the examples, in brackets. The best mean of each metric of several rows carries a star.
    """
    cells = _cells(runs)
    names = tables.metrics(runs[0].results["test"])
    means = {
        cell: {name: statistics.mean_and_half_width(_test_values(group, name)) for name in names}
        for cell, group in cells.items()
    }
    best = {name: _best_of(name)(round(mean[name][0], 2) for mean in means.values()) for name in names}
    rows = [["loss", "interaction", *names]]
    for (loss, interaction), mean in means.items():
        figures = []
        for name in names:
            value, half = mean[name]
            star = "*" if len(cells) > 1 and round(value, 2) == best[name] else ""
            interval = (
                f"± {half:.2f}"
                if half > 0.0
                else tables.brackets(_examples_interval(cells[loss, interaction], name))
            )
            figures.append(f"{value:.2f}{star} {interval}")
        rows.append([loss, interaction, *figures])
    return rows


def _test_values(runs, name):
    return [run.results["test"][name] for run in runs]


def _examples_interval(runs, name):
    """Returns the interval over the examples that covers the interval of each run; None if one has none."""
    intervals = [run.results["test"]["intervals"][name] for run in runs]
    if None in intervals:
        return None
    lows, highs = zip(*intervals, strict=True)
    return min(lows), max(highs)


def _mean_and_interval(runs, name):
    """Returns a test metric's mean and the ends of its interval, NaN if it has none; see `grid_table`."""
    mean, half = statistics.mean_and_half_width(_test_values(runs, name))
    if half > 0.0:
        return mean, mean - half, mean + half
    return mean, *(_examples_interval(runs, name) or (np.nan, np.nan))


def grid_text(runs):
    """Returns `grid_table` as text for a terminal, below a line that explains its figures."""
    return f"{_explanation(runs)}:\n\n{tables.text_table(grid_table(runs))}"


def tuning_name(cell, choice):
    """Returns the name of the folder of a run that tries a cell with a choice, field -> value.

    >>> tuning_name("mse-dot", {"optimizer.learning_rate": 0.01, "batch_size": 8})
    'mse-dot-optimizer.learning_rate=0.01,batch_size=8'
    """
    return f"{cell}-" + ",".join(f"{field}={value!r}" for field, value in choice.items())


def write_grid(runs, root, tune=None):
    """Writes `report.md` and its plots for a grid; returns the report's path.

    Args:
      runs: the grid's `Run`s.
      root: its folder.
      tune: tuned field -> its values.
    """
    tune = tune or {}
    plots = []
    alone, by_cutoff = _families(tables.metrics(runs[0].results["test"]))
    if alone:
        plots += ["![Test metrics](metrics.png)", ""]
        plot_metrics(runs, alone, os.path.join(root, "metrics.png"))
    if by_cutoff:
        plots += ["![Test metrics by cut-off](cutoffs.png)", ""]
        plot_cutoffs(runs, by_cutoff, os.path.join(root, "cutoffs.png"))
    plot_curves(runs, os.path.join(root, "curves.png"))
    first = runs[0]
    seeds = _seeds(runs)
    counts = f"{first.results['train_examples']:,} training"
    for split in ("validation", "test"):
        counts += f", {first.results[split]['examples']:,} {split}"
    session = RunDirectory(first.path).sessions()[-1]
    packages = ", ".join(f"{name} {version}" for name, version in session["packages"].items())
    code = session["git"] or "outside a git checkout"
    lines = [
        f"# {first.experiment.data.name} with {first.experiment.encoder.name}"
        + (" (frozen)" if first.experiment.encoder.frozen else ""),
        "",
        f"{_explanation(runs)}. A star marks the best mean; where intervals overlap, the difference may be "
        "chance.",
        "",
        *tables.markdown_table(grid_table(runs)),
        "",
        *plots,
        "![Validation curves](curves.png)",
        "",
        "The curves are means over the seeds, the bands reach from the lowest seed to the highest.",
        "",
        *tables.markdown_table(training_table(runs, root, tune)),
        "",
        f"- Examples: {counts}.",
        f"- {first.experiment.optimizer.name.capitalize()}, batches of {first.experiment.batch_size}, "
        f"{first.experiment.epochs:g} epochs at most; the best checkpoint"
        f"{' and values of what was tuned' if tune else ''} by validation {first.experiment.monitor}.",
        *_notes(runs, tune),
        f"- Seeds {', '.join(map(str, seeds))}; code {code}; {packages}.",
        "",
    ]
    path = os.path.join(root, "report.md")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines))
    return path


def _seeds(runs):
    return sorted({run.experiment.seed for run in runs})


def _explanation(runs):
    """Returns a line on the figures of `grid_table` and their intervals."""
    seeds = _seeds(runs)
    if len(seeds) == 1:
        return "Test set, shares in percent; one seed, with the 95% interval over the examples"
    return (
        f"Test set, shares in percent; mean over {len(seeds)} seeds and its 95% interval (Student's t), or "
        "the interval over the examples in brackets if all seeds have the same value"
    )


def _notes(runs, tune):
    """Returns the lines of a report on the choice of tuned values and on ignored fields."""
    lines = []
    tuned = [field for field, values in tune.items() if len(values) > 1]
    if tuned:
        lines.append(f"- Tuned on the first seed alone ({runs[0].experiment.seed}): {', '.join(tuned)}.")
    for (loss, interaction), group in _cells(runs).items():
        lines += [f"- {loss}-{interaction}: {note}." for note in boundary_notes(group[0].experiment, tune)]
        if group[0].ignored:
            lines.append(f"- {loss}-{interaction} has no {', '.join(group[0].ignored)}: ignored.")
    return lines


def boundary_notes(experiment, tune):
    """Returns a sentence for each tuned field whose chosen value is the lowest or the highest that was tried.

    Args:
      experiment: the `config.Experiment` with the chosen values.
      tune: field -> values.
    """
    notes = []
    for field, values in tune.items():
        value = config.values(experiment).get(field)
        if len(values) > 1 and value == min(values) and value:  # no value is lower than 0
            notes.append(f"{field}={value:g} is the lowest value tried; try lower values")
        if len(values) > 1 and value == max(values):
            notes.append(f"{field}={value:g} is the highest value tried; try higher values")
    return notes


FEW_CUTOFFS = 2  # of one metric, which are plotted as metrics of their own


def _families(names):
    """Returns the metrics that are plotted alone, and those of many cut-offs: name -> cut-offs.

    >>> _families(["mrr", "ndcg@1", "ndcg@5", "ndcg@10", "map@5"])
    (['mrr', 'map@5'], {'ndcg': [1, 5, 10]})
    """
    cutoffs = {}
    for name in names:
        base, mark, cutoff = name.partition("@")
        if mark:
            cutoffs.setdefault(base, []).append(int(cutoff))
    by_cutoff = {base: sorted(own) for base, own in cutoffs.items() if len(own) > FEW_CUTOFFS}
    return [name for name in names if name.partition("@")[0] not in by_cutoff], by_cutoff


def training_table(runs, root, tune=None):
    """Returns the rows of how a grid was trained: what was tuned, the best epochs, and what was tried.

    A cell's best epochs are those of its first and last seed by them. What was tried is each combination of
    values, in the order of the fields, with the validation value of the monitored metric.
    """
    monitor = runs[0].experiment.monitor
    fields = tuple(tune or ("optimizer.learning_rate",))
    rows = [["loss", "interaction", *fields, "best epoch", "epochs", f"tried: validation {monitor}"]]
    for (loss, interaction), group in _cells(runs).items():
        experiment = group[0].experiment
        in_epochs = experiment.batch_size / group[0].results["train_examples"]
        best, trained = (
            _span([run.results[key] * in_epochs for run in group]) for key in ("best_step", "steps")
        )
        tried = _tried(root, f"{loss}-{interaction}", fields, monitor)
        values = (config.values(experiment).get(field) for field in fields)
        rows.append(
            [
                loss,
                interaction,
                *("-" if value is None else f"{value:g}" for value in values),
                best,
                trained,
                ", ".join(tried) or "-",
            ]
        )
    return rows


def _span(values):
    low, high = (f"{value:.3g}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def _tried(root, cell, fields, monitor):
    found = {}
    for path in glob.glob(glob.escape(os.path.join(root, TUNING, f"{cell}-")) + "*"):
        choice = dict(part.split("=") for part in os.path.basename(path).removeprefix(f"{cell}-").split(","))
        results = RunDirectory(path).results()
        if tuple(choice) == fields and results:
            found[tuple(map(float, choice.values()))] = results["validation"][monitor]
    return [f"{' '.join(f'{value:g}' for value in values)}: {found[values]:.2f}" for values in sorted(found)]


def plot_metrics(runs, names, path):
    """Plots some of every cell's test metrics with their intervals, one panel a metric."""
    cells = _cells(runs)
    loss_names = list(dict.fromkeys(loss for loss, _ in cells))
    interactions = list(dict.fromkeys(interaction for _, interaction in cells))
    figure = Figure(figsize=(4.2 * len(names), 1.2 + 0.75 * len(loss_names)))
    axes = figure.subplots(1, len(names), sharey=True, squeeze=False)
    for axis, name in zip(axes[0], names, strict=True):
        for i, interaction in enumerate(interactions):
            offset = (i - (len(interactions) - 1) / 2) * 0.2
            for j, loss in enumerate(loss_names):
                group = cells[loss, interaction]
                values = [run.results["test"][name] for run in group]
                mean, low, high = _mean_and_interval(group, name)
                place, color = j + offset, plots.COLORS[i % len(plots.COLORS)]
                axis.scatter(values, [place] * len(values), s=9, color=color, alpha=0.35, linewidths=0)
                axis.errorbar(
                    mean,
                    place,
                    xerr=_error_bar(mean, low, high, _highest(name)),
                    fmt="o",
                    ms=6,
                    color=color,
                    capsize=3,
                    label=interaction if j == 0 else None,
                )
        direction = "higher" if _best_of(name) is max else "lower"
        axis.set_title(f"{evaluator.metric_heading(name)}, {direction} is better", fontsize=10)
        axis.set_yticks(range(len(loss_names)), loss_names)
        axis.grid(axis="x", alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0, 0].invert_yaxis()
    _legend_below(figure, axes[0, 0])
    figure.savefig(path, dpi=150, bbox_inches="tight")


def _error_bar(mean, low, high, highest):
    """Returns how far an interval goes down and up, of shape `[2, 1]`; a percentage stays one."""
    ends = np.clip([low, high], 0.0, highest)
    return np.nan_to_num(np.abs(ends - mean))[:, None]


def plot_cutoffs(runs, cutoffs, path):
    """Plots test metrics over their cut-offs with their intervals, a line a cell, one panel a metric.

    Args:
      runs: of the grid.
      cutoffs: name -> the metric's cut-offs.
      path: of the file.
    """
    cells = _cells(runs)
    several = len({interaction for _, interaction in cells}) > 1
    figure = Figure(figsize=(7.0 * len(cutoffs), 4.5))
    axes = figure.subplots(1, len(cutoffs), squeeze=False)[0]
    for axis, (base, own) in zip(axes, cutoffs.items(), strict=True):
        names = [f"{base}@{k}" for k in own]
        for i, ((loss, interaction), group) in enumerate(cells.items()):
            mean, low, high = np.array([_mean_and_interval(group, name) for name in names]).T
            bars = [_error_bar(*each, _highest(names[0]))[:, 0] for each in zip(mean, low, high, strict=True)]
            axis.errorbar(
                np.array(own) + 0.5 * ((i + 0.5) / len(cells) - 0.5),  # side by side
                mean,
                yerr=np.transpose(bars),
                marker="o",
                ms=4,
                color=plots.COLORS[i % len(plots.COLORS)],
                capsize=2,
                elinewidth=0.8,
                label=f"{loss}, {interaction}" if several else loss,
            )
        direction = "higher" if _best_of(names[0]) is max else "lower"
        title = evaluator.metric_heading(names[0]).replace(f"@{own[0]}", "@K")
        axis.set_title(f"{title}, {direction} is better", fontsize=10)
        axis.set_xlabel("K")
        axis.set_xticks(own)
        axis.grid(axis="y", alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    _legend_below(figure, axes[0])
    figure.savefig(path, dpi=150, bbox_inches="tight")


def plot_curves(runs, path):
    """Plots the validation metrics over the epochs, mean and range of the seeds: a row a metric, a column an
    interaction. Of a metric's many cut-offs it shows the monitored one, or the last."""
    cells = _cells(runs)
    loss_names = list(dict.fromkeys(loss for loss, _ in cells))
    interactions = list(dict.fromkeys(interaction for _, interaction in cells))
    alone, by_cutoff = _families(tables.metrics(runs[0].results["validation"]))
    monitor = runs[0].experiment.monitor
    shown = (
        monitor if monitor.partition("@")[0] == base else f"{base}@{own[-1]}"
        for base, own in by_cutoff.items()
    )
    names = [*alone, *shown]
    figure = Figure(figsize=(4.2 * len(interactions), 0.4 + 3.0 * len(names)))
    axes = figure.subplots(len(names), len(interactions), sharex="col", sharey="row", squeeze=False)
    for (i, interaction), (j, loss) in itertools.product(enumerate(interactions), enumerate(loss_names)):
        group = cells[loss, interaction]
        histories = [RunDirectory(run.path).history() for run in group]
        length = min(map(len, histories))  # early stopping ends some seeds before others
        scale = group[0].experiment.batch_size / group[0].results["train_examples"]
        epochs = [line["step"] * scale for line in histories[0][:length]]
        color = plots.COLORS[j % len(plots.COLORS)]
        for axis, name in zip(axes[:, i], names, strict=True):
            values = np.array([[line[name] for line in history[:length]] for history in histories])
            axis.plot(epochs, values.mean(axis=0), color=color, label=loss)
            axis.fill_between(
                epochs, values.min(axis=0), values.max(axis=0), color=color, alpha=0.15, linewidth=0
            )
    for axis in axes.flat:
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    for axis, interaction in zip(axes[0], interactions, strict=True):
        axis.set_title(interaction, fontsize=10)
    for axis in axes[-1]:
        axis.set_xlabel("epochs")
    for axis, name in zip(axes[:, 0], names, strict=True):
        axis.set_ylabel(f"validation {evaluator.metric_heading(name)}")
    _legend_below(figure, axes[0, 0])
    figure.savefig(path, dpi=150, bbox_inches="tight")


def _highest(metric):
    return 100.0 if losses.get_metric(metric).percent else np.inf


def _best_of(metric):
    return max if losses.get_metric(metric).higher_is_better else min


def _cells(runs):
    cells = {}
    for run in runs:
        cells.setdefault((run.experiment.loss.title, run.experiment.interaction.name), []).append(run)
    return cells


def _legend_below(figure, axis):
    handles, labels = axis.get_legend_handles_labels()
    figure.tight_layout()
    figure.legend(
        handles, labels, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncol=len(labels), frameon=False
    )
