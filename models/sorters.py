r"""Sorters: differentiable approximations of the ranks of a list, $f(s) \approx \text{rank}(s) / n$.

Each is a Keras layer from scores `[..., n]` to ranks in `(0, 1]`: near `1 / n` for the highest score and near
1 for the lowest. Its property `places` returns ranks in `1..n`, the rank function of a loss. Learned sorters
standardize the scores to mean 0 and variance 1, which changes no rank, so they accept scores of any scale and
offset.
"""

import base64
import inspect
import math
import os

import numpy as np
import safetensors
import safetensors.numpy
import tensorflow as tf

_serializable = tf.keras.utils.register_keras_serializable(package="rank4class")
SHIPPED = "shipped"
_FOLDER = os.path.join(os.path.dirname(__file__), "sorter_weights")


class Sorter(tf.keras.layers.Layer):
    """Base class of sorters.

    It computes in float32 under any policy. Without a mask every class takes part.

    Args:
      n: length of the lists; None accepts any length.
      trained: "shipped", a file of `to_bytes`, or None for weights to be trained.
    """

    def __init__(self, n=None, trained=None, name=None, **kwargs):
        super().__init__(name=name, **{**kwargs, "dtype": "float32"})
        self.n, self.trained = n, trained

    def call(self, scores, where=None, training=False):
        """Returns the soft ranks of scores.

        Args:
          scores: float `[..., n]`, finite.
          where: optional bool, broadcastable to `[..., n]`, the classes that take part. The ranks are those
            of the list without the masked classes, which rank one place after its end.

        Returns:
          float32 `[..., n]`.

        Raises:
          ValueError: the scores are not floats, or do not have the length of the sorter.
        """
        scores = tf.convert_to_tensor(scores)
        if not scores.dtype.is_floating or not scores.shape.rank:
            raise ValueError(
                f"scores must be floats of shape [..., n], got {scores.dtype.name} {scores.shape}"
            )
        scores = tf.cast(scores, tf.float32)
        shape = tf.shape(scores)
        flat = tf.reshape(scores, [-1, scores.shape[-1] or shape[-1]])
        if where is None:
            ranks = self.sort(flat, None, training) / tf.cast(shape[-1], tf.float32)
        else:
            where = tf.reshape(tf.broadcast_to(where, shape), tf.shape(flat))
            size = tf.reduce_sum(tf.cast(where, tf.float32), axis=1, keepdims=True)
            ranks = tf.where(where, self.sort(flat, where, training), size + 1.0) / tf.maximum(size, 1.0)
        return tf.ensure_shape(tf.reshape(ranks, shape), scores.shape)

    @property
    def rank_fn(self):
        """The rank function of a loss, `RankFunction`."""
        return RankFunction(self)

    def sort(self, scores, where, training=False):
        """Returns the soft ranks in `1..n` of float32 scores `[N, n]`, with a mask like them or None."""
        raise NotImplementedError

    def build(self, shape):
        super().build(shape)
        if self.trained is not None:
            _restore(self)

    def get_config(self):
        return {**super().get_config(), "n": self.n, "trained": self.trained}


@_serializable
class RankFunction:
    """A sorter as the rank function of a loss: from scores `[..., n]` to soft ranks in `1..n`.

    It is saved with a loss, including the weights of the sorter if they are not the shipped ones.

    >>> RankFunction(get("exact"))(tf.constant([[7.0, 1.0, 7.0, 9.0]])).numpy()
    array([[2.5, 4. , 2.5, 1. ]], dtype=float32)
    """

    def __init__(self, sorter):
        self.sorter = sorter

    def __call__(self, scores, where=None):
        scores = tf.convert_to_tensor(scores)
        ranks = self.sorter(scores, where=where)
        if where is None:
            return ranks * tf.cast(tf.shape(scores)[-1], tf.float32)
        where = tf.broadcast_to(where, tf.shape(scores))
        size = tf.reduce_sum(tf.cast(where, tf.float32), axis=-1, keepdims=True)
        return ranks * tf.maximum(size, 1.0)

    def get_config(self):
        kind, own = _kind_of(self.sorter), self.sorter.get_config()
        if not self.sorter.weights or _is_as_shipped(self.sorter):
            return {"kind": kind, "sorter": own}
        # Save the weights themselves: the file may change or disappear.
        tensors = {name: np.array(weight) for name, weight in _named_weights(self.sorter)}
        weights = base64.b64encode(safetensors.numpy.save(tensors)).decode()
        return {"kind": kind, "sorter": {**own, "trained": None}, "weights": weights}

    @classmethod
    def from_config(cls, config):
        sorter = SORTERS[config["kind"]].from_config(config["sorter"])
        sorter(tf.zeros([1, sorter.n or 2]))
        if "weights" in config:
            _assign(sorter, safetensors.numpy.load(base64.b64decode(config["weights"])), "the saved loss")
        return cls(sorter)


