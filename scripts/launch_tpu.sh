#!/usr/bin/env bash
set -euo pipefail

usage() {
  cat <<'EOU'
Trains on a Cloud TPU:

  scripts/launch_tpu.sh [all] --name=NAME --zone=ZONE --type=v3-8 [FLAG...] -- \
      --config=NAME --workdir=gs://BUCKET/FOLDER [FLAG OF train...]

creates the TPU VM, copies this checkout's last commit to it, installs, starts the training and follows its
log. The same command again goes on: it follows a training that runs; after a preemption it creates the VM
anew and the training resumes from --workdir. The exit code is the training's; 75 says preempted.

  all      what stands above (the default)
  create   creates the VM and waits until it is ready
  start    copies, installs and starts the training on a VM that is ready
  follow   follows the log of a training, from its beginning
  delete   deletes the VM, with --queued its request too

  --name=NAME           the VM (and the queued request)
  --zone=ZONE           default: gcloud's compute/zone
  --project=PROJECT     default: gcloud's project
  --type=TYPE           v2-8, v3-32, v4-8, v5litepod-8, v5p-8, ...; with more than 8 it is a pod
  --version=IMAGE       default: tpu-vm-tf-2.15.1-pjrt, of a pod tpu-vm-tf-2.15.1-pod-pjrt
  --queued              asks for it as a queued resource and waits for its turn
  --spot                cheaper, and may be preempted at any time
  --delete              deletes the VM when the training ends or fails; never while it may be running
  --wait_minutes=N      how long to wait for the VM, or for a lost connection (60)
  --create_flag=FLAG    one more flag for gcloud's create, as --create_flag=--network=mine; repeatable
  --ssh_flag=FLAG       one more flag for gcloud's ssh and scp, as --ssh_flag=--internal-ip; repeatable
  --dry_run             prints every command, one a line, and runs none
  --help
EOU
}

fail() {
  echo "error: $*" >&2
  exit 1
}

[ "${BASH_VERSINFO[0]}${BASH_VERSINFO[1]}" -ge 44 ] ||
  fail "bash $BASH_VERSION is too old: install 4.4 or newer (on macOS: brew install bash)"

# ---- flags

action=all name='' zone='' project='' type='' version='' queued='' spot='' delete='' dry_run='' wait_minutes=60
create_flags=() ssh_flags=() training=() has_training=''
case ${1-} in
  all | create | start | follow | delete) action=$1 && shift ;;
  -* | '') ;;
  *) fail "unknown action '$1': it is all, create, start, follow or delete" ;;
esac
while [ $# -gt 0 ]; do
  flag=$1 && shift
  case $flag in
    --)
      has_training=yes training=("$@")
      break
      ;;
    --help | -h) usage && exit ;;
    --queued | --spot | --delete | --dry_run) printf -v "${flag#--}" yes ;;
    --name=* | --zone=* | --project=* | --type=* | --version=* | --wait_minutes=*)
      field=${flag%%=*}
      printf -v "${field#--}" %s "${flag#*=}"
      ;;
    --create_flag=*) create_flags+=("${flag#*=}") ;;
    --ssh_flag=*) ssh_flags+=("${flag#*=}") ;;
    --name | --zone | --project | --type | --version | --wait_minutes | --create_flag | --ssh_flag)
      fail "$flag lacks its value: $flag=VALUE"
      ;;
    *) fail "unknown flag $flag: see --help (the training's own flags come after --)" ;;
  esac
done

[ -n "$name" ] || fail "--name is missing: --name=NAME, what the TPU VM is called"
[[ $name =~ ^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$ ]] ||
  fail "--name=$name: a name is of lower-case letters, digits and hyphens, and starts with a letter"
[[ $wait_minutes =~ ^[0-9]+$ ]] || fail "--wait_minutes=$wait_minutes is not a number of minutes"

