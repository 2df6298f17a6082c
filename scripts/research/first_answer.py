r"""Compares our first answers on a user's data with those of scikit-learn: errors, and how long they take.

    python -m rank4class.scripts.research.first_answer --config=text_file_minilm --config.data.path=FOLDER \
        --workdir=runs/first_answer

It writes `study.json` with the metrics of the config for each test example; finished answers are kept.
"""

from absl import flags

from rank4class.scripts import cli, research

_CONFIG = cli.define_config()
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the result.", required=True)
_ENCODERS = flags.DEFINE_multi_string("encoder_path", [], "Folder of another encoder, whose head is solved.")
_SEEDS = flags.DEFINE_multi_integer("seed", [0, 1, 2], "Seed; repeat the flag for more seeds.")


def main() -> None:
    from rank4class.scripts.research.papers import first_answer

    research.check_used("data", "metrics", "monitor", "encoder")
    first_answer.run(_CONFIG.value, _WORKDIR.value, _SEEDS.value, _ENCODERS.value)


if __name__ == "__main__":
    cli.run(main)
