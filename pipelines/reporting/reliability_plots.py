"""The reliability diagram of a calibration, as pixels."""

import io
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib import image
from matplotlib.figure import Figure

from rank4class.pipelines.evaluation.reliability import BINS, Calibrated
from rank4class.pipelines.reporting import plots, style
from rank4class.pipelines.storage import files


def save_diagram(calibrated: Calibrated, path: str) -> None:
    """Writes the `reliability_diagram` as a picture."""
    buffer = io.BytesIO()
    image.imsave(buffer, reliability_diagram(calibrated), format="png")
    files.write(path, buffer.getvalue())


def reliability_diagram(calibrated: Calibrated) -> np.ndarray:
    """Draws a split before and after calibration; see `draw`; uint8 `[height, width, 3]`."""
    figure = Figure(figsize=(4.8, 4.0), dpi=plots.DPI, layout="constrained")
    panels = [
        (f"{name}: error {one.ece:.1%}", one.table())
        for name, one in (("before", calibrated.before), ("after", calibrated.after))
    ]
    # With several classes per example, each pair of example and class counts.
    draw(figure, panels, "examples" if calibrated.calibration.method == "temperature" else "pairs")
    figure.suptitle(calibrated.calibration.describe(), fontsize=plots.TEXT, x=0.01, ha="left")
    return plots.pixels(figure)


def draw(figure: Figure, panels: Sequence[tuple[str, pd.DataFrame]], counted: str) -> None:
    """Draws accuracy by confidence and the number of predictions in each bin, before and after calibration.

    A dot is a bin of a `Reliability.table`: its mean confidence and its accuracy, with Wilson's interval.
    Dots of calibrated probabilities are on the diagonal.
    """
    axes = figure.subplots(2, 2, sharex=True, sharey="row", height_ratios=(2.2, 1.0))
    for (title, table), color, (axis, bars) in zip(panels, (style.WRONG, style.RIGHT), axes.T, strict=True):
        used = table[table["count"] > 0]
        errors = np.stack([used["accuracy"] - used["low"], used["high"] - used["accuracy"]])
        axis.plot([0.0, 1.0], [0.0, 1.0], color="0.6", linewidth=1, linestyle="--")
        errors = np.maximum(errors, 0.0)  # from rounding errors
        axis.errorbar(used["confidence"], used["accuracy"], errors, fmt="o", color=color, ms=4, lw=1)
        axis.set(xlim=(0.0, 1.0), ylim=(-0.03, 1.03))  # dots at 0 and 1 are whole
        axis.set_title(title, fontsize=plots.TEXT, loc="left")
        bars.bar(used["from"], used["count"], 1.0 / BINS, align="edge", color=color, edgecolor="white")
        bars.set_xlabel("confidence", fontsize=plots.TEXT)
    axes[0, 0].set_ylabel("accuracy", fontsize=plots.TEXT)
    axes[1, 0].set_ylabel(counted, fontsize=plots.TEXT)
    axes[1, 0].set_yscale("log")
    axes[1, 0].set_ylim(0.5, 2.0 * max(table["count"].max() for _, table in panels))
    axes[1, 0].yaxis.set_major_formatter("{x:,.0f}")
    for axis in axes.flat:
        axis.tick_params(labelsize=plots.TEXT)
        style.finish(axis, "y")
        axis.set_xticks((0.0, 0.5, 1.0), ("0%", "50%", "100%"))
    for axis in axes[0]:
        axis.set_yticks((0.0, 0.5, 1.0), ("0%", "50%", "100%"))
