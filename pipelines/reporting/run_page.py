"""The report of a training, `report.html` in its folder."""

import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from rank4class import data
from rank4class.data.readers.columns import normalize_text
from rank4class.pipelines import config
from rank4class.pipelines.evaluation import baselines, worst_examples
from rank4class.pipelines.evaluation.evaluator import EvaluationResult, metric_heading
from rank4class.pipelines.reporting import page, plots, run_html, tables
from rank4class.pipelines.reporting.page import Section
from rank4class.pipelines.storage import files
from rank4class.pipelines.storage.run_directory import RunDirectory, evaluations
from rank4class.pipelines.task_data.inputs import token_counts
from rank4class.pipelines.task_data.task_data import TaskData

FILE = "report.html"
_WORST = 20  # examples
_PAIRS = 10  # of classes that are confused
_SPLITS = ("train", "validation", "calibration", "test", "unknown", "unknown_train")  # in their order
_LONGEST = 300  # characters of a text
_BATCH = 1024
_STARTS = {"probe": "the solved head it starts from, validation", "words": "words{} alone, validation"}
_DETECTION = "Unknown inputs that are found, by the share of known ones that are called unknown"
_CAPTIONS = {
    "rank_of_the_true_class": "Where the true class ranks",
    "confusion_matrix": "True classes in rows, predicted ones in columns",
    "reliability_diagram": "Accuracy by confidence, before and after calibration",
    "risk_coverage": "Error if only the most confident answers are kept",
    "prediction_sets": "Classes in a prediction set by its coverage",
}


def write(
    run_dir: RunDirectory,
    task_data: TaskData,
    results: Mapping[str, Any],
    evaluated: Mapping[str, EvaluationResult],
) -> None:
    """Writes the report of a finished training.

    Args:
      run_dir: its folder.
      task_data: the data.
      results: the content of `results.json`.
      evaluated: the final evaluations by split; the test split is reported, or else the validation split.
    """
    experiment = run_dir.experiment()
    split = "test" if "test" in evaluated else "validation"
    summaries = evaluations(results)
    examples = task_data.splits[split]
    frequent = None if examples.kind.ranks_items else _frequent(task_data, split, experiment)
    content = page.render(
        title=f"{os.path.basename(os.path.abspath(run_dir.path))}: {len(task_data.class_names):,} classes",
        answer=_answer(split, summaries[split], frequent, experiment.monitor, examples.multi_label),
        sections=list(_sections(run_dir, experiment, task_data, split, results, evaluated[split], frequent)),
    )
    files.write(os.path.join(run_dir.path, FILE), content)


def _frequent(task_data: TaskData, split: str, experiment: config.Experiment) -> dict[str, Any]:
    """Returns the summary of the classes in the order of their training examples."""
    counts = task_data.training_counts(split)
    order = np.argsort(-counts, kind="stable")
    return baselines.most_frequent(task_data.splits[split], order, experiment.metrics, _BATCH)


def _answer(
    split: str, summary: Mapping[str, Any], frequent: Mapping[str, Any] | None, monitor: str, several: bool
) -> str:
    """Returns the most important figure in a sentence."""
    name = "top1_error" if "top1_error" in summary else monitor
    interval = tables.format_interval(summary["intervals"][name], 1)
    value = f"{summary[name]:.1f}{'%' if '(%)' in metric_heading(name) else ''} {interval}"
    examples = f"{summary['examples']:,} {split} examples"
    if name != "top1_error":
        return f"{metric_heading(name).removesuffix(' (%)')} on {examples}: {value}."
    others = f"; always the most frequent class, {frequent[name]:.1f}%" if frequent else ""
    return f"{value} of {examples} {'rank another class first' if several else 'are wrong'}{others}."


