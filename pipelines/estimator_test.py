"""`RankClassifier`: scikit-learn's contract, the forms of data, and the same runs as those of the command."""

import copy
import gc
import importlib.util
import os
import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from scipy.sparse import csr_array, csr_matrix
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import rank4class
from rank4class import data
from rank4class.pipelines import config, estimator, estimator_data
from rank4class.pipelines.configs import digits_mlp
from rank4class.pipelines.estimator import RankClassifier
from rank4class.pipelines.export import prediction

RNG = np.random.default_rng(0)
IDS = np.arange(60) % 3
X = (3.0 * np.eye(3)[IDS] + RNG.normal(size=[60, 3])).round(3)
Y = np.array(["low", "high", "mid"])[IDS]
FRAME = pd.DataFrame(X, columns=["a", "b", "c"])
LISTS = [["x"], ["x", "y"], ["z"]] * 20


def fit(X=X, y=Y, validation_data=None, **parameters):
    tf.keras.backend.clear_session()
    return RankClassifier(**{"epochs": 10, **parameters}).fit(X, y, validation_data)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    return fit(FRAME, workdir=tmp_path_factory.mktemp("fitted") / "run")


@pytest.fixture(scope="module")
def several():
    return fit(y=LISTS, loss="sigmoid_cross_entropy")


@pytest.mark.nightly
def test_frames_of_unlike_columns():
    days = pd.Timestamp("2024-01-31") + pd.to_timedelta(IDS * 40 + np.arange(60), "D")
    frame = pd.DataFrame({"noise": X[:, 0] * 0, "day": days, "level": pd.Categorical(Y), "flag": IDS == 1})
    frame.loc[::7, ["day", "level"]] = None
    fitted = RankClassifier().fit(frame, Y)
    assert fitted.feature_names_in_.tolist() == ["noise", "day", "level", "flag"]
    assert (fitted.predict(frame) == Y).mean() > 0.9
    assert fitted.predict(frame[::-1])[::-1].tolist() == fitted.predict(frame).tolist()
    assert fitted.run_.predict(frame[:2], k=1)["class"].tolist() == fitted.predict(frame[:2]).tolist()
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.decision_function(frame), fitted.decision_function(frame))
    with pytest.raises(ValueError, match="X: a list. Give a DataFrame with the columns of the training."):
        fitted.predict([[0.0, "2024-01-31", "low", True]])
    fitted.fit(frame, Y, (frame[:9], Y[:9]))
    assert fitted.run_.results["validation"]["examples"] == 9


def test_predictions(fitted):
    assert fitted.classes_.tolist() == ["high", "low", "mid"]
    assert (fitted.n_features_in_, fitted.feature_names_in_.tolist()) == (3, ["a", "b", "c"])
    scores = fitted.decision_function(FRAME)
    probabilities = fitted.predict_proba(FRAME)
    np.testing.assert_array_equal(scores, fitted.run_.scores(X.astype(np.float32)))
    np.testing.assert_array_equal(fitted.predict(FRAME), fitted.classes_[scores.argmax(axis=1)])
    np.testing.assert_array_equal(scores.argsort(axis=1), probabilities.argsort(axis=1))
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-12)
    assert fitted.score(FRAME, Y) == accuracy_score(Y, fitted.predict(FRAME)) > 0.8
    best = fitted.predict_top_k(FRAME, k=2)
    order = np.argsort(-scores)[:, :2]
    np.testing.assert_array_equal(best.classes, fitted.classes_[order])
    np.testing.assert_array_equal(best.scores, np.take_along_axis(scores, order, axis=1))
    expected = np.take_along_axis(probabilities, order, axis=1)
    np.testing.assert_allclose(best.probabilities, expected, rtol=1e-6)


