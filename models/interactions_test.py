"""Interactions: values and gradients against naive forms, memory, and use in a rank model."""

import numpy as np
import pytest
import tensorflow as tf

from rank4class import models
from rank4class.models import interactions, precision, registry

B, N, D, K = 3, 5, 4, 3  # fewer units than classes, and as many as those of a block
MLPS = ("lc_mlp", "concat_mlp")


def vectors():
    rng = np.random.default_rng(0)
    return tf.constant(rng.normal(size=[B, D]), tf.float32), tf.constant(rng.normal(size=[N, D]), tf.float32)


def build(name, **options):
    options |= {"units": K} if name in MLPS else {}
    interaction = models.get("interaction", name, **options)
    interaction(vectors())
    for variable in interaction.trainable_variables:  # biases are initialized to 0
        variable.assign_add(tf.random.stateless_normal(variable.shape, [1, 2]))
    return interaction


def naive(interaction, name, h, c):
    """Returns the formula on explicit pairs, with the weights of the interaction."""
    h_pairs = tf.repeat(h[:, None, :], c.shape[0], axis=1)
    c_pairs = tf.repeat(c[None, :, :], h.shape[0], axis=0)
    if name == "dot":
        return tf.reduce_sum(h_pairs * c_pairs, axis=-1) + interaction.bias
    if name == "bilinear":
        return tf.reduce_sum((h_pairs @ interaction.kernel) * c_pairs, axis=-1)
    if name == "cosine":
        lengths = tf.norm(h_pairs, axis=-1) * tf.norm(c_pairs, axis=-1)
        return tf.reduce_sum(h_pairs * c_pairs, axis=-1) / lengths / interaction.temperature
    pairs = h_pairs * c_pairs if name == "lc_mlp" else tf.concat([h_pairs, c_pairs], axis=-1)
    hidden = tf.nn.relu(pairs @ interaction.first_kernel + interaction.first_bias)
    hidden = tf.nn.relu(hidden @ interaction.second_kernel + interaction.second_bias)
    return (hidden @ interaction.read_out + interaction.read_out_bias)[..., 0]


def value_and_gradients(scores_of, watched):
    """Returns the scores, and the gradients of a sum of their sines."""
    with tf.GradientTape() as tape:
        tape.watch(watched)
        scores = scores_of()
        value = tf.reduce_sum(tf.sin(scores))
    return [scores, *tape.gradient(value, watched)]


def assert_all_close(results, rtol=1e-4, atol=1e-5):
    for first, *others in zip(*results, strict=True):
        for other in others:
            np.testing.assert_allclose(other, first, rtol=rtol, atol=atol)


@pytest.mark.parametrize("name", registry.INTERACTIONS)
class TestEveryInteraction:
    def test_value_and_gradients_equal_the_naive_form(self, name):
        h, c = vectors()
        interaction = build(name)
        watched = [h, c, *interaction.trainable_variables]
        forms = (lambda: interaction([h, c]), lambda: naive(interaction, name, h, c))
        assert_all_close([value_and_gradients(form, watched) for form in forms])

    def test_half_precision_has_the_scores_of_rounded_vectors(self, name):
        interaction = build(name)
        half = type(interaction).from_config({**interaction.get_config(), "dtype": "mixed_bfloat16"})
        rounded = [tf.cast(x, tf.bfloat16) for x in vectors()]
        half(rounded)
        half.set_weights(interaction.get_weights())
        expected = interaction([tf.cast(x, tf.float32) for x in rounded])
        np.testing.assert_allclose(half(rounded), expected, 0.02, 0.02)


@pytest.mark.parametrize("name", MLPS)
class TestResidual:
    def test_starts_as_the_dot_product_to_the_bit(self, name):
        h, c = vectors()
        residual = models.get("interaction", name, units=K, residual=True)
        dot = interactions.Dot()
        np.testing.assert_array_equal(residual([h, c]), dot([h, c]))
        with tf.GradientTape() as tape:
            value = tf.reduce_sum(tf.sin(residual([h, c])))
        assert np.any(tape.gradient(value, residual.read_out))

    def test_adds_the_mlp_to_the_dot_product(self, name):
        h, c = vectors()
        residual = build(name, residual=True)
        watched = [h, c, *residual.trainable_variables]
        sum_of_naive = lambda: naive(residual, name, h, c) + naive(residual.dot, "dot", h, c)  # noqa: E731
        forms = (lambda: residual([h, c]), sum_of_naive)
        assert_all_close([value_and_gradients(form, watched) for form in forms])
        copy = tf.keras.layers.deserialize(tf.keras.layers.serialize(residual))
        copy([h, c])
        copy.set_weights(residual.get_weights())
        candidates = tf.constant([3, 1])
        actual = copy([h, tf.gather(c, candidates)], class_ids=candidates)
        np.testing.assert_allclose(actual, tf.gather(residual([h, c]), candidates, axis=1), rtol=1e-5)


