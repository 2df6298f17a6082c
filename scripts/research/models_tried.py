r"""Parts of models that start as the plain classifier, to be measured before any of them joins the library.

    python -m rank4class train --import=rank4class.scripts.research.models_tried --interaction=low_rank \
        --config=digits_mlp --workdir=runs/low_rank
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from rank4class import arguments
from rank4class.models import class_encoders, interactions
from rank4class.models.registry import CLASS_ENCODERS, INTERACTIONS


@INTERACTIONS.register("low_rank")
class LowRank(interactions.Dot):
    r"""The dot product plus a bilinear form of low rank, $s_i = h \cdot c_i + b_i + (h U) \cdot (c_i V)$.

    $V$ starts at zero, so that the first scores are those of `dot`.

    Args:
      rank: width of $U$ and $V$.
      use_bias: see `Dot`.

    >>> LowRank(rank=2)([tf.ones([2, 4]), tf.ones([3, 4])]).numpy()
    array([[4., 4., 4.],
           [4., 4., 4.]], dtype=float32)
    """

    SAVED = ("rank", "use_bias")

    def __init__(self, rank: int = 16, use_bias: bool = True, **kwargs: Any):
        super().__init__(use_bias, **kwargs)
        arguments.check_integer(rank=rank)
        self.rank = rank

    def build(self, shapes: Sequence[tf.TensorShape]) -> None:
        (_, width), (_, class_width) = shapes
        self.left = self.add_weight("left", [width, self.rank], initializer="glorot_uniform")
        self.right = self.add_weight("right", [class_width, self.rank], initializer="zeros")
        super().build(shapes)

    def call(self, inputs: Sequence[tf.Tensor], class_ids: tf.Tensor | None = None) -> tf.Tensor:
        h, c = inputs
        correction = tf.matmul(tf.matmul(h, self.left), tf.matmul(c, self.right), transpose_b=True)
        return super().call(inputs, class_ids) + correction


@CLASS_ENCODERS.register("attended")
class Attended(class_encoders.Embedding):
    """A learned vector per class plus self-attention among all of them, which starts at zero.

    Args:
      num_classes, width: see `Embedding`.
      heads: of the attention, each of `width / heads`.

    >>> Attended(num_classes=3, width=8)(tf.range(3)).shape
    TensorShape([3, 8])
    """

    SAVED = ("num_classes", "width", "heads")

    def __init__(self, num_classes: int, width: int, heads: int = 4, **kwargs: Any):
        super().__init__(num_classes, width, **kwargs)
        arguments.check_integer(heads=heads)
        self.heads = heads
        self.norm = tf.keras.layers.LayerNormalization()
        self.attend = tf.keras.layers.MultiHeadAttention(heads, max(1, width // heads))
        self.read_out = tf.keras.layers.Dense(width, kernel_initializer="zeros")

    def call(self, class_ids: tf.Tensor, encode: class_encoders.Encode | None = None) -> tf.Tensor:
        c = super().call(class_ids, encode)
        normal = self.norm(c)[None]
        return c + self.read_out(self.attend(normal, normal))[0]
