"""The head that L-BFGS solves is scikit-learn's logistic regression, whatever the unit of the features."""

import dataclasses
import functools
import shutil

import numpy as np
import pytest
import scipy.sparse
import scipy.special
import sklearn.linear_model
import sklearn.multiclass
from sklearn.datasets import load_digits, load_wine
from sklearn.preprocessing import StandardScaler

from rank4class import data
from rank4class.pipelines import config
from rank4class.pipelines.evaluation import calibration
from rank4class.pipelines.evaluation.trained_model import restore
from rank4class.pipelines.storage.run_directory import RunDirectory
from rank4class.pipelines.task_data import loading
from rank4class.pipelines.training import rank_training, solver
from rank4class.pipelines.training.train_state import TrainState

pytestmark = pytest.mark.usefixtures("names_of_a_new_process")


@pytest.fixture(scope="module")
def digits():
    """Returns the means of blocks of the images as vectors, float32 `[900, 16]`, and their digits."""
    x, y = load_digits(return_X_y=True)
    blocks = x[:900].reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4))
    return blocks.reshape(-1, 16).astype(np.float32), y[:900].astype(np.int32)


def dataset(x, y, classes=10):
    rows = {"train": np.s_[:500], "validation": np.s_[500:700], "test": np.s_[700:]}
    return data.Dataset(
        tuple(map(str, range(classes))),
        {name: data.Split({"embedding": x[each]}, y[each]) for name, each in rows.items()},
    )


def linear(C=(1.0,), tol=1e-6, **changes):
    experiment = config.override(
        config.Experiment(
            data=config.Data("memory"),
            encoder=config.Encoder("identity"),
            metrics=("top1_error",),
            monitor="top1_error",
        ),
        {name.replace("__", "."): value for name, value in changes.items()},
    )
    experiment.optimizer = config.Optimizer("lbfgs", C=C, tol=tol)
    return experiment


def scale_of(x):
    """Returns the unit of `C`: the root mean squared distance of the training vectors to their mean."""
    train = x[:500].astype(np.float64)
    return np.sqrt(np.square(train - train.mean(axis=0)).sum(axis=1).mean())


def scores_of(folder, x):
    """Returns the scores of a run, less their means."""
    model = restore(str(folder)).model
    scores = model({"embedding": x}).numpy().astype(np.float64)
    return scores - scores.mean(axis=1, keepdims=True)


def test_softmax_is_logistic_regression(tmp_path, digits):
    x, y = digits
    scale = scale_of(x)
    results = rank_training.train(linear(), tmp_path / "run", dataset=dataset(x, y), progress=False)
    peer = sklearn.linear_model.LogisticRegression(C=1.0, tol=1e-8, max_iter=10_000)
    peer.fit(x[:500] / scale, y[:500])
    expected = peer.decision_function(x / scale)
    scores = scores_of(tmp_path / "run", x)
    np.testing.assert_allclose(scores, expected - expected.mean(axis=1, keepdims=True), atol=1e-3)
    assert results["test"]["top1_error"] == pytest.approx(
        100 * np.mean(peer.predict(x[700:] / scale) != y[700:])
    )


@pytest.mark.nightly
def test_several_labels_are_one_against_the_rest(tmp_path, digits):
    x, y = digits
    labels = np.stack([y % 2 == 0, y > 4, y == 3], axis=1)
    loss = {"loss__name": "sigmoid_cross_entropy", "data__class_weights": "none"}
    labeled = dataset(x, scipy.sparse.csr_array(labels.astype(np.float32)), classes=3)
    rank_training.train(linear(**loss), tmp_path / "run", dataset=labeled, progress=False)
    scale = scale_of(x)
    # The loss is the mean over the three classes.
    peer = sklearn.linear_model.LogisticRegression(C=1 / 3, tol=1e-8, max_iter=10_000)
    peer = sklearn.multiclass.OneVsRestClassifier(peer).fit(x[:500] / scale, labels[:500])
    model = restore(str(tmp_path / "run")).model
    expected = peer.decision_function(x / scale)
    np.testing.assert_allclose(model({"embedding": x}), expected, atol=1e-3)


