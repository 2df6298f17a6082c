r"""Compares the prediction sets of a run with MAPIE's and crepes's, and their coverages with their law.

    python -m rank4class.scripts.research.prediction_set_peers --workdir=runs/goemotions \
        --output=docs/figures/prediction_sets.json

The run has `--sets`, with one class per example. It needs the packages mapie and crepes.
"""

from absl import flags

from rank4class.scripts import cli

_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run.", required=True)
_OUTPUT = flags.DEFINE_string("output", None, "JSON file for the sizes, and the coverages of random splits.")
_SPLITS = flags.DEFINE_integer("splits", 200, "Number of random splits.", lower_bound=1)


def main() -> None:
    from rank4class.pipelines.storage import run_directory
    from rank4class.scripts.research.papers import prediction_set_peers

    result = prediction_set_peers.compare(_WORKDIR.value, _SPLITS.value)
    if _OUTPUT.value:
        run_directory.write_json(_OUTPUT.value, result)


if __name__ == "__main__":
    cli.run(main)