pod=''
case $action in
  all | create | start)
    [ -n "$type" ] || fail "--type is missing: --type=v3-8, or another type of TPU"
    [[ $type =~ ^v[0-9]+[a-z]*-([0-9]+)$ ]] ||
      fail "--type=$type is not a type of TPU: v3-8, v4-32, v5litepod-8, ..."
    # A host holds 8 cores of v2, v3, v4 and v5p, and up to 8 chips of v5litepod.
    if [ "${BASH_REMATCH[1]}" -gt 8 ]; then pod=yes; fi
    case $type in
      v6e-*) fail "--type=$type is newer than TensorFlow 2.15's images: take v2, v3, v4, v5litepod or v5p" ;;
    esac
    version=${version:-tpu-vm-tf-2.15.1${pod:+-pod}-pjrt}
    ;;
esac

flag_of_training() { # NAME: prints the value that the training gets, the last one, or nothing
  local word previous='' value=''
  for word in "${training[@]}"; do
    case $previous in "--$1" | "-$1") value=$word ;; esac
    case $word in "--$1="* | "-$1="*) value=${word#*=} ;; esac
    previous=$word
  done
  printf %s "$value"
}

here=$PWD root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd) copy=''
case $action in
  all | start)
    [ ${#training[@]} -gt 0 ] ||
      fail "the training's flags are missing: -- --config=FILE --workdir=gs://BUCKET/FOLDER at the end"
    workdir=$(flag_of_training workdir) config=$(flag_of_training config)
    case $workdir in
      '') fail "--workdir is missing after --: --workdir=gs://BUCKET/FOLDER" ;;
      gs://?*) ;;
      *) fail "--workdir=$workdir would be lost with the VM: --workdir=gs://BUCKET/FOLDER" ;;
    esac
    cd "$root"
    git rev-parse --verify --quiet HEAD >/dev/null 2>&1 ||
      fail "$root is not a git checkout: clone it with git, for what git tracks is copied"
    copy=$(git rev-parse --git-dir)/launch-$name
    [ -n "$config" ] || fail "--config is missing after --: --config=NAME, of a file in pipelines/configs"
    git cat-file -e "HEAD:$config" 2>/dev/null || git cat-file -e "HEAD:pipelines/configs/$config.py" 2>/dev/null ||
      fail "--config=$config is not in the last commit: commit it, and give its path from the checkout's root"
    [ -z "$(git status --porcelain)" ] ||
      echo "warning: uncommitted changes are not copied, the VM gets the last commit" >&2
    ;;
  *) [ -z "$has_training" ] || fail "$action takes no flags of the training: leave out -- and what follows" ;;
esac
[ -n "$dry_run" ] || command -v gcloud >/dev/null ||
  fail "there is no gcloud command: install the Google Cloud CLI, then run gcloud init"

# ---- commands

say() { if [ -z "$dry_run" ]; then echo "$*" >&2; fi; }

quoted() { # prints words so that any POSIX shell, here or on the VM, reads them back
  local word line=''
  for word in "$@"; do
    case $word in
      '' | *[!A-Za-z0-9_./:=,@%+-]*) word="'${word//\'/\'\\\'\'}'" ;;
    esac
    line+="$word "
  done
  printf %s "${line% }"
}

show() { printf '%s\n' "$(quoted "$@")"; }

do_it() { # standard output is left to the training's log
  if [ -n "$dry_run" ]; then show "$@"; else "$@" >&2; fi
}

tpus=(gcloud compute tpus)
where=(${zone:+"--zone=$zone"} ${project:+"--project=$project"})
script=rank4class/code/scripts/tpu_vm.sh
poll=${LAUNCH_POLL_SECONDS:-20}

# on_vm RUNNER LINE: runs a line of shell on the VM. Of a pod only worker 0 is used: TensorFlow's program runs
# there once and drives every host through the server that the image starts on each (tpu-runtime). So the
# other hosts need neither the code nor its packages.
on_vm() { "$1" "${tpus[@]}" tpu-vm ssh "$name" "${where[@]}" --worker=0 "${ssh_flags[@]}" "--command=$2"; }

