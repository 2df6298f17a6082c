r"""Interactions: an instance's vector and the classes' vectors to scores, $s_i = I(h, c_i)$.

Each is a Keras layer that is called on `h` `[B, d]` and `c` `[n, d]` and returns scores `[B, n]`, in float32
also for vectors of half precision: rounded scores would tie, and ties hide an order. `Interaction` declares
what models ask of one beyond that.
"""

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from rank4class import arguments
from rank4class.models.registry import INTERACTIONS, KERAS_3, UNROUNDED, Part


class Interaction:
    """Base class of interactions, with their protocol. A Keras layer without it has these defaults.

    Attributes:
      takes_class_ids: whether `call` takes `class_ids`, int `[m]`, those of `c` for candidates alone,
        since each class has weights.
      takes_prepared: whether `call` takes `prepared`, with the result of `prepare` in place of `c`.
      in_blocks: whether it computes in blocks of classes, whose number it has to know before a step.
      has_products: whether the scores are the products of `query(h)` and `prepare(c)`, which an index can
        search.
      use_bias: whether it adds `bias`, `[n]`, to these products.
    """

    takes_class_ids = False
    takes_prepared = False
    in_blocks = False
    has_products = False
    use_bias = False

    def prepare(self, c: tf.Tensor) -> tf.Tensor:
        """Returns the vectors of classes after the work that is the same for all instances."""
        return c

    def query(self, h: tf.Tensor) -> tf.Tensor:
        """Returns the vectors, `[B, d]`, by which `prepare(c)` is multiplied."""
        return h

    def plan(self, batch_size: int, num_classes: int, width: int) -> tuple[int, bool]:
        """Returns the number of blocks of classes, and whether the gradient reads a stored first layer."""
        return 1, False


def protocol_of(interaction: Any) -> Any:
    """Returns an `Interaction`, or a class of them; the defaults for another layer, class or function."""
    kind = interaction if inspect.isclass(interaction) else type(interaction)
    return interaction if issubclass(kind, Interaction) else Interaction()


@INTERACTIONS.register("dot")
class Dot(Part, Interaction):
    r"""Dot product with a bias per class, $s_i = h \cdot c_i + b_i$: a dense layer.

    `O(B n d)` time.

    Args:
      use_bias: whether each class has a bias. Classes held out of training keep a bias of 0.

    >>> Dot()([tf.ones([2, 4]), tf.ones([3, 4])]).shape
    TensorShape([2, 3])

    References:
      Rank4Class, Claim 1.
    """

    SAVED: tuple[str, ...] = ("use_bias",)
    takes_class_ids = has_products = True

    def __init__(self, use_bias: bool = True, **kwargs: Any):
        super().__init__(**kwargs)
        self.use_bias = use_bias

    def build(self, shapes: Sequence[tf.TensorShape]) -> None:
        _, (num_classes, _) = shapes  # of the first call, on all classes
        if self.use_bias:
            # In half precision the classes would tie.
            zeros = {"initializer": "zeros", **UNROUNDED}
            self.bias = self.add_weight(name="bias", shape=[num_classes], **zeros)
        super().build(shapes)

    def call(self, inputs: Sequence[tf.Tensor], class_ids: tf.Tensor | None = None) -> tf.Tensor:
        scores = _dot(*inputs)
        if not self.use_bias:
            return scores
        bias = self.bias if class_ids is None else tf.gather(self.bias, class_ids)
        return scores + tf.cast(bias, scores.dtype)


@INTERACTIONS.register("bilinear")
class Bilinear(Part, Interaction):
    r"""A learned bilinear form, $s_i = h^\top W c_i$, initialized to the dot product.

    `O(B d^2 + B n d)` time. It has no weights per class.

    >>> Bilinear()([tf.ones([2, 4]), tf.ones([3, 4])]).numpy()
    array([[4., 4., 4.],
           [4., 4., 4.]], dtype=float32)
    """

    def build(self, shapes: Sequence[tf.TensorShape]) -> None:
        (_, width), (_, class_width) = shapes
        self.kernel = self.add_weight(name="kernel", shape=[width, class_width], initializer="identity")
        super().build(shapes)

    def call(self, inputs: Sequence[tf.Tensor]) -> tf.Tensor:
        h, c = inputs
        return _dot(tf.matmul(h, tf.cast(self.kernel, h.dtype)), c)


