"""Kills a training run again and again, and compares what it ends with to a run left in peace.

A run is started, killed by SIGKILL and started again with the same command, time after time: as it starts, as
it trains, inside a save, and between its last step and its results. In the end every tensor of its
checkpoints, its history and its results have to be those of the same command left undisturbed, bit for bit.

OUTPUT/undisturbed    the run left in peace; what follows is drawn from its course
OUTPUT/killed         the run that was killed
OUTPUT/sessions       what each process printed: NUMBER.stdout, NUMBER.stderr; 0 is the undisturbed run
OUTPUT/survival.json  the kills and the differences
"""

import contextlib
import dataclasses
import itertools
import json
import math
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import time

import numpy as np
import tensorflow as tf

from rank4class.pipelines import config
from rank4class.pipelines.reporting import tables
from rank4class.pipelines.storage.checkpoints import UNUSABLE
from rank4class.pipelines.storage.files import to_json

SAVED = ("last", "best")  # folders of checkpoints
TEXTS = ("config.json", "data.json", "class_texts.json", "metrics.jsonl", "results.json")
OPTIONAL = ("class_texts.json",)
EVALUATIONS_A_KILL = 2  # that the run has to make, so that every session has saves before it
END_SHARE = 1 / 4  # of the kills outside saves: after the last step
AT_ONCE_SHARE = 1 / 3  # of the kills inside saves: as soon as one is seen
# Of the undisturbed run's time from its last save to its results, at most so much passes before a kill: with
# the results there, the run would be over. A session that begins after the last step takes longer.
END_FILLED, NEW_END_FILLED = 0.4, 0.8
STARTING_GAP, GAP = 5e-3, 3e-4  # seconds between two looks, before and after training begins
SHOWN_STDERR = 4000  # characters
_PART = re.compile(r"(.+)\.(index|data-\d+-of-\d+)")
_TEMPORARY = re.compile(r"_temp|\.tempstate")


@dataclasses.dataclass(frozen=True)
class Course:
    """How the undisturbed run went.

    Attributes:
      steps: after which it was evaluated and saved.
      best_steps: those of them at which the best so far was saved too.
      first_save, last_save, results: when they stood, in seconds after the start of the process.
      save_seconds: how long a save takes, typically.
    """

    steps: tuple[int, ...]
    best_steps: tuple[int, ...]
    first_save: float
    last_save: float
    results: float
    save_seconds: float


