"""What the comparison reports, when a save is seen to be under way, and a short trial of the real thing."""

import fcntl
import json
import os
import random
import struct
import sys
import textwrap
import time

import numpy as np
import pytest
import tensorflow as tf

from rank4class.pipelines import survival

DIGITS = "--config=" + os.path.join(os.path.dirname(__file__), "configs", "digits_mlp.py")
TENSORS = {
    "weights": np.arange(6, dtype=np.float32).reshape(2, 3) - 2,
    "slots": np.array([0.5, np.nan, np.inf]),
    "step": np.int64(9),
    "name": b"adam\0",
    "nothing": np.zeros([0, 3], np.float32),
}
HISTORY = '{"step": 4}\n{"step": 9}\n'


def write_run(folder, *, last=TENSORS, best=TENSORS, step=9, texts=None):
    """Writes what a finished run leaves that is compared."""
    folder.mkdir()
    for name, tensors in (("last", last), ("best", best)):
        variables = {key: tf.Variable(value) for key, value in tensors.items()}
        tf.train.Checkpoint(**variables).write(str(folder / "checkpoints" / name / f"step-{step}"))
    written = {
        "config.json": "{}\n",
        "data.json": "{}\n",
        "metrics.jsonl": HISTORY,
        "results.json": '{"a": 1}\n',
    }
    for name, text in {**written, **(texts or {})}.items():
        if text is not None:
            (folder / name).write_text(text, newline="")


def compared(tmp_path, **changes):
    write_run(tmp_path / "undisturbed")
    write_run(tmp_path / "killed", **changes)
    found = survival.compare(str(tmp_path / "undisturbed"), str(tmp_path / "killed"))
    for difference in found:
        assert survival.difference_line(difference).startswith(f"{difference.file}: {difference.what}")
    return found


def changed(name, index, value):
    """Returns the tensors with one element changed."""
    array = TENSORS[name].copy()
    array[index] = value
    return {**TENSORS, name: array}


def next_float(value):
    """Returns the float32 whose last bit is flipped."""
    return np.frombuffer(struct.pack("<I", struct.unpack("<I", struct.pack("<f", value))[0] ^ 1), "<f4")[0]


def test_equal_runs_have_no_difference(tmp_path):
    assert compared(tmp_path) == []


