"""The grid of losses, interactions and seeds over one dataset and encoder."""

import contextlib
import functools
import itertools
import os

from rank4class.pipelines import config
from rank4class.pipelines.evaluation import evaluator
from rank4class.pipelines.reporting import sweep_report, tables
from rank4class.pipelines.storage.run_directory import check_folder
from rank4class.pipelines.task import loading
from rank4class.pipelines.training import rank_training


def parse_tune(texts):
    """Reads what is to be tuned.

    Args:
      texts: of the flags `--tune`, each `FIELD=VALUE,VALUE,...`.

    Returns:
      Field -> tuple of numbers.

    Raises:
      ValueError: a text is no such thing, names no field that holds a number, or one that another names; the
        message names the flag.

    >>> parse_tune(["optimizer.learning_rate=0.003,0.01", "batch_size=32"])
    {'optimizer.learning_rate': (0.003, 0.01), 'batch_size': (32,)}
    """
    tune = {}
    for text in texts:
        field, mark, values = text.partition("=")
        try:
            if not mark:
                raise ValueError("give FIELD=VALUE,VALUE")
            if field in tune:
                raise ValueError(f"another --tune has {field} already: give all its values in one")
            tune[field] = tuple(config.parse_number(field, value) for value in values.split(","))
        except ValueError as error:
            raise ValueError(f"--tune={text}: {error}") from error
    return tune


def run_grid(base, root, *, losses, interactions, seeds, tune=None):
    """Trains every combination; runs that are finished already are not repeated.

    Tuned fields are chosen for each cell: it is trained once with each combination of the values, with
    the first seed, and the one with the best validation value of the monitored metric is used for all
    seeds. Combinations that make no difference to a cell, such as temperatures of a loss without one, are
    tried once. A cell leaves out the fields of `base` that it does not take; its runs list them as `ignored`.

    Args:
      base: the `config.Experiment` that the combinations change.
      root: folder of the grid; a run's folder is named after its loss, interaction and seed.
      losses, interactions: names; of a loss with `@` and the name of its rank function, where it takes one.
      seeds: ints.
      tune: field, of a number -> values to choose from; None keeps the experiment's own.

    Returns:
      The finished `sweep_report.Run`s.

    Raises:
      ValueError: a combination cannot run, two combinations are the same experiment, or no cell takes a tuned
        field. Nothing has run then.
      FloatingPointError: a run diverged, or all that were to be chosen from did. What is finished stays.
    """
    tune = tune or {}
    root = check_folder(root, "sweep")
    config.check_types(base)
    _check_axes({"losses": losses, "interactions": interactions, "seeds": seeds})
    _check_axes({f"values of {field}": values for field, values in tune.items()})
    _check_tunable(base, tune)
    cells = _cells(losses, interactions)
    _check_applicable(base, cells, tune)
    choices = [dict(zip(tune, values, strict=True)) for values in itertools.product(*tune.values())]
    for cell, seed, choice in itertools.product(cells, seeds, choices):
        config.check(_experiment(base, {**cell, "seed": seed, **choice}))
    _check_different(base, cells)
    tried = [_different(base, cell, choices) for cell in cells]
    loaded = loading.load(base, root)
    counter = itertools.count(1)
    total = len(cells) * len(seeds) + sum(len(choices) for choices in tried if len(choices) > 1)

    def train(changes, folder, split="test"):
        experiment = _experiment(base, changes)
        path = os.path.join(root, folder)
        line = f"[{next(counter):3d}/{total}] {folder}: "
        own = (
            loading.with_encoder(loaded, experiment.encoder) if experiment.encoder != base.encoder else loaded
        )
        try:
            results = rank_training.train(experiment, path, loaded=own, progress=False)
        except FloatingPointError as error:
            print(line + str(error), flush=True)
            raise
        print(f"{line}{split} {tables.one_line(results[split])}", flush=True)
        return sweep_report.Run(experiment, results, path, ignored(base, changes))

    def best_of(choices, cell, name):
        if len(choices) == 1:
            return choices[0]
        values = {}
        for i, choice in enumerate(choices):
            changes = {**cell, "seed": seeds[0], **choice}
            # A choice that diverges has lost.
            with contextlib.suppress(FloatingPointError):
                run = train(
                    changes,
                    os.path.join(sweep_report.TUNING, sweep_report.tuning_name(name, choice)),
                    "validation",
                )
                values[i] = run.results["validation"][base.monitor]
        if not values:
            raise FloatingPointError(f"{name} diverges with all values of {', '.join(tune)}: give other ones")
        best = functools.reduce(
            lambda best, i: i if evaluator.better(base.monitor, values[i], values[best]) else best, values
        )
        for note in sweep_report.boundary_notes(_experiment(base, {**cell, **choices[best]}), tune):
            print(f"  {name}: {note}")
        return choices[best]

    runs = []
    for cell, choices in zip(cells, tried, strict=True):
        experiment = _experiment(base, cell)
        name = _name(experiment)
        choice = best_of(choices, cell, name)
        for seed in seeds:
            runs.append(train({**cell, "seed": seed, **choice}, f"{name}-seed{seed}"))
    return runs


