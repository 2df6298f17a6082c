"""The TPU launcher against a stand-in for gcloud, which runs the commands for the VM with bash, here."""

import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
SCRIPTS = ("scripts/launch_tpu.sh", "scripts/tpu_vm.sh")
CONFIG = "pipelines/configs/digits_mlp.py"
WORKDIR = "gs://bucket/runs/digits"
TRAINING = (f"--config={CONFIG}", f"--workdir={WORKDIR}")
HOST = ("--name=mine", "--zone=us-central2-b", "--type=v3-8")
POD = ("--name=mine", "--zone=us-central2-b", "--type=v3-32")
IMAGE = "tpu-vm-tf-2.15.1-pjrt"
POD_IMAGE = "tpu-vm-tf-2.15.1-pod-pjrt"

# cloud.json is the cloud: what exists, through which states it goes, and what fails.
GCLOUD = """
import json, os, pathlib, shutil, subprocess, sys, time
here = pathlib.Path(os.environ["STAND_IN"])
cloud = json.loads((here / "cloud.json").read_text())
words = sys.argv[1:]
with open(here / "calls", "a") as calls:
    calls.write(json.dumps(["gcloud", *words]) + "\\n")
flags = dict(word.partition("=")[::2] for word in words if word.startswith("--"))
kind, verb = (words[2], words[3]) if words[0] == "compute" else ("config", "get")

def end(code=0, message=""):
    partial = here / f"cloud.json.{os.getpid()}"
    partial.write_text(json.dumps(cloud))
    partial.replace(here / "cloud.json")  # at once: the training may be reading it
    print(message, end="", file=sys.stderr, flush=True)
    sys.exit(code)

def fails(step):
    if step in cloud["fails"]:
        end(cloud["fails"][step], f"ERROR: (gcloud) no {step} today\\n")

if kind == "config":
    print(cloud["zone"])
    end()
name = words[4]
if verb == "describe":
    fails("describe")
    thing = cloud[kind]
    if thing is None:
        end(1, f"ERROR: (gcloud.compute.tpus.{kind}.describe) NOT_FOUND: Resource '{name}' was not found\\n")
    state = thing["states"].pop(0) if len(thing["states"]) > 1 else thing["states"][0]
    if state is None:
        cloud[kind] = None
        end(1, "ERROR: NOT_FOUND\\n")
    print(state, thing["type"], thing["version"], thing["last"], sep="\\t")
    end()
if verb == "create":
    fails("create")
    queue = kind == "queued-resources"
    image = flags["--runtime-version" if queue else "--version"]
    thing = {"type": flags["--accelerator-type"], "version": image}
    cloud["tpu-vm"] = {**thing, "states": cloud["vm_states"], "last": name if queue else ""}
    if queue:
        cloud[kind] = {**thing, "states": cloud["queue_states"], "last": cloud["queue_error"]}
    shutil.rmtree(here / "vm", ignore_errors=True)
    (here / "vm").mkdir()
    end()
if verb == "delete":
    fails("delete")
    cloud["tpu-vm"] = cloud[kind] = None
    end()
if verb == "scp":
    fails("scp")
    shutil.copy(name, here / "vm" / words[5].removeprefix("mine:"))
    end()
command = flags["--command"]
for step in ("install", "start", "status", "follow"):
    if f"tpu_vm.sh {step}" in command:
        break
fails(step)
path = f"{here}/vm_bin:{os.environ['OUTER_PATH']}"
environment = {"HOME": str(here / "vm"), "PATH": path, "STAND_IN": str(here)}
shell = ["bash", "-c", command]
if step == "follow" and cloud["breaks"]:
    cloud["breaks"] -= 1
    cloud.update(cloud["after_break"])
    process = subprocess.Popen(shell, cwd=here / "vm", env=environment, stdout=subprocess.PIPE)
    sys.stdout.write(process.stdout.read(cloud["break_after"]).decode())
    process.kill()
    end(255, "Connection closed\\n")
end(subprocess.run(shell, cwd=here / "vm", env=environment).returncode)
"""

