"""The grid of losses, interactions and seeds over one dataset and encoder."""

import contextlib
import functools
import itertools
import os

from rank4class.pipelines import config, evaluation, problem, report, trainer


def run_grid(base, root, *, losses, interactions, seeds, learning_rates=()):
    """Trains every combination; runs that are finished already are not repeated.

    With several learning rates each cell is trained once with each, with the first seed, and the
    one with the best validation value of the monitored metric is used for all seeds.

    Args:
      base: the `config.Experiment` that the combinations change.
      root: folder of the grid; a run's folder is named after its loss, interaction and seed.
      losses, interactions: names.
      seeds: ints.
      learning_rates: floats to choose from; empty keeps the experiment's own.

    Returns:
      The finished `report.Run`s.

    Raises:
      ValueError: a combination cannot run, or stands there twice; found before anything runs.
      FloatingPointError: a run diverged, or all learning rates of a cell did. What is finished stays.
    """
    axes = {"losses": losses, "interactions": interactions, "seeds": seeds, "learning rates": learning_rates}
    for name, values in axes.items():
        repeated = [value for i, value in enumerate(values) if value in values[:i]]
        if repeated:
            raise ValueError(f"the {name} of a grid repeat {repeated[0]!r}: a run would count twice")
        if not values and name != "learning rates":
            raise ValueError(f"a grid needs {name}")
    cells = [{"loss.name": loss, "interaction.name": name} for loss in losses for name in interactions]
    rates = list(learning_rates) or [base.optimizer.learning_rate]
    for cell, seed, rate in itertools.product(cells, seeds, rates):
        config.check(_experiment(base, {**cell, "seed": seed, "optimizer.learning_rate": rate}))
    loaded = problem.load(base, root)
    counter = itertools.count(1)
    total = len(cells) * (len(seeds) + (len(rates) if len(rates) > 1 else 0))

    def train(changes, folder, split="test"):
        experiment = _experiment(base, changes)
        path = os.path.join(root, folder)
        line = f"[{next(counter):3d}/{total}] {folder}: "
        try:
            results = trainer.train(experiment, path, loaded=loaded, progress=False)
        except FloatingPointError as error:
            print(line + str(error), flush=True)
            raise
        print(f"{line}{split} {report.one_line(results[split])}", flush=True)
        return report.Run(experiment, results, path)

    def best_rate(cell, name):
        if len(rates) == 1:
            return rates[0]
        values = {}
        for rate in rates:
            changes = {**cell, "seed": seeds[0], "optimizer.learning_rate": rate}
            # A rate that diverges has lost.
            with contextlib.suppress(FloatingPointError):
                run = train(changes, os.path.join("tuning", f"{name}-rate{rate!r}"), "validation")
                values[rate] = run.results["validation"][base.monitor]
        if not values:
            raise FloatingPointError(f"{name} diverges at every learning rate: give lower ones")
        best = functools.reduce(
            lambda best, rate: rate if evaluation.better(base.monitor, values[rate], values[best]) else best,
            values,
        )
        for end, beyond in ((min(rates), "lower"), (max(rates), "higher")):
            if best == end:
                by = f"validation {base.monitor}"
                print(f"  {name}: learning rate {best:g} by {by}; {beyond} may be better")
        return best

    runs = []
    for cell in cells:
        name = f"{cell['loss.name']}-{cell['interaction.name']}"
        rate = best_rate(cell, name)
        for seed in seeds:
            changes = {**cell, "seed": seed, "optimizer.learning_rate": rate}
            runs.append(train(changes, f"{name}-seed{seed}"))
    return runs


def _experiment(base, changes):
    return config.without_foreign_knobs(config.override(base, changes))
