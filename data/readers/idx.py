"""IDX files, the format of MNIST."""

import gzip
import math
import os
import zlib

import numpy as np

from rank4class.data.readers import files


def find(folder: str, name: str) -> str:
    """Returns the path of a file in a folder, plain or with `.gz`; raises FileNotFoundError."""
    plain = os.path.join(folder, name)
    for path in (plain, f"{plain}.gz"):
        if os.path.isfile(path):
            return path
    raise FileNotFoundError(f"{plain}: no such file, nor {plain}.gz. Check data.path.")


def read(path: str, axes: int) -> np.ndarray:
    """Returns the bytes of an IDX file as an array.

    Args:
      path: the file, compressed if it ends in `.gz`.
      axes: number of axes of the array.

    Raises:
      ValueError: not an IDX file of bytes with that many axes, truncated, or too long.
    """
    try:
        with (gzip.open if path.endswith(".gz") else open)(path, "rb") as file:
            content = file.read()
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise files.damaged(path, f"truncated, or not gzip: {error}") from error
    magic, start = bytes([0, 0, 8, axes]), 4 + 4 * axes
    if content[:4] != magic:
        raise files.damaged(
            path, f"magic number 0x{content[:4].hex()}, but 0x{magic.hex()} marks {axes} axes of bytes"
        )
    shape = np.frombuffer(content[4:start].ljust(start - 4, b"\0"), ">u4").tolist()
    if len(content) != start + math.prod(shape):
        raise files.damaged(path, f"{len(content)} bytes, but {start + math.prod(shape)} by its header")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)
