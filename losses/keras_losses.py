"""The ranking losses as Keras losses, for `model.compile(loss=...)` in anyone's program.

Each class is a function of `functional.py`, which says what the loss is, what its knobs mean and where
it comes from; the function's keyword arguments are the class's own.
"""

import inspect

import tensorflow as tf

from rank4class.losses import counts, functional, gumbel, label_checks, ranks, sorting

AUTO = tf.keras.losses.Reduction.AUTO


class _OfTheClass:
    """An attribute that instances lack: theirs would hide the signature of `__call__` from `tf.function`."""

    def __init__(self, value):
        self._value = value

    def __get__(self, instance, owner=None):
        return self._value if instance is None else None


class RankingLoss(tf.keras.losses.Loss):
    """A pure function of `functional.py` in Keras's dialect.

    `y_pred` is `[B, n]`. `y_true` is integer class ids of shape `[B]` or `[B, 1]`, or one value a
    class, `[B, n]`. The losses of the instances are reduced as Keras reduces every loss:
    `sample_weight` multiplies them, and the batch's mean is taken.

    Class ids lie in `0..n - 1`. In `fit` and `evaluate`, other labels raise `tf.errors.InvalidArgumentError`
    with the least and the largest label of the batch. XLA (`jit_compile=True`) and TPUs drop that check, and
    `functional` and `of_scores` have none inside a `tf.function`: there, "loss: nan" from the first step
    usually means labels outside `0..n - 1`, such as ids from 1.

    A loss that draws noise draws it from its `seed` and the scores' own bits
    (`gumbel.seed_from_scores`): every step meets new noise, and a run that is repeated or resumed
    meets the same.

    Args:
      reduction, name: see `tf.keras.losses.Loss`.
      **knobs: the function's; what is left out keeps the function's default.

    Raises:
      TypeError: a knob that the function does not have.
      ValueError: raised by a call: labels or scores are no dense tensors of numbers (but ragged or sparse),
        their shapes do not fit, or (in eager mode) a label is outside the classes or no gain.
    """

    function = None
    heads = False  # whether the scores have one more axis, `[B, n, H]`
    of_classes = True  # whether the scores are of classes, `[B, n]`

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if callable(cls.function):
            cls.defaults = _knobs_of(cls.function)
            own = [_keyword(knob, default) for knob, default in cls.defaults.items()]
            own += [_keyword("reduction", AUTO), _keyword("name", None)]
            cls.__signature__ = _OfTheClass(inspect.Signature(own))

    def __init__(self, *, reduction=AUTO, name=None, **knobs):
        unknown = sorted(set(knobs) - set(self.defaults))
        if unknown:
            known = ", ".join(self.defaults) or "none"
            raise TypeError(f"{type(self).__name__} has no knob {unknown[0]!r}; it has: {known}")
        super().__init__(reduction=reduction, name=name or self.function.__name__)
        self.knobs = {**self.defaults, **knobs}

    def call(self, y_true, y_pred):
        y_pred = ranks.dense("y_pred", y_pred)
        lists = y_pred[..., 0] if self.heads else y_pred
        labels = squeeze_ids(y_true, lists)
        label_checks.assert_valid(labels, lists)
        return self.of_scores(y_pred, labels)

    def of_scores(self, scores, labels, *, where=None, weights=None):
        """Returns each instance's loss from its scores and its labels; see `functional` for all four."""
        return self.function(scores, labels, where=where, weights=weights, **with_seed(self.knobs, scores))

    def get_config(self):
        return {**super().get_config(), **self.knobs}

    @classmethod
    def from_config(cls, config):
        restored = {
            key: tf.keras.utils.deserialize_keras_object(value) if isinstance(value, dict) else value
            for key, value in config.items()
        }
        return cls(**restored)


def squeeze_ids(y_true, y_pred):
    """Turns class ids of shape `[B, 1]` into `[B]`; leaves any other labels as they are."""
    y_true = ranks.dense("y_true", y_true)
    is_column = y_true.shape.rank == y_pred.shape.rank and y_true.shape[-1] == 1
    return tf.squeeze(y_true, axis=-1) if is_column and y_pred.shape[-1] != 1 else y_true


def with_seed(knobs, scores):
    """Turns the seed among the knobs, if there is one, into the seed of these scores."""
    if "seed" not in knobs:
        return knobs
    return {**knobs, "seed": gumbel.seed_from_scores(knobs["seed"], scores)}


