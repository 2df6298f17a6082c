"""Trainings and sweeps under signals, full disks, other processes and lost machines."""

import contextlib
import fcntl
import json
import operator
import os
import resource
import signal
import socket
import threading
import time

import numpy as np
import pytest

from rank4class.pipelines.storage import run_directory

DIGITS = "--config=" + os.path.join(os.path.dirname(__file__), "..", "pipelines", "configs", "digits_mlp.py")
SMALL = ("--config.encoder.hidden=(16,)", "--config.encoder.dropout=0.2")
# Two workers sum in another order than one device.
REPLICAS_RTOL = 1e-5


@pytest.fixture
def start(opened):
    """Returns a function that starts a training; processes that still run after the test are killed."""
    started = []

    def start(workdir, *flags, **kwargs):
        started.append(opened("train", DIGITS, *SMALL, f"--workdir={workdir}", *flags, **kwargs))
        return started[-1]

    yield start
    for process in started:
        process.kill()


@pytest.fixture
def train(command):
    """Returns a function that trains in this process and returns the exit code and the last error line."""

    def train(workdir, *flags):
        finished = command("train", DIGITS, *SMALL, f"--workdir={workdir}", *flags)
        return finished.returncode, (finished.stderr.splitlines() or [""])[-1]

    return train


def ended(process, timeout=300):
    """Waits for a process; returns its exit code and the last line of its error stream."""
    try:
        _, errors = process.communicate(timeout=timeout)
    finally:
        process.kill()
    lines = [line for line in errors.splitlines() if line.strip()]
    return process.returncode, lines[-1] if lines else ""


def wait_for(condition, process, timeout=120):
    deadline = time.monotonic() + timeout
    while not condition():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.01)


def history(workdir):
    return [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture
def default_action():
    """Ignores a SIGTERM that comes when no training handles it."""
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    yield
    signal.signal(signal.SIGTERM, before)


def test_sigterm_saves_and_the_same_command_resumes(command, output_of, tmp_path, default_action):
    folder = tmp_path / "run"
    flags = ("train", DIGITS, *SMALL, f"--workdir={folder}", "--config.epochs=6")

    def terminate():
        while not (folder / "metrics.jsonl").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=terminate, daemon=True).start()
    terminated = command(*flags)
    assert terminated.returncode == 75
    line = terminated.stderr.splitlines()[-1]
    assert line.startswith("Saved after step ")
    assert line.endswith(" and stopped. Run the same command again to resume.")
    saved = int(line.split()[3])
    assert f"step-{saved}.index" in os.listdir(folder / "checkpoints" / "last")
    finished = command(*flags)
    assert finished.returncode == 0, finished.stderr
    first, second = map(json.loads, (folder / "sessions.jsonl").read_text().splitlines())
    assert first["to_step"] == second["from_step"] == saved
    results = json.loads((folder / "results.json").read_text())
    assert history(folder)[-1]["step"] == results["steps"] == 102  # 6 epochs of 1,078 examples
    best = f"step {results['best_step']} of 102, the first with the best validation ndcg@5"
    assert f"\nCheckpoint: {best}\n" in finished.stdout
    assert f"{results['test']['ndcg@5']:.2f}" in output_of("evaluate", f"--workdir={folder}")


def test_a_second_training_in_the_same_folder(train, tmp_path):
    first = run_directory.RunDirectory(tmp_path)
    first.lock()
    code, line = train(tmp_path)
    first.unlock()
    problem = f"another process trains in it (process {os.getpid()} on "
    assert (code, line.startswith(f"error: {tmp_path}: {problem}")) == (1, True)