@pytest.mark.parametrize(
    ("tensors", "what", "elements", "largest"),
    [
        (changed("weights", (1, 2), next_float(3.0)), "weights", 1, 2.0**-22),
        (changed("weights", (0, 2), -0.0), "weights", 1, 0.0),
        (changed("weights", (0, 0), np.nan), "weights", 1, None),
        (changed("slots", 1, -np.nan), "slots", 1, None),
        (changed("slots", 2, 0.0), "slots", 1, np.inf),
        ({**TENSORS, "weights": TENSORS["weights"] + 1}, "weights", 6, 1.0),
        ({**TENSORS, "step": np.int64(8)}, "step", 1, 1.0),
        ({**TENSORS, "step": np.int32(9)}, "dtype int64 undisturbed and int32 killed", None, None),
        (
            {**TENSORS, "nothing": np.zeros([3, 0], np.float32)},
            "shape (0, 3) undisturbed and (3, 0)",
            None,
            None,
        ),
        ({**TENSORS, "name": b"adam\0\0"}, "name", 1, None),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("folder", survival.SAVED)
def test_a_tensor_that_differs_is_reported(tmp_path, folder, tensors, what, elements, largest):
    (difference,) = compared(tmp_path, **{folder: tensors})
    assert difference.file == f"checkpoints/{folder}/step-9"
    assert what in difference.what
    assert (difference.elements, difference.largest) == (elements, largest)


def test_a_tensor_that_only_one_has_is_reported(tmp_path):
    fewer = {name: value for name, value in TENSORS.items() if name != "slots"}
    found = [difference.what for difference in compared(tmp_path, last=fewer)]
    assert "slots/.ATTRIBUTES/VARIABLE_VALUE is there only undisturbed" in found
    # The checkpoint's own record of its variables is another one too.
    assert sorted(what.split("/")[0].split(":")[0] for what in found) == [
        "_CHECKPOINTABLE_OBJECT_GRAPH",
        "slots",
    ]


@pytest.mark.parametrize(
    ("name", "text", "what", "lines"),
    [
        (
            "metrics.jsonl",
            '{"step": 4}\n{"step": 8}\n',
            "1 lines differ, line 2 is '{\"step\": 9}\\n' undisturbed and",
            1,
        ),
        (
            "metrics.jsonl",
            '{"step": 4}\n',
            "1 lines differ, line 2 is '{\"step\": 9}\\n' undisturbed and None killed",
            1,
        ),
        ("metrics.jsonl", '{"step": 4}\n{"step": 9}', "line 2", 1),
        ("metrics.jsonl", '{"step": 4}\r\n{"step": 9}\n', "line 1", 1),
        ("metrics.jsonl", '{"step": 3}\n{"step": 8}\n{"step": 9}\n', "line 1", 3),
        ("results.json", '{"a":  1}\n', "line 1", 1),
        ("results.json", None, "is there only undisturbed", None),
        ("data.json", "{ }\n", "line 1", 1),
        ("config.json", "{ }\n", "line 1", 1),
        ("class_texts.json", "{}\n", "is there only killed", None),
    ],
)
def test_a_text_that_differs_is_reported(tmp_path, name, text, what, lines):
    (difference,) = compared(tmp_path, texts={name: text})
    assert (difference.file, difference.elements) == (name, lines)
    assert what in difference.what


def test_another_newest_checkpoint_is_reported(tmp_path):
    found = compared(tmp_path, step=8)
    what = "the newest is step-9 undisturbed and step-8 killed"
    assert [(each.file, each.what) for each in found] == [
        ("checkpoints/last", what),
        ("checkpoints/best", what),
    ]


@pytest.mark.parametrize("torn", ["step-9.index", "step-9.data-00000-of-00001"])
def test_a_torn_checkpoint_is_reported(tmp_path, torn):
    write_run(tmp_path / "undisturbed")
    write_run(tmp_path / "killed")
    path = tmp_path / "killed" / "checkpoints" / "last" / torn
    path.write_bytes(path.read_bytes()[:20])
    (difference,) = survival.compare(str(tmp_path / "undisturbed"), str(tmp_path / "killed"))
    assert "cannot be read" in difference.what


def test_runs_without_checkpoints_are_not_equal(tmp_path):
    (tmp_path / "undisturbed").mkdir()
    (tmp_path / "killed").mkdir()
    found = survival.compare(str(tmp_path / "undisturbed"), str(tmp_path / "killed"))
    assert len(found) == 6  # four texts and two folders of checkpoints, all that has to be there


def test_what_only_the_killed_run_has_is_left_over(tmp_path):
    write_run(tmp_path / "undisturbed")
    write_run(tmp_path / "killed")
    (tmp_path / "killed" / "checkpoints" / "last" / "step-4_temp").mkdir()
    folders = str(tmp_path / "undisturbed"), str(tmp_path / "killed")
    assert survival.compare(*folders) == []
    assert survival.leftovers(*folders) == ["checkpoints/last/step-4_temp"]


DATA, INDEX = "step-9.data-00000-of-00001", "step-9.index"
PART = "step-9_temp/part-00000-of-00001.data-00000-of-00001"


@pytest.mark.parametrize(
    ("before", "earlier", "now", "writing"),
    [
        ([], [], [], []),
        ([], [], ["step-9_temp"], ["step-9_temp"]),
        ([], [], ["step-9_temp", f"{PART}.tempstate77"], ["step-9_temp", f"{PART}.tempstate77"]),
        ([], [], ["step-9_temp", PART, f"{PART[:-19]}.index"], None),
        ([], [], ["step-9_temp", DATA], [DATA, "step-9_temp"]),
        ([], [], [DATA], [DATA]),
        ([], [], ["step-9.data-00000-of-00002", "step-9.data-00001-of-00002"], None),
        ([], [], [DATA, INDEX], []),
        ([], [], [DATA, INDEX, "checkpoint"], []),
        ([], [], ["checkpoint.tmp7"], []),
        ([], [], [DATA, INDEX, "step-12_temp"], ["step-12_temp"]),
        (["step-9_temp", PART, DATA], [], [], []),  # left behind by the session before: no save
        ([DATA, INDEX], [], [DATA], []),  # removed, its index first
        ([], [DATA, INDEX], [DATA], []),
    ],
)
def test_a_save_under_way_is_seen(tmp_path, before, earlier, now, writing):
    """`before`: written before the session and left there; `earlier` and `now`: the session's own."""
    folder = tmp_path / "checkpoints" / "last"
    folder.mkdir(parents=True)

    def write(names):
        for name in names:
            folder.joinpath(name).parent.mkdir(exist_ok=True)
            folder.joinpath(name).mkdir() if name.endswith("_temp") else folder.joinpath(name).touch()

    write(before)
    watch = survival.Watch(str(tmp_path))
    assert watch.look() == {}
    write(earlier)
    watch.look()
    for name in (*before, *earlier):
        if now and name not in now:
            folder.joinpath(name).unlink()
    write([name for name in now if name not in (*before, *earlier)])
    expected = sorted(now) if writing is None else writing
    assert watch.look() == ({"last": expected} if expected else {})


def test_a_save_that_comes_upon_the_rest_of_an_earlier_one_is_seen(tmp_path):
    temporary = tmp_path / "checkpoints" / "best" / "step-9_temp"
    temporary.mkdir(parents=True)
    (temporary / "part.tempstate1").touch()
    watch = survival.Watch(str(tmp_path))
    assert watch.look() == {}
    (temporary / "part.tempstate2").touch()
    assert watch.look() == {"best": ["step-9_temp/part.tempstate2"]}


def test_the_last_complete_step(tmp_path):
    last = tmp_path / "checkpoints" / "last"
    (last / "step-8_temp").mkdir(parents=True)
    assert survival.newest_step(str(tmp_path)) == 0
    for name in ("step-8_temp/part-00000-of-00099.", "step-9.", "step-10."):
        (last / f"{name}index").touch()
        (last / f"{name}data-00000-of-00001").touch()
    (last / "step-11.index").touch()
    (last / "step-12.data-00000-of-00001").touch()
    (last / "checkpoint").touch()
    assert survival.newest_step(str(tmp_path)) == 10


@pytest.mark.parametrize(("kills", "inside"), [(1, 0), (1, 1), (4, 1), (30, 10), (30, 30), (30, 0)])
def test_every_kill_finds_its_place(kills, inside):
    steps = tuple(range(7, 7 * (2 * kills + 1), 7))
    course = survival.Course(
        steps, steps[::5], first_save=10.0, last_save=30.0, results=32.0, save_seconds=0.01
    )
    survival.check_length(course, kills)
    for seed in range(50):
        rng = random.Random(seed)
        step, inside_left, phases = 0, inside, []
        for left in range(kills, 0, -1):
            aim = survival.draw_aim(rng, course, step, left, inside_left, kills - inside)
            assert aim.seconds >= 0
            assert aim.step == steps[-1] if aim.phase == "end" else step <= aim.step < steps[-1]
            assert (aim.phase == "save") == bool(aim.into)
            # The worst that can happen: a start-up that gets to its step.
            step, inside_left = aim.step, inside_left - (aim.phase == "save")
            phases.append(aim.phase)
        assert inside_left == 0
        ends = round((kills - inside) / 4)
        assert phases.count("end") == ends
        assert phases[kills - ends :] == ["end"] * ends


def test_saves_of_the_best_are_aimed_at():
    course = survival.Course(tuple(range(1, 101)), (2, 40), 10.0, 30.0, 32.0, 0.01)
    aims = [survival.draw_aim(random.Random(seed), course, 30, 4, 4, 0) for seed in range(100)]
    assert {aim.step for aim in aims if aim.into == survival.SAVED} == {39}
    steps = [aim.step for aim in aims if aim.into == ("last",)]
    assert 30 < len(steps) < 70
    assert min(steps) in range(30, 33)
    assert max(steps) in range(50, 57)


def test_a_run_too_short_for_its_kills():
    course = survival.Course(tuple(range(1, 8)), (), 1.0, 2.0, 3.0, 0.01)
    survival.check_length(course, 3)
    with pytest.raises(ValueError, match="evaluated 7 times, and 4 kills want 8: take more steps"):
        survival.check_length(course, 4)
    with pytest.raises(ValueError, match="the run is at step 5 with 3 kills still to come: take more steps"):
        survival.draw_aim(random.Random(0), course, 5, 3, 3, 0)


# What a training run writes into its folder, without its work: 20 saves of 20 ms.
FAKE = """
import json, os, pathlib, sys, time
root = pathlib.Path(sys.argv[1])
time.sleep(0.2)
(root / "tensorboard").mkdir(parents=True, exist_ok=True)
(root / "tensorboard" / str(os.getpid())).touch()
last = root / "checkpoints" / "last"
last.mkdir(parents=True, exist_ok=True)
done = max((int(path.stem[5:]) for path in last.glob("*.index")), default=0)
for step in range(done + 1, 21):
    time.sleep(0.01)
    with open(root / "metrics.jsonl", "a") as file:
        file.write(json.dumps({"step": step}) + "\\n")
    temporary = last / f"step-{step}_temp"
    temporary.mkdir(exist_ok=True)
    time.sleep(0.02)
    (last / f"step-{step}.data-00000-of-00001").touch()
    temporary.rmdir()
    (last / f"step-{step}.index").touch()
    if step < 3:
        (root / "checkpoints" / "best").mkdir(exist_ok=True)
        (root / "checkpoints" / "best" / f"step-{step}.data-00000-of-00001").touch()
        (root / "checkpoints" / "best" / f"step-{step}.index").touch()
time.sleep(0.3)
(root / "results.json").touch()
"""


@pytest.fixture
def start(tmp_path):
    """Returns a function that starts a session of a Python program, its folder the argument."""

    def start(program, timeout=600.0):
        command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path / "run")]
        return survival.Session(command, str(tmp_path / "7"), timeout)

    return start


