"""Prediction sets in predictions, their files and exports are those of the scores."""

import dataclasses
import json
import os

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import rank4class
from rank4class import data
from rank4class.pipelines import config
from rank4class.pipelines.configs import digits_mlp
from rank4class.pipelines.evaluation import prediction_sets
from rank4class.pipelines.export import answers, prediction, prediction_files
from rank4class.pipelines.run_test import READERS

NAMES = ("rank", "threshold", "adaptive")
COVERAGE = 0.9


def with_sets(run, name):
    """Returns the run with prediction sets that its validation examples calibrate."""
    validation = data.get("digits").splits["validation"]
    outputs = run.outputs(validation.features["image"])
    block = (outputs["probabilities"], outputs["scores"], None)
    labels = validation.labels
    calibrated = rank4class.load(run.workdir)
    pairs = prediction_sets.true_scores(name, {}, block, labels)
    sets = prediction_sets.fit(name, {}, pairs, labels, num_classes=10)
    calibrated._trained = dataclasses.replace(calibrated._trained, sets=sets)
    return calibrated


@pytest.fixture(scope="module")
def runs(digits_run):
    return {name: with_sets(digits_run, name) for name in NAMES}


@pytest.fixture
def run(runs):
    return runs["threshold"]


@pytest.fixture
def array(images, tmp_path):
    np.save(tmp_path / "images.npy", images[:40])
    return tmp_path / "images.npy"


def table_of(frame, size):
    """Returns the classes of a frame of predictions, bool `[N, 10]`."""
    in_set = np.zeros([size, 10], bool)
    in_set[frame["input"], frame["class"].astype(int)] = frame.get("in_set", True)
    return in_set


def test_the_sets_are_those_of_the_probabilities(run, images):
    outputs = run.outputs(images, coverage=COVERAGE)
    in_set = -np.log(outputs["probabilities"]) <= run._trained.sets.limits(COVERAGE)
    np.testing.assert_array_equal(outputs["in_set"], in_set)
    assert outputs["set_size"].tolist() == in_set.sum(axis=1).tolist()
    labels = data.get("digits").splits["test"].labels
    assert 0.83 < in_set[np.arange(len(labels)), labels].mean() < 0.97
    frame = run.predict(images, coverage=COVERAGE)
    assert list(frame.columns) == ["input", "rank", "class", "score", "probability"]
    np.testing.assert_array_equal(table_of(frame, len(images)), in_set)
    assert frame.groupby("input")["score"].apply(lambda scores: scores.is_monotonic_decreasing).all()
    best = run.predict(images, k=3, coverage=COVERAGE)
    plain = run.predict(images, k=3)
    assert "in_set" not in plain
    pd.testing.assert_frame_equal(best.drop(columns="in_set"), plain)
    np.testing.assert_array_equal(table_of(best, len(images)), in_set & table_of(plain, len(images)))


@pytest.mark.nightly
def test_a_run_predicts_the_sets_of_its_results(images, tmp_path):
    metrics = ("top1_error", "set_size@90", "set_coverage@90")
    changes = {"sets.name": "adaptive", "metrics": metrics, "monitor": "top1_error", "epochs": 0.0}
    experiment = config.override(digits_mlp.get_config(), {**changes, "data.max_train_examples": 200})
    run = rank4class.train(experiment, tmp_path / "run", progress=False)
    outputs = run.outputs(images, coverage=COVERAGE)
    in_set = outputs["in_set"][np.arange(len(images)), data.get("digits").splits["test"].labels]
    assert outputs["set_size"].mean() == pytest.approx(run.results["test"]["set_size@90"])
    assert 100 * in_set.mean() == pytest.approx(run.results["test"]["set_coverage@90"])
    run.export(tmp_path / "model", coverage=COVERAGE)
    card = (tmp_path / "model" / "README.md").read_text()
    assert f"- On test: coverage {run.results['test']['set_coverage@90']:.2f}% [" in card


def test_a_class_with_a_separate_limit_need_not_follow_the_ranking(digits_run, images):
    run = with_sets(digits_run, "rank")
    limits = np.array([10.0, *[1.0] * 9], np.float32)
    sets = dataclasses.replace(run._trained.sets, class_groups=np.arange(10))
    object.__setattr__(sets, "limits", lambda coverage: limits)
    run._trained = dataclasses.replace(run._trained, sets=sets)
    classes = run.predict(images[:9], coverage=COVERAGE).groupby("input")["class"].apply(list)
    best = run.predict(images[:9], k=1)["class"]
    assert classes.tolist() == [[name] if name == "0" else [name, "0"] for name in best]


