"""The ranking losses as Keras losses, for `model.compile(loss=...)` in anyone's program."""

import tensorflow as tf

from rank4class.losses import functional, gumbel

AUTO = tf.keras.losses.Reduction.AUTO


class RankingLoss(tf.keras.losses.Loss):
    """A pure function of `functional.py` in Keras's dialect.

    `y_pred` is `[B, n]`. `y_true` is integer class ids of shape `[B]` or `[B, 1]`, or one value a
    class, `[B, n]`. The losses of the instances are reduced as Keras reduces every loss:
    `sample_weight` multiplies them, and the batch's mean is taken.

    A subclass names its function and its knobs; the knobs make up the config.
    """

    function = None

    def __init__(self, knobs, reduction, name):
        super().__init__(reduction=reduction, name=name)
        self.knobs = knobs

    def call(self, y_true, y_pred):
        y_pred = tf.convert_to_tensor(y_pred)
        return type(self).function(y_pred, squeeze_ids(y_true, y_pred), **self.knobs)

    def get_config(self):
        return {**super().get_config(), **self.knobs}


def squeeze_ids(y_true, y_pred):
    """Turns class ids of shape `[B, 1]` into `[B]`; leaves any other labels as they are."""
    y_true = tf.convert_to_tensor(y_true)
    is_column = y_true.shape.rank == y_pred.shape.rank and y_true.shape[-1] == 1
    return tf.squeeze(y_true, axis=-1) if is_column and y_pred.shape[-1] != 1 else y_true


_serializable = tf.keras.utils.register_keras_serializable(package="rank4class")


@_serializable
class Softmax(RankingLoss):
    """Softmax cross entropy; see `functional.softmax`.

    >>> Softmax()([2], [[0., 0., 0., 0.]]).numpy().round(4)
    1.3863
    """

    function = staticmethod(functional.softmax)

    def __init__(self, temperature=1.0, reduction=AUTO, name="softmax"):
        super().__init__({"temperature": temperature}, reduction, name)


@_serializable
class PairwiseLogistic(RankingLoss):
    """Pairwise logistic loss; see `functional.pairwise_logistic`.

    >>> PairwiseLogistic(normalize="pairs")([2], [[0., 0., 0., 0.]]).numpy().round(4)
    0.6931
    """

    function = staticmethod(functional.pairwise_logistic)

    def __init__(self, temperature=1.0, normalize="list", reduction=AUTO, name="pairwise_logistic"):
        super().__init__({"temperature": temperature, "normalize": normalize}, reduction, name)


@_serializable
class ApproxNDCG(RankingLoss):
    """Negative NDCG on sigmoid ranks; see `functional.approx_ndcg`.

    >>> ApproxNDCG()([2], [[0., 0., 0.]]).numpy().round(4)
    -0.6309
    """

    function = staticmethod(functional.approx_ndcg)

    def __init__(self, temperature=0.1, reduction=AUTO, name="approx_ndcg"):
        super().__init__({"temperature": temperature}, reduction, name)


@_serializable
class GumbelApproxNDCG(RankingLoss):
    """ApproxNDCG averaged over Gumbel noise; see `functional.gumbel_approx_ndcg`.

    The noise is drawn from `seed` and the scores' own bits (`gumbel.seed_from_scores`): every step
    meets new noise, and a run that is repeated or resumed meets the same.

    >>> GumbelApproxNDCG()([0], [[9., 0., 0.]]).numpy().round(2)
    -1.0
    """

    function = staticmethod(functional.gumbel_approx_ndcg)

    def __init__(
        self,
        temperature=0.1,
        samples=8,
        gumbel_temperature=1.0,
        seed=0,
        reduction=AUTO,
        name="gumbel_approx_ndcg",
    ):
        knobs = {"temperature": temperature, "samples": samples, "gumbel_temperature": gumbel_temperature}
        super().__init__({**knobs, "seed": seed}, reduction, name)

    def call(self, y_true, y_pred):
        y_pred = tf.convert_to_tensor(y_pred)
        knobs = {**self.knobs, "seed": gumbel.seed_from_scores(self.knobs["seed"], y_pred)}
        return functional.gumbel_approx_ndcg(y_pred, squeeze_ids(y_true, y_pred), **knobs)


@_serializable
class MSE(RankingLoss):
    """Mean squared error against the one-hot label; see `functional.mse`.

    >>> MSE()([3], [[0., 0., 0., 2.]]).numpy()
    0.25
    """

    function = staticmethod(functional.mse)

    def __init__(self, reduction=AUTO, name="mse"):
        super().__init__({}, reduction, name)


@_serializable
class RescaledMSE(RankingLoss):
    """Mean squared error with a larger target and weight for the true class; see `functional.rescaled_mse`.

    >>> RescaledMSE(kappa=2.0, target=3.0)([1], [[0., 2.]]).numpy()
    1.0
    """

    function = staticmethod(functional.rescaled_mse)

    def __init__(self, kappa=15.0, target=30.0, reduction=AUTO, name="rescaled_mse"):
        super().__init__({"kappa": kappa, "target": target}, reduction, name)