@pytest.mark.nightly
def test_the_course_of_a_run(tmp_path, start):
    with start(FAKE) as session:
        course = survival.follow(session, str(tmp_path / "run"))
    assert course.steps == tuple(range(1, 21))
    assert course.best_steps == (1, 2)
    assert 0.03 < course.first_save < course.last_save - 0.5 < course.results - 0.5
    assert 0.015 < course.save_seconds < 2.0  # 0.02, and what a busy machine adds


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("aim", "earliest", "latest"),
    [
        (survival.Aim("start-up", 15, 0.01), 0, 0),
        (survival.Aim("start-up", 3, 60.0), 3, 19),
        (survival.Aim("training", 5, 0.1), 7, 19),
        (survival.Aim("save", 0, 0.0, ("last",)), 0, 19),
        (survival.Aim("save", 7, 0.01, survival.SAVED), 7, 19),
        (survival.Aim("save", 7, 0.025, survival.SAVED), 7, 19),  # too late for a save: tried again
        (survival.Aim("end", 20, 0.1), 20, 20),
    ],
    ids=str,
)
def test_a_session_is_killed_where_it_was_aimed(tmp_path, start, aim, earliest, latest):
    with start(FAKE) as session:
        kill = survival.kill_at(session, str(tmp_path / "run"), aim, 3)
        assert earliest <= kill.checkpoint_step <= latest
        assert (kill.number, kill.phase) == (3, aim.phase)
        assert kill.history_step - kill.checkpoint_step in (0, 1)
        if aim.phase == "save":
            assert kill.inside == ("last",)
            assert kill.unfinished[0].startswith(f"last/step-{kill.checkpoint_step + 1}")
        assert not (tmp_path / "run" / "results.json").exists()
    if aim.phase == "end":  # again, now that the last save stands from the start
        with start(FAKE) as session:
            again = survival.kill_at(session, str(tmp_path / "run"), aim, 4)
        assert (again.checkpoint_step, again.inside) == (20, ())
        assert len(os.listdir(tmp_path / "run" / "tensorboard")) == 2
        assert not (tmp_path / "run" / "results.json").exists()


