"""The metrics of a whole split against dense arithmetic and napkinXC, and in runs."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from scipy.sparse import csr_array

import rank4class
from rank4class import data
from rank4class.losses import metrics
from rank4class.pipelines import config
from rank4class.pipelines.evaluation import per_class
from rank4class.pipelines.evaluation.evaluator import Evaluator
from rank4class.pipelines.evaluation.stages.split_metrics import SplitMetricStage
from rank4class.pipelines.evaluation.stages.stage import Context
from rank4class.pipelines.task_data.task_data import ModelOutputs, TaskData

NAMES = ("psp@1", "psp@3", "psndcg@3", "psr@3", "coverage@1", "coverage@3", "median_rank")


def experiment(*names, **changes):
    return config.Experiment(metrics=names or NAMES, **changes)


def evaluate(scores, labels, train, part=None):
    """Returns the evaluation of scores `[N, n]`, for the labels of a test and of a training split."""
    part = part or experiment()
    n = scores.shape[1]
    splits = {
        name: data.Split({"x": np.zeros(s.shape[0])}, s) for name, s in (("test", labels), ("train", train))
    }
    loaded = TaskData(tuple(map(str, range(n))), splits, None, None, None)
    dense = labels if isinstance(labels, np.ndarray) else labels.toarray()
    evaluator = Evaluator(lambda features, training: ModelOutputs(features), ())
    batches = [(tf.constant(scores, tf.float32), dense, tf.range(len(scores)))]
    sizes = loaded.training_counts("test"), len(splits["train"])
    stage = SplitMetricStage(part, sizes)
    context = Context(loaded, "test")
    return stage.measure(context, evaluator(batches, best=stage.needs(context).best))


def draw(rng, several, examples=200, n=40):
    """Returns scores, and labels of a test and a training split of which the first classes are frequent."""
    frequencies = 1.0 / (1.0 + np.arange(n))
    scores = 10.0 * frequencies + 3.0 * rng.normal(size=[examples, n])
    if several:
        drawn = (rng.random([examples, n]) < frequencies for _ in range(2))
        return scores, *(csr_array(labels.astype(np.float32)) for labels in drawn)
    return scores, *rng.choice(n, p=frequencies / frequencies.sum(), size=[2, examples]).astype(np.int32)


def relevant(labels, n):
    return np.eye(n)[labels] if isinstance(labels, np.ndarray) else (labels.toarray() > 0).astype(float)


def expected_metrics(scores, labels, train, a=0.55, b=1.5):
    """Returns `NAMES` -> their values, in dense arithmetic."""
    n = scores.shape[1]
    size = train.shape[0]
    true = relevant(labels, n)
    discounts = 1.0 / np.log2([2.0, 3.0, 4.0])
    c = (np.log(size) - 1.0) * (b + 1.0) ** a
    weights = true * (1.0 + c * (relevant(train, n).sum(axis=0) + b) ** -a)
    order = np.argsort(-scores, axis=1)
    gains = np.take_along_axis(weights, order, axis=1)[:, :3]
    ideal = -np.sort(-weights, axis=1)[:, :3]
    sizes = np.maximum(true.sum(axis=1), 1)
    norms = np.array([discounts[: int(min(r, 3))].sum() for r in sizes])
    hits = np.take_along_axis(true, order, axis=1)
    first = np.where(hits.any(axis=1), 1.0 + hits.argmax(axis=1), np.inf)

    def ratio(of):
        return 100.0 * of(gains).sum() / of(ideal).sum()

    def coverage(k):
        covered = {i for row, classes in zip(true, order, strict=True) for i in classes[:k] if row[i]}
        return 100.0 * len(covered) / np.sum(true.any(axis=0))

    return {
        "psp@1": ratio(lambda x: x[:, :1]),
        "psp@3": ratio(lambda x: x),
        "psndcg@3": ratio(lambda x: x @ discounts / norms),
        "psr@3": ratio(lambda x: x / sizes[:, None]),
        "coverage@1": coverage(1),
        "coverage@3": coverage(3),
        "median_rank": np.median(first),
    }


@pytest.mark.parametrize("several", [False, True])
def test_equal_dense_arithmetic(rng, several):
    scores, labels, train = draw(rng, several)
    result = evaluate(scores, labels, train)
    expected = expected_metrics(scores, labels, train)
    assert result.means() == pytest.approx(expected, rel=1e-6)
    changed = evaluate(scores, labels, train, experiment(propensity=(0.6, 2.6)))
    assert changed.means() == pytest.approx(expected_metrics(scores, labels, train, 0.6, 2.6), rel=1e-6)
    summary = result.summarize()
    assert summary["psp@3"] == pytest.approx(expected["psp@3"], rel=1e-6)
    for name in ("psp@1", "psndcg@3", "median_rank"):
        low, high = summary["intervals"][name]
        assert low <= expected[name] <= high
        assert low < high or name == "median_rank"
    assert summary["intervals"]["coverage@3"] is None


@pytest.mark.usefixtures("all_resamples")
def test_interval_is_that_of_a_ratio(rng):
    scores, labels, train = draw(rng, several=True)
    result = evaluate(scores, labels, train)
    values = result.values[:, 1]
    best = result.whole.best["psp@3"]
    draws = rng.multinomial(200, np.full(200, 1 / 200), size=2000)
    expected = np.percentile(100.0 * (draws @ values) / (draws @ best), [2.5, 97.5])
    np.testing.assert_allclose(result.summarize()["intervals"]["psp@3"], expected, atol=0.6)
    perfect = evaluate(labels.toarray() * rng.uniform(1, 2, [200, 40]), labels, labels, experiment("psr@39"))
    assert perfect.summarize()["psr@39"] == pytest.approx(100.0)
    assert perfect.summarize()["intervals"]["psr@39"][1] == pytest.approx(100.0)


def test_ties_and_scores_that_are_not_finite_are_the_worst():
    scores = np.array(
        [[1.0, 1.0, 0.0, 0.0], [2.0, 1.0, 1.0, 1.0], [np.nan, 3.0, 2.0, 1.0], [0.0, 3.0, 2.0, 1.0]]
    )
    labels = np.array([0, 1, 1, 1], np.int32)
    result = evaluate(
        scores, labels, labels, experiment("psp@1", "psp@2", "psp@3", "coverage@2", "median_rank")
    )
    hits = result.values / result.values.max()
    np.testing.assert_allclose(hits[:, :2] > 0, [[False, True], [False, False], [False, False], [True, True]])
    assert (result.values[:, 2] > 0).tolist() == [True, False, False, True]
    assert result.means()["coverage@2"] == 100.0
    assert result.means()["median_rank"] == 3.0  # of 2, 4, infinity and 1
    several = csr_array(np.float32([[1, 1, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0]]))
    constant = evaluate(np.zeros([2, 6]), several, labels, experiment("psp@2", "coverage@3"))
    assert constant.means() == {"psp@2": 0.0, "coverage@3": 0.0}


def test_thirds_and_classes_are_relative_to_the_best_possible_value():
    """Class 0 has 8 training examples, class 1 has 2, and class 2 has 1."""
    train = np.repeat([0, 1, 2], [8, 2, 1])
    labels = np.array([0, 0, 1, 2, 2], np.int32)
    scores = np.eye(3)[[0, 1, 1, 1, 2]]
    part = experiment("psp@1", "coverage@1", "median_rank", "top1_error")
    result = evaluate(scores, labels, train, part)
    q = 1.0 / metrics.propensities([8, 2, 1], 11).numpy()
    total = q @ [2, 1, 2]
    assert result.means()["psp@1"] == pytest.approx(100.0 * (q @ [1, 1, 1]) / total, rel=1e-6)
    for table in (
        per_class.by_frequency(result, labels, np.array([8, 2, 1])),
        per_class.per_class(result, labels, ("a", "b", "c")),
    ):
        np.testing.assert_allclose(table["psp@1 (%)"], [50.0, 100.0, 50.0], rtol=1e-6)
        assert table["coverage@1 (%)"].tolist() == [100.0, 100.0, 100.0]
        assert table["median_rank"].tolist() == [2.0, 1.0, 2.0]
    grouped = result.whole.grouped(np.array([0, 0, 1]))
    assert grouped.covered["coverage@1"].tolist() == [[2, 1], [2, 1]]
    unseen = dataclasses.replace(result, unseen=(labels == 2, np.arange(3) == 2)).summarize()
    assert unseen["unseen"]["psp@1"] == pytest.approx(50.0)
    assert unseen["seen"]["psp@1"] == pytest.approx(100.0 * (q @ [1, 1, 0]) / (q @ [2, 1, 0]), rel=1e-6)


@pytest.mark.usefixtures("generated_data")
@pytest.mark.nightly
def test_a_run_is_trained_evaluated_and_compared(tmp_path, caplog):
    part = experiment(
        *("top1_error", "psp@1", "psndcg@3", "coverage@1", "median_rank"),
        data=config.Data("embedded_digits", num_examples=60, features="pixels"),
        encoder=config.Encoder("identity"),
        epochs=0.0,
        monitor="psp@1",
    )
    run = rank4class.train(part, tmp_path / "run", progress=False)
    again = rank4class.load(tmp_path / "run").evaluate()
    for name in part.metrics:
        assert again[name] == run.results["test"][name]
    assert set(run.evaluate_examples()) == {"top1_error", "psp@1", "psndcg@3"}
    assert rank4class.compare([run, run])["metric"].tolist() == ["top1_error", "psp@1", "psndcg@3"]
    part = config.override(part, {"data.max_train_examples": 40})
    fewer = rank4class.train(part, tmp_path / "fewer", progress=False)
    with caplog.at_level("WARNING"):
        assert rank4class.compare([run, fewer])["metric"].tolist() == ["top1_error"]
    assert "Not compared: psp@1, psndcg@3. Other training examples" in caplog.text


def test_refused_combinations():
    items = data.Split({"items": np.zeros([4, 3, 2])}, csr_array(np.eye(4, 3)))
    loaded = TaskData(("1", "2", "3"), {"validation": items}, None, None, None)
    SplitMetricStage(experiment("median_rank"), ()).check(loaded)
    with pytest.raises(ValueError, match=r"metrics='psp@1': the items of a list are not classes\. Leave"):
        SplitMetricStage(experiment("psp@1"), ()).check(loaded)
