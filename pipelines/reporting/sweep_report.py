"""The report of a sweep: tables in the terminal and in Markdown."""

import dataclasses
import os
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from rank4class import losses
from rank4class.pipelines import config
from rank4class.pipelines.evaluation import statistics
from rank4class.pipelines.evaluation.reliability import Calibrated
from rank4class.pipelines.reporting import reliability_plots, search_report, sweep_plots, tables
from rank4class.pipelines.storage.run_directory import RunDirectory


@dataclasses.dataclass(frozen=True)
class Run:
    """A finished run of a grid.

    Attributes:
      experiment: its experiment.
      results: see `trainer.train`.
      path: its folder.
      ignored: names of the fields of the grid's config that its loss or its interaction does not have.
    """

    experiment: config.Experiment
    results: dict[str, Any]
    path: str | os.PathLike
    ignored: tuple[str, ...] = ()

    @property
    def cell(self) -> dict[str, str]:
        """The cell of the grid, which the runs of all seeds share."""
        return {"loss": self.experiment.loss.title, "interaction": self.experiment.interaction.name}

    def epochs(self, steps: int) -> float:
        """Converts a number of training steps to epochs."""
        return steps * self.experiment.batch_size / self.results["train_examples"]


def metrics_frame(runs: Sequence[Run]) -> pd.DataFrame:
    """Returns a row per run and test metric.

    Its columns are "loss", "interaction", "seed", "metric", "value", and "low" and "high", the interval over
    the examples; NaN if there is none.
    """
    rows = []
    for run in runs:
        test = run.results["test"]
        for metric in tables.metric_names(test):
            low, high = test["intervals"][metric] or (np.nan, np.nan)
            row = {"seed": run.experiment.seed, "metric": metric, "value": test[metric]}
            rows.append({**run.cell, **row, "low": low, "high": high})
    return pd.DataFrame(rows)


def calibration_frame(runs: Sequence[Run]) -> pd.DataFrame:
    """Returns the rows of `metrics_frame` for the figures of `calibration_table`, of calibrated runs only."""
    rows = []
    for run in runs:
        calibration = run.results["test"].get("calibration", {})
        for name in ("ece", "nll"):
            for when in ("before", "after") if calibration else ():
                low, high = calibration[when]["intervals"][name]
                row = {"seed": run.experiment.seed, "metric": f"{name} {when}"}
                rows.append({**run.cell, **row, "value": calibration[when][name], "low": low, "high": high})
    return pd.DataFrame(rows)


def best_run(runs: Sequence[Run]) -> Run:
    """Returns the run of the first seed of the cell with the best mean validation value of the monitor."""
    monitor = runs[0].experiment.monitor
    groups = [group for _, group in _cells(runs)]
    means = [np.mean([run.results["validation"][monitor] for run in group]) for group in groups]
    best = np.argmax(means) if losses.get_metric(monitor).higher_is_better else np.argmin(means)
    return groups[best][0]


def summarize_cells(metrics: pd.DataFrame) -> pd.DataFrame:
    """Returns a row per loss, interaction and metric, which are its index.

    Args:
      metrics: see `metrics_frame`.

    Returns:
      A table with the columns "mean" and "half_width" over the seeds, and "low" and "high". These are the
      interval over the seeds. For one seed, or if all seeds have the same value, "half_width" is NaN and they
      cover the intervals over the examples of all runs; NaN if a run has none.
    """

    def summarize(group):
        mean, half_width = statistics.mean_and_half_width(group["value"])
        interval = {"low": mean - half_width, "high": mean + half_width}
        if not half_width > 0.0:
            half_width = np.nan
            interval = {"low": group["low"].min(skipna=False), "high": group["high"].max(skipna=False)}
        return pd.Series({"mean": mean, "half_width": half_width, **interval})

    groups = metrics.groupby(["loss", "interaction", "metric"], sort=False)
    return groups.apply(summarize, include_groups=False)


