"""Metrics against arithmetic, TF-Ranking and scikit-learn; invalid scores have the worst value."""

import functools
import itertools
import re

import numpy as np
import pytest
import sklearn.metrics
import tensorflow as tf

from rank4class import compat, losses
from rank4class.losses import metrics
from rank4class.losses.ops import ranks

tfr = compat.import_tensorflow_ranking()
NAMES = (
    "top1_error",
    "top5_error",
    "top1_accuracy",
    "top5_accuracy",
    "ndcg@5",
    "ndcg",
    "mrr",
    "mean_rank",
    "precision@5",
    "grade1_precision@5",
    "recall@5",
    "map@5",
    "map",
)
WORST = {"top1_error": 1, "top5_error": 1, "mean_rank": np.inf}


def result(name, labels, scores, sample_weight=None, ties="worst"):
    metric = losses.get_metric(name, ties)
    metric.update_state(labels, scores, sample_weight)
    return metric.result().numpy()


def test_all_registered_metrics_are_tested():
    for pattern in metrics.METRICS:
        assert any(re.fullmatch(pattern, name) for name in NAMES), pattern


def test_ties_of_dense_labels_are_broken_by_gain(rng):
    scores = rng.integers(4, size=[24, 9]).astype(np.float32)
    most = np.repeat([[1], [3]], 12, axis=0)  # of one gain or of three
    labels = rng.integers(most + 1, size=[24, 9]).astype(np.float32)
    order = np.stack([np.lexsort((gains, -row)) for row, gains in zip(scores, labels, strict=True)])
    without_ties = -np.argsort(order, axis=-1).astype(np.float32)
    by_name = [losses.get_metric(name) for name in ("ndcg", "ndcg@3", "mrr", "map", "map@4", "recall@3")]

    def values(scores):
        return [metric.of_scores(scores, labels) for metric in by_name]

    for function in (values, tf.function(values, jit_compile=True, autograph=False)):
        for tied, strict in zip(function(scores), function(without_ties), strict=True):
            np.testing.assert_array_equal(tied, strict)


def test_ranks_of_all_classes():
    def last_rank(scores, labels, where=None):
        return ranks.tie_range(tf.constant(scores), tf.constant(labels), where)[1]

    scores = [[0.3, 0.9, 0.1, 0.5], [0.3, 0.9, 0.1, 0.5]]
    np.testing.assert_array_equal(last_rank(scores, [1, 0]), [1, 3])
    np.testing.assert_array_equal(
        last_rank(scores, [1, 0], np.array([[True, False, True, True]] * 2)), [np.inf, 2]
    )
    np.testing.assert_array_equal(last_rank([[1.0, 1.0, 1.0, 0.0]], [1]), [3])  # behind its ties
    np.testing.assert_array_equal(last_rank(np.array([[1.0, 1.0 + 1e-9]]), [1]), [1])  # not rounded
    rng = np.random.default_rng(0)
    scores = rng.integers(5, size=[20, 9]).astype(np.float32)  # many ties
    where = rng.random([20, 9]) < 0.7
    compiled = tf.function(ranks.all_ranks, jit_compile=True, autograph=False)
    for mask in (np.ones([20, 9], bool), where):
        higher = (scores[:, None, :] > scores[:, :, None]) & mask[:, None, :]
        for function in (ranks.all_ranks, compiled):
            actual = function(tf.constant(scores), tf.constant(mask)).numpy()
            np.testing.assert_array_equal(actual[mask], (1 + higher.sum(axis=-1))[mask])
            assert (actual[~mask] > np.where(mask, actual, 0).max(axis=-1)[np.nonzero(~mask)[0]]).all()
    higher = scores[:, None, :] > scores[:, :, None]
    np.testing.assert_array_equal(ranks.all_ranks(tf.constant(scores)), 1 + higher.sum(axis=-1))