@pytest.mark.nightly
def test_sparse_weighted_and_small_blocks_of_another_unit_give_one_head(tmp_path, digits, monkeypatch):
    x, y = digits
    part = linear(data__class_weights="balanced")
    rank_training.train(part, tmp_path / "dense", dataset=dataset(x, y), progress=False)
    monkeypatch.setattr(solver, "_BLOCK", 16 * 200)
    sparse = scipy.sparse.csr_array(x / 1000.0)
    rank_training.train(part, tmp_path / "sparse", dataset=dataset(sparse, y), progress=False)
    scores = scores_of(tmp_path / "dense", x)
    np.testing.assert_allclose(scores_of(tmp_path / "sparse", x / 1000.0), scores, atol=1e-3)
    peer = sklearn.linear_model.LogisticRegression(C=1.0, tol=1e-8, max_iter=10_000, class_weight="balanced")
    scale = scale_of(x)
    expected = peer.fit(x[:500] / scale, y[:500]).decision_function(x / scale)
    np.testing.assert_allclose(scores, expected - expected.mean(axis=1, keepdims=True), atol=1e-3)


@pytest.mark.nightly
def test_the_best_strength_by_validation_is_the_model_and_a_killed_path_resumes(
    tmp_path, digits, monkeypatch, assert_same_run
):
    x, y = digits
    y = np.where(np.random.default_rng(0).random(len(y)) < 0.2, (y + 1) % 10, y).astype(np.int32)
    strengths = (1e-4, 0.3, 1e3)
    part = linear(C=strengths, tol=1e-5)
    results = rank_training.train(part, tmp_path / "run", dataset=dataset(x, y), progress=False)
    history = RunDirectory(str(tmp_path / "run")).history()
    assert [line["C"] for line in history] == list(strengths)
    likelihoods = [line["calibrated_nll"] for line in history]
    best = int(np.argmin(likelihoods))
    assert results["best_step"] == best + 1 > 1
    assert results["validation"]["calibration"]["after"]["nll"] == pytest.approx(likelihoods[best])
    assert results["validation"]["top1_error"] == history[best]["top1_error"]

    save = TrainState.save

    def killed(state):
        save(state)
        if state.progress.step == 2:
            shutil.copytree(tmp_path / "killed", tmp_path / "resumed")

    monkeypatch.setattr(TrainState, "save", killed)
    rank_training.train(part, tmp_path / "killed", dataset=dataset(x, y), progress=False)
    monkeypatch.setattr(TrainState, "save", save)
    rank_training.train(part, tmp_path / "resumed", dataset=dataset(x, y), progress=False)
    assert_same_run(tmp_path / "run", tmp_path / "resumed")


@pytest.mark.parametrize("several", [False, True])
def test_the_likelihood_of_calibrated_validation_examples_selects_the_strength(tmp_path, digits, several):
    x, y = digits
    labels = scipy.sparse.csr_array(np.eye(10, dtype=np.float32)[y]) if several else y
    given = dataset(x, labels)
    loss = "sigmoid_cross_entropy" if several else "softmax"
    strengths = (1e3, 0.01, 1e-6, 1e-8, 1e-9)

    def train(name, **changes):
        experiment = linear(C=strengths, tol=1e-3, loss__name=loss, **changes)
        results = rank_training.train(experiment, tmp_path / name, dataset=given, progress=False)
        return results, RunDirectory(str(tmp_path / name)).history()

    results, history = train("likelihood")
    values = [line["calibrated_nll"] for line in history]
    best = int(np.argmin(values))
    assert (results["monitor"], results["best_step"]) == ("calibrated_nll", best + 1)
    assert len(history) == best + 3  # two without a better one
    assert results["validation"]["calibration"]["after"]["nll"] == pytest.approx(values[best])
    results, history = train("without", calibration="none")
    assert results["monitor"] == "top1_error"
    assert results["best_step"] == 1 + int(np.argmin([line["top1_error"] for line in history]))
    assert not any("calibrated_nll" in line for line in history)


def test_a_monitor_that_is_set_selects_the_strength():
    changes = {"encoder.name": "identity", "metrics": ("mrr", "map"), "monitor": "map"}
    assert config.override(config.Experiment(), changes).optimizer.selection == "monitor"
    changes["optimizer.selection"] = "likelihood"
    assert config.override(config.Experiment(), changes).optimizer.selection == "likelihood"
    del changes["optimizer.selection"], changes["monitor"]
    assert config.override(config.Experiment(), changes).optimizer.selection == "likelihood"
    assert "selection" not in config.Optimizer("adam").fields


