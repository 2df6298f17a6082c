r"""Predicts the classes of new inputs with the model of a run.

    python -m rank4class.scripts.predict runs/mine comments.txt --output=predictions.tsv

The model is that of a run, or the ONNX model that `rank4class export --format=onnx` wrote, which answers
without TensorFlow.

Inputs are texts (.txt, .tsv, .csv, .jsonl), an image or a folder of images, arrays (.npy, .npz) in the
range of the training data, such as 0..255 for uint8, users by name, or queries with documents, as the model
takes them; or a table of `--data=table`. Without --output the predictions are printed as TSV. TSV has no
quotes: a backslash in a cell is \\, a tab \t, a line end \n, and a quote at the start \".
"""

import functools
import sys
import time
from typing import Any

from absl import flags

from rank4class.scripts import cli

SHOWN_SKIPPED = 20

_STRATEGY = cli.define_strategy(("default", "mirrored"))
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run, or of an ONNX model.", required=True)
_INPUT = flags.DEFINE_string(
    "input",
    None,
    "File or folder of the inputs; -: a text or user per line of standard input.",
    required=True,
)
_OUTPUT = flags.DEFINE_string("output", None, "File for the predictions: .tsv, .csv, .jsonl or .parquet.")
_TOP_K = flags.DEFINE_integer(
    "top_k",
    None,
    "Number of classes per input, the best first; None: 5, or all if there are fewer; see --coverage. Of "
    "lists of items, a TSV or CSV has this number, and the other formats have all.",
)
_OPTIONS = (  # of `Run.predict_file`
    flags.DEFINE_float(
        "coverage",
        None,
        "Probability, such as 0.9, with which the prediction set of an input contains its class. Without "
        "--top_k the classes are those of the set, joined by ';' in a TSV or CSV.",
    ),
    flags.DEFINE_integer(
        "max_set_size",
        None,
        "Add the column abstain: whether the set has more classes than this, or none.",
        lower_bound=1,
    ),
    flags.DEFINE_string(
        "prior",
        None,
        "Class frequencies of the inputs: uniform, or a file with one class per line: name, tab, frequency; "
        "None: those of the training.",
    ),
    flags.DEFINE_string(
        "text_column", None, "Column of the text or user in a file with columns; None: that of the training."
    ),
    flags.DEFINE_string("text_pair_column", None, "Column of the second text; None: that of the training."),
    flags.DEFINE_bool("exclude_known", False, "Leave out the items that a user has in the data."),
    flags.DEFINE_enum(
        "on_invalid_row", "fail", ["fail", "skip"], "Stop at an input that cannot be used, or skip it."
    ),
    flags.DEFINE_bool(
        "wide",
        False,
        "Write a column for each class, with its probability, or without calibration its score.",
    ),
    flags.DEFINE_list(
        "keep",
        None,
        "Columns of a table of inputs to write too, such as id,text; *: all; None: id, if there is one.",
    ),
    flags.DEFINE_integer(
        "neighbors",
        None,
        "Add the training examples that are nearest to each input, this number, with their classes and "
        "similarities: columns neighbor_1, neighbor_class_1, similarity_1, ...; the first time encodes them.",
    ),
    flags.DEFINE_integer(
        "informative",
        None,
        "Write this number of inputs alone, those whose labels would teach the model most, with all their "
        "columns and an empty one for the label.",
    ),
    flags.DEFINE_integer(
        "batch_size",
        None,
        "Inputs per call of the model on a device; None: evaluation_batch_size of the run.",
        lower_bound=1,
    ),
)


def check() -> None:
    from rank4class.pipelines.export import onnx_model

    if not onnx_model.is_model(_WORKDIR.value):
        columns = {name: flags.FLAGS[name].value for name in ("text_column", "text_pair_column")}
        cli.check_run(_WORKDIR.value, _INPUT.value, labeled=False, **columns)


def main() -> None:
    from rank4class.pipelines.export import onnx_model

    if onnx_model.is_model(_WORKDIR.value):
        from rank4class.pipelines.export import onnx_files

        predict_file: Any = functools.partial(onnx_files.predict_file, onnx_model.OnnxModel(_WORKDIR.value))
    else:
        from rank4class.pipelines.run import Run

        predict_file = Run(_WORKDIR.value, _STRATEGY()).predict_file
    start = time.monotonic()
    options = {flag.name: flag.value for flag in _OPTIONS}
    count, skipped = predict_file(_INPUT.value, _OUTPUT.value, k=_TOP_K.value, **options)
    seconds = time.monotonic() - start
    rate = f", {count / seconds:,.0f} a second" if options["informative"] is None else ""
    print(f"{count:,} inputs in {seconds:.1f} s{rate}", file=sys.stderr)
    if skipped:
        _print_skipped(skipped)
    if _OUTPUT.value:
        print(f"Predictions: {_OUTPUT.value}")


def _print_skipped(skipped: list[str]) -> None:
    """Prints the skipped inputs; with an output file at most `SHOWN_SKIPPED`, and all to a file beside it."""
    from rank4class.pipelines.storage import files

    shown = skipped
    note = ":"
    if _OUTPUT.value and len(skipped) > SHOWN_SKIPPED:
        path = f"{_OUTPUT.value}.skipped.txt"
        files.write(path, "".join(f"{line}\n" for line in skipped))
        shown = skipped[:SHOWN_SKIPPED]
        note = f", all of them in {path}:"
    print("\n  ".join([f"{len(skipped):,} skipped{note}", *shown]), file=sys.stderr)


if __name__ == "__main__":
    cli.run(main, check, arguments=["workdir", "input"])
