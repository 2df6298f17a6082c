import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
from scipy.sparse import csr_array

from rank4class import data
from rank4class.pipelines.evaluation import evaluator, statistics
from rank4class.pipelines.task_data.task_data import ModelOutputs

pytestmark = pytest.mark.usefixtures("all_resamples")

NAMES = ("top1_error", "top5_error", "ndcg@5", "mrr")


def evaluator_of(names, **options):
    return evaluator.Evaluator(lambda features, training: ModelOutputs(features["image"]), names, **options)


def values_of(true_ranks, names):
    """Returns the values `[N, M]` of examples with these true ranks; infinity is NaN scores."""
    true_ranks = np.asarray(true_ranks, np.float32)
    scores = np.tile(np.arange(12, 0, -1.0), [len(true_ranks), 1])
    scores[np.isinf(true_ranks)] = np.nan
    labels = np.where(np.isinf(true_ranks), 1, true_ranks).astype(np.int32) - 1
    batch = {"image": tf.constant(scores, tf.float32)}, labels, tf.range(len(labels))
    return evaluator_of(names)([batch]).values


def summary(true_ranks, names):
    return evaluator.summarize(values_of(true_ranks, names), names)


def test_metrics_by_hand():
    result = summary([1.0, 2.0, 6.0, np.inf], [*NAMES, "mean_rank"])
    expected = {"top1_error": 75.0, "top5_error": 50.0, "ndcg@5": 100 * (1 + 1 / np.log2(3)) / 4}
    expected |= {"mrr": 100 * (1 + 1 / 2 + 1 / 6) / 4, "mean_rank": np.inf, "examples": 4}
    assert {name: result[name] for name in expected} == pytest.approx(expected)
    assert result["intervals"]["mean_rank"] is None
    result = summary([1.0, 2.0, 6.0], ["mean_rank"])
    assert result["mean_rank"] == 3.0  # not in percent
    low, high = result["intervals"]["mean_rank"]
    assert 1.0 <= low < 3.0 < high <= 6.0


@pytest.mark.nightly
def test_intervals_equal_the_bootstrap_over_examples(rng):
    ranks = rng.integers(1, 12, size=400).astype(np.float32)
    low, high = summary(ranks, NAMES)["intervals"]["ndcg@5"]
    values = 100 * values_of(ranks, ["ndcg@5"])[:, 0]
    plain = [rng.choice(values, size=400).mean() for _ in range(2000)]
    np.testing.assert_allclose([low, high], np.percentile(plain, [2.5, 97.5]), atol=0.35)
    # For an error the interval is close to the normal approximation of the binomial.
    low, high = summary(ranks, NAMES)["intervals"]["top5_error"]
    fraction = np.mean(ranks > 5)
    np.testing.assert_allclose(high - low, 2 * 196 * np.sqrt(fraction * (1 - fraction) / 400), rtol=0.08)


@pytest.mark.parametrize("batch_size", [1, 4, 64])
def test_every_batch_size_evaluates_each_example_once(batch_size, rng):
    scores = rng.normal(size=[10, 6]).astype(np.float32)
    split = data.Split({"image": scores}, rng.integers(6, size=10).astype(np.int32))
    evaluate = evaluator_of(["mean_rank", "mrr"])

    def evaluated(**options):
        return evaluate(data.evaluation_batches(split, batch_size=batch_size), **options)

    result = evaluated(keep_scores=True)
    ranks = 1 + np.sum(scores > scores[np.arange(10), split.labels][:, None], axis=1)
    np.testing.assert_allclose(result.values, np.stack([ranks, 1 / ranks], axis=1), rtol=1e-6)
    np.testing.assert_array_equal(result.ranks, ranks)
    np.testing.assert_array_equal(result.top_classes, scores.argmax(axis=1))
    np.testing.assert_array_equal(result.scores, scores)
    part = evaluated(keep_scores=np.array([0, 3, 9]), best=2)
    np.testing.assert_array_equal(part.scores, scores[[0, 3, 9]])
    np.testing.assert_array_equal(part.values, result.values)
    np.testing.assert_array_equal(part.best_classes, np.argsort(-scores, axis=1)[:, :2])
    np.testing.assert_array_equal(part.best_scores, -np.sort(-scores, axis=1)[:, :2])
    assert evaluated(best=2).scores is None