@pytest.mark.nightly
def test_prediction_sets(fitted):
    with pytest.raises(ValueError, match="coverage=0.9: the run has no prediction sets. .*'sets.name': 'thr"):
        fitted.predict_set(FRAME)
    with pytest.raises(
        ValueError, match="unknown=None: no unknown inputs are detected. Fit with unknown=0.05"
    ):
        fitted.predict_unknown(FRAME)
    calibrated = fit(epochs=3, validation_fraction=0.4, experiment={"sets.name": "threshold"})
    in_set = calibrated.predict_set(X, coverage=0.8)
    assert (in_set.shape, in_set.dtype) == ((60, 3), bool)
    assert in_set[np.arange(60), np.searchsorted(calibrated.classes_, Y)].mean() > 0.7
    frame = calibrated.run_.predict(X.astype(np.float32), coverage=0.8)
    expected = pd.crosstab(frame["input"], frame["class"]).reindex(range(60), fill_value=0)
    np.testing.assert_array_equal(in_set, expected[list(calibrated.classes_)] > 0)
    with pytest.raises(ValueError, match=r"^coverage=0\.99: needs 99 calibration examples, and there are 12"):
        calibrated.predict_set(X, coverage=0.99)


def test_a_run_has_its_validation_alone(fitted):
    results = fitted.run_.results
    assert "test" not in results
    assert (results["train_examples"], results["validation"]["examples"]) == (54, 6)
    assert results["best_step"] == results["steps"] == 17  # the only evaluation; ceil(10 * 54 / 32)
    with pytest.raises(ValueError, match="data='memory': the data were in memory"):
        fitted.run_.evaluate()


def test_a_workdir_belongs_to_one_fit(fitted):
    files = sorted(os.listdir(fitted.workdir))
    again = clone(fitted).fit(FRAME, Y)
    np.testing.assert_array_equal(again.decision_function(FRAME), fitted.decision_function(FRAME))
    with pytest.raises(ValueError, match=r"holds another experiment \(loss\.name is 'softmax' there and"):
        clone(fitted).set_params(loss="mse").fit(FRAME, Y)
    with pytest.raises(ValueError, match="made with other examples of the"):
        clone(fitted).fit(FRAME, Y[::-1])
    assert sorted(os.listdir(fitted.workdir)) == files


def test_a_notebook_shows_the_metrics(fitted):
    shown = fitted._repr_mimebundle_()["text/html"]
    assert "top1_error (%)" in shown
    assert "top1_error" not in RankClassifier()._repr_mimebundle_()["text/html"]


def test_weights_of_examples_and_classes(rng):
    x = rng.normal(size=[60, 3]).astype(np.float32)
    y = np.where(x[:, 0] + rng.normal(size=60) > 0, "b", "a")
    options = {"encoder": "identity", "optimizer": config.Optimizer("lbfgs", C=(1.0,), tol=1e-6)}
    copies = np.where(y == "b", 3, 1)
    held_out = (x[:5], y[:5])

    def scores(classifier, *data, **weights):
        return classifier.fit(*data, held_out, **weights).decision_function(x)

    weighted = scores(RankClassifier(**options), x, y, sample_weight=copies)
    by_class = scores(RankClassifier(class_weight={"b": 3}, **options), x, y)
    np.testing.assert_allclose(by_class, weighted, atol=1e-5)
    scale = np.sqrt(np.square(x - x.mean(axis=0)).sum(axis=1).mean())
    peer = LogisticRegression(tol=1e-8, C=2.0).fit(x / scale, y, sample_weight=copies)  # two vectors here
    np.testing.assert_allclose(weighted, peer.decision_function(x / scale), atol=5e-3)
    balanced = scores(RankClassifier(class_weight="balanced", **options), x, y)
    assert not np.allclose(balanced, weighted, atol=0.1)


def test_labels_of_pandas_keep_the_order_of_their_categories():
    x = np.arange(30.0)[:, None]
    y = pd.Categorical(["low", "mid", "high"] * 10, categories=["low", "mid", "none", "high"], ordered=True)
    for labels in (y, pd.Series(y)):
        classifier = RankClassifier().fit(x % 3, labels)
        assert classifier.classes_.tolist() == ["low", "mid", "high"]
        assert classifier.predict([[2.0], [0.0]]).tolist() == ["high", "low"]


def test_several_labels(several):
    assert several.classes_.tolist() == ["x", "y", "z"]
    decided = several.predict_proba(X) >= 0.5
    expected = [tuple(several.classes_[row]) for row in decided]
    assert several.predict(X) == expected
    assert several.score(X, LISTS) == np.mean(
        [list(row) == names for row, names in zip(expected, LISTS, strict=True)]
    )
    assert several.score(X, LISTS) > 0.6


