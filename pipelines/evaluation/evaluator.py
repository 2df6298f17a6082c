"""Evaluation of a model: per-example metrics, their means in percent, and 95% intervals."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from rank4class import losses
from rank4class.losses.metrics import SetMetric
from rank4class.pipelines import distribution
from rank4class.pipelines.evaluation import reliability, statistics
from rank4class.pipelines.evaluation.prediction_sets import Evaluated
from rank4class.pipelines.evaluation.split_metrics import Decisions, SplitMetrics

LARGEST_BATCH = 1 << 24  # scores of all classes that are in memory together, 64 MB

# Of the indices of examples, their scores `[B, n]`, and `log_counts` or None.
Consume = Callable[[np.ndarray, np.ndarray, np.ndarray | None], None]
# Of the validation examples by a calibration to them; it selects the strength of a solved head.
LIKELIHOOD = "calibrated_nll"
_metric = functools.cache(losses.get_metric)  # trainings read one at each step of their history


@dataclasses.dataclass(frozen=True)
class EvaluationResult:
    """Evaluation results of the `N` examples of a split; those that were not requested are None."""

    names: tuple[str, ...]  # of the `M` metrics
    values: np.ndarray  # of the metrics, float32 `[N, M]`
    top_classes: np.ndarray  # class of the highest score, int32 `[N]`; -1 if a score is not finite
    right: np.ndarray  # 1 if one class alone has the highest score and is the example's, int32 `[N]`
    ranks: np.ndarray  # of the first of the example's classes, float32 `[N]`; infinity if one is not finite
    scores: np.ndarray | None = None  # float32 `[N, n]`
    log_counts: np.ndarray | None = None  # of a count prior, `[N, m + 1]`, with scores or best classes
    best_classes: np.ndarray | None = None  # the `k` best classes, the best first, int32 `[N, k]`
    best_scores: np.ndarray | None = None  # float32 `[N, k]`
    calibrated: reliability.Calibrated | None = None
    losses: np.ndarray | None = None  # of the training, float32 `[N]`
    decisions: Decisions | None = None
    sets: Evaluated | None = None
    whole: SplitMetrics = dataclasses.field(default_factory=SplitMetrics)
    # Which examples have a class without training examples, bool `[N]`, and which these are, bool `[n]`;
    # None reports all examples alone.
    unseen: tuple[np.ndarray, np.ndarray] | None = None
    p_values: np.ndarray | None = None  # of a `detector.Detector`, float32 `[N]`

    @property
    def loss(self) -> float | None:
        """The mean loss of the examples, or None if it was not evaluated."""
        return None if self.losses is None else float(self.losses.mean())

    def means(self) -> dict[str, float]:
        """Returns the metrics: means over the examples and those of the whole split, rates in percent."""
        of_examples = means(self.whole.corrected(self.names, self.values), self.names)
        return of_examples | (self.decisions.means() if self.decisions else {}) | self.whole.means()

    def likelihood(self) -> dict[str, float]:
        """Returns `LIKELIHOOD` -> the negative log-likelihood after calibration; {} without a calibration."""
        return {LIKELIHOOD: self.calibrated.after.nll} if self.calibrated else {}

    def with_metrics(self, columns: Mapping[str, np.ndarray]) -> "EvaluationResult":
        """Returns the result with more metrics, name -> values `[N]`, except those that it has."""
        added = {name: column for name, column in columns.items() if name not in self.names}
        values = np.column_stack([self.values, *added.values()]).astype(np.float32)
        return dataclasses.replace(self, names=(*self.names, *added), values=values)

    def line(self) -> str:
        """Returns the means in one line."""
        return one_line(self.means() | self.likelihood())

    def summarize(self) -> dict[str, Any]:
        """Returns `summarize` of the metrics, and "calibration" of `reliability.Calibrated.summarize`.

        "sets" is `summarize_sets`, if there are prediction sets.

        With `unseen`, "unseen" is the summary of these examples, and "seen" that of the others. F1 is there
        that of the unseen classes, and of the others, over all examples.
        """
        summary = summarize(self.whole.corrected(self.names, self.values), self.names)
        intervals = summary["intervals"] | (self.decisions.intervals() if self.decisions else {})
        summary = self.means() | summary | {"intervals": intervals | self.whole.intervals()}
        if self.unseen is not None:
            rows, classes = self.unseen
            summary |= {"seen": self._select(~rows, ~classes).summarize()}
            summary |= {"unseen": self._select(rows, classes).summarize()}
        if self.calibrated:
            summary["calibration"] = self.calibrated.summarize()
        if self.sets:
            summary["sets"] = summarize_sets(self.sets)
        return summary

    def _select(self, rows: np.ndarray, classes: np.ndarray) -> "EvaluationResult":
        """Returns the metrics of some examples, and of the decisions for some classes."""
        changes = {"values": self.values[rows], "whole": self.whole.select(rows, classes)}
        changes["decisions"] = self.decisions and self.decisions.select(classes)
        return dataclasses.replace(self, **changes, calibrated=None, sets=None, unseen=None)


def metric_names(summary: Mapping[str, Any]) -> list[str]:
    """Returns the names of the metrics in a summary; see `summarize`."""
    others = ("examples", "intervals", "calibration", "sets", "seen", "unseen")
    return [name for name in summary if name not in others]


def one_line(summary: Mapping[str, Any]) -> str:
    """Returns the metrics of a summary in one line.

    >>> one_line({"top1_error": 12.5, "mean_rank": 2.0, "examples": 8})
    'top1_error 12.50%, mean_rank 2.00'
    """
    return ", ".join(
        f"{name} {summary[name]:.{4 if name == LIKELIHOOD else 2}f}{'%' if _is_percent(name) else ''}"
        for name in metric_names(summary)
    )


class Evaluator:
    """A model and metrics of its scores, compiled into one function.

    Excluded classes rank behind all others.

    Args:
      scorer: function of features and `training` to `task_data.ModelOutputs`.
      names: of the metrics.
      max_relevant: largest number of classes of an example; a lower bound makes evaluation faster. None if
        labels are class ids or the number is unknown.
      strategy: of the model; None is one device.
      jit_compile: whether to compile with XLA; ignored with several replicas.
      loss: function of labels and `task_data.ModelOutputs` to the losses, `[B]`; None evaluates none.
      encode_classes: function of `training` to the vectors of all classes, called once per evaluation; the
        scorer takes them as `class_vectors`. None for a scorer without them.
    """

    def __init__(
        self,
        scorer: Callable[..., Any],
        names: Iterable[str],
        *,
        max_relevant: int | None = None,
        strategy: tf.distribute.Strategy | None = None,
        jit_compile: bool = False,
        loss: Callable[..., tf.Tensor] | None = None,
        encode_classes: Callable[..., tf.Tensor] | None = None,
    ):
        self.names = tuple(names)
        self._strategy = strategy or tf.distribute.get_strategy()
        self._scorer = scorer
        self._loss = loss
        self._metrics = [losses.get_metric(name, max_relevant=max_relevant) for name in self.names]
        self._mrr = losses.MRR(max_relevant=max_relevant)
        one_replica = self._strategy.num_replicas_in_sync == 1
        evaluate_replica = self._evaluate_replica
        if one_replica:
            # A TPU compiles everything that it runs.
            jit_compile = jit_compile and not isinstance(self._strategy, tf.distribute.TPUStrategy)
            evaluate_replica = tf.function(evaluate_replica, autograph=False, jit_compile=jit_compile)

        def evaluate_batch(
            features: Any, labels: Any, indices: Any, keep_scores: bool, best: int = 0, classes: Any = None
        ) -> dict[str, tf.Tensor]:
            # A TPU would turn the arguments `keep_scores` and `best` into tensors.
            def gathered(features: Any, labels: Any, indices: Any, classes: Any) -> dict[str, tf.Tensor]:
                results = evaluate_replica(features, labels, keep_scores, best, classes or {})
                results = {**results, "indices": indices}
                return results if one_replica else distribution.all_gather(results)

            results = self._strategy.run(gathered, args=(features, labels, indices, classes))
            return {
                name: self._strategy.experimental_local_results(values)[0] for name, values in results.items()
            }

        # Partials, since TensorFlow warns if many evaluators trace one and the same function.
        encode = functools.partial(self._strategy.run, encode_classes, kwargs={"training": False})
        self._encode_classes = encode_classes and tf.function(encode, autograph=False)
        self.evaluate_batch = tf.function(  # texts have several lengths
            functools.partial(evaluate_batch), autograph=False, reduce_retracing=True
        )

    def _evaluate_replica(
        self, features: Any, labels: tf.Tensor, keep_scores: bool, best: int, classes: dict[str, tf.Tensor]
    ) -> dict[str, tf.Tensor]:
        outputs = self._scorer(features, training=False, **classes)
        scores = tf.cast(outputs.scores, tf.float32)  # half precision may round `lowest - 1` to `lowest`
        if outputs.where is not None:
            scores = mask_scores(scores, outputs.where)
        ranks = tf.math.round(1.0 / self._mrr.of_scores(scores, labels))  # removes the rounding errors
        finite = tf.reduce_all(tf.math.is_finite(scores), axis=1)
        values = []
        for metric in self._metrics:
            if isinstance(metric, SetMetric):
                set_inputs = (outputs.scores, labels, outputs.log_counts)
                values.append(metric.function(*set_inputs, where=outputs.where))
            elif isinstance(metric, losses.RankingMetric):
                values.append(metric.of_scores(scores, labels))
        results = {
            "values": tf.stack(values, axis=1) if values else tf.zeros([tf.shape(scores)[0], 0]),
            "top_classes": tf.where(finite, tf.argmax(scores, axis=1, output_type=tf.int32), -1),
            "right": tf.cast(ranks == 1.0, tf.int32),
            "ranks": ranks,
        }
        if self._loss is not None:
            results["losses"] = self._loss(labels, outputs)
        if keep_scores:
            results["scores"] = scores
        if best:
            results["best_scores"], results["best_classes"] = tf.math.top_k(scores, best)
        if outputs.log_counts is not None and (keep_scores or best):
            results["log_counts"] = outputs.log_counts
        return results

    def __call__(
        self,
        batches: Iterable[tuple],
        *,
        keep_scores: bool | np.ndarray = False,
        best: int = 0,
        stopping: Callable[[], bool] = lambda: False,
        consume: Consume | None = None,
    ) -> EvaluationResult | None:
        """Evaluates every example once; returns None if `stopping`, called before each batch, returns True.

        Args:
          batches: of the strategy, from `data.evaluation_batches`.
          keep_scores: whether the result holds the scores; or the increasing indices of the examples whose
            scores it holds.
          best: number of best classes of each example in the result.
          stopping: see above.
          consume: function that takes the scores of each batch, see `Consume`; None takes none.
        """
        kept = keep_scores if isinstance(keep_scores, np.ndarray) else None
        parts = []
        orders = []
        ordered: dict[str, Any] = {}
        classes = {"class_vectors": self._encode_classes()} if self._encode_classes else {}
        for features, labels, indices in batches:
            if stopping():
                return None
            with_scores = kept is not None or consume is not None or keep_scores
            results = self.evaluate_batch(features, labels, indices, with_scores, best, classes)
            part = {name: values.numpy() for name, values in results.items()}
            orders.append(part.pop("indices"))
            scores = part["scores"] if kept is None and keep_scores else part.pop("scores", None)
            if consume is not None:
                is_example = orders[-1] >= 0
                log_counts = part.get("log_counts")
                counts = None if log_counts is None else log_counts[is_example]
                consume(orders[-1][is_example], scores[is_example], counts)
            if kept is not None:
                is_kept = np.isin(orders[-1], kept)
                rows = np.searchsorted(kept, orders[-1][is_kept])
                ordered.setdefault("scores", np.empty([len(kept), scores.shape[1]], scores.dtype))
                ordered["scores"][rows] = scores[is_kept]
            parts.append(part)
        ordered |= {name: _ordered(parts, orders, name) for name in list(parts[0])}
        values = ordered["values"]
        values[np.abs(values - 1.0) <= statistics.ROUNDING] = 1.0  # or a perfect list would seem to differ
        return EvaluationResult(self.names, **ordered)


def _ordered(parts: list[dict[str, np.ndarray]], orders: list[np.ndarray], name: str) -> np.ndarray:
    """Removes an array from the results of all batches, one by one to free memory; returns it by example."""
    first = parts[0][name]
    values = np.empty([sum(int(np.sum(order >= 0)) for order in orders), *first.shape[1:]], first.dtype)
    for part, order in zip(parts, orders, strict=True):
        values[order[order >= 0]] = part.pop(name)[order >= 0]
    return values


def mask_scores(scores: tf.Tensor, where: tf.types.experimental.TensorLike) -> tf.Tensor:
    """Moves the scores `[B, n]` of excluded classes (`where` is False) below the others of their example."""
    finite = tf.where(tf.math.is_finite(scores), scores, scores.dtype.max)
    lowest = tf.reduce_min(finite, axis=1, keepdims=True)
    return tf.where(where, scores, lowest - tf.maximum(1.0, 1e-6 * tf.abs(lowest)))


def summarize(values: np.ndarray, names: Sequence[str]) -> dict[str, Any]:
    """Returns the mean of each metric of values `[N, M]` (fractions in percent), "examples", and "intervals".

    "intervals" has name -> [low, high], or None; see `statistics.mean_interval`.
    """
    rows, counts = _distinct_rows(values)
    with np.errstate(invalid="ignore"):  # no infinite value in a resample
        resampled = np.concatenate([draws @ rows for draws in statistics.resamples(counts)]) / counts.sum()
    intervals = {}
    for name, column, each in zip(names, rows.T, resampled.T, strict=True):
        interval = statistics.mean_interval(column, counts, each, bounded=_metric(name).percent)
        intervals[name] = interval and [_scale(name) * end for end in interval]
    return {**_means(rows, counts, names), "examples": len(values), "intervals": intervals}


def summarize_sets(sets: Evaluated) -> dict[str, Any]:
    """Returns the "score" of prediction sets, and `summarize` of their metrics for each coverage."""
    summary: dict[str, Any] = {"score": sets.score, "intervals": {}}
    for coverage in sets.coverages.tolist():  # one at a time: few distinct rows
        metrics = sets.metrics(coverage)
        part = summarize(np.column_stack(list(metrics.values())), list(metrics))
        summary |= part | {"intervals": summary["intervals"] | part["intervals"]}
    return summary


def means(values: np.ndarray, names: Sequence[str]) -> dict[str, float]:
    """Returns the mean of each metric over the examples, fractions in percent; see `summarize`."""
    return _means(*_distinct_rows(values), names)


def _means(rows: np.ndarray, counts: np.ndarray, names: Sequence[str]) -> dict[str, float]:
    return {
        name: float(counts @ (_scale(name) * column) / counts.sum())
        for name, column in zip(names, rows.T, strict=True)
    }


def _distinct_rows(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the distinct rows of values, and the number of examples of each."""
    return np.unique(np.asarray(values, np.float64), axis=0, return_counts=True)


def _scale(name: str) -> float:
    return 100.0 if _is_percent(name) else 1.0


def _is_percent(name: str) -> bool:
    return name != LIKELIHOOD and _metric(name).percent


def batch_size(largest: int, num_classes: int, replicas: int = 1) -> int:
    """Returns the examples in a batch: `largest`, or as many as have `LARGEST_BATCH` scores per replica."""
    return min(largest, replicas * max(1, LARGEST_BATCH // num_classes))


def applicable_metrics(names: Iterable[str], num_classes: int) -> tuple[str, ...]:
    """Returns the metrics that accept this number of classes."""

    def applies(name: str) -> bool:
        try:
            losses.get_metric(name).check_classes(num_classes)
        except ValueError:
            return False
        return True

    return tuple(filter(applies, names))


def better(name: str, value: float, best: float) -> bool:
    """Returns whether a metric's value beats the best so far; NaN as best is no value yet."""
    if np.isnan(best):
        return not np.isnan(value)
    higher_is_better = name != LIKELIHOOD and _metric(name).higher_is_better
    return value > best if higher_is_better else value < best


def metric_heading(name: str) -> str:
    """Returns the name of a metric with its unit."""
    return f"{name} (%)" if _is_percent(name) else name
