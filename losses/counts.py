r"""n-choose-k models of sets whose size is not given: a prior of the size, and the set given its size.

$$p(c) = p(k) \, p(c \mid k), \quad k = |c|$$

What needs all counts of `0..m` takes one circle (see `n_choose_k`) for all those within two
widths of its own: `O(n)` a circle, of which there are some `m / (4 sqrt(v))`, with `v` the variance of the
tilted coins. That is `O(n sqrt(n))` for all counts of scores of one kind, and at worst, of scores so far from
each other that one set of each size is all but certain, `O(n m)`.

Common arguments:
  scores, where: see `n_choose_k`.
  log_prior: `log p(k)`, float `[..., m + 1]` for the counts of `0..m`, broadcastable over the instances, with
    `m` at most `n`; minus infinity for counts that never come. A count above `m` never comes.

What is computed is computed in float64, and returned in float64 where the scores have it, else in float32. An
instance with a score that is not finite, or beyond 1e12, has NaN.

Common errors:
  ValueError: shapes or dtypes do not fit, there is no class; or (in eager mode, else the result is NaN) a
    prior has NaN, no count of any chance, or a chance for more classes than take part.

References:
  Swersky, Tarlow, Adams, Zemel, Frey (2012), "Probabilistic n-choose-k models for classification and
  ranking", sections 2 and 2.2.
"""

import tensorflow as tf

from rank4class.losses import circle, n_choose_k, ranks

_LEAST = 0.1  # of the peak's probability, under which another circle is drawn


def log_z_by_count(scores, most=None, *, where=None):
    """Returns `log_z` of all counts.

    Args:
      scores, where: see the module.
      most: `m`, the largest count; None is `n`.

    Returns:
      float `[..., m + 1]`; minus infinity where there are fewer classes than that.

    >>> log_z_by_count([[0.0, 0.0, 0.0]]).numpy().round(4)  # log 1, log 3, log 3, log 1
    array([[0.    , 1.0986, 1.0986, 0.    ]], dtype=float32)
    """
    scores, where, dtype = n_choose_k.checked(scores, where)
    most = _checked_most(most, scores)

    @tf.custom_gradient
    def value(scores):
        def gradient(upstream):
            return _mixed(scores, upstream, where)

        return _log_z_by_count(tf.stop_gradient(scores), most, where), gradient

    return tf.cast(value(scores), dtype)


def poisson_binomial(scores, most=None, *, where=None):
    r"""The law of how many classes there are, where each comes on its own: the prior of logistic regression.

    $$\log p(k) = \log Z_k(s) - \sum_j \log(1 + e^{s_j})$$

    Args:
      scores, where: see the module.
      most: `m`, the largest count that is asked for; None is `n`.

    Returns:
      float `[..., m + 1]`, the logarithms.

    References:
      Eq. 2.

    >>> tf.exp(poisson_binomial([[0.0, 0.0]])).numpy()
    array([[0.25, 0.5 , 0.25]], dtype=float32)
    """
    scores, where, dtype = n_choose_k.checked(scores, where)
    total = tf.reduce_sum(tf.where(where, tf.math.softplus(scores), 0.0), axis=-1, keepdims=True)
    # Above 0 it can be by rounding alone, where both are large.
    return tf.cast(tf.minimum(log_z_by_count(scores, most, where=where) - total, 0.0), dtype)


def log_likelihood(scores, chosen, log_prior, *, where=None):
    r"""Logarithm of how likely a set is, its size included.

    $$\log p(c) = \log p(k) + \log p(c \mid k)$$

    Args:
      scores, log_prior, where: see the module.
      chosen: bool `[..., n]`, the classes of the set; masked ones do not count.

    Returns:
      float `[...]`; minus infinity where the prior leaves such a count no chance.

    References:
      Eq. 3.

    >>> log_likelihood([[0.0, 0.0]], [[True, False]], tf.math.log([[0.2, 0.5, 0.3]])).numpy().round(4)
    array([-1.3863], dtype=float32)
    """
    scores, where, dtype = n_choose_k.checked(scores, where)
    chosen = where & ranks.broadcast("chosen", chosen, tf.bool, scores)
    log_prior = _checked_prior(log_prior, scores, where)
    of_count = _of_size(log_prior, tf.math.count_nonzero(chosen, axis=-1, dtype=tf.int32))
    return tf.cast(of_count + n_choose_k.log_likelihood(scores, chosen, where=where), dtype)


