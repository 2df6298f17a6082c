"""A hook of MkDocs: warns of pages that load something from the network, which a strict build refuses."""

import logging
import re
from typing import Any

LOADED = re.compile(
    r"<(?:script|link|img|iframe|source|video)\b[^>]*?\b(?:src|href)=[\"']?((?:https?:)?//[^\"' >]*)"
)
_LOG = logging.getLogger("mkdocs.hooks.offline")


def addresses(html: str) -> list[str]:
    """Returns the addresses that a browser loads from the network to show a page."""
    return LOADED.findall(html)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Is called by MkDocs with each finished page."""
    for address in addresses(output):
        _LOG.warning("%s loads %s. Commit the file, and load it from there.", page.file.src_uri, address)
    return output
