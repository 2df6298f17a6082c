"""The TPU launcher with a fake gcloud, which runs the commands of the VM with bash on this machine."""

import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
from importlib import metadata

import pytest

ROOT = pathlib.Path(__file__).parent.parent
SCRIPTS = ("scripts/launch_tpu.sh", "scripts/tpu_vm.sh")
CONFIG = "pipelines/configs/digits_mlp.py"
README_CONFIG = "pipelines/configs/imagenet_resnet50.py"
WORKDIR = "gs://bucket/runs/digits"
TRAINING = (f"--config={CONFIG}", f"--workdir={WORKDIR}")
HOST = ("--name=mine", "--zone=us-central2-b", "--type=v3-8")
POD = ("--name=mine", "--zone=us-central2-b", "--type=v3-32")
LOCKS = {"2.15.": "requirements-tf2.15.txt", "2.20.": "requirements.txt"}
OF_THE_IMAGE = {"tensorflow", "tensorflow-macos", "tensorflow-io-gcs-filesystem"}
IMAGE = "tpu-vm-tf-2.15.1-pjrt"
POD_IMAGE = "tpu-vm-tf-2.15.1-pod-pjrt"
STEPS = ("ssh status", "scp", "ssh install", "ssh start", "ssh follow", "ssh status")
ON_VM = [f"tpu-vm {step}" for step in STEPS]
LOG = "step 0\nstep 1\nstep 2\nend\n"

# cloud.json is the state of the cloud: its VMs, their successive states, and the steps that fail.
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
    partial.replace(here / "cloud.json")  # atomic: the training may be reading it
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
    print(state, thing["type"], thing["version"], thing["queue"], thing["error"], sep="\\t")
    end()
if verb == "create":
    fails("create")
    queue = kind == "queued-resources"
    image = flags["--runtime-version" if queue else "--version"]
    thing = {"type": flags["--accelerator-type"], "version": image, "queue": name if queue else ""}
    cloud["tpu-vm"] = {**thing, "states": cloud["vm_states"], "error": ""}
    if queue:
        cloud[kind] = {**thing, "states": cloud["queue_states"], "error": cloud["queue_error"]}
    shutil.rmtree(here / "vm", ignore_errors=True)
    (here / "vm").mkdir()
    end()
if verb == "delete":
    fails("delete")
    cloud["tpu-vm"] = cloud[kind] = None
    end()
if verb == "scp":
    fails("scp")
    shutil.copy(name, here / "vm")
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

# The Python of the VM: it runs the checks of the image, and records all other calls.
PYTHON = """
import json, os, pathlib, shutil, sys, time
here = pathlib.Path(os.environ["STAND_IN"])
cloud = json.loads((here / "cloud.json").read_text())
words = sys.argv[2:]
if words[0] == "-":
    os.execv(sys.executable, [sys.executable, *cloud["python_flags"], "-"])
with open(here / "vm_calls", "a") as calls:
    calls.write(json.dumps(words) + "\\n")
if words[1] == "venv":
    target = pathlib.Path(words[-1], "bin")
    target.mkdir(parents=True)
    shutil.copy(sys.argv[1], target / "python")
elif words[1] == "rank4class.scripts.train":
    names = ("TPU_", "TF_", "NEXT_")
    environment = {name: value for name, value in os.environ.items() if name.startswith(names)}
    started = {"flags": words[2:], "environment": environment, "folder": os.getcwd()}
    (here / "trained.json").write_text(json.dumps(started))
    for step in range(3):
        print("step", step, flush=True)
    while (here / "hold").exists():
        time.sleep(0.02)
    print("end", flush=True)
    sys.exit(cloud["training"])
"""

