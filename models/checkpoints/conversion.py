"""Conversion of published encoder checkpoints to the project's format."""

import json
import os
import shutil
from typing import Any

import numpy as np
import safetensors.numpy
import tensorflow as tf

from rank4class.models.checkpoints import formats
from rank4class.models.registry import ENCODERS


def convert(path: str | os.PathLike, folder: str | os.PathLike) -> tuple[str, int]:
    """Reads an encoder's checkpoint of any known format and writes it in the project's format.

    The written folder is read again and compared.

    Args:
      path: see `find`.
      folder: see `save`.

    Returns:
      The description of the checkpoint's format and the number of its weights.

    Raises:
      FileNotFoundError, FileExistsError, ValueError: the checkpoint cannot be read, or written there.
      OSError: the written weights differ from those that were read.
    """
    checkpoint = formats.find(path)
    variables = ENCODERS.build(checkpoint.encoder, path=path).named_variables()
    save(
        folder,
        encoder=checkpoint.encoder,
        settings=checkpoint.settings,
        variables=variables,
        vocabulary_folder=checkpoint.folder,
    )
    written = ENCODERS.build(checkpoint.encoder, path=folder).named_variables()
    for name, variable in variables.items():
        if not np.array_equal(variable, written[name]):
            raise OSError(f"{folder}: {name} differs from the value written. Check the disk.")
    return checkpoint.format, sum(int(np.prod(variable.shape)) for variable in variables.values())


def save(
    folder: str | os.PathLike,
    *,
    encoder: str,
    settings: dict[str, Any],
    variables: dict[str, tf.Variable],
    vocabulary_folder: str | None = None,
) -> None:
    """Writes an encoder in the project's format: `encoder.json`, `model.safetensors`, and its vocabulary.

    Args:
      folder: is created if missing; must be empty. It appears whole or not at all.
      encoder: name of the encoder in `registry.ENCODERS`.
      settings: the arguments that it is built with.
      variables: our name -> variable.
      vocabulary_folder: folder with the tokenizer's files.

    Raises:
      FileExistsError: the folder is not empty.
    """
    folder = os.path.normpath(folder)
    if os.path.isdir(folder) and os.listdir(folder):
        raise FileExistsError(f"{folder}: not empty. Choose another folder.")
    partial = f"{folder}.partial-{os.getpid()}"
    os.makedirs(partial)
    tensors = {name: variable.numpy() for name, variable in variables.items()}
    safetensors.numpy.save_file(tensors, os.path.join(partial, formats.TENSORS_FILE))
    for name in ("vocab.txt", "tokenizer_config.json"):
        if vocabulary_folder and os.path.isfile(os.path.join(vocabulary_folder, name)):
            shutil.copyfile(os.path.join(vocabulary_folder, name), os.path.join(partial, name))
    with open(os.path.join(partial, formats.CONVERTED_FILE), "w", encoding="utf-8") as file:
        json.dump({"encoder": encoder, "settings": settings}, file, indent=2)
    os.replace(partial, folder)
