"""Models of instances with items to rank: from files of queries to trained runs."""

import dataclasses
import itertools
import pathlib

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import sklearn.metrics
import tensorflow as tf

import rank4class
from rank4class import models
from rank4class.data.datasets import letor
from rank4class.pipelines import config
from rank4class.pipelines.configs import letor_linear
from rank4class.pipelines.evaluation import baselines, evaluator, trained_model
from rank4class.pipelines.evaluation.model_building import new_model
from rank4class.pipelines.reporting import dataset_report
from rank4class.pipelines.task_data import checks, loading
from rank4class.pipelines.training import optimization, rank_training


@pytest.fixture(scope="module")
def queries(tmp_path_factory, write_queries):
    folder = tmp_path_factory.mktemp("fold")
    write_queries(folder)
    return str(folder)


def experiment_on(path, **changes):
    base = {"data.path": path, "epochs": 2.0, "metrics": ("ndcg@1", "ndcg@5"), "monitor": "ndcg@5"}
    return config.override(letor_linear.get_config(), {**base, **changes})


def padded(split, more):
    """Returns a split with `more` excluded items of random features at the end of each list."""
    size, length, width = split.features["items"].shape
    padding = np.random.default_rng(1).normal(size=[size, more, width]).astype(np.float32)
    items = np.concatenate([split.features["items"], padding], axis=1)
    labels = scipy.sparse.csr_array((split.labels.data, split.labels.indices, split.labels.indptr))
    labels.resize(size, length + more)
    excluded = np.pad(split.excluded.toarray(), [(0, 0), (0, more)], constant_values=True)
    return dataclasses.replace(
        split, features={"items": items}, labels=labels, excluded=scipy.sparse.csr_array(excluded)
    )


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["n_choose_k", "approx_ndcg"])  # `losses_test.py` masks items of every loss
def test_padding_does_not_change_loss_and_gradient(queries, rng, name):
    levels = {"loss.levels": 5} if name == "n_choose_k" else {}
    changes = {"batch_size": 24, "encoder.hidden": (3,), "loss.name": name, **levels}
    experiment = experiment_on(queries, **changes)
    shorter = rank_training.load_data(experiment, "")
    splits = {name: padded(split, 4) for name, split in shorter.splits.items()}
    names = (*shorter.class_names, "a", "b", "c", "d")
    longer = dataclasses.replace(shorter, splits=splits, class_names=names)
    weights = [rng.normal(size=w.shape) for w in new_model(experiment, shorter).get_weights()]
    results = []
    for loaded in (shorter, longer):
        model = new_model(experiment, loaded)
        model.set_weights(weights)
        loss = optimization.build_loss(experiment.loss, max_relevant=loaded.max_relevant("train"))
        features, labels, example_weights = next(
            iter(loaded.training_batches(experiment.batch_size, experiment.seed))
        )
        with tf.GradientTape() as tape:
            outputs = loaded.scorer(model, "train")(features, training=True)
            values = loss(tf.constant(0, tf.int64), labels, outputs, example_weights)
        results.append([values, *tape.gradient(values, model.trainable_variables)])
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_ndcg_of_padded_lists_equals_scikit_learn(queries):
    experiment = experiment_on(queries)
    loaded = rank_training.load_data(experiment, "")
    model = new_model(experiment, loaded)
    evaluated = evaluator.Evaluator(loaded.scorer(model, "test"), ("ndcg@3",))(
        loaded.read("test", experiment.evaluation_batch_size)
    )
    split = loaded.splits["test"]
    scores = split.features["items"] @ model.get_weights()[0][:, 0]
    for i, is_item in enumerate(~split.excluded.toarray()):
        gains = 2.0 ** split.labels.toarray()[i] - 1.0
        expected = sklearn.metrics.ndcg_score([gains[is_item]], [scores[i][is_item]], k=3)
        np.testing.assert_allclose(evaluated.values[i], expected, rtol=1e-5)


def train_and_restore(queries, path, **changes):
    """Trains, asserts that the restored model has the results of the run, and returns them."""
    results = rank_training.train(experiment_on(queries, **changes), path, progress=False)
    restored = trained_model.restore(path)
    assert isinstance(restored.model, models.ItemModel)
    assert restored.step == results["best_step"]
    evaluated = restored.evaluate(restored.load_task())
    assert evaluated.summarize()["ndcg@5"] == pytest.approx(results["test"]["ndcg@5"], abs=1e-4)
    return results


@pytest.mark.nightly
def test_training_finds_the_feature_that_determines_the_grade(queries, tmp_path):
    changes = {"epochs": 6.0, "optimizer.learning_rate": 0.1, "encoder.weight_decay": 1e-3}
    results = train_and_restore(queries, str(tmp_path / "run"), **changes)
    assert results["test"]["ndcg@5"] > 95.0


