"""Values by hand, parity with TF-Ranking, and properties that every registered loss must have."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_ranking as tfr
from tensorflow_ranking.python import losses_impl

from rank4class import losses
from rank4class.losses import functional, gumbel

SHIFT_INVARIANT = {"softmax", "pairwise_logistic", "approx_ndcg"}


def random_problem(batch, n, scale=2.0, seed=0):
    rng = np.random.default_rng(seed)
    scores = tf.constant(rng.normal(scale=scale, size=[batch, n]), tf.float32)
    labels = tf.constant(rng.integers(n, size=[batch]), tf.int32)
    return scores, labels


def value_and_gradient(loss, scores, labels):
    with tf.GradientTape() as tape:
        tape.watch(scores)
        value = loss(scores, labels)
    return value.numpy(), tape.gradient(value, scores).numpy()


def pure(name):
    """The registered loss as a pure function of scores and labels."""
    knobs = {"seed": [1, 2]} if name == "gumbel_approx_ndcg" else {}
    function = losses.registry.LOSSES[name].function
    return lambda scores, labels, **more: function(scores, labels, **knobs, **more)


@pytest.mark.parametrize(
    ("name", "knobs", "expected"),
    [
        ("softmax", {}, np.log(1 + np.exp(-1) + np.exp(2))),
        ("softmax", {"temperature": 2.0}, np.log(1 + np.exp(-0.5) + np.exp(1))),
        ("pairwise_logistic", {}, (np.log1p(np.exp(-1)) + np.log1p(np.exp(2))) / 3),
        ("pairwise_logistic", {"temperature": 2.0}, (np.log1p(np.exp(-0.5)) + np.log1p(np.exp(1))) / 3),
        ("pairwise_logistic", {"normalize": "pairs"}, (np.log1p(np.exp(-1)) + np.log1p(np.exp(2))) / 2),
        ("pairwise_logistic", {"normalize": "none"}, np.log1p(np.exp(-1)) + np.log1p(np.exp(2))),
        ("approx_ndcg", {"temperature": 1.0}, -1 / np.log2(2 + 1 / (1 + np.exp(1)) + 1 / (1 + np.exp(-2)))),
        ("mse", {}, ((1 - 1) ** 2 + 0**2 + 3**2) / 3),
        ("rescaled_mse", {"kappa": 4.0, "target": 3.0}, (4 * (1 - 3) ** 2 + 0**2 + 3**2) / 3),
    ],
)
def test_value_by_hand(name, knobs, expected):
    value = losses.get(name, **knobs)(tf.constant([0]), tf.constant([[1.0, 0.0, 3.0]]))
    np.testing.assert_allclose(value, expected, rtol=1e-6)


TF_RANKING = {
    "softmax": tfr.keras.losses.SoftmaxLoss,
    "pairwise_logistic": tfr.keras.losses.PairwiseLogisticLoss,
    "approx_ndcg": tfr.keras.losses.ApproxNDCGLoss,
    "gumbel_approx_ndcg": tfr.keras.losses.GumbelApproxNDCGLoss,
    "mse": tfr.keras.losses.MeanSquaredLoss,
}


def test_only_rescaled_mse_has_no_counterpart_in_tf_ranking():
    assert set(losses.names()) - set(TF_RANKING) == {"rescaled_mse"}


@pytest.mark.parametrize("n", [2, 28, 1000])
@pytest.mark.parametrize("name", TF_RANKING)
@pytest.mark.parametrize("form", ["integer", "one_hot"])
def test_equals_tf_ranking(name, form, n, monkeypatch):
    scores, ids = random_problem(8, n)
    one_hot = tf.one_hot(ids, n)
    if name == "gumbel_approx_ndcg":
        # Both sides get the same noise, laid out [B, samples, n] there and [samples, B, n] here.
        noise = gumbel.perturb(tf.zeros([8, n]), samples=8, seed=gumbel.seed_from_scores(0, scores))
        theirs = tf.transpose(noise, [1, 0, 2])
        monkeypatch.setattr(losses_impl, "_sample_gumbel", lambda shape, seed=None: theirs)
    expected = value_and_gradient(lambda s, y: TF_RANKING[name]()(y, s), scores, one_hot)
    actual = value_and_gradient(
        lambda s, y: losses.get(name)(y, s), scores, ids if form == "integer" else one_hot
    )
    # The noise hangs on the scores through their bits alone: no gradient flows through the seed.
    np.testing.assert_allclose(actual[0], expected[0], rtol=1e-5)
    np.testing.assert_allclose(actual[1], expected[1], rtol=1e-5, atol=1e-5 * np.abs(expected[1]).max())


@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("softmax", tfr.keras.losses.SoftmaxLoss),
        ("pairwise_logistic", tfr.keras.losses.PairwiseLogisticLoss),
        ("approx_ndcg", tfr.keras.losses.ApproxNDCGLoss),
        ("mse", tfr.keras.losses.MeanSquaredLoss),
    ],
)
def test_graded_labels_equal_tf_ranking(name, theirs):
    scores, _ = random_problem(6, 7)
    graded = tf.constant(np.random.default_rng(1).integers(4, size=[6, 7]), tf.float32)
    np.testing.assert_allclose(losses.get(name)(graded, scores), theirs()(graded, scores), rtol=1e-5)


def test_softmax_equals_keras_cross_entropy():
    scores, labels = random_problem(8, 28)
    expected = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)(labels, scores)
    np.testing.assert_allclose(losses.get("softmax")(labels, scores), expected, rtol=1e-6)


def test_approx_ndcg_tends_to_minus_ndcg():
    scores, labels = random_problem(64, 10)
    ndcg = losses.get_metric("ndcg")
    ndcg.update_state(labels, scores)
    np.testing.assert_allclose(losses.ApproxNDCG(temperature=1e-4)(labels, scores), -ndcg.result(), atol=1e-4)


@pytest.mark.parametrize("name", losses.names())
class TestEveryLoss:
    def test_one_value_an_instance(self, name):
        scores, labels = random_problem(5, 7)
        for y in (labels, tf.one_hot(labels, 7)):
            value = pure(name)(scores, y)
            assert value.shape == [5]
            assert value.dtype == tf.float32

    def test_integer_equals_one_hot(self, name):
        scores, labels = random_problem(6, 9)
        mask = np.random.default_rng(3).random([6, 9]) < 0.7  # some true classes are masked, too
        for where in (None, mask):
            integer = value_and_gradient(lambda s, y, w=where: pure(name)(s, y, where=w), scores, labels)
            dense = value_and_gradient(
                lambda s, y, w=where: pure(name)(s, y, where=w), scores, tf.one_hot(labels, 9)
            )
            if name in ("mse", "rescaled_mse") or where is None:
                keep = slice(None)
            else:
                keep = mask[np.arange(6), labels]
                assert not keep.all()
                np.testing.assert_allclose(integer[0][~keep], 0.0, atol=1e-6)
                np.testing.assert_allclose(dense[0][~keep], 0.0, atol=1e-6)
            np.testing.assert_allclose(integer[0][keep], dense[0][keep], rtol=1e-5)
            np.testing.assert_allclose(integer[1][keep], dense[1][keep], rtol=1e-4, atol=1e-6)

    def test_masked_equals_subset(self, name):
        if name == "gumbel_approx_ndcg":
            pytest.skip("noise is drawn for masked classes too, so a subset meets other noise")
        scores, _ = random_problem(4, 6)
        labels = tf.constant([0, 1, 2, 3])
        where = [True] * 4 + [False] * 2
        for y, y_subset in ((labels, labels), (tf.one_hot(labels, 6), tf.one_hot(labels, 4))):
            np.testing.assert_allclose(
                pure(name)(scores, y, where=where), pure(name)(scores[:, :4], y_subset), rtol=1e-5
            )

    @pytest.mark.parametrize("hidden", [np.nan, np.inf, -np.inf])
    def test_a_masked_score_may_be_anything(self, name, hidden):
        scores, labels = random_problem(4, 6)
        where = np.arange(6) != 5
        labels = labels % 5
        masked = tf.where(where, scores, hidden)
        if name == "gumbel_approx_ndcg":
            scores = tf.where(where, scores, 0.0)
        for y in (labels, tf.one_hot(labels, 6)):
            expected = value_and_gradient(lambda s, y: pure(name)(s, y, where=where), scores, y)
            actual = value_and_gradient(lambda s, y: pure(name)(s, y, where=where), masked, y)
            np.testing.assert_allclose(actual[0], expected[0], rtol=1e-6)
            np.testing.assert_allclose(actual[1], expected[1], rtol=1e-6, atol=1e-7)

    def test_gradients_agree_for_equal_scores(self, name):
        labels = tf.constant([2, 0])
        integer = value_and_gradient(pure(name), tf.zeros([2, 4]), labels)
        dense = value_and_gradient(pure(name), tf.zeros([2, 4]), tf.one_hot(labels, 4))
        np.testing.assert_allclose(integer[1], dense[1], rtol=1e-5, atol=1e-7)
        assert np.abs(integer[1]).max() > 0.0

    @pytest.mark.parametrize("dtype", [tf.uint8, tf.int8, tf.int16, tf.uint16, tf.uint32, tf.int64])
    def test_integers_of_any_size(self, name, dtype):
        scores, labels = random_problem(4, 300)
        labels = labels % 100
        np.testing.assert_allclose(
            pure(name)(scores, tf.cast(labels, dtype)), pure(name)(scores, labels), rtol=1e-6
        )

    def test_all_masked_is_zero_with_zero_gradient(self, name):
        scores, labels = random_problem(3, 4)
        for y in (labels, tf.one_hot(labels, 4)):
            value, gradient = value_and_gradient(
                lambda s, y: pure(name)(s, y, where=tf.zeros([3, 4], tf.bool)), scores, y
            )
            np.testing.assert_array_equal(value, np.zeros(3))
            np.testing.assert_array_equal(gradient, np.zeros([3, 4]))

    def test_permutation_equivariance(self, name):
        if name == "gumbel_approx_ndcg":
            pytest.skip("another order of the classes meets other noise")
        scores, labels = random_problem(5, 8)
        order = np.random.default_rng(0).permutation(8)
        np.testing.assert_allclose(
            pure(name)(tf.gather(scores, order, axis=1), tf.gather(np.argsort(order), labels)),
            pure(name)(scores, labels),
            rtol=1e-5,
        )

    def test_shift_invariance_where_it_holds(self, name):
        scores, labels = random_problem(5, 8)
        shifted = pure(name)(scores + 3.0, labels).numpy()
        if name in SHIFT_INVARIANT or name == "gumbel_approx_ndcg":
            np.testing.assert_allclose(shifted, pure(name)(scores, labels), rtol=2e-5)
        else:
            assert not np.allclose(shifted, pure(name)(scores, labels), rtol=1e-2)

    @pytest.mark.parametrize("scale", [0.0, 1e4])
    @pytest.mark.parametrize("dtype", [tf.float32, tf.float16, tf.bfloat16])
    def test_finite_value_and_gradient_at_extreme_scores(self, name, scale, dtype):
        scores = tf.cast(scale * np.array([[1.0, -1.0, 1.0], [-1.0, 1.0, 0.0]]), dtype)
        for labels in (tf.constant([0, 0]), tf.constant([[1.0, 0, 0], [1.0, 0, 0]])):
            value, gradient = value_and_gradient(pure(name), scores, labels)
            assert value.dtype == np.float32
            assert np.isfinite(value).all()
            if name not in ("mse", "rescaled_mse") or dtype != tf.float16 or scale == 0.0:
                # The square losses' true gradient, kappa * 2e4, lies beyond float16.
                assert np.isfinite(gradient.astype(np.float32)).all()

    def test_nan_scores_give_a_nan_loss(self, name):
        value = pure(name)(tf.constant([[1.0, np.nan, 2.0], [1.0, 0.0, 2.0]]), tf.constant([0, 0])).numpy()
        assert np.isnan(value[0])
        assert np.isfinite(value[1])

    @pytest.mark.parametrize("form", ["integer", "dense"])
    def test_graph_and_xla_equal_eager(self, name, form):
        scores, labels = random_problem(4, 6)
        y = labels if form == "integer" else tf.one_hot(labels, 6)
        eager = value_and_gradient(pure(name), scores, y)
        for jit in (False, True):
            compiled = tf.function(pure(name), jit_compile=jit)
            value, gradient = value_and_gradient(compiled, scores, y)
            np.testing.assert_allclose(value, eager[0], rtol=1e-5)
            np.testing.assert_allclose(gradient, eager[1], rtol=1e-4, atol=1e-6)

    def test_shapes_known_only_at_run_time(self, name):
        scores, labels = random_problem(4, 6)
        for y in (labels, tf.one_hot(labels, 6)):
            signature = [
                tf.TensorSpec([None, None], scores.dtype),
                tf.TensorSpec([None] * y.shape.rank, y.dtype),
            ]
            dynamic = tf.function(pure(name), input_signature=signature)
            np.testing.assert_allclose(dynamic(scores, y), pure(name)(scores, y), rtol=1e-5)

    def test_extra_batch_dimensions(self, name):
        if name == "gumbel_approx_ndcg":
            pytest.skip("another shape of the scores meets other noise")
        scores, labels = random_problem(6, 5)
        for y, shape in ((labels, [2, 3]), (tf.one_hot(labels, 5), [2, 3, 5])):
            np.testing.assert_allclose(
                pure(name)(tf.reshape(scores, [2, 3, 5]), tf.reshape(y, shape)),
                tf.reshape(pure(name)(scores, y), [2, 3]),
                rtol=1e-6,
            )

    def test_one_class(self, name):
        value, gradient = value_and_gradient(pure(name), tf.constant([[2.0]]), tf.constant([0]))
        assert np.isfinite(value).all()
        assert np.isfinite(gradient).all()

    def test_weights_multiply(self, name):
        scores, labels = random_problem(3, 4)
        np.testing.assert_allclose(
            pure(name)(scores, labels, weights=[0.0, 1.0, 2.0]),
            pure(name)(scores, labels) * [0.0, 1.0, 2.0],
            rtol=1e-6,
        )

    @pytest.mark.parametrize("label", [-1, 4])
    def test_label_outside_the_classes(self, name, label):
        scores = tf.zeros([2, 4])
        with pytest.raises(ValueError, match=rf"label {label} of instance \[1\] is outside the classes 0..3"):
            pure(name)(scores, tf.constant([0, label]))
        for jit in (False, True):
            value = tf.function(pure(name), jit_compile=jit)(scores, tf.constant([0, label])).numpy()
            assert np.isfinite(value[0])
            assert np.isnan(value[1])

    def test_bad_gain(self, name):
        with pytest.raises(ValueError, match=r"label -1\.0 at \[0, 2\] .*`where`"):
            pure(name)(tf.zeros([1, 3]), tf.constant([[0.0, 1.0, -1.0]]))
        compiled = tf.function(pure(name))(tf.zeros([2, 3]), tf.constant([[0.0, 1.0, -1.0], [1.0, 0.0, 0.0]]))
        assert np.isnan(compiled[0])
        assert np.isfinite(compiled[1])

    def test_shapes_and_dtypes_that_do_not_fit(self, name):
        with pytest.raises(ValueError, match=r"labels of shape \(2, 2\) do not fit"):
            pure(name)(tf.zeros([2, 3]), tf.zeros([2, 2]))
        with pytest.raises(ValueError, match="class ids and must be integers, got float32"):
            pure(name)(tf.zeros([2, 3]), tf.zeros([2]))
        with pytest.raises(ValueError, match=r"labels of shape \(1,\) do not fit"):
            pure(name)(tf.zeros([2, 3]), tf.zeros([1], tf.int32))
        with pytest.raises((ValueError, tf.errors.InvalidArgumentError)):
            pure(name)(tf.zeros([2, 3]), tf.zeros([2], tf.int32), weights=tf.ones([2, 1]))
        signature = [tf.TensorSpec([None, 3]), tf.TensorSpec([None, None], tf.int32)]
        with pytest.raises(tf.errors.InvalidArgumentError, match="dense labels need the shape of the scores"):
            tf.function(pure(name), input_signature=signature)(tf.zeros([2, 3]), tf.zeros([2, 1], tf.int32))
        with pytest.raises(ValueError, match="scores must be floats"):
            pure(name)(tf.zeros([2, 3], tf.int32), tf.zeros([2], tf.int32))


@pytest.mark.parametrize("name", ["softmax", "pairwise_logistic", "approx_ndcg", "gumbel_approx_ndcg"])
@pytest.mark.parametrize("temperature", [0.0, -1.0])
def test_temperatures_have_to_be_positive(name, temperature):
    with pytest.raises(ValueError, match=f"temperature {temperature} is not positive"):
        losses.get(name, temperature=temperature)([0], [[0.0, 1.0]])


def test_unknown_normalizer():
    with pytest.raises(ValueError, match="normalize='mean' is not one of list, pairs, none"):
        functional.pairwise_logistic([[0.0, 1.0]], [0], normalize="mean")


def test_pairs_normalizer_counts_the_pairs_of_graded_lists():
    graded = tf.constant([[2.0, 1.0, 0.0, 0.0]])  # 3 + 2 pairs of different gain
    ones = tf.zeros([1, 4])
    np.testing.assert_allclose(
        functional.pairwise_logistic(ones, graded, normalize="pairs"), [np.log(2)], rtol=1e-6
    )
    np.testing.assert_allclose(
        functional.pairwise_logistic(ones, graded, normalize="none"), [5 * np.log(2)], rtol=1e-6
    )
