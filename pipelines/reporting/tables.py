"""Results for people: tables in the terminal and in Markdown, and plots."""

import numpy as np

from rank4class import losses
from rank4class.pipelines.evaluation import evaluator
from rank4class.pipelines.storage import files


def one_line(judged):
    """Returns the metrics of a judged split in one line.

    >>> one_line({"top1_error": 12.5, "mean_rank": 2.0, "examples": 8})
    'top1_error 12.50%, mean_rank 2.00'
    """
    return ", ".join(
        f"{name} {judged[name]:.2f}{'%' if losses.get_metric(name).percent else ''}"
        for name in metrics(judged)
    )


def results_table(judged):
    """Returns metrics with their 95% intervals over the examples, and their information, as text.

    Args:
      judged: split -> what `evaluation.summarize` returns.
    """
    header = ["metric"]
    for name, split in judged.items():
        header += [f"{name} ({split['examples']:,} examples)", "bits"]
    rows = [header]
    for metric in metrics(next(iter(judged.values()))):
        cells = [evaluator.metric_heading(metric)]
        for split in judged.values():
            interval = brackets(split["intervals"][metric])
            bits = split["information"][metric]["bits"]
            cells += [f"{split[metric]:.2f}  {interval}", f"{bits:.2f}"]
        rows.append(cells)
    return text_table(rows)


def brackets(interval):
    return "no interval" if interval is None else "[{:.2f}, {:.2f}]".format(*interval)


def class_table(table, ids):
    """Returns some classes of a `per_class.PerClass` as text for a terminal.

    Args:
      table: the `per_class.PerClass`.
      ids: of the classes, in the order wanted.
    """
    header = ["class", "examples", *(evaluator.metric_heading(metric) for metric in table.metrics)]
    rows = [[*header, "top class of", "right (%)", "taken for"]]
    for i in ids:
        metrics = map(_with_interval, table.means[i], table.intervals[i])
        precision = _with_interval(table.precision[i], table.precision_intervals[i])
        taken = f"{_class_or_none(table, i)} ({table.taken[i]:,})" if table.taken[i] else "-"
        counts = f"{table.examples[i]:,}", f"{table.named[i]:,}"
        rows.append([files.printable(table.class_names[i]), counts[0], *metrics, counts[1], precision, taken])
    names, *figures, taken = zip(*aligned(rows), strict=True)
    return text_table(list(zip(names, *figures, [cell.strip() for cell in taken], strict=True)))


def _with_interval(value, interval):
    if np.isnan(value):
        return "-"
    low, high = interval
    return f"{value:.2f}" if np.isnan(low) else f"{value:.2f} [{low:.2f}, {high:.2f}]"


def _class_or_none(table, i):
    return files.printable(table.class_names[table.most_confused_with[i]]) if table.taken[i] else "-"


VERDICTS = {"first": "A is better", "second": "B is better", "equal": "no difference", None: "may be chance"}


def comparison_table(compared):
    """Returns `comparison.Comparison`s of a run A, the first, and a run B as text for a terminal."""
    rows = [["metric", "A", "B", "B - A  [95%]", "A better", "B better", "equal", "p", ""]]
    for one in compared:
        low, high = one.interval
        between = "no interval" if np.isnan(low) else f"[{_signed(low)}, {_signed(high)}]"
        difference = "-" if np.isnan(one.difference) else _signed(one.difference)
        counts = (f"{count:,}" for count in (one.first_better, one.second_better, one.equal))
        means = f"{one.first:.2f}", f"{one.second:.2f}"
        verdict = VERDICTS[one.verdict()]
        p_value = "-" if np.isnan(one.p_value) else f"{one.p_value:.3f}"
        cells = (
            evaluator.metric_heading(one.metric),
            *means,
            f"{difference}  {between}",
            *counts,
            p_value,
            verdict,
        )
        rows.append(cells)
    return text_table(rows)


def _signed(value):
    return f"{value:+.2f}" if round(value, 2) else "0.00"


def metrics(judged):
    return [name for name in judged if name not in ("examples", "intervals", "information")]


def text_table(rows):
    """Returns rows of cells, the header first, as text for a terminal."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def markdown_table(rows):
    """Returns the lines of rows of cells, the header first, in Markdown."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return [lines[0], "| " + " | ".join("---" for _ in rows[0]) + " |", *lines[1:]]


def aligned(rows):
    """Returns rows with the columns of figures flush right; the first column holds names."""
    first, *others = zip(*rows, strict=True)
    return list(zip(first, *map(_flush_right, others), strict=True))


def _flush_right(column):
    width = max(map(len, column))
    figures = any(cell[:1].isdigit() for cell in column[1:])
    return [cell.rjust(width) if figures else cell for cell in column]
