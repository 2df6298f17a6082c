"""Puts losses on ranks to the test, each against the plain loss: means over seeds, with their intervals.

python -m rank4class.scripts.sorter_experiments --task=spearman
"""

from absl import flags

from rank4class.pipelines import report, sorter_experiments
from rank4class.scripts import main as door

_TASK = flags.DEFINE_enum("task", "spearman", list(sorter_experiments.TASKS), "What to train.")
_RANK_FNS = flags.DEFINE_list(
    "rank_fns", list(sorter_experiments.RANK_FNS), "Rank functions of the losses on ranks."
)
_SEEDS = flags.DEFINE_multi_integer(
    "seed", list(sorter_experiments.SEEDS), "A seed; repeat the flag for more."
)


def main():
    task = sorter_experiments.TASKS[_TASK.value]
    found = sorter_experiments.run(task, _RANK_FNS.value, seeds=_SEEDS.value)
    print()
    print(report.text_table(sorter_experiments.table(task, found)))


if __name__ == "__main__":
    door.run(main)
