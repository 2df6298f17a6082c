"""Functions that turn examples and descriptions of classes into features."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from rank4class import data
from rank4class.models import checkpoints
from rank4class.pipelines import config

_BLOCK = 4096  # texts that are tokenized at a time


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


def class_texts(
    class_encoder: config.ClassEncoder,
    encoder_config: config.Encoder,
    max_length: int,
    class_names: Sequence[str],
) -> tuple[tuple[str, ...], dict[str, np.ndarray]]:
    """Returns the descriptions of the classes, and their features for a text encoder, int32 `[n, length]`.

    Raises:
      ValueError: there is no text encoder, or the descriptions do not fit the classes.
      FileNotFoundError: the text encoder or the file of descriptions is missing.
    """
    texts = class_names
    if class_encoder.texts:
        texts = data.class_descriptions(class_encoder.texts, class_names)
    path = class_encoder.path or encoder_config.path
    if not path:
        field = "class_encoder.path" if "path" in class_encoder.fields else "encoder.path"
        raise ValueError(
            f"{field}=None: class encoder {class_encoder.name!r} needs a text encoder. Set it to its folder."
        )
    tokenize = tokenizer(path, max_length).with_static_length()
    blocks = [tokenize({"text": tf.constant(texts[i : i + _BLOCK])}) for i in range(0, len(texts), _BLOCK)]
    tokens = {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
    _warn_of_equal_texts(class_names, tokens["input_word_ids"])
    longest = tokens["input_mask"].sum(axis=1).max()
    return tuple(texts), {name: values[:, :longest] for name, values in tokens.items()}


def _warn_of_equal_texts(class_names: Sequence[str], token_ids: np.ndarray) -> None:
    names_by_tokens: dict[bytes, list[str]] = {}
    for name, tokens in zip(class_names, token_ids, strict=True):
        names_by_tokens.setdefault(tokens.tobytes(), []).append(name)
    for first, *others in names_by_tokens.values():
        if others:
            logging.warning("same tokens for the descriptions of %s", ", ".join([first, *others]))
