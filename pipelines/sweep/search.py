"""The search for the values of tuned fields, with the same budget for each cell."""

import dataclasses
import itertools
import math
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from rank4class import losses
from rank4class.pipelines import config
from rank4class.pipelines.storage import files
from rank4class.pipelines.storage.run_directory import SEARCH, TUNING, write_json
from rank4class.pipelines.sweep import parallel, space
from rank4class.pipelines.sweep.parallel import GridRun

RANDOM_TRIALS = 10  # at most; then TPE proposes values
PROPOSALS = 100  # of a trial, at most, until one is new


@dataclasses.dataclass
class Trial:
    """A choice that is trained with each tuning seed, up to one that diverges."""

    choice: space.Choice
    values: dict[int, float] = dataclasses.field(default_factory=dict)  # by seed, NaN if it diverged

    @property
    def known(self) -> list[float]:
        """The values of the first seeds, up to one that diverged."""
        values = [value for _, value in sorted(self.values.items())]
        return list(itertools.takewhile(math.isfinite, values))

    @property
    def diverged(self) -> bool:
        """Whether a seed has diverged."""
        return any(map(math.isnan, self.values.values()))

    @property
    def mean(self) -> float:
        """The mean of the values; NaN if a seed has diverged."""
        return math.nan if self.diverged else sum(self.known) / len(self.values)


@dataclasses.dataclass(eq=False, kw_only=True)
class _TrialRun(GridRun):
    trial: Trial


class Search:
    """A search for the values of tuned fields of several cells, by name.

    All combinations are tried; if there are more than `num_trials`, TPE proposes as many choices for each
    cell, so that all cells get the same budget. The choices are a function of the outcomes before them, for
    any number of jobs, so that a killed search that is started again finds its finished runs.
    """

    def __init__(
        self,
        cells: Mapping[str, config.Experiment],
        tune: space.Tune,
        root: str,
        *,
        seeds: Sequence[int],
        num_trials: int | None,
    ):
        self._root, self._seeds, self._tune = root, tuple(seeds), dict(tune)
        choices = {name: space.combinations(cell, tune) for name, cell in cells.items()}
        self._fixed = {name: one[0] for name, one in choices.items() if len(one) == 1}
        self._cells = {name: cell for name, cell in cells.items() if name not in self._fixed}
        self._trials: dict[str, list[Trial]] = {name: [] for name in self._cells}
        # TPE proposes the choices of the other cells.
        self._choices = {
            name: choices[name] for name in self._cells if not self._is_sampled(choices[name], num_trials)
        }
        self._planned = {name: len(self._choices.get(name, ())) or num_trials or 0 for name in self._cells}

    def _is_sampled(self, choices: Sequence[space.Choice], num_trials: int | None) -> bool:
        has_range = any(isinstance(self._tune[field], space.Range) for one in choices for field in one)
        return num_trials is not None and (has_range or len(choices) > num_trials)

    def run(self, pool: parallel.Pool) -> None:
        """Trains all trials; prints the choices and warnings of values at a boundary.

        Raises FloatingPointError if all trials of a cell diverged, and the errors of `parallel.Pool.train`.
        """
        files.make_folder(self._root)
        while new := self._new_trials():
            for run, outcome in pool.train(self._runs(new)):
                if isinstance(outcome, ValueError):
                    raise outcome
                diverged = isinstance(outcome, Exception)
                value = math.nan if diverged else float(outcome["validation"][run.experiment.monitor])
                run.trial.values[run.experiment.seed] = value if math.isfinite(value) else math.nan
                pool.report(*self._progress(), run, outcome, "validation")
            write_json(os.path.join(self._root, SEARCH), self.summary())
        for name in self._cells:
            for note in self._notes(name):
                print(f"  {name}: {note}", flush=True)
        for name in self._cells:
            choice = (f"{field}={space.format_value(v)}" for field, v in self._best(name).choice.items())
            print(f"  {name}: chosen {', '.join(choice)}", flush=True)

    def choices(self) -> dict[str, space.Choice]:
        """Returns the choice of the best trial of each cell, the first of several."""
        return {**self._fixed, **{name: self._best(name).choice for name in self._cells}}

    def _new_trials(self) -> dict[str, list[Trial]]:
        """Adds the next trials: all combinations, or the random choices of TPE, then one of each cell."""
        new = {}
        for name, trials in self._trials.items():
            start, end = len(trials), self._planned[name]
            if name not in self._choices:
                end = min(end, max(start + 1, self._num_random(name)))
            for i in range(start, end):
                choice = self._choices[name][i] if name in self._choices else self._propose(name)
                if choice is None:
                    self._planned[name] = i
                    break
                trials.append(Trial(choice))
            if len(trials) > start:
                new[name] = trials[start:]
        return new

    def _runs(self, new: Mapping[str, Sequence[Trial]]) -> Iterator[_TrialRun]:
        """Yields the runs of trials, without those after a seed that has diverged."""
        for name, trials in new.items():
            for trial, seed in itertools.product(trials, self._seeds):
                if not trial.diverged:
                    folder = space.folder_name(name, trial.choice, seed)
                    experiment = space.apply(self._cells[name], {**trial.choice, "seed": seed})
                    yield _TrialRun(experiment, os.path.join(self._root, TUNING, folder), trial=trial)

    def _progress(self) -> tuple[int, int]:
        """Returns the number of runs that have ended or are left out, and of those that are planned."""
        trials = itertools.chain(*self._trials.values())
        ended = sum(len(self._seeds if trial.diverged else trial.values) for trial in trials)
        return ended, sum(self._planned.values()) * len(self._seeds)

    def _num_random(self, name: str) -> int:
        return min(RANDOM_TRIALS, math.ceil(self._planned[name] / 3))

    def _propose(self, name: str) -> space.Choice | None:
        """Returns a new choice that TPE proposes, a function of the trials before it; None without one."""
        trials, higher = self._trials[name], losses.get_metric(self._cells[name].monitor).higher_is_better
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = optuna.samplers.TPESampler(
                n_startup_trials=self._num_random(name),
                constant_liar=True,  # choices that are asked for again count as bad ones
                seed=int(files.sha256(f"{name} {len(trials)}")[:8], 16),
            )
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        study = optuna.create_study(direction="maximize" if higher else "minimize", sampler=sampler)
        study.add_trials([self._frozen(trial) for trial in trials if trial.values])
        tried = [trial.choice for trial in trials]
        for _ in range(PROPOSALS):
            choice = self._suggest(study.ask(), self._cells[name])
            if choice not in tried:
                return choice
        return None

    def _frozen(self, trial: Trial) -> FrozenTrial:
        return optuna.trial.create_trial(
            state=TrialState.PRUNED if trial.diverged else TrialState.COMPLETE,
            value=None if trial.diverged else trial.mean,
            params={field: _encoded(value, self._tune[field]) for field, value in trial.choice.items()},
            distributions={field: _distribution(self._tune[field]) for field in trial.choice},
        )

    def _suggest(self, asked: optuna.Trial, cell: config.Experiment) -> space.Choice:
        choice: space.Choice = {}
        for field in sorted(self._tune, key=lambda field: not space.is_name(field)):  # names first
            if config.has_field(space.apply(cell, choice), field):
                choice[field] = _suggested(asked, field, self._tune[field])
        return {field: choice[field] for field in self._tune if field in choice}

    def _best(self, name: str) -> Trial:
        """Returns the best complete trial of a cell, the first of several."""
        complete = [trial for trial in self._trials[name] if not trial.diverged]
        if not complete:
            tried = {field for trial in self._trials[name] for field in trial.choice}
            fields = ", ".join(field for field in self._tune if field in tried)
            raise FloatingPointError(f"{name}: diverges with all values of {fields}. Try other values.")
        higher = losses.get_metric(self._cells[name].monitor).higher_is_better
        return max(complete, key=lambda trial: trial.mean if higher else -trial.mean)

    def _notes(self, name: str) -> list[str]:
        """Returns a warning for each best value of a cell that is at a boundary of the values tried."""
        return [
            f"{field}={space.format_value(value)} is at the {end} end of the values tried: "
            "try values beyond it"
            for field, value in self._best(name).choice.items()
            if (end := space.boundary(self._tune[field], value))
        ]

    def summary(self) -> dict[str, Any]:
        """Returns the search as `docs/reference/files.md` describes `search.json`."""
        cells = []
        for name, trials in self._trials.items():
            best = None if all(trial.diverged for trial in trials) else self._best(name)
            entries = [
                {
                    "number": number,
                    "choice": trial.choice,
                    "values": trial.known,
                    "mean": trial.mean,
                    "state": "diverged" if trial.diverged else "complete",
                    "best": trial is best,
                }
                for number, trial in enumerate(trials)
            ]
            notes = self._notes(name) if best else []
            cells.append({"cell": name, "trials": entries, "notes": notes})
        sampled = self._cells.keys() - self._choices.keys()
        return {
            "sampler": "tpe" if sampled else "grid",
            "seeds": self._seeds,
            "fields": {field: space.text_of(values) for field, values in self._tune.items()},
            "monitor": next(iter(self._cells.values())).monitor,
            "fixed": self._fixed,
            "cells": cells,
        }


