"""Pages of the documentation that are rendered from results: results, claims, and Rank4Class's 270 cells."""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rank4class import arguments
from rank4class.pipelines.evaluation.evaluator import metric_heading
from rank4class.pipelines.reporting import tables
from rank4class.pipelines.storage.run_directory import read_json
from rank4class.pipelines.sweep import grid_tables
from rank4class.pipelines.sweep.search_report import format_value
from rank4class.scripts.research.papers import paper_values
from rank4class.scripts.research.papers import results as result_files
from rank4class.scripts.research.papers.reproductions import REPRODUCTIONS

VERDICTS = ("holds", "does not hold", "not separable", "partly", "not testable here", "open")
Results = Mapping[str, Mapping[str, Any]]  # name -> content of a result file
_FLAGS = (
    "The commands need `--workdir=FOLDER` too, and `--data=FOLDER` or `--checkpoint=WEIGHTS` where "
    "`rank4class reproduce --list` names data or weights."
)
_NOTE = "`rank4class render_docs` writes this page from the files in `docs/results`."


def results_page(results: Results) -> str:
    """Returns the page of all results in Markdown."""
    blocks = [
        "# Results",
        "Each section has the figures of an experiment: its cells, their differences from a baseline, and "
        f"the paper's values beside ours. {_FLAGS} {_NOTE}",
    ]
    for name, result in results.items():
        figures = {key: value for key, value in result.items() if key != "title"}
        report = grid_tables.render(figures, _tuned(result["tuned"])).strip()
        blocks += [f"## {result['title']}", _provenance(name, result), report]
        if rows := paper_table(result):
            blocks += ["Beside the paper:", tables.markdown_table(rows)]
        if curves := result.get("curves"):
            blocks += [
                f"Validation {curves[0]['metric']}, mean over the seeds: the best value up to each epoch, "
                "the best and the last of all evaluations, and the epoch of the best.",
                tables.markdown_table(_curve_rows(curves)),
            ]
    return "\n\n".join(blocks) + "\n"


