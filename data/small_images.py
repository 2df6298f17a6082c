"""Datasets of small images, held in memory: scikit-learn's digits, MNIST and CIFAR-10."""

import dataclasses
import gzip
import math
import os
import pickletools
import reprlib
import zlib

import numpy as np
import sklearn.datasets
import sklearn.model_selection

from rank4class.data import sources
from rank4class.data.dataset import Dataset, Split
from rank4class.data.registry import DATASETS

MOST_IDX_BYTES = 10**9  # some twenty times the training images of MNIST


@DATASETS.register("digits")
def digits():
    """Handwritten digits, 8 x 8 pixels in `[0, 1]`, embedded in scikit-learn.

    The split, 60/20/20 and stratified, is fixed.

    Returns:
      A `Dataset` with the feature `image` float32 `[N, 8, 8, 1]`.

    >>> {name: len(split) for name, split in digits().splits.items()}
    {'train': 1078, 'validation': 359, 'test': 360}
    """
    bunch = sklearn.datasets.load_digits()
    images = (bunch.images / 16.0).astype(np.float32)[..., None]
    labels = bunch.target.astype(np.int32)
    indices = np.arange(len(labels))
    train, rest = sklearn.model_selection.train_test_split(
        indices, test_size=0.4, random_state=0, stratify=labels
    )
    validation, test = sklearn.model_selection.train_test_split(
        rest, test_size=0.5, random_state=0, stratify=labels[rest]
    )
    parts = {"train": train, "validation": validation, "test": test}
    splits = {name: Split({"image": images[part]}, labels[part]) for name, part in parts.items()}
    return Dataset(tuple(str(name) for name in bunch.target_names), splits)


@DATASETS.register("cifar10")
def cifar10(path=None, tfds_dir=None):
    """CIFAR-10, photographs of ten kinds of things, 32 x 32 pixels.

    It has no validation split of its own: a tenth of the training images, fixed and stratified, is
    held out for it. The test split is the published one, on which the paper reports.

    Args:
      path: folder of the published files, or the one that `cifar-10-batches-bin/` or
        `cifar-10-batches-py/` was unpacked to. Binary: `data_batch_*.bin` (one to five of them),
        `test_batch.bin` (records of a label byte and 32 x 32 pixels, all red, then all green, then all
        blue) and `batches.meta.txt` (a name a line, in the order of the ids). Python: `data_batch_*`,
        `test_batch` and `batches.meta`, pickles of which nothing but arrays is read. Without a path the
        dataset comes from TensorFlow Datasets, which downloads it once.
      tfds_dir: folder of what TensorFlow Datasets has prepared; None takes its own.

    Returns:
      A `Dataset` with the feature `image` uint8 `[N, 32, 32, 3]`, RGB.

    Raises:
      FileNotFoundError: a file is missing.
      ValueError: a file is broken, the message names file and record; or a class has too few training
        images to hold a tenth out.
    """
    parts = _cifar10_from_folder(path) if path else _from_tfds("cifar10", "CIFAR-10", tfds_dir)
    return _with_validation("CIFAR-10", *parts)


@DATASETS.register("mnist")
def mnist(path=None, tfds_dir=None):
    """MNIST, handwritten digits, 28 x 28 pixels.

    A tenth of the training images, fixed and stratified, is held out for validation.

    Args:
      path: folder of the published files, `train-images-idx3-ubyte`, `train-labels-idx1-ubyte`,
        `t10k-images-idx3-ubyte` and `t10k-labels-idx1-ubyte`, each as it is or with `.gz`, and of at most
        1 GB. Without it the dataset comes from TensorFlow Datasets, which downloads it once.
      tfds_dir: folder of what TensorFlow Datasets has prepared; None takes its own.

    Returns:
      A `Dataset` with the feature `image` uint8 `[N, 28, 28, 1]`.

    Raises:
      FileNotFoundError: a file is missing.
      ValueError: a file is broken, the message names file and record; or a class has too few training
        images to hold a tenth out.
    """
    parts = _mnist_from_folder(path) if path else _from_tfds("mnist", "MNIST", tfds_dir)
    return _with_validation("MNIST", *parts)


def _with_validation(title, class_names, train, test, files=None):
    counts = train.class_counts(len(class_names))
    if counts.min() < 10:
        raise ValueError(
            f"{title} has {counts.min()} training images of class {class_names[counts.argmin()]!r}: a "
            "tenth of each class is held out for validation, which takes 10"
        )
    kept, held_out = sklearn.model_selection.train_test_split(
        np.arange(len(train)), test_size=0.1, random_state=0, stratify=train.labels
    )
    splits = {"train": train.select(kept), "validation": train.select(held_out), "test": test}
    return Dataset(class_names, splits, files=files or {})