# The VM's Python: the checks of the image run in earnest, the rest is written down.
PYTHON = """
import json, os, pathlib, shutil, sys, time
here = pathlib.Path(os.environ["STAND_IN"])
cloud = json.loads((here / "cloud.json").read_text())
words = sys.argv[2:]
if words[0] == "-":
    os.execv(sys.executable, [sys.executable, *cloud["python_flags"], "-"])
if words[0] == "-c":
    sys.exit(0 if cloud["ensurepip"] else 1)
if words[0] == "-u":
    words.pop(0)
with open(here / "vm_calls", "a") as calls:
    calls.write(json.dumps(words) + "\\n")
if words[1] == "venv":
    target = pathlib.Path(words[-1], "bin")
    target.mkdir(parents=True)
    shutil.copy(sys.argv[1], target / "python")
elif words[1] == "rank4class.scripts.train":
    names = ("TPU_", "TF_", "NEXT_")
    environment = {name: value for name, value in os.environ.items() if name.startswith(names)}
    where = {"flags": words[2:], "environment": environment, "folder": os.getcwd()}
    (here / "trained.json").write_text(json.dumps(where))
    for step in range(cloud["steps"]):
        print("step", step, flush=True)
    while (here / "hold").exists():
        time.sleep(0.02)
    print("end", flush=True)
    sys.exit(cloud["training"])
"""

# What a machine's first process does for orphans: a training that ended is gone at once. That of a container
# may take its time, and until then a training looks alive to who follows it.
REAPER = """
import ctypes, os, subprocess, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
child = subprocess.Popen(sys.argv[1:])
while True:
    pid, status = os.wait()
    if pid == child.pid:
        child.returncode = os.waitstatus_to_exitcode(status)
        sys.exit(child.returncode)
"""

RECORDER = """#!/bin/bash
(printf '["%s"' "${{0##*/}}" && printf ', "%s"' "$@" && echo ']') >>"$STAND_IN/calls"
exec {program} "$@"
"""


class World:
    """A checkout, a machine with the stand-in for gcloud, and a cloud."""

    def __init__(self, path, checkout=None):
        self.path = path
        self.checkout = path / "checkout"
        self.vm = path / "vm"
        self.cloud = {
            **{"tpu-vm": None, "queued-resources": None, "zone": "us-central1-a", "fails": {}},
            **{"vm_states": ["CREATING", "READY"], "queue_states": ["ACTIVE"], "queue_error": ""},
            **{"breaks": 0, "break_after": 0, "after_break": {}, "python_flags": [], "ensurepip": True},
            **{"steps": 3, "training": 0},
        }
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
            **{"PATH": f"{path}/bin:{os.environ['PATH']}", "OUTER_PATH": os.environ["PATH"]},
            **{"STAND_IN": str(path), "LAUNCH_POLL_SECONDS": "0.05", "HOME": str(path)},
            **{"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"},
            **{
                f"GIT_{who}_{what}": "me@here"
                for who in ("AUTHOR", "COMMITTER")
                for what in ("NAME", "EMAIL")
            },
        }
        if checkout:
            shutil.copytree(checkout, self.checkout)
        else:
            self.make_checkout()
        self.make_machine()

    def make_checkout(self):
        for name in (*SCRIPTS, CONFIG, "requirements.txt"):
            (self.checkout / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.checkout / name)
        self.git("init", "--quiet")
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message=all")

    def make_machine(self):
        for folder in ("bin", "vm_bin", "vm"):
            (self.path / folder).mkdir()
        for name in ("git", "tar", "rm"):
            self.program(f"bin/{name}", RECORDER.format(program=shutil.which(name)))
        # Without site-packages Python starts faster.
        python = f"exec {shlex.quote(sys.executable)} -E -S {self.path}"
        (self.path / "gcloud.py").write_text(GCLOUD)
        self.program("bin/gcloud", f'#!/bin/bash\n{python}/gcloud.py "$@"\n')
        (self.path / "python.py").write_text(PYTHON)
        self.program("vm_bin/python3", f'#!/bin/bash\n{python}/python.py "$0" "$@"\n')

    def program(self, name, text):
        (self.path / name).write_text(text)
        (self.path / name).chmod(0o755)

    def git(self, *words):
        command = ["git", "-C", self.checkout, *words]
        return subprocess.run(
            command, env=self.environment, check=True, capture_output=True, text=True
        ).stdout.strip()

    def exists(self, state="READY", *, queue_state=None, kind="v3-8", version=IMAGE):
        """Says what the cloud holds by the name."""
        thing = {"type": kind, "version": version}
        if state:
            self.cloud["tpu-vm"] = {**thing, "states": [state], "last": "mine" if queue_state else ""}
        if queue_state:
            self.cloud["queued-resources"] = {**thing, "states": [queue_state], "last": ""}

    def set_up(self, **cloud):
        (self.path / "cloud.json").write_text(json.dumps({**self.cloud, **cloud}))

    def command(self, *words):
        return [str(self.checkout / SCRIPTS[0]), *words]

    def launch(self, *words, folder=None, again=False, **cloud):
        if not again:
            self.set_up(**cloud)
        return subprocess.run(
            [sys.executable, "-E", "-S", "-c", REAPER, *self.command(*words)],
            **{"capture_output": True, "text": True, "timeout": 60, "check": False},
            **{"env": self.environment, "cwd": folder or self.checkout},
        )

    def calls(self, path="calls"):
        """Returns what ran: gcloud, and of the rest what a dry run would show."""
        if not (self.path / path).exists():
            return []
        calls = [json.loads(line) for line in (self.path / path).read_text().splitlines()]
        return [
            call
            for call in calls
            if call[0] not in ("git", "rm")
            or call[1] == "clone"
            or (call[0] == "rm" and call[-1].startswith(".git/"))
        ]

    def verbs(self):
        """Returns gcloud's calls in short: `tpu-vm create`, and of ssh the step on the VM."""
        verbs = []
        for call in self.calls():
            if call[:2] == ["gcloud", "compute"]:
                step = re.search(r"tpu_vm.sh (\w+)", call[-1])
                verbs.append(" ".join([*call[3:5], *(step.groups() if step else [])]))
        return verbs

    def call(self, verb):
        (found,) = (call for call in self.calls() if call[0] == "gcloud" and verb in call)
        return found

    def forget(self):
        (self.path / "calls").unlink(missing_ok=True)

    def trained(self):
        return json.loads((self.path / "trained.json").read_text())


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """Commits the files of a checkout once, for all worlds."""
    return World(tmp_path_factory.mktemp("checkout")).checkout


