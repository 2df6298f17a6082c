import gc
import multiprocessing
import os
import re
import signal
import threading
import time
import types
import weakref

import pytest
import tensorflow as tf

from rank4class.pipelines import config
from rank4class.pipelines.configs import digits_mlp
from rank4class.pipelines.storage.run_directory import RunDirectory
from rank4class.pipelines.sweep import grid, parallel
from rank4class.pipelines.sweep.parallel import GridRun
from rank4class.pipelines.training import rank_training

pytestmark = pytest.mark.usefixtures("all_resamples", "forked_workers")
FILES = ("results.json", "metrics.jsonl", "calibration.json")


@pytest.fixture
def forked_workers(monkeypatch):
    """Forks the processes of a sweep from one that has imported TensorFlow, once for all tests."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["rank4class.pipelines.sweep.parallel"])
    changes = {"get_context": lambda _: context, "active_children": multiprocessing.active_children}
    monkeypatch.setattr(parallel, "multiprocessing", types.SimpleNamespace(**changes))


def base(**changes):
    return config.override(
        digits_mlp.get_config(), {"epochs": 1.0, "encoder.hidden": (16,), "encoder.dropout": 0.2, **changes}
    )


def runs_below(folder, **changes):
    return [GridRun(base(seed=seed, **changes), f"{folder}/seed{seed}") for seed in (0, 1)]


def train_all(waiting, jobs):
    """Yields the runs with their outcomes."""
    with parallel.start("nowhere", jobs) as pool:
        yield from pool.train(waiting)


def when_training(runs, action):
    """Calls an action in a thread once all runs have evaluated."""

    def wait():
        while not all(os.path.exists(os.path.join(run.path, "metrics.jsonl")) for run in runs):
            time.sleep(0.01)
        action()

    threading.Thread(target=wait, daemon=True).start()


def kill(run):
    """Kills the process that trains a run."""
    with open(os.path.join(run.path, "lock")) as lock:
        os.kill(int(lock.read().split()[1]), signal.SIGKILL)


def test_runs_are_taken_after_the_outcomes_before_them(monkeypatch):
    trained = []
    outcomes = {}
    handlers = []
    monkeypatch.setattr(
        rank_training, "load_data", lambda *_: handlers.append(signal.getsignal(signal.SIGINT))
    )
    monkeypatch.setattr(rank_training, "train", lambda experiment, path, **_: trained.append(path) or path)
    monkeypatch.setattr(parallel.Pool, "check_data", lambda *_: None)

    def runs():
        yield GridRun(base(), "a")
        yield GridRun(base(), f"after {outcomes['a']}")

    for run, outcome in train_all(runs(), jobs=1):
        outcomes[run.path] = outcome
    assert trained == ["a", "after a"]
    assert handlers == [signal.getsignal(signal.SIGINT)]  # Ctrl-C stops the loading in this process


def test_runs_share_their_data_unless_these_differ(monkeypatch):
    loaded = []
    trained_on = []
    monkeypatch.setattr(rank_training, "load_data", lambda one, _: loaded.append(one.encoder) or len(loaded))
    monkeypatch.setattr(
        rank_training, "train", lambda *_, task_data, **__: trained_on.append(task_data) or {"": 0}
    )
    monkeypatch.setattr(parallel.Pool, "check_data", lambda *_: None)
    changes = ({}, {"loss.name": "mse", "epochs": 2.0}, {"encoder.dropout": 0.3}, {})
    runs = [GridRun(base(**one), str(i)) for i, one in enumerate(changes)]
    for _ in range(2):  # the data may change between two sweeps
        list(train_all(runs, jobs=1))
    assert trained_on == [1, 1, 2, 3, 4, 4, 5, 6]


def test_workers_have_the_settings_of_the_command(monkeypatch):
    seen = []
    monkeypatch.setenv("RANK4CLASS_LOG", "mlflow")

    class Cluster(parallel._ThisProcess):
        def submit(self, function, *arguments):
            monkeypatch.delenv("RANK4CLASS_LOG", raising=False)  # of a worker
            return super().submit(function, *arguments)

    monkeypatch.setattr(rank_training, "load_data", lambda *_: None)
    monkeypatch.setattr(rank_training, "train", lambda *_, **__: seen.append(os.environ["RANK4CLASS_LOG"]))
    monkeypatch.setattr(parallel.Pool, "check_data", lambda *_: None)
    with parallel.start("nowhere", 1, Cluster()) as pool:
        list(pool.train([GridRun(base(), "a")]))
    assert seen == ["mlflow"]


def test_each_process_sees_one_gpu(monkeypatch):
    gpus = ["gpu 0", "gpu 1"]
    visible = []
    growing = []
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: {"GPU": gpus}[kind])
    monkeypatch.setattr(tf.config, "set_visible_devices", lambda *seen: visible.append(seen))
    monkeypatch.setattr(tf.config.experimental, "set_memory_growth", lambda *set_: growing.append(set_))
    for index in range(2):
        parallel._use_gpu(index, jobs=2)
    assert visible == [("gpu 0", "GPU"), ("gpu 1", "GPU")]
    assert growing == []
    parallel._use_gpu(2, jobs=3)
    assert visible[2:] == [("gpu 0", "GPU")]
    assert growing == [("gpu 0", True)]
    gpus.clear()
    parallel._use_gpu(0, jobs=2)
    assert len(visible) == 3


@pytest.mark.nightly
def test_a_killed_process_is_reported_and_the_other_saves(tmp_path):
    runs = runs_below(tmp_path, epochs=1e5)

    when_training(runs, lambda: kill(runs[0]))
    message = (
        f"jobs=2: a process ended by itself, maybe that of {runs[0].path}; see its messages, if any. If "
        "memory ran out, lower --jobs. Run the command again to resume."
    )
    with pytest.raises(ChildProcessError, match=re.escape(message)):
        list(train_all(runs, jobs=2))
    assert not multiprocessing.active_children()
    folder = RunDirectory(runs[1].path)
    assert folder.sessions()[-1]["to_step"] > folder.history()[-1]["step"] - 1 > 0
    folder.lock()  # nobody trains in it


@pytest.mark.nightly
def test_an_error_stops_the_other_runs(tmp_path):
    runs = runs_below(tmp_path, epochs=1e5)
    locked = RunDirectory(tmp_path / "locked")
    os.makedirs(locked.path)
    locked.lock()
    trained = train_all([runs[0], GridRun(base(), locked.path)], jobs=2)
    _, outcome = next(trained)
    assert f"{locked.path}: another process trains in it" in str(outcome)
    trained.close()  # as the error of a grid does
    assert not multiprocessing.active_children()


@pytest.mark.nightly
def test_a_dask_cluster_equals_one_process_though_a_worker_is_killed(tmp_path):
    distributed = pytest.importorskip("distributed", reason="pip install 'rank4class[dask]'")

    def train(root, **options):
        losses = ["softmax", "mse"]
        return grid.run_grid(
            base(epochs=4.0),
            f"{tmp_path}/{root}",
            losses=losses,
            interactions=["dot"],
            seeds=[0, 1],
            **options,
        )

    killed = GridRun(base(), f"{tmp_path}/dask/softmax-dot-seed1")
    options = {"threads_per_worker": 1, "host": "127.0.0.1", "dashboard_address": None}
    with distributed.LocalCluster(2, **options) as cluster:
        cluster.wait_for_workers(2)
        with parallel.connect(f"dask:{cluster.scheduler_address}") as (executor, workers):
            when_training([killed], lambda: kill(killed))
            runs = train("dask", executor=executor, jobs=workers)
    assert workers == 2
    assert len(RunDirectory(killed.path).sessions()) == 2
    for run, alone in zip(runs, train("alone"), strict=True):
        assert run.results == alone.results
        for name in FILES:
            with open(f"{run.path}/{name}") as left, open(f"{alone.path}/{name}") as right:
                assert left.read() == right.read()


def test_executors_that_cannot_train():
    with pytest.raises(ValueError, match="executor='dask': unknown. Choose 'processes' or 'dask:tcp://HOST:"):
        parallel.connect("dask").__enter__()
    distributed = pytest.importorskip("distributed", reason="pip install 'rank4class[dask]'")
    with distributed.LocalCluster(
        1, threads_per_worker=2, processes=False, dashboard_address=None
    ) as cluster:
        message = "a worker with 2 threads; a process trains one run at a time. Start the workers with --nthr"
        with pytest.raises(ValueError, match=message):
            parallel.connect(f"dask:{cluster.scheduler_address}").__enter__()


def test_a_run_leaves_no_model_in_memory(monkeypatch):
    made = []

    def train(*args, **options):
        model = tf.Module()
        model.itself = model
        made.append(weakref.ref(model))
        return {}

    monkeypatch.setattr(parallel.rank_training, "load_data", lambda *args: None)
    monkeypatch.setattr(parallel.rank_training, "train", train)
    gc.disable()
    try:
        parallel._train("a sweep", "", config.to_json(base()), {}, "unused", None, {})
        assert made[0]() is None
    finally:
        gc.enable()


@pytest.mark.nightly
def test_processes_do_not_change_results(tmp_path):
    alone, together = runs_below(tmp_path / "alone"), runs_below(tmp_path / "together")
    for run in alone:
        rank_training.train(run.experiment, run.path, progress=False)
    diverging = GridRun(base(**{"optimizer.learning_rate": 1e30}), f"{tmp_path}/diverging")
    outcomes = dict(train_all([diverging, *together], jobs=2))
    for one, other in zip(alone, together, strict=True):
        assert outcomes[other] == RunDirectory(one.path).results()
        for name in FILES:
            with open(os.path.join(one.path, name)) as left, open(os.path.join(other.path, name)) as right:
                assert left.read() == right.read()
        commands = [RunDirectory(run.path).sessions()[0]["command"] for run in (one, other)]
        assert commands[0] == commands[1]
    assert isinstance(outcomes[diverging], FloatingPointError)
    assert "loss='softmax': " in str(outcomes[diverging])
    assert not multiprocessing.active_children()
