"""The search, with runs whose results are a formula in place of a training."""

import dataclasses
import itertools
import math
import os
import re

import pytest

from rank4class.pipelines import config
from rank4class.pipelines.storage.claims import Claims
from rank4class.pipelines.sweep import parallel, space, trials
from rank4class.pipelines.sweep import search as tuning

RATE = "optimizer.learning_rate"
SEEDS = (10_000, 10_001, 10_002)


class Killed(Exception):
    """Stands for a process that is killed."""


def cells(*losses):
    return {loss: config.override(config.Experiment(), {"loss.name": loss}) for loss in losses}


def rate_of(experiment):
    return experiment.optimizer.learning_rate


@pytest.fixture
def search(tmp_path, monkeypatch):
    """Returns a function that searches; it returns the search and the folders that it trained, in order.

    The function `value_of` of an experiment is the validation value, NaN for a run that diverges. The
    process is killed instead of run number `killed`.
    """

    def run(value_of, tune, jobs=1, killed=math.inf, losses=("mse",), seeds=SEEDS, num_trials=None, widen=0):
        started = []

        def train_all(base, cache_dir, runs, jobs):
            running = []
            for run in runs:
                if run is not None:
                    if len(started) == killed:
                        raise Killed
                    started.append(os.path.basename(run.folder))
                    running.append(run)
                if len(running) == jobs or run is None:
                    ended = running.pop(0)
                    value = value_of(ended.experiment)
                    diverged = FloatingPointError(f"{ended.path} diverged")
                    yield ended, diverged if math.isnan(value) else {"validation": {"ndcg@5": value}}

        monkeypatch.setattr(parallel, "train_all", train_all)
        options = {"seeds": seeds, "num_trials": num_trials, "widen": widen}
        with Claims(str(tmp_path / "tuning")) as claims:
            made = tuning.Search(cells(*losses), tune, str(tmp_path), claims, **options)
            try:
                made.run(config.Experiment(), jobs)
            except Killed:
                return None, started
            assert not list((tmp_path / "tuning").glob(".mse*.claim"))
        return made, started

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
    assert f"[  1/12] tuning/mse-{RATE}=0.1-seed10000: validation ndcg@5 50.00%\n" in printed
    assert f"[ 12/12] tuning/mse-{RATE}=0.4-seed10002: validation ndcg@5 51.00%\n" in printed
    assert printed.endswith(f"\n  mse: chosen {RATE}=0.3\n")
    (cell,) = made.summary()["cells"]
    assert [trial["mean"] for trial in cell["trials"]] == [50, 130 / 3, 51, 51]
    assert [trial["best"] for trial in cell["trials"]] == [False, False, True, False]  # the first of two


def test_trials_are_pruned_below_the_median(search, capsys):
    rates = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
    made, started = search(lambda experiment: 100 * rate_of(experiment) % 65, {RATE: rates})
    # Values 10, ..., 60 and 5. The sixth is above the median of the first five, 30, the last one below 35.
    (cell,) = made.summary()["cells"]
    assert [trial["state"] for trial in cell["trials"]] == ["complete"] * 6 + ["pruned"]
    assert cell["trials"][-1]["values"] == pytest.approx((5.0,))
    assert cell["runs"] == len(started) == 6 * 3 + 1
    printed = capsys.readouterr().out
    assert re.search(r"\[ 19/19\] tuning/mse-.*=0.7-seed10000: validation ndcg@5 5.00%, pruned\n", printed)
    assert "[ 18/21]" in printed


def test_a_trial_with_a_mean_above_the_median_goes_on(search):
    values = {rate: (10.0, 10.0, 10.0) for rate in (0.1, 0.2, 0.3, 0.4, 0.5)}
    values |= {0.6: (12.0, 2.0, 2.0), 0.7: (9.0, 90.0, 90.0)}

    def value_of(experiment):
        return values[rate_of(experiment)][experiment.seed - SEEDS[0]]

    made, _ = search(value_of, {RATE: tuple(values)})
    *_, sixth, seventh = made.summary()["cells"][0]["trials"]
    assert (sixth["state"], sixth["values"]) == ("complete", (12.0, 2.0, 2.0))
    assert (seventh["state"], seventh["values"]) == ("pruned", (9.0,))


