"""Losses and metrics by name: every class has a name, and unknown names list the known ones."""

import inspect

import pytest

from rank4class import losses


def public(base):
    """Returns the classes that the package exports with a base class, without the abstract ones."""
    classes = {c for c in vars(losses).values() if inspect.isclass(c) and issubclass(c, base)}
    return classes - {base, losses.Gumbel}


def test_every_loss_and_metric_class_is_registered():
    by_name = {name: losses.LOSSES[name] for name in losses.LOSSES}
    assert public(losses.RankingLoss) == set(by_name.values())
    assert public(losses.RankingMetric) == set(losses.metrics.METRICS.values())
    for name, loss in by_name.items():
        assert loss().name == name
        assert tuple(losses.LOSSES.options(name)) == tuple(loss.defaults)


def test_every_loss_is_exported_as_function_and_class():
    for name in losses.names():
        assert getattr(losses, name) is losses.LOSSES[name].function
        assert getattr(losses, losses.LOSSES[name].__name__) is losses.LOSSES[name]


def test_the_help_of_every_function_describes_the_common_arguments():
    of_losses = [losses.LOSSES[name] for name in losses.LOSSES]
    for of_class in (*of_losses, *losses.metrics.METRICS.values()):
        present = inspect.signature(of_class.function).parameters.keys()
        for name in present & {"scores", "labels", "where", "weights", "l1"}:
            assert f"\n  {name}: " in inspect.getdoc(of_class.function), of_class


def test_unknown_names_list_the_known():
    message = r"loss='aprox_ndcg': unknown\. Did you mean 'approx_ndcg'\? There are: .*softmax, "
    with pytest.raises(ValueError, match=message):
        losses.get("aprox_ndcg")
    with pytest.raises(TypeError, match="temperature: MSE has no such option. It has: none."):
        losses.get("mse", temperature=1.0)
    for name in ("ndgc@5", "top_error", "ndcg@five", "top5_errors"):
        message = f"metric='{name}': unknown. There are: topK_accuracy, topK_error, ndcg@K"
        with pytest.raises(ValueError, match=message):
            losses.get_metric(name)
