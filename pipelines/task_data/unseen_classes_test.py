"""Classes without training examples: left out of training, ranked by their texts, and reported apart."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from rank4class import data
from rank4class.pipelines import config
from rank4class.pipelines.evaluation import trained_model
from rank4class.pipelines.evaluation.model_building import new_model
from rank4class.pipelines.reporting import tables
from rank4class.pipelines.storage.cache import Cache
from rank4class.pipelines.storage.run_directory import RunDirectory
from rank4class.pipelines.training import heads, rank_training

NAMES = ("great day", "awful mess", "the table", "happy")  # the second one is not trained


def dataset(several):
    rng = np.random.default_rng(0)

    def split(ids):
        labels = rng.choice(ids, 40).astype(np.int32)
        features = {"embedding": rng.normal(size=[40, 8]).astype(np.float32)}
        matrix = np.eye(4, dtype=np.float32)[labels] + np.eye(4, dtype=np.float32)[ids[0]]
        return data.Split(features, csr_array(np.minimum(matrix, 1.0)) if several else labels)

    return data.Dataset(
        NAMES, {"train": split([0, 2, 3]), "validation": split([3, 1]), "test": split([2, 1, 0])}
    )


def experiment(tiny_bert, several=False, **changes):
    return config.Experiment(
        **{
            "data": config.Data("memory", class_weights="balanced"),
            "encoder": config.Encoder("identity"),
            "class_encoder": config.ClassEncoder("frozen_text", path=tiny_bert),
            "loss": config.Loss("sigmoid_cross_entropy" if several else "softmax"),
            "batch_size": 20,
            "metrics": ("top1_error", "f1_micro"),
            "monitor": "top1_error",
            **changes,
        }
    )


@pytest.mark.parametrize("several", [pytest.param(False, marks=pytest.mark.nightly), True])
def test_training_leaves_them_out(several, tiny_bert, tmp_path):
    whole = dataset(several)
    loaded = rank_training.load_data(experiment(tiny_bert, several), tmp_path, dataset=whole)
    assert loaded.seen.tolist() == [0, 2, 3]
    assert [loaded.num_scored(split) for split in ("train", "validation", "test")] == [3, 4, 4]
    kept = whole.splits["train"].class_matrix(4).toarray()[:, [0, 2, 3]]
    np.testing.assert_array_equal(loaded.splits["train"].class_matrix(3).toarray(), kept)
    assert loaded.splits["test"] is whole.splits["test"]
    assert loaded.training_counts("test").tolist() == whole.splits["train"].class_counts(4).tolist()
    assert np.isfinite(loaded.class_weights).all()
    rows, classes = loaded.unseen("test")
    np.testing.assert_array_equal(rows, whole.splits["test"].class_matrix(4).toarray()[:, 1])
    assert classes.tolist() == [False, True, False, False]
    assert loaded.unseen("train") is None
    model = new_model(experiment(tiny_bert, several), loaded)
    [(features, _, _)] = loaded.evaluation_batches("test", 40)
    scores = model(features)
    np.testing.assert_array_equal(loaded.scorer(model, "test")(features).scores, scores)
    np.testing.assert_array_equal(
        loaded.scorer(model, "train")(features).scores, scores.numpy()[:, [0, 2, 3]]
    )


def test_class_encoders_without_texts_train_all_classes(tiny_bert, tmp_path):
    by_id = experiment(tiny_bert, class_encoder=config.ClassEncoder())
    assert rank_training.load_data(by_id, tmp_path, dataset=dataset(False)).seen is None


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("several", "changes"),
    [
        (False, {}),
        (True, {"thresholds": config.Thresholds("f1")}),
        (True, {"loss": config.Loss("n_choose_k"), "count_prior": config.CountPrior("empirical")}),
    ],
)
def test_results_report_them_apart(several, changes, tiny_bert, tmp_path):
    whole = dataset(several)
    trained = experiment(tiny_bert, several, epochs=0.0, **changes)
    results = rank_training.train(trained, tmp_path / "run", dataset=whole)["test"]
    unseen = whole.splits["test"].class_matrix(4).toarray()[:, 1]
    errors = RunDirectory(tmp_path / "run").test_values()["top1_error"]
    for name, rows in (("seen", ~unseen), ("unseen", unseen)):
        assert results[name]["examples"] == rows.sum()
        assert results[name]["top1_error"] == pytest.approx(100.0 * errors[rows].mean())
    hits = {name: results[name]["f1_micro"] for name in ("seen", "unseen")}
    low, high = sorted(hits.values())
    assert low <= results["f1_micro"] <= high  # of all classes
    header = tables.results_table({"test": results}).splitlines()[0]
    assert "test (40 examples)" in header
    assert f"test, seen classes ({np.sum(~unseen)} examples)  test, unseen classes (" in header
    assert results == RunDirectory(tmp_path / "run").results()["test"]


@pytest.mark.nightly
def test_vectors_of_names_are_not_trained_for_them(tiny_bert, tmp_path):
    names = config.ClassEncoder("embedding", init="names")
    encoder = config.Encoder("bert", path=tiny_bert, frozen=True)
    by_names = experiment(tiny_bert, class_encoder=names, encoder=encoder)
    texts = {
        split: {"text": np.array(["great day", "the table"] * 20, object)} for split in ("train", "test")
    }
    labels = np.array([0, 2] * 20, np.int32)
    splits = {split: data.Split(features, labels) for split, features in texts.items()}
    whole = data.Dataset(NAMES[:3], {**splits, "validation": splits["test"]})
    rank_training.train(by_names, tmp_path / "run", dataset=whole, progress=False)
    trained = trained_model.restore(tmp_path / "run").model.encode_classes().numpy()
    loaded = rank_training.load_data(by_names, tmp_path, dataset=whole)
    initial = heads.names(heads.Sources(loaded, "bert", 8, Cache(tmp_path), None)).vectors
    changed = np.abs(trained - initial).max(axis=1)
    assert changed[1] == 0.0
    assert changed[[0, 2]].min() > 0.0


@pytest.mark.parametrize(("classes", "held_out"), [({}, ()), ({"name": "frozen_text"}, ("ham",))])
def test_files_of_classes_that_cannot_be_ranked(classes, held_out, tiny_bert, tmp_path):
    (tmp_path / "mine.csv").write_text("".join(f"text {i},{('ham', 'jam')[i % 2]}\n" for i in range(40)))
    (tmp_path / "classes.txt").write_text("ham\nspan\njam\n")
    columns = {"text_column": "1", "label_column": "2", "held_out": held_out}
    paths = {"path": str(tmp_path / "mine.csv"), "classes": str(tmp_path / "classes.txt")}
    parts = {
        "data": config.Data("text_file", max_length=8, **columns, **paths),
        "encoder": config.Encoder("bert", path=tiny_bert),
        "class_encoder": config.ClassEncoder(**{"name": "embedding", **classes}),
    }
    with pytest.raises(ValueError, match=r"^data\.classes=.*classes\.txt: class 'span' has no training"):
        rank_training.load_data(experiment(tiny_bert, **parts), tmp_path)
