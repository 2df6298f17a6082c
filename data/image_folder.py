"""Folders of images, one a class."""

import os

import numpy as np

from rank4class.data import class_tables, sources
from rank4class.data.dataset import Dataset, Split, draw_together
from rank4class.data.registry import DATASETS

ENDINGS = (".jpg", ".jpeg", ".png", ".gif", ".bmp")
FOREIGN_ENDINGS = (
    ".webp",
    ".tif",
    ".tiff",
    ".heic",
    ".heif",
    ".avif",
    ".jp2",
    ".svg",
    ".pdf",
    ".psd",
    ".ico",
)
SPLITS = {"train": ("train",), "validation": ("validation", "val", "valid", "dev"), "test": ("test",)}


@DATASETS.register("image_folder")
def image_folder(
    path=None, classes=None, validation_fraction=0.1, test_fraction=0.1, split_seed=0, on_invalid_row="fail"
):
    """Images in a folder a class.

    What is not given of validation and test is drawn from the training images, of each class the same
    share. No image is in two splits: what a given split before has too is a bad row, and copies are drawn
    together. That takes the hash of every file whose size another has, at each start.

    Args:
      path: folder with `train/<class>/*`, and `validation/<class>/*` (or `val`, `valid`, `dev`) and
        `test/<class>/*` as far as they are given; or with `<class>/*` alone. Images end in `ENDINGS`, in
        capitals or not; hidden files are passed over.
      classes: file of the classes in the order of their ids, a name a line; without it they are sorted.
      validation_fraction: share of the training images that is drawn, in (0, 1).
      test_fraction: likewise.
      split_seed: int, of the draw.
      on_invalid_row: "fail" or "skip": what becomes of an image outside a class folder, of what is no image,
        and of an image that a split before has too; and, as they are read, of images that cannot be read.

    Returns:
      A `Dataset` with the feature `file`, strings `[N]`: the paths of the images.

    Raises:
      FileNotFoundError: no such folder.
      ValueError: no path; fewer than two classes; a class without an image, or without a training image;
        a bad row.
    """
    if not path:
        raise ValueError("set data.path to a folder with a folder of images for each class")
    bad_rows = sources.BadRows(on_invalid_row)
    folders = _split_folders(path, classes, bad_rows)
    images = {
        name: images_by_class(folder, ENDINGS, bad_rows, beside=classes) for name, folder in folders.items()
    }
    class_names = _class_names(folders["train"], tuple(images["train"]), classes)
    splits = {name: examples(folder, images[name], class_names) for name, folder in folders.items()}
    first = _first_copies(np.concatenate([split.features["file"] for split in splits.values()]))
    apart = _apart(splits, first, bad_rows)
    splits = {name: split.select(apart[name]) for name, split in splits.items()}
    shares = {"validation": validation_fraction, "test": test_fraction}
    shares = {name: share for name, share in shares.items() if name not in splits}
    splits |= draw_together(splits["train"], first[: len(splits["train"])], shares, seed=split_seed)
    return Dataset(class_names, {name: splits[name] for name in SPLITS}, skipped=tuple(bad_rows.messages))


def images_by_class(folder, endings, bad_rows, beside=None):
    """Lists the images of a folder with a folder a class.

    Args:
      folder: its path.
      endings: tuple, what the names of images end in, in small letters.
      bad_rows: a `sources.BadRows` for all else that is there and not hidden.
      beside: path of a file that may lie beside the folders of the classes.

    Returns:
      class -> list of paths, both sorted.

    Raises:
      ValueError: no class, a class without an image, or a bad row.
    """
    images = {}
    for entry in _visible(folder, beside):
        with bad_rows.row():
            _check_entry(entry)
            if not entry.is_dir():
                raise ValueError(f"{entry.path} lies outside the folders of the classes")
            images[entry.name] = []
    if not images:
        raise ValueError(f"{folder} has no folders: sort its images into one folder a class")
    for name, paths in images.items():
        for entry in _visible(os.path.join(folder, name)):
            with bad_rows.row():
                _check_entry(entry)
                if not entry.is_file() or not entry.name.lower().endswith(endings):
                    raise ValueError(f"{entry.path} is no image {_pattern(endings)}{_remedy(entry.name)}")
                paths.append(entry.path)
        if not paths:
            raise ValueError(f"{os.path.join(folder, name)} has no image {_pattern(endings)}")
    return images


