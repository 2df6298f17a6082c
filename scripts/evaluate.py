"""Judges a run's best checkpoint on a split.

python -m rank4class.scripts.evaluate --workdir=runs/digits_mlp --split=test
"""

from absl import flags

from rank4class.pipelines import evaluation, report, trainer
from rank4class.scripts import main as door

_WORKDIR = flags.DEFINE_string("workdir", None, "The run's folder.", required=True)
_SPLIT = flags.DEFINE_enum("split", "test", ["train", "validation", "test"], "What to judge it on.")


def main():
    experiment, loaded, model = trainer.restore(_WORKDIR.value)
    batches = loaded.evaluation_batches(experiment, _SPLIT.value)
    true_ranks = evaluation.rank_true_classes(evaluation.rank_function(model), batches)
    metrics = evaluation.meaningful(experiment.metrics, len(loaded.class_names))
    print(report.results_table({_SPLIT.value: evaluation.summarize(true_ranks, metrics)}))


if __name__ == "__main__":
    door.run(main)
