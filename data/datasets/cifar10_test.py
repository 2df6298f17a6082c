"""CIFAR-10: split sizes, positions of pixels, and errors for invalid files."""

import codecs
import hashlib
import os
import pickle
import struct

import numpy as np
import pytest

from rank4class import data
from rank4class.data.datasets import cifar10

CIFAR10_NAMES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


@pytest.fixture
def tiny_cifar10(tmp_path):
    """Writes a small folder in CIFAR-10's published layout; returns its path.

    In image `i` of a file, the pixel in row `r` and column `c` is `(r, c, i)`.
    """
    (tmp_path / "batches.meta.txt").write_text("\n".join(CIFAR10_NAMES) + "\n\n")
    rows, columns = np.indices([32, 32], dtype=np.uint8)
    for name, size in (("data_batch_1", 100), ("data_batch_2", 50), ("test_batch", 20)):
        records = [
            bytes([i % 10]) + rows.tobytes() + columns.tobytes() + bytes([i]) * 1024 for i in range(size)
        ]
        (tmp_path / f"{name}.bin").write_bytes(b"".join(records))
    return tmp_path


def test_binary_files(tiny_cifar10):
    dataset = data.get("cifar10", path=str(tiny_cifar10))
    assert dataset.class_names == tuple(CIFAR10_NAMES)
    sizes = {"train": 135, "validation": 15, "test": 20}
    assert {name: len(split) for name, split in dataset.splits.items()} == sizes
    for name, split in dataset.splits.items():
        images = split.features["image"]
        assert images.shape == (sizes[name], 32, 32, 3)
        assert images.dtype == np.uint8
        np.testing.assert_array_equal(images[:, 7, 30, :2], [[7, 30]] * len(split))
        np.testing.assert_array_equal(images[:, 0, 0, 2] % 10, split.labels)
    numbers = {name: split.features["image"][:, 0, 0, 2].tolist() for name, split in dataset.splits.items()}
    assert numbers["test"] == list(range(20))
    assert sorted(numbers["train"] + numbers["validation"]) == sorted([*range(100), *range(50)])


def test_validation_split_is_a_fixed_tenth_of_each_class(tiny_cifar10):
    (tiny_cifar10 / "data_batch_2.bin").unlink()
    first, second = (data.get("cifar10", path=str(tiny_cifar10)).splits for _ in range(2))
    assert np.bincount(first["validation"].labels).tolist() == [1] * 10
    for name in first:
        np.testing.assert_array_equal(first[name].features["image"], second[name].features["image"])


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("test_batch.bin", lambda b: b[:-1], r"PATH: truncated, 3072 bytes after 19 records"),
        ("data_batch_2.bin", lambda b: b + b"ab", r"PATH: truncated, 2 bytes after 50 records"),
        ("data_batch_1.bin", lambda b: b"", r"PATH: the file is empty"),
        (
            "data_batch_2.bin",
            lambda b: b[: 2 * 3073] + b"\x0a" + b[2 * 3073 + 1 :],
            r"PATH: record 3 of 50 has label 10, outside 0\.\.9",
        ),
        (
            "data_batch_1.bin",
            lambda b: b.replace(b"\x03" + bytes(9), b"\x04" + bytes(9)),
            r"CIFAR-10: class 'cat' has 5 training images, but a tenth .* at least 10",
        ),
        (
            "batches.meta.txt",
            lambda b: b.replace(b"cat", b"dog"),
            r"PATH: 9 different class names, expected 10",
        ),
        ("batches.meta.txt", lambda b: b + b"eleventh\n", r"PATH: 11 different class names"),
        ("batches.meta.txt", lambda b: b"", r"PATH: the file is empty"),
    ],
)
def test_invalid_binary_files(tiny_cifar10, file, change, message):
    path = tiny_cifar10 / file
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ValueError, match=f"^{message}".replace("PATH", str(path))):
        data.get("cifar10", path=str(tiny_cifar10))


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("test_batch.bin", r"test_batch\.bin: no such file"),
        ("data_batch_*.bin", r"data_batch_\*\.bin: no such file"),
        ("batches.meta.txt", r"batches\.meta\.txt: no such file"),
    ],
)
def test_missing_binary_files(tiny_cifar10, pattern, message):
    for path in tiny_cifar10.glob(pattern):
        path.unlink()
    with pytest.raises(FileNotFoundError, match=message):
        data.get("cifar10", path=str(tiny_cifar10))


