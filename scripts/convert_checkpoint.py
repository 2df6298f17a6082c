"""Converts an encoder checkpoint of any known format to a folder of the project's own format.

python -m rank4class.scripts.convert_checkpoint --checkpoint=uncased_L-12_H-768_A-12 --output=bert_base
"""

from absl import flags

from rank4class.scripts import cli as command

_CHECKPOINT = flags.DEFINE_string("checkpoint", None, "Folder, file or prefix.", required=True)
_OUTPUT = flags.DEFINE_string("output", None, "Folder to write.", required=True)


def main() -> None:
    from rank4class.models import checkpoints

    description, num_weights = checkpoints.convert(_CHECKPOINT.value, _OUTPUT.value)
    print(f"{_CHECKPOINT.value}: {description}, {num_weights:,} weights")
    print(f"Use it as --config.encoder.path={_OUTPUT.value}")


if __name__ == "__main__":
    command.run(main)
