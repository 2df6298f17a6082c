"""Predictions for other class frequencies than those of the training."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
from scipy.special import log_softmax, softmax

import rank4class
from rank4class import data
from rank4class.pipelines import config
from rank4class.pipelines.evaluation.calibration import Platt, Temperature

NAMES = [str(i) for i in range(10)]
FREQUENCIES = np.arange(1.0, 11.0)


@pytest.fixture
def prior(tmp_path):
    lines = [f"{name}\t{value}\n" for name, value in zip(NAMES, FREQUENCIES, strict=True)]
    (tmp_path / "prior.tsv").write_text("".join(lines[::-1]))
    return tmp_path / "prior.tsv"


def changed(run, *, described=None, **changes):
    """Returns the run with changes of what it has stored, and of its fields."""
    parts = {name: changes.pop(name) for name in ("calibration",) if name in changes}
    parts["description"] = dataclasses.replace(run._trained.description, **(described or {}))
    parts["experiment"] = config.override(run.experiment, changes)
    other = rank4class.load(run.workdir)
    other._trained = dataclasses.replace(run._trained, **parts)
    return other


def table_of(frame, column):
    return frame.pivot(index="input", columns="class", values=column)[NAMES].to_numpy()


@pytest.mark.parametrize("tau", [0.0, 0.25, 1.0])
def test_posteriors_of_the_new_frequencies(digits_run, images, prior, tau):
    counts = np.arange(20, 0, -2)
    stored = {"training_counts": counts}
    run = changed(
        digits_run, described=stored, calibration=Temperature(2.0), **{"loss.prior_temperature": tau}
    )
    # The likelihoods p(x | y) that the scores have, for frequencies to the power 1 - tau.
    log_likelihoods = log_softmax(run.scores(images) / 2.0, axis=1) - (1 - tau) * np.log(
        counts / counts.sum()
    )
    for name, frequencies in (("uniform", np.ones(10)), (prior, FREQUENCIES)):
        frame = run.predict(images, k=10, prior=name)
        expected = softmax(log_likelihoods + np.log(frequencies), axis=1)
        np.testing.assert_allclose(table_of(frame, "probability"), expected, rtol=1e-3, atol=1e-6)
        np.testing.assert_allclose(softmax(table_of(frame, "score") / 2.0, axis=1), expected, atol=1e-5)
        assert frame[frame["rank"] == 1]["class"].astype(int).tolist() == expected.argmax(axis=1).tolist()
    assert (
        run.predict(images, 1)["class"].tolist() == run.predict(images, 1, prior="uniform")["class"].tolist()
    ) == (tau == 1.0)


def test_files_and_changes_of_the_frequencies(digits_run, images, prior, tmp_path):
    np.save(tmp_path / "images.npy", images[:40])
    output = tmp_path / "out.jsonl"
    digits_run.predict_file(tmp_path / "images.npy", output, k=2, prior=prior)
    first = pd.read_json(output, lines=True)["classes"].tolist()
    prior.write_text("".join(f"{name}\t1\n" for name in NAMES))
    digits_run.predict_file(tmp_path / "images.npy", output, k=2, prior=prior)
    uniform = digits_run.predict(images[:40], k=2, prior="uniform").groupby("input")["class"].apply(list)
    assert pd.read_json(output, lines=True)["classes"].tolist() == uniform.tolist() != first
    counts = np.bincount(data.get("digits").splits["train"].labels)
    assert digits_run._trained.description.training_counts.tolist() == counts.tolist()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"calibration": None}, r"prior: the run has no temperature\. Train with calibration='auto'"),
        ({"calibration": Platt((1.0,), (0.0,))}, r"prior: it needs examples of one class each\. Leave it"),
        ({"count_prior.name": "empirical"}, r"prior: it needs examples of one class each\. Leave it out"),
        ({"data.class_weights": "balanced"}, r"prior: data\.class_weights has changed the frequencies\."),
        ({"described": {"seen": np.arange(9)}}, r"prior: some classes have no training example\. Leave it"),
    ],
)
def test_runs_that_have_no_posteriors(digits_run, images, changes, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        changed(digits_run, **changes).predict(images[:1], prior="uniform")


@pytest.mark.parametrize(
    ("last", "message"),
    [
        ("9\t0\n", r"prior\.tsv:10: frequency '0' is not a number from 1e-30 to 3e38\. Correct it"),
        ("9\tnan\n", r"prior\.tsv:10: frequency 'nan' is not a number"),
        ("", r"prior\.tsv: no frequency of 9\. Add a line for each"),
        (None, r"prior\.tsv: no such file\. Check the path\."),
    ],
)
def test_invalid_frequencies(digits_run, images, tmp_path, last, message):
    path = tmp_path / "prior.tsv"
    if last is not None:
        path.write_text("".join(f"{name}\t0.1\n" for name in NAMES[:9]) + last)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        digits_run.predict(images[:1], prior=path)


def test_prediction_sets_hold_for_the_training_frequencies(digits_run, images):
    with pytest.raises(ValueError, match=r"^coverage=0\.9: it holds for the training frequencies\. Leave"):
        digits_run.predict(images[:1], coverage=0.9, prior="uniform")
