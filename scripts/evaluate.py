"""Judges a run's best checkpoint on a split.

python -m rank4class.scripts.evaluate --workdir=runs/digits_mlp --split=test
"""

from absl import flags

from rank4class.pipelines import report, trainer
from rank4class.scripts import main as door

_STRATEGY = door.define_strategy()
_WORKDIR = flags.DEFINE_string("workdir", None, "The run's folder.", required=True)
_SPLIT = flags.DEFINE_enum("split", "test", ["train", "validation", "test"], "What to judge it on.")


def main():
    strategy = _STRATEGY()
    experiment, loaded, model = trainer.restore(_WORKDIR.value, strategy)
    judge = trainer.judges(experiment, loaded, model, strategy)[_SPLIT.value]
    judged = judge(loaded.read(experiment, _SPLIT.value, strategy))
    print(report.results_table({_SPLIT.value: judged.summarize()}))


if __name__ == "__main__":
    door.run(main)