def _knobs_of(function):
    """Returns the keyword arguments that make a loss what it is, with their defaults."""
    parameters = inspect.signature(function).parameters.values()
    keywords = [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in ("where", "weights")]
    return {p.name: 0 if p.name == "seed" else p.default for p in keywords}


def _keyword(name, default):
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)


_serializable = tf.keras.utils.register_keras_serializable(package="rank4class")


@_serializable
class Softmax(RankingLoss):
    """Softmax cross entropy; see `functional.softmax`.

    >>> Softmax()([2], [[0., 0., 0., 0.]]).numpy().round(4)
    1.3863
    """

    function = staticmethod(functional.softmax)


@_serializable
class Rankmax(RankingLoss):
    """Rankmax cross entropy; see `functional.rankmax`.

    >>> Rankmax()([1], [[2.0, 1.5, 0.0]]).numpy().round(4)
    0.9163
    """

    function = staticmethod(functional.rankmax)


@_serializable
class Sparsemax(RankingLoss):
    """Sparsemax loss; see `functional.sparsemax`.

    >>> Sparsemax()([1], [[2.0, 1.5, 0.0]]).numpy()
    0.5625
    """

    function = staticmethod(functional.sparsemax)


@_serializable
class NChooseK(RankingLoss):
    """Likelihood of the relevant classes among all sets of as many; see `functional.n_choose_k`.

    >>> NChooseK()([[1.0, 1.0, 0.0, 0.0]], [[0.0, 0.0, 0.0, 0.0]]).numpy().round(4)
    1.7918
    """

    function = staticmethod(functional.n_choose_k)


@_serializable
class TopKGain(RankingLoss):
    """How likely the true class is among `k`; see `functional.top_k_gain`.

    >>> TopKGain(k=3)([2], [[0.0, 0.0, 0.0, 0.0]]).numpy().round(4)
    0.2877
    """

    function = staticmethod(functional.top_k_gain)


@_serializable
class WARP(RankingLoss):
    """Hinge loss of the classes within a margin, weighted by their number; see `functional.warp`.

    >>> WARP()([1], [[2.0, 1.5, 0.0]]).numpy().round(4)
    1.5
    """

    function = staticmethod(functional.warp)


@_serializable
class CalibratedSoftmax(RankingLoss):
    """Softmax cross entropy with one more class, of score 0; see `functional.calibrated_softmax`.

    >>> CalibratedSoftmax()([2], [[0., 0., 0.]]).numpy().round(4)
    1.3863
    """

    function = staticmethod(functional.calibrated_softmax)


@_serializable
class UniqueSoftmax(RankingLoss):
    """Softmax cross entropy of every class against those of lower label; see `functional.unique_softmax`.

    >>> UniqueSoftmax()([[2., 1., 0.]], [[0., 0., 0.]]).numpy().round(4)
    3.989
    """

    function = staticmethod(functional.unique_softmax)


@_serializable
class PairwiseLogistic(RankingLoss):
    """Pairwise logistic loss; see `functional.pairwise_logistic`.

    >>> PairwiseLogistic(normalize="pairs")([2], [[0., 0., 0., 0.]]).numpy().round(4)
    0.6931
    """

    function = staticmethod(functional.pairwise_logistic)


@_serializable
class PairwiseHinge(RankingLoss):
    """Pairwise hinge loss; see `functional.pairwise_hinge`.

    >>> PairwiseHinge(normalize="none")([0], [[0., 0.5, -2.]]).numpy()
    1.5
    """

    function = staticmethod(functional.pairwise_hinge)


@_serializable
class PairwiseSoftZeroOne(RankingLoss):
    """Soft count of the classes above the true one; see `functional.pairwise_soft_zero_one`.

    >>> PairwiseSoftZeroOne(normalize="pairs")([2], [[0., 0., 0., 0.]]).numpy()
    0.5
    """

    function = staticmethod(functional.pairwise_soft_zero_one)


@_serializable
class PairwiseMSE(RankingLoss):
    """Squared error of every difference of two scores; see `functional.pairwise_mse`.

    >>> PairwiseMSE(normalize="pairs")([0], [[3., 0.]]).numpy()
    4.0
    """

    function = staticmethod(functional.pairwise_mse)


