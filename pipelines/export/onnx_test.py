"""ONNX models: their encoders, tokens and words beside TensorFlow's, and whole runs, also with eight bits."""

import functools
import json
import pathlib
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import rank4class
from rank4class import data
from rank4class.models import encoders
from rank4class.pipelines import config
from rank4class.pipelines.export import onnx_export, onnx_files, onnx_graph, onnx_model
from rank4class.pipelines.reporting import onnx_report

onnx = pytest.importorskip("onnx", reason="the extra onnx is not installed")

TINY = {"vocab_size": 40, "hidden_size": 16, "num_layers": 2, "num_heads": 2, "inner_size": 24}
TEXTS = [
    "great day",
    "",
    "awful mess " * 30,
    "\u00c9t\u00e9, stra\u00dfe [CLS] \u4e2d\u6587 \u0130stanbul"
    " \U0001f600\ufe0f \ufb01ne\u00ad \uff21\u2167 the_table's a\tb\u00a0c\x07",
    "x" * 700 + " great",
]


@pytest.mark.parametrize(
    "make",
    [
        lambda: encoders.Bert(**TINY, pooling="pooler", activation="gelu_new"),
        lambda: encoders.Bert(**TINY, pooling="normalized_mean"),
        lambda: encoders.Electra(**TINY, embedding_size=8, pooling="normalized_cls", activation="relu"),
        lambda: encoders.Mpnet(**TINY, max_positions=40, pooling="mean"),
        lambda: encoders.Static(40, 16, left_out=[0, 7]),
        lambda: encoders.XlmRoberta(**TINY, num_types=1, pooling="cls"),
    ],
)
def test_encoders_have_the_vectors_of_tensorflow(make, rng, tmp_path):
    encoder = make()
    ids = rng.integers(40, size=[3, 30])
    mask = np.arange(30) < [[30], [4], [11]]
    num_types = encoder.config["num_types"] if hasattr(encoder, "config") else None
    types = rng.integers(num_types or 1, size=ids.shape)
    features = dict(zip(onnx_graph.INPUTS, (ids * mask, mask, types), strict=True))
    features = {name: values.astype(np.int32) for name, values in features.items()}
    encoder(features)
    encoder.set_weights([rng.normal(size=weight.shape) for weight in encoder.get_weights()])
    expected = encoder(features).numpy()
    onnx.save(onnx_graph.of_encoder(encoder), tmp_path / "encoder.onnx")
    session = onnx_model.session(str(tmp_path / "encoder.onnx"))
    [vectors] = session.run(None, {each.name: features[each.name] for each in session.get_inputs()})
    np.testing.assert_allclose(vectors, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("start", ["[CLS]", "<s>"])
@pytest.mark.parametrize("lower_case", [True, False])
def test_tokens_are_those_of_the_tokenizer(tmp_path, start, lower_case):
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"] if start == "[CLS]" else ["<s>", "<pad>", "</s>", "[UNK]"]
    pieces = [
        "great",
        "day",
        "a",
        "##b",
        "e",
        "t",
        "##t",
        "##e",
        "\u00c9",
        "\u4e2d",
        "[",
        "]",
        "cls",
        ",",
        "'",
        "s",
    ]
    tokenizer = data.TOKENIZERS["WordPiece"]([*special, *pieces, *"xyz"], 12, lower_case)
    onnx_export.write_tokenizer(tokenizer, str(tmp_path / "tokenizer.json"))
    from tokenizers import Tokenizer

    encodings = Tokenizer.from_file(str(tmp_path / "tokenizer.json")).encode_batch(TEXTS)
    expected = tokenizer({"text": tf.constant(TEXTS)})
    ids, mask = (expected[name].numpy() for name in ("input_word_ids", "input_mask"))
    for i, encoding in enumerate(encodings):
        assert (
            np.array(encoding.ids)[np.array(encoding.attention_mask) == 1].tolist()
            == ids[i][mask[i] == 1].tolist()
        )


def test_scores_of_words_are_those_of_tensorflow(rng):
    words = encoders.Words(min_texts=1)
    words.adapt({"text": np.array([*TEXTS[:4], "the table is great", "\u4e2d\u6587 is here"], object)})
    kernel = rng.normal(size=[words.width, 3])
    bias = rng.normal(size=3)
    hashes, idf = words.get_weights()
    scores = onnx_model.Words(hashes, idf, np.float32(kernel), np.float32(bias))
    expected = words({"text": tf.constant(TEXTS)}).numpy() @ kernel + bias
    np.testing.assert_allclose([scores(text) for text in TEXTS], expected, rtol=1e-4, atol=1e-4)


@pytest.fixture(scope="module")
def run(tmp_path_factory, write_tiny_bert):
    folder = tmp_path_factory.mktemp("onnx")
    rng = np.random.default_rng(0)
    words = {"good": ["great", "happy"], "bad": ["awful", "mess"], "thing": ["the table", "the day"]}
    for split, size in (("train", 120), ("validation", 90), ("test", 60)):
        names = [list(words)[i % 3] for i in range(size)]
        lines = [f"{rng.choice(words[name])} is {rng.integers(99)},{name}\n" for name in names]
        (folder / f"{split}.csv").write_text("text,label\n" + "".join(lines))
    experiment = config.Experiment(
        data=config.Data("text_file", path=str(folder), max_length=16),
        encoder=config.Encoder("bert", path=write_tiny_bert(folder / "encoder"), pooling="normalized_mean"),
        optimizer=config.Optimizer("adamw", learning_rate=1e-2),
        sets=config.Sets("adaptive"),
        words="auto",
        epochs=4.0,
        unknown=0.1,
    )
    return rank4class.train(experiment, folder / "run", progress=False)


@pytest.mark.nightly
def test_a_run_answers_alike_without_tensorflow(run, tmp_path):
    run.export(tmp_path / "model", format="onnx", coverage=0.9)
    program = (
        "import json, sys\n"
        "from rank4class.pipelines.export.onnx_model import OnnxModel\n"
        "answers = OnnxModel(sys.argv[1]).predict(json.loads(sys.argv[2]), k=2)\n"
        "assert 'tensorflow' not in sys.modules\n"
        "print(json.dumps(answers))"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "model"), json.dumps(TEXTS)]
    answers = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    outputs = run.outputs(TEXTS, coverage=0.9)
    frame = run.predict(TEXTS, k=2, coverage=0.9)
    for i, answer in enumerate(answers):
        rows = frame[frame["input"] == i]
        assert answer["classes"] == rows["class"].tolist()
        np.testing.assert_allclose(answer["probabilities"], rows["probability"], atol=1e-4)
        assert answer["in_set"] == rows["in_set"].tolist()
        assert answer["set_size"] == outputs["set_size"][i]
        assert answer["unknown"] == rows["unknown"].iloc[0]
        assert answer["p_value"] == pytest.approx(rows["p_value"].iloc[0], abs=1e-4)
    assert "OnnxModel" in (tmp_path / "model" / "README.md").read_text()


