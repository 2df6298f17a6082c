r"""Evaluates a checkpoint on a split: metrics with intervals, overall, per class and per example.

    python -m rank4class.scripts.evaluate runs/digits_mlp --split=test --classes \
        --output=runs/digits_mlp/test

Writes evaluation.json, classes.tsv and predictions.npz to the folder. --worst=20 prints the examples whose
class has the lowest probability.
"""

from typing import Any

from absl import flags, logging

from rank4class.scripts import cli

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


def check() -> None:
    if flags.FLAGS["split"].present and _DATA_PATH.value is not None:
        raise ValueError("--split: has no effect with --data.path, which is evaluated whole. Leave it out.")
    if flags.FLAGS["keep_scores"].present and _OUTPUT.value is None:
        raise ValueError("--keep_scores: has no effect without --output. Set both.")
    cli.check_run(_WORKDIR.value, _DATA_PATH.value)


def main() -> None:
    from rank4class.pipelines import distribution
    from rank4class.pipelines.evaluation import split_report, trained_model
    from rank4class.pipelines.storage import files

    strategy = _STRATEGY()
    path = _DATA_PATH.value
    split = _SPLIT.value
    output = _OUTPUT.value
    is_chief = distribution.is_chief(strategy)
    trained = trained_model.restore(_WORKDIR.value, strategy)
    coverage = split_report.reported_coverage(trained, _COVERAGE.value)
    if output and is_chief:
        files.make_writable(output, f"--output={output}")  # before the evaluation, which may take long
    task_data = _LOAD(trained)
    if trained.trained_on(path):
        logging.warning("%s: the data of the training, on whose examples the metrics are too good", path)
    keep_scores = _KEEP_SCORES.value if output else False
    options = {"coverage": coverage, "keep_scores": keep_scores, "worst": _WORST.value, "path": path}
    report = split_report.SplitReport(trained, task_data, split, **options)
    if not is_chief:
        return
    _print(report, trained.experiment.monitor)
    if output:
        report.write(output)
        print(f"\nEvaluation, classes and scores: {output}")


def _print(report: Any, monitor: str) -> None:
    import numpy as np

    from rank4class.pipelines.evaluation.per_class import LEAST_EXAMPLES
    from rank4class.pipelines.reporting import tables

    print(tables.results_table({report.title: report.metrics}))
    if report.unknown_inputs:
        print(f"\n{tables.unknown_inputs_line(report.unknown_inputs)}")
    if report.sets:
        covered, size = report.sets
        spread = f"median {np.median(report.sets[size]):g}, largest {report.sets[size].max():,}"
        line = tables.sets_line(report.metrics["sets"], int(covered.partition("@")[2]))
        print(f"\n{line}, {spread}\n\n{tables.sets_table(report.by_set_size(), covered, size)}")
    if _CLASSES.value:
        names = (*report.result.names, *report.result.whole.means())
        if report.is_long_tailed():
            print("\nClasses by thirds of their training examples:\n")
            print(tables.class_table(report.thirds, names))
        shown = report.worst_classes(monitor)
        total = len(report.classes)
        least = f" of those with at least {LEAST_EXAMPLES} examples" if report.has_many_classes else ""
        print(f"\nWorst classes by {monitor} first{least}, with 95% intervals (Wilson) in brackets:\n")
        print(tables.class_table(shown, names) if len(shown) else "none")
        if len(shown) < total:
            path = "classes.tsv" if _OUTPUT.value else "FOLDER/classes.tsv with --output=FOLDER"
            print(f"... and {total - len(shown):,} more, see {path}")
    if report.worst is not None:
        print(f"\nWorst examples first:\n\n{tables.example_table(report.worst)}")


if __name__ == "__main__":
    cli.run(main, check, arguments=["workdir", "data.path"])