hint() { # ACTION: prints the command for it
  local flags=("--name=$name" "${where[@]}" ${queued:+--queued})
  if [ "$1" != delete ]; then flags+=("${ssh_flags[@]/#/--ssh_flag=}"); fi
  quoted scripts/launch_tpu.sh "$1" "${flags[@]}"
}

answer=''
describe() { # GROUP FIELDS: sets answer to their values, or to nothing where there is no such thing
  local words=("${tpus[@]}" "$1" describe "$name" "${where[@]}" "--format=value($2)")
  if [ -n "$dry_run" ]; then
    show "${words[@]}"
    answer=''
  elif ! answer=$("${words[@]}" 2>"$errors"); then
    answer=''
    grep -q NOT_FOUND "$errors" || {
      cat "$errors" >&2
      return 1
    }
  fi
}

vm_state='' vm_type='' vm_version='' vm_queue=''
look_at_vm() {
  describe tpu-vm 'state,acceleratorType.basename(),runtimeVersion,queuedResource.basename()' || return 1
  IFS=$'\t' read -r vm_state vm_type vm_version vm_queue <<<"$answer" || true
}

queue_state='' queue_type='' queue_version='' queue_error=''
look_at_queue() {
  local node='tpu.nodeSpec[0].node'
  local fields="state.state,$node.acceleratorType.basename(),$node.runtimeVersion"
  describe queued-resources "$fields,state.failedData.error.message" || return 1
  IFS=$'\t' read -r queue_state queue_type queue_version queue_error <<<"$answer" || true
}

# wait_for WHAT LOOK VARIABLE WANTED STATE...: looks until the variable is WANTED; fails where it is neither
# that nor one of the states to wait in.
wait_for() {
  local what=$1 look=$2 variable=$3 wanted=$4 state told='' until=$((SECONDS + wait_minutes * 60))
  shift 4
  while :; do
    "$look" || fail "gcloud could not describe $name: see above"
    if [ -n "$dry_run" ]; then printf -v "$variable" %s "$wanted"; fi
    state=${!variable}
    if [ "$state" = "$wanted" ]; then return; fi
    case " $* " in *" ${state:-NOT_FOUND} "*) ;; *) return 1 ;; esac
    if [ "$state" != "$told" ]; then say "$what $name is $state"; fi
    told=$state
    [ "$SECONDS" -lt "$until" ] || fail "$what $name is still $state after $wait_minutes minutes" \
      "(--wait_minutes): the same command waits on; without it, it may yet be granted and cost: $(hint delete)"
    sleep "$poll"
  done
}

delete_it() {
  if [ -n "$queued" ]; then
    do_it "${tpus[@]}" queued-resources delete "$name" "${where[@]}" --force --quiet # with its VM
  else
    do_it "${tpus[@]}" tpu-vm delete "$name" "${where[@]}" --quiet
  fi || fail "$name could not be deleted: see above"
}

training_status() { # sets answer; fails where the VM cannot be reached
  local line="if [ -e $script ]; then bash $script status; else echo none; fi"
  if [ -n "$dry_run" ]; then
    on_vm show "$line"
    answer='ended 0'
  else
    answer=$(on_vm command "$line" </dev/null | tail -n 1) || return 1
    [[ $answer =~ ^(none|running|gone|ended\ [0-9]+)$ ]]
  fi
}

# ---- actions

is_new=''     # whether this command created the VM
may_delete='' # whether no training runs on the VM

refuse_others() { # KIND TYPE VERSION of what goes by the name already
  if [ "$2" != "$type" ] || [ "$3" != "$version" ]; then
    fail "--name=$name is a $1 of --type=$2 --version=$3 already:" \
      "choose another name, or delete it first: $(hint delete)"
  fi
}