@pytest.mark.nightly
def test_arrays_are_answered_alike(digits_run, tmp_path):
    images = data.get("digits").splits["test"].features["image"][:20]
    digits_run.export(tmp_path / "model", format="onnx")
    model = onnx_model.OnnxModel(tmp_path / "model")
    expected = digits_run.outputs(images)
    outputs = model.outputs(images.astype(np.float64))
    assert outputs.keys() == {"ranking", *expected}
    for name, values in expected.items():
        np.testing.assert_allclose(outputs[name], values, atol=1e-5)
    np.save(tmp_path / "x.npy", images)
    for name, predict in (
        ("one.csv", functools.partial(onnx_files.predict_file, model)),
        ("other.csv", digits_run.predict_file),
    ):
        assert predict(tmp_path / "x.npy", tmp_path / name) == (20, [])
    one, other = (pd.read_csv(tmp_path / name) for name in ("one.csv", "other.csv"))
    pd.testing.assert_frame_equal(one, other, atol=1e-5)
    for wrong, message in (
        (images[0], r"inputs: shape \(8, 8, 1\), but the model takes \(None, 8, 8, 1\)\. Reshape them"),
        (images + np.inf, r"inputs: a number is not finite\. Correct it"),
    ):
        with pytest.raises(ValueError, match=message):
            model.predict(wrong)


