"""Count priors: distributions, and invalid options."""

import numpy as np
import pytest
import tensorflow as tf

from rank4class import models


def test_learned_counts_are_a_distribution():
    layer = models.get("count_prior", "learned", most=3, hidden=(4,))
    probabilities = tf.exp(layer(tf.random.stateless_normal([64, 8], [0, 1])))
    assert probabilities.shape == [64, 4]
    np.testing.assert_allclose(tf.reduce_sum(probabilities, axis=1), 1.0, rtol=1e-5)
    assert len(layer.trainable_variables) == 4


def test_fixed_counts_are_the_same_for_every_instance():
    log_counts = models.get("count_prior", "fixed", probabilities=(0.25, 0.0, 0.75))(tf.zeros([2, 8]))
    np.testing.assert_allclose(tf.exp(log_counts), [[0.25, 0.0, 0.75]] * 2)


def test_invalid_options():
    for name, options, message in (
        ("learned", {"most": 0}, "most=0: not an integer of at least 1"),
        ("learned", {"most": 2.5}, "most=2.5: not an integer of at least 1"),
        ("fixed", {"probabilities": (0.5, 0.4)}, "they sum to 0.9, not to 1. Scale them"),
        ("fixed", {"probabilities": (1.5, -0.5)}, "probability of count 1=-0.5: too small"),
        ("fixed", {"probabilities": (0.5, float("nan"))}, "probability of count 1=nan: too small"),
        ("fixd", {}, "count_prior='fixd': unknown. Did you mean 'fixed'?"),
        ("learned", {}, "most: count_prior 'learned' requires it"),
    ):
        with pytest.raises(ValueError, match=message):
            models.get("count_prior", name, **options)
