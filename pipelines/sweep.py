"""The grid of losses, interactions and seeds over one dataset and encoder."""

import contextlib
import dataclasses
import functools
import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rank4class.pipelines import config
from rank4class.pipelines.evaluation import evaluator
from rank4class.pipelines.evaluation.reliability import Calibrated
from rank4class.pipelines.reporting import sweep_report, tables
from rank4class.pipelines.storage.run_directory import check_folder
from rank4class.pipelines.training import parallel, rank_training

Tune = Mapping[str, Sequence[float]]
Choice = dict[str, float]  # tuned field -> its value
GRID_FLAGS = {"loss.name": "--losses", "interaction.name": "--interactions", "seed": "--seed"}


def parse_tune(
    texts: Iterable[str], base: config.Experiment, losses: Sequence[str], interactions: Sequence[str]
) -> dict[str, tuple[float, ...]]:
    """Parses the values of the flags `--tune`, each `FIELD=VALUE,VALUE,...`.

    Args:
      texts: the values of the flags.
      base, losses, interactions: see `run_grid`.

    Returns:
      Field -> its numbers.

    Raises:
      ValueError: a text has another form, or names a field that holds no number or that another text names.

    >>> texts = ["optimizer.learning_rate=0.003,0.01", "batch_size=32"]
    >>> parse_tune(texts, config.Experiment(), ["mse"], ["dot"])
    {'optimizer.learning_rate': (0.003, 0.01), 'batch_size': (32,)}
    """
    cells = build_cells(base, losses, interactions)
    tune: dict[str, tuple[float, ...]] = {}
    for text in texts:
        field, mark, numbers = text.partition("=")
        if not mark:
            raise ValueError(f"tune={text!r}: no values. Write --tune=FIELD=VALUE,VALUE.")
        if field in tune:
            raise ValueError(f"tune={text!r}: {field} has values already. Give all of them in one --tune.")
        cell = next((cell for cell in cells if config.has_field(cell, field)), base)
        try:
            tune[field] = tuple(config.parse_number(cell, field, number) for number in numbers.split(","))
        except ValueError as error:
            raise ValueError(f"tune={text!r}: {error}") from error
    return tune


def build_cells(
    base: config.Experiment, losses: Iterable[str], interactions: Sequence[str]
) -> list[config.Experiment]:
    """Returns the experiment of each combination of a loss and an interaction.

    Args:
      base, losses, interactions: see `run_grid`.

    Raises:
      ValueError: an unknown name, or a rank function for a loss that has none.
    """
    cells = []
    for title, interaction in itertools.product(losses, interactions):
        loss, mark, rank_fn = title.partition("@")
        cell = config.override(base, {"loss.name": loss, "interaction.name": interaction})
        if mark and not config.has_field(cell, "loss.rank_fn"):
            raise ValueError(
                f"losses={title}: this loss takes no rank function. Use {loss!r}, or a loss that takes one, "
                "such as 'approx_ndcg'."
            )
        cells.append(config.override(cell, {"loss.rank_fn": rank_fn}) if mark else cell)
    return cells


def ignored(base: config.Experiment, cell: config.Experiment) -> tuple[str, ...]:
    """Returns the changed fields of the base that the loss and the interaction of a cell do not have."""
    parts = {"loss": base.loss, "interaction": base.interaction}
    changed = [f"{kind}.{field}" for kind, part in parts.items() for field in part.changed()]
    return tuple(field for field in changed if not config.has_field(cell, field))


