"""The decided classes of a run: the rule that selects them for each example, and their metrics."""

import dataclasses
from collections.abc import Callable

import numpy as np
import scipy.sparse
import tensorflow as tf

from rank4class import data
from rank4class.losses.metrics import DECISION_METRICS
from rank4class.losses.ops import set_sizes
from rank4class.pipelines import config
from rank4class.pipelines.evaluation.decisions import Decisions, of_counts
from rank4class.pipelines.evaluation.evaluator import EvaluationResult
from rank4class.pipelines.task import count_priors
from rank4class.pipelines.task.task import ModelOutputs, TaskData
from rank4class.registry import LOSSES


def check(experiment: config.Experiment, validation: data.Split) -> None:
    """Raises ValueError if no rule decides the classes that a metric is about."""
    names = _metrics(experiment)
    if names and validation.kind.ranks_items:
        raise ValueError(f"metrics={names[0]!r}: the items of a list are not classes. Leave it out.")
    if names and validation.multi_label and rule(experiment, validation) is None:
        raise ValueError(
            f"metrics={names[0]!r}: no score of loss {experiment.loss.name!r} decides for a class. Set "
            "count_prior, or loss to 'sigmoid_cross_entropy'."
        )


def rule(experiment: config.Experiment, split: data.Split) -> Callable[[ModelOutputs], tf.Tensor] | None:
    """Returns a function of outputs to the decided classes of examples that may have several, bool `[B, n]`.

    They are the most probable set by a count prior, or those of a score above `RankingLoss.threshold`. It is
    None without such a rule, for examples of one class, and if no metric needs it.
    """
    if not split.multi_label or not _metrics(experiment):
        return None
    if count_priors.get(experiment.count_prior).is_model:
        return _most_probable
    name = experiment.loss.name
    threshold = LOSSES[name].threshold if name in LOSSES else None

    def above(outputs: ModelOutputs) -> tf.Tensor:
        decided = outputs.scores > threshold
        return decided if outputs.where is None else decided & outputs.where

    return None if threshold is None else above


def _most_probable(outputs: ModelOutputs) -> tf.Tensor:
    return set_sizes.most_probable(outputs.scores, outputs.log_counts, where=outputs.where)


def _metrics(experiment: config.Experiment) -> list[str]:
    return [name for name in experiment.metrics if name in DECISION_METRICS]


def measure(
    result: EvaluationResult, experiment: config.Experiment, loaded: TaskData, split: str
) -> EvaluationResult:
    """Returns an evaluation with the metrics of the decided classes that the experiment names.

    An example of one class decides for its top class; one with a score that is not finite decides for none.
    """
    names, examples = _metrics(experiment), loaded.splits[split]
    if not names:
        return result
    n, finite = loaded.num_scored(split), result.top_classes >= 0
    if examples.multi_label:
        assert result.decided is not None
        decided = scipy.sparse.csr_array(result.decided & finite[:, None])
    else:
        entries = np.flatnonzero(finite), result.top_classes[finite]
        decided = scipy.sparse.csr_array((finite[finite], entries), (len(finite), n))
    decisions = Decisions(of_counts(names), decided, examples.class_matrix(n))
    if "subset_accuracy" in names:
        exact = (decisions.exact() & finite).astype(np.float32)
        result = dataclasses.replace(
            result,
            names=(*result.names, "subset_accuracy"),
            values=np.column_stack([result.values, exact]),
        )
    return dataclasses.replace(result, decided=None, decisions=decisions)
