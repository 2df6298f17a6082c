"""ImageNet, and images in its layout."""

import os
import pathlib

import numpy as np

from rank4class.data.splits import Dataset, Split


def imagenet(path=None):
    """ImageNet, or any folder of images in its layout: a folder a class.

    There is no labelled test split: validation and test are both the images of `val`, so a choice by
    the validation metric has seen the reported images. The paper does the same.

    Args:
      path: folder with `train/<synset>/*.JPEG` and `val/<synset>/*.JPEG` (or `validation/`). The
        classes are the folders of `train`, sorted.

    Returns:
      A `Dataset` with the feature `file`, strings `[N]`: the paths of the images.

    Raises:
      FileNotFoundError: a folder is missing.
      ValueError: no path; a class without an image; a class in `val` that `train` does not have.
    """
    if not path:
        raise ValueError("ImageNet is not downloaded: set data.path to a folder with train/ and val/")
    train_folder = _first_folder(path, ("train",))
    validation_folder = _first_folder(path, ("val", "validation"))
    class_names = _folders(train_folder)
    unknown = sorted(set(_folders(validation_folder)) - set(class_names))
    if unknown:
        raise ValueError(
            f"{os.path.join(validation_folder, unknown[0])} is a class that {train_folder} does not have"
        )
    validation = _image_files(validation_folder, class_names)
    parts = {"train": _image_files(train_folder, class_names), "validation": validation, "test": validation}
    return Dataset(class_names, parts)


def _first_folder(path, names):
    for name in names:
        if os.path.isdir(os.path.join(path, name)):
            return os.path.join(path, name)
    raise FileNotFoundError(f"no folder {' or '.join(os.path.join(path, name) for name in names)}")


def _folders(folder):
    """Returns the names of the folders in a folder, sorted; there has to be one."""
    with os.scandir(folder) as entries:
        names = tuple(sorted(entry.name for entry in entries if entry.is_dir()))
    if not names:
        raise ValueError(f"{folder} has no folders: sort its images into one folder a class")
    return names


def _image_files(folder, class_names):
    files, labels = [], []
    for name in _folders(folder):
        paths = sorted(str(path) for path in pathlib.Path(folder, name).glob("*.JPEG"))
        if not paths:
            raise ValueError(f"{os.path.join(folder, name)} has no image *.JPEG")
        files += paths
        labels += [class_names.index(name)] * len(paths)
    return Split({"file": np.array(files, object)}, np.array(labels, np.int32))
