"""Export of a run's text encoder: in Hugging Face's layout, or as static vectors of tokens."""

import os
from typing import Any

import numpy as np
import tensorflow as tf

from rank4class import models
from rank4class.models import checkpoints
from rank4class.models.encoders import static
from rank4class.pipelines.evaluation.trained_model import TrainedModel
from rank4class.pipelines.storage import files
from rank4class.progress import Progress

_TOKENS = 512  # that are encoded at a time


def save(trained: TrainedModel, folder: str | os.PathLike, format: str) -> None:
    """Writes the encoder of a run, fine-tuned or frozen, with its tokenizer; the files appear all or none.

    Args:
      trained: the model of the run.
      folder: of the files.
      format: "huggingface", or "static" for static vectors that imitate the encoder, see
        `models.encoders.static.distill`, in the layout of Model2Vec.

    Raises:
      ValueError: the encoder is none of `checkpoints.HUGGING_FACE`, or does not fit the layout; or, for
        static vectors, its tokens are no word pieces.
    """
    inputs = trained.description.inputs
    name = trained.experiment.encoder.name
    known = [checkpoints.HUGGING_FACE[kind].NAME for kind in checkpoints.HUGGING_FACE]
    if name not in known:
        names = " or ".join(map(repr, known))
        raise ValueError(f"format={format!r}: the encoder {name!r} is not {names}. Set it to 'saved_model'.")
    encoder = inputs.encoder or trained.model.encoder
    tokenizer = inputs.preprocess
    if format == "static":
        encoder = _distilled(encoder, tokenizer)
    contents = checkpoints.hugging_face_files(encoder, tokenizer.special.padding) | tokenizer.assets
    with files.new_folder(folder) as partial:
        for name, content in contents.items():
            files.write(os.path.join(partial, name), content)


def _distilled(encoder: tf.keras.layers.Layer, tokenizer: Any) -> models.encoders.Static:
    """Returns static vectors of the tokens, by their outputs of an encoder."""
    if encoder.TOKENIZER != "WordPiece":
        raise ValueError(
            f"format='static': needs a tokenizer WordPiece, not {encoder.TOKENIZER}. Choose another encoder."
        )
    vocab = tokenizer.settings["vocab"]
    encode = tf.function(encoder, autograph=False, reduce_retracing=True)
    vectors = []
    shown = Progress("encoding tokens", "token", len(vocab))
    for start in shown.over(range(0, len(vocab), _TOKENS), _TOKENS):
        ids = tf.range(start, min(start + _TOKENS, len(vocab)))[:, None]
        around = tf.ones_like(ids)
        ids = tf.concat([tokenizer.special.start * around, ids, tokenizer.special.end * around], axis=1)
        ones = tf.ones_like(ids)
        features = {"input_word_ids": ids, "input_mask": ones, "input_type_ids": 0 * ones}
        vectors.append(encode(features, training=False))
    return static.distill(np.concatenate(vectors), vocab)