@_serializable
class YetiLogistic(RankingLoss):
    """Pairwise logistic loss of neighbours, in orders drawn from the model; see `functional.yeti_logistic`.

    >>> YetiLogistic()([0], [[99., 0., 0.]]).numpy()
    0.0
    """

    function = staticmethod(functional.yeti_logistic)


@_serializable
class ApproxNDCG(RankingLoss):
    """Negative NDCG on soft ranks; see `functional.approx_ndcg`.

    >>> ApproxNDCG()([2], [[0., 0., 0.]]).numpy().round(4)
    -0.6309
    """

    function = staticmethod(functional.approx_ndcg)


@_serializable
class ApproxMRR(RankingLoss):
    """Negative reciprocal rank on soft ranks; see `functional.approx_mrr`.

    >>> ApproxMRR()([2], [[0., 0., 0.]]).numpy()
    -0.5
    """

    function = staticmethod(functional.approx_mrr)


@_serializable
class GumbelApproxNDCG(RankingLoss):
    """ApproxNDCG averaged over Gumbel noise; see `functional.gumbel_approx_ndcg`.

    >>> GumbelApproxNDCG()([0], [[9., 0., 0.]]).numpy().round(2)
    -1.0
    """

    function = staticmethod(functional.gumbel_approx_ndcg)


@_serializable
class ListMLE(RankingLoss):
    """Negative log likelihood of the order of the labels; see `functional.list_mle`.

    >>> ListMLE()([[2., 1., 0.]], [[0., 0., 0.]]).numpy().round(4)  # log 3!
    1.7918
    """

    function = staticmethod(functional.list_mle)


@_serializable
class CoupledRankDistil(RankingLoss):
    """Cross entropy of the model's orders against a teacher's; see `functional.coupled_rank_distil`.

    >>> CoupledRankDistil(top_k=1)([[2., 1., 0.]], [[0., 0., 0.]]).numpy().round(4)
    1.0986
    """

    function = staticmethod(functional.coupled_rank_distil)


@_serializable
class MSE(RankingLoss):
    """Mean squared error against the one-hot label; see `functional.mse`.

    >>> MSE()([3], [[0., 0., 0., 2.]]).numpy()
    0.25
    """

    function = staticmethod(functional.mse)


@_serializable
class RescaledMSE(RankingLoss):
    """Mean squared error with a larger target and weight for the true class; see `functional.rescaled_mse`.

    >>> RescaledMSE(kappa=4.0, target=3.0)([1], [[0., 2.]]).numpy()
    2.0
    """

    function = staticmethod(functional.rescaled_mse)


@_serializable
class SigmoidCrossEntropy(RankingLoss):
    """Mean cross entropy of one binary problem a class; see `functional.sigmoid_cross_entropy`.

    >>> SigmoidCrossEntropy()([2], [[0., 0., 0.]]).numpy().round(4)
    0.6931
    """

    function = staticmethod(functional.sigmoid_cross_entropy)


@_serializable
class Ordinal(RankingLoss):
    """Cross entropy of one binary problem a level, on scores `[B, n, L]`; see `functional.ordinal`.

    >>> Ordinal()([[2., 1.]], [[[0., 0.], [0., 0.]]]).numpy().round(4)
    1.3863
    """

    function = staticmethod(functional.ordinal)
    heads = True


@_serializable
class MixtureEM(RankingLoss):
    """Expectation maximisation over a mixture of models, on scores `[B, n, H]`; see `functional.mixture_em`.

    >>> MixtureEM()([[1., 0.]], [[[0., 0.], [0., 0.]]]).numpy().round(4)
    1.3863
    """

    function = staticmethod(functional.mixture_em)
    heads = True


@_serializable
class ClickEM(RankingLoss):
    """Expectation maximisation for clicks, on scores `[B, n, 2]`; see `functional.click_em`.

    >>> ClickEM()([[1.]], [[[0., 0.]]]).numpy().round(4)
    1.3863
    """

    function = staticmethod(functional.click_em)
    heads = True


