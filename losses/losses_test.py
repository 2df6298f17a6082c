"""Values by hand, parity with TF-Ranking, and properties that every registered loss must have."""

import functools
import inspect
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from numpy import exp, log, log1p, log2

from rank4class import compat, losses
from rank4class.losses.ops import gumbel, pairs, ranks

tfr = compat.import_tensorflow_ranking()

SHIFT_DEPENDENT = {"mse", "rescaled_mse", "sigmoid_cross_entropy", "calibrated_softmax"}
SHIFT_DEPENDENT |= {"ordinal", "mixture_em", "click_em", "asl", "zlpr"}
# Their loss can be positive without a relevant class.
COST_WITHOUT_RELEVANT = {"mse", "rescaled_mse", "pairwise_mse", "sigmoid_cross_entropy"}
COST_WITHOUT_RELEVANT |= {"ordinal", "click_em", "asl", "zlpr"}
SMOOTHED = [name for name in losses.names() if "label_smoothing" in losses.option_names(name)]


def draws_noise(name):
    return "seed" in losses.option_names(name)


def random_problem(batch, n, name="softmax", scale=2.0, seed=0):
    rng = np.random.default_rng(seed)
    heads = [2] if losses.LOSSES[name].heads else []
    scores = tf.constant(rng.normal(scale=scale, size=[batch, n, *heads]), tf.float32)
    labels = tf.constant(rng.integers(n, size=[batch]), tf.int32)
    return scores, labels


def with_heads(name, scores):
    """Returns scores `[B, n]` with the second score per class that some losses need."""
    return tf.stack([scores, scores / 2], axis=-1) if losses.LOSSES[name].heads else scores


def value_and_gradient(loss, scores, labels, **options):
    with tf.GradientTape() as tape:
        tape.watch(scores)
        value = loss(scores, labels, **options)
    return value.numpy(), tape.gradient(value, scores).numpy()


def values_and_gradients(loss):
    """Returns a function of scores and several forms of labels, which is traced once."""

    def all_values(scores, *forms):
        results = []
        for labels in forms:
            with tf.GradientTape() as tape:
                tape.watch(scores)
                value = loss(scores, labels)
            results += [value, tape.gradient(value, scores)]
        return results

    return all_values


def pure(name):
    """Returns the registered loss as a pure function of scores and labels."""
    options = {"seed": [1, 2]} if draws_noise(name) else {}
    options |= {"temperature": 1.0} if name == "approx_metric" else {}  # a product of two steep functions
    function = losses.LOSSES[name].function
    return lambda scores, labels, **more: function(scores, labels, **{**options, **more})


@pytest.mark.parametrize("name", losses.names())
def test_convex_losses_say_so(name):
    """No other loss is below the mean of two scores at their middle for all of these."""
    rng = np.random.default_rng(0)
    spread = np.repeat([0.5, 3.0, 8.0], 100)[:, None]
    left, right = (tf.constant(spread * rng.normal(size=[300, 4]), tf.float32) for _ in range(2))
    labels = rng.integers(2, size=[300, 4]).astype(np.float32)
    labels[:, 0] = np.maximum(labels[:, 0], labels.sum(axis=1) == 0)
    at_left, at_middle, at_right = (
        pure(name)(with_heads(name, scores), labels).numpy() for scores in (left, (left + right) / 2, right)
    )
    excess = (at_middle - (at_left + at_right) / 2) / (1.0 + np.abs(at_left) + np.abs(at_right))
    assert (excess.max() < 1e-5) == ("Convex in the scores." in losses.LOSSES[name].function.__doc__)


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("softmax", {}, log(1 + exp(-1) + exp(2))),
        ("softmax", {"temperature": 2.0}, log(1 + exp(-0.5) + exp(1))),
        # The margins are 0, -1 and 2; a mean of 1/3.
        ("softmax", {"label_smoothing": 0.3}, log(1 + exp(-1) + exp(2)) - 0.3 / 3),
        ("pairwise_logistic", {}, (log1p(exp(-1)) + log1p(exp(2))) / 3),
        ("pairwise_logistic", {"temperature": 2.0}, (log1p(exp(-0.5)) + log1p(exp(1))) / 3),
        ("pairwise_logistic", {"normalize": "pairs"}, (log1p(exp(-1)) + log1p(exp(2))) / 2),
        ("pairwise_logistic", {"normalize": "none"}, log1p(exp(-1)) + log1p(exp(2))),
        ("approx_ndcg", {"temperature": 1.0}, -1 / log2(2 + 1 / (1 + exp(1)) + 1 / (1 + exp(-2)))),
        ("approx_mrr", {"temperature": 1.0}, -1 / (1 + 1 / (1 + exp(1)) + 1 / (1 + exp(-2)))),
        # The middle of the second and the third score is 0.5, and that of the first and the second is 2.
        ("approx_metric", {"metric": "recall@2", "temperature": 1.0}, -1 / (1 + exp(-0.5))),
        ("approx_metric", {"metric": "precision@1", "temperature": 2.0}, -1 / (1 + exp(0.5))),
        ("approx_metric", {"metric": "map", "rank_fn": ranks.all_ranks}, -1 / 2),
        ("pairwise_hinge", {}, (0 + 3) / 3),
        ("pairwise_hinge", {"temperature": 2.0, "normalize": "none"}, 0.5 + 2),
        ("pairwise_soft_zero_one", {}, (1 / (1 + exp(1)) + 1 / (1 + exp(-2))) / 3),
        ("pairwise_mse", {}, 2 * ((1 - 1) ** 2 + (-2 - 1) ** 2 + (-3) ** 2) / 3),
        ("pairwise_mse", {"normalize": "pairs"}, 2 * ((1 - 1) ** 2 + (-2 - 1) ** 2 + (-3) ** 2) / 6),
        ("calibrated_softmax", {}, log(1 + exp(1) + 1 + exp(3)) - 1),
        ("calibrated_softmax", {"virtual_label": 0.5}, 1.5 * log(1 + exp(1) + 1 + exp(3)) - 1),
        ("unique_softmax", {}, log(1 + exp(-1) + exp(2))),
        ("n_choose_k", {}, log(1 + exp(-1) + exp(2))),
        ("top_k_gain", {}, log(1 + exp(-1) + exp(2))),
        # The pairs weigh e^1, e^4 and e^3, and the true class is in the first two.
        ("top_k_gain", {"k": 2}, log(exp(1) + exp(4) + exp(3)) - log(exp(1) + exp(4))),
        ("top_k_gain", {"k": 3}, 0.0),
        ("sigmoid_cross_entropy", {}, (log1p(exp(-1)) + log1p(exp(0)) + log1p(exp(3))) / 3),
        # The labels are 0.9, 0.1 and 0.1.
        (
            "sigmoid_cross_entropy",
            {"label_smoothing": 0.2},
            (log1p(exp(1)) - 0.9 + log1p(exp(0)) + log1p(exp(3)) - 0.1 * 3) / 3,
        ),
        # Ranks: true class 2, the others 3 and 1; discounts 1, 1 / log2(3), 1 / 2; times n, over n.
        (
            "pairwise_logistic",
            {"lambda_weight": "ndcg"},
            (1 / log2(3) - 0.5) * log1p(exp(-1)) + (1 - 1 / log2(3)) * log1p(exp(2)),
        ),
        (
            "pairwise_logistic",
            {"lambda_weight": "mrr"},
            (1 / 2 - 1 / 3) * log1p(exp(-1)) + (1 - 1 / 2) * log1p(exp(2)),
        ),
        ("pairwise_hinge", {"lambda_weight": "ndcg_loss2"}, (1 - 1 / log2(3)) * 3),
        # The probabilities of the irrelevant classes are 1/2 and 1 / (1 + e^-3) = .9526, less the margin.
        (
            "asl",
            {"gamma_positive": 1.0, "gamma_negative": 2.0, "margin": 0.2},
            (
                log1p(exp(-1)) / (1 + exp(1))
                - 0.3**2 * log(0.7)
                - (q := 1 / (1 + exp(-3)) - 0.2) ** 2 * log(1 - q)
            )
            / 3,
        ),
        ("zlpr", {}, log(1 + exp(0) + exp(3)) + log1p(exp(-1))),
        ("gce", {"q": 0.5, "temperature": 2.0}, 2 * (1 - (1 + exp(-0.5) + exp(1)) ** -0.5)),
        ("decoupled_softmax", {"temperature": 2.0}, log(1 + exp(-0.5) + exp(1))),
        ("mse", {}, ((1 - 1) ** 2 + 0**2 + 3**2) / 3),
        ("rescaled_mse", {"kappa": 4.0, "target": 3.0}, (4 * (1 - 3) ** 2 + 0**2 + 3**2) / 3),
    ],
)
def test_value_by_hand(name, options, expected):
    value = losses.get(name, **options)(tf.constant([0]), tf.constant([[1.0, 0.0, 3.0]]))
    np.testing.assert_allclose(value, expected, rtol=1e-6)