@pytest.mark.nightly
@pytest.mark.parametrize("name", MLPS)
@pytest.mark.parametrize(
    ("blocks", "stored", "dropped"), [(2, False, True), (2, True, False), (4, True, True)]
)
def test_blocks_equal_a_loop_with_and_without_dropout(name, blocks, stored, dropped):
    h, c = vectors()
    interaction = build(name, dropout=0.3)
    weights = [tf.identity(w) for w in interaction.trainable_variables]
    seed = tf.constant([3, 4]) if dropped else None

    def in_blocks():
        return interaction._score_in_blocks(blocks, stored, seed, h, c, weights)

    def loop():
        size = -(-N // blocks)
        scores = []
        for i in range(blocks):
            part = c[i * size : (i + 1) * size]
            of_block = tf.random.fold_in(seed, i, alg="philox") if dropped else seed
            # A padded block also draws noise for its padding.
            padded = tf.pad(part, [[0, size - len(part)], [0, 0]])
            all_scores = interaction._rest(interaction.pairs(h, padded, *weights[:2]), of_block, *weights[2:])
            scores.append(tf.reshape(all_scores, [B, size])[:, : len(part)])
        return tf.concat(scores, axis=1)

    # XLA draws different noise from the same seed.
    @tf.function(autograph=False, jit_compile=not dropped)
    def compiled():
        return value_and_gradients(in_blocks, watched)

    watched = [h, c, *weights]
    assert_all_close([*(value_and_gradients(form, watched) for form in (loop, in_blocks)), compiled()])


def use_small_blocks(monkeypatch, budget):
    monkeypatch.setattr(interactions, "_BLOCK", 20)
    monkeypatch.setattr(interactions, "_PRODUCTS", 50)
    monkeypatch.setattr(interactions, "_STORED", budget)


@pytest.mark.parametrize("name", MLPS)
@pytest.mark.parametrize("budget", [B * N * K, B * N * K - 1])
def test_gradients_in_float64_equal_the_naive_form(name, budget, monkeypatch):
    use_small_blocks(monkeypatch, budget)
    h, c = (tf.cast(x, tf.float64) for x in vectors())
    interaction = registry.INTERACTIONS[name](units=K, dtype="float64")
    interaction([h, c])
    watched = [h, c, *interaction.trainable_variables]
    forms = (lambda: interaction([h, c]), lambda: naive(interaction, name, h, c))
    results = [value_and_gradients(form, watched) for form in forms]
    blocks, stored = interaction.plan(B, N, D)
    assert blocks > 1
    assert stored == (name == "lc_mlp" and budget == B * N * K)
    assert_all_close(results, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("xla", [False, pytest.param(True, marks=pytest.mark.nightly)])
@pytest.mark.parametrize(("budget", "dtype", "batch"), [(B * N * K, "float32", None), (0, "bfloat16", B)])
def test_lc_mlp_equals_the_naive_form_with_and_without_storing(budget, dtype, xla, batch, monkeypatch):
    """Also with a batch size that is known only at run time."""
    use_small_blocks(monkeypatch, budget)
    monkeypatch.setattr(interactions, "_USUAL_BATCH", B)
    policy = "float32" if dtype == "float32" else "mixed_bfloat16"
    interaction = registry.INTERACTIONS["lc_mlp"](units=K, dtype=policy)
    h, c = (tf.cast(x, dtype) for x in vectors())
    interaction([h, c])

    @tf.function(autograph=False, jit_compile=xla, input_signature=[tf.TensorSpec([batch, D], dtype)])
    def compiled(h):
        return value_and_gradients(lambda: interaction([h, c]), [h, c, *interaction.trainable_variables])

    exact = [tf.cast(x, tf.float32) for x in (h, c)]
    watched = [*exact, *interaction.trainable_variables]
    expected = value_and_gradients(lambda: naive(interaction, "lc_mlp", *exact), watched)
    for actual, other in zip(compiled(h), expected, strict=True):
        relative = tf.norm(tf.cast(actual, tf.float32) - other) / tf.norm(other)
        assert relative < (1e-5 if dtype == "float32" else 2e-2)


@pytest.mark.parametrize("name", MLPS)
def test_no_tensor_of_all_pairs(name):
    """At a size above a block, the graph of value and gradient has no `[B, n, d]` or `[B, n, 2d]`."""
    batch = 32
    n = 280
    d = 768
    interaction = models.get("interaction", name, units=256)

    def step(h, c):
        with tf.GradientTape() as tape:
            value = tf.reduce_sum(interaction([h, c]))
        return tape.gradient(value, [h, c, *interaction.trainable_variables], unconnected_gradients="zero")

    pair = [tf.TensorSpec([batch, d]), tf.TensorSpec([n, d])]
    graph = tf.function(step, autograph=False).get_concrete_function(*pair).graph
    definition = graph.as_graph_def(add_shapes=True)
    nodes = [*definition.node, *(node for f in definition.library.function for node in f.node_def)]
    sizes = {
        np.prod([dim.size for dim in shape.dim], dtype=int)
        for node in nodes
        for shape in node.attr["_output_shapes"].list.shape
        if not shape.unknown_rank
    }
    assert batch * n in sizes  # the scores, which confirms that shapes are known
    assert not sizes & {batch * n * d, 2 * batch * n * d}


def test_bilinear_is_initialized_to_the_dot_product():
    h, c = vectors()
    bilinear = models.get("interaction", "bilinear")
    dot = models.get("interaction", "dot", use_bias=False)
    np.testing.assert_allclose(bilinear([h, c]), dot([h, c]), rtol=1e-6)
    assert dot.variables == []


def test_cosine_by_hand():
    h = tf.constant([[3.0, 4.0], [0.0, 0.0]])
    c = tf.constant([[6.0, 8.0], [-4.0, 3.0], [-3.0, -4.0], [0.0, 0.0]])
    cosine = models.get("interaction", "cosine", temperature=0.25)
    np.testing.assert_allclose(cosine([h, c]), [[4.0, 0.0, -4.0, 0.0], [0.0] * 4], atol=1e-6)
    np.testing.assert_array_equal(cosine([h, cosine.prepare(c)], prepared=True), cosine([h, c]))
    np.testing.assert_array_equal(cosine([h, 2.0 * cosine.prepare(c)], prepared=True), 2.0 * cosine([h, c]))
    with tf.GradientTape() as tape:
        tape.watch(h)
        value = tf.reduce_sum(cosine([h, c]))
    np.testing.assert_array_equal(tape.gradient(value, h)[1], [0.0, 0.0])
    with pytest.raises(ValueError, match=r"temperature=0\.0: not positive"):
        models.get("interaction", "cosine", temperature=0.0)


def test_a_learned_temperature_starts_at_the_fixed_one_and_keeps_within_its_bounds():
    h, c = vectors()
    fixed = interactions.Cosine(0.07)([h, c])
    learned = interactions.Cosine(0.07, learned=True)
    half = interactions.Cosine(learned=True, dtype="mixed_bfloat16")
    np.testing.assert_array_equal(learned([h, c]), fixed)
    [weight] = learned.trainable_variables
    before = half([h, c])
    half.log_ratio.assign(0.3)
    np.testing.assert_allclose(half([h, c]), before * np.exp(-0.3), rtol=1e-5)  # not rounded to 16 bits

    def gradient(log_ratio, sign):
        weight.assign(log_ratio)
        with tf.GradientTape() as tape:
            value = sign * tf.reduce_sum(learned([h, c]))
        return tape.gradient(value, weight)

    np.testing.assert_allclose(gradient(0.5, 1.0), -np.sum(fixed) / np.exp(0.5), rtol=1e-4)  # of s / exp(w)
    np.testing.assert_allclose(learned([h, c]), fixed / np.exp(0.5), rtol=1e-5)
    for log_ratio, temperature in ((-9.0, 0.01), (9.0, 100.0)):
        [back] = filter(None, (float(gradient(log_ratio, sign)) for sign in (-1.0, 1.0)))
        assert back * log_ratio > 0.0
        np.testing.assert_allclose(learned([h, c]), fixed * 0.07 / temperature, rtol=1e-5)
    with pytest.raises(ValueError, match=r"temperature=0\.001: a learned one is in \[0\.01, 100\]"):
        models.get("interaction", "cosine", temperature=0.001, learned=True)


def test_cosine_of_extreme_numbers():
    call = tf.function(models.get("interaction", "cosine", temperature=1.0), jit_compile=True)
    unit = np.float32([[0.6, 0.8]])
    for scale in (1e-30, 1e30):
        h = tf.constant(unit * np.float32(scale))
        np.testing.assert_allclose(call([h, tf.constant([[1.0, 0.0]])]), [[0.6]], rtol=1e-6)
        with tf.GradientTape() as tape:
            tape.watch(h)
            value = tf.reduce_sum(call([h, tf.constant([[1.0, 0.0]])]))
        # The gradient of h_1 / |h| is (1 - h_1² / |h|², -h_1 h_2 / |h|²) / |h|.
        np.testing.assert_allclose(tape.gradient(value, h) * scale, [[0.64, -0.48]], rtol=1e-5)
    for number in (np.nan, np.inf):
        for row in ([number, 0.0], [1.0, number]):
            assert np.isnan(call([tf.constant([row]), tf.constant([[1.0, 2.0]])])).all()


def test_biases_of_dot_keep_their_digits_in_half_precision():
    with precision.scope("mixed_bfloat16"):
        dot = models.get("interaction", "dot")
        vectors = tf.zeros([1, 4]), tf.zeros([2, 4])
        dot(vectors)
        dot.bias.assign([1.001, 1.002])
        np.testing.assert_array_equal(dot(vectors), np.float32([[1.001, 1.002]]))


def test_mlp_dropout_only_in_training():
    interaction = models.INTERACTIONS["concat_mlp"](dropout=0.5, seed=3)
    assert type(interaction).from_config(interaction.get_config()).seed == 3
    with pytest.raises(ValueError, match="units=0: not an integer of at least 1"):
        models.get("interaction", "concat_mlp", units=0)
    np.testing.assert_array_equal(interaction(vectors()), interaction(vectors()))
    assert not np.allclose(interaction(vectors(), training=True), interaction(vectors(), training=True))