def test_a_pickle_holds_the_run_and_its_folder_is_removed_with_it(several):
    copy = pickle.loads(pickle.dumps(several))
    folder = copy.run_.workdir
    assert folder != several.run_.workdir
    np.testing.assert_array_equal(copy.decision_function(X), several.decision_function(X))
    assert copy.run_.history.equals(several.run_.history)
    del copy
    gc.collect()
    assert not os.path.exists(folder)
    assert os.path.exists(several.run_.workdir)


def test_a_pickle_of_a_run_in_object_storage(several):
    for parent, folders, names in os.walk(several.run_.workdir):
        folders[:] = set(folders) - {"projector"}  # ram:// confuses it with projector_config.pbtxt
        folder = parent.replace(several.run_.workdir, "ram://pickled")
        tf.io.gfile.makedirs(folder)
        for name in names:
            tf.io.gfile.copy(os.path.join(parent, name), os.path.join(folder, name), overwrite=True)
    stored = copy.copy(several)
    stored.run_ = rank4class.load("ram://pickled")
    again = pickle.loads(pickle.dumps(stored))
    np.testing.assert_array_equal(again.decision_function(X), several.decision_function(X))


@pytest.mark.parametrize(
    ("y", "classes", "back"),
    [
        ([7, 5, 7], [5, 7], None),
        ([{"b"}, [], ("a", "b")], ["a", "b"], [("b",), (), ("a", "b")]),
        (pd.Series([["b"], [], ["a"]]), ["a", "b"], [("b",), (), ("a",)]),
        ([[0, 1], [1, 1], [0, 0]], [0, 1], [[0, 1], [1, 1], [0, 0]]),
        (csr_matrix([[0.0, 1.0], [1.0, 0.0]]), [0, 1], [[0.0, 1.0], [1.0, 0.0]]),
        (pd.DataFrame({"p": [0, 1], "q": [1, 1]}), ["p", "q"], [[0, 1], [1, 1]]),
    ],
)
def test_forms_of_labels(y, classes, back):
    encoder = estimator_data.label_encoder(y)
    labels = estimator_data.encode(encoder, y)
    assert encoder.classes_.tolist() == classes
    if back is None:
        assert labels.tolist() == [1, 0, 1]
        return
    assert len(data.Split({}, labels)) == len(back)  # which checks the matrix
    decoded = encoder.inverse_transform(labels.toarray() > 0)
    assert (decoded if isinstance(decoded, list) else csr_array(decoded).toarray().tolist()) == back


NAN = np.where(np.arange(180).reshape(60, 3) == 4, np.nan, X)


@pytest.mark.parametrize(
    ("X", "y", "parameters", "message"),
    [
        (X, Y[:-1], {}, r"inconsistent numbers of samples: \[60, 59\]"),
        (FRAME[:0], Y[:0], {}, r"Found array with 0 sample\(s\)"),
        (NAN, Y, {}, "Input X contains NaN"),
        (X, ["a"] * 60, {}, r"y: one class, 'a'\. Give two or more"),
        (X, X[:, 0], {}, "Unknown label type: continuous"),
        (X, [None, *Y[1:]], {}, r"y\[0\]=None: a missing label\. Remove the example"),
            (X, pd.Series([*LISTS[1:], None]), {}, r"y\[59\]=None: a missing label"),
        (X, pd.Series([pd.NA, *Y[1:]], dtype=object), {}, r"y\[0\]=<NA>: a missing label"),
        (FRAME.assign(t=X[:, 0].astype(str)), Y, {}, r"X: values of column 't' hardly repeat\. Leave it"),
        (FRAME, Y, {"text_column": "t"}, r"text_column='t': not a column of X\. It has: a, b, c"),
        (["a text", None], [0, 1], {}, r"X\[1\]=None: the model takes text\. Give strings"),
        (["a text", " "], [0, 1], {}, r"X\[1\]=' ': the text is empty"),
        (X[:4], [0, 0, 1, 1], {"validation_fraction": 0.1}, "y: no class has 3 examples, of which 1 is for"),
        (X, Y, {"validation_fraction": 1.0}, r"validation_fraction=1\.0: not in \(0, 1\)"),
        (X, Y, {"loss": "sofmax"}, r"loss='sofmax': unknown\. Did you mean 'softmax'"),
        (X, Y, {"experiment": {"los.k": 3}}, r"los\.k: no such field of an experiment"),
        (X, Y, {"encoder": "bert"}, r"encoder\.path: encoder 'bert' requires it\. Set it"),
        (X, Y, {"batch_size": 0}, r"batch_size=0: not positive"),
        (X, [1, *Y[1:]], {}, "y: texts and numbers. Give labels of one type"),
        ("a text", Y, {}, "X='a text': a single text. Give a list of texts"),
        (X, Y, {"class_weight": "equal"}, "class_weight='equal': unknown. Give 'balanced' or a dict"),
        (X, LISTS, {"class_weight": {"a": 2.0}}, "class_weight: a dict is for single labels"),
    ],
)  # fmt: skip
def test_bad_input_writes_nothing(X, y, parameters, message, tmp_path):
    with pytest.raises((ValueError, TypeError), match=message):
        RankClassifier(workdir=tmp_path / "run", **parameters).fit(X, y)
    assert not (tmp_path / "run").exists()