# Waits for orphans, as the first process of a machine does: in a container, that process may leave an ended
# training as a zombie, which looks alive to the launcher.
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
    """A checkout, a machine with the fake gcloud, and a cloud."""

    def __init__(self, path, checkout=None):
        self.path, self.checkout, self.vm = path, path / "checkout", path / "vm"
        self.cloud = {
            **{"tpu-vm": None, "queued-resources": None, "zone": "us-central1-a", "fails": {}},
            **{"vm_states": ["READY"], "queue_states": ["ACTIVE"], "queue_error": ""},
            **{"breaks": 0, "break_after": 0, "after_break": {}, "python_flags": [], "training": 0},
        }
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
            **{"PATH": f"{path}/bin:{os.environ['PATH']}", "OUTER_PATH": os.environ["PATH"]},
            **{"STAND_IN": str(path), "LAUNCH_POLL_SECONDS": "0.05", "HOME": str(path), "TMPDIR": str(path)},
            **{"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"},
            **dict.fromkeys((f"GIT_{role}_NAME" for role in ("AUTHOR", "COMMITTER")), "me"),
            **dict.fromkeys((f"GIT_{role}_EMAIL" for role in ("AUTHOR", "COMMITTER")), "me@here"),
        }
        if checkout:
            shutil.copytree(checkout, self.checkout)
        else:
            for name in (*SCRIPTS, CONFIG, README_CONFIG, *LOCKS.values()):
                (self.checkout / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, self.checkout / name)
            for words in ("init --quiet", "add --all", "commit --quiet --message=all"):
                self.git(*words.split())
        for folder in ("bin", "vm_bin", "vm"):
            (self.path / folder).mkdir()
        for name in ("git", "tar"):
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
        options = {"check": True, "capture_output": True, "text": True}
        return subprocess.run(command, env=self.environment, **options).stdout.strip()

    def exists(self, *states, queue=(), kind="v3-8", version=IMAGE):
        """Adds a VM and a queued request with their successive states."""
        thing = {"type": kind, "version": version, "queue": "mine" if queue else "", "error": ""}
        self.cloud["tpu-vm"] = {**thing, "states": states} if states else None
        self.cloud["queued-resources"] = {**thing, "states": queue} if queue else None

    def set_up(self, **cloud):
        (self.path / "cloud.json").write_text(json.dumps({**self.cloud, **cloud}))

    def command(self, *words):
        return [str(self.checkout / SCRIPTS[0]), *words]

    def launch(self, *words, again=False, **cloud):
        if not again:
            self.set_up(**cloud)
        return subprocess.run(
            [sys.executable, "-E", "-S", "-c", REAPER, *self.command(*words)],
            **{"capture_output": True, "text": True, "timeout": 60, "check": False},
            **{"env": self.environment, "cwd": self.path},
        )

    def train(self, *flags, **cloud):
        """Runs a launch from creation to the end; asserts that it succeeded."""
        finished = self.launch(*flags, "--", *TRAINING, **cloud)
        assert finished.returncode == 0, finished.stderr
        assert finished.stdout == LOG
        return finished

    def calls(self, path="calls"):
        """Returns the calls of gcloud and tar, and git's clone."""
        if not (self.path / path).exists():
            return []
        calls = [json.loads(line) for line in (self.path / path).read_text().splitlines()]
        return [call for call in calls if call[0] != "git" or call[1] == "clone"]

    def verbs(self):
        """Returns the calls of gcloud in short form: `tpu-vm create`, or `tpu-vm ssh STEP`."""
        verbs = []
        for call in self.calls():
            if call[:2] == ["gcloud", "compute"]:
                step = re.search(r"tpu_vm.sh (\w+)", " ".join(call))
                verbs.append(" ".join([*call[3:5], *(step.groups() if step else [])]))
        return verbs

    def call(self, verb):
        (call,) = (call for call in self.calls() if call[0] == "gcloud" and verb in call)
        return call

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
    assert not list(tmp_path.glob("tmp.*"))  # the launcher's temporary folder


def error_line(finished):
    """Returns the error line of a failed command."""
    assert finished.returncode == 1
    (line,) = (line for line in finished.stderr.splitlines() if line.startswith("error: "))
    return line


