"""Exports with an index of ScaNN find the classes of the exact ones."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

import rank4class
from rank4class import compat
from rank4class.pipelines import config
from rank4class.pipelines.evaluation.calibration import Platt
from rank4class.pipelines.export import approximate
from rank4class.pipelines.export.answers import Answers

pytestmark = pytest.mark.usefixtures("generated_data")


def trained(path, **changes):
    base = {"data.num_examples": 40, "data.num_relevant": 20, "encoder.units": 16, "steps": 20}
    experiment = config.Experiment(
        data=config.Data(name="synthetic_retrieval", num_classes=2_000),
        encoder=config.Encoder(name="embedding"),
        optimizer=config.Optimizer(learning_rate=0.1),
        metrics=("recall@10",),
        monitor="recall@10",
    )
    return rank4class.train(config.override(experiment, {**base, **changes}), path, progress=False)


@pytest.mark.nightly
@pytest.mark.parametrize("interaction", ["dot", "cosine"])
def test_index_against_exact_scores(tmp_path, interaction, rng):
    pytest.importorskip("scann", reason="scann is not installed: pip install 'rank4class[scann]'")
    run = trained(tmp_path / "run", **{"interaction.name": interaction, "steps": 1})
    vectors = rng.normal(size=[40, 16])  # of instances, each near the vectors of 50 classes
    model = run._trained.model
    model.encoder.table.assign(vectors)
    model.class_encoder.table.assign(np.repeat(vectors, 50, axis=0) + 0.5 * rng.normal(size=[2_000, 16]))
    run.answers = Answers(run._trained)
    best = {}
    for index in ("exact", "scann"):
        run.export(tmp_path / index, k=10, index=index)
        classify = tf.saved_model.load(str(tmp_path / index)).signatures["classify"]
        best[index] = {name: value.numpy() for name, value in classify(id=tf.range(30)).items()}
    assert "probabilities" in best["exact"]
    assert set(best["scann"]) == {"classes", "scores"}
    hits = []
    exact = best["exact"]
    for i, (classes, scores) in enumerate(
        zip(best["scann"]["classes"], best["scann"]["scores"], strict=True)
    ):
        expected = dict(zip(exact["classes"][i], exact["scores"][i], strict=True))
        hits.append(np.mean([name in expected for name in classes]))
        for name, score in zip(classes, scores, strict=True):
            assert score == pytest.approx(expected.get(name, score), rel=1e-4)
        assert (np.diff(scores) <= 0).all()
    assert np.mean(hits) > 0.9
    again = approximate.ApproximateAnswers(run._trained, 10).classify({"id": tf.range(30)}, 10)
    np.testing.assert_array_equal(again["classes"], best["scann"]["classes"])


@pytest.mark.nightly
def test_models_that_cannot_be_searched(tmp_path, monkeypatch):
    few = {"data.num_classes": 50, "data.num_relevant": 6, "steps": None, "epochs": 0.0}
    few["calibration"] = "none"
    run = trained(tmp_path / "run", **few)
    for calibration in (Platt((-1.0,), (0.0,)), Platt((1.0,) * 50, (0.0,) * 50)):
        reordered = dataclasses.replace(run._trained, calibration=calibration)
        with pytest.raises(ValueError, match="index='scann': searches by scores, but the calibrated prob"):
            approximate.ApproximateAnswers(reordered, k=3)
    kept = dataclasses.replace(run._trained, calibration=Platt((2.0,), (0.0,)))
    with pytest.raises(ValueError, match=r"index='scann': 50 classes are fewer than 1,000\. Exact scores"):
        approximate.ApproximateAnswers(kept, k=3)
    with pytest.raises(ValueError, match=r"index='tree': unknown\. There are: exact, scann\."):
        run.export(tmp_path / "model", index="tree")
    monkeypatch.setattr(approximate, "MIN_CLASSES", 10)
    monkeypatch.setattr(compat, "_is_missing", lambda package: package == "scann")
    with pytest.raises(ImportError, match=r"scann: not installed\. .* pip install 'rank4class\[scann\]'"):
        run.export(tmp_path / "model", index="scann")
    run = trained(tmp_path / "mlp", **few, **{"interaction.name": "lc_mlp"})
    with pytest.raises(ValueError, match=r"index='scann': the interaction is 'lc_mlp', and only dot"):
        run.export(tmp_path / "model", index="scann")
    assert not (tmp_path / "model").exists()
