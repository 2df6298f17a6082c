"""Restores the best and the last checkpoint of a run."""

import shutil

import numpy as np
import pytest

from rank4class.pipelines import config
from rank4class.pipelines.configs import digits_mlp
from rank4class.pipelines.storage import files
from rank4class.pipelines.storage.run_directory import RunDirectory
from rank4class.pipelines.training import rank_model_task, rank_training


def trained(path, **changes):
    experiment = config.override(digits_mlp.get_config(), {"epochs": 3.0, "encoder.hidden": (16,), **changes})
    rank_training.train(experiment, path, progress=False)
    return path


@pytest.fixture(scope="module")
def finished_once(tmp_path_factory):
    """Returns the folder of a finished run, which is not to be changed."""
    return trained(str(tmp_path_factory.mktemp("finished") / "run"))


@pytest.fixture
def finished(finished_once, tmp_path):
    """Returns the folder of a finished run, a copy for this test."""
    return shutil.copytree(finished_once, str(tmp_path / "run"))


def judged(path, which, split="validation", strategy=None):
    experiment, loaded, model, step = rank_training.restore(path, which, strategy)
    judge = rank_model_task.build_evaluators(experiment, loaded, model, strategy)[split]
    return step, judge(loaded.read(experiment, split, strategy)).summarize()


@pytest.mark.nightly
@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer.learning_rate": 1.0, "optimizer.decay": "none"},
        {"optimizer.ema_momentum": 0.9, "optimizer.warmup_fraction": 0.1, "precision": "mixed_float16"},
    ],
)
def test_a_checkpoint_has_the_figures_that_training_saw(tmp_path, changes):
    path = trained(str(tmp_path / "run"), **changes)
    history, results = RunDirectory(path).history(), RunDirectory(path).results()
    for which, step in (("best", results["best_step"]), ("last", results["steps"])):
        (line,) = (line for line in history if line["step"] == step)
        restored_step, figures = judged(path, which)
        assert restored_step == step
        for name in ("top1_error", "top5_error", "ndcg@5"):
            assert figures[name] == pytest.approx(line[name], abs=1e-9)
    if "optimizer.decay" in changes:  # the rate is too high: else the two could not be told apart
        assert results["best_step"] != results["steps"]


@pytest.mark.nightly
def test_two_devices_restore_and_judge_as_one(finished_once, mirrored):
    for which in config.CHECKPOINTS:
        step, alone = judged(finished_once, which)
        of_both_step, of_both = judged(finished_once, which, strategy=mirrored)
        assert step == of_both_step
        np.testing.assert_allclose(of_both["ndcg@5"], alone["ndcg@5"], atol=1e-4)


@pytest.mark.nightly
@pytest.mark.parametrize("which", config.CHECKPOINTS)
def test_a_run_without_a_checkpoint_is_named(finished, tmp_path, which):
    path = finished
    files.remove([RunDirectory(path).checkpoints])
    with pytest.raises(FileNotFoundError, match=f"the run is finished, but .* Restore {path}/check.*{which}"):
        rank_training.restore(path, which)
    results = RunDirectory(path).results()
    RunDirectory(path).write_results({**results, "best_step": None})  # no metric was ever a number
    remedy = {"best": "--checkpoint=last", "last": "Restore"}[which]
    with pytest.raises(FileNotFoundError, match=remedy):
        rank_training.restore(path, which)
    files.remove([tmp_path / "run" / "results.json"])
    with pytest.raises(FileNotFoundError, match="has no checkpoint yet: train it first"):
        rank_training.restore(path, which)


@pytest.mark.nightly
@pytest.mark.parametrize("which", config.CHECKPOINTS)
def test_restoring_changes_nothing_in_the_folder(finished, tmp_path, which):
    (tmp_path / "run" / "checkpoints" / "last" / "step-999.data-00000-of-00001").write_text("half written")
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    rank_training.restore(finished, which)
    assert before == {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}


@pytest.mark.parametrize("which", config.CHECKPOINTS)
def test_a_damaged_checkpoint_is_refused(finished, tmp_path, which):
    for file in (tmp_path / "run" / "checkpoints" / which).glob("*.data-*"):
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    with pytest.raises(ValueError, match="none of the checkpoints in .* can be used"):
        rank_training.restore(finished, which)