@_serializable
class Exact(Sorter):
    """The exact ranks, with the mean rank for ties. `O(n log n)`; it has no gradient.

    >>> Exact()(tf.constant([[7.0, 1.0, 7.0, 9.0]])).numpy()
    array([[0.625, 1.   , 0.625, 0.25 ]], dtype=float32)
    """

    def sort(self, scores, where, training=False):
        def ranks(in_order, where):
            return _ranks_of_decays(tf.cast(_gaps(-in_order, where) == 0.0, tf.float32))

        return tf.stop_gradient(_in_order(scores, where, ranks))


@_serializable
class Handcrafted(Sorter):
    r"""A sorter without weights that compares by sigmoids: `O(n^2)` time and memory.

    $$f_i = \frac{1}{n} \Big( 1 + \sum_{j \ne i} \sigma(\lambda (s_j - s_i)) \Big)$$

    Args:
      sharpness: `lambda`; applies to the scores without standardization.

    >>> Handcrafted()(tf.constant([[9.0, 0.0, -9.0]])).numpy().round(3)
    array([[0.333, 0.667, 1.   ]], dtype=float32)

    References:
      Engilberge, Chevallier, Perez, Cord (2019), "SoDeep: a sorting deep net to learn ranking loss
      surrogates", section 4.1.
    """

    def __init__(self, sharpness=10.0, **kwargs):
        super().__init__(**kwargs)
        self.sharpness = sharpness

    def sort(self, scores, where, training=False):
        if where is not None:
            scores = tf.where(where, scores, 0.0)  # NaN would reach the gradient through 0 * NaN
        ahead = tf.sigmoid(self.sharpness * (scores[:, None, :] - scores[:, :, None]))
        if where is not None:
            ahead = tf.where(where[:, None, :], ahead, 0.0)
        return 0.5 + tf.reduce_sum(ahead, axis=2)

    def get_config(self):
        return {**super().get_config(), "sharpness": self.sharpness}


@_serializable
class Equivariant(Sorter):
    r"""A sorter with one learned weight, the sharpness `lambda`, for lists of any length.

    $$r_i = \frac{1}{2} + \sum_j c(\lambda (u_j - u_i)), \quad
    c(x) = \frac{1}{2} e^x \text{ for } x < 0, \text{ else } 1 - \frac{1}{2} e^{-x}$$

    where `u` are the scores scaled so that evenly spaced ones are 1 apart. The sums over a sorted list follow
    from
    one neighbor to the next, so it sorts once: `O(n log n)` time, `O(n)` memory.

    A higher score never ranks behind a lower one, equal scores have equal ranks, the ranks of a list sum to
    `1 + ... + n`, and a permutation of the scores permutes the ranks bit for bit.

    >>> get("equivariant")(tf.constant([[9.0, 0.0, -9.0]])).numpy().round(1)
    array([[0.4, 0.7, 1. ]], dtype=float32)
    """

    def build(self, shape):
        self._log_sharpness = self.add_weight("log_sharpness", [], initializer="zeros")
        super().build(shape)

    def sort(self, scores, where, training=False):
        sharpness = tf.exp(self._log_sharpness)

        def ranks(in_order, where):
            places = standardize(in_order, where) * _list_size(in_order, where) / -math.sqrt(12.0)
            return _ranks_of_decays(tf.exp(-sharpness * _gaps(places, where)))

        return _in_order(scores, where, ranks)


