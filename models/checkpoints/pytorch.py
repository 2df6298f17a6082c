"""Encoders in the files that `torch.save` wrote before PyTorch 1.6, read without PyTorch."""

import collections
import math
import os
import pickle
import typing
from typing import Any

import numpy as np

from rank4class.models.checkpoints.checkpoint import FORMATS, Checkpoint, Tensors
from rank4class.models.checkpoints.formats import of_scope

_MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # the first of the pickled objects, a number
# Of a damaged file, as Python's unpickler and NumPy raise them.
_ERRORS = (pickle.UnpicklingError, AttributeError, EOFError, LookupError, TypeError, ValueError)
_DTYPES = {"FloatStorage": np.dtype("<f4"), "LongStorage": np.dtype("<i8")}


class _Unpickler(pickle._Unpickler):  # in Python: its memo is a dict
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
            tensors = Tensors(path, *_read(file, os.path.getsize(path)))
        except _ERRORS as error:
            problem = f"not a complete PyTorch file of tensors: {error}. Download it again."
            raise ValueError(f"{path}: {problem}") from error
    return of_scope(tensors)


def _read(file: typing.BinaryIO, size: int) -> tuple[dict[str, tuple[int, ...]], Any]:
    """Returns the shapes of the tensors by name, and a function of a name that returns one.

    No tensor has more values than the file of `size` bytes.
    """
    for _ in range(2):  # the version, and the sizes of types
        _Unpickler(file).load()
    described = _Unpickler(file).load()
    dtypes = dict(storage for storage, *_ in described.values())
    values = {}
    for key in _Unpickler(file).load():
        count = int.from_bytes(file.read(8), "little")
        _check(count * dtypes[key].itemsize <= size)
        values[key] = np.frombuffer(file.read(count * dtypes[key].itemsize), dtypes[key], count)
    tensors = {}
    for name, ((key, _), places, shape, strides) in described.items():
        _check(min(places, *strides, *shape, 0) == 0 and math.prod(shape) <= len(values[key]))
        for length, stride in zip(shape, strides, strict=True):
            places = np.add.outer(places, stride * np.arange(length))
        tensor = np.asarray(values[key][places])
        # Kernels of convolutions as TensorFlow has them: `[height, width, in, out]`.
        tensors[name] = tensor.transpose(2, 3, 1, 0) if len(shape) == 4 else tensor
    return {name: tensor.shape for name, tensor in tensors.items()}, tensors.__getitem__


def _check(fits: bool) -> None:
    if not fits:
        raise ValueError("it describes a tensor that is larger than its data")
