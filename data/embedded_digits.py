"""Images of several digits each on one canvas ("embedded MNIST"), made when they are loaded."""

import dataclasses
import functools
import os

import numpy as np
import scipy.ndimage
import scipy.sparse
import sklearn.datasets
import sklearn.neural_network

from rank4class.data import small_images
from rank4class.data.dataset import Dataset, Split, draw
from rank4class.data.registry import DATASETS

CANVAS, SIDE = 60, 20  # pixels, of an image and of a digit
BORDER = 4  # of an image of MNIST, without a digit's pixel but for few
PLACES = np.round(np.linspace(0, CANVAS - SIDE, 4)).astype(int)  # along each axis
JITTER = 1  # pixels at most
MOST = 4  # digits of an image
FEWEST = 10  # digits of a class, so that there are some for each split
SPLITS = ("train", "validation", "test")
FEATURES = ("image", "pixels", "rbm")
UNITS = 1000
LEARNING_RATE, BATCH, PASSES = 0.1, 20, 5  # of the Boltzmann machine


@DATASETS.register("embedded_digits")
def embedded_digits(
    path=None, num_examples=10_000, multi_label=True, features="image", width=None, split_seed=0
):
    """One to four handwritten digits of different classes on a canvas: which digits are shown?

    The number of digits is uniform in 1..4, and so are the classes, the digits of a class and their places
    on a 4 x 4 grid, of which no two digits have the same. A digit is 20 x 20 pixels, what an image of MNIST
    has within its border. Each place then moves by up to a pixel along each axis, but not off the canvas of
    60 x 60. Where digits overlap, the brighter pixel counts.

    No digit is shown in two splits. Those of `train-*` are shared out 80/20 among training and
    validation, those of `t10k-*` are the test split's; where a folder has no `train-*`, as without a
    path, what there is is shared out 60/20/20, stratified.

    The paper does not say how large a digit is or how far it moves, nor how the Boltzmann machine was
    trained. Size and movement are those with which linear scores of the pixels come near its Table 1: top 1,
    3 and 5 in 34, 65 and 83 percent (with the border, and up to two pixels: 24, 51 and 70). That the splits
    share no digit is our choice too.

    30,000 images take 2 s; a machine of 1000 units, fitted to 10,000 images, two minutes of one core. Its fit
    goes by draws that hang on the last bits of sums: with another number of threads, or on another kind of
    processor, the features are others, and a run that was started with those does not go on.

    Args:
      path: folder of MNIST's published files, see `small_images.mnist`; those of `t10k` alone will do.
        Without it the digits are scikit-learn's 1,797 of 8 x 8 pixels, enlarged.
      num_examples: images of each split.
      multi_label: whether an image has all the digits shown as its labels; otherwise one of them, drawn.
      features: "image"; "pixels", the same as vectors, for linear models; or "rbm", the probabilities of the
        hidden units of a restricted Boltzmann machine that was fitted to the training images. The last fit
        is kept, for the next run on the same images.
      width: hidden units of the "rbm"; None takes 1000, as the paper.
      split_seed: what is drawn hangs on it. Each split has draws of its own.

    Returns:
      A `Dataset` with the feature `image` uint8 `[N, 60, 60, 1]`; or `embedding` float32, in `[0, 1]`,
      `[N, 3600]` of the pixels, `[N, width]` of the hidden units. Labels are sparse float32 `[N, 10]`, 1
      for each digit shown, or int32 `[N]`.

    Raises:
      FileNotFoundError: a file is missing.
      ValueError: a file is broken, or has fewer than 10 digits of a class; `num_examples`, `features` or
        `width` makes no sense.

    >>> test = embedded_digits(num_examples=100).splits["test"]
    >>> test.features["image"].shape, test.labels.shape
    ((100, 60, 60, 1), (100, 10))

    References:
      n-choose-k, sections 5.1 (all labels, a machine of 1000 units) and 5.3 (one label, pixels).
    """
    if num_examples < 1:
        raise ValueError(f"data.num_examples {num_examples} is less than 1")
    if features not in FEATURES:
        raise ValueError(f"data.features {features!r} is unknown; there are: {', '.join(FEATURES)}")
    if width is not None and features != "rbm":
        raise ValueError(f"data.width {width} counts the units of data.features='rbm', not of {features!r}")
    if width is not None and width < 1:
        raise ValueError(f"data.width {width} is less than 1")
    digits, files = _from_folder(path, split_seed) if path else _from_sklearn(split_seed)
    splits = {}
    for i, name in enumerate(SPLITS):
        rng = np.random.default_rng([split_seed, i])
        splits[name] = _compose(rng, digits[name], num_examples, multi_label)
    if features == "pixels":
        splits = {name: _with_vectors(split, _pixels) for name, split in splits.items()}
    elif features == "rbm":
        machine = _fitted(splits["train"].features["image"].tobytes(), width or UNITS, split_seed)
        splits = {
            name: _with_vectors(split, lambda images: machine.transform(_pixels(images)))
            for name, split in splits.items()
        }
    return Dataset(tuple("0123456789"), splits, files=files)