def grid_table(runs: Sequence[Run]) -> list[list[str]]:
    """Returns the rows of a grid: loss, interaction, and each test metric's mean and interval.

    An interval over the examples is in brackets; see `summarize_cells`. The best mean of each metric of
    several rows has a star.
    """
    metrics = metrics_frame(runs)
    higher = {name: losses.get_metric(name).higher_is_better for name in metrics["metric"].unique()}
    return _table_of(metrics, higher, digits=2)


def calibration_table(runs: Sequence[Run]) -> list[list[str]]:
    """Returns the rows of `grid_table` for the calibration error in percent and the likelihood.

    The columns are "ece before", "ece after", "nll before" and "nll after" the calibration. Without
    calibrated runs there are no rows.
    """
    frame = calibration_frame(runs)
    return [] if frame.empty else _table_of(frame, dict.fromkeys(frame["metric"], False), digits=3)


def _table_of(frame, higher_is_better, digits):
    summary = summarize_cells(frame)
    cells = list(dict.fromkeys((loss, interaction) for loss, interaction, _ in summary.index))
    columns = [["loss", *(loss for loss, _ in cells)], ["interaction", *(name for _, name in cells)]]
    for metric, figures in summary.groupby("metric", sort=False):
        rounded = [round(mean, digits) for mean in figures["mean"]]
        best = max(rounded) if higher_is_better[metric] else min(rounded)
        stars = ["*" if len(cells) > 1 and mean == best else "" for mean in rounded]
        texts = (_format_figure(*pair, digits) for pair in zip(figures.itertuples(), stars, strict=True))
        columns.append([metric, *texts])
    return [list(row) for row in zip(*columns, strict=True)]


def _format_figure(figure, star, digits):
    if figure.half_width > 0.0:
        interval = f"± {figure.half_width:.{digits}f}"
    elif np.isnan(figure.low):
        interval = tables.format_interval(None)
    else:
        interval = f"[{figure.low:.{digits}f}, {figure.high:.{digits}f}]"
    return f"{figure.mean:.{digits}f}{star} {interval}"


def grid_text(runs: Sequence[Run]) -> str:
    """Returns `grid_table` as text for a terminal, below a line that explains its figures."""
    return f"{_explanation(runs)}:\n\n{tables.text_table(grid_table(runs))}"


def write_grid(
    runs: Sequence[Run],
    root: str | os.PathLike,
    search: dict[str, Any] | None = None,
    calibrated: Calibrated | None = None,
) -> str:
    """Writes `report.md` and its plots for a grid; returns the report's path.

    Args:
      runs: the runs of the grid.
      root: its folder.
      search: the search of the tuned values, see `search_report.search_blocks`; None if nothing was tuned.
      calibrated: the reliability of `best_run` on the test split; None draws no diagram.
    """
    first = runs[0]
    training, monitor = first.experiment, first.experiment.monitor
    frozen = " (frozen)" if training.encoder.frozen else ""
    session = RunDirectory(first.path).sessions()[-1]
    packages = ", ".join(f"{name} {version}" for name, version in session["packages"].items())
    examples = f"{first.results['train_examples']:,} training" + "".join(
        f", {first.results[split]['examples']:,} {split}" for split in ("validation", "test")
    )
    blocks = [
        f"# {training.data.name} with {training.encoder.name}{frozen}",
        f"{_explanation(runs)}. A star marks the best mean; where intervals overlap, the difference may be "
        "chance.",
        tables.markdown_table(grid_table(runs)),
        *_write_plots(runs, root),
        *_write_calibration(runs, root, calibrated),
        tables.markdown_table(training_table(runs, search["fields"] if search else None)),
    ]
    notes = [
        f"- Examples: {examples}.",
        f"- {training.optimizer.name.capitalize()}, batches of {training.batch_size}, {training.epochs:g} "
        f"epochs at most; the best checkpoint by validation {monitor}.",
        *_notes(runs),
        f"- Seeds {', '.join(map(str, _seeds(runs)))}; code {session['git'] or 'outside a git checkout'}; "
        f"{packages}.",
    ]
    path = os.path.join(root, "report.md")
    with open(path, "w", encoding="utf-8") as file:
        searched = search_report.search_blocks(search) if search else []
        file.write("\n\n".join([*blocks, "\n".join(notes), *searched]) + "\n")
    return path