def run_grid(
    base: config.Experiment,
    root: str,
    *,
    losses: Sequence[str],
    interactions: Sequence[str],
    seeds: Sequence[int],
    tune: Tune | None = None,
    jobs: int = 1,
) -> list[sweep_report.Run]:
    """Trains every combination; finished runs are not repeated.

    Each cell, a loss with an interaction, is tuned by itself: it is trained once with each combination of
    values, with the first seed, and the combination with the best validation value of the monitored metric is
    used for all seeds. Values of a field that a cell does not have make no difference to it and are tried
    once. A cell keeps the changed fields of `base` that its loss and its interaction have; its runs list the
    others as `ignored`.

    Args:
      base: the experiment that the combinations change.
      root: folder of the grid; the folder of a run is named after its loss, interaction and seed.
      losses: names, with `@` and the name of a rank function for a loss that takes one.
      interactions: names.
      seeds: seeds of the runs.
      tune: field -> values to choose from.
      jobs: number of runs to train at once, each in a process of its own if there are several. Each process
        imports the main module of the program, as `multiprocessing` describes.

    Returns:
      The finished runs, by cell and seed.

    Raises:
      ValueError: a combination cannot run, two combinations are the same experiment, or no cell has a tuned
        field. Nothing has run then.
      FloatingPointError: a run diverged, or all runs to choose from did. Finished runs are kept.
      OSError, Interrupted: see `parallel.train_all`.
    """
    tune = tune or {}
    root = check_folder(root, "sweep")
    config.check_types(base)
    if jobs < 1:
        raise ValueError(f"jobs={jobs}: not positive. Choose a positive number.")
    _check_axes({"losses": losses, "interactions": interactions, "seeds": seeds})
    _check_axes({f"values of {field}": values for field, values in tune.items()})
    cells = build_cells(base, losses, interactions)
    _check_tunable(base, cells, tune)
    choices = [dict(zip(tune, values, strict=True)) for values in itertools.product(*tune.values())]
    for cell, seed, choice in itertools.product(cells, seeds, choices):
        config.check(_chosen(cell, {"seed": seed, **choice}))
    _check_different(cells)
    tried = [_different(cell, choices) for cell in cells]

    def plan(i: int, seed: int, choice: Choice, folder: str) -> _Planned:
        experiment = _chosen(cells[i], {"seed": seed, **choice})
        return _Planned(experiment, os.path.join(root, folder), i, choice, folder)

    def plan_tuning(i: int) -> list[_Planned]:
        names = [sweep_report.tuning_name(cell_name(cells[i]), choice) for choice in tried[i]]
        folders = [os.path.join(sweep_report.TUNING, name) for name in names]
        return [plan(i, seeds[0], *pair) for pair in zip(tried[i], folders, strict=True)]

    def plan_final(i: int, choice: Choice) -> list[_Planned]:
        return [plan(i, seed, choice, f"{cell_name(cells[i])}-seed{seed}") for seed in seeds]

    tuning = [plan_tuning(i) if len(choices) > 1 else [] for i, choices in enumerate(tried)]
    final = [[] if tuning[i] else plan_final(i, choices[0]) for i, choices in enumerate(tried)]
    waiting = [run for runs in zip(tuning, final, strict=True) for run in itertools.chain(*runs)]
    total = len(cells) * len(seeds) + sum(map(len, tuning))
    outcomes: dict[_Planned, parallel.Outcome] = {}
    with contextlib.closing(parallel.train_all(base, root, waiting, min(jobs, total))) as ended:
        for run, outcome in ended:
            outcomes[run] = outcome
            i, split = run.cell, "validation" if run in tuning[run.cell] else "test"
            diverged = isinstance(outcome, FloatingPointError)
            shown = str(outcome) if diverged else f"{split} {tables.one_line(outcome[split])}"
            print(f"[{len(outcomes):3d}/{total}] {run.folder}: {shown}", flush=True)
            if diverged and split == "test":
                raise outcome
            if not final[i] and all(run in outcomes for run in tuning[i]):
                final[i] = plan_final(i, _best_choice(tuning[i], outcomes, _applicable(cells[i], tune)))
                waiting[:0] = final[i]  # before the runs of other cells

    not_tuned = [[field for field in tune if not config.has_field(cell, field)] for cell in cells]
    return [
        sweep_report.Run(run.experiment, outcomes[run], run.path, (*ignored(base, cells[i]), *not_tuned[i]))
        for i, runs in enumerate(final)
        for run in runs
    ]


@dataclasses.dataclass(frozen=True, eq=False)
class _Planned(parallel.Run):
    """A run of a grid.

    Attributes:
      cell: number of its cell.
      choice: values of the tuned fields.
      folder: relative to that of the grid.
    """

    cell: int
    choice: Choice
    folder: str


