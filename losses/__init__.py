"""Ranking losses and metrics: scores and labels to one value an instance.

`losses.functional` and `losses.metrics` hold the pure functions; the Keras classes stand here.
"""

from rank4class.losses.keras_losses import (
    MSE,
    ApproxNDCG,
    GumbelApproxNDCG,
    PairwiseLogistic,
    RankingLoss,
    RescaledMSE,
    Softmax,
)
from rank4class.losses.keras_metrics import MRR, NDCG, RankingMetric, TopKAccuracy, TopKError
from rank4class.losses.registry import get, get_metric, names

__all__ = [
    "MRR",
    "MSE",
    "NDCG",
    "ApproxNDCG",
    "GumbelApproxNDCG",
    "PairwiseLogistic",
    "RankingLoss",
    "RankingMetric",
    "RescaledMSE",
    "Softmax",
    "TopKAccuracy",
    "TopKError",
    "get",
    "get_metric",
    "names",
]
