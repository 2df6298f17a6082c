r"""Exports the model of a run as a SavedModel that takes raw inputs.

    python -m rank4class.scripts.export --workdir=runs/mine --output=models/mine/1

TensorFlow Serving finds the model below models/mine, as version 1.
"""

from absl import flags

from rank4class.pipelines import config
from rank4class.scripts import cli

_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run.", required=True)
_OUTPUT = flags.DEFINE_string(
    "output", None, "Folder for the SavedModel, which must not exist.", required=True
)
_TOP_K = flags.DEFINE_integer(
    "top_k", None, "Number of classes per input, the best first; None: 5, or all if there are fewer."
)
_CHECKPOINT = flags.DEFINE_enum(
    "checkpoint", "best", config.CHECKPOINTS, "Checkpoint with the best monitored metric, or the last one."
)
_INDEX = flags.DEFINE_enum(
    "index",
    "exact",
    ["exact", "scann"],
    "Score all classes, or search hundreds of thousands of them approximately with ScaNN.",
)


def main() -> None:
    from rank4class.pipelines.export.run import Run

    Run(_WORKDIR.value, _CHECKPOINT.value).export(_OUTPUT.value, _TOP_K.value, index=_INDEX.value)
    print(f"SavedModel: {_OUTPUT.value}")
    print(f"Signatures: saved_model_cli show --all --dir {_OUTPUT.value}")


if __name__ == "__main__":
    cli.run(main)