def examples(folder, images, class_names):
    """Returns the `Split` of a folder's `images_by_class`.

    Raises:
      ValueError: a class that is none of `class_names`.
    """
    ids = {name: i for i, name in enumerate(class_names)}
    for name in images:
        if name not in ids:
            raise ValueError(f"{os.path.join(folder, name)} is a class without training images")
    files = np.array([path for paths in images.values() for path in paths], object)
    labels = np.repeat([ids[name] for name in images], [len(paths) for paths in images.values()])
    return Split({"file": files}, labels.astype(np.int32), files)


def _visible(folder, beside=None):
    with os.scandir(folder) as entries:
        visible = [entry for entry in entries if not entry.name.startswith(".")]
    if beside is not None:
        visible = [entry for entry in visible if os.path.abspath(entry.path) != os.path.abspath(beside)]
    return sorted(visible, key=lambda entry: entry.name)


def _check_entry(entry):
    try:
        entry.path.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{entry.path!r} has a name that is not UTF-8: rename it") from error
    if entry.is_symlink() and not os.path.exists(entry.path):
        raise ValueError(f"{entry.path} is a link to nothing")


def _remedy(name):
    is_image = name.lower().endswith(FOREIGN_ENDINGS)
    return f". {os.path.splitext(name)[1]} files are not read: convert it to PNG or JPEG." if is_image else ""


def _pattern(endings):
    return ", ".join(f"*{ending}" for ending in endings)


def _split_folders(path, classes, bad_rows):
    """Returns split -> folder for those that are given; training comes first."""
    if not os.path.isdir(path):
        raise FileNotFoundError(f"no folder {path}")
    split_of = {folder: split for split, folders in SPLITS.items() for folder in folders}
    found = {}
    for entry in _visible(path, classes):
        if entry.is_dir() and entry.name in split_of:
            twin = found.setdefault(split_of[entry.name], entry.path)
            if twin != entry.path:
                raise ValueError(f"{twin} and {entry.path} are both the {split_of[entry.name]} split")
    if not found:
        return {"train": path}
    if "train" not in found:
        name = os.path.basename(next(iter(found.values())))
        raise ValueError(
            f"{path} has a folder {name!r}, so its folders are taken for splits, but none is 'train': if "
            f"{name!r} is a class, rename it"
        )
    for entry in _visible(path, classes):
        with bad_rows.row():
            _check_entry(entry)
            if entry.path not in found.values():
                raise ValueError(
                    f"{path} has a folder 'train', so its folders are taken for splits; {entry.name!r} is "
                    "none of train, validation (val, valid, dev), test: move it elsewhere, or rename 'train' "
                    "if that is a class"
                )
    return {name: found[name] for name in SPLITS if name in found}


def _class_names(folder, found, classes):
    names = found if classes is None else tuple(class_tables.class_names(classes))
    with_images, listed = set(found), set(names)
    for name in names:
        if name not in with_images:
            raise ValueError(f"{classes} lists the class {name!r}, which has no images in {folder}")
    for name in found:
        if name not in listed:
            raise ValueError(f"{os.path.join(folder, name)} is a class that {classes} does not list")
    if len(names) < 2:
        raise ValueError(f"{folder} has the class {names[0]!r} alone: there is nothing to tell apart")
    return names


def _first_copies(files):
    """Returns for each file the place of the first one with its content, `[N]`."""
    _, of_size, counts = np.unique(
        [os.path.getsize(file) for file in files], return_inverse=True, return_counts=True
    )
    first, places = np.arange(len(files)), {}
    for i in np.flatnonzero(counts[of_size] > 1):
        first[i] = places.setdefault(sources.sha256(files[i]), i)
    return first


def _apart(splits, first, bad_rows):
    """Returns split -> mask of its images that no split before it has."""
    files = np.concatenate([split.features["file"] for split in splits.values()])
    names = np.repeat(list(splits), [len(split) for split in splits.values()])
    shared = names != names[first]
    for i in np.flatnonzero(shared):
        with bad_rows.row():
            raise ValueError(f"{files[i]} is the image of {files[first[i]]}: an example belongs to one split")
    return {name: ~shared[names == name] for name in splits}