def _distribution(values: space.Values) -> optuna.distributions.BaseDistribution:
    """Returns the distribution of a field: of a list of numbers, that of their positions."""
    if isinstance(values, space.Range):
        if values.is_integer:
            return optuna.distributions.IntDistribution(int(values.low), int(values.high), values.is_log)
        return optuna.distributions.FloatDistribution(values.low, values.high, values.is_log)
    if space.is_numeric(values):
        return optuna.distributions.IntDistribution(0, len(values) - 1)
    return optuna.distributions.CategoricalDistribution(values)


def _encoded(value: Any, values: space.Values) -> Any:
    """Returns a value of a field as its distribution has it."""
    if isinstance(values, space.Range) or not space.is_numeric(values):
        return value
    return sorted(values).index(value)  # type: ignore[type-var]


def _suggested(asked: optuna.Trial, field: str, values: space.Values) -> space.Value:
    """Returns the value of a field that TPE proposes; see `_distribution`."""
    spread: Any = _distribution(values)
    if isinstance(spread, optuna.distributions.CategoricalDistribution):
        return asked.suggest_categorical(field, spread.choices)
    if isinstance(spread, optuna.distributions.FloatDistribution):
        exact = asked.suggest_float(field, spread.low, spread.high, log=spread.log)
        return min(max(float(f"{exact:.{space.DIGITS}g}"), spread.low), spread.high)
    drawn = asked.suggest_int(field, spread.low, spread.high, log=spread.log)
    return drawn if isinstance(values, space.Range) else sorted(values)[drawn]  # type: ignore[type-var]
