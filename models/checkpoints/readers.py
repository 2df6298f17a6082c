"""Readers of the files of checkpoints: tensors in safetensors and TensorFlow's format, and JSON."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import safetensors
import tensorflow as tf

from rank4class import strict_json


@dataclasses.dataclass(frozen=True)
class Tensors:
    """The tensors of a checkpoint, a file or prefix: their shapes by name, and a function that reads one."""

    path: str
    shapes: dict[str, tuple[int, ...]]
    read: Callable[[str], np.ndarray]


def read_safetensors(path: str) -> Tensors:
    """Returns the tensors of a safetensors file; raises ValueError if it is damaged."""
    try:
        file = safetensors.safe_open(path, framework="numpy")
    except safetensors.SafetensorError as error:
        raise ValueError(f"{path}: not a complete safetensors file: {error}. Download it again.") from error
    slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 (not a dict)

    def read(name: str) -> np.ndarray:
        dtype = slices[name].get_dtype()
        if dtype not in ("F16", "F32", "F64"):
            raise ValueError(f"{path}: {name} is {dtype}, which is not supported. Save it in float32.")
        return file.get_tensor(name)

    return Tensors(path, {name: tuple(part.get_shape()) for name, part in slices.items()}, read)


def read_tensorflow(prefix: str) -> Tensors:
    """Returns the tensors of a TensorFlow checkpoint; raises ValueError if it is damaged."""
    try:
        reader = tf.train.load_checkpoint(prefix)
    except (tf.errors.OpError, RuntimeError, ValueError) as error:
        raise ValueError(
            f"{prefix}: not a complete TensorFlow checkpoint: {error}. Download it again."
        ) from error

    def read(name: str) -> np.ndarray:
        try:
            return reader.get_tensor(name)
        except (tf.errors.OpError, IndexError, RuntimeError) as error:
            raise ValueError(
                f"{prefix}: not a complete TensorFlow checkpoint: {name} cannot be read. Download it again."
            ) from error

    shapes = reader.get_variable_to_shape_map()
    return Tensors(prefix, {name: tuple(shape) for name, shape in shapes.items()}, read)


def read_json(path: str) -> dict[str, Any]:
    """Returns the object in a JSON file."""
    with open(path, encoding="utf-8-sig") as file:
        return strict_json.parse_object(path, file.read())