def _sections(
    run_dir: RunDirectory,
    experiment: config.Experiment,
    task_data: TaskData,
    split: str,
    results: Mapping[str, Any],
    evaluation: EvaluationResult,
    frequent: Mapping[str, Any] | None,
) -> Iterator[Section]:
    examples = task_data.splits[split]
    shown = evaluations(results) | ({"the most frequent classes": frequent} if frequent else {})
    beside = "" if task_data.inputs.cells is None else " and columns"
    for folder, title in _STARTS.items():
        start = RunDirectory(os.path.join(run_dir.path, "starts", folder))
        if solved := start.results():
            shown[f"{title.format(beside)}, {_minutes(start):.1f} min"] = solved["validation"]
    note = f"Means with 95% intervals in brackets. Steps and evaluations took {_minutes(run_dir):.1f} min."
    if task_data.folds is not None:
        note += " The training examples validate by models without them."
    yield Section("Results", note, tables.results_rows(shown))
    history = pd.DataFrame(run_dir.history())
    if len(history) > 1:
        figure = run_html.curve(history, experiment.monitor, results["best_step"])
        yield Section("Training", figures={"The dot is the model of this report.": page.svg(figure)})
    figures = plots.figures(task_data, split, evaluation)
    yield Section("Errors", figures={_CAPTIONS[name]: page.svg(each) for name, each in figures.items()})
    if not examples.multi_label:
        class_names = task_data.scored_class_names(split)
        pairs = _confused(examples.labels, evaluation.top_classes, class_names)
        yield Section("Most confused classes", rows=[["true class", "predicted", "examples"], *pairs])
        are_files = task_data.inputs.kind.reads_files
        worst = worst_examples.worst(evaluation, _WORST)
        worst = worst[evaluation.right[worst] == 0]
        yield Section("Worst examples", rows=_examples(evaluation, examples, class_names, worst, are_files))
        if evaluation.p_values is not None:
            called = np.argsort(evaluation.p_values, kind="stable")[:_WORST]
            called = called[evaluation.p_values[called] <= experiment.unknown]
            summary = results["unknown"]
            has_unknown = summary["unknown"] > 0
            rows = _examples(evaluation, examples, class_names, called, are_files) if len(called) else []
            for row, cell in zip(rows, ["p_value", *evaluation.p_values[called]], strict=False):
                row.append(cell if isinstance(cell, str) else f"{cell:.4f}")
            note = f" The {split} examples that look the least known:" if rows else ""
            yield Section(
                "Unknown inputs",
                f"{tables.unknown_line(summary)}.{note}",
                rows=rows,
                figures={_DETECTION: page.svg(plots.detection(summary))} if has_unknown else {},
            )
    yield Section("Data", rows=_data_rows(task_data))
    fields = config.changed_fields(experiment)
    yield Section("Settings", lines=[f"{name} = {value!r}" for name, value in fields.items()])
    commands = ("predict {} FILE", "evaluate {} --worst=20", "export {}", "serve {}")
    yield Section("Next", lines=[f"rank4class {each.format(run_dir.path)}" for each in commands])


def _minutes(run_dir: RunDirectory) -> float:
    """Returns the time from the first step of a run to its last save, without those of its starts."""
    return sum(session["seconds"] for session in run_dir.sessions()) / 60.0


def _confused(labels: np.ndarray, predicted: np.ndarray, class_names: Any) -> list[list[Any]]:
    """Returns true class, predicted class and count of the pairs with the most errors."""
    wrong = (labels != predicted) & (predicted >= 0)
    pairs, counts = np.unique(np.stack([labels[wrong], predicted[wrong]]), axis=1, return_counts=True)
    best = np.argsort(-counts, kind="stable")[:_PAIRS]
    return [
        [class_names[a], class_names[b], f"{n:,}"]
        for (a, b), n in zip(pairs.T[best], counts[best], strict=True)
    ]


def _examples(
    evaluation: EvaluationResult, examples: data.Split, class_names: Any, rows: np.ndarray, are_files: bool
) -> list[list[Any]]:
    """Returns a header, and a row for each of some examples."""
    table = worst_examples.frame(evaluation, examples, class_names, rows)
    shown = ["example", "class", "predicted", "rank"]
    cells = table[shown].assign(rank=table["rank"].map("{:.0f}".format)).fillna("-")
    inputs = [shown_input(examples, i, are_files) for i in rows.tolist()]
    return [
        ["input", *shown],
        *([x, *row] for x, row in zip(inputs, cells.itertuples(index=False), strict=True)),
    ]


def shown_input(examples: data.Split, i: int, are_files: bool) -> str | Markup:
    """Returns what a person sees of an example: its text or image, "" of numbers."""
    if examples.inputs is not None:
        shown = examples.inputs[i]
        return page.thumbnail(shown) if are_files else tables.shortened(shown, _LONGEST)
    image = examples.features.get("image")
    return "" if image is None else page.thumbnail(np.asarray(image[i]))


def _data_rows(task_data: TaskData) -> list[list[str]]:
    """Returns the number of examples of each split, of its classes, of copies, and the share of cut texts."""
    rows = [["split", "examples", "of a class: fewest", "median", "most"]]
    inputs = {name: split.inputs for name, split in task_data.splits.items() if split.inputs is not None}
    if task_data.inputs.kind.reads_files:
        inputs = {}
    tokenizer = task_data.inputs.tokenizer if "text_pair" not in task_data.inputs.specs else None
    rows[0] += ["also in train"] if inputs else []
    rows[0] += [f"cut at {tokenizer.most_tokens} tokens"] if inputs and tokenizer else []
    known = set(map(normalize_text, inputs.get("train", ())))
    for name in sorted(task_data.splits, key=_SPLITS.index):
        split = task_data.splits[name]
        counts = split.class_counts(task_data.num_scored(name))
        few, median, most = (f"{f(counts):,.0f}" for f in (np.min, np.median, np.max))
        if name in _SPLITS[-2:]:
            few = median = most = "-"
        rows.append([name, f"{len(split):,}", few, median, most])
        if name in inputs:
            copies = sum(normalize_text(text) in known for text in inputs[name])
            rows[-1].append("-" if name == "train" else f"{copies:,}")
        if name in inputs and tokenizer:
            counts = token_counts(tokenizer, {"text": inputs[name]}, progress=False)
            rows[-1].append(f"{np.mean(counts > tokenizer.most_tokens):.1%}")
    return rows
