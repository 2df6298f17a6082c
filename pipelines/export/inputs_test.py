"""Predictions and exports of each kind of input, after the data and the encoder of the training are gone."""

import functools
import json
import os
import shutil

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

import rank4class
from rank4class.losses.ops import set_sizes
from rank4class.pipelines import config
from rank4class.pipelines.evaluation import calibration
from rank4class.pipelines.run_test import answers_of_another_process
from rank4class.pipelines.task import checks

pytestmark = pytest.mark.nightly

# The second has no tokens.
TEXTS = ["great day", "\x07", "awful mess " * 30, "\u00e9t\u00e9 [CLS] \u4e2d\u6587 \U0001f600", "a\tb\x07"]


def trained(tmp_path, data, encoder, metrics, **parts):
    """Returns a trained run, loaded again."""
    parts = {"batch_size": 8, "monitor": metrics[0], **parts}
    experiment = config.Experiment(data=data, encoder=encoder, metrics=metrics, **parts)
    checks.check(experiment)
    return rank4class.train(experiment, tmp_path / "run", progress=False)


def scores_of(frame, run, inputs):
    """Returns the scores of a frame of all classes, by class, [inputs, classes]."""
    return frame.pivot(index="input", columns="class", values="score")[list(run.class_names)].to_numpy()


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
    ("encoder", "class_encoder"),
    [
        ({"pooling": "mean"}, {"name": "text"}),
        ({"frozen": True}, {"name": "frozen_text", "residual": True}),
    ],
    ids=["fine_tuned", "frozen"],
)
def test_texts(tiny_goemotions, tiny_bert, tmp_path, encoder, class_encoder):
    section = config.Data("goemotions", path=str(tiny_goemotions), max_length=8)
    before = trained(
        tmp_path,
        section,
        config.Encoder("bert", path=tiny_bert, **encoder),
        ("top1_error", "mean_rank"),
        class_encoder=config.ClassEncoder(**class_encoder),
        optimizer=config.Optimizer(learning_rate=0.01),
        epochs=2.0,
    )
    results = before.results
    rows = pd.read_csv(tiny_goemotions / "test.tsv", sep="\t", header=None, dtype=str)
    rows = rows[~rows[1].str.contains(",")]  # comments of one emotion
    shutil.rmtree(tiny_goemotions)
    shutil.rmtree(tiny_bert)
    moved = shutil.move(tmp_path / "run", tmp_path / "elsewhere")
    run = rank4class.load(moved)
    best = run.predict(rows[0], k=1)["class"].to_numpy()
    names = np.array(["joy", "anger", "neutral"])[rows[1].astype(int)]
    assert 100 * np.mean(best != names) == pytest.approx(results["test"]["top1_error"])
    np.testing.assert_array_equal(run.scores(TEXTS), before.scores(TEXTS))

    run.export(tmp_path / "model", k=3)
    expected = run.predict(TEXTS, k=3)
    exported = tf.saved_model.load(str(tmp_path / "model"))
    answers = {
        name: value.numpy()
        for name, value in exported.signatures["serving_default"](text=tf.constant(TEXTS)).items()
    }
    if class_encoder["name"] == "text":
        answers = answers_of_another_process(tmp_path / "model", "serving_default", text=TEXTS)
    assert np.ravel(answers["classes"]).astype(str).tolist() == expected["class"].tolist()
    np.testing.assert_allclose(np.ravel(answers["scores"]), expected["score"], rtol=1e-5, atol=1e-6)
    assert_takes_no_rows(exported)
    variables = dict(tf.train.list_variables(str(tmp_path / "model" / "variables" / "variables")))
    assert not [name for name in variables if "tokens" in name or "class_encoder" in name]
    vectors = exported.signatures["encode_classes"]()["vectors"]
    np.testing.assert_allclose(vectors, run.model.encode_classes(training=False), rtol=1e-5, atol=1e-6)
    assert os.path.exists(f"{moved}/class_vectors.npy") == (class_encoder["name"] == "text")
    if class_encoder["name"] == "text":
        np.testing.assert_array_equal(np.load(f"{moved}/class_vectors.npy"), vectors)


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
    run = trained(folder, section, encoder, ("top1_error",))
    (folder / "train.tsv").unlink()
    return run