@pytest.fixture
def world(tmp_path, checkout):
    world = World(tmp_path, checkout)
    yield world
    (tmp_path / "hold").unlink(missing_ok=True)


ON_VM = ["tpu-vm scp", "tpu-vm ssh install", "tpu-vm ssh start", "tpu-vm ssh follow", "tpu-vm ssh status"]
LOG = "step 0\nstep 1\nstep 2\nend\n"


def error_line(finished):
    """Returns the one line of an error that a command ended with."""
    assert finished.returncode == 1
    (line,) = (line for line in finished.stderr.splitlines() if line.startswith("error: "))
    return line


def only_line(finished):
    assert finished.stdout == ""
    line = error_line(finished)
    assert finished.stderr == f"{line}\n"
    return line


@pytest.mark.nightly
def test_one_command_creates_installs_trains_and_follows(world):
    finished = world.launch(*HOST, "--", *TRAINING)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout == LOG
    assert world.verbs() == ["tpu-vm describe", "tpu-vm create", *["tpu-vm describe"] * 2, *ON_VM]
    assert world.call("create")[5:] == [
        *("mine", "--zone=us-central2-b"),
        *("--accelerator-type=v3-8", f"--version={IMAGE}"),
    ]
    trained = world.trained()
    assert trained["flags"] == ["--strategy=tpu", "--tpu=local", *TRAINING]
    assert trained["folder"] == str(world.vm / "rank4class/code")
    assert trained["environment"] == {
        "NEXT_PLUGGABLE_DEVICE_USE_C_API": "true",
        "TF_PLUGGABLE_DEVICE_LIBRARY_PATH": "/lib/libtpu.so",
        "TPU_NAME": "local",
    }
    assert not list((world.checkout / ".git").glob("launch-*"))


@pytest.mark.nightly
def test_the_training_on_the_vm_knows_its_commit(world):
    world.launch(*HOST, "--", *TRAINING)
    command = ["git", "-C", world.vm / "rank4class/code", "rev-parse", "HEAD"]
    assert subprocess.run(command, capture_output=True, text=True).stdout.strip() == world.git(
        "rev-parse", "HEAD"
    )


@pytest.mark.nightly
def test_a_pod_is_driven_from_its_worker_0(world):
    finished = world.launch(*POD, "--", *TRAINING)
    assert finished.returncode == 0, finished.stderr
    assert f"--version={POD_IMAGE}" in world.call("create")
    on_vm = [call for call in world.calls() if "ssh" in call or "scp" in call]
    assert len(on_vm) == len(ON_VM)
    assert all("--worker=0" in call for call in on_vm)
    assert world.trained()["flags"][:2] == ["--strategy=tpu", "--tpu=mine"]
    assert world.trained()["environment"] == {"TPU_LOAD_LIBRARY": "0", "TPU_NAME": "mine"}


@pytest.mark.parametrize(
    ("kind", "image"),
    [("v2-8", IMAGE), ("v5litepod-4", IMAGE), ("v4-16", POD_IMAGE), ("v5litepod-16", POD_IMAGE)],
)
def test_the_image_is_that_of_the_number_of_hosts(world, kind, image):
    world.launch("create", "--name=mine", "--zone=z", f"--type={kind}")
    assert f"--version={image}" in world.call("create")