@pytest.mark.nightly
def test_classes_that_training_leaves_out_keep_their_vectors(tmp_path, digits):
    x, y = digits
    part = linear(data__held_out=("3", "7"), class_encoder__init="zeros", metrics=("mrr",), monitor="mrr")
    rank_training.train(part, tmp_path / "run", dataset=dataset(x, y), progress=False)
    table = restore(str(tmp_path / "run")).model.class_encoder.table.numpy()
    assert [i for i in range(10) if not table[i].any()] == [3, 7]


def test_a_path_starts_from_zero_whatever_the_seed(tmp_path, digits):
    for seed in (0, 1):
        part = linear(C=(0.1,), tol=1e-3, seed=seed)
        rank_training.train(part, tmp_path / str(seed), dataset=dataset(*digits), progress=False)
    np.testing.assert_array_equal(scores_of(tmp_path / "0", digits[0]), scores_of(tmp_path / "1", digits[0]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"encoder__name": "mlp"},
            "optimizer='lbfgs': needs a frozen encoder, or 'identity'. Choose one, or opt",
        ),
        (
            {"interaction__name": "lc_mlp"},
            "optimizer='lbfgs': needs interaction 'dot'. Choose it, or optimizer",
        ),
        (
            {"candidates__name": "sampled", "candidates__count": 2},
            "optimizer='lbfgs': needs candidates 'all'. Choose it",
        ),
        (
            {"loss__name": "mean_average_precision", "loss__rank_fn": "sigmoid"},
            "optimizer='lbfgs': needs a loss of single examples",
        ),
        ({"loss__final_temperature": 0.5}, "needs one temperature. Leave out loss.final_temperature, or opt"),
        ({"C": ()}, r"optimizer.C=\(\): not positive numbers. Choose some."),
        ({"C": (1.0, -2.0)}, r"optimizer.C=\(1.0, -2.0\): not positive numbers. Choose some."),
    ],
)
def test_heads_that_cannot_be_solved_are_refused(tmp_path, digits, changes, message):
    with pytest.raises(ValueError, match=message):
        rank_training.train(linear(**changes), tmp_path, dataset=dataset(*digits), progress=False)


def test_large_data_are_refused(tmp_path, digits, monkeypatch):
    monkeypatch.setattr(solver, "MAX_PRODUCTS", 500 * 16 * 10 - 1)
    with pytest.raises(
        ValueError, match=r"a pass takes 8.0e\+04 multiplications, more than 8e\+04. Choose opt"
    ):
        rank_training.train(linear(), tmp_path, dataset=dataset(*digits), progress=False)


def test_a_fixed_encoder_chooses_the_solver_unless_steps_are_set():
    frozen = {"encoder.frozen": True}
    tuned = config.Experiment(encoder=config.Encoder("bert", path="folder"))
    assert config.override(tuned, frozen).optimizer == config.Optimizer("lbfgs")
    assert config.override(tuned, {"encoder.name": "identity"}).optimizer == config.Optimizer("lbfgs")
    solved = config.override(tuned, {**frozen, "optimizer.C": (1.0,)})
    assert solved.optimizer == config.Optimizer("lbfgs", C=(1.0,))
    assert config.override(solved, {"seed": 1, "loss.name": "mse"}).optimizer == solved.optimizer
    for steps in (
        {"optimizer.learning_rate": 0.1},
        {"epochs": 3.0},
        {"interaction.name": "lc_mlp"},
        {"candidates.name": "sampled"},
        {"class_encoder.name": "frozen_text"},
    ):
        by_steps = config.override(tuned, {**frozen, **steps})
        assert by_steps.optimizer.name == config.override(by_steps, {"seed": 1}).optimizer.name == "adam"


@pytest.mark.nightly
def test_replicas_have_the_same_head(tmp_path, digits, mirrored):
    part = linear(tol=1e-5)
    x, y = digits
    rank_training.train(part, tmp_path / "one", dataset=dataset(x, y), progress=False)
    rank_training.train(part, tmp_path / "two", dataset=dataset(x, y), strategy=mirrored, progress=False)
    np.testing.assert_array_equal(scores_of(tmp_path / "two", x), scores_of(tmp_path / "one", x))


