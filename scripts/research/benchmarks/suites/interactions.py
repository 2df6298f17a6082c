"""Interactions, value and gradient, against naive forms on explicit pairs and against the dot product."""

import math

import tensorflow as tf

from rank4class import models
from rank4class.scripts.research.benchmarks import suite


def _build(step: suite.Step, size: suite.Size) -> suite.Compiled:
    batch, n, width, units = size
    name = step.contender
    options = {"units": units} if "units" in models.INTERACTIONS.options(name) else {}
    tf.keras.utils.set_random_seed(0)  # both sides get the same weights
    interaction = models.get("interaction", name, **options)
    h, c = (tf.random.stateless_normal([rows, width], [1, rows]) for rows in (batch, n))
    interaction([h, c])

    def value_and_gradients(h: tf.Tensor, c: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            tape.watch([h, c])
            scores = _naive(name, interaction, h, c) if step.kind == "naive" else interaction([h, c])
            value = tf.reduce_mean(tf.square(scores))
        return value, tape.gradient(value, [h, c, *interaction.trainable_variables])

    return suite.Compiled(value_and_gradients, step.xla, h, c)


def _naive(name: str, interaction: tf.keras.layers.Layer, h: tf.Tensor, c: tf.Tensor) -> tf.Tensor:
    """Returns the scores of an interaction from its formula on explicit pairs."""
    batch = h.shape[0]
    n = c.shape[0]
    h = tf.repeat(h[:, None, :], n, axis=1)
    c = tf.repeat(c[None, :, :], batch, axis=0)
    if name == "dot":
        return tf.reduce_sum(h * c, axis=-1) + interaction.bias
    if name == "bilinear":
        return tf.reduce_sum(tf.tensordot(h, interaction.kernel, axes=1) * c, axis=-1)
    if name == "cosine":
        h, c = (tf.math.l2_normalize(x, axis=-1) for x in (h, c))
        return tf.reduce_sum(h * c, axis=-1) / interaction.temperature
    hidden = h * c if name == "lc_mlp" else tf.concat([h, c], axis=-1)
    for kernel, bias in (
        (interaction.first_kernel, interaction.first_bias),
        (interaction.second_kernel, interaction.second_bias),
    ):
        hidden = tf.nn.relu(tf.tensordot(hidden, kernel, axes=1) + bias)
    return tf.squeeze(tf.tensordot(hidden, interaction.read_out, axes=1) + interaction.read_out_bias, -1)


SUITE = suite.Suite(
    axes="BATCHxCLASSESxWIDTHxUNITS",
    # The last one is above the budget for LC+MLP's stored first layer.
    sizes=("32x28x384x128", "32x28x768x256", "64x1000x512x64", "64x1000x2048x256", "64x1000x512x512"),
    contenders=lambda size: [
        step
        for name in models.INTERACTIONS
        for step in suite.with_and_without_xla(name, f"naive:{name}", *(["dot"] if name != "dot" else []))
    ],
    build=_build,
    values=lambda size: math.prod(size[:3]),  # the pairs of the naive forms
)