def _from_tfds(name, title, tfds_dir):
    """Returns the names of the classes, and the published training and test split."""
    builder = sources.tfds_builder(name, title, tfds_dir)
    parts = []
    for part in ("train", "test"):
        batches = builder.as_dataset(split=part, shuffle_files=False, batch_size=1000)
        images, labels = zip(*((b["image"], b["label"]) for b in batches.as_numpy_iterator()), strict=True)
        parts.append(_split(f"{name} {part}", np.concatenate(images), np.concatenate(labels)))
    return (tuple(builder.info.features["label"].names), *parts)


def _split(source, images, labels):
    origins = np.array([f"{source} record {i}" for i in range(1, len(labels) + 1)], object)
    return Split({"image": images}, labels.astype(np.int32), origins)


def _joined(parts):
    images = np.concatenate([part.features["image"] for part in parts])
    labels, origins = (np.concatenate([getattr(p, name) for p in parts]) for name in ("labels", "origins"))
    return Split({"image": images}, labels, origins)


def _check_labels(path, labels):
    outside = np.flatnonzero((labels < 0) | (labels > 9))
    if outside.size:
        raise ValueError(
            f"{path}: record {outside[0] + 1} of {len(labels)} has the label {labels[outside[0]]}, outside "
            "the classes 0..9"
        )


def _cifar10_from_folder(path):
    folder, is_python = _cifar10_layout(path)
    read = _cifar10_pickle if is_python else _cifar10_records
    ending = "" if is_python else ".bin"
    names_path = os.path.join(folder, "batches.meta" if is_python else "batches.meta.txt")
    class_names = _cifar10_names(names_path, is_python)
    train_paths = [os.path.join(folder, f"data_batch_{i}{ending}") for i in range(1, 6)]
    train_paths = [path for path in train_paths if os.path.isfile(path)]
    if not train_paths:
        raise FileNotFoundError(f"no file {os.path.join(folder, f'data_batch_*{ending}')}")
    test_path = os.path.join(folder, f"test_batch{ending}")
    train, test = _joined([read(path) for path in train_paths]), read(test_path)
    files = {path: sources.sha256(path) for path in (names_path, *train_paths, test_path)}
    return class_names, train, test, files


def _cifar10_layout(path):
    """Returns the folder that holds CIFAR-10's files, and whether they are the Python ones."""
    batches = ("test_batch", *(f"data_batch_{i}" for i in range(1, 6)))
    folders = [os.path.join(path, name) for name in ("", "cifar-10-batches-bin", "cifar-10-batches-py")]
    for folder in folders:
        for ending in (".bin", ""):
            if any(os.path.isfile(os.path.join(folder, name + ending)) for name in batches):
                return folder, not ending
    raise FileNotFoundError(
        f"{path} holds neither CIFAR-10's binary files (data_batch_*.bin) nor its Python files (data_batch_*)"
    )


def _cifar10_names(path, is_python):
    if is_python:
        listed = _list(path, _unpickled(path), b"label_names")
        names = [_bytes(name) for name in listed]
        if None in names:
            i = names.index(None)
            shown = reprlib.repr(listed[i])  # short, however many lists there are in lists
            raise ValueError(f"{path}: class name {i + 1} of {len(names)} is {shown}, not bytes")
        names = [name.decode(errors="backslashreplace") for name in names]
    else:
        names = [name.strip() for _, name in sources.lines(path) if name.strip()]
    if len(set(names)) != 10:
        raise ValueError(f"{path} has {len(set(names))} different class names, not 10")
    return tuple(names)


def _cifar10_records(path):
    if not os.path.isfile(path):
        raise FileNotFoundError(f"no file {path}")
    content = np.fromfile(path, np.uint8)
    if not content.size:
        raise ValueError(f"{path} is empty")
    count, left_over = divmod(content.size, 1 + 3 * 32 * 32)
    if left_over:
        raise ValueError(
            f"{path} is truncated: {left_over} bytes are left over after {count} records of 3073 bytes"
        )
    records = content.reshape(count, -1)
    return _cifar10_split(path, records[:, 1:], records[:, 0])


def _cifar10_pickle(path):
    content = _unpickled(path)
    pixels, labels = _pixels(path, content.get(b"data")), _list(path, content, b"labels")
    for number, label in enumerate(labels, 1):
        if type(label) is not int:
            raise ValueError(
                f"{path}: record {number} of {len(labels)} has the label {reprlib.repr(label)}, no integer"
            )
    if len(pixels) != len(labels):
        raise ValueError(
            f"{path} has data uint8 {list(pixels.shape)} for {len(labels)} labels, not uint8 "
            f"[{len(labels)}, 3072]"
        )
    return _cifar10_split(path, pixels, np.array(labels, object))  # of any size, until they are checked