@pytest.mark.nightly
def test_one_command_creates_installs_trains_and_follows(world):
    world.train(*HOST, "--spot", vm_states=["CREATING", "READY"])
    assert world.verbs() == ["tpu-vm describe", "tpu-vm create", *["tpu-vm describe"] * 2, *ON_VM]
    assert world.trained() == {
        "flags": ["--strategy=tpu", "--tpu=local", *TRAINING],
        "folder": str(world.vm / "rank4class/code"),
        "environment": {
            "NEXT_PLUGGABLE_DEVICE_USE_C_API": "true",
            "TF_PLUGGABLE_DEVICE_LIBRARY_PATH": "/lib/libtpu.so",
            "TPU_NAME": "local",
        },
    }
    # The training can read its commit.
    command = ["git", "-C", world.vm / "rank4class/code", "rev-parse", "HEAD"]
    assert subprocess.check_output(command, text=True).strip() == world.git("rev-parse", "HEAD")
    # The lock is installed without TensorFlow.
    venv, pip, _ = [call for call in world.calls("vm_calls") if call[1] in ("venv", "pip")]
    assert venv == ["-m", "venv", "--system-site-packages", "--without-pip", "../venv"]
    assert "--no-deps" in pip
    [lock] = [name for version, name in LOCKS.items() if metadata.version("tensorflow").startswith(version)]
    locked = (ROOT / lock).read_text().splitlines()
    installed = (world.vm / "rank4class/lock").read_text().splitlines()
    excluded = {line.partition("==")[0] for line in locked} - {line.partition("==")[0] for line in installed}
    assert excluded == {line.partition("==")[0] for line in locked} & OF_THE_IMAGE
    assert "tensorflow" in excluded
    assert set(installed) <= set(locked)


@pytest.mark.nightly
def test_pods_are_followed_on_worker_0(world):
    world.train(*POD)
    on_vm = [call for call in world.calls() if "ssh" in call or "scp" in call]
    assert len(on_vm) == len(ON_VM)
    assert all("--worker=0" in call for call in on_vm)
    assert world.trained()["flags"][:2] == ["--strategy=tpu", "--tpu=mine"]
    assert world.trained()["environment"] == {"TPU_LOAD_LIBRARY": "0", "TPU_NAME": "mine"}


@pytest.mark.parametrize(
    ("kind", "image"),
    [("v2-8", IMAGE), ("v5litepod-4", IMAGE), ("v4-16", POD_IMAGE), ("v5litepod-16", POD_IMAGE)],
)
def test_the_image_depends_on_the_number_of_hosts(world, kind, image):
    world.launch("create", "--name=mine", "--zone=z", f"--type={kind}")
    assert world.call("create")[4:] == [
        *("create", "mine", f"--accelerator-type={kind}", f"--version={image}", "--zone=z")
    ]


SEE_VM, SEE_QUEUE = "tpu-vm describe", "queued-resources describe"
REQUEST = ["queued-resources delete", "queued-resources create"]
REPEATED = [SEE_VM, SEE_QUEUE, *REQUEST, SEE_QUEUE, SEE_VM]
CREATED = [  # states of the VM, states of its request, calls of gcloud
    (["READY"], [], [SEE_VM] * 2),
    (["PREEMPTED"], [], [SEE_VM, "tpu-vm delete", "tpu-vm create", SEE_VM]),
    (["TERMINATED"], [], [SEE_VM, "tpu-vm delete", "tpu-vm create", SEE_VM]),
    (["DELETING", "DELETING", None], [], [*[SEE_VM] * 3, "tpu-vm create", SEE_VM]),
    (["READY"], ["PROVISIONING", "PROVISIONING", "ACTIVE"], [SEE_VM, *[SEE_QUEUE] * 3, SEE_VM]),
    ([], ["SUSPENDING", "SUSPENDED"], [SEE_VM, SEE_QUEUE, *REPEATED[1:]]),
    (["PREEMPTED"], ["SUSPENDED"], REPEATED),
    (["PREEMPTED"], ["ACTIVE"], REPEATED),
    ([], ["FAILED"], REPEATED),
]


@pytest.mark.parametrize(("states", "queue", "verbs"), CREATED)
def test_create_continues_from_the_present_state(world, states, queue, verbs):
    world.exists(*states, queue=queue)
    finished = world.launch("create", *HOST, "--spot", *(["--queued"] if queue else []))
    assert finished.returncode == 0, finished.stderr
    assert world.verbs() == verbs
    if "tpu-vm create" in verbs:
        assert "--spot" in world.call("create")
    if REQUEST[0] in verbs:
        assert "--force" in world.call("delete")


