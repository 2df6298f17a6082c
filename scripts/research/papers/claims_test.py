"""Claims of the papers that a test decides."""

import numpy as np
import pytest
import tensorflow as tf

from rank4class import losses, models
from rank4class.models import class_encoders, encoders, interactions


def test_classical_classification_is_ranking_with_dot():
    """Rank4Class, Claim 1: after an epoch, a dense softmax classifier has the weights of the ranker."""
    count = 10
    rng = np.random.default_rng(0)
    images = rng.random([512, 8, 8, 1], np.float32)
    labels = rng.integers(count, size=512)
    tf.keras.utils.set_random_seed(0)
    encoder = encoders.Mlp(hidden=(32,))
    classes = class_encoders.Embedding(count, 32)
    ranker = models.RankModel(encoder, classes, interactions.Dot(), num_classes=count)
    ranker({"image": images[:1]})
    hidden = tf.keras.layers.Dense(32, "relu")
    dense = tf.keras.layers.Dense(count)
    classifier = tf.keras.Sequential([tf.keras.layers.Flatten(), hidden, dense])
    classifier(images[:1])
    [kernel, bias], [vectors] = ranker.encoder.get_weights(), ranker.class_encoder.get_weights()
    hidden.set_weights([kernel, bias])
    dense.set_weights([vectors.T, np.zeros(count)])

    for model, x, loss in (
        (ranker, {"image": images}, losses.Softmax()),
        (classifier, images, tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)),
    ):
        model.compile(tf.keras.optimizers.Adam(0.01), loss)
        model.fit(x, labels, batch_size=64, shuffle=False, verbose=0)
    # The dense kernel is the transposed matrix of class vectors, whose products are summed in another order.
    ranked = ranker.class_encoder.get_weights()[0].T
    classical = dense.get_weights()[0]
    assert np.abs(classical - vectors.T).max() > 0.05
    np.testing.assert_allclose(ranked, classical, atol=2e-7)
    np.testing.assert_allclose(ranker({"image": images}), classifier(images), atol=2e-6)


@pytest.mark.parametrize("cutoff", [2, 5])
def test_ndcg_has_more_information_than_accuracy(cutoff):
    """Rank4Class, Theorem 1: NDCG@K >= top-K accuracy >= top-1 accuracy in bits, for any law of the ranks."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        counts = rng.multinomial(1000, rng.dirichlet(np.full(8, 0.3)))
        ranks = np.repeat(np.arange(1, 9), counts)
        top1, topk, ndcg = (
            losses.metrics.information(values)
            for values in (ranks <= 1, ranks <= cutoff, (ranks <= cutoff) / np.log2(1 + ranks))
        )
        assert ndcg >= max(top1, topk) - 1e-12
