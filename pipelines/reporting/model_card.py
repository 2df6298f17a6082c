"""The model card of an exported model: its description, training data and metrics."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rank4class.pipelines import config
from rank4class.pipelines.evaluation.detector import Detector
from rank4class.pipelines.evaluation.prediction_sets import PredictionSets, coverage_interval
from rank4class.pipelines.reporting import tables
from rank4class.pipelines.storage import files
from rank4class.pipelines.storage.run_directory import evaluations

_SHOWN_CLASSES = 50


def model_card(
    experiment: config.Experiment,
    class_names: Sequence[str],
    results: Mapping[str, Any] | None,
    hashes: Mapping[str, str],
    sessions: Sequence[Mapping[str, Any]],
    usage: str,
    sets: PredictionSets | None = None,
    coverage: float | None = None,
    detector: Detector | None = None,
) -> str:
    """Returns a model card in Markdown, with fields for its owner to fill in.

    The results are the content of `results.json`, None before the run is finished; the hashes are those of
    the classes and splits, and `usage` is a program that loads the model. The model returns the prediction
    `sets` of a `coverage`, or none, and marks unknown inputs by the `detector`, or none.
    """
    parts = {name: getattr(experiment, name).name for name in ("encoder", "interaction", "loss")}
    blocks = [
        f"# {experiment.data.name}: {parts['encoder']}, {parts['interaction']}, {parts['loss']}",
        "- License: TO BE FILLED IN\n- Intended use and limits: TO BE FILLED IN\n- Contact: TO BE FILLED IN",
        _ranked(experiment, class_names),
        "## Use",
        f"```python\n{usage}\n```",
        *_prediction_sets(sets, coverage, results),
        *_unknown_inputs(detector, results),
        "## Data",
        tables.markdown_table(_splits(results, hashes)),
        "## Metrics",
        _metrics(results),
        "## Training",
        _training(sessions),
        f"```json\n{config.to_json(_without_folders(experiment)).rstrip()}\n```",
    ]
    return "\n\n".join(blocks) + "\n"


def _prediction_sets(
    sets: PredictionSets | None, coverage: float | None, results: Mapping[str, Any] | None
) -> list[str]:
    """Returns the blocks on prediction sets, if there are any."""
    if sets is None or coverage is None:
        return []
    has_one_class = np.count_nonzero(sets.groups == 0) == sets.examples[0] and np.all(sets.weights == 1.0)
    contents = "the class of an input with a probability of" if has_one_class else "an expected share of"
    lines = [
        f"`in_set` has the classes of a prediction set, which contains {contents} at least {coverage:.4g}"
        f"{'' if has_one_class else ' of the classes of an input'}, if inputs are drawn as the calibration "
        "examples were.",
        f"- Score: {sets.name}{', with separate limits by class' if len(sets.examples) > 1 else ''}",
        f"- Calibration examples: {sets.examples[0]:,}",
    ]
    if has_one_class and len(sets.examples) == 1:
        low, high = coverage_interval(int(sets.examples[0]), coverage)
        lines.append(f"- Coverage over draws of as many calibration examples: {low:.3f} to {high:.3f} in 95%")
    tested = {} if results is None or sets.after_training else results.get("test", {}).get("sets", {})
    percent = f"{100.0 * coverage:.6g}"
    if f"set_size@{percent}" in tested:
        lines.append(f"- On test: {tables.sets_line(tested, int(percent)).partition(': ')[2]}")
    return ["## Prediction sets", "\n".join(lines[:1]), "\n".join(lines[1:])]


def _unknown_inputs(detector: Detector | None, results: Mapping[str, Any] | None) -> list[str]:
    """Returns the blocks on unknown inputs, if there is a detector."""
    if detector is None:
        return []
    lines = [
        f"`unknown` marks inputs whose `p_value` is at most {detector.rate:g}. Inputs drawn as calibration "
        f"examples were have it with a probability of at most {100.0 * detector.rate:g}%; nothing is "
        "promised for others.",
        f"- Calibration examples: {len(detector.sums):,}",
    ]
    measured = (results or {}).get("unknown", {})
    if (measured.get("rate"), measured.get("calibration")) == (100.0 * detector.rate, len(detector.sums)):
        lines.append(f"- On test: {tables.unknown_line(measured).partition(': ')[2]}")
    return ["## Unknown inputs", lines[0], "\n".join(lines[1:])]


def _training(sessions: Sequence[Mapping[str, Any]]) -> str:
    if not sessions:
        return "The training has just begun."
    first = sessions[0]
    last = sessions[-1]
    packages = ", ".join(f"{name} {version}" for name, version in last["packages"].items())
    seconds = sum(session["seconds"] for session in sessions)
    return f"Commit {last['git'] or 'unknown'}, {packages}; started {first['started']}, {seconds:,.0f} s."


def _ranked(experiment: config.Experiment, class_names: Sequence[str]) -> str:
    if experiment.encoder.name == "items":  # the classes are the positions in the longest list
        return f"Ranks the items of a list. The longest list of its data has {len(class_names):,} items."
    shown = ", ".join(map(_escaped, class_names[:_SHOWN_CLASSES]))
    more = f" and {len(class_names) - _SHOWN_CLASSES:,} more" if len(class_names) > _SHOWN_CLASSES else ""
    return f"Ranks {len(class_names):,} classes: {shown}{more}."


def _escaped(name: str) -> str:
    r"""Returns a name as Markdown shows it.

    >>> print(_escaped("a|b_c*"))
    a\|b\_c\*
    """
    return re.sub(r"([\\`*_{}\[\]<>#|])", r"\\\1", files.printable(name))


def _without_folders(experiment: config.Experiment) -> config.Experiment:
    """Returns an experiment with the last part of each path: the rest describes a machine."""
    changes = {
        name: value.rstrip("/").rpartition("/")[2]
        for name, value in config.values(experiment).items()
        if isinstance(value, str) and "/" in value and not name.endswith("_column")
    }
    return config.override(experiment, changes)


def _splits(results: Mapping[str, Any] | None, hashes: Mapping[str, str]) -> list[list[str]]:
    sizes = {}
    if results is not None:
        sizes = {"train": f"{results['train_examples']:,}"}
        sizes |= {split: f"{each['examples']:,}" for split, each in evaluations(results).items()}
    rows = [[name, sizes.get(name, "-"), f"`{value}`"] for name, value in hashes.items()]
    return [["split", "examples", "hash"], *rows]


def _metrics(results: Mapping[str, Any] | None) -> str:
    if results is None:
        return "The training is not finished."
    table = tables.results_table(evaluations(results))
    return f"With 95% intervals over the examples:\n\n```\n{table}\n```"
