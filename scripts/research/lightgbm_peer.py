r"""Trains LightGBM's LambdaRank on the queries of a config, to compare ranking losses with it.

    python -m rank4class.scripts.research.lightgbm_peer --config=letor_linear --config.data.path=FOLDER \
        --workdir=runs/lightgbm

It needs the package lightgbm, and writes `study.json` with the metrics of the config for each test query.
"""

from absl import flags

from rank4class.scripts import cli, research

_CONFIG = cli.define_config()
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the result.", required=True)
_SEEDS = flags.DEFINE_multi_integer("seed", [0, 1, 2, 3, 4], "Seed; repeat the flag for more seeds.")


def main() -> None:
    from rank4class.scripts.research.papers import lightgbm_peer

    research.check_used("data", "metrics", "monitor")
    lightgbm_peer.train(_CONFIG.value, _WORKDIR.value, _SEEDS.value)


if __name__ == "__main__":
    cli.run(main)
