import dataclasses
import errno
import io
import json
import os
import tracemalloc

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array

from rank4class import data
from rank4class.pipelines.evaluation import evaluator, per_class, predictions
from rank4class.pipelines.storage import files
from rank4class.pipelines.task_data.task_data import ModelOutputs

NAMES = ("top1_error", "mean_rank")


def evaluated(n=4, labels=None, origins=True):
    """Returns an evaluated split: `(result, split, class_names)`."""
    rng = np.random.default_rng(0)
    labels = rng.integers(n - 1, size=30).astype(np.int32) if labels is None else labels
    scores = rng.normal(size=[30, n]).astype(np.float32)
    origins = np.array([f"test.tsv:{i}" for i in range(1, 31)], object) if origins else None
    split = data.Split({"image": scores}, labels, origins)
    evaluate = evaluator.Evaluator(lambda features, training: ModelOutputs(features["image"]), NAMES)
    result = evaluate(data.evaluation_batches(split, batch_size=7), keep_scores=True)
    return result, split, tuple(f"class\t{i}" for i in range(n))


def written(folder, result, split, class_names):
    files.make_writable(folder)
    table = per_class.per_class(result, split.labels, class_names)
    predictions.write(folder, {"step": 3}, table, result, split, class_names)
    return f"{folder}/predictions.npz"


@pytest.mark.parametrize("where", ["disk", "ram"])
def test_written_predictions(tmp_path, where):
    folder = str(tmp_path / "deep" / "out") if where == "disk" else "ram://evaluation/out"
    result, split, class_names = evaluated()
    path = written(folder, result, split, class_names)
    with np.load(io.BytesIO(files.read_bytes(path))) as npz:
        np.testing.assert_array_equal(npz["values"], result.values)
        assert npz["values"].dtype == np.float32
        np.testing.assert_array_equal(npz["scores"], result.scores)
        np.testing.assert_array_equal(npz["labels"], split.labels)
        assert npz["origins"].tolist() == split.origins.tolist()
        assert npz["class_names"].tolist() == list(class_names)
        assert npz["metrics"].tolist() == list(NAMES)
    assert files.names_in(folder) == ["classes.tsv", "evaluation.json", "predictions.npz"]
    assert json.loads(files.read_text(f"{folder}/evaluation.json")) == {"step": 3}


def test_labels_of_several_classes_are_sparse(tmp_path):
    several = csr_array(np.random.default_rng(0).integers(2, size=[30, 4]).astype(np.float32))
    path = written(tmp_path, *evaluated(labels=several))
    with np.load(path) as npz:
        labels = csr_array(tuple(npz[f"labels_{name}"] for name in ("data", "indices", "indptr")), (30, 4))
    assert labels.dtype == np.float32
    np.testing.assert_array_equal(labels.toarray(), several.toarray())


def test_classes_tsv(tmp_path):
    result, split, class_names = evaluated()
    written(tmp_path, result, split, class_names)
    header, *rows = (line.split("\t") for line in (tmp_path / "classes.tsv").read_text().splitlines())
    assert [row[0] for row in rows] == [f"class\\t{i}" for i in range(4)]  # tabs in names are escaped
    assert all(len(row) == len(header) for row in rows)
    of_first = 100 * result.values[split.labels == 0, 0]
    assert float(rows[0][header.index("top1_error (%)")]) == pytest.approx(of_first.mean(), abs=1e-4)
    assert rows[3][1:8] == ["0", "-", "-", "-", "-", "-", "-"]  # no examples of this class
    assert rows[3][-2:] == ["-", "0"]


def test_names_of_classes_are_not_quoted(tmp_path):
    names = ('say "no"', "it's", "a\\b", " # 1", "é", "NA", '"no"')
    result, split, _ = evaluated(n=len(names))
    written(tmp_path, result, split, names)
    _, *rows = (line.split("\t") for line in (tmp_path / "classes.tsv").read_text().splitlines())
    written_names = [*names[:-1], '\\"no"']  # readers would take a quote at the start for that of CSV
    assert [row[0] for row in rows] == written_names
    assert {row[-2] for row in rows} <= {*written_names, "-"}
    assert len(pd.read_csv(tmp_path / "classes.tsv", sep="\t")) == len(names)


def test_best_classes_of_many_and_examples_without_an_origin(tmp_path):
    result, split, class_names = evaluated(n=300, origins=False)
    best = np.argsort(-result.scores, axis=1)[:, :100].astype(np.int32)
    best_scores = np.take_along_axis(result.scores, best, axis=1)
    result = dataclasses.replace(result, scores=None, best_classes=best, best_scores=best_scores)
    path = written(tmp_path, result, split, class_names)
    with np.load(path) as npz:
        np.testing.assert_array_equal(npz["best_classes"], best)
        np.testing.assert_array_equal(npz["best_scores"], best_scores)
        assert "scores" not in npz.files
        assert npz["origins"][:2].tolist() == ["example 0", "example 1"]


def test_failed_writes_keep_complete_files(tmp_path, monkeypatch):
    result, split, class_names = evaluated()
    path = written(tmp_path, result, split, class_names)
    before = files.read_bytes(path)

    def full(self, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    files.make_writable(str(tmp_path))
    table = per_class.per_class(result, split.labels, class_names)
    with monkeypatch.context() as patch:
        patch.setattr(files._File, "write", full)
        with pytest.raises(OSError, match="predictions.npz: No space left"):
            predictions.write(str(tmp_path), {}, table, result, split, class_names)
    assert files.read_bytes(path) == before
    assert sorted(os.listdir(tmp_path)) == ["classes.tsv", "predictions.npz"]  # no evaluation.json


def test_check_size():
    predictions.check_size("keep_scores=True", 50_000, 20_000, "Leave it out.")
    with pytest.raises(ValueError, match=r"keep_scores=True: .*50,000 examples and 20,001 .* 4.0 GB.*Leave"):
        predictions.check_size("keep_scores=True", 50_000, 20_001, "Leave it out.")


def test_writing_does_not_copy_the_scores(tmp_path):
    size = 10_000
    n = 1_000
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