def test_a_queued_request_is_awaited(world):
    states = ["ACCEPTED", "WAITING_FOR_RESOURCES", "WAITING_FOR_RESOURCES", "PROVISIONING", "ACTIVE"]
    finished = world.launch("create", *HOST, "--queued", "--spot", queue_states=states)
    assert finished.returncode == 0, finished.stderr
    assert world.verbs() == [SEE_VM, SEE_QUEUE, REQUEST[1], *[SEE_QUEUE] * 5, SEE_VM]
    assert world.call("create")[4:] == [
        *("create", "mine", "--node-id=mine", "--accelerator-type=v3-8", f"--runtime-version={IMAGE}"),
        *("--spot", "--zone=us-central2-b"),
    ]
    assert finished.stderr.count("WAITING_FOR_RESOURCES") == 1


@pytest.mark.nightly
def test_flags_are_passed_to_gcloud(world):
    world.train(
        *(
            "--name=mine",
            "--type=v3-8",
            "--project=ours",
            "--version=other-image",
        ),  # the zone is the default of gcloud
        *("--create_flag=--network=a b", "--ssh_flag=--internal-ip"),
    )
    assert {"--version=other-image", "--network=a b"} <= set(world.call("create"))
    assert ["gcloud", "config", "get-value", "compute/zone"] in world.calls()
    for call in world.calls():
        assert not any("--zone" in word for word in call)
        if call[:2] == ["gcloud", "compute"]:
            assert "--project=ours" in call
            assert ("--internal-ip" in call) == (call[4] in ("ssh", "scp"))


@pytest.mark.nightly
def test_the_guide_lists_the_commands_that_run(world):
    section = (ROOT / "docs/guides/distributed.md").read_text().partition("## TPUs")[2]
    block = re.search(r"```bash\n(scripts/launch_tpu.sh .*?)```", section, re.S)[1]
    listed = re.search(r"```text\n(gcloud compute tpus tpu-vm describe .*?)```", section, re.S)[1]
    finished = world.launch(*shlex.split(block.replace("\\\n", ""))[1:])
    assert finished.returncode == 0, finished.stderr
    temporary = os.path.dirname(next(call[-1] for call in world.calls() if call[0] == "git"))
    ran = [[word.replace(temporary, "/tmp/launch") for word in call] for call in world.calls()]
    assert [shlex.split(line) for line in listed.splitlines()] == ran


@pytest.mark.nightly
@pytest.mark.parametrize("flags", [HOST, POD], ids=["host", "pod"])
def test_arguments_are_not_changed(world, flags):
    odd = ["--config.a=two  words", "--b=it's", '--c="$HOME"', "--d=`date`;*\\", "", "--e=a\nb", "--f=é"]
    finished = world.launch(*flags, "--", *TRAINING, *odd)
    assert finished.returncode == 0, finished.stderr
    assert world.trained()["flags"][2:] == [*TRAINING, *odd]


@pytest.mark.nightly
def test_the_same_command_restarts_on_the_same_vm(world):
    world.launch(*HOST, "--", *TRAINING, training=3)
    world.forget()
    (world.path / "vm_calls").unlink()
    finished = world.launch(*HOST, "--", *TRAINING, again=True)
    assert finished.returncode == 3
    assert finished.stdout == LOG
    assert "tpu-vm create" not in world.verbs()
    (installed,) = (call for call in world.calls("vm_calls") if call[1] == "pip")  # the lock is the same
    assert installed[-2:] == ["-e", "."]


