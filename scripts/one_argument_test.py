"""From a file to a served answer in three commands without an option, in an empty folder."""

import base64
import json
import socket
import time
import urllib.request

import numpy as np
import pandas as pd
import pytest
from PIL import Image

pytest.importorskip("uvicorn", reason="pip install 'rank4class[serve]'")
pytestmark = pytest.mark.nightly

COUNT = 90


def texts(folder):
    words = [("refund", "login", "fee")[i % 3] for i in range(COUNT)]
    frame = pd.DataFrame(
        {"title": [f"my {word} is late, {i}" for i, word in enumerate(words)], "topic": words}
    )
    frame.to_csv(folder / "mine.csv", index=False)
    return "mine.csv", frame.drop(columns="topic"), {"text": "a new refund is late"}, "refund"


def several_labels(folder):
    names = [
        ";".join(word for j, word in enumerate(("cat", "dog", "owl")) if i % 7 >> j & 1) for i in range(210)
    ]
    frame = pd.DataFrame(
        {"text": [f"a {name.replace(';', ' and ')} or so" for name in names], "labels": names}
    )
    frame[frame["labels"] != ""].to_json(folder / "mine.jsonl", orient="records", lines=True)
    return "mine.jsonl", frame.drop(columns="labels"), {"text": "a owl or so"}, "owl"


def images(folder):
    for i in range(COUNT):
        for name, shade in (("dark", 20), ("light", 230)):
            (folder / "photos" / name).mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (40, 30), (shade, shade, i)).save(folder / "photos" / name / f"{i}.png")
    return "photos", None, None, "light"


def numbers(folder):
    ids = np.arange(COUNT) % 3
    values = 3 * np.eye(3)[ids] + np.random.default_rng(0).normal(size=[COUNT, 3]) / 4
    frame = pd.DataFrame(values, columns=["a", "b", "c"])
    frame.assign(label=[f"class {i}" for i in ids]).to_parquet(folder / "mine.parquet")
    return "mine.parquet", frame, {"embedding": [0.0, 3.0, 0.0]}, "class 1"


def cells(folder):
    rows = [(("red", "blue")[i % 2], f"2024-0{1 + i % 3}-01", i % 5 or None) for i in range(COUNT)]
    frame = pd.DataFrame(rows, columns=["color", "day", "size"])
    frame.assign(label=frame["color"].str.upper()).to_csv(folder / "mine.csv", index=False)
    return "mine.csv", frame, {"cells": ["blue", "2024-02-01", ""]}, "BLUE"


def texts_and_cells(folder):
    path, *_ = texts(folder)
    frame = pd.read_csv(folder / path).assign(size=[i // 3 % 2 for i in range(COUNT)])
    frame["topic"] += frame["size"].map({0: " small", 1: " large"})
    frame.to_csv(folder / path, index=False)
    instance = {"text": "a new refund is late", "cells": ["1"]}
    return path, frame.drop(columns="topic"), instance, "refund large"


@pytest.mark.parametrize("write", [texts, several_labels, images, numbers, cells, texts_and_cells])
def test_three_commands(output_of, opened, tmp_path, monkeypatch, write):
    monkeypatch.chdir(tmp_path)
    path, frame, instance, expected = write(tmp_path)
    run = f"runs/{path.partition('.')[0]}"
    printed = output_of("train", path)
    assert printed.startswith(f"{path}: ")
    assert f"Report: {run}/report.html" in printed
    new = "photos/light/7.png"
    if frame is not None:
        new = "new.csv"
        frame.assign(id=range(len(frame))).to_csv(new, index=False)
    header, *lines = output_of("predict", run, new).splitlines()
    assert len(lines) == (1 if frame is None else len(frame))
    assert header.split("\t")[:2] == ["input", "class_1" if frame is None else "id"]

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = opened("serve", run, f"--port={port}")
    try:
        with socket.socket() as client:
            while client.connect_ex(("127.0.0.1", port)):
                assert process.poll() is None, process.communicate()
                time.sleep(0.1)
        if instance is None:
            instance = {"image_bytes": {"b64": base64.b64encode((tmp_path / new).read_bytes()).decode()}}
        address = f"http://127.0.0.1:{port}/v1/models/{run.partition('/')[2]}:predict"
        body = json.dumps({"instances": [instance]}).encode()
        [answer] = json.load(urllib.request.urlopen(address, body))["predictions"]
        assert answer["classes"][0] == expected
    finally:
        process.terminate()
        process.communicate(timeout=60)
