#!/usr/bin/env bash
# Runs the steps of launch_tpu.sh on the TPU VM; on a pod, on worker 0.
#
#   tpu_vm.sh install             installs rank4class beside the image's TensorFlow
#   tpu_vm.sh start TPU FLAG...   starts the training with these flags; it outlives the connection
#   tpu_vm.sh status              prints none, running or ended with the training's exit code
#   tpu_vm.sh follow BYTES        prints the log after its first BYTES until the training ends
set -euo pipefail
cd ~/rank4class/code # beside it: venv/, lock, and of the training command, pid, log and exit

install() {
  # Importing TensorFlow would take the TPU from a running training: only read its version.
  local lock
  lock=$(python3 - <<'EOP'
import re, sys
from importlib import metadata

installed = [(d.version, d.read_text("top_level.txt") or "") for d in metadata.distributions()]
tensorflow = [version for version, modules in installed if "tensorflow" in modules.split()] or ["missing"]
image = f"Python {sys.version.split()[0]}, TensorFlow {tensorflow[0]}"
if re.match(r"Python 3\.1[01]\..*, TensorFlow 2\.15\.", image):
    print("requirements-tf2.15.txt")
elif re.match(r"Python 3\.1[0-3]\..*, TensorFlow 2\.20\.", image):
    print("requirements.txt")
else:
    sys.exit(f"--version: the image has {image}. Choose one with TensorFlow 2.15 and Python 3.10 or 3.11, or with 2.20.")
EOP
  )
  # The environment shows the image's TensorFlow and its pip: Ubuntu may lack ensurepip.
  [ -x ../venv/bin/python ] || python3 -m venv --system-site-packages --without-pip ../venv
  local pip=(../venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps)

  # PyPI's tensorflow and tensorflow-io-gcs-filesystem know no TPU and would hide the image's builds.
  # tensorflow-macos is for another machine. --no-deps keeps other packages from installing them after all.
  grep -Ev '^(tensorflow|tensorflow-macos|tensorflow-io-gcs-filesystem)==' "$lock" >../lock.new
  if ! cmp -s ../lock.new ../lock; then
    "${pip[@]}" -r ../lock.new
    mv ../lock.new ../lock
  fi
  "${pip[@]}" --no-build-isolation -e .
}

status() {
  # After a restart of the VM, the number may be another program's.
  if grep -qa tpu_vm.sh "/proc/$(cat ../pid 2>/dev/null)/cmdline" 2>/dev/null; then
    echo running
  elif [ -e ../pid ]; then
    echo "ended $(cat ../exit 2>/dev/null || echo 137)" # without a code: killed, or the VM restarted
  else
    echo none
  fi
}

start() { # TPU FLAG...
  local command
  command=$(printf '%q ' "$@")
  if [ "$(status)" = running ]; then
    [ "$command" = "$(cat ../command)" ] && return
    echo "Another training runs here: $(cat ../command)" >&2 && return 1
  fi
  export TPU_NAME=$1 PYTHONUNBUFFERED=1
  if [ "$1" = local ]; then # the program drives the chips through the image's PJRT plug-in
    export NEXT_PLUGGABLE_DEVICE_USE_C_API=true TF_PLUGGABLE_DEVICE_LIBRARY_PATH=/lib/libtpu.so
  else # the tpu-runtime service of each host drives its chips; the program must not take worker 0's
    export TPU_LOAD_LIBRARY=0
  fi
  rm -f ../exit
  [ ! -e ../log ] || mv ../log ../log.old
  echo "$command" >../command
  # shellcheck disable=SC2016 # the new session expands it
  setsid nohup bash -c 'code=0; "$@" || code=$?; echo "$code" >../exit' tpu_vm.sh ../venv/bin/python \
    -m rank4class.scripts.train --strategy=tpu --tpu="$1" "${@:2}" >../log 2>&1 </dev/null &
  echo $! >../pid
}

follow() { # BYTES
  [ -e ../log ] && tail -c "+$(($1 + 1))" -f -s 0.2 --pid="$(cat ../pid)" ../log
}

"$@"