@pytest.mark.nightly
def test_a_queued_spot_request_is_waited_for(world):
    states = ["ACCEPTED", "WAITING_FOR_RESOURCES", "WAITING_FOR_RESOURCES", "PROVISIONING", "ACTIVE"]
    finished = world.launch(*HOST, "--queued", "--spot", "--", *TRAINING, queue_states=states)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout == LOG
    assert world.verbs() == [
        *("tpu-vm describe", "queued-resources describe", "queued-resources create"),
        *["queued-resources describe"] * 5,
        *["tpu-vm describe"] * 2,
        *ON_VM,
    ]
    assert world.call("create")[5:] == [
        *("mine", "--node-id=mine", "--zone=us-central2-b"),
        *("--accelerator-type=v3-8", f"--runtime-version={IMAGE}", "--spot"),
    ]
    assert finished.stderr.count("WAITING_FOR_RESOURCES") == 1


@pytest.mark.nightly
def test_flags_for_gcloud_are_passed_on(world):
    finished = world.launch(
        *HOST,
        *(
            "--project=ours",
            "--version=other-image",
            "--create_flag=--network=a b",
            "--ssh_flag=--internal-ip",
        ),
        *("--", *TRAINING),
    )
    assert finished.returncode == 0, finished.stderr
    assert {"--version=other-image", "--network=a b"} <= set(world.call("create"))
    for call in world.calls():
        if call[:2] == ["gcloud", "compute"]:
            assert "--project=ours" in call
            assert ("--internal-ip" in call) == (call[4] in ("ssh", "scp"))


@pytest.mark.nightly
@pytest.mark.parametrize(
    "flags",
    [HOST, (*HOST, "--delete"), (*POD, "--queued", "--spot", "--delete"), ("--name=mine", "--type=v4-8")],
    ids=["host", "delete", "queued", "default zone"],
)
def test_a_dry_run_shows_what_the_run_does_and_does_nothing(world, flags):
    odd = '--config.data.path=gs://a b/it\'s "x" $HOME `date` \\ *'
    dry = world.launch(*flags, "--dry_run", "--", *TRAINING, odd)
    assert dry.returncode == 0, dry.stderr
    assert dry.stderr == ""
    assert world.calls() == []
    finished = world.launch(*flags, "--", *TRAINING, odd, vm_states=["READY"])
    assert finished.returncode == 0, finished.stderr
    real = world.calls()
    assert [shlex.split(line) for line in dry.stdout.splitlines()] == real
    # What it printed can be pasted.
    world.forget()
    world.set_up(vm_states=["READY"])
    pasted = subprocess.run(
        ["bash", "-c", dry.stdout.replace(" follow 0", " follow 0; sleep 1")],
        **{"cwd": world.checkout, "env": world.environment, "capture_output": True, "text": True},
    )
    assert "end" in pasted.stdout
    assert [call[:5] for call in world.calls()] == [call[:5] for call in real]
    assert world.trained()["flags"][-1] == odd


def test_a_dry_run_needs_no_gcloud_and_says_where_it_runs(world, tmp_path):
    world.environment["PATH"] = path_without_gcloud(world)
    dry = world.launch(*HOST, "--dry_run", "--", *TRAINING, folder=tmp_path)
    assert dry.returncode == 0, dry.stderr
    assert dry.stdout.splitlines()[0] == f"cd {world.checkout}"


def path_without_gcloud(world):
    folder = world.path / "tools"
    folder.mkdir()
    for tool in ("bash", "env", "git", "dirname", "mktemp", "rm", "cat", "grep"):
        (folder / tool).symlink_to(shutil.which(tool))
    return str(folder)


@pytest.mark.nightly
@pytest.mark.parametrize("flags", [HOST, POD], ids=["host", "pod"])
def test_arguments_arrive_as_they_were_given(world, flags):
    odd = ["--config.a=two  words", "--b=it's", '--c="$HOME"', "--d=`date`;*\\", "", "--e=a\nb", "--f=é"]
    finished = world.launch(*flags, "--", *TRAINING, *odd)
    assert finished.returncode == 0, finished.stderr
    assert world.trained()["flags"][2:] == [*TRAINING, *odd]


@pytest.mark.nightly
def test_a_vm_that_is_ready_is_used(world):
    world.exists()
    finished = world.launch(*HOST, "--", *TRAINING)
    assert finished.returncode == 0, finished.stderr
    assert world.verbs() == [*["tpu-vm describe"] * 2, "tpu-vm ssh status", *ON_VM]


