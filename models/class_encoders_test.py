"""Class encoders: texts in blocks and of candidates, residuals, and values by hand."""

import json

import numpy as np
import pytest
import tensorflow as tf

from rank4class import models
from rank4class.models import class_encoders, encoders

N = 5
D = 8


def bert():
    sizes = {"vocab_size": 20, "hidden_size": D, "num_layers": 1, "num_heads": 2, "inner_size": 16}
    return encoders.Bert(**sizes, pooling="mean")


def tokens(rows, seed=0):
    ids = np.random.default_rng(seed).integers(1, 20, size=[rows, 6]).astype(np.int32)
    return {"input_word_ids": ids, "input_mask": np.ones_like(ids), "input_type_ids": np.zeros_like(ids)}


VECTORS = np.random.default_rng(3).normal(size=[N, D]).astype(np.float32)
MAKERS = {
    "text": lambda: models.get("class_encoder", "text", features=tokens(N, seed=1)),
    "frozen_text": lambda: models.get("class_encoder", "frozen_text", shape=[N, D], width=D, vectors=VECTORS),
}


@pytest.mark.parametrize("compiled", [False, True])
def test_texts_are_encoded_in_blocks_except_in_training(monkeypatch, compiled):
    layer = MAKERS["text"]()
    encoder = bert()
    sizes = []

    def encode(features):
        sizes.append(features["input_mask"].shape[0])
        return encoder(features)

    expected = layer(tf.range(N), encode=encode)
    monkeypatch.setattr(class_encoders, "_BLOCK", 2)
    call = tf.function(layer, autograph=False, jit_compile=True) if compiled else layer
    np.testing.assert_allclose(call(tf.range(N), encode=encode), expected, rtol=1e-5, atol=1e-6)
    layer(tf.range(N), encode=encode, training=True)
    assert sizes[:2] == [N, 2]
    assert set(sizes[2:-1]) == {2}
    assert sizes[-1] == N


def test_text_uses_the_instance_encoder():
    model = models.RankModel(bert(), MAKERS["text"](), models.get("interaction", "dot"), num_classes=N)
    features = tokens(3)
    h = model.encoder(features)
    c = model.encoder({k: tf.constant(v) for k, v in tokens(N, seed=1).items()})
    np.testing.assert_allclose(model(features), tf.matmul(h, c, transpose_b=True), rtol=1e-5, atol=1e-5)
    assert model.class_encoder.trainable_variables == []


@pytest.mark.parametrize("compiled", [False, True])
def test_candidates_in_training_are_padded_to_their_longest_text(compiled):
    ids = np.arange(1, 19, dtype=np.int32).reshape(3, 6)
    mask = np.arange(6) < np.array([[6], [2], [3]])
    features = {"input_word_ids": ids * mask, "input_mask": mask, "input_type_ids": 0 * ids}
    layer = models.get("class_encoder", "text", features=features)
    encoder = bert()
    lengths = []

    def encode(features):
        lengths.append(features["input_mask"].shape[1])
        return encoder(features, training=False)

    def call(class_ids):
        return layer(class_ids, encode=encode, training=True)

    expected = call(tf.range(3))
    call = tf.function(call, autograph=False, jit_compile=True) if compiled else call
    np.testing.assert_allclose(call(tf.constant([1, 2])), expected[1:], rtol=1e-4, atol=1e-6)
    assert lengths == [6, 6 if compiled else 3]


def test_tokens_of_many_texts_are_not_in_the_config():
    encoder = models.get("class_encoder", "text", features=tokens(1_000))
    assert len(json.dumps(encoder.get_config())) < 400
    copy = class_encoders.Text.from_config(encoder.get_config())
    copy.set_weights(encoder.get_weights())
    for name, values in tokens(1_000).items():
        np.testing.assert_array_equal(copy(tf.range(1_000), encode=lambda x, name=name: x[name]), values)


def test_frozen_text_returns_its_vectors():
    encoder = MAKERS["frozen_text"]()
    np.testing.assert_array_equal(encoder(tf.range(N)), VECTORS)
    assert [v.name.rsplit("/", 1)[-1] for v in encoder.trainable_variables] == ["kernel:0"]
    wider = models.get("class_encoder", "frozen_text", shape=[N, D], width=3, vectors=VECTORS)
    assert wider(tf.range(N)).shape == [N, 3]


@pytest.mark.parametrize("name", ["text", "frozen_text"])
def test_a_residual_starts_at_zero_and_has_a_sparse_gradient_of_candidates(name):
    encode = bert()
    base = MAKERS[name]()
    encoder = class_encoders.Residual(base, num_classes=N, width=D)
    candidates = tf.constant([4, 1, 4])
    for ids in (tf.range(N), candidates):
        np.testing.assert_array_equal(encoder(ids, encode=encode), base(ids, encode=encode))
    table = encoder.residual.table
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(encoder(candidates, encode=encode))
    gradient = tape.gradient(value, table)
    assert gradient.indices.numpy().tolist() == [4, 1, 4]
    table.assign(tf.ones([N, D]))
    np.testing.assert_allclose(encoder(candidates, encode=encode), base(candidates, encode=encode) + 1.0)


def test_other_sizes_are_refused():
    identity = encoders.Identity(width=7)
    with pytest.raises(ValueError, match=r"width=7: the vectors have 4 values"):
        identity({"embedding": tf.zeros([2, 4])})
    dot = models.get("interaction", "dot")
    model = models.RankModel(encoders.Identity(), class_encoders.Embedding(5, 4), dot, num_classes=3)
    with pytest.raises(ValueError, match="num_classes=3: the class encoder has 5 classes"):
        model({"embedding": tf.zeros([2, 4])})
