"""Benchmarks: time and memory of one step against baselines that are measured in the same run.

A suite names its contenders at a size; each becomes a step, a function of no arguments. All steps of a
size take turns, so that whatever else the machine does meets them alike, and a row holds medians.
Absolute times say little: a figure is the ratio to a baseline.
"""

import concurrent.futures
import dataclasses
import gc
import math
import multiprocessing
import os
import random
import statistics
import sys
import time

from rank4class.pipelines.storage import files
from rank4class.scripts.benchmarks.suites import SUITES

MAX_REPEATS = 101
SECONDS_A_STEP = 1.0  # what a step's repeats may take together
LARGE_MB = 1024  # a step that holds more is timed in a process of its own
LONG_STEP = 3.0  # seconds; such a step is measured once
BASELINES = (
    "softmax_ce",
    "dense_ce",
    "tensorflow_ranking",
    "naive",
    "fft",
    "sort",
    "dot",
    "floor",
    "one_thread",
    "step",
    "bare",
)


@dataclasses.dataclass(frozen=True)
class Row:
    """One contender against one baseline.

    Attributes:
      seconds: median time of a step.
      peak_mb: most memory (MiB) that the step held at one time, its arguments included, or None where
        the system does not tell.
      ratio: `seconds / baseline_seconds`.
      examples_per_second: of a suite whose steps read examples.
      waiting_share: of the time, how much a training step waited for its batch.
      error, baseline_error: by how much the values are wrong, relative to them, of a suite that can tell.
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
    examples_per_second: float | None = None
    waiting_share: float | None = None
    error: float | None = None
    baseline_error: float | None = None


def run(suite, sizes, names=None):
    """Yields the rows of each size, as a list.

    Args:
      suite: one of `suites.SUITES`.
      sizes: such as `64x1000`, see `suites.Suite`.
      names: of contenders; None measures all.

    Raises:
      ValueError: a size of another form, or an unknown name.
    """
    if not sizes:
        raise ValueError(f"there is no size to measure at: give one such as {SUITES[suite].sizes[0]}")
    known = list(
        dict.fromkeys(step.name for size in sizes for step in SUITES[suite].steps(size) if step.against)
    )
    for name in names or ():
        if name not in known:
            raise ValueError(f"suite {suite!r} measures no {name!r}; it measures: {', '.join(known)}")
    for size in sizes:
        steps = SUITES[suite].steps(size, names)
        if not steps:
            continue  # every one of these names is left out at this size
        peaks = _measure_memory(suite, size, steps)
        large = {step for step, peak in peaks.items() if peak and peak > LARGE_MB}
        seconds = {step: _measure_alone(suite, size, step) for step in large}
        functions = {step: _build(suite, size, step) for step in steps if step not in large}
        seconds |= _measure_time(functions, SUITES[suite].min_repeats)
        seconds = {step: value for step, value in seconds.items() if value is not None}
        baselines = {step.name: step for step in seconds if not step.against}
        errors = _errors(suite, size, seconds)
        yield [
            Row(
                suite=suite,
                name=step.name,
                size=size,
                xla=step.xla,
                seconds=seconds[step],
                peak_mb=peaks[step],
                baseline=baseline.partition(":")[0],
                baseline_seconds=seconds[baselines[baseline]],
                baseline_peak_mb=peaks[baselines[baseline]],
                ratio=seconds[step] / seconds[baselines[baseline]],
                examples_per_second=_rate(suite, step, size, seconds[step]),
                waiting_share=getattr(functions.get(step), "waiting_share", None),
                error=errors[step.name],
                baseline_error=errors[baseline],
            )
            for step in steps
            for baseline in step.against
            if step in seconds and baseline in baselines
        ]


def _rate(suite, step, size, seconds):
    count = SUITES[suite].examples
    return None if count is None else count(step, SUITES[suite].parse(size)) / seconds


def _errors(suite, size, steps):
    """Returns name -> the error of its value, or None; with XLA or without, the value is the same."""
    error, size = SUITES[suite].error, SUITES[suite].parse(size)
    return {step.name: error and error(step, size) for step in steps}


def table(rows):
    """Returns the cells of one size's rows: a line a contender, a column for each baseline."""
    present = [b for b in BASELINES if any(row.baseline == b for row in rows)]
    memory_of = present[0]
    header = ["name", "XLA", "ms", *(f"x {b}" for b in present), "peak MB", f"memory x {memory_of}"]
    reads = rows[0].examples_per_second is not None
    if reads:
        header += ["examples/s", "waiting"]
    known = {row.baseline: row.baseline_error for row in rows if row.baseline_error is not None}
    if rows[0].error is not None:
        header += ["error", *(f"error {baseline}" for baseline in known)]
    lines = {}
    for row in rows:
        lines.setdefault((row.name, row.xla), {})[row.baseline] = row
    cells = [header]
    for (name, xla), by_baseline in lines.items():
        any_row = next(iter(by_baseline.values()))
        ratios = [f"{by_baseline[b].ratio:.3g}" if b in by_baseline else "-" for b in present]
        peak, base = any_row.peak_mb, getattr(by_baseline.get(memory_of), "baseline_peak_mb", None)
        # Below a MiB it is the allocator's habits that are measured.
        memory = (
            ["-", "-"]
            if peak is None
            else [f"{peak:.1f}", f"{peak / base:.2f}" if base and base > 1.0 else "-"]
        )
        cells.append([name, "yes" if xla else "no", f"{1e3 * any_row.seconds:.2f}", *ratios, *memory])
        if reads:
            share = any_row.waiting_share
            cells[-1] += [f"{any_row.examples_per_second:,.0f}", "-" if share is None else f"{share:.1%}"]
        if any_row.error is not None:
            cells[-1] += [f"{error:.0e}" for error in (any_row.error, *known.values())]
    return cells


