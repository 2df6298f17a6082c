"""The figures of the documentation, drawn from its committed files as SVG that is equal every time."""

import ast
import io
import math
import os
import pathlib
import re
from collections.abc import Callable, Mapping
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
import scipy.stats
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch, Patch
from matplotlib.ticker import PercentFormatter

from rank4class.pipelines.reporting import style
from rank4class.pipelines.reporting.plots import draw_reliability
from rank4class.pipelines.storage.run_directory import read_json
from rank4class.pipelines.sweep import plots

GRID = "results/n_choose_k/letor_lightgbm.json"  # whose differences are drawn
OVERTRAINING = "results/practice/examples_2000.json"  # whose curves are drawn
WIDTH = 7.2  # inches
_SVG: Any = {"svg.hashsalt": "rank4class", "svg.fonttype": "path", "font.size": 10.0}
_SCALE_LABELS = {"adam": "1 device", "4 dtensor": "4 devices, DTensor"}
_ANSWERS = {
    "solved": "frozen encoder and words, solved",
    "trained": "fine-tuned, and words",
    "scikit-learn, words": "scikit-learn, TF-IDF",
    "scikit-learn, vectors": "scikit-learn, MiniLM",
    "scikit-learn, both": "scikit-learn, both",
    "solved, all-mpnet-base-v2": "MPNet and words, solved",
}
_DATA = {
    "banking77": "Banking77",
    "banking77_10": "10 an intent",
    "banking77_5": "5 an intent",
    "clinc150": "CLINC150",
    "titles": "Titles of films",
    "goemotions": "GoEmotions",
}
_UNKNOWN = {
    "clinc150": "CLINC150:\nrequests of no intent",
    "banking77_near": "50 banking intents:\nthe 27 others",
    "banking77_far": "50 banking intents:\nother topics",
}
_DETECTORS = {
    "detector": "rank4class, --unknown",
    "scikit-learn's LocalOutlierFactor": "LocalOutlierFactor",
    "scikit-learn's IsolationForest": "IsolationForest",
}
_LABEL_METHODS = {
    "check_labels": "rank4class check_labels",
    "cleanlab's self_confidence, the same probabilities": "cleanlab, same probabilities",
    "cleanlab's self_confidence, logistic regression in 5 folds": "cleanlab, logistic regression",
    "other labels of ten neighbours": "labels of ten neighbours",
}
_MODELS = {"n_choose_k": "n-choose-k, learned prior", "logistic_regression": "Logistic regression"}


def draw_all(docs: str) -> dict[str, str]:
    """Returns the name of each figure -> its SVG, of a folder of the documentation."""
    return {name: to_svg(draw(docs)) for name, draw in FIGURES.items()}


def to_svg(figure: Figure) -> str:
    """Returns a figure as SVG without a date."""
    buffer = io.StringIO()
    with matplotlib.rc_context(_SVG):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    # Matplotlib leaves blanks at the ends of lines.
    return "".join(f"{line.rstrip()}\n" for line in buffer.getvalue().splitlines())


def _data(docs: str, name: str) -> Any:
    """Returns the measurements of a figure."""
    return read_json(os.path.join(docs, "figures", f"{name}.json"))


