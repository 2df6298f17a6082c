import base64
import concurrent.futures
import contextlib
import json
import socket
import threading
import time
import urllib.error
import urllib.request

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import rank4class
from rank4class import data
from rank4class.pipelines import config

REASON = "pip install 'rank4class[serve]'"
pytest.importorskip("starlette", reason=REASON)
uvicorn = pytest.importorskip("uvicorn", reason=REASON)

from starlette.exceptions import HTTPException  # noqa: E402

from rank4class.pipelines.export import onnx_model, serving  # noqa: E402


@contextlib.contextmanager
def served(app):
    """Yields the address of a server of an application."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield server.servers[0].sockets[0].getsockname()
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def folder(digits_run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "digits"
    folder.mkdir()
    digits_run.export(folder / "9", k=2)
    digits_run.export(folder / "10", k=3)
    return folder


@pytest.fixture(scope="module")
def address(folder):
    with served(serving.app(folder)) as address:
        yield address


@pytest.fixture(scope="module")
def images():
    return data.get("digits").splits["test"].features["image"][:20]


def request(address, path, body=None):
    """Returns the status and the JSON of a response; a body is bytes, or JSON to post."""
    content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(
            urllib.request.Request("http://{}:{}/v1/models/".format(*address) + path, content)
        ) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error) if error.headers["content-type"].endswith("json") else {}


def test_answers_are_those_of_the_model(address, folder, images):
    model = tf.saved_model.load(str(folder / "10"))
    expected = model.signatures["classify"](image=tf.constant(images))
    status, by_name = request(address, "digits:predict", {"inputs": {"image": images.tolist()}})
    assert status == 200
    outputs = by_name["outputs"]
    assert outputs["classes"] == np.char.decode(expected["classes"].numpy().astype(bytes), "utf-8").tolist()
    assert np.shape(outputs["classes"]) == (20, 3)  # of the version with the highest number
    for name in ("scores", "probabilities"):
        np.testing.assert_array_equal(np.float32(outputs[name]), expected[name])
    for instances in (images.tolist(), [{"image": image.tolist()} for image in images]):
        body = {"instances": instances, "signature_name": "classify"}
        rows = request(address, "digits/versions/10:predict", body)[1]["predictions"]
        assert rows == [dict(zip(outputs, row, strict=True)) for row in zip(*outputs.values(), strict=True)]
    pairs = request(address, "digits:classify", {"examples": images.tolist()})[1]["result"]
    assert pairs[0] == [
        list(pair) for pair in zip(outputs["classes"][0], outputs["probabilities"][0], strict=True)
    ]
    vectors = request(address, "digits:predict", {"signature_name": "encode", "inputs": images.tolist()})
    np.testing.assert_array_equal(
        np.float32(vectors[1]["outputs"]), model.signatures["encode"](image=tf.constant(images))["vectors"]
    )
    classes = {"signature_name": "encode_classes", "inputs": {}}
    assert request(address, "digits:predict", classes)[1]["outputs"]["classes"] == list("0123456789")


def test_metrics_are_those_of_the_requests(folder, images):
    app = serving.app(folder)
    with served(app) as address:
        for body in ({"instances": images.tolist()}, {"instances": []}):
            request(address, "digits:predict", body)
        with urllib.request.urlopen("http://{}:{}/metrics".format(*address)) as response:
            lines = response.read().decode().splitlines()
    for line in (
        'rank4class_requests_total{route="predict",status="200"} 1.0',
        'rank4class_requests_total{route="predict",status="400"} 1.0',
        'rank4class_request_seconds_count{route="predict"} 2.0',
        "rank4class_batch_size_sum 20.0",
        "rank4class_waiting 0.0",
    ):
        assert line in lines


def test_a_full_queue_refuses_requests(folder, images, monkeypatch):
    monkeypatch.setattr(serving, "MAX_WAITING", 3)
    monkeypatch.setattr(serving, "MAX_BATCH", 1)
    app = serving.app(folder)
    body = {"instances": images[:2].tolist()}
    with served(app) as address, concurrent.futures.ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda _: request(address, "digits:predict", body), range(60)))
        refused = [answer for status, answer in answers if status == 503]
        assert refused[0] == {"error": "more than 3 inputs wait. Send the request again later."}
        assert 0 < len(refused) < 60
        assert {status for status, _ in answers} == {200, 503}
        assert request(address, "digits:predict", body)[0] == 200


def test_status_and_metadata(address):
    [state] = request(address, "digits")[1]["model_version_status"]
    assert (state["version"], state["state"]) == ("10", "AVAILABLE")
    described = request(address, "digits/metadata")[1]["metadata"]["signature_def"]["signature_def"]
    image = described["serving_default"]["inputs"]["image"]
    assert image["dtype"] == "DT_FLOAT"
    assert [each["size"] for each in image["tensor_shape"]["dim"]] == ["-1", "8", "8", "1"]


def test_concurrent_requests_are_answered_together_without_a_wrong_one(address, images):
    wrong = json.dumps({"instances": np.full([1, 8, 8, 1], np.inf).tolist()}).replace("Infinity", "1e999")
    bodies = [{"instances": [image.tolist()]} for image in images]
    alone = [request(address, "digits:predict", body) for body in bodies]
    bodies[::4] = [wrong.encode()] * 5
    with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
        together = list(pool.map(lambda body: request(address, "digits:predict", body), bodies))
    for i, ((status, one), (_, other)) in enumerate(zip(together, alone, strict=True)):
        if i % 4 == 0:
            assert status == 400
            assert "image: a number is not finite" in one["error"]
            continue
        [one], [other] = one["predictions"], other["predictions"]
        assert one["classes"] == other["classes"]
        np.testing.assert_allclose(one["scores"], other["scores"], rtol=1e-5, atol=1e-5)


ONE = np.zeros([1, 8, 8, 1]).tolist()
IMAGE = "image: needs numbers: float32 (None, 8, 8, 1), not "


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"{", 400, "body: not JSON"),
        (b"\xff", 400, "codec can't decode byte"),
        (b"[]", 400, "body: not a JSON object."),
        (b'{"inputs": ["\\ud83d"]}', 400, "body: the text is not Unicode: surrogates not allowed."),
        (b"[" * 100_000, 400, "recursion"),
        ({}, 400, 'the body needs either "instances" or "inputs".'),
        ({"instances": ONE, "inputs": ONE}, 400, 'needs either "instances" or "inputs".'),
        ({"instances": []}, 400, '"instances" is no list of inputs.'),
        ({"instances": "text"}, 400, '"instances" is no list of inputs.'),
        ({"inputs": {"picture": ONE}}, 400, "features picture: the signature takes image."),
        ({"inputs": {"image": []}}, 400, f"{IMAGE}float64 (0,)."),
        ({"inputs": {"image": [[1.0], [1.0, 2.0]]}}, 400, "image: setting an array element with a sequence"),
        ({"inputs": {"image": [None]}}, 400, f"{IMAGE}object (1,)."),
        ({"inputs": {"image": [[1, "a"]]}}, 400, f"{IMAGE}<U21 (1, 2)."),
        ({"inputs": {"image": [True]}}, 400, f"{IMAGE}bool (1,)."),
        ({"inputs": {"image": [{"b64": "YQ=="}]}}, 400, f"{IMAGE}|S1 (1,)."),
        ({"inputs": {"image": [{"b64": "!"}]}}, 400, "image: "),
        ({"inputs": 7}, 400, f"{IMAGE}int64 ()."),
        ({"instances": [{"image": ONE[0]}, ONE[0]]}, 400, '"instances" have different features.'),
        ({"inputs": ONE, "signature_name": "best"}, 400, "signature_name='best': unknown. There are: "),
        ({"inputs": ONE, "signature_name": [1]}, 400, "signature_name=[1]: unknown."),
        (b" " * (33 << 20), 413, "the body has more than 33,554,432 bytes."),
    ],
)
def test_wrong_requests(address, body, status, message):
    answer = request(address, "digits:predict", body)
    assert answer[0] == status
    assert message in answer[1]["error"]


def test_wrong_routes(address):
    routes = [f"GET /v1/models/digits{version}" for version in ("", "/metadata")]
    status, answer = request(address, "letters")
    assert (status, answer.keys()) == (404, {"error"})
    assert answer["error"].startswith(
        f"GET /v1/models/letters: no such route. There are: {routes[0]}, {routes[1]},"
    )
    status, answer = request(address, "digits:predict")
    assert (status, answer.keys()) == (405, {"error"})
    assert "GET /v1/models/digits:predict: no such route. There are: " in answer["error"]
    assert ", POST /v1/models/digits:predict, " in answer["error"]
    body = {"examples": ONE, "signature_name": "encode"}
    assert request(address, "digits:classify", body) == (400, {"error": "the signature returns no classes."})


def test_a_slow_client_gets_an_answer(address, monkeypatch):
    monkeypatch.setattr(serving, "BODY_SECONDS", 0.2)
    with socket.create_connection(address) as client:
        client.sendall(b"POST /v1/models/digits:predict HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{")
        assert client.recv(1000).startswith(b"HTTP/1.1 408 ")


def test_texts_and_bytes_as_base64(tmp_path):
    module = tf.Module()
    module.length = tf.function(
        lambda text: {"length": tf.strings.length(text), "text": tf.strings.upper(text)},
        input_signature=[tf.TensorSpec([None], tf.string, "text")],
    )
    tf.saved_model.save(module, str(tmp_path / "lengths"), {"serving_default": module.length})
    encoded = {"b64": base64.b64encode(b"\x00\x01").decode()}
    with served(serving.app(tmp_path / "lengths")) as address:
        status, answer = request(address, "lengths/versions/1:predict", {"inputs": {"text": ["äb", encoded]}})
        assert (status, answer["outputs"]["length"]) == (200, [3, 2])
        assert answer["outputs"]["text"] == ["äB", "\x00\x01"]
        status, answer = request(address, "lengths:predict", {"instances": [encoded, encoded, "a"]})
        assert [row["length"] for row in answer["predictions"]] == [2, 2, 1]
        for values in (3, 0.5, {}, None, True, ["a", "b"]):
            status, answer = request(address, "lengths:predict", {"inputs": {"text": ["a", values]}})
            assert (status, answer["error"].partition(":")[0]) == (400, "text"), values
    pixels = onnx_model.Spec((None,), np.dtype(np.uint8))
    assert serving._array("image", [255, 0], pixels).dtype == np.uint8
    for wrong in (256, -1, 2**70):  # not modulo 256
        with pytest.raises(HTTPException, match=r"image: needs integers: uint8 \(None,\), not "):
            serving._array("image", [wrong], pixels)


@pytest.mark.nightly
def test_an_empty_text_gets_the_same_answer_on_each_path(tmp_path, tiny_bert, caplog):
    frozen = config.Encoder("bert", path=tiny_bert, frozen=True)
    classifier = rank4class.RankClassifier(encoder=frozen, epochs=3, experiment={"data.max_length": 32})
    classifier.fit(["great happy day", "awful bad mess"] * 10, [1, 0] * 10)
    run = classifier.run_
    texts = ["great", "", " \t", "bad mess"]
    caplog.clear()
    answers = [classifier.predict_proba(texts)]
    answers.append(run.outputs(texts)["probabilities"])
    frame = run.predict(texts)
    answers.append(frame.pivot(index="input", columns="class", values="probability"))
    for name, content in (
        ("in.csv", 'text\ngreat\n""\n" \t"\nbad mess\n'),
        ("in.txt", "great\n\n \t\nbad mess\n\n"),
    ):
        (tmp_path / name).write_text(content)
        assert run.predict_file(tmp_path / name, tmp_path / "wide.csv", wide=True) == (4, [])
        answers.append(pd.read_csv(tmp_path / "wide.csv").iloc[:, 1:])
    message = "2 texts are empty or white space, and are predicted like others"
    assert caplog.messages == [message] * len(answers)
    caplog.clear()
    run.predict(["great " * 30, "bad", "bad " * 31, "great " * 99])
    assert caplog.messages == ["2 texts have more than 32 tokens, and are cut"]
    run.export(tmp_path / "mine")
    model = tf.saved_model.load(str(tmp_path / "mine"))
    answers.append(model.signatures["score"](text=tf.constant(texts))["probabilities"])
    with served(serving.app(tmp_path / "mine")) as address:
        body = {"inputs": {"text": texts}, "signature_name": "score"}
        answers.append(request(address, "mine:predict", body)[1]["outputs"]["probabilities"])
    for answer in answers:
        assert np.shape(answer) == (4, 2)
        np.testing.assert_allclose(answer, answers[0], rtol=1e-4)  # files have six digits
    np.testing.assert_array_equal(answers[0][1], answers[0][2])


def test_a_folder_without_a_model(tmp_path):
    with pytest.raises(
        FileNotFoundError, match="model=.*: no exported model. Write one with: rank4class export"
    ):
        serving.app(tmp_path)
