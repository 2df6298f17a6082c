"""Converts an encoder checkpoint of any registered format to the rank4class format.

python -m rank4class.scripts.convert_checkpoint --checkpoint=uncased_L-12_H-768_A-12 --output=bert_base
"""

from absl import flags

from rank4class.scripts import cli

_CHECKPOINT = flags.DEFINE_string("checkpoint", None, "Checkpoint: folder, file or prefix.", required=True)
_OUTPUT = flags.DEFINE_string("output", None, "New folder for the converted checkpoint.", required=True)


def main() -> None:
    from rank4class.models import checkpoints

    description, num_weights = checkpoints.convert(_CHECKPOINT.value, _OUTPUT.value)
    print(f"{_CHECKPOINT.value}: {description}, {num_weights:,} weights")
    print(f"Use it as --config.encoder.path={_OUTPUT.value}")


if __name__ == "__main__":
    cli.run(main)