def started(world, *flags, again=False):
    """Starts a training that runs until the file `hold` is removed; returns the launcher's process."""
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
def test_interrupted_launches_print_how_to_resume(world):
    process = started(world, "--delete")
    errors = interrupted(process)
    assert process.returncode == 130
    assert "scripts/launch_tpu.sh follow --name=mine --zone=us-central2-b" in errors
    assert "scripts/launch_tpu.sh delete --name=mine --zone=us-central2-b" in errors
    assert "tpu-vm delete" not in world.verbs()
    pid = int((world.vm / "rank4class/pid").read_text())
    assert os.getsid(pid) == pid  # the training has its own session, which outlives the connection
    # Another training is refused.
    finished = world.launch(*HOST, "--delete", "--", *TRAINING, "--config.seed=2", again=True)
    assert error_line(finished).startswith("error: --name=mine: the training could not be started. See")
    assert f"Another training runs here: local --config={CONFIG}" in finished.stderr
    assert "tpu-vm delete" not in world.verbs()
    # The same command follows its log from the beginning, and copies no files.
    world.forget()
    process = started(world, "--delete", again=True)
    (world.path / "hold").unlink()
    assert process.communicate(timeout=30)[0] == "end\n"
    assert process.returncode == 0
    assert world.verbs() == [*[SEE_VM] * 2, ON_VM[0], *ON_VM[3:], "tpu-vm delete"]
    assert len([call for call in world.calls("vm_calls") if call[1] == "rank4class.scripts.train"]) == 1
    # The log can be followed after its end.
    finished = world.launch("follow", "--name=mine", "--zone=z", again=True)
    assert (finished.returncode, finished.stdout) == (0, LOG)


@pytest.mark.nightly
def test_killed_trainings_are_errors(world):
    process = started(world)
    os.killpg(int((world.vm / "rank4class/pid").read_text()), signal.SIGKILL)
    output, errors = process.communicate(timeout=30)
    assert (output, process.returncode) == ("", 137)
    assert "error: the training ended 137" in errors


@pytest.mark.nightly
def test_exit_code_of_a_preemption(world):
    world.exists("PREEMPTED")
    preempted = {"fails": {"status": 255, "follow": 255}, "tpu-vm": world.cloud["tpu-vm"]}
    world.exists()
    finished = world.launch(
        *(*HOST, "--delete", "--", *TRAINING), **{"breaks": 1, "break_after": 8, "after_break": preempted}
    )
    assert finished.returncode == 75
    assert "error: --name=mine: the TPU VM is PREEMPTED. Run the same command to resume" in finished.stderr
    assert "tpu-vm delete" not in world.verbs()


@pytest.mark.nightly
def test_broken_connections_resume_at_the_same_byte_of_the_log(world):
    world.train(*HOST, breaks=2, break_after=9)
    assert world.verbs()[-6:] == ON_VM[-2:] * 3
    commands = [re.search(r"follow (\d+)", " ".join(call)) for call in world.calls() if call[0] == "gcloud"]
    assert [int(command[1]) for command in commands if command] == [0, 9, 18]


NEVER_READY = {
    "a failed request": (
        ["--queued"],
        {"queue_states": ["PROVISIONING", "FAILED"], "queue_error": "no capacity"},
        "queued-resources is FAILED, no capacity. Delete it: "
        "scripts/launch_tpu.sh delete --name=mine --zone=us-central2-b --queued; then",
    ),
    "a stopped VM": ([], {"vm_states": ["CREATING", "STOPPED"]}, "tpu-vm is STOPPED. Delete it: "),
    # A VM that cannot be described may exist.
    "an unknown state": ([], {"fails": {"describe": 1}}, "could not be described. ERROR: (gcloud) no"),
}


@pytest.mark.parametrize("case", NEVER_READY)
def test_vms_that_do_not_become_ready(world, case):
    flags, cloud, message = NEVER_READY[case]
    line = error_line(world.launch(*HOST, *flags, "--", *TRAINING, **cloud))
    assert line.startswith(f"error: --name=mine: {message}")
    assert not {"tpu-vm scp", "tpu-vm delete"} & set(world.verbs())


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("step", "message", "deletes", "delete"),
    [
        ("create", "could not be created", False, True),
        ("status", "out of reach by ssh", False, True),
        ("scp", "the code could not be copied", True, True),
        ("install", "rank4class could not be installed", True, True),
        ("start", "the training could not be started", True, True),
        ("start", "the training could not be started", True, False),
    ],
)
def test_errors_of_failed_steps(world, step, message, deletes, delete):
    flags = (*HOST, *(["--delete"] if delete else []))
    finished = world.launch(*flags, "--", *TRAINING, fails={step: 4})
    assert error_line(finished) == f"error: --name=mine: {message}. See the message above."
    assert f"no {step} today" in finished.stderr
    assert ("tpu-vm delete" in world.verbs()) == (delete and deletes)
    assert not (world.path / "trained.json").exists()