OURS = {"rescaled_mse", "rankmax", "sparsemax", "warp", "n_choose_k", "top_k_gain"}
OURS |= {"approx_metric", "asl", "zlpr", "decoupled_softmax", "gce"}
TF_RANKING = sorted(set(losses.names()) - OURS)


def of_tf_ranking(name, **options):
    """Returns TF-Ranking's Keras loss of a name."""
    title = "MeanSquared" if name == "mse" else losses.LOSSES[name].__name__
    options |= {"ordinal_size": 2} if name == "ordinal" else {}
    return getattr(tfr.keras.losses, f"{title}Loss")(**options)


def test_every_keras_loss_of_tf_ranking_has_a_name():
    def concrete(c):
        return inspect.isclass(c) and issubclass(c, tf.keras.losses.Loss) and not c.__name__.startswith("_")

    theirs = {c for c in vars(tfr.keras.losses).values() if concrete(c)}
    assert theirs == {type(of_tf_ranking(name)) for name in TF_RANKING}


def same_noise(monkeypatch, name, scores, n):
    """Makes TF-Ranking use our noise: [B, samples, n] there, [samples, B, n] here."""
    if draws_noise(name):
        noise = gumbel.noise([8, scores.shape[0], n], gumbel.seed_from_scores(0, scores))
        theirs = tf.transpose(noise, [1, 0, 2])
        monkeypatch.setattr(tfr.python.losses_impl, "_sample_gumbel", lambda shape, seed=None: theirs)


def assert_equal_to_tf_ranking(name, scores, dense, *ids, theirs=None, **options):
    reference = of_tf_ranking(name, **(theirs or options))
    expected = value_and_gradient(lambda s, y: reference(y, s), scores, dense)
    atol = 1e-6 if options else 1e-5 * np.abs(expected[1]).max()
    for labels in (dense, *ids):
        # The noise depends on the bits of the scores; no gradient flows through the seed.
        actual = value_and_gradient(lambda s, y: losses.get(name, **options)(y, s), scores, labels)
        np.testing.assert_allclose(actual[0], expected[0], rtol=1e-5)
        np.testing.assert_allclose(actual[1], expected[1], rtol=1e-5, atol=atol)


@pytest.mark.parametrize("n", [28, *(pytest.param(n, marks=pytest.mark.nightly) for n in (2, 200))])
@pytest.mark.parametrize("name", sorted({*TF_RANKING} - {"list_mle"}))  # TF-Ranking shuffles equal labels
def test_equals_tf_ranking(name, n, monkeypatch):
    # One instance of 200 classes: both sides have tensors of all pairs and eight samples.
    scores, ids = random_problem(1 if n == 200 else 8, n, name)
    same_noise(monkeypatch, name, scores, n)
    assert_equal_to_tf_ranking(name, scores, tf.one_hot(ids, n), ids)


