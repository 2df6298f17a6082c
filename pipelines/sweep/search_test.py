"""The search, with runs whose results are a formula in place of a training."""

import math
import os
import re
from concurrent.futures import Future

import pytest

from rank4class.pipelines import config
from rank4class.pipelines.storage.run_directory import SEARCH
from rank4class.pipelines.sweep import parallel, report, space
from rank4class.pipelines.sweep.search import Search

RATE = "optimizer.learning_rate"
SEEDS = (10_000, 10_001, 10_002)


class Killed(Exception):
    """Stands for a process that is killed."""


def rate_of(experiment):
    return experiment.optimizer.learning_rate


class FormulaPool(parallel.Pool):
    """Trains nothing: the validation value is a formula of the experiment, NaN for a run that diverges.

    The process is killed instead of run number `killed`.
    """

    def __init__(self, root, value_of, finished, jobs, killed):
        super().__init__(root, None, jobs, None)
        self._value_of = value_of
        self._finished = finished
        self._killed = killed
        self.started = []

    def _submit(self, run, draw):
        if len(self.started) == self._killed:
            raise Killed
        self.started.append(os.path.basename(run.path))
        value = self._value_of(run.experiment)
        future = Future()
        if isinstance(value, ValueError):
            future.set_result(value)
        elif math.isnan(value):
            future.set_result(FloatingPointError(f"{run.path} diverged"))
        else:
            self._finished[run.path] = {"validation": {"ndcg@5": value}}
            future.set_result(self._finished[run.path])
        return future

    def _ended(self, futures):
        return [next(iter(futures))]

    def check_data(self, run):
        pass


@pytest.fixture
def finished(monkeypatch):
    """The results of finished runs, by folder."""
    results = {}
    monkeypatch.setattr(parallel, "stored_results", lambda run: results.get(run.path))
    return results


@pytest.fixture
def search(tmp_path, finished):
    """Returns a function that searches; it returns the search and the folders that it trained, in order."""

    def run(value_of, tune, jobs=1, killed=math.inf, losses=("mse",), seeds=SEEDS, num_trials=None):
        pool = FormulaPool(str(tmp_path), value_of, finished, jobs, killed)
        cells = {loss: config.override(config.Experiment(), {"loss.name": loss}) for loss in losses}
        made = Search(cells, tune, str(tmp_path), seeds=seeds, num_trials=num_trials)
        try:
            made.run(pool)
        except Killed:
            return None, pool.started
        return made, pool.started

    return run


def test_the_mean_over_the_seeds_chooses(search, capsys):
    values = {0.1: (50, 50, 50), 0.2: (90, 20, 20), 0.3: (40, 60, 53), 0.4: (51, 51, 51)}
    tune = {RATE: tuple(values)}

    def value_of(experiment):
        return float(values[rate_of(experiment)][experiment.seed - SEEDS[0]])

    made, started = search(value_of, tune)
    assert made.choices() == {"mse": {RATE: 0.3}}
    assert started == [f"mse-{RATE}={rate}-seed{seed}" for rate in values for seed in SEEDS]
    printed = capsys.readouterr().out
    assert re.search(
        rf"\[  1/12(, .* left)?\] tuning/mse-{RATE}=0.1-seed10000: validation ndcg@5 50.00%\n", printed
    )
    assert f"[ 12/12] tuning/mse-{RATE}=0.4-seed10002: validation ndcg@5 51.00%\n" in printed
    assert printed.endswith(f"\n  mse: chosen {RATE}=0.3\n")
    (cell,) = made.summary()["cells"]
    assert [trial["mean"] for trial in cell["trials"]] == [50, 130 / 3, 51, 51]
    assert [trial["best"] for trial in cell["trials"]] == [False, False, True, False]  # the first of two


def test_a_diverged_run_ends_its_trial(search):
    rates = (0.1, 0.2, 0.3)

    def value_of(experiment):
        return math.nan if (rate_of(experiment), experiment.seed) == (0.3, 10_001) else rate_of(experiment)

    made, started = search(value_of, {RATE: rates})
    assert made.choices() == {"mse": {RATE: 0.2}}
    assert len(started) == 8
    last = made.summary()["cells"][0]["trials"][-1]
    assert (last["state"], last["values"]) == ("diverged", [0.3])
    with pytest.raises(FloatingPointError, match=f"^mse: diverges with all values of {RATE}. Try other"):
        search(lambda _: math.nan, {RATE: (1.0, 2.0)})


BEST = {"mse": 0.8, "softmax": 0.1}


def peak(experiment):
    """The value is best at the cell's rate, and lower by 1 for each factor of 2."""
    return 50 - abs(math.log2(rate_of(experiment) / BEST[experiment.loss.name]))


def test_a_value_that_the_data_refuse_ends_the_search(search):
    def value_of(experiment):
        rate = rate_of(experiment)
        return ValueError("optimizer.learning_rate: too many") if rate > 0.3 else rate

    with pytest.raises(ValueError, match="too many"):
        search(value_of, {RATE: (0.2, 0.4)}, seeds=[0])


def test_cells_have_equal_budgets_of_the_fields_that_they_have(search):
    tune = {RATE: (0.1, 0.2), "loss.temperature": (1.0, 2.0)}
    made, _ = search(lambda _: 1.0, tune, losses=("mse", "softmax"), seeds=SEEDS[:1])
    assert [len(cell["trials"]) for cell in made.summary()["cells"]] == [2, 4]  # mse has no temperature
    made, _ = search(
        lambda _: 1.0, {"loss.temperature": (1.0, 2.0)}, losses=("mse", "softmax"), seeds=SEEDS[:1]
    )
    assert made.choices() == {"mse": {}, "softmax": {"loss.temperature": 1.0}}


