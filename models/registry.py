"""The parts of models by name: encoders, class encoders, interactions, count priors and sorters.

Each part registers itself in the file that defines it. Importing `rank4class.models` registers all parts of
rank models, importing `rank4class.models.sorters` all sorters.
"""

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from rank4class import compat
from rank4class.registry import CLASS_ENCODERS, COUNT_PRIORS, ENCODERS, INTERACTIONS

KERAS_3 = compat.is_keras_3()
UNROUNDED = {"autocast" if KERAS_3 else "experimental_autocast": False}  # weights, to half precision
PARTS = {part.kind: part for part in (ENCODERS, CLASS_ENCODERS, INTERACTIONS, COUNT_PRIORS)}


def get(part: str, name: str, **options: Any) -> Any:
    """Returns a part of a rank model, a Keras layer.

    Args:
      part: "encoder", "class_encoder", "interaction" or "count_prior".
      name: one of the registry of that part.
      **options: the arguments of that part.

    Raises:
      ValueError: an unknown name or option, a missing one, or one out of range; or a checkpoint, the option
        `path` of an encoder, that does not fit it.
      FileNotFoundError: there is nothing at that path.

    >>> get("encoder", "mlp", hidden=(32,)).width
    32
    """
    return PARTS[part].build(name, **options)


def build_in_order(layers: Iterable[tf.keras.layers.Layer], shape: Any) -> None:
    """Creates the variables of layers, each of which takes the output of the one before."""
    for layer in layers:
        layer.build(shape)
        shape = layer.compute_output_shape(shape)


class Part(tf.keras.layers.Layer):
    """A layer that is saved with those arguments of its constructor that `SAVED` names: its attributes."""

    SAVED: tuple[str, ...] = ()
    TOKENIZER: str | None = None  # name of a text encoder's tokenizer

    def __init__(self, **kwargs: Any):  # the arguments of Keras's constructor are no options of a part
        super().__init__(**kwargs)

    def build(self, shapes: Any) -> None:
        if KERAS_3:
            self.build_layers(shapes)
        super().build(shapes)

    def build_layers(self, shapes: Any) -> None:
        """Creates the variables of the layers in this one; Keras 2 names them in their first call instead."""

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **{name: getattr(self, name) for name in self.SAVED}}
