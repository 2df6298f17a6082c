r"""Puts sorters and the losses on ranks to the test.

    python -m rank4class.scripts.sorter_experiments --task=sorting
    python -m rank4class.scripts.sorter_experiments --task=spearman

"sorting" measures the rank functions themselves, on 10,000 vectors of the held-out test. The other tasks
train with each loss on ranks and with the plain one: means over the seeds, with their intervals.
"multi_label" does so on the features of a config:

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
_SEEDS = flags.DEFINE_multi_integer(
    "seed", list(sorter_experiments.SEEDS), "A seed of the training; repeat the flag for more."
)
_CONFIG = door.define_config(required=False)
_WORKDIR = flags.DEFINE_string(
    "workdir", None, "Of --task=multi_label: the folder for a frozen encoder's outputs."
)


def main():
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
