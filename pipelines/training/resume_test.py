"""Runs that are interrupted, killed or have damaged files end like undisturbed runs."""

import io
import logging as stdlib_logging
import os
import pathlib
import re
import shutil
import signal
from unittest import mock

import pytest
import tensorflow as tf
from absl import logging

from rank4class.pipelines import config
from rank4class.pipelines.evaluation import evaluator
from rank4class.pipelines.storage.run_directory import RunDirectory
from rank4class.pipelines.training import rank_training
from rank4class.pipelines.training.preemption import Interrupted
from rank4class.pipelines.training.rank_training_test import small
from rank4class.pipelines.training.train_state import TrainState

pytestmark = pytest.mark.usefixtures("names_of_a_new_process")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Returns a function from an experiment to the folder of its undisturbed run, shared by all tests.

    The folder also has copies of the run before and after each save: `before-STEP`, `after-STEP`.
    """
    folders = {}

    def trained(experiment):
        if repr(experiment) not in folders:
            folder = tmp_path_factory.mktemp("undisturbed") / "run"
            save = TrainState.save

            def copying(state):
                shutil.copytree(folder, folder.parent / f"before-{state.progress.step}")
                save(state)
                shutil.copytree(folder, folder.parent / f"after-{state.progress.step}")

            tf.keras.backend.clear_session()
            with mock.patch.object(TrainState, "save", copying):
                rank_training.train(experiment, folder, progress=False)
            folders[repr(experiment)] = str(folder)
        return folders[repr(experiment)]

    return trained


def killed(undisturbed, experiment, moment, step, path):
    """Returns the folder of a run that was killed before or after the save of a step."""
    shutil.copytree(pathlib.Path(undisturbed(experiment)).parent / f"{moment}-{step}", path)
    assert RunDirectory(path).results() is None
    return str(path)


@pytest.fixture
def assert_ends_undisturbed(undisturbed, assert_same_run):
    """Returns a function that finishes a run, and asserts that it ends like an undisturbed one."""

    def check(experiment, path):
        rank_training.train(experiment, path, progress=False)
        assert_same_run(undisturbed(experiment), path)

    return check


def on_disk(folder):
    """Returns the state that a start reads: files, checkpoints with an index, and the history."""
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    read = [name for name in names if not re.search("partial-|events|sessions", name)]
    files = [name for name in read if ".data-" not in name or f"{name.partition('.')[0]}.index" in names]
    return sorted(files), (folder / "metrics.jsonl").read_bytes() if "metrics.jsonl" in names else b""


@pytest.mark.nightly
def test_kills_before_every_change_of_files(tmp_path, copied_before_changes, assert_same_run):
    experiment = config.override(
        small(),
        {"steps": 9, "evaluations_per_epoch": 2, "encoder.hidden": (8,)}
        | {"data.max_examples": 64, "batch_size": 8}
        | {"optimizer.learning_rate": 0.01, "optimizer.decay": "none", "metrics": ("ndcg@5",)}
        | {"sets.name": "threshold"},
    )
    undisturbed = tmp_path / "undisturbed"
    with copied_before_changes(undisturbed, tmp_path) as copies:
        rank_training.train(experiment, undisturbed, progress=False)
    assert [line["step"] for line in RunDirectory(undisturbed).history()] == [4, 8, 9]
    # Of copies with the same state, the last has the most partial files.
    last_of = {str(on_disk(copy)): copy for copy in copies}
    assert len(last_of) >= 14  # three saves of the best, the last and the history; two removals in the third
    for names, copy in last_of.items():
        if "step-8" in names and "step-9" not in names:  # the second save is like the first
            continue
        rank_training.train(experiment, copy, progress=False)
        assert_same_run(undisturbed, copy)


@pytest.fixture(scope="module")
def truncated(tmp_path_factory, undisturbed):
    """Kills a run after step 51, damages its checkpoint and history and resumes; returns folder and log."""
    experiment = small(epochs=4.0)
    folder = tmp_path_factory.mktemp("truncated") / "run"
    path = killed(undisturbed, experiment, "after", 51, folder)
    [checkpoint] = (folder / "checkpoints" / "last").glob("step-51.data*")
    checkpoint.write_bytes(checkpoint.read_bytes()[:-1])
    (folder / "metrics.jsonl").write_text("damaged")
    log = io.StringIO()
    handler = stdlib_logging.StreamHandler(log)
    logging.get_absl_logger().addHandler(handler)
    try:
        tf.keras.backend.clear_session()
        rank_training.train(experiment, path, progress=False)
    finally:
        logging.get_absl_logger().removeHandler(handler)
    return folder, log.getvalue()


def test_truncated_checkpoints_are_skipped_and_histories_written_again(
    truncated, undisturbed, assert_same_run
):
    folder, log = truncated
    assert_same_run(undisturbed(small(epochs=4.0)), folder)
    assert "step-51: the checkpoint is damaged" in log
    assert RunDirectory(folder).sessions()[1]["from_step"] == 34


@pytest.mark.nightly
def test_resume_with_all_random_draws_and_slots(
    tmp_path, undisturbed, assert_ends_undisturbed, tiny_goemotions, tiny_bert
):
    rows = (tiny_goemotions / "train.tsv").read_text().splitlines(keepends=True)
    (tiny_goemotions / "train.tsv").write_text(
        "".join("great " * (8 * (i % 2)) + row for i, row in enumerate(rows))
    )
    experiment = config.Experiment(
        data=config.Data(name="goemotions", path=str(tiny_goemotions), max_length=20),
        encoder=config.Encoder(name="bert", path=tiny_bert, dropout=0.2, output_dropout=0.2),
        class_encoder=config.ClassEncoder(name="text"),
        interaction=config.Interaction(name="lc_mlp", units=8, dropout=0.2),
        loss=config.Loss(name="gumbel_approx_ndcg"),
        optimizer=config.Optimizer(
            **{"name": "adamw", "weight_decay": 0.01, "ema_momentum": 0.9, "clip_norm": 1.0},
            **{"decay": "cosine", "warmup_fraction": 0.1},
        ),
        batch_size=8,
        accumulation_steps=2,
        steps=8,
        metrics=("mrr",),
        monitor="mrr",
    )
    path = killed(undisturbed, experiment, "before", 8, tmp_path / "killed")
    assert_ends_undisturbed(experiment, path)
    assert RunDirectory(path).sessions()[1]["from_step"] == 5


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("number", "changes"),
    [
        (
            signal.SIGTERM,
            {"checkpoint_steps": 4, "precision": "mixed_float16", "accumulation_steps": 2}
            | {"optimizer.name": "adamw", "optimizer.weight_decay": 0.1, "optimizer.clip_norm": 1.0}
            | {"optimizer.ema_momentum": 0.9},
        ),
        (
            signal.SIGINT,
            {"steps_per_execution": 5, "jit_compile": True}
            | {"optimizer.name": "sgd", "optimizer.momentum": 0.9},
        ),
    ],
)
def test_signals_between_evaluations_save_and_stop(
    tmp_path, monkeypatch, assert_ends_undisturbed, changes, number
):
    experiment = small(**changes)
    path = str(tmp_path / "stopped")
    build_steps = rank_training.build_steps

    def signalling(*arguments):
        steps = build_steps(*arguments)

        def send_signal(batches, first, count, stopping):
            if first == 10:
                os.kill(os.getpid(), number)
            return steps(batches, first, count, stopping)

        return send_signal

    with monkeypatch.context() as patch:
        patch.setattr(rank_training, "build_steps", signalling)
        with pytest.raises(Interrupted, match="Saved after step 1[0-9] and stopped") as caught:
            rank_training.train(experiment, path, progress=False)
    assert caught.value.signal == number
    [session] = RunDirectory(path).sessions()
    assert (session["from_step"], 10 < session["to_step"] <= 17) == (0, True)
    assert_ends_undisturbed(experiment, path)
    assert [line["from_step"] for line in RunDirectory(path).sessions()] == [0, session["to_step"]]


@pytest.mark.nightly
def test_signals_during_evaluations(tmp_path, monkeypatch, assert_ends_undisturbed):
    """Sends signals in two evaluations, which are repeated, and in the final evaluation."""
    experiment = small(**{"optimizer.ema_momentum": 0.9})
    path = str(tmp_path / "stopped")
    evaluate = evaluator.Evaluator.__call__
    calls = []

    def signalling(self, batches, **kwargs):
        calls.append(1)
        if len(calls) in (1, 3, 5):
            os.kill(os.getpid(), signal.SIGTERM)
        return evaluate(self, batches, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(evaluator.Evaluator, "__call__", signalling)
        for call, step in ((1, 17), (3, 34), (5, 34)):
            with pytest.raises(Interrupted, match=f"Saved after step {step} and stopped"):
                rank_training.train(experiment, path, progress=False)
            assert len(calls) == call
    assert_ends_undisturbed(experiment, path)
    assert [line["from_step"] for line in RunDirectory(path).sessions()] == [0, 17, 34, 34]


@pytest.mark.nightly
def test_steps_per_execution_and_checkpoints_do_not_change_results(tmp_path, undisturbed):
    changes = {"steps_per_execution": 5, "checkpoint_steps": 4}  # 17 steps per evaluation
    rank_training.train(small(**changes), tmp_path, progress=False)
    expected = pathlib.Path(undisturbed(small()), "metrics.jsonl").read_bytes()
    assert (tmp_path / "metrics.jsonl").read_bytes() == expected
    names = sorted(file.name for file in (tmp_path / "checkpoints" / "last").glob("*.index"))
    assert names == ["step-32.index", "step-34.index"]


@pytest.mark.nightly
def test_resume_with_more_replicas(tmp_path, undisturbed, mirrored):
    experiment = small(**{"encoder.dropout": 0.0})
    both = killed(undisturbed, experiment, "before", 34, tmp_path / "both")
    rank_training.train(experiment, both, strategy=mirrored, progress=False)
    one_device = RunDirectory(undisturbed(experiment))
    for a, b in zip(one_device.history(), RunDirectory(both).history(), strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-5)
    assert [line["replicas"] for line in RunDirectory(both).sessions()] == [1, 2]