def test_other_columns_and_labels_than_those_of_the_fit(fitted):
    with pytest.raises(ValueError, match="feature names should match"):
        fitted.predict(FRAME.rename(columns={"c": "d"}))
    with pytest.raises(ValueError, match="previously unseen labels"):
        fit(validation_data=(X, ["other"] * 60))
    for weights in (np.ones(59), -np.ones(60), np.full(60, np.nan)):
        with pytest.raises(ValueError, match=r"sample_weight: not one|inconsistent numbers of samples"):
            RankClassifier().fit(X, Y, sample_weight=weights)


def test_predictions_of_other_sizes_are_not_traced_again(fitted):
    fitted.predict(FRAME[:7])
    answer = fitted.run_._predictor(prediction.ALL, False, None, None)._answer
    assert answer.experimental_get_tracing_count() == 1
    for size in (7, 3, 60, 1):
        fitted.predict(FRAME[:size])
        fitted.predict_proba(FRAME[:size])
    assert answer.experimental_get_tracing_count() == 1


# TensorFlow itself writes while it is imported and finds its devices.
SILENT = """
import sys
import rank4class, tensorflow as tf
from rank4class.pipelines import config
tf.zeros([])
encoder = config.Encoder("bert", path=sys.argv[1], frozen=True)
texts = ["great happy day", "awful bad mess"] * 10
classifier = rank4class.RankClassifier(encoder=encoder, epochs=1, experiment={"data.max_length": 32})
print("imported", file=sys.stderr, flush=True)
for _ in range(6):
    classifier.fit(texts, [1, 0] * 10)
    classifier.predict(texts[:3])
    classifier.predict_proba(texts)
    classifier.predict(texts)
"""


@pytest.mark.nightly
def test_fits_and_predictions_write_nothing_on_the_screen(tiny_bert):
    environment = {**os.environ, "RANK4CLASS_CACHE": "off"}
    del environment["TF_CPP_MIN_LOG_LEVEL"]
    command = [sys.executable, "-c", SILENT, tiny_bert]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (0, "")
    lines = ended.stderr.partition("imported\n")[2].splitlines()
    assert [line for line in lines if "oneDNN supports" not in line] == []  # of some processors