@INTERACTIONS.register("cosine")
class Cosine(Part, Interaction):
    r"""The cosine of the two vectors over a temperature, $s_i = \cos(h, c_i) / \tau$.

    `O(B n d)` time. The cosine of a zero vector with any other is 0.

    Args:
      temperature: $\tau$; scores lie in $\pm 1 / \tau$.
      learned: whether $\tau$ is learned from that value on, within [0.01, 100]; its logarithm is the only
        weight, in float32.

    >>> Cosine(temperature=0.5)([tf.ones([1, 4]), tf.constant([[2.0] * 4, [-1.0] * 4])]).numpy()
    array([[ 2., -2.]], dtype=float32)

    References:
      Radford et al. (2021), "Learning transferable visual models from natural language supervision", for the
      learned temperature.
    """

    SAVED = ("temperature", "learned")
    takes_prepared = has_products = True

    def __init__(self, temperature: float = 0.1, learned: bool = False, **kwargs: Any):
        super().__init__(**kwargs)
        arguments.check_positive(temperature=temperature)
        if learned and not 0.01 <= temperature <= 100.0:
            raise ValueError(f"temperature={temperature}: a learned one is in [0.01, 100]. Choose another.")
        self.temperature = temperature
        self.learned = learned

    def build(self, shapes: Sequence[tf.TensorShape]) -> None:
        if self.learned:  # relative to the initial one, so that the first scores are exactly those without it
            zero = {"initializer": "zeros", "dtype": tf.float32, **UNROUNDED}
            self.log_ratio = self.add_weight(name="log_temperature", shape=[], **zero)
        super().build(shapes)

    def prepare(self, c: tf.Tensor) -> tf.Tensor:
        return _unit(c)  # which takes more time than their products with one instance

    def query(self, h: tf.Tensor) -> tf.Tensor:
        unit = _unit(h)
        temperature = self.temperature
        if self.learned:
            low, high = (math.log(end / self.temperature) for end in (0.01, 100.0))
            log_ratio = _clip(tf.convert_to_tensor(self.log_ratio), low, high)
            temperature *= tf.cast(tf.exp(log_ratio), unit.dtype)
        return unit / temperature

    def call(self, inputs: Sequence[tf.Tensor], prepared: bool = False) -> tf.Tensor:
        h, c = inputs
        return _dot(self.query(h), c if prepared else self.prepare(c))


@tf.custom_gradient
def _clip(x: tf.Tensor, low: float, high: float) -> tuple[tf.Tensor, Callable]:
    """Returns `x` within bounds; beyond them a gradient stays if its descent leads back."""

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, None, None]:
        leads_out = ((x <= low) & (upstream > 0.0)) | ((x >= high) & (upstream < 0.0))
        return tf.where(leads_out, 0.0, upstream), None, None

    return tf.clip_by_value(x, low, high), gradient


def _unit(x: tf.Tensor) -> tf.Tensor:
    """Returns vectors of length 1, at least in float32; zeros stay 0, and not finite values become NaN."""
    exact = tf.cast(x, _exact(x.dtype))
    largest = tf.stop_gradient(tf.reduce_max(tf.abs(exact), axis=-1, keepdims=True))
    is_zero = tf.reduce_all(exact == 0.0, axis=-1, keepdims=True)
    one = tf.ones([], exact.dtype)
    scaled = exact / tf.where(is_zero, one, largest)  # or its squares might overflow, or be 0
    squares = tf.reduce_sum(tf.square(scaled), axis=-1, keepdims=True)
    return tf.where(is_zero, tf.zeros_like(exact), scaled / tf.sqrt(tf.where(is_zero, one, squares)))


def _dot(h: tf.Tensor, c: tf.Tensor) -> tf.Tensor:
    """Returns the dot products of all pairs, `[B, n]`."""
    return tf.matmul(tf.cast(h, _exact(h.dtype)), tf.cast(c, _exact(c.dtype)), transpose_b=True)


_RandomLayer: Any = tf.keras.layers.Layer if KERAS_3 else tf.keras.__internal__.layers.BaseRandomLayer