def test_a_diverged_run_ends_its_trial(search):
    rates = (0.1, 0.2, 0.3)

    def value_of(experiment):
        return math.nan if (rate_of(experiment), experiment.seed) == (0.3, 10_001) else rate_of(experiment)

    made, started = search(value_of, {RATE: rates})
    assert made.choices() == {"mse": {RATE: 0.2}}
    assert len(started) == 8
    last = made.summary()["cells"][0]["trials"][-1]
    assert (last["state"], last["values"]) == ("diverged", (0.3,))
    with pytest.raises(
        FloatingPointError, match=f"^mse: diverges with all values of {RATE}. Try other values."
    ):
        search(lambda _: math.nan, {RATE: (1.0, 2.0)})


def test_diverged_trials_do_not_prune_others(search):
    """The best trials after one seed diverge; the last trial is below them there, but the only one to end."""
    rates = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)

    def value_of(experiment):
        if rate_of(experiment) == 0.6:
            return 40.0
        return 50.0 if experiment.seed == SEEDS[0] else math.nan

    made, _ = search(value_of, {RATE: rates})
    assert made.choices() == {"mse": {RATE: 0.6}}
    states = [trial["state"] for trial in made.summary()["cells"][0]["trials"]]
    assert states == ["diverged"] * 5 + ["complete"]


BEST = {"mse": 0.8, "softmax": 0.1}


def peak(experiment):
    """The value is best at the cell's rate, and lower by 1 for each factor of 2."""
    return 50 - abs(math.log2(rate_of(experiment) / BEST[experiment.loss.name]))


def test_a_field_is_widened_for_all_cells(search, capsys):
    made, started = search(peak, {RATE: (0.05, 0.1, 0.2)}, losses=tuple(BEST), widen=3)
    assert made.choices() == {"mse": {RATE: 0.8}, "softmax": {RATE: 0.1}}
    printed = capsys.readouterr().out
    for value in ("0.4", "0.8", "1.6"):
        assert f"  {RATE}: widened to {value}, for mse\n" in printed
    summary = made.summary()
    assert summary["added"] == [
        {"field": RATE, "value": value, "end": "high", "cells": ["mse"]} for value in (0.4, 0.8, 1.6)
    ]
    assert summary["fields"] == {RATE: "0.05, 0.1, 0.2, 0.4, 0.8, 1.6"}
    for cell in summary["cells"]:
        assert [trial["choice"][RATE] for trial in cell["trials"]] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6]
        assert cell["notes"] == []
    assert summary["cells"][1]["trials"][5]["state"] == "pruned"  # the worst one
    assert len(started) == 6 * 3 + 5 * 3 + 1


@pytest.mark.parametrize(("widen", "rates"), [(0, (0.05, 0.1)), (1, (0.05, 0.1, 0.2))])
def test_a_best_value_that_stays_at_the_boundary_is_reported(search, capsys, widen, rates):
    made, _ = search(peak, {RATE: (0.05, 0.1)}, losses=tuple(BEST), widen=widen)
    note = f"{RATE}={rates[-1]} is at the high end of the values tried: --widen={widen} allows no more values"
    assert [cell["notes"] for cell in made.summary()["cells"]] == [[note], [note] if widen == 0 else []]
    assert f"  mse: {note}\n" in capsys.readouterr().out


def test_a_boundary_that_the_config_refuses_is_reported(search):
    made, started = search(lambda one: 100 * one.encoder.dropout, {"encoder.dropout": (0.4, 0.8)}, widen=3)
    (cell,) = made.summary()["cells"]
    assert len(started) == 6
    assert cell["notes"] == [
        "encoder.dropout=0.8 is at the high end of the values tried: the next value is refused "
        "(encoder.dropout=1.6: not in [0, 1))"
    ]


def test_a_list_with_none_is_not_widened(search):
    made, started = search(
        lambda one: one.optimizer.clip_norm or 0.0, {"optimizer.clip_norm": (None, 1.0, 2.0)}, widen=3
    )
    (cell,) = made.summary()["cells"]
    assert len(started) == 9
    assert cell["notes"] == [
        "optimizer.clip_norm=2 is at the high end of the values tried: a list with none is not widened"
    ]


