"""The TPU launcher with a substitute for gcloud, which runs the VM's commands on this machine."""

import os
import pathlib
import shutil
import signal
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).parent.parent
SCRIPT = ROOT / "scripts" / "launch_tpu.sh"
TRAINING = ("--", "--config=digits_mlp", "--workdir=gs://bucket/runs/digits")
HOST = ("--name=mine", "--zone=z", "--type=v3-8")
LOG = "step 0\nstep 1\nstep 2\nend\n"
CREATE = "tpu-vm create"
READ = "tpu-vm describe"
ON_VM = ["tpu-vm ssh", "tpu-vm scp", "tpu-vm ssh"]

# The files `tpu-vm` and `queued-resources` hold the successive states of the VM and of its request.
GCLOUD = r"""#!/bin/bash
cd "$WORLD" && kind=$3 verb=$4 command=${6#--command=}
if [ "$verb" = ssh ]; then echo "$3 $4" >>calls; else echo "${*:3}" >>calls; fi
case $verb in
  describe)
    [ -s "$kind" ] || { echo "ERROR: NOT_FOUND" >&2 && exit 1; }
    head -n 1 "$kind" && { [ "$(wc -l <"$kind")" = 1 ] || sed -i 1d "$kind"; } ;;
  create) rm -rf vm && mkdir vm && cp created/* . ;;
  delete) rm -f tpu-vm queued-resources ;;
  scp) cp "$5" vm ;;
  ssh)
    [ "$(head -n 1 tpu-vm)" = READY ] && cd vm || exit 255
    if [[ $command == *"tail -c"* && -e ../breaks ]]; then # the connection breaks after nine bytes
      HOME=$PWD bash -c "$command" | head -c 9
      bash ../breaks; rm ../breaks; exit 255
    fi
    HOME=$PWD PATH=$PWD/../vm_bin:$PATH bash -c "$command" ;;
esac
"""
# The VM's Python. The training waits while the file `hold` exists.
PYTHON = r"""#!/bin/bash
world=$WORLD
echo "$*" >>"$world/python_calls"
case $* in
  *"-m venv"*) mkdir -p venv/bin && cp "$0" venv/bin/python ;;
  "-c "*) echo /lib/libtpu.so ;;
  *train*)
    (env | grep -E '^(TF_PLUGGABLE|NEXT_)' | sort && pwd) >"$world/environment"
    for step in 0 1 2; do echo "step $step"; done
    while [ -e "$world/hold" ]; do sleep 0.02; done
    echo end && exit "$(cat "$world/code")" ;;
esac
"""


class World:
    """A cloud without a VM, and a user's machine with the substitute for gcloud and a small checkout."""

    def __init__(self, path):
        self.path = path
        for folder in ("bin", "vm_bin", "created", "vm"):
            (path / folder).mkdir()
        files = {"bin/gcloud": GCLOUD, "vm_bin/python3": PYTHON, "created/tpu-vm": "READY\n", "code": "0"}
        for name, text in {**files, "calls": ""}.items():
            (path / name).write_text(text)
            (path / name).chmod(0o755)
        self.environment = {n: value for n, value in os.environ.items() if not n.startswith("GIT_")}
        self.environment |= {"PATH": f"{path}/bin:{os.environ['PATH']}", "LAUNCH_POLL_SECONDS": "0.02"}
        self.environment |= {"WORLD": str(path), "TMPDIR": str(path)}
        checkout = path / "checkout"
        self.script = path / "checkout" / "scripts" / SCRIPT.name
        self.script.parent.mkdir(parents=True)
        for file in (SCRIPT, ROOT / "requirements.txt"):
            shutil.copy(file, checkout / file.relative_to(ROOT))
        for words in ("init -q", "add .", "-c user.name=me -c user.email=me@here commit -q -m first"):
            subprocess.run(["git", *words.split()], cwd=checkout, env=self.environment, check=True)

    def write(self, name, *lines):
        (self.path / name).write_text("".join(f"{line}\n" for line in lines))

    def launch(self, *words):
        options = {"capture_output": True, "text": True, "timeout": 60, "env": self.environment}
        return subprocess.run([self.script, *words], **options)

    def calls(self):
        return (self.path / "calls").read_text().splitlines()

    def verbs(self):
        return [" ".join(call.split()[:2]) for call in self.calls()]


@pytest.fixture
def world(tmp_path):
    yield World(tmp_path)
    (tmp_path / "hold").unlink(missing_ok=True)
    assert not list(tmp_path.glob("tmp.*"))  # the launcher's temporary folder


def test_one_command_creates_installs_trains_and_follows(world):
    world.write("created/tpu-vm", "CREATING", "READY")
    finished = world.launch(*HOST, "--spot", "--delete", *TRAINING)
    assert (finished.returncode, finished.stdout) == (0, LOG), finished.stderr
    assert world.verbs() == [READ, CREATE, READ, READ, *ON_VM, "tpu-vm ssh", "tpu-vm ssh", "tpu-vm delete"]
    create = "tpu-vm create mine --spot --accelerator-type=v3-8 --version=tpu-ubuntu2204-base --zone=z"
    assert world.calls()[1] == create
    calls = (world.path / "python_calls").read_text().splitlines()
    assert "-m rank4class train --strategy=tpu --config=digits_mlp --workdir=gs://bucket/runs/digits" in calls
    assert any("tensorflow-tpu==2.20.0 libtpu==" in call for call in calls)
    home = world.path / "vm/rank4class"
    plugin = "NEXT_PLUGGABLE_DEVICE_USE_C_API=true\nTF_PLUGGABLE_DEVICE_LIBRARY_PATH=/lib/libtpu.so\n"
    assert (world.path / "environment").read_text() == f"{plugin}{home}/code\n"
    locked = (ROOT / "requirements.txt").read_text()
    installed = (home / "lock").read_text()
    [left_out] = set(locked.splitlines()) - set(installed.splitlines())
    assert left_out.startswith("tensorflow==")
    assert (home / "code" / ".git").exists()  # a run records its commit


