r"""Evaluates a checkpoint on a split: metrics with intervals, overall, per class and per example.

    python -m rank4class.scripts.evaluate --workdir=runs/digits_mlp --split=test --classes \
        --output=runs/digits_mlp/test

Writes evaluation.json, classes.tsv and predictions.npz to the folder. --worst=20 prints the examples whose
class has the lowest probability.
"""

import dataclasses
from typing import Any

from absl import flags, logging

from rank4class.scripts import cli

MAX_CLASSES = 40  # for a table of all classes
WORST_CLASSES = 20  # shown if there are more
LONG_TAIL = 2  # ratio of the most and the fewest training examples from which thirds of the classes are shown

_STRATEGY = cli.define_strategy()
cli.define_cache()
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run.", required=True)
_SPLIT = flags.DEFINE_enum("split", "test", ["train", "validation", "test"], "Split to evaluate on.")
_CLASSES = flags.DEFINE_bool("classes", False, "Print the metrics of each class, or of the worst ones.")
_WORST = flags.DEFINE_integer(
    "worst",
    None,
    "Number of worst examples to print, those with the lowest probability of their class first; without "
    "calibration, those with the last rank of it.",
    lower_bound=1,
)
_OUTPUT = flags.DEFINE_string("output", None, "Folder for evaluation.json, classes.tsv and predictions.npz.")
_DATA_PATH, _LOAD = cli.define_data("evaluate in place of a split")
_COVERAGE = flags.DEFINE_float(
    "coverage",
    None,
    "Coverage of the prediction sets in the report, in (0, 1); None: 0.9 if the run has any.",
)
_KEEP_SCORES = flags.DEFINE_bool(
    "keep_scores",
    None,
    "Write the scores of all classes to predictions.npz, or none; None: of the best 100 for each example.",
)


def _coverage(trained: Any) -> float | None:
    """Returns the coverage of the reported sets, None without sets; raises ValueError if it cannot be."""
    from rank4class.pipelines.evaluation import prediction_sets
    from rank4class.pipelines.export import answers

    if _COVERAGE.value is None:
        few = trained.sets is None or trained.sets.examples.min() < prediction_sets.least_examples(0.9)
        return None if few else 0.9
    coverage = _COVERAGE.value
    answers.sets_of(trained, coverage).limits(coverage)
    if abs(coverage - round(coverage, 2)) > 1e-9:
        nearest = min(max(round(coverage, 2), 0.01), 0.99)
        raise ValueError(f"coverage={coverage:g}: not a whole percent. Choose {nearest:g}.")
    return coverage


