r"""Puts sorters and the losses on ranks to the test.

    python -m rank4class.scripts.sorter_experiments --task=sorting
    python -m rank4class.scripts.sorter_experiments --task=spearman

"sorting" measures the rank functions themselves, on 10,000 vectors of the held-out test, or with
--scores=FOLDER/scores.npz on what a run has scored (scripts.evaluate --output=FOLDER). The other tasks train
with each loss on ranks and with the plain one: means over the seeds, with their intervals. "multi_label" does
so on the features of a config:

    python -m rank4class.scripts.sorter_experiments --task=multi_label --workdir=runs/multi_label \
        --config=pipelines/configs/goemotions_minilm_frozen.py --config.data.path=FOLDER \
        --config.data.multi_label=True
"""

from absl import flags

from rank4class.pipelines import report, sorter_accuracy, sorter_experiments
from rank4class.scripts import main as door

_TASK = flags.DEFINE_enum(
    "task", "sorting", ["sorting", *sorter_experiments.TASKS, "multi_label"], "What to measure, or to train."
)
_RANK_FNS = flags.DEFINE_list("rank_fns", list(sorter_experiments.RANK_FNS), "Rank functions.")
_SCORES = flags.DEFINE_string("scores", None, "Of --task=sorting: a scores.npz of scripts.evaluate.")
_SEEDS = flags.DEFINE_multi_integer(
    "seed", list(sorter_experiments.SEEDS), "A seed of the training; repeat the flag for more."
)
_CONFIG = door.define_config(required=False)
_WORKDIR = flags.DEFINE_string(
    "workdir", None, "Of --task=multi_label: the folder for a frozen encoder's outputs."
)


def main():
    for flag, task in ((_SCORES, "sorting"), (_CONFIG, "multi_label"), (_WORKDIR, "multi_label")):
        if flag.value is not None and _TASK.value != task:
            raise ValueError(f"--{flag.name} is for --task={task}, not for --task={_TASK.value}")
    if _SCORES.value is not None:
        rows = sorter_accuracy.table_of_run(_RANK_FNS.value, _SCORES.value)
        print(f"\n{report.text_table(rows)}")
        return
    if _TASK.value == "sorting":
        for rows in sorter_accuracy.tables(_RANK_FNS.value).values():
            print(f"\n{report.text_table(rows)}")
        print()
        for title, command in sorter_accuracy.commands(_RANK_FNS.value).items():
            print(f"{title}: {command}")
        return
    task = _multi_label() if _TASK.value == "multi_label" else sorter_experiments.TASKS[_TASK.value]
    found = sorter_experiments.run(task, _RANK_FNS.value, seeds=_SEEDS.value)
    print(f"\n{report.text_table(sorter_experiments.table(task, found))}")


def _multi_label():
    if _CONFIG.value is None or _WORKDIR.value is None:
        raise ValueError("--task=multi_label needs --config and --workdir")
    return sorter_experiments.multi_label(_CONFIG.value, _WORKDIR.value)


if __name__ == "__main__":
    door.run(main)
