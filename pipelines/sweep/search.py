"""The search for the values of tuned fields: one study a cell, with the same budget for each."""

import contextlib
import dataclasses
import functools
import hashlib
import json
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rank4class import losses
from rank4class.pipelines import config
from rank4class.pipelines.evaluation import evaluator
from rank4class.pipelines.reporting import tables
from rank4class.pipelines.storage import files
from rank4class.pipelines.storage.claims import Claims
from rank4class.pipelines.storage.run_directory import TUNING, RunDirectory
from rank4class.pipelines.sweep import parallel, search_report, space, trials
from rank4class.progress import place, time_left


@dataclasses.dataclass(frozen=True, eq=False)
class _Run(parallel.Run):
    """A run of a trial.

    Attributes:
      cell: name of its cell.
      trial: the trial, as it was before the run.
      folder: relative to that of the grid.
    """

    cell: str
    trial: trials.Trial
    folder: str


class Search:
    """A search for the values of tuned fields of several cells.

    Each trial trains a choice of values with several tuning seeds; its value is the mean of their best
    validation values of the monitored metric. Without `num_trials` all combinations are tried. With it TPE
    proposes as many choices for each cell. A trial is pruned after a seed if its means so far are worse than
    the median of the cell's complete trials after as many seeds, once there are `trials.STARTUP_TRIALS` of
    them.

    Once all cells have these trials, each field of numbers is widened at an end where the best value of a
    cell is, for all cells that have the field: all get the same budget. Each combination with the new value
    is tried. Of TPE, half of `num_trials` are added; the first of them is the best choice so far with a new
    value of the field. That is repeated up to `widen` times.

    The trials are recorded in a journal, and a trial whose process was killed is taken up by the next process
    that finds it. Several processes may search together: they share the folder and have the same arguments.

    Args:
      cells: name -> experiment.
      tune: tuned fields and their values.
      root: folder of the grid, on disk.
      claims: of trials, in a folder of the search.
      seeds: tuning seeds.
      num_trials: number of trials of each cell; None tries all combinations of lists.
      widen: number of times that fields are widened, at most.

    Raises:
      ValueError: the folder is in object storage, or the journal is damaged.
    """

    def __init__(
        self,
        cells: Mapping[str, config.Experiment],
        tune: space.Tune,
        root: str,
        claims: Claims,
        *,
        seeds: Sequence[int],
        num_trials: int | None,
        widen: int,
    ):
        if not files.is_local(root):
            raise ValueError(
                f"workdir={root}: a search keeps its journal in a folder on disk. Choose such a folder."
            )
        self._root, self._claims, self._seeds = root, claims, tuple(seeds)
        self._cells, self._tune, self._num_trials = dict(cells), dict(tune), num_trials
        self._widen_limit, self._rounds = widen, 0
        self._added: list[dict[str, Any]] = []
        self._refused: dict[tuple[str, str], str] = {}  # field and end -> why it is not widened
        self._ready: list[_Run] = []  # the next seeds of claimed trials
        choices = {name: space.combinations(cell, tune) for name, cell in cells.items()}
        self._fixed = {
            name: combinations[0] for name, combinations in choices.items() if len(combinations) == 1
        }
        searched = {name: combinations for name, combinations in choices.items() if len(combinations) > 1}
        self._planned = {
            name: int(min(num_trials or len(combinations), self._num_choices(name)))
            for name, combinations in searched.items()
        }
        # Name -> number of a trial -> its choice; TPE proposes the others.
        self._choices = {
            name: {} if num_trials else dict(enumerate(combinations))
            for name, combinations in searched.items()
        }
        files.make_folder(os.path.join(root, TUNING))
        journal = trials.Journal(os.path.join(root, TUNING))
        digest = self._digest()
        self._studies = {
            name: trials.Study(journal, name, cells[name], tune, self._seeds, digest) for name in searched
        }
        self._started, (self._ended_before, _) = time.monotonic(), self._progress()

    def _digest(self) -> str:
        """Returns the hash of all that the trials of a cell depend on.

        That includes the other cells, since fields are widened for all of them, and the number of trials,
        since TPE's proposals depend on it.
        """
        cells = {name: config.to_json(cell) for name, cell in sorted(self._cells.items())}
        values = {field: repr(values) for field, values in self._tune.items()}
        text = json.dumps([cells, values, self._seeds, self._num_trials])
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def _num_choices(self, name: str) -> float:
        """Returns the number of different choices of a cell; infinite if a range has more than trials."""
        cell, tune = self._cells[name], dict(self._tune)
        for field in space.fields_of(cell, self._tune):
            values = tune[field]
            if isinstance(values, space.Range):
                if values.integers is None or len(values.integers) > (self._num_trials or 0):
                    return math.inf
                tune[field] = values.integers
        return len(space.combinations(cell, tune))

    def run(self, base: config.Experiment, jobs: int) -> None:
        """Trains all trials and prints the choices; returns when those of other processes have ended too.

        Args:
          base, jobs: see `parallel.train_all`.

        Raises:
          FloatingPointError: all trials of a cell diverged.
          OSError, Interrupted: see `parallel.train_all`.
        """
        most = sum(self._planned.values())
        with contextlib.closing(parallel.train_all(base, self._root, self._runs(), min(jobs, most))) as ended:
            for run, outcome in ended:
                self._record(run, outcome)
        for note in self._notes():
            print(f"  {note['cell']}: {note['text']}", flush=True)
        for name in self._studies:
            print(f"  {name}: chosen {search_report.format_choice(self._best(name).choice)}", flush=True)

    def choices(self) -> dict[str, space.Choice]:
        """Returns the choice of the best trial of each cell, the first of several."""
        return {**self._fixed, **{name: self._best(name).choice for name in self._studies}}

    def run_paths(self) -> list[str]:
        """Returns the folders of the runs of all trials that have ended."""
        return [
            os.path.join(self._root, TUNING, space.folder_name(name, trial.choice, seed))
            for name in self._studies
            for trial in self._first_trials(name)
            for seed in self._seeds[: trial.num_runs]
        ]

    def _runs(self) -> Iterator[_Run | None]:
        """Yields the runs of trials that this process has claimed; None while it has to wait for others."""
        while True:
            run = self._ready.pop(0) if self._ready else self._claim()
            if run is None and all(map(self._is_complete, self._studies)):
                if not self._widen():
                    return
            else:
                yield run

    def _claim(self) -> _Run | None:
        """Claims a trial that no process trains, or a new one of the cell with the fewest running trials."""
        with self._claims.exclusive():
            running = {name: self._running(name) for name in self._studies}
            for name, abandoned in running.items():
                for trial in abandoned:
                    if run := self._claimed_run(name, trial):
                        return run
            for name in sorted(self._studies, key=lambda name: len(running[name])):
                study = self._studies[name]
                while (number := len(study.trials())) < self._planned[name]:
                    if choice := self._choices[name].get(number):
                        trial = study.add(choice, self._tune)
                    else:
                        trial = study.ask(self._tune, self._planned[name])
                    if run := self._claimed_run(name, trial):
                        return run
        return None

    def _claimed_run(self, name: str, trial: trials.Trial) -> _Run | None:
        """Claims a running trial; returns its next run, or None if a process trains it or it has ended."""
        study = self._studies[name]
        if not self._claims.take(self._claim_name(name, trial)):
            return None
        trial = study.resumed(trial.number)
        if trial.state == "running":
            run = self._next_run(name, trial)
            if not RunDirectory(run.path).is_locked():
                return run
        self._claims.release(self._claim_name(name, trial))
        return None

    def _claim_name(self, name: str, trial: trials.Trial) -> str:
        """Returns the name of a trial's claim: trials of the same choice have the same folders."""
        return space.folder_name(name, trial.choice, self._seeds[0])

    def _next_run(self, name: str, trial: trials.Trial) -> _Run:
        seed = self._seeds[len(trial.values)]
        folder = os.path.join(TUNING, space.folder_name(name, trial.choice, seed))
        experiment = space.apply(self._cells[name], {**trial.choice, "seed": seed})
        return _Run(experiment, os.path.join(self._root, folder), name, trial, folder)

    def _record(self, run: _Run, outcome: parallel.Outcome) -> None:
        """Records the outcome of a run, and prints a line on it."""
        diverged = isinstance(outcome, FloatingPointError)
        value = None if diverged else float(outcome["validation"][run.experiment.monitor])
        shown = str(outcome) if diverged else f"validation {tables.one_line(outcome['validation'])}"
        if value is not None and not math.isfinite(value):
            value = None
        trial = self._studies[run.cell].record(run.trial, value)
        if trial.state == "running":
            self._ready.append(self._next_run(run.cell, trial))
        else:
            self._claims.release(self._claim_name(run.cell, trial))
        ended, planned = self._progress()
        suffix = ", pruned" if trial.state == "pruned" else ""
        left = time_left(time.monotonic() - self._started, ended - self._ended_before, planned - ended)
        print(f"{place(ended, planned, left)} {run.folder}: {shown}{suffix}", flush=True)

    def _progress(self) -> tuple[int, int]:
        """Returns the number of runs that have ended, and of those that are planned at the moment."""
        ended = planned = 0
        for name, study in self._studies.items():
            counts = [(trial.num_runs, trial.state == "running") for trial in study.trials()]
            ended += sum(count for count, _ in counts)
            planned += sum(len(self._seeds) if is_running else count for count, is_running in counts)
            planned += max(0, self._planned[name] - len(counts)) * len(self._seeds)
        return ended, planned

    def _first_trials(self, name: str) -> list[trials.Trial]:
        """Returns the trials of a cell up to the number that is planned at the moment."""
        return self._studies[name].trials()[: self._planned[name]]

    def _running(self, name: str) -> list[trials.Trial]:
        return [trial for trial in self._first_trials(name) if trial.state == "running"]

    def _is_complete(self, name: str) -> bool:
        return len(self._first_trials(name)) == self._planned[name] and not self._running(name)

    def _best(self, name: str) -> trials.Trial:
        """Returns the best complete trial of a cell, the first of several."""
        monitor = self._cells[name].monitor
        complete = [trial for trial in self._first_trials(name) if trial.state == "complete"]
        if not complete:
            fields = ", ".join(space.fields_of(self._cells[name], self._tune))
            raise FloatingPointError(f"{name}: diverges with all values of {fields}. Try other values.")
        return functools.reduce(
            lambda best, trial: trial if evaluator.better(monitor, trial.mean, best.mean) else best, complete
        )

    def _boundaries(self) -> dict[tuple[str, str], list[str]]:
        """Returns (field, end) -> cells whose best value is at that end of the field."""
        cells: dict[tuple[str, str], list[str]] = {}
        for name in self._studies:
            for field, value in self._best(name).choice.items():
                if end := space.boundary(self._tune[field], value):
                    cells.setdefault((field, end), []).append(name)
        return cells

    def _widen(self) -> bool:
        """Widens the fields with a best value at a boundary; returns whether there is more to try."""
        boundaries = self._boundaries()
        if self._rounds == self._widen_limit:
            return False
        inserted: dict[tuple[str, str], float] = {}
        for (field, end), names in sorted(boundaries.items()):  # in one order for any order of the cells
            wider = space.widen(self._tune[field], end)
            if refusal := self._refusal(field, wider, end):
                self._refused[field, end] = refusal
                continue
            inserted[field, end] = space.inserted(self._tune[field], wider, end)
            self._tune[field] = wider
            value = space.outermost(wider, end)
            self._added.append({"field": field, "value": value, "end": end, "cells": names})
            shown = search_report.format_value(value)
            print(f"  {field}: widened to {shown}, for {', '.join(names)}", flush=True)
        for name in self._studies:
            self._plan_more(name, inserted)
        self._rounds += 1
        return bool(inserted)

    def _plan_more(self, name: str, inserted: Mapping[tuple[str, str], float]) -> None:
        """Plans the trials of a cell after fields are widened.

        Args:
          name: of the cell.
          inserted: (field, end) -> a new value of the field.
        """
        cell, choices, planned = self._cells[name], self._choices[name], self._planned[name]
        if not {field for field, _ in inserted} & set(space.fields_of(cell, self._tune)):
            return
        if self._num_trials:
            best = self._best(name).choice
            probes = [{**best, field: value} for (field, _), value in inserted.items() if field in best]
            more = max(math.ceil(self._num_trials / 2), len(inserted))
            self._planned[name] = int(min(planned + more, self._num_choices(name)))
        else:
            known = list(choices.values())
            probes = [one for one in space.combinations(cell, self._tune) if one not in known]
            self._planned[name] += len(probes)
        choices.update(enumerate(probes, planned))

    def _refusal(self, field: str, wider: space.Values, end: str) -> str | None:
        """Returns why a field cannot be widened for all cells, or None if it can."""
        values = self._tune[field]
        if wider == values:
            is_list_with_none = not isinstance(values, space.Range) and None in values
            return "a list with none is not widened" if is_list_with_none else f"there is no {end}er value"
        new = {**self._tune, field: (space.outermost(wider, end),)}
        for cell in self._cells.values():
            for choice in space.combinations(cell, new):
                try:
                    config.check(space.apply(cell, choice))
                except ValueError as error:
                    return f"the next value is refused ({str(error).split('. ')[0]})"
        return None

    def _notes(self) -> list[dict[str, str]]:
        """Returns a note for each best value at a boundary: which it is, and why it was not widened."""
        notes = []
        for (field, end), names in self._boundaries().items():
            reason = self._refused.get((field, end), f"--widen={self._widen_limit} allows no more values")
            for name in names:
                value = search_report.format_value(self._best(name).choice[field])
                text = f"{field}={value} is at the {end} end of the values tried: {reason}"
                notes.append({"cell": name, "text": text})
        return notes

    def summary(self) -> dict[str, Any]:
        """Returns the search for a report, as JSON can hold it: see `search_report.search_blocks`."""
        notes = self._notes()
        cells = []
        for name in self._studies:
            tried, best = self._first_trials(name), self._best(name)
            monitor = losses.get_metric(self._cells[name].monitor)
            cells.append(
                {
                    "cell": name,
                    "trials": [
                        {**dataclasses.asdict(trial), "mean": trial.mean, "best": trial == best}
                        for trial in tried
                    ],
                    "runs": sum(trial.num_runs for trial in tried),
                    "notes": [note["text"] for note in notes if note["cell"] == name],
                    "importance": trials.importance(
                        tried, self._tune, higher_is_better=monitor.higher_is_better
                    ),
                }
            )
        return {
            "sampler": "tpe" if self._num_trials else "grid",
            "seeds": self._seeds,
            "fields": {field: space.text_of(values) for field, values in self._tune.items()},
            "added": self._added,
            "widen": self._widen_limit,
            "monitor": next(iter(self._cells.values())).monitor,
            "startup_trials": trials.STARTUP_TRIALS,
            "fixed": self._fixed,
            "cells": cells,
        }
