"""The examples of one class each that a model gets most wrong."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from rank4class import data
from rank4class.pipelines.evaluation.evaluator import EvaluationResult
from rank4class.pipelines.evaluation.per_class import NO_CLASS
from rank4class.pipelines.storage import files


def check(split: data.Split, count: int) -> None:
    """Raises ValueError, with the number of examples, if one may have several classes."""
    if split.multi_label:
        raise ValueError(
            f"worst={count}: an example may have several classes. Leave it out, and read the metrics of each "
            "example in predictions.npz of --output."
        )


def worst_examples(
    result: EvaluationResult, split: data.Split, class_names: Sequence[str], count: int
) -> pd.DataFrame:
    """Returns the examples whose true class has the lowest probability, the worst first.

    Without a calibration there are no probabilities, and the true class with the last rank is the worst.
    Equal examples are in their order in the split.

    Args:
      result: results of the examples; with scores if it has a calibration.
      split: the evaluated examples, of one class each.
      class_names: names of the ranked classes.
      count: largest number of examples.

    Returns:
      A table with a row per example. Its columns:

      - "example": where it was read;
      - "class" and "predicted": printable names of its class and of the top class, "-" if there is none;
      - "rank": rank of its class;
      - "probability" and "predicted probability": of these two classes, with a calibration only.

    Raises:
      ValueError: see `check`.
    """
    check(split, count)
    calibrated, labels = result.calibrated, np.asarray(split.labels)
    losses = result.ranks if calibrated is None else calibrated.after.nlls
    worst = np.argsort(-losses, kind="stable")[:count]
    names, top = [*map(files.printable, class_names), "-"], result.top_classes[worst]
    assert NO_CLASS == -1  # the last of the names
    columns = {
        "example": [files.printable(split.origin(i)) for i in worst],
        "class": [names[i] for i in labels[worst]],
        "predicted": [names[i] for i in top],
        "rank": result.ranks[worst],
    }
    if calibrated is not None:
        assert result.scores is not None
        where = None if split.excluded is None else ~split.excluded[worst].toarray()
        probabilities = calibrated.calibration.probabilities(result.scores[worst], where)
        rows = np.arange(len(worst))
        columns["probability"] = probabilities[rows, labels[worst]]
        columns["predicted probability"] = probabilities[rows, top]
    return pd.DataFrame(columns)
