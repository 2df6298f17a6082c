"""A hook of MkDocs: the pages that are rendered from `docs/results`, in place of those that say so."""

import pathlib
import runpy
from typing import Any

from mkdocs.structure.files import File, Files

RENDERER = pathlib.Path(__file__).parents[1] / "papers" / "pages.py"


def on_files(files: Files, config: Any, **_: Any) -> Files:
    """Is called by MkDocs with the files of the site."""
    for name, text in runpy.run_path(str(RENDERER))["render"](config.docs_dir).items():
        files.remove(files.src_uris[name])
        files.append(File.generated(config, name, content=text))
    return files
