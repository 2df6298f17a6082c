"""Runs predict, evaluate and export without the data and the encoder checkpoint of their training."""

import concurrent.futures
import dataclasses
import doctest
import functools
import gc
import os
import shutil
import weakref

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import rank4class
from rank4class import data
from rank4class.data.readers.columns import Columns
from rank4class.data.readers.rows import BadRows
from rank4class.data.readers.text_rows import read as read_rows
from rank4class.pipelines import config
from rank4class.pipelines import run as run_module
from rank4class.pipelines.evaluation import calibration, comparison, evaluator
from rank4class.pipelines.export import answers, prediction, prediction_files
from rank4class.pipelines.reporting import run_html
from rank4class.pipelines.run import Run


@pytest.mark.nightly
def test_doctests(tmp_path, monkeypatch):
    """The doctests share the folder of one run, which that of `train` writes."""
    monkeypatch.chdir(tmp_path)
    finder = doctest.DocTestFinder()
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    tests = [
        test
        for test in finder.find(run_module, extraglobs={"rank4class": rank4class, "data": data})
        if test.examples
    ]
    for test in sorted(tests, key=lambda test: test.name != f"{run_module.__name__}.train"):
        runner.run(test)
    assert runner.tries > 20
    assert not runner.failures


@pytest.fixture(scope="module")
def digits(digits_run):
    return digits_run


def test_predictions_have_the_metrics_of_the_results(digits, images):
    labels = data.get("digits").splits["test"].labels
    best = digits.predict(images, k=np.int64(5))
    names = best["class"].to_numpy().reshape(-1, 5)
    assert (best["rank"].to_numpy().reshape(-1, 5) == [1, 2, 3, 4, 5]).all()
    right = names == np.array(digits.class_names)[labels][:, None]
    assert 100 * (1 - right[:, 0].mean()) == pytest.approx(digits.results["test"]["top1_error"])
    assert 100 * (1 - right.any(axis=1).mean()) == pytest.approx(digits.results["test"]["top5_error"])
    scores = digits.scores(images)
    np.testing.assert_array_equal(best["score"].to_numpy().reshape(-1, 5), -np.sort(-scores)[:, :5])
    expected = -np.sort(-digits._trained.calibration.probabilities(scores))[:, :5]
    np.testing.assert_allclose(best["probability"].to_numpy().reshape(-1, 5), expected, atol=1e-6)
    assert digits.evaluate(split="test") == {**digits.results["test"]}
    assert list(digits.history["step"]) == [17, 34]
    assert repr(digits).endswith("10 classes, step 34)")


def test_a_notebook_shows_the_metrics_and_the_curve(digits):
    page = digits._repr_html_()
    low, high = digits.results["test"]["intervals"]["top1_error"]
    assert f"{digits.results['test']['top1_error']:.2f}  [{low:.2f}, {high:.2f}]</td>" in page
    assert page.count("<svg") == page.count("</svg>") == page.count("<table>") == 1
    page = run_html.render("<a>", None, digits.history[:1], "ndcg@5")
    assert page == "<p>&lt;a&gt;</p>\n<p>The training is not finished.</p>"


def test_the_keras_model_is_saved(digits, images, tmp_path):
    digits.model.save(tmp_path / "model.keras")
    loaded = tf.keras.models.load_model(tmp_path / "model.keras")
    scores = loaded({"image": images[:5]})
    np.testing.assert_allclose(scores, digits.scores(images[:5]), rtol=1e-5)


