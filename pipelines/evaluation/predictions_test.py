import io
import json
import os
import zipfile

import numpy as np
import pytest
import tensorflow as tf
from scipy.sparse import csr_array

from rank4class import data
from rank4class.pipelines.evaluation import evaluator, per_class, predictions
from rank4class.pipelines.reporting import tables
from rank4class.pipelines.storage import files
from rank4class.pipelines.task.task import ModelOutputs

NAMES = ("top1_error", "mean_rank")


def subsample(n=4, size=30, labels=None, origins=True):
    """Returns a judged split: `(judged, split, class_names)`."""
    rng = np.random.default_rng(0)
    labels = rng.integers(n - 1, size=size).astype(np.int32) if labels is None else labels
    scores = rng.normal(size=[size, n]).astype(np.float32)
    origins = np.array([f"test.tsv:{i}" for i in range(1, size + 1)], object) if origins else None
    split = data.Split({"image": scores}, labels, origins)
    judge = evaluator.Evaluator(lambda features, training: ModelOutputs(features["image"]), NAMES)
    judged = judge(data.evaluation_batches(split, batch_size=7), keep_scores=True)
    return judged, split, tuple(f"class\t{i}" for i in range(n))


def written(folder, judged, split, class_names):
    predictions.prepare(folder)
    table = per_class.per_class(judged, split.labels, class_names)
    predictions.write(folder, {"step": 3}, table, judged, split, class_names)
    return f"{folder}/predictions.npz"


@pytest.mark.parametrize("where", ["disk", "ram"])
def test_what_is_written_is_read_again(tmp_path, where):
    folder = str(tmp_path / "deep" / "out") if where == "disk" else "ram://evaluation/out"
    judged, split, class_names = subsample()
    path = written(folder, judged, split, class_names)
    scored = predictions.read(path, with_scores=True)
    for name in ("scores", "values"):
        np.testing.assert_array_equal(getattr(scored, name), getattr(judged, name))
        assert getattr(scored, name).dtype == np.float32
    np.testing.assert_array_equal(scored.labels, split.labels)
    assert scored.origins.tolist() == split.origins.tolist()
    assert scored.class_names.tolist() == list(class_names)
    assert scored.metrics.tolist() == list(NAMES)
    assert predictions.read(path).scores is None
    assert files.names_in(folder) == ["classes.tsv", "evaluation.json", "predictions.npz"]
    assert json.loads(files.read_text(f"{folder}/evaluation.json")) == {"step": 3}


def test_labels_of_several_classes_are_read_again(tmp_path):
    several = csr_array(np.random.default_rng(0).integers(2, size=[30, 4]).astype(np.float32))
    path = written(str(tmp_path), *subsample(labels=several))
    labels = predictions.read(path).labels
    assert labels.dtype == np.float32
    np.testing.assert_array_equal(labels.toarray(), several.toarray())
    np.savez(path, labels=several.toarray(), **{k: v for k, v in np.load(path).items() if "label" not in k})
    with pytest.raises(ValueError, match=r"\(its labels are a matrix\): evaluate again"):
        predictions.read(path)


def test_the_classes_are_a_table_for_programs(tmp_path):
    judged, split, class_names = subsample()
    written(str(tmp_path), judged, split, class_names)
    header, *rows = (line.split("\t") for line in (tmp_path / "classes.tsv").read_text().splitlines())
    assert [row[0] for row in rows] == [f"class\\t{i}" for i in range(4)]  # a tab in a name breaks nothing
    assert all(len(row) == len(header) for row in rows)
    first = dict(zip(header, rows[0], strict=True))
    of_first = judged.values[split.labels == 0]
    assert int(first["examples"]) == len(of_first)
    assert float(first["top1_error (%)"]) == pytest.approx(100 * of_first[:, 0].mean(), abs=1e-4)
    assert float(first["mean_rank"]) == pytest.approx(of_first[:, 1].mean(), abs=1e-4)
    assert first["mean_rank low"] == "-"
    assert rows[3][1:8] == ["0", "-", "-", "-", "-", "-", "-"]  # no example of it


def test_a_terminal_shows_classes_in_the_order_asked_for():
    judged, split, class_names = subsample()
    text = tables.class_table(per_class.per_class(judged, split.labels, class_names), [3, 0])
    header, _, last, first = text.splitlines()
    assert header.split()[:3] == ["class", "examples", "top1_error"]
    assert last.split()[:4] == ["class\\t3", "0", "-", "-"]
    assert first.startswith("class\\t0")
    assert "nan" not in text


