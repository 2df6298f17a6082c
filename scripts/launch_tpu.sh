#!/usr/bin/env bash
# Trains on a Cloud TPU VM. Without ACTION, creates the VM, starts the training and follows it:
#   scripts/launch_tpu.sh [ACTION] --name=NAME --type=v5litepod-8 [FLAG...] -- \
#       --config=NAME --workdir=gs://BUCKET/FOLDER [FLAG OF train...]
#   create   creates the VM and waits until it is ready; replaces a preempted one
#   start    copies this checkout's last commit, installs it and starts the training, unless one runs
#   follow   prints the log of the training; exits with its code, or 75 if the VM was preempted
#   delete   deletes the VM
#   --name, --zone, --project  of the VM; the last two default to gcloud's
#   --type=TYPE        v2-8, v3-8, v4-8, v5p-8, v5litepod-8, v6e-8, or 1 or 4 chips of the last two
#   --version=IMAGE    default: the base image of the type; it needs Python 3.10 to 3.12
#   --spot, --queued   a cheaper VM that may be preempted; a queued resource, for which it waits
#   --delete           deletes the VM when the training ends
set -euo pipefail

say() { echo "$*" >&2; } # standard output is for the log of the training
fail() { say "error: $*" && exit 1; }
action='' name='' zone='' project='' type='' version='' spot='' queued='' delete=''
case ${1-} in create | start | follow | delete) action=$1 && shift ;; esac
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  flag=${1%%=*}
  case $1 in
    --help) sed -n '/^set/q; 2,$s/^# \{0,1\}//p' "$0" && exit ;;
    --spot | --queued | --delete) printf -v "${flag#--}" yes ;;
    --name=* | --zone=* | --project=* | --type=* | --version=*) printf -v "${flag#--}" %s "${1#*=}" ;;
    *) fail "$1: no such action or flag. See --help; flags of the training follow --." ;;
  esac
  shift
done
flags=("${@:2}")
[[ $name =~ ^[a-z]([a-z0-9-]*[a-z0-9])?$ ]] || fail "--name=$name: not a VM's name. Use a-z, 0-9 and hyphens."
[[ ! $action =~ ^(|create)$ ]] || case $type in # base images: https://cloud.google.com/tpu/docs/runtimes
  v[234]-8) version=${version:-tpu-ubuntu2204-base} ;;
  v5litepod-[148]) version=${version:-v2-alpha-tpuv5-lite} ;;
  v5p-8) version=${version:-v2-alpha-tpuv5} ;;
  v6e-[148]) version=${version:-v2-alpha-tpuv6e} ;;
  *) fail "--type=$type: not a TPU of one host. Set v2-8, v3-8, v4-8, v5p-8, v5litepod-8 or v6e-8." ;;