def test_a_run_that_ends_before_its_kills(tmp_path, start):
    with (
        start("") as session,
        pytest.raises(ValueError, match="the run ended after 2 kills: take more steps"),
    ):
        survival.kill_at(session, str(tmp_path / "run"), survival.Aim("training", 9, 0.0), 3)


def test_a_session_that_fails_shows_what_it_said(start):
    message = "session 7 ended by itself, code 1; it said:\nno folder there"
    with start("raise SystemExit('no folder there')") as session, pytest.raises(OSError, match=message):
        session.finish()


@pytest.mark.nightly
def test_a_session_that_takes_too_long_is_ended_with_all_it_started(tmp_path, start):
    program = """
        import fcntl, subprocess, sys, time
        file = open(sys.argv[1], "w")
        fcntl.flock(file, fcntl.LOCK_EX)
        subprocess.Popen(["sleep", "60"], pass_fds=[file.fileno()])
        time.sleep(60)
    """
    with start(program, timeout=1.0) as session, pytest.raises(TimeoutError, match="7 takes more than 1 s"):
        session.finish()
    ended = time.monotonic()
    with open(tmp_path / "run") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # granted when the last process that holds it is gone
    assert time.monotonic() - ended < 30


@pytest.mark.parametrize(
    ("arguments", "knobs", "message"),
    [
        (["--workdir=x"], {}, "no --workdir"),
        (["--workdir", "x"], {}, "no --workdir"),
        ([], {"kills": 0, "inside_saves": 0}, "0 kills"),
        ([], {"kills": 3, "inside_saves": 4}, "3 kills, 4 of them inside a save"),
        ([], {}, "is not empty: choose another --output"),
    ],
)
def test_what_cannot_be_tried_is_refused(tmp_path, arguments, knobs, message):
    (tmp_path / "there").touch()
    with pytest.raises(ValueError, match=message):
        survival.survive(arguments, str(tmp_path), **knobs)


