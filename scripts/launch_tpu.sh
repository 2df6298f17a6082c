#!/usr/bin/env bash
set -euo pipefail

usage() {
  cat <<'EOU'
Trains on a Cloud TPU. Without ACTION, creates the VM, starts the training and follows it:

  scripts/launch_tpu.sh [ACTION] --name=NAME --zone=ZONE --type=v3-8 [FLAG...] -- \
      --config=NAME --workdir=gs://BUCKET/FOLDER [FLAG OF train...]

  create   creates the VM and waits until it is ready; creates it anew after a preemption
  start    copies this checkout's last commit, installs and starts the training, unless it runs
  follow   prints the log from its beginning; exits with the training's code, or 75 after a preemption
  delete   deletes the VM; with --queued, also its request

  --name=NAME          name of the VM (and of the queued request)
  --zone, --project    default: gcloud's
  --type=TYPE          v2-8, v3-32, v4-8, v5litepod-8, v5p-8, ...; a pod if the number exceeds 8
  --version=IMAGE      default: tpu-vm-tf-2.15.1-pjrt; for a pod tpu-vm-tf-2.15.1-pod-pjrt
  --queued             requests the VM as a queued resource and waits
  --spot               cheaper, but may be preempted at any time
  --delete             deletes the VM when the training ends or cannot be started
  --create_flag=FLAG   another flag for gcloud's create; --ssh_flag=FLAG: for its ssh and scp; repeatable
EOU
}

say() { echo "$*" >&2; } # standard output is for the log of the training
fail() { say "error: $*" && exit 1; }

[ "${BASH_VERSINFO[0]}${BASH_VERSINFO[1]}" -ge 44 ] ||
  fail "bash $BASH_VERSION: too old. Install 4.4 or newer (on macOS: brew install bash)."

action=all name='' zone='' project='' type='' version='' queued='' spot='' delete=''
create_flags=() ssh_flags=() pod='' target=local
case ${1-} in
  create | start | follow | delete) action=$1 && shift ;;
  -* | '') ;;
  *) fail "$1: unknown action. Use create, start, follow or delete." ;;
esac
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  flag=${1%%=*}
  case $1 in
    --help | -h) usage && exit ;;
    --queued | --spot | --delete) printf -v "${flag#--}" yes ;;
    --name=* | --zone=* | --project=* | --type=* | --version=*) printf -v "${flag#--}" %s "${1#*=}" ;;
    --create_flag=*) create_flags+=("${1#*=}") ;;
    --ssh_flag=*) ssh_flags+=("${1#*=}") ;;
    *) fail "$1: not a --FLAG=VALUE of this command. See --help; flags of the training follow --." ;;
  esac
  shift
done
training=("${@:2}")

training_flag() { # NAME: prints the value of the training's last --NAME=VALUE or --NAME VALUE
  local IFS=$'\n'
  if [[ $IFS${training[*]} =~ .*$IFS--?$1[=$IFS]([^$IFS]*) ]]; then echo "${BASH_REMATCH[1]}"; fi
}

[[ $name =~ ^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$ ]] ||
  fail "--name=$name: not a name of a VM. Use lower-case letters, digits and hyphens; start with a letter."
if [[ $action =~ ^(all|create|start)$ ]]; then
  [[ $type =~ ^v[2-5][a-z]*-([0-9]+)$ ]] ||
    fail "--type=$type: no TPU of TensorFlow 2.15. Use v2-8, v3-8, v4-8, v5litepod-8, v5p-8 or a larger one."
  # A host holds 8 cores of v2, v3, v4 and v5p, and up to 8 chips of v5litepod.
  if [ "${BASH_REMATCH[1]}" -gt 8 ]; then pod=-pod target=$name; fi
  version=${version:-tpu-vm-tf-2.15.1$pod-pjrt}
