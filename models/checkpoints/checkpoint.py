"""A checkpoint's tensors, in safetensors or TensorFlow's format, their names, and its description."""

import dataclasses
import math
import os
import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from rank4class import compat
from rank4class.registry import Registry

# Function of a path that returns its `Checkpoint`, or None if the path holds another format. The names are
# descriptions for users.
FORMATS = Registry("checkpoint format")
# Function of the `Tensors` of a TensorFlow checkpoint or a Keras file that returns its `Checkpoint`. The
# names are those of a top-level scope that only such tensors have.
TENSOR_FORMATS = Registry("scope of a checkpoint")


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


def model_garden_names(modules: dict[str, str], scope: str) -> NameMap:
    """Returns the names in a checkpoint of the Model Garden, under a scope."""
    # Heads, optimizer and counters of the training are left over.
    unused = rf"(?!{scope}/).*|.*/\.OPTIMIZER_SLOT/.*"
    return NameMap(modules, unused, prefix=f"{scope}/", suffix="/.ATTRIBUTES/VARIABLE_VALUE")


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """An encoder's checkpoint, whose tensors are read by `assign`.

    Attributes:
      format: description of the format.
      architecture: class of its encoder.
      settings: the arguments that its encoder is built with.
      name_map: names of the tensors.
      tensors: the tensors.
    """

    format: str
    architecture: Any
    settings: dict[str, Any]
    name_map: NameMap
    tensors: Tensors

    @property
    def encoder(self) -> str:
        """Name of its encoder in `registry.ENCODERS`."""
        return self.architecture.NAME

    @property
    def tokenizer(self) -> str | None:
        """Name of the tokenizer of a text encoder, whose files are in `folder`; None for other encoders."""
        return self.architecture.TOKENIZER

    @property
    def max_tokens(self) -> int:
        """Number of tokens that a text encoder takes at most, special tokens included."""
        return self.settings.get("max_positions", sys.maxsize) - self.architecture.FIRST_POSITION

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
        left_over = dict(self.tensors.shapes)
        values = {}
        problems = []
        for name, variable in variables.items():
            source = self.name_map.source(name)
            shape = variable.shape
            if source not in left_over:
                problems.append(f"{source} is missing")
                continue
            stored = left_over.pop(source)
            value = self.tensors.read(source)
            if name.rpartition("/")[2] == self.name_map.transposed:
                value = value.T
            splits = {1, *np.cumprod(shape)}  # where an axis may end: one may be split, as a width into heads
            if value.size != math.prod(shape) or not splits.issuperset(np.cumprod(value.shape)):
                problems.append(f"{source} has shape {stored}, not that of {name} {tuple(shape)}")
            elif not np.isfinite(value).all():
                problems.append(f"{source} has values that are not finite")
            values[name] = value
        unused = self.name_map.unused
        problems += [f"{name} is left over" for name in sorted(left_over) if not re.fullmatch(unused, name)]
        if problems:
            raise ValueError(
                f"{self.path}: does not fit this encoder: {'; '.join(problems)}. Download it again, or "
                "choose another checkpoint."
            )
        for name, value in values.items():
            variables[name].assign(value.reshape(variables[name].shape))
