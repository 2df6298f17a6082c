"""Caltech 101 silhouettes: pixels and labels in their places, and errors for broken files."""

import importlib

import numpy as np
import pytest
import scipy.io

from rank4class import data

FILE = "caltech101_silhouettes_28_split1.mat"
SIZES = {"train": 6, "val": 3, "test": 3}


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    """Registers the dataset for this test alone."""
    monkeypatch.setattr(data.DATASETS, "_entries", dict(data.DATASETS._entries))
    importlib.reload(importlib.import_module("rank4class.scripts.research.caltech101_silhouettes"))


def content():
    """Returns arrays in the published layout; image `i` has a white column `i` below its first pixel."""
    cells = np.empty([1, 3], object)
    cells[0, :] = ["Faces", "airplanes", "yin_yang"]
    arrays = {"classnames": cells}
    for part, size in SIZES.items():
        images = np.zeros([size, 28, 28], np.uint8)
        images[np.arange(size), 1:, np.arange(size)] = 1
        # A column of MATLAB is one stretch of memory.
        arrays[f"{part}_data"] = np.stack([image.ravel(order="F") for image in images])
        arrays[f"{part}_labels"] = (np.arange(size, dtype=np.uint8) % 3 + 1)[:, None]
    return arrays


@pytest.mark.parametrize("as_file", [False, True])
@pytest.mark.parametrize("dtype", [np.uint8, np.float64])
def test_images_labels_and_origins(tmp_path, as_file, dtype):
    arrays = content()
    arrays |= {name: array.astype(dtype) for name, array in arrays.items() if name != "classnames"}
    scipy.io.savemat(tmp_path / FILE, arrays, do_compression=True)
    dataset = data.get("caltech101_silhouettes", path=tmp_path / FILE if as_file else tmp_path)
    assert dataset.class_names == ("Faces", "airplanes", "yin_yang")
    assert list(dataset.files) == [str(tmp_path / FILE)]
    for (part, size), (name, split) in zip(SIZES.items(), dataset.splits.items(), strict=True):
        assert name == {"val": "validation"}.get(part, part)
        images = split.features["image"]
        assert (images.shape, images.dtype) == ((size, 28, 28, 1), np.uint8)
        for i, image in enumerate(images[..., 0]):
            assert np.argwhere(image == 255).tolist() == [[row, i] for row in range(1, 28)]
        assert (images % 255 == 0).all()
        assert split.labels.tolist() == [i % 3 for i in range(size)]
        assert split.origin(1) == f"{part}_data row 2"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("val_data", None, r"no array 'val_data'\. Set data\.path to a file of splits"),
        ("train_data", np.zeros([6, 256]), r"train_data has shape \(6, 256\), expected \[6, 784\]"),
        ("val_data", np.full([3, 784], 2), "val: a pixel other than 0 and 1, or a label outside"),
        ("train_labels", np.arange(6), r"train: .* a label outside 1\.\.3"),
    ],
)
def test_broken_content(tmp_path, name, value, message):
    arrays = {**content(), name: value}
    scipy.io.savemat(tmp_path / FILE, {key: array for key, array in arrays.items() if array is not None})
    with pytest.raises(ValueError, match=f"^{tmp_path / FILE}: {message}"):
        data.get("caltech101_silhouettes", path=tmp_path)


def test_broken_files(tmp_path):
    path = tmp_path / FILE
    scipy.io.savemat(path, content(), do_compression=True)
    whole = path.read_bytes()
    for size in (0, 127, 131, len(whole) // 2):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=f"^{path}: (truncated, or not a file of MATLAB|no array)"):
            data.get("caltech101_silhouettes", path=path)
    with pytest.raises(FileNotFoundError, match=rf"nowhere: no such file\. Set data\.path to {FILE}"):
        data.get("caltech101_silhouettes", path="nowhere")