def _best_choice(
    runs: Sequence[_Planned], outcomes: Mapping[_Planned, parallel.Outcome], tune: Tune
) -> Choice:
    """Returns the choice of the best validation value, the first of several; prints those at a boundary.

    Args:
      runs: the runs that tune a cell.
      outcomes: of the runs.
      tune: the tuned fields that the cell has.

    Raises:
      FloatingPointError: all runs diverged.
    """
    name, monitor = cell_name(runs[0].experiment), runs[0].experiment.monitor
    values = {
        run: outcome["validation"][monitor]
        for run in runs
        if not isinstance(outcome := outcomes[run], FloatingPointError)
    }
    if not values:
        raise FloatingPointError(f"{name} diverges with all values of {', '.join(tune)}. Try other values.")
    best = functools.reduce(
        lambda best, run: run if evaluator.better(monitor, values[run], values[best]) else best, values
    )
    for note in sweep_report.boundary_notes(best.experiment, tune):
        print(f"  {name}: {note}", flush=True)
    return best.choice


def evaluate_calibration(runs: Sequence[sweep_report.Run]) -> Calibrated | None:
    """Returns the reliability of the test scores of a grid's `best_run`, or None if it has no calibration."""
    best = sweep_report.best_run(runs)
    if "calibration" not in best.results["test"]:
        return None
    trained = rank_training.restore(best.path)
    return trained.evaluate(trained.load_task()).calibrated


def cell_name(experiment: config.Experiment) -> str:
    """Returns the name of an experiment's cell, with which the names of its folders begin."""
    return f"{experiment.loss.title}-{experiment.interaction.name}"


def check_overrides(
    fields: Iterable[str],
    base: config.Experiment,
    *,
    losses: Sequence[str],
    interactions: Sequence[str],
    tune: Tune,
) -> None:
    """Raises ValueError for a field set on the command line that has no effect on any run of a grid.

    Args:
      fields: dotted names.
      base, losses, interactions, tune: see `run_grid`.
    """
    cells = build_cells(base, losses, interactions)
    by_titles = all("@" in title for title in losses)
    for field in fields:
        flag = "--tune" if field in tune else GRID_FLAGS.get(field)
        flag = "--losses" if field == "loss.rank_fn" and by_titles else flag
        if flag:
            raise ValueError(f"config.{field}: {flag} of the grid sets this field. Leave one of the two out.")
        if not any(config.has_field(cell, field) for cell in cells):
            raise ValueError(f"config.{field}: no loss or interaction of this grid has it. Leave it out.")


def _chosen(cell: config.Experiment, changes: Mapping[str, Any]) -> config.Experiment:
    return config.override(cell, _applicable(cell, changes))


def _applicable(cell: config.Experiment, changes: Mapping[str, Any]) -> dict[str, Any]:
    return {field: value for field, value in changes.items() if config.has_field(cell, field)}


def _check_axes(axes: Mapping[str, Sequence]) -> None:
    for name, values in axes.items():
        repeated = [value for i, value in enumerate(values) if value in values[:i]]
        if repeated:
            raise ValueError(f"{name}={repeated[0]!r}: repeated, so its runs would count twice. Remove one.")
        if not values:
            raise ValueError(f"{name}=(): a grid needs at least one. Add one.")


def _check_tunable(base: config.Experiment, cells: Sequence[config.Experiment], tune: Tune) -> None:
    for field in tune:
        having = [cell for cell in cells if config.has_field(cell, field)]
        if not having:
            config.check_field(base, field)
            raise ValueError(f"tune={field}: no loss or interaction of this grid has it. Leave it out.")
        config.number_type(having[0], field)
        if field == "seed":
            raise ValueError("tune=seed: the seeds show the variation by chance. Choose another field.")
        section = field.partition(".")[0]
        if section == "data":
            raise ValueError(f"tune={field}: all runs of a grid share the data. Choose another field.")
        if section == "encoder" and base.encoder.frozen:
            raise ValueError(
                f"tune={field}: all runs of a grid share a frozen encoder. Choose another field."
            )


def _check_different(cells: Iterable[config.Experiment]) -> None:
    names = list(map(cell_name, cells))
    for name in names:
        if names.count(name) > 1:
            raise ValueError(
                f"{name}: the grid has this cell twice, so its runs would count twice. Remove one."
            )


def _different(cell: config.Experiment, choices: Iterable[Choice]) -> list[Choice]:
    """Returns the first choice for each of the experiments that the choices lead to."""
    experiments: list[config.Experiment] = []
    different = []
    for choice in choices:
        experiment = _chosen(cell, choice)
        if experiment not in experiments:
            experiments.append(experiment)
            different.append(choice)
    return different
