"""The parts of models by name: encoders, class encoders, interactions, count priors and sorters.

Each part registers itself in the file that defines it. Importing `rank4class.models` registers all parts of
rank models, importing `rank4class.models.sorters` all sorters.
"""

import inspect
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from rank4class.registry import Registry


class _Layers(Registry):
    """A registry whose classes Keras can load; `register_keras_serializable` may choose their names."""

    def register(self, name: str) -> Callable[[Any], Any]:
        add = super().register(name)

        def add_serializable(layer: Any) -> Any:
            if inspect.isclass(layer) and tf.keras.utils.get_registered_name(layer) == layer.__name__:
                tf.keras.utils.register_keras_serializable()(layer)
            return add(layer)

        return add_serializable


ENCODERS = _Layers("encoder")
CLASS_ENCODERS = _Layers("class_encoder")
INTERACTIONS = _Layers("interaction")
COUNT_PRIORS = _Layers("count_prior")
PARTS = {part.kind: part for part in (ENCODERS, CLASS_ENCODERS, INTERACTIONS, COUNT_PRIORS)}
SORTERS = Registry("sorter")


def get(part: str, name: str, **options: Any) -> Any:
    """Returns a part of a rank model, a Keras layer.

    Args:
      part: "encoder", "class_encoder", "interaction" or "count_prior".
      name: one of `PARTS[part]`.
      **options: the arguments of that part.

    Raises:
      ValueError: an unknown name or option, or a required option that is missing.

    >>> get("encoder", "mlp", hidden=(32,)).width
    32
    """
    return PARTS[part].build(name, **options)
