import importlib
import math

import numpy as np
import pytest
import tensorflow as tf
from scipy import optimize, special

from rank4class import losses
from rank4class.losses import losses_test

NAMES = ("poly1", "bi_tempered", "smooth_top_k_svm", "difftopk", "sl_at_k", "angular_margin")
IDS = np.array([0, 3, 5, 2, 1, 4], np.int32)


@pytest.fixture(autouse=True)
def tried():
    """Returns the module. Its losses stay registered, as after the tests of reproductions."""
    return importlib.import_module("rank4class.scripts.research.losses_tried")


@pytest.fixture
def scores(rng):
    return rng.normal(scale=2.0, size=[6, 6]).astype(np.float32)


@pytest.mark.parametrize("name", NAMES)
class TestEveryTriedLoss(losses_test.Properties):
    def test_gradients_agree_for_equal_scores(self, name):
        if name != "smooth_top_k_svm":  # the loss of 3 classes is 0 with k = 5
            super().test_gradients_agree_for_equal_scores(name)

    def test_gradient_equals_finite_differences(self, name):
        # No gradient flows through the K-th score of one, and the other has kinks where places are exchanged.
        if name not in ("sl_at_k", "difftopk"):
            super().test_gradient_equals_finite_differences(name)

    def test_graph_and_xla_equal_eager(self, name):
        if name != "smooth_top_k_svm":  # its operations are those of top_k_gain, and compile for 12 seconds
            super().test_graph_and_xla_equal_eager(name)

    def test_is_a_loss_of_experiments(self, name):
        assert losses.get(name).name == name
        assert losses.LOSSES.module_of_user(name) == "rank4class.scripts.research.losses_tried"
        assert all(option.type in (int, float) for option in losses.LOSSES.options(name).values())


def test_tends_to_softmax(tried, scores):
    for name, options, factor in (
        ("poly1", {"epsilon": 0.0}, 1.0),
        ("bi_tempered", {"t1": 1.0, "t2": 1.0 + 1e-4}, 1.0),
        ("angular_margin", {"cosine": 0.0}, 1.0),
        ("difftopk", {"k": 1, "sort_temperature": 1.0}, 1.0),
        ("sl_at_k", {"k": 7}, 1.0),
        ("sl_at_k", {"k": 3, "weight_temperature": 1e6}, 0.5),
    ):
        value = getattr(tried, name)(scores, IDS, **options)
        np.testing.assert_allclose(value, factor * losses.softmax(scores, IDS), rtol=2e-3)


def test_angular_margin_moves_the_angle_and_the_cosine_of_the_class(tried):
    cosines = np.array([[0.5, -0.2, 0.1], [-0.99, 0.3, 0.0]])
    values = tried.angular_margin(20.0 * cosines, [0, 0], scale=20.0, angle=0.3, cosine=0.1)
    # The second angle is more than pi - 0.3.
    true = np.array([math.cos(math.acos(0.5) + 0.3), -0.99 - 0.3 * math.sin(0.3)]) - 0.1
    scores = 20.0 * np.column_stack([true, cosines[:, 1:]])
    np.testing.assert_allclose(values, -special.log_softmax(scores, axis=1)[:, 0], rtol=1e-5)


@pytest.mark.parametrize(
    ("t1", "t2", "scale"), [(0.5, 4.0, 0.01), (0.8, 1.2, 30.0), (0.0, 2.0, 2.0), (1.0, 1.0, 2.0)]
)
def test_bi_tempered_equals_the_divergence_of_its_paper(tried, scores, t1, t2, scale):
    def exp_t(x):
        return np.exp(x) if t2 == 1.0 else np.maximum(1.0 + (1.0 - t2) * x, 0.0) ** (1.0 / (1.0 - t2))

    def log_t(u):
        return np.log(u) if t1 == 1.0 else (u ** (1.0 - t1) - 1.0) / (1.0 - t1)

    rows = np.float64(scale * scores)
    for row, value, label in zip(rows, tried.bi_tempered(rows, IDS, t1=t1, t2=t2), IDS, strict=True):
        above = row.max() + 1e6
        level = optimize.brentq(lambda x, row=row: exp_t(row - x).sum() - 1.0, row.max(), above, xtol=1e-12)
        p = exp_t(row - level)
        y = np.eye(6)[label]
        terms = np.where(y > 0.0, y * (log_t(np.maximum(y, 1e-300)) - log_t(p)), 0.0)
        terms -= (y ** (2.0 - t1) - p ** (2.0 - t1)) / (2.0 - t1)
        np.testing.assert_allclose(value, terms.sum(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("k", "smoothing", "margin"), [(1, 1.0, 1.0), (2, 0.1, 1.0), (5, 2.0, 0.5)])
def test_smooth_top_k_svm_is_top_k_gain_with_a_margin(tried, scores, k, smoothing, margin):
    """The gain is the log of 1 plus the weight of the sets without the class over that of those with it."""
    gain = np.float64(losses.top_k_gain(scores, IDS, k=k, temperature=k * smoothing))
    expected = smoothing * np.log1p(np.exp(margin / smoothing) * np.expm1(gain))
    value = tried.smooth_top_k_svm(scores, IDS, k=k, smoothing=smoothing, margin=margin)
    np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("temperature", [1.0, 1e-3])
def test_difftopk_equals_rows_of_soft_sort(tried, scores, temperature):
    in_order = -np.sort(-scores, axis=1)[:, :3]
    rows = special.softmax(-np.abs(in_order[:, :, None] - scores[:, None, :]) / temperature, axis=2)
    among = rows[np.arange(6), :, IDS].sum(axis=1)
    p = special.softmax(scores, axis=1)[np.arange(6), IDS]
    value = tried.difftopk(scores, IDS, k=3, share=0.3, sort_temperature=temperature)
    np.testing.assert_allclose(value, np.maximum(-np.log(0.7 * p + 0.3 * among), 0.0), rtol=1e-5, atol=1e-6)


def test_sl_at_k_weighs_by_the_lead_over_the_kth_score(tried, scores):
    third = -np.sort(-scores, axis=1)[:, 2]
    true = scores[np.arange(6), IDS]
    expected = losses.softmax(scores, IDS) * special.expit((true - third) / 0.5)
    np.testing.assert_allclose(tried.sl_at_k(scores, IDS, k=3, weight_temperature=0.5), expected, rtol=1e-5)


def test_options_out_of_range(tried):
    for name, options, message in (
        ("poly1", {"epsilon": -1.5}, "epsilon=-1.5: too small"),
        ("bi_tempered", {"t1": 1.1}, "t1=1.1: above 1"),
        ("bi_tempered", {"t2": 0.9}, "t2=0.9: too small"),
        ("smooth_top_k_svm", {"k": 0}, "k=0: not an integer of at least 1"),
        ("difftopk", {"share": 1.0}, r"share=1.0: not in \(0, 1\)"),
        ("sl_at_k", {"weight_temperature": 0.0}, "weight_temperature=0.0: not positive"),
    ):
        with pytest.raises(ValueError, match=message):
            getattr(tried, name)(tf.zeros([1, 3]), [0], **options)
