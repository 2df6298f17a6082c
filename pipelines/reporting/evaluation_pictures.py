"""Pictures of an evaluation of a training, for TensorBoard."""

import numpy as np

from rank4class.pipelines.evaluation import evaluator
from rank4class.pipelines.evaluation.evaluator import EvaluationResult
from rank4class.pipelines.reporting import plots
from rank4class.pipelines.task.task import TaskData


def draw(
    loaded: TaskData,
    split: str,
    evaluation: EvaluationResult,
    counts: tuple[np.ndarray, np.ndarray] | None = None,
) -> dict[str, np.ndarray]:
    """Draws the evaluation of a split; returns name -> pixels.

    `counts` are of some examples the predicted distributions of the number of classes `[B, m + 1]` and the
    true numbers `[B]`; None for a model without a count prior.
    """
    examples = loaded.splits[split]
    pictures = {
        "rank_of_the_true_class": plots.rank_histogram(
            evaluation.ranks, loaded.num_scored(split), several=examples.multi_label
        )
    }
    finite = evaluation.top_classes >= 0  # the histogram counts the other examples
    if not examples.multi_label and finite.any():
        pictures["confusion_matrix"] = plots.confusion_matrix(
            examples.labels[finite], evaluation.top_classes[finite], loaded.scored_class_names(split)
        )
    if evaluation.calibrated:
        pictures["reliability_diagram"] = plots.reliability_diagram(evaluation.calibrated)
        if not examples.multi_label:
            pictures["risk_coverage"] = plots.risk_coverage(evaluation.calibrated)
    if evaluation.sets:
        pictures["prediction_sets"] = plots.set_sizes(evaluator.summarize_sets(evaluation.sets))
    if counts is not None:
        pictures["number_of_classes"] = plots.count_distributions(
            *counts, loaded.splits["train"].num_relevant()
        )
    return pictures
