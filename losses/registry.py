"""Every loss and metric by name, in one place."""

import difflib
import re

from rank4class.losses import keras_losses, keras_metrics

LOSSES = {
    "softmax": keras_losses.Softmax,
    "calibrated_softmax": keras_losses.CalibratedSoftmax,
    "unique_softmax": keras_losses.UniqueSoftmax,
    "pairwise_logistic": keras_losses.PairwiseLogistic,
    "pairwise_hinge": keras_losses.PairwiseHinge,
    "pairwise_soft_zero_one": keras_losses.PairwiseSoftZeroOne,
    "pairwise_mse": keras_losses.PairwiseMSE,
    "yeti_logistic": keras_losses.YetiLogistic,
    "approx_ndcg": keras_losses.ApproxNDCG,
    "approx_mrr": keras_losses.ApproxMRR,
    "gumbel_approx_ndcg": keras_losses.GumbelApproxNDCG,
    "list_mle": keras_losses.ListMLE,
    "coupled_rank_distil": keras_losses.CoupledRankDistil,
    "mse": keras_losses.MSE,
    "rescaled_mse": keras_losses.RescaledMSE,
    "sigmoid_cross_entropy": keras_losses.SigmoidCrossEntropy,
    "ordinal": keras_losses.Ordinal,
    "mixture_em": keras_losses.MixtureEM,
    "click_em": keras_losses.ClickEM,
}

METRICS = {
    r"top(\d+)_error": keras_metrics.TopKError,
    r"top(\d+)_accuracy": keras_metrics.TopKAccuracy,
    r"ndcg@(\d+)": keras_metrics.NDCG,
    r"ndcg": keras_metrics.NDCG,
    r"mrr": keras_metrics.MRR,
}


def names():
    """Returns the names of all losses.

    >>> "approx_ndcg" in names()
    True
    """
    return tuple(LOSSES)


def get(name, **knobs):
    """Returns the Keras loss of that name.

    Args:
      name: one of `names()`.
      **knobs: the loss's own, such as `temperature`, and Keras's `reduction` and `name`.

    Raises:
      ValueError: an unknown name, or a knob that this loss does not have.

    >>> get("approx_ndcg", temperature=0.5).knobs
    {'temperature': 0.5}
    """
    known = knobs_of(name)
    for knob in knobs:
        if knob not in (*known, "reduction", "name"):
            raise ValueError(f"loss {name!r} has no knob {knob!r}; it has: {', '.join(known) or 'none'}")
    return LOSSES[name](**knobs)


def knobs_of(name):
    """Returns the names of what can be set of a loss.

    Raises:
      ValueError: an unknown name; the message lists the known ones.

    >>> knobs_of("rescaled_mse")
    ('kappa', 'target')
    """
    if name not in LOSSES:
        close = difflib.get_close_matches(name, LOSSES, n=1)
        hint = f", did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"unknown loss {name!r}{hint}; there are: {', '.join(LOSSES)}")
    return tuple(LOSSES[name]().knobs)


def get_metric(name):
    """Returns the Keras metric of that name: `top1_error`, `top5_accuracy`, `ndcg@5`, `ndcg`, `mrr`.

    Raises:
      ValueError: an unknown name.

    >>> get_metric("ndcg@5").k
    5
    """
    for pattern, metric in METRICS.items():
        match = re.fullmatch(pattern, name)
        if match:
            return metric(*map(int, match.groups()))
    raise ValueError(f"unknown metric {name!r}; there are: topK_error, topK_accuracy, ndcg@K, ndcg, mrr")
