"""Predictions and exports of each kind of input, after the data and the encoder of the training are gone."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import rank4class
from rank4class.pipelines import config, tpu_test

pytestmark = pytest.mark.nightly
make = tpu_test.make

# A program without rank4class: loads a SavedModel and prints the answers of a signature to some texts.
LOAD = """
import json, sys
sys.modules["rank4class"] = None
import numpy as np, tensorflow as tf, tensorflow_text
model, texts = tf.saved_model.load(sys.argv[1]), tf.constant(json.loads(sys.argv[2]))
answers = model.signatures["serving_default"](text=texts)
decode = np.vectorize(lambda x: x.decode() if isinstance(x, bytes) else x)
print(json.dumps({name: decode(value.numpy()).tolist() for name, value in answers.items()}))
"""
# The second has no tokens.
WINDOWS = {"data.max_length": 16, "data.windows": 3}
TEXTS = ["great day", "\x07", "awful mess " * 30, "\u00e9t\u00e9 [CLS] \u4e2d\u6587 \U0001f600", "a\tb\x07"]


def trained(tmp_path, data, encoder, metric):
    """Returns the run of a model that has not trained, loaded again."""
    experiment = config.Experiment(data=data, encoder=encoder, metrics=(metric,), monitor=metric, epochs=0.0)
    return rank4class.train(experiment, tmp_path / "run", progress=False)


def assert_takes_no_rows(model):
    """Asserts that each signature of an exported model returns no rows for no rows."""
    for name in set(model.signatures) - {"encode_classes"}:
        function = model.signatures[name]
        specs = function.structured_input_signature[1]
        shapes = {key: [0, *(size or 0 for size in spec.shape[1:])] for key, spec in specs.items()}
        empty = {key: tf.reshape(tf.constant([], specs[key].dtype), shapes[key]) for key in specs}
        assert {key: len(value) for key, value in function(**empty).items()} == {
            key: 0 for key in function.structured_outputs
        }


@pytest.mark.parametrize(
    ("name", "class_encoder"),
    [
        ("goemotions_minilm", {"class_encoder.name": "text"}),
        ("goemotions_minilm", {"class_encoder.name": "text", **WINDOWS}),
        (
            "goemotions_minilm_frozen",
            {"class_encoder.name": "frozen_text", "class_encoder.residual": True, **WINDOWS},
        ),
    ],
)
def test_texts(make, tmp_path, name, class_encoder):
    experiment = make(name, epochs=0.0, jit_compile=False, **class_encoder)
    before = rank4class.train(experiment, tmp_path / "run", progress=False)
    results = before.results
    rows = pd.read_csv(tmp_path / "test.tsv", sep="\t", header=None)
    for path in (*tmp_path.glob("*.tsv"), *(tmp_path / "bert").iterdir()):
        path.unlink()
    moved = shutil.move(tmp_path / "run", tmp_path / "elsewhere")
    run = rank4class.load(moved)
    best = run.predict(rows[0], k=1)["class"].to_numpy()
    names = np.array(run.class_names)[rows[1]]
    assert 100 * np.mean(best != names) == pytest.approx(results["test"]["top1_error"])
    np.testing.assert_array_equal(run.scores(TEXTS), before.scores(TEXTS))

    run.export(tmp_path / "model", k=3)
    expected = run.predict(TEXTS, k=3)
    exported = tf.saved_model.load(str(tmp_path / "model"))
    answers = {
        name: value.numpy()
        for name, value in exported.signatures["serving_default"](text=tf.constant(TEXTS)).items()
    }
    has_texts = not experiment.encoder.frozen
    if has_texts:
        command = [sys.executable, "-c", LOAD, str(tmp_path / "model"), json.dumps(TEXTS)]
        answers = json.loads(subprocess.check_output(command, text=True).splitlines()[-1])
    assert np.ravel(answers["classes"]).astype(str).tolist() == expected["class"].tolist()
    np.testing.assert_allclose(np.ravel(answers["scores"]), expected["score"], rtol=1e-5, atol=1e-6)
    assert_takes_no_rows(exported)
    variables = dict(tf.train.list_variables(str(tmp_path / "model" / "variables" / "variables")))
    assert not [name for name in variables if "tokens" in name or "class_encoder" in name]
    vectors = exported.signatures["encode_classes"]()["vectors"]
    np.testing.assert_allclose(vectors, run.model.encode_classes(training=False), rtol=1e-5, atol=1e-6)


@pytest.fixture(scope="module")
def text_run(write_tiny_bert, tmp_path_factory):
    """Returns a run on a file of texts, without this file."""
    folder = tmp_path_factory.mktemp("texts")
    rows = [("great happy day", "good"), ("awful bad mess", "bad"), ("the table is here", "neither")]
    lines = [f"{text} {i}\t{label}\n" for i in range(12) for text, label in rows]
    (folder / "train.tsv").write_text("comment\ttopic\n" + "".join(lines))
    section = config.Data(
        "text_file",
        path=str(folder / "train.tsv"),
        text_column="comment",
        label_column="topic",
        max_length=20,
        validation_fraction=0.2,
        test_fraction=0.2,
    )
    encoder = config.Encoder("bert", path=write_tiny_bert(folder / "encoder"))
    run = trained(folder, section, encoder, "top1_error")
    (folder / "train.tsv").unlink()
    return run


def test_invalid_inputs_of_texts(text_run, tmp_path):
    path = tmp_path / "in.tsv"
    output = tmp_path / "out.tsv"
    path.write_text("comment\ngood\nc\td\na\tb\nbad\n")
    with pytest.raises(ValueError, match=r"in\.tsv:3: 2 columns, but 1 in the first line\. To skip it, set"):
        text_run.predict_file(path, output)
    assert not output.exists()
    count, skipped = text_run.predict_file(path, output, k=1, on_invalid_row="skip")
    assert (count, len(skipped)) == (2, 2)
    frame = pd.read_csv(output, sep="\t")
    assert frame["input"].tolist() == [f"{path}:2", f"{path}:5"]
    assert frame["class_1"].tolist() == text_run.predict(["good", "bad"], k=1)["class"].tolist()
    for inputs, message in (
        ("great", "a single text. Give a list of inputs"),
        (pd.DataFrame({"comment": ["great"]}), "inputs: a DataFrame. Give a list of inputs, such as a"),
        (None, "inputs: a NoneType. Give a list"),
        ([1], r"inputs\[0\]=1: the model takes text. Give strings"),
    ):
        with pytest.raises(ValueError, match=message):
            text_run.predict(inputs)
    assert list(text_run.predict([]).columns) == list(text_run.predict(["great"]).columns)
    assert text_run.scores([]).shape == (0, 3)
    path.write_text("comment\n")
    with pytest.raises(ValueError, match=r"in\.tsv: no input that can be used\. Add some\."):
        text_run.predict_file(path, tmp_path / "none.tsv")
    assert not (tmp_path / "none.tsv").exists()


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet"])
def test_predictions_keep_columns_of_their_inputs(text_run, tmp_path, ending):
    frame = pd.DataFrame(
        {"who": ["a", "b\tc", "d"], "comment": ["great", "bad", "mess"], "Id": ["x", "y", "z"]}
    )
    path = tmp_path / f"in.{ending}"
    if ending == "parquet":
        frame.to_parquet(path)
    elif ending == "jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        frame = frame.replace("b\tc", "b" if ending == "tsv" else "b\tc")
        frame.to_csv(path, index=False, sep="\t" if ending == "tsv" else ",")
    plain = [f"score_{i}" for i in (1, 2)]
    for keep, kept in (
        (None, ["Id"]),
        (["who", "comment"], ["who", "comment"]),
        (["*"], list(frame)),
        ([], []),
    ):
        output = tmp_path / "out.csv"
        assert text_run.predict_file(path, output, k=2, keep=keep) == (3, [])
        written = pd.read_csv(output)
        assert list(written)[1 : 1 + len(kept) + 1] == [*kept, "class_1"]
        pd.testing.assert_frame_equal(written[kept], frame[kept])
        assert written[plain].notna().all(axis=None)
    with pytest.raises(ValueError, match="keep=what: not a column of .* besides 'input'. Choose among"):
        text_run.predict_file(path, output, keep=["what"])


def test_kept_columns_of_rows_after_invalid_ones_and_of_lines(text_run, tmp_path):
    path = tmp_path / "in.tsv"
    path.write_text("comment\tid\ngood\t1\nc\td\te\nbad\t3\n")
    text_run.predict_file(path, tmp_path / "out.jsonl", on_invalid_row="skip")
    assert pd.read_json(tmp_path / "out.jsonl", lines=True)["id"].tolist() == [1, 3]
    (tmp_path / "in.txt").write_text("good\nbad\n")
    text_run.predict_file(tmp_path / "in.txt", tmp_path / "out.csv", wide=True, keep=["comment"])
    written = pd.read_csv(tmp_path / "out.csv")
    assert list(written) == ["input", "comment", *text_run.class_names]
    assert written["comment"].tolist() == ["good", "bad"]


def test_evaluation_of_other_texts(text_run, tmp_path):
    path = tmp_path / "other.csv"
    path.write_text("comment,topic\ngreat,good\nbad,bad\nmess,good\n")
    metrics = text_run.evaluate(path)
    best = text_run.predict(["great", "bad", "mess"], k=1)["class"].to_numpy()
    assert metrics["examples"] == 3
    assert metrics["top1_error"] == pytest.approx(100 * np.mean(best != ["good", "bad", "good"]))
    path.write_text("comment,topic\ngreat,good\nbad,evil\n")
    with pytest.raises(ValueError, match=r"other\.csv:3: class 'evil' is not one of the model's\. To skip"):
        text_run.evaluate(path)
    assert text_run.evaluate(path, on_invalid_row="skip")["examples"] == 1
    with pytest.raises(FileNotFoundError, match=r"train\.tsv: no such file"):
        text_run.evaluate()  # on the data of the training


def test_images(make, tmp_path):
    experiment = make("image_folder_cnn", epochs=0.0, jit_compile=False, **{"data.image_size": 16})
    run = rank4class.train(experiment, tmp_path / "run", progress=False)
    new = tmp_path / "new"
    (new / "more").mkdir(parents=True)
    shutil.copy(tmp_path / "images" / "joy" / "3.jpg", new / "more" / "a.jpg")
    shutil.copy(tmp_path / "images" / "anger" / "4.jpg", new / "b.jpg")
    shutil.rmtree(tmp_path / "images")
    run = rank4class.load(run.workdir)
    assert run.predict_file(new, tmp_path / "out.jsonl", k=2) == (2, [])
    frame = pd.read_json(tmp_path / "out.jsonl", lines=True)
    assert frame["input"].tolist() == [str(new / "b.jpg"), str(new / "more" / "a.jpg")]
    expected = run.predict(frame["input"], k=2)
    assert np.concatenate(frame["classes"]).tolist() == expected["class"].tolist()

    run.export(tmp_path / "model", k=2)
    model = tf.saved_model.load(str(tmp_path / "model"))
    contents = tf.constant([(new / "b.jpg").read_bytes(), (new / "more" / "a.jpg").read_bytes()])
    answers = model.signatures["serving_default"](image_bytes=contents)
    np.testing.assert_allclose(np.ravel(answers["scores"]), expected["score"], rtol=1e-5)

    (new / "c.jpg").write_bytes((new / "b.jpg").read_bytes()[:100])
    with pytest.raises(ValueError, match=r"inputs\[0\]: cannot be read: jpeg::Uncompress failed"):
        run.scores([new / "c.jpg"])
    count, skipped = run.predict_file(new, tmp_path / "out.jsonl", k=1, on_invalid_row="skip")
    assert (count, len(skipped)) == (2, 1)


def test_users_and_items(make, tmp_path):
    experiment = make("movielens_100k", epochs=0.0, jit_compile=False, **{"sets.name": "rank"})
    rank4class.train(experiment, tmp_path / "run", progress=False)
    pairs = pd.read_csv(tmp_path / "ratings.csv")
    os.remove(tmp_path / "ratings.csv")
    run = rank4class.load(tmp_path / "run")
    (tmp_path / "users.txt").write_text("3\n20\n")
    n = len(run.class_names)
    assert run.predict_file(tmp_path / "users.txt", tmp_path / "all.jsonl", k=n) == (2, [])
    run.predict_file(tmp_path / "users.txt", tmp_path / "new.jsonl", k=n, exclude_known=True)
    frames = [pd.read_json(tmp_path / f"{name}.jsonl", lines=True) for name in ("all", "new")]
    assert frames[0]["input"].tolist() == [3, 20]
    for user, all_items, new_items in zip((3, 20), *(frame["classes"] for frame in frames), strict=True):
        known = {f"movie {item}" for item in pairs[pairs["userId"] == user]["movieId"]}
        assert new_items == [name for name in all_items if name not in known]
        assert len(new_items) == n - len(known)
    run.predict_file(tmp_path / "users.txt", tmp_path / "sets.jsonl", coverage=0.7, exclude_known=True)
    for names, new_items in zip(
        pd.read_json(tmp_path / "sets.jsonl", lines=True)["classes"], frames[1]["classes"], strict=True
    ):
        assert names
        assert names == new_items[: len(names)]
    run.predict_file(tmp_path / "users.txt", tmp_path / "new.tsv", k=n, exclude_known=True)
    assert pd.read_csv(tmp_path / "new.tsv", sep="\t").iloc[:, -1].isna().all()  # empty cells at the end
    run.export(tmp_path / "model", k=4)
    model = tf.saved_model.load(str(tmp_path / "model"))
    answers = model.signatures["classify"](id=tf.constant([3], tf.int32))
    assert answers["classes"][0].numpy().astype(str).tolist() == run.predict(["3"], k=4)["class"].tolist()
    assert_takes_no_rows(model)


def test_queries_with_documents(tmp_path, write_queries):
    write_queries(tmp_path)
    section = config.Data("letor", path=str(tmp_path))
    trained(tmp_path, section, config.Encoder("items"), "ndcg@5")
    queries = tmp_path / "queries.txt"
    queries.write_text("0 qid:7 1:0.5 2:0.1\n0 qid:7 2:0.9\n0 qid:7 4:0.3\n0 qid:9 1:1\n0 qid:9 2:1\n")
    for name in ("train", "vali", "test"):
        os.remove(tmp_path / f"{name}.txt")
    run = rank4class.load(tmp_path / "run")
    assert run.predict_file(queries, tmp_path / "out.jsonl") == (2, [])
    frame = pd.read_json(tmp_path / "out.jsonl", lines=True)
    kernel = run._trained.model.get_weights()[0][:, 0]
    x = np.array([[0.5, 0.1, 0, 0], [0, 0.9, 0, 0], [0, 0, 0, 0.3]], np.float32)
    order = np.argsort(-(x @ kernel))
    assert frame["classes"][0] == [str(1 + i) for i in order]
    np.testing.assert_allclose(frame["scores"][0], (x @ kernel)[order], rtol=1e-5)
    assert len(frame["classes"][1]) == 2
    scores = run.scores([x[:2], x])
    np.testing.assert_allclose(scores, [[*(x[:2] @ kernel), -np.inf], x @ kernel], rtol=1e-5)
    run.predict_file(queries, tmp_path / "best.tsv", k=2)  # of 3 and of 2 documents
    best = pd.read_csv(tmp_path / "best.tsv", sep="\t")
    assert list(best) == ["input", "class_1", "score_1", "class_2", "score_2"]
    assert best.loc[0, ["class_1", "class_2"]].tolist() == [1 + i for i in order[:2]]
    assert run.predict([x], k=2)["class"].tolist() == [str(1 + i) for i in order[:2]]
    queries.write_text("0 qid:7 5:0.5\n")
    for call, message in (
        (lambda: run.predict([x], k=0), "top_k=0: not an integer of at least 1"),
        (lambda: run.export(tmp_path / "model", k=2), "top_k=2: a model of lists of items ranks all"),
        (lambda: run.predict([x], coverage=0.9), "coverage=0.9: a list of items has no prediction sets"),
        (lambda: run.predict_file(queries), "features up to 5, but the model takes 4"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    longest = len(run.class_names)
    assert f", {longest} items in the longest list, step " in repr(run)
    run.export(tmp_path / "model")
    card = (tmp_path / "model" / "README.md").read_text()
    assert f"The longest list of its data has {longest} items." in card
    model = tf.saved_model.load(str(tmp_path / "model"))
    answers = model.signatures["rank"](items=x[None], excluded=tf.zeros([1, 3], tf.bool))
    assert answers["positions"][0].numpy().tolist() == order.tolist()
    assert_takes_no_rows(model)


def test_predictions_of_texts_of_several_lengths_keep_their_order(text_run, tmp_path):
    texts = [("great " if i % 3 else "bad ") * (1 + i * 7 % 19) for i in range(24)]
    (tmp_path / "in.txt").write_text("".join(f"{text}\n" for text in texts))
    text_run.predict_file(tmp_path / "in.txt", tmp_path / "out.tsv", k=1, batch_size=2)
    frame = pd.read_csv(tmp_path / "out.tsv", sep="\t")
    assert frame["input"].tolist() == [f"{tmp_path}/in.txt:{1 + i}" for i in range(24)]
    one_by_one = [text_run.scores([text]).max() for text in texts]
    np.testing.assert_allclose(frame["score_1"], one_by_one, rtol=1e-5, atol=1e-6)
    assert len(np.unique(one_by_one)) > 12


def test_rows_of_cells(tmp_path):
    rows = [
        [i, ("red", "blue")[i % 2], f"2024-0{1 + i % 3}-11", "" if i % 5 == 0 else i / 7] for i in range(90)
    ]
    frame = pd.DataFrame(rows, columns=["ID", "color", "day", "size"]).assign(
        label=[f"{color} {day[6]}" for _, color, day, _ in rows]
    )
    frame.to_csv(tmp_path / "train.csv", index=False)
    experiment = config.Experiment(config.Data("table", path=str(tmp_path / "train.csv")))
    experiment = config.override(experiment, {"encoder.name": "identity"})
    run = rank4class.train(experiment, tmp_path / "run", progress=False)
    assert run.results["test"]["top1_error"] == 0.0
    os.remove(tmp_path / "train.csv")

    run = rank4class.load(tmp_path / "run")
    new = frame.drop(columns=["label", "color"]).assign(color=frame["color"])  # in another order
    predicted = run.predict(new, k=1)["class"].tolist()
    assert predicted == frame["label"].tolist()
    new.to_json(tmp_path / "new.jsonl", orient="records", lines=True)
    run.predict_file(tmp_path / "new.jsonl", tmp_path / "p.csv", k=1)
    written = pd.read_csv(tmp_path / "p.csv")
    assert (written["class_1"].tolist(), written["ID"].tolist()) == (predicted, frame["ID"].tolist())
    frame[40:50].to_csv(tmp_path / "labeled.csv", index=False)
    assert run.evaluate(tmp_path / "labeled.csv")["examples"] == 10
    run.export(tmp_path / "model", k=2)
    model = tf.saved_model.load(str(tmp_path / "model"))
    cells = [["blue", "2024-03-11", "3.5"], ["green", "", "many"]]
    answers = model.signatures["serving_default"](cells=tf.constant(cells))
    assert answers["classes"].numpy()[0, 0] == b"blue 3"
    np.testing.assert_allclose(answers["scores"][:, 0], run.scores(cells).max(axis=1), rtol=1e-5)
    assert_takes_no_rows(model)
    with pytest.raises(ValueError, match=r"inputs\[0\]=\['red'\]: the model takes rows of 3 cells"):
        run.predict([["red"]])


def test_texts_with_columns_beside_them(tmp_path):
    colors = [("red", "blue")[i // 3 % 2] for i in range(90)]
    words = [("refund", "login", "card")[i % 3] for i in range(90)]
    frame = pd.DataFrame({"size": range(90), "body": [f"my {w} is late, {i}" for i, w in enumerate(words)]})
    frame = frame.assign(color=colors, label=[f"{c} {w}" for c, w in zip(colors, words, strict=True)])
    frame.to_csv(tmp_path / "train.csv", index=False)
    section = config.Data("table", path=str(tmp_path / "train.csv"), text_column="body")
    fields = {"encoder.name": "words", "optimizer.name": "lbfgs"}
    fields["data.feature_columns"] = ("color", "size")
    experiment = config.override(config.Experiment(section), fields)
    run = rank4class.train(experiment, tmp_path / "run", progress=False)
    assert run.results["test"]["top1_error"] == 0.0
    os.remove(tmp_path / "train.csv")

    run = rank4class.load(tmp_path / "run")
    predicted = run.predict(frame[["color", "size", "body"]], k=1)["class"].tolist()
    assert predicted == frame["label"].tolist()
    pairs = [(text, [color, size]) for size, text, color, _ in frame.to_numpy(object)]
    assert run.predict(pairs, k=1)["class"].tolist() == predicted
    same = [("a login", [color, 1]) for color in ("red", "blue")]
    assert run.predict(same, k=1)["class"].tolist() == ["red login", "blue login"]
    frame.to_json(tmp_path / "new.jsonl", orient="records", lines=True)
    run.predict_file(tmp_path / "new.jsonl", tmp_path / "p.csv", k=1)
    assert pd.read_csv(tmp_path / "p.csv")["class_1"].tolist() == predicted
    frame[40:50].to_csv(tmp_path / "labeled.csv", index=False)
    assert run.evaluate(tmp_path / "labeled.csv")["top1_error"] == 0.0
    run.export(tmp_path / "model", k=2)
    assert "# The columns of text, cells: body, color, size" in (tmp_path / "model/README.md").read_text()
    model = tf.saved_model.load(str(tmp_path / "model"))
    raw = {"text": tf.constant([pairs[5][0]]), "cells": tf.constant([["blue", ""]])}
    answers = model.signatures["serving_default"](**raw)
    assert answers["classes"].numpy()[0, 0].decode() == predicted[5]
    (tmp_path / "new.txt").write_text(pairs[0][0])
    for call, message in (
        (lambda: run.predict([pairs[0][0]]), "the model takes text and cells. Give strings, and a list of"),
        (lambda: run.predict([(pairs[0][0], ["red"])]), "the model takes rows of 2 cells"),
        (lambda: run.predict_file(tmp_path / "new.txt"), "no columns, which the model takes beside the"),
        (lambda: run.predict(frame[["body", "size"]]), "no column 'color', which the model takes"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.nightly
def test_an_encoder_with_columns_beside_its_texts(tmp_path, write_tiny_bert):
    texts = [f"{('great happy day', 'awful bad mess')[i % 2]} {i}" for i in range(80)]
    colors = ["red", "red", "blue", "blue"] * 20
    names = [f"{text[:5]} {color}" for text, color in zip(texts, colors, strict=True)]
    frame = pd.DataFrame({"text": texts, "color": colors, "label": names})
    frame.to_csv(tmp_path / "train.csv", index=False)
    columns = {"text_column": "text", "feature_columns": ("color",), "max_length": 12}
    section = config.Data("table", path=str(tmp_path / "train.csv"), **columns)
    encoder = config.Encoder("bert", path=write_tiny_bert(tmp_path / "encoder"))
    experiment = config.Experiment(section, encoder, words="auto", batch_size=16, epochs=4.0)
    experiment = config.override(experiment, {"optimizer.learning_rate": 0.01})
    for frozen in (True, False):
        changed = config.override(experiment, {"encoder.frozen": frozen})
        run = rank4class.train(changed, tmp_path / f"run-{frozen}", progress=False)
        found = run.predict(frame[["text", "color"]], k=1)["class"]
        assert np.mean(found == frame["label"]) == 1.0
        again = rank4class.load(run.workdir).evaluate()
        assert again["top1_error"] == run.results["test"]["top1_error"]
    with pytest.raises(ValueError, match=r"data.feature_columns=\('color',\): columns beside texts join"):
        rank4class.train(config.override(experiment, {"words": "none"}), tmp_path / "none", progress=False)
