"""The section of a sweep's report on the search for the values of the tuned fields."""

from collections.abc import Sequence
from typing import Any

from rank4class.pipelines.reporting import tables
from rank4class.pipelines.sweep.space import format_choice, format_value

SEARCH = "search.json"  # file of the last search of a grid


def search_blocks(search: dict[str, Any]) -> list[str]:
    """Returns the blocks of Markdown that describe a search: its budget, its boundaries and every trial.

    Args:
      search: as JSON holds it, with the fields

        * `sampler`: "grid" or "tpe"; `monitor`: the metric; `seeds`: of the runs of each trial;
        * `fields`: tuned field -> text of its values, and `widen`: how often they could be widened;
        * `added`: the values that were added, each with `field`, `value` and `cells`, whose best value was at
          the boundary;
        * `fixed`: cells with a single choice;
        * `cells`: each with its name `cell`, its `trials`, their number of `runs`, and `notes` on
          boundaries. A trial has a `number`, a `choice`, field -> value, the `values` of the seeds, their
          `mean`, a `state`, "complete" or "diverged", and whether it is the `best`.
    """
    fields = list(search["fields"])
    seeds = ", ".join(map(str, search["seeds"]))
    sampler = {"grid": "All combinations of the values", "tpe": "Choices proposed by TPE"}[search["sampler"]]
    values = [f"- {field}: {text}" for field, text in search["fields"].items()]
    blocks = [
        "## Search",
        f"{sampler}, each trained with the seeds {seeds}, which no final run has. The value of a trial is "
        f"the mean of the best validation {search['monitor']} of the seeds. "
        "Diverged trials are not chosen.",
        "\n".join([*values, *_boundary_lines(search)]),
        tables.markdown_table(_budget_table(search)),
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
    rows = [["cell", "trials", "runs", "diverged", "best choice", f"mean {search['monitor']}"]]
    for cell in search["cells"]:
        states = [trial["state"] for trial in cell["trials"]]
        [best] = (trial for trial in cell["trials"] if trial["best"])
        counts = len(states), cell["runs"], states.count("diverged")
        rows.append([cell["cell"], *map(str, counts), format_choice(best["choice"]), f"{best['mean']:.2f}"])
    return rows


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
