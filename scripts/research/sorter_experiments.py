r"""Measures sorters and other rank functions, and compares the losses that use them.

    python -m rank4class.scripts.research.sorter_experiments --task=sorting
    python -m rank4class.scripts.research.sorter_experiments --task=map --workdir=runs/map

"sorting" measures rank functions on the 10,000 vectors of the held-out test, or on the scores of a run, with
--scores=FOLDER/predictions.npz (rank4class evaluate --output=FOLDER). The other tasks train with each loss on
ranks and with losses that ignore ranks, and report means over the seeds with intervals. Finished trainings in
--workdir are not repeated. "multi_label" trains on the features of a config:

    python -m rank4class.scripts.research.sorter_experiments --task=multi_label --workdir=runs/multi_label \
        --config=goemotions_minilm_frozen --config.data.path=FOLDER \
        --config.data.multi_label=True
"""

import dataclasses

from absl import flags

from rank4class.scripts import cli, research
from rank4class.scripts.research import sorters

_TASK = flags.DEFINE_enum("task", "sorting", ["sorting", *sorters.TASKS], "Task to measure or to train.")
_RANK_FNS = flags.DEFINE_list("rank_fns", [*sorters.RANK_FNS], "Rank functions to measure or to train with.")
_SCORES = flags.DEFINE_string("scores", None, "For --task=sorting: predictions.npz of `rank4class evaluate`.")
_SEEDS = flags.DEFINE_multi_integer(
    "seed", [*sorters.SEEDS], "Seed of the trainings; repeat the flag for more seeds."
)
_CONFIG = cli.define_config(required=False)
_TABLE = flags.DEFINE_string("table", None, "For --task=regression: a CSV file with a header.")
_TARGET = flags.DEFINE_string("target", None, "For --task=regression: the column to predict.")
_EPOCHS = flags.DEFINE_integer(
    "epochs", None, "For tasks that train: epochs in place of those of the task.", lower_bound=1
)
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the results; --task=sorting needs none.")


def main() -> None:
    from rank4class.pipelines.reporting import tables
    from rank4class.pipelines.sweep import grid_summary, grid_tables
    from rank4class.scripts.research.papers import results
    from rank4class.scripts.research.sorters import accuracy, studies, study

    _check_flags()
    if _SCORES.value is not None:
        rows = accuracy.table_of_run(_RANK_FNS.value, _SCORES.value)
        print(f"\n{tables.text_table(rows)}")
        return
    if _TASK.value == "sorting":
        for rows in accuracy.tables(accuracy.run(_RANK_FNS.value, _WORKDIR.value)):
            print(f"\n{tables.text_table(rows)}")
        return
    if _TASK.value == "multi_label":
        research.check_used("data", "encoder", "evaluation_batch_size")
        task = studies.multi_label(_CONFIG.value, _WORKDIR.value)
    elif _TASK.value == "regression":
        task = studies.regression(_TABLE.value, _TARGET.value)
    else:
        task = studies.STUDIES[_TASK.value]
    if _EPOCHS.value is not None:
        task = dataclasses.replace(task, epochs=_EPOCHS.value)
    cells = results.study_cells(study.run(task, _RANK_FNS.value, _WORKDIR.value, seeds=_SEEDS.value))
    summary = grid_summary.summarize(cells, baseline={"loss": task.plain[0]}, metrics=results.METRICS)
    print(f"\n{grid_tables.text(summary)}")


# Names of the flags that only some tasks have.
_REQUIRED = {
    "sorting": (),
    "multi_label": ("config", "workdir"),
    "regression": ("table", "target", "workdir"),
}
_OPTIONAL = {"sorting": ("scores", "workdir")}


def _check_flags() -> None:
    task = _TASK.value
    required = _REQUIRED.get(task, ("workdir",))
    optional = _OPTIONAL.get(task, ("epochs", "seed"))
    for name in ("config", "workdir", "table", "target", "scores", "epochs", "seed"):
        if name in required and not flags.FLAGS[name].value:
            raise ValueError(f"--{name}: missing. Set it for --task={task}.")
        if name not in (*required, *optional) and flags.FLAGS[name].present:
            raise ValueError(f"--{name}: not used by --task={task}. Remove it.")
    if _SCORES.value is not None and _WORKDIR.value is not None:
        raise ValueError("--workdir: has no effect with --scores. Remove it.")
    if task == "sorting" and not _RANK_FNS.value:
        raise ValueError("--rank_fns=: names no rank function. Name at least one.")


if __name__ == "__main__":
    cli.run(main, resumes=True)
