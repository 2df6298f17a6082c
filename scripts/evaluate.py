r"""Judges a checkpoint of a run on a split: metrics with intervals, each class, each example.

    python -m rank4class.scripts.evaluate --workdir=runs/digits_mlp --split=test --classes \
        --output=runs/digits_mlp/test

The folder then holds evaluation.json, classes.tsv and predictions.npz; `scripts.compare` compares two such
predictions.npz example by example.
"""

from absl import flags

from rank4class.pipelines import config
from rank4class.scripts import main as door

ALL_SHOWN = 40  # classes; of more than these only the worst are shown
WORST = 20

_STRATEGY = door.define_strategy()
_WORKDIR = flags.DEFINE_string("workdir", None, "The run's folder.", required=True)
_SPLIT = flags.DEFINE_enum("split", "test", ["train", "validation", "test"], "What to judge it on.")
_CHECKPOINT = flags.DEFINE_enum(
    "checkpoint", "best", config.CHECKPOINTS, "The best by the monitored metric, or the last."
)
_CLASSES = flags.DEFINE_bool("classes", False, "Show the figures of each class, or of the worst of many.")
_OUTPUT = flags.DEFINE_string("output", None, "Folder for evaluation.json, classes.tsv and predictions.npz.")
_KEEP_SCORES = flags.DEFINE_bool(
    "keep_scores", True, "Whether predictions.npz holds the scores of all classes."
)


def main():
    from rank4class.pipelines import distribution
    from rank4class.pipelines.evaluation import per_class, predictions
    from rank4class.pipelines.reporting import tables
    from rank4class.pipelines.storage.code_version import git_commit
    from rank4class.pipelines.training import rank_model_task, rank_training

    strategy, split, output = _STRATEGY(), _SPLIT.value, _OUTPUT.value
    chief = distribution.is_chief(strategy)
    if output and chief:
        predictions.prepare(output)  # what cannot be written is better known now
    experiment, loaded, model, step = rank_training.restore(_WORKDIR.value, _CHECKPOINT.value, strategy)
    examples, class_names = loaded.splits[split], loaded.scored_class_names(split)
    keep_scores = bool(output) and _KEEP_SCORES.value
    if keep_scores:
        predictions.check_size(len(examples), len(class_names))
    judge = rank_model_task.build_evaluators(experiment, loaded, model, strategy)[split]
    with distribution.lost_worker_errors(strategy):
        judged = judge(loaded.read(experiment, split, strategy), keep_scores=keep_scores)
    if not chief:
        return
    summary = judged.summarize()
    print(tables.results_table({split: summary}))
    table = per_class.per_class(judged, examples.labels, class_names)
    if _CLASSES.value:
        _show(table, experiment.monitor)
    if output:
        what = {
            "workdir": _WORKDIR.value,
            "checkpoint": _CHECKPOINT.value,
            "step": step,
            "split": split,
            "hashes": {name: loaded.hashes[name] for name in ("classes", split)},
            "git": git_commit(),
            **summary,
        }
        predictions.write(output, what, table, judged, examples, class_names)
        print(f"\nEvaluation, classes and scores: {output}")


def _show(table, metric):
    from rank4class.pipelines.reporting import tables

    ids = table.worst_first(metric)
    shown = ids if len(ids) <= ALL_SHOWN else ids[:WORST]
    print(f"\nThe worst by {metric} first, 95% intervals (Wilson) in brackets:\n")
    print(tables.class_table(table, shown))
    if len(shown) < len(ids):
        where = "classes.tsv" if _OUTPUT.value else "FOLDER/classes.tsv with --output=FOLDER"
        print(f"... and {len(ids) - len(shown):,} more, see {where}")


if __name__ == "__main__":
    door.run(main)