def _tuned(tuned: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the table of the values that validation chose; of several splits of the data, all of them."""
    if not tuned:
        return []
    axes = list(dict.fromkeys(axis for entry in tuned for axis in entry["name"]))
    fields = list(dict.fromkeys(field for entry in tuned for field in entry["fields"]))
    cells: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for entry in tuned:
        name = tuple(entry["name"].get(axis, "-") for axis in axes)
        cells.setdefault(name, []).append(entry["fields"])
    rows = [[*axes, *fields]]
    for name, chosen in cells.items():
        values = [[format_value(one[field]) if field in one else "-" for one in chosen] for field in fields]
        rows.append([*name, *(", ".join(dict.fromkeys(of_field)) for of_field in values)])
    return ["Values chosen on the validation set:", tables.markdown_table(rows)]


def _curve_rows(curves: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Returns rows of the best values up to the first, second, fourth, ... evaluation."""
    longest = max((curve["epochs"] for curve in curves), key=len)
    counts = [2**i for i in range(len(longest).bit_length())]
    header = [*curves[0]["name"], *(f"{longest[count - 1]:.0f}" for count in counts)]
    rows = [[*header, "best", "last", "epoch of the best"]]
    for curve in curves:
        until = [[max(values[:count]) for count in counts] for values in curve["values"]]
        ends = [
            [max(values), values[-1], curve["epochs"][int(np.argmax(values))]] for values in curve["values"]
        ]
        figures = [f"{mean:.2f}" for mean in np.mean(np.hstack([until, ends]), axis=0)]
        rows.append([*curve["name"].values(), *figures])
    return rows


def _provenance(name: str, result: Mapping[str, Any]) -> str:
    examples = ", ".join(f"{count:,} {split}" for split, count in result["examples"].items())
    packages = ", ".join(f"{package} {version}" for package, version in result["packages"].items())
    claims = f", claims {', '.join(result['claims'])}" if result["claims"] else ""
    of_first = " of the first command" if len(result["commands"]) > 1 else ""
    return (
        f"`rank4class reproduce --only={name}`{claims}. Examples{of_first}: {examples}. "
        f"{result['seconds'] / 3600:.2f} hours of training; commit {_commits(result)}; "
        f"{', '.join([packages, *result.get('environment', [])])}."
    )


def _commits(result: Mapping[str, Any]) -> str:
    return ", ".join(commit[:7] + "-dirty" * commit.endswith("-dirty") for commit in result["commits"])


def paper_table(result: Mapping[str, Any]) -> list[list[str]]:
    """Returns rows that put the figures of a result beside the paper's.

    The interval of a difference is that of our mean: the papers report none of theirs. Without a table of the
    paper there are no rows.
    """
    if result["paper"] is None:
        return []
    rows = [["cell", "metric", "paper", "ours", "difference [95%]"]]
    for cell, metric, value in _values(result["paper"]):
        ours = _find(result["cells"], paper_values.name_of(cell))
        if figure := ours and ours["metrics"].get(metric):
            figures = [f"{value:.2f}", _mean(figure), _difference(figure, value)]
            rows.append([cell, _heading(result, metric), *figures])
    return rows if len(rows) > 1 else []


def _difference(figure: Mapping[str, Any], paper: float) -> str:
    """Returns the difference of our mean from the paper's value, with the interval."""
    if figure["mean"] is None:
        return "-"
    ends = [end - paper for end in figure["interval"] or ()]
    interval = "[{:+.2f}, {:+.2f}]".format(*ends) if ends else "no interval"
    return f"{figure['mean'] - paper:+.2f} {interval}"


def _mean(figure: Mapping[str, Any]) -> str:
    return "not finite" if figure["mean"] is None else f"{figure['mean']:.2f}"


def _values(table: str) -> Iterable[tuple[str, str, float]]:
    return paper_values.read(table)[["cell", "metric", "value"]].itertuples(index=False, name=None)


def _find(items: Iterable[Mapping[str, Any]], name: Mapping[str, str]) -> Mapping[str, Any] | None:
    """Returns the item whose name has all parts of another name; raises ValueError if several have."""
    matches = [item for item in items if name.items() <= item["name"].items()]
    if len(matches) > 1:
        raise ValueError(f"cell={name}: {len(matches)} cells have this name. Name more of its parts.")
    return matches[0] if matches else None


def _heading(result: Mapping[str, Any], metric: str) -> str:
    return f"{metric} (%)" if result["metrics"][metric]["percent"] else metric


def claims_page(claims: Sequence[Mapping[str, Any]], results: Results) -> str:
    """Returns the page of the claims in Markdown.

    Args:
      claims: the content of `docs/claims.json`: "id", "claim", "verdict", "note", and "evidence", each either
        a test of the repository, {"test": "FILE::NAME"}, or a comparison of a result, {"result", "cell",
        "metric"}.
      results: see `results.read_all`.

    Raises:
      ValueError: a verdict is unknown, or the evidence is not in the results.
    """
    rows = [["", "claim", "verdict", "effect", "seeds", "examples"]]
    sources = []
    for claim in claims:
        arguments.check_choice(VERDICTS, verdict=claim["verdict"])
        names = {one["result"] for one in claim["evidence"] if "result" in one}
        evidence = [_evidence(one, results, named=len(names) > 1) for one in claim["evidence"]]
        note = claim["note"][:1].upper() + claim["note"][1:] + "."
        # Lines of equal content, such as the seeds of one result, appear once.
        columns = zip(*evidence, (note, "", "", ""), strict=True)
        *figures, source = ("<br>".join(dict.fromkeys(filter(None, column))) for column in columns)
        rows.append([claim["id"], claim["claim"], claim["verdict"], *figures])
        if source:
            sources.append(f"- {claim['id']}: {source.replace('<br>', '; ')}")
    hours = sum(result["seconds"] for result in results.values()) / 3600
    counts = ", ".join(f"{verdict} {sum(c['verdict'] == verdict for c in claims)}" for verdict in VERDICTS)
    return (
        "\n\n".join(
            [
                "# Claims of the papers",
                "The verdict on each of the 24 claims of the four papers, with the measured effect. The "
                "effects are differences on test sets with 95% intervals over seeds and examples, or over "
                "one of the two, as [the results](results.md) say. *Not separable* means that the data "
                "decide neither for the claim nor against it; *partly*, that they decide for one part of it. "
                "After ± is half of a 95% interval over the seeds alone, without correction.",
                f"Verdicts: {counts}. All trainings of the results page, with those of the searches, took "
                f"{hours:.1f} hours on one or two processor cores. {_NOTE}",
                tables.markdown_table(rows),
                "## Evidence",
                f"Tests of the repository, and commands with the commits that ran them. {_FLAGS}",
                "\n".join(sources),
            ]
        )
        + "\n"
    )


def _evidence(evidence: Mapping[str, Any], results: Results, *, named: bool) -> tuple[str, str, str, str]:
    """Returns the effect, the numbers of seeds and examples, and the source of a claim's evidence.

    Args:
      evidence: see `claims_page`.
      results: see `results.read_all`.
      named: whether the effect begins with the name of its result.
    """
    if "test" in evidence:
        return "", "", "", f"`{evidence['test']}`"
    name, cell, metric = evidence["result"], evidence["cell"], evidence["metric"]
    if name not in results:
        raise ValueError(f"result={name!r}: no such file. Run rank4class reproduce --only={name}.")
    result = results[name]
    of_metric = [comparison for comparison in result["comparisons"] if comparison["metric"] == metric]
    comparison = _find(of_metric, cell)
    if comparison is None:
        raise ValueError(f"cell={cell}: {name} compares no such cell in {metric}. Correct it.")
    if comparison["interval"] is None:
        raise ValueError(f"cell={cell}: {name} has no interval of {metric}. Choose other evidence.")
    low, high = comparison["interval"]
    entry = _find(result["cells"], cell)
    assert entry is not None  # it has a comparison
    examples = entry["metrics"][metric]["examples"] or result["examples"]["test"]
    difference = f"{' '.join(cell.values())} - {' '.join(result['baseline'].values())}"
    effect = (
        f"{name.split('/')[-1] + ': ' if named else ''}{difference}: {comparison['difference']:+.2f} "
        f"[{low:+.2f}, {high:+.2f}] {_heading(result, metric)}, {comparison['verdict']}."
    )
    return effect, str(len(entry["seeds"])), f"{examples:,}", f"`reproduce --only={name}`, {_commits(result)}"


def cells_page(results: Results) -> str:
    """Returns the page of the 270 cells of Rank4Class's Tables 7 to 12 in Markdown."""
    blocks = [
        "# The 270 cells of Rank4Class",
        "The paper's figures in percent. Where a grid of ours has the same dataset with another encoder, its "
        "figure follows in parentheses. Each table names the command that runs it with the paper's encoder. "
        f"{_NOTE}",
    ]
    for table in paper_values.GRIDS:
        reproduction = REPRODUCTIONS[table]
        checkpoint = "--checkpoint=CHECKPOINT " if "CHECKPOINT" in str(reproduction.data) else ""
        blocks += [
            f"## {reproduction.title}",
            f"`rank4class reproduce --only={table} --data=FOLDER {checkpoint}--workdir=runs/{table}` with "
            f"{reproduction.data}.",
        ]
        measured = [result for result in results.values() if result["paper"] == table]
        if measured:
            titles = [f"{result['title']} (`{result['name']}`)" for result in measured]
            blocks.append(f"In parentheses: {'; then '.join(titles)}.")
        blocks.append(tables.markdown_table(_grid_rows(table, measured)))
    return "\n\n".join([*blocks, *_reanalysis(results)]) + "\n"


def _grid_rows(table: str, measured: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    frame = paper_values.read(table).pivot(index="cell", columns="metric", values="value")
    rows = [["loss", "interaction", *map(metric_heading, frame)]]
    for cell, values in frame.iterrows():
        name = paper_values.name_of(str(cell))
        figures = []
        for metric, value in values.items():
            entries = [_find(result["cells"], name) for result in measured]
            ours = [entry["metrics"][metric] for entry in entries if entry and metric in entry["metrics"]]
            figures.append(" ".join([f"{value:.2f}", *(f"({_mean(figure)})" for figure in ours)]))
        rows.append([*name.values(), *figures])
    return rows


def _reanalysis(results: Results) -> list[str]:
    """Returns the paragraphs of the re-analysis; none without the grid that gives the seeds' deviation."""
    frozen = results.get("rank4class/goemotions_frozen")
    if frozen is None:
        return []
    rows = [
        ["metric", "best of 15", "chosen on the other settings", "best of 15 by chance", "Friedman p", "won"]
    ]
    for metric in ("top1_error", "top5_error", "ndcg@5"):
        seeds = [cell["metrics"][metric]["values"] for cell in frozen["cells"]]
        deviation = float(np.sqrt(np.var(seeds, axis=1, ddof=1).mean()))
        analysis = paper_values.reanalyse(metric, deviation)
        rows.append(
            [
                metric_heading(metric),
                f"{analysis.best_gain:.2f}",
                f"{analysis.chosen_gain:.2f}",
                f"{analysis.chance_gain:.2f}",
                f"{analysis.p_value:.3f}",
                f"{analysis.settings_won} of {len(paper_values.GRIDS)}",
            ]
        )
    return [
        "## The 270 cells re-analyzed",
        "Mean gain over softmax with dot in points, over the six settings: of the best cell on the figures "
        "that judge it; of the cell with the best mean rank on the five other settings; and the gain "
        "expected of the best of 15 equal cells, with the deviation over seeds of our frozen grid. "
        "Friedman's test is of the five losses with dot.",
        tables.markdown_table(rows),
    ]


def render(docs: str | os.PathLike) -> dict[str, str]:
    """Returns the pages of a documentation folder, file name -> text.

    Args:
      docs: folder with `results/` and `claims.json`.

    Raises:
      ValueError: a file is damaged, or contradicts another.
    """
    results = result_files.read_all(os.path.join(docs, "results"))
    claims = read_json(os.path.join(docs, "claims.json"))["claims"]
    return {
        "results.md": results_page(results),
        "claims.md": claims_page(claims, results),
        "rank4class_cells.md": cells_page(results),
    }
