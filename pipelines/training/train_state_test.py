import math

import numpy as np
import pytest
import tensorflow as tf

from rank4class.pipelines import config
from rank4class.pipelines.storage.run_directory import run_hash
from rank4class.pipelines.training.train_state import TrainProgress, TrainState


def progress(*values, name="ndcg@5"):
    result = TrainProgress()
    result.history = [{"step": 10 * (i + 1), name: value} for i, value in enumerate(values)]
    return result


def test_the_first_of_equal_values_is_the_best():
    result = progress(50.0, 60.0, 60.0, 55.0)
    assert result.best_step("ndcg@5") == 20
    assert [result.best_step("ndcg@5", until=step) for step in (5, 10, 19, 20, 40)] == [None, 10, 10, 20, 20]
    assert progress(50.0, 40.0, name="top1_error").best_step("top1_error") == 20
    assert progress().best_step("ndcg@5") is None


def test_nan_is_never_the_best():
    assert progress(math.nan, math.nan).best_step("ndcg@5") is None
    assert progress(math.nan, 1.0, math.nan).best_step("ndcg@5") == 20


@pytest.mark.parametrize(
    ("values", "patience", "gave_up"),
    [
        ((50.0, 60.0, 55.0, 59.0), 2, True),
        ((50.0, 60.0, 55.0, 59.0), 3, False),
        ((50.0, 60.0, 55.0, 59.0), 0, False),
        ((50.0,), 1, False),
        ((math.nan, math.nan), 2, True),
        ((), 1, False),
    ],
)
def test_patience(values, patience, gave_up):
    assert progress(*values).gave_up("ndcg@5", patience) == gave_up


def test_progress_is_restored_exactly():
    result = progress(0.1 + 0.2, math.nan, math.inf, 1e-320)
    result.step = 2**40 + 1
    result.loss_sum = 1 / 3
    read = TrainProgress()
    read.deserialize(result.serialize())
    assert (read.step, read.loss_sum, read.evaluated) == (result.step, result.loss_sum, 40)
    np.testing.assert_array_equal(
        [line["ndcg@5"] for line in read.history], [0.1 + 0.2, np.nan, np.inf, 1e-320]
    )


def state(folder, run="this run", writes=True):
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.build([None, 1])
    optimizer = tf.keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)
    result = TrainState(str(folder), model, optimizer, "ndcg@5", run, writes)
    return result, model.layers[0].bias


def evaluate(saved, bias, step, value):
    saved.progress.step = step
    bias.assign([float(step)])
    saved.progress.history.append({"step": step, "ndcg@5": value})
    saved.save_best()
    saved.save()


def steps_in(folder):
    return sorted(int(path.name[5:-6]) for path in folder.glob("step-*.index"))


def test_the_last_checkpoint_is_read_without_the_best(tmp_path):
    saved, bias = state(tmp_path)
    evaluate(saved, bias, 10, 50.0)
    for path in (tmp_path / "best").iterdir():
        path.write_bytes(b"")
    with pytest.raises(ValueError, match="the checkpoint is damaged .* Restore it, or choose another"):
        state(tmp_path)[0].restore()
    reader, bias = state(tmp_path, writes=False)
    reader.restore()
    assert bias.numpy() == 10.0


def test_checkpoints_have_their_best_model(tmp_path):
    saved, bias = state(tmp_path)
    seen = []
    for step, value in ((10, 50.0), (20, 60.0), (30, 55.0), (40, 70.0), (50, 1.0), (60, 2.0)):
        evaluate(saved, bias, step, value)
        seen.append((steps_in(tmp_path / "last"), steps_in(tmp_path / "best")))
    assert seen == [
        ([10], [10]),
        ([10, 20], [10, 20]),
        ([20, 30], [20]),
        ([30, 40], [20, 40]),
        ([40, 50], [40]),
        ([50, 60], [40]),
    ]
    again, bias = state(tmp_path)
    again.restore()
    assert (again.progress.step, bias.numpy()) == (60, 60.0)
    assert again.progress.history == saved.progress.history
    again.restore_best()
    assert bias.numpy() == 40.0


def test_previous_checkpoints_have_their_best_model(tmp_path):
    saved, bias = state(tmp_path)
    evaluate(saved, bias, 10, 50.0)
    evaluate(saved, bias, 20, 60.0)
    (tmp_path / "last" / "step-20.index").write_bytes(b"torn")
    again, bias = state(tmp_path)
    again.restore()
    assert (again.progress.step, again.best_step) == (10, 10)
    again.restore_best()
    assert bias.numpy() == 10.0


def test_nan_metrics_do_not_change_the_model(tmp_path):
    saved, bias = state(tmp_path)
    evaluate(saved, bias, 10, math.nan)
    saved.restore_best()
    assert bias.numpy() == 10.0
    assert steps_in(tmp_path / "best") == []


def test_checkpoints_of_other_runs_are_skipped(tmp_path, caplog):
    saved, bias = state(tmp_path)
    evaluate(saved, bias, 10, 50.0)
    other, bias = state(tmp_path / "other", run="another")
    evaluate(other, bias, 20, 60.0)
    for folder in ("last", "best"):
        for path in (tmp_path / "other" / folder).iterdir():
            path.rename(tmp_path / folder / path.name)
    again, bias = state(tmp_path)
    again.restore()
    assert (again.progress.step, bias.numpy()) == (10, 10.0)
    assert (
        "step-20: a checkpoint of another run (it was made by another experiment or with other data)."
        in caplog.text
    )


def test_run_hash():
    experiment = config.Experiment(epochs=3)
    hashes = {"train": "a", "test": "b"}
    same = run_hash(experiment, hashes)
    assert run_hash(config.Experiment(epochs=3.0), dict(reversed(hashes.items()))) == same
    assert run_hash(config.override(experiment, {"seed": 1}), hashes) != same
    assert run_hash(config.override(experiment, {"loss.name": "mse"}), hashes) != same
    assert run_hash(experiment, {**hashes, "test": "c"}) != same
    priors = [config.CountPrior("fixed", probabilities=(first, 0.5, 0.5)) for first in (0, 0.0, 0.1)]
    zero, equal, other = (run_hash(config.Experiment(count_prior=prior), {}) for prior in priors)
    assert zero == equal != other