@pytest.mark.nightly
def test_a_sweep_of_several_jobs_stops_and_resumes(opened, tmp_path):
    flags = (DIGITS, *SMALL, "--losses=softmax,mse", "--interactions=dot", "--seed=0", "--config.epochs=30")
    folders = [tmp_path / "sweep" / f"{loss}-dot-seed0" for loss in ("softmax", "mse")]

    def steps():
        paths = [folder / "metrics.jsonl" for folder in folders]
        return [history(path.parent)[-1]["step"] if path.exists() else 0 for path in paths]

    def start(workdir, jobs):
        return opened("sweep", *flags, f"--workdir={workdir}", f"--jobs={jobs}")

    processes = []
    try:
        for number in (signal.SIGINT, signal.SIGKILL):
            before = steps()
            processes.append(start(tmp_path / "sweep", 2))
            wait_for(lambda before=before: all(map(operator.gt, steps(), before)), processes[-1])
            processes[-1].send_signal(number)
            output, errors = processes[-1].communicate()
            if number == signal.SIGKILL:
                assert processes[-1].returncode == -number
                break
            assert processes[-1].returncode == 128 + number
            assert errors == "Saved the runs and stopped. Run the same command again to resume.\n"
            assert output.count("Saving after this step.") == 1
            assert not any(is_locked(folder) for folder in folders)
        deadline = time.monotonic() + 60
        while any(is_locked(folder) for folder in folders):  # the processes save and end after their parent
            assert time.monotonic() < deadline
            time.sleep(0.01)
        for workdir, jobs in ((tmp_path / "sweep", 2), (tmp_path / "undisturbed", 1)):
            processes.append(start(workdir, jobs))
            assert ended(processes[-1]) == (0, "")
    finally:
        for process in processes:
            process.kill()
    for folder in folders:
        assert len((folder / "sessions.jsonl").read_text().splitlines()) == 3
        for name in ("results.json", "metrics.jsonl", "calibration.json"):
            assert (folder / name).read_text() == (tmp_path / "undisturbed" / folder.name / name).read_text()


def is_locked(folder):
    with open(folder / "lock") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@contextlib.contextmanager