def test_only_combinations_with_new_values_are_added(search):
    made, started = search(
        lambda one: 10 + rate_of(one) - 1 / one.batch_size,
        {RATE: (0.1, 0.2), "batch_size": (8, 16)},
        seeds=SEEDS[:1],
        widen=1,
    )
    (cell,) = made.summary()["cells"]
    pairs = [(trial["choice"][RATE], trial["choice"]["batch_size"]) for trial in cell["trials"]]
    assert pairs[:4] == [(0.1, 8), (0.1, 16), (0.2, 8), (0.2, 16)]
    assert sorted(pairs[4:]) == [(0.1, 32), (0.2, 32), (0.4, 8), (0.4, 16), (0.4, 32)]
    assert len(started) == 9


def test_fields_without_an_order(search):
    tune = {
        "optimizer.name": ("adam", "adamw"),
        "optimizer.weight_decay": (0.1, 0.2),
        "jit_compile": (False, True),
    }
    made, started = search(lambda one: len(one.optimizer.name) + one.jit_compile, tune, seeds=SEEDS[:1])
    assert len(started) == 2 + 2 * 2
    choice = {"optimizer.name": "adamw", "optimizer.weight_decay": 0.1, "jit_compile": True}
    assert made.choices() == {"mse": choice}


def test_cells_have_equal_budgets_of_the_fields_that_they_have(search):
    tune = {RATE: (0.1, 0.2), "loss.temperature": (1.0, 2.0)}
    made, _ = search(lambda _: 1.0, tune, losses=("mse", "softmax"), seeds=SEEDS[:1])
    assert [len(cell["trials"]) for cell in made.summary()["cells"]] == [2, 4]  # mse has no temperature
    made, _ = search(
        lambda _: 1.0, {"loss.temperature": (1.0, 2.0)}, losses=("mse", "softmax"), seeds=SEEDS[:1]
    )
    assert made.choices() == {"mse": {}, "softmax": {"loss.temperature": 1.0}}
    assert made.summary()["fixed"] == {"mse": {}}


RANGES = {RATE: space.Range(0.001, 1.0), "batch_size": (8, 16, 32), "optimizer.name": ("adam", "adagrad")}


def bumpy(experiment):
    """A value of the choice and the seed."""
    rate, batch_size = math.log10(rate_of(experiment)), math.log2(experiment.batch_size)
    bonus = 0.3 * (experiment.optimizer.name == "adagrad")
    return 50 - (rate + 1.6) ** 2 - 0.1 * (batch_size - 4) ** 2 + bonus + 0.1 * (experiment.seed % 3)


@pytest.mark.parametrize("tune", [RANGES, {RATE: tuple(0.001 * 2**i for i in range(8))}])
@pytest.mark.parametrize("killed", [1, 5, 17, 19])
def test_a_killed_search_goes_on_as_if_it_had_not_been(search, tmp_path, tune, killed):
    options = {"tune": tune, "num_trials": 8 if tune is RANGES else None, "widen": 1}
    _, before = search(bumpy, **options, killed=killed)
    resumed, after = search(bumpy, **options)
    os.rename(tmp_path / "tuning", tmp_path / "first")
    undisturbed, started = search(bumpy, **options)
    assert [*before, *after] == started
    assert resumed.summary() == undisturbed.summary()
    assert any(trial["state"] == "pruned" for trial in undisturbed.summary()["cells"][0]["trials"])
    assert search(bumpy, **options)[1] == []  # nothing is left to do


def test_a_killed_search_goes_on_with_the_cells_in_another_order(search):
    ends = {"mse": 0.2, "softmax": 0.1}  # one cell widens the field at its high end, one at the low end

    def value_of(experiment):
        return rate_of(experiment) * (1 if ends[experiment.loss.name] == 0.2 else -1)

    options = {"tune": {RATE: (0.1, 0.2)}, "seeds": SEEDS[:1], "widen": 1}
    search(value_of, **options, losses=("mse", "softmax"), killed=6)
    made, _ = search(value_of, **options, losses=("softmax", "mse"))
    for cell in made.summary()["cells"]:
        assert sorted(trial["choice"][RATE] for trial in cell["trials"]) == [0.05, 0.1, 0.2, 0.4]