FILES = """
import json, sys
from rank4class.pipelines.export import onnx_files, onnx_model
model = onnx_model.OnnxModel(sys.argv[1])
for path, options in json.loads(sys.argv[2]):
    print(*onnx_files.predict_file(model, "texts.csv", path, **options))
assert "tensorflow" not in sys.modules
"""


@pytest.mark.nightly
def test_files_are_those_of_the_run(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pd.DataFrame({"id": range(5), "text": TEXTS, "more": "x"}).to_csv("texts.csv", index=False)
    run.export("model", format="onnx", coverage=0.9)
    calls = [
        ("sets.csv", {}),
        ("best.jsonl", {"k": 2, "max_set_size": 1, "keep": ["more"]}),
        ("wide.tsv", {"wide": True}),
        ("label.csv", {"informative": 2, "text_column": "text"}),
    ]
    command = [sys.executable, "-c", FILES, "model", json.dumps(calls)]
    printed = subprocess.run(command, capture_output=True, check=True, text=True)
    assert printed.stdout.split() == ["5", "[]", "5", "[]", "5", "[]", "2", "[]"]
    assert "1 texts are empty or white space" in printed.stderr
    assert "2 texts have more than 16 tokens, and are cut" in printed.stderr
    for path, options in calls:
        coverage = {} if path in ("wide.tsv", "label.csv") else {"coverage": 0.9}
        run.predict_file("texts.csv", f"of_run_{path}", **options, **coverage)
        if path == "best.jsonl":
            frame, expected = (pd.read_json(name, lines=True) for name in (path, f"of_run_{path}"))
            assert list(frame.columns) == list(expected.columns)
            assert frame["classes"].tolist() == expected["classes"].tolist()
            continue
        sep = "\t" if path.endswith("tsv") else ","
        frame, expected = (pd.read_csv(name, sep=sep) for name in (path, f"of_run_{path}"))
        numbers = ["scores", "probabilities"] if path == "sets.csv" else []
        for name in numbers:
            values = [[float(x) for x in str(cell).split(";")] for cell in frame[name]]
            others = [[float(x) for x in str(cell).split(";")] for cell in expected[name]]
            for one, other in zip(values, others, strict=True):
                np.testing.assert_allclose(one, other, atol=1e-3)
        pd.testing.assert_frame_equal(
            frame[expected.columns].drop(columns=numbers),  # wide ones have the size of the set too
            expected.drop(columns=numbers),
            atol=1e-3,
            check_exact=False,
        )
    model = onnx_model.OnnxModel("model")
    with pytest.raises(ValueError, match=r"prior=uniform: an ONNX model cannot do that. Leave it out, or"):
        onnx_files.predict_file(model, "texts.csv", prior="uniform")
    with pytest.raises(ValueError, match=r"top_k=4: not an integer in 1\.\.3"):
        onnx_files.predict_file(model, "texts.csv", k=4)
    with pytest.raises(FileNotFoundError, match=r"nowhere\.csv: no such file or folder"):
        onnx_files.predict_file(model, "nowhere.csv")


SERVED = """
import json, sys, threading, time, urllib.request
import uvicorn
from rank4class.pipelines.export import serving
app = serving.app(sys.argv[1])
server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
thread = threading.Thread(target=server.run)
thread.start()
while not server.started:
    time.sleep(0.01)
address = "http://{}:{}".format(*server.servers[0].sockets[0].getsockname()) + app.state.path
for name in ("classify", "score", "encode"):
    body = {"signature_name": name, "inputs": {"text": json.loads(sys.argv[2])}}
    answer = json.load(urllib.request.urlopen(address + ":predict", json.dumps(body).encode()))
    print(json.dumps(answer["outputs"]))
described = json.load(urllib.request.urlopen(address + "/metadata"))["metadata"]["signature_def"]
print(json.dumps(described["signature_def"]["serving_default"]))
server.should_exit = True
thread.join()
assert "tensorflow" not in sys.modules
"""


@pytest.mark.nightly
def test_the_server_answers_as_the_run(run, tmp_path):
    run.export(tmp_path / "mine" / "2", format="onnx")
    command = [sys.executable, "-c", SERVED, str(tmp_path / "mine"), json.dumps(TEXTS)]
    printed = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    best, scores, vectors, described = map(json.loads, printed.splitlines())
    expected = run.outputs(TEXTS)
    frame = run.predict(TEXTS)
    assert np.ravel(best["classes"]).tolist() == frame["class"].tolist()
    np.testing.assert_allclose(np.ravel(best["probabilities"]), frame["probability"], atol=1e-4)
    assert scores.keys() == expected.keys()
    np.testing.assert_allclose(scores["scores"], expected["scores"], atol=1e-4)
    features = {"text": tf.constant(TEXTS)}
    np.testing.assert_allclose(vectors, run.answers.encode(features)["vectors"], atol=1e-4)
    assert described["inputs"]["text"]["dtype"] == "DT_STRING"
    assert described["outputs"]["classes"]["dtype"] == "DT_STRING"


@pytest.mark.nightly
def test_the_program_of_the_guide_needs_no_rank4class(run, tmp_path):
    experiment = config.override(run.experiment, {"words": "none", "unknown": None})
    plain = rank4class.train(experiment, tmp_path / "run", progress=False)
    plain.export(tmp_path / "model", format="onnx")
    guide = pathlib.Path(__file__).parents[2] / "docs" / "guides" / "predicting.md"
    [program] = re.findall(r"```py\n([^`]*import onnxruntime[^`]*)```", guide.read_text())
    program = program.replace("models/fast", str(tmp_path / "model"))
    program += "import sys\nassert not {'rank4class', 'tensorflow'} & set(sys.modules)\n"
    command = [sys.executable, "-c", program.replace("I lost my card", TEXTS[0])]
    printed = subprocess.run(command, capture_output=True, check=True, text=True, cwd=tmp_path).stdout
    frame = plain.predict(TEXTS[:1], k=3)
    assert re.findall(r"'(\w+)'", printed) == frame["class"].tolist()
    numbers = [float(number) for number in re.findall(r"[\d.]+(?:e-\d+)?(?=\))", printed)]
    np.testing.assert_allclose([each for each in numbers if each], frame["probability"], atol=1e-4)


@pytest.mark.nightly
def test_quantization_says_what_it_costs(run, tmp_path):
    report = run.export(tmp_path / "model", format="onnx", quantize="int8")
    assert report == json.loads((tmp_path / "model" / "report.json").read_text())
    figures = report["test"]["top1_error"]
    assert figures["run"] == run.results["test"]["top1_error"]
    assert figures["difference"] == pytest.approx(figures["export"] - figures["run"])
    assert set(report["milliseconds"]) == {"1", "64"}
    plain = onnx_model.OnnxModel(tmp_path / "model").outputs(TEXTS)["scores"]
    assert 0.0 < np.abs(plain - run.scores(TEXTS)).max() < 1.0
    assert "0.00% of the inputs have another class first" in onnx_report.text({**report, "changed": 0.0})
    with pytest.raises(ValueError, match="max_loss=-1: quantization raises the top-1 error by 0.00 points"):
        run.export(tmp_path / "worse", format="onnx", quantize="int8", max_loss=-1)
    assert not (tmp_path / "worse").exists()


@pytest.mark.nightly
def test_errors(run, digits_run, tmp_path):
    for source, options, message in (
        (run, {"format": "onnx", "k": 3}, "format='onnx': scores all classes. Leave out top_k, index"),
        (run, {"quantize": "int8"}, "quantize='int8': of ONNX models. Set format to 'onnx'"),
        (run, {"format": "onnx", "max_loss": 1.0}, "max_loss=1.0: nothing is quantized. Set quantize"),
        (digits_run, {"format": "onnx", "quantize": "int8"}, "quantize='int8': of encoders of texts. Set"),
    ):
        with pytest.raises(ValueError, match=message):
            source.export(tmp_path / "model", **options)
    run.export(tmp_path / "model", format="onnx")
    for wrong in ("a text", []):
        with pytest.raises(ValueError, match=r"texts=.*: no list with a text. Give a list of texts"):
            onnx_model.OnnxModel(tmp_path / "model").predict(wrong)
    with pytest.raises(FileNotFoundError, match=r"model\.json: no such file. Give a folder of rank4class"):
        onnx_model.OnnxModel(tmp_path)
