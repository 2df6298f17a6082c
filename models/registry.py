"""The parts of models by name: encoders, class encoders, interactions, count priors and sorters.

Each part registers itself in the file that defines it. Importing `rank4class.models` registers all parts of
rank models, importing `rank4class.models.sorters` all sorters.
"""

from typing import Any

import tensorflow as tf

from rank4class.registry import CLASS_ENCODERS, COUNT_PRIORS, ENCODERS, INTERACTIONS

PARTS = {part.kind: part for part in (ENCODERS, CLASS_ENCODERS, INTERACTIONS, COUNT_PRIORS)}


def get(part: str, name: str, **options: Any) -> Any:
    """Returns a part of a rank model, a Keras layer.

    Args:
      part: "encoder", "class_encoder", "interaction" or "count_prior".
      name: one of the registry of that part.
      **options: the arguments of that part.

    >>> get("encoder", "mlp", hidden=(32,)).width
    32
    """
    return PARTS[part].build(name, **options)


class Part(tf.keras.layers.Layer):
    """A layer that is saved with those arguments of its constructor that `SAVED` names: its attributes."""

    SAVED: tuple[str, ...] = ()

    def __init__(self, **kwargs: Any):  # the arguments of Keras's constructor are no options of a part
        super().__init__(**kwargs)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **{name: getattr(self, name) for name in self.SAVED}}
