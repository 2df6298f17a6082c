"""Functions that turn examples and descriptions of classes into features."""

import dataclasses
from collections.abc import Callable

import numpy as np

from rank4class import data
from rank4class.models import checkpoints
from rank4class.pipelines import config
from rank4class.pipelines.task.inputs import Inputs

_BLOCK = 4096  # texts that are tokenized at a time


def build_inputs(data_config: config.Data, encoder_config: config.Encoder, train: data.Split) -> Inputs:
    """Returns the inputs of a new model for a training split; see `build_preprocess`."""
    return Inputs(train.kind.specs(train.features), build_preprocess(data_config, encoder_config, train))


def build_preprocess(
    data_config: config.Data, encoder_config: config.Encoder, train: data.Split
) -> Callable | None:
    """Returns the function that preprocesses the features of a batch, or None if there is none.

    Raises:
      ValueError: texts without a text encoder.
      FileNotFoundError: the encoder's folder has no checkpoint.
    """

    def tokenizer_of_encoder() -> data.WordPiece:
        if not encoder_config.path:
            raise ValueError(
                f"encoder.path=None: dataset {data_config.name!r} holds texts. Set it to the folder of a "
                "text encoder."
            )
        return tokenizer(encoder_config.path, data_config.max_length)

    return train.kind.preprocess(train.features, data_config.image_size, tokenizer_of_encoder)


def build_augment(
    data_config: config.Data, train: data.Split, preprocess: Callable | None
) -> Callable | None:
    """Returns the function of the features and seeds of a training batch, or None without augmentation.

    Args:
      data_config: the dataset's configuration.
      train: its training split.
      preprocess: from `build_preprocess`.

    Raises:
      ValueError: the augmentation does not fit the dataset.
    """
    name = data_config.augmentation
    if name == "none":
        return None
    if name == "random_crop" and data_config.cache:
        raise ValueError(
            "data.cache=True: the cache keeps no whole images, which data.augmentation='random_crop' needs. "
            "Set it to False."
        )
    return train.kind.augment(name, data_config.image_size, preprocess)


def tokenizer(path: str, max_length: int) -> data.WordPiece:
    """Returns the tokenizer of an encoder; raises ValueError if it has fewer than `max_length` positions."""
    checkpoint = checkpoints.find(path)
    max_positions = checkpoint.settings.get("max_positions", max_length)
    if max_length > max_positions:
        raise ValueError(
            f"data.max_length={max_length}: the encoder of {path} has {max_positions} positions. Lower it."
        )
    return data.WordPiece.from_folder(checkpoint.folder, max_length)


def with_lengths(split: data.Split, tokenizer: data.WordPiece) -> data.Split:
    """Returns a split of texts with their padded lengths, by which batches are grouped."""
    lengths = [
        tokenizer.padded_lengths({name: texts[i : i + _BLOCK] for name, texts in split.features.items()})
        for i in range(0, len(split), _BLOCK)
    ]
    return dataclasses.replace(split, lengths=np.concatenate(lengths))
