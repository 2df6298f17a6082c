"""Maps from the names of our variables to those of a checkpoint's tensors."""

import dataclasses
import math
import re
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from rank4class.models.checkpoints.readers import Tensors


@dataclasses.dataclass(frozen=True)
class NameMap:
    """Names of the tensors of our variables in a checkpoint.

    The variable `module/parameter` is the tensor `{prefix}{module}{parameter}{suffix}`.

    Attributes:
      modules: pattern of our name of a module -> template of the checkpoint's.
      unused: pattern of the tensors that no encoder needs.
      parameters: our name of a parameter -> the checkpoint's, with its separator; others are
        `/` and our name.
      prefix, suffix: of all tensors.
      transposed: our name of a parameter whose matrices the checkpoint stores as `[out, in]`.

    >>> dense = NameMap({r"layer_(\\d+)": r"block.\\1"}, unused="", parameters={"kernel": ".weight"})
    >>> dense.source("layer_3/kernel")
    'block.3.weight'
    """

    modules: dict[str, str]
    unused: str = ""
    parameters: dict[str, str] = dataclasses.field(default_factory=dict)
    prefix: str = ""
    suffix: str = ""
    transposed: str | None = None

    def source(self, name: str) -> str:
        """Returns the name of a variable's tensor; raises KeyError if no pattern matches."""
        module, separator, parameter = name.rpartition("/")
        for pattern, template in self.modules.items():
            match = re.fullmatch(pattern, module)
            if match:
                end = self.parameters.get(parameter, separator + parameter) + self.suffix
                return self.prefix + match.expand(template) + end
        raise KeyError(f"the name map has no entry for the variable {name}")

    def assign(self, variables: dict[str, tf.Variable], tensors: Tensors) -> None:
        """Assigns every variable its tensor, or none at all.

        Args:
          variables: our name -> variable.
          tensors: the checkpoint's.

        Raises:
          ValueError: a tensor is missing, left over, of another shape or not finite; the message lists all
            of these.
        """
        remaining, values, problems = set(tensors.shapes), {}, []
        for name, variable in variables.items():
            source = self.source(name)
            if source not in remaining:
                problems.append(f"{source} is missing")
                continue
            remaining.discard(source)
            value = tensors.read(source)
            if not tf.as_dtype(value.dtype).is_floating:
                problems.append(f"{source} holds {value.dtype}, not floats")
                continue
            if name.rpartition("/")[2] == self.transposed:
                value = value.T
            if not _splits_into(value.shape, variable.shape):
                shapes = f"shape {tensors.shapes[source]}, not that of {name} {tuple(variable.shape)}"
                problems.append(f"{source} has {shapes}")
            elif not np.isfinite(value).all():
                problems.append(f"{source} has values that are not finite")
            values[name] = value
        problems += [
            f"{name} is left over" for name in sorted(remaining) if not re.fullmatch(self.unused, name)
        ]
        if problems:
            raise ValueError(
                f"{tensors.path}: does not fit this encoder: {'; '.join(problems)}. Download it again, or "
                "choose another checkpoint."
            )
        for name, value in values.items():
            variables[name].assign(value.reshape(variables[name].shape))


def _splits_into(shape: Sequence[int], finer: Sequence[int]) -> bool:
    """Returns whether `finer` is `shape` with some axes split in order, such as a width into heads."""
    axes = iter(finer)
    for size in shape:
        product: float = 1  # infinite if axes run out
        while product < size:
            product *= next(axes, math.inf)
        if product != size:
            return False
    return next(axes, None) is None
