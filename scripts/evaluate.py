"""Judges a run's best checkpoint on a split.

python -m rank4class.scripts.evaluate --workdir=runs/digits_mlp --split=test
"""

from absl import flags

from rank4class.pipelines import report, trainer
from rank4class.scripts import main as door

_WORKDIR = flags.DEFINE_string("workdir", None, "The run's folder.", required=True)
_SPLIT = flags.DEFINE_enum("split", "test", ["train", "validation", "test"], "What to judge it on.")


def main():
    experiment, loaded, model = trainer.restore(_WORKDIR.value)
    judges = trainer.judge_functions(experiment, loaded, model)
    print(report.results_table({_SPLIT.value: trainer.judge(experiment, loaded, judges, _SPLIT.value)}))


if __name__ == "__main__":
    door.run(main)
