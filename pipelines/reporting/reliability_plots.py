"""The reliability diagram of a calibration, as pixels."""

import numpy as np
from matplotlib import image
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from rank4class.pipelines.evaluation.reliability import BINS, Calibrated
from rank4class.pipelines.reporting import plots


def save_diagram(calibrated: Calibrated, path: str) -> None:
    """Writes the `reliability_diagram` as a picture."""
    several = calibrated.calibration.method != "temperature"
    image.imsave(path, reliability_diagram(calibrated, several))


def reliability_diagram(calibrated: Calibrated, several: bool = False) -> np.ndarray:
    """Draws accuracy by confidence, before and after calibration, and the number of predictions in each bin.

    A dot is a bin: its mean confidence and its accuracy, with Wilson's interval. Dots of calibrated
    probabilities are on the diagonal.

    Args:
      calibrated: the reliability of a split.
      several: whether an example may have several classes, so that each pair of example and class counts.

    Returns:
      uint8 `[height, width, 3]`.
    """
    figure = Figure(figsize=(7.0, 4.6), dpi=plots.DPI, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, 2, sharex=True, sharey="row", height_ratios=(2.2, 1.0))
    panels = (("before", calibrated.before, plots.WRONG), ("after", calibrated.after, plots.RIGHT))
    for (name, reliability, color), (axis, bars) in zip(panels, axes.T, strict=True):
        table = reliability.table()
        used = table[table["count"] > 0]
        errors = np.stack([used["accuracy"] - used["low"], used["high"] - used["accuracy"]])
        axis.plot([0.0, 1.0], [0.0, 1.0], color="0.6", linewidth=1, linestyle="--")
        errors = np.maximum(errors, 0.0)  # from rounding errors
        axis.errorbar(used["confidence"], used["accuracy"], errors, fmt="o", color=color, ms=4, lw=1)
        axis.set(xlim=(0.0, 1.0), ylim=(-0.03, 1.03))  # dots at 0 and 1 are whole
        axis.set_title(f"{name}: calibration error {reliability.ece:.1%}", fontsize=9, loc="left")
        drawn = bars.bar(
            used["from"], used["count"], 1.0 / BINS, align="edge", color=color, edgecolor="white"
        )
        bars.bar_label(drawn, list(map("{:,}".format, used["count"])), rotation=90, padding=3, fontsize=7)
        bars.set_xlabel("confidence", fontsize=9)
    axes[0, 0].set_ylabel("accuracy", fontsize=9)
    axes[1, 0].set_ylabel("pairs" if several else "examples", fontsize=9)
    axes[1, 0].set_yscale("log")
    largest = max(calibrated.before.counts.max(), calibrated.after.counts.max())
    axes[1, 0].set_ylim(0.5, (2.0 * largest) ** 1.8)  # the bars leave almost half of the height to the labels
    for axis in axes.flat:
        axis.tick_params(labelsize=8)
        axis.grid(axis="y", alpha=0.3)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
        axis.xaxis.set_major_formatter("{x:.0%}")
    for axis in axes[0]:
        axis.yaxis.set_major_formatter("{x:.0%}")
    figure.suptitle(f"calibration: {calibrated.calibration.describe()}", fontsize=9, x=0.01, ha="left")
    return plots.pixels(figure)
