"""The rules that decide for classes, and the metrics of the decided classes of a run."""

import dataclasses
import functools

import numpy as np
import pandas as pd
import pytest
import sklearn.metrics
import tensorflow as tf
from scipy.sparse import csr_array

import rank4class
from rank4class import data
from rank4class.pipelines import config
from rank4class.pipelines.evaluation import (
    calibration,
    per_class,
    predictions,
    statistics,
    thresholds,
    trained_model,
)
from rank4class.pipelines.evaluation.evaluator import EvaluationResult
from rank4class.pipelines.evaluation.split_metrics import Decisions
from rank4class.pipelines.evaluation.stages.decisions import DecisionStage
from rank4class.pipelines.evaluation.stages.sets_test import ITEMS, SEVERAL, task_of
from rank4class.pipelines.evaluation.stages.stage import Context
from rank4class.pipelines.task_data.count_priors_test import digits
from rank4class.pipelines.training import rank_training

pytestmark = pytest.mark.usefixtures("generated_data")

ONE = data.Split({}, np.array([0, 1, 2]))
NAMES = ("f1_micro", "f1_macro", "subset_accuracy")
RECALL = config.Thresholds("recall", at_least=0.9)


def experiment(loss="sigmoid_cross_entropy", count_prior="none", **changes):
    parts = {"loss": config.Loss(loss), "count_prior": config.CountPrior(count_prior)}
    parts["optimizer"] = config.Optimizer("adam", learning_rate=0.03)
    return digits(**parts, **{"metrics": (*NAMES, "map"), "monitor": "f1_micro", **changes})


def check(experiment, split):
    DecisionStage(experiment).check(task_of("validation", split, "abc"))


def need_scores(experiment, split):
    return DecisionStage(experiment).needs(Context(task_of("test", split, "abc"), "test")).scores


def measure(result, experiment, loaded):
    return DecisionStage(experiment).measure(Context(loaded, "test"), result)


def measure_top(top, labels, experiment, classes):
    """Measures top classes of examples of one class."""
    result = EvaluationResult((), np.zeros([len(top), 0]), top, top == labels, top)
    return measure(result, experiment, task_of("test", data.Split({}, labels), classes))


def test_rules_that_fit_the_data_and_the_model():
    for loss in ("sigmoid_cross_entropy", "asl", "zlpr"):
        check(experiment(loss), SEVERAL)
    check(experiment("softmax", "empirical"), SEVERAL)
    check(experiment("softmax", thresholds=RECALL), SEVERAL)
    check(experiment("softmax"), ONE)
    check(experiment("softmax", metrics=("map",)), SEVERAL)


@pytest.mark.parametrize(
    ("loss", "count_prior", "rule", "split", "message"),
    [
        ("softmax", "none", None, SEVERAL, r"metrics='f1_micro': loss 'softmax' has no threshold\. Set"),
        ("gumbel_softmax", "none", None, SEVERAL, r"metrics='f1_micro': loss 'gumbel_softmax' has no"),
        ("asl", "none", None, ITEMS, r"metrics='f1_micro': the items of a list are not classes\. Leave it"),
        ("asl", "none", RECALL, ITEMS, r"thresholds='recall': the items of a list are not classes\. Leave"),
        ("asl", "none", RECALL, ONE, r"thresholds='recall': each example has one class\. Set it to"),
        ("softmax", "empirical", RECALL, SEVERAL, r"thresholds='recall': count prior 'empirical' decides\."),
    ],
)
def test_rules_that_do_not_fit(loss, count_prior, rule, split, message):
    changes = {} if rule is None else {"thresholds": rule}
    with pytest.raises(ValueError, match=f"^{message}"):
        check(experiment(loss, count_prior, **changes), split)


def test_scores_that_do_not_fit(monkeypatch):
    assert need_scores(experiment("asl"), SEVERAL)
    assert not need_scores(experiment("softmax", metrics=("map",)), SEVERAL)
    monkeypatch.setattr(predictions, "LARGEST_SCORES", 47)
    message = (
        r"^metrics='f1_micro': needs the scores of 4 examples and 3 classes, 0\.0 GB, .* GB\. Leave it out"
    )
    with pytest.raises(ValueError, match=message):
        need_scores(experiment("asl"), SEVERAL)


def assert_equal_scikit_learns(results, labels, decided):
    for average in ("micro", "macro"):
        expected = sklearn.metrics.f1_score(labels, decided, average=average, zero_division=0)
        assert results[f"f1_{average}"] == pytest.approx(100.0 * expected)
    expected = sklearn.metrics.accuracy_score(labels, decided)
    assert results["subset_accuracy"] == pytest.approx(100.0 * expected)


