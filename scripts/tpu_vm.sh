#!/usr/bin/env bash
# What launch_tpu.sh runs on a TPU VM (of a pod: on its worker 0), after it has copied the code there.
#
#   tpu_vm.sh install             a virtual environment beside the image's TensorFlow
#   tpu_vm.sh start TPU FLAG...   starts the training with these flags; it survives the connection
#   tpu_vm.sh status              prints none, running, gone, or ended with the training's exit code
#   tpu_vm.sh follow BYTES        prints the log after its first BYTES until the training ends
set -euo pipefail

top=$HOME/rank4class # code/, venv/, and of the training: command, pid, log, exit

fail() {
  echo "error: $*" >&2
  exit 1
}

install() {
  # The version is read without importing TensorFlow: an import would take the TPU from a running training.
  python3 - <<'EOP'
import sys
from importlib import metadata

def refuse(what, found, needed):
    found = found or "missing"
    sys.exit(f"error: the image's {what} is {found}, rank4class needs {needed}: choose another --version")

if not (3, 10) <= sys.version_info[:2] <= (3, 11):
    refuse("Python", sys.version.split()[0], "3.10 or 3.11")
versions = {metadata.version(name) for name in metadata.packages_distributions().get("tensorflow", [])}
if not any(version.startswith("2.15.") for version in versions):
    refuse("TensorFlow", " ".join(versions), "2.15")
EOP
  cd "$top/code"

  # --system-site-packages shows the image's TensorFlow. Ubuntu may lack ensurepip (python3-venv): the
  # image's own pip then installs into the environment, for it is visible there like TensorFlow.
  if [ ! -x "$top/venv/bin/python" ]; then
    if python3 -c 'import ensurepip' 2>/dev/null; then
      python3 -m venv --system-site-packages "$top/venv"
    else
      python3 -m venv --system-site-packages --without-pip "$top/venv"
    fi
  fi

  # Of the lock is left out:
  # - tensorflow: PyPI's build knows no TPU, and one in the environment would hide the image's;
  # - tensorflow-macos: the same for another machine;
  # - tensorflow-io-gcs-filesystem: a plug-in for one build of TensorFlow; the image's reads gs:// itself.
  # All else stays. What the image brings too (keras, numpy, protobuf, ...) is pinned within the ranges that
  # TensorFlow 2.15 states, and was tested with it: pip skips what is there in that version and puts another
  # one into the environment alone. tensorflow-text is compiled against TensorFlow 2.15's interface,
  # which the image's build shares.
  # --no-deps keeps what asks for tensorflow (text, ranking, models, serving) from installing it after all.
  grep -Ev '^(tensorflow|tensorflow-macos|tensorflow-io-gcs-filesystem)==' requirements.txt >"$top/lock.new"
  if ! cmp -s "$top/lock.new" "$top/lock"; then
    "$top/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps -r "$top/lock.new"
    mv "$top/lock.new" "$top/lock"
  fi
  "$top/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
}

is_running() { # a number used again after a restart of the VM is another program's
  local pid
  pid=$(cat "$top/pid" 2>/dev/null) && grep -qa tpu_vm.sh "/proc/$pid/cmdline" 2>/dev/null
}

status() {
  if is_running; then
    echo running
  elif [ -e "$top/exit" ]; then
    echo "ended $(cat "$top/exit")"
  elif [ -e "$top/pid" ]; then
    echo gone # the VM was restarted, or somebody killed it
  else
    echo none
  fi
}

start() {
  local tpu=$1 command
  shift
  command=$(printf '%q ' "$tpu" "$@")
  if is_running; then
    [ "$command" = "$(cat "$top/command")" ] || fail "another training runs here: $(cat "$top/command")"
    echo "The training runs already"
    return
  fi
  export TPU_NAME=$tpu PYTHONUNBUFFERED=1
  if [ "$tpu" = local ]; then # the program drives the chips itself, through the image's PJRT plug-in
    export NEXT_PLUGGABLE_DEVICE_USE_C_API=true TF_PLUGGABLE_DEVICE_LIBRARY_PATH=/lib/libtpu.so
  else # each host's tpu-runtime service holds its chips; the program must not take worker 0's from it
    export TPU_LOAD_LIBRARY=0
  fi
  cd "$top/code"
  rm -f "$top/exit"
  if [ -e "$top/log" ]; then mv "$top/log" "$top/log.old"; fi
  echo "$command" >"$top/command"
  setsid nohup bash "$top/code/scripts/tpu_vm.sh" run "--tpu=$tpu" "$@" >"$top/log" 2>&1 </dev/null &
  echo $! >"$top/pid"
}

run() { # the training itself, in a session of its own
  local code=0
  "$top/venv/bin/python" -m rank4class.scripts.train --strategy=tpu "$@" || code=$?
  echo "$code" >"$top/exit"
}

follow() {
  local from=$(($1 + 1))
  [ -e "$top/log" ] || exit 1
  tail -c "+$from" -f -s 0.2 --pid="$(cat "$top/pid")" "$top/log"
}

"$@"
