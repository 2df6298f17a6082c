"""Images with several digits each ("embedded MNIST"), generated at every start."""

import dataclasses
import functools
import os

import numpy as np
import scipy.ndimage
import scipy.sparse
import sklearn.datasets
import sklearn.neural_network

from rank4class.data.dataset import Dataset, Split, draw
from rank4class.data.datasets import mnist
from rank4class.data.registry import DATASETS

CANVAS, SIDE = 60, 20  # pixels of an image and of a digit
BORDER = 4  # pixels of an MNIST image around its digit
GRID = np.round(np.linspace(0, CANVAS - SIDE, 4)).astype(int)  # along each axis
JITTER = 1  # largest shift in pixels
MAX_DIGITS = 4  # per image
UNITS = 1000
LEARNING_RATE, BATCH, PASSES = 0.1, 20, 5  # of the Boltzmann machine


@DATASETS.register("embedded_digits")
def embedded_digits(
    path: str | None = None,
    num_examples: int = 10_000,
    multi_label: bool = True,
    features: str = "image",
    width: int | None = None,
    split_seed: int = 0,
) -> Dataset:
    """Images of one to four handwritten digits of different classes, for predicting these classes.

    The number of digits (1 to 4), their classes and their cells on a 4 x 4 grid are uniform. A digit has
    20 x 20 pixels, an MNIST image without its border, and is shifted by up to a pixel along each axis, within
    the canvas of 60 x 60. Where digits overlap, the maximum counts.

    No digit is in two splits. The digits of `train-*` are split 80/20 into training and validation, those
    of `t10k-*` are the test split's. Without `train-*`, and without a path, all digits are split 60/20/20,
    stratified.

    The paper does not state the size and shift of the digits, nor the training of the Boltzmann machine.
    Another number of threads or kind of processor gives other features of the machine.

    Args:
      path: folder of MNIST's published files, see `mnist.read_part`; those of `t10k` suffice. None takes
        scikit-learn's 1,797 digits of 8 x 8 pixels, enlarged.
      num_examples: images of each split, at least 1.
      multi_label: whether the labels are all digits of an image, or a random one of them.
      features: "image"; "pixels", the same as vectors; or "rbm", the probabilities of the hidden units of a
        restricted Boltzmann machine fitted to the training images.
      width: hidden units of the "rbm", at least 1; None takes the paper's 1000.
      split_seed: seed of all draws, at least 0.

    Returns:
      A `Dataset` with the feature `image` uint8 `[N, 60, 60, 1]`, or `embedding` float32 in `[0, 1]`,
      `[N, 3600]` or `[N, width]`.

    >>> test = embedded_digits(num_examples=100).splits["test"]
    >>> test.features["image"].shape, test.labels.shape
    ((100, 60, 60, 1), (100, 10))

    References:
      n-choose-k, sections 5.1 (all labels, a machine of 1000 units) and 5.3 (one label, pixels).
    """
    digits, hashes = _from_folder(path, split_seed) if path else (_from_sklearn(split_seed), {})
    splits: dict[str, Split] = {}
    for i, name in enumerate(("train", "validation", "test")):
        rng = np.random.default_rng([split_seed, i])
        splits[name] = _compose(rng, digits[name], num_examples, multi_label)
    if features != "image":
        machine = None
        if features == "rbm":
            machine = _fit_machine(splits["train"].features["image"].tobytes(), width or UNITS, split_seed)
        for name, split in splits.items():
            vectors = _pixels(split.features["image"])
            vectors = vectors if machine is None else machine.transform(vectors)
            splits[name] = dataclasses.replace(split, features={"embedding": vectors})
    return Dataset(tuple("0123456789"), splits, files=hashes)


def _from_folder(folder, seed):
    """Returns name -> `Split` of digits, and path -> SHA-256."""
    test, hashes = _read_part(folder, "t10k")
    if not any(name.startswith(("train-images-idx3", "train-labels-idx1")) for name in os.listdir(folder)):
        return draw(test, {"test": 0.2, "validation": 0.2}, seed=seed), hashes
    train, train_hashes = _read_part(folder, "train")
    return {**draw(train, {"validation": 0.2}, seed=seed), "test": test}, hashes | train_hashes


def _read_part(folder, part):
    """Returns the digits of a part of MNIST without their border, and path -> SHA-256."""
    digits, hashes = mnist.read_part(folder, part)
    images = digits.features["image"][:, BORDER:-BORDER, BORDER:-BORDER]
    return dataclasses.replace(digits, features={"image": images}), hashes


def _from_sklearn(seed):
    """Returns name -> `Split` of digits."""
    bunch = sklearn.datasets.load_digits()
    enlarged = scipy.ndimage.zoom(bunch.images, (1, SIDE / 8, SIDE / 8), order=1)
    images = np.rint(enlarged * (255 / 16)).astype(np.uint8)[..., None]
    origins = np.array([f"digit {i}" for i in range(1, len(images) + 1)], object)
    digits = Split({"image": images}, bunch.target.astype(np.int32), origins)
    return draw(digits, {"test": 0.2, "validation": 0.2}, seed=seed)


def _compose(rng, digits, size, multi_label):
    """Returns a `Split` of images of some of the digits."""
    counts = rng.integers(1, MAX_DIGITS + 1, size)
    classes = rng.permuted(np.tile(np.arange(10, dtype=np.int32), [size, 1]), axis=1)[:, :MAX_DIGITS]
    class_counts = digits.class_counts(10)
    starts = np.cumsum(class_counts) - class_counts
    by_class = np.argsort(digits.labels, kind="stable")
    indices = by_class[starts[classes] + rng.integers(class_counts[classes])]
    cells = rng.permuted(np.tile(np.arange(len(GRID) ** 2), [size, 1]), axis=1)[:, :MAX_DIGITS]
    corners = GRID[np.stack(np.divmod(cells, len(GRID)), axis=-1)]
    corners += rng.integers(-JITTER, JITTER, corners.shape, endpoint=True)
    corners = corners.clip(0, CANVAS - SIDE)
    images = np.zeros([size, CANVAS, CANVAS, 1], np.uint8)
    for image, count, image_digits, image_corners in zip(images, counts, indices, corners, strict=True):
        for digit, (y, x) in zip(image_digits[:count], image_corners, strict=False):
            window = image[y : y + SIDE, x : x + SIDE]
            np.maximum(window, digits.features["image"][digit], out=window)
    origins = [", ".join(digits.origins[each[:n]]) for each, n in zip(indices, counts, strict=True)]
    labels = classes[:, 0]  # in random order
    if multi_label:
        dense = np.zeros([size, 10], np.float32)
        np.put_along_axis(dense, classes, np.arange(MAX_DIGITS) < counts[:, None], axis=1)
        labels = scipy.sparse.csr_array(dense)
    return Split({"image": images}, labels, np.array(origins, object))


def _pixels(images):
    return images.reshape(len(images), -1).astype(np.float32) / 255.0


@functools.lru_cache(maxsize=1)
def _fit_machine(images, units, seed):
    """Returns a Boltzmann machine fitted to the bytes of images."""
    vectors = _pixels(np.frombuffer(images, np.uint8).reshape(-1, CANVAS**2))
    print(f"Fitting a Boltzmann machine of {units:,} units to {len(vectors):,} images", flush=True)
    batch = min(BATCH, len(vectors))
    machine = sklearn.neural_network.BernoulliRBM(
        units, learning_rate=LEARNING_RATE, batch_size=batch, n_iter=PASSES, random_state=seed
    )
    # scikit-learn would weight a smaller last batch less than the samples compared with it.
    return machine.fit(vectors[: len(vectors) // batch * batch])
