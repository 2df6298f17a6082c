"""How examples and class texts become features."""

import numpy as np
import tensorflow as tf
from absl import logging

from rank4class import data, models
from rank4class.models import checkpoints


def augment_of(experiment, dataset):
    """Returns the function of a training batch's features and seeds, or None."""
    name = experiment.data.augmentation
    if name == "none":
        return None
    features = dataset.splits["train"].features
    if "image" not in features and "file" not in features:
        raise ValueError(
            f"data.augmentation {name!r} is for images; dataset {experiment.data.name!r} has none"
        )
    if name == "random_crop":
        if "file" not in features:
            raise ValueError("data.augmentation 'random_crop' is for images that come as files")
        if experiment.data.cache:
            raise ValueError("data.cache keeps no whole images, which data.augmentation 'random_crop' needs")
        return data.DecodeAndRandomCrop(experiment.data.image_size)
    preprocess, augment = preprocess_of(experiment, dataset), data.AUGMENTATIONS[name]
    return augment if preprocess is None else lambda features, seeds: augment(preprocess(features), seeds)


def preprocess_of(experiment, dataset):
    """Returns the function of a batch's features, or None."""
    features = dataset.splits["train"].features
    if "file" in features:
        return data.DecodeAndCrop(experiment.data.image_size)
    if not features.keys().isdisjoint({"embedding", "id", "items"}):
        return None
    if "text" not in features:
        return data.Rescale() if features["image"].dtype == np.uint8 else None
    if not experiment.encoder.path:
        raise ValueError(
            f"dataset {experiment.data.name!r} holds text: set encoder.path to the folder of a text encoder"
        )
    return _tokenizer(experiment.encoder.path, experiment.data.max_length)


def _tokenizer(path, max_length):
    return data.WordPiece(checkpoints.find(path).folder, max_length)


def class_texts(experiment, class_names):
    """Returns the fields of a `Task` that hold the classes' texts, as its class encoder takes them."""
    section = experiment.class_encoder
    if section.name == "embedding":
        return {}
    texts = data.class_descriptions(section.texts, class_names) if section.texts else class_names
    path = section.path or experiment.encoder.path
    if not path:
        remedy = "encoder.path" if section.name == "text" else "class_encoder.path"
        raise ValueError(
            f"class_encoder.name {section.name!r} needs a text encoder: set {remedy} to its folder"
        )
    tokens = _tokenizer(path, experiment.data.max_length)({"text": tf.constant(texts)})
    _warn_of_equal_texts(class_names, tokens["input_word_ids"].numpy())
    longest = int(tf.reduce_max(tf.reduce_sum(tokens["input_mask"], axis=1)))
    features = {name: value[:, :longest] for name, value in tokens.items()}
    fields = {"class_texts": tuple(texts)}
    if section.name == "text":
        lists = {name: value.numpy().tolist() for name, value in features.items()}
        return {**fields, "class_features": lists}
    options = {"pooling": "mean"} if section.path else experiment.encoder.options()
    encoder = models.get("encoder", checkpoints.find(path).encoder, **{**options, "path": path})
    return {**fields, "class_vectors": encoder(features, training=False).numpy()}


def _warn_of_equal_texts(class_names, ids):
    names_of = {}
    for name, tokens in zip(class_names, ids, strict=True):
        names_of.setdefault(tokens.tobytes(), []).append(name)
    for first, *others in names_of.values():
        if others:
            logging.warning(
                "the texts of %s come out as the same tokens as that of %s", ", ".join(others), first
            )