@dataclasses.dataclass(frozen=True)
class Aim:
    """When a session is to be killed.

    Attributes:
      phase:
        "start-up": `seconds` after its start, or at the save of `step` where that comes first.
        "training": `seconds` after the save of `step`.
        "save": `seconds` into a save, in one of the folders `into`, after that of `step`.
        "end": `seconds` after it has begun to train and the save of `step`, the last, stands.
      step, seconds, into: see there.
    """

    phase: str
    step: int
    seconds: float
    into: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Kill:
    """One session's end.

    Attributes:
      number: from 1.
      seconds: after the start of its process.
      phase: what was aimed at, see `Aim`.
      history_step: the last that metrics.jsonl then held.
      checkpoint_step: the last of which checkpoints/last then held every file, the newest perhaps torn.
      inside: the folders whose save was under way.
      unfinished: the files that these saves had written.
    """

    number: int
    seconds: float
    phase: str
    history_step: int
    checkpoint_step: int
    inside: tuple[str, ...]
    unfinished: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Difference:
    """Something of the killed run that is not as in the undisturbed one.

    Attributes:
      file: relative to the run's folder.
      what: which tensor or line, and how it differs.
      elements: how many elements of the tensor, or lines, differ.
      largest: their largest absolute difference, where they are numbers.
    """

    file: str
    what: str
    elements: int | None = None
    largest: float | None = None


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What came of it.

    Attributes:
      kills: in order.
      differences: none where the run survived.
      leftovers: files of checkpoints that only the killed run has; what it computes does not hang on them.
    """

    kills: tuple[Kill, ...]
    differences: tuple[Difference, ...]
    leftovers: tuple[str, ...]


def survive(arguments, output, *, kills=30, inside_saves=10, seed=0, timeout=3600.0):
    """Trains in peace, trains again under kills, and compares.

    Args:
      arguments: the training's flags, a list; all but --workdir.
      output: a folder that is not there yet, or is empty.
      kills: how many.
      inside_saves: at least so many of them while a checkpoint is being written.
      seed: every moment is drawn from it.
      timeout: seconds that a session may take.

    Returns:
      The `Outcome`; it stands in OUTPUT/survival.json too.

    Raises:
      ValueError: the arguments are wrong, or the run is too short for so many kills.
      OSError: a session ended by itself with an error, or took too long.
    """
    if not 0 <= inside_saves <= kills or not kills:
        raise ValueError(
            f"{kills} kills, {inside_saves} of them inside a save: take 1 kill or more, and not more inside"
        )
    if not 0.0 < timeout < math.inf:
        raise ValueError(
            f"timeout={timeout}: not a positive, finite number of seconds. Set one, such as 3600."
        )
    config.check_seed(seed)
    output = os.fspath(output)
    if not output:
        raise ValueError("--output is empty: name a folder")
    if any(re.match("--?workdir", argument) for argument in arguments):
        raise ValueError("the training's flags are to have no --workdir: its folders are within --output")
    if os.path.isdir(output) and os.listdir(output):
        raise ValueError(f"{output} is not empty: choose another --output")
    folders = {name: os.path.join(output, name) for name in ("undisturbed", "killed", "sessions")}
    os.makedirs(folders["sessions"])

    def start(number, name):
        command = [sys.executable, "-m", "rank4class.scripts.train", *arguments, f"--workdir={folders[name]}"]
        return Session(command, os.path.join(folders["sessions"], str(number)), timeout)

    print("The undisturbed run", flush=True)
    with start(0, "undisturbed") as session:
        course = follow(session, folders["undisturbed"])
    check_length(course, kills)
    done = []
    rng = random.Random(seed)
    while len(done) < kills:
        left = kills - len(done)
        inside_left = inside_saves - sum(bool(kill.inside) for kill in done)
        aim = draw_aim(rng, course, newest_step(folders["killed"]), left, inside_left, kills - inside_saves)
        with start(len(done) + 1, "killed") as session:
            kill = kill_at(session, folders["killed"], aim, len(done) + 1)
        done.append(kill)
        print(f"[{kill.number:3d}/{kills}] {_described(kill)}", flush=True)
    with start(kills + 1, "killed") as session:
        session.finish()

    differences = compare(folders["undisturbed"], folders["killed"])
    left_over = leftovers(folders["undisturbed"], folders["killed"])
    outcome = Outcome(tuple(done), tuple(differences), tuple(left_over))
    told = {
        "summary": summary(outcome),
        "train": arguments,
        "seed": seed,
        "undisturbed": dataclasses.asdict(course),
        **dataclasses.asdict(outcome),
    }
    with open(os.path.join(output, "survival.json"), "w", encoding="utf-8") as file:
        file.write(to_json(told, indent=2) + "\n")
    return outcome


class Session:
    """A training process in a group of its own; it does not outlive the block that it is opened for.

    Args:
      command: a list.
      log: path, to which ".stdout" and ".stderr" are added.
      timeout: seconds that it may take.
    """

    def __init__(self, command, log, timeout):
        self._log, self._timeout = log, timeout
        with open(f"{log}.stdout", "wb") as out, open(f"{log}.stderr", "wb") as err:
            self._started = time.monotonic()
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
            )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    @property
    def seconds(self):
        """Seconds since its start."""
        return time.monotonic() - self._started

    def runs(self):
        """Returns whether it still runs.

        Raises:
          OSError: it ended with an error, or takes too long.
        """
        code = self._process.poll()
        if code:
            with open(f"{self._log}.stderr", encoding="utf-8", errors="replace") as file:
                said = file.read()[-SHOWN_STDERR:]
            raise OSError(
                f"session {os.path.basename(self._log)} ended by itself, code {code}; it said:\n{said}"
            )
        if code is None and self.seconds > self._timeout:
            raise TimeoutError(f"session {os.path.basename(self._log)} takes more than {self._timeout:g} s")
        return code is None

    def finish(self):
        """Waits for its end."""
        while self.runs():
            time.sleep(STARTING_GAP)

    def pause(self):
        """Stops it where it is; returns once it stands still."""
        os.killpg(self._process.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self):
        os.killpg(self._process.pid, signal.SIGCONT)

    def kill(self):
        """Kills it and what it started, if it still runs."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


