r"""Exports the model of a run as a SavedModel or for ONNX Runtime, or its text encoder as files.

    python -m rank4class.scripts.export runs/mine models/mine/1
    python -m rank4class.scripts.export runs/mine models/fast --format=onnx --quantize=int8
    python -m rank4class.scripts.export runs/mine models/encoder --format=huggingface
    python -m rank4class.scripts.export runs/mine models/static --format=static

TensorFlow Serving finds the model below models/mine, as version 1. A program that loads a model of texts
imports `tensorflow_text`, whose operations the tokenizer needs. ONNX models need no TensorFlow; those of
texts with eight bits are some three times as fast, and a report says what that costs.
`AutoModel.from_pretrained` of transformers loads the encoder, and so does the option encoder.path of another
run. Static vectors of tokens, which take some minutes to compute, are an encoder that is many times as fast
and less exact.
"""

import os

from absl import flags

from rank4class.pipelines import config
from rank4class.scripts import cli

_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run.", required=True)
_OUTPUT = flags.DEFINE_string(
    "output", None, "Folder for the export, which must not exist; None: WORKDIR/export/1."
)
_TOP_K = flags.DEFINE_integer(
    "top_k",
    None,
    "Number of classes per input, the best first; None: 5, or all if there are fewer; with --coverage all.",
)
_COVERAGE = flags.DEFINE_float(
    "coverage", None, "Probability of prediction sets, such as 0.9; in_set and set_size are then theirs."
)
_INDEX = flags.DEFINE_enum(
    "index",
    "exact",
    config.EXPORT_INDICES,
    "Score all classes, or search hundreds of thousands of them approximately with ScaNN.",
)
_FORMAT = flags.DEFINE_enum(
    "format",
    "saved_model",
    config.EXPORT_FORMATS,
    "The whole model as a SavedModel or for ONNX Runtime, its text encoder in Hugging Face's layout, or "
    "static vectors of it.",
)
_NEIGHBORS = flags.DEFINE_integer(
    "neighbors", None, "Number of nearest training examples beside each answer, which the model then holds."
)
_QUANTIZE = flags.DEFINE_enum(
    "quantize", "none", config.QUANTIZATIONS, "Bits of the encoder of an ONNX model; int8 needs the data."
)
_MAX_LOSS = flags.DEFINE_float(
    "max_loss", None, "Largest loss of top-1 error by the quantization, in points; None: any."
)


def main() -> None:
    from rank4class.pipelines.reporting import onnx_report
    from rank4class.pipelines.run import Run

    run = Run(_WORKDIR.value)
    output = _OUTPUT.value or os.path.join(_WORKDIR.value, "export", "1")
    print(f"Exporting the model of step {run.step:,}", flush=True)
    options = {"coverage": _COVERAGE.value, "index": _INDEX.value, "neighbors": _NEIGHBORS.value}
    options |= {"quantize": _QUANTIZE.value, "max_loss": _MAX_LOSS.value}
    report = run.export(output, _TOP_K.value, format=_FORMAT.value, **options)
    if _FORMAT.value in ("huggingface", "static"):
        print(f"Encoder: {output}")
        return
    if report is not None:
        print(f"\n{onnx_report.text(report)}\n")
    print(f"{'SavedModel' if report is None else 'ONNX model'}: {output}")
    print(f"How to use it: {os.path.join(output, 'README.md')}")


if __name__ == "__main__":
    cli.run(main, lambda: cli.check_run(_WORKDIR.value), arguments=["workdir", "output"])
