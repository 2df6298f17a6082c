r"""Runs an experiment of the papers, and puts its figures beside theirs.

    python -m rank4class.scripts.research.reproduce --list
    python -m rank4class.scripts.research.reproduce --only=rankmax/table2 --data=FOLDER --workdir=runs/rankmax

Finished trainings in `--workdir` are not repeated, except for those of LightGBM.
"""

import re
import shlex
import signal
import subprocess
import sys

from absl import flags

from rank4class.scripts import cli

_LIST = flags.DEFINE_bool("list", False, "List the experiments and the data that they need.")
_ONLY = flags.DEFINE_string("only", None, "Experiment to run.")
_DATA = flags.DEFINE_string("data", None, "Folder of its data; --list names the files.")
_CHECKPOINT = flags.DEFINE_string("checkpoint", None, "Weights of its encoder, if --list names some.")
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the runs.")
_RESULTS = flags.DEFINE_string("results", None, "Folder for the result as JSON, such as docs/results.")
_JOBS = flags.DEFINE_integer("jobs", 1, "Runs to train at once.", lower_bound=1)


def main() -> None:
    from rank4class.pipelines import configs
    from rank4class.pipelines.reporting import tables
    from rank4class.pipelines.sweep import grid_tables
    from rank4class.scripts.research.papers import pages, reproductions, results

    if _LIST.value:
        if _ONLY.value is not None:
            raise ValueError("--only: has no effect with --list. Leave one of the two out.")
        rows = [["experiment", "claims", "data", "title"]]
        for name, one in reproductions.REPRODUCTIONS.items():
            rows.append([name, " ".join(one.claims), one.data or "-", one.title])
        print(tables.text_table(rows))
        return
    if _ONLY.value is None:
        raise ValueError("only=None: nothing to run. Name an experiment, or use --list.")
    reproduction = reproductions.get(_ONLY.value)
    if _WORKDIR.value is None:
        raise ValueError("workdir=None: the runs need a folder. Set --workdir.")
    lines = reproduction.command_lines()
    _check_flags(" ".join(lines))
    for line in lines:
        _run(line)
    for module in re.findall(r"--import=(\S+)", " ".join(lines)):
        configs.import_user_module(module)  # to read the runs of its parts
    result = results.collect(_ONLY.value, reproduction, _WORKDIR.value)
    print(f"\n{grid_tables.text(result)}")
    if rows := pages.paper_table(result):
        print(f"\n{tables.text_table(rows)}")
    if _RESULTS.value is not None:
        print(f"\nResult: {results.write(result, _RESULTS.value)}")


_PLACEHOLDERS = {"FOLDER": _DATA, "CHECKPOINT": _CHECKPOINT, "WORKDIR": _WORKDIR}


def _check_flags(lines: str) -> None:
    """Raises ValueError if the commands need a folder that no flag gives, or do not use one that is given."""
    for placeholder, flag in _PLACEHOLDERS.items():
        if placeholder in lines and flag.value is None:
            raise ValueError(f"{flag.name}=None: this experiment needs it. See --list.")
        if placeholder not in lines and flag.value is not None:
            raise ValueError(f"{flag.name}={flag.value}: this experiment does not need it. Leave it out.")
    if flags.FLAGS["jobs"].present and "rank4class sweep" not in lines:
        raise ValueError(f"jobs={_JOBS.value}: this experiment has no sweep. Leave it out.")


def _run(line: str) -> None:
    """Runs a command; raises SystemExit if it fails."""
    line = re.sub("|".join(_PLACEHOLDERS), lambda match: shlex.quote(_PLACEHOLDERS[match[0]].value), line)
    _, command, *arguments = shlex.split(line)
    if command == "sweep":
        arguments.append(f"--jobs={_JOBS.value}")
    print(f"$ {shlex.join(['rank4class', command, *arguments])}", flush=True)
    program = [sys.executable, "-m", "rank4class", command, *arguments]
    # In a new session, Ctrl-C does not reach it: it saves after the signal that it is sent below.
    process = subprocess.Popen(program, start_new_session=True)
    interrupts = []
    while process.poll() is None:
        try:
            process.wait()
        except KeyboardInterrupt as interrupt:
            process.terminate()  # a second signal ends it at once
            interrupts.append(interrupt)
    if interrupts:
        raise interrupts[0]
    code = process.returncode
    if code < 0:
        print(f"error: rank4class {command}: ended by {signal.Signals(-code).name}.", file=sys.stderr)
    if code:
        raise SystemExit(code if code > 0 else 128 - code)


if __name__ == "__main__":
    cli.run(main, resumes=True)