def test_threads_share_one_trace(digits, images, caplog):
    run = Run(digits.workdir)
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        frames = list(threads.map(lambda i: run.predict(images[i : i + 1]), range(16)))
        scores = list(threads.map(lambda i: run.scores(images[i : i + 1]), range(16)))
    assert "retracing" not in caplog.text
    assert run._predictor(5, False, None, None)._answer.experimental_get_tracing_count() == 1
    best = digits.predict(images[:16])
    np.testing.assert_allclose(pd.concat(frames)["score"], best["score"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(np.concatenate(scores), digits.scores(images[:16]), rtol=1e-5, atol=1e-6)


def test_of_equal_scores_the_lower_id_comes_first(digits):
    run = Run(digits.workdir)
    weights = [np.zeros_like(weight) for weight in run._trained.model.get_weights()]
    run._trained.model.set_weights(weights)
    assert run.predict(np.zeros([1, 8, 8, 1]), k=10)["class"].tolist() == list(digits.class_names)


def test_classes_are_ranked_by_their_probabilities(digits, images):
    platt = calibration.Platt((1.0,) * 10, tuple(np.linspace(3.0, -3.0, 10).tolist()))
    trained = dataclasses.replace(digits._trained, calibration=platt)
    features = {"image": tf.constant(images)}
    best = {name: value.numpy() for name, value in answers.Answers(trained).classify(features, 10).items()}
    logits = digits.scores(images) + np.linspace(3.0, -3.0, 10)
    order = np.argsort(-logits, axis=1)
    assert (order != np.argsort(-digits.scores(images), axis=1)).any(axis=1).mean() > 0.9
    np.testing.assert_array_equal(best["classes"].astype(int), order)
    assert (np.diff(best["probabilities"]) <= 0.0).all()
    expected = np.take_along_axis(digits.scores(images), order, axis=1)
    np.testing.assert_allclose(best["scores"], expected, rtol=1e-5, atol=1e-5)
    features["excluded"] = tf.constant(np.eye(10, dtype=bool)[order[:, 0]])
    others = answers.Answers(trained).classify(features, 9)
    np.testing.assert_array_equal(others["classes"].numpy().astype(int), order[:, 1:])


TEXTS = ["a", 'b "c" d', '"e" f', "g\th", "i\nj", "k\r\nl", r"m\tn", "o\\", "", "\x07\u2028", "\u00e9,;#'"]


def test_every_reader_of_tabs_returns_the_same_cells(tmp_path):
    path = tmp_path / "p.TSV"
    predictions = [
        prediction.Prediction(text, {"classes": [text, "x"], "scores": np.float32([2.0, 1.0])})
        for text in TEXTS
    ]
    assert prediction_files.write(path, predictions, 2) == len(TEXTS)
    frame = pd.read_csv(path, sep="\t", dtype=str, keep_default_na=False)
    assert (tmp_path / "p.TSV").read_bytes().count(b"\n") == 1 + len(TEXTS)
    examples = read_rows(str(path), Columns("class_2", "input"), BadRows("fail"))
    assert [row["input"] for _, row in examples] == frame["input"].tolist() == frame["class_1"].tolist()
    # Python's escapes restore the texts.
    restored = [cell.encode("latin1", "backslashreplace").decode("unicode_escape") for cell in frame["input"]]
    assert restored == TEXTS


READERS = {
    "tsv": pd.read_table,
    "csv": pd.read_csv,
    "jsonl": functools.partial(pd.read_json, lines=True),
    "parquet": pd.read_parquet,
}


@pytest.mark.parametrize("ending", READERS)
def test_files_of_predictions(digits, images, tmp_path, ending):
    """Of the best classes, and with a column for each class."""
    np.save(tmp_path / "images.npy", images[:5])
    output = tmp_path / f"predictions.{ending}"
    wide = tmp_path / f"wide.{ending}"
    assert digits.predict_file(tmp_path / "images.npy", output, k=3, batch_size=2) == (5, [])
    expected = digits.predict(images[:5], k=3)
    frame = READERS[ending](output)
    if ending in ("tsv", "csv"):
        assert list(frame.columns[:5]) == ["input", "class_1", "score_1", "probability_1", "class_2"]
        classes, scores = (frame.filter(like=name).to_numpy() for name in ("class", "score"))
    else:
        classes = np.stack(frame["classes"])
        scores = np.stack(frame["scores"])
    assert frame["input"].tolist() == [f"{tmp_path}/images.npy[{i}]" for i in range(5)]
    assert classes.astype(str).ravel().tolist() == expected["class"].tolist()
    np.testing.assert_allclose(scores.ravel(), expected["score"], rtol=1e-5)
    assert digits.predict_file(tmp_path / "images.npy", wide, wide=True) == (5, [])
    assert len(os.listdir(tmp_path)) == 3
    frame = READERS[ending](wide)
    assert list(map(str, frame.columns)) == ["input", *digits.class_names]
    expected = digits._trained.calibration.probabilities(digits.scores(images[:5]))
    np.testing.assert_allclose(frame.iloc[:, 1:].to_numpy(), expected, rtol=1e-5, atol=1e-7)
    with pytest.raises(ValueError, match=r"wide=True: takes no top_k, no coverage, no lists of items and no"):
        digits.predict_file(tmp_path / "images.npy", output, wide=True, k=3)


def test_columns_of_classes_that_are_excluded_or_not_calibrated(tmp_path):
    names = ["b", "scores", "a"]
    predictions = [
        prediction.Prediction("x", {"classes": ["a", "b"], "scores": np.float32([2.0, 1.5])}),
        prediction.Prediction("y", {"classes": ["scores", "b", "a"], "scores": np.float32([3.0, 0.5, -1.0])}),
    ]
    prediction_files.write(tmp_path / "p.csv", predictions, 3, names)
    assert (tmp_path / "p.csv").read_text().split() == ["input,b,scores,a", "x,1.5,,2", "y,0.5,3,-1"]
    prediction_files.write(tmp_path / "p.parquet", predictions, 3, names)
    expected = pd.DataFrame([["x", 1.5, np.nan, 2.0], ["y", 0.5, 3.0, -1.0]], columns=["input", *names])
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "p.parquet"), expected)


