"""The report on a split or a labeled file: metrics, tables of classes, sets and examples, and their files."""

import dataclasses

import pandas as pd

from rank4class.pipelines.evaluation import per_class, prediction_sets, predictions, worst_examples
from rank4class.pipelines.evaluation.stages import calibration
from rank4class.pipelines.evaluation.trained_model import TrainedModel
from rank4class.pipelines.storage.code_version import git_commit
from rank4class.pipelines.task_data.task_data import TaskData

MAX_CLASSES = 40  # for a table of all classes
WORST_CLASSES = 20  # shown if there are more
LONG_TAIL = 2  # ratio of the most and the fewest training examples from which thirds of the classes are shown


def reported_coverage(trained: TrainedModel, coverage: float | None) -> float | None:
    """Returns the coverage of the reported sets, for None 0.9; None if the model has no sets for that.

    Raises:
      ValueError: a coverage that the model has no sets for, or that is not a whole percent.
    """
    if coverage is None:
        few = trained.sets is None or trained.sets.examples.min() < prediction_sets.least_examples(0.9)
        return None if few else 0.9
    trained.sets_of(coverage).limits(coverage)
    if abs(coverage - round(coverage, 2)) > 1e-9:
        nearest = min(max(round(coverage, 2), 0.01), 0.99)
        raise ValueError(f"coverage={coverage:g}: not a whole percent. Choose {nearest:g}.")
    return coverage


class SplitReport:
    """The evaluation of a split of loaded data, with its tables.

    Attributes:
      title: the name of the split, or the path of the labeled file.
      result: an `EvaluationResult`, with the coverage and the size of the sets among its metrics.
      metrics: `EvaluationResult.summarize`.
      unknown_inputs: see `TrainedModel.evaluate_unknown`; None without held-out classes.
      sets: the coverage and the size of the sets by their names, `[N]`; may be empty.
      classes: `per_class.per_class`.
      thirds: `per_class.by_frequency`; None for lists of items.
      worst: `worst_examples.frame` of the worst examples; None if there are to be none.

    Args:
      trained: the model.
      task_data: that of its training, or of a labeled file.
      split: name of a split of these.
      path: of the labeled file; None for the data of the training.
      coverage: of the reported prediction sets, see `reported_coverage`; None reports none.
      keep_scores: whether the result holds the scores; None holds those of the best classes if there are more
        than `predictions.BEST_CLASSES`.
      worst: number of worst examples; None for no table of them.

    Raises:
      ValueError: the scores take too much memory, or the examples may have several classes and so no worst.
    """

    def __init__(
        self,
        trained: TrainedModel,
        task_data: TaskData,
        split: str,
        *,
        path: str | None = None,
        coverage: float | None = None,
        keep_scores: bool | None = None,
        worst: int | None = None,
    ):
        examples = task_data.examples(split)
        class_names = task_data.scored_class_names(split)
        self._trained = trained
        self._examples = examples
        self._class_names = class_names
        self._hashes = {name: task_data.hashes[name] for name in ("classes", split)}
        self.title = path or split
        best = 0
        if keep_scores is None:
            keep_scores = len(class_names) <= predictions.BEST_CLASSES
            best = 0 if keep_scores else predictions.BEST_CLASSES
        if keep_scores:
            remedy = f"Leave it out to write the best {predictions.BEST_CLASSES}, or set --nokeep_scores."
            predictions.check_size("keep_scores=True", len(examples), len(class_names), remedy)
        if worst:
            worst_examples.check(examples, worst)
        has_unknown = bool(trained.experiment.data.held_out) and path is None and split == "test"
        few_scores = len(examples) * len(class_names) <= calibration.MAX_SCORES
        needs_scores = keep_scores or (bool(worst) and few_scores) or has_unknown
        coverages = () if coverage is None else (coverage,)
        result = trained.evaluate(task_data, split, keep_scores=needs_scores, best=best, coverages=coverages)
        self.unknown_inputs = trained.evaluate_unknown(task_data, result) if has_unknown else None
        self.metrics = result.summarize()
        self.sets = {} if result.sets is None or coverage is None else result.sets.metrics(coverage)
        result = result.with_metrics(self.sets)
        self.classes = per_class.per_class(result, examples.labels, class_names)
        self.thirds = self.worst = None
        if not examples.kind.ranks_items:
            counts = task_data.training_counts(split) if path is None else trained.description.training_counts
            self.thirds = per_class.by_frequency(result, examples.labels, counts)
        if worst:
            rows = worst_examples.worst(result, worst)
            self.worst = worst_examples.frame(result, examples, class_names, rows)
        self.result = result if keep_scores else dataclasses.replace(result, scores=None)

    @property
    def has_many_classes(self) -> bool:
        """Whether a table of all classes is too long."""
        return len(self.classes) > MAX_CLASSES

    def is_long_tailed(self) -> bool:
        """Returns whether to show thirds of the classes: if these are many, or their thirds differ."""
        if self.thirds is None:
            return False
        ratio = self.thirds["most"].max() / self.thirds["fewest"].min()
        return self.has_many_classes or ratio >= LONG_TAIL

    def by_set_size(self) -> pd.DataFrame:
        """Returns `per_class.by_set_size` of the `sets`."""
        return per_class.by_set_size(self.result, self.classes, self.thirds, *self.sets)

    def worst_classes(self, monitor: str) -> pd.DataFrame:
        """Returns the classes, the worst first, of many the worst of those with enough examples."""
        table = per_class.worst_first(self.classes, monitor)
        if self.has_many_classes:
            table = table[table["examples"] >= per_class.LEAST_EXAMPLES][:WORST_CLASSES]
        return table

    def write(self, folder: str) -> None:
        """Writes the files of `predictions.write`."""
        summary = {
            "workdir": self._trained.run_dir.path,
            "step": self._trained.step,
            "split": self.title,
            "hashes": self._hashes,
            "git": git_commit(),
            **self.metrics,
        }
        if self.unknown_inputs:
            summary["unknown_inputs"] = self.unknown_inputs
        if self.thirds is not None:
            summary["by_frequency"] = per_class.to_json(self.thirds.drop(columns="class"))
        predictions.write(folder, summary, self.classes, self.result, self._examples, self._class_names)
