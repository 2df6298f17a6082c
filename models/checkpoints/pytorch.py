"""Encoders in the files that `torch.save` wrote before PyTorch 1.6, read without PyTorch."""

import collections
import os
import pickle
import typing
from typing import Any

import numpy as np

from rank4class.models.checkpoints.checkpoint import FORMATS, Checkpoint, Tensors
from rank4class.models.checkpoints.formats import of_scope

_MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # the first of the pickled objects, a number
_DTYPES = {"FloatStorage": np.dtype("<f4"), "LongStorage": np.dtype("<i8")}


class _Unpickler(pickle.Unpickler):
    """An unpickler that builds nothing but descriptions of tensors."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return collections.OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return lambda storage, offset, shape, strides, *_: (storage, offset, shape, strides)
        if module == "torch" and name in _DTYPES:
            return _DTYPES[name]
        raise pickle.UnpicklingError(f"it names {module}.{name}, which is no part of a tensor")

    def persistent_load(self, pid: tuple) -> tuple[str, np.dtype]:
        _, dtype, key, *_ = pid
        return key, dtype


@FORMATS.register("a PyTorch file of tensors (*.pth, of before PyTorch 1.6)")
def _pytorch(path: str) -> Checkpoint | None:
    if not os.path.isfile(path):
        return None
    with open(path, "rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            return None
        try:
            return of_scope(Tensors(path, *_read(file)))
        except (pickle.UnpicklingError, AttributeError, EOFError, IndexError, TypeError, ValueError) as error:
            problem = f"not a complete PyTorch file of tensors: {error}. Download it again."
            raise ValueError(f"{path}: {problem}") from error


def _read(file: typing.BinaryIO) -> tuple[dict[str, tuple[int, ...]], Any]:
    """Returns the shapes of the tensors by name, and a function of a name that returns one."""
    for _ in range(2):  # the version, and the sizes of types
        _Unpickler(file).load()
    described = _Unpickler(file).load()
    dtypes = dict(storage for storage, *_ in described.values())
    values = {}
    for key in _Unpickler(file).load():
        count = int.from_bytes(file.read(8), "little")
        values[key] = np.frombuffer(file.read(count * dtypes[key].itemsize), dtypes[key], count)
    tensors = {}
    for name, ((key, _), places, shape, strides) in described.items():
        for size, stride in zip(shape, strides, strict=True):
            places = np.add.outer(places, stride * np.arange(size))
        tensor = np.asarray(values[key][places])
        # Kernels of convolutions as TensorFlow has them: `[height, width, in, out]`.
        tensors[name] = tensor.transpose(2, 3, 1, 0) if len(shape) == 4 else tensor
    return {name: tensor.shape for name, tensor in tensors.items()}, tensors.__getitem__
