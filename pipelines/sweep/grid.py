"""The grid of losses, interactions and seeds over one dataset and encoder."""

import concurrent.futures
import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rank4class import arguments
from rank4class.pipelines import config
from rank4class.pipelines.reporting import plots
from rank4class.pipelines.storage.run_directory import check_folder
from rank4class.pipelines.sweep import parallel, space
from rank4class.pipelines.sweep.parallel import GridRun, cell_name
from rank4class.pipelines.sweep.search import Search
from rank4class.pipelines.task_data import checks

GRID_FLAGS = {"loss.name": "--losses", "interaction.name": "--interactions", "seed": "--seed"}
FIRST_TUNING_SEED = 10_000
_NOT_TUNABLE = {
    **{field: f"{flag} of the grid sets this field" for field, flag in GRID_FLAGS.items()},
    "loss.rank_fn": "--losses=LOSS@RANK_FN of the grid sets this field",
    "seed": "the seeds show the variation by chance",
    "monitor": "different metrics cannot be compared",
}


def parse_values(
    flag: str,
    texts: Iterable[str],
    base: config.Experiment,
    losses: Sequence[str],
    interactions: Sequence[str],
    vary: space.Tune | None = None,
) -> dict[str, space.Values]:
    """Returns field -> values of a flag's texts, each `FIELD=VALUE,VALUE,...` or `FIELD=LOW:HIGH`."""
    cells = build_cells(base, losses, interactions, vary)
    pairs = [text.partition("=") for text in texts]
    names = {field: values.split(",") for field, _, values in pairs if space.is_name(field)}
    variants = [variant for cell in cells for variant in space.variants(cell, names)]
    tune: dict[str, space.Values] = {}
    for text, (field, mark, values) in zip(texts, pairs, strict=True):
        if not mark:
            raise ValueError(f"{flag}={text!r}: no values. Write --{flag}=FIELD=VALUE,VALUE.")
        if field in tune:
            raise ValueError(f"{flag}={text!r}: {field} has values already. Give all in one --{flag}.")
        try:
            having = next((cell for cell in variants if config.has_field(cell, field)), base)
            tune[field] = space.parse(having, field, values)
        except ValueError as error:
            raise ValueError(f"{flag}={text!r}: {error}") from error
    return tune


def build_cells(
    base: config.Experiment,
    losses: Iterable[str],
    interactions: Sequence[str],
    vary: space.Tune | None = None,
) -> list[config.Experiment]:
    """Returns the experiment of each combination of a loss, an interaction and values of varied fields."""
    cells = []
    for title, interaction in itertools.product(losses, interactions):
        loss, mark, rank_fn = title.partition("@")
        names = {"loss.name": loss, "interaction.name": interaction}
        cell = config.override(base, {**names, "loss.rank_fn": rank_fn} if mark else names)
        cells += [space.apply(cell, choice) for choice in space.combinations(cell, vary or {})]
    return cells


def ignored(
    base: config.Experiment, experiment: config.Experiment, tune: Iterable[str] = ()
) -> tuple[str, ...]:
    """Returns the changed fields of the base and the tuned ones that an experiment does not have."""
    fields = dict.fromkeys([*config.changed_fields(base), *tune])
    return tuple(field for field in fields if not config.has_field(experiment, field))