@pytest.mark.nightly
@pytest.mark.parametrize(("code", "flags"), [(0, ["--delete", "--queued"]), (1, []), (7, ["--delete"])])
def test_exit_code_of_the_training(world, code, flags):
    finished = world.launch(*HOST, *flags, "--", "--config=digits_mlp", TRAINING[1], training=code)
    assert finished.returncode == code
    assert finished.stdout == LOG
    assert (f"error: the training ended {code}" in finished.stderr) == (code != 0)
    deletions = [call[3:] for call in world.calls() if "delete" in call]
    assert len(deletions) == ("--delete" in flags)
    if "--queued" in flags:  # the VM is deleted with its request
        expected = "queued-resources delete mine --force --quiet --zone=us-central2-b"
        assert deletions == [expected.split()]


@pytest.mark.nightly
@pytest.mark.parametrize(("code", "expected"), [(0, 1), (7, 7)])
def test_failed_deletions_are_errors(world, code, expected):
    finished = world.launch(*HOST, "--delete", "--", *TRAINING, training=code, fails={"delete": 1})
    assert finished.returncode == expected
    assert (
        "error: --name=mine: could not be deleted and costs. "
        "Run scripts/launch_tpu.sh delete --name=mine --zone=us-central2-b.\n"
    ) in finished.stderr


def test_delete(world):
    world.exists("READY")
    finished = world.launch("delete", "--name=mine", "--zone=z")
    assert finished.returncode == 0, finished.stderr
    assert world.calls() == [shlex.split("gcloud compute tpus tpu-vm delete mine --quiet --zone=z")]


INVALID_FLAGS = [
    (["--zone=z", "--type=v3-8", "--", *TRAINING], "--name=: not a name of a VM. Use lower-case letters"),
    (["--name=Mine", "--type=v3-8", "--", *TRAINING], "--name=Mine: not a name of a VM. Use lower-case"),
    (["--name=mine", "--type=v3-8", "--", *TRAINING], "--zone: missing. Set --zone=ZONE, or run gcloud"),
    (["--name=mine", "--zone=z", "--", *TRAINING], "--type=: no TPU of TensorFlow 2.15. Use v2-8, v3-8"),
    (["--name=mine", "--type=gpu", "--", *TRAINING], "--type=gpu: no TPU of TensorFlow 2.15. Use v2-8"),
    (["--name=mine", "--type=v6e-8", "--", *TRAINING], "--type=v6e-8: no TPU of TensorFlow 2.15. Use v2-8"),
    ([*HOST], "--workdir=: would be lost with the VM. Use -- --config=NAME --workdir=gs://BUCKET/FOLDER."),
    ([*HOST, "--"], "--workdir=: would be lost with the VM. Use -- --config=NAME --workdir=gs://"),
    ([*HOST, "--", f"--config={CONFIG}"], "--workdir=: would be lost with the VM. Use -- --config=NAME"),
    ([*HOST, "--", TRAINING[0], "--workdir=runs/x"], "--workdir=runs/x: would be lost with the VM. Use"),
    ([*HOST, "--", *TRAINING, "--workdir", "/x"], "--workdir=/x: would be lost with the VM. Use"),
    ([*HOST, "--", TRAINING[1]], "--config=: not in the last commit. Commit it; give its name"),
    ([*HOST, "--", TRAINING[1], "--config=mine.py"], "--config=mine.py: not in the last commit. Commit it"),
    ([*HOST, "--wrkers=2", "--", *TRAINING], "--wrkers=2: not a --FLAG=VALUE of this command. See --help"),
    ([*HOST, "--workdir=gs://x", "--", *TRAINING], "See --help; flags of the training follow --."),
    ([*HOST, "--version", "x", "--", *TRAINING], "--version: not a --FLAG=VALUE of this command."),
    (["destroy", *HOST], "destroy: unknown action. Use create, start, follow or delete."),
    (["delete", *HOST[:2], "--", *TRAINING], "delete: takes no flags of the training. Remove --"),
]


