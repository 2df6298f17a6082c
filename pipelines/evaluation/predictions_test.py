import dataclasses
import io
import json
import os
import tracemalloc

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from scipy.sparse import csr_array

from rank4class import data
from rank4class.pipelines.evaluation import evaluator, per_class, predictions
from rank4class.pipelines.evaluation.split_metrics import SplitMetrics
from rank4class.pipelines.reporting import tables
from rank4class.pipelines.storage import files
from rank4class.pipelines.task.task import ModelOutputs

NAMES = ("top1_error", "mean_rank")


def evaluated(n=4, size=30, labels=None, origins=True):
    """Returns an evaluated split: `(result, split, class_names)`."""
    rng = np.random.default_rng(0)
    labels = rng.integers(n - 1, size=size).astype(np.int32) if labels is None else labels
    scores = rng.normal(size=[size, n]).astype(np.float32)
    origins = np.array([f"test.tsv:{i}" for i in range(1, size + 1)], object) if origins else None
    split = data.Split({"image": scores}, labels, origins)
    evaluate = evaluator.Evaluator(lambda features, training: ModelOutputs(features["image"]), NAMES)
    result = evaluate(data.evaluation_batches(split, batch_size=7), keep_scores=True)
    return result, split, tuple(f"class\t{i}" for i in range(n))


def written(folder, result, split, class_names):
    files.make_writable(folder)
    table = per_class.per_class(result, split.labels, class_names)
    predictions.write(folder, {"step": 3}, table, result, split, class_names)
    return f"{folder}/predictions.npz"


def test_best_values_of_propensity_scored_metrics_are_read_again(tmp_path):
    result, split, class_names = evaluated()
    best = {"psp@1": np.linspace(0.5, 1.5, 30), "psr@3": np.linspace(1.5, 0.5, 30)}
    result = dataclasses.replace(result.with_metrics(best), whole=SplitMetrics(best))
    path = written(str(tmp_path), result, split, class_names)
    np.testing.assert_array_equal(predictions.read(path).best_values, np.transpose([*best.values()]))


@pytest.mark.parametrize("where", ["disk", "ram"])
def test_written_predictions_are_read_again(tmp_path, where):
    folder = str(tmp_path / "deep" / "out") if where == "disk" else "ram://evaluation/out"
    result, split, class_names = evaluated()
    path = written(folder, result, split, class_names)
    scored = predictions.read(path)
    np.testing.assert_array_equal(scored.values, result.values)
    assert scored.values.dtype == np.float32
    with np.load(io.BytesIO(files.read_bytes(path))) as npz:
        np.testing.assert_array_equal(npz["scores"], result.scores)
    np.testing.assert_array_equal(scored.labels, split.labels)
    assert scored.origins.tolist() == split.origins.tolist()
    assert scored.class_names.tolist() == list(class_names)
    assert scored.metrics.tolist() == list(NAMES)
    assert files.names_in(folder) == ["classes.tsv", "evaluation.json", "predictions.npz"]
    assert json.loads(files.read_text(f"{folder}/evaluation.json")) == {"step": 3}


def test_labels_of_several_classes_are_read_again(tmp_path):
    several = csr_array(np.random.default_rng(0).integers(2, size=[30, 4]).astype(np.float32))
    path = written(str(tmp_path), *evaluated(labels=several))
    labels = predictions.read(path).labels
    assert labels.dtype == np.float32
    np.testing.assert_array_equal(labels.toarray(), several.toarray())