def test_examples_without_an_origin_and_without_scores(tmp_path):
    judged, split, class_names = subsample(origins=False)
    judged = evaluator.EvaluationResult(
        judged.names, judged.values, judged.top_classes, judged.right, judged.ranks
    )
    scored = predictions.read(written(str(tmp_path), judged, split, class_names), with_scores=True)
    assert scored.origins[:2].tolist() == ["example 0", "example 1"]
    assert scored.scores is None


def test_a_write_that_fails_leaves_what_was_there(tmp_path, monkeypatch):
    judged, split, class_names = subsample()
    path = written(str(tmp_path), judged, split, class_names)
    before = files.read_bytes(path)

    write = tf.io.gfile.GFile.write

    def full(self, content):
        write(self, content)
        raise tf.errors.ResourceExhaustedError(None, None, "no space left")

    predictions.prepare(str(tmp_path))
    table = per_class.per_class(judged, split.labels, class_names)
    with monkeypatch.context() as patch:
        patch.setattr(tf.io.gfile.GFile, "write", full)
        with pytest.raises(OSError, match="predictions.npz: no space left"):
            predictions.write(str(tmp_path), {}, table, judged, split, class_names)
    assert files.read_bytes(path) == before
    assert sorted(os.listdir(tmp_path)) == [
        "classes.tsv",
        "predictions.npz",
    ]  # and no evaluator.json speaks of it


def test_a_folder_that_cannot_be_made_is_known_before_anything_is_judged(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match="file"):
        predictions.prepare(str(tmp_path / "file" / "within"))


def test_scores_too_many_to_hold_are_refused_by_their_size():
    predictions.check_size(50_000, 20_000)
    with pytest.raises(ValueError, match=r"50,000 examples and 20,001 classes take 4.0 GB.*--nokeep_scores"):
        predictions.check_size(50_000, 20_001)


def spoilt(path, what):
    content = files.read_bytes(path)
    if what == "cut short":
        return content[:-100]
    if what == "one bit":
        place = len(content) // 2
        return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
    return {"empty": b"", "text": b"no such file\n"}[what]


@pytest.mark.parametrize("what", ["cut short", "one bit", "empty", "text"])
def test_a_damaged_file_is_refused(tmp_path, what):
    path = written(str(tmp_path), *subsample(n=40))
    content = spoilt(path, what)
    files.write(path, content)
    with pytest.raises(ValueError, match="predictions.npz is damaged or was not written by scripts.evaluate"):
        predictions.read(path, with_scores=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"values": np.zeros([3, 2], np.float32)}, "its arrays do not fit each other"),
        ({"values": np.full([30, 2], np.nan, np.float32)}, r"a value of top1_error is outside \[0, 1\]"),
        ({"values": np.full([30, 2], 32.74, np.float32)}, r"a value of top1_error is outside \[0, 1\]"),
        ({"values": np.full([30, 2], -0.5, np.float32)}, r"a value of top1_error is outside \[0, 1\]"),
        ({"values": np.full([30, 2], np.inf, np.float32)}, r"a value of top1_error is outside \[0, 1\]"),
        ({"metrics": np.array(["mean_rank", "speed"])}, "metric='speed': unknown"),
        ({"labels": np.full([30], 4, np.int32)}, r"a label is outside the classes 0\.\.3"),
        ({"labels": np.full([30], -1, np.int32)}, r"a label is outside the classes 0\.\.3"),
        ({"scores": np.zeros([30, 3], np.float32)}, "its scores do not fit its examples and classes"),
        (
            {"scores": np.full([30, 4], np.inf, np.float32)},
            "top1_error of an example whose scores are not finite",
        ),
        (
            {"scores": np.full([30, 4], np.nan, np.float32)},
            "top1_error of an example whose scores are not finite",
        ),
        ({"labels": None}, "labels"),
    ],
)
def test_arrays_that_cannot_be_are_refused(tmp_path, changes, message):
    path = written(str(tmp_path), *subsample())
    with np.load(path) as npz:
        arrays = {**npz, **changes}
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    with pytest.raises(ValueError, match=message):
        predictions.read(path)