class _FixedLength(Sorter):
    """A sorter of lists of one length; it spreads masked classes evenly among the others."""

    def __init__(self, n, **kwargs):
        super().__init__(n=n, **kwargs)
        if n is not None and (not isinstance(n, int) or isinstance(n, bool) or n < 2):
            raise ValueError(f"n {n!r} is not a whole number of at least 2")

    def sort(self, scores, where, training=False):
        if self.n is not None:
            scores = self._checked(scores)
        size = _list_size(scores, where)
        if where is not None:
            scores = _spread(scores, where)
        n = tf.cast(tf.shape(scores)[1], tf.float32)
        ranks = n * self.net(standardize(scores, None)[..., None], training=training)
        if where is not None:
            ranks = _without_others(ranks, where)
        # Clips ranks that are out of bounds, but keeps their gradient.
        ranks += tf.stop_gradient(tf.clip_by_value(ranks, 1.0, size) - ranks)
        return ranks if where is None else tf.where(size > 1.0, ranks, 1.0)

    def _checked(self, scores):
        """Checks the length of the lists, at run time if it is not static."""
        if scores.shape[1] is None:
            message = f"sorter {self.name!r} is for lists of {self.n} scores"
            with tf.control_dependencies([tf.debugging.assert_equal(tf.shape(scores)[1], self.n, message)]):
                return tf.reshape(scores, [-1, self.n])  # XLA drops the assertion, and fails here
        if scores.shape[1] != self.n:
            raise ValueError(
                f"sorter {self.name!r} is for lists of {self.n} scores, these have {scores.shape[1]}"
            )
        return scores

    def build(self, shape):
        self.net.build([None, self.n, 1])
        super().build(shape)


@_serializable
class Cnn(_FixedLength):
    """A CNN of seven blocks of convolution, batch normalization and ReLU, and a last convolution.

    Args:
      n: length of the lists; None for training on several lengths.
      filters: number of filters of the blocks.
      width: kernel width of all convolutions but the first, whose width is 1.

    >>> Cnn(n=10)(tf.zeros([2, 10])).shape
    TensorShape([2, 10])

    References:
      Engilberge et al. (2019), section 3.1.1, where the last layer has one position with `n` channels.
    """

    def __init__(self, n=None, filters=24, width=25, **kwargs):
        super().__init__(n, **kwargs)
        self.filters, self.width = filters, width
        layers = tf.keras.layers
        self.net = tf.keras.Sequential(name="net")
        for i in range(_BLOCKS - 1):
            # Spreads the kinks of the first ReLUs over the range of scores, which would take long to learn.
            beta = tf.keras.initializers.RandomUniform(-2.0, 2.0) if i == 0 else "zeros"
            own_width = 1 if i == 0 else width
            self.net.add(
                layers.Conv1D(filters, own_width, padding="same", use_bias=False, name=f"convolution_{i}")
            )
            self.net.add(layers.BatchNormalization(beta_initializer=beta, name=f"norm_{i}"))
            self.net.add(layers.ReLU(name=f"relu_{i}"))
        self.net.add(layers.Conv1D(1, width, padding="same", name="readout"))
        self.net.add(layers.Reshape([-1], name="ranks"))

    def get_config(self):
        return {**super().get_config(), "filters": self.filters, "width": self.width}


@_serializable
class Lstm(_FixedLength):
    """Bidirectional LSTMs over the list, and a linear layer at each position.

    Args:
      n: length of the lists; None for training on several lengths.
      units: units of each direction.
      layers: number of stacked LSTMs.

    >>> Lstm(n=10, units=4)(tf.zeros([2, 10])).shape
    TensorShape([2, 10])

    References:
      Engilberge et al. (2019), section 3.1.1.
    """

    def __init__(self, n=None, units=128, layers=2, **kwargs):
        super().__init__(n, **kwargs)
        self.units, self.layers = units, layers
        self.net = tf.keras.Sequential(name="net")
        # Spreads the thresholds of the first gates over the range of scores, which would take long to learn.
        spread = tf.keras.initializers.RandomUniform(-6.0, 6.0)
        init = {"kernel_initializer": spread, "bias_initializer": spread, "unit_forget_bias": False}
        for i in range(layers):
            lstm = tf.keras.layers.LSTM(units, return_sequences=True, name=f"lstm_{i}", **init)
            self.net.add(tf.keras.layers.Bidirectional(lstm, name=f"both_{i}"))
            init = {}
        self.net.add(tf.keras.layers.Dense(1, name="readout"))
        self.net.add(tf.keras.layers.Reshape([-1], name="ranks"))

    def get_config(self):
        return {**super().get_config(), "units": self.units, "layers": self.layers}


SORTERS = {
    "exact": Exact,
    "handcrafted": Handcrafted,
    "cnn": Cnn,
    "lstm": Lstm,
    "equivariant": Equivariant,
}
LEARNED = ("cnn", "lstm", "equivariant")
_BLOCKS = 8  # of the sorter "cnn"