def main() -> None:
    if flags.FLAGS["split"].present and _DATA_PATH.value is not None:
        raise ValueError("--split: has no effect with --data.path, which is evaluated whole. Leave it out.")
    if flags.FLAGS["keep_scores"].present and _OUTPUT.value is None:
        raise ValueError("--keep_scores: has no effect without --output. Set both.")
    import numpy as np

    from rank4class.pipelines import distribution
    from rank4class.pipelines.evaluation import per_class, predictions, trained_model, worst_examples
    from rank4class.pipelines.evaluation.stages import calibration
    from rank4class.pipelines.reporting import tables
    from rank4class.pipelines.storage import files
    from rank4class.pipelines.storage.code_version import git_commit

    strategy, split, output = _STRATEGY(), _SPLIT.value, _OUTPUT.value
    is_chief = distribution.is_chief(strategy)
    trained = trained_model.restore(_WORKDIR.value, strategy)
    coverage = _coverage(trained)
    if output and is_chief:
        files.make_writable(output, f"--output={output}")  # before the evaluation, which may take long
    experiment, path = trained.experiment, _DATA_PATH.value
    loaded = _LOAD(trained)
    if trained.trained_on(path):
        logging.warning("%s: the data of the training, on whose examples the metrics are too good", path)
    examples, class_names = loaded.splits[split], loaded.scored_class_names(split)
    keep_scores, best = _KEEP_SCORES.value if output else False, 0
    if keep_scores is None:
        keep_scores = len(class_names) <= predictions.BEST_CLASSES
        best = 0 if keep_scores else predictions.BEST_CLASSES
    if keep_scores:
        remedy = f"Leave it out to write the best {predictions.BEST_CLASSES}, or set --nokeep_scores."
        predictions.check_size("keep_scores=True", len(examples), len(class_names), remedy)
    if _WORST.value:
        worst_examples.check(examples, _WORST.value)
    has_unknown = bool(experiment.data.held_out) and path is None and split == "test"
    few_scores = len(examples) * len(class_names) <= calibration.MAX_SCORES
    needs_scores = keep_scores or (bool(_WORST.value) and few_scores) or has_unknown
    coverages = () if coverage is None else (coverage,)
    result = trained.evaluate(loaded, split, keep_scores=needs_scores, best=best, coverages=coverages)
    unknown = trained.evaluate_unknown(loaded, result) if has_unknown else None
    if not is_chief:
        return
    metrics = result.summarize()
    print(tables.results_table({path or split: metrics}))
    if unknown:
        print(f"\n{tables.unknown_inputs_line(unknown)}")
    of_sets = {} if result.sets is None or coverage is None else result.sets.metrics(coverage)
    result = result.with_metrics(of_sets)
    table = per_class.per_class(result, examples.labels, class_names)
    counts = loaded.training_counts(split) if path is None else trained.description.training_counts
    thirds = None
    if not examples.kind.ranks_items:
        thirds = per_class.by_frequency(result, examples.labels, counts)
    if of_sets and coverage is not None:
        covered, size = of_sets
        spread = f"median {np.median(of_sets[size]):g}, largest {of_sets[size].max():,}"
        print(f"\n{tables.sets_line(metrics['sets'], round(100 * coverage))}, {spread}\n")
        print(tables.sets_table(per_class.by_set_size(result, table, thirds, covered, size), covered, size))
    if _CLASSES.value:
        names = (*result.names, *result.whole.means())
        if thirds is not None and (
            len(table) > MAX_CLASSES or thirds["most"].max() >= LONG_TAIL * thirds["fewest"].min()
        ):
            print("\nClasses by thirds of their training examples:\n")
            print(tables.class_table(thirds, names))
        _print_classes(table, names, experiment.monitor)
    if _WORST.value:
        rows = worst_examples.worst(result, _WORST.value)
        worst = worst_examples.frame(result, examples, class_names, rows)
        print(f"\nWorst examples first:\n\n{tables.example_table(worst)}")
    if not keep_scores:
        result = dataclasses.replace(result, scores=None)
    if output:
        summary = {
            "workdir": _WORKDIR.value,
            "step": trained.step,
            "split": path or split,
            "hashes": {name: loaded.hashes[name] for name in ("classes", split)},
            "git": git_commit(),
            **metrics,
            **({"unknown_inputs": unknown} if unknown else {}),
            **({} if thirds is None else {"by_frequency": per_class.to_json(thirds.drop(columns="class"))}),
        }
        predictions.write(output, summary, table, result, examples, class_names)
        print(f"\nEvaluation, classes and scores: {output}")


def _print_classes(table: Any, metrics: tuple[str, ...], monitor: str) -> None:
    from rank4class.pipelines.evaluation import per_class
    from rank4class.pipelines.reporting import tables

    shown, least = per_class.worst_first(table, monitor), ""
    if len(table) > MAX_CLASSES:
        least = f" of those with at least {per_class.LEAST_EXAMPLES} examples"
        shown = shown[shown["examples"] >= per_class.LEAST_EXAMPLES][:WORST_CLASSES]
    print(f"\nWorst classes by {monitor} first{least}, with 95% intervals (Wilson) in brackets:\n")
    print(tables.class_table(shown, metrics) if len(shown) else "none")
    if len(shown) < len(table):
        path = "classes.tsv" if _OUTPUT.value else "FOLDER/classes.tsv with --output=FOLDER"
        print(f"... and {len(table) - len(shown):,} more, see {path}")


if __name__ == "__main__":
    cli.run(main)