@pytest.mark.parametrize("seeds", [SEEDS[:1], SEEDS])
def test_a_process_that_is_killed_between_a_value_and_its_report(search, monkeypatch, seeds):
    def kill(*_):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(trials.Study, "_settle", kill)
        _, before = search(bumpy, {RATE: (0.1, 0.2)}, seeds=seeds)
    made, after = search(bumpy, {RATE: (0.1, 0.2)}, seeds=seeds)
    assert [*before, *after] == [f"mse-{RATE}={rate}-seed{seed}" for rate in (0.1, 0.2) for seed in seeds]
    (cell,) = made.summary()["cells"]
    assert [(trial["state"], len(trial["values"])) for trial in cell["trials"]] == [
        ("complete", len(seeds))
    ] * 2


@pytest.mark.parametrize(("num_trials", "expected"), [(5, 5), (6, 6), (9, 6)])
def test_tpe_proposes_no_choice_twice(search, num_trials, expected):
    tune = {RATE: (0.1, 0.2, 0.3), "epochs": (1.0, 2.0)}
    made, started = search(lambda _: 1.0, tune, num_trials=num_trials, seeds=SEEDS[:1], widen=0)
    (cell,) = made.summary()["cells"]
    assert len(set(started)) == len(started) == len(cell["trials"]) == expected


def test_tpe_finds_the_best_region(search):
    losses = ("mse", "softmax", "pairwise_logistic")
    made, started = search(bumpy, {RATE: RANGES[RATE]}, num_trials=30, seeds=SEEDS[:1], losses=losses)
    assert len(started) == 3 * 30
    near = []
    for cell in made.summary()["cells"]:
        rates = [trial["choice"][RATE] for trial in cell["trials"]]
        assert all(0.001 <= rate <= 1.0 and rate == float(f"{rate:.6g}") for rate in rates)
        near.append([abs(math.log10(rate) + 1.6) < 0.5 for rate in rates])
        assert abs(math.log10(made.choices()[cell["cell"]][RATE]) + 1.6) < 0.1
    drawn, proposed = (
        sum(itertools.chain(*(flags[part] for flags in near))) for part in (slice(10), slice(10, 30))
    )
    assert drawn / 30 < 0.5 < proposed / 60


def test_a_range_is_widened_with_half_as_many_trials(search):
    tune = {RATE: space.Range(0.00001, 0.1), "optimizer.name": ("adam", "adagrad")}
    made, _ = search(rate_of, tune, num_trials=7, seeds=SEEDS[:1], widen=2)
    summary = made.summary()
    assert [one["value"] for one in summary["added"]] == [1.0, 17.78]  # 10^(5 / 4)
    assert summary["fields"][RATE] == "1e-05:17.78"
    choices = [trial["choice"] for trial in summary["cells"][0]["trials"]]
    rates = [choice[RATE] for choice in choices]
    assert len(rates) == 7 + 4 + 4
    assert max(rates[:7]) <= 0.1
    assert max(rates[:11]) <= 1.0
    # The first trial after a widening is the best one so far with the middle of the new part.
    best = max(choices[:7], key=lambda choice: choice[RATE])
    assert choices[7] == {**best, RATE: 0.3162}  # 10^(-1 / 2)


def test_a_list_of_numbers_is_widened_under_tpe(search):
    tune = {"batch_size": (16, 8), "epochs": (1.0, 2.0)}
    made, _ = search(lambda one: one.epochs - one.batch_size, tune, num_trials=12, seeds=SEEDS[:1], widen=2)
    summary = made.summary()
    assert summary["fields"] == {"batch_size": "2, 4, 8, 16", "epochs": "1, 2, 4, 8"}
    assert made.choices() == {"mse": {"batch_size": 2, "epochs": 8.0}}