def get(name, n=None, trained=SHIPPED, **knobs):
    """Returns a sorter with its variables created.

    Args:
      name: one of `SORTERS`.
      n: length of the lists; required by sorters of one length.
      trained: "shipped", a file of `to_bytes`, or None for weights to be trained.
      **knobs: the class's own.

    Raises:
      ValueError: an unknown name, a missing `n`, or no weights for it.

    >>> get("handcrafted", sharpness=1.0)(tf.zeros([4])).numpy()
    array([0.625, 0.625, 0.625, 0.625], dtype=float32)
    """
    kind = _kind(name)
    known = inspect.signature(kind.__init__).parameters
    for knob in knobs:
        if knob not in known:
            raise ValueError(f"sorter {name!r} has no knob {knob!r}")
    if issubclass(kind, _FixedLength):
        if trained == SHIPPED:
            _check_length(name, n)
            if knobs:
                raise ValueError(f"sorter {name!r} with {', '.join(knobs)} of your own needs trained=None")
        knobs["n"] = n
    if name in LEARNED:
        knobs["trained"] = trained
    sorter = kind(name=name, **knobs)
    sorter(tf.zeros([1, knobs.get("n") or 2]))
    return sorter


def _kind(name):
    if name not in SORTERS:
        raise ValueError(f"unknown sorter {name!r}; there are: {', '.join(SORTERS)}")
    return SORTERS[name]


def _check_length(name, n):
    if n is None:
        raise ValueError(f"sorter {name!r} needs n, the length of the lists")


def standardize(scores, where=None):
    """Shifts and scales lists to mean 0 and variance 1; a list of equal scores becomes zeros.

    Args:
      scores: float `[N, n]`, of any scale.
      where: optional bool `[N, n]`; masked classes do not count.

    Returns:
      float32 `[N, n]`.

    >>> standardize(tf.constant([[1e4, 1e4 + 2.0], [7.0, 7.0]])).numpy()
    array([[-1.,  1.],
           [ 0.,  0.]], dtype=float32)
    """
    size = _list_size(scores, where)
    taking_part = scores if where is None else tf.where(where, scores, tf.float32.max)
    # Equal scores differ from their lowest by exactly 0, but not from their rounded mean.
    lowest = tf.stop_gradient(tf.reduce_min(taking_part, axis=1, keepdims=True))
    above = scores - lowest if where is None else tf.where(where, scores - lowest, 0.0)
    centred = above - tf.reduce_sum(above, axis=1, keepdims=True) / size
    centred = centred if where is None else tf.where(where, centred, 0.0)
    largest = tf.stop_gradient(tf.reduce_max(tf.abs(centred), axis=1, keepdims=True))
    differ = largest > 0.0
    centred /= tf.where(differ, largest, 1.0)  # avoids overflow and underflow of the squares
    variance = tf.reduce_sum(tf.square(centred), axis=1, keepdims=True) / size
    return centred / tf.sqrt(tf.where(differ, variance, 1.0))


def _list_size(scores, where):
    """Returns the number of classes that take part: a scalar, or `[N, 1]`, at least 1, if there is a mask."""
    if where is None:
        return tf.cast(tf.shape(scores)[1], tf.float32)
    return tf.maximum(1.0, tf.reduce_sum(tf.cast(where, tf.float32), axis=1, keepdims=True))


def _spread(scores, where):
    """Spreads masked classes evenly among the others, which gives lists like those of the training.

    The `j`-th of `f` masked classes gets the score at rank `(j - 1/6) m / f + 1/2` of the other `m` classes,
    interpolated between neighbors: a third of a step past the middle, where it rarely equals one of them.
    """
    scores = tf.where(where, scores, 0.0)
    in_order = tf.gather(scores, _descending(scores, where), batch_dims=1)
    size, others = _list_size(scores, where), _num_others(where)
    # Multiples of the golden ratio give an order that is evenly spread and looks random.
    key = tf.cumsum(tf.cast(~where, tf.int32), axis=1) * 40_503 % 65_536
    mixed = tf.argsort(tf.argsort(tf.where(where, 65_536, key), axis=1, stable=True), axis=1)
    place = (tf.cast(mixed, tf.float32) + 5 / 6) * size / tf.maximum(others, 1.0) + 0.5
    above = tf.clip_by_value(tf.floor(place), 1.0, tf.maximum(size - 1.0, 1.0))
    higher, lower = (
        tf.gather(in_order, tf.cast(neighbour, tf.int32) - 1, batch_dims=1)
        for neighbour in (above, tf.minimum(above + 1.0, size))
    )
    return tf.where(where, scores, higher + (place - above) * (lower - higher))