def trained(experiment, path):
    """Returns the restored run, its data, its test evaluation, and the true and decided classes."""
    rank_training.train(experiment, path, progress=False)
    restored = trained_model.restore(path)
    loaded = restored.load_task()
    result = restored.evaluate(loaded, "test", keep_scores=True)
    assert result.summarize() == restored.run_dir.results()["test"]
    labels = loaded.splits["test"].labels.toarray() > 0
    decided = result.decisions.decided.toarray()
    assert 0 < decided.sum() < decided.size
    assert_equal_scikit_learns(restored.run_dir.results()["test"], labels, decided)
    return restored, loaded, result, labels, decided


@pytest.mark.nightly
@pytest.mark.parametrize("rule", ["prior", "thresholds", "loss", "probability"])
def test_all_callers_decide_by_one_rule(tmp_path, rule):
    changes = {
        "prior": {"loss": "softmax", "count_prior": "empirical"},
        "thresholds": {"thresholds": config.Thresholds("f1")},
        "loss": {"loss": "zlpr"},
        "probability": {"loss": "softmax", "metrics": ("map",), "monitor": "map"},
    }[rule]
    rank_training.train(experiment(**changes), tmp_path / "run", progress=False)
    run = rank4class.load(tmp_path / "run")
    restored = run._trained
    loaded = restored.load_task()
    result = restored.evaluate(loaded, "test", keep_scores=True)
    expected = {
        "prior": lambda: result.decisions.decided.toarray(),
        "thresholds": lambda: result.scores > np.array(restored.thresholds.values),
        "loss": lambda: result.scores > 0.0,
        "probability": lambda: restored.calibration.probabilities(result.scores) >= 0.5,
    }[rule]()
    assert 0 < expected.sum() < expected.size
    if rule != "probability":  # whose calibration is fitted after the training's evaluations
        np.testing.assert_array_equal(result.decisions.decided.toarray(), expected)
        assert result.summarize() == run.results["test"]
    vectors = loaded.splits["test"].features["embedding"]
    names = list(loaded.class_names)
    np.testing.assert_array_equal(run.outputs(vectors)["in_set"], expected)
    frame = run.predict(vectors, k=10).pivot(index="input", columns="class", values="in_set")
    np.testing.assert_array_equal(frame[names], expected)
    np.save(tmp_path / "vectors.npy", vectors)
    run.predict_file(tmp_path / "vectors.npy", tmp_path / "best.tsv")
    assert pd.read_csv(tmp_path / "best.tsv", sep="\t")["set_size"].tolist() == expected.sum(axis=1).tolist()
    run.export(tmp_path / "model" / "1", k=10)
    score = tf.saved_model.load(tmp_path / "model" / "1").signatures["score"]
    np.testing.assert_array_equal(score(embedding=vectors)["in_set"], expected)
    served_models = pytest.importorskip("rank4class.pipelines.export.serving_test")
    with served_models.served(served_models.serving.app(tmp_path / "model")) as address:
        body = {"signature_name": "score", "inputs": {"embedding": vectors.tolist()}}
        status, answer = served_models.request(address, "model:predict", body)
    assert status == 200
    np.testing.assert_array_equal(answer["outputs"]["in_set"], expected)


def test_certain_thresholds_need_calibration_examples():
    part = config.Thresholds("precision", at_least=0.9, confidence=0.95)
    with pytest.raises(ValueError, match=r"thresholds\.confidence=0\.95: needs calibration examples\. Set"):
        check(experiment("softmax", thresholds=part), SEVERAL)
    check(experiment("softmax", thresholds=part, sets=config.Sets("threshold")), SEVERAL)


@pytest.mark.nightly
def test_certain_thresholds_are_those_of_the_calibration_examples(tmp_path):
    part = config.Thresholds("precision", at_least=0.3, confidence=0.5)
    certain = experiment("softmax", thresholds=part, sets=config.Sets("threshold"))
    certain = dataclasses.replace(certain, epochs=20.0)
    restored, loaded, result, _, decided = trained(certain, tmp_path / "run")
    scores = restored.evaluate(loaded, "calibration", keep_scores=True).scores
    rate = functools.partial(thresholds.precision, at_least=0.3, confidence=0.5)
    labels = loaded.splits["calibration"].label_matrix
    assert restored.thresholds == thresholds.fit(rate, scores, labels, least=0)
    np.testing.assert_array_equal(decided, result.scores > np.array(restored.thresholds.values))