@pytest.mark.nightly
def test_the_same_command_again_starts_again_on_the_same_vm(world):
    world.launch(*HOST, "--", *TRAINING, training=3)
    world.forget()
    (world.path / "vm_calls").unlink()
    finished = world.launch(*HOST, "--", *TRAINING, again=True)
    assert finished.returncode == 3
    assert finished.stdout == LOG
    assert "tpu-vm create" not in world.verbs()
    installed = [call for call in world.calls("vm_calls") if call[1] == "pip"]
    assert len(installed) == 1  # the code anew; of the unchanged lock nothing
    assert installed[0][-2:] == ["-e", "."]


def started(world, *flags, again=False):
    """Starts a training that goes on until the file `hold` is removed; returns the launcher following it."""
    if not again:
        (world.path / "hold").touch()
        world.set_up()
    process = subprocess.Popen(
        world.command(*HOST, *flags, "--", *TRAINING),
        **{"env": world.environment, "cwd": world.checkout, "text": True, "start_new_session": True},
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert [process.stdout.readline() for _ in range(3)] == ["step 0\n", "step 1\n", "step 2\n"]
    return process


def interrupted(process):
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    return errors


@pytest.mark.nightly
def test_an_interrupted_follow_leaves_all_as_it_is_and_says_how_to_go_on(world):
    process = started(world, "--delete")
    errors = interrupted(process)
    assert process.returncode == 130
    assert "scripts/launch_tpu.sh follow --name=mine --zone=us-central2-b" in errors
    assert "scripts/launch_tpu.sh delete --name=mine --zone=us-central2-b" in errors
    assert "tpu-vm delete" not in world.verbs()
    pid = int((world.vm / "rank4class/pid").read_text())
    assert os.getsid(pid) == pid  # what ends the connection's session does not reach the training
    # The same command follows it, from the beginning, and copies nothing over it.
    world.forget()
    process = started(world, "--delete", again=True)
    (world.path / "hold").unlink()
    assert process.communicate(timeout=30)[0] == "end\n"
    assert process.returncode == 0
    assert world.verbs() == [
        *["tpu-vm describe"] * 2,
        "tpu-vm ssh status",
        *ON_VM[2:],
        "tpu-vm delete",
    ]
    assert len([call for call in world.calls("vm_calls") if call[1] == "rank4class.scripts.train"]) == 1


@pytest.mark.nightly
def test_another_training_that_runs_is_left_alone(world):
    interrupted(started(world))
    finished = world.launch(*HOST, "--delete", "--", *TRAINING, "--config.seed=2", again=True)
    assert f"another training runs here: local --config={CONFIG}" in error_line(finished)
    assert "tpu-vm delete" not in world.verbs()


@pytest.mark.nightly
def test_a_training_can_be_followed_later(world):
    interrupted(started(world))
    (world.path / "hold").unlink()
    finished = world.launch("follow", "--name=mine", "--zone=z", "--delete", again=True)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout == LOG
    assert world.verbs()[-1] == "tpu-vm delete"


@pytest.mark.nightly
def test_a_training_that_was_killed_is_an_error(world):
    process = started(world)
    os.killpg(int((world.vm / "rank4class/pid").read_text()), signal.SIGKILL)
    output, errors = process.communicate(timeout=30)
    assert output == ""
    assert process.returncode == 1
    assert "error: the training on mine ended without an exit code" in errors
    assert "the same command resumes it" in errors


def test_following_where_nothing_was_started(world):
    world.exists()
    line = error_line(world.launch("follow", "--name=mine", "--zone=z", "--delete"))
    assert "no training was started on mine" in line
    assert "tpu-vm delete" not in world.verbs()


@pytest.mark.nightly
@pytest.mark.parametrize("state", ["PREEMPTED", "TERMINATED"])
def test_a_preempted_vm_is_created_anew(world, state):
    world.exists(state)
    finished = world.launch(*HOST, "--spot", "--", *TRAINING)
    assert finished.returncode == 0, finished.stderr
    assert world.verbs()[:3] == ["tpu-vm describe", "tpu-vm delete", "tpu-vm create"]
    assert "--spot" in world.call("create")
    assert f"TPU VM mine is {state}: deleting it" in finished.stderr
    assert world.trained()["flags"][-1] == f"--workdir={WORKDIR}"


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("vm_state", "queue_state"),
    [(None, "SUSPENDED"), ("PREEMPTED", "SUSPENDED"), ("PREEMPTED", "ACTIVE"), (None, "FAILED")],
)
def test_a_suspended_request_is_asked_anew(world, vm_state, queue_state):
    world.exists(vm_state, queue_state=queue_state)
    finished = world.launch(*HOST, "--queued", "--", *TRAINING)
    assert finished.returncode == 0, finished.stderr
    assert world.verbs()[2:4] == ["queued-resources delete", "queued-resources create"]
    assert "--force" in world.call("delete")