def check_overrides(fields, base, *, losses, interactions, tune):
    """Raises ValueError for a field set on the command line that has no effect on any run of a grid.

    Args:
      fields: dotted names.
      base, losses, interactions, tune: see `run_grid`.
    """
    flags = {"loss.name": "--losses", "interaction.name": "--interactions", "seed": "--seed"}
    cells = _cells(losses, interactions)
    for field in fields:
        if field in tune or field == "seed" or all(field in cell for cell in cells):
            flag = "--tune" if field in tune else flags.get(field, "--losses")
            raise ValueError(f"config.{field}: {flag} of the grid sets this field. Leave one of the two out.")
        if all(field in cell or field in ignored(base, cell) for cell in cells):
            raise ValueError(f"config.{field}: no loss or interaction of this grid has it. Leave it out.")


def _cells(losses, interactions):
    return [
        {**config.parse_title(loss), "interaction.name": name} for loss in losses for name in interactions
    ]


def _check_axes(axes):
    for name, values in axes.items():
        repeated = [value for i, value in enumerate(values) if value in values[:i]]
        if repeated:
            raise ValueError(f"the {name} of a grid repeat {repeated[0]!r}: a run would count twice")
        if not values:
            raise ValueError(f"a grid needs {name}")


def _check_tunable(base, fields):
    for field in fields:
        config.number_type(field)
        section = field.partition(".")[0]
        if field == "seed":
            raise ValueError(
                "seed cannot be tuned: a grid's seeds tell how much chance there is in its figures"
            )
        if section == "data":
            raise ValueError(f"{field} cannot be tuned: a grid's runs share the data, which are read once")
        if section == "encoder" and base.encoder.frozen:
            raise ValueError(f"{field} cannot be tuned: the encoder is frozen, and its outputs are shared")


def _check_applicable(base, cells, tune):
    """Raises ValueError for a rank function that its loss does not take, or a tuned field no cell takes."""
    for cell in cells:
        if "loss.rank_fn" in cell and "loss.rank_fn" in ignored(base, cell):
            raise ValueError(
                f"losses={cell['loss.name']}@{cell['loss.rank_fn']}: this loss takes no rank function. Use "
                f"{cell['loss.name']!r}, or a loss that takes one, such as 'approx_ndcg'."
            )
    for field, values in tune.items():
        if all(field in ignored(base, {**cell, field: values[0]}) for cell in cells):
            raise ValueError(f"tune={field}: no loss or interaction of this grid has it. Leave it out.")


def _check_different(base, cells):
    """Raises ValueError if two cells are the same experiment, such as by a rank function set in `base`."""
    names = [_name(_experiment(base, cell)) for cell in cells]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(
                f"{name}: the grid has this cell twice, so its runs would count twice. Remove one."
            )


def _different(base, cell, choices):
    """Returns the first of the choices of each experiment that they come to."""
    first = []
    for choice in choices:
        experiment = _experiment(base, {**cell, **choice})
        if experiment not in [known for known, _ in first]:
            first.append((experiment, choice))
    return [choice for _, choice in first]


def _name(experiment):
    """Returns the name of an experiment's cell, with which the names of its runs' folders begin."""
    return f"{config.title(experiment.loss)}-{experiment.interaction.name}"


def _experiment(base, changes):
    experiment = config.override(base, changes)
    return config.override(experiment, config.foreign_fields(experiment))


def ignored(base, changes):
    """Returns the names of the set fields that an experiment's loss and interaction do not take."""
    return tuple(config.foreign_fields(config.override(base, changes)))
