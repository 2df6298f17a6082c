"""Static vectors of tokens, whose mean is the vector of a text."""

import os
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from rank4class import arguments, strict_json
from rank4class.models import checkpoints
from rank4class.models.encoders import base
from rank4class.models.registry import ENCODERS, Part

_SPECIAL = r"\[\w+\]|</?\w+>"  # tokens that no text yields, such as [CLS] and [unused7]
_SMOOTHING = 1e-4  # of the weights of frequent tokens


@base.serializable
@checkpoints.HUGGING_FACE.register("model2vec")
class Static(Part):
    """The mean of a vector for each token of a text, over its root mean square.

    A text costs a look-up and a sum: there is no attention, and the order of words does not count.

    Features: `input_word_ids`, `input_mask`, int `[B, length]`.

    Args:
      vocab_size: number of tokens.
      width: `d`, of their vectors.
      left_out: ids of tokens that do not count, such as that of unknown ones.

    >>> encoder = Static(vocab_size=3, width=2)
    >>> features = {"input_word_ids": tf.constant([[1, 2, 0]]), "input_mask": tf.constant([[1, 1, 0]])}
    >>> encoder(features).shape
    TensorShape([1, 2])

    References:
      Tulkens, van Dongen (2024), "Model2Vec: Fast state-of-the-art static embeddings".
    """

    FEATURES = ("input_word_ids", "input_mask")
    SAVED = ("vocab_size", "width", "left_out")
    NAME = "static"
    TOKENIZER = "WordPiece"
    SCOPE = ""
    FIRST_POSITION = 0
    HUGGING_FACE_NAMES = checkpoints.NameMap({"": ""}, parameters={"table": "embeddings"})

    def __init__(self, vocab_size: int, width: int, left_out: Sequence[int] = (), **kwargs: Any):
        super().__init__(**kwargs)
        arguments.check_integer(vocab_size=vocab_size, width=width)
        self.vocab_size = vocab_size
        self.width = width
        self.left_out = tuple(left_out)

    def build(self, shapes: Any) -> None:
        shape = [self.vocab_size, self.width]
        self.table = self.add_weight(name="table", shape=shape, initializer="glorot_uniform")
        super().build(shapes)

    def named_variables(self) -> dict[str, tf.Variable]:
        return {"table": self.table}

    def call(self, features: Mapping[str, tf.Tensor]) -> tf.Tensor:
        ids = features["input_word_ids"]
        counts = tf.cast(features["input_mask"], tf.bool)
        for each in self.left_out:
            counts &= ids != each
        vectors = tf.cast(tf.gather(self.table, ids), tf.float32)
        sums = tf.einsum("bl,bld->bd", tf.cast(counts, tf.float32), vectors)
        return self.width**0.5 * tf.math.l2_normalize(sums, axis=-1)

    def published_config(self) -> dict[str, Any]:
        """Returns the content of `config.json` in the layout of Model2Vec."""
        sizes = {"vocab_size": self.vocab_size, "hidden_dim": self.width}
        return {"model_type": "model2vec", "normalize": True, **sizes}

    @classmethod
    def settings_of_config(
        cls, path: str, config: Mapping[str, Any], shapes: Mapping[str, Collection[int]]
    ) -> dict[str, Any]:
        """Returns the arguments that a folder of Model2Vec states; its unknown token is left out."""
        vocab_size, width = shapes.get("embeddings", (1, 1))  # the import names what is missing
        newer = os.path.join(os.path.dirname(path), "tokenizer.json")
        left_out = []
        if os.path.isfile(newer):
            added = strict_json.read_object(newer).get("added_tokens", [])
            left_out = [token["id"] for token in added if re.fullmatch(_SPECIAL, token["content"])]
        return {"vocab_size": vocab_size, "width": width, "left_out": left_out}


@ENCODERS.register("static")
def static(path: str) -> Static:
    """Returns the encoder of a folder of Model2Vec, or of an export with `format="static"`."""
    return base.load(Static, path)


def distill(vectors: np.ndarray, tokens: Sequence[str], width: int = 256) -> Static:
    r"""Returns the static encoder of the vectors that another encoder has for single tokens.

    They are projected on their first principal components, and weighted by

    $$a / (a + p_r), \quad p_r \propto 1 / (r + 1), \quad a = 10^{-4},$$

    where $p_r$ is the frequency of the token of rank $r$ by Zipf's law. Vocabularies are sorted by
    frequency, so that the ranks are those of the ids. Special tokens have the vector 0.

    Args:
      vectors: float `[V, D]`, by the ids of the tokens.
      tokens: `V` tokens by their ids.
      width: `d`, the number of components; `D` if that is smaller.

    >>> tokens = ["[PAD]", "the", "car"]
    >>> table = distill(np.eye(3), tokens, width=1).table.numpy()
    >>> np.abs(table / table[2]).astype(float).round(4).tolist()
    [[0.0], [0.6667], [1.0]]

    References:
      Arora, Liang, Ma (2017), "A simple but tough-to-beat baseline for sentence embeddings", eq. 3.
    """
    width = min(width, vectors.shape[1])
    is_token = np.array([not re.fullmatch(_SPECIAL, token) for token in tokens])
    centered = vectors[is_token] - vectors[is_token].mean(axis=0)
    _, directions = np.linalg.eigh(centered.T @ centered)
    ranks = np.arange(1, len(centered) + 1)
    frequencies = 1.0 / (ranks + 1.0)
    weights = _SMOOTHING / (_SMOOTHING + frequencies / frequencies.sum())
    table = np.zeros([len(vectors), width], np.float32)
    table[is_token] = weights[:, None] * (centered @ directions[:, ::-1][:, :width])
    encoder = Static(len(table), width)
    encoder.build(None)
    encoder.table.assign(table)
    return encoder
