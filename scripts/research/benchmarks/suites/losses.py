"""Losses, value and gradient, against TensorFlow's cross entropy, TF-Ranking and a pass over the scores."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from rank4class import compat, losses
from rank4class.scripts.research.benchmarks import suite

theirs = compat.import_tensorflow_ranking().keras.losses

# Loss of TF-Ranking, and how many tensors of `[B, n, n]` it holds, as measured; 0: only tensors of `[B, n]`.
_TF_RANKING: dict[str, tuple[Callable, int]] = {
    "softmax": (theirs.SoftmaxLoss, 0),
    "calibrated_softmax": (theirs.CalibratedSoftmaxLoss, 0),
    "unique_softmax": (theirs.UniqueSoftmaxLoss, 20),
    "pairwise_logistic": (theirs.PairwiseLogisticLoss, 9),
    "pairwise_hinge": (theirs.PairwiseHingeLoss, 9),
    "pairwise_soft_zero_one": (theirs.PairwiseSoftZeroOneLoss, 9),
    "pairwise_mse": (theirs.PairwiseMSELoss, 20),
    "yeti_logistic": (theirs.YetiLogisticLoss, 20),
    "approx_ndcg": (theirs.ApproxNDCGLoss, 9),
    "approx_mrr": (theirs.ApproxMRRLoss, 9),
    "gumbel_approx_ndcg": (theirs.GumbelApproxNDCGLoss, 20),
    "list_mle": (theirs.ListMLELoss, 0),
    "coupled_rank_distil": (theirs.CoupledRankDistilLoss, 20),
    "mse": (theirs.MeanSquaredLoss, 0),
    "sigmoid_cross_entropy": (theirs.SigmoidCrossEntropyLoss, 0),
    "ordinal": (lambda: theirs.OrdinalLoss(ordinal_size=2), 0),
    "mixture_em": (theirs.MixtureEMLoss, 0),
    "click_em": (theirs.ClickEMLoss, 0),
}
# Sorting eight noisy copies of millions of scores takes minutes per step: left out.
_SORT_EVERY_SAMPLE = {"yeti_logistic", "coupled_rank_distil"}


def _contenders(size: suite.Size) -> list[suite.Step]:
    batch, n = size
    steps = []
    for name in losses.names():
        if name in _SORT_EVERY_SAMPLE and batch * n > 1_000_000:
            continue
        baseline = (f"tensorflow_ranking:{name}",) if _fits_tf_ranking(name, size) else ()
        steps += suite.with_and_without_xla(name, "softmax_ce", *baseline, "floor")
    return steps


def _fits_tf_ranking(name: str, size: suite.Size) -> bool:
    """Returns whether TF-Ranking has the loss, and its tensors of `[B, n, n]` fit in memory."""
    if name not in _TF_RANKING:
        return False
    batch, n = size
    lists, (_, squares) = batch * losses.get(name).options.get("samples", 1), _TF_RANKING[name]
    numbers = squares * lists * n * n if squares else 20 * lists * n
    return 4 * numbers < suite.memory_bytes()


def _build(step: suite.Step, size: suite.Size) -> suite.Compiled:
    scores, labels = suite.scores_and_labels(*size)
    if step.kind == "floor":
        return suite.Compiled(lambda scores: -scores, step.xla, scores)
    if step.kind == "softmax_ce":
        return suite.Compiled(suite.value_and_gradient(suite.softmax_ce), step.xla, scores, labels)
    loss: Any = losses.get(step.contender)
    if loss.heads:
        scores = tf.stack([scores, scores / 2.0], axis=-1)
    if step.kind == "tensorflow_ranking":
        loss = _TF_RANKING[step.contender][0]()
        labels = tf.one_hot(labels, size[1])
    return suite.Compiled(suite.value_and_gradient(lambda s, y: loss(y, s)), step.xla, scores, labels)


SUITE = suite.Suite(
    axes="BATCHxCLASSES",
    sizes=suite.BATCH_AND_CLASSES,
    contenders=_contenders,
    build=_build,
)