def _panels(height: float, count: int = 1, **options: Any) -> tuple[Figure, Any]:
    """Returns a figure and its axes side by side."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    return figure, figure.subplots(1, count, **options)


def _canvas(height: float, low: float, high: float) -> tuple[Figure, Axes]:
    """Returns a figure and an invisible axis over all of it."""
    figure = Figure(figsize=(WIDTH, height))
    axis = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axis.set(xlim=(0.0, 14.4), ylim=(low, high))
    axis.set_axis_off()
    return figure, axis


def overview(docs: str) -> Figure:
    """Draws how classification becomes ranking: the instance is the query, the classes are the items."""
    del docs
    figure, axis = _canvas(2.55, 0.7, 5.8)
    _box(axis, 0.2, 4.1, 2.5, 1.5, "Instance\n(query)\ntext, image, user")
    _box(axis, 0.2, 0.9, 2.5, 1.5, "Classes\n(items)\nids or names")
    _box(axis, 3.4, 4.25, 2.4, 1.2, "Encoder", style.SKY)
    _box(axis, 3.4, 1.05, 2.4, 1.2, "Class encoder", style.SKY)
    _box(axis, 6.6, 2.5, 2.2, 1.4, "Interaction\nof each pair", style.ORANGE)
    _box(axis, 12.0, 2.5, 2.2, 1.4, "Ranking loss\nor metric", style.GREEN)
    for y in (4.85, 1.65):
        _arrow(axis, (2.75, y), (3.35, y))
    _arrow(axis, (5.85, 4.6), (6.75, 4.0))
    _arrow(axis, (5.85, 1.9), (6.75, 2.4))
    axis.text(6.45, 4.65, "vector", fontsize=9, ha="left")
    axis.text(6.45, 1.25, "one vector\nper class", fontsize=9, ha="left")
    _arrow(axis, (8.85, 3.2), (9.5, 3.2))
    _arrow(axis, (11.25, 3.2), (11.95, 3.2))
    bars: Any = {"color": ["0.75", style.BLUE, "0.75", "0.75"], "edgecolor": "0.3", "linewidth": 0.6}
    axis.barh(4.0 - 0.55 * np.arange(4), (1.6, 1.15, 0.8, 0.45), 0.38, left=9.6, **bars)
    axis.text(10.4, 4.55, "scores, ranked", fontsize=9, ha="center")
    axis.text(10.4, 1.75, "blue: true class, rank 2", fontsize=9, ha="center")
    _box(axis, 12.0, 4.65, 2.2, 0.95, "Labels")
    _arrow(axis, (13.1, 4.6), (13.1, 3.95))
    return figure


def _box(
    axis: Axes, x: float, y: float, width: float, height: float, text: str, color: str = "white"
) -> None:
    rounded = "round,pad=0.05,rounding_size=0.15"
    axis.add_patch(FancyBboxPatch((x, y), width, height, boxstyle=rounded, fc=color, ec="0.3", lw=1.0))
    axis.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=10)


def _arrow(axis: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    axis.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": "0.3", "linewidth": 1.2})


def architecture(docs: str) -> Figure:
    """Draws the packages and the parts of `pipelines/`, in the levels that `architecture_test.py` states."""
    text = pathlib.Path(docs, "architecture_test.py").read_text(encoding="utf-8")
    levels = ast.literal_eval(re.findall(r"^LEVELS = (\{.*?^\})", text, re.DOTALL | re.MULTILINE)[0])
    parts = [[name for name, at in levels.items() if at == level] for level in sorted(set(levels.values()))]
    rows = [["registry, strict_json, compat"], ["losses", "models", "data"], *parts, ["scripts"]]
    figure, axis = _canvas(0.45 * len(rows), -0.2, len(rows))
    for y, names in enumerate(rows):
        width = 14.2 / len(names)
        for i, name in enumerate(names):
            text, color = (f"pipelines/{name}", style.SKY) if name in levels else (name, "white")
            _box(axis, 0.2 + i * width, y, width - 0.2, 0.7, text, color)
    return figure


def grid_differences(docs: str) -> Figure:
    """Draws the differences of `GRID` from its baseline; see `plots.differences`."""
    return plots.differences(read_json(os.path.join(docs, GRID)))


def sorters(docs: str) -> Figure:
    """Draws the rank of one score that moves past the others, by each sorter (SoDeep, figure 5)."""
    data = _data(docs, "sorters")
    ranks = data["n"] * pd.DataFrame(data["ranks"], data["scores"])
    exact = ranks.pop("exact")
    figure, axes = _panels(2.6, len(ranks.columns), sharey=True)
    for axis, name, color in zip(axes, ranks, style.COLORS, strict=False):
        axis.step(ranks.index, exact, color="0.75", linewidth=4, where="mid")
        axis.plot(ranks[name], color=color)
        axis.set_title(name, fontsize=10)
        axis.set_xticks((-1.0, 0.0, 1.0))
        style.finish(axis)
    axes[0].set_ylim(data["n"] + 0.5, 0.5)
    axes[0].set_yticks(range(1, data["n"] + 1, 3))
    axes[0].set_ylabel(f"Rank among {data['n']}")
    figure.supxlabel("Score that moves past the others; gray: its exact rank", fontsize=10)
    return figure


def count_law(docs: str) -> Figure:
    """Draws the predicted number of digits of images by their true number: a learned prior, and none."""
    data = _data(docs, "counts")
    colors = (style.BLUE, style.ORANGE)
    figure, axes = _panels(2.7, len(data["counts"]), sharey=True)
    last = max(data["counts"]) + 3
    for i, (axis, count) in enumerate(zip(axes, data["counts"], strict=True)):
        axis.axvspan(count - 0.5, count + 0.5, color="0.9", zorder=0)
        for left, model, color in zip((-0.2, 0.2), data["models"].values(), colors, strict=True):
            means = model["distributions"][i][: last + 1]
            axis.bar(np.arange(len(means)) + left, means, 0.4, color=color)
        axis.set_title(f"{count} digit{'s' * (count > 1)}", fontsize=10)
        axis.set_xticks(range(0, last + 1, 2))
        axis.set_xlim(-0.6, last + 0.6)
        axis.yaxis.set_major_formatter("{x:.0%}")
        style.finish(axis, "y")
    axes[0].set_ylabel("Mean probability")
    figure.supxlabel("Predicted number of digits; gray: the true number", fontsize=10)
    handles = [Patch(color=color) for color in colors]
    titles = [_MODELS[model] for model in data["models"]]
    figure.legend(handles, titles, loc="outside upper center", ncols=2, frameon=False)
    return figure


def ranked_example(docs: str) -> Figure:
    """Draws a test image of the digits, and its classes ranked by probability."""
    example = _data(docs, "digits")["example"]
    figure, (image, axis) = _panels(3.0, 2, width_ratios=(1.0, 1.7))
    image.imshow(example["pixels"], cmap="gray_r", interpolation="nearest")
    image.set_title("Query: an image", fontsize=10)
    image.set(xticks=[], yticks=[])
    probabilities = np.array(example["probabilities"])
    order = np.argsort(-probabilities)
    is_true = order == example["label"]
    colors = np.where(is_true, style.RIGHT, "#b8b8b8")
    bars = axis.barh(range(len(order)), probabilities[order], color=colors)
    axis.bar_label(bars, [f"{p:.1%}" for p in probabilities[order]], padding=3, fontsize=8)
    axis.set_yticks(range(len(order)), [f"{rank}.  class {i}" for rank, i in enumerate(order, 1)], fontsize=9)
    axis.invert_yaxis()
    axis.set_xlim(0.0, 1.15 * probabilities.max())
    axis.xaxis.set_major_formatter("{x:.0%}")
    rank = int(np.argmax(is_true)) + 1
    axis.set_title(f"Items: the classes; true class {example['label']} has rank {rank}", fontsize=10)
    style.finish(axis, "x")
    return figure


def reliability(docs: str) -> Figure:
    """Draws the reliability of `digits_mlp` before and after its calibration."""
    data = _data(docs, "digits")["reliability"]
    figure = Figure(figsize=(WIDTH, 4.2), layout="constrained")
    panels = [
        (f"{when.capitalize()} calibration: error {data[when].pop('ece'):.1%}", pd.DataFrame(data[when]))
        for when in ("before", "after")
    ]
    draw_reliability(figure, panels, "examples")
    return figure


def scale(docs: str) -> Figure:
    """Draws time and memory of a training step over the number of classes."""
    rows = pd.read_json(os.path.join(docs, "scale_rows.jsonl"), lines=True).drop_duplicates(["name", "size"])
    rows = rows[rows["name"] != "lazy_adam"].replace({"name": _SCALE_LABELS})
    rows["classes"] = rows["size"].str.split("x").str[1].astype(int)
    figure, axes = _panels(3.3, 2)
    figures = (("seconds", "Time of a step (s)"), ("peak_mb", "Peak memory (MB)"))
    for axis, (column, label) in zip(axes, figures, strict=True):
        groups = rows.sort_values("classes").groupby("name", sort=False)
        for (name, group), color, marker in zip(groups, style.COLORS, "os^DvP", strict=False):
            axis.plot(group["classes"], group[column], marker=marker, color=color, ms=5, label=name)
        axis.set(xscale="log", yscale="log", xlabel="Classes", ylabel=label)
        style.finish(axis)
    handles, labels = axes[0].get_legend_handles_labels()
    options: Any = {"ncols": len(labels), "frameon": False, "fontsize": 9, "columnspacing": 1.0}
    figure.legend(handles, labels, loc="outside upper center", **options)
    return figure


def overtraining(docs: str) -> Figure:
    """Draws validation NDCG@5 over the epochs of training on few examples, mean and seeds, by loss."""
    result = read_json(os.path.join(docs, OVERTRAINING))
    curves = {c["name"]["loss"]: c for c in result["curves"] if c["name"]["checkpoint"] == "best"}
    figure, axis = _panels(3.4)
    for loss, (color, dashes) in style.loss_styles(curves).items():
        curve = curves[loss]
        mean = np.mean(curve["values"], axis=0)
        axis.plot(curve["epochs"], np.transpose(curve["values"]), color=color, lw=0.5, alpha=0.4)
        axis.plot(curve["epochs"], mean, linestyle=dashes, color=color, label=loss)
        best = int(np.argmax(mean))
        axis.plot(curve["epochs"][best], mean[best], "o", color=color, ms=6)
    axis.set(xlabel="Epochs; the dot is the best of the mean", ylabel="Validation NDCG@5 (%)", ylim=(56, 64))
    style.finish(axis)
    figure.legend(loc="outside right upper", frameon=False, fontsize=9)
    return figure


def prediction_sets(docs: str) -> Figure:
    """Draws the mean size of prediction sets over their coverage, and the coverages of random splits."""
    data = _data(docs, "prediction_sets")
    figure, (sizes, splits) = _panels(2.9, 2)
    for (name, values), color, marker in zip(data["sizes"].items(), style.COLORS, "os^", strict=False):
        sizes.plot(data["coverages"], values, color=color, marker=marker, ms=4, label=name)
    sizes.set(xlabel="Probability of containing the class", ylabel="Classes in the set, mean")
    sizes.set_yticks(range(0, 19, 3))
    sizes.legend(frameon=False, fontsize=9)
    examples, tested = data["examples"]
    k = math.ceil((examples + 1) * data["split_coverage"])
    x = np.linspace(0.875, 0.925, 18)
    law = scipy.stats.betabinom(tested, k, examples + 1 - k)
    splits.hist(data["splits"], x, color=style.SKY)
    expected = len(data["splits"]) * np.diff(law.cdf(tested * x))
    splits.plot((x[1:] + x[:-1]) / 2, expected, color="0.3")
    splits.set(xlabel="Coverage of sets for 90%; gray: its law", ylabel="Random splits")
    for axis in (sizes, splits):
        axis.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        style.finish(axis)
    return figure


def first_answers(docs: str) -> Figure:
    """Draws the test errors of first answers over their minutes, and published errors as lines."""
    published = _data(docs, "published_errors")
    figure = Figure(figsize=(WIDTH, 5.6), layout="constrained")
    axes = figure.subplots(2, math.ceil(len(published) / 2)).ravel()
    for axis in axes[len(published) :]:
        axis.set_axis_off()
    markers = dict(zip(_ANSWERS, "oDs^PX", strict=True))
    for axis, (name, of_papers) in zip(axes, published.items(), strict=False):
        result = read_json(os.path.join(docs, "results", "practice", f"first_answer_{name}.json"))
        for cell in result["cells"]:
            title = cell["name"]["answer"]
            error = cell["metrics"]["top1_error"]
            low, high = error["interval"]
            color = style.COLORS[list(_ANSWERS).index(title)]
            bars = [[error["mean"] - low], [high - error["mean"]]]
            axis.errorbar(
                result["minutes"][title], error["mean"], bars, fmt=markers[title], color=color, ms=5
            )
        for paper, value in of_papers.items():
            axis.axhline(value, color="0.6", linestyle=":", linewidth=1.0)
            axis.annotate(
                paper, (1.0, value), xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=7
            )
        axis.set_title(f"{_DATA[name]}, {result['examples']['train']:,} texts", fontsize=10)
        axis.set(xscale="log", xlim=(0.04, 150.0))
        axis.set_xticks((0.1, 1.0, 10.0, 100.0), ("0.1", "1", "10", "100"))
        style.finish(axis)
    handles = [
        Line2D([], [], marker=m, color=c, ls="") for m, c in zip(markers.values(), style.COLORS, strict=False)
    ]
    figure.legend(handles, _ANSWERS.values(), loc="outside upper center", ncols=3, frameon=False, fontsize=9)
    figure.supxlabel("Minutes, with the encoding", fontsize=10)
    figure.supylabel("Test error (%)", fontsize=10)
    return figure


def unknown_inputs(docs: str) -> Figure:
    """Draws the AUROCs of unknown inputs by method, with their intervals."""
    data = _data(docs, "unknown_inputs")
    figure = Figure(figsize=(WIDTH, 3.0), layout="constrained")
    axes = figure.subplots(1, len(data), sharey=True)
    for axis, (name, result) in zip(axes, data.items(), strict=True):
        methods = result["methods"]
        for place, (method, measured) in enumerate(reversed(methods.items())):
            low, high = measured["intervals"]["auroc"]
            color = style.COLORS[0] if method == "detector" else "0.5"
            axis.plot([low, high], [place, place], color=color, linewidth=1.5)
            axis.plot(measured["auroc"], place, "o", color=color, ms=5)
        axis.set_yticks(range(len(methods)), [_DETECTORS.get(each, each) for each in reversed(methods)])
        axis.set_title(_UNKNOWN[name], fontsize=10)
        style.finish(axis)
    figure.supxlabel("AUROC of unknown inputs (%)", fontsize=10)
    return figure


def wrong_labels(docs: str) -> Figure:
    """Draws the share of mistakes among the first labels by method, for a tenth of mistakes."""
    data = _data(docs, "wrong_labels")
    figure = Figure(figsize=(WIDTH, 2.6), layout="constrained")
    axes = figure.subplots(1, len(data), sharey=True)
    kinds = {"random": ("o", "any class"), "confusable": ("D", "a similar class")}
    for axis, (name, result) in zip(axes, data.items(), strict=True):
        for kind, (marker, label) in kinds.items():
            methods = result[f"{kind} 0.1"]["methods"]
            for place, method in enumerate(reversed(_LABEL_METHODS)):
                color = style.COLORS[0] if method == "check_labels" else "0.5"
                options = {"color": color, "ms": 5, "label": label if place == 0 else None}
                options["mfc"] = color if kind == "random" else "white"
                axis.plot(methods[method]["precision"], place, marker, **options)
        axis.set_yticks(range(len(_LABEL_METHODS)), reversed(_LABEL_METHODS.values()))
        axis.set_title({"banking77": "Banking77", "clinc150": "CLINC150"}[name], fontsize=10)
        style.finish(axis)
    axes[0].legend(title="A mistake names", fontsize=8, title_fontsize=8)
    figure.supxlabel("Mistakes among the first labels, as many as there are mistakes (%)", fontsize=10)
    return figure


_DRAWN = (
    *(overview, architecture, grid_differences, sorters, count_law),
    *(
        ranked_example,
        reliability,
        scale,
        overtraining,
        prediction_sets,
        first_answers,
        unknown_inputs,
        wrong_labels,
    ),
)
FIGURES: Mapping[str, Callable[[str], Figure]] = {draw.__name__: draw for draw in _DRAWN}
