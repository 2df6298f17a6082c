"""The rules that decide for classes, and the metrics of the decided classes of a run."""

import dataclasses

import numpy as np
import pytest
import sklearn.metrics
from scipy.sparse import csr_array

from rank4class import data
from rank4class.pipelines import config
from rank4class.pipelines.configs import digits_mlp
from rank4class.pipelines.evaluation import per_class, statistics
from rank4class.pipelines.evaluation.decisions import Decisions
from rank4class.pipelines.evaluation.evaluator import EvaluationResult
from rank4class.pipelines.training import rank_training, run_decisions

SEVERAL = data.Split({}, csr_array(np.eye(4, 3, dtype=np.float32)))
ONE = data.Split({}, np.array([0, 1, 2]))
NAMES = ("f1_micro", "f1_macro", "subset_accuracy")


def experiment(loss="sigmoid_cross_entropy", count_prior="none", **changes):
    changes = {"metrics": (*NAMES, "map"), "monitor": "f1_micro", **changes}
    return config.Experiment(
        data=config.Data("embedded_digits", num_examples=60, features="pixels"),
        encoder=config.Encoder("identity"),
        loss=config.Loss(loss),
        count_prior=config.CountPrior(count_prior),
        optimizer=config.Optimizer("adam", learning_rate=0.03),
        batch_size=20,
        epochs=2.0,
        **changes,
    )


def test_metrics_without_a_rule_are_refused():
    for loss in ("sigmoid_cross_entropy", "asl", "zlpr"):
        run_decisions.check(experiment(loss), SEVERAL)
    run_decisions.check(experiment("softmax", "empirical"), SEVERAL)
    run_decisions.check(experiment("softmax"), ONE)
    run_decisions.check(experiment("softmax", metrics=("map",)), SEVERAL)
    for loss in ("softmax", "gumbel_softmax"):
        with pytest.raises(
            ValueError, match=rf"^metrics='f1_micro': no score of loss '{loss}' decides for a"
        ):
            run_decisions.check(experiment(loss), SEVERAL)
    items = dataclasses.replace(SEVERAL, features={"items": np.zeros([4, 3, 2])})
    with pytest.raises(
        ValueError, match=r"^metrics='f1_micro': the items of a list are not classes\. Leave it"
    ):
        run_decisions.check(experiment(), items)


def assert_equal_scikit_learns(results, labels, decided):
    for average in ("micro", "macro"):
        expected = sklearn.metrics.f1_score(labels, decided, average=average, zero_division=0)
        assert results[f"f1_{average}"] == pytest.approx(100.0 * expected)
    expected = sklearn.metrics.accuracy_score(labels, decided)
    assert results["subset_accuracy"] == pytest.approx(100.0 * expected)


@pytest.mark.parametrize(
    ("loss", "count_prior"),
    [
        ("sigmoid_cross_entropy", "none"),
        pytest.param("n_choose_k", "learned", marks=pytest.mark.nightly),
    ],
)
def test_metrics_of_a_run_equal_scikit_learns(loss, count_prior, tmp_path):
    names = ("exact_match",) if count_prior != "none" else ()
    trained = experiment(loss, count_prior, metrics=(*NAMES, *names))
    results = rank_training.train(trained, tmp_path / "run", progress=False)
    restored = rank_training.restore(tmp_path / "run")
    loaded = restored.load_task()
    result = restored.evaluate(loaded, "test", keep_scores=True)
    labels, decided = loaded.splits["test"].labels.toarray() > 0, result.decisions.decided.toarray()
    if count_prior == "none":
        np.testing.assert_array_equal(decided, result.scores > 0.0)
    else:
        assert results["test"]["subset_accuracy"] == results["test"]["exact_match"]
    assert 0 < decided.sum() < decided.size
    assert_equal_scikit_learns(results["test"], labels, decided)
    assert result.summarize() == results["test"]
    low, high = results["test"]["intervals"]["f1_micro"]
    assert low < results["test"]["f1_micro"] < high
    assert restored.run_dir.history()[-1]["f1_micro"] > 0.0
    table = per_class.per_class(result, loaded.splits["test"].labels, loaded.class_names)
    report = sklearn.metrics.precision_recall_fscore_support(labels, decided, zero_division=np.nan)
    for column, values in zip(
        ("decided precision (%)", "decided recall (%)", "f1 (%)"), report, strict=False
    ):
        np.testing.assert_allclose(table[column], 100.0 * values)
    worst = per_class.worst_first(table, "f1_macro")
    assert worst["f1 (%)"].tolist() == sorted(table["f1 (%)"])


def test_one_class_per_example_decides_for_the_top_class(tmp_path):
    changes = {"epochs": 1.0, "encoder.hidden": (8,), "metrics": NAMES, "monitor": "f1_macro"}
    results = rank_training.train(config.override(digits_mlp.get_config(), changes), tmp_path, progress=False)
    restored = rank_training.restore(tmp_path)
    loaded = restored.load_task()
    labels, predicted = loaded.splits["test"].labels, restored.evaluate(loaded).top_classes
    expected = sklearn.metrics.f1_score(labels, predicted, average="macro")
    assert results["test"]["f1_macro"] == pytest.approx(100.0 * expected)
    assert results["test"]["f1_micro"] == pytest.approx(results["test"]["subset_accuracy"])


def test_scores_that_are_not_finite_decide_for_no_class():
    names, top = ("subset_accuracy", "f1_micro"), np.array([0, -1], np.int32)
    result = EvaluationResult((), np.zeros([2, 0]), top, top, top, decided=np.array([[True, False]] * 2))
    task = rank_training.TaskData
    split = data.Split({}, csr_array(np.array([[1.0, 0.0], [0.0, 0.0]], np.float32)))
    loaded = task(("a", "b"), dict.fromkeys(("train", "validation", "test"), split), None, None, None)
    measured = run_decisions.measure(result, experiment(metrics=names), loaded, "test")
    assert measured.means() == {"subset_accuracy": 50.0, "f1_micro": 100.0}


def test_intervals_are_those_of_a_bootstrap(rng):
    labels, decided = rng.random([2, 150, 4]) < 0.4
    decisions = Decisions(("f1_micro", "f1_macro"), csr_array(decided), csr_array(labels))
    plain = {"micro": [], "macro": []}
    for _ in range(200):
        rows = rng.integers(150, size=150)
        for average, values in plain.items():
            values.append(100.0 * sklearn.metrics.f1_score(labels[rows], decided[rows], average=average))
    for average, values in plain.items():
        interval = decisions.intervals()[f"f1_{average}"]
        np.testing.assert_allclose(interval, np.percentile(values, [2.5, 97.5]), atol=2.0)
    perfect = Decisions(("f1_micro",), csr_array(labels), csr_array(labels))
    assert perfect.means() == {"f1_micro": pytest.approx(100.0)}
    assert perfect.intervals() == {"f1_micro": None}


def test_sums_of_resamples_of_sparse_values_are_those_of_dense_ones(rng, monkeypatch):
    monkeypatch.setattr(statistics, "MAX_UNITS", 30)
    values = rng.integers(2, size=[100, 3])
    for dense, sparse in zip(
        statistics.resampled_sums(values), statistics.resampled_sums(csr_array(values)), strict=True
    ):
        np.testing.assert_array_equal(dense, sparse)