@_serializable
class Gumbel(RankingLoss):
    """The mean of another loss over noisy copies of the scores; see `functional.gumbel`.

    Args:
      loss: a loss of this module that draws no noise itself and takes one score a class; its own
        reduction does not count.
      samples, gumbel_temperature, seed: see `functional.gumbel` and `RankingLoss`.

    Raises:
      ValueError: the loss draws noise of its own, or takes several scores a class.
      TypeError: it is none of this module's.

    >>> Gumbel(PairwiseHinge(), samples=4)([0], [[99., 0., 0.]]).numpy()
    0.0
    """

    def __init__(self, loss, *, samples=8, gumbel_temperature=1.0, seed=0, reduction=AUTO, name=None):
        if not isinstance(loss, RankingLoss):
            raise TypeError(f"Gumbel wraps a loss of this module, such as Softmax(), not {loss!r}")
        functional.gumbel(loss.function)  # refuses what it cannot wrap
        tf.keras.losses.Loss.__init__(self, reduction=reduction, name=name or f"gumbel_{loss.name}")
        self.loss = loss
        self.noise = {"samples": samples, "gumbel_temperature": gumbel_temperature, "seed": seed}
        self.knobs = {**loss.knobs, **self.noise}

    @property
    def function(self):
        return functional.gumbel(self.loss.function)

    def get_config(self):
        return {**tf.keras.losses.Loss.get_config(self), "loss": self.loss, **self.noise}


class SortingLoss(RankingLoss):
    """A loss of whole batches on a given rank function; see `sorting`.

    The instances of a batch, on several devices those of each replica, are ranked among one another.
    """


def _one_each(name, values):
    """Returns `[B]` of `[B]` or `[B, 1]`."""
    values = ranks.dense(name, values)
    if values.shape.rank != 1 and not values.shape.is_compatible_with([None, 1]):
        raise ValueError(f"{name} of shape {values.shape} are not one an instance, [B] or [B, 1]")
    return tf.reshape(values, [-1])


@_serializable
class Spearman(SortingLoss):
    """One less Spearman's rank correlation; see `sorting.spearman`. `y_true`, `y_pred`: `[B]` or `[B, 1]`.

    >>> from rank4class.losses import ranks
    >>> loss = Spearman(rank_fn=ranks.mean_ranks)
    >>> loss([[5.0], [9.0], [1.0]], [[0.1], [0.3], [0.2]]).numpy()
    0.5
    """

    function = staticmethod(sorting.spearman)
    of_classes = False

    def call(self, y_true, y_pred):
        return self.of_scores(_one_each("scores", y_pred), _one_each("targets", y_true))


@_serializable
class MeanAveragePrecision(SortingLoss):
    """Ranks of each class's instances; see `sorting.mean_average_precision`.

    >>> from rank4class.losses import ranks
    >>> loss = MeanAveragePrecision(rank_fn=ranks.mean_ranks, form="precision")
    >>> loss([[1.0], [1.0], [0.0]], [[0.9], [0.1], [0.5]]).numpy().round(4)
    -0.8333
    """

    function = staticmethod(sorting.mean_average_precision)


@_serializable
class RecallTriplet(SortingLoss):
    """Triplet loss of ranks, both ways; see `sorting.recall_triplet`.

    `y_pred` is the scores of all pairs, `[B, B]`, those that belong together on the diagonal; `y_true` says
    nothing.

    >>> from rank4class.losses import ranks
    >>> RecallTriplet(rank_fn=ranks.mean_ranks)([0.0, 0.0], [[0.1, 0.3], [0.2, 0.4]]).numpy()
    1.0
    """

    function = staticmethod(sorting.recall_triplet)
    of_classes = False

    def call(self, y_true, y_pred):
        del y_true
        return self.function(y_pred, **self.knobs)


@_serializable
class CountLikelihood(tf.keras.losses.Loss):
    """How likely the number of classes is under a count prior: `counts.count_nll`.

    It is the loss of a model's output `log_counts`, beside `NChooseK` for its `scores`: their sum is the
    likelihood of the set. `y_pred` is `[B, m + 1]`, the log-probabilities of the counts, and `y_true` what
    the loss of the scores takes, `[B, n]` or class ids `[B]` or `[B, 1]`.

    >>> CountLikelihood()([[1.0, 0.0, 1.0]], [[-9.0, -9.0, -0.5, -1.0]]).numpy()
    0.5
    """

    def __init__(self, *, reduction=AUTO, name="count_likelihood"):
        super().__init__(reduction=reduction, name=name)

    def call(self, y_true, y_pred):
        y_true = ranks.dense("y_true", y_true)
        are_ids = y_true.shape.rank == 2 and y_true.shape[1] == 1
        return counts.count_nll(y_pred, tf.squeeze(y_true, axis=1) if are_ids else y_true)