create() {
  local create_words=("--accelerator-type=$type")
  look_at_vm || fail "gcloud could not describe $name: see above"
  if [ "$vm_state" = DELETING ]; then wait_for "TPU VM" look_at_vm vm_state '' DELETING || true; fi
  if [ -n "$vm_state" ]; then
    refuse_others "TPU VM" "$vm_type" "$vm_version"
    if [ -n "$queued" ] && [ -z "$vm_queue" ]; then
      fail "--name=$name is a TPU VM without a queued request already: leave --queued out, or choose another name"
    elif [ -z "$queued" ] && [ -n "$vm_queue" ]; then
      fail "--name=$name is the TPU VM of a queued request already: add --queued, or choose another name"
    fi
  fi
  if [ -n "$queued" ]; then
    create_queued
  else
    case $vm_state in
      PREEMPTED | TERMINATED)
        say "TPU VM $name is $vm_state: deleting it"
        delete_it
        vm_state=''
        ;;
    esac
    if [ -z "$vm_state" ]; then
      say "Creating the TPU VM $name, $type"
      do_it "${tpus[@]}" tpu-vm create "$name" "${where[@]}" "${create_words[@]}" "--version=$version" \
        ${spot:+--spot} "${create_flags[@]}" || fail "gcloud could not create $name: see above"
      is_new=yes
    fi
  fi
  wait_for "TPU VM" look_at_vm vm_state READY CREATING STARTING RESTARTING REIMAGING REPAIRING ||
    fail "TPU VM $name is ${vm_state:-gone} and will not be ready: $(hint delete), then the same command"
  say "TPU VM $name is ready"
}

create_queued() {
  look_at_queue || fail "gcloud could not describe $name: see above"
  if [ "$queue_state" = SUSPENDING ]; then
    wait_for "Queued request" look_at_queue queue_state SUSPENDED SUSPENDING || true
  fi
  if [ -n "$queue_state" ]; then refuse_others "queued request" "$queue_type" "$queue_version"; fi
  case $queue_state,$vm_state in
    FAILED,* | SUSPENDED,* | ?*,PREEMPTED | ?*,TERMINATED)
      say "Queued request $name is $queue_state${vm_state:+, its VM $vm_state}: deleting it"
      delete_it
      queue_state=''
      ;;
  esac
  if [ -z "$queue_state" ]; then
    say "Asking for $type as the queued request $name"
    do_it "${tpus[@]}" queued-resources create "$name" "--node-id=$name" "${where[@]}" "${create_words[@]}" \
      "--runtime-version=$version" ${spot:+--spot} "${create_flags[@]}" ||
      fail "gcloud could not ask for $name: see above"
    is_new=yes
  fi
  wait_for "Queued request" look_at_queue queue_state ACTIVE \
    CREATING ACCEPTED WAITING_FOR_RESOURCES PROVISIONING ||
    fail "the queued request $name is ${queue_state:-gone}${queue_error:+: $queue_error}" \
      "(the same command asks anew)"
}

start() {
  local tpu=local
  if [ -n "$pod" ]; then tpu=$name; fi
  answer=none
  if [ -z "$is_new" ] && [ -z "$dry_run" ]; then
    training_status || fail "TPU VM $name could not be reached by ssh: see above"
  fi
  if [ "$answer" != running ]; then # the code of one that runs stays as it is
    may_delete=yes
    copy_and_install
  fi
  if ! on_vm do_it "bash $script start $(quoted "$tpu" "${training[@]}")"; then
    if [ "$answer" = running ]; then exit 1; fi # the VM said why
    fail "the training could not be started on $name: see above"
  fi
  may_delete=''
  say "The training runs on $name. Its log: $(hint follow)"
}