class _Mlp(Part, Interaction, _RandomLayer):
    """An MLP on the pairs of `h` and `c_i`: two layers of `units` with ReLU and dropout, then one score.

    With `residual` the dot product with its bias is added to it, and the weights that read out the score
    start at zero: the first scores are those of `Dot`.

    A subclass computes the pre-activations of the first layer. The classes are processed in blocks, so the
    inputs of all pairs never exist together, and the values of a block are recomputed for the gradient,
    except for a stored first layer. A `seed` of None for the dropout takes a random one.
    """

    SAVED = ("units", "dropout", "residual", "seed")
    takes_class_ids = in_blocks = True
    joins = False  # whether the first layer reads both vectors, one after the other

    def __init__(self, units: int = 128, dropout: float = 0.0, residual: bool = False, **kwargs: Any):
        seed = kwargs.pop("seed", None)
        super().__init__(**kwargs, **({} if KERAS_3 else {"seed": seed}))
        arguments.check_integer(units=units)
        arguments.check_fraction(dropout=dropout)
        self.units = units
        self.dropout = dropout
        self.seed = seed
        if KERAS_3 and dropout:
            self.seed_generator = tf.keras.random.SeedGenerator(seed)
        self.residual = residual
        self.dot = Dot() if residual else None

    def build(self, shapes: Sequence[tf.TensorShape]) -> None:
        (_, width), (_, class_width) = shapes
        pair_width = width + class_width if self.joins else width
        k = self.units

        def add(name: str, shape: list[int], initializer: str = "glorot_uniform") -> tf.Variable:
            return self.add_weight(name=name, shape=shape, initializer=initializer)

        self.first_kernel = add("first_kernel", [pair_width, k])
        self.first_bias = add("first_bias", [k], "zeros")
        self.second_kernel = add("second_kernel", [k, k])
        self.second_bias = add("second_bias", [k], "zeros")
        self.read_out = add("read_out", [k, 1], "zeros" if self.residual else "glorot_uniform")
        self.read_out_bias = add("read_out_bias", [1], "zeros")
        if self.dot is not None:
            self.dot.build(shapes)
        super().build(shapes)

    def pairs(self, h: tf.Tensor, c: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
        """Returns the first layer's pre-activations, `[B * n, units]`."""
        raise NotImplementedError

    def call(
        self,
        inputs: Sequence[tf.Tensor],
        training: bool | None = None,
        class_ids: tf.Tensor | None = None,
    ) -> tf.Tensor:
        h, c = inputs
        seed = None
        if training and self.dropout and KERAS_3:
            seed = self.seed_generator.next()
        elif training and self.dropout:
            seed = self._random_generator.random_uniform([2], 0, tf.int32.max, tf.int32)
        hidden = (self.first_kernel, self.first_bias, self.second_kernel, self.second_bias)
        read_out = (self.read_out, self.read_out_bias)
        weights = [*(tf.cast(w, h.dtype) for w in hidden), *(tf.cast(w, _exact(h.dtype)) for w in read_out)]
        blocks, stored = self.plan(h.shape[0] or _USUAL_BATCH, c.shape[0], h.shape[-1])
        if blocks == 1:
            pairs = self.pairs(h, c, *weights[:2])
            scores = tf.reshape(self._rest(pairs, seed, *weights[2:]), [-1, c.shape[0]])
        else:
            scores = self._score_in_blocks(blocks, stored, seed, h, c, weights)
        return scores if self.dot is None else self.dot(inputs, class_ids=class_ids) + scores

    def _rest(self, pairs: tf.Tensor, seed: tf.Tensor | None, *weights: tf.Tensor) -> tf.Tensor:
        """Returns the scores `[B * n, 1]` of the first layer's pre-activations `[B * n, units]`."""
        second_kernel, second_bias, read_out, read_out_bias = weights
        hidden = self._drop(tf.nn.relu(pairs), seed, 0)
        hidden = tf.nn.relu(tf.nn.bias_add(tf.matmul(hidden, second_kernel), second_bias))
        return tf.matmul(tf.cast(self._drop(hidden, seed, 1), read_out.dtype), read_out) + read_out_bias

    def _drop(self, hidden: tf.Tensor, seed: tf.Tensor | None, layer: int) -> tf.Tensor:
        if seed is None:
            return hidden
        seed = tf.random.fold_in(seed, layer, alg="philox")
        return tf.nn.experimental.stateless_dropout(hidden, self.dropout, seed, rng_alg="philox")

    def _score_in_blocks(
        self,
        blocks: int,
        stored: bool,
        seed: tf.Tensor | None,
        h: tf.Tensor,
        c: tf.Tensor,
        weights: Sequence[tf.Tensor],
    ) -> tf.Tensor:
        """Returns the scores `[B, n]`, computed one block of classes after the other.

        Gradients are sums over the blocks, at least in float32.
        """
        n, d = c.shape
        size = math.ceil(n / blocks)
        blocks = math.ceil(n / size)
        padding = blocks * size - n
        c_blocks = tf.reshape(tf.pad(c, [[0, padding], [0, 0]]), [blocks, size, d])
        dtypes = [x.dtype for x in (h, *weights)]
        exact = [tf.cast(x, _exact(x.dtype)) for x in (h, *weights)]

        seeds = tf.range(blocks)
        if seed is not None:
            seeds = tf.map_fn(lambda i: tf.random.fold_in(seed, i, alg="philox"), seeds)

        def score_block(part: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
            block, of_block = part

            def pairs_of(block: tf.Tensor, *values: tf.Tensor) -> tf.Tensor:
                h, kernel, bias = map(tf.cast, values, dtypes)
                return self.pairs(h, block, kernel, bias)

            def rest_of(pairs: tf.Tensor, *values: tf.Tensor) -> tf.Tensor:
                drawn = None if seed is None else of_block
                return tf.reshape(self._rest(pairs, drawn, *map(tf.cast, values, dtypes[3:])), [-1, size])

            def scores_of(block: tf.Tensor, *values: tf.Tensor) -> tf.Tensor:
                return rest_of(pairs_of(block, *values[:3]), *values[3:])

            again = tf.recompute_grad
            if stored:
                return again(rest_of)(again(pairs_of)(block, *exact[:3]), *exact[3:])
            return again(scores_of)(block, *exact)

        scores = tf.map_fn(
            score_block,
            (c_blocks, seeds),
            fn_output_signature=tf.TensorSpec([h.shape[0], size], exact[0].dtype),
            parallel_iterations=1,
        )
        return tf.reshape(tf.transpose(scores, [1, 0, 2]), [-1, blocks * size])[:, :n]


@INTERACTIONS.register("lc_mlp")
class LatentCrossMlp(_Mlp):
    r"""LC+MLP: a two-layer MLP on the element-wise product, $s_i = \text{MLP}(h \odot c_i)$.

    `O(B n k (d + k))` time for `k` units, the least that the products allow. Up to 16 MiB of products and of
    outputs (in float32), a single block holds all classes, and nothing is recomputed. Above that, blocks of
    4 MiB are processed one after the other, and the gradient computes their products again. The first layer's
    outputs, `B n k` numbers, are stored if they take at most 64 MiB (at ImageNet's 64 x 1,000 x 256: 62.5
    MiB); else they are recomputed too, which takes a third more time and only the memory of a block.

    Args:
      units: `k`, the width of both layers.
      dropout: dropout rate after each layer.
      residual: whether to add the MLP to the dot product with a bias per class, from 0 on.

    >>> LatentCrossMlp(units=8)([tf.ones([2, 4]), tf.ones([3, 4])]).shape
    TensorShape([2, 3])

    References:
      Beutel et al. (2018); Rank4Class, section 4.2.
    """

    def plan(self, batch_size: int, num_classes: int, width: int) -> tuple[int, bool]:
        outputs = batch_size * num_classes * self.units
        if max(batch_size * width * min(num_classes, self.units), outputs) <= _BLOCK:
            return 1, False
        blocks = math.ceil(batch_size * num_classes * max(width, self.units) / _PRODUCTS)
        return min(blocks, num_classes), outputs <= _STORED

    def pairs(self, h: tf.Tensor, c: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
        n, width = c.shape
        if n > self.units:  # products with the kernel are fewer than with the classes
            kernels = tf.reshape(tf.transpose(h)[:, :, None] * kernel[:, None, :], [width, -1])
            by_class = tf.reshape(tf.matmul(c, kernels), [n, -1, self.units])
            return tf.nn.bias_add(tf.reshape(tf.transpose(by_class, [1, 0, 2]), [-1, self.units]), bias)
        products = tf.reshape(h[:, None, :] * c[None, :, :], [-1, width])
        return tf.nn.bias_add(tf.matmul(products, kernel), bias)


@INTERACTIONS.register("concat_mlp")
class ConcatMlp(_Mlp):
    r"""Concat+MLP: a two-layer MLP on both vectors, $s_i = \text{MLP}([h; c_i])$.

    The first layer splits exactly, $W [h; c_i] = W_h h + W_c c_i$, so each part is computed once per instance
    or class: `O((B + n) d k + B n k^2)` time for `k` units instead of `O(B n (d k + k^2))`. In addition to
    the scores it stores hidden layers of pairs of at most 16 MiB at a time.

    Args:
      units: `k`, the width of both layers.
      dropout: dropout rate after each layer.
      residual: whether to add the MLP to the dot product with a bias per class, from 0 on.

    >>> ConcatMlp(units=8)([tf.ones([2, 4]), tf.ones([3, 4])]).shape
    TensorShape([2, 3])

    References:
      Rank4Class, section 4.2.
    """

    joins = True

    def plan(self, batch_size: int, num_classes: int, width: int) -> tuple[int, bool]:
        return min(math.ceil(batch_size * num_classes * self.units / _BLOCK), num_classes), False

    def pairs(self, h: tf.Tensor, c: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
        kernel_h, kernel_c = tf.split(kernel, [h.shape[-1], c.shape[-1]], axis=0)
        instance_part = tf.matmul(h, kernel_h) + bias
        return tf.reshape(instance_part[:, None, :] + tf.matmul(c, kernel_c)[None, :, :], [-1, self.units])


_BLOCK = 1 << 22  # largest size of a block of pairs: 16 MiB of float32
_PRODUCTS = 1 << 20  # of a block of products, if there are several: 4 MiB stay in the processor's cache
_STORED = 1 << 24  # largest size of a stored first layer: 64 MiB of float32
_USUAL_BATCH = 64  # if the batch size is known only at run time


def _exact(dtype: tf.DType) -> tf.DType:
    """Returns the type for sums of values of a type: float32 for half precision."""
    return tf.float32 if dtype in (tf.float16, tf.bfloat16) else dtype