class Watch:
    """Sees what a session writes into its run's folder; made as the session starts."""

    def __init__(self, workdir):
        self._folders = {name: os.path.join(workdir, "checkpoints", name) for name in SAVED}
        self._logs = os.path.join(workdir, "tensorboard")
        self._logs_before = set(scan(self._logs))
        self._before = {name: scan(folder) for name, folder in self._folders.items()}
        self._complete = {name: set() for name in SAVED}
        self._begun = False

    def begun(self):
        """Returns whether the session has come as far as its TensorBoard file."""
        self._begun = self._begun or bool(set(scan(self._logs)) - self._logs_before)
        return self._begun

    def look(self):
        """Returns folder -> the files of a save under way there; folders without one are left out."""
        found = {}
        for name, folder in self._folders.items():
            now = scan(folder)
            files = being_written(now, self._before[name], self._complete[name])
            if files:
                found[name] = files
            self._complete[name] |= complete(now)
        return found

    def steps(self, folder):
        """Returns the steps whose checkpoints in "last" or "best" have been seen complete, in order."""
        return sorted(map(step_of, self._complete[folder]))

    def step(self):
        """Returns the last step that was seen complete in "last", 0 for none."""
        return max(self.steps("last"), default=0)

    def rest(self):
        """Waits until the next look is due."""
        time.sleep(GAP if self.begun() else STARTING_GAP)


def scan(folder):
    """Returns path within a folder -> (inode, time of the last change), of files at any depth and of folders.

    A folder that is not there is empty; a folder's own time says nothing here and is 0.
    """
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return {}
    found = {}
    for entry in entries:
        if entry.is_dir():
            found[entry.name] = (entry.inode(), 0)
            found |= {f"{entry.name}/{name}": mark for name, mark in scan(entry.path).items()}
        else:
            with contextlib.suppress(FileNotFoundError):  # gone since
                found[entry.name] = (entry.inode(), entry.stat().st_mtime_ns)
    return found


def complete(names):
    """Returns the checkpoints of which every kind of file is there.

    >>> sorted(complete(["a-1.index", "a-1.data-00000-of-00001", "a-2.data-00000-of-00001", "checkpoint"]))
    ['a-1']
    """
    parts = [
        match.groups() for match in map(_PART.fullmatch, names) if match and not _TEMPORARY.search(match[1])
    ]
    indexed = {stem for stem, kind in parts if kind == "index"}
    return indexed & {stem for stem, kind in parts if kind != "index"}


def unfinished(names):
    """Returns the files of a save that has not come to its end: temporary ones, or without their index.

    >>> unfinished(["a-1.index", "a-1.data-00000-of-00001", "a-2.data-00000-of-00001", "a-3_temp", "notes"])
    ['a-2.data-00000-of-00001', 'a-3_temp']
    """
    found = []
    for name in sorted(names):
        part = _PART.fullmatch(name)
        if _TEMPORARY.search(name) or (part and f"{part[1]}.index" not in names):
            found.append(name)
    return found