NOT_FINITE = [
    [np.nan] * 7,
    [1.0, 0.0, np.nan, 0.0, 0.0, 0.0, 0.0],
    [np.nan, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
    [np.inf, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
    [0.0, -np.inf, -np.inf, -np.inf, -np.inf, -np.inf, -np.inf],
]


def test_ranks_by_scores_that_are_not_finite_are_infinite_under_xla():
    compiled = tf.function(ranks.tie_range, jit_compile=True, autograph=False)  # may order NaN differently
    np.testing.assert_array_equal(
        compiled(tf.constant(NOT_FINITE), tf.zeros([5], tf.int32), None), [[np.inf] * 5] * 2
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("ties", metrics.TIES)
def test_invalid_examples_have_the_worst_value_and_can_be_masked(name, ties):
    metric = losses.get_metric(name, ties)
    worst = WORST.get(name, 0)
    valid = tf.constant([[3.0, 1, 2, 0, 5, 6, 7]])
    not_finite = tf.constant(NOT_FINITE)
    for label in (-1, 7):
        assert result(name, tf.constant([label]), valid, ties=ties) == worst
    bad = [[0.0] * 7, [1.0, -1.0] + [0.0] * 5, [np.nan] + [1.0] * 6, [np.inf] + [1.0] * 6]
    scores = tf.concat([not_finite, tf.tile(valid, [5, 1])], axis=0)
    labels = tf.concat([tf.one_hot([0] * 5, 7), tf.constant(bad), tf.one_hot([6], 7)], axis=0)
    values = metric.of_scores(scores, labels)
    np.testing.assert_array_equal(values[:9], [worst] * 9)
    assert values[9] != worst
    assert result(name, labels, scores, [0.0] * 9 + [1.0], ties) == values[9]
    np.testing.assert_array_equal(metric.of_scores(not_finite, tf.zeros([5], tf.int32)), [worst] * 5)
    assert result(name, tf.zeros([5], tf.int32), not_finite, ties=ties) == worst
    where = np.arange(7) != 6
    for masked in (tf.constant([6]), tf.one_hot([6], 7)):  # the true class does not take part
        value = metric.function(valid, masked, where=where, ties=ties, **metric.options)
        np.testing.assert_array_equal(value, [worst])


@pytest.mark.parametrize("name", ["top_k_accuracy", "precision", "recall"])
@pytest.mark.parametrize("labels", [[6], np.eye(7, dtype=np.float32)[[6]]])
def test_top_k_of_at_most_k_classes_is_perfect(name, labels):
    metric = getattr(metrics, name)
    scores = np.arange(7.0, dtype=np.float32)[None]
    where = np.arange(7) >= 4
    assert metric(scores, labels, 2, where=where) > 0.0
    assert metric(scores, labels, 3, where=where) == 0.0
    with pytest.raises(ValueError, match="k=7: trivial for 7 classes"):
        metric(scores, labels, 7)
    signature = [tf.TensorSpec([None, None])]
    dynamic = tf.function(lambda s: metric(s, tf.constant(labels), 7), signature, autograph=False)
    assert dynamic(tf.constant(scores)) == 0.0
    for metric in (metrics.ndcg, metrics.average_precision):
        assert metric(scores, labels, 7, where=where) == 1.0
        assert metric(scores, labels, 8) == 1.0


THEIRS = {
    "ndcg@5": lambda: tfr.keras.metrics.NDCGMetric(topn=5),
    "ndcg": tfr.keras.metrics.NDCGMetric,
    "mrr": tfr.keras.metrics.MRRMetric,
    "top5_accuracy": lambda: tfr.keras.metrics.HitsMetric(topn=5),
    "mean_rank": tfr.keras.metrics.ARPMetric,
    "precision@5": lambda: tfr.keras.metrics.PrecisionMetric(topn=5),
    "recall@5": lambda: tfr.keras.metrics.RecallMetric(topn=5),
    "map@5": lambda: tfr.keras.metrics.MeanAveragePrecisionMetric(topn=5),
    "map": tfr.keras.metrics.MeanAveragePrecisionMetric,
}


def problem(n, kind):
    """Returns scores without ties, forms of labels, and dense labels."""
    batch = 50 if n < 1000 else 10
    rng = np.random.default_rng(n)
    scores = rng.permuted(np.tile(np.linspace(-3, 3, n, dtype=np.float32), [batch, 1]), axis=1)
    ids = rng.integers(n, size=batch)
    one_hot = np.eye(n, dtype=np.float32)[ids]
    if kind == "ids":
        return scores, (ids, one_hot), one_hot
    dense = rng.integers(2 if kind == "multi_label" else 4, size=[batch, n]).astype(np.float32)
    dense = np.maximum(dense, one_hot)  # no list is empty
    return scores, (dense,), dense


@pytest.mark.parametrize("n", [6, pytest.param(1000, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("kind", ["ids", "multi_label", "graded"])
@pytest.mark.parametrize("name", THEIRS)
def test_equal_tf_ranking(name, kind, n):
    scores, forms, dense = problem(n, kind)
    expected = THEIRS[name]()(dense, scores)
    # TF-Ranking weights each list by the sum of its gains.
    weights = dense.sum(axis=1) if name == "mean_rank" else None
    for labels, ties in itertools.product(forms, metrics.TIES):
        np.testing.assert_allclose(result(name, labels, scores, weights, ties), expected, rtol=1e-5)


@pytest.mark.parametrize("k", [1, 3, None])
def test_ndcg_averaged_over_ties_equals_scikit_learn(k):
    rng = np.random.default_rng(0)
    scores = rng.integers(4, size=[200, 9]).astype(np.float32)
    graded = rng.integers(4, size=[200, 9])
    graded[:, 0] += 1
    actual = tf.reduce_mean(metrics.ndcg(scores, tf.constant(graded), k, ties="average"))
    expected = sklearn.metrics.ndcg_score(2.0**graded - 1.0, scores, k=k)  # scikit-learn expects gains
    np.testing.assert_allclose(actual, expected, rtol=1e-5)


def discounts(n):
    return 1 / np.log2(1 + np.arange(1, n + 1))


def in_order_ndcg(gains, k):
    gains = 2.0**gains - 1
    ideal = np.sort(gains)[::-1]
    return (gains[:k] @ discounts(len(gains))[:k]) / (ideal[:k] @ discounts(len(gains))[:k])


IN_ORDER = {
    "ndcg": in_order_ndcg,
    "top_k_accuracy": lambda gains, k: float((gains[:k] > 0).any()),
    "top_k_error": lambda gains, k: float((gains[:k] <= 0).all()),
    "mrr": lambda gains, k: 1 / (1 + np.argmax(gains > 0)),
    "mean_rank": lambda gains, k: (gains * np.arange(1, len(gains) + 1)).sum() / gains.sum(),
    "precision": lambda gains, k: (gains[:k] > 0).sum() / k,
    "recall": lambda gains, k: (gains[:k] > 0).sum() / (gains > 0).sum(),
    "average_precision": lambda gains, k: (
        sum((gains[:i] > 0).mean() for i in range(1, k + 1) if gains[i - 1] > 0) / (gains > 0).sum()
    ),
}


WITH_K = set(IN_ORDER) - {"mrr", "mean_rank"}


def values_of_all(scores, labels, k=3, **options):
    """Returns name -> values of every metric."""
    more = {name: {"k": k} if name in WITH_K else {} for name in IN_ORDER}
    return {name: getattr(metrics, name)(scores, labels, **more[name], **options) for name in IN_ORDER}


def values_by_ties(metric, scores, dense, ids):
    """Returns rows of values: two for each list of dense labels, then one for each id."""
    columns = []
    for ties in ("worst", "average"):
        of_dense = metric(tf.concat([scores, scores], axis=0), dense, ties=ties)
        columns.append(tf.concat([of_dense, metric(scores, ids, ties=ties)], axis=0))
    return tf.stack(columns, axis=1)


@pytest.mark.nightly
@pytest.mark.parametrize("name", IN_ORDER)
def test_ties_equal_brute_force_over_all_orders(name):
    """Compares with the worst order of tied classes, and with the mean over all orders."""
    rng = np.random.default_rng(0)
    permutations = np.array(list(itertools.permutations(range(6))))
    for k in range(1, 6):
        scores = rng.integers(3, size=[3, 6]).astype(np.float32)
        ids = np.array([k - 1, k, k + 1]) % 6
        one_hot = np.eye(6, dtype=int)[ids]
        gains = rng.integers(3, size=[3, 6]) * (rng.random([3, 6]) < 0.6) + one_hot
        expected = []  # worst order and mean of each list and form of labels
        for dense in (gains, one_hot):
            for row, labels in zip(scores, dense, strict=True):
                orders = permutations[(np.diff(row[permutations]) <= 0).all(axis=1)]
                values = [IN_ORDER[name](labels[order], k) for order in orders]
                worst = max if name in ("mean_rank", "top_k_error") else min
                expected.append([worst(values), np.mean(values)])
        expected += expected[3:]  # ids equal one-hot lists
        metric = functools.partial(getattr(metrics, name), **({"k": k} if name in WITH_K else {}))
        function = functools.partial(values_by_ties, metric)
        compiled = [tf.function(function, jit_compile=True)] if k == 1 else []
        for form in (function, *compiled):
            lists = tf.constant(np.concatenate([gains, one_hot]))
            actual = form(tf.constant(scores), lists, tf.constant(ids))
            np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", IN_ORDER)
def test_masked_equals_subset_with_more_batch_axes(name):
    rng = np.random.default_rng(0)
    scores = rng.integers(5, size=[2, 3, 8]).astype(np.float32)
    gains = rng.integers(3, size=[2, 3, 8]) + np.eye(8, dtype=int)[0]
    options = {"k": 3} if name in WITH_K else {}
    for labels in (gains, rng.integers(6, size=[2, 3])):
        for ties in metrics.TIES:
            metric = functools.partial(getattr(metrics, name), ties=ties, **options)
            masked = metric(scores, labels, where=np.arange(8) < 6)
            shorter = labels if labels.ndim == 2 else labels[..., :6]
            np.testing.assert_allclose(masked, metric(scores[..., :6], shorter), rtol=1e-5)
            flat = metric(scores.reshape(6, 8), labels.reshape(6, *labels.shape[2:]))
            np.testing.assert_allclose(tf.reshape(metric(scores, labels), [6]), flat, rtol=1e-6)


def test_precision_of_a_grade_by_hand():
    scores = [[4.0, 3.0, 2.0, 1.0]] * 4
    grades = [[2.0, 1.0, 2.0, 2.0]] * 4
    grades[1], grades[2], grades[3] = [1.0] * 4, [2.0, np.nan, 0.0, 0.0], [2.0, -1.0, 0.0, 0.0]
    np.testing.assert_allclose(metrics.grade_precision(scores, grades, 3, 2), [2 / 3, 0.0, 0.0, 0.0])
    np.testing.assert_allclose(metrics.grade_precision(scores, [0, 0, 1, 3], 2, 1), [0.5, 0.5, 0.5, 0.0])
    np.testing.assert_allclose(metrics.grade_precision(scores, [0, 0, 1, 3], 2, 2), [0.0] * 4)
    with pytest.raises(ValueError, match=r"grade=0: not an integer of at least 1"):
        losses.get_metric("grade0_precision@3")
    with pytest.raises(ValueError, match="k=4: trivial for 4 classes"):
        losses.get_metric("grade2_precision@4").check_classes(4)


def test_average_over_the_ties_of_many_classes():
    n = 100_000
    scores = tf.zeros([1, n])
    harmonic = (1 / np.arange(1, n + 1)).sum() / n
    np.testing.assert_allclose(metrics.mrr(scores, [5], ties="average"), [harmonic], rtol=1e-6)
    np.testing.assert_allclose(metrics.mrr(scores, tf.one_hot([5], n), ties="average"), [harmonic], rtol=1e-5)
    np.testing.assert_allclose(metrics.ndcg(scores, [5], ties="average"), [discounts(n).mean()], rtol=1e-6)
    np.testing.assert_allclose(metrics.mean_rank(scores, [5], ties="average"), [(n + 1) / 2])


def test_zeros_of_either_sign_are_equal():
    values_of_two = functools.partial(values_of_all, k=2)
    labels = tf.constant([[1.0, 0.0, 0.0]])
    expected = values_of_two(tf.zeros([1, 3]), labels)
    for function in (values_of_two, tf.function(values_of_two, jit_compile=True, autograph=False)):
        for name, values in function(tf.constant([[0.0, -0.0, 0.0]]), labels).items():
            np.testing.assert_allclose(values, expected[name], rtol=1e-6, err_msg=name)


def test_small_gains_keep_their_precision():
    for gain in (1e-3, 1e-6, 1e-9, 1e-30):
        scores = [[1.0, 2.0, 3.0]]
        labels = tf.constant([[gain, 4 * gain, 2 * gain]])
        linear = (2 + 4 / np.log2(3) + 1 / 2) / (4 + 2 / np.log2(3) + 1 / 2)
        np.testing.assert_allclose(metrics.ndcg(scores, labels), [linear], rtol=1e-2 if gain > 1e-4 else 1e-5)


def test_weights_of_sequences():
    rng = np.random.default_rng(2)
    scores = rng.normal(size=(3, 3, 4)).astype(np.float32)
    labels = rng.integers(0, 4, (3, 3))
    weighed = losses.MRR()
    fewer = losses.MRR()
    weighed.update_state(labels, scores, sample_weight=[0.0, 1.0, 1.0])
    fewer.update_state(labels[1:], scores[1:])
    np.testing.assert_allclose(weighed.result(), fewer.result())


def test_invalid_input():
    scores = tf.zeros([2, 3])
    with pytest.raises(ValueError, match=r"labels=\(2, 2\): do not fit scores of shape \(2, 3\)\. "):
        metrics.ndcg(scores, tf.zeros([2, 2]))
    with pytest.raises(ValueError, match=r"scores=int32 \(1, 3\): not floats of shape \[\.\.\., n\]"):
        metrics.mrr([[3, 1, 2]], [2])
    with pytest.raises(ValueError, match=r"labels=float32 \(1,\): class ids must be integers\. Cast"):
        metrics.mrr(tf.constant([[1.0, 2.0]]), tf.constant([1.0]))
    with pytest.raises(ValueError, match="labels=<unknown>: of no known rank"):
        tf.function(metrics.mrr, input_signature=[tf.TensorSpec([2, 3]), tf.TensorSpec(None)])(scores, scores)
    names = ("ndcg@0", "top0_error", "map@0", "precision@0")
    for bad in (
        *(lambda: losses.NDCG(k=2.5), lambda: losses.Recall()),
        *(functools.partial(losses.get_metric, name) for name in names),
        lambda: metrics.top_k_accuracy(scores, [0, 1], 1.5),
    ):
        with pytest.raises(ValueError, match="k=.*: not an integer of at least 1"):
            bad()
    for k in (3, 4):
        with pytest.raises(ValueError, match=f"k={k}: trivial for 3 classes"):
            metrics.top_k_error(scores, [0, 1], k)
    for labels in ([0], [[1.0, 0.0, 0.0]]):
        with pytest.raises(ValueError, match=r"where=\(2, 3\): cannot be broadcast to \(1, 3\)\. "):
            metrics.mrr(tf.zeros([1, 3]), labels, where=tf.ones([2, 3], tf.bool))
    for bad in (lambda: losses.get_metric("mrr", "best"), lambda: metrics.mrr(scores, [2, 0], ties="best")):
        with pytest.raises(ValueError, match="ties='best': unknown. There are: worst, average"):
            bad()


def test_gains_too_large_for_float32():
    np.testing.assert_allclose(metrics.mean_rank([[1.0, 2.0, 3.0]], [[3e38, 3e38, 0.0]]), [2.5])
    graded = tf.constant([[400.0, 0.0, 399.0]])
    expected = (1 + 0.5 / np.log2(3)) ** -1 * (0.5 + 1 / np.log2(3))
    np.testing.assert_allclose(metrics.ndcg([[1.0, 0.0, 2.0]], graded), [expected], rtol=1e-6)


def test_one_hot_labels_and_sample_weights():
    scores = tf.constant([[3.0, 1.0, 2.0], [3.0, 1.0, 2.0]])
    for labels in (tf.constant([2, 0]), tf.constant([[2], [0]]), tf.constant([[0, 0, 1.0], [1.0, 0, 0]])):
        np.testing.assert_allclose(result("mrr", labels, scores), (0.5 + 1) / 2)
        for weights in ([1.0, 3.0], [[1.0], [3.0]]):
            np.testing.assert_allclose(result("mrr", labels, scores, weights), (0.5 + 3) / 4)
    assert result("mrr", tf.constant([2, 0], tf.uint8), scores, 2.0) == 0.75


@pytest.mark.parametrize("name", NAMES)
def test_config_round_trip(name):
    metric = losses.get_metric(name)
    again = type(metric).from_config(metric.get_config())
    assert (again.name, again.get_config()) == (name, metric.get_config())
    average = losses.get_metric(name, "average", max_relevant=3)
    restored = tf.keras.metrics.deserialize(tf.keras.metrics.serialize(average))
    assert restored.get_config() == average.get_config()
    assert restored.max_relevant == 3


def few_relevant(n=23):
    """Returns scores with ties and zeros of both signs, graded labels and a mask; some lists are invalid."""
    rng = np.random.default_rng(3)
    scores = rng.integers(-3, 4, size=[20, n]) * rng.choice([-1.0, 1.0], size=[20, n])
    scores[:5] = rng.normal(size=[5, n])
    labels = rng.choice([1.0, 2.0, 3.0], size=[20, n]) * (rng.random([20, n]) < 0.2)
    labels[:, 3] = 2.0
    labels[5:8] = labels[5:8] > 0  # multi-label
    where = rng.random([20, n]) < 0.8
    where[:, 3] = True
    where[9] = False
    scores[10, 3], scores[11, 3] = np.nan, np.inf
    labels[12] = 0.0
    scores[13, 0], scores[14, 0], labels[15, 0], labels[16, 0] = np.nan, -np.inf, np.nan, -1.0
    where[13:17, 0] = [True, False, True, False]  # masked classes are ignored
    return scores.astype(np.float32), labels.astype(np.float32), where


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_max_relevant_does_not_change_values(compiled, masked):
    scores, labels, where = few_relevant()
    most = int((labels > 0.0).sum(axis=1).max())
    options = {"k": 5, "where": where if masked else None}
    expected = values_of_all(scores, labels, **options)
    for name, values in expected.items():
        assert len(np.unique(values)) > 2 or "top" in name
    for n in (most,) if compiled else (most, most + 1, scores.shape[1], 100):
        function = functools.partial(values_of_all, max_relevant=n, **options)
        function = tf.function(function, jit_compile=True) if compiled else function
        for name, values in function(tf.constant(scores), tf.constant(labels)).items():
            np.testing.assert_allclose(values, expected[name], rtol=1e-6, err_msg=name)


@pytest.mark.nightly
def test_max_relevant_of_any_type_and_shape():
    scores, labels, _ = few_relevant()
    scores = tf.cast(scores[:9], tf.bfloat16)
    labels = tf.constant(labels[:9])
    expected = values_of_all(scores, labels)
    limited = functools.partial(values_of_all, max_relevant=12)
    compiled = tf.function(limited, jit_compile=True)(scores, labels)
    signature = [tf.TensorSpec([None, None], tf.bfloat16), tf.TensorSpec([None, None])]
    unknown = tf.function(limited, input_signature=signature)(scores, labels)
    more_axes = limited(tf.reshape(scores, [3, 3, -1]), tf.reshape(labels, [3, 3, -1]))
    for name in IN_ORDER:
        for values in (compiled[name], unknown[name], tf.reshape(more_axes[name], [9])):
            np.testing.assert_allclose(values, expected[name], rtol=1e-6, err_msg=name)


def test_float64_scores_with_max_relevant_are_not_rounded():
    scores = tf.constant([[1.0, 1.0 + 1e-9, 0.0]], tf.float64)
    for labels, rank in (([[1, 0, 0]], 2.0), ([[0, 1, 0]], 1.0)):
        np.testing.assert_array_equal(metrics.mean_rank(scores, labels, max_relevant=1), [rank])


def too_many_relevant():
    scores = tf.constant(np.arange(21.0, dtype=np.float32).reshape(3, 7))
    labels = np.zeros([3, 7], np.float32)
    labels[0, 5:], labels[1, 4:], labels[2, 6] = 1.0, 1.0, 1.0
    return scores, tf.constant(labels)


@pytest.mark.nightly
@pytest.mark.parametrize(("ties", "jit_compile"), zip(metrics.TIES, (True, False), strict=True))
def test_more_than_max_relevant_classes_in_a_graph(ties, jit_compile):
    by_name = {name: losses.get_metric(name, ties, max_relevant=2) for name in NAMES}

    @tf.function(jit_compile=jit_compile)
    def values_of_all(scores, labels):
        return {name: metric.of_scores(scores, labels) for name, metric in by_name.items()}

    scores, labels = too_many_relevant()
    for name, values in values_of_all(scores, labels).items():
        assert values[1] == WORST.get(name, 0), name
        expected = by_name[name].of_scores(scores[::2], labels[::2])
        np.testing.assert_allclose(values[::2], expected, rtol=1e-6, err_msg=name)
        assert (values[::2] != WORST.get(name, 0)).numpy().all(), name


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("ties", metrics.TIES)
def test_more_than_max_relevant_classes(name, ties):
    metric = losses.get_metric(name, ties, max_relevant=2)
    scores, labels = too_many_relevant()
    message = r"max_relevant=2: labels\[1\] have 3 relevant classes\. Raise it\."
    with pytest.raises(ValueError, match=message):
        metric.update_state(labels, scores)
    where = np.arange(7) != 5  # masked classes are not relevant
    assert np.isfinite(metric.function(scores, labels, where=where, max_relevant=2, **metric.options)).all()
    assert metric.of_scores(scores, tf.constant([6, 6, 6])).shape == [3]  # class ids ignore max_relevant


def test_invalid_max_relevant():
    for most in (0, 1.0, True):
        for call in (
            lambda most: metrics.mrr([[1.0, 2.0]], [[0.0, 1.0]], max_relevant=most),
            lambda most: losses.get_metric("mrr", max_relevant=most),
        ):
            with pytest.raises(ValueError, match=f"max_relevant={most}: not an integer of at least 1"):
                call(most)


@pytest.mark.parametrize("name", ["mrr", "map", "map@5"])
def test_perfect_rankings_of_many_instances_in_a_graph(name):
    scores = np.tile([2.0, 1.0, 0.0, 0.0, 0.0, 0.0], [359, 1])
    metric = tf.function(losses.get_metric(name).of_scores)
    np.testing.assert_array_equal(metric(tf.constant(scores), tf.zeros([359], tf.int32)), np.ones(359))