def test_classes_are_encoded_once_per_evaluation(rng, caplog):
    h = rng.normal(size=[10, 3]).astype(np.float32)
    c = rng.normal(size=[6, 3]).astype(np.float32)
    split = data.Split({"embedding": h}, rng.integers(6, size=10).astype(np.int32))
    count = tf.Variable(0)

    def encode_classes(training):
        with tf.control_dependencies([count.assign_add(1)]):
            return tf.constant(c) + float(training)

    def scorer(features, training, class_vectors):
        return ModelOutputs(tf.matmul(features["embedding"], class_vectors, transpose_b=True))

    for i in range(6):  # the runs of a sweep, in one process
        evaluate = evaluator.Evaluator(scorer, ["mrr"], encode_classes=encode_classes)
        for evaluation in (1, 2):
            result = evaluate(data.evaluation_batches(split, batch_size=2), keep_scores=True)
            np.testing.assert_allclose(result.scores, h @ c.T, rtol=1e-5, atol=1e-6)
            assert int(count) == 2 * i + evaluation
    assert "retracing" not in caplog.text


def test_batches_are_limited_by_their_scores(monkeypatch):
    monkeypatch.setattr(evaluator, "LARGEST_BATCH", 100)
    sizes = [evaluator.batch_size(8, classes) for classes in (1, 12, 13, 50, 1000)]
    assert sizes == [8, 8, 7, 2, 1]
    assert [evaluator.batch_size(8, classes, replicas=4) for classes in (50, 1000)] == [8, 4]


def test_texts_of_several_lengths_are_evaluated_in_the_order_of_the_split(rng):
    scores = rng.normal(size=[12, 6]).astype(np.float32)
    lengths = rng.permutation(np.repeat([4, 8, 12, 16], 3))
    features = {"scores": scores, "length": lengths}
    split = data.Split(features, rng.integers(6, size=12).astype(np.int32), lengths=lengths)

    def pad(features):
        return {**features, "tokens": tf.zeros([3, tf.reduce_max(features["length"])])}

    def scorer(features, training):
        return ModelOutputs(features["scores"] + tf.reduce_sum(features["tokens"], axis=1, keepdims=True))

    evaluate = evaluator.Evaluator(scorer, ["mrr"])
    batches = data.evaluation_batches(split, batch_size=3, preprocess=pad)
    assert [int(features["tokens"].shape[1]) for features, _, _ in batches] == [16, 12, 8, 4]
    result = evaluate(batches, keep_scores=True)
    np.testing.assert_array_equal(result.scores, scores)
    assert evaluate.evaluate_batch.experimental_get_tracing_count() == 2  # one length, then any


def test_examples_of_several_classes():
    scores = np.array([[4.0, 3.0, 2.0, 1.0], [1.0, 2.0, 3.0, 4.0]], np.float32)
    split = data.Split({"image": scores}, csr_array(np.array([[1, 0, 1, 0], [1, 0, 0, 0]], np.float32)))
    names = ["ndcg@5", "recall@2", "precision@2"]
    result = evaluator_of(names)(data.evaluation_batches(split, batch_size=3))
    assert result.ranks.tolist() == [1.0, 4.0]
    assert result.right.tolist() == [1, 0]
    values = result.values
    ndcg = [1.5 / (1 + 1 / np.log2(3)), 1 / np.log2(5)]
    np.testing.assert_allclose(values, [[ndcg[0], 0.5, 0.5], [ndcg[1], 0.0, 0.0]], rtol=1e-6)
    assert evaluator.summarize(values, names)["recall@2"] == 25.0