def largest_file(size):
    """Makes writes beyond a file size fail, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.nightly
def test_a_full_disk_does_not_change_results(train, tmp_path, assert_same_run):
    flags = ("--config.epochs=3", "--config.encoder.hidden=(64,)")
    with largest_file(20_000):
        code, line = train(tmp_path / "run", *flags)
    assert code == 1
    checkpoint = tmp_path / "run" / "checkpoints" / "last" / "step-17"
    assert line.startswith(f"error: {checkpoint}: the checkpoint cannot be written (")
    assert "File too large" in line
    assert os.listdir(tmp_path / "run" / "checkpoints" / "last") == []
    assert train(tmp_path / "run", *flags)[0] == 0
    assert train(tmp_path / "undisturbed", *flags)[0] == 0
    assert_same_run(tmp_path / "undisturbed", tmp_path / "run")


def test_epochs_on_the_command_line_replace_the_steps_of_a_config(command, tmp_path):
    (tmp_path / "mine.py").write_text(
        "from rank4class.pipelines import config\n"
        "from rank4class.pipelines.configs import digits_mlp\n"
        "def get_config():\n"
        "    return config.override(digits_mlp.get_config(), {'steps': 3})\n"
    )
    (tmp_path / "flags").write_text(f"--config={tmp_path / 'mine.py'}\n--config.epochs=0.5\n")
    train = ("train", f"--flagfile={tmp_path / 'flags'}", *SMALL, f"--workdir={tmp_path / 'run'}")
    train += ("--config.data.max_examples=128", "--config.calibration=none")
    both = command(*train, "--config.steps=5")
    assert (both.returncode, both.stderr) == (1, "error: steps=5: epochs=0.5 is set too. Set one of them.\n")
    trained = command(*train)
    # Half of 128 examples in batches of 64.
    assert trained.stdout.startswith("Training: epochs=0.5, steps=1, batch_size=64\n"), trained.stderr
    assert json.loads((tmp_path / "run" / "results.json").read_text())["steps"] == 1


def free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]


@pytest.fixture
def start_workers(start):
    """Returns a function that starts two workers; the second can have another folder and more flags.

    A `job` describes the cluster of the worker of an index by environment variables; None sets TF_CONFIG.
    """

    def start_workers(workdir, *flags, job=None, other_workdir=None, other_flags=()):
        addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
        processes = []
        for i, (folder, more) in enumerate(((workdir, ()), (other_workdir or workdir, other_flags))):
            cluster = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": i}}
            environment = job(i) if job else {"TF_CONFIG": json.dumps(cluster)}
            processes.append(start(folder, "--strategy=multi_worker", *flags, *more, environment=environment))
        return processes

    return start_workers


@pytest.mark.nightly
@pytest.mark.multi_worker
def test_two_workers_equal_one_and_resume_after_one_is_lost(train, start_workers, tmp_path):
    def sky(i):
        return {"SKYPILOT_NODE_RANK": str(i), "SKYPILOT_NODE_IPS": "127.0.0.1\n127.0.0.1"}

    def slurm(i):
        nodes = {"SLURM_STEP_NODELIST": "127.0.0.[1]", "SLURM_STEP_TASKS_PER_NODE": "2"}
        return {"SLURM_PROCID": str(i), **nodes}

    flags = ("--config.epochs=4", "--config.encoder.dropout=0.0", "--config.checkpoint_steps=5")
    chief, other = start_workers(tmp_path / "two", *flags, job=sky)
    wait_for((tmp_path / "two" / "metrics.jsonl").exists, chief)
    other.kill()
    code, line = ended(chief)
    assert code == 75
    assert line.startswith("error: strategy='multi_worker': another worker was lost (")
    assert line.endswith("training resumes from the last checkpoint.")
    ended(other)
    chief, other = start_workers(tmp_path / "two", *flags, job=slurm)
    for process in (chief, other):
        assert ended(process)[0] == 0
    sessions = (tmp_path / "two" / "sessions.jsonl").read_text().splitlines()
    first, second = map(json.loads, sessions)
    assert 0 < second["from_step"] <= first["to_step"]
    assert (second["strategy"], second["replicas"]) == ("CollectiveAllReduceStrategy", 2)

    assert train(tmp_path / "one", *flags)[0] == 0
    one = history(tmp_path / "one")
    two = history(tmp_path / "two")
    assert len(one) == len(two) == 4
    for a, b in zip(one, two, strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=REPLICAS_RTOL)
        assert a["top1_error"] == pytest.approx(b["top1_error"], abs=0.3)  # one of 359 examples
    for split in ("validation", "test"):
        first, second = (json.loads((tmp_path / n / "results.json").read_text()) for n in ("one", "two"))
        assert first[split]["examples"] == second[split]["examples"]
    assert not [*(tmp_path / "two" / "checkpoints" / "last").glob("*partial*")]
    assert np.isfinite([line["loss"] for line in two]).all()


@pytest.mark.nightly
@pytest.mark.multi_worker
def test_a_signal_to_one_worker_stops_both(start_workers, tmp_path):
    chief, other = start_workers(tmp_path / "two", "--config.epochs=500")
    wait_for((tmp_path / "two" / "metrics.jsonl").exists, chief)
    other.send_signal(signal.SIGTERM)
    lines = []
    for process in (chief, other):
        code, line = ended(process)
        assert code == 75
        lines.append(line)
    assert lines[0] == lines[1]
    assert lines[0].startswith("Saved after step ")


@pytest.mark.nightly
@pytest.mark.multi_worker
@pytest.mark.parametrize(
    ("folder", "flags", "message"),
    [
        ("one", ["--config.optimizer.learning_rate=0.3"], "learning_rate is 0.003 there and 0.3 here"),
        ("another", [], "another: not the chief's folder. Give all workers one and the same --workdir."),
    ],
)
def test_workers_with_different_folders_or_flags(start_workers, tmp_path, folder, flags, message):
    others = {"other_workdir": tmp_path / folder, "other_flags": flags}
    chief, other = start_workers(tmp_path / "one", "--config.epochs=2", **others)
    code, line = ended(other)
    assert (code, line.startswith("error: ")) == (1, True)
    assert message in line
    assert ended(chief)[0] == 75  # it has lost a worker
    assert not (tmp_path / "one" / "results.json").exists()