@pytest.fixture(scope="module", params=NAMES)
def repeated(request, digits_run, images):
    """A run calibrated on 1,000 copies of 20 images: many scores equal the limit but for the last bits."""
    distinct = images[:20]
    rows = np.random.default_rng(0).integers(20, size=1000)
    run = rank4class.load(digits_run.workdir)
    outputs = digits_run.outputs(distinct[rows])
    labels = data.get("digits").splits["test"].labels[:20][rows]
    block = outputs["probabilities"], outputs["scores"], None
    pairs = prediction_sets.true_scores(request.param, {}, block, labels)
    sets = prediction_sets.fit(request.param, {}, pairs, labels, num_classes=10)
    run._trained = dataclasses.replace(run._trained, sets=sets)
    return run, distinct[rows], rows


def test_an_input_has_one_set_in_all_batches(repeated):
    run, inputs, rows = repeated
    sets = run._trained.sets
    batches = [(0, 1000), *((i, 1) for i in range(60)), (100, 3), (200, 64)]
    scores = []
    for first, size in batches:
        outputs = run.answers.score({"image": tf.constant(inputs[first : first + size])})
        scores.append(sets.scores(outputs["probabilities"], outputs["scores"]).numpy())
    for percent in range(30, 95, 4):
        in_set, *others = (each <= sets.limits(percent / 100) for each in scores)
        assert len({(row, tuple(each)) for row, each in zip(rows, in_set, strict=True)}) == 20
        for (first, size), other in zip(batches[1:], others, strict=True):
            np.testing.assert_array_equal(other, in_set[first : first + size])


@pytest.mark.parametrize("ending", READERS)
def test_files_of_sets(run, images, array, tmp_path, ending):
    output = tmp_path / f"sets.{ending}"
    assert run.predict_file(array, output, coverage=COVERAGE, max_set_size=5) == (40, [])
    expected = [
        list(group) for _, group in run.predict(images[:40], coverage=COVERAGE).groupby("input")["class"]
    ]
    frame = READERS[ending](output)
    assert frame["set_size"].tolist() == list(map(len, expected))
    assert frame["abstain"].tolist() == [len(names) > 5 for names in expected]
    assert 0 < frame["abstain"].sum() < 40
    if ending in ("tsv", "csv"):
        assert list(frame) == ["input", "set_size", "abstain", "classes", "scores", "probabilities"]
        for name in ("classes", "probabilities"):
            frame[name] = frame[name].str.split(";")
    assert [list(names) for names in frame["classes"]] == expected
    assert [len(row) for row in frame["probabilities"]] == frame["set_size"].tolist()
    best = tmp_path / f"best.{ending}"
    run.predict_file(array, best, k=1, coverage=COVERAGE)
    frame = READERS[ending](best)
    assert frame["set_size"].tolist() == list(map(len, expected))
    assert "abstain" not in frame
    in_set = frame["in_set_1" if ending in ("tsv", "csv") else "in_set"]
    assert np.stack(in_set).ravel().tolist() == [True] * 40


def test_an_empty_set_is_no_failure(run, images, array, tmp_path):
    low = 0.02  # its limit leaves most sets empty
    sizes = run.outputs(images[:40], coverage=low)["set_size"]
    assert sizes.min() == 0
    run.predict_file(array, tmp_path / "sets.csv", coverage=low, max_set_size=3)
    frame = pd.read_csv(tmp_path / "sets.csv", keep_default_na=False)
    assert frame["set_size"].tolist() == sizes.tolist()
    assert (frame["abstain"] == (frame["set_size"] == 0)).all()
    assert ((frame["classes"] == "") == (frame["set_size"] == 0)).all()
    assert set(run.predict(images[:40], coverage=low)["input"]) == set(np.flatnonzero(sizes))
    with pytest.raises(ValueError, match=r"^inputs\[1\]: its scores are not finite\. Look at the input"):
        run.predict([images[0], np.full_like(images[0], 3e38)], coverage=low)


