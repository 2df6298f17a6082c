"""ImageNet: as folders, as its published archives, or as records."""

import os
import re
import tarfile

import numpy as np
import tensorflow as tf
from google.protobuf import json_format

from rank4class.data import records, sources
from rank4class.data.dataset import Dataset, Split
from rank4class.data.image_folder import examples, images_by_class
from rank4class.data.registry import DATASETS

TRAIN_TAR, VALIDATION_TAR = "ILSVRC2012_img_train.tar", "ILSVRC2012_img_val.tar"


@DATASETS.register("imagenet")
def imagenet(path=None, tfds_dir=None, on_invalid_row="fail"):
    """ImageNet, or images in one of its layouts.

    There is no labelled test split: validation and test are both the images published for validation,
    so a choice by the validation metric has seen the reported images. The paper does the same.

    Args:
      path: folder with one of
        - `train/<synset>/*.JPEG` and `val/<synset>/*.JPEG` (or `validation/`). The classes are the
          folders of `train`, sorted; other files are passed over.
        - `ILSVRC2012_img_train.tar` and `ILSVRC2012_img_val.tar` as published. TensorFlow Datasets
          prepares them, once: that takes as much space again, twice while it is at it.
        - records that TensorFlow Datasets has prepared (`dataset_info.json` among them), or the Model
          Garden's (`train-00000-of-01024` ..., `validation-00000-of-00128` ...). They may lie in object
          storage. They are read once for an index, which is kept in `tfds_dir` or else beside them.
      tfds_dir: folder of what TensorFlow Datasets has prepared; None takes its own.
      on_invalid_row: "fail" or "skip": what becomes of images that cannot be read, as they are read.

    Returns:
      A `Dataset` with the feature `file`, strings `[N]`: the paths of the images; or, of records, of the
      TFRecord files, with `offset` int64 `[N]`, where a record starts.

    Raises:
      FileNotFoundError: a file or folder is missing.
      ValueError: no path; a class without an image; a class in `val` that `train` does not have; a file
        is truncated or damaged, the message names it.
    """
    if not path:
        raise ValueError(f"ImageNet is not downloaded: set data.path to a folder with {LAYOUTS}")
    sources.BadRows(on_invalid_row)  # raises for an unknown policy
    names = set(tf.io.gfile.listdir(path)) if tf.io.gfile.isdir(path) else set()
    if "dataset_info.json" in names:
        return _from_tfds(path, tfds_dir or path)
    if any(re.fullmatch(r"train-\d{5}-of-\d{5}", name) for name in names):
        return _from_model_garden(path, names, tfds_dir or path)
    if TRAIN_TAR in names or VALIDATION_TAR in names:
        prepared = _prepared(path, tfds_dir)
        return _from_tfds(prepared, tfds_dir or prepared)
    if os.path.isdir(os.path.join(path, "train")):
        return _from_folders(path)
    raise FileNotFoundError(f"{path} is no folder with {LAYOUTS}")


LAYOUTS = f"train/ and val/, with {TRAIN_TAR} and {VALIDATION_TAR}, or with records"


def _dataset(class_names, train, validation):
    return Dataset(class_names, {"train": train, "validation": validation, "test": validation})


def _from_folders(path):
    train, validation = os.path.join(path, "train"), os.path.join(path, "val")
    if not os.path.isdir(validation):
        validation = os.path.join(path, "validation")
    if not os.path.isdir(validation):
        raise FileNotFoundError(f"no folder {os.path.join(path, 'val')} or {validation}")
    others = sources.BadRows("skip")  # passed over in ImageNet's folders: lists of synsets, say
    images = {folder: images_by_class(folder, (".jpeg",), others) for folder in (train, validation)}
    class_names = tuple(images[train])
    return _dataset(
        class_names,
        examples(train, images[train], class_names),
        examples(validation, images[validation], class_names),
    )


def _prepared(path, tfds_dir):
    """Returns the folder of the records that TensorFlow Datasets makes of the published archives."""
    import tensorflow_datasets as tfds  # slow to import, and not needed for folders

    builder = tfds.builder("imagenet2012", data_dir=tfds_dir, try_gcs=False)
    if not builder.is_prepared():
        train, validation = os.path.join(path, TRAIN_TAR), os.path.join(path, VALIDATION_TAR)
        _check_train_names(train, builder.info.features["label"].names)
        _check_validation_names(validation)
        config = tfds.download.DownloadConfig(manual_dir=path, try_download_gcs=False)
        try:
            builder.download_and_prepare(download_config=config)
        except tarfile.TarError as error:
            raise ValueError(f"an archive in {train} is damaged: {error}") from error
    return str(builder.data_dir)


def _check_train_names(path, synsets):
    unknown = sorted(set(_names_in_archive(path)) - {f"{synset}.tar" for synset in synsets})
    if unknown:
        raise ValueError(f"{path} is not as published: it holds {unknown[0]}, which is no synset's archive")


