"""The section of a sweep's report on the search for the values of the tuned fields."""

from collections.abc import Mapping, Sequence
from typing import Any

from rank4class.pipelines.reporting import tables

PRUNING = (
    "A trial is pruned after a seed if its means so far are worse than the median of the cell's complete "
    "trials after as many seeds, once there are {} of them; no training is cut short. Pruned and diverged "
    "trials are not chosen."
)


def format_value(value: bool | int | float | str | None) -> str:
    """Returns the value of a field as `--tune` takes it, numbers with at most six digits.

    >>> [format_value(value) for value in (0.1, 64, True, None, "adam")]
    ['0.1', '64', 'true', 'none', 'adam']
    """
    if isinstance(value, float):
        return f"{value:g}"
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def format_choice(choice: Mapping[str, bool | int | float | str | None]) -> str:
    """Returns the fields and values of a choice.

    >>> format_choice({"optimizer.learning_rate": 0.003, "optimizer.name": "adam"})
    'optimizer.learning_rate=0.003, optimizer.name=adam'
    """
    return ", ".join(f"{field}={format_value(value)}" for field, value in choice.items())


def search_blocks(search: dict[str, Any]) -> list[str]:
    """Returns the blocks of Markdown that describe a search: its budget, its boundaries and every trial.

    Args:
      search: as JSON holds it, with the fields

        * `sampler`: "grid" or "tpe"; `monitor`: the metric; `seeds`: of the runs of each trial;
        * `fields`: tuned field -> text of its values, and `widen`: how often they could be widened;
        * `added`: the values that were added, each with `field`, `value` and `cells`, whose best value was at
          the boundary;
        * `startup_trials`: number of trials of a cell before one is pruned;
        * `fixed`: cells with a single choice;
        * `cells`: each with its name `cell`, its `trials`, their number of `runs`, `notes` on boundaries and
          `importance`, field -> fraction. A trial has a `number`, a `choice`, field -> value, the `values`
          of the seeds, their `mean`, a `state`, "complete", "pruned" or "diverged", and whether it is the
          `best`.
    """
    fields = list(search["fields"])
    seeds = ", ".join(map(str, search["seeds"]))
    sampler = {"grid": "All combinations of the values", "tpe": "Choices proposed by TPE"}[search["sampler"]]
    values = [f"- {field}: {text}" for field, text in search["fields"].items()]
    blocks = [
        "## Search",
        f"{sampler}, each trained with the seeds {seeds}, which no final run has. The value of a trial is "
        f"the mean of the best validation {search['monitor']} of the seeds. "
        f"{PRUNING.format(search['startup_trials'])}",
        "\n".join([*values, *_boundary_lines(search)]),
        tables.markdown_table(_budget_table(search)),
    ]
    if rows := _importance_table(search, fields):
        blocks += [
            "Importance of a field for a trial to be in the best quarter of its cell (PED-ANOVA), percent:",
            tables.markdown_table(rows),
        ]
    return [*blocks, "All trials:", tables.markdown_table(_trial_table(search, fields))]


def _boundary_lines(search: dict[str, Any]) -> list[str]:
    """Returns the lines on values at a boundary: those that were added, and those that could not be."""
    lines = [
        f"- {one['field']}={format_value(one['value'])} was added for all cells, as the best value of "
        f"{', '.join(one['cells'])} was at the {one['end']} end."
        for one in search["added"]
    ]
    noted = [f"- {cell['cell']}: {note}." for cell in search["cells"] for note in cell["notes"]]
    fixed = [f"- {cell} has one choice: nothing to search." for cell in search["fixed"]]
    return [*lines, *noted, *fixed]


def _budget_table(search: dict[str, Any]) -> list[list[str]]:
    rows = [["cell", "trials", "runs", "pruned", "diverged", "best choice", f"mean {search['monitor']}"]]
    for cell in search["cells"]:
        states = [trial["state"] for trial in cell["trials"]]
        [best] = (trial for trial in cell["trials"] if trial["best"])
        counts = len(states), cell["runs"], states.count("pruned"), states.count("diverged")
        rows.append([cell["cell"], *map(str, counts), format_choice(best["choice"]), f"{best['mean']:.2f}"])
    return rows


def _importance_table(search: dict[str, Any], fields: Sequence[str]) -> list[list[str]]:
    """Returns a row per cell whose importances are known; no rows if there is none."""
    rows = [
        [
            cell["cell"],
            *(f"{100 * cell['importance'][f]:.0f}" if f in cell["importance"] else "-" for f in fields),
        ]
        for cell in search["cells"]
        if cell["importance"]
    ]
    return [["cell", *fields], *rows] if rows else []


def _trial_table(search: dict[str, Any], fields: Sequence[str]) -> list[list[str]]:
    seeds = [f"seed {seed}" for seed in search["seeds"]]
    rows = [["cell", "trial", *fields, *seeds, "mean", "state"]]
    for cell in search["cells"]:
        for trial in cell["trials"]:
            choice = [format_value(trial["choice"][f]) if f in trial["choice"] else "-" for f in fields]
            values = [f"{value:.2f}" for value in trial["values"]]
            values += ["-"] * (len(seeds) - len(values))
            mean = "-" if trial["state"] == "diverged" else f"{trial['mean']:.2f}"
            state = "best" if trial["best"] else trial["state"]
            rows.append([cell["cell"], str(trial["number"]), *choice, *values, mean, state])
    return rows
