"""The outputs of models for one input, as those who predict get them."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

# Name of a list of a prediction -> that of one of its items.
LISTS = {"classes": "class", "scores": "score", "probabilities": "probability", "in_set": "in_set"}
OF_DETECTOR = ("unknown", "p_value")  # outputs of a `detector.Detector`
OF_NEIGHBORS = {  # outputs of `neighbors.Neighbors`, and the name of one of an input
    "neighbors": "neighbor",
    "neighbor_classes": "neighbor_class",
    "similarities": "similarity",
}
OF_INPUTS = {"set_size", *OF_DETECTOR, *OF_NEIGHBORS}  # outputs that are not of a class


class Prediction(NamedTuple):
    """The answer to one input.

    The columns are lists of its best classes, the best first, by the names of `LISTS`: `classes`, or the
    positions of its items from 1; `scores`, float32 `[k]`; `probabilities`, float32 `[k]`, of a calibrated
    model. With a coverage, a count prior or thresholds there are `set_size`, the number of all decided
    classes, and, except for prediction sets, `in_set`, which of the best are decided, bool `[k]`. A run that
    detects unknown inputs has `unknown`, a bool, and `p_value`, a float. With neighbors `neighbor_1`,
    `neighbor_class_1`, `similarity_1`, ... are those of the input, the nearest first.
    """

    name: str  # of the input
    columns: dict[str, Any]
    kept: Mapping[str, Any] = {}  # columns of the input

    @classmethod
    def of(cls, name: str, classes: Sequence[str], outputs: Mapping[str, np.ndarray]) -> "Prediction":
        """Returns the prediction of an input; raises ValueError if its numbers are not finite.

        Args:
          name: of the input.
          classes: names of its best classes, or positions of its items.
          outputs: of the model, those of `LISTS` of the best alone.
        """
        columns: dict[str, Any] = {"classes": list(classes)}
        columns |= {key: outputs[key].item() for key in OF_DETECTOR if key in outputs}
        for key in ("scores", "probabilities", "set_size", "in_set"):
            if key in outputs:
                columns[key] = int(outputs[key]) if key == "set_size" else outputs[key]
        lists = [(one, outputs[key]) for key, one in OF_NEIGHBORS.items() if key in outputs]
        for i in range(len(lists[0][1]) if lists else 0):
            for one, values in lists:
                value = values[i].item() if one == "similarity" else values[i].decode()
                columns[f"{one}_{i + 1}"] = value
        for key in ("scores", "probabilities"):
            if not np.isfinite(columns.get(key, ())).all():
                raise ValueError(f"{name}: its {key} are not finite. Look at the input, or train again.")
        return cls(name, columns)

    def first(self, k: int) -> "Prediction":
        """Returns the prediction with the `k` best items alone."""
        columns = {name: x[:k] if name in LISTS else x for name, x in self.columns.items()}
        return self._replace(columns=columns)
