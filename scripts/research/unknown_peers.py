r"""Compares the detection of unknown inputs with scores of other methods on the same vectors and scores.

    python -m rank4class.scripts.research.unknown_peers --workdir=runs/clinc150 \
        --output=docs/figures/unknown_inputs.json

Each run was trained with `--unknown` and `--config.data.unknown`.
"""

from absl import flags

from rank4class.scripts import cli

_WORKDIR = flags.DEFINE_multi_string("workdir", None, "Folder of a run; may be repeated.", required=True)
_OUTPUT = flags.DEFINE_string("output", None, "JSON file for the measures.")


def main() -> None:
    from rank4class.pipelines.storage import run_directory
    from rank4class.scripts.research.papers import unknown_peers

    result = unknown_peers.compare(_WORKDIR.value)
    if _OUTPUT.value:
        run_directory.write_json(_OUTPUT.value, result)


if __name__ == "__main__":
    cli.run(main)
