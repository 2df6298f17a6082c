"""A checkpoint's tensors, in safetensors or TensorFlow's format, their names, and its description."""

import dataclasses
import math
import os
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from rank4class import compat


@dataclasses.dataclass(frozen=True)
class Tensors:
    """The tensors of a checkpoint, a file or prefix: their shapes by name, and a function that reads one."""

    path: str
    shapes: dict[str, tuple[int, ...]]
    read: Callable[[str], np.ndarray]


def read_safetensors(path: str) -> Tensors:
    """Returns the tensors of a safetensors file; raises ValueError if it is damaged."""
    safetensors = compat.import_extra("safetensors", "models")
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
        reader = tf.compat.v1.train.NewCheckpointReader(prefix)
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


@dataclasses.dataclass(frozen=True)
class NameMap:
    """Names of the tensors of our variables in a checkpoint.

    The variable `module/parameter` is the tensor `{prefix}{module}{parameter}{suffix}`.

    >>> dense = NameMap({r"layer_(\\d+)": r"block.\\1"}, unused="", parameters={"kernel": ".weight"})
    >>> dense.source("layer_3/kernel")
    'block.3.weight'
    """

    modules: dict[str, str]  # pattern of our name of a module -> template of the checkpoint's
    unused: str = ""  # pattern of the tensors that no encoder needs
    # Our name of a parameter -> the checkpoint's, with its separator; others are `/` and our name:
    parameters: dict[str, str] = dataclasses.field(default_factory=dict)
    prefix: str = ""  # of all tensors, like the suffix
    suffix: str = ""
    transposed: str | None = None  # our name of a parameter whose matrices are stored as `[out, in]`

    def source(self, name: str) -> str:
        """Returns the name of a variable's tensor; raises KeyError if no pattern matches."""
        module, separator, parameter = name.rpartition("/")
        for pattern, template in self.modules.items():
            if match := re.fullmatch(pattern, module):
                end = self.parameters.get(parameter, separator + parameter) + self.suffix
                return self.prefix + match.expand(template) + end
        raise KeyError(f"the name map has no entry for the variable {name}")


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """An encoder's checkpoint, whose tensors are read by `assign`.

    Attributes:
      format: description of the format.
      encoder: name of its encoder in `registry.ENCODERS`.
      settings: the arguments that its encoder is built with.
      name_map: names of the tensors.
      tensors: the tensors.
    """

    format: str
    encoder: str
    settings: dict[str, Any]
    name_map: NameMap
    tensors: Tensors

    @property
    def path(self) -> str:
        """File or prefix of the tensors."""
        return self.tensors.path

    @property
    def folder(self) -> str:
        """Folder of the file, which also holds the vocabulary of a text encoder."""
        return os.path.dirname(self.path) or "."

    def assign(self, variables: dict[str, tf.Variable]) -> None:
        """Assigns every variable, by our names, its tensor, or none at all.

        Raises:
          ValueError: a tensor is missing, left over, of another shape or not finite; the message lists all
            of these.
        """
        shapes, unused = self.tensors.shapes, self.name_map.unused
        sources = {self.name_map.source(name): name for name in variables}
        values, problems = {}, [f"{source} is missing" for source in sources if source not in shapes]
        for source, name in sources.items():
            if source not in shapes:
                continue
            value = self.tensors.read(source)
            if name.rpartition("/")[2] == self.name_map.transposed:
                value = value.T
            shape = variables[name].shape
            splits = {1, *np.cumprod(shape)}  # where an axis may end: one may be split, as a width into heads
            if value.size != math.prod(shape) or not splits.issuperset(np.cumprod(value.shape)):
                other = f"that of {name} {tuple(shape)}"
                problems.append(f"{source} has shape {shapes[source]}, not {other}")
            elif not np.isfinite(value).all():
                problems.append(f"{source} has values that are not finite")
            values[name] = value
        left_over = sorted(name for name in shapes if name not in sources and not re.fullmatch(unused, name))
        problems += [f"{name} is left over" for name in left_over]
        if problems:
            raise ValueError(
                f"{self.path}: does not fit this encoder: {'; '.join(problems)}. Download it again, or "
                "choose another checkpoint."
            )
        for name, value in values.items():
            variables[name].assign(value.reshape(variables[name].shape))