def count_nll(log_prior, labels, *, where=None):
    """Negative log-likelihood of the number of classes: what a count prior learns from.

    Args:
      log_prior: float `[..., m + 1]`, one an instance; see the module.
      labels: one gain a class, `[..., n]`, of which those above 0 count; or class ids `[...]`.
      where: see the module.

    Returns:
      float32 `[...]`; infinite where the prior leaves such a count no chance, NaN where it has NaN there.

    Raises:
      ValueError: the labels are neither.

    >>> count_nll(tf.math.log([[0.25, 0.5, 0.25]]), [[0.0, 1.0, 1.0, 0.0]]).numpy().round(4)
    array([1.3863], dtype=float32)
    """
    log_prior = tf.cast(ranks.dense("log_prior", log_prior), tf.float32)
    labels = ranks.dense("labels", labels)
    if labels.shape.rank not in (log_prior.shape.rank - 1, log_prior.shape.rank) or not (
        labels.shape[: log_prior.shape.rank - 1].is_compatible_with(log_prior.shape[:-1])
    ):
        raise ValueError(
            f"labels of shape {labels.shape} do not go with log_prior of shape {log_prior.shape}"
        )
    if labels.shape.rank == log_prior.shape.rank - 1:
        return -_of_size(log_prior, tf.ones_like(labels, tf.int32))
    is_relevant = labels > 0
    is_relevant = is_relevant if where is None else is_relevant & where
    return -_of_size(log_prior, tf.math.count_nonzero(is_relevant, axis=-1, dtype=tf.int32))


def marginals(scores, log_prior, *, where=None):
    r"""How likely each class is, whatever the number of classes.

    $$p(j \in c) = \sum_k p(k) \, \pi_j(k)$$

    Args:
      scores, log_prior, where: see the module.

    Returns:
      float `[..., n]`, in `[0, 1]`, sums the prior's mean; 0 for masked classes.

    References:
      Section 2.2.

    >>> marginals([[0.0, 0.0]], tf.math.log([[0.2, 0.5, 0.3]])).numpy().round(4)
    array([[0.55, 0.55]], dtype=float32)
    """
    scores, where, dtype = n_choose_k.checked(scores, where)
    log_prior = _checked_prior(log_prior, scores, where)
    return tf.cast(tf.clip_by_value(_mixed(scores, tf.exp(log_prior), where), 0.0, 1.0), dtype)


def sample(scores, log_prior, seed, *, where=None):
    """Draws a set: a count from the prior, and as many classes with `n_choose_k.sample`.

    Args:
      scores, log_prior, where: see the module.
      seed: int32 `[2]`; the same seed draws the same sets.

    Returns:
      bool `[..., n]`.

    >>> sample([[0.0, 50.0, 0.0]], [[-100.0, 0.0]], [0, 0]).numpy()
    array([[False,  True, False]])
    """
    scores, where, _ = n_choose_k.checked(scores, where)
    log_prior = _checked_prior(log_prior, scores, where)
    of_count, of_set = tf.unstack(tf.random.experimental.stateless_split(seed, 2))
    lists = tf.reshape(log_prior, [-1, ranks.length(log_prior)])
    # `stateless_categorical` would draw others with another number of threads.
    ends = tf.cumsum(tf.nn.softmax(lists), axis=1)
    pick = ends[:, -1:] * tf.random.stateless_uniform([tf.shape(lists)[0], 1], of_count, dtype=ends.dtype)
    k = tf.reduce_sum(tf.cast(ends <= pick, tf.int32), axis=1)
    return n_choose_k.sample(scores, tf.reshape(k, tf.shape(scores)[:-1]), of_set, where=where)


def most_probable(scores, log_prior, *, where=None):
    r"""Returns the set that is more likely than any other, its size included.

    Given its size it is that of the highest scores, so one sort finds it:

    $$\arg\max_k \log p(k) + \sum_{i \le k} s_{(i)} - \log Z_k(s)$$

    Of equal scores the first come first, and of equally likely counts the smallest.

    Args:
      scores, log_prior, where: see the module.

    Returns:
      bool `[..., n]`.

    References:
      Theorem 1, for the sort.

    >>> most_probable([[3.0, 1.0, 2.0]], tf.math.log([[0.0, 0.2, 0.8]])).numpy()
    array([[ True, False,  True]])
    """
    scores, where, _ = n_choose_k.checked(scores, where)
    log_prior = _checked_prior(log_prior, scores, where)
    most = ranks.length(log_prior) - 1
    highest, places = tf.math.top_k(tf.where(where, scores, -float("inf")), most)
    taken = tf.range(most) < tf.math.count_nonzero(where, axis=-1, keepdims=True, dtype=tf.int32)
    of_best = tf.cumsum(tf.where(taken, highest, 0.0), axis=-1)
    of_best = tf.pad(of_best, [[0, 0]] * (scores.shape.rank - 1) + [[1, 0]])
    log_z = _log_z_by_count(scores, most, where)
    # A count that cannot be has a prior of minus infinity, and a log_z too.
    possible = log_prior > -float("inf")
    likely = tf.where(possible, log_prior + of_best - tf.where(possible, log_z, 0.0), -float("inf"))
    k = tf.argmax(likely, axis=-1, output_type=tf.int32)
    chosen = tf.range(most) < k[..., None]
    chosen &= tf.math.is_finite(n_choose_k.unsound(scores, where))[..., None]
    return _at(places, chosen, tf.shape(scores))


