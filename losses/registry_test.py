import inspect

import pytest

from rank4class import losses
from rank4class.losses import keras_losses, keras_metrics, registry


def test_every_loss_and_metric_class_is_registered():
    def public(module, base):
        classes = vars(module).values()
        return {
            c
            for c in classes
            if inspect.isclass(c) and issubclass(c, base) and not c.__name__.startswith("_")
        }

    tables = registry.LOSSES | registry.SORTING_LOSSES
    registered = set(tables.values()) | {losses.RankingLoss, losses.SortingLoss, losses.Gumbel}
    assert public(keras_losses, losses.RankingLoss) == registered
    assert public(keras_metrics, losses.RankingMetric) - {losses.RankingMetric} == set(
        registry.METRICS.values()
    )
    for name, loss in tables.items():
        assert loss().name == name


def test_unknown_names_list_the_known():
    with pytest.raises(
        ValueError, match=r"unknown loss 'aprox_ndcg', did you mean 'approx_ndcg'\?; there are: softmax"
    ):
        losses.get("aprox_ndcg")
    with pytest.raises(ValueError, match="loss 'mse' has no knob 'temperature'; it has: none"):
        losses.get("mse", temperature=1.0)
    for name in ("ndgc@5", "top_error", "ndcg@five", "top5_errors"):
        with pytest.raises(
            ValueError, match=f"unknown metric '{name}'; there are: topK_error, topK_accuracy, ndcg@K"
        ):
            losses.get_metric(name)