def _write_plots(runs, root):
    """Writes the plots of a grid; returns the Markdown paragraphs that show them."""
    metrics = metrics_frame(runs)
    single, by_cutoff = sweep_plots.split_metrics(metrics["metric"].unique())
    summary, paragraphs = summarize_cells(metrics), []
    if single:
        sweep_plots.plot_metrics(metrics, summary, single, os.path.join(root, "metrics.png"))
        paragraphs.append("![Test metrics](metrics.png)")
    if by_cutoff:
        sweep_plots.plot_cutoffs(summary, by_cutoff, os.path.join(root, "cutoffs.png"))
        paragraphs.append("![Test metrics by cut-off](cutoffs.png)")
    curves = pd.DataFrame(
        {**run.cell, **evaluation, "seed": run.experiment.seed, "epochs": run.epochs(evaluation["step"])}
        for run in runs
        for evaluation in RunDirectory(run.path).history()
    )
    names = tables.metric_names(runs[0].results["validation"])
    monitor = runs[0].experiment.monitor
    sweep_plots.plot_curves(curves, names, monitor, os.path.join(root, "curves.png"))
    caption = "The curves are means over the seeds, the bands reach from the lowest seed to the highest."
    return [*paragraphs, "![Validation curves](curves.png)", caption]


def _write_calibration(runs, root, calibrated):
    """Writes the reliability diagram; returns the paragraphs on calibration, none without calibrated runs."""
    rows = calibration_table(runs)
    if not rows:
        return []
    paragraphs = [
        "Probabilities on the test set: expected calibration error (ece, percent) and negative "
        "log-likelihood (nll), before and after the calibration. Lower is better.",
        tables.markdown_table(rows),
    ]
    if calibrated is None:
        return paragraphs
    reliability_plots.save_diagram(calibrated, os.path.join(root, "reliability.png"))
    best = best_run(runs)
    caption = (
        f"The diagram is of {best.experiment.loss.title}-{best.experiment.interaction.name}, seed "
        f"{best.experiment.seed}: the cell with the best validation {best.experiment.monitor}."
    )
    return [*paragraphs, "![Reliability diagram](reliability.png)", caption]


def _seeds(runs):
    return sorted({run.experiment.seed for run in runs})


def _explanation(runs):
    """Returns a line on the figures of `grid_table` and their intervals."""
    seeds = _seeds(runs)
    if len(seeds) == 1:
        return "Test set, fractions in percent; one seed, with the 95% interval over the examples"
    return (
        f"Test set, fractions in percent; mean over {len(seeds)} seeds and its 95% interval (Student's t), "
        "or the interval over the examples in brackets if all seeds have the same value"
    )


def _notes(runs):
    """Returns the lines of a report on ignored fields."""
    return [
        f"- {loss}-{interaction} has no {', '.join(group[0].ignored)}: ignored."
        for (loss, interaction), group in _cells(runs)
        if group[0].ignored
    ]


def training_table(runs: Sequence[Run], tuned: Collection[str] | None = None) -> list[list[str]]:
    """Returns rows on the training of each cell: tuned values and epochs.

    The epochs are the smallest and the largest of the seeds.

    Args:
      runs: the runs of the grid.
      tuned: names of the tuned fields.
    """
    fields = tuple(tuned or ("optimizer.learning_rate",))
    rows = [["loss", "interaction", *fields, "best epoch", "epochs"]]
    for (loss, interaction), group in _cells(runs):
        values = config.values(group[0].experiment)
        epochs = (_span([run.epochs(run.results[key]) for run in group]) for key in ("best_step", "steps"))
        cells = (search_report.format_value(values[field]) if field in values else "-" for field in fields)
        rows.append([loss, interaction, *cells, *epochs])
    return rows


def _cells(runs: Sequence[Run]) -> Iterator[tuple[tuple[str, str], list[Run]]]:
    """Yields the loss and the interaction of each cell of a grid with its runs."""
    frame = pd.DataFrame([{**run.cell, "run": run} for run in runs])
    for cell, group in frame.groupby(["loss", "interaction"], sort=False):
        yield cell, group["run"].tolist()


def _span(values):
    low, high = (f"{value:.3g}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"