def _check_validation_names(path):
    # TensorFlow Datasets gives a published list of labels to the names in their order: one name too many,
    # or too few, would shift the labels of all that follow.
    for i, name in enumerate(sorted(_names_in_archive(path)), 1):
        expected = f"ILSVRC2012_val_{i:08}.JPEG"
        if name != expected:
            raise ValueError(f"{path} is not as published: it holds {name} where {expected} belongs")


def _names_in_archive(path):
    if not tf.io.gfile.exists(path):
        raise FileNotFoundError(f"no file {path}")
    with tf.io.gfile.GFile(path, "rb") as file:
        file.seek(max(0, file.size() - 1024))
        if file.read() != bytes(1024):
            raise ValueError(f"{path} is truncated, archives end in zeros: download it again")
        file.seek(0)
        try:
            with tarfile.open(fileobj=file, mode="r:") as archive:
                return archive.getnames()
        except tarfile.TarError as error:
            raise ValueError(f"{path} is damaged, download it again: {error}") from error


def _from_tfds(path, index_folder):
    info, paths_of = _prepared_files(path)
    splits = []
    for name in ("train", "validation"):
        if not paths_of.get(name):
            there = ", ".join(split for split, paths in paths_of.items() if paths) or "no split"
            raise ValueError(f"{path} has no records of {name}, but of {there}")
        paths = paths_of[name]
        found = records.index(paths, {"label": tf.io.FixedLenFeature([], tf.int64)}, index_folder)
        counts = np.bincount(found["shard"])
        for file, count, stated in zip(paths, counts, info.splits[name].shard_lengths, strict=True):
            if count != stated:
                raise ValueError(f"{file} is truncated: it has {count} of {stated} records")
        splits.append(_split(paths, found, found["label"]))
    return _dataset(tuple(info.features["label"].names), *splits)


def _prepared_files(path):
    """Returns what TensorFlow Datasets says of a folder, and split -> paths of its files."""
    import tensorflow_datasets as tfds  # slow to import, and not needed for folders

    try:
        info = tfds.builder_from_directory(path).info
        return info, {name: [str(file) for file in split.filepaths] for name, split in info.splits.items()}
    except (ValueError, json_format.ParseError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise ValueError(
            f"{os.path.join(path, 'dataset_info.json')}, or features.json beside it, is broken: {reason}; "
            "copy it again, or prepare the records anew"
        ) from error


def _from_model_garden(path, names, index_folder):
    fields = {
        "image/class/label": tf.io.FixedLenFeature([], tf.int64),
        "image/class/synset": tf.io.FixedLenFeature([], tf.string),
    }
    splits, synsets = [], []
    for paths in [_shards(path, name, names) for name in ("train", "validation")]:
        found = records.index(paths, fields, index_folder)
        splits.append(_split(paths, found, found["image/class/label"] - 1))  # theirs begin with 1
        synsets.append(found["image/class/synset"])
    return _dataset(_class_names(splits, np.concatenate(synsets)), *splits)


def _shards(path, name, names):
    """Returns the paths of a split's files, as many as their names count."""
    totals = sorted({found[-5:] for found in names if re.fullmatch(rf"{name}-\d{{5}}-of-\d{{5}}", found)})
    if len(totals) != 1:
        raise FileNotFoundError(
            f"{path} has files {name}-*-of-* of {len(totals)} sets, not one: {', '.join(totals) or 'none'}"
        )
    return [os.path.join(path, f"{name}-{i:05}-of-{totals[0]}") for i in range(int(totals[0]))]


def _class_names(splits, synsets):
    labels = np.concatenate([split.labels for split in splits])
    origins = np.concatenate([split.origins for split in splits])
    ids, first, id_of = np.unique(labels, return_index=True, return_inverse=True)
    if ids[0] < 0:
        raise ValueError(f"{origins[first[0]]} has the class {ids[0] + 1}, but the first is 1")
    if ids[-1] >= len(ids):
        gap = next(i for i, label in enumerate(ids) if i != label)
        raise ValueError(f"{origins[first[gap]]} has the class {ids[gap] + 1}, but none has {gap + 1}")
    for i in np.unique(synsets, return_index=True)[1]:
        try:
            synsets[i].decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"{origins[i]} has the synset {synsets[i]!r}, which is not UTF-8") from error
    differ = np.flatnonzero(synsets != synsets[first][id_of])
    if len(differ):
        i, j = first[id_of[differ[0]]], differ[0]
        raise ValueError(
            f"{origins[j]} calls the class {labels[j] + 1} {synsets[j].decode()}, but {origins[i]} calls it "
            f"{synsets[i].decode()}"
        )
    return tuple(synset.decode() for synset in synsets[first])


def _split(paths, found, labels):
    files = np.array(paths, object)[found["shard"]]
    origins = [f"{file} record {number}" for file, number in zip(files, found["number"], strict=True)]
    features = {"file": files, "offset": found["offset"]}
    return Split(features, labels.astype(np.int32), np.array(origins, object))
