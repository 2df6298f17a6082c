r"""Draws the figures of the documentation from the files of `docs`, or measures the values of some of them.

    python -m rank4class.scripts.figures
    python -m rank4class.scripts.figures --measure=digits,counts,sorters

The second command trains small models in a temporary folder, on scikit-learn's digits, and writes
`docs/figures/*.json`. Figures that are drawn from equal files are equal to the byte.
"""

import os
import tempfile

from absl import flags

from rank4class.scripts import cli

_DOCS = flags.DEFINE_string("docs", "docs", "Folder of the documentation.")
_MEASURE = flags.DEFINE_list("measure", [], "Names of measurements; draws nothing if there are any.")


def main() -> None:
    from rank4class.pipelines.papers import figure_data, figures
    from rank4class.pipelines.storage import code_version, files, run_directory

    for name in _MEASURE.value:
        if name not in figure_data.MEASUREMENTS:
            known = ", ".join(figure_data.MEASUREMENTS)
            raise ValueError(f"measure={name}: no such measurement. Choose from {known}.")
    for name in _MEASURE.value:
        path = os.path.join(_DOCS.value, "figures", f"{name}.json")
        with tempfile.TemporaryDirectory() as folder:
            measured = figure_data.MEASUREMENTS[name](folder)
        command = f"rank4class figures --measure={name}"
        run_directory.write_json(path, {"command": command, "commit": code_version.git_commit(), **measured})
        print(path)
    if not _MEASURE.value:
        for name, svg in figures.draw_all(_DOCS.value).items():
            path = os.path.join(_DOCS.value, "images", f"{name}.svg")
            files.write(path, svg)
            print(path)


if __name__ == "__main__":
    cli.run(main)
