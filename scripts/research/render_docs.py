"""Renders the pages and pictures of the documentation that follow from code and committed files.

    python -m rank4class.scripts.research.render_docs
    python -m rank4class.scripts.research.render_docs --measure=digits,counts,sorters,reanalysis

The second command first trains small models in a temporary folder, on scikit-learn's digits, and writes their
values to `docs/figures/*.json`. Tests compare pages and pictures with the committed ones. `make docs` renders
the pages of results.
"""

import os
import tempfile

from absl import flags

from rank4class import registry
from rank4class.scripts import cli

_DOCS = flags.DEFINE_string("docs", "docs", "Folder of the documentation.")
_MEASURE = flags.DEFINE_list(
    "measure", [], "Measurements to make before: digits, counts, sorters, reanalysis."
)


def main() -> None:
    from rank4class import arguments
    from rank4class.pipelines.storage import code_version, files, run_directory
    from rank4class.scripts.research import reference
    from rank4class.scripts.research.papers import figure_data, figures

    for name in _MEASURE.value:
        arguments.check_choice(figure_data.MEASUREMENTS, measure=name)
    for name in _MEASURE.value:
        origin = {"command": f"rank4class render_docs --measure={name}", "commit": code_version.git_commit()}
        with tempfile.TemporaryDirectory() as folder:
            measured = figure_data.MEASUREMENTS[name](folder)
        path = os.path.join(_DOCS.value, "figures", f"{name}.json")
        run_directory.write_json(path, {**origin, **measured})
        print(path)
    images = {f"images/{name}.svg": svg for name, svg in figures.draw_all(_DOCS.value).items()}
    images["../signatures.json"] = registry.signatures()
    for name, text in {**reference.render(), **images}.items():
        files.write(os.path.join(_DOCS.value, name), text)
        print(os.path.join(_DOCS.value, name))


if __name__ == "__main__":
    cli.run(main)
