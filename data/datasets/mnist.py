"""MNIST."""

import os

from rank4class.data.dataset import Dataset, Split
from rank4class.data.readers import files, idx, small_images
from rank4class.data.registry import DATASETS


@DATASETS.register("mnist")
def mnist(path: str | None = None, tfds_dir: str | None = None) -> Dataset:
    """MNIST, handwritten digits of 28 x 28 pixels.

    A fixed, stratified tenth of the training images is held out for validation.

    Args:
      path: folder of the published files, see `read_part`, for "train" and "t10k". None takes the dataset
        from TensorFlow Datasets, which downloads it once.
      tfds_dir: folder of prepared datasets; None is TensorFlow Datasets' default.

    Returns:
      A `Dataset` with the feature `image` uint8 `[N, 28, 28, 1]`.

    Raises:
      FileNotFoundError: a file is missing.
      OSError: TensorFlow Datasets cannot download the dataset.
      ValueError: a file is broken, or a class has fewer than ten training images.
    """
    if not path:
        return small_images.hold_out_tenth("MNIST", *small_images.from_tfds("mnist", "MNIST", tfds_dir))
    (train, train_hashes), (test, test_hashes) = (read_part(path, part) for part in ("train", "t10k"))
    return small_images.hold_out_tenth("MNIST", tuple("0123456789"), train, test, train_hashes | test_hashes)


def read_part(folder: str, part: str) -> tuple[Split, dict[str, str]]:
    """Returns the images of a part of MNIST as a `Split`, and path -> SHA-256 of its files.

    Args:
      folder: holds `{part}-images-idx3-ubyte` and `{part}-labels-idx1-ubyte`, plain or with `.gz`.
      part: "train" or "t10k".

    Raises:
      FileNotFoundError, ValueError: see `mnist`.
    """
    images_path = idx.find(folder, f"{part}-images-idx3-ubyte")
    labels_path = idx.find(folder, f"{part}-labels-idx1-ubyte")
    images, labels = idx.read(images_path, axes=3), idx.read(labels_path, axes=1)
    if images.shape[1:] != (28, 28):
        raise files.damaged(images_path, f"images of shape {images.shape[1:]}, expected (28, 28)")
    if len(images) != len(labels):
        raise files.damaged(images_path, f"{len(images)} images, but {labels_path} has {len(labels)} labels")
    small_images.check_ids(labels_path, labels)
    hashes = {path: files.sha256(path) for path in (images_path, labels_path)}
    return small_images.numbered_split(os.path.basename(images_path), images[..., None], labels), hashes
