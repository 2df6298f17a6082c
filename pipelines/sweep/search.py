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


class _Cell:
    """The trials of a cell: all combinations, or as many as TPE proposes if there are more."""

    def __init__(self, name: str, experiment: config.Experiment, tune: space.Tune, num_trials: int | None):
        self.name = name
        self.experiment = experiment
        self._tune = tune
        self.choices = space.combinations(experiment, tune)
        has_range = any(isinstance(tune[field], space.Range) for one in self.choices for field in one)
        self.is_sampled = num_trials is not None and (has_range or len(self.choices) > num_trials)
        self.planned = num_trials if self.is_sampled and num_trials else len(self.choices)
        self._num_random = min(RANDOM_TRIALS, math.ceil(self.planned / 3))
        self._higher = losses.get_metric(experiment.monitor).higher_is_better
        self.trials: list[Trial] = []

    def new_trials(self) -> list[Trial]:
        """Adds and returns the next trials: all combinations, or random choices of TPE, and then one."""
        start = len(self.trials)
        end = self.planned
        if self.is_sampled:
            end = min(end, max(start + 1, self._num_random))
        for i in range(start, end):
            choice = self._propose() if self.is_sampled else self.choices[i]
            if choice is None:
                self.planned = i
                break
            self.trials.append(Trial(choice))
        return self.trials[start:]

    def _propose(self) -> space.Choice | None:
        """Returns a new choice that TPE proposes, a function of the trials before it; None without one."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = optuna.samplers.TPESampler(
                n_startup_trials=self._num_random,
                constant_liar=True,  # choices that are asked for again count as bad ones
                seed=int(files.sha256(f"{self.name} {len(self.trials)}")[:8], 16),
            )
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        study = optuna.create_study(direction="maximize" if self._higher else "minimize", sampler=sampler)
        study.add_trials([self._frozen(trial) for trial in self.trials if trial.values])
        tried = [trial.choice for trial in self.trials]
        for _ in range(PROPOSALS):
            choice = self._suggest(study.ask())
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

    def _suggest(self, asked: optuna.Trial) -> space.Choice:
        choice: space.Choice = {}
        for field in sorted(self._tune, key=lambda field: not space.is_name(field)):  # names first
            if config.has_field(space.apply(self.experiment, choice), field):
                choice[field] = _suggested(asked, field, self._tune[field])
        return {field: choice[field] for field in self._tune if field in choice}

    def best(self) -> Trial | None:
        """Returns the best complete trial, the first of several; None if all have diverged."""
        complete = [trial for trial in self.trials if not trial.diverged]
        return max(complete, key=lambda one: one.mean if self._higher else -one.mean, default=None)

    def choice(self) -> space.Choice:
        """Returns the only choice, or that of the best trial; FloatingPointError if all have diverged."""
        if len(self.choices) == 1:
            return self.choices[0]
        if best := self.best():
            return best.choice
        tried = {field for trial in self.trials for field in trial.choice}
        fields = ", ".join(field for field in self._tune if field in tried)
        raise FloatingPointError(f"{self.name}: diverges with all values of {fields}. Try other values.")

    def notes(self) -> list[str]:
        """Returns a warning for each best value at a boundary of the values tried."""
        best = self.best()
        return [
            f"{field}={space.format_value(value)} is at the {end} end of the values tried: "
            "try values beyond it"
            for field, value in (best.choice.items() if best else ())
            if (end := space.boundary(self._tune[field], value))
        ]

    def summary(self) -> dict[str, Any]:
        """Returns an entry of "cells" in `search.json`."""
        best = self.best()
        trials = [
            {
                "number": number,
                "choice": trial.choice,
                "values": trial.known,
                "mean": trial.mean,
                "state": "diverged" if trial.diverged else "complete",
                "best": trial is best,
            }
            for number, trial in enumerate(self.trials)
        ]
        return {"cell": self.name, "trials": trials, "notes": self.notes()}


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
        self._root = root
        self._seeds = tuple(seeds)
        self._tune = dict(tune)
        self._all = [_Cell(name, cell, tune, num_trials) for name, cell in cells.items()]
        self._cells = [cell for cell in self._all if len(cell.choices) > 1]

    def run(self, pool: parallel.Pool) -> dict[str, space.Choice]:
        """Trains all trials; prints and returns the choices, and prints warnings of values at a boundary.

        Raises FloatingPointError if all trials of a cell diverged, and the errors of `parallel.Pool.train`.
        """
        files.make_folder(self._root)
        files.remove([os.path.join(self._root, SEARCH)])  # of an earlier sweep
        while new := [(cell, trials) for cell in self._cells if (trials := cell.new_trials())]:
            for run, outcome in pool.train(self._runs(new)):
                if isinstance(outcome, ValueError):
                    raise outcome
                diverged = isinstance(outcome, Exception)
                value = math.nan if diverged else float(outcome["validation"][run.experiment.monitor])
                run.trial.values[run.experiment.seed] = value if math.isfinite(value) else math.nan
                pool.report(*self._progress(), run, outcome, "validation")
            write_json(os.path.join(self._root, SEARCH), self.summary())
        choices = self.choices()
        for cell in self._cells:
            for note in cell.notes():
                print(f"  {cell.name}: {note}", flush=True)
        for cell in self._cells:
            chosen = (f"{field}={space.format_value(v)}" for field, v in choices[cell.name].items())
            print(f"  {cell.name}: chosen {', '.join(chosen)}", flush=True)
        return choices

    def choices(self) -> dict[str, space.Choice]:
        """Returns the choice of the best trial of each cell, the first of several."""
        return {cell.name: cell.choice() for cell in self._all}

    def _runs(self, new: Sequence[tuple[_Cell, Sequence[Trial]]]) -> Iterator[_TrialRun]:
        """Yields the runs of trials, without those after a seed that has diverged."""
        for cell, trials in new:
            for trial, seed in itertools.product(trials, self._seeds):
                if not trial.diverged:
                    folder = space.folder_name(cell.name, trial.choice, seed)
                    experiment = space.apply(cell.experiment, {**trial.choice, "seed": seed})
                    yield _TrialRun(experiment, os.path.join(self._root, TUNING, folder), trial=trial)

    def _progress(self) -> tuple[int, int]:
        """Returns the number of runs that have ended or are left out, and of those that are planned."""
        trials = itertools.chain(*(cell.trials for cell in self._cells))
        ended = sum(len(self._seeds if trial.diverged else trial.values) for trial in trials)
        return ended, sum(cell.planned for cell in self._cells) * len(self._seeds)

    def summary(self) -> dict[str, Any]:
        """Returns the search as `docs/reference/files.md` describes `search.json`."""
        return {
            "sampler": "tpe" if any(cell.is_sampled for cell in self._cells) else "grid",
            "seeds": self._seeds,
            "fields": {field: space.text_of(values) for field, values in self._tune.items()},
            "monitor": self._cells[0].experiment.monitor,
            "fixed": {cell.name: cell.choices[0] for cell in self._all if cell not in self._cells},
            "cells": [cell.summary() for cell in self._cells],
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