def test_the_image_is_the_base_image_of_the_type(world):
    images = {"v2-8": "tpu-ubuntu2204-base", "v5litepod-4": "v2-alpha-tpuv5-lite", "v6e-1": "v2-alpha-tpuv6e"}
    for kind, image in images.items():
        assert world.launch("create", f"--name={kind}", f"--type={kind}").returncode == 0
        (world.path / "tpu-vm").unlink()
        assert f"tpu-vm create {kind} --accelerator-type={kind} --version={image}" in world.calls()


def test_a_queued_request(world):
    world.write("created/queued-resources", "ACCEPTED", "PROVISIONING", "ACTIVE")
    world.write("created/tpu-vm", "CREATING", "READY")
    assert world.launch("create", *HOST, "--queued").returncode == 0
    [create] = (call for call in world.calls() if " create " in call)
    expected = "queued-resources create mine --node-id=mine --accelerator-type=v3-8"
    assert create == f"{expected} --runtime-version=tpu-ubuntu2204-base --zone=z"
    assert world.launch("delete", *HOST, "--queued").returncode == 0
    assert world.calls()[-1] == "queued-resources delete mine --force --quiet --zone=z"
    world.write("created/queued-resources", "FAILED")
    world.write("created/tpu-vm")
    finished = world.launch("create", *HOST, "--queued")
    message = "error: --name=mine: the VM is absent, its request FAILED. Run the command again.\n"
    assert (finished.returncode, finished.stderr.endswith(message)) == (1, True)


def test_a_preempted_vm_is_replaced_and_has_no_training(world):
    world.write("tpu-vm", "PREEMPTED")
    assert world.launch("create", *HOST).returncode == 0
    assert world.verbs() == [READ, "tpu-vm delete", CREATE, READ]
    finished = world.launch("follow", "--name=mine", "--delete")
    assert finished.stderr == "error: --name=mine: no training was started. Use the action start.\n"


def test_a_broken_connection_repeats_and_loses_no_line(world):
    world.write("breaks", "rm -f ../hold")
    world.write("hold")
    finished = world.launch(*HOST, *TRAINING)
    assert (finished.returncode, finished.stdout) == (0, LOG), finished.stderr


def test_a_preemption_ends_with_75(world):
    world.write("breaks", "kill $(cat rank4class/pid)", "echo PREEMPTED >../tpu-vm")
    world.write("hold")
    finished = world.launch(*HOST, "--delete", *TRAINING)
    assert finished.returncode == 75
    assert finished.stderr.endswith("error: mine: VM PREEMPTED. Run it again.\n")
    assert "tpu-vm delete" not in world.verbs()


def test_the_exit_code_of_the_training(world):
    world.write("code", "3")
    finished = world.launch(*HOST, "--delete", *TRAINING)
    assert (finished.returncode, finished.stdout) == (3, LOG)
    assert finished.stderr.endswith("error: the training ended 3: its exit code. See its log.\n")
    assert world.verbs()[-1] == "tpu-vm delete"


def test_an_interrupted_launcher_leaves_the_training_which_is_followed_and_not_started_again(world):
    world.write("hold")
    command = [world.script, *HOST, *TRAINING]
    process = subprocess.Popen(command, env=world.environment, stderr=subprocess.PIPE, start_new_session=True)
    while not (world.path / "environment").exists():
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGTERM)  # a background job ignores SIGINT
    error = process.communicate(timeout=30)[1].decode()
    assert process.returncode == 130
    assert "Interrupted. The VM runs and costs: use the actions follow and delete." in error
    assert "mine: a training runs already" in world.launch("start", "--name=mine", *TRAINING).stderr
    (world.path / "hold").unlink()
    assert world.launch("follow", "--name=mine").stdout == LOG


INVALID = {
    "--type=v3-8 -- --workdir=gs://b/x": "--name=: not a VM's name. Use a-z, 0-9 and hyphens.",
    "--name=mine --type=v3-32 -- --workdir=gs://b/x": "--type=v3-32: not a TPU of one host. Set v2-8, v3-8,",
    "--name=mine --type=v3-8 -- --workdir=runs/x": "--workdir: not in object storage, and lost with the VM.",
    "--name=mine --wrkers=2": "--wrkers=2: no such action or flag. See --help; flags of the training follow",
    "destroy --name=mine": "destroy: no such action or flag. See --help",
}


@pytest.mark.parametrize(("words", "message"), INVALID.items())
def test_invalid_flags_are_one_line_errors_before_any_call(world, words, message):
    finished = world.launch(*words.split())
    [line] = (finished.stdout + finished.stderr).splitlines()
    assert line.startswith(f"error: {message}")
    assert (finished.returncode, world.calls()) == (1, [])


@pytest.mark.skipif(not shutil.which("shellcheck"), reason="not installed: apt-get install shellcheck")
def test_shellcheck_finds_nothing():
    subprocess.run(["shellcheck", SCRIPT], check=True)