@pytest.mark.nightly
def test_a_request_that_waits_is_waited_for_and_not_asked_again(world):
    world.exists(queue_state="PROVISIONING")
    world.cloud["queued-resources"]["states"].append("ACTIVE")
    finished = world.launch(*HOST, "--queued", "--", *TRAINING)
    assert finished.returncode == 0, finished.stderr
    assert "queued-resources create" not in world.verbs()


@pytest.mark.nightly
def test_a_vm_that_is_being_deleted_is_waited_for(world):
    world.exists("DELETING")
    world.cloud["tpu-vm"]["states"] += ["DELETING", None]
    finished = world.launch(*HOST, "--", *TRAINING)
    assert finished.returncode == 0, finished.stderr
    assert world.verbs()[:4] == [*["tpu-vm describe"] * 3, "tpu-vm create"]


@pytest.mark.nightly
def test_a_preemption_during_the_training_has_its_own_exit_code(world):
    gone = {"fails": {"status": 255, "follow": 255}}
    world.cloud["after_break"] = {**gone, "tpu-vm": {**dict.fromkeys(("type", "version", "last"), "x")}}
    world.cloud["after_break"]["tpu-vm"]["states"] = ["PREEMPTED"]
    finished = world.launch(*HOST, "--delete", "--", *TRAINING, breaks=1, break_after=8)
    assert finished.returncode == 75
    assert "error: TPU VM mine is PREEMPTED: the same command creates it anew" in finished.stderr
    assert "tpu-vm delete" not in world.verbs()


@pytest.mark.nightly
def test_a_broken_connection_is_taken_up_where_the_log_broke_off(world):
    finished = world.launch(*HOST, "--", *TRAINING, breaks=2, break_after=9)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout == LOG
    assert world.verbs()[-6:] == ["tpu-vm ssh follow", "tpu-vm ssh status"] * 3
    commands = [call[-1].split() for call in world.calls() if call[0] == "gcloud"]
    assert [words[-1] for words in commands if words[-2:-1] == ["follow"]] == ["0", "9", "18"]


@pytest.mark.nightly
def test_a_connection_that_stays_lost_is_given_up(world):
    world.cloud["after_break"] = {"fails": {"status": 255, "follow": 255}}
    flags = (*HOST, "--delete", "--wait_minutes=0")
    finished = world.launch(*flags, "--", *TRAINING, breaks=1, break_after=1, vm_states=["READY"])
    line = error_line(finished)
    assert "mine was out of reach for 0 minutes" in line
    assert "scripts/launch_tpu.sh follow --name=mine --zone=us-central2-b follows it" in line
    assert "tpu-vm delete" not in world.verbs()


def test_a_request_that_is_not_granted_in_time(world):
    flags = (*HOST, "--queued", "--wait_minutes=0", "--delete")
    finished = world.launch(*flags, "--", *TRAINING, queue_states=["WAITING_FOR_RESOURCES"])
    line = error_line(finished)
    assert "Queued request mine is still WAITING_FOR_RESOURCES after 0 minutes (--wait_minutes)" in line
    assert "scripts/launch_tpu.sh delete --name=mine --zone=us-central2-b --queued" in line


def test_a_request_that_fails_says_why(world):
    failed = {"queue_states": ["PROVISIONING", "FAILED"], "queue_error": "no capacity"}
    line = error_line(world.launch(*HOST, "--queued", "--", *TRAINING, **failed))
    assert "the queued request mine is FAILED: no capacity" in line


def test_a_vm_that_will_not_be_ready(world):
    line = error_line(world.launch(*HOST, "--", *TRAINING, vm_states=["CREATING", "STOPPED"]))
    assert "TPU VM mine is STOPPED and will not be ready" in line


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("step", "message", "deletes", "delete"),
    [
        ("create", "gcloud could not create mine: see above", False, True),
        ("scp", "the code could not be copied to mine: see above", True, True),
        ("install", "rank4class could not be installed on mine: see above", True, True),
        ("start", "the training could not be started on mine: see above", True, True),
        ("start", "the training could not be started on mine: see above", True, False),
    ],
)
def test_a_step_that_fails_is_named(world, step, message, deletes, delete):
    flags = (*HOST, *(["--delete"] if delete else []))
    finished = world.launch(*flags, "--", *TRAINING, fails={step: 4})
    assert error_line(finished) == f"error: {message}"
    assert f"no {step} today" in finished.stderr
    assert ("tpu-vm delete" in world.verbs()) == (delete and deletes)
    assert not (world.path / "trained.json").exists()
    assert not list((world.checkout / ".git").glob("launch-*"))