def test_each_field_that_tpe_widens_gets_a_trial(search):
    tune = {"batch_size": (8, 16), RATE: (0.1, 0.2)}
    made, _ = search(lambda one: one.batch_size + rate_of(one), tune, num_trials=2, seeds=SEEDS[:1], widen=1)
    choices = [trial["choice"] for trial in made.summary()["cells"][0]["trials"]]
    best = max(choices[:2], key=lambda choice: choice["batch_size"] + choice[RATE])
    widened = {one["field"]: one["value"] for one in made.summary()["added"]}
    assert len(widened) == 2
    assert choices[2:] == [{**best, field: widened[field]} for field in best]


def test_jobs_take_trials_of_the_cell_with_the_fewest_running_ones(search):
    _, started = search(lambda _: 1.0, {RATE: (0.1, 0.2)}, losses=("mse", "softmax"), seeds=SEEDS[:1], jobs=3)
    runs = [run.removesuffix("-seed10000").replace(f"-{RATE}=", " ") for run in started]
    assert runs == ["mse 0.1", "softmax 0.1", "mse 0.2", "softmax 0.2"]


def test_two_processes_share_a_search(search, tmp_path):
    """The second one searches while the first one trains its third run, until it has to wait."""
    tune, others = {RATE: (0.05, 0.1, 0.2, 0.3)}, []

    def value_of(experiment):
        if experiment.seed == SEEDS[2] and not others:
            with Claims(str(tmp_path / "tuning")) as claims:
                options = {"seeds": SEEDS, "num_trials": None, "widen": 1}
                other = tuning.Search(cells("mse"), tune, str(tmp_path), claims, **options)
                for run in itertools.takewhile(lambda run: run is not None, other._runs()):
                    others.append(os.path.basename(run.folder))
                    other._record(run, {"validation": {"ndcg@5": peak(run.experiment)}})
        return peak(experiment)

    made, started = search(value_of, tune, widen=1)
    folders = [f"mse-{RATE}={rate}-seed{seed}" for rate in (*tune[RATE], 0.6) for seed in SEEDS]
    assert others == folders[3:12]
    assert started == [*folders[:3], *folders[12:]]
    assert made.choices() == {"mse": {RATE: 0.6}}


def test_equal_choices_are_not_trained_at_once(search):
    tune = {RATE: space.Range(0.1, 0.1001)}  # only these two have the digits that are tried
    made, started = search(lambda _: 1.0, tune, num_trials=6, seeds=SEEDS[:1], jobs=6)
    assert len(made.summary()["cells"][0]["trials"]) == 6
    assert set(started[:2]) == {f"mse-{RATE}={rate}-seed10000" for rate in (0.1, 0.1001)}


def test_a_range_of_integers_has_no_more_trials_than_integers(search):
    tune = {"batch_size": space.Range(8, 12)}
    made, started = search(lambda _: 1.0, tune, num_trials=10, seeds=SEEDS[:1])
    choices = [trial["choice"]["batch_size"] for trial in made.summary()["cells"][0]["trials"]]
    assert sorted(choices) == list(range(8, 13))
    assert len(started) == 5


def test_other_values_or_seeds_are_another_study(search):
    search(peak, {RATE: (0.1, 0.2)})
    made, started = search(peak, {RATE: (0.1, 0.2, 0.4)})
    assert len(started) == 9  # `rank_training.train` repeats no finished one
    made, _ = search(peak, {RATE: (0.1, 0.2)}, seeds=SEEDS[:2])
    assert [trial["values"] for trial in made.summary()["cells"][0]["trials"]] == [(47.0, 47.0), (48.0, 48.0)]


def test_a_search_of_fewer_cells_counts_its_own_trials(search):
    """The first search widens the field at the end where another cell has its best value."""
    best_below = {"mse": 0.01, "softmax": 0.8}

    def value_of(experiment):
        return -abs(math.log2(rate_of(experiment) / best_below[experiment.loss.name]))

    tune = {RATE: (0.05, 0.1, 0.2)}
    search(value_of, tune, losses=("softmax", "mse"), widen=1)
    made, _ = search(value_of, tune, losses=("mse",), widen=1)
    (cell,) = made.summary()["cells"]
    assert made.choices() == {"mse": {RATE: 0.025}}
    assert [trial["choice"][RATE] for trial in cell["trials"]] == [0.05, 0.1, 0.2, 0.025]
    assert cell["notes"] == [
        f"{RATE}=0.025 is at the low end of the values tried: --widen=1 allows no more values"
    ]


