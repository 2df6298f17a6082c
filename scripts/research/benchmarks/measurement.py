"""Time and memory of a suite's steps, each against its baselines in the same run.

All steps of a size take turns, so that other load of the machine affects them alike. A row holds medians.
Compare the ratios to the baselines: the times depend on the machine.
"""

import concurrent.futures
import dataclasses
import math
import multiprocessing
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence

from rank4class.pipelines.storage import files
from rank4class.progress import Progress
from rank4class.scripts.research.benchmarks import suites
from rank4class.scripts.research.benchmarks.suite import Size, Step, Workload

MAX_REPEATS = 101
SECONDS_A_STEP = 1.0  # of all repeats of a step together
LARGE_MB = 1024  # a step that holds more is timed in a separate process
LONG_STEP = 3.0  # seconds; a longer step is measured once


@dataclasses.dataclass(frozen=True)
class Row:
    """One contender against one baseline.

    Attributes:
      seconds: median time of a step.
      peak_mb: peak memory (MiB) of the step with its arguments, or None if the system does not report it.
      ratio: `seconds / baseline_seconds`.
      examples_per_second: for suites whose steps read examples.
      waiting_share: share of the time that a training step waited for its batch.
      recall: fraction of the best classes that a search finds.
      computed: values that are not measured, by their titles.
      error, baseline_error: relative errors of the values, for suites that know them.
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
    recall: float | None = None
    computed: dict[str, float] | None = None
    error: float | None = None
    baseline_error: float | None = None


def run(suite: str, sizes: Sequence[str] | None = None, names: Sequence[str] = ()) -> Iterator[list[Row]]:
    """Yields the rows of each size.

    Args:
      suite: one of `suites.names()`.
      sizes: such as `64x1000`, see `Suite.axes`; None takes the suite's.
      names: contenders; none takes all.

    Raises:
      ValueError: a size of another form, or an unknown name.
    """
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
    times = {step: _measure_alone(suite, size, step) for step in _shown("timing of large steps", large)}
    small = [step for step in steps if step not in large]
    workloads = {step: chosen.build(step, size) for step in _shown("compilation", small)}
    times |= _measure_time(workloads, chosen.min_repeats)
    seconds = {step: value for step, value in times.items() if value is not None}
    # The value is the same with XLA and without.
    errors = {step.name: chosen.error(step, size) if chosen.error else None for step in seconds}
    baselines = {step.name: step for step in seconds if not step.against}
    return [
        Row(
            suite=suite,
            name=step.name,
            size="x".join(map(str, size)),
            xla=step.xla,
            seconds=seconds[step],
            peak_mb=peaks[step],
            baseline=baseline.kind,
            baseline_seconds=seconds[baseline],
            baseline_peak_mb=peaks[baseline],
            ratio=seconds[step] / seconds[baseline],
            examples_per_second=chosen.examples(step, size) / seconds[step] if chosen.examples else None,
            waiting_share=workloads[step].waiting_share if step in workloads else None,
            recall=chosen.recall(step, size) if chosen.recall else None,
            computed=chosen.computed(step, size) if chosen.computed else None,
            error=errors[step.name],
            baseline_error=errors[baseline.name],
        )
        for step in steps
        if step in seconds
        for baseline in map(baselines.get, step.against)
        if baseline
    ]


def table(rows: list[Row]) -> list[list[str]]:
    """Returns the cells of one size's rows: a header, and a line per contender with a ratio per baseline."""
    baselines = list(dict.fromkeys(row.baseline for row in rows))
    errors = {row.baseline: row.baseline_error for row in rows if row.baseline_error is not None}
    reads, has_errors = rows[0].examples_per_second is not None, rows[0].error is not None
    header = ["name", "XLA", "ms", *(f"x {baseline}" for baseline in baselines)]
    header += ["peak MB", f"memory x {baselines[0]}"]
    header += ["examples/s", "waiting"] if reads else []
    header += ["recall"] if rows[0].recall is not None else []
    header += list(rows[0].computed or ())
    header += ["error", *(f"error {baseline}" for baseline in errors)] if has_errors else []
    by_step: dict[tuple[str, bool], dict[str, Row]] = {}
    for row in rows:
        by_step.setdefault((row.name, row.xla), {})[row.baseline] = row
    lines = [header]
    for by_baseline in by_step.values():
        row = next(iter(by_baseline.values()))
        line = [row.name, "yes" if row.xla else "no", f"{1e3 * row.seconds:.2f}"]
        line += [f"{by_baseline[name].ratio:.3g}" if name in by_baseline else "-" for name in baselines]
        line += _memory_cells(row.peak_mb, getattr(by_baseline.get(baselines[0]), "baseline_peak_mb", None))
        if reads:
            waiting = "-" if row.waiting_share is None else f"{row.waiting_share:.1%}"
            line += [f"{row.examples_per_second:,.0f}", waiting]
        if row.recall is not None:
            line.append(f"{row.recall:.3f}")
        line += [f"{value:.1f}" for value in (row.computed or {}).values()]
        if row.error is not None:
            line += [f"{error:.0e}" for error in (row.error, *errors.values())]
        lines.append(line)
    return lines


def _memory_cells(peak_mb: float | None, baseline_mb: float | None) -> list[str]:
    if peak_mb is None:
        return ["-", "-"]
    # A ratio to less than 1 MiB would measure the allocator.
    return [f"{peak_mb:.1f}", f"{peak_mb / baseline_mb:.2f}" if baseline_mb and baseline_mb > 1.0 else "-"]


def to_json(row: Row) -> str:
    """Returns a row as one line of JSON."""
    return files.to_json(dataclasses.asdict(row))


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
        return {**_peaks(suite, size, steps)}
    finally:
        os.environ.clear()
        os.environ.update(before)


def _peaks(suite: str, size: Size, steps: list[Step]) -> dict[Step, float]:
    """Returns the peak MiB of every step from other processes; infinity if the system ends the process."""
    peaks: dict[Step, float] = {}
    unmeasured = _shown("memory", steps)
    while len(peaks) < len(steps):
        with _new_process() as pool:
            for step in unmeasured:
                try:
                    peaks[step] = pool.submit(_peak_mb, suite, size, step).result()
                except concurrent.futures.process.BrokenProcessPool:
                    peaks[step] = math.inf
                    break
    return peaks


def _measure_alone(suite: str, size: Size, step: Step) -> float | None:
    """Returns the median seconds of a step in a separate process, or None if the system ends it."""
    with _new_process() as pool:
        try:
            return pool.submit(_seconds_alone, suite, size, step).result()
        except concurrent.futures.process.BrokenProcessPool:
            return None


def _seconds_alone(suite: str, size: Size, step: Step) -> float:
    chosen = suites.get(suite)
    return _measure_time({step: chosen.build(step, size)}, chosen.min_repeats)[step]


def _new_process() -> concurrent.futures.ProcessPoolExecutor:
    return concurrent.futures.ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))


def _peak_mb(suite: str, size: Size, step: Step) -> float:
    return suites.get(suite).build(step, size).peak_mb()