esac
if [[ $action =~ ^(|start)$ ]]; then
  [[ " ${flags[*]}" =~ ' --workdir='gs://. ]] ||
    fail "--workdir: not in object storage, and lost with the VM. Set -- --workdir=gs://BUCKET/FOLDER."
  cd "$(dirname "${BASH_SOURCE[0]}")/.."
  [ -z "$(git status --porcelain)" ] || say "warning: uncommitted changes are not copied to the VM"
fi
command -v gcloud >/dev/null || fail "gcloud: not found. Install the Google Cloud CLI and run gcloud init."
group=$([ -n "$queued" ] && echo queued-resources || echo tpu-vm)
seconds=${LAUNCH_POLL_SECONDS:-20} temporary=$(mktemp -d) && : >"$temporary/log"
trap 'rm -rf "$temporary"' EXIT
trap 'say "Interrupted. The VM runs and costs: use the actions follow and delete." && exit 130' INT TERM HUP
tpu() { gcloud compute tpus "$@" ${zone:+"--zone=$zone"} ${project:+"--project=$project"}; }
state_of() { # GROUP FIELD: prints the state of the VM or of its request; nothing if there is none
  tpu "$1" describe "$name" "--format=value($2)" 2>"$temporary/error" ||
    grep -q NOT_FOUND "$temporary/error" || fail "--name=$name: not described. $(cat "$temporary/error")"
}

create() {
  local state request='' ended='PREEMPTED|TERMINATED|SUSPENDED|FAILED'
  state=$(state_of tpu-vm state)
  [ -z "$queued" ] || request=$(state_of "$group" state.state)
  if [[ $state$request =~ $ended ]]; then delete && state='' request=''; fi
  [ -n "$state$request" ] || tpu "$group" create "$name" ${queued:+"--node-id=$name"} ${spot:+--spot} \
    "--accelerator-type=$type" "--${queued:+runtime-}version=$version" >&2
  until state=$(state_of tpu-vm state) && [ "$state" = READY ]; do
    [ -z "$queued" ] || request=$(state_of "$group" state.state)
    [[ ! $state$request =~ $ended|^$ ]] ||
      fail "--name=$name: the VM is ${state:-absent}, its request ${request:-absent}. Run the command again."
    say "$name is ${state:-$request}" && sleep "$seconds"
  done
}

read -r -d '' functions <<'EOF' || true
mkdir -p ~/rank4class && cd ~/rank4class || exit
status() { # without a code, the training was killed or the VM restarted
  if [ ! -e pid ]; then echo none; elif [ -e exit ]; then echo "ended $(cat exit)"
  elif kill -0 "$(cat pid)" 2>/dev/null; then echo running; else echo "ended 137"; fi
}
install() { # libtpu: the version that this TensorFlow was released with
  tensorflow=$(sed -n 's/^tensorflow==\([0-9.]*\).*/\1/p' code/requirements.txt)
  [ -e venv ] || python3 -m venv --system-site-packages --without-pip venv
  grep -v '^tensorflow==' code/requirements.txt >lock
  venv/bin/python -m pip install -q --no-deps -r lock "tensorflow-tpu==$tensorflow" libtpu==0.0.14 &&
    venv/bin/python -m pip install -q --no-deps --no-build-isolation -e code
}
start() { # FLAG...
  library=$(venv/bin/python -c 'import libtpu; print(libtpu.get_library_path())') || return
  export TF_PLUGGABLE_DEVICE_LIBRARY_PATH=$library NEXT_PLUGGABLE_DEVICE_USE_C_API=true PYTHONUNBUFFERED=1
  rm -f pid exit
  setsid nohup bash -c 'echo $$ >new && mv new pid; (cd code && "$@") >log 2>&1; echo $? >new && mv new exit' \
    train ../venv/bin/python -m rank4class train --strategy=tpu "$@" >/dev/null 2>&1 </dev/null &
  until [ -e pid ]; do sleep 0.1; done
}
EOF
on_vm() { tpu tpu-vm ssh "$name" "--command=$functions"$'\n'"$1" </dev/null; }

start() {
  if [ "$(on_vm status | tail -n 1)" = running ]; then say "$name: a training runs already" && return; fi
  say "Copying the last commit to $name and installing it: a few minutes the first time"
  git clone --quiet --depth=1 "file://$PWD" "$temporary/code" # a run records the commit of its checkout
  tar -czf "$temporary/rank4class.tar.gz" -C "$temporary" code
  tpu tpu-vm scp "$temporary/rank4class.tar.gz" "$name:" >&2
  on_vm "rm -rf code && tar -xzf ../rank4class.tar.gz && install && start$(printf ' %q' "${flags[@]}")" >&2
}

follow() { # after a broken connection, the log continues behind the bytes printed so far
  until on_vm "[ ! -e pid ] || tail -c +$(($(wc -c <"$temporary/log") + 1)) -f -s 0.2 --pid=\$(cat pid) log" |
    tee -a "$temporary/log" && training=$(on_vm status | tail -n 1) && [[ $training == ended* ]]; do
    [ "${training-}" != none ] || fail "--name=$name: no training was started. Use the action start."
    vm=$(state_of tpu-vm state)
    [[ $vm =~ READY|STARTING|REPAIRING ]] || { say "error: $name: VM ${vm:-gone}. Run it again." && exit 75; }
    sleep "$seconds"
  done
  [ -z "$delete" ] || delete
  [ "$training" = 'ended 0' ] || say "error: the training $training: its exit code. See its log."
  exit "${training#ended }"
}
delete() { tpu "$group" delete "$name" ${queued:+--force} --quiet >&2; }
for step in ${action:-create start follow}; do "$step"; done