@pytest.mark.nightly
def test_training_on_tf_rankings_records_equals_that_on_rows(queries, tmp_path, write_records):
    folders = {"rows": pathlib.Path(queries)}
    for form in ("example_list_with_context", "sequence_example"):
        folders[form] = tmp_path / form
        folders[form].mkdir()
        for split in ("train", "vali", "test"):
            rows = letor.read_queries(f"{queries}/{split}.txt")
            lists = []
            for first, end in itertools.pairwise(rows.bounds):
                documents = zip(rows.values[first:end].toarray(), rows.grades[first:end], strict=True)
                named = [{"a": [x[0]], "b": x[1:], "relevance": [int(grade)]} for x, grade in documents]
                lists.append(({}, named))
            write_records(folders[form] / f"{split}.tfrecord", lists, form)
    results = {}
    scores = {}
    for form, folder in folders.items():
        changes = {"loss.name": "softmax"} | ({} if form == "rows" else {"data.feature_names": ("a", "b")})
        run = rank4class.train(
            experiment_on(str(folder), **changes), tmp_path / f"run_{form}", progress=False
        )
        results[form] = [run.results[name]["ndcg@5"] for name in ("validation", "test")]
        test = folder / ("test.txt" if form == "rows" else "test.tfrecord")
        run.predict_file(test, tmp_path / f"{form}.jsonl")
        predictions = pd.read_json(tmp_path / f"{form}.jsonl", lines=True)
        scores[form] = predictions[["classes", "scores"]].to_dict()
        evaluated = rank4class.load(tmp_path / f"run_{form}").evaluate()
        assert evaluated["ndcg@5"] == results[form][1]
    for form in folders:
        assert results[form] == results["rows"]
        assert scores[form] == scores["rows"]


@pytest.mark.nightly
def test_train_and_restore_with_options(queries, tmp_path):
    changes = {"encoder.hidden": (8,), "encoder.dropout": 0.2, "jit_compile": True, "accumulation_steps": 2}
    changes |= {"precision": "mixed_bfloat16", "data.cache": True, "data.max_examples": 8}
    changes |= {"loss.name": "softmax"}  # XLA compiles it faster than the other one
    train_and_restore(queries, str(tmp_path / "run"), **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encoder.dropout": 0.5}, "dropout=0.5: there are no hidden layers"),
        ({"loss.levels": None}, r"loss\.levels=None: expected int\. Change its type\."),
        ({"data.class_weights": "balanced"}, r"data\.class_weights='balanced': the classes of dataset"),
    ],
)
def test_errors_before_training(queries, tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        rank_training.train(experiment_on(queries, **changes), tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"interaction.name": "lc_mlp"}, r"interaction\.name='lc_mlp': encoder 'items' is a whole model, in"),
        ({"interaction.use_bias": False}, r"interaction\.use_bias=False: encoder 'items' is a whole model,"),
        ({"class_encoder.init": "zeros"}, r"class_encoder\.init='zeros': encoder 'items' is a whole"),
        ({"encoder.frozen": True}, r"encoder\.frozen: encoder 'items' has no such option\. Choose an entry"),
    ],
)
def test_fields_without_effect_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        checks.check(experiment_on("nowhere", **changes))


@pytest.mark.nightly
def test_training_on_real_files_is_better_than_chance(real_data, tmp_path):
    experiment = experiment_on(real_data("ltr"), **{"encoder.weight_decay": 0.1})
    results = rank_training.train(experiment, tmp_path / "run", progress=False)
    random_order = baselines.random_order(loading.read_dataset(experiment.data).splits["test"], ["ndcg@5"])
    assert results["test"]["intervals"]["ndcg@5"][0] > random_order["ndcg@5"]


def test_dataset_summary_by_hand(tmp_path):
    rows = "2 qid:1 1:1\n0 qid:1 1:2\n1 qid:2 2:1\n0 qid:2 3:1\n0 qid:2 3:2\n"
    for name, content in (("train", rows), ("vali", "0 qid:3 1:1\n"), ("test", "1 qid:4 1:5\n0 qid:4 1:6\n")):
        (tmp_path / f"{name}.txt").write_text(content)
    experiment = experiment_on(str(tmp_path))
    report = dataset_report.Report(experiment, loading.read_dataset(experiment.data))
    text = " ".join(report.text().split())
    for part in (
        "lists of up to 3 items with 3 features each.",
        "split examples items relevant items, mean no relevant items",
        "train 2 2 / 3 / 3 1.00 0 validation 1 1 / 1 / 1 0.00 1 test 1 2 / 2 / 2 1.00 0",
        "0 3 1 1 60.00 100.00 50.00 1 1 0 1 20.00 0.00 50.00 2 1 0 0 20.00 0.00 0.00",
        "mean over all orders test 50.00 81.55",
    ):
        assert part in text, text
    (tmp_path / "report").mkdir()
    assert "<h2>Lists</h2>" in pathlib.Path(report.write(str(tmp_path / "report"))).read_text()
