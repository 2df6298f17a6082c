import importlib

import numpy as np
import pytest
import tensorflow as tf

from rank4class.models import class_encoders, interactions

RNG = np.random.default_rng(0)
H, C = (tf.constant(RNG.normal(size=[n, 8]), tf.float32) for n in (5, 4))


@pytest.fixture
def models_tried():
    """Returns the module. Its parts stay registered, as after the tests of reproductions."""
    return importlib.import_module("rank4class.scripts.research.models_tried")


def test_both_start_as_the_plain_part(models_tried):
    layer = models_tried.LowRank(rank=3)
    dot = interactions.Dot()
    np.testing.assert_array_equal(layer([H, C]), dot([H, C]))
    attended, plain = (cls(4, 8) for cls in (models_tried.Attended, class_encoders.Embedding))
    attended(tf.range(4)), plain(tf.range(4))
    attended.table.assign(C)
    np.testing.assert_array_equal(attended(tf.range(4)), C)


def test_low_rank_by_hand(models_tried):
    layer = models_tried.LowRank(rank=2)
    layer([H, C])
    right = RNG.normal(size=[8, 2]).astype("float32")
    layer.right.assign(right)
    expected = H.numpy() @ (np.eye(8) + layer.left.numpy() @ right.T) @ C.numpy().T
    np.testing.assert_allclose(layer([H, C]), expected, rtol=1e-4, atol=1e-5)
