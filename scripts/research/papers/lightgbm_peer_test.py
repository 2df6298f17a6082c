"""LightGBM as a peer: it learns generated queries, and its metrics are those of our evaluations."""

import json

import numpy as np
import pytest
import scipy.sparse
import sklearn.metrics

from rank4class import data
from rank4class.pipelines import config
from rank4class.scripts.research.papers import lightgbm_peer

lightgbm = pytest.importorskip("lightgbm", reason="the optional package lightgbm is not installed")


def test_lightgbm_learns_the_grades(write_queries, tmp_path, monkeypatch):
    write_queries(tmp_path)
    letor = config.Data(name="letor", path=str(tmp_path))
    experiment = config.Experiment(data=letor, monitor="ndcg@5", metrics=("ndcg@5", "mrr"))
    monkeypatch.setattr(lightgbm_peer, "LEAVES", (7,))
    lightgbm_peer.train(experiment, tmp_path / "peer", seeds=[0, 1])
    study = json.loads((tmp_path / "peer" / "study.json").read_text())
    metrics = study["test"][lightgbm_peer.TITLE]
    assert np.shape(metrics["ndcg@5"]) == (2, 9)
    assert np.mean(metrics["ndcg@5"]) > 90.0
    assert study["sessions"][0]["packages"]["lightgbm"] == lightgbm.__version__
    assert len(study["test_hash"]) == 64
    assert study["examples"] == {"train": 24, "validation": 8, "test": 9}
    assert study["notes"] in (
        [f"{lightgbm_peer.TITLE}: learning rate={rate} is at the {end} end of the values tried"]
        for rate, end in ((0.03, "low"), (0.1, "high"))
    )
    for changes, seeds, message in (
        ({}, [0, 0], "^seed=0: repeated, so its training would count twice"),
        ({"data.max_train_examples": 12}, [0, 1], "the result of a study of other data or seeds"),
        ({"monitor": "mrr"}, [0], "monitor='mrr': LightGBM stops by the NDCG of the first K. Use"),
        (
            {"metrics": ("ndcg@5", "nll"), "count_prior.name": "empirical"},
            [0],
            "metrics='nll': is not a function of scores. Leave it out",
        ),
        ({"data.name": "digits", "metrics": ("ndcg@5",)}, [0], "data.name='digits': no documents with"),
    ):
        with pytest.raises(ValueError, match=message):
            lightgbm_peer.train(config.override(experiment, changes), tmp_path / "peer", seeds=seeds)


def test_values_are_those_of_scikit_learn():
    class FirstFeature:
        def predict(self, items):
            return items[:, 0]

    rng = np.random.default_rng(0)
    items = rng.normal(size=[5, 6, 2]).astype(np.float32)
    grades = rng.integers(0, 5, size=[5, 6])
    split = data.Split({"items": items}, scipy.sparse.csr_array(grades.astype(np.float32)))
    values = lightgbm_peer._values(FirstFeature(), split, ["ndcg@6"])["ndcg@6"]
    expected = [sklearn.metrics.ndcg_score([2.0 ** grades[i] - 1], [items[i, :, 0]]) for i in range(5)]
    np.testing.assert_allclose(values, expected, rtol=1e-5)