copy_and_install() {
  say "Copying the last commit to $name"
  do_it rm -rf "$copy"
  # A clone holds what git tracks and nothing else, and lets the run record its commit.
  do_it git clone --quiet --depth=1 --no-local . "$copy/code"
  do_it tar -czf "$copy/code.tar.gz" -C "$copy" code
  do_it "${tpus[@]}" tpu-vm scp "$copy/code.tar.gz" "$name:rank4class-code.tar.gz" "${where[@]}" --worker=0 \
    "${ssh_flags[@]}" || fail "the code could not be copied to $name: see above"
  do_it rm -rf "$copy"
  say "Installing on $name: a few minutes the first time"
  local unpack='mkdir -p rank4class && rm -rf rank4class/code && tar -xzf rank4class-code.tar.gz -C rank4class'
  on_vm do_it "$unpack && bash $script install" || fail "rank4class could not be installed on $name: see above"
}

code=0
follow() {
  local size=0 before lost='' is_whole
  while :; do
    before=$size is_whole=yes
    if [ -n "$dry_run" ]; then
      on_vm show "bash $script follow 0"
    else
      on_vm command "bash $script follow $size" </dev/null | tee -a "$seen" || is_whole=''
      size=$(($(wc -c <"$seen")))
    fi
    if training_status; then
      case $answer in
        ended\ *)
          if [ -z "$is_whole" ]; then continue; fi # it ended while the connection was broken
          may_delete=yes
          code=${answer#ended }
          [ "$code" = 0 ] || say "error: the training ended with exit code $code: see its log above"
          return
          ;;
        gone)
          may_delete=yes
          fail "the training on $name ended without an exit code (a restart of the VM?):" \
            "the same command resumes it"
          ;;
        none) fail "no training was started on $name: scripts/launch_tpu.sh start starts one" ;;
      esac
    elif look_at_vm; then
      case $vm_state in
        READY | STARTING | RESTARTING | REPAIRING) ;;
        *)
          say "error: TPU VM $name is ${vm_state:-gone}:" \
            "the same command creates it anew and resumes the training"
          exit 75
          ;;
      esac
    fi
    if [ "$size" -gt "$before" ] || [ -z "$lost" ]; then lost=$SECONDS; fi
    [ $((SECONDS - lost)) -lt $((wait_minutes * 60)) ] ||
      fail "$name was out of reach for $wait_minutes minutes (--wait_minutes), a training may be running:" \
        "$(hint follow) follows it, $(hint delete) ends it"
    say "The connection to $name broke: connecting again"
    sleep "$poll"
  done
}

# ---- beginning and end

# shellcheck disable=SC2317 # called by the traps
at_end() {
  local status=$?
  trap '' INT TERM HUP
  set +e
  rm -f "$errors" "$seen"
  if [ -n "$copy" ] && [ -d "$copy" ]; then rm -rf "$copy"; fi
  if [ -n "$delete" ] && [ -n "$may_delete" ]; then
    say "Deleting $name"
    if ! (delete_it); then
      say "error: $name goes on costing: $(hint delete)"
      status=$((status ? status : 1))
    fi
  fi
  exit "$status"
}

# shellcheck disable=SC2317 # called by the traps
interrupted() {
  may_delete=''
  say "Interrupted; nothing was deleted. If $name was created it goes on costing; a training goes on there."
  say "To follow it: $(hint follow)"
  say "To delete it: $(hint delete)"
  exit 130
}

errors='' seen=''
trap at_end EXIT
trap interrupted INT TERM HUP
errors=$(mktemp) seen=$(mktemp)

if [ -n "$dry_run" ] && [ -n "$copy" ] && [ "$here" != "$root" ]; then show cd "$root"; fi
if [ -z "$zone" ]; then
  words=(gcloud config get-value compute/zone)
  if [ -n "$dry_run" ]; then
    show "${words[@]}"
  elif [ -z "$("${words[@]}" 2>/dev/null)" ]; then
    fail "--zone is missing: --zone=ZONE, or gcloud config set compute/zone ZONE"
  fi
fi
case $action in
  all) # not joined by &&: that would switch off set -e within
    create
    start
    follow
    ;;
  delete) delete_it ;;
  *) "$action" ;;
esac
exit "$code"
