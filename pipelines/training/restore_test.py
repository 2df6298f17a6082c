"""Restoring the best checkpoint of a run."""

import shutil

import pytest

from rank4class.pipelines import config
from rank4class.pipelines.configs import digits_mlp
from rank4class.pipelines.evaluation import trained_model
from rank4class.pipelines.storage import files
from rank4class.pipelines.storage.run_directory import RunDirectory
from rank4class.pipelines.training import rank_training


@pytest.fixture
def finished(digits_run, tmp_path):
    """Returns a copy of the folder of a finished run."""
    return shutil.copytree(digits_run.workdir, str(tmp_path / "run"))


@pytest.mark.nightly
def test_a_restored_checkpoint_has_the_metrics_of_training(tmp_path):
    changes = {"optimizer.learning_rate": 1.0, "optimizer.decay": "none", "precision": "mixed_float16"}
    experiment = config.override(digits_mlp.get_config(), {"epochs": 3.0, "encoder.hidden": (16,), **changes})
    path = str(tmp_path / "run")
    rank_training.train(experiment, path, progress=False)
    results = RunDirectory(path).results()
    (line,) = (line for line in RunDirectory(path).history() if line["step"] == results["best_step"])
    restored = trained_model.restore(path)
    assert restored.step == results["best_step"]
    metrics = restored.evaluate(restored.load_task(), "validation").summarize()
    for name in ("top1_error", "top5_error", "ndcg@5"):
        assert metrics[name] == pytest.approx(line[name], abs=1e-9)
    assert results["best_step"] != results["steps"]  # at this high rate


def test_a_run_whose_metrics_were_all_nan(finished):
    run_dir = RunDirectory(finished)
    files.remove([run_dir.checkpoints])
    run_dir.write_results({**run_dir.results(), "best_step": None})
    with pytest.raises(FileNotFoundError, match="no value of the monitor was a number. Train again."):
        trained_model.restore(finished)


@pytest.mark.nightly
def test_restore_does_not_change_the_folder(finished, tmp_path):
    (tmp_path / "run" / "checkpoints" / "last" / "step-999.data-00000-of-00001").write_text("half written")
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    trained_model.restore(finished)
    assert before == {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}


def test_a_damaged_best_checkpoint_is_refused(finished, tmp_path):
    """A finished run does not fall back to the one before."""
    folder = tmp_path / "run" / "checkpoints" / "best"
    assert sorted(file.name for file in folder.glob("*.index")) == ["step-17.index", "step-34.index"]
    (file,) = folder.glob("step-34.data-*")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(ValueError, match=f"{folder}/step-34: the checkpoint is damaged"):
        trained_model.restore(finished)
