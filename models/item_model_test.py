"""Item model: scores by hand, and weight decay."""

import numpy as np
import pytest

from rank4class.models.item_model import ItemModel

M = 5
D = 3


def items():
    return {"items": np.random.default_rng(0).normal(size=[4, M, D]).astype(np.float32)}


def test_scores_by_hand():
    linear = ItemModel()
    features = items()
    scores = linear(features)
    np.testing.assert_allclose(scores, (features["items"] @ linear.get_weights()[0])[..., 0], rtol=1e-5)
    model = ItemModel(hidden=(4,), dropout=0.5)
    model(features)
    first, bias, last = model.get_weights()
    bias = np.linspace(-1.0, 1.0, 4, dtype=np.float32)
    model.set_weights([first, bias, last])
    expected = np.maximum(features["items"] @ first + bias, 0.0) @ last[:, 0]
    np.testing.assert_allclose(model(features), expected, rtol=1e-5, atol=1e-6)
    assert not np.allclose(model(features, training=True), expected)


def test_scores_of_items_are_independent():
    model = ItemModel(hidden=(4,))
    features = items()
    order = np.array([3, 0, 4, 1, 2])
    permuted = {"items": features["items"][:, order]}
    np.testing.assert_allclose(model(permuted), model(features).numpy()[:, order], rtol=1e-6)


@pytest.mark.parametrize("hidden", [(), (4,)])
def test_weight_decay_includes_all_kernels(hidden):
    model = ItemModel(hidden=hidden, weight_decay=0.25)
    model(items())
    kernels = [v.numpy() for v in model.trainable_variables if "kernel" in v.name]
    assert len(kernels) == len(hidden) + 1
    np.testing.assert_allclose(model.losses, [0.25 * sum(np.square(k).sum() for k in kernels)], rtol=1e-6)
    assert ItemModel(hidden=hidden).losses == []
    assert ItemModel.from_config(model.get_config()).weight_decay == 0.25


def test_dropout_without_hidden_layers():
    with pytest.raises(ValueError, match=r"dropout=0\.5: there are no hidden layers"):
        ItemModel(dropout=0.5)
