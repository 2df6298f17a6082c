"""A report as one HTML file, which takes nothing from elsewhere: tables, SVG figures and small images."""

import base64
import io
import os
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jinja2
import markdown
import matplotlib
import numpy as np
import tensorflow as tf
from markupsafe import Markup
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from rank4class.data.preprocessing import images
from rank4class.pipelines.storage import files

_THUMBNAIL = 64  # pixels


class Section(NamedTuple):
    """A part of a page; what is empty is left out."""

    title: str
    note: str = ""
    rows: Sequence[Sequence[Any]] = ()  # of a table, the first of them the header; strings are escaped
    figures: Mapping[str, Markup] = {}  # caption -> `svg`
    lines: Sequence[str] = ()  # as they are typed
    content: Markup | str = ""


def render(title: str, answer: str, sections: Sequence[Section]) -> str:
    """Returns a page: a title, the answer in a sentence, and the sections."""
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, undefined=jinja2.StrictUndefined)
    template = environment.from_string(pathlib.Path(__file__).with_name("page.html").read_text("utf-8"))
    return template.render(title=title, answer=answer, sections=sections)


def write_beside(path: str) -> str:
    """Writes a Markdown file, whose first line is its title, as a page with its pictures; returns its path.

    HTML within the Markdown is shown as text.
    """
    title, _, text = files.read_text(path).partition("\n")
    converter = markdown.Markdown(extensions=["tables"])
    converter.preprocessors.deregister("html_block")
    converter.inlinePatterns.deregister("html")

    def embedded(match: re.Match) -> str:
        return f'src="{_data(files.read_bytes(os.path.join(os.path.dirname(path), match[1])))}"'

    content = re.sub(r'(?<=<img )(?:alt="[^"]*" )?src="([^"]+)"', embedded, converter.convert(text))
    content = content.replace("<table>", '<div class="wide"><table>').replace("</table>", "</table></div>")
    page = os.path.splitext(path)[0] + ".html"
    files.write(page, render(title.lstrip("# "), "", [Section("", content=Markup(content))]))
    return page


def _data(png: bytes) -> str:
    """Returns a picture as the address of an image, which holds it."""
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def svg(figure: Figure) -> Markup:
    """Returns a figure as SVG, whose texts are texts."""
    content = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "rank4class"}):
        FigureCanvasSVG(figure).print_svg(content, metadata={"Date": None})
    return Markup(content.getvalue()[content.getvalue().index("<svg") :])  # without the header of a file


def beside(note: str, content: str | Markup) -> Markup:
    """Returns a cell of a table with a note above its content; strings are escaped."""
    return Markup("{}<br>{}").format(note, content)


def thumbnail(image: np.ndarray | str) -> Markup:
    """Returns a small image, from numbers `[height, width, channels]` of any range or the path of a file."""
    if isinstance(image, str):
        pixels = images.decode(tf.io.read_file(image))
        pixels = tf.image.resize(pixels, [_THUMBNAIL, _THUMBNAIL], preserve_aspect_ratio=True)
    else:
        span = max(float(np.ptp(image)), 1e-12)
        pixels = tf.constant((image.astype(np.float32) - image.min()) * (255.0 / span))
    encoded = tf.io.encode_png(tf.cast(pixels, tf.uint8)).numpy()
    return Markup(f'<img alt="" src="{_data(encoded)}">')