def test_predictions_of_a_split(digits, images):
    table = digits.predictions()
    labels = data.get("digits").splits["test"].labels
    assert table["class"].tolist() == [digits.class_names[i] for i in labels]
    best = digits.predict(images, k=1)
    assert table["predicted"].tolist() == best["class"].tolist()
    np.testing.assert_allclose(table["predicted score"], best["score"], rtol=1e-5)
    np.testing.assert_allclose(table["predicted probability"], best["probability"], rtol=1e-5)
    assert len(digits.predictions("train")) == digits.results["train_examples"]
    with pytest.raises(ValueError, match="split='dev': unknown"):
        digits.predictions("dev")


def test_parquet_of_empty_lists_and_of_a_failure(tmp_path, monkeypatch):
    monkeypatch.setattr(prediction_files, "_ROWS", 2)
    empty, one = (
        prediction.Prediction(
            "an input",
            {"classes": names, "scores": np.ones(len(names)), "probabilities": np.ones(len(names))},
        )
        for names in ([], ["a"])
    )
    prediction_files.write(tmp_path / "p.parquet", [empty, empty, one], 1)
    frame = pd.read_parquet(tmp_path / "p.parquet")
    assert [list(each) for each in frame["classes"]] == [[], [], ["a"]]
    assert [list(each) for each in frame["probabilities"]] == [[], [], [1.0]]

    def failing():
        yield from [one, one, one]
        raise ValueError("an input")

    with pytest.raises(ValueError, match="an input"):
        prediction_files.write(tmp_path / "failed.parquet", failing(), 1)
    gc.collect()
    assert os.listdir(tmp_path) == ["p.parquet"]


def test_batches_are_limited_by_their_scores(digits, images, monkeypatch):
    expected = digits.scores(images[:7])
    sizes = []
    monkeypatch.setattr(evaluator, "LARGEST_BATCH", 35)
    stack = data.Kind.stack
    monkeypatch.setattr(data.Kind, "stack", lambda kind, rows: sizes.append(len(rows)) or stack(kind, rows))
    np.testing.assert_allclose(digits.scores(images[:7]), expected, rtol=1e-5)
    assert sizes == [3, 3, 1]


