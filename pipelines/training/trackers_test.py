"""Trackers of experiments: the real packages where they are installed, and one that fails."""

import contextlib
import json
import logging
import struct
import time

import pytest

import rank4class
from rank4class.pipelines import config
from rank4class.pipelines.configs import digits_mlp
from rank4class.pipelines.storage.run_directory import RunDirectory
from rank4class.pipelines.training import trackers

CURVES = ("top1_error", "top5_error", "ndcg@5")


def train(folder, **changes):
    experiment = config.override(digits_mlp.get_config(), {"epochs": 3.0, "encoder.hidden": (16,), **changes})
    return rank4class.train(experiment, folder, progress=False)


def records(content):
    """Yields the records of a file of W&B, in blocks as LevelDB's log has them, after a header of 7 bytes."""
    position = 7
    record = b""
    while position + 7 <= len(content):
        left = 32_768 - position % 32_768
        if left < 7:
            position += left
            continue
        length, kind = struct.unpack("<HB", content[position + 4 : position + 7])
        record += content[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # whole, or its last part
            yield record
            record = b""


@pytest.mark.nightly
def test_mlflow_has_the_fields_curves_and_results(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="pip install mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{tmp_path}/mlruns")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv(trackers.VARIABLE, "mlflow")
    run = train(tmp_path / "run")
    client = mlflow.MlflowClient()
    logged = client.get_run((tmp_path / "run" / "mlflow_run.txt").read_text())
    assert (logged.info.run_name, logged.info.status) == ("run", "FINISHED")
    assert logged.data.params["loss.name"] == "softmax"
    for name in CURVES:
        curve = client.get_metric_history(
            logged.info.run_id, f"metrics/validation/{name.replace('@', '_at_')}"
        )
        assert [(each.step, each.value) for each in curve] == [
            (each["step"], each[name]) for each in RunDirectory(tmp_path / "run").history()
        ]
    assert logged.data.metrics["test/ndcg_at_5"] == run.results["test"]["ndcg@5"]
    path = client.download_artifacts(logged.info.run_id, "results.json")
    with open(path) as file:
        assert json.load(file) == json.loads((tmp_path / "run" / "results.json").read_text())


@pytest.mark.nightly
def test_wandb_has_the_fields_curves_and_results_offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="pip install wandb")
    from wandb.proto import wandb_internal_pb2

    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv(trackers.VARIABLE, "wandb")
    run = train(tmp_path / "run")
    [path] = tmp_path.glob("run/wandb/offline-run-*/run-*.wandb")
    rows = []
    for content in records(path.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(content)
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            rows.append({item.nested_key[0] or item.key: json.loads(item.value_json) for item in items})
    for name in CURVES:
        tag = f"metrics/validation/{name}"
        assert [(row["_step"], row[tag]) for row in rows if tag in row] == [
            (each["step"], each[name]) for each in RunDirectory(tmp_path / "run").history()
        ]
    assert rows[-1]["test/ndcg@5"] == run.results["test"]["ndcg@5"]


@pytest.fixture
def add_tracker(monkeypatch):
    """Returns a function that adds the tracker "mine", whose client is made by a function."""

    def add(client):
        monkeypatch.setitem(trackers.TRACKERS, "mine", contextlib.contextmanager(client))
        monkeypatch.setattr(trackers.importlib.util, "find_spec", lambda _: True)
        monkeypatch.setenv(trackers.VARIABLE, "mine")

    return add


def test_messages_come_in_order(tmp_path, add_tracker):
    messages = []

    def client(folder):
        messages.append(folder)
        yield messages.append, lambda *values: messages.append(values), messages.append
        messages.append("closed")

    add_tracker(client)
    [tracker] = trackers.start(f"{tmp_path}/")
    tracker.put_fields({"seed": 1})
    tracker.put_values({"loss": 2}, 5)
    tracker.put_files(["file"])
    tracker.close(True)
    assert messages == [str(tmp_path), {"seed": 1}, ({"loss": 2.0}, 5), ["file"], "closed"]


@pytest.mark.parametrize("fails_at", ["start", "values"])
def test_an_error_of_a_tracker_is_a_warning(tmp_path, add_tracker, caplog, fails_at):
    def fail(*_):
        raise RuntimeError("no network\nmore")

    def client(_):
        if fails_at == "start":
            fail()
        yield print, fail, print

    add_tracker(client)
    [tracker] = trackers.start(str(tmp_path))
    with caplog.at_level(logging.WARNING):
        tracker.put_values({"loss": 2}, 5)
        tracker.put_values({"loss": 2}, 6)
        tracker.put_files(["file"])
        tracker.close(True)
    [message] = caplog.messages
    assert message == "--log=mine: RuntimeError: no network. The training continues without it."


@pytest.mark.nightly
def test_a_training_that_stops_ends_its_run_as_failed(tmp_path, add_tracker):
    ended = []

    def client(_):
        try:
            yield print, lambda *_: None, print
            ended.append("complete")
        except Exception:
            ended.append("failed")
            raise

    add_tracker(client)
    with pytest.raises(FloatingPointError):
        train(tmp_path / "run", **{"optimizer.learning_rate": 1e30})
    train(tmp_path / "other", epochs=1.0)
    assert ended == ["failed", "complete"]


@pytest.mark.nightly
def test_a_training_does_not_wait_for_a_tracker(tmp_path, add_tracker, monkeypatch):
    def client(_):
        time.sleep(1000)
        yield

    monkeypatch.setattr(trackers, "SECONDS", 0.1)
    add_tracker(client)
    assert train(tmp_path / "run", epochs=1.0).results["test"]["examples"] == 360


def test_trackers_that_there_are_not(tmp_path, monkeypatch):
    monkeypatch.setenv(trackers.VARIABLE, "tensorbored")
    with pytest.raises(ValueError, match="log='tensorbored': unknown. There are: mlflow, wandb."):
        trackers.start(str(tmp_path))
    monkeypatch.setenv(trackers.VARIABLE, "mlflow")
    monkeypatch.setattr(trackers.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ImportError, match=r"log='mlflow': not installed. Run: pip install mlflow"):
        trackers.start(str(tmp_path))
    monkeypatch.delenv(trackers.VARIABLE)
    assert trackers.start(str(tmp_path)) == []
