"""Trains an experiment; continues an interrupted training.

    python -m rank4class.scripts.train comments.csv
    python -m rank4class.scripts.train comments.csv --minutes=10
    python -m rank4class.scripts.train --config=digits_mlp --workdir=runs/digits_mlp

The first line takes a table, a folder with the tables of splits, or a folder of images. Its config, columns
and folder, runs/comments, follow from it, and from the flags that are set. With minutes the text encoder is
fine-tuned from the solved head, as long as they last; the better of the two by validation is the result. With
--unknown=0.05 predictions mark inputs that look unlike these, on average at most 5% of inputs like these.
"""

import os

from absl import flags

from rank4class.scripts import cli

_CONFIG = cli.define_config()
_STRATEGY = cli.define_strategy()
cli.define_cache()
cli.define_log()
_MINUTES = flags.DEFINE_float("minutes", None, "Time in which all ends: --config.minutes.")
_UNKNOWN = flags.DEFINE_float(
    "unknown", None, "Share of known inputs, such as 0.05, that may be called unknown: --config.unknown."
)
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run.", required=True)


def check() -> None:
    if not (os.path.exists(_WORKDIR.value) or "://" in _WORKDIR.value):  # a finished run needs no data
        cli.check_files(_CONFIG.value)


def main() -> None:
    from rank4class.pipelines import config
    from rank4class.pipelines.reporting import plots, run_page, tables
    from rank4class.pipelines.storage.run_directory import evaluations
    from rank4class.pipelines.training import rank_training

    changes = {"minutes": _MINUTES.value, "unknown": _UNKNOWN.value}
    changes = {name: value for name, value in changes.items() if value is not None}
    experiment = config.override(_CONFIG.value, changes)
    results = rank_training.train(
        experiment,
        _WORKDIR.value,
        strategy=_STRATEGY(),
        draw=plots.draw_evaluation,
        report=run_page.write,
        started=cli.STARTED,
    )
    summaries = evaluations(results)
    print(tables.results_table(summaries))
    if "set_size@90" in (sets := summaries.get("test", {}).get("sets", {})):
        print(f"\n{tables.sets_line(sets)} on test")
    if "unknown" in results:
        print(f"\n{tables.unknown_line(results['unknown'])}")
    print()
    if results["best_step"] is not None:
        step = f"step {results['best_step']} of {results['steps']}"
        print(f"Checkpoint: {step}, the first with the best validation {results['monitor']}")
    print(f"Results, checkpoints and metrics: {_WORKDIR.value}")
    print(f"Report: {os.path.join(_WORKDIR.value, run_page.FILE)}")
    print(f"TensorBoard: tensorboard --logdir {_WORKDIR.value}")
    print(f"Predict: rank4class predict {_WORKDIR.value} FILE")
    print(f"Serve: rank4class serve {_WORKDIR.value}")


if __name__ == "__main__":
    cli.run(main, check, arguments=["config.data.path"], workdir="runs/{}", resumes=True)