def table_rows(block):
    """Returns the cells of a table in Markdown without the line below its header."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()]
    return [lines[0], *lines[2:]]


def test_the_report_by_hand(search):
    def value_of(experiment):
        name = experiment.loss.name
        temperature = getattr(experiment.loss, "temperature", None)
        if (name, temperature, experiment.seed) == ("approx_ndcg", 4.0, 10_001):
            return math.nan
        best = 80 + temperature if name == "softmax" else 90 - (temperature - 2) ** 2
        return best + experiment.seed - 10_000

    losses = ("softmax", "approx_ndcg", "mse")
    field = "loss.temperature"
    made, _ = search(value_of, {field: (1.0, 2.0, 4.0, 8.0)}, losses=losses, seeds=SEEDS[:2])
    title, text, values, trials = report.search_blocks(made.summary())
    assert title == "## Search"
    assert text.startswith(
        "All combinations of the values, each trained with the seeds 10000, 10001, which no final run has. "
        "The value of a trial is the mean of the best validation ndcg@5 of the seeds. Diverged "
    )
    assert values.splitlines() == [
        "- loss.temperature: 1, 2, 4, 8",
        "- softmax: loss.temperature=8 is at the high end of the values tried: try values beyond it.",
        "- mse has one choice: nothing to search.",
    ]
    header, *rows = table_rows(trials)
    assert header == ["cell", "trial", field, "seed 10000", "seed 10001", "mean", "state"]
    assert rows[3:] == [
        ["softmax", "3", "8", "88.00", "89.00", "88.50", "best"],
        ["approx_ndcg", "0", "1", "89.00", "90.00", "89.50", "complete"],
        ["approx_ndcg", "1", "2", "90.00", "91.00", "90.50", "best"],
        ["approx_ndcg", "2", "4", "86.00", "-", "-", "diverged"],
        ["approx_ndcg", "3", "8", "54.00", "55.00", "54.50", "complete"],
    ]
    made, _ = search(bumpy, {RATE: RANGES[RATE], field: (1.0,)}, num_trials=2, losses=losses)
    text = report.search_blocks(made.summary())[1:]
    assert text[0].startswith("Choices proposed by TPE, each trained with the seeds")
    assert table_rows(text[-1])[-1][:2] == ["mse", "1"]
    assert table_rows(text[-1])[-1][3] == "-"  # mse has no temperature


RANGES = {RATE: space.Range(0.001, 1.0), "batch_size": (8, 16, 32), "optimizer.name": ("adam", "adagrad")}


def bumpy(experiment):
    """A value of the choice and the seed."""
    rate = math.log10(rate_of(experiment))
    batch_size = math.log2(experiment.batch_size)
    bonus = 0.3 * (experiment.optimizer.name == "adagrad")
    return 50 - (rate + 1.6) ** 2 - 0.1 * (batch_size - 4) ** 2 + bonus + 0.1 * (experiment.seed % 3)


@pytest.mark.parametrize("tune", [RANGES, {RATE: tuple(0.001 * 2**i for i in range(8))}])
@pytest.mark.parametrize("killed", [1, 19])
def test_a_killed_search_goes_on_as_if_it_had_not_been(search, finished, tmp_path, tune, killed):
    options = {"tune": tune, "num_trials": 8 if tune is RANGES else None}
    _, before = search(bumpy, **options, killed=killed)
    resumed, after = search(bumpy, **options)
    (tmp_path / SEARCH).unlink()
    finished.clear()
    undisturbed, started = search(bumpy, **options)
    assert [*before, *after] == started
    assert resumed.summary() == undisturbed.summary()
    assert search(bumpy, **options)[1] == []  # nothing is left to do


@pytest.mark.parametrize(
    ("tune", "num_trials", "jobs", "expected"),
    [
        *(({RATE: (0.1, 0.2, 0.3), "epochs": (1.0, 2.0)}, count, 1, min(count, 6)) for count in (5, 6, 9)),
        ({RATE: space.Range(0.1, 0.1001)}, 6, 6, 2),  # only these two have the digits that are tried
        ({"batch_size": space.Range(8, 12)}, 10, 1, 5),
    ],
)
def test_no_choice_is_trained_twice(search, tune, num_trials, jobs, expected):
    made, started = search(lambda _: 1.0, tune, num_trials=num_trials, seeds=SEEDS[:1], jobs=jobs)
    (cell,) = made.summary()["cells"]
    assert len(set(started)) == len(started) == len(cell["trials"]) == expected


@pytest.mark.parametrize("tune", [RANGES, {RATE: (0.1, 0.2, 0.3)}])
def test_jobs_do_not_change_the_choices(search, finished, tune):
    options = {"tune": tune, "num_trials": 8, "losses": ("mse", "softmax")}

    def value_of(experiment):
        return math.nan if rate_of(experiment) == 0.2 else bumpy(experiment)

    one, started = search(value_of, **options)
    finished.clear()
    three, started_together = search(value_of, **options, jobs=3)
    assert one.summary() == three.summary()
    assert set(started) <= set(started_together)


def test_other_values_or_seeds_are_another_study(search):
    search(peak, {RATE: (0.1, 0.2)})
    made, started = search(peak, {RATE: (0.1, 0.2, 0.4)})
    assert len(started) == 3  # no finished run is repeated
    made, _ = search(peak, {RATE: (0.1, 0.2)}, seeds=SEEDS[:2])
    assert [trial["values"] for trial in made.summary()["cells"][0]["trials"]] == [[47.0, 47.0], [48.0, 48.0]]