@pytest.mark.parametrize("name", TF_RANKING)
def test_graded_labels_equal_tf_ranking(name, monkeypatch):
    scores, _ = random_problem(6, 7, name)
    same_noise(monkeypatch, name, scores, 7)
    rng = np.random.default_rng(1)
    graded = tf.constant(rng.integers(4, size=[6, 7]), tf.float32)
    if name == "list_mle":  # a strict order
        graded = tf.constant(rng.permuted(np.tile(np.arange(7.0), [6, 1]), axis=1), tf.float32)
    assert_equal_to_tf_ranking(name, scores, graded)


def test_options_equal_tf_ranking():
    for name, options in (
        ("ordinal", {"use_fraction_label": True}),
        ("mixture_em", {"alpha": 2.0}),
        ("click_em", {"exam_loss_weight": 2.0, "rel_loss_weight": 0.5}),
    ):
        scores, _ = random_problem(6, 7, name)
        labels = tf.constant(np.random.default_rng(1).uniform(0.0, 3.0, [6, 7]), tf.float32)
        assert_equal_to_tf_ranking(name, scores, labels, **options)


UTILS = tfr.python.keras.utils


@pytest.mark.parametrize("name", ["pairwise_logistic", "pairwise_hinge", "pairwise_soft_zero_one"])
@pytest.mark.parametrize(
    ("weight", "theirs"),
    [
        ("ndcg", {"smooth_fraction": 1.0}),
        ("ndcg_loss2", {"smooth_fraction": 0.0}),
        ("mrr", {"gain_fn": UTILS.identity, "rank_discount_fn": UTILS.inverse, "smooth_fraction": 1.0}),
    ],
)
def test_lambda_weights_equal_tf_ranking(name, weight, theirs):
    scores, ids = random_problem(6, 9)
    graded = tf.constant(np.random.default_rng(1).integers(4, size=[6, 9]), tf.float32)
    options = {"theirs": {"lambda_weight": tfr.keras.losses.NDCGLambdaWeight(**theirs)}}
    options["lambda_weight"] = weight
    assert_equal_to_tf_ranking(name, scores, tf.one_hot(ids, 9), ids, **options)
    assert_equal_to_tf_ranking(name, scores, graded, **options)


@pytest.mark.nightly
@pytest.mark.parametrize("weight", pairs.WEIGHTS)
def test_lambda_weights_of_ties_masks_and_xla(weight):
    scores = tf.constant([[1.0, 1.0, 0.0, 1.0, 0.0, 2.0], [0.0] * 6])
    labels = tf.constant([1, 4])
    where = np.array([True, True, True, True, True, False])
    loss = functools.partial(losses.pairwise_logistic, lambda_weight=weight)
    compiled = tf.function(lambda s, y: [loss(s, y, where=w) for w in (None, where)], jit_compile=True)
    for mask, jitted in zip((None, where), compiled(scores, labels), strict=True):
        value, gradient = value_and_gradient(loss, scores, labels, where=mask)
        dense = value_and_gradient(loss, scores, tf.one_hot(labels, 6), where=mask)
        np.testing.assert_allclose(value, dense[0], rtol=1e-6)
        np.testing.assert_allclose(gradient, dense[1], rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(jitted, value, rtol=1e-5)
        assert (np.abs(gradient).max(axis=1) > 0.0).all()  # ties have a gradient
    subset = loss(scores[:, :5], labels)
    np.testing.assert_allclose(loss(scores, labels, where=where), subset, rtol=1e-6)
    equals = gradient[0, [0, 3]]
    np.testing.assert_allclose(equals[0], equals[1])  # classes of equal score have equal weights


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0])
def test_asl_equals_keras_focal_cross_entropy(gamma):
    scores, _ = random_problem(6, 9)
    labels = tf.cast(np.random.default_rng(1).integers(2, size=[6, 9]), tf.float32)
    reference = tf.keras.losses.BinaryFocalCrossentropy(gamma=gamma, from_logits=True)
    asl = losses.ASL(gamma_positive=gamma, gamma_negative=gamma, margin=0.0)
    expected = value_and_gradient(lambda s, y: reference(y, s), scores, labels)
    actual = value_and_gradient(lambda s, y: asl(y, s), scores, labels)
    np.testing.assert_allclose(actual[0], expected[0], rtol=1e-5)
    np.testing.assert_allclose(actual[1], expected[1], rtol=1e-4, atol=1e-6)


def test_gce_is_between_softmax_and_half_the_absolute_error():
    scores, ids = random_problem(6, 9)
    np.testing.assert_allclose(losses.gce(scores, ids, q=1e-6), losses.softmax(scores, ids), rtol=1e-4)
    error = tf.reduce_sum(tf.abs(tf.nn.softmax(scores) - tf.one_hot(ids, 9)), axis=1)
    np.testing.assert_allclose(losses.gce(scores, ids, q=1.0), error / 2, rtol=1e-5)
    for q, message in ((0.0, "q=0.0: not positive"), (1.5, r"q=1.5: above 1. Choose one in \(0, 1\]")):
        with pytest.raises(ValueError, match=message):
            losses.gce(scores, ids, q=q)


def test_losses_of_several_labels_by_hand():
    scores = tf.constant([[1.0, 0.0, 3.0]])
    labels = tf.constant([[1.0, 1.0, 0.0]])
    zlpr = losses.zlpr(scores, labels)
    np.testing.assert_allclose(zlpr, [log1p(exp(3)) + log(1 + exp(-1) + exp(0))], rtol=1e-6)
    decoupled = losses.decoupled_softmax(scores, labels)
    np.testing.assert_allclose(decoupled, [(log1p(exp(2)) + log1p(exp(3))) / 2], rtol=1e-6)
    gce = losses.gce(scores, labels, q=1.0)
    np.testing.assert_allclose(gce, [2 - (exp(1) + exp(0)) / (exp(1) + exp(0) + exp(3))], rtol=1e-6)


KERAS_SMOOTHED = {
    "softmax": tf.keras.losses.CategoricalCrossentropy,
    "sigmoid_cross_entropy": tf.keras.losses.BinaryCrossentropy,
}


