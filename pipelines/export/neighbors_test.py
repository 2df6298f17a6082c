"""Nearest training examples from the data of a run to its answers, and those of a fit in memory."""

import pickle

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import rank4class
from rank4class import data
from rank4class.pipelines import config, configs
from rank4class.pipelines.evaluation import neighbors


def test_blocks_find_what_a_model_finds(rng, monkeypatch):
    monkeypatch.setattr(neighbors, "_BLOCK", 3)
    vectors = rng.normal(size=[20, 4])
    queries = rng.normal(size=[7, 4])
    split = data.Split({}, np.arange(20) % 3)
    stored = neighbors.Neighbors.of(vectors, split, ["a", "b", "c"])
    stored = neighbors.Neighbors.from_arrays(stored.to_arrays())
    found = stored.find(tf.constant(queries), 5)
    ids, cosines = neighbors.nearest(queries, vectors, 5)
    expected = vectors @ queries[0] / np.linalg.norm(vectors, axis=1) / np.linalg.norm(queries[0])
    np.testing.assert_array_equal(ids[0], np.argsort(-expected)[:5])
    np.testing.assert_allclose(cosines[0], np.sort(expected)[::-1][:5])
    np.testing.assert_allclose(found["similarities"], cosines, atol=1e-6)
    assert found["neighbors"].numpy()[0].tolist() == [f"example {i}".encode() for i in ids[0]]
    assert found["neighbor_classes"].numpy()[0].tolist() == ["abc"[i % 3].encode() for i in ids[0]]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Returns a run on a table of two columns of numbers with a label or two."""
    folder = tmp_path_factory.mktemp("neighbors")
    points = np.random.default_rng(0).normal(size=[120, 2])
    names = np.where(points[:, 0] > 0, np.where(points[:, 1] > 0, "right;up", "right"), "left")
    pd.DataFrame({"x": points[:, 0], "y": points[:, 1], "label": names}).to_csv(folder / "t.csv", index=False)
    changes = {"data.path": str(folder / "t.csv"), "data.label_separator": ";", "encoder.name": "identity"}
    changes |= {"loss.name": "sigmoid_cross_entropy", "steps": 2}
    experiment = config.override(configs.get_config("table_mlp"), changes)
    return rank4class.train(experiment, folder / "run", progress=False)


def test_a_run_encodes_its_training_examples_once(run, tmp_path):
    table = pd.read_csv(run.experiment.data.path)
    row = table.iloc[1]
    found = run.neighbors([[row.x, row.y], [-row.x, -row.y]], k=3)
    assert found["rank"].tolist() == [1, 2, 3] * 2
    first = found[found["input"] == 0]
    assert first["similarity"].is_monotonic_decreasing
    for each in first.itertuples():
        place, number = each.neighbor.rsplit(":", 1)
        assert place == run.experiment.data.path
        assert each._4 == table["label"][int(number) - 2].replace(";", ", ")
        other = table.iloc[int(number) - 2]
        cosine = (other.x * row.x + other.y * row.y) / np.hypot(other.x, other.y) / np.hypot(row.x, row.y)
        assert each.similarity == pytest.approx(cosine, abs=1e-5)
    run.predict_file(run.experiment.data.path, tmp_path / "p.tsv", neighbors=2, k=1)
    written = pd.read_csv(tmp_path / "p.tsv", sep="\t")
    names = [f"{name}_{i}" for i in (1, 2) for name in ("neighbor", "neighbor_class", "similarity")]
    assert set(names) <= set(written)
    np.testing.assert_allclose(written["similarity_1"][1], first["similarity"].iloc[0], atol=1e-5)
    run.export(tmp_path / "model", neighbors=2)
    served = tf.saved_model.load(str(tmp_path / "model")).signatures["serving_default"]
    answers = served(embedding=tf.constant(table[["x", "y"]].to_numpy(np.float32)))
    assert answers["neighbors"].numpy()[:, 0].astype(str).tolist() == written["neighbor_1"].tolist()


def test_errors(run, tmp_path):
    with pytest.raises(ValueError, match="neighbors=0: not an integer in 1"):
        run.neighbors([[0.0, 1.0]], k=0)
    with pytest.raises(
        ValueError, match="index='scann': has neither prediction sets nor neighbors. Set it to"
    ):
        run.export(tmp_path / "model", index="scann", neighbors=1)
    with pytest.raises(
        ValueError, match="exports no classes. Leave out top_k, coverage, index and neighbors"
    ):
        run.export(tmp_path / "model", format="huggingface", neighbors=1)


@pytest.mark.nightly
def test_a_fit_in_memory_keeps_them_also_when_pickled():
    texts = ["the parcel is late", "where is my parcel", "the bill is wrong", "please pay the bill"] * 4
    classifier = rank4class.RankClassifier(encoder="words", store_neighbors=True)
    classifier.fit(texts, ["post", "post", "bills", "bills"] * 4)
    restored = pickle.loads(pickle.dumps(classifier))
    for each in (classifier, restored):
        found = each.neighbors(["pay my bill"], k=2)
        assert found["neighbor"].tolist() == ["please pay the bill"] * 2
        assert found["class"].tolist() == ["bills"] * 2
    classifier.store_neighbors = False
    with pytest.raises(ValueError, match="store_neighbors=False: .* Fit with store_neighbors=True"):
        classifier.neighbors(["pay"])