def test_classes_tsv(tmp_path):
    result, split, class_names = evaluated()
    written(str(tmp_path), result, split, class_names)
    header, *rows = (line.split("\t") for line in (tmp_path / "classes.tsv").read_text().splitlines())
    assert [row[0] for row in rows] == [f"class\\t{i}" for i in range(4)]  # tabs in names are escaped
    assert all(len(row) == len(header) for row in rows)
    first = dict(zip(header, rows[0], strict=True))
    of_first = result.values[split.labels == 0]
    assert int(first["examples"]) == len(of_first)
    assert float(first["top1_error (%)"]) == pytest.approx(100 * of_first[:, 0].mean(), abs=1e-4)
    assert float(first["mean_rank"]) == pytest.approx(of_first[:, 1].mean(), abs=1e-4)
    assert first["mean_rank low"] == "-"
    assert rows[3][1:8] == ["0", "-", "-", "-", "-", "-", "-"]  # no examples of this class
    count, name = int(first["most confused count"]), first["most confused with"]
    errors = result.top_classes[split.labels == 0]
    assert count == np.bincount(errors[errors != 0]).max() == np.sum(errors == int(name[-1]))
    assert rows[3][-2:] == ["-", "0"]


def test_names_of_classes_are_not_quoted(tmp_path):
    names = ('say "no"', "it's", "a\\b", " # 1", "é", "NA", '"no"')
    result, split, _ = evaluated(n=len(names))
    written(str(tmp_path), result, split, names)
    _, *rows = (line.split("\t") for line in (tmp_path / "classes.tsv").read_text().splitlines())
    written_names = [*names[:-1], '\\"no"']  # readers would take a quote at the start for that of CSV
    assert [row[0] for row in rows] == written_names
    assert {row[-2] for row in rows} <= {*written_names, "-"}
    assert len(pd.read_csv(tmp_path / "classes.tsv", sep="\t")) == len(names)


def test_class_table_keeps_the_order_of_rows():
    result, split, class_names = evaluated()
    table = per_class.per_class(result, split.labels, class_names)
    text = tables.class_table(table.loc[[3, 0]], NAMES)
    header, _, last, first = text.splitlines()
    assert header.split()[:3] == ["class", "examples", "top1_error"]
    assert last.split()[:4] == ["class\\t3", "0", "-", "-"]
    assert first.startswith("class\\t0")
    assert "nan" not in text


def test_examples_without_an_origin_and_without_scores(tmp_path):
    result, split, class_names = evaluated(origins=False)
    result = evaluator.EvaluationResult(
        result.names, result.values, result.top_classes, result.right, result.ranks
    )
    path = written(str(tmp_path), result, split, class_names)
    assert predictions.read(path).origins[:2].tolist() == ["example 0", "example 1"]
    with np.load(path) as npz:
        assert "scores" not in npz.files


def test_best_classes_of_many(tmp_path):
    result, split, class_names = evaluated(n=300)
    best = np.argsort(-result.scores, axis=1)[:, :100].astype(np.int32)
    best_scores = np.take_along_axis(result.scores, best, axis=1)
    result = dataclasses.replace(result, scores=None, best_classes=best, best_scores=best_scores)
    path = written(str(tmp_path), result, split, class_names)
    with np.load(path) as npz:
        np.testing.assert_array_equal(npz["best_classes"], best)
        np.testing.assert_array_equal(npz["best_scores"], best_scores)
        assert "scores" not in npz.files


def test_failed_writes_keep_complete_files(tmp_path, monkeypatch):
    result, split, class_names = evaluated()
    path = written(str(tmp_path), result, split, class_names)
    before = files.read_bytes(path)

    write = tf.io.gfile.GFile.write

    def full(self, content):
        write(self, content)
        raise tf.errors.ResourceExhaustedError(None, None, "no space left")

    files.make_writable(str(tmp_path))
    table = per_class.per_class(result, split.labels, class_names)
    with monkeypatch.context() as patch:
        patch.setattr(tf.io.gfile.GFile, "write", full)
        with pytest.raises(OSError, match="predictions.npz: no space left"):
            predictions.write(str(tmp_path), {}, table, result, split, class_names)
    assert files.read_bytes(path) == before
    assert sorted(os.listdir(tmp_path)) == ["classes.tsv", "predictions.npz"]  # no evaluation.json