def being_written(now, before, seen):
    """Returns the unfinished files that a session is writing.

    What an earlier session left behind is not: it stands there unchanged. What has been complete is not: it
    is being removed.

    Args:
      now, before: from `scan`, now and before the session started.
      seen: the checkpoints that have been complete.
    """
    found = []
    for name in unfinished(now):
        part = None if _TEMPORARY.search(name) else _PART.fullmatch(name)
        if now[name] != before.get(name) and not (part and part[1] in seen):
            found.append(name)
    return found


def step_of(checkpoint):
    """Returns the number that a checkpoint's name ends with."""
    return int(re.search(r"(\d+)$", checkpoint)[1])


def newest_step(workdir):
    """Returns the step of the newest complete checkpoint in a run's folder, 0 for none."""
    return max(map(step_of, complete(scan(os.path.join(workdir, "checkpoints", "last")))), default=0)


def history_steps(workdir):
    """Returns the steps in a run's metrics.jsonl."""
    try:
        with open(os.path.join(workdir, "metrics.jsonl"), encoding="utf-8") as file:
            return [json.loads(line)["step"] for line in file if line.endswith("\n")]
    except FileNotFoundError:
        return []


def follow(session, workdir):
    """Watches the undisturbed run to its end; returns its `Course`."""
    watch = Watch(workdir)
    saved, saves, since, results = {}, [], None, None
    running = True
    while running:
        running = session.runs()  # looks once more after the end
        writing = watch.look()
        now = session.seconds
        if watch.step():
            saved.setdefault(watch.step(), now)
        if writing and since is None:
            since = now
        if not writing and since is not None:
            saves.append(now - since)
            since = None
        if results is None and os.path.exists(os.path.join(workdir, "results.json")):
            results = now
        if running:
            watch.rest()
    if not saved or results is None:
        raise OSError(f"{workdir} has no checkpoint or no results.json: there is nothing to compare")
    return Course(
        steps=tuple(history_steps(workdir)),
        best_steps=tuple(watch.steps("best")),
        first_save=min(saved.values()),
        last_save=max(saved.values()),
        results=results,
        save_seconds=statistics.median(saves) if saves else GAP,
    )


def check_length(course, kills):
    """Raises ValueError where a run has too few evaluations to be killed that often."""
    if len(course.steps) < EVALUATIONS_A_KILL * kills:
        raise ValueError(
            f"the run is evaluated {len(course.steps)} times, and {kills} kills want "
            f"{EVALUATIONS_A_KILL * kills}: take more steps, or evaluate more often"
        )


