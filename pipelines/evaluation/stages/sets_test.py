"""The split that calibrates the prediction sets of a run, the sets that it writes, and their metrics."""

import dataclasses
import shutil

import numpy as np
import pytest
import tensorflow as tf
from absl import logging
from scipy.sparse import csr_array

from rank4class import data
from rank4class.losses.ops import set_sizes
from rank4class.pipelines import config
from rank4class.pipelines.configs import digits_mlp
from rank4class.pipelines.evaluation import evaluator, prediction_sets, trained_model
from rank4class.pipelines.evaluation.calibration import Platt, Temperature
from rank4class.pipelines.evaluation.stages import sets as stage
from rank4class.pipelines.evaluation.stages.stage import Context, Fitted
from rank4class.pipelines.task_data import checks
from rank4class.pipelines.task_data.task_data import TaskData
from rank4class.pipelines.training import rank_training

SEVERAL = data.Split({}, csr_array(np.eye(4, 3, dtype=np.float32)))
GRADED = data.Split({}, csr_array(2 * np.eye(4, 3, dtype=np.float32)))
ITEMS = dataclasses.replace(SEVERAL, features={"items": np.zeros([4, 3, 2])})
METRICS = ("top1_error", "set_size@90", "set_coverage@90")


def experiment(**changes):
    base = {"epochs": 3.0, "data.max_train_examples": 400, "sets.name": "threshold", "metrics": METRICS}
    return config.override(digits_mlp.get_config(), {**base, "monitor": "top1_error", **changes})


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Trains `experiment()`; returns its folder."""
    path = tmp_path_factory.mktemp("sets") / "run"
    tf.keras.backend.clear_session()
    rank_training.train(experiment(), path, progress=False)
    return path


def test_calibration_examples_are_drawn_from_validation(tmp_path):
    plain = rank_training.load_data(experiment(**{"sets.name": "none", "metrics": METRICS[:1]}), tmp_path)
    drawn = rank_training.load_data(experiment(**{"sets.fraction": 0.4}), tmp_path)
    assert set(plain.splits) == {"train", "validation", "test"}
    for name in ("train", "test"):
        assert drawn.hashes[name] == plain.hashes[name]
    parts = [drawn.splits[name] for name in ("calibration", "validation")]
    assert list(map(len, parts)) == [144, 215]  # of 359
    images = np.concatenate([part.features["image"].reshape(len(part), -1) for part in parts])
    whole = plain.splits["validation"].features["image"].reshape(359, -1)
    np.testing.assert_array_equal(np.sort(images, axis=0), np.sort(whole, axis=0))
    assert len(set(drawn.hashes.values())) == len(drawn.hashes)
    other = rank_training.load_data(experiment(**{"sets.fraction": 0.5}), tmp_path)
    assert other.hashes["validation"] != drawn.hashes["validation"]


def test_splits_of_a_dataset_that_do_and_do_not_calibrate(tmp_path):
    """A calibration split is kept; of validation examples that are those of the test, both have the rest."""
    splits = rank_training.load_data(experiment(), tmp_path).splits
    dataset = data.Dataset(tuple("0123456789"), splits)
    again = rank_training.load_data(experiment(), tmp_path, dataset=dataset).splits
    for name in ("calibration", "validation"):
        np.testing.assert_array_equal(again[name].labels, splits[name].labels)
    splits = {"train": splits["train"]} | dict.fromkeys(("validation", "test"), splits["validation"])
    dataset = data.Dataset(dataset.class_names, splits)
    loaded = rank_training.load_data(experiment(), tmp_path, dataset=dataset)
    assert loaded.splits["test"] is loaded.splits["validation"]
    assert len(loaded.splits["test"]) + len(loaded.splits["calibration"]) == len(splits["validation"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"calibration": "none"}, r"sets='threshold': needs probabilities\. Set calibration to"),
        ({"sets.name": "none"}, r"metrics='set_size@90': needs prediction sets\. Set sets to 'threshold'"),
        ({"monitor": "set_size@90"}, r"monitor='set_size@90': validation, which selects the checkpoint, has"),
        ({"sets.fraction": 1.0}, r"sets\.fraction=1\.0: not in \(0, 1\)\. Choose another value"),
        ({"metrics": ("top1_error", "set_size@0")}, r"metric='set_size@0': unknown\. .* set_size@P, set_cov"),
    ],
)
def test_sets_that_do_not_fit_the_experiment(changes, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        checks.check(experiment(**changes))


def test_too_few_validation_examples(tmp_path):
    few = experiment(**{"sets.fraction": 0.001})
    with pytest.raises(ValueError, match=r"^sets\.fraction=0\.001: 0 of 359 validation examples would"):
        rank_training.load_data(few, tmp_path)


def task_of(name, examples, classes="abcde"):
    return TaskData(tuple(classes), {name: examples}, None, None, None)


@pytest.mark.parametrize(
    ("examples", "changes", "message"),
    [
        (ITEMS, {}, r"sets='threshold': the items of a list are not classes\. Set it to 'none'"),
        (GRADED, {}, r"sets='threshold': the labels are graded\. Set it to 'none'"),
        (SEVERAL, {"sets.name": "adaptive"}, r"sets='adaptive': an example may have several classes\."),
        (SEVERAL, {"sets.by_class": True}, r"sets\.by_class=True: an example may have several classes\. Set"),
        (SEVERAL, {"data.held_out": ("1",)}, r"sets='threshold': cannot cover the classes of"),
        (SEVERAL, {}, r"metrics='set_size@90': needs 9 calibration examples, and there are 4\. Leave it out"),
    ],
)
def test_sets_that_do_not_fit_the_data(examples, changes, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        stage.SetStage(experiment(**changes)).check(task_of("calibration", examples))


def test_few_calibration_examples_are_reported(monkeypatch):
    logged = []
    for level in ("warning", "info"):
        monkeypatch.setattr(logging, level, lambda text, *v, level=level: logged.append((level, text % v)))
    plain = experiment(metrics=("top1_error",))
    for size in (5, 200, 1000):
        stage.SetStage(plain).check(task_of("calibration", data.Split({}, np.zeros(size, np.int32))))
    assert logged == [
        ("warning", "calibration: 5 examples; sets for 90% need 9."),
        ("warning", "calibration: 200 examples; sets for 90% will cover 85.6% to 93.8% (95% of draws)."),
        ("info", "calibration: 1,000 examples; sets for 90% will cover 88.1% to 91.8% (95% of draws)."),
    ]


def test_a_run_writes_sets_that_cover_the_test_split(finished):
    trained = trained_model.restore(finished)
    loaded = trained.load_task()
    result = trained.evaluate(loaded)
    assert result.summarize() == trained.run_dir.results()["test"]
    size, coverage = (trained.run_dir.results()["test"][name] for name in METRICS[1:])
    low, high = prediction_sets.coverage_interval(len(loaded.splits["calibration"]), 0.9)
    noise = 2.0 * np.sqrt(0.09 / len(loaded.splits["test"]))
    assert low - noise < coverage / 100.0 < high + noise
    position = result.sets.coverages.tolist().index(0.9)
    assert result.sets.coverages.tolist() == list(prediction_sets.COVERAGES)
    assert size == pytest.approx(result.sets.sizes[:, position].mean())
    assert np.all(np.diff(result.sets.sizes, axis=1) >= 0)
    values = trained.run_dir.test_values()
    np.testing.assert_array_equal(values["set_coverage@90"], result.sets.covered[:, position])
    assert "set_size@90" not in trained.run_dir.results()["validation"]


def test_a_finished_run_is_calibrated_again(finished, tmp_path):
    copy = shutil.copytree(finished, tmp_path / "run")
    trained = trained_model.restore(copy)
    loaded = trained.load_task()
    fitted = trained.calibrate(loaded, config.Sets("rank"))
    again = trained_model.restore(copy)
    assert again.sets.to_json() == fitted.to_json()
    assert (trained.sets.after_training, again.sets.after_training) == (False, True)
    assert fitted.limits(0.9) == pytest.approx(np.round(fitted.limits(0.9)), rel=1e-4)  # a rank
    assert fitted.examples.tolist() == trained.sets.examples.tolist()
    trained_on = dataclasses.replace(loaded, hashes={"calibration": loaded.hashes["train"]})
    with pytest.raises(ValueError, match=r"^data\.path: the train split of the run\. Set it to examples"):
        trained.calibrate(trained_on, config.Sets("rank"))
    uncalibrated = dataclasses.replace(trained, calibration=None)
    with pytest.raises(ValueError, match=r"^sets='threshold': the scores are not calibrated\. Choose 'rank'"):
        uncalibrated.calibrate(loaded, config.Sets("threshold"))
    (copy / "results.json").unlink()
    with pytest.raises(ValueError, match=r": not finished, so that its checkpoint may change\. Train it"):
        trained.calibrate(loaded, config.Sets("rank"))


@pytest.mark.nightly
def test_calibration_labels_change_neither_checkpoint_nor_temperature(finished, tmp_path):
    first = trained_model.restore(finished)
    loaded = first.load_task()
    shuffled = np.random.default_rng(0).permutation(loaded.splits["calibration"].labels)
    splits = loaded.splits | {
        "calibration": dataclasses.replace(loaded.splits["calibration"], labels=shuffled)
    }
    hashes = loaded.hashes | {"calibration": "0" * 64}
    changed = rank_training.load_data(experiment(), tmp_path)
    changed = dataclasses.replace(changed, splits=splits, hashes=hashes)
    tf.keras.backend.clear_session()
    rank_training.train(experiment(), tmp_path / "run", task_data=changed, progress=False)
    second = trained_model.restore(tmp_path / "run")
    assert (second.step, second.calibration) == (first.step, first.calibration)
    np.testing.assert_equal(first.model.get_weights(), second.model.get_weights())
    assert second.sets.limits(0.9) > first.sets.limits(0.9)


def result_of(scores, **changes):
    size = len(scores)
    values = np.zeros([size, 1], np.float32)
    ids = np.zeros(size, np.int32)
    return evaluator.EvaluationResult(
        ("top1_error",), values, ids, ids, values[:, 0], np.float32(scores), **changes
    )


def fit_and_measure(scores, experiment, examples, calibration, rows=None, log_counts=None):
    """Returns the sets that examples calibrate and measure, which come in batches of `rows`."""
    scores, everything = np.float32(scores), np.arange(len(scores))
    fit = stage.Fit(experiment.sets, examples, calibration)

    def add_to(part):
        for batch in [everything] if rows is None else rows:
            part.add(batch, scores[batch], None if log_counts is None else log_counts[batch])

    add_to(fit)
    fitted = Fitted(calibration=calibration, sets=fit.sets())
    measurement = stage.Measurement(experiment, Context(task_of("test", examples), "test", fitted))
    add_to(measurement)
    return fit.sets(), measurement.add_to(result_of(scores))


@pytest.mark.parametrize("several", [False, True])
def test_batches_give_the_sets_of_the_whole(rng, several):
    scores = rng.normal(size=[40, 5])
    labels = rng.integers(0, 5, 40).astype(np.int32)
    excluded = csr_array(np.arange(5) == (labels[:, None] + 1) % 5)
    if several:
        labels = csr_array((np.arange(5) == labels[:, None]).astype(np.float32))
    examples = data.Split({}, labels, excluded=excluded)
    part = experiment()
    calibration = Platt((1.0,), (0.0,)) if several else Temperature(1.5)
    batches = (None, np.split(rng.permutation(40), [7, 14, 30]))
    fitted, outputs = zip(
        *(fit_and_measure(scores, part, examples, calibration, rows) for rows in batches), strict=True
    )
    np.testing.assert_allclose(*(sets.values for sets in fitted), rtol=1e-6)  # of vectorized sigmoids
    for name in ("values", "sets"):
        np.testing.assert_equal(*(dataclasses.asdict(each)[name] for each in outputs))
    assert outputs[0].names == METRICS
    assert outputs[0].sets.sizes.max() == 4  # one of five classes is excluded


def test_covered_is_the_recall_of_several_classes():
    scores = np.array([[3.0, 2.0, 1.0]] * 3, np.float32)
    labels = csr_array(np.array([[1, 1, 0], [0, 0, 1], [0, 0, 0]], np.float32))
    part = experiment(**{"sets.name": "rank", "metrics": ("top1_error", "set_coverage@40")})
    examples = data.Split({}, labels)
    # Missed recall 1.5 of 3 with rank 1, 1 with rank 2; (1.5 + 1) / 4 > 0.6 >= (1 + 1) / 4.
    _, measured = fit_and_measure(scores, part, examples, None)
    assert measured.values[:, 1].tolist() == [1.0, 0.0, 1.0]
    assert measured.sets.sizes[:, 0].tolist() == [2, 2, 2]


@pytest.mark.nightly
def test_probabilities_of_a_count_prior_are_its_marginals(rng):
    scores = rng.normal(size=[20, 4]).astype(np.float32)
    labels = csr_array((scores > 0.5).astype(np.float32))
    log_counts = np.log(np.full([20, 5], 0.2, np.float32))
    part = experiment(**{"count_prior.name": "learned"})
    sets, _ = fit_and_measure(scores, part, data.Split({}, labels), None, log_counts=log_counts)
    marginals = -np.log(set_sizes.marginals(scores, log_counts).numpy())
    np.testing.assert_allclose(sets.values, np.sort(marginals[labels.nonzero()]), rtol=1e-5)


def test_scores_without_a_calibration_have_no_sets_by_probabilities():
    assert not stage.can_fit(experiment(), None)
    assert stage.can_fit(experiment(**{"sets.name": "rank"}), None)