def test_scores_that_are_not_finite_are_no_prediction(digits, images):
    with pytest.raises(ValueError, match=r"^inputs\[1\]: its scores are not finite\. Look at the input"):
        digits.predict([images[0], np.full_like(images[0], 3e38)], k=1)
    unsure = {"classes": np.array([b"a"]), "scores": np.ones(1), "probabilities": np.array([np.nan])}
    with pytest.raises(ValueError, match="^input: its probabilities are not finite"):
        prediction._prediction("input", {}, unsure)
    infinite = {"classes": np.array([b"a", b"b", b"c"]), "scores": np.array([1.0, 0.0, -np.inf])}
    assert prediction._prediction("input", {}, infinite).columns["classes"] == ["a", "b"]
    scores, _ = digits.answers._best({}, tf.constant([[1.0, 0.0, -np.inf]]), 2)  # of a class that is ranked
    assert np.isnan(scores).all()


def test_vectors_of_columns_are_found_by_name(tmp_path, rng):
    frame = pd.DataFrame(np.float32(rng.normal(size=[60, 3])), columns=[2, 0, 1])
    frame.assign(label=frame[2] > 0).replace({"label": {True: "y", False: "n"}}).to_csv(
        tmp_path / "mine.csv", index=False
    )
    experiment = config.Experiment(
        data=config.Data("table", path=str(tmp_path / "mine.csv")),
        encoder=config.Encoder("identity"),
        metrics=("ndcg@5",),
        epochs=0.0,
    )
    run = rank4class.train(experiment, tmp_path / "run", progress=False)
    expected = run.predict(frame.to_numpy(), k=1)
    frame[[0, 1, 2]].assign(id=7).to_csv(tmp_path / "new.csv", index=False)
    run.predict_file(tmp_path / "new.csv", tmp_path / "out.csv", k=1)
    np.testing.assert_allclose(pd.read_csv(tmp_path / "out.csv")["score_1"], expected["score"], rtol=1e-5)
    assert run.predict(frame[[0, 1, 2]].convert_dtypes(), k=1).equals(expected)
    assert run.evaluate(tmp_path / "mine.csv")["examples"] == 60
    run.export(tmp_path / "model")
    assert "# The columns of embedding: 2, 0, 1" in (tmp_path / "model" / "README.md").read_text()
    with pytest.raises(ValueError, match=r"inputs: no column '0', which the model takes\. Add it\."):
        run.predict(frame[[2]])