def test_predictions_of_texts_of_several_lengths_keep_their_order(text_run, tmp_path):
    texts = [("great " if i % 3 else "bad ") * (1 + i * 7 % 19) for i in range(24)]
    (tmp_path / "in.txt").write_text("".join(f"{text}\n" for text in texts))
    text_run.predict_file(tmp_path / "in.txt", tmp_path / "out.tsv", k=1, batch_size=2)
    frame = pd.read_csv(tmp_path / "out.tsv", sep="\t")
    assert frame["input"].tolist() == [f"{tmp_path}/in.txt:{1 + i}" for i in range(24)]
    one_by_one = [text_run.scores([text]).max() for text in texts]
    np.testing.assert_allclose(frame["score_1"], one_by_one, rtol=1e-5, atol=1e-6)
    assert len(np.unique(one_by_one)) > 12


def test_invalid_inputs_of_texts(text_run, tmp_path):
    path, output = tmp_path / "in.tsv", tmp_path / "out.tsv"
    path.write_text("comment\ngood\n\na\tb\nbad\n")
    with pytest.raises(ValueError, match=r"in\.tsv:3: 'comment' is empty\. To skip it, set"):
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
        (["great", " "], r"inputs\[1\]=' ': the text is empty\. Remove it\."),
    ):
        with pytest.raises(ValueError, match=message):
            text_run.predict(inputs)
    assert list(text_run.predict([]).columns) == list(text_run.predict(["great"]).columns)
    assert text_run.scores([]).shape == (0, 3)
    path.write_text("comment\n")
    with pytest.raises(ValueError, match=r"in\.tsv: no input that can be used\. Add some\."):
        text_run.predict_file(path, tmp_path / "none.tsv")
    assert not (tmp_path / "none.tsv").exists()
    path.write_text("comment\ngreat\n")
    with pytest.raises(ValueError, match=r"output=.*in\.tsv: is the input\. Choose another file\."):
        text_run.predict_file(path, path)


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


def test_images(tmp_path):
    for i, name in enumerate(("bright", "dark")):
        (tmp_path / "images" / name).mkdir(parents=True)
        for j in range(10):
            shade = tf.constant(200 - 150 * i + j, tf.uint8)
            content = tf.io.encode_jpeg(tf.fill([20 + j, 30, 3], shade))
            tf.io.write_file(str(tmp_path / "images" / name / f"{j}.jpg"), content)
    section = config.Data(
        "image_folder",
        path=str(tmp_path / "images"),
        image_size=16,
        validation_fraction=0.2,
        test_fraction=0.2,
    )
    run = trained(
        tmp_path,
        section,
        config.Encoder("small_cnn"),
        ("top1_error",),
        optimizer=config.Optimizer(learning_rate=0.01),
        batch_size=4,
        epochs=8.0,
    )
    new = tmp_path / "new"
    (new / "more").mkdir(parents=True)
    shutil.copy(tmp_path / "images" / "dark" / "3.jpg", new / "more" / "a.jpg")
    shutil.copy(tmp_path / "images" / "bright" / "4.jpg", new / "b.jpg")
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
    reason = r"c\.jpg: cannot be read: jpeg::Uncompress failed.*\. To skip it, set on_invalid_row=skip"
    with pytest.raises(ValueError, match=reason):
        run.predict_file(new, tmp_path / "out.jsonl")
    with pytest.raises(ValueError, match=r"inputs\[0\]: cannot be read: jpeg::Uncompress failed"):
        run.scores([new / "c.jpg"])
    count, skipped = run.predict_file(new, tmp_path / "out.jsonl", k=1, on_invalid_row="skip")
    assert (count, len(skipped)) == (2, 1)


def write_ratings(path, items):
    """Writes nine of some items for each of 20 users; returns the pairs of user and item."""
    rng = np.random.default_rng(0)
    pairs = sorted({(u, i) for u in range(1, 21) for i in rng.choice(items, 9, replace=False)})
    rows = "".join(f"{5 * user},{item},4.0\n" for user, item in pairs)
    path.write_text(f"userId,movieId,rating\n{rows}")
    return pairs


