r"""Compares runs with the first one on the same examples: differences, intervals and tests.

python -m rank4class.scripts.compare runs/a runs/b
"""

from absl import flags

from rank4class.scripts import cli

_WORKDIRS = flags.DEFINE_multi_string(
    "workdir", None, "Folder of a run; repeat the flag for each run.", required=True
)
_SPLIT = flags.DEFINE_enum("split", "test", ["train", "validation", "test"], "Split to compare on.")
_PATH = flags.DEFINE_string(
    "data.path", None, "Labeled file or folder to compare on in place of a split, as `evaluate` takes it."
)


def main() -> None:
    from rank4class.pipelines.evaluation import comparison, trained_model
    from rank4class.pipelines.reporting import tables

    first, *others = _WORKDIRS.value
    runs = list(map(trained_model.restore, _WORKDIRS.value))
    for other, compared in zip(others, comparison.compare_runs(runs, _SPLIT.value, _PATH.value), strict=True):
        print(f"A: {first}\nB: {other}\n{compared[0].examples:,} examples\n")
        print(tables.comparison_table(compared) + "\n")


if __name__ == "__main__":
    cli.run(main, arguments=["workdir"] * 20)