@pytest.mark.nightly
def test_texts_without_an_installed_encoder_have_their_words(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    texts = [f"{word} of {i}" for i in range(30) for word in ("refund", "login")]
    fitted = RankClassifier().fit(texts, [0, 1] * 30)
    assert fitted.run_.experiment.encoder.name == "words"
    assert fitted.run_.results["train_examples"] == fitted.run_.results["validation"]["examples"] == 60
    assert fitted.predict(["the login", "a refund"]).tolist() == [1, 0]
    assert pickle.loads(pickle.dumps(fitted)).predict(["my refunds"]).tolist() == [0]


BY_BATCHES = "an example of weight 2 is in one batch, and one that is repeated maybe in two"
EXPECTED = {
    "check_sample_weight_equivalence_on_dense_data": BY_BATCHES,
    "check_sample_weight_equivalence_on_sparse_data": BY_BATCHES,
    "check_methods_sample_order_invariance": "the last bit of a float32 score may depend on the example's "
    "place in a batch, by 5e-7; the check allows 1e-7",
}


@pytest.mark.nightly
@parametrize_with_checks([RankClassifier(epochs=5)], expected_failed_checks=lambda _: EXPECTED)
def test_scikit_learn_checks(estimator, check):
    """That of array API inputs runs with SCIPY_ARRAY_API=1 alone."""
    check(estimator)


@pytest.mark.nightly
def test_searches_and_pipelines():
    classifier = make_pipeline(StandardScaler(), RankClassifier(epochs=10))
    assert cross_val_score(classifier, FRAME, Y, cv=2).min() > 0.7
    grid = {"rankclassifier__loss": ["softmax", config.Loss("approx_ndcg", temperature=0.5)]}
    search = GridSearchCV(classifier, grid, cv=2, error_score="raise").fit(FRAME, Y)
    assert min(search.cv_results_["mean_test_score"]) > 0.7
    best = search.best_estimator_[-1]
    assert best.run_.experiment.loss == estimator._part(config.Loss, best.loss)


@pytest.mark.nightly
def test_digits_are_those_of_the_command(output_of, tmp_path):
    fields = {"epochs": 2.0, "encoder.hidden": (16,), "encoder.dropout": 0.2}
    flags = [f"--config.{name}={value}" for name, value in fields.items()]
    output_of("train", "--config=digits_mlp", f"--workdir={tmp_path / 'run'}", *flags)
    trained = rank4class.load(tmp_path / "run")
    splits = data.get("digits").splits
    experiment = config.override(digits_mlp.get_config(), fields)
    train, validation = (
        (splits[name].features["image"], splits[name].labels) for name in ("train", "validation")
    )
    digits = fit(
        *train,
        validation,
        encoder=experiment.encoder,
        optimizer=experiment.optimizer,
        batch_size=64,
        epochs=2,
        experiment={"evaluations_per_epoch": 1.0},
    )
    np.testing.assert_equal(digits.run_.model.get_weights(), trained.model.get_weights())
    assert digits.run_.results["validation"] == trained.results["validation"]
    assert 100.0 * (
        1.0 - digits.score(splits["test"].features["image"], splits["test"].labels)
    ) == pytest.approx(trained.results["test"]["top1_error"])
    digits.run_.export(tmp_path / "model")
    assert "| validation | 359" in (tmp_path / "model" / "README.md").read_text()


def drawings(count, size=20):
    """Returns noisy bars, crosses, squares and filled squares at random places, and their class."""
    rng = np.random.default_rng(0)
    labels = np.arange(count) % 5
    images = rng.normal(100.0, 20.0, [count, size, size, 3])
    for image, label, (top, left) in zip(images, labels, rng.integers(0, size - 8, [count, 2]), strict=True):
        shape = np.zeros([9, 9], bool)
        shape[4] = label in (0, 2)
        shape[:, 4] |= label in (1, 2)
        if label > 2:
            shape[:] = True
            shape[1:-1, 1:-1] = label == 4
        image[top : top + 9, left : left + 9][shape] += 60.0 * rng.choice([-1, 1])
    return images.clip(0, 255).astype(np.uint8), labels


@pytest.mark.nightly
def test_small_cnn_learns_a_few_drawings_at_random_places():
    images, labels = drawings(350)
    classifier = fit(images[:250], labels[:250], epochs=20)
    assert classifier.score(images[250:], labels[250:]) > 0.7  # chance is 0.2


@pytest.mark.nightly
def test_sparse_vectors_are_those_of_dense_ones():
    sparse = np.where(X > 1.0, X, 0.0)
    dense = csr_array(np.where(X > 1.0, X, 0.0))
    scores = [fit(rows, encoder="identity").decision_function(rows) for rows in (sparse, dense)]
    np.testing.assert_array_equal(*scores)


@pytest.mark.nightly
def test_a_frame_of_texts_and_no_texts(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    texts = ["where is it", "it is wrong"] * 9
    classifier = RankClassifier().fit(pd.DataFrame({"any": texts}), ["a", "b"] * 9)
    assert classifier.predict(pd.DataFrame({"any": texts[:2]})).tolist() == ["a", "b"]
    assert classifier.predict([]).shape == (0,)
    with pytest.raises(ValueError, match="X='it is wrong': a single text. Give a list of texts"):
        classifier.predict("it is wrong")


@pytest.mark.nightly
def test_a_frame_of_texts_and_other_columns(monkeypatch):
    monkeypatch.setattr(estimator, "_default_encoder", lambda X: config.Encoder("words"))
    texts = [f"{('great', 'awful')[i % 2]} day, number {i}" for i in range(40)]
    frame = pd.DataFrame({"size": [i // 2 % 2 for i in range(40)], "any": texts})
    y = [f"{text[0]}{size}" for text, size in zip(texts, frame["size"], strict=True)]
    classifier = RankClassifier().fit(frame, y)
    assert classifier.predict(frame).tolist() == y
    assert classifier.feature_names_in_.tolist() == ["size", "any"]
    assert classifier.predict(frame[:0]).shape == (0,)
    assert pickle.loads(pickle.dumps(classifier)).predict(frame[:3]).tolist() == y[:3]
    for X, message in (
        (texts, "X: a list. Give a DataFrame with the columns of the training"),
        (frame[["any"]], "X: a Series. Give a DataFrame"),
        (frame.assign(any=""), None),
    ):
        if message is None:
            assert classifier.predict(X).shape == (40,)
        else:
            with pytest.raises(ValueError, match=message):
                classifier.predict(X)
    with pytest.raises(ValueError, match=r"X\[0\]='': the text is empty"):
        RankClassifier().fit(frame.assign(any=["", *texts[1:]]), y)
    assert RankClassifier(text_column="any").fit(frame, y).score(frame, y) < 0.8


def test_texts(tiny_bert):
    frame = pd.DataFrame({"text": ["great happy day", "awful bad mess"] * 10, "other": range(20)})
    encoder = config.Encoder("bert", path=tiny_bert, frozen=True)
    fitted = fit(
        frame,
        [1, 0] * 10,
        text_column="text",
        encoder=encoder,
        learning_rate=0.1,
        epochs=50,
        experiment={"data.max_length": 32},
    )
    assert (
        fitted.predict(frame[:3]).tolist() == fitted.predict(frame["text"].tolist()[:3]).tolist() == [1, 0, 1]
    )
    assert not hasattr(fitted, "n_features_in_")


@pytest.mark.nightly
def test_a_folder_is_a_frozen_text_encoder_beside_words(tmp_path, write_bert_folder):
    words = ["<s>", "<pad>", "</s>", "[UNK]", "great", "happy", "day", "awful", "bad", "mess"]
    write_bert_folder(tmp_path / "encoder", words, kind="mpnet", layers=1)
    texts = ["great happy day", "awful bad mess", "happy day", "bad mess"] * 10
    fitted = RankClassifier(encoder=tmp_path / "encoder", experiment={"data.max_length": 16})
    fitted.fit(texts, [1, 0] * 20)
    experiment = fitted.run_.experiment
    assert (experiment.encoder.name, experiment.encoder.frozen, experiment.words) == ("mpnet", True, "auto")
    assert fitted.predict(texts[:3]).tolist() == [1, 0, 1]
    fitted.run_.export(tmp_path / "model", k=2)
    score = tf.saved_model.load(str(tmp_path / "model")).signatures["score"]
    expected = fitted.run_.scores(texts[:4])
    np.testing.assert_allclose(score(text=tf.constant(texts[:4]))["scores"], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.nightly
def test_count_priors_and_thresholds_decide():
    several = {"loss": "n_choose_k", "experiment": {"count_prior.name": "learned"}}
    thresholds = {"loss": "sigmoid_cross_entropy", "experiment": {"thresholds.name": "f1"}}
    y = pd.DataFrame([[name in names for name in "xyz"] for names in LISTS], columns=[*"xyz"]).astype(int)
    for parameters in (several, thresholds):
        fitted = fit(y=y, **parameters)
        np.testing.assert_array_equal(fitted.predict(X), fitted.run_.outputs(X)["in_set"])
        assert fitted.score(X, y) > 0.6