def test_nan_scores_with_excluded_classes():
    nan = np.nan
    inf = np.inf
    scores = tf.constant([[nan, 1.0, 2.0], [1.0, nan, 2.0], [-inf, 5.0, inf], [nan, nan, nan]])
    where = tf.constant([[False, True, True], [False, True, True], [True, False, True], [False, False, True]])
    masked = evaluator.mask_scores(scores, where).numpy()
    np.testing.assert_array_equal(masked[0], [0.0, 1.0, 2.0])
    np.testing.assert_array_equal(masked[1], [0.0, nan, 2.0])
    np.testing.assert_array_equal(masked[2], [-inf, 4.0, inf])
    assert np.isnan(masked[3, 2])


def test_applicable_metrics_and_directions():
    assert evaluator.applicable_metrics(("top1_error", "top5_error", "ndcg@5"), 5) == ("top1_error", "ndcg@5")
    assert evaluator.applicable_metrics(("top5_error",), 6) == ("top5_error",)
    nan = float("nan")
    assert evaluator.better("top1_error", 3.0, 4.0)
    assert evaluator.better("ndcg@5", 4.0, 3.0)
    assert evaluator.better("mrr", 4.0, nan)
    assert evaluator.better("mean_rank", 3.0, 4.0)
    for value, best in ((4.0, 4.0), (nan, 4.0), (nan, nan)):
        assert not evaluator.better("ndcg@5", value, best)
        assert not evaluator.better("top1_error", value, best)


@pytest.mark.parametrize("errors", [0, 1, 40, 359, 360])
def test_fractions_have_wilsons_interval(errors):
    ranks = np.repeat([2.0, 1.0], [errors, 360 - errors])
    interval = scipy.stats.binomtest(errors, 360).proportion_ci(method="wilson")
    expected = 100 * np.array([interval.low, interval.high])
    values = np.stack([ranks > 1, ranks == 1], axis=1).astype(np.float32)
    intervals = evaluator.summarize(values, ["top1_error", "top1_accuracy"])["intervals"]
    np.testing.assert_allclose(intervals["top1_error"], expected, atol=1e-9)
    np.testing.assert_allclose(intervals["top1_accuracy"], 100 - expected[::-1], atol=1e-9)


def test_metrics_of_equal_values_have_an_interval():
    result = summary([1.0] * 359, ["top1_error", "ndcg@5", "mrr", "mean_rank"])
    for name, expected in (("top1_error", [0.0, 1.06]), ("ndcg@5", [98.94, 100.0]), ("mrr", [98.94, 100.0])):
        np.testing.assert_allclose(result["intervals"][name], expected, atol=0.01)
    assert result["intervals"]["mean_rank"] is None  # it has no bound
    result = summary([2.0], ["top1_error", "mean_rank"])
    np.testing.assert_allclose(result["intervals"]["top1_error"], [20.65, 100.0], atol=0.01)
    assert result["intervals"]["mean_rank"] is None


def test_resamples_in_blocks_have_the_same_summary(monkeypatch, rng):
    values = rng.random([50, 2])
    names = ("ndcg@5", "mean_rank")
    at_once = evaluator.summarize(values, names)
    monkeypatch.setattr(statistics, "_BLOCK", 350)  # seven resamples at a time
    in_blocks = evaluator.summarize(values, names)
    for name in names:
        np.testing.assert_allclose(in_blocks["intervals"][name], at_once["intervals"][name], rtol=1e-12)
    assert evaluator.means(values, names) == {name: at_once[name] for name in names}


def test_perfect_lists_of_grades_have_one_value(rng):
    """float32 has 0.9999999 or 1.0000001 for some of them, which would seem to be different examples."""
    grades = csr_array(rng.integers(1, 4, [200, 12]).astype(np.float32))
    split = data.Split({"image": grades.toarray()}, grades)
    result = evaluator_of(["ndcg@5"], max_relevant=12)(data.evaluation_batches(split, batch_size=50))
    assert (result.values == 1.0).all()