def test_invalid_arrays(digits, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("flat.npy", np.zeros([3, 64], np.float32))
    np.save("empty.npy", np.zeros([0, 8, 8, 1], np.float32))
    (tmp_path / "run.txt").write_text("x")
    for name, options, message in (
        ("flat.npy", {}, r"flat\.npy: shape \(64,\), but the model takes \(8, 8,"),
        ("empty.npy", {}, r"empty\.npy: no row\. Give an array with rows\."),
        ("run.txt", {}, r"run\.txt: unknown format\. Give an array as \.npy or \.npz\.$"),
        (
            "flat.npy",
            {"output": "p.pdf"},
            r"output=p\.pdf: unknown format\. Choose a file that ends in \.tsv",
        ),
        ("flat.npy", {"text_column": "x"}, r"text_column=x: the inputs of the model have no columns\. Leave"),
        ("flat.npy", {"k": 11}, r"top_k=11: not an integer in 1\.\.10\."),
    ):
        with pytest.raises(ValueError, match=message):
            digits.predict_file(name, **options)
    with pytest.raises(FileNotFoundError, match=r"nowhere\.npy: no such file or folder\. Check the path\."):
        digits.predict_file("nowhere.npy")
    with pytest.raises(FileNotFoundError, match=r"output=none/p\.tsv: no folder none\. Make it, or"):
        digits.predict_file("flat.npy", "none/p.tsv")
    with pytest.raises(ValueError, match=r"inputs\[0\]: shape \(64,\), but the model takes \(8, 8, 1\)\."):
        digits.predict(np.zeros([2, 64]))


def test_numbers_that_are_not_finite(digits, images, tmp_path):
    images = images[:5].astype(np.float64)
    images[3, 0, 0, 0] = 1e300
    np.save(tmp_path / "images.npy", images)
    with pytest.raises(ValueError, match=r"images\.npy\[3\]: a number is not finite\. Correct it\."):
        digits.predict_file(tmp_path / "images.npy", tmp_path / "p.tsv", batch_size=2)
    assert os.listdir(tmp_path) == ["images.npy"]
    count, skipped = digits.predict_file(tmp_path / "images.npy", tmp_path / "p.tsv", on_invalid_row="skip")
    assert (count, skipped) == (4, [f"{tmp_path}/images.npy[3]: a number is not finite. Correct it."])
    with pytest.raises(ValueError, match=r"inputs\[0\]: a number is not finite\. Correct it\."):
        digits.predict(np.full([1, 8, 8, 1], np.nan))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"image: a number is not finite\. Correct it\."):
        digits.answers.score({"image": tf.fill([1, 8, 8, 1], np.nan)})


