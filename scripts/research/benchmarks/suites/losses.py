"""Losses, value and gradient, against TensorFlow's cross entropy, TF-Ranking and a pass over the scores."""

from collections.abc import Callable

import tensorflow as tf

from rank4class import compat, losses
from rank4class.scripts.research.benchmarks import suite

tfr = compat.import_tensorflow_ranking()

_LAMBDA_WEIGHTED = ("pairwise_logistic ndcg", "pairwise_logistic mrr")
_TF_RANKING = {
    "softmax": tfr.keras.losses.SoftmaxLoss,
    "calibrated_softmax": tfr.keras.losses.CalibratedSoftmaxLoss,
    "unique_softmax": tfr.keras.losses.UniqueSoftmaxLoss,
    "pairwise_logistic": tfr.keras.losses.PairwiseLogisticLoss,
    "pairwise_logistic ndcg": lambda: tfr.keras.losses.PairwiseLogisticLoss(
        lambda_weight=tfr.keras.losses.NDCGLambdaWeight(smooth_fraction=1.0)
    ),
    "pairwise_hinge": tfr.keras.losses.PairwiseHingeLoss,
    "pairwise_soft_zero_one": tfr.keras.losses.PairwiseSoftZeroOneLoss,
    "pairwise_mse": tfr.keras.losses.PairwiseMSELoss,
    "yeti_logistic": tfr.keras.losses.YetiLogisticLoss,
    "approx_ndcg": tfr.keras.losses.ApproxNDCGLoss,
    "approx_mrr": tfr.keras.losses.ApproxMRRLoss,
    "gumbel_approx_ndcg": tfr.keras.losses.GumbelApproxNDCGLoss,
    "list_mle": tfr.keras.losses.ListMLELoss,
    "coupled_rank_distil": tfr.keras.losses.CoupledRankDistilLoss,
    "mse": tfr.keras.losses.MeanSquaredLoss,
    "sigmoid_cross_entropy": tfr.keras.losses.SigmoidCrossEntropyLoss,
    "ordinal": lambda: tfr.keras.losses.OrdinalLoss(ordinal_size=2),
    "mixture_em": tfr.keras.losses.MixtureEMLoss,
    "click_em": tfr.keras.losses.ClickEMLoss,
}
_LINEAR_IN_TF_RANKING = {
    *("softmax", "calibrated_softmax", "list_mle", "mse", "sigmoid_cross_entropy", "ordinal", "mixture_em"),
    "click_em",
}
_NINE_TENSORS_IN_TF_RANKING = {
    *("pairwise_logistic", "pairwise_hinge", "pairwise_soft_zero_one", "approx_ndcg", "approx_mrr"),
}
# Sorting eight noisy copies of millions of scores takes minutes per step: left out.
_SORT_EVERY_SAMPLE = {"yeti_logistic", "coupled_rank_distil"}


def _contenders(size: suite.Size) -> list[suite.Step]:
    batch, n = size
    steps = []
    for name in (*losses.names(), *_LAMBDA_WEIGHTED):
        if name in _SORT_EVERY_SAMPLE and batch * n > 1_000_000:
            continue
        theirs = (f"tensorflow_ranking:{name}",) if _fits_tf_ranking(name, size) else ()
        steps += suite.with_and_without_xla(name, "softmax_ce", *theirs, "floor")
    return steps


def _fits_tf_ranking(name: str, size: suite.Size) -> bool:
    """Returns whether TF-Ranking has the loss, and its tensors of `[B, n, n]` fit in memory."""
    if name not in _TF_RANKING:
        return False
    batch, n = size
    lists = batch * _loss(name).options.get("samples", 1)
    items = lists * n if name in _LINEAR_IN_TF_RANKING else lists * n * n
    tensors = 9 if name in _NINE_TENSORS_IN_TF_RANKING else 20  # of that size, as measured
    return tensors * 4 * items < suite.memory_bytes()


def _build(step: suite.Step, size: suite.Size) -> suite.Compiled:
    scores, labels = suite.scores_and_labels(*size)
    if step.kind == "floor":
        return suite.Compiled(lambda scores: -scores, step.xla, scores)
    if step.kind == "softmax_ce":
        return suite.Compiled(suite.value_and_gradient(suite.softmax_ce), step.xla, scores, labels)
    loss: Callable = _loss(step.contender)
    if losses.LOSSES[step.contender.partition(" ")[0]].heads:
        scores = tf.stack([scores, scores / 2.0], axis=-1)
    if step.kind == "tensorflow_ranking":
        loss, labels = _TF_RANKING[step.contender](), tf.one_hot(labels, size[1])
    return suite.Compiled(suite.value_and_gradient(lambda s, y: loss(y, s)), step.xla, scores, labels)


def _loss(contender: str) -> losses.RankingLoss:
    name, _, weight = contender.partition(" ")
    return losses.get(name, **({"lambda_weight": weight} if weight else {}))


SUITE = suite.Suite(
    axes="BATCHxCLASSES",
    sizes=suite.BATCH_AND_CLASSES,
    contenders=_contenders,
    build=_build,
)
