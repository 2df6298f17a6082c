"""MNIST."""

import gzip
import math
import os
import zlib

import numpy as np

from rank4class.data.dataset import Dataset, Split
from rank4class.data.readers import files, prepared
from rank4class.data.registry import DATASETS


@DATASETS.register("mnist")
def mnist(path: str | None = None, tfds_dir: str | None = None) -> Dataset:
    """MNIST, handwritten digits of 28 x 28 pixels.

    A fixed, stratified tenth of the training images is held out for validation.

    Args:
      path: folder of the published files, see `read_part`. None downloads them with TensorFlow Datasets.
      tfds_dir: folder of prepared datasets; None is TensorFlow Datasets' default.

    Returns:
      A `Dataset` with the feature `image` uint8 `[N, 28, 28, 1]`.
    """
    if not path:
        return prepared.hold_out_tenth(*prepared.from_tfds("mnist", "MNIST", tfds_dir))
    (train, train_hashes), (test, test_hashes) = (read_part(path, part) for part in ("train", "t10k"))
    return prepared.hold_out_tenth(tuple("0123456789"), train, test, train_hashes | test_hashes)


def read_part(folder: str, part: str) -> tuple[Split, dict[str, str]]:
    """Returns the images of a part of MNIST as a `Split`, and path -> SHA-256 of its files.

    The folder has `{part}-images-idx3-ubyte` and `{part}-labels-idx1-ubyte`, plain or with `.gz`.
    """
    images_path, images = _read(os.path.join(folder, f"{part}-images-idx3-ubyte"), axes=3)
    labels_path, labels = _read(os.path.join(folder, f"{part}-labels-idx1-ubyte"), axes=1)
    hashes = {path: files.sha256(path) for path in (images_path, labels_path)}
    return prepared.numbered_split(os.path.basename(images_path), images[..., None], labels), hashes


def _read(plain, axes):
    """Returns the path of an IDX file, which may end in `.gz`, and its array of bytes."""
    path = next((path for path in (plain, f"{plain}.gz") if os.path.isfile(path)), None)
    if path is None:
        raise FileNotFoundError(f"{plain}: no such file, nor {plain}.gz. Check data.path.")
    try:
        with (gzip.open if path.endswith(".gz") else open)(path, "rb") as file:
            content = file.read()
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise files.damaged(path, f"truncated, or not gzip: {error}") from error
    start = 4 + 4 * axes
    shape = np.frombuffer(content[4:start].ljust(start - 4, b"\0"), ">u4").tolist()
    if len(content) != start + math.prod(shape):
        raise files.damaged(path, f"{len(content)} bytes, but {start + math.prod(shape)} by its header")
    return path, np.frombuffer(content, np.uint8, offset=start).reshape(shape)