def test_check_size():
    predictions.check_size(50_000, 20_000)
    with pytest.raises(
        ValueError, match=r"keep_scores=True: .*50,000 examples and 20,001 .* 4.0 GB.*Leave it out"
    ):
        predictions.check_size(50_000, 20_001)


@pytest.mark.parametrize("damage", ["cut short", "text", "no labels"])
def test_damaged_files_are_refused(tmp_path, damage):
    path = written(str(tmp_path), *evaluated(n=40))
    content = files.read_bytes(path)
    if damage == "no labels":
        with np.load(path) as npz:
            np.savez(path, **{name: array for name, array in npz.items() if name != "labels"})
    else:
        files.write(path, {"cut short": content[:-100], "text": b"no file\n"}[damage])
    with pytest.raises(ValueError, match="predictions.npz: damaged, or not written by rank4class evaluate"):
        predictions.read(path)


def test_writing_does_not_copy_the_scores(tmp_path):
    size, n = 10_000, 1_000
    scores = np.ones([size, n], np.float32)  # 40 MB
    result = evaluator.EvaluationResult(
        NAMES, np.ones([size, 2], np.float32), *np.zeros([3, size], np.int32), scores
    )
    split = data.Split({"index": np.arange(size)}, np.zeros(size, np.int32))
    table = per_class.per_class(result, split.labels, ["class"] * n)
    tracemalloc.start()
    try:
        predictions.write(str(tmp_path), {}, table, result, split, ["class"] * n)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()
    assert (tmp_path / "predictions.npz").stat().st_size > scores.nbytes


@pytest.mark.parametrize("name", ["nothing.npz", ""])
def test_missing_files(tmp_path, name):
    with pytest.raises(FileNotFoundError, match="no such file. Write it with rank4class evaluate"):
        predictions.read(str(tmp_path / name))


def examples(**changes):
    fields = {
        "labels": np.array([0, 1, 1]),
        "class_names": np.array(["joy", "anger"]),
        "origins": np.array(["a:1", "a:2", "a:3"]),
        "metrics": np.array(["mrr"]),
        "values": np.ones([3, 1], np.float32),
        "best_values": np.empty(0),
    }
    return predictions.Predictions(**{**fields, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"class_names": np.array(["anger", "joy"])}, "A and B: different classes"),
        ({"class_names": np.array(["joy"])}, "A and B: different classes"),
        ({"labels": np.array([0]), "origins": np.array(["a:1"])}, "A and B: different examples"),
        ({"labels": np.array([0, 0, 1])}, "A and B: different examples"),
        ({"origins": np.array(["a:1", "a:2", "b:3"])}, "A and B: different examples"),
        (
            {"labels": csr_array(np.array([[1, 0], [1, 1], [0, 0]], np.float32))},
            "A and B: different examples",
        ),
    ],
)
def test_different_examples_are_not_compared(changes, message):
    with pytest.raises(ValueError, match=message):
        predictions.check_same_examples(examples(), examples(**changes), "A", "B")


def test_equal_examples_are_compared():
    predictions.check_same_examples(examples(), examples(values=np.zeros([3, 1])), "A", "B")
    several = csr_array(np.array([[1, 0], [1, 1], [0, 0]], np.float32))
    predictions.check_same_examples(examples(labels=several), examples(labels=several.copy()), "A", "B")
    other = csr_array(np.array([[1, 0], [1, 1], [0, 1]], np.float32))
    with pytest.raises(ValueError, match="A and B: different examples"):
        predictions.check_same_examples(examples(labels=several), examples(labels=other), "A", "B")


def test_weights_are_those_of_the_metrics_in_common():
    best = np.linspace(0.5, 1.5, 6).reshape(3, 2)
    first = examples(metrics=np.array(["psp@1", "mrr", "psp@3"]), best_values=best)
    for metric, values, expected in (("psp@3", best[:, 1], True), ("psp@3", best[:, 0], False)):
        second = examples(metrics=np.array([metric]), best_values=values[:, None])
        assert predictions.have_same_weights(first, second) is expected
    assert predictions.have_same_weights(first, examples())