def test_names_with_the_separator(tmp_path):
    columns = {"classes": ["a\tb", "c"], "scores": np.float32([2.0, 1.0]), "set_size": 2}
    sets = [prediction.Prediction("x", columns)]
    prediction_files.write(tmp_path / "p.tsv", sets, None)
    assert (tmp_path / "p.tsv").read_text() == "input\tset_size\tclasses\tscores\nx\t2\ta\\tb;c\t2;1\n"
    for path in (None, tmp_path / "p.csv"):
        with pytest.raises(ValueError, match=r"^output=.*: joins .* by ';', which class 'a;b' has\. Choose"):
            prediction_files.check_separable(path, ["c", "a;b"])
    prediction_files.check_separable(tmp_path / "p.jsonl", ["c", "a;b"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"coverage": 1.2}, r"coverage=1\.2: not in \(0, 1\)\. Choose another value\."),
        ({"coverage": 0.999}, r"coverage=0\.999: needs 999 calibration examples, and there are 359\. Lower"),
        ({"coverage": 0.9, "wide": True}, "wide=True: takes no top_k, no coverage, no lists"),
        ({"max_set_size": 3}, r"max_set_size=3: needs prediction sets\. Set coverage too\."),
        ({"coverage": 0.9, "max_set_size": 0}, "max_set_size=0: not an integer of at least 1"),
    ],
)
def test_invalid_options_write_nothing(run, array, tmp_path, options, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        run.predict_file(array, tmp_path / "sets.tsv", **options)
    assert os.listdir(tmp_path) == ["images.npy"]


def test_models_without_sets(digits_run, run, images, tmp_path):
    with pytest.raises(ValueError, match=r"^coverage=0.9: the run has no prediction sets\. Train with"):
        digits_run.predict(images, coverage=0.9)
    for options, message in (
        ({"index": "scann"}, "index='scann': has neither prediction sets nor neighbors. Set it to 'exact'"),
        ({"format": "huggingface"}, "format='huggingface': exports no classes. Leave out top_k, cov"),
    ):
        with pytest.raises(ValueError, match=message):
            run.export(tmp_path / "model", coverage=0.9, **options)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", NAMES)
def test_excluded_classes_are_in_no_set(runs, images, name):
    excluded = np.arange(360)[:, None] % 10 == np.arange(10)
    module = answers.Answers(runs[name]._trained, 0.99)
    features = {"image": tf.constant(images), "excluded": tf.constant(excluded)}
    results = {key: value.numpy() for key, value in module.score(features).items()}
    assert not (results["in_set"] & excluded).any()
    assert results["in_set"].any(axis=1).all()
    best = {key: value.numpy() for key, value in module.classify(features, None).items()}
    for row in range(360):
        ids = best["classes"][row, : results["set_size"][row]].astype(int)
        assert sorted(ids) == np.flatnonzero(results["in_set"][row]).tolist()


@pytest.mark.nightly
def test_an_input_has_one_set_in_exports_and_requests(repeated, tmp_path):
    served_models = pytest.importorskip("rank4class.pipelines.export.serving_test")
    run, inputs, _ = repeated
    for coverage in (0.5, 0.65, 0.8, 0.9):
        sets = run.outputs(inputs, coverage=coverage)["in_set"]
        folder = tmp_path / f"{coverage}" / "1"
        run.export(folder, coverage=coverage)
        score = tf.saved_model.load(str(folder)).signatures["score"]
        for size in (1, 64):
            batches = (tf.constant(inputs[i : i + size]) for i in range(0, 1000, size))
            in_set = np.concatenate([score(image=batch)["in_set"] for batch in batches])
            np.testing.assert_array_equal(in_set, sets)
        with served_models.served(served_models.serving.app(folder, "model")) as address:
            for first, size in ((0, 1000), *((i, 1) for i in range(50)), (100, 64)):
                body = {"signature_name": "score", "inputs": inputs[first : first + size].tolist()}
                status, answer = served_models.request(address, "model:predict", body)
                assert status == 200
                np.testing.assert_array_equal(answer["outputs"]["in_set"], sets[first : first + size])


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["threshold", "adaptive"])
def test_exported_sets_are_the_predicted_ones(runs, name, images, tmp_path):
    run = runs[name]
    run.export(tmp_path / "model", coverage=COVERAGE)
    model, batch = tf.saved_model.load(str(tmp_path / "model")), tf.constant(images)
    expected = run.outputs(images, coverage=COVERAGE)
    scored, best = (model.signatures[signature](image=batch) for signature in ("score", "classify"))
    for output in ("in_set", "set_size"):
        np.testing.assert_array_equal(scored[output], expected[output])
    np.testing.assert_array_equal(best["set_size"], expected["set_size"])
    frame = run.predict(images, k=10, coverage=COVERAGE)  # the export does not cut the sets
    assert best["in_set"].numpy().ravel().tolist() == frame["in_set"].tolist()
    stated = json.loads((tmp_path / "model" / "prediction_sets.json").read_text())
    assert stated["limits"] == pytest.approx(run._trained.sets.limits(COVERAGE).tolist())
    assert (stated["score"], stated["coverage"]) == (name, COVERAGE)
    card = (tmp_path / "model" / "README.md").read_text()
    low, high = prediction_sets.coverage_interval(359, COVERAGE)
    assert "contains the class of an input with a probability of at least 0.9" in card
    assert "- Calibration examples: 359" in card
    assert f"{low:.3f} to {high:.3f}" in card
