"""Converts a published encoder checkpoint, of whichever known format, to a folder of our own.

python -m rank4class.scripts.convert_checkpoint --checkpoint=uncased_L-12_H-768_A-12 --output=bert_base
"""

from absl import flags

from rank4class.scripts import main as door

_CHECKPOINT = flags.DEFINE_string("checkpoint", None, "Folder, file or prefix.", required=True)
_OUTPUT = flags.DEFINE_string("output", None, "Folder to write.", required=True)


def main():
    from rank4class.pipelines import conversion

    found, weights = conversion.convert(_CHECKPOINT.value, _OUTPUT.value)
    print(f"{_CHECKPOINT.value}: {found}, {weights:,} weights")
    print(f"Use it as --config.encoder.path={_OUTPUT.value}")


if __name__ == "__main__":
    door.run(main)