def draw_aim(rng, course, step, left, inside_left, outside):
    """Draws when the next session is to be killed, so that all that are left find their place.

    Args:
      rng: a `random.Random`.
      course: of the undisturbed run.
      step: of the newest checkpoint.
      left: kills still to come, this one among them.
      inside_left: how many of them have to be inside a save.
      outside: kills of the whole trial that need not be.

    Returns:
      An `Aim`.

    Raises:
      ValueError: too little of the run is left.
    """
    to_come = left - round(outside * END_SHARE)  # before the last step
    if to_come <= 0:
        filled = NEW_END_FILLED if step >= course.steps[-1] else END_FILLED
        seconds = rng.uniform(0, filled * (course.results - course.last_save))
        return Aim("end", course.steps[-1], seconds)
    saved = sum(evaluated <= step for evaluated in course.steps)
    spare = len(course.steps) - 1 - saved - to_come
    if spare < 0:
        raise ValueError(f"the run is at step {step} with {left} kills still to come: take more steps")
    reach = course.steps[saved : saved + 1 + min(spare, 2 * spare // (to_come + 1))]
    target = rng.choice(reach)
    if rng.random() * to_come < inside_left:
        seconds = 0.0 if rng.random() < AT_ONCE_SHARE else rng.uniform(0, course.save_seconds)
        into = rng.choice([("last",), SAVED])
        if into == SAVED:  # the best is saved first, where it is saved
            target = rng.choice([best for best in reach if best in course.best_steps] or [target])
        previous = max((each for each in course.steps if each < target), default=0)
        return Aim("save", previous, seconds, into)
    if rng.random() < 0.5:
        return Aim("start-up", target, rng.uniform(0, course.first_save))
    interval = (course.last_save - course.first_save) / max(len(course.steps) - 1, 1)
    return Aim("training", target, rng.uniform(0, interval))


def kill_at(session, workdir, aim, number):
    """Kills a session where it was aimed; returns the `Kill`.

    Raises:
      ValueError: the run ended before.
    """
    watch = Watch(workdir)
    due, delay = None, aim.seconds
    while session.runs():
        writing = watch.look()
        reached = watch.step() >= aim.step
        if aim.phase == "start-up" and (reached or session.seconds >= aim.seconds):
            break
        ready = {"save": _any_of(aim.into, writing), "end": watch.begun()}.get(aim.phase, True)
        if due is None and aim.phase != "start-up" and reached and ready:
            due = session.seconds + delay
        if due is not None and session.seconds >= due:
            if aim.phase != "save":
                break
            session.pause()  # a save takes milliseconds: whether it is still under way is seen best at rest
            if _any_of(aim.into, watch.look()):
                break
            session.resume()
            due, delay = None, delay / 2
        watch.rest() if due is None else time.sleep(min(GAP, max(0.0, due - session.seconds)))
    else:
        raise ValueError(f"the run ended after {number - 1} kills: take more steps")
    seconds = session.seconds
    session.kill()
    writing = watch.look()
    return Kill(
        number=number,
        seconds=round(seconds, 3),
        phase=aim.phase,
        history_step=max(history_steps(workdir), default=0),
        checkpoint_step=newest_step(workdir),
        inside=tuple(writing),
        unfinished=tuple(f"{folder}/{file}" for folder, files in writing.items() for file in files),
    )


def compare(undisturbed, killed):
    """Returns the `Difference`s of two finished runs: of texts byte for byte, of tensors bit for bit."""
    differences = []
    for name in TEXTS:
        differences += compare_texts(os.path.join(undisturbed, name), os.path.join(killed, name))
    for name in SAVED:
        folder = os.path.join("checkpoints", name)
        differences += compare_checkpoints(
            os.path.join(undisturbed, folder), os.path.join(killed, folder), folder
        )
    return differences


def compare_texts(here, there):
    """Returns what differs between two text files of one name, one `Difference` at most."""
    name = os.path.basename(here)
    present = [os.path.exists(path) for path in (here, there)]
    if not all(present):
        if name in OPTIONAL and not any(present):
            return []
        return [Difference(name, f"is there only {_only(present)}")]
    lines = []
    for path in (here, there):
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
            lines.append(file.readlines())
    pairs = enumerate(itertools.zip_longest(*lines), 1)
    differing = [(number, *pair) for number, pair in pairs if pair[0] != pair[1]]
    if not differing:
        return []
    first = "line {} is {!r} undisturbed and {!r} killed".format(*differing[0])
    return [Difference(name, f"{len(differing)} lines differ, {first}", len(differing))]


def compare_checkpoints(here, there, folder):
    """Returns the `Difference`s of two folders of checkpoints: of the newest, and of the others in both."""
    kept = [complete(scan(path)) for path in (here, there)]
    newest = [max(names, key=step_of, default=None) for names in kept]
    differences = []
    if newest[0] != newest[1] or newest[0] is None:
        differences.append(
            Difference(folder, f"the newest is {newest[0]} undisturbed and {newest[1]} killed")
        )
    for name in sorted(kept[0] & kept[1]):
        differences += compare_tensors(
            os.path.join(here, name), os.path.join(there, name), os.path.join(folder, name)
        )
    return differences


def compare_tensors(here, there, file):
    """Returns the `Difference`s of two checkpoints, given by their prefixes; `file` names them."""
    try:
        tensors = [_tensors(path) for path in (here, there)]
    except UNUSABLE as error:
        return [Difference(file, f"cannot be read: {error}")]
    differences = []
    for name in sorted(tensors[0].keys() | tensors[1].keys()):
        present = [name in each for each in tensors]
        if not all(present):
            differences.append(Difference(file, f"{name} is there only {_only(present)}"))
            continue
        difference = _tensor_difference(tensors[0][name], tensors[1][name])
        if difference:
            differences.append(Difference(file, f"{name}: {difference[0]}", *difference[1:]))
    return differences


def leftovers(undisturbed, killed):
    """Returns the files of checkpoints, relative to the run's folder, that only the killed run has."""
    found = [set(scan(os.path.join(path, "checkpoints"))) for path in (undisturbed, killed)]
    return [os.path.join("checkpoints", name) for name in sorted(found[1] - found[0])]


def summary(outcome):
    """Returns the outcome in one line."""
    inside = sum(bool(kill.inside) for kill in outcome.kills)
    kills = f"{len(outcome.kills)} kills, {inside} inside a save"
    if outcome.differences:
        files = sorted({difference.file for difference in outcome.differences})
        return f"{kills}: {len(outcome.differences)} differences, in {', '.join(files)}"
    return f"{kills}: weights, slots, history and results are equal bit for bit"


def table(outcome):
    """Returns the kills as text for a terminal."""
    rows = [["kill", "after (s)", "aimed at", "history", "checkpoint", "inside a save"]]
    for kill in outcome.kills:
        cells = (kill.number, f"{kill.seconds:.3f}", kill.phase, kill.history_step, kill.checkpoint_step)
        rows.append([*map(str, cells), " and ".join(kill.inside) or "no"])
    return tables.text_table(rows)


def difference_line(difference):
    """Returns a difference in one line."""
    by = "" if difference.largest is None else f", by {difference.largest:g} at most"
    return f"{difference.file}: {difference.what}{by}"


def _tensors(prefix):
    reader = tf.train.load_checkpoint(prefix)
    values = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    # As a string of NumPy's own, a scalar would lose the zero bytes at its end.
    return {
        name: np.array(value, object if isinstance(value, bytes) else None) for name, value in values.items()
    }


def _tensor_difference(here, there):
    """Returns None, or (what, how many elements, largest absolute difference) of two arrays."""
    if here.dtype != there.dtype:
        return f"dtype {here.dtype} undisturbed and {there.dtype} killed", None, None
    if here.shape != there.shape:
        return f"shape {here.shape} undisturbed and {there.shape} killed", None, None
    if here.dtype == object:  # strings
        differ = np.not_equal(here, there)
        return ("another string", int(differ.sum()), None) if differ.any() else None
    bits = [
        np.frombuffer(each.tobytes(), np.uint8).reshape(each.size, each.itemsize) for each in (here, there)
    ]
    differ = (bits[0] != bits[1]).any(axis=1)
    if not differ.any():
        return None
    with np.errstate(invalid="ignore"):
        apart = np.abs(here.astype(np.float64) - there.astype(np.float64)).ravel()[differ]
    apart = apart[~np.isnan(apart)]
    count = int(differ.sum())
    return f"{count} of {here.size} elements differ", count, float(apart.max()) if apart.size else None


def _only(present):
    """Returns where something is that is not in both; `present`: undisturbed, killed."""
    return {(True, False): "undisturbed", (False, True): "killed"}.get(tuple(present), "in neither")


def _any_of(names, found):
    return not found.keys().isdisjoint(names)


def _described(kill):
    inside = f", inside a save of {' and '.join(kill.inside)}" if kill.inside else ""
    return f"killed after {kill.seconds:.2f} s, step {kill.checkpoint_step}, {kill.phase}{inside}"