def _from_folder(folder, seed):
    """Returns name -> digits, a `Split`, and the SHA-256 of the files."""
    test, files = _checked_part(folder, "t10k")
    if not any(name.startswith(("train-images-idx3", "train-labels-idx1")) for name in os.listdir(folder)):
        return draw(test, {"test": 0.2, "validation": 0.2}, seed=seed), files
    train, train_files = _checked_part(folder, "train")
    return {**draw(train, {"validation": 0.2}, seed=seed), "test": test}, files | train_files


def _checked_part(folder, part):
    digits, files = small_images.mnist_part(folder, part)
    images = digits.features["image"][:, BORDER:-BORDER, BORDER:-BORDER]
    digits = dataclasses.replace(digits, features={"image": images})
    counts = digits.class_counts(10)
    if counts.min() < FEWEST:
        raise ValueError(
            f"{next(iter(files))} has {counts.min()} digits of class '{counts.argmin()}', fewer than "
            f"{FEWEST}: the splits need different ones"
        )
    return digits, files


def _from_sklearn(seed):
    """Returns name -> digits, a `Split`, and no files."""
    bunch = sklearn.datasets.load_digits()
    enlarged = scipy.ndimage.zoom(bunch.images, (1, SIDE / 8, SIDE / 8), order=1)
    images = np.rint(enlarged * (255 / 16)).astype(np.uint8)[..., None]
    origins = np.array([f"digit {i}" for i in range(1, len(images) + 1)], object)
    digits = Split({"image": images}, bunch.target.astype(np.int32), origins)
    return draw(digits, {"test": 0.2, "validation": 0.2}, seed=seed), {}


def _compose(rng, digits, size, multi_label):
    """Returns a `Split` of images of some of the digits."""
    counts = rng.integers(1, MOST + 1, size)
    classes = rng.permuted(np.tile(np.arange(10, dtype=np.int32), [size, 1]), axis=1)[:, :MOST]
    shown = _draw_digits(rng, digits, classes)
    corners = _draw_corners(rng, size)
    images = np.zeros([size, CANVAS, CANVAS, 1], np.uint8)
    for image, count, own, places in zip(images, counts, shown, corners, strict=True):
        for digit, (y, x) in zip(own[:count], places, strict=False):
            window = image[y : y + SIDE, x : x + SIDE]
            np.maximum(window, digits.features["image"][digit], out=window)
    origins = np.array(
        [", ".join(digits.origins[own[:n]]) for own, n in zip(shown, counts, strict=True)], object
    )
    labels = _indicators(classes, counts) if multi_label else classes[:, 0]  # which are in random order
    return Split({"image": images}, labels, origins)


def _draw_digits(rng, digits, classes):
    """Returns the index of a digit of each of the classes, any one as probable as another."""
    by_class = np.argsort(digits.labels, kind="stable")
    counts = digits.class_counts(10)
    starts = np.cumsum(counts) - counts
    return by_class[starts[classes] + rng.integers(counts[classes])]


def _draw_corners(rng, size):
    """Returns the upper left corners of the digits of each image, int `[size, MOST, 2]`."""
    cells = rng.permuted(np.tile(np.arange(len(PLACES) ** 2), [size, 1]), axis=1)[:, :MOST]
    corners = PLACES[np.stack(np.divmod(cells, len(PLACES)), axis=-1)]
    corners += rng.integers(-JITTER, JITTER, corners.shape, endpoint=True)
    return corners.clip(0, CANVAS - SIDE)


def _indicators(classes, counts):
    """Returns a CSR array, float32 `[N, 10]`, of 1 for the first so many of an image's classes."""
    dense = np.zeros([len(classes), 10], np.float32)
    np.put_along_axis(dense, classes, np.arange(MOST) < counts[:, None], axis=1)
    return scipy.sparse.csr_array(dense)


def _pixels(images):
    return images.reshape(len(images), -1).astype(np.float32) / 255.0


def _with_vectors(split, encode):
    return dataclasses.replace(split, features={"embedding": encode(split.features["image"])})


@functools.lru_cache(maxsize=1)
def _fitted(images, units, seed):
    """Returns a Boltzmann machine fitted to the bytes of images."""
    vectors = _pixels(np.frombuffer(images, np.uint8).reshape(-1, CANVAS**2))
    batch = min(BATCH, len(vectors))
    machine = sklearn.neural_network.BernoulliRBM(
        units, learning_rate=LEARNING_RATE, batch_size=batch, n_iter=PASSES, random_state=seed
    )
    # A last batch of fewer images would weigh less than the samples that it is set against.
    return machine.fit(vectors[: len(vectors) // batch * batch])
