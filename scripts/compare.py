r"""Compares runs with the first one on the same examples: differences, intervals and tests.

python -m rank4class.scripts.compare runs/a runs/b
"""

import os

from absl import flags

from rank4class.scripts import cli

_WORKDIRS = flags.DEFINE_multi_string(
    "workdir", None, "Folder of a run; repeat the flag for each run.", required=True
)
_SPLIT = flags.DEFINE_enum("split", "test", ["train", "validation", "test"], "Split to compare on.")
_PATH = flags.DEFINE_string(
    "data.path", None, "Labeled file or folder to compare on in place of a split, as `evaluate` takes it."
)
_OUTPUT = flags.DEFINE_string("output", None, "Folder of the report; None: runs/compare/NAMES, of the runs.")


def check() -> None:
    for workdir in _WORKDIRS.value:
        cli.check_run(workdir, _PATH.value)


def main() -> None:
    from rank4class.pipelines.evaluation import comparison, trained_model
    from rank4class.pipelines.reporting import page, tables
    from rank4class.pipelines.storage import files

    first, *others = _WORKDIRS.value
    runs = list(map(trained_model.restore, _WORKDIRS.value))
    names = [cli.name_of(path) for path in _WORKDIRS.value]
    folder = _OUTPUT.value or os.path.join("runs", "compare", "-".join(names))
    files.make_writable(folder, f"--output={folder}")
    blocks = [f"# {', '.join(names)}"]
    for other, compared in zip(others, comparison.compare_runs(runs, _SPLIT.value, _PATH.value), strict=True):
        rows = tables.comparison_rows(compared)
        print(f"A: {first}\nB: {other}\n{compared[0].examples:,} examples\n\n{tables.text_table(rows)}\n")
        blocks += [
            f"A: `{first}`, B: `{other}`, on {compared[0].examples:,} {_PATH.value or _SPLIT.value} examples"
        ]
        blocks += [tables.markdown_table(rows)]
    for name, run in zip(names, runs, strict=True):
        if unknown := (run.run_dir.results() or {}).get("unknown"):
            line = f"{name}: {tables.unknown_line(unknown)}"
            print(f"{line}\n")
            blocks.append(line)
    path = os.path.join(folder, "comparison.md")
    files.write(path, "\n\n".join(blocks) + "\n")
    print(f"Report: {page.write_beside(path)}")


if __name__ == "__main__":
    cli.run(main, check, arguments=["workdir"] * 20)