def test_a_search_of_more_trials_does_not_count_those_of_widened_fields(search):
    tune = {"batch_size": (8, 16, 32, 64), RATE: (0.1, 0.2, 0.3)}

    def value_of(experiment):
        return experiment.batch_size + rate_of(experiment)

    search(value_of, tune, num_trials=6, widen=1)
    made, _ = search(value_of, tune, num_trials=10)
    choices = [trial["choice"] for trial in made.summary()["cells"][0]["trials"]]
    assert len(choices) == 10
    assert max(choice["batch_size"] for choice in choices) == 64


def test_an_incomplete_record_is_removed_from_the_journal(tmp_path):
    experiment, tune = config.Experiment(), {"batch_size": (32, 64)}

    def study():
        return trials.Study(trials.Journal(str(tmp_path)), "cell", experiment, tune, [0], "search")

    study().add({"batch_size": 32}, tune)
    with open(tmp_path / "journal.log", "ab") as file:
        file.write(b'{"op_code": 4, "worker')
    for count in (2, 3):
        study().add({"batch_size": 64}, tune)
        assert len(study().trials()) == count


def test_a_damaged_journal(search, tmp_path):
    search(peak, {RATE: (0.1, 0.2)})
    path = tmp_path / "tuning" / "journal.log"
    path.write_text("{" + path.read_text()[40:])
    with pytest.raises(
        ValueError, match=r"journal\.log: damaged \(.*\)\. Remove it: the search repeats no fin"
    ):
        search(peak, {RATE: (0.1, 0.2)})


def test_object_storage_is_refused():
    message = "workdir=gs://b/grid: a search keeps its journal in a folder on disk. Choose such a folder."
    with pytest.raises(ValueError, match=message):
        tuning.Search(
            cells("mse"), {RATE: (0.1, 0.2)}, "gs://b/grid", Claims(""), seeds=SEEDS, num_trials=None, widen=0
        )


def test_importance():
    """The rate alone makes the best quarter of the trials, mainly the batch size the worst one."""
    tune = {RATE: (0.1, 0.2, 0.4, 0.8), "batch_size": (8, 16, 32, 64), "epochs": (1.0,)}
    choices = [dict(zip(tune, choice, strict=True)) for choice in itertools.product(*tune.values())]
    values = [10.0 * (choice[RATE] == 0.8) or -1.0 * (choice["batch_size"] == 8) for choice in choices]
    values[
        choices.index({RATE: 0.4, "batch_size": 64, "epochs": 1.0})
    ] = -1.0  # the fourth in the worst quarter
    pairs = zip(choices, values, strict=True)
    tried = [trials.Trial(i, choice, (value,), "complete") for i, (choice, value) in enumerate(pairs)]
    higher, lower = (trials.importance(tried, tune, higher_is_better=flag) for flag in (True, False))
    assert list(higher) == [RATE, "batch_size"]
    assert list(lower) == ["batch_size", RATE]
    assert higher[RATE] > 0.9
    assert sum(higher.values()) == sum(lower.values()) == pytest.approx(1.0)
    assert trials.importance(tried[:7], tune, higher_is_better=True) == {}
    states = {10.0: "complete", 0.0: "pruned", -1.0: "diverged"}  # a pruned one has its mean, too
    ended = [dataclasses.replace(one, state=states[one.values[0]]) for one in tried]
    assert trials.importance(ended, tune, higher_is_better=True) == pytest.approx(higher)
    one_field = [trial for trial in tried * 3 if trial.choice["batch_size"] == 8]
    assert trials.importance(one_field, tune, higher_is_better=True) == {}


def test_importance_of_ranges():
    tune = {RATE: space.Range(0.001, 1.0), "batch_size": space.Range(8, 64)}
    tried = [
        trials.Trial(
            i, {RATE: 10 ** (-3 + i % 8 / 7 * 3), "batch_size": 8 + 7 * i}, (float(i % 8),), "complete"
        )
        for i in range(8)
    ]
    assert set(trials.importance(tried, tune, higher_is_better=True)) == set(tune)
