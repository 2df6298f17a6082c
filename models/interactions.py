r"""Interactions: an instance's vector and the classes' vectors to scores, $s_i = I(h, c_i)$.

Each is a Keras layer called on the pair of `h` `[B, d]` and `c` `[n, d]`; it returns scores `[B, n]`.
"""

import tensorflow as tf

_serializable = tf.keras.utils.register_keras_serializable(package="rank4class")


@_serializable
class Dot(tf.keras.layers.Layer):
    r"""Dot product with a bias a class, $s_i = h \cdot c_i + b_i$: the classical dense layer.

    `O(B n d)` time.

    >>> Dot()([tf.ones([2, 4]), tf.ones([3, 4])]).shape
    TensorShape([2, 3])

    References:
      Rank4Class, Claim 1.
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)

    def build(self, shapes):
        _, (num_classes, _) = shapes
        self.bias = self.add_weight("bias", [num_classes], initializer="zeros")
        super().build(shapes)

    def call(self, inputs):
        h, c = inputs
        return tf.matmul(h, c, transpose_b=True) + tf.cast(self.bias, h.dtype)


class _Mlp(tf.keras.layers.Layer):
    """What follows the first layer: ReLU, a second layer of the same width, ReLU, one score.

    Args:
      units: width of both layers; the paper tunes it in {64, 128, 256, 512}.
      dropout: rate after each of the two layers.
    """

    def __init__(self, units=128, dropout=0.0, **kwargs):
        super().__init__(**kwargs)
        self.units, self.dropout = units, dropout
        self.drop_first = tf.keras.layers.Dropout(dropout)
        self.second = tf.keras.layers.Dense(units, activation="relu")
        self.drop_second = tf.keras.layers.Dropout(dropout)
        self.read_out = tf.keras.layers.Dense(1)

    def first_layer(self, h, c):
        """Returns the first layer's pre-activations, `[B, n, units]`."""
        raise NotImplementedError

    def call(self, inputs, training=None):
        h, c = inputs
        hidden = self.drop_first(tf.nn.relu(self.first_layer(h, c)), training=training)
        hidden = self.drop_second(self.second(hidden), training=training)
        return tf.squeeze(self.read_out(hidden), axis=-1)

    def get_config(self):
        return {**super().get_config(), "units": self.units, "dropout": self.dropout}


@_serializable
class LatentCrossMlp(_Mlp):
    r"""LC+MLP: a two-layer MLP on the element-wise product, $s_i = \text{MLP}(h \odot c_i)$.

    The first layer is $h^\top (\text{diag}(c_i) W)$, one matrix product of `h` with the `n` matrices side
    by side: `O(B n d k)` time, and no `[B, n, d]` tensor but a `[d, n, k]` one, `k` units wide.

    Args:
      units: `k`, the width of both layers.
      dropout: rate after each layer.

    >>> LatentCrossMlp(units=8)([tf.ones([2, 4]), tf.ones([3, 4])]).shape
    TensorShape([2, 3])

    References:
      Beutel et al. (2018); Rank4Class, section 4.2.
    """

    def build(self, shapes):
        (_, width), _ = shapes
        self.kernel = self.add_weight("kernel", [width, self.units], initializer="glorot_uniform")
        self.bias = self.add_weight("bias", [self.units], initializer="zeros")
        super().build(shapes)

    def first_layer(self, h, c):
        kernel, bias = tf.cast(self.kernel, h.dtype), tf.cast(self.bias, h.dtype)
        crossed = tf.transpose(c)[:, :, None] * kernel[:, None, :]
        return tf.tensordot(h, crossed, axes=1) + bias


@_serializable
class ConcatMlp(_Mlp):
    r"""Concat+MLP: a two-layer MLP on both vectors, $s_i = \text{MLP}([h; c_i])$.

    The first layer splits exactly, $W [h; c_i] = W_h h + W_c c_i$, so that each part is computed once
    an instance and once a class: `O((B + n) d k + B n k)` instead of `O(B n d k)` time for it, and no
    `[B, n, 2d]` tensor.

    Args:
      units: `k`, the width of both layers.
      dropout: rate after each layer.

    >>> ConcatMlp(units=8)([tf.ones([2, 4]), tf.ones([3, 4])]).shape
    TensorShape([2, 3])

    References:
      Rank4Class, section 4.2.
    """

    def build(self, shapes):
        (_, width), _ = shapes
        # One kernel of the concatenation's fan-in, so that it starts out as the unsplit layer would.
        self.kernel = self.add_weight("kernel", [2 * width, self.units], initializer="glorot_uniform")
        self.bias = self.add_weight("bias", [self.units], initializer="zeros")
        super().build(shapes)

    def first_layer(self, h, c):
        kernel_h, kernel_c = tf.split(tf.cast(self.kernel, h.dtype), 2, axis=0)
        of_instances = tf.matmul(h, kernel_h) + tf.cast(self.bias, h.dtype)
        return of_instances[:, None, :] + tf.matmul(c, kernel_c)[None, :, :]