@pytest.mark.parametrize(("flags", "message"), INVALID_FLAGS)
def test_invalid_flags_are_one_line_errors_before_any_call(world, flags, message):
    finished = world.launch(*flags, zone="")
    assert message in error_line(finished)
    assert (finished.stdout, finished.stderr.count("\n")) == ("", 1)
    assert world.verbs() == []


def test_missing_gcloud(world):
    tools = world.path / "tools"
    tools.mkdir()
    for tool in ("bash", "env", "git", "dirname"):
        (tools / tool).symlink_to(shutil.which(tool))
    world.environment["PATH"] = str(tools)
    line = error_line(world.launch(*HOST, "--", *TRAINING))
    assert line == "error: gcloud: not found. Install the Google Cloud CLI and run gcloud init."


def test_folder_without_git(world):
    shutil.rmtree(world.checkout / ".git")
    assert "checkout: not a git checkout. Clone it" in error_line(world.launch(*HOST, "--", *TRAINING))


@pytest.mark.parametrize(
    ("existing", "flags", "message"),
    [
        ({"kind": "v2-8"}, [], f"--type=v2-8 --version={IMAGE}. Use these flags, choose another name"),
        ({"version": "tpu-vm-base"}, [], "--type=v3-8 --version=tpu-vm-base. Use these flags"),
        ({"states": ["PREEMPTED"], "kind": "v2-8"}, [], "--type=v2-8 --version="),
        ({}, ["--queued"], f"--type=v3-8 --version={IMAGE}. Use these flags"),
        ({"queue": ["ACTIVE"]}, [], f"--type=v3-8 --version={IMAGE} --queued. Use these flags"),
        ({"states": [], "queue": ["ACCEPTED"], "kind": "v4-8"}, ["--queued"], "--type=v4-8 --version="),
    ],
)
def test_vms_of_other_types_are_not_changed(world, existing, flags, message):
    world.exists(*existing.pop("states", ["READY"]), **existing)
    finished = world.launch(*HOST, "--delete", *flags, "--", *TRAINING)
    assert error_line(finished).startswith(f"error: --name=mine: exists with {message}")
    assert {verb.split()[1] for verb in world.verbs()} == {"describe"}


def test_follow_without_a_training(world):
    world.exists("READY")
    finished = world.launch("follow", "--name=mine", "--zone=z", "--delete")
    assert error_line(finished) == "error: --name=mine: no training was started. Use the action start."
    assert "tpu-vm delete" not in world.verbs()


@pytest.mark.nightly
def test_uncommitted_changes_are_reported_and_not_copied(world):
    with open(world.checkout / CONFIG, "a") as config:
        config.write("raise SystemExit\n")
    (world.checkout / "notes").write_text("mine\n")
    assert "warning: uncommitted changes are not copied to the VM" in world.train(*HOST).stderr
    assert (world.vm / "rank4class/code" / CONFIG).read_text() == (ROOT / CONFIG).read_text()
    assert not (world.vm / "rank4class/code/notes").exists()


def test_images_without_tensorflow_are_refused(world):
    finished = world.launch(*HOST, "--", *TRAINING, python_flags=["-I", "-S"])
    assert (
        "TensorFlow missing. Choose one with TensorFlow 2.15 and Python 3.10 or 3.11, or with 2.20."
        in finished.stderr
    )
    assert error_line(finished).endswith("rank4class could not be installed. See the message above.")
    assert not (world.path / "vm_calls").exists()


def test_help_lists_all_flags(world):
    finished = world.launch("--help")
    assert finished.returncode == 0
    flags = re.findall(r"--(\w+)=\*", (ROOT / SCRIPTS[0]).read_text())
    assert len(flags) == 7
    assert all(f"--{flag}" in finished.stdout for flag in (*flags, "queued", "spot", "delete"))


@pytest.mark.parametrize("name", SCRIPTS)
def test_shellcheck_finds_nothing(name):
    assert os.access(ROOT / name, os.X_OK)
    if not shutil.which("shellcheck"):
        pytest.skip("shellcheck is not installed: apt-get install shellcheck")
    finished = subprocess.run(["shellcheck", ROOT / name], capture_output=True, text=True)
    assert finished.returncode == 0, finished.stdout