@pytest.mark.nightly
def test_decisions_by_thresholds(tmp_path, monkeypatch):
    """Each class has a calibration and a threshold: predictions are by probability, not by score."""
    monkeypatch.setattr(calibration, "LEAST_PER_CLASS", 1)
    by_f1 = experiment(
        "softmax", thresholds=config.Thresholds("f1"), metrics=(*NAMES, "top1_error", "mean_rank")
    )
    _, loaded, result, labels, decided = trained(by_f1, tmp_path / "run")
    test = loaded.splits["test"]
    names = list(loaded.class_names)
    run = rank4class.load(tmp_path / "run")
    best = run.predict(test.features["embedding"], k=10)
    np.testing.assert_array_equal(best.pivot(index="input", columns="class", values="in_set")[names], decided)
    assert (np.diff(best["probability"].to_numpy().reshape(-1, 10)) <= 0.0).all()
    assert (np.diff(best["score"].to_numpy().reshape(-1, 10)) > 0.0).any()
    ids = best["class"].map(names.index).to_numpy().reshape(-1, 10)
    right = np.take_along_axis(labels, ids, axis=1)
    results = run.results["test"]
    assert results["top1_error"] == pytest.approx(100 * np.mean(~right[:, 0]))
    ranks = (right * np.arange(1, 11)).sum(axis=1) / right.sum(axis=1)
    assert results["mean_rank"] == pytest.approx(ranks.mean())
    table = per_class.per_class(result, test.labels, names)
    report = sklearn.metrics.precision_recall_fscore_support(labels, decided, zero_division=np.nan)
    for column, values in zip(
        ("decided precision (%)", "decided recall (%)", "f1 (%)"), report, strict=False
    ):
        np.testing.assert_allclose(table[column], 100.0 * values)
    assert per_class.worst_first(table, "f1_macro")["f1 (%)"].tolist() == sorted(table["f1 (%)"])


def test_one_class_per_example_decides_for_the_top_class(rng):
    top, labels = rng.integers(4, size=[2, 50])
    measured = measure_top(top, labels, experiment(), "abcd")
    assert_equal_scikit_learns(measured.means(), np.eye(4)[labels], np.eye(4)[top])
    assert measured.means()["f1_micro"] == pytest.approx(measured.means()["subset_accuracy"])


def test_mean_recall_of_examples_of_one_class(rng):
    top, labels = rng.integers([[5], [4]], size=[2, 50])  # the last class has no example
    names = ("balanced_accuracy", "macro_top1_error")
    measured = measure_top(top, labels, experiment("softmax", metrics=names), "abcde")
    recalls = 100.0 * sklearn.metrics.recall_score(labels, top, average=None, labels=range(4))
    summary = measured.summarize()
    assert [summary[name] for name in names] == pytest.approx([recalls.mean(), 100.0 - recalls.mean()])
    low, high = summary["intervals"]["macro_top1_error"]
    assert low < summary["macro_top1_error"] < high
    table = per_class.per_class(measured, labels, tuple("abcde"))
    for name in names:
        ordered = per_class.worst_first(table, name)["decided recall (%)"]
        np.testing.assert_allclose(ordered, [*sorted(recalls), np.nan])
    with pytest.raises(ValueError, match=r"^metrics='balanced_accuracy': an example may have several clas"):
        check(experiment(metrics=("map", *names)), SEVERAL)


def test_scores_that_are_not_finite_decide_for_no_class():
    top = np.array([0, -1], np.int32)
    scores = np.float32([[1.0, -1.0], [np.inf, np.nan]])
    result = EvaluationResult((), np.zeros([2, 0]), top, top, top, scores)
    split = data.Split({}, csr_array(np.float32([[1, 0], [0, 0]])))
    names = ("subset_accuracy", "f1_micro")
    measured = measure(result, experiment(metrics=names), task_of("test", split, "ab"))
    assert measured.means() == {"subset_accuracy": 50.0, "f1_micro": 100.0}


@pytest.mark.usefixtures("all_resamples")
def test_intervals_are_those_of_a_bootstrap(rng):
    labels, decided = rng.random([2, 150, 4]) < 0.4
    decisions = Decisions(("f1_micro", "f1_macro"), csr_array(decided), csr_array(labels))
    draws = rng.multinomial(150, np.full(150, 1 / 150), size=2000)
    hits = draws @ (labels & decided)
    either = draws @ labels + draws @ decided
    plain = {
        "f1_micro": 2 * hits.sum(axis=1) / either.sum(axis=1),
        "f1_macro": np.mean(2 * hits / either, axis=1),
    }
    for name, values in plain.items():
        expected = np.percentile(100.0 * values, [2.5, 97.5])
        np.testing.assert_allclose(decisions.intervals()[name], expected, atol=0.6)
    perfect = Decisions(("f1_micro",), csr_array(labels), csr_array(labels))
    assert perfect.means() == {"f1_micro": pytest.approx(100.0)}
    assert perfect.intervals() == {"f1_micro": None}


def test_resamples_of_groups_of_examples(monkeypatch):
    monkeypatch.setattr(statistics, "MAX_UNITS", 30)
    values = np.random.default_rng(1).integers(2, size=[100, 3])
    groups = np.stack([values[i::30].sum(axis=0) for i in range(30)])
    expected = groups[np.random.default_rng(0).integers(30, size=30)].sum(axis=0)
    for each in (values, csr_array(values)):
        np.testing.assert_array_equal(next(statistics.resampled_sums(each))[0], expected)