def _without_others(ranks, where):
    """Converts soft ranks in a list of `_spread` to ranks without masked classes; exact ones stay exact."""
    size, others = _list_size(ranks, where), _num_others(where)

    def in_list(place):
        return place + tf.floor((place - 0.5) * others / size + 1 / 6)

    # The inverse, linear between integers. The search starts at most one below the result.
    about = tf.floor(0.5 + (ranks - 1 / 6) * size / (size + others))
    place = about - 1.0 + sum(tf.cast(in_list(about + i) <= ranks, tf.float32) for i in (0, 1))
    place = tf.stop_gradient(tf.clip_by_value(place, 1.0, tf.maximum(size - 1.0, 1.0)))
    return place + (ranks - in_list(place)) / (in_list(place + 1.0) - in_list(place))


def _num_others(where):
    return tf.reduce_sum(tf.cast(~where, tf.float32), axis=1, keepdims=True)


def _descending(scores, where):
    """Returns the order from the highest score to the lowest, with masked classes at the end."""
    keys = scores if where is None else tf.where(where, scores, -float("inf"))
    return tf.argsort(keys, axis=1, direction="DESCENDING", stable=True)


def _in_order(scores, where, ranks_in_order):
    """Ranks lists by a function of the sorted scores: the result does not depend on the original order.

    Args:
      scores: float32 `[N, n]`.
      where: bool `[N, n]` or None.
      ranks_in_order: function from scores, sorted from high to low with masked ones at the end, and their
        mask or None, to ranks.

    Returns:
      float32 `[N, n]`, the ranks in the order of the scores; equal scores have equal ranks.
    """
    order = _descending(scores, where)
    in_order = tf.gather(scores, order, batch_dims=1)
    taking_part = None if where is None else tf.gather(where, order, batch_dims=1)
    ranks = ranks_in_order(in_order, taking_part)
    # Rounding must not separate ties: each takes the value of the first one, and keeps its own gradient.
    first = _first_of_run(_gaps(-in_order, taking_part) == 0.0)
    ranks += tf.stop_gradient(tf.gather(ranks, first, batch_dims=1) - ranks)
    return tf.gather(ranks, tf.argsort(order, axis=1), batch_dims=1)


_FAR = 1e6  # in ranks; beyond the reach of any comparison


def _gaps(ascending, where):
    """Returns the distances of neighbors, `[N, n - 1]`; masked classes are far from all others."""
    gaps = ascending[:, 1:] - ascending[:, :-1]
    return gaps if where is None else tf.where(where[:, 1:], gaps, _FAR)


def _first_of_run(same):
    """Returns the first index of each run, int32 `[N, n]`; `same`, `[N, n - 1]`, marks equal neighbors."""
    place = tf.range(1, tf.shape(same)[1] + 1)
    starts = tf.pad(tf.where(same, 0, place), [[0, 0], [1, 0]])
    return _running(tf.maximum, starts)


def _ranks_of_decays(decays):
    r"""Returns soft ranks of sorted lists from the decay of comparisons between neighbors.

    $$r_i = i + \frac{1}{2} (B_i - A_i), \quad A_i = d_i (A_{i-1} + 1), \quad B_i = d_{i+1} (B_{i+1} + 1)$$

    Args:
      decays: `[N, n - 1]`, in `[0, 1]`.

    Returns:
      float32 `[N, n]`.
    """
    above, below = _discounted(decays), tf.reverse(_discounted(tf.reverse(decays, [1])), [1])
    place = 1.0 + tf.range(tf.shape(above)[1], dtype=tf.float32)
    return place + 0.5 * (below - above)


def _discounted(decays):
    """Returns `A` of `A_i = d_i (A_{i-1} + 1)` from `A_0 = 0`, `[N, n]`."""
    factors = tf.pad(decays, [[0, 0], [1, 0]])
    return _recurrence(factors, factors)


@tf.custom_gradient
def _recurrence(factors, terms):
    """Returns `x` of `x_i = f_i x_{i-1} + t_i`, all `[N, n]`.

    Its gradient is such a recurrence from the end, so no intermediate steps are stored.
    """
    _, values = _running(lambda new, old: (new[0] * old[0], new[0] * old[1] + new[1]), (factors, terms))

    def gradient(upstream):
        following = tf.pad(factors[:, 1:], [[0, 0], [0, 1]])
        of_terms = tf.reverse(_recurrence(tf.reverse(following, [1]), tf.reverse(upstream, [1])), [1])
        before = tf.pad(values[:, :-1], [[0, 0], [1, 0]])
        return of_terms * before, of_terms

    return values, gradient


