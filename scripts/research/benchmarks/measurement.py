"""Time and memory of a suite's steps, each against its baselines in the same run.

All steps of a size take turns, so that other load of the machine affects them alike. A row holds medians.
Compare the ratios to the baselines: the times depend on the machine.
"""

import concurrent.futures
import dataclasses
import itertools
import math
import multiprocessing
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence

from rank4class.progress import Progress
from rank4class.scripts.research.benchmarks import suites
from rank4class.scripts.research.benchmarks.suite import Size, Step, Workload

MAX_REPEATS = 101
SECONDS_A_STEP = 1.0  # of all repeats of a step together
LARGE_MB = 1024  # a step that holds more is timed in a separate process
LONG_STEP = 3.0  # seconds; a longer step is measured once


@dataclasses.dataclass(frozen=True)
class Row:
    """One contender against one baseline: median times, and peak memory (MiB) with arguments if it is known.

    `others` are other values, by their titles in the table.
    """

    suite: str
    name: str
    size: str
    xla: bool
    seconds: float
    peak_mb: float | None
    baseline: str
    baseline_seconds: float
    baseline_peak_mb: float | None
    ratio: float
    others: dict[str, float] = dataclasses.field(default_factory=dict)


def run(suite: str, sizes: Sequence[str] | None = None, names: Sequence[str] = ()) -> Iterator[list[Row]]:
    """Yields the rows of each size, by default the suite's, and of the named contenders, by default all."""
    chosen = suites.get(suite)
    if sizes is not None and not sizes:
        raise ValueError(f"sizes: empty. Choose one such as {chosen.sizes[0]}.")
    parsed = [chosen.parse(size) for size in (chosen.sizes if sizes is None else sizes)]
    known = dict.fromkeys(step.name for size in parsed for step in chosen.contenders(size))
    for name in names:
        if name not in known:
            raise ValueError(f"names={name!r}: not in suite {suite!r}. It measures: {', '.join(known)}.")
    for size in parsed:
        steps = chosen.steps(size, names or known)
        if steps:
            yield _measure(suite, size, steps)


def _measure(suite: str, size: Size, steps: list[Step]) -> list[Row]:
    chosen = suites.get(suite)
    peaks = _measure_memory(suite, size, steps)
    large = [step for step in steps if (peaks[step] or 0.0) > LARGE_MB]
    times: dict[Step, float] = {}
    for step in large:
        times |= _in_other_processes("timing of a large step", _seconds_alone, suite, size, [step])
    small = [step for step in steps if step not in large]
    workloads = {step: chosen.build(step, size) for step in _shown("compilation", small)}
    times |= _measure_time(workloads, chosen.min_repeats)
    seconds = {step: value for step, value in times.items() if value < math.inf}
    baselines = {step.name: step for step in seconds if not step.against}
    rows = []
    for step in steps:
        if step not in seconds or not step.against:
            continue
        others = chosen.computed(step, size)
        if chosen.examples:
            others["examples/s"] = chosen.examples(step, size) / seconds[step]
        for baseline in filter(None, map(baselines.get, step.against)):
            values = seconds[step], peaks[step], baseline.kind, seconds[baseline], peaks[baseline]
            ratio = seconds[step] / seconds[baseline]
            rows.append(Row(suite, step.name, "x".join(map(str, size)), step.xla, *values, ratio, others))
    return rows


def table(rows: list[Row]) -> list[list[str]]:
    """Returns the cells of one size's rows: a header, and a line per contender with a ratio per baseline."""
    baselines = list(dict.fromkeys(row.baseline for row in rows))
    others = dict.fromkeys(title for row in rows for title in row.others)
    memory = f"memory x {baselines[0]}"
    lines = [["name", "XLA", "ms", *(f"x {name}" for name in baselines), "peak MB", memory, *others]]
    for (name, xla), group in itertools.groupby(rows, lambda row: (row.name, row.xla)):
        by_baseline = {row.baseline: row for row in group}
        row = next(iter(by_baseline.values()))
        first = by_baseline.get(baselines[0])
        ratios = [by_baseline[name].ratio if name in by_baseline else None for name in baselines]
        # A ratio to less than 1 MiB would measure the allocator.
        least = first.baseline_peak_mb if first else None
        memory_ratio = row.peak_mb / least if row.peak_mb and least and least > 1.0 else None
        values = [1e3 * row.seconds, *ratios, row.peak_mb, memory_ratio, *map(row.others.get, others)]
        lines.append([name, "yes" if xla else "no", *map(_cell, values)])
    return lines


def _cell(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 1000.0 else f"{value:.3g}"


def _shown(work: str, steps: Sequence[Step]) -> Iterator[Step]:
    """Yields steps and shows the progress."""
    return Progress(work, "step", len(steps)).over(steps)


def _measure_time(workloads: dict[Step, Workload], min_repeats: int) -> dict[Step, float]:
    """Returns the median seconds of every step; they take turns, in another order every round."""
    times = {step: [_seconds(workloads[step])] for step in _shown("first timing", list(workloads))}
    repeats = {step: _repeats(first, min_repeats) for step, [first] in times.items()}
    shuffled = random.Random(0)
    rounds = [
        step
        for i in range(max(repeats.values(), default=0))
        for step in shuffled.sample(list(workloads), len(workloads))
        if i < repeats[step]
    ]
    for step in _shown("timing", rounds):
        times[step].append(_seconds(workloads[step]))
    return {step: statistics.median(values) for step, values in times.items()}


def _repeats(seconds: float, min_repeats: int) -> int:
    if seconds > LONG_STEP:
        return 0
    return int(min(MAX_REPEATS, max(min_repeats, SECONDS_A_STEP / seconds)))


def _seconds(workload: Callable[[], None]) -> float:
    workload()  # so that the step before does not count
    started = time.perf_counter()
    workload()
    return time.perf_counter() - started


# Makes TensorFlow allocate from the system and free at once: the peak of its pool is not that of a step.
_WITHOUT_POOL = {
    "TF_ONEDNN_USE_SYSTEM_ALLOCATOR": "1",
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TRIM_THRESHOLD_": "65536",
}


def _measure_memory(suite: str, size: Size, steps: list[Step]) -> dict[Step, float | None]:
    """Returns the peak MiB of every step, or None if the system does not report it."""
    if not sys.platform.startswith("linux"):
        return dict.fromkeys(steps)
    before = dict(os.environ)
    os.environ |= _WITHOUT_POOL  # of the new processes
    try:
        return {**_in_other_processes("memory", _peak_mb, suite, size, steps)}
    finally:
        os.environ.clear()
        os.environ.update(before)


def _in_other_processes(
    work: str, function: Callable, suite: str, size: Size, steps: Sequence[Step]
) -> dict[Step, float]:
    """Returns a function's value of every step from other processes; infinity if the system ends one."""
    values: dict[Step, float] = {}
    remaining = _shown(work, steps)
    while len(values) < len(steps):
        with _new_process() as pool:
            for step in remaining:
                try:
                    values[step] = pool.submit(function, suite, size, step).result()
                except concurrent.futures.process.BrokenProcessPool:
                    values[step] = math.inf
                    break
    return values


def _new_process() -> concurrent.futures.ProcessPoolExecutor:
    return concurrent.futures.ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))


def _peak_mb(suite: str, size: Size, step: Step) -> float:
    return suites.get(suite).build(step, size).peak_mb()


def _seconds_alone(suite: str, size: Size, step: Step) -> float:
    chosen = suites.get(suite)
    return _measure_time({step: chosen.build(step, size)}, chosen.min_repeats)[step]