def run_grid(
    base: config.Experiment,
    root: str,
    *,
    losses: Sequence[str],
    interactions: Sequence[str],
    seeds: Sequence[int],
    vary: space.Tune | None = None,
    tune: space.Tune | None = None,
    trials: int | None = None,
    tuning_seeds: int = 3,
    jobs: int = 1,
    executor: concurrent.futures.Executor | None = None,
    pictures: bool = False,
) -> list[GridRun]:
    """Trains every combination, and returns the finished runs by cell and seed; see the guide on tuning.

    Args:
      base: the experiment that the combinations change. The runs of a cell, a loss with an interaction and
        values of varied fields, list its changed fields that the cell lacks as `ignored`.
      root: folder of the grid. Finished runs there are not repeated.
      losses: names, with `@` and the name of a rank function for a loss that takes one.
      vary: field -> values, each of which makes a cell; a loss or interaction without it has one cell.
      tune: field -> values to choose from for each cell, or a `space.Range`; see `search.Search`.
      trials, tuning_seeds, jobs, pictures: see the flags of `rank4class sweep`.
      executor: trains the runs. None trains in this process with one job, and in spawned processes with more,
        which import the main module of the program, as `multiprocessing` describes.

    Raises:
      ValueError: a combination cannot run, two are the same experiment, or no cell has a tuned field: nothing
        has run then. Or the data have changed since an earlier run of the folder.
      FloatingPointError: a run diverged, or all trials of a cell did.
      OSError, Interrupted: see `parallel.Pool.train`.
    """
    root = check_folder(root, "sweep")
    config.check_types(base)
    arguments.check_positive(jobs=jobs, tuning_seeds=tuning_seeds, trials=trials)
    tune = dict(tune or {})
    vary = dict(vary or {})
    _check_values("vary", base, build_cells(base, losses, interactions), vary, "List values.")
    cells = build_cells(base, losses, interactions, vary)
    _check_values("tune", base, cells, tune, "Add --trials=N, or list values." if trials is None else None)
    if trials is not None and not tune:
        raise ValueError(f"trials={trials}: nothing is tuned. Add --tune, or leave it out.")
    if both := tune.keys() & vary.keys():
        raise ValueError(f"tune={min(both)}: --vary sets this field. Leave one of the two out.")
    lists = {
        f"values of {field}": each for field, each in {**vary, **tune}.items() if isinstance(each, Sequence)
    }
    axes: dict[str, Sequence] = {"losses": losses, "interactions": interactions, "seeds": seeds, **lists}
    for name, values in {**axes, "cells": [cell_name(cell, vary) for cell in cells]}.items():
        if repeated := [value for i, value in enumerate(values) if value in values[:i]]:
            raise ValueError(f"{name}={repeated[0]!r}: repeated, so its runs would count twice. Remove one.")
        if not values:
            raise ValueError(f"{name}=(): a grid needs at least one. Add one.")
    for cell in cells:
        for choice in space.combinations(cell, tune):
            checks.check(space.apply(cell, choice))
    unseen = range(FIRST_TUNING_SEED, FIRST_TUNING_SEED + tuning_seeds)
    for seed in seeds:
        arguments.check_seed(seed)
        if seed in unseen and any(len(space.combinations(cell, tune)) > 1 for cell in cells):
            raise ValueError(
                f"seed={seed}: the search trains with the seeds {unseen[0]} to {unseen[-1]}. Choose another."
            )
    named = {cell_name(cell, vary): cell for cell in cells}
    search = Search(named, tune, root, seeds=unseen, num_trials=trials)
    with parallel.start(root, jobs, executor) as pool:
        choices = search.run(pool)
        runs = []
        for (name, cell), seed in itertools.product(named.items(), seeds):
            experiment = space.apply(cell, {**choices[name], "seed": seed})
            path = os.path.join(root, f"{name}-seed{seed}")
            runs.append(GridRun(experiment, path, ignored(base, experiment, [*vary, *tune]), tuple(vary)))
            parallel.stored_results(runs[-1])  # raises before the first run is trained
        draw = plots.draw_evaluation if pictures else None
        for ended, (run, outcome) in enumerate(pool.train(runs, draw), 1):
            pool.report(ended, len(runs), run, outcome, "test")
            if isinstance(outcome, Exception):
                raise outcome
            run.results = outcome
    return runs


def check_overrides(
    fields: Mapping[str, Any],
    base: config.Experiment,
    *,
    losses: Sequence[str],
    interactions: Sequence[str],
    tune: space.Tune,
    vary: space.Tune | None = None,
) -> None:
    """Raises ValueError for a field set on the command line that has no effect on some runs of a grid."""
    cells = build_cells(base, losses, interactions, vary)
    by_titles = all("@" in title for title in losses)
    for field, value in fields.items():
        flag = "--tune" if field in tune else "--vary" if field in (vary or {}) else GRID_FLAGS.get(field)
        flag = "--losses" if field == "loss.rank_fn" and by_titles else flag
        if flag:
            raise ValueError(f"config.{field}: {flag} of the grid sets this field. Leave one of the two out.")
        alternative = {"epochs": "steps", "steps": "epochs"}.get(field)  # a training uses one of the two
        if alternative in {**tune, **(vary or {})}:
            flag = "--tune" if alternative in tune else "--vary"
            raise ValueError(f"config.{field}: {flag} sets {alternative}. Leave one of the two out.")
        if not any(config.has_field(cell, field) for cell in cells):
            raise ValueError(f"config.{field}: no loss or interaction of this grid has it. Leave it out.")
        swapped = field.startswith(("loss.", "interaction.")) and field != "loss.rank_fn"
        if swapped and any(config.values(cell).get(field, value) != value for cell in cells):
            raise ValueError(
                f"config.{field}={value}: the default of one part, which does not reach others. Use --vary."
            )


def _check_values(
    flag: str,
    base: config.Experiment,
    cells: Sequence[config.Experiment],
    fields: space.Tune,
    without_range: str | None,
) -> None:
    """Raises ValueError for a field whose values a grid cannot compare; `without_range` refuses ranges."""
    variants = [variant for cell in cells for variant in space.variants(cell, fields)]
    for field, values in fields.items():
        is_of_data = field.startswith(("data.", "sets."))
        reason = "all runs of a grid share the data" if is_of_data else _NOT_TUNABLE.get(field)
        if reason:
            raise ValueError(f"{flag}={field}: {reason}. Choose another field.")
        if not any(config.has_field(variant, field) for variant in variants):
            config.check_field(base, field)
            raise ValueError(f"{flag}={field}: no loss or interaction of this grid has it. Leave it out.")
        if without_range and isinstance(values, space.Range):
            raise ValueError(f"{flag}={field}={values}: a range needs a number of trials. {without_range}")