def _at(places, values, shape):
    """Returns lists `[..., n]` of False but for bool values `[..., m]` at places int32 `[..., m]`."""
    lists = tf.reshape(places, [-1, places.shape[-1]])
    rows = tf.broadcast_to(tf.range(tf.shape(lists)[0])[:, None], tf.shape(lists))
    of_rows = tf.reshape(values, tf.shape(lists))
    found = tf.scatter_nd(tf.stack([rows, lists], axis=-1), of_rows, [tf.shape(lists)[0], shape[-1]])
    return tf.reshape(found, shape)


def _of_size(log_prior, k):
    """Returns `log p(k)` of the counts `k`, `[...]`; minus infinity beyond the last."""
    last = ranks.length(log_prior) - 1
    found = tf.gather(log_prior, tf.minimum(k, last), batch_dims=k.shape.rank)
    return tf.where(k <= last, found, -float("inf"))


def _checked_most(most, scores):
    n = scores.shape[-1]
    if most is None:
        if n is None:
            raise ValueError("scores of unknown length need the largest count, `most`")
        return n
    ranks.check_count("most", most, least=0)
    if n is not None and most > n:
        raise ValueError(f"most {most} is more than the {n} classes")
    return int(most)


def _checked_prior(log_prior, scores, where):
    """Returns the prior in float64, one an instance, `[..., m + 1]`; NaN where it makes no sense."""
    log_prior = ranks.dense("log_prior", log_prior)
    if not log_prior.dtype.is_floating or not log_prior.shape.rank or not log_prior.shape[-1]:
        raise ValueError(
            f"log_prior must be floats of shape [..., m + 1], got {log_prior.dtype.name} {log_prior.shape}"
        )
    _checked_most(log_prior.shape[-1] - 1, scores)
    instances = tf.shape(scores)[:-1]
    try:
        log_prior = tf.broadcast_to(
            tf.cast(log_prior, tf.float64), tf.concat([instances, [log_prior.shape[-1]]], axis=0)
        )
    except (tf.errors.InvalidArgumentError, ValueError) as error:
        raise ValueError(
            f"log_prior of shape {log_prior.shape} does not go with scores of shape {scores.shape}"
        ) from error
    counts = tf.range(log_prior.shape[-1], dtype=tf.float64)
    impossible = (counts > circle.size_of(where)[..., None]) & (log_prior > -float("inf"))
    faults = {
        "is NaN": tf.reduce_any(tf.math.is_nan(log_prior), axis=-1),
        "gives no count a chance": tf.reduce_all(log_prior == -float("inf"), axis=-1),
        "is plus infinity": tf.reduce_any(log_prior == float("inf"), axis=-1),
        "gives more classes a chance than take part": tf.reduce_any(impossible, axis=-1),
    }
    for what, wrong in faults.items():
        if tf.executing_eagerly() and bool(tf.reduce_any(wrong)):
            culprit = tf.where(wrong)[0].numpy().tolist()
            raise ValueError(f"log_prior of instance {culprit} {what}")
        log_prior = tf.where(wrong[..., None], tf.constant(float("nan"), tf.float64), log_prior)
    return log_prior


@tf.function(jit_compile=True, autograph=False)
def _log_z_by_count(scores, most, where):
    """`log Z_k` of `0..most`, an int; see `log_z_by_count`."""
    counts = tf.range(most + 1, dtype=tf.float64)
    size = circle.size_of(where)[..., None]

    def visit(own, away, ratio, kept, values):
        at_own = circle.log_z(own, scores, where) - tf.zeros_like(own.k)
        others = at_own[..., None] + tf.math.log(ratio) - own.shift[..., None] * away
        return tf.where(kept, others, values)

    values = tf.zeros(tf.concat([tf.shape(scores)[:-1], [most + 1]], axis=0), tf.float64)
    values = _over_counts(scores, most, where, visit, values)
    total = tf.reduce_sum(tf.where(where, scores, 0.0), axis=-1, keepdims=True)
    values = tf.where(counts == size, total, tf.where(counts == 0.0, tf.zeros_like(values), values))
    values = tf.where(counts > size, tf.constant(-float("inf"), tf.float64), values)
    return values + n_choose_k.unsound(scores, where)[..., None]


