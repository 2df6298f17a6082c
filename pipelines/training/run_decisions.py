"""The decided classes of a run: the rule that selects them for each example, and their metrics.

Fitted thresholds decide, or the most probable set by a count prior, or the threshold of the loss. An example
of one class decides for its top class.
"""

import dataclasses
import functools

import numpy as np
import scipy.sparse
from absl import logging

from rank4class import data
from rank4class.losses.metrics import DECISION_METRICS
from rank4class.losses.ops import set_sizes
from rank4class.pipelines import config
from rank4class.pipelines.evaluation import predictions, thresholds
from rank4class.pipelines.evaluation.evaluator import EvaluationResult
from rank4class.pipelines.evaluation.split_metrics import Decisions, of_counts
from rank4class.pipelines.evaluation.thresholds import Thresholds
from rank4class.pipelines.task import count_priors
from rank4class.pipelines.task.task import TaskData
from rank4class.pipelines.training import run_calibration
from rank4class.registry import LOSSES, THRESHOLDS

_BLOCK = 1 << 20  # scores whose most probable sets are computed at a time


def check(experiment: config.Experiment, validation: data.Split) -> None:
    """Raises ValueError if thresholds, or metrics of decided classes, do not fit the dataset or the model."""
    rule, prior, loss = experiment.thresholds.name, experiment.count_prior.name, experiment.loss.name
    names = _metrics(experiment)
    if rule == "none" and not names:
        return
    has_rule = rule != "none" or _has_prior(experiment) or _of_loss(experiment) is not None
    field = f"metrics={names[0]!r}" if rule == "none" else f"thresholds={rule!r}"
    if validation.kind.ranks_items:
        raise ValueError(f"{field}: the items of a list are not classes. Leave it out.")
    for name in names:
        if validation.multi_label and DECISION_METRICS[name].one_class:
            raise ValueError(f"metrics={name!r}: an example may have several classes. Choose 'f1_macro'.")
    for is_wrong, reason in (
        (rule != "none" and not validation.multi_label, "each example has one class. Set it to 'none'."),
        (rule != "none" and _has_prior(experiment), f"count prior {prior!r} decides. Set one to 'none'."),
        (validation.multi_label and not has_rule, f"loss {loss!r} has no threshold. Set thresholds to 'f1'."),
    ):
        if is_wrong:
            raise ValueError(f"{field}: {reason}")
    confidence = experiment.thresholds.options().get("confidence")
    if confidence and experiment.sets.name == "none":
        raise ValueError(
            f"thresholds.confidence={confidence}: needs calibration examples. Set sets to 'threshold'."
        )


def need_scores(experiment: config.Experiment, split: data.Split) -> bool:
    """Returns whether the decided classes of a split follow from all scores; ValueError for too many."""
    names, rule = _metrics(experiment), experiment.thresholds.name
    if not split.multi_label or (rule == "none" and not names):
        return False
    field = f"metrics={names[0]!r}" if rule == "none" else f"thresholds={rule!r}"
    size, num_classes = split.labels.shape
    predictions.check_size(field, size, num_classes, "Leave it out, or lower data.max_examples.")
    return True


def fit(result: EvaluationResult, experiment: config.Experiment, split: data.Split) -> Thresholds | None:
    """Fits the thresholds to the scores of a split; returns None if the experiment has none."""
    part = experiment.thresholds
    if part.name == "none":
        return None
    assert result.scores is not None
    rate = functools.partial(THRESHOLDS[part.name], **part.options())
    where = run_calibration.ranked_classes(split)
    # The pairs of an example are not independent, so that no certain threshold is shared by classes.
    least = 0 if part.options().get("confidence") else thresholds.LEAST
    return thresholds.fit(rate, result.scores, split.label_matrix, where, least)


def measure(
    result: EvaluationResult,
    experiment: config.Experiment,
    loaded: TaskData,
    split: str,
    fitted: Thresholds | None,
) -> EvaluationResult:
    """Returns an evaluation with the metrics of the decided classes that the experiment names.

    An example with a score that is not finite decides for no class.
    """
    names, examples, finite = _metrics(experiment), loaded.splits[split], result.top_classes >= 0
    if not names:
        return result
    if experiment.thresholds.name != "none" and fitted is None:
        logging.info("No %s: the thresholds are fitted at the end of the training", ", ".join(names))
        return result
    relevant = examples.class_matrix(loaded.num_scored(split))
    if examples.multi_label:
        decided = scipy.sparse.csr_array(_decide(result, experiment, examples, fitted) & finite[:, None])
    else:
        entries = np.flatnonzero(finite), result.top_classes[finite]
        decided = scipy.sparse.csr_array((finite[finite], entries), relevant.shape)
    if "subset_accuracy" in names:
        exact = np.where(finite, (decided != relevant).sum(axis=1) == 0, False)
        result = result.with_metrics({"subset_accuracy": exact})
    return dataclasses.replace(result, decisions=Decisions(of_counts(names), decided, relevant))


def _decide(
    result: EvaluationResult, experiment: config.Experiment, split: data.Split, fitted: Thresholds | None
) -> np.ndarray:
    """Returns the decided classes of examples that may have several, bool `[N, n]`."""
    scores, where = result.scores, run_calibration.ranked_classes(split)
    assert scores is not None
    if fitted is None and (threshold := _of_loss(experiment)) is not None and not _has_prior(experiment):
        fitted = Thresholds((threshold,))
    if fitted is not None:
        return fitted.decide(scores, where).numpy()
    assert result.log_counts is not None
    decided, rows = np.zeros(scores.shape, bool), max(1, _BLOCK // scores.shape[1])
    for first in range(0, len(scores), rows):
        block = slice(first, first + rows)
        ranked = None if where is None else where[block]
        decided[block] = set_sizes.most_probable(scores[block], result.log_counts[block], where=ranked)
    return decided


def _metrics(experiment: config.Experiment) -> list[str]:
    return [name for name in experiment.metrics if name in DECISION_METRICS]


def _has_prior(experiment: config.Experiment) -> bool:
    return count_priors.get(experiment.count_prior).is_model


def _of_loss(experiment: config.Experiment) -> float | None:
    return LOSSES[experiment.loss.name].threshold if experiment.loss.name in LOSSES else None
