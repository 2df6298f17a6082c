"""Images in one folder per class."""

import os
from collections.abc import Sequence

import numpy as np

from rank4class.data.dataset import Dataset, Split, check_fractions
from rank4class.data.readers import files, rows, split_files, user_splits
from rank4class.data.registry import DATASETS, LABELED


@DATASETS.register("image_folder")
def image_folder(
    path: str,
    classes: str | None = None,
    validation_fraction: float | None = None,
    test_fraction: float = 0.1,
    split_seed: int = 0,
    on_invalid_row: str = "fail",
) -> Dataset:
    """Images in one folder per class.

    Missing validation and test splits are drawn from the training images, the same fraction of each class.
    Copies of an image are drawn together, for which every start hashes the files of equal sizes.

    Args:
      path: folder with `train/<class>/*`, and optionally `validation/<class>/*` (or `val`, `valid`,
        `dev`) and `test/<class>/*`; or with `<class>/*`. Images end in `files.IMAGE_ENDINGS`, in any case.
        Hidden files are ignored.
      classes: file of the class names in the order of their ids, one per line; None sorts the classes.
      validation_fraction, test_fraction: fraction of the training images to draw, in (0, 1).
        A validation fraction of 0 draws no validation split; optimizer "lbfgs" then validates by folds. None
        is 0.1, and 0 for "lbfgs" with fewer than 2,000 training examples.
      split_seed: seed of the splits, at least 0.
      on_invalid_row: "fail" or "skip" for files outside the class folders, files that are not images
        and, when they are read, images that cannot be read.

    Returns:
      A `Dataset` with the feature `file`, strings `[N]`: the paths of the images.
    """
    fractions = check_fractions(validation_fraction, test_fraction, with_folds=True)
    bad_rows = rows.BadRows(on_invalid_row)
    folders = _split_folders(path, classes, bad_rows)
    images = {name: images_by_class(folder, bad_rows, beside=classes) for name, folder in folders.items()}
    class_names = user_splits.class_names(classes, images["train"], folders["train"])
    source = classes or folders["train"]
    splits = {name: examples(folder, images[name], class_names, source) for name, folder in folders.items()}
    splits = user_splits.complete(splits, fractions, split_seed)
    in_order = {name: splits[name] for name in split_files.NAMES if name in splits}
    return Dataset(class_names, in_order, tuple(bad_rows.messages))


@LABELED.register("image_folder")
def labeled_images(path: str, class_names: Sequence[str], bad_rows: rows.BadRows, **_: object) -> Split:
    """Returns the images of a folder of class folders as one split; other classes are invalid rows."""
    if not os.path.isdir(path):
        raise FileNotFoundError(f"data.path={path}: no such folder. Set it to a folder of class folders.")
    images = images_by_class(path, bad_rows)
    for name in sorted(set(images) - set(class_names)):
        with bad_rows.row():
            raise ValueError(f"{os.path.join(path, name)}: class {name!r} is not one of the model's.")
        del images[name]
    if not images:
        raise ValueError(f"{path}: no image of the model's classes. Add one.")
    return examples(path, images, class_names, path)


def images_by_class(folder: str, bad_rows: rows.BadRows, beside: str | None = None) -> dict[str, list[str]]:
    """Returns class -> paths, both sorted, of a folder with one folder of images per class.

    Other files are invalid, unless they are hidden or `beside`.
    """
    images: dict[str, list[str]] = {}
    for entry in _visible(folder, beside):
        with bad_rows.row():
            if not entry.is_dir():
                raise ValueError(f"{entry.path}: not in a class folder. Move it.")
            images[entry.name] = []
    if not images:
        raise ValueError(f"{folder}: no class folder. Sort the images into one folder per class.")
    for name, paths in images.items():
        for entry in _visible(os.path.join(folder, name)):
            with bad_rows.row():
                if not entry.is_file():
                    raise ValueError(f"{entry.path}: not a file. Move it.")
                files.check_image(entry.path)
                paths.append(entry.path)
        if not paths:
            raise ValueError(
                f"{os.path.join(folder, name)}: no image ({', '.join(files.IMAGE_ENDINGS)}). Add one."
            )
    return images


def examples(folder: str, images: dict[str, list[str]], class_names: Sequence[str], source: str) -> Split:
    """Returns the `Split` of a folder's `images_by_class`; `source` has the class names, for messages."""
    ids = {name: i for i, name in enumerate(class_names)}
    for name in images:
        if name not in ids:
            raise ValueError(f"{os.path.join(folder, name)}: the class is not in {source}. Add it.")
    paths = np.array([path for paths in images.values() for path in paths], object)
    labels = np.repeat([ids[name] for name in images], [len(paths) for paths in images.values()])
    return Split({"file": paths}, labels.astype(np.int32), paths)


def _visible(folder, beside=None):
    with os.scandir(folder) as entries:
        visible = [entry for entry in entries if not entry.name.startswith(".")]
    if beside is not None:
        visible = [entry for entry in visible if os.path.abspath(entry.path) != os.path.abspath(beside)]
    return sorted(visible, key=lambda entry: entry.name)


def _split_folders(path, classes, bad_rows):
    """Returns split -> folder of the splits in the folder, training first."""
    if not os.path.isdir(path):
        raise FileNotFoundError(f"data.path={path}: no such folder. Check the path.")
    entries = _visible(path, classes)
    folders = split_files.find(path, ((entry.name, entry.name) for entry in entries if entry.is_dir()))
    if not folders:
        return {"train": path}
    if "train" not in folders:
        folder = next(iter(folders.values()))
        raise ValueError(f"{folder}: a split, but there is no split 'train'. Rename it if it is a class.")
    for entry in entries:
        with bad_rows.row():
            if entry.path not in folders.values():
                raise ValueError(
                    f"{entry.path}: beside the split 'train', but none of {split_files.EXPECTED}. Move it, "
                    "or rename 'train' if that is a class."
                )
    return folders
