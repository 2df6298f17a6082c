"""Renders the pages of the documentation that follow from results, commands, configs and import rules.

    python -m rank4class.scripts.render_docs --docs=docs

Tests compare the pages with the committed ones.
"""

import os

from absl import flags

from rank4class.scripts import cli

_DOCS = flags.DEFINE_string("docs", "docs", "Folder with results/ and claims.json, which takes the pages.")


def main() -> None:
    from rank4class.pipelines.papers import pages
    from rank4class.pipelines.storage import files
    from rank4class.scripts import reference

    for name, text in {**pages.render(_DOCS.value), **reference.render(_DOCS.value)}.items():
        files.write(os.path.join(_DOCS.value, name), text)
        print(os.path.join(_DOCS.value, name))


if __name__ == "__main__":
    cli.run(main)
