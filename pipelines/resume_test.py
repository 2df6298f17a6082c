"""Runs that are interrupted, killed, or find their files damaged end as if nothing had been."""

import os
import signal

import pytest
import tensorflow as tf

from rank4class.pipelines import config, evaluation, survival, trainer, training
from rank4class.pipelines.configs import digits_mlp
from rank4class.pipelines.interruption import Interrupted
from rank4class.pipelines.state import State
from rank4class.pipelines.workdir import Workdir

pytestmark = pytest.mark.usefixtures("names_of_a_new_process")


def small(**changes):
    base = {"epochs": 2.0, "encoder.hidden": (16,), "encoder.dropout": 0.2}
    return config.override(digits_mlp.get_config(), {**base, **changes})


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Returns a function from an experiment to the folder of its run in peace, which tests share."""
    folders = {}

    def trained(experiment):
        if repr(experiment) not in folders:
            folder = str(tmp_path_factory.mktemp("undisturbed") / "run")
            trainer.train(experiment, folder, progress=False)
            folders[repr(experiment)] = folder
        return folders[repr(experiment)]

    return trained


def assert_ends_like_an_undisturbed_run(experiment, path, undisturbed):
    trainer.train(experiment, path, progress=False)
    assert survival.compare(undisturbed(experiment), path) == []


@pytest.mark.nightly
@pytest.mark.parametrize("loss", ["softmax", "gumbel_approx_ndcg"])
@pytest.mark.parametrize("moment", ["before the save", "after the save"])
def test_an_interrupted_run_goes_on_as_if_nothing_had_been(tmp_path, monkeypatch, undisturbed, moment, loss):
    interrupt_and_compare(
        small(**{"loss.name": loss, "epochs": 4.0}), 34, tmp_path, monkeypatch, undisturbed, moment
    )


@pytest.mark.nightly
def test_a_run_with_dropout_in_every_part_goes_on(
    tmp_path, monkeypatch, undisturbed, tiny_goemotions, tiny_bert
):
    experiment = config.Experiment(
        data=config.Data(name="goemotions", path=str(tiny_goemotions), max_length=8),
        encoder=config.Encoder(name="bert", path=tiny_bert, dropout=0.2, output_dropout=0.2),
        class_encoder=config.ClassEncoder(name="text", attention_layers=1, attention_dropout=0.2),
        interaction=config.Interaction(name="lc_mlp", units=8, dropout=0.2),
        batch_size=8,
        steps=8,
        metrics=("top1_error", "mrr"),
        monitor="mrr",
    )
    interrupt_and_compare(experiment, 5, tmp_path, monkeypatch, undisturbed, "before the save")


def interrupt_and_compare(experiment, step, tmp_path, monkeypatch, undisturbed, moment):
    killed = str(tmp_path / "killed")
    save = State.save

    def dying(state):
        if moment == "after the save":
            save(state)
        if state.progress.step == step:
            raise KeyboardInterrupt
        if moment == "before the save":
            save(state)

    with monkeypatch.context() as patch:
        patch.setattr(State, "save", dying)
        with pytest.raises(KeyboardInterrupt):
            trainer.train(experiment, killed, progress=False)
    assert Workdir(killed).results() is None
    assert_ends_like_an_undisturbed_run(experiment, killed, undisturbed)


EVERYTHING = {
    "optimizer.name": "adamw",
    "optimizer.weight_decay": 0.01,
    "optimizer.ema_momentum": 0.9,
    "optimizer.clip_norm": 1.0,
    "optimizer.decay": "cosine",
    "optimizer.warmup_share": 0.1,
    "interaction.name": "lc_mlp",
    "interaction.dropout": 0.2,
}


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("number", "changes"),
    [
        (signal.SIGINT, {}),
        (signal.SIGTERM, {"checkpoint_steps": 4}),
        (signal.SIGTERM, EVERYTHING),
        (signal.SIGTERM, {"precision": "mixed_float16", "accumulation_steps": 2}),
        (signal.SIGTERM, {"steps_per_execution": 5, "jit_compile": True}),
    ],
)
def test_a_signal_between_two_evaluations_saves_and_stops(
    tmp_path, monkeypatch, undisturbed, changes, number
):
    experiment, path = small(**changes), str(tmp_path / "stopped")
    build_steps = training.build_steps

    def signalling(*arguments):
        steps = build_steps(*arguments)

        def one_with_a_signal(batches, first, count, stopping):
            if first == 10:
                os.kill(os.getpid(), number)
            return steps(batches, first, count, stopping)

        return one_with_a_signal

    with monkeypatch.context() as patch:
        patch.setattr(training, "build_steps", signalling)
        with pytest.raises(Interrupted, match="saved after step 1[0-9] and stopped") as caught:
            trainer.train(experiment, path, progress=False)
    assert caught.value.signal == number
    [session] = Workdir(path).sessions()
    assert (session["from_step"], 10 < session["to_step"] <= 17) == (0, True)
    assert_ends_like_an_undisturbed_run(experiment, path, undisturbed)
    assert [line["from_step"] for line in Workdir(path).sessions()] == [0, session["to_step"]]


@pytest.mark.nightly
@pytest.mark.parametrize("call", [1, 2, 3])
def test_a_signal_while_a_split_is_judged(tmp_path, monkeypatch, undisturbed, call):
    """The first two are evaluations, the third is of the results."""
    experiment, path = small(**{"optimizer.ema_momentum": 0.9}), str(tmp_path / "stopped")
    judge, calls = evaluation.Judge.__call__, []

    def signalling(self, batches, **kwargs):
        calls.append(1)
        if len(calls) == call:
            os.kill(os.getpid(), signal.SIGTERM)
        return judge(self, batches, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(evaluation.Judge, "__call__", signalling)
        with pytest.raises(Interrupted, match=f"saved after step {17 * min(call, 2)} and stopped"):
            trainer.train(experiment, path, progress=False)
    assert len(calls) == call
    assert_ends_like_an_undisturbed_run(experiment, path, undisturbed)


def test_a_torn_checkpoint_costs_the_steps_since_the_one_before(tmp_path, monkeypatch, undisturbed, caplog):
    experiment, path = small(epochs=4.0), str(tmp_path / "torn")
    interrupt(experiment, path, 51, monkeypatch)
    cut(tmp_path / "torn" / "checkpoints" / "last", "step-51.data*")
    assert_ends_like_an_undisturbed_run(experiment, path, undisturbed)
    assert "step-51 is damaged" in caplog.text
    assert Workdir(path).sessions()[1]["from_step"] == 34


def cut(folder, pattern):
    for path in folder.glob(pattern):
        path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.nightly
def test_a_torn_best_model_is_noticed_before_anything_is_trained(tmp_path, monkeypatch):
    experiment, path = small(epochs=4.0), str(tmp_path / "torn")
    interrupt(experiment, path, 51, monkeypatch)
    cut(tmp_path / "torn" / "checkpoints" / "best", "*.data*")
    with pytest.raises(ValueError, match=r"checkpoint .*best/step-\d+ is damaged"):
        trainer.train(experiment, path, progress=False)
    with pytest.raises(ValueError, match="none of the checkpoints in .*best can be used"):
        trainer.restore(path)


@pytest.mark.nightly
def test_a_finished_run_whose_best_model_is_damaged_is_not_judged_by_another(tmp_path):
    trainer.train(small(), str(tmp_path), progress=False)
    assert Workdir(str(tmp_path)).results()["best_step"] == 34
    assert len(list((tmp_path / "checkpoints" / "best").glob("*.index"))) == 2
    cut(tmp_path / "checkpoints" / "best", "step-34.data*")
    with pytest.raises(ValueError, match=f"the best model of {tmp_path}, that of step 34, is damaged"):
        trainer.restore(str(tmp_path))


@pytest.mark.nightly
def test_checkpoints_that_are_all_damaged_are_not_overwritten(tmp_path, monkeypatch):
    experiment, path = small(epochs=4.0), str(tmp_path / "torn")
    interrupt(experiment, path, 51, monkeypatch)
    cut(tmp_path / "torn" / "checkpoints" / "last", "*.data*")
    with pytest.raises(ValueError, match="none of the checkpoints in .*last can be used"):
        trainer.train(experiment, path, progress=False)
    assert len(Workdir(path).sessions()) == 1


def interrupt(experiment, path, step, monkeypatch):
    """Trains up to a save, and a little further."""
    save = State.save

    def dying(state):
        save(state)
        if state.progress.step == step:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(State, "save", dying)
        with pytest.raises(KeyboardInterrupt):
            trainer.train(experiment, path, progress=False)


@pytest.mark.nightly
@pytest.mark.parametrize("step", [51, 68])  # after the last one nothing is saved any more
def test_lost_histories_are_written_again(tmp_path, monkeypatch, undisturbed, step):
    experiment, path = small(epochs=4.0), str(tmp_path / "lost")
    interrupt(experiment, path, step, monkeypatch)
    (tmp_path / "lost" / "metrics.jsonl").write_text("damaged")
    assert_ends_like_an_undisturbed_run(experiment, path, undisturbed)


@pytest.mark.nightly
def test_tensorboard_takes_back_what_will_be_repeated(tmp_path, monkeypatch):
    experiment, path = small(epochs=4.0), str(tmp_path / "run")
    interrupt(experiment, path, 34, monkeypatch)
    trainer.train(experiment, path, progress=False)
    restarts = set()
    for events in sorted((tmp_path / "run" / "tensorboard").glob("events*")):
        for event in tf.compat.v1.train.summary_iterator(str(events)):
            if event.session_log.status:
                restarts.add(event.step)
    assert restarts == {35}


@pytest.mark.nightly
def test_how_many_steps_are_taken_at_once_changes_nothing(tmp_path):
    histories = []
    for count in (1, 5, 100):
        path = tmp_path / str(count)
        trainer.train(small(steps_per_execution=count), str(path), progress=False)
        histories.append((path / "metrics.jsonl").read_bytes())
    assert len(set(histories)) == 1


@pytest.mark.nightly
def test_checkpoints_between_evaluations_change_nothing(tmp_path, undisturbed):
    trainer.train(small(checkpoint_steps=4), str(tmp_path), progress=False)
    history = Workdir(str(tmp_path)).history()
    assert history == Workdir(undisturbed(small())).history()
    assert [line["step"] for line in history] == [17, 34]
    names = sorted(path.name for path in (tmp_path / "checkpoints" / "last").glob("*.index"))
    assert names == ["step-32.index", "step-34.index"]


@pytest.mark.nightly
def test_a_run_in_object_storage(tmp_path):
    path = f"ram://{tmp_path.name}/run"
    trainer.train(small(), path, progress=False)
    assert Workdir(path).results()["steps"] == 34
    assert [line["step"] for line in Workdir(path).history()] == [17, 34]
    _, _, model, _ = trainer.restore(path)
    assert model.count_params() > 0


@pytest.mark.nightly
def test_two_processes_cannot_train_in_one_folder(tmp_path):
    workdir = Workdir(str(tmp_path))
    workdir.lock()
    with pytest.raises(
        ValueError, match=rf"another process trains in {tmp_path} \(process {os.getpid()} on "
    ):
        trainer.train(small(), str(tmp_path), progress=False)
    workdir.unlock()
    assert trainer.train(small(), str(tmp_path), progress=False)["steps"] == 34
    workdir.lock()  # a run lets go at its end


@pytest.mark.nightly
def test_a_run_may_go_on_with_more_replicas(tmp_path, monkeypatch, mirrored):
    experiment = small(**{"encoder.dropout": 0.0, "epochs": 4.0})
    alone, both = str(tmp_path / "alone"), str(tmp_path / "both")
    trainer.train(experiment, alone, progress=False)
    interrupt(experiment, both, 34, monkeypatch)
    trainer.train(experiment, both, strategy=mirrored, progress=False)
    for a, b in zip(Workdir(alone).history(), Workdir(both).history(), strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-5)
    assert [line["replicas"] for line in Workdir(both).sessions()] == [1, 2]
