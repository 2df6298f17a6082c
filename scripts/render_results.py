"""Renders the pages of the documentation that show results.

python -m rank4class.scripts.render_results --docs=docs
"""

import os

from absl import flags

from rank4class.scripts import cli

_DOCS = flags.DEFINE_string("docs", "docs", "Folder with results/ and claims.json, which takes the pages.")


def main() -> None:
    from rank4class.pipelines.papers import pages
    from rank4class.pipelines.storage import files

    for name, text in pages.render(_DOCS.value).items():
        files.write(os.path.join(_DOCS.value, name), text)
        print(os.path.join(_DOCS.value, name))


if __name__ == "__main__":
    cli.run(main)
