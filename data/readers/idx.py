"""IDX files, the format of MNIST."""

import gzip
import math
import os
import zlib

import numpy as np

from rank4class.data.readers import files

MAX_BYTES = 10**9  # some twenty times the training images of MNIST


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
      ValueError: not an IDX file of bytes with that many axes, truncated, too long, or over `MAX_BYTES`.
    """
    try:
        with (gzip.open if path.endswith(".gz") else open)(path, "rb") as file:
            head = file.read(4 + 4 * axes)
            shape = _shape(path, head, axes)
            size = math.prod(shape)
            content = file.read(size + 1)  # a small gzip file may hold a large one
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise files.damaged(path, f"truncated, or not gzip: {error}") from error
    if len(content) > size:
        raise files.damaged(path, f"more than the {len(head) + size} bytes of its header's sizes")
    if len(content) < size:
        raise files.damaged(path, f"{len(head) + len(content)} bytes, but {len(head) + size} by its header")
    return np.frombuffer(content, np.uint8).reshape(shape)


def _shape(path: str, head: bytes, axes: int) -> tuple[int, ...]:
    magic = bytes([0, 0, 8, axes])
    if head[:4] != magic:
        raise files.damaged(
            path, f"magic number 0x{head[:4].hex()}, but 0x{magic.hex()} marks {axes} axes of bytes"
        )
    if len(head) < 4 + 4 * axes:
        raise files.damaged(path, f"{len(head)} bytes, but the header alone has {4 + 4 * axes}")
    shape = np.frombuffer(head[4:], ">u4").tolist()
    if math.prod(shape) > MAX_BYTES:
        raise files.damaged(path, f"{math.prod(shape):,} bytes by its header, more than {MAX_BYTES:,}")
    return shape