@pytest.mark.nightly
@pytest.mark.parametrize(("code", "delete"), [(0, True), (1, False), (7, True)])
def test_the_exit_code_is_the_trainings(world, code, delete):
    finished = world.launch(*HOST, *(["--delete"] if delete else []), "--", *TRAINING, training=code)
    assert finished.returncode == code
    assert finished.stdout == LOG
    assert ("error: the training ended with exit code" in finished.stderr) == (code != 0)
    assert world.verbs().count("tpu-vm delete") == delete


@pytest.mark.nightly
def test_a_queued_vm_is_deleted_with_its_request(world):
    finished = world.launch(*HOST, "--queued", "--delete", "--", *TRAINING)
    assert finished.returncode == 0, finished.stderr
    assert world.call("delete")[1:] == [
        *("compute", "tpus", "queued-resources", "delete", "mine"),
        *("--zone=us-central2-b", "--force", "--quiet"),
    ]


@pytest.mark.nightly
def test_a_config_may_be_named(world):
    finished = world.launch(*HOST, "--", "--config=digits_mlp", TRAINING[1])
    assert finished.returncode == 0, finished.stderr


@pytest.mark.nightly
@pytest.mark.parametrize(("code", "expected"), [(0, 1), (7, 7)])
def test_a_deletion_that_fails_is_told(world, code, expected):
    finished = world.launch(*HOST, "--delete", "--", *TRAINING, training=code, fails={"delete": 1})
    assert finished.returncode == expected
    assert "error: mine could not be deleted: see above" in finished.stderr
    assert "goes on costing: scripts/launch_tpu.sh delete --name=mine" in finished.stderr


def test_delete_deletes(world):
    world.exists()
    finished = world.launch("delete", "--name=mine", "--zone=z")
    assert finished.returncode == 0, finished.stderr
    assert world.calls() == [
        ["gcloud", "compute", "tpus", "tpu-vm", "delete", "mine", "--zone=z", "--quiet"],
    ]


@pytest.mark.nightly
def test_the_zone_may_come_from_gcloud(world):
    finished = world.launch("--name=mine", "--type=v3-8", "--", *TRAINING)
    assert finished.returncode == 0, finished.stderr
    assert world.calls()[0] == ["gcloud", "config", "get-value", "compute/zone"]
    assert not any("--zone" in word for call in world.calls() for word in call)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--zone=z", "--type=v3-8", "--", *TRAINING], "--name is missing: --name=NAME"),
        (["--name=Mine", "--type=v3-8", "--", *TRAINING], "--name=Mine: a name is of lower-case letters"),
        (["--name=mine", "--type=v3-8", "--", *TRAINING], "--zone is missing: --zone=ZONE, or gcloud config"),
        (["--name=mine", "--zone=z", "--", *TRAINING], "--type is missing: --type=v3-8"),
        (["--name=mine", "--type=gpu", "--", *TRAINING], "--type=gpu is not a type of TPU"),
        (["--name=mine", "--type=v6e-8", "--", *TRAINING], "--type=v6e-8 is newer than TensorFlow 2.15's"),
        ([*HOST], "the training's flags are missing: -- --config=FILE"),
        ([*HOST, "--"], "the training's flags are missing: -- --config=FILE"),
        ([*HOST, "--", f"--config={CONFIG}"], "--workdir is missing after --: --workdir=gs://"),
        ([*HOST, "--", TRAINING[0], "--workdir=runs/x"], "--workdir=runs/x would be lost with the VM"),
        ([*HOST, "--", *TRAINING, "--workdir", "/x"], "--workdir=/x would be lost with the VM"),
        ([*HOST, "--", TRAINING[1]], "--config is missing after --: --config=NAME"),
        (
            [*HOST, "--", TRAINING[1], "--config=mine.py"],
            "--config=mine.py is not in the last commit: commit it",
        ),
        ([*HOST, "--wrkers=2", "--", *TRAINING], "unknown flag --wrkers=2: see --help"),
        ([*HOST, "--workdir=gs://x", "--", *TRAINING], "the training's own flags come after --"),
        ([*HOST, "--version", "x", "--", *TRAINING], "--version lacks its value: --version=VALUE"),
        ([*HOST, "--wait_minutes=long", "--", *TRAINING], "--wait_minutes=long is not a number"),
        (["destroy", *HOST], "unknown action 'destroy': it is all, create, start, follow or delete"),
        (["delete", *HOST[:2], "--", *TRAINING], "delete takes no flags of the training: leave out --"),
    ],
)
def test_a_mistake_is_one_clear_line_and_nothing_runs(world, flags, message):
    assert message in only_line(world.launch(*flags, zone=""))
    assert world.verbs() == []


