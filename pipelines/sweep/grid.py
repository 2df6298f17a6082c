"""The grid of losses, interactions and seeds over one dataset and encoder."""

import concurrent.futures
import itertools
import os
from collections.abc import Iterable, Mapping, Sequence

from rank4class import arguments
from rank4class.pipelines import config
from rank4class.pipelines.reporting import evaluation_pictures
from rank4class.pipelines.storage import files
from rank4class.pipelines.storage.run_directory import check_folder
from rank4class.pipelines.sweep import parallel, search_report, space
from rank4class.pipelines.sweep.grid_run import GridRun, cell_name
from rank4class.pipelines.task import checks
from rank4class.pipelines.training.trainable_rank_model import Draw

GRID_FLAGS = {"loss.name": "--losses", "interaction.name": "--interactions", "seed": "--seed"}
FIRST_TUNING_SEED = 10_000
_NOT_TUNABLE = {
    **{field: f"{flag} of the grid sets this field" for field, flag in GRID_FLAGS.items()},
    "loss.rank_fn": "--losses=LOSS@RANK_FN of the grid sets this field",
    "seed": "the seeds show the variation by chance",
    "monitor": "different metrics cannot be compared",
}


def parse_tune(
    texts: Iterable[str], base: config.Experiment, losses: Sequence[str], interactions: Sequence[str]
) -> dict[str, space.Values]:
    """Returns field -> values of the flags `--tune`, each `FIELD=VALUE,VALUE,...` or `FIELD=LOW:HIGH`.

    >>> texts = ["optimizer.learning_rate=0.003,0.01", "optimizer.decay=none,cosine"]
    >>> parse_tune(texts, config.Experiment(), ["mse"], ["dot"])
    {'optimizer.learning_rate': (0.003, 0.01), 'optimizer.decay': ('none', 'cosine')}
    """
    cells = build_cells(base, losses, interactions)
    pairs = [text.partition("=") for text in texts]
    names = {field: values.split(",") for field, _, values in pairs if space.is_name(field)}
    variants = [variant for cell in cells for variant in space.variants(cell, names)]
    tune: dict[str, space.Values] = {}
    for text, (field, mark, values) in zip(texts, pairs, strict=True):
        if not mark:
            raise ValueError(f"tune={text!r}: no values. Write --tune=FIELD=VALUE,VALUE.")
        if field in tune:
            raise ValueError(f"tune={text!r}: {field} has values already. Give all of them in one --tune.")
        try:
            having = next((cell for cell in variants if config.has_field(cell, field)), base)
            tune[field] = space.parse(having, field, values)
        except ValueError as error:
            raise ValueError(f"tune={text!r}: {error}") from error
    return tune


def build_cells(
    base: config.Experiment, losses: Iterable[str], interactions: Sequence[str]
) -> list[config.Experiment]:
    """Returns the experiment of each combination of a loss and an interaction."""
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
    tune: space.Tune | None = None,
    trials: int | None = None,
    tuning_seeds: int = 3,
    widen: int = 3,
    jobs: int = 1,
    executor: concurrent.futures.Executor | None = None,
    pictures: bool = False,
) -> list[GridRun]:
    """Trains every combination; finished runs are not repeated.

    Each cell, a loss with an interaction, is tuned by itself; see `search.Search`. The best choice of values
    is then trained with all seeds, all unseen by the search. A cell has the changed fields of `base` and the
    tuned ones that its loss and its interaction have; its runs list the others as `ignored`.

    Args:
      base: the experiment that the combinations change.
      root: folder of the grid; the folder of a run is named after its loss, interaction and seed.
      losses: names, with `@` and the name of a rank function for a loss that takes one.
      interactions, seeds: of the runs.
      tune: field -> values to choose from, or a `space.Range`. The search is written to `search.json`.
      trials: number of choices that are tried for each cell; None tries all combinations of lists.
      tuning_seeds: number of runs of each trial, with the seeds from `FIRST_TUNING_SEED` on.
      widen: number of times that lists with the best value at a boundary are widened, at most.
      jobs: number of runs to train at once.
      executor: trains the runs. None trains in this process with one job, and in spawned processes with more,
        which import the main module of the program, as `multiprocessing` describes.
      pictures: whether to draw the evaluations of each final run for TensorBoard.

    Returns:
      The finished runs, by cell and seed.

    Raises:
      ValueError: a combination cannot run, two are the same experiment, or no cell has a tuned field: nothing
        has run then. Or the data have changed since an earlier run of the folder.
      FloatingPointError: a run diverged, or all trials of a cell did. Finished runs are kept.
      OSError, Interrupted: see `parallel.Pool.train`.
    """
    root = check_folder(root, "sweep")
    config.check_types(base)
    arguments.check_positive(jobs=jobs, tuning_seeds=tuning_seeds, trials=trials)
    arguments.check_at_least(0, widen=widen)
    tune = dict(tune or {})
    cells = build_cells(base, losses, interactions)
    lists = {f"values of {field}": values for field, values in tune.items() if isinstance(values, Sequence)}
    axes = {"losses": losses, "interactions": interactions, "seeds": seeds, **lists}
    _check_axes({**axes, "cells": list(map(cell_name, cells))})
    _check_tune(base, cells, tune, trials)
    combinations = [space.combinations(cell, tune) for cell in cells]
    for cell, choices in zip(cells, combinations, strict=True):
        for choice in choices:
            checks.check(space.apply(cell, choice))
    is_searched = any(len(choices) > 1 for choices in combinations)
    unseen = range(FIRST_TUNING_SEED, FIRST_TUNING_SEED + tuning_seeds)
    for seed in seeds:
        arguments.check_seed(seed)
        if is_searched and seed in unseen:
            raise ValueError(
                f"seed={seed}: the search trains with the seeds {unseen[0]} to {unseen[-1]}. Choose another."
            )
    named = {cell_name(cell): cell for cell in cells}
    chosen = {name: choices[0] for name, choices in zip(named, combinations, strict=True)}
    with parallel.start(base, root, jobs, executor) as pool:
        if is_searched:
            from rank4class.pipelines.sweep.search import Search  # imports Optuna

            search = Search(named, tune, root, seeds=unseen, num_trials=trials, widen=widen)
            search.run(pool)
            chosen = search.choices()
        else:
            files.remove([os.path.join(root, search_report.SEARCH)])  # of an earlier sweep
        runs = []
        for (name, cell), seed in itertools.product(named.items(), seeds):
            experiment = space.apply(cell, {**chosen[name], "seed": seed})
            path = os.path.join(root, f"{name}-seed{seed}")
            runs.append(GridRun(experiment, path, ignored(base, experiment, tune)))
        _train(pool, runs, evaluation_pictures.draw if pictures else None)
    return runs