def test_scores_that_are_not_finite_have_the_worst_values(tmp_path):
    _, split, class_names = subsample()
    broken = split.features["image"].copy()
    broken[3, 1] = np.inf
    judge = evaluator.Evaluator(lambda features, training: ModelOutputs(features["image"]), NAMES)
    batches = data.evaluation_batches(data.Split({"image": broken}, split.labels), batch_size=7)
    path = written(str(tmp_path), judge(batches, keep_scores=True), split, class_names)
    assert predictions.read(path).values[3].tolist() == [1.0, np.inf]


def test_compressed_arrays_are_refused(tmp_path):
    """They may hold gigabytes in a few megabytes."""
    path = written(str(tmp_path), *subsample())
    with np.load(path) as npz:
        arrays = dict(npz)
    np.savez_compressed(path, **arrays)
    with pytest.raises(
        ValueError, match=r"was not written by scripts.evaluate \(its arrays are compressed\)"
    ):
        predictions.read(path)


def test_an_array_that_says_to_be_huge_is_refused(tmp_path):
    path, content = str(tmp_path / "predictions.npz"), io.BytesIO()
    header = {"descr": "<f4", "fortran_order": False, "shape": (10**15,)}
    np.lib.format.write_array_header_1_0(content, header)
    with zipfile.ZipFile(path, "w") as npz:
        npz.writestr("class_names.npy", content.getvalue())
    with pytest.raises(ValueError, match="predictions.npz is damaged or was not written by scripts.evaluate"):
        predictions.read(path)


def test_a_single_array_is_no_such_file(tmp_path):
    path = str(tmp_path / "predictions.npz")
    with open(path, "wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(ValueError, match="was not written by scripts.evaluate"):
        predictions.read(path)


@pytest.mark.parametrize("name", ["nothing.npz", ""])
def test_no_file_is_named_with_what_writes_it(tmp_path, name):
    with pytest.raises(
        FileNotFoundError, match="scripts.evaluate --output=FOLDER writes FOLDER/predictions.npz"
    ):
        predictions.read(str(tmp_path / name))


def scored(**changes):
    fields = {
        "labels": np.array([0, 1, 1]),
        "class_names": np.array(["joy", "anger"]),
        "origins": np.array(["a:1", "a:2", "a:3"]),
        "metrics": np.array(["mrr"]),
        "values": np.ones([3, 1], np.float32),
    }
    return predictions.Scored(**{**fields, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"class_names": np.array(["anger", "joy"])}, "A and B are not about the same classes"),
        ({"class_names": np.array(["joy"])}, "A and B are not about the same classes"),
        ({"labels": np.array([0]), "origins": np.array(["a:1"])}, "A has 3 examples and B 1"),
        (
            {"labels": np.array([0, 0, 1])},
            r"number 2 is a:2 \(anger\) in the one and a:2 \(joy\) in the other",
        ),
        (
            {"origins": np.array(["a:1", "a:2", "b:3"])},
            r"number 3 is a:3 \(anger\) in the one and b:3 \(anger\) in the other",
        ),
        (
            {"labels": csr_array(np.array([[1, 0], [1, 1], [0, 0]], np.float32))},
            "A and B do not hold the same examples: in one of them an example may have several",
        ),
    ],
)
def test_other_examples_are_not_compared(changes, message):
    with pytest.raises(ValueError, match=message):
        predictions.check_same_examples(scored(), scored(**changes), "A", "B")


def test_the_same_examples_are():
    predictions.check_same_examples(scored(), scored(values=np.zeros([3, 1])), "A", "B")
    several = csr_array(np.array([[1, 0], [1, 1], [0, 0]], np.float32))
    predictions.check_same_examples(scored(labels=several), scored(labels=several.copy()), "A", "B")
    other = csr_array(np.array([[1, 0], [1, 1], [0, 1]], np.float32))
    with pytest.raises(ValueError, match=r"number 3 is a:3 \(no class\) in the one and a:3 \(anger\)"):
        predictions.check_same_examples(scored(labels=several), scored(labels=other), "A", "B")


@pytest.mark.parametrize("folder", ["/proc/self", "FILE", "FILE/below"])
def test_a_folder_that_cannot_be_written_is_refused_before_evaluating(tmp_path, folder):
    (tmp_path / "FILE").touch()
    folder = folder.replace("FILE", str(tmp_path / "FILE"))
    with pytest.raises(OSError, match=f"^{folder}: "):
        predictions.prepare(folder)


def test_preparing_a_folder_leaves_nothing_in_it(tmp_path):
    predictions.prepare(tmp_path / "new")
    assert list(tmp_path.iterdir()) == [tmp_path / "new"]
    assert list((tmp_path / "new").iterdir()) == []