def test_users_and_items(tmp_path):
    pairs = write_ratings(tmp_path / "ratings.csv", items=30)
    section = config.Data("movielens", path=str(tmp_path / "ratings.csv"))
    trained(
        tmp_path,
        section,
        config.Encoder("embedding", units=8),
        ("map@5", "recall@5"),
        loss=config.Loss("rankmax"),
        sets=config.Sets("rank"),
        batch_size=4,
    )
    os.remove(tmp_path / "ratings.csv")
    run = rank4class.load(tmp_path / "run")
    (tmp_path / "users.txt").write_text("15\n100\n")
    n = len(run.class_names)
    assert run.predict_file(tmp_path / "users.txt", tmp_path / "all.jsonl", k=n) == (2, [])
    run.predict_file(tmp_path / "users.txt", tmp_path / "new.jsonl", k=n, exclude_known=True)
    frames = [pd.read_json(tmp_path / f"{name}.jsonl", lines=True) for name in ("all", "new")]
    assert frames[0]["input"].tolist() == [15, 100]
    for user, all_items, new_items in zip((3, 20), *(frame["classes"] for frame in frames), strict=True):
        known = {f"movie {item}" for u, item in pairs if u == user}
        assert new_items == [name for name in all_items if name not in known]
        assert len(new_items) == n - len(known)
    run.predict_file(tmp_path / "users.txt", tmp_path / "sets.jsonl", coverage=0.7, exclude_known=True)
    frame = pd.read_json(tmp_path / "sets.jsonl", lines=True)
    for names, size, new_items in zip(frame["classes"], frame["set_size"], frames[1]["classes"], strict=True):
        assert 0 < size == len(names)
        assert names == new_items[:size]
    run.predict_file(tmp_path / "users.txt", tmp_path / "new.tsv", k=n, exclude_known=True)
    header, *lines = (line.split("\t") for line in (tmp_path / "new.tsv").read_text().splitlines())
    assert [len(line) for line in lines] == [len(header)] * 2  # empty cells at the end
    assert lines[0][-1] == ""
    run.export(tmp_path / "model", k=4)
    model = tf.saved_model.load(str(tmp_path / "model"))
    answers = model.signatures["classify"](id=tf.constant([2], tf.int32))
    assert answers["classes"][0].numpy().astype(str).tolist() == run.predict(["15"], k=4)["class"].tolist()
    assert_takes_no_rows(model)


def test_the_count_prior_of_users_with_one_item_left(tmp_path):
    write_ratings(tmp_path / "ratings.csv", items=10)
    section = config.Data("movielens", path=str(tmp_path / "ratings.csv"))
    trained(
        tmp_path,
        section,
        config.Encoder("embedding", units=8),
        ("nll", "exact_match"),
        loss=config.Loss("n_choose_k"),
        count_prior=config.CountPrior("learned"),
        batch_size=4,
    )
    run = rank4class.load(tmp_path / "run")
    assert np.isfinite(run.evaluate()["nll"])
    (tmp_path / "users.txt").write_text("15\n100\n")
    run.predict_file(tmp_path / "users.txt", tmp_path / "new.jsonl", k=10, exclude_known=True)
    frame = pd.read_json(tmp_path / "new.jsonl", lines=True)
    assert frame["classes"].map(len).tolist() == [1, 1]
    assert all(0.0 < row[0] < 1.0 for row in frame["probabilities"])
    assert frame["set_size"].isin([0, 1]).all()