def test_origins_and_file_hashes(tiny_cifar10):
    dataset = data.get("cifar10", path=str(tiny_cifar10))
    assert dataset.splits["test"].origin(16) == "test_batch.bin record 17"
    for name in ("train", "validation"):
        split = dataset.splits[name]
        for i in range(len(split)):
            number = int(split.origin(i).rpartition(" ")[2])
            assert split.features["image"][i, 0, 0, 2] == number - 1
    files = {"batches.meta.txt", "data_batch_1.bin", "data_batch_2.bin", "test_batch.bin"}
    assert {os.path.basename(path) for path in dataset.files} == files
    for path, digest in dataset.files.items():
        with open(path, "rb") as file:
            assert digest == hashlib.sha256(file.read()).hexdigest()


def python_2_pickle(array, labels):
    """Returns a batch as published: pickled by Python 2, whose strings are bytes."""
    data = b"".join(
        [
            b"\x80\x02}(U\x04datacnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85U\x01btR",
            b"(K\x01",
            *(b"J" + struct.pack("<i", size) for size in array.shape),
            b"\x86cnumpy\ndtype\n(U\x02u1K\x00K\x01tR(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb",
            b"\x89T" + struct.pack("<i", array.size) + array.tobytes() + b"tb",
        ]
    )
    return data + b"U\x06labels](" + b"".join(b"K" + bytes([label]) for label in labels) + b"eu."


@pytest.fixture
def python_cifar10(tiny_cifar10):
    """Writes `tiny_cifar10` as the published Python files, one of them in the pickle format of Python 2."""
    folder = tiny_cifar10 / "cifar-10-batches-py"
    folder.mkdir()
    names = {b"label_names": [name.encode() for name in CIFAR10_NAMES]}
    (folder / "batches.meta").write_bytes(pickle.dumps(names, protocol=2))
    for path in tiny_cifar10.glob("*.bin"):
        records = np.frombuffer(path.read_bytes(), np.uint8).reshape(-1, 3073)
        labels = records[:, 0].tolist()
        content = pickle.dumps({b"data": records[:, 1:].copy(), b"labels": labels}, protocol=2)
        if path.stem == "data_batch_1":
            content = python_2_pickle(records[:, 1:], labels)
        (folder / path.stem).write_bytes(content)
    return folder


def test_python_files_equal_binary_files(tiny_cifar10, python_cifar10):
    binary = data.get("cifar10", path=str(tiny_cifar10))
    assert os.path.join(tiny_cifar10, "test_batch.bin") in binary.files
    python = data.get("cifar10", path=str(python_cifar10))
    assert python.class_names == binary.class_names
    assert set(python.files) == {str(path) for path in python_cifar10.iterdir()}
    for name, split in python.splits.items():
        np.testing.assert_array_equal(split.features["image"], binary.splits[name].features["image"])
        np.testing.assert_array_equal(split.labels, binary.splits[name].labels)
        assert split.origin(0) == binary.splits[name].origin(0).replace(".bin", "")


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_pickles_written_by_numpy_2(python_cifar10, protocol):
    before = data.get("cifar10", path=str(python_cifar10)).splits["test"]
    path = python_cifar10 / "test_batch"
    content = {b"data": before.features["image"].transpose(0, 3, 1, 2).reshape(20, 3072).copy()}
    content[b"labels"] = before.labels.tolist()
    written = pickle.dumps(content, protocol)
    # The length of a short string includes the additional character of NumPy 2's module name.
    for module in (b"numpy.core.multiarray", b"numpy.core.numeric"):
        longer = module.replace(b".core", b"._core")
        written = written.replace(bytes([len(module)]) + module, bytes([len(longer)]) + longer)
        written = written.replace(b"c" + module, b"c" + longer)
    assert b"numpy._core" in written
    if protocol > 2:
        written = b"\x80" + bytes([protocol]) + written[11:]  # without the frame
    path.write_bytes(written)
    after = data.get("cifar10", path=str(python_cifar10)).splits["test"]
    np.testing.assert_array_equal(after.features["image"], before.features["image"])


