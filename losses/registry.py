"""Every loss and metric by name, in one place."""

import difflib
import inspect
import re

from rank4class.losses import keras_losses, keras_metrics, set_metrics

LOSSES = {
    "softmax": keras_losses.Softmax,
    "rankmax": keras_losses.Rankmax,
    "sparsemax": keras_losses.Sparsemax,
    "warp": keras_losses.WARP,
    "n_choose_k": keras_losses.NChooseK,
    "top_k_gain": keras_losses.TopKGain,
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

# Losses of a whole batch on a rank function, which they need.
SORTING_LOSSES = {
    "spearman": keras_losses.Spearman,
    "mean_average_precision": keras_losses.MeanAveragePrecision,
    "recall_triplet": keras_losses.RecallTriplet,
}

METRICS = {
    r"top(\d+)_error": keras_metrics.TopKError,
    r"top(\d+)_accuracy": keras_metrics.TopKAccuracy,
    r"ndcg@(\d+)": keras_metrics.NDCG,
    r"ndcg": keras_metrics.NDCG,
    r"mrr": keras_metrics.MRR,
    r"mean_rank": keras_metrics.MeanRank,
    r"precision@(\d+)": keras_metrics.Precision,
    r"recall@(\d+)": keras_metrics.Recall,
    r"map@(\d+)": keras_metrics.MAP,
    r"map": keras_metrics.MAP,
}

SET_METRICS = {
    "nll": set_metrics.SetMetric(set_metrics.nll, percent=False, higher_is_better=False),
    "exact_match": set_metrics.SetMetric(set_metrics.exact_match, percent=True, higher_is_better=True),
}


def names():
    """Returns the names of all losses; `gumbel_` before another one averages it over Gumbel noise.

    >>> "approx_ndcg" in names()
    True
    """
    return tuple(LOSSES)


def get(name, **knobs):
    """Returns the Keras loss of that name.

    Args:
      name: one of `names()`, `gumbel_` and the name of one that draws no noise itself, or one of
        `SORTING_LOSSES`.
      **knobs: the loss's own, such as `temperature`, and Keras's `reduction` and `name`.

    Raises:
      ValueError: an unknown name, or a knob that this loss does not have.

    >>> get("approx_ndcg", temperature=0.5).knobs["temperature"]
    0.5
    >>> get("gumbel_pairwise_hinge", samples=4).name
    'gumbel_pairwise_hinge'
    """
    known = knobs_of(name)
    for knob in knobs:
        if knob not in (*known, "reduction", "name"):
            raise ValueError(f"loss {name!r} has no knob {knob!r}; it has: {', '.join(known) or 'none'}")
    return _build(name, knobs)


def knobs_of(name):
    """Returns the names of what can be set of a loss.

    Raises:
      ValueError: an unknown name; the message lists the known ones.

    >>> knobs_of("rescaled_mse")
    ('kappa', 'target')
    """
    return tuple(_build(name, {}).knobs)


def get_metric(name, ties="worst", max_relevant=None):
    """Returns the Keras metric of that name, such as `top1_error`, `ndcg@5` or `map`, or a `SetMetric`.

    Args:
      name: one of `METRICS`, with a number for K, or of `SET_METRICS`, which the other arguments say nothing
        about.
      ties: "worst" or "average"; see `metrics`.
      max_relevant: how many classes are relevant in a list of dense labels at most, or None; see `metrics`.

    Raises:
      ValueError: an unknown name, or a knob that makes no sense.

    >>> get_metric("ndcg@5").name
    'ndcg@5'
    """
    for pattern, metric in METRICS.items():
        match = re.fullmatch(pattern, name)
        if match:
            return metric(*map(int, match.groups()), ties=ties, max_relevant=max_relevant)
    if name in SET_METRICS:
        return SET_METRICS[name]
    known = ", ".join(pattern.replace(r"(\d+)", "K") for pattern in (*METRICS, *SET_METRICS))
    raise ValueError(f"unknown metric {name!r}; there are: {known}")


def _build(name, knobs):
    table = {**LOSSES, **SORTING_LOSSES}
    if name in table:
        return table[name](**knobs)
    base = name.removeprefix("gumbel_")
    if base != name and base in LOSSES:
        own = inspect.signature(keras_losses.Gumbel).parameters
        around = {knob: knobs[knob] for knob in knobs if knob in own}
        inner = {knob: knobs[knob] for knob in knobs if knob not in own}
        return keras_losses.Gumbel(LOSSES[base](**inner), **around)
    close = difflib.get_close_matches(name, table, n=1)
    hint = f", did you mean {close[0]!r}?" if close else ""
    raise ValueError(f"unknown loss {name!r}{hint}; there are: {', '.join(table)}")