def test_a_missing_gcloud_is_one_clear_line(world):
    world.environment["PATH"] = path_without_gcloud(world)
    assert "there is no gcloud command: install the Google Cloud CLI" in only_line(
        world.launch(*HOST, "--", *TRAINING)
    )


def test_a_folder_without_git_is_one_clear_line(world):
    shutil.rmtree(world.checkout / ".git")
    assert "is not a git checkout: clone it with git" in only_line(world.launch(*HOST, "--", *TRAINING))


@pytest.mark.parametrize(
    ("there", "flags", "message"),
    [
        ({"kind": "v2-8"}, [], f"is a TPU VM of --type=v2-8 --version={IMAGE} already: choose another name"),
        ({"version": "tpu-vm-base"}, [], "is a TPU VM of --type=v3-8 --version=tpu-vm-base already"),
        ({"state": "PREEMPTED", "kind": "v2-8"}, [], "is a TPU VM of --type=v2-8"),
        ({}, ["--queued"], "is a TPU VM without a queued request already: leave --queued out"),
        ({"queue_state": "ACTIVE"}, [], "is the TPU VM of a queued request already: add --queued"),
        (
            {"state": None, "queue_state": "ACCEPTED", "kind": "v4-8"},
            ["--queued"],
            "is a queued request of --type=v4-8",
        ),
    ],
)
def test_a_name_that_is_something_else_is_left_alone(world, there, flags, message):
    world.exists(**there)
    assert message in only_line(world.launch(*HOST, "--delete", *flags, "--", *TRAINING))
    assert {verb.split()[1] for verb in world.verbs()} == {"describe"}


def test_what_cannot_be_described_is_not_taken_for_absent(world):
    line = error_line(world.launch(*HOST, "--", *TRAINING, fails={"describe": 1}))
    assert line == "error: gcloud could not describe mine: see above"
    assert world.verbs() == ["tpu-vm describe"]


@pytest.mark.nightly
def test_uncommitted_changes_are_told_and_not_copied(world):
    with open(world.checkout / CONFIG, "a") as config:
        config.write("raise SystemExit\n")
    (world.checkout / "notes").write_text("mine\n")
    finished = world.launch(*HOST, "--", *TRAINING)
    assert finished.returncode == 0, finished.stderr
    assert "warning: uncommitted changes are not copied, the VM gets the last commit" in finished.stderr
    assert (world.vm / "rank4class/code" / CONFIG).read_text() == (ROOT / CONFIG).read_text()
    assert not (world.vm / "rank4class/code/notes").exists()


@pytest.mark.nightly
def test_the_lock_is_installed_without_tensorflow(world):
    world.launch(*HOST, "--", *TRAINING)
    calls = world.calls("vm_calls")
    top = str(world.vm / "rank4class")
    assert calls[0] == ["-m", "venv", "--system-site-packages", f"{top}/venv"]
    assert calls[1][:3] == ["-m", "pip", "install"]
    assert "--no-deps" in calls[1]
    locked = (ROOT / "requirements.txt").read_text().splitlines()
    installed = (world.vm / "rank4class/lock").read_text().splitlines()
    left_out = {line.partition("==")[0] for line in locked} - {line.partition("==")[0] for line in installed}
    assert left_out == {"tensorflow", "tensorflow-macos", "tensorflow-io-gcs-filesystem"}
    assert set(installed) <= set(locked)


@pytest.mark.nightly
def test_an_image_without_ensurepip_lends_its_pip(world):
    world.launch(*HOST, "--", *TRAINING, ensurepip=False)
    assert "--without-pip" in world.calls("vm_calls")[0]


def test_an_image_of_another_tensorflow_is_refused(world):
    finished = world.launch(*HOST, "--", *TRAINING, python_flags=["-I", "-S"])
    assert "error: the image's TensorFlow is missing, rank4class needs 2.15: choose another --version" in (
        finished.stderr
    )
    assert finished.returncode == 1
    assert not (world.path / "vm_calls").exists()


def test_help_says_all_flags(world):
    finished = world.launch("--help")
    assert finished.returncode == 0
    for flag in ("--name", "--zone", "--project", "--type", "--version", "--queued", "--spot", "--delete"):
        assert flag in finished.stdout


@pytest.mark.parametrize("name", SCRIPTS)
def test_shellcheck_finds_nothing(name):
    if not shutil.which("shellcheck"):
        pytest.skip("shellcheck is not installed: apt-get install shellcheck")
    finished = subprocess.run(["shellcheck", ROOT / name], capture_output=True, text=True)
    assert finished.returncode == 0, finished.stdout


def test_the_scripts_can_be_executed():
    assert all(os.access(ROOT / name, os.X_OK) for name in SCRIPTS)
