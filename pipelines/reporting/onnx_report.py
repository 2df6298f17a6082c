"""The report of an ONNX export as text."""

from collections.abc import Mapping
from typing import Any

from rank4class.pipelines.reporting import tables


def text(report: Mapping[str, Any]) -> str:
    """Returns the size and the time of a model, and what quantization costs; see `onnx_export.save`."""
    blocks = []
    if "test" in report:
        rows = [["test split", "run", "export", "difference"]]
        for name, figures in report["test"].items():
            difference = f"{figures['difference']:+.2f}"
            if figures.get("interval"):
                difference += f" {tables.format_interval(figures['interval'], 2)}"
            rows.append([name, f"{figures['run']:.2f}", f"{figures['export']:.2f}", difference])
        blocks.append(tables.text_table(rows))
        blocks.append(f"{report['changed']:.2f}% of the inputs have another class first.")
    times = (
        f"{count} input{'s' * (count != '1')} {median:.1f} ms (99th percentile {slow:.1f})"
        for count, (median, slow) in report["milliseconds"].items()
    )
    blocks.append(f"{report['bytes'] / 2**20:.0f} MB; on this machine {', '.join(times)}.")
    return "\n\n".join(blocks)
