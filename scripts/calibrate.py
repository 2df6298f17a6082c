r"""Fits prediction sets, or a detector of unknown inputs, to labeled examples that a run has not seen.

    python -m rank4class.scripts.calibrate runs/mine labeled.csv --sets=threshold
    python -m rank4class.scripts.calibrate runs/mine labeled.csv --unknown=0.05

A prediction set contains the class of a new example with the probability that you choose, and of new examples
at most the share that you choose is called unknown, if the labeled examples are like them. The run's folder
has the result. Without --data.path, the examples are the calibration split of a training with --sets or
--unknown, if it had a validation split.
"""

from typing import Any

from absl import flags

from rank4class.pipelines import config
from rank4class.scripts import cli

_STRATEGY = cli.define_strategy()
cli.define_cache()
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run.", required=True)
_DATA_PATH, _LOAD = cli.define_data("calibrate with")
_SETS = flags.DEFINE_string(
    "sets",
    None,
    f"Score of the classes: {', '.join(config.Sets.names()[1:])}; None: that of the training, or threshold.",
)
_BY_CLASS = flags.DEFINE_bool("by_class", None, "Separate limits for classes with enough examples.")
_UNKNOWN = flags.DEFINE_float(
    "unknown",
    None,
    "Share of inputs like these that may be called unknown, such as 0.05. Sets need --sets then.",
)


def check() -> None:
    if _SETS.value == "none":
        raise ValueError(f"--sets=none: fits none. Choose one of {', '.join(config.Sets.names()[1:])}.")
    cli.check_run(_WORKDIR.value, _DATA_PATH.value)


def main() -> None:
    from rank4class.pipelines import distribution
    from rank4class.pipelines.evaluation import prediction_sets, trained_model

    strategy = _STRATEGY()
    trained = trained_model.restore(_WORKDIR.value, strategy)
    part = None
    if _UNKNOWN.value is None or _SETS.value is not None:
        names = (_SETS.value, trained.experiment.sets.name, "threshold")
        by_class = {} if _BY_CLASS.value is None else {"sets.by_class": _BY_CLASS.value}
        changes = {"sets.name": next(name for name in names if name not in (None, "none")), **by_class}
        part = config.override(trained.experiment, changes).sets
    task_data = _LOAD(trained)
    path = _DATA_PATH.value
    if trained.trained_on(path):
        raise ValueError(
            f"--data.path={path}: the data of the training. Set it to examples that the run has not seen."
        )
    is_chief = distribution.is_chief(strategy)
    if part is not None:
        _fit_sets(trained, task_data, part, is_chief)
    if (rate := _UNKNOWN.value) is not None:
        size = len(trained.calibrate_unknown(task_data, rate).sums)
        if is_chief:
            low, high = (1.0 - end for end in prediction_sets.coverage_interval(size, 1.0 - rate)[::-1])
            note = f"of inputs like them about {low:.1%} to {high:.1%} will be called unknown (95% of draws)."
            print(f"calibration: {size:,} examples; {note}")
            print(f"Detector of unknown inputs: {trained.run_dir.path}/detector.npz")


def _fit_sets(trained: Any, task_data: Any, part: config.Sets, is_chief: bool) -> None:
    """Fits prediction sets, and prints what they hold."""
    from rank4class.pipelines.evaluation import prediction_sets
    from rank4class.pipelines.evaluation.stages.sets import describe
    from rank4class.pipelines.reporting import tables

    sets = trained.calibrate(task_data, part)
    if not is_chief:
        return
    print(describe(task_data.splits["calibration"]))
    if part.name == "rank":
        possible = [c for c in (0.8, 0.9, 0.95) if prediction_sets.least_examples(c) <= sets.examples.min()]
        rows = [[f"{coverage:.0%}", f"{sets.limits(coverage).max():.0f}"] for coverage in possible]
        print(f"\n{tables.text_table([['coverage', 'classes'], *rows])}\n")
    print(f"Prediction sets: {trained.run_dir.path}/prediction_sets.json")


if __name__ == "__main__":
    cli.run(main, check, arguments=["workdir", "data.path"])