fi
if [[ $action =~ ^(all|start)$ ]]; then
  workdir=$(training_flag workdir) config=$(training_flag config)
  [[ $workdir == gs://?* ]] ||
    fail "--workdir=$workdir: would be lost with the VM. Use -- --config=NAME --workdir=gs://BUCKET/FOLDER."
  cd "$(dirname "${BASH_SOURCE[0]}")/.."
  git rev-parse --verify --quiet HEAD >/dev/null 2>&1 || fail "$PWD: not a git checkout. Clone it with git."
  git cat-file blob "HEAD:$config" >/dev/null 2>&1 ||
    git cat-file blob "HEAD:pipelines/configs/$config.py" >/dev/null 2>&1 ||
    fail "--config=$config: not in the last commit. Commit it; give its name or its path in the checkout."
  [ -z "$(git status --porcelain)" ] || say "warning: uncommitted changes are not copied to the VM"
elif [ $# -gt 0 ]; then
  fail "$action: takes no flags of the training. Remove -- and the flags after it."
fi
command -v gcloud >/dev/null || fail "gcloud: not found. Install the Google Cloud CLI and run gcloud init."
[ -n "$zone" ] || [ -n "$(gcloud config get-value compute/zone 2>/dev/null)" ] ||
  fail "--zone: missing. Set --zone=ZONE, or run gcloud config set compute/zone ZONE."

group=$([ -z "$queued" ] && echo tpu-vm || echo queued-resources)
place=(${zone:+"--zone=$zone"} ${project:+"--project=$project"})
printf -v same_vm ' %q' "--name=$name" "${place[@]}" ${queued:+--queued} "${ssh_flags[@]/#/--ssh_flag=}"
vm_script=rank4class/code/scripts/tpu_vm.sh poll_seconds=${LAUNCH_POLL_SECONDS:-20}

tpu() { gcloud compute tpus "$@" "${place[@]}"; } # GROUP VERB ARGUMENT...

# on_vm LINE: runs a line of shell on the VM; on a pod, on worker 0. TensorFlow's program runs there once and
# drives the other hosts through their tpu-runtime servers: they need neither the code nor its packages.
on_vm() { tpu tpu-vm ssh "$name" --worker=0 "${ssh_flags[@]}" "--command=$1"; }

# look GROUP STATE...: waits while a VM or request is in one of the states, then sets state (empty: absent),
# state_type, state_version, state_queue and state_error.
look() {
  local error=$temporary/error node='' end='queuedResource.basename()' previous='' answer
  [ "$1" = tpu-vm ] || node='tpu.nodeSpec[0].node.' end='name.basename(),state.failedData.error.message'
  local fields="state${node:+.state},${node}acceleratorType.basename(),${node}runtimeVersion,$end"
  while :; do
    answer=$(tpu "$1" describe "$name" "--format=value($fields)" 2>"$error") ||
      grep -q NOT_FOUND "$error" || fail "--name=$name: could not be described. $(cat "$error")"
    IFS=$'\t' read -r state state_type state_version state_queue state_error <<<"$answer" || true
    if [ -z "$state" ] || [[ " ${*:2} " != *" $state "* ]]; then return; fi
    [ "$state" = "$previous" ] || say "$1 $name is $state"
    previous=$state
    sleep "$poll_seconds"
  done
}

look_at_training() { # sets training_state to none, running or "ended CODE"; fails if out of reach
  training_state=$(on_vm "if [ -e $vm_script ]; then bash $vm_script status; else echo none; fi" </dev/null |
    tail -n 1) && [[ $training_state =~ ^(none|running|ended\ [0-9]+)$ ]]
}

create() {
  local vm_state='' kind
  for kind in tpu-vm ${queued:+"$group"}; do
    look "$kind" DELETING SUSPENDING
    [ -z "$state" ] || [ "$state_type $state_version ${state_queue:+yes}" = "$type $version $queued" ] ||
      fail "--name=$name: exists with --type=$state_type --version=$state_version${state_queue:+ --queued}." \
        "Use these flags, choose another name, or delete it: scripts/launch_tpu.sh delete$same_vm."
    vm_state=${vm_state:-$state}
  done
  if [[ $vm_state,$state =~ ^(PREEMPTED|TERMINATED),|,(SUSPENDED|FAILED)$ ]]; then
    say "$group $name is ${BASH_REMATCH[0]//,/}: deleting it"
    delete
    state=''
  fi
  [ -n "$state" ] || tpu "$group" create "$name" ${queued:+"--node-id=$name"} "--accelerator-type=$type" \
    "--${queued:+runtime-}version=$version" ${spot:+--spot} "${create_flags[@]}" >&2 ||
    fail "--name=$name: could not be created. See the message above."
  for kind in ${queued:+"$group"} tpu-vm; do
    look "$kind" ACCEPTED WAITING_FOR_RESOURCES PROVISIONING CREATING STARTING RESTARTING REIMAGING REPAIRING
    [[ $state =~ ^(ACTIVE|READY)$ ]] ||
      fail "--name=$name: $kind is ${state:-gone}${state_error:+, $state_error}. Delete it:" \
        "scripts/launch_tpu.sh delete$same_vm; then run the same command."
  done
}

start() {
  local archive=rank4class.tar.gz command
  look_at_training || fail "--name=$name: out of reach by ssh. See the message above."
  if [ "$training_state" != running ]; then # the code of a running training stays as it is
    may_delete=yes
    say "Copying the last commit to $name and installing it: a few minutes the first time"
    # A clone holds only what git tracks, and lets the run record its commit.
    git clone --quiet --depth=1 --no-local . "$temporary/code"
    tar -czf "$temporary/$archive" -C "$temporary" code
    tpu tpu-vm scp "$temporary/$archive" "$name:" --worker=0 "${ssh_flags[@]}" >&2 ||
      fail "--name=$name: the code could not be copied. See the message above."
    command="mkdir -p rank4class && rm -rf rank4class/code && tar -xzf $archive -C rank4class"
    on_vm "$command && bash $vm_script install" >&2 ||
      fail "--name=$name: rank4class could not be installed. See the message above."
  fi
  printf -v command ' %q' bash "$vm_script" start "$target" "${training[@]}"
  on_vm "${command# }" >&2 || fail "--name=$name: the training could not be started. See the message above."
  may_delete=''
  say "The training runs. Its log: scripts/launch_tpu.sh follow$same_vm"
}

follow() {
  local size=0
  until on_vm "bash $vm_script follow $size" </dev/null | tee -a "$temporary/log" && look_at_training &&
    [[ $training_state == ended* ]]; do
    size=$(($(wc -c <"$temporary/log")))
    if look_at_training; then
      [ "$training_state" != none ] || fail "--name=$name: no training was started. Use the action start."
    elif state=$(look tpu-vm && echo "$state") && [[ ! $state =~ ^(READY|(RE)?STARTING|REPAIRING)$ ]]; then
      say "error: --name=$name: the TPU VM is ${state:-gone}. Run the same command to resume the training."
      exit 75
    fi
    say "The connection to $name broke: connecting again"
    sleep "$poll_seconds"
  done
  may_delete=yes
  [ "$training_state" = 'ended 0' ] || say "error: the training $training_state: its exit code. See its log."
  exit "${training_state#ended }"
}

delete() {
  tpu "$group" delete "$name" ${queued:+--force} --quiet >&2 ||
    fail "--name=$name: could not be deleted and costs. Run scripts/launch_tpu.sh delete$same_vm."
}

at_end() {
  local status=$?
  trap '' INT TERM HUP
  rm -rf "$temporary"
  if [ -n "$delete" ] && [ -n "$may_delete" ]; then (delete) || status=$((status ? status : 1)); fi
  exit "$status"
}

may_delete='' temporary=$(mktemp -d) # may_delete: no training runs on the VM
trap at_end EXIT
trap 'delete=""
  say "Interrupted. The VM goes on costing, and a training goes on: scripts/launch_tpu.sh follow$same_vm"
  say "Delete the VM: scripts/launch_tpu.sh delete$same_vm"
  exit 130' INT TERM HUP
for step in ${action/all/create start follow}; do "$step"; done
