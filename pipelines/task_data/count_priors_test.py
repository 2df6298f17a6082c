"""Models of the number of classes: from the experiment to its metrics."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
import sklearn.metrics
import tensorflow as tf
from scipy.sparse import csr_array

import rank4class
from rank4class import data, losses, models
from rank4class.losses.ops import set_sizes
from rank4class.pipelines import config
from rank4class.pipelines.evaluation import model_building
from rank4class.pipelines.evaluation.model_building import new_model
from rank4class.pipelines.export.answers import Answers
from rank4class.pipelines.export.inputs_test import assert_takes_no_rows
from rank4class.pipelines.reporting import plots
from rank4class.pipelines.task_data import checks, count_priors
from rank4class.pipelines.training import rank_training
from rank4class.pipelines.training.rank_training_test import events_of

pytestmark = pytest.mark.usefixtures("generated_data")


def digits(**changes):
    base = {
        "data": config.Data(name="embedded_digits", num_examples=60, features="pixels"),
        "encoder": config.Encoder(name="identity"),
        "loss": config.Loss(name="n_choose_k"),
        "batch_size": 20,
        "evaluation_batch_size": 60,
        "epochs": 2.0,
        "metrics": ("nll", "exact_match", "precision@1"),
        "monitor": "nll",
        "count_prior": config.CountPrior(name="learned"),
    }
    return config.Experiment(**{**base, **changes})


def check(experiment, train):
    count_priors.get(experiment.count_prior).check_examples(experiment.loss, train)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    return rank_training.load_data(digits(), str(tmp_path_factory.mktemp("cache")))


def outputs_of(experiment, loaded, model):
    [(features, labels, _)] = loaded.evaluation_batches("test", experiment.evaluation_batch_size).take(1)
    return loaded.scorer(model, "test", count_priors.get(experiment.count_prior))(features), labels


def assert_likelihood(nll, experiment, loaded, model):
    """Asserts that a mean is that of the test examples by arithmetic; returns the outputs of the model."""
    outputs, labels = outputs_of(experiment, loaded, model)
    sizes = np.sum(labels, axis=1).astype(int)
    probabilities = np.exp(outputs.log_counts)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-4)
    if experiment.count_prior.name == "poisson_binomial":
        each = np.sum(tf.nn.sigmoid_cross_entropy_with_logits(labels, outputs.scores), axis=1)
    else:
        each = losses.n_choose_k(outputs.scores, labels) - np.log(probabilities[np.arange(60), sizes])
    assert nll == pytest.approx(np.mean(each), rel=1e-4)
    return outputs


@pytest.mark.nightly
@pytest.mark.parametrize(
    "prior",
    [
        config.CountPrior("empirical"),
        config.CountPrior("fixed", probabilities=(0.0, 0.25, 0.25, 0.25, 0.25)),
        config.CountPrior("poisson_binomial"),
    ],
    ids=lambda prior: prior.name,
)
def test_priors_without_weights_are_evaluated(loaded, prior):
    loss = "sigmoid_cross_entropy" if prior.name == "poisson_binomial" else "n_choose_k"
    experiment = digits(count_prior=prior, loss=config.Loss(loss))
    checks.check(experiment)
    model = new_model(experiment, loaded)
    evaluate = model_building.build_evaluators(experiment, loaded, model)["test"]
    evaluated = evaluate(loaded.evaluation_batches("test", experiment.evaluation_batch_size))
    assert_likelihood(evaluated.means()["nll"], experiment, loaded, model)


@pytest.fixture(scope="module")
def learned(loaded, tmp_path_factory):
    """Trains a prior with its model; returns the run."""
    experiment = digits(
        epochs=10.0,
        optimizer=config.Optimizer(learning_rate=3e-2),
        jit_compile=True,
        metrics=("nll", "exact_match", "subset_accuracy", "f1_micro"),
    )
    path = tmp_path_factory.mktemp("learned") / "run"
    rank_training.train(experiment, path, task_data=loaded, progress=False, draw=plots.draw_evaluation)
    return rank4class.load(path)


@pytest.mark.nightly
def test_a_prior_is_learned_and_decides(loaded, learned):
    results = learned.results["test"]
    outputs = assert_likelihood(results["nll"], learned.experiment, loaded, learned.model)
    assert np.exp(outputs.log_counts)[:, 0].mean() < 0.1  # every training image has a digit
    low, high = results["intervals"]["nll"]
    assert low < results["nll"] < high
    assert learned.history["loss"].iloc[-1] < 0.5 * learned.history["loss"][0]
    assert "test/number_of_classes" in events_of(learned.workdir)
    assert results["subset_accuracy"] == results["exact_match"]
    test = loaded.splits["test"]
    decided = learned.outputs(test.features["embedding"])["in_set"]
    expected = sklearn.metrics.f1_score(test.labels.toarray() > 0, decided, average="micro")
    assert results["f1_micro"] == pytest.approx(100.0 * expected)


@pytest.mark.nightly
def test_predictions_and_export_of_a_prior(learned, tmp_path):
    vectors = np.random.default_rng(0).random([3, 3600], np.float32)
    frame = learned.predict(vectors, k=10)
    names = list(learned.class_names)
    learned.export(tmp_path / "model")
    model = tf.saved_model.load(str(tmp_path / "model"))
    assert_takes_no_rows(model)
    answers = model.signatures["score"](embedding=vectors)
    np.testing.assert_allclose(np.sum(answers["counts"], axis=1), 1.0, rtol=1e-5)
    # The marginals sum to the mean of the number of classes.
    counts = np.arange(answers["counts"].shape[1])
    np.testing.assert_allclose(
        np.sum(answers["probabilities"], axis=1), answers["counts"].numpy() @ counts, rtol=1e-4
    )
    expected = set_sizes.most_probable(answers["scores"], tf.math.log(answers["counts"])).numpy()
    tables = frame.pivot(index="input", columns="class")
    np.testing.assert_array_equal(tables["in_set"][names], expected)
    np.testing.assert_allclose(tables["probability"][names], answers["probabilities"], rtol=1e-4)
    np.testing.assert_array_equal(tables["score"][names], learned.scores(vectors))
    assert (np.diff(frame["probability"].to_numpy().reshape(3, 10)) <= 1e-6).all()
    np.save(tmp_path / "vectors.npy", vectors)
    learned.predict_file(tmp_path / "vectors.npy", tmp_path / "out.tsv", k=2)
    table = pd.read_csv(tmp_path / "out.tsv", sep="\t")
    assert table["set_size"].tolist() == expected.sum(axis=1).tolist()
    one_left = {"embedding": tf.constant(vectors), "excluded": tf.constant([[False] + [True] * 9] * 3)}
    best = Answers(learned._trained).classify(one_left, 10)
    assert best["classes"].numpy().astype(str)[:, :1].tolist() == [names[:1]] * 3
    assert np.all(np.abs(best["probabilities"].numpy()[:, 0] - 0.5) <= 0.5)
    assert set(best["set_size"].numpy()) <= {0, 1}


def test_empirical_prior_equals_training_frequencies(loaded):
    experiment = digits(count_prior=config.CountPrior(name="empirical"))
    model = new_model(experiment, loaded)
    outputs, _ = outputs_of(experiment, loaded, model)
    sizes = loaded.splits["train"].labels.toarray().sum(axis=1)
    fractions = [np.mean(sizes == k) for k in range(5)]
    np.testing.assert_allclose(np.exp(outputs.log_counts), [fractions] * 60, atol=1e-6)


def of_sets(*rows):
    rows = csr_array(np.array(rows, np.float32))
    origins = np.array([f"file:{i}" for i in range(1, rows.shape[0] + 1)], object)
    return data.Split({}, rows, origins)


NONE = {"count_prior": config.CountPrior()}


@pytest.mark.parametrize(
    ("changes", "rows", "message"),
    [
        (NONE, ([1, 0], [0, 0]), r"file:2: an example without a class\. Loss 'n_choose_k' needs the number"),
        (
            {"count_prior": config.CountPrior("learned", most=1)},
            ([1, 0], [1, 1]),
            r"file:2: an example of 2 classes, which has probability 0 by count_prior\.most\. Change",
        ),
        (
            {"count_prior": config.CountPrior("learned", most=3)},
            ([1, 0], [1, 1]),
            r"count_prior\.most: counts up to 3, but there are 2 classes\. Lower it\.",
        ),
        (
            {"count_prior": config.CountPrior("fixed", probabilities=(0.0, 0.5, 0.5, 0.0))},
            ([1, 0], [1, 1]),
            r"count_prior\.probabilities: counts up to 3, but there are 2 classes\. Lower it\.",
        ),
        (
            {"count_prior": config.CountPrior("fixed", probabilities=(0.0, 1.0))},
            ([1, 0], [0, 0]),
            r"file:2: an example of 0 classes, which has probability 0 by count_prior\.probabilities\.",
        ),
        (NONE, ([1, 0], [0, 2]), r"file:2: a label of 2, not below loss\.levels=2\. Set loss\.levels=3\."),
        (
            {**NONE, "loss": config.Loss("n_choose_k", levels=4)},
            ([1, 0], [0, 3]),
            r"labels: the training labels are 1, 3\. Number the levels 1, 2, \.\.\. without a gap\.",
        ),
    ],
)
def test_training_examples_that_determine_no_weights(changes, rows, message):
    with pytest.raises(ValueError, match=message):
        check(digits(**changes), of_sets(*rows))


def test_examples_without_a_class_with_a_count_prior():
    for name in ("learned", "empirical", "poisson_binomial"):
        check(digits(count_prior=config.CountPrior(name)), of_sets([1, 0], [0, 0]))
    check(digits(**NONE, loss=config.Loss("softmax")), of_sets([1, 0], [0, 0]))


def test_single_labels_need_no_prior(tmp_path):
    single = data.Split({}, np.zeros(3, np.int32))
    message = r"count_prior='learned': each example of the dataset has one class\. Set it"
    with pytest.raises(ValueError, match=message):
        check(digits(), single)
    check(digits(count_prior=config.CountPrior()), single)
    experiment = config.Experiment(count_prior=config.CountPrior("empirical"))
    with pytest.raises(ValueError, match="count_prior='empirical': each example"):
        rank_training.train(experiment, tmp_path / "run", progress=False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"count_prior.name": "none"}, r"metrics='nll': it requires a count prior\. Set count_prior"),
        ({"count_prior.name": "fixed"}, r"count_prior\.probabilities: count_prior 'fixed' requires it\."),
        ({"count_prior.most": 0}, r"count_prior\.most=0: not an integer of at least 1\. Choose one\."),
        ({"loss.levels": 3}, r"loss\.levels=3: count prior 'learned' counts one level\. Set"),
    ],
)
def test_invalid_combinations(changes, message):
    with pytest.raises(ValueError, match=message):
        checks.check(config.override(digits(), changes))


@pytest.mark.nightly
def test_scores_without_excluded_classes(loaded):
    """Excluded classes do not take part in the sets of an example."""
    experiment = digits(count_prior=config.CountPrior(name="poisson_binomial"))
    excluded = np.zeros([60, 10], bool)
    excluded[:, 0] = True
    test = loaded.splits["test"]
    labels = test.labels.toarray() * ~excluded
    test = dataclasses.replace(test, labels=csr_array(labels), excluded=csr_array(excluded))
    again = dataclasses.replace(loaded, splits={**loaded.splits, "test": test})
    model = new_model(experiment, again)
    evaluate = model_building.build_evaluators(experiment, again, model)["test"]
    evaluated = evaluate(again.evaluation_batches("test", experiment.evaluation_batch_size), keep_scores=True)
    scores = evaluated.scores[:, 1:]
    expected = np.sum(tf.nn.sigmoid_cross_entropy_with_logits(labels[:, 1:], scores), axis=1)
    np.testing.assert_allclose(evaluated.values[:, 0], expected, rtol=1e-4)
    assert evaluated.log_counts.shape == (60, 11)
    assert (evaluated.log_counts[:, 10] == -np.inf).all()


@pytest.mark.nightly
def test_fit_with_keras():
    rng = np.random.default_rng(0)
    features = {"embedding": rng.normal(size=[256, 6]).astype(np.float32)}
    labels = (features["embedding"][:, :4] > 0.5).astype(np.float32)
    model = models.RankModel(
        models.get("encoder", "identity"),
        models.get("class_encoder", "embedding", num_classes=4, width=6),
        models.get("interaction", "dot"),
        num_classes=4,
        count_prior=models.get("count_prior", "learned", most=4),
    )
    parts = {"scores": losses.NChooseK(), "log_counts": losses.CountLikelihood()}
    model.compile(tf.keras.optimizers.Adam(0.03), loss=parts)
    targets = {"scores": labels, "log_counts": labels}
    history = model.fit(features, targets, epochs=20, verbose=0).history
    outputs = model(features)
    expected = losses.metrics.nll(outputs["scores"], labels, outputs["log_counts"])
    evaluated = model.evaluate(features, targets, return_dict=True, verbose=0)
    assert evaluated["loss"] == pytest.approx(np.mean(expected), rel=1e-4)
    assert evaluated["loss"] < 0.6 * history["loss"][0]
    predicted = set_sizes.most_probable(outputs["scores"], outputs["log_counts"])
    assert np.mean(np.all(predicted.numpy() == labels, axis=1)) > 0.5