def _train(pool: parallel.Pool, runs: Sequence[GridRun], draw: Draw | None) -> None:
    """Trains the final runs of a grid and sets their results."""
    for run in runs:
        parallel.stored_results(run)  # raises before the first run is trained
    waiting = iter(runs)
    for ended, (run, outcome) in enumerate(pool.train(lambda: next(waiting, None), draw), 1):
        pool.report(ended, len(runs), run, outcome, "test")
        if isinstance(outcome, FloatingPointError):
            raise outcome
        run.results = outcome


def check_overrides(
    fields: Iterable[str],
    base: config.Experiment,
    *,
    losses: Sequence[str],
    interactions: Sequence[str],
    tune: space.Tune,
) -> None:
    """Raises ValueError for a field set on the command line that has no effect on any run of a grid."""
    cells = build_cells(base, losses, interactions)
    by_titles = all("@" in title for title in losses)
    for field in fields:
        flag = "--tune" if field in tune else GRID_FLAGS.get(field)
        flag = "--losses" if field == "loss.rank_fn" and by_titles else flag
        if flag:
            raise ValueError(f"config.{field}: {flag} of the grid sets this field. Leave one of the two out.")
        if config.ALTERNATIVES.get(field) in tune:
            alternative = config.ALTERNATIVES[field]
            raise ValueError(f"config.{field}: --tune sets {alternative}. Leave one of the two out.")
        if not any(config.has_field(cell, field) for cell in cells):
            raise ValueError(f"config.{field}: no loss or interaction of this grid has it. Leave it out.")


def _check_axes(axes: Mapping[str, Sequence]) -> None:
    for name, values in axes.items():
        repeated = [value for i, value in enumerate(values) if value in values[:i]]
        if repeated:
            raise ValueError(f"{name}={repeated[0]!r}: repeated, so its runs would count twice. Remove one.")
        if not values:
            raise ValueError(f"{name}=(): a grid needs at least one. Add one.")


def _check_tune(
    base: config.Experiment, cells: Sequence[config.Experiment], tune: space.Tune, trials: int | None
) -> None:
    """Raises ValueError for a field that a search cannot tune, and for a range without a number of trials."""
    if trials is not None and not tune:
        raise ValueError(f"trials={trials}: nothing is tuned. Add --tune, or leave it out.")
    variants = [variant for cell in cells for variant in space.variants(cell, tune)]
    for field, values in tune.items():
        reason = "all runs of a grid share the data" if field.startswith("data.") else _NOT_TUNABLE.get(field)
        if reason:
            raise ValueError(f"tune={field}: {reason}. Choose another field.")
        if not any(config.has_field(variant, field) for variant in variants):
            config.check_field(base, field)
            raise ValueError(f"tune={field}: no loss or interaction of this grid has it. Leave it out.")
        if isinstance(values, space.Range) and trials is None:
            raise ValueError(
                f"tune={field}={values}: a range needs a number of trials. Add --trials=N, or list values."
            )