@pytest.mark.nightly
def test_a_killed_run_ends_as_an_undisturbed_one(tmp_path):
    flags = [
        DIGITS,
        "--config.steps=120",
        "--config.evaluations_per_epoch=4",
        "--config.encoder.hidden=(64,)",
        "--config.metrics=('ndcg@5',)",
    ]
    outcome = survival.survive(flags, str(tmp_path), kills=4, inside_saves=1)
    assert [kill.number for kill in outcome.kills] == [1, 2, 3, 4]
    assert any(kill.inside for kill in outcome.kills)
    assert outcome.kills[-1].phase == "end"
    assert outcome.differences == (), survival.summary(outcome)
    assert "equal bit for bit" in survival.summary(outcome)
    assert len(survival.table(outcome).splitlines()) == 6
    written = json.loads((tmp_path / "survival.json").read_text())
    assert written["summary"] == survival.summary(outcome)
    assert [kill["seconds"] for kill in written["kills"]] == [kill.seconds for kill in outcome.kills]


@pytest.mark.parametrize("timeout", [0.0, -1.0, float("nan"), float("inf")])
def test_a_timeout_that_is_no_time_is_refused(tmp_path, timeout):
    with pytest.raises(ValueError, match=f"timeout={timeout}: not a positive, finite number of seconds"):
        survival.survive([], tmp_path / "out", timeout=timeout)
    assert not (tmp_path / "out").exists()


def test_a_negative_seed_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"seed=-1: not in 0\.\.2\*\*32 - 1\. Choose another seed\."):
        survival.survive([], tmp_path / "out", seed=-1)
