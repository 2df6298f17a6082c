"""The grid of losses, interactions and seeds over one dataset and encoder."""

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
      As `trainer.train`; what was finished before stays.
    """
    cells = [{"loss.name": loss, "interaction.name": name} for loss in losses for name in interactions]
    for cell in cells:
        config.check(_experiment(base, cell))
    loaded = problem.load(base, root)
    total = len(cells) * (len(seeds) + (len(learning_rates) if len(learning_rates) > 1 else 0))
    done = 0
    runs = []

    def train(changes, folder):
        nonlocal done
        experiment = _experiment(base, changes)
        results = trainer.train(experiment, os.path.join(root, folder), loaded=loaded, progress=False)
        done += 1
        print(f"[{done:3d}/{total}] {folder}: {report.one_line(results)}", flush=True)
        return experiment, results

    for cell in cells:
        name = f"{cell['loss.name']}-{cell['interaction.name']}"
        rates = learning_rates or (base.optimizer.learning_rate,)
        best_rate, best = rates[0], float("nan")
        for rate in rates if len(rates) > 1 else ():
            changes = {**cell, "seed": seeds[0], "optimizer.learning_rate": rate}
            _, results = train(changes, os.path.join("tuning", f"{name}-rate{rate:g}"))
            value = results["validation"][base.monitor]
            if evaluation.better(base.monitor, value, best):
                best_rate, best = rate, value
        for seed in seeds:
            changes = {**cell, "seed": seed, "optimizer.learning_rate": best_rate}
            runs.append(
                report.Run(*train(changes, f"{name}-seed{seed}"), os.path.join(root, f"{name}-seed{seed}"))
            )
    return runs


def _experiment(base, changes):
    return config.without_foreign_knobs(config.override(base, changes))
