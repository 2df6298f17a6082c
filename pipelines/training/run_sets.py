"""The prediction sets of a run: their fit to the split "calibration", and their metrics."""

import dataclasses
import functools
from collections.abc import Collection, Iterator, Mapping

import numpy as np
import tensorflow as tf
from absl import logging

from rank4class import data
from rank4class.losses.metrics.sets import stated_coverage
from rank4class.losses.ops import set_sizes
from rank4class.pipelines import config
from rank4class.pipelines.evaluation import prediction_sets
from rank4class.pipelines.evaluation.calibration import Calibration
from rank4class.pipelines.evaluation.evaluator import EvaluationResult
from rank4class.pipelines.evaluation.prediction_sets import PredictionSets
from rank4class.pipelines.task import count_priors

FEW = 500  # calibration examples, with fewer of which a warning says how far the coverage may be
_BLOCK = 1 << 20  # scores whose sets are computed at a time


def check(experiment: config.Experiment, splits: Mapping[str, data.Split]) -> None:
    """Raises ValueError if prediction sets do not fit the dataset; logs how far their coverage may be."""
    part = experiment.sets
    if part.name == "none":
        return
    if experiment.data.held_out:
        raise ValueError(
            f"sets={part.name!r}: cannot cover the classes of data.held_out, which no calibration example "
            "has. Set sets to 'none'."
        )
    examples = splits["calibration"]
    check_examples(part, examples)
    for metric in experiment.metrics:
        needed = prediction_sets.least_examples(stated_coverage(metric) or 0.0)
        if len(examples) < needed:
            raise ValueError(
                f"metrics={metric!r}: needs {needed} calibration examples, and there are {len(examples)}. "
                "Leave it out, or give more validation examples."
            )
    _log(describe(examples), len(examples) < FEW)


@functools.cache  # once for all runs of a sweep
def _log(text: str, are_few: bool) -> None:
    if are_few:
        logging.warning("%s Give more validation examples.", text)
    else:
        logging.info("%s", text)


def check_examples(part: config.Sets, examples: data.Split) -> None:
    """Raises ValueError if prediction sets do not fit the labels of calibration examples."""
    several = examples.multi_label
    for is_wrong, reason in (
        (examples.kind.ranks_items, "the items of a list are not classes. Set it to 'none'."),
        (several and np.any(examples.label_matrix.data != 1.0), "the labels are graded. Set it to 'none'."),
        (several and part.name == "adaptive", "an example may have several classes. Choose 'threshold'."),
    ):
        if is_wrong:
            raise ValueError(f"sets={part.name!r}: {reason}")
    if several and part.by_class:
        raise ValueError("sets.by_class=True: an example may have several classes. Set it to False.")


def describe(examples: data.Split) -> str:
    """Returns a sentence on the number of calibration examples, and on the coverage of sets for 90%."""
    size, needed = len(examples), prediction_sets.least_examples(0.9)
    if size < needed:
        return f"calibration: {size:,} examples; sets for 90% need {needed}."
    if examples.multi_label:
        return f"calibration: {size:,} examples."
    low, high = prediction_sets.coverage_interval(size, 0.9)
    return f"calibration: {size:,} examples; sets for 90% will cover {low:.1%} to {high:.1%} (95% of draws)."


def can_fit(experiment: config.Experiment, calibration: Calibration | None) -> bool:
    """Returns whether the experiment has sets, and the run the probabilities that they need."""
    if experiment.sets.name in ("none", "rank"):
        return experiment.sets.name == "rank"
    return calibration is not None or count_priors.get(experiment.count_prior).is_model


def fit(
    result: EvaluationResult,
    experiment: config.Experiment,
    examples: data.Split,
    calibration: Calibration | None,
) -> PredictionSets | None:
    """Returns the sets that the scores of calibration examples define; None without probabilities."""
    part = experiment.sets
    if not can_fit(experiment, calibration):
        logging.warning("No prediction sets: the scores are not calibrated")
        return None
    assert result.scores is not None
    return prediction_sets.fit(
        part.name,
        part.options(),
        _blocks(result, examples, calibration),
        examples.labels,
        by_class=part.by_class,
        num_classes=result.scores.shape[1],
    )


def measure(
    result: EvaluationResult,
    experiment: config.Experiment,
    examples: data.Split,
    sets: PredictionSets | None,
    calibration: Calibration | None,
    coverages: Collection[float] = (),
) -> EvaluationResult:
    """Returns an evaluation with its prediction sets, also for `coverages`, and the metrics of them."""
    if sets is None:
        return result
    stated = {name: each for name in experiment.metrics if (each := stated_coverage(name)) is not None}
    blocks = _blocks(result, examples, calibration)
    evaluated = prediction_sets.evaluate(sets, blocks, examples.labels, [*stated.values(), *coverages])
    columns = {name: evaluated.metrics(coverage)[name] for name, coverage in stated.items()}
    return dataclasses.replace(result.with_metrics(columns), sets=evaluated)


def _blocks(
    result: EvaluationResult, examples: data.Split, calibration: Calibration | None
) -> Iterator[prediction_sets.Block]:
    """Yields probabilities, ranking and ranked classes of the examples; see `prediction_sets.fit`."""
    scores, log_counts = result.scores, result.log_counts
    assert scores is not None
    rows = max(1, _BLOCK // scores.shape[1])
    for first in range(0, len(scores), rows):
        part = slice(first, first + rows)
        where = None if examples.excluded is None else ~examples.excluded[part].toarray()
        block, probabilities = tf.constant(scores[part]), None
        if log_counts is not None:
            probabilities = set_sizes.marginals(block, log_counts[part], where=where)
        elif calibration is not None:
            probabilities = calibration.apply(block, where)
        yield probabilities, block if calibration is None else calibration.ranking(block), where
