"""MPNet: BERT's layers, with a bias of the distance of two tokens in the scores of attention."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from rank4class.models import checkpoints, precision
from rank4class.models.encoders import base, bert
from rank4class.models.registry import ENCODERS

_BUCKETS = 32  # of distances, half of them for tokens after the query
_EXACT = 8  # distances with buckets of their own, on each side; those of the others grow
_MOST_DISTANT = 128  # tokens; all that are farther share a bucket
_LAYER = r"layer_(\d+)"
_OF_ATTENTION = {
    f"{_LAYER}/self_attention/(q|k|v)[a-z]*": r"encoder/layer_\1/attention/attn/\2",
    f"{_LAYER}/self_attention/attention_output": r"encoder/layer_\1/attention/attn/o",
    f"{_LAYER}/self_attention_layer_norm": r"encoder/layer_\1/attention/LayerNorm",
    "relative_attention_bias": "encoder/relative_attention_bias",
}


class Attention(tf.keras.layers.Layer):
    """Attention of several heads, whose scores have a summand of their own: `attention_mask`."""

    def __init__(self, num_heads: int, key_dim: int, dropout: float, **kwargs: Any):
        super().__init__(**kwargs)
        self._num_heads = num_heads
        width = num_heads * key_dim
        self.query, self.key, self.value = (bert.dense(width, name) for name in ("query", "key", "value"))
        self.outer = bert.dense(width, "attention_output")
        self.drop = tf.keras.layers.Dropout(dropout)

    def call(
        self,
        queries: tf.Tensor,
        values: tf.Tensor,
        attention_mask: tf.Tensor,
        training: bool | None = None,
    ) -> tf.Tensor:
        """Returns `[B, length, width]`; `attention_mask` is float32 `[B, heads, length, length]`."""
        query = self._heads(self.query(queries))
        key = self._heads(self.key(values))
        value = self.value(values)
        scores = tf.matmul(query, key, transpose_b=True) / math.sqrt(query.shape[-1])
        weights = tf.nn.softmax(tf.cast(scores, tf.float32) + attention_mask)
        weights = self.drop(tf.cast(weights, value.dtype), training=training)
        attended = tf.transpose(tf.matmul(weights, self._heads(value)), [0, 2, 1, 3])
        return self.outer(tf.reshape(attended, tf.shape(value)))

    def _heads(self, states: tf.Tensor) -> tf.Tensor:
        """Returns states `[B, length, width]` by head, `[B, heads, length, width / heads]`."""
        shape = tf.shape(states)
        by_head = [shape[0], shape[1], self._num_heads, states.shape[-1] // self._num_heads]
        return tf.transpose(tf.reshape(states, by_head), [0, 2, 1, 3])


@base.serializable
@checkpoints.HUGGING_FACE.register("mpnet")
class Mpnet(bert.Bert):
    """MPNet, whose layers share a table of biases for the distances of tokens.

    Features and arguments are the same as for `Bert`, without `num_types`.

    References:
      Song, Tan, Qin, Lu, Liu (2020), "MPNet: Masked and permuted pre-training for language understanding".
      Raffel et al. (2020), "Exploring the limits of transfer learning with a unified text-to-text
      transformer", section 2.1, of the buckets.
    """

    NAME = "mpnet"
    ARCHITECTURE = "MPNetModel"
    SCOPE = "mpnet"
    CONFIG_FIELDS: Mapping[str, str] = {
        ours: field for ours, field in bert.Bert.CONFIG_FIELDS.items() if ours != "num_types"
    }
    # The first pattern that matches counts.
    HUGGING_FACE_NAMES = bert.hugging_face_names(_OF_ATTENTION | bert.GOOGLE_MODULES | _OF_ATTENTION)
    EPSILON = 1e-5
    FIRST_POSITION = 2
    ATTENTION = Attention

    def __init__(self, vocab_size: int, *, num_types: int = 0, **kwargs: Any):
        super().__init__(vocab_size, num_types=num_types, **kwargs)
        with precision.scope(self.dtype_policy.name):
            self.biases = bert.table(_BUCKETS, self.config["num_heads"], "relative_attention_bias")

    def buckets(self) -> np.ndarray:
        """Returns the bucket of each key of each query, by their positions, int `[length, length]`."""
        positions = np.arange(self.config["max_positions"])
        return _buckets(positions - positions[:, None]).astype(np.int32)

    def attended(self, mask: tf.Tensor) -> tf.Tensor:
        """Returns the summands of the scores: biases of distances, and a large negative one of padding."""
        length = tf.shape(mask)[1]
        biases = self.biases(tf.constant(self.buckets())[:length, :length])
        padding = 1.0 - tf.cast(mask, tf.float32)[:, None, None, :]
        return tf.cast(tf.transpose(biases, [2, 0, 1]), tf.float32) - 1e9 * padding


def _buckets(distances: np.ndarray) -> np.ndarray:
    """Returns the bucket of each distance of a key from its query.

    >>> _buckets(np.array([-1, 0, 1, 7, 8, 20, 500]))
    array([ 1,  0, 17, 23, 24, 26, 31])
    """
    half = _BUCKETS // 2
    lengths = np.abs(distances)
    ratios = np.maximum(lengths, _EXACT).astype(np.float32) / _EXACT
    ranges = np.log(ratios) / math.log(_MOST_DISTANT / _EXACT) * (half - _EXACT)
    within = np.where(lengths < _EXACT, lengths, _EXACT + ranges.astype(np.int32))
    return np.minimum(within, half - 1) + half * (distances > 0)


@ENCODERS.register("mpnet")
def mpnet(path: str, dropout: float = 0.1, output_dropout: float = 0.0, pooling: str | None = None) -> Mpnet:
    """Returns the MPNet encoder of a checkpoint, with its weights; see `bert`."""
    return base.load(Mpnet, path, dropout=dropout, output_dropout=output_dropout, pooling=pooling)