def to_json(row):
    return files.to_json(dataclasses.asdict(row))


def _build(suite, size, step):
    return SUITES[suite].build(step, SUITES[suite].parse(size))


def _measure_time(steps, min_repeats):
    """Returns the median seconds of every step; they take turns, in another order every round."""
    times = {step: [_seconds(function)] for step, function in steps.items()}
    repeats = {step: _repeats(first[0], min_repeats) for step, first in times.items()}
    shuffled = random.Random(0)
    for i in range(max(repeats.values())):
        for step in shuffled.sample(list(steps), len(steps)):
            if i < repeats[step]:
                times[step].append(_seconds(steps[step]))
    return {step: statistics.median(values) for step, values in times.items()}


def _repeats(seconds, min_repeats):
    if seconds > LONG_STEP:
        return 0
    return int(min(MAX_REPEATS, max(min_repeats, SECONDS_A_STEP / seconds)))


def _seconds(function):
    function()  # so that what ran before does not count
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def _measure_memory(suite, size, steps):
    """Returns the peak MiB of every step, or None each where the system does not tell.

    In a process of its own, where TensorFlow takes memory from the system and gives it back at once: of
    its own pool it would only be known how large the pool has become.
    """
    if not sys.platform.startswith("linux"):
        return dict.fromkeys(steps)
    os.environ |= _MEASURABLE
    try:
        return _peaks(suite, size, steps)
    finally:
        for name in _MEASURABLE:
            del os.environ[name]


def _peaks(suite, size, steps):
    peaks = {}
    while len(peaks) < len(steps):
        with _new_process() as pool:
            for step in steps[len(peaks) :]:
                try:
                    peaks[step] = pool.submit(_peak_mb, suite, step, size).result()
                except concurrent.futures.process.BrokenProcessPool:
                    peaks[step] = math.inf  # the system ended it
                    break
    return peaks


def _measure_alone(suite, size, step):
    """Returns the median seconds of a step that takes much memory, or None where that was too little."""
    with _new_process() as pool:
        try:
            return pool.submit(_seconds_alone, suite, step, size).result()
        except concurrent.futures.process.BrokenProcessPool:
            return None


def _seconds_alone(suite, step, size):
    return _measure_time({step: _build(suite, size, step)}, SUITES[suite].min_repeats)[step]


def _new_process():
    spawn = multiprocessing.get_context("spawn")
    return concurrent.futures.ProcessPoolExecutor(max_workers=1, mp_context=spawn)


_MEASURABLE = {
    "TF_ONEDNN_USE_SYSTEM_ALLOCATOR": "1",
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TRIM_THRESHOLD_": "65536",
}


def _peak_mb(suite, step, size):
    function = _build(suite, size, step)
    gc.collect()
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")  # forgets the highest resident size so far
    resting = _status_mb("VmRSS")
    function()
    return _status_mb("VmHWM") - resting + function.arguments_mb


def _status_mb(field):
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(field)) / 1024