@pytest.mark.nightly
def test_few_examples_of_a_file_validate_by_folds(tmp_path, digits, monkeypatch):
    x, y = digits
    np.savez(tmp_path / "digits.npz", x=x[:100], y=y[:100])
    experiment = linear()
    experiment.data = config.Data("table", path=str(tmp_path / "digits.npz"))
    loads = functools.partial(rank_training.load_data, cache_dir=tmp_path)
    whole = loads(experiment)
    assert whole.folds.shape == (90,)
    by_steps = loads(config.override(experiment, {"optimizer.name": "adam"}))
    assert (by_steps.folds, len(by_steps.splits["train"])) == (None, 80)
    assert whole.hashes["test"] == by_steps.hashes["test"]
    experiment.data.validation_fraction = 0.1
    assert loads(experiment).folds is None
    experiment.data.validation_fraction = None
    monkeypatch.setattr(loading, "MOST_IN_FOLDS", 80)
    assert loads(experiment).folds is None


def test_scores_out_of_a_fold_do_not_know_its_labels(tmp_path, rng):
    x = rng.normal(size=[100, 80]).astype(np.float32)
    y = np.tile(np.arange(5, dtype=np.int32), 20)  # that the vectors say nothing about
    given = data.Dataset(tuple("abcde"), {"train": data.Split({"embedding": x}, y)})
    results = rank_training.train(linear(C=(1e4,), tol=0.01), tmp_path, dataset=given, progress=False)
    assert results["validation"]["top1_error"] > 60.0


def test_columns_in_unlike_units_are_standardized(tmp_path):
    x, y = load_wine(return_X_y=True)  # deviations from 0.1 to 300
    order = np.random.default_rng(0).permutation(len(y))
    x, y = np.column_stack([x, np.ones(len(y))])[order].astype(np.float32), y[order].astype(np.int32)
    rows = {"train": np.s_[:120], "validation": np.s_[120:]}
    splits = {name: data.Split({"embedding": x[each]}, y[each]) for name, each in rows.items()}
    folder = tmp_path / "run"
    rank_training.train(linear(C=(10.0,)), folder, dataset=data.Dataset(tuple("abc"), splits), progress=False)
    scaler = StandardScaler().fit(x[:120].astype(np.float64))
    scaled = scaler.transform(x.astype(np.float64)) / np.sqrt(13)
    peer = sklearn.linear_model.LogisticRegression(C=10.0, tol=1e-8, max_iter=10_000)
    expected = peer.fit(scaled[:120], y[:120]).decision_function(scaled)
    np.testing.assert_allclose(
        scores_of(folder, x), expected - expected.mean(axis=1, keepdims=True), rtol=1e-3, atol=1e-3
    )


def test_few_sparse_rows_have_the_head_of_all_their_columns_and_of_each_fold(tmp_path, rng):
    y = np.tile(np.arange(3, dtype=np.int32), 20)
    x = rng.poisson(0.1 + 0.1 * rng.poisson(0.5, size=[3, 200])[y])
    x = x * np.geomspace(0.01, 1.0, 200)  # the directions differ, and are not standardized
    x = np.concatenate([x, x[:3]]).astype(np.float32)  # copies have one fold
    y = np.append(y, y[:3])
    given = data.Dataset(tuple("abc"), {"train": data.Split({"embedding": scipy.sparse.csr_array(x)}, y)})
    experiment = linear(C=(0.1, 1.0))
    folder = tmp_path / "run"
    rank_training.train(experiment, folder, dataset=given, progress=False)

    wide = x.astype(np.float64)
    scale = np.sqrt(np.square(wide - wide.mean(axis=0)).sum(axis=1).mean())
    folds = loading.load_data(experiment, tmp_path, dataset=given).folds
    history = RunDirectory(str(folder)).history()
    for C, line in zip((0.1, 1.0), history, strict=True):
        peer = sklearn.linear_model.LogisticRegression(C=C, tol=1e-8, max_iter=10_000)
        scores = np.empty([len(y), 3])
        for fold in range(5):
            peer.fit(wide[folds != fold] / scale, y[folds != fold])
            scores[folds == fold] = peer.decision_function(wide[folds == fold] / scale)
        assert line["top1_error"] == pytest.approx(100 * np.mean(scores.argmax(axis=1) != y))
        calibrated = scipy.special.log_softmax(scores / calibration.fit(scores, y).temperature, axis=1)
        assert line["calibrated_nll"] == pytest.approx(-calibrated[np.arange(len(y)), y].mean(), rel=1e-3)
    best = history[int(np.argmin([line["calibrated_nll"] for line in history]))]["C"]
    peer = sklearn.linear_model.LogisticRegression(C=best, tol=1e-8, max_iter=10_000).fit(wide / scale, y)
    expected = peer.decision_function(wide / scale)
    np.testing.assert_allclose(
        scores_of(folder, x), expected - expected.mean(axis=1, keepdims=True), atol=1e-3
    )


