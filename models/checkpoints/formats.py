"""Recognition of the formats of published checkpoints: functions that `find` tries in turn."""

import os
import re

import h5py
import numpy as np
import tensorflow as tf

from rank4class import compat
from rank4class.models.checkpoints import hugging_face
from rank4class.models.checkpoints.checkpoint import (
    FORMATS,
    TENSOR_FORMATS,
    Checkpoint,
    Tensors,
    read_tensorflow,
)


def find(path: str | os.PathLike) -> Checkpoint:
    """Returns the checkpoint at a path, in whichever known format.

    Args:
      path: a Hugging Face folder (a text encoder, `model.safetensors`); a google-research folder (BERT or
        ELECTRA, a TF1 checkpoint); a Model Garden checkpoint (BERT encoder or ResNet backbone, TF2);
        Keras's file of ResNet50 weights, or of the VGG16 weights for CIFAR of github.com/geifmany/cifar-vgg
        (`.h5`); PyTorch's file of EfficientNet-Lite0 (`.pth`). A TensorFlow checkpoint is its folder or its
        prefix, the name without `.index`; those of images may be in object storage.

    Raises:
      FileNotFoundError: nothing is there, or a file is missing.
      ValueError: it is of no known format, or its parts do not fit one another.
    """
    path = os.fspath(path)
    if os.path.basename(path) in (hugging_face.TENSORS_FILE, "config.json") and os.path.isfile(path):
        path = os.path.dirname(path) or "."
    path = re.sub(r"\.(index|data-\d+-of-\d+)$", "", path)
    for name in FORMATS:
        checkpoint = FORMATS[name](path)
        if checkpoint is not None:
            return checkpoint
    known = "; ".join(FORMATS)
    if not os.path.exists(path):
        raise FileNotFoundError(
            f"{path}: no such file or folder, and nothing is downloaded. Download the checkpoint yourself "
            f"and give its path: {known}."
        )
    raise ValueError(f"{path}: no checkpoint of a known format. Give the path of one: {known}.")


@FORMATS.register("a TensorFlow checkpoint (*.index)")
def _tensorflow(path: str) -> Checkpoint | None:
    prefix = _prefix(path)
    if prefix is None:
        return None
    return of_scope(read_tensorflow(prefix))


def of_scope(tensors: Tensors) -> Checkpoint:
    """Returns the checkpoint of tensors, by the scope of their names."""
    scopes = {name.partition("/")[0] for name in tensors.shapes}
    for scope in TENSOR_FORMATS:
        if scope in scopes:
            return TENSOR_FORMATS[scope](tensors)
    raise ValueError(
        f"{tensors.path}: not a checkpoint of an encoder, as its tensors are in none of the scopes "
        f"{', '.join(TENSOR_FORMATS)}. Choose another checkpoint."
    )


def _prefix(path: str) -> str | None:
    """Returns the prefix of the TensorFlow checkpoint that a path names, also in object storage, or None."""
    try:
        if tf.io.gfile.exists(path + ".index"):
            return path
        if latest := tf.train.latest_checkpoint(path):
            return latest
        files = sorted(tf.io.gfile.listdir(path)) if tf.io.gfile.isdir(path) else []
    except tf.errors.UnimplementedError:  # a scheme that TensorFlow does not read, such as hf://
        return None
    except tf.errors.OpError as error:
        raise OSError(f"{path}: {compat.reason(error)}") from error
    names = [f.removesuffix(".index") for f in files if f.endswith(".index") and not f.startswith(".")]
    prefixes = [os.path.join(path, name) for name in names]
    if len(prefixes) > 1:
        raise ValueError(f"{path}: several checkpoints. Give the path of one: {', '.join(prefixes)}.")
    return prefixes[0] if prefixes else None


@FORMATS.register("Keras's ResNet50 or CIFAR VGG16 weights (.h5)")
def _keras_weights(path: str) -> Checkpoint | None:
    if not os.path.isfile(path) or not h5py.is_hdf5(path):
        return None
    try:
        with h5py.File(path) as file:
            values = {
                (name.decode() if isinstance(name, bytes) else name).removesuffix(":0"): np.array(layer[name])
                for layer in file.get("model_weights", file).values()
                for name in layer.attrs.get("weight_names", ())
                if name in layer
            }
    except OSError as error:
        raise ValueError(f"{path}: not a complete HDF5 file: {error}. Download it again.") from error
    return of_scope(Tensors(path, {name: value.shape for name, value in values.items()}, values.__getitem__))
