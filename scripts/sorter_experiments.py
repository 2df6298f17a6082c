r"""Puts sorters and the losses on ranks to the test.

    python -m rank4class.scripts.sorter_experiments --task=sorting
    python -m rank4class.scripts.sorter_experiments --task=spearman --workdir=runs/spearman

"sorting" measures the rank functions themselves, on 10,000 vectors of the held-out test, or with
--scores=FOLDER/predictions.npz on what a run has scored (scripts.evaluate --output=FOLDER). The other tasks
train
with each loss on ranks and with the plain one: means over the seeds, with their intervals. What is trained
already, by a command that was stopped or with other rank functions, is taken from --workdir. "multi_label"
trains on the features of a config:

    python -m rank4class.scripts.sorter_experiments --task=multi_label --workdir=runs/multi_label \
        --config=goemotions_minilm_frozen --config.data.path=FOLDER \
        --config.data.multi_label=True
"""

from absl import flags

from rank4class.scripts import cli

# Of `pipelines.sorter_experiments`.
TASKS = ("spearman", "map", "recall")
RANK_FNS = ("handcrafted", "cnn", "lstm", "equivariant", "neural_sort", "soft_sort")
SEEDS = (0, 1, 2, 3, 4)

_TASK = flags.DEFINE_enum(
    "task", "sorting", ["sorting", *TASKS, "multi_label"], "What to measure, or to train."
)
_RANK_FNS = flags.DEFINE_list("rank_fns", list(RANK_FNS), "Rank functions.")
_SCORES = flags.DEFINE_string("scores", None, "Of --task=sorting: a predictions.npz of scripts.evaluate.")
_SEEDS = flags.DEFINE_multi_integer("seed", list(SEEDS), "A seed of the training; repeat the flag for more.")
_CONFIG = cli.define_config(required=False)
_WORKDIR = flags.DEFINE_string(
    "workdir", None, "Of all tasks that train: the folder for what the trainings come to."
)


def main() -> None:
    from rank4class.pipelines.reporting import tables
    from rank4class.pipelines.sorters import accuracy, study

    _check_flags()
    if _SCORES.value is not None:
        rows = accuracy.table_of_run(_RANK_FNS.value, _SCORES.value)
        print(f"\n{tables.text_table(rows)}")
        return
    if _TASK.value == "sorting":
        for rows in accuracy.tables(_RANK_FNS.value).values():
            print(f"\n{tables.text_table(rows)}")
        print()
        for title, command in accuracy.commands(_RANK_FNS.value).items():
            print(f"{title}: {command}")
        return
    if _TASK.value == "multi_label":
        task = study.multi_label(_CONFIG.value, _WORKDIR.value)
    else:
        task = study.TASKS[_TASK.value]
    found = study.run(task, _RANK_FNS.value, _WORKDIR.value, seeds=_SEEDS.value)
    print(f"\n{tables.text_table(study.table(task, found))}")


def _check_flags() -> None:
    task = _TASK.value
    for flag, wanted in ((_CONFIG, task == "multi_label"), (_WORKDIR, task != "sorting")):
        if wanted and not flag.value:
            raise ValueError(f"--task={task} needs --{flag.name}")
        if flag.value is not None and not wanted:
            raise ValueError(f"--{flag.name} is not for --task={task}")
    if _SCORES.value is not None and task != "sorting":
        raise ValueError(f"--{_SCORES.name} is for --task=sorting, not for --task={task}")


if __name__ == "__main__":
    cli.run(main, resumes=True)
