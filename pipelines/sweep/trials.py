"""The trials of a search, in a journal of Optuna's that several processes share."""

import dataclasses
import hashlib
import math
import os
import warnings
from collections.abc import Sequence
from typing import Any

import optuna
from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock
from optuna.trial import FrozenTrial, TrialState

from rank4class import losses
from rank4class.pipelines import config
from rank4class.pipelines.sweep import space

JOURNAL = "journal.log"
STARTUP_TRIALS = 5  # of a cell; after them, a trial may be pruned
RANDOM_TRIALS = 10  # at most; then TPE proposes values
PROPOSALS = 100  # of a trial, at most, until one is new
IMPORTANCE_TRIALS = 8  # at least, to estimate the importance of the fields
TOP = 0.25  # fraction of the trials that are the best ones for the importance


@dataclasses.dataclass(frozen=True)
class Trial:
    """A trial of a cell: a choice that is trained with each tuning seed in turn.

    Attributes:
      number: in the order of the trials of the cell, from 0.
      choice: the values of the tuned fields.
      values: the best validation value of each seed so far.
      state: "running", "complete", "pruned" or "diverged".
    """

    number: int
    choice: space.Choice
    values: tuple[float, ...]
    state: str

    @property
    def mean(self) -> float:
        """The mean of the values; NaN if there are none, or if a seed diverged."""
        return sum(self.values) / len(self.values) if self.values and self.state != "diverged" else math.nan

    @property
    def num_runs(self) -> int:
        """The number of runs that have ended."""
        return len(self.values) + (self.state == "diverged")


class Journal:
    """The file in which the studies of a search record their trials.

    Args:
      folder: of the file, on disk.

    Raises:
      ValueError: the file is damaged.
    """

    def __init__(self, folder: str):
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.path = os.path.join(folder, JOURNAL)
        try:
            lock = JournalFileSymlinkLock(self.path)
            _remove_incomplete_line(self.path, lock)
            self.storage = optuna.storages.JournalStorage(JournalFileBackend(self.path, lock))
        except (ValueError, KeyError) as error:
            raise ValueError(
                f"{self.path}: damaged ({error}). Remove it: the search repeats no finished run."
            ) from error


def _remove_incomplete_line(path: str, lock: JournalFileSymlinkLock) -> None:
    """Removes a record that a process could not write to its end; Optuna would write the next one onto it."""
    if not os.path.exists(path):
        return
    lock.acquire()
    try:
        with open(path, "rb+") as file:
            content = file.read()
            file.truncate(content.rfind(b"\n") + 1)
    finally:
        lock.release()