@pytest.mark.parametrize("kind", ["bin", "py"])
def test_folder_of_an_unpacked_archive(tiny_cifar10, python_cifar10, kind):
    parent = tiny_cifar10 / "parent"
    (parent / f"cifar-10-batches-{kind}").mkdir(parents=True)
    for path in (python_cifar10 if kind == "py" else tiny_cifar10).iterdir():
        if path.is_file():
            os.link(path, parent / f"cifar-10-batches-{kind}" / path.name)
    dataset = data.get("cifar10", path=str(parent))
    assert len(dataset.splits["train"]) == 135
    assert f"cifar-10-batches-{kind}" in next(iter(dataset.files))


class Exploit:
    def __reduce__(self):
        return os.system, ("touch exploited",)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        (
            "test_batch",
            pickle.dumps({b"data": Exploit()}),
            r"truncated, or not a pickle of arrays: name posix\.system, which arrays",
        ),
        ("data_batch_1", python_2_pickle(np.zeros([2, 3072], np.uint8), [1, 2])[:-400], r"trunc"),
        ("data_batch_1", b"", r"truncated"),
        ("data_batch_1", b"\xff\xd8\xff\xe0", r"truncated, or not a pickle of arrays"),
        ("data_batch_1", pickle.dumps([1]), r"no array 'data'"),
        (
            "data_batch_1",
            python_2_pickle(np.zeros([2, 3072], np.uint8), [1, 2, 3]),
            r"2 images, but 3 labels",
        ),
        (
            "data_batch_2",
            python_2_pickle(np.zeros([2, 3072], np.uint8), [1, 12]),
            r"record 2 of 2 has label 12, outside 0\.\.9",
        ),
        *(
            (
                "test_batch",
                pickle.dumps({b"data": np.zeros([2, 3072], np.uint8), b"labels": [3, label]}),
                f"record 2 of 2 has label {shown}",
            )
            for label, shown in (
                (1.7, r"1\.7, not an integer"),
                (None, "None, not an integer"),
                ("x", "'x', not an integer"),
                ([1, 2], r"\[1, 2\], not an integer"),
                (10**30, "10{30}, outside 0"),
                (-1, "-1, outside 0"),
            )
        ),
        ("batches.meta", pickle.dumps({b"label_names": [b"cat", 7]}), r"class name 2 is 7, not a string"),
        ("batches.meta", pickle.dumps({b"labels": []}), r"no list 'label_names'"),
        ("batches.meta", pickle.dumps({b"label_names": [b"cat"]}), r"1 different class"),
    ],
)
def test_invalid_python_files_raise_and_execute_nothing(python_cifar10, monkeypatch, file, content, message):
    monkeypatch.chdir(python_cifar10)
    (python_cifar10 / file).write_bytes(content)
    with pytest.raises(ValueError, match=rf"^{python_cifar10 / file}: {message}"):
        data.get("cifar10", path=str(python_cifar10))
    assert not os.path.exists("exploited")


class Call:
    """Is pickled as a call of `function` with any arguments, followed by any state."""

    def __init__(self, function, arguments, state=None):
        self._call = function, arguments, state

    def __reduce__(self):
        return self._call


UINT8 = Call(np.dtype, ("u1", False, True), (3, "|", None, None, None, -1, -1, 0))


def array(dtype=UINT8, shape=(2, 3072), raw=bytes(6144), is_fortran=False, version=1):
    empty = (np.ndarray, (0,), b"b")
    state = (version, shape, dtype, is_fortran, raw)
    return Call(np.core.multiarray._reconstruct, empty, state)


def batch(pixels, labels=(1, 2), protocol=4):
    return pickle.dumps({b"data": pixels, b"labels": list(labels)}, protocol)