@pytest.mark.parametrize("name", SMOOTHED)
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
def test_smoothed_labels_equal_keras(name, smoothing, rng):
    scores, ids = random_problem(6, 9)
    reference = KERAS_SMOOTHED[name](from_logits=True, label_smoothing=smoothing, reduction="none")
    several = rng.random([6, 9]) * (np.arange(9) < 7)
    several = tf.constant(several / several.sum(axis=1, keepdims=True), tf.float32)
    # Keras knows no masks: the classes that take part are separate lists.
    where = tf.constant([True] * 7 + [False] * 2)
    for labels, dense in ((ids % 7, tf.one_hot(ids % 7, 9)), (several, several)):
        for mask, n in ((None, 9), (where, 7)):
            expected = value_and_gradient(lambda s, y, n=n: reference(y[:, :n], s[:, :n] / 2), scores, dense)
            options = {"temperature": 2.0, "label_smoothing": smoothing, "where": mask}
            actual = value_and_gradient(pure(name), scores, labels, **options)
            np.testing.assert_allclose(actual[0], expected[0], rtol=1e-5)
            np.testing.assert_allclose(actual[1], expected[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", SMOOTHED)
def test_label_smoothing_must_be_in_its_range(name):
    for smoothing in (-0.1, 1.0, float("nan"), "0.1"):
        with pytest.raises(ValueError, match=rf"label_smoothing={smoothing}: not in \[0, 1\)\. Choose"):
            losses.get(name, label_smoothing=smoothing)([0], [[0.0, 1.0]])


@pytest.mark.parametrize("where", [None, [[True, False]]])
def test_the_order_of_one_class_has_no_gradient(where):
    scores = tf.constant([[1234.5]] if where is None else [[1234.5, 0.0]])
    labels = tf.ones_like(scores)
    options = {"seed": [0, 0], "where": where, "weights": 0.37}
    value, gradient = value_and_gradient(losses.list_mle, scores, labels, **options)
    assert value == 0.0
    assert not gradient.any()


def slope_of_order(scores, labels):
    """Returns the gradient of `list_mle` for labels from high to low."""
    del labels
    slope = np.zeros(len(scores))
    for i in range(len(scores) - 1):
        remaining = exp(scores[i:] - scores[i:].max())
        slope[i:] += remaining / remaining.sum()
        slope[i] -= 1.0
    return slope


def slope_of_differences(scores, labels):
    """Returns the gradient of `pairwise_mse`: 4 times the distances from the mean error."""
    errors = scores - labels
    return 4 * (errors - errors.mean())


@pytest.mark.parametrize("xla", [False, True])
@pytest.mark.parametrize(
    ("name", "labels", "slope"),
    [
        # Noise does not change the order of labels that are far apart.
        ("list_mle", [2e3, 1e3, 0.0], slope_of_order),
        ("coupled_rank_distil", [2e3, 1e3, 0.0], slope_of_order),
        ("pairwise_mse", [2.0, 1.0, 0.0], slope_of_differences),
        ("pairwise_mse", [1.0, 0.0, 0.0], slope_of_differences),  # as class ids too
    ],
)
def test_gradient_at_extreme_scores_equals_float64(name, labels, slope, xla, rng):
    far = 1e4 * np.array([[1, -1, 1], [-1, 1, -1], [1, 1, -1], [1, 1, 1], [-1, -1, -1]])
    scores = np.float32([*far, *(far + rng.normal(size=far.shape))])
    expected = np.array([slope(np.float64(row), labels) for row in scores])
    forms = [np.tile(np.float32(labels), [10, 1])] + [np.zeros(10, np.int32)] * (sum(labels) == 1.0)
    function = tf.function(values_and_gradients(pure(name)), jit_compile=xla, autograph=False)
    for actual in function(tf.constant(scores), *forms)[1::2]:
        errors = np.abs(actual - expected).max(axis=1) / np.abs(expected).max(axis=1)
        assert errors.max() <= 1e-5, errors


def noise_by_class(monkeypatch):
    """Makes the noise of a class independent of the shape of the scores."""

    def noise(shape, seed):
        return tf.broadcast_to(tf.sin(7.0 * tf.range(shape[-1], dtype=tf.float32)), shape)

    monkeypatch.setattr(gumbel, "noise", noise)


class Properties:
    """Tests mostly use one shape, since some losses are compiled for each shape."""

    def test_integer_equals_one_hot(self, name):
        scores, labels = random_problem(6, 9, name)
        mask = np.random.default_rng(3).random([6, 9]) < 0.7  # also masks some true classes
        for where in (None, mask):
            integer = value_and_gradient(pure(name), scores, labels, where=where)
            dense = value_and_gradient(pure(name), scores, tf.one_hot(labels, 9), where=where)
            assert integer[0].shape == dense[0].shape == (6,)
            assert integer[0].dtype == dense[0].dtype == np.float32
            if name in COST_WITHOUT_RELEVANT or where is None:
                keep = slice(None)
            else:
                keep = mask[np.arange(6), labels]
                assert not keep.all()
                np.testing.assert_allclose(integer[0][~keep], 0.0, atol=1e-6)
                np.testing.assert_allclose(dense[0][~keep], 0.0, atol=1e-6)
            np.testing.assert_allclose(integer[0][keep], dense[0][keep], rtol=1e-5)
            np.testing.assert_allclose(integer[1][keep], dense[1][keep], rtol=1e-4, atol=1e-6)

    def test_masked_equals_subset(self, name, monkeypatch):
        noise_by_class(monkeypatch)
        scores, _ = random_problem(6, 9, name)
        scores += np.reshape([0.0, 0.0, 0.0, -100.0, -100.0, -100.0], [6] + [1] * (scores.shape.rank - 1))
        labels = tf.constant([0, 1, 2, 3, 4, 5])
        where = [True] * 6 + [False] * 3
        for y, y_subset in ((labels, labels), (tf.one_hot(labels, 9), tf.one_hot(labels, 6))):
            subset = pure(name)(scores[:, :6], y_subset)
            np.testing.assert_allclose(pure(name)(scores, y, where=where), subset, rtol=1e-5)

    def test_masked_scores_and_labels_are_ignored(self, name):
        scores, labels = random_problem(6, 9, name)
        where = np.arange(9) != 8
        labels = labels % 8
        where_scores = np.reshape(where, [9] + [1] * (scores.shape.rank - 2))
        shown = tf.where(where_scores, scores, 0.0) if draws_noise(name) else scores
        hidden = np.reshape([np.nan, np.inf, -np.inf] * 2, [6] + [1] * (scores.shape.rank - 1))
        masked = tf.where(where_scores, scores, tf.constant(hidden, tf.float32))
        dense = tf.one_hot(labels, 9)
        masked_dense = tf.where(where, dense, tf.constant([[np.nan], [-1.0]] * 3, tf.float32))
        for y, masked_y in ((labels, labels), (dense, masked_dense)):
            expected = value_and_gradient(pure(name), shown, y, where=where)
            actual = value_and_gradient(pure(name), masked, masked_y, where=where)
            np.testing.assert_allclose(actual[0], expected[0], rtol=1e-6)
            np.testing.assert_allclose(actual[1], expected[1], rtol=1e-6, atol=1e-7)

    def test_gradients_agree_for_equal_scores(self, name):
        labels = tf.constant([2, 0])
        scores = with_heads(name, tf.zeros([2, 3]))
        integer = value_and_gradient(pure(name), scores, labels)
        dense = value_and_gradient(pure(name), scores, tf.one_hot(labels, 3))
        np.testing.assert_allclose(integer[1], dense[1], rtol=1e-5, atol=1e-7)
        assert np.abs(integer[1]).max() > 0.0

    def test_integers_of_any_size(self, name):
        scores, labels = random_problem(4, 300, name)
        labels = labels % 100
        expected = pure(name)(scores, labels)
        for dtype in (tf.uint8, tf.int8, tf.int16, tf.uint16, tf.uint32, tf.int64):
            np.testing.assert_allclose(pure(name)(scores, tf.cast(labels, dtype)), expected, rtol=1e-6)

    def test_all_masked_is_zero_with_zero_gradient(self, name):
        scores, labels = random_problem(6, 9, name)
        for y in (labels, tf.one_hot(labels, 9)):
            value, gradient = value_and_gradient(pure(name), scores, y, where=tf.zeros([6, 9], tf.bool))
            np.testing.assert_array_equal(value, np.zeros(6))
            np.testing.assert_array_equal(gradient, np.zeros(scores.shape))

    def test_permutation_equivariance(self, name, monkeypatch):
        if name in ("list_mle", "coupled_rank_distil"):
            pytest.skip("equal labels get their order by noise, which another order of the classes changes")
        monkeypatch.setattr(gumbel, "noise", lambda shape, seed: tf.zeros(shape))
        scores, labels = random_problem(6, 9, name)
        order = np.random.default_rng(0).permutation(9)
        permuted = pure(name)(tf.gather(scores, order, axis=1), tf.gather(np.argsort(order), labels))
        np.testing.assert_allclose(permuted, pure(name)(scores, labels), rtol=1e-5)

    def test_shift_invariance_where_it_holds(self, name):
        scores, labels = random_problem(6, 9, name)
        shifted = pure(name)(scores + 3.0, labels).numpy()
        if name in SHIFT_DEPENDENT:
            assert not np.allclose(shifted, pure(name)(scores, labels), rtol=1e-2)
        else:
            np.testing.assert_allclose(shifted, pure(name)(scores, labels), rtol=2e-5)

    @pytest.mark.nightly
    @pytest.mark.parametrize("dtype", [tf.float32, tf.float16, tf.bfloat16])
    def test_finite_value_and_gradient_at_extreme_scores(self, name, dtype):
        extreme = 1e4 * np.array([[1.0, -1.0, 1.0], [-1.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
        scores = with_heads(name, tf.cast(extreme, dtype))
        for labels in (tf.constant([0, 0, 0]), tf.constant([[1.0, 0, 0]] * 3)):
            value, gradient = value_and_gradient(pure(name), scores, labels)
            assert value.dtype == np.float32
            assert np.isfinite(value).all()
            finite = np.isfinite(gradient.astype(np.float32)).reshape(3, -1).all(axis=1)
            assert finite[2]
            if name not in ("mse", "rescaled_mse", "pairwise_mse") or dtype != tf.float16:
                # The gradient of the square losses, kappa * 2e4, exceeds float16.
                assert finite.all()

    def test_scores_that_are_not_finite_give_a_nan_loss(self, name):
        for row in ([np.nan, 1.0, 2.0], [0.0, np.nan, 2.0], [np.inf, 0.0, 0.0]):
            scores = with_heads(name, tf.constant([row, [1.0, 0.0, 2.0]]))
            for labels in (tf.constant([0, 0]), tf.constant([[1.0, 0.0, 0.0]] * 2)):
                value = pure(name)(scores, labels).numpy()
                assert np.isnan(value[0])
                assert np.isfinite(value[1])

    @pytest.mark.nightly
    def test_graph_and_xla_equal_eager(self, name):
        """Also with unknown shapes, and with labels on which XLA cannot raise."""
        scores, labels = random_problem(6, 9, name)
        all_values = values_and_gradients(pure(name))
        one_hot = tf.one_hot(labels, 9)
        eager = all_values(scores, labels, one_hot)
        # `test_bad_gain` uses Autograph, which takes a second per loss.
        graph = tf.function(all_values, autograph=False).get_concrete_function(scores, labels, one_hot)
        xla = tf.function(lambda *inputs: graph(*inputs), jit_compile=True, autograph=False)
        for compiled in (graph, xla):
            results = compiled(scores, labels, one_hot)
            for value, expected in zip(results[::2], eager[::2], strict=True):
                np.testing.assert_allclose(value, expected, rtol=1e-5)
            for gradient, expected in zip(results[1::2], eager[1::2], strict=True):
                np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-6)
        signature = [
            tf.TensorSpec([None, None, *scores.shape[2:]]),
            tf.TensorSpec([None], tf.int32),
            tf.TensorSpec([None, None]),
        ]
        values = tf.function(
            lambda s, *forms: [pure(name)(s, y) for y in forms], input_signature=signature, autograph=False
        )
        for value, expected in zip(values(scores, labels, one_hot), eager[::2], strict=True):
            np.testing.assert_allclose(value, expected, rtol=1e-5)
        outside = np.array([False, True, False, False, True, False])
        bad_labels = tf.where(outside, [0, -1, 0, 0, 9, 0], labels)
        np.testing.assert_array_equal(np.isnan(xla(scores, bad_labels, one_hot)[0]), outside)

    def test_extra_batch_dimensions(self, name, monkeypatch):
        noise_by_class(monkeypatch)
        scores, labels = random_problem(6, 9, name)
        for y, shape in ((labels, [2, 3]), (tf.one_hot(labels, 9), [2, 3, 9])):
            values = pure(name)(tf.reshape(scores, [2, 3, *scores.shape[1:]]), tf.reshape(y, shape))
            np.testing.assert_allclose(tf.reshape(values, [6]), pure(name)(scores, y), rtol=1e-6)

    def test_one_class(self, name):
        scores = with_heads(name, tf.constant([[2.0]]))
        value, gradient = value_and_gradient(pure(name), scores, tf.constant([0]))
        assert np.isfinite(value).all()
        assert np.isfinite(gradient).all()

    def test_weights_multiply(self, name):
        scores, labels = random_problem(6, 9, name)
        weights = [0.0, 1.0, 2.0, 0.5, 3.0, 0.0]
        weighted = pure(name)(scores, labels, weights=weights)
        np.testing.assert_allclose(weighted, pure(name)(scores, labels) * weights, rtol=1e-6)

    def test_label_outside_the_classes(self, name):
        scores = with_heads(name, tf.zeros([2, 3]))
        for label in (-1, 3):
            message = rf"labels\[1\]={label}: outside the classes 0\.\.2\. Number them from 0"
            with pytest.raises(ValueError, match=message):
                pure(name)(scores, tf.constant([0, label]))
        # Without Autograph, which takes a second per loss. Under XLA: `test_graph_and_xla_equal_eager`.
        compiled = tf.function(pure(name), autograph=False)
        for label in (-1, 3):
            value = compiled(scores, tf.constant([0, label])).numpy()
            assert np.isfinite(value[0])
            assert np.isnan(value[1])

    def test_bad_gain(self, name):
        scores = with_heads(name, tf.zeros([2, 3]))
        labels = tf.constant([[0.0, 1.0, -1.0], [1.0, 0.0, 0.0]])
        message = r"labels\[0, 2\]=-1\.0: not a finite gain of at least 0\. .*where\."
        with pytest.raises(ValueError, match=message):
            pure(name)(scores, labels)
        compiled = tf.function(pure(name))(scores, labels)
        assert np.isnan(compiled[0])
        assert np.isfinite(compiled[1])

    def test_invalid_shapes_and_dtypes(self, name):
        scores = with_heads(name, tf.zeros([2, 3]))
        loss = pure(name)
        ids = tf.zeros([2], tf.int32)
        for call, message in (
            (lambda: loss(scores, tf.zeros([2, 2])), r"labels=\(2, 2\): do not fit scores of shape \(2, 3\)"),
            (lambda: loss(scores, tf.zeros([2])), r"labels=float32 \(2,\): class ids must be integers"),
            (lambda: loss(scores, ids[:1]), r"labels=\(1,\): do not fit .* Give one integer"),
            (lambda: loss(scores, ids, weights=tf.ones([2, 1])), r"weights=\(2, 1\): cannot be broadcast"),
            (lambda: loss(tf.cast(scores, tf.int32), ids), r"scores=int32 \(2, 3.*\): not floats"),
        ):
            with pytest.raises(ValueError, match=message):
                call()
        signature = [tf.TensorSpec([None, *scores.shape[1:]]), tf.TensorSpec([None, None], tf.int32)]
        message = "labels: not of the shape of the scores. Give dense labels"
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            tf.function(pure(name), signature, autograph=False)(scores, tf.zeros([2, 1], tf.int32))

    def test_second_derivatives_agree(self, name):
        scores, labels = random_problem(6, 9, name, scale=1.0)
        direction = tf.constant(np.random.default_rng(0).normal(size=scores.shape), tf.float32)

        def curvature(labels):
            with tf.GradientTape() as outer:
                outer.watch(scores)
                with tf.GradientTape() as inner:
                    inner.watch(scores)
                    value = pure(name)(scores, labels)
                along = tf.reduce_sum(inner.gradient(value, scores) * direction)
            return outer.gradient(along, scores, unconnected_gradients="zero").numpy()

        if name == "top_k_gain":
            with pytest.raises(LookupError, match="can be differentiated only once"):
                curvature(tf.one_hot(labels, 9))
            return
        np.testing.assert_allclose(curvature(labels), curvature(tf.one_hot(labels, 9)), rtol=1e-4, atol=1e-5)

    def test_gradient_equals_finite_differences(self, name):
        """Compares along random directions, since the gradients are written by hand."""
        scores, labels = random_problem(6, 9, name, scale=1.0)
        where = np.arange(9) < 8
        labels = labels % 8
        rng = np.random.default_rng(0)
        loss = functools.partial(pure(name), where=where)
        _, gradient = value_and_gradient(loss, scores, labels)
        for _ in range(3):
            direction = rng.normal(size=scores.shape).astype(np.float32)
            after, before = (np.float64(loss(scores + s * direction, labels)) for s in (1e-2, -1e-2))
            along = (gradient * direction).reshape(6, -1).sum(axis=1)
            # Some have constants for the gradient, and `approx_metric` kinks where places are exchanged.
            if name not in ("mixture_em", "click_em", "yeti_logistic", "approx_metric"):
                np.testing.assert_allclose((after - before) / 2e-2, along, rtol=2e-2, atol=2e-3)
            assert np.isfinite(along).all()


SLOW = pytest.param("top_k_gain", marks=pytest.mark.nightly)  # its dense form takes seconds to compile


@pytest.mark.parametrize("name", [SLOW if name == "top_k_gain" else name for name in losses.names()])
class TestEveryLoss(Properties):
    pass


@pytest.mark.parametrize("name", SMOOTHED)
class TestEveryLossOfSmoothedLabels(Properties):
    test_graph_and_xla_equal_eager = None  # the operations are those without smoothing

    @pytest.fixture(autouse=True)
    def smoothed(self, name, monkeypatch):
        function = functools.partial(losses.LOSSES[name].function, label_smoothing=0.3)
        monkeypatch.setattr(losses.LOSSES[name], "function", staticmethod(function))


WITH_TEMPERATURE = [name for name in losses.names() if "temperature" in losses.option_names(name)]


@pytest.mark.parametrize("name", WITH_TEMPERATURE)
def test_temperatures_must_be_positive(name):
    with pytest.raises(ValueError, match="temperature=0.0: not positive"):
        losses.get(name, temperature=0.0)([0], [[0.0, 1.0]])


@pytest.mark.nightly
@pytest.mark.parametrize("name", WITH_TEMPERATURE)
def test_learned_temperatures(name):
    scores, labels = random_problem(3, 5)
    for y in (labels, tf.one_hot(labels, 5)):
        temperature = tf.Variable(0.7)
        with tf.GradientTape() as tape:
            value = tf.reduce_sum(pure(name)(scores, y, temperature=temperature))
        low, high = (tf.reduce_sum(pure(name)(scores, y, temperature=t)) for t in (0.69, 0.71))
        slope = tape.gradient(value, temperature)
        np.testing.assert_allclose(slope, (high - low) / 0.02, rtol=2e-2, atol=1e-3)


def test_virtual_class_without_a_relevant_class():
    scores = tf.constant([[1.0, 0.0, 3.0]] * 2)
    labels = tf.constant([0, 2])
    where = [True, True, False]
    expected = [1.5 * np.log(1 + np.exp(1) + 1) - 1, 0.5 * np.log(1 + np.exp(1) + 1)]
    for y in (labels, tf.one_hot(labels, 3)):
        value = losses.calibrated_softmax(scores, y, where=where, virtual_label=0.5)
        np.testing.assert_allclose(value, expected, rtol=1e-6)
    with pytest.raises(ValueError, match="virtual_label=-1.0: too small"):
        losses.calibrated_softmax(scores, labels, virtual_label=-1.0)


def test_an_additional_class_of_far_scores():
    scores = tf.constant([[1e5, 1e5 - 1.0, 0.0], [-1e5, 3.0, 2.0]])
    labels = tf.constant([1, 1])
    expected = [1 + np.log1p(np.exp(-1.0)), np.log(np.exp(-3.0) + 1 + np.exp(-1.0))]
    for y in (labels, tf.one_hot(labels, 3)):
        np.testing.assert_allclose(losses.calibrated_softmax(scores, y), expected, rtol=1e-5)


@pytest.mark.parametrize("k", [2, pytest.param(4, marks=pytest.mark.nightly)])
def test_the_gradient_of_rankmax_compiles_for_dense_labels(k):
    scores = tf.random.stateless_normal([4, 5], [0, k])
    labels = tf.one_hot([0, 1, 2, 3], 5) + tf.one_hot([1, 2, 3, 4], 5)
    both = values_and_gradients(functools.partial(losses.rankmax, k=k))
    compiled = tf.function(both, jit_compile=True)(scores, labels)
    np.testing.assert_allclose(compiled[1], both(scores, labels)[1], atol=1e-6)


@pytest.mark.parametrize("weight", pairs.WEIGHTS)
def test_lambda_weights_of_minus_infinity_and_of_large_gains(weight):
    loss = functools.partial(losses.pairwise_logistic, lambda_weight=weight)
    low, lower = (tf.constant([[1.0, 2.0, x, 0.0, x]]) for x in (-1e9, -np.inf))
    np.testing.assert_allclose(loss(lower, [0]), loss(low, [0]), rtol=1e-6)
    assert np.isfinite(loss([[1.0, 2.0, 3.0]], [[400.0, 1.0, 0.0]])).all()


@pytest.mark.parametrize("metric", ["ndcg", "mrr", "map", "ndcg@3", "map@3", "recall@3", "precision@3"])
def test_metrics_with_soft_ranks_tend_to_the_metrics(metric, rng):
    scores = tf.constant(rng.permuted(np.tile(np.arange(8.0), [20, 1]), axis=1), tf.float32)
    ids = tf.constant(rng.integers(6, size=20))
    where = np.arange(8) < 6
    graded = rng.integers(3, size=[20, 8]).astype(np.float32)
    name, _, k = metric.partition("@")
    exact = getattr(losses.metrics, {"map": "average_precision"}.get(name, name))
    for labels in (ids, tf.one_hot(ids, 8) if name == "mrr" else graded):
        loss = functools.partial(losses.approx_metric, scores, labels, where=where, metric=metric)
        for rank_fn in (None, ranks.all_ranks):
            expected = -exact(scores, labels, *map(int, [k] if k else []), where=where)
            np.testing.assert_allclose(loss(temperature=0.01, rank_fn=rank_fn), expected, atol=1e-5)
    if k:  # fewer classes than K
        shapes = [tf.TensorSpec([None, None]), tf.TensorSpec([None], ids.dtype)]
        of_any = tf.function(functools.partial(losses.approx_metric, metric=metric), input_signature=shapes)
        expected = losses.approx_metric(scores[:, :2], ids % 2, metric=metric)
        np.testing.assert_allclose(of_any(scores[:, :2], ids % 2), expected, rtol=1e-6)
    same = {"ndcg": losses.approx_ndcg, "mrr": losses.approx_mrr}.get(metric)
    if same is not None:
        expected = same(scores, labels, where=where, temperature=1.0)
        np.testing.assert_array_equal(loss(temperature=1.0), expected)


@pytest.mark.parametrize("k", [3, 4, 9])
def test_all_of_at_most_k_classes_count(k):
    scores = tf.constant([[1.0, 0.0, 3.0], [0.0, 0.0, -20.0]])
    ids = tf.constant([0, 0])
    dense = tf.constant([[1.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    rank = np.array([1 + 1 / (1 + exp(1)) + 1 / (1 + exp(-2)), 1 + 1 / 2 + 1 / (1 + exp(20))])
    for metric, labels, expected in (
        ("recall", ids, [-1, -1]),
        ("recall", dense, [-2 / 2, -1 / 1]),
        ("precision", ids, [-1 / k, -1 / k]),
        ("precision", dense, [-2 / k, -1 / k]),
        ("ndcg", ids, -1 / log2(1 + rank)),
        ("map", ids, -1 / rank),
    ):
        loss = functools.partial(losses.approx_metric, metric=f"{metric}@{k}", temperature=1.0)
        value, gradient = value_and_gradient(loss, scores, labels)
        np.testing.assert_allclose(value, expected, rtol=1e-6)
        assert gradient.any() == (metric in ("ndcg", "map"))  # the others are constant


@pytest.mark.parametrize("loss", [losses.approx_ndcg, losses.approx_mrr, losses.approx_metric])
def test_nan_does_not_look_good_to_exact_ranks(loss):
    for labels in ([0], [[1.0, 0.0, 0.0, 0.0]]):
        assert np.isnan(loss([[np.nan, 1.0, 2.0, 0.0]], labels, rank_fn=ranks.all_ranks))


@pytest.mark.nightly
def test_columns_of_ids_are_refused_under_xla():
    signature = [tf.TensorSpec([None, 5]), tf.TensorSpec([None, None], tf.int64)]
    for name in ("softmax", "approx_ndcg"):  # with and without a form for ids
        compiled = tf.function(pure(name), input_signature=signature, jit_compile=True, autograph=False)
        with pytest.raises((tf.errors.InvalidArgumentError, ValueError)):
            compiled(tf.zeros([4, 5]), tf.constant([[1], [4], [0], [3]], tf.int64))


def test_invalid_input():
    scores = tf.zeros([2, 3])
    ids = tf.constant([0, 1])
    for call, message in (
        (lambda: losses.mse(scores, ids, where=[True, False]), r"where=\(2,\): cannot be broadcast"),
        (lambda: losses.mse(scores[:1], [0], weights=[1.0, 2.0]), r"weights=\(2,\): cannot be"),
        (lambda: losses.list_mle(scores, ids, seed=3), r"seed=\(\): not two integers\. Pass int32 \[2\]"),
        (lambda: losses.softmax(scores, ids, temperature=np.float32(-1)), "temperature=-1.0: not positive"),
        (lambda: losses.approx_ndcg(scores, ids, rank_fn="all_ranks"), "rank_fn='all_ranks': not a function"),
        (lambda: losses.approx_metric(scores, ids, metric="recall"), "metric='recall': unknown. There are"),
        (lambda: losses.approx_metric(scores, ids, metric="mrr@3"), "metric='mrr@3': unknown. There are"),
        (lambda: losses.gumbel(functools.partial(losses.list_mle, seed=[0, 0])), "draws noise already"),
        (lambda: losses.Gumbel(losses.MeanAveragePrecision()), "mean_average_precision takes no single"),
        (lambda: losses.gumbel(losses.ordinal), "gumbel: ordinal takes no single score per class"),
        (lambda: losses.click_em(tf.zeros([2, 3, 4]), ids), r"click_em needs two per class\. Give"),
        (lambda: losses.pairwise_logistic(scores, ids, normalize="mean"), "'mean': unknown. There are: list"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    unknown = tf.function(losses.mse, input_signature=[tf.TensorSpec([2, 3]), tf.TensorSpec(None)])
    with pytest.raises(ValueError, match="labels=<unknown>: of no known rank"):
        unknown(scores, scores)


def test_masked_lists_of_many_classes_equal_shorter_lists():
    scores = tf.concat([tf.constant([[20.0, 0.0]]), tf.zeros([1, 200_000])], axis=1)
    labels = tf.one_hot([0], 200_002)
    masked = losses.softmax(scores, labels, where=tf.range(200_002) < 2)
    np.testing.assert_allclose(masked, losses.softmax(scores[:, :2], labels[:, :2]), rtol=1e-6)


def test_pairs_normalizer_counts_the_pairs_of_graded_lists():
    graded = tf.constant([[2.0, 1.0, 0.0, 0.0]])  # 3 + 2 pairs of different gain
    for normalize, expected in (("pairs", np.log(2)), ("none", 5 * np.log(2))):
        value = losses.pairwise_logistic(tf.zeros([1, 4]), graded, normalize=normalize)
        np.testing.assert_allclose(value, [expected], rtol=1e-6)


@pytest.mark.parametrize("name", ["yeti_logistic", "unique_softmax"])
def test_equal_labels_of_infinite_gain_have_no_loss(name):
    value, gradient = value_and_gradient(pure(name), tf.constant([[1.0, 2.0, 3.0]]), tf.fill([1, 3], 200.0))
    assert value == [0.0]
    np.testing.assert_array_equal(gradient, np.zeros([1, 3]))


GRADIENTS_OF_ALL_LOSSES = """
import tensorflow as tf
from rank4class import losses
ids = tf.range(6)
for name in losses.names():
    loss = losses.get(name)
    @tf.function
    def gradients(scores):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(scores)
            values = [loss(labels, scores) for labels in (ids, tf.one_hot(ids, 6))]
        return [tape.gradient(value, scores) for value in values]
    gradients(tf.zeros([6, 6, 2] if loss.heads else [6, 6]))
"""


@pytest.mark.nightly
def test_tensorflow_sorts_the_graph_of_every_loss():
    """It logs those that it cannot sort, such as loops within conditions, and leaves them as they are."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "0"}
    program = [sys.executable, "-c", GRADIENTS_OF_ALL_LOSSES]
    log = subprocess.run(program, env=environment, capture_output=True, text=True, check=True).stderr
    assert "XLA" in log  # the log is on
    assert "topological sort failed" not in log