class Study:
    """The trials of one cell.

    Args:
      journal: of the search.
      name: of the cell.
      cell: the experiment of the cell.
      tune: tuned fields with their values, before they are widened.
      seeds: of the runs of each trial.
      search: identifies the search. Trials of other searches are never mixed with its own.
    """

    def __init__(
        self,
        journal: Journal,
        name: str,
        cell: config.Experiment,
        tune: space.Tune,
        seeds: Sequence[int],
        search: str,
    ):
        self.name, self._cell, self._tune, self._seeds = name, cell, tune, seeds
        higher = losses.get_metric(cell.monitor).higher_is_better
        self._study = optuna.create_study(
            storage=journal.storage,
            study_name=f"{name} {search}",
            direction="maximize" if higher else "minimize",
            pruner=optuna.pruners.MedianPruner(n_startup_trials=STARTUP_TRIALS),
            load_if_exists=True,
        )

    def trials(self) -> list[Trial]:
        """Returns all trials, in the order of their numbers."""
        return [_trial(frozen) for frozen in self._study.get_trials(deepcopy=False)]

    def add(self, choice: space.Choice, tune: space.Tune) -> Trial:
        """Adds a running trial of a choice of the tuned fields.

        Optuna's own grid sampler cannot do that: it draws from a grid that never becomes larger.
        """
        pairs = {field: (values, self._tune[field]) for field, values in tune.items()}
        created = optuna.trial.create_trial(
            state=TrialState.RUNNING,
            params={field: _encode(choice[field], *pairs[field]) for field in choice},
            distributions={field: _distribution(*pairs[field]) for field in choice},
            user_attrs={"choice": choice},
        )
        self._study.add_trial(created)
        return self.trials()[-1]

    def ask(self, tune: space.Tune, num_trials: int) -> Trial:
        """Adds a running trial with a choice that TPE proposes and that no trial has yet, if it finds one.

        The choice is a function of the cell, the number of the trial and the trials before it. The first
        third of the trials, at most `RANDOM_TRIALS`, are drawn uniformly.

        Args:
          tune: tuned fields with their values.
          num_trials: planned for the cell.
        """
        earlier = self._study.get_trials(deepcopy=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = optuna.samplers.TPESampler(
                n_startup_trials=min(RANDOM_TRIALS, math.ceil(num_trials / 3)),
                constant_liar=True,  # running trials count as bad ones, so that they are not proposed again
                seed=int(hashlib.sha256(f"{self.name} {len(earlier)}".encode()).hexdigest()[:8], 16),
            )
        proposals = optuna.create_study(direction=self._study.direction, sampler=sampler)  # in memory
        proposals.add_trials(earlier)
        tried = [trial.choice for trial in map(_trial, earlier)]
        for _ in range(PROPOSALS):
            choice = self._propose(proposals.ask(), tune)
            if choice not in tried:
                break
        return self.add(choice, tune)

    def _propose(self, asked: optuna.Trial, tune: space.Tune) -> space.Choice:
        choice: space.Choice = {}
        for field in sorted(tune, key=lambda field: not space.is_name(field)):  # names first
            if config.has_field(space.apply(self._cell, choice), field):
                choice[field] = _suggest(asked, field, tune[field], self._tune[field])
        return {field: choice[field] for field in tune if field in choice}

    def resumed(self, number: int) -> Trial:
        """Returns a trial that this process has claimed; ends it first if another process left that out."""
        trial = self.trials()[number]
        return self._settle(number) if trial.state == "running" and trial.values else trial

    def record(self, trial: Trial, value: float | None) -> Trial:
        """Records the value of the next seed of a running trial, None if it diverged; returns the trial.

        The trial ends after the last seed, or if it diverged. It is pruned if its means so far, after one
        seed, two and so on, are worse than the median of the cell's complete trials after as many seeds.
        """
        running = self._running(trial.number)
        if value is None:
            running.set_user_attr("diverged", True)
            # Not as a complete trial: the median that prunes others must not count it.
            self._study.tell(trial.number, state=TrialState.PRUNED)
            return self.trials()[trial.number]
        running.set_user_attr("values", [*trial.values, value])
        return self._settle(trial.number)

    def _settle(self, number: int) -> Trial:
        """Reports the mean of a trial's values, and ends the trial if it has all of them or is pruned."""
        trial, running = self.trials()[number], self._running(number)
        if len(trial.values) == len(self._seeds):
            self._study.tell(number, trial.mean)
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the mean has been reported before the process was killed
                running.report(trial.mean, step=len(trial.values))
            if running.should_prune():
                self._study.tell(number, state=TrialState.PRUNED)
        return self.trials()[number]

    def _running(self, number: int) -> optuna.Trial:
        return optuna.Trial(self._study, self._study.get_trials(deepcopy=False)[number]._trial_id)


def _trial(frozen: FrozenTrial) -> Trial:
    attributes = frozen.user_attrs
    state = {TrialState.COMPLETE: "complete", TrialState.PRUNED: "pruned"}.get(frozen.state, "running")
    if attributes.get("diverged"):
        state = "diverged"
    return Trial(frozen.number, attributes["choice"], tuple(attributes.get("values", ())), state)


def _distribution(values: space.Values, initial: space.Values) -> optuna.distributions.BaseDistribution:
    """Returns the distribution of a field: of a list of numbers, that of their positions, which may grow.

    Args:
      values: of the field.
      initial: its values before they were widened: the lowest of them has the position 0.
    """
    if isinstance(values, space.Range):
        is_log = bool(values.is_logarithmic)
        if values.is_integer:
            return optuna.distributions.IntDistribution(int(values.low), int(values.high), is_log)
        return optuna.distributions.FloatDistribution(values.low, values.high, is_log)
    if not space.is_numeric(values):
        return optuna.distributions.CategoricalDistribution(values)
    first = _first(values, initial)
    return optuna.distributions.IntDistribution(-first, len(values) - 1 - first)


def _first(values: Sequence[Any], initial: space.Values) -> int:
    """Returns the number of values below the initial ones."""
    return sorted(values).index(space.outermost(initial, "low"))


def _encode(value: Any, values: space.Values, initial: space.Values) -> Any:
    """Returns a value of a field as its distribution has it."""
    if isinstance(values, space.Range) or not space.is_numeric(values):
        return value
    return sorted(values).index(value) - _first(values, initial)  # type: ignore[type-var]


def _suggest(asked: optuna.Trial, field: str, values: space.Values, initial: space.Values) -> space.Value:
    """Returns the value of a field that TPE proposes; see `_distribution`."""
    spread: Any = _distribution(values, initial)
    if isinstance(spread, optuna.distributions.CategoricalDistribution):
        return asked.suggest_categorical(field, spread.choices)
    if isinstance(spread, optuna.distributions.IntDistribution):
        drawn = asked.suggest_int(field, spread.low, spread.high, log=spread.log)
        if isinstance(values, space.Range):
            return drawn
        return sorted(values)[drawn + _first(values, initial)]  # type: ignore[type-var]
    exact = asked.suggest_float(field, spread.low, spread.high, log=spread.log)
    return min(max(float(f"{exact:.{space.DIGITS}g}"), spread.low), spread.high)


def importance(trials: Sequence[Trial], tune: space.Tune, *, higher_is_better: bool) -> dict[str, float]:
    """Returns the importance of each field for a trial to be among the best quarter of a cell (PED-ANOVA).

    Args:
      trials: of the cell, all ended; a pruned one has the mean of fewer seeds, a diverged one is the worst.
      tune: tuned fields with all their values.
      higher_is_better: whether a higher mean is better.

    Returns:
      Field -> its fraction of the importance of all fields, the most important one first. Empty if fewer than
      two fields vary, or if there are fewer than `IMPORTANCE_TRIALS` trials.

    References:
      Watanabe et al., PED-ANOVA: Efficiently Quantifying Hyperparameter Importance in Arbitrary Subspaces,
      IJCAI 2023.
    """
    choices = [trial.choice for trial in trials]
    varied = [field for field in tune if len({choice[field] for choice in choices if field in choice}) > 1]
    if len(varied) < 2 or len(trials) < IMPORTANCE_TRIALS:
        return {}
    distributions = {
        field: _distribution(values, values)
        if isinstance(values, space.Range)
        else optuna.distributions.CategoricalDistribution(values)
        for field, values in tune.items()
    }
    means = [trial.mean for trial in trials]
    worst = min(filter(math.isfinite, means)) if higher_is_better else max(filter(math.isfinite, means))
    study = optuna.create_study(direction="maximize" if higher_is_better else "minimize")
    for choice, mean in zip(choices, means, strict=True):
        params = {field: value for field, value in choice.items() if field in varied}
        used = {field: distributions[field] for field in params}
        value = mean if math.isfinite(mean) else worst
        study.add_trial(optuna.trial.create_trial(value=value, params=params, distributions=used))
    evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=TOP)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of fields that few trials have
        return optuna.importance.get_param_importances(study, evaluator=evaluator)