def test_a_run_of_a_relative_path_stays(digits, tmp_path, monkeypatch):
    monkeypatch.chdir(os.path.dirname(digits.workdir))
    run = rank4class.load("run")
    monkeypatch.chdir(tmp_path)
    assert run.results == digits.results
    for call, message in (
        (lambda: run.evaluate(split="dev"), "split='dev': unknown"),
        (lambda: run.evaluate_examples("tset"), "split='tset': unknown"),
        (lambda: run.predict([], k="3"), "top_k='3': not an integer in 1..10"),
        (lambda: run.export(tmp_path / "model", k=0), "top_k=0: not an integer in 1..10"),
        (lambda: run.predict_file("x.npy", batch_size=0), "batch_size=0: not positive"),
        (lambda: run.predict_file("x.npy", on_invalid_row="drop"), "on_invalid_row='drop': unknown"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_folders_without_a_finished_run(digits, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"not the folder of a run, as it has no config\.json\. Give"):
        rank4class.load(tmp_path)
    copy = shutil.copytree(digits.workdir, tmp_path / "copy")
    shutil.rmtree(copy / "checkpoints")
    os.remove(copy / "results.json")
    with pytest.raises(FileNotFoundError, match=": no checkpoint yet. Train it first."):
        rank4class.load(copy)


def test_outputs_are_checked_before_the_prediction(digits, images, tmp_path):
    (tmp_path / "folder.tsv").mkdir()
    (tmp_path / "inputs" / "below").mkdir(parents=True)
    np.save(tmp_path / "images.npy", images[:2])
    for path, output, message in (
        ("images.npy", "folder.tsv", r"folder\.tsv: a folder\. Choose a file"),
        ("inputs", "inputs/below/p.tsv", r"p\.tsv: in the folder of the inputs\. Choose another folder"),
    ):
        with pytest.raises(ValueError, match=message):
            digits.predict_file(tmp_path / path, tmp_path / output)


def test_a_damaged_npz(digits, images, tmp_path):
    np.savez(tmp_path / "images.npz", image=images[:9])
    content = (tmp_path / "images.npz").read_bytes()
    for damaged in (content[: len(content) // 2], content[:900] + b"XXXX" + content[904:]):
        (tmp_path / "images.npz").write_bytes(damaged)
        with pytest.raises(ValueError, match=r"images\.npz: cannot be read: .*\. Write it with numpy\.save"):
            digits.predict_file(tmp_path / "images.npz")


def test_a_run_that_predicted_is_collected(digits, images):
    run = rank4class.load(digits.workdir)
    run.predict(images[:1])
    model = weakref.ref(run.model)
    del run
    gc.collect()
    assert model() is None


@pytest.mark.nightly
def test_threads_that_export_do_not_wait_for_each_other_forever(digits, tmp_path):
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(digits.export, (tmp_path / "first", tmp_path / "second")))
    for name in ("first", "second"):
        assert tf.saved_model.load(tmp_path / name).signatures["classify"]


def test_compare(digits, monkeypatch):
    last = rank4class.load(digits.workdir)
    frame = rank4class.compare([digits, last])
    assert frame["metric"].tolist() == ["top1_error", "top5_error", "ndcg@5"]
    assert frame["first"][0] == pytest.approx(digits.results["test"]["top1_error"])
    assert (frame["difference"] == frame["second"] - frame["first"]).all()
    assert rank4class.compare([digits.workdir, last]).equals(frame)
    with pytest.raises(ValueError, match="fewer than two runs"):
        rank4class.compare([digits])
    monkeypatch.setattr(last.experiment.data, "held_out", ("3",))  # the hashes are those of all classes
    with pytest.raises(ValueError, match="differ in data.held_out. Compare runs of the same data."):
        rank4class.compare([digits, last])
    monkeypatch.undo()
    monkeypatch.setattr(comparison, "compare_all", lambda *_, **__: [])
    with pytest.raises(ValueError, match="have no metric in common. Compare runs with the same metrics."):
        rank4class.compare([digits, last])


@pytest.mark.nightly
def test_saved_model_and_its_card(digits, images, tmp_path):
    """`export/inputs_test.py` loads one in a process without rank4class."""
    folder = tmp_path / "model" / "1"
    images = images[:4]
    digits.export(folder, k=3)
    model = tf.saved_model.load(folder)
    answers = model.signatures["serving_default"](image=images)
    expected = digits.predict(images, k=3)
    assert np.ravel(answers["classes"]).astype(str).tolist() == expected["class"].tolist()
    for column, name in (("score", "scores"), ("probability", "probabilities")):
        np.testing.assert_allclose(np.ravel(answers[name]), expected[column], rtol=1e-5)
    assert (folder / "assets" / "classes.txt").read_text().split() == list(digits.class_names)
    assert set(model.signatures) == {"classify", "score", "encode", "encode_classes", "serving_default"}
    h = model.signatures["encode"](image=images)["vectors"]
    c = model.signatures["encode_classes"]()["vectors"]
    bias = digits._trained.model.interaction.get_weights()[0]
    np.testing.assert_allclose(h @ tf.transpose(c) + bias, digits.scores(images), rtol=1e-4, atol=1e-5)
    card = (folder / "README.md").read_text()
    assert f"top1_error (%)  {digits.results['validation']['top1_error']:.2f}" in card
    assert digits.data_hashes["train"] in card
    assert "ece (%) after" in card
    program = card.split("```python\n")[1].split("```")[0].replace("FOLDER", str(folder))
    assert "image=tf.constant(...)" in program
    exec(compile(program.replace("...", "images"), "README.md", "exec"), {"images": images})
    with pytest.raises(FileExistsError, match=r"output=.*/1: exists already\. Choose another folder"):
        digits.export(folder)
    assert os.listdir(tmp_path / "model") == ["1"]
    names = ["score", "classify"]
    image = images[:1]
    converter = tf.lite.TFLiteConverter.from_saved_model(str(folder), signature_keys=names)
    interpreter = tf.lite.Interpreter(model_content=converter.convert())
    for name in names:
        answers = interpreter.get_signature_runner(name)(image=image)
        expected = model.signatures[name](image=image)
        np.testing.assert_allclose(answers["probabilities"], expected["probabilities"], rtol=1e-5)