def _cifar10_split(path, pixels, labels):
    _check_labels(path, labels)
    images = pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return _split(os.path.basename(path), images, labels)


def _pixels(path, array):
    """Returns the array uint8 `[N, 3072]` that an `_Object` describes."""
    raw = shape = dtype = is_fortran = None
    function, arguments, state = (getattr(array, name, None) for name in ("function", "arguments", "state"))
    if function == "numpy.core.multiarray._reconstruct" and isinstance(state, tuple) and len(state) == 5:
        _, shape, dtype, is_fortran, raw = state
    elif function == "numpy.core.numeric._frombuffer" and len(arguments) == 4:
        raw, dtype, shape, is_fortran = *arguments[:3], arguments[3] == "F"
    else:
        raise ValueError(f"{path} is no file of CIFAR-10's: it has no ndarray 'data'")
    raw = _bytes(raw)
    is_uint8 = (
        isinstance(dtype, _Object) and dtype.function == "numpy.dtype" and dtype.arguments[:1] == ("u1",)
    )
    if not is_uint8 or raw is None or shape != (len(raw) // 3072, 3072) or len(raw) % 3072:
        raise ValueError(f"{path}: data is no array uint8 [N, 3072] with its bytes. Download the file again.")
    return np.frombuffer(raw, np.uint8).reshape([-1, 3072], order="F" if is_fortran else "C")


def _list(path, content, key):
    if not isinstance(content.get(key), list):
        raise ValueError(f"{path} is no file of CIFAR-10's: it has no list {key.decode()!r}")
    return content[key]


class _Global(str):
    """The name of a function or a class in a pickle."""


@dataclasses.dataclass(eq=False, repr=False)
class _Object:
    """The result of a call in a pickle, which is recorded and never made."""

    function: _Global
    arguments: tuple
    state: object = None

    def __post_init__(self):
        if not isinstance(self.function, _Global) or not isinstance(self.arguments, tuple):
            raise ValueError("it calls what is no function")


# The names that arrays are pickled with.
_GLOBALS = (
    "numpy.dtype",
    "numpy.ndarray",
    "numpy.core.multiarray._reconstruct",
    "numpy.core.numeric._frombuffer",  # from protocol 5 on
    "_codecs.encode",  # Python 3 writes bytes with it where the format is that of Python 2
)
_LITERALS = (
    "BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT", "BINSTRING", "SHORT_BINSTRING",
    "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8",
)  # fmt: skip
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


def _unpickled(path):
    """Returns the dict in a pickle, its keys as bytes, with an `_Object` for each array or encoded string."""
    if not os.path.isfile(path):
        raise FileNotFoundError(f"no file {path}")
    with open(path, "rb") as file:
        content = file.read()
    try:
        content = _run(pickletools.genops(content))
    except (ValueError, IndexError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is truncated, or no file of CIFAR-10's: {error}") from error
    return content if isinstance(content, dict) else {}


def _run(operations):
    """Returns the value that a pickle's operations describe.

    Python's unpickler calls the functions that a pickle names. Even where they are NumPy's alone, a crafted
    state of theirs reads from any address, and a few bytes take gigabytes. Here nothing is called, and the
    memory is at most some dozen times the file's size.
    """
    stack, marks, memo = [], [], {}

    def popped(start):
        values = stack[start:]
        del stack[start:]
        return values

    for operation, argument, _ in operations:
        name = operation.name
        if name in _LITERALS:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in ("EMPTY_LIST", "EMPTY_DICT"):
            stack.append([] if name == "EMPTY_LIST" else {})
        elif name == "MARK":
            marks.append(len(stack))
        elif name == "TUPLE":
            stack.append(tuple(popped(marks.pop())))
        elif name in _TUPLES:
            stack.append(tuple(popped(-_TUPLES[name])))
        elif name in ("APPEND", "APPENDS"):
            values = popped(marks.pop() if name == "APPENDS" else -1)
            stack[-1].extend(values)
        elif name in ("SETITEM", "SETITEMS"):
            values = popped(marks.pop() if name == "SETITEMS" else -2)
            stack[-1].update(zip(map(_key, values[::2]), values[1::2], strict=True))
        elif name in ("BINPUT", "LONG_BINPUT", "MEMOIZE"):
            memo[len(memo) if name == "MEMOIZE" else argument] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(memo[argument])
        elif name == "GLOBAL":
            stack.append(_global(*argument.split(" ", 1)))
        elif name == "STACK_GLOBAL":
            stack.append(_global(*popped(-2)))
        elif name == "REDUCE":
            stack.append(_Object(*popped(-2)))
        elif name == "BUILD":
            [state] = popped(-1)
            if not isinstance(stack[-1], _Object):
                raise ValueError("it sets the state of what it has not called for")
            stack[-1].state = state
        elif name == "STOP":
            return stack.pop()
        elif name not in ("PROTO", "FRAME"):
            raise ValueError(f"it has the operation {name}, which arrays do not need")
    raise ValueError("it has no end")


def _global(module, name):
    if not isinstance(module, str) or not isinstance(name, str):
        raise ValueError("it asks for a name that is no string")
    dotted = f"{module}.{name}".replace("numpy._core", "numpy.core")  # as NumPy 2 calls it
    if dotted not in _GLOBALS:
        raise ValueError(f"it asks for {dotted:.80}, which arrays do not need")
    return _Global(dotted)


def _key(value):
    """Returns a string as the key of a dict, as bytes: those of Python 2 are read as str."""
    encoded = _bytes(value)
    if encoded is None:
        raise ValueError("it has a dict with a key that is no string")
    return encoded


def _bytes(value):
    """Returns the bytes that a value in a pickle says, or None."""
    if isinstance(value, _Object) and value.function == "_codecs.encode":
        is_latin_1 = len(value.arguments) == 2 and value.arguments[1] in ("latin1", "latin-1")
        value = value.arguments[0] if is_latin_1 else None
    if isinstance(value, str):
        try:
            return value.encode("latin-1")
        except UnicodeEncodeError:
            return None
    return bytes(value) if isinstance(value, bytes | bytearray) else None


def _mnist_from_folder(folder):
    (train, train_files), (test, test_files) = (mnist_part(folder, part) for part in ("train", "t10k"))
    return tuple("0123456789"), train, test, train_files | test_files


def mnist_part(folder, part):
    """Reads the images and labels of a part of MNIST from the published files.

    Args:
      folder: where the part's two files are, each as it is or with `.gz`.
      part: "train" or "t10k".

    Returns:
      A `Split` with the feature `image` uint8 `[N, 28, 28, 1]`, and path -> SHA-256 of the files.

    Raises:
      FileNotFoundError, ValueError: as `mnist`.
    """
    images_path = _idx_path(folder, f"{part}-images-idx3-ubyte")
    labels_path = _idx_path(folder, f"{part}-labels-idx1-ubyte")
    images, labels = _idx(images_path, axes=3), _idx(labels_path, axes=1)
    if images.shape[1:] != (28, 28):
        raise ValueError(
            f"{images_path} has images of {images.shape[1]} x {images.shape[2]} pixels, not 28 x 28"
        )
    if len(images) != len(labels):
        raise ValueError(f"{images_path} has {len(images)} images, but {labels_path} {len(labels)} labels")
    _check_labels(labels_path, labels)
    files = {path: sources.sha256(path) for path in (images_path, labels_path)}
    return _split(os.path.basename(images_path), images[..., None], labels), files


def _idx_path(folder, name):
    plain = os.path.join(folder, name)
    for path in (plain, f"{plain}.gz"):
        if os.path.isfile(path):
            return path
    raise FileNotFoundError(f"no file {plain}, nor {plain}.gz")


def _idx(path, axes):
    """Returns the bytes of an IDX file as an array with that many axes."""
    try:
        with (gzip.open if path.endswith(".gz") else open)(path, "rb") as file:
            head = file.read(4 + 4 * axes)
            shape = _idx_shape(path, head, axes)
            size = math.prod(shape)
            content = file.read(size + 1)  # a small gzip file may hold a large one
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path} is truncated, or not gzip: {error}") from error
    if len(content) > size:
        raise ValueError(f"{path} is too long: it has more than the {len(head) + size} bytes by its header")
    if len(content) < size:
        raise ValueError(
            f"{path} is truncated: it has {len(head) + len(content)} bytes, {len(head) + size} by its header"
        )
    return np.frombuffer(content, np.uint8).reshape(shape)


def _idx_shape(path, head, axes):
    magic = bytes([0, 0, 8, axes])
    if head[:4] != magic:
        raise ValueError(
            f"{path} begins with the magic number 0x{head[:4].hex()}, not 0x{magic.hex()}: it is no IDX "
            f"file of bytes with {axes} axes"
        )
    if len(head) < 4 + 4 * axes:
        raise ValueError(f"{path} is truncated: it has {len(head)} bytes, {4 + 4 * axes} in its header alone")
    shape = np.frombuffer(head[4:], ">u4").tolist()
    if math.prod(shape) > MOST_IDX_BYTES:
        raise ValueError(
            f"{path}: its header says that {math.prod(shape):,} bytes follow, more than {MOST_IDX_BYTES:,}. "
            "Download it again."
        )
    return shape