@pytest.mark.nightly
def test_sets_by_folds_cover_as_often_as_they_say(tmp_path):
    x, y = load_digits(return_X_y=True)
    x = x.reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(-1, 16).astype(np.float32)
    experiment = linear(C=(0.3, 1.0), metrics=("top1_error", "set_coverage@90"), sets__name="threshold")
    covered = []
    for seed in range(30):
        order = np.random.default_rng(seed).permutation(len(y))
        splits = {"train": order[:150], "test": order[150:]}
        drawn = {
            name: data.Split({"embedding": x[rows]}, y[rows].astype(np.int32))
            for name, rows in splits.items()
        }
        given = data.Dataset(tuple("0123456789"), drawn)
        results = rank_training.train(experiment, tmp_path / str(seed), dataset=given, progress=False)
        covered.append(results["test"]["set_coverage@90"])
    # A draw of 150 examples has a standard deviation of 2.4 points, that of tests beside it.
    assert 88.5 < np.mean(covered) < 92.5
    assert np.std(covered) < 5.0


@pytest.mark.nightly
def test_without_validation_all_examples_train_and_validate_out_of_their_folds(tmp_path, digits):
    x, y = np.delete(digits[0], 12, axis=1), digits[1]  # with it the columns would be standardized
    test = data.Split({"embedding": x[700:]}, y[700:])
    x, y = np.concatenate([x[:290], x[:10]]), np.concatenate([y[:290], y[:10]])  # ten copies
    given = data.Dataset(tuple("0123456789"), {"train": data.Split({"embedding": x}, y), "test": test})
    experiment = linear(C=(0.1, 1.0), metrics=("top1_error", "mrr"))
    experiment.sets = config.Sets("threshold")
    folder = tmp_path / "run"
    results = rank_training.train(experiment, folder, dataset=given, progress=False)
    assert (results["train_examples"], results["validation"]["examples"]) == (300, 300)

    task_data = rank_training.load_data(experiment, tmp_path, dataset=given)
    folds = task_data.folds
    np.testing.assert_array_equal(folds[:10], folds[290:])
    assert set(folds) == set(range(5))
    assert np.bincount(folds[:290]).min() >= 48
    wide = x.astype(np.float64)
    scale = np.sqrt(np.square(wide - wide.mean(axis=0)).sum(axis=1).mean())
    errors = {}
    for C in (0.1, 1.0):
        peer = sklearn.linear_model.LogisticRegression(C=C, tol=1e-8, max_iter=10_000)
        predicted = np.empty_like(y)
        for fold in range(5):
            peer.fit(wide[folds != fold] / scale, y[folds != fold])
            predicted[folds == fold] = peer.predict(wide[folds == fold] / scale)
        errors[C] = 100 * np.mean(predicted != y)
    C = (0.1, 1.0)[results["best_step"] - 1]
    assert results["validation"]["top1_error"] == pytest.approx(errors[C])
    peer = sklearn.linear_model.LogisticRegression(C=C, tol=1e-8, max_iter=10_000).fit(wide / scale, y)
    expected = peer.decision_function(wide / scale)
    np.testing.assert_allclose(
        scores_of(folder, x), expected - expected.mean(axis=1, keepdims=True), atol=1e-3
    )
    trained = restore(str(folder))
    assert trained.sets.examples.sum() == 300
    with pytest.raises(ValueError, match="split='validation': not in the data of the run; if its training"):
        trained.evaluate(dataclasses.replace(task_data, splits={"test": test}), "validation")
    experiment.optimizer = config.Optimizer("adam")
    with pytest.raises(
        ValueError, match="no 'validation'. Add it.*Without validation only optimizer 'lbfgs'"
    ):
        rank_training.train(experiment, tmp_path / "steps", dataset=given, progress=False)
