"""Restoring the best checkpoint of a run."""

import shutil

import pytest

from rank4class.pipelines import config
from rank4class.pipelines.configs import digits_mlp
from rank4class.pipelines.storage import files
from rank4class.pipelines.storage.run_directory import RunDirectory
from rank4class.pipelines.training import rank_training


def trained(path, **changes):
    experiment = config.override(digits_mlp.get_config(), {"epochs": 3.0, "encoder.hidden": (16,), **changes})
    rank_training.train(experiment, path, progress=False)
    return path


@pytest.fixture
def finished(digits_run, tmp_path):
    """Returns a copy of the folder of a finished run."""
    return shutil.copytree(digits_run.workdir, str(tmp_path / "run"))


@pytest.mark.nightly
@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer.learning_rate": 1.0, "optimizer.decay": "none"},
        {"optimizer.ema_momentum": 0.9, "optimizer.warmup_fraction": 0.1, "precision": "mixed_float16"},
    ],
)
def test_restored_checkpoints_have_the_metrics_of_training(tmp_path, changes):
    path = trained(str(tmp_path / "run"), **changes)
    results = RunDirectory(path).results()
    (line,) = (line for line in RunDirectory(path).history() if line["step"] == results["best_step"])
    restored = rank_training.restore(path)
    assert restored.step == results["best_step"]
    metrics = restored.evaluate(restored.load_task(), "validation").summarize()
    for name in ("top1_error", "top5_error", "ndcg@5"):
        assert metrics[name] == pytest.approx(line[name], abs=1e-9)
    if "optimizer.decay" in changes:  # at this high rate, best and last differ
        assert results["best_step"] != results["steps"]


@pytest.mark.nightly
def test_runs_without_a_checkpoint(finished, tmp_path):
    path = finished
    files.remove([RunDirectory(path).checkpoints])
    results = RunDirectory(path).results()
    RunDirectory(path).write_results({**results, "best_step": None})  # all metrics were NaN
    with pytest.raises(FileNotFoundError, match="no value of the monitor was a number. Train again."):
        rank_training.restore(path)
    files.remove([tmp_path / "run" / "results.json"])
    with pytest.raises(FileNotFoundError, match=": no checkpoint yet. Train it first."):
        rank_training.restore(path)


@pytest.mark.nightly
def test_restore_does_not_change_the_folder(finished, tmp_path):
    (tmp_path / "run" / "checkpoints" / "last" / "step-999.data-00000-of-00001").write_text("half written")
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    rank_training.restore(finished)
    assert before == {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}


def test_damaged_checkpoints_are_refused(finished, tmp_path):
    for file in (tmp_path / "run" / "checkpoints" / "best").glob("*.data-*"):
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    with pytest.raises(ValueError, match="none of the checkpoints can be used|the checkpoint is damaged"):
        rank_training.restore(finished)