def dtype(name, *state):
    return Call(np.dtype, (name, False, True), state or (3, "|", None, None, None, -1, -1, 0))


def encoded(*arguments):
    return Call(codecs.encode, arguments)


# Sixty nested pairs, each with the previous one twice: formatting or hashing them takes 2**60 steps.
PAIRS = b")" + b"q\xffh\xff\x86" * 60
HIDDEN = 3, "|", None, ("a",), {"a": (dtype("O8"), 0)}
FIELDS = dtype("V16", *HIDDEN, 16, 1, 27)
FROMBUFFER = np.core.numeric._frombuffer
NO_ARRAY = r"'data' is not uint8 \[N, 3072\]\. Download"
NO_DATA = "no array 'data'"
CRAFTED = {
    "objects": (batch(array(dtype("O8"), (768,))), NO_ARRAY),
    "objects of the right shape": (batch(array(dtype("O8"), (2, 3072), b"A" * 8 * 6144)), NO_ARRAY),
    "objects as a list": (batch(array(dtype("O8"), (2, 3072), [None] * 6144)), NO_ARRAY),
    "fields": (batch(array(FIELDS, (384,))), NO_ARRAY),
    "object fields without the object flag": (
        batch(Call(FROMBUFFER, (b"A" * 6144, dtype("V8", *HIDDEN, 8, 1, 0), (768,), "C"))),
        NO_ARRAY,
    ),
    "an array over objects": (batch(Call(np.ndarray, ((2, 3072), dtype("O8"), b"A" * 8 * 6144))), NO_DATA),
    "floats": (batch(array(dtype("f8", 3, "<", None, None, None, -1, -1, 0), (2, 384))), NO_ARRAY),
    "the name of a dtype": (batch(array("u1")), NO_ARRAY),
    "an array as dtype": (batch(array(array())), NO_ARRAY),
    "a dtype without a name": (batch(array(Call(np.dtype, ()))), NO_ARRAY),
    "a huge shape": (batch(array(shape=(2**40, 3072))), NO_ARRAY),
    "a shape beyond 64 bits": (batch(array(shape=(2**70, 3072))), NO_ARRAY),
    "a shape with four axes": (batch(array(shape=(2, 3, 32, 32))), NO_ARRAY),
    "a negative shape": (batch(array(shape=(-1, 3072))), NO_ARRAY),
    "two negative sizes": (batch(array(shape=(-2, -3072))), NO_ARRAY),
    "a list as shape": (batch(array(shape=[2, 3072])), NO_ARRAY),
    "too few bytes": (batch(array(raw=bytes(6143))), NO_ARRAY),
    "no bytes": (batch(array(raw=None)), NO_ARRAY),
    "an array as bytes": (batch(array(raw=array())), NO_ARRAY),
    "a short state": (batch(Call(np.core.multiarray._reconstruct, (), (1, (2, 3072)))), NO_DATA),
    "no state": (batch(Call(np.core.multiarray._reconstruct, (np.ndarray, (2**40,), b"b"))), NO_DATA),
    "a large array from a call": (batch(Call(np.ndarray, ((2**36,), UINT8))), NO_DATA),
    "a dtype instead of an array": (batch(UINT8), NO_DATA),
    "a buffer of objects": (batch(Call(FROMBUFFER, (bytes(6144), dtype("O8"), (768,), "C"))), NO_ARRAY),
    "a buffer of too few arguments": (batch(Call(FROMBUFFER, (bytes(6144), UINT8))), NO_DATA),
    "zlib": (batch(array(raw=encoded("a", "zlib"))), NO_ARRAY),
    "unicode_escape": (batch(array(raw=encoded("a" * 6144, "unicode_escape"))), NO_ARRAY),
    "a number as encoding": (batch(array(raw=encoded("a" * 6144, 7))), NO_ARRAY),
    "bytes to encode": (batch(array(raw=encoded(b"a" * 6144, "hex"))), NO_ARRAY),
    "characters outside Latin-1": (batch(array(raw=encoded("\u20ac" * 6144, "latin1"))), NO_ARRAY),
    "no arguments to encode": (batch(array(raw=encoded())), NO_ARRAY),
    "three arguments to encode": (batch(array(raw=encoded("a", "latin1", "strict"))), NO_ARRAY),
    "a key in another encoding": (pickle.dumps({encoded("data", "zlib"): 1}, 4), "a key that is not"),
    "a call of None": (b"\x80\x02}U\x04dataNNRs.", "a call without a function"),
    "a state of a list": (b"\x80\x02}U\x04data]Nbs.", "a state without a call"),
    "a state of a function": (b"\x80\x02cnumpy\ndtype\n}b.", "a state without a call"),
    "lists as a name": (b"\x80\x04]]\x93.", "a name that is not a string"),
    "a missing name": (b"\x80\x04\x93.", "missing"),
    "a list of a number": (b"\x80\x02K\x01K\x02a.", "has no attribute 'extend'"),
    "an empty stack": (b"\x80\x02s.", "list index out of range"),
    "a missing mark": (b"\x80\x02(tt.", "pop from empty list"),
    "a missing memo entry": (b"\x80\x02h\x07.", "7"),
    "an instance": (b"\x80\x02cnumpy\nndarray\n)\x81.", "operation NEWOBJ, which arrays do not need"),
    "an integer as text": (b"I" + b"1" * 9999 + b"\n.", ": truncated, or not a pickle of arrays"),
    "a huge memo index": (b"\x80\x02]r\xff\xff\xff\x7f.", NO_DATA),
    "a huge frame": (b"\x80\x04\x95" + struct.pack("<Q", 2**40) + b"}.", NO_DATA),
    "huge bytes": (b"\x80\x04\x8e" + struct.pack("<Q", 2**33) + b"a.", ": truncated"),
    "a huge byte array": (b"\x80\x05\x96" + struct.pack("<Q", 2**33) + b"a.", ": truncated"),
    "a huge string": (b"\x80\x02T" + struct.pack("<i", 2**31 - 1) + b"a.", ": truncated"),
    "pairs of pairs": (
        # a batch with the nested pairs as its first label
        batch(array())[:-1].replace(b"K\x01K\x02", PAIRS + b"K\x02") + b".",
        "has label \\(\\(",
    ),
    "pairs of pairs as a key": (
        b"\x80\x04}" + PAIRS + b"Ns.",
        "a key that is not a string",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", CRAFTED)
def test_crafted_pickles_raise_without_allocating_memory(tmp_path, memory_below, kind):
    path, (content, message) = tmp_path / "test_batch", CRAFTED[kind]
    path.write_bytes(content)
    with memory_below(4e6), pytest.raises(ValueError, match=f"^{path}.*{message}"):
        cifar10._read_pickle(str(path))


def test_folder_without_cifar10(tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"^data\.path=.*: neither CIFAR-10's binary .* nor its Python files"
    ):
        data.get("cifar10", path=str(tmp_path))


def test_missing_python_files(python_cifar10):
    (python_cifar10 / "test_batch").unlink()
    with pytest.raises(FileNotFoundError, match=r"cifar-10-batches-py/test_batch: no such file"):
        data.get("cifar10", path=str(python_cifar10))


@pytest.mark.nightly
def test_real_cifar10_is_balanced(real_data):
    dataset = data.get("cifar10", path=real_data("cifar10"))
    assert dataset.class_names == tuple(CIFAR10_NAMES)
    for name, size in (("train", 900), ("validation", 100), ("test", 200)):
        split = dataset.splits[name]
        assert np.bincount(split.labels).tolist() == [size] * 10
        # Neighboring pixels are similar only if colors, rows and columns are read in the right order.
        pixels = split.features["image"].astype(np.float32)
        assert np.abs(np.diff(pixels, axis=1)).mean() < 20
        assert np.abs(np.diff(pixels, axis=2)).mean() < 20
        assert np.corrcoef(pixels[..., 0].ravel(), pixels[..., 1].ravel())[0, 1] > 0.9
