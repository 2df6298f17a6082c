"""Functions that turn examples and descriptions of classes into features."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from rank4class import data, models
from rank4class.models import checkpoints
from rank4class.pipelines import config


def build_preprocess(
    data_config: config.Data, encoder_config: config.Encoder, dataset: data.Dataset
) -> Callable | None:
    """Returns the function that preprocesses the features of a batch, or None if there is none.

    Raises:
      ValueError: a dataset of texts without a text encoder.
      FileNotFoundError: the encoder's folder has no checkpoint.
    """
    features = dataset.splits["train"].features
    if "file" in features:
        return data.DecodeAndCrop(data_config.image_size)
    if not features.keys().isdisjoint({"embedding", "id", "items"}):
        return None
    if "text" not in features:
        return data.Rescale() if "image" in features and features["image"].dtype == np.uint8 else None
    if not encoder_config.path:
        raise ValueError(
            f"encoder.path=None: dataset {data_config.name!r} holds texts. Set it to the folder of a text "
            "encoder."
        )
    return _tokenizer(encoder_config.path, data_config.max_length)


def build_augment(
    data_config: config.Data, dataset: data.Dataset, preprocess: Callable | None
) -> Callable | None:
    """Returns the function of the features and seeds of a training batch, or None without augmentation.

    Args:
      data_config: the dataset's configuration.
      dataset: the dataset.
      preprocess: from `build_preprocess`.

    Raises:
      ValueError: the augmentation does not fit the dataset.
    """
    name = data_config.augmentation
    if name == "none":
        return None
    features = dataset.splits["train"].features
    if "image" not in features and "file" not in features:
        raise ValueError(
            f"data.augmentation={name!r}: dataset {data_config.name!r} has no images. Set it to 'none'."
        )
    if name == "random_crop":
        if "file" not in features:
            raise ValueError(
                "data.augmentation='random_crop': it needs images that are read from files. Choose "
                "'affine_flip'."
            )
        if data_config.cache:
            raise ValueError(
                "data.cache=True: the cache keeps no whole images, which data.augmentation='random_crop' "
                "needs. Set it to False."
            )
        return data.DecodeAndRandomCrop(data_config.image_size)
    augment = data.AUGMENTATIONS[name]
    assert augment is not None
    return augment if preprocess is None else lambda features, seeds: augment(preprocess(features), seeds)


def _tokenizer(path: str, max_length: int) -> data.WordPiece:
    checkpoint = checkpoints.find(path)
    max_positions = checkpoint.settings.get("max_positions", max_length)
    if max_length > max_positions:
        raise ValueError(
            f"data.max_length={max_length}: the encoder of {path} has {max_positions} positions. Lower it."
        )
    return data.WordPiece.from_folder(checkpoint.folder, max_length)


def class_text_fields(
    class_encoder: config.ClassEncoder,
    encoder_config: config.Encoder,
    max_length: int,
    class_names: Sequence[str],
) -> dict[str, Any]:
    """Returns the fields of a `Task` for the descriptions of the classes, as the class encoder needs them.

    Raises:
      ValueError: there is no text encoder, or the descriptions do not fit the classes.
      FileNotFoundError: the text encoder or the file of descriptions is missing.
    """
    known = models.CLASS_ENCODERS.option_names(class_encoder.name)
    if not {"features", "vectors"} & set(known):
        return {}
    texts = class_names
    if class_encoder.texts:
        texts = data.class_descriptions(class_encoder.texts, class_names)
    path = class_encoder.path or encoder_config.path
    if not path:
        field = "encoder.path" if class_encoder.name == "text" else "class_encoder.path"
        raise ValueError(
            f"{field}=None: class encoder {class_encoder.name!r} needs a text encoder. Set it to its folder."
        )
    tokens = _tokenizer(path, max_length)({"text": tf.constant(texts)})
    _warn_of_equal_texts(class_names, tokens["input_word_ids"].numpy())
    longest = int(tf.reduce_max(tf.reduce_sum(tokens["input_mask"], axis=1)))
    features = {name: value[:, :longest] for name, value in tokens.items()}
    fields: dict[str, Any] = {"class_texts": tuple(texts)}
    if "features" in known:
        lists = {name: value.numpy().tolist() for name, value in features.items()}
        return {**fields, "class_features": lists}
    options = {"pooling": "mean"} if class_encoder.path else encoder_config.options()
    encoder = models.get("encoder", checkpoints.find(path).encoder, **{**options, "path": path})
    return {**fields, "class_vectors": encoder(features, training=False).numpy()}


def _warn_of_equal_texts(class_names: Sequence[str], token_ids: np.ndarray) -> None:
    names_by_tokens: dict[bytes, list[str]] = {}
    for name, tokens in zip(class_names, token_ids, strict=True):
        names_by_tokens.setdefault(tokens.tobytes(), []).append(name)
    for first, *others in names_by_tokens.values():
        if others:
            logging.warning("same tokens for the descriptions of %s", ", ".join([first, *others]))