def _running(combine, values):
    """Accumulates an associative function along the lists, in `log n` steps.

    Args:
      combine: function of the values at an index and of those before it, each like `values`.
      values: `[N, n, ...]`, or a tuple of such.

    Returns:
      Like `values`: at each index, the combination of all values up to it.
    """
    reach = 1
    while reach < (tf.nest.flatten(values)[0].shape[1] or 2**31):
        grown = combine(
            tf.nest.map_structure(lambda x: x[:, reach:], values),  # noqa: B023, it is called at once
            tf.nest.map_structure(lambda x: x[:, :-reach], values),  # noqa: B023
        )
        values = tf.nest.map_structure(
            lambda x, y: tf.concat([x[:, :reach], y], axis=1),  # noqa: B023
            values,
            grown,
        )
        reach *= 2
    return values


def to_bytes(sorter, **about):
    """Returns the weights of a sorter in half precision, in safetensors format.

    Args:
      sorter: a sorter with its variables created.
      **about: metadata, such as the `sizes` of the lists that it is for.
    """
    tensors = {name: np.array(weight, np.float16) for name, weight in _named_weights(sorter)}
    return safetensors.numpy.save(tensors, metadata={"sorter": _kind_of(sorter), **about})


def about(name, n=None):
    """Returns the metadata of the shipped weights of a sorter, name -> text.

    >>> sorted(about("equivariant"))
    ['command', 'l1', 'sizes', 'sorter']
    """
    if not issubclass(_kind(name), _FixedLength):
        return _metadata(_shipped(name, None))
    _check_length(name, n)
    return _metadata(_shipped(name, n))


def _shipped(name, n):
    """Returns the file of the shipped weights of a sorter for a length; None accepts any."""
    sizes = []
    for file in sorted(os.listdir(_FOLDER)):
        if file.split(".")[0].split("-")[0] != name or not file.endswith(".safetensors"):
            continue
        path = os.path.join(_FOLDER, file)
        own = [int(size) for size in _metadata(path)["sizes"].split(",")]
        if n is None or n in own:
            return path
        sizes += own
    known = ", ".join(map(str, sorted(set(sizes)))) or "none"
    raise ValueError(
        f"no weights of sorter {name!r} for lists of {n} are shipped; there are those for: {known}. Train "
        "some with scripts.train_sorter, or take the sorter 'equivariant', which takes any length"
    )


def _kind_of(sorter):
    for name, kind in SORTERS.items():
        if type(sorter) is kind:
            return name
    raise ValueError(f"{type(sorter).__name__} is none of the sorters {', '.join(SORTERS)}")


def _metadata(path):
    """Returns the metadata of a file of weights, name -> text."""
    try:
        with safetensors.safe_open(path, "np") as file:
            return file.metadata() or {}
    except (OSError, safetensors.SafetensorError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error


def _read(path):
    """Returns the weights in a file, name -> array."""
    try:
        return safetensors.numpy.load_file(path)
    except (OSError, safetensors.SafetensorError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error


def _restore(sorter):
    kind = _kind_of(sorter)
    path = _shipped(kind, sorter.n) if sorter.trained == SHIPPED else sorter.trained
    known = _metadata(path)
    sizes = known.get("sizes")
    if known.get("sorter", kind) != kind:
        raise ValueError(f"{path} holds a sorter {known['sorter']!r}, not {kind!r}")
    if sorter.n is not None and sizes and str(sorter.n) not in sizes.split(","):
        raise ValueError(f"{path} is for lists of {sizes} scores, not of {sorter.n}")
    _assign(sorter, _read(path), path)


def _assign(sorter, tensors, path):
    named = dict(_named_weights(sorter))
    shapes, theirs = ({name: tuple(x.shape) for name, x in of.items()} for of in (named, tensors))
    if shapes != theirs:
        raise ValueError(f"{path} holds other weights than those of sorter {sorter.name!r} with n {sorter.n}")
    for name, weight in named.items():
        weight.assign(tensors[name].astype(np.float32))


def _is_as_shipped(sorter):
    if sorter.trained != SHIPPED:
        return False
    tensors = _read(_shipped(_kind_of(sorter), sorter.n))
    return all(np.array_equal(w, tensors[name].astype(np.float32)) for name, w in _named_weights(sorter))


def _named_weights(sorter):
    """Yields (name, variable), with the same names in every process."""
    for weight in sorter.weights:
        yield weight.name.removeprefix(f"{sorter.name}/").removesuffix(":0"), weight