def _mixed(scores, weights, where):
    """The sum of the marginals of all counts, each by its weight `[..., m + 1]`; not differentiable."""

    @tf.custom_gradient
    def value(scores, weights):
        def gradient(_):
            raise LookupError("the marginals of several counts cannot be differentiated")

        return _mixed_marginals(tf.stop_gradient(scores), tf.stop_gradient(weights), where), gradient

    return value(scores, tf.cast(weights, tf.float64))


@tf.function(jit_compile=True, autograph=False)
def _mixed_marginals(scores, weights, where):
    most = weights.shape[-1] - 1
    counts = tf.range(most + 1, dtype=tf.float64)

    def visit(own, away, ratio, kept, total):
        each = tf.where(kept, weights / tf.where(kept, ratio, 1.0), 0.0)
        cosine, sine = _turned(own, away)
        along = tf.reduce_sum(each[..., None, :] * cosine, axis=-1)
        across = tf.reduce_sum(each[..., None, :] * sine, axis=-1)
        real = own.real * along + own.imaginary * across
        imaginary = own.imaginary * along - own.real * across
        return total + circle.shares(own, real, imaginary)

    total = _over_counts(scores, most, where, visit, tf.zeros_like(scores))
    all_of_them = tf.where((counts == circle.size_of(where)[..., None]) & (counts > 0.0), weights, 0.0)
    total += tf.where(where, tf.reduce_sum(all_of_them, axis=-1, keepdims=True), 0.0)
    return total + n_choose_k.unsound(scores, where)[..., None]


def _turned(own, away):
    """Cosine and sine of the angles by which the circle's nodes turn for other counts, `[..., L, m + 1]`."""
    turned = own.angles[..., None] * away[..., None, :]
    return tf.cos(turned), tf.sin(turned)


def _over_counts(scores, most, where, visit, state):
    """Draws circles until each count between none and all is near the middle of one.

    Args:
      scores, where: float64 and bool `[..., n]`.
      most: the largest count, an int.
      visit: function of a `circle.Circle`, by how much each count is away from its own, the probability of
        each over that of its own, which counts to keep (all `[..., m + 1]`), and the state, to a new state.
      state: a tensor.

    Returns:
      The last state.
    """
    counts = tf.range(most + 1, dtype=tf.float64)
    size = circle.size_of(where)
    end = tf.minimum(size, float(most + 1))  # of the counts that are wanted
    # An instance that cannot be judged is left to the caller; its search must end.
    can_be_judged = tf.math.is_finite(n_choose_k.unsound(scores, where))
    scores = tf.where(can_be_judged[..., None], scores, 0.0)

    def draw(first, reach, state):
        """`first` is the lowest count that is missing; the circle's own lies `reach` above."""
        wanted = first < end
        middle = tf.minimum(first + reach, size - 1.0)
        own = circle.around(scores, tf.where(wanted, middle, 0.5 * tf.maximum(size, 1.0)), where)
        away = counts - own.k[..., None]
        cosine, sine = _turned(own, away)
        ratio = tf.reduce_sum(own.real[..., None] * cosine + own.imaginary[..., None] * sine, axis=-2)
        # Farther out a copy of the law begins.
        near = tf.abs(away) <= 3.0 * tf.sqrt(own.variance)[..., None] + 1.0
        sound = near & (ratio >= _LEAST)
        holds_first = tf.reduce_any(sound & (counts == first[..., None]), axis=-1) & wanted
        lost = wanted & ~holds_first & (reach == 0.0)  # nowhere nearer to search
        ratio = tf.where(sound, ratio, float("nan"))
        kept = sound & holds_first[..., None] & (counts >= first[..., None]) & (counts < end[..., None])
        kept |= lost[..., None] & (counts == first[..., None])
        last = tf.reduce_max(tf.where(kept, counts, -1.0), axis=-1)
        state = visit(own, away, ratio, kept, state)
        reach = tf.where(holds_first, last - middle, tf.floor(reach / 2.0))
        return tf.where(holds_first | lost, last + 1.0, first), tf.maximum(reach, 0.0), state

    start = (tf.ones_like(size), tf.zeros_like(size), state)
    return tf.while_loop(lambda first, *_: tf.reduce_any(first < end), draw, start)[2]