def test_queries_with_documents(tmp_path, write_queries):
    write_queries(tmp_path)
    section = config.Data("letor", path=str(tmp_path))
    trained(tmp_path, section, config.Encoder("items"), ("ndcg@5",))
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
    one_by_one = [run.scores([each])[0] for each in (x[:2], x)]
    assert [len(each) for each in one_by_one] == [2, 3]
    run.predict_file(queries, tmp_path / "best.tsv", k=2)  # of 3 and of 2 documents
    header, first, second = (tmp_path / "best.tsv").read_text().splitlines()
    assert header == "input\tclass_1\tscore_1\tclass_2\tscore_2"
    assert first.split("\t")[1::2] == [str(1 + i) for i in order[:2]]
    assert len(second.split("\t")) == 5
    run.predict_file(queries, tmp_path / "best.jsonl", k=1)
    assert pd.read_json(tmp_path / "best.jsonl", lines=True)["classes"].map(len).tolist() == [1, 1]
    assert run.predict([x])["class"].tolist() == [str(1 + i) for i in order]
    assert run.predict([x], k=2)["class"].tolist() == [str(1 + i) for i in order[:2]]
    with pytest.raises(ValueError, match=r"top_k=0: not an integer of at least 1\. Choose one\."):
        run.predict_file(queries, k=0)
    with pytest.raises(ValueError, match=r"top_k=2: a model of lists of items ranks all of them\. Leave it"):
        run.export(tmp_path / "model", k=2)
    with pytest.raises(ValueError, match=r"coverage=0\.9: a list of items has no prediction sets\. Leave it"):
        run.predict([x], coverage=0.9)
    with pytest.raises(FileNotFoundError, match=r": no such file\. Check the path\."):
        run.predict_file(tmp_path)
    queries.write_text("0 qid:7 5:0.5\n")
    with pytest.raises(ValueError, match=r"features up to 5, but the model takes 4\. Give the features"):
        run.predict_file(queries)
    longest = len(run.class_names)
    assert f", {longest} items in the longest list, step " in repr(run)
    run.export(tmp_path / "model")
    card = (tmp_path / "model" / "README.md").read_text()
    assert f"The longest list of its data has {longest} items." in card
    model = tf.saved_model.load(str(tmp_path / "model"))
    answers = model.signatures["rank"](items=x[None], excluded=tf.zeros([1, 3], tf.bool))
    assert answers["positions"][0].numpy().tolist() == order.tolist()
    assert_takes_no_rows(model)


def test_several_classes_and_a_count_prior(tmp_path):
    section = config.Data("embedded_digits", num_examples=60, features="pixels")
    run = trained(
        tmp_path,
        section,
        config.Encoder("identity"),
        ("nll",),
        loss=config.Loss("n_choose_k"),
        count_prior=config.CountPrior("learned"),
        batch_size=20,
    )
    vectors = np.random.default_rng(0).random([3, 3600], np.float32)
    scores = run.scores(vectors)
    assert scores.shape == (3, 10)
    frame = run.predict(vectors, k=10)
    run.export(tmp_path / "model")
    model = tf.saved_model.load(str(tmp_path / "model"))
    assert_takes_no_rows(model)
    answers = model.signatures["score"](embedding=vectors)
    np.testing.assert_allclose(np.sum(answers["counts"], axis=1), 1.0, rtol=1e-5)
    # The marginals sum to the mean of the number of classes.
    counts = np.arange(answers["counts"].shape[1])
    np.testing.assert_allclose(
        np.sum(answers["probabilities"], axis=1), answers["counts"].numpy() @ counts, rtol=1e-4
    )
    expected = set_sizes.most_probable(answers["scores"], tf.math.log(answers["counts"])).numpy()
    in_set = frame.pivot(index="input", columns="class", values="in_set")[list(run.class_names)]
    np.testing.assert_array_equal(in_set, expected)
    ordered = frame["probability"].to_numpy().reshape(3, 10)
    assert (np.diff(ordered) <= 1e-6).all()
    np.save(tmp_path / "vectors.npy", vectors)
    run.predict_file(tmp_path / "vectors.npy", tmp_path / "out.tsv", k=2)
    table = pd.read_csv(tmp_path / "out.tsv", sep="\t")
    assert table["set_size"].tolist() == expected.sum(axis=1).tolist()
    by_class = frame.pivot(index="input", columns="class", values="probability")[list(run.class_names)]
    np.testing.assert_allclose(by_class, answers["probabilities"], rtol=1e-4)
    np.testing.assert_array_equal(scores_of(frame, run, vectors), scores)


