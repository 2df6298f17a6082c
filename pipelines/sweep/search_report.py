"""The section of a sweep's report on the search for the values of the tuned fields."""

import os
from typing import Any

from rank4class.pipelines.reporting import tables
from rank4class.pipelines.storage import files
from rank4class.pipelines.storage.run_directory import read_json
from rank4class.pipelines.sweep.space import format_value

SEARCH = "search.json"  # file of the last search of a grid


def read(root: str | os.PathLike) -> dict[str, Any] | None:
    """Returns the last search of a grid, see `search.Search.summary`; None if it has searched nothing."""
    path = os.path.join(root, SEARCH)
    return read_json(path) if files.exists(path) else None


def search_blocks(search: dict[str, Any]) -> list[str]:
    """Returns the blocks of Markdown that describe a search: its boundaries and every trial."""
    seeds = ", ".join(map(str, search["seeds"]))
    sampler = {"grid": "All combinations of the values", "tpe": "Choices proposed by TPE"}[search["sampler"]]
    lines = [
        *(f"- {field}: {text}" for field, text in search["fields"].items()),
        *(
            f"- {one['field']}={format_value(one['value'])} was added for all cells, as the best value of "
            f"{', '.join(one['cells'])} was at the {one['end']} end."
            for one in search["added"]
        ),
        *(f"- {cell['cell']}: {note}." for cell in search["cells"] for note in cell["notes"]),
        *(f"- {cell} has one choice: nothing to search." for cell in search["fixed"]),
    ]
    return [
        "## Search",
        f"{sampler}, each trained with the seeds {seeds}, which no final run has. The value of a trial is "
        f"the mean of the best validation {search['monitor']} of the seeds. "
        "Diverged trials are not chosen.",
        "\n".join(lines),
        tables.markdown_table(_trial_table(search)),
    ]


def _trial_table(search: dict[str, Any]) -> list[list[str]]:
    fields = list(search["fields"])
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