def test_several_classes_have_one_order(tiny_goemotions, tiny_bert, tmp_path, monkeypatch):
    monkeypatch.setattr(calibration, "LEAST_PER_CLASS", 1)
    section = config.Data("goemotions", path=str(tiny_goemotions), max_length=8, multi_label=True)
    run = trained(
        tmp_path,
        section,
        config.Encoder("bert", path=tiny_bert),
        ("top1_error", "mean_rank"),
        loss=config.Loss("sigmoid_cross_entropy"),
        thresholds=config.Thresholds("f1"),
    )
    test = run._trained.load_task().splits["test"]
    best = run.predict(test.features["text"].tolist(), k=3)
    assert (np.diff(best["probability"].to_numpy().reshape(-1, 3)) <= 0.0).all()
    assert (np.diff(best["score"].to_numpy().reshape(-1, 3)) > 0.0).any()  # the scores have another order
    ids = [run.class_names.index(name) for name in best["class"]]
    right = np.take_along_axis(test.labels.toarray(), np.reshape(ids, [-1, 3]), axis=1) > 0
    assert run.results["test"]["top1_error"] == pytest.approx(100 * np.mean(~right[:, 0]))
    # Each class has a threshold, so the decided classes need not be the first.
    thresholds = dict(zip(run.class_names, run.answers.thresholds.values, strict=True))
    assert (best["in_set"] == (best["score"] > best["class"].map(thresholds))).all()
    in_set = best["in_set"].to_numpy().reshape(-1, 3)
    assert in_set.any()
    assert not in_set.all()
    texts = tmp_path / "texts.txt"
    texts.write_text("".join(f"{text}\n" for text in test.features["text"]))
    for name, read in (("a.tsv", pd.read_table), ("a.csv", pd.read_csv)):
        run.predict_file(texts, tmp_path / name, k=2)
        table = read(tmp_path / name)
        np.testing.assert_array_equal(table[["in_set_1", "in_set_2"]], in_set[:, :2])
        assert table["set_size"].tolist() == in_set.sum(axis=1).tolist()
    for name, read in (
        ("a.jsonl", functools.partial(pd.read_json, lines=True)),
        ("a.parquet", pd.read_parquet),
    ):
        run.predict_file(texts, tmp_path / name, k=3)
        assert np.array(read(tmp_path / name)["in_set"].tolist()).tolist() == in_set.tolist()
    run.export(tmp_path / "decided", k=3)
    model = tf.saved_model.load(str(tmp_path / "decided"))
    answers = model.signatures["classify"](text=tf.constant(test.features["text"].tolist()))
    np.testing.assert_array_equal(answers["in_set"], in_set)
    stored = json.loads((tmp_path / "decided" / "thresholds.json").read_text())
    assert stored == {"thresholds": list(thresholds.values())}
    ranks = (right * [1, 2, 3]).sum(axis=1) / right.sum(axis=1)
    assert run.results["test"]["mean_rank"] == pytest.approx(ranks.mean())
    assert run.evaluate() == run.results["test"]
    assert answers["classes"].numpy().astype(str).ravel().tolist() == best["class"].tolist()


def test_messages_of_tensorflow_serving(text_run, tmp_path):
    predict_pb2 = pytest.importorskip("tensorflow_serving.apis.predict_pb2")
    text_run.export(tmp_path / "model", k=2)
    saved = saved_model_pb2.SavedModel()
    saved.ParseFromString((tmp_path / "model" / "saved_model.pb").read_bytes())
    signature = saved.meta_graphs[0].signature_def["serving_default"]
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "mine"
    request.inputs["text"].CopyFrom(tf.make_tensor_proto(["great day", "bad mess"]))
    assert set(request.inputs) == set(signature.inputs)
    assert request.inputs["text"].dtype == signature.inputs["text"].dtype
    assert signature.method_name == "tensorflow/serving/predict"
    # A request by REST has rows: {"instances": [{"text": "great day"}, ...]}, and each output has as many.
    body = json.loads('{"instances": [{"text": "great day"}, {"text": "bad mess"}]}')
    inputs = {"text": [row["text"] for row in body["instances"]]}
    assert inputs["text"] == [text.decode() for text in tf.make_ndarray(request.inputs["text"])]
    model = tf.saved_model.load(str(tmp_path / "model"))
    outputs = model.signatures["serving_default"](text=tf.constant(inputs["text"]))
    assert set(outputs) == set(signature.outputs)
    response = predict_pb2.PredictResponse()
    for name, value in outputs.items():
        assert len(value) == 2
        response.outputs[name].CopyFrom(tf.make_tensor_proto(value.numpy()))
    best = text_run.predict(inputs["text"], k=2)
    classes = tf.make_ndarray(response.outputs["classes"]).astype(str)
    assert classes.ravel().tolist() == best["class"].tolist()
