"""Benchmarks: time and memory of one step against baselines that are measured in the same run.

A suite names its contenders at a size; each becomes a step, a function of no arguments. All steps of a
size take turns, so that whatever else the machine does meets them alike, and a row holds medians.
Absolute times say little: a figure is the ratio to a baseline.
"""

import concurrent.futures
import dataclasses
import functools
import gc
import json
import math
import multiprocessing
import os
import random
import statistics
import sys
import time

import tensorflow as tf
import tensorflow_ranking as tfr
from tensorflow_ranking.python import metrics_impl

from rank4class import losses
from rank4class.losses import registry

SUITES = ("losses", "metrics")
SIZES = ("64x28", "64x1000", "16x5000", "16x10000", "16x1000000")
MAX_REPEATS = 101
MIN_REPEATS = 3
SECONDS_A_STEP = 1.0  # what a step's repeats may take together
LARGE_MB = 1024  # a step that holds more is timed in a process of its own
LONG_STEP = 3.0  # seconds; such a step is measured once
BASELINES = ("softmax_ce", "tensorflow_ranking", "naive", "floor")


@dataclasses.dataclass(frozen=True)
class Row:
    """One contender against one baseline.

    Attributes:
      seconds: median time of a step.
      peak_mb: most memory (MiB) that the step held at one time, its arguments included, or None where
        the system does not tell.
      ratio: `seconds / baseline_seconds`.
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


@dataclasses.dataclass(frozen=True)
class Step:
    """What is measured: a contender or a baseline. `against` names a contender's baselines."""

    name: str
    xla: bool = False
    against: tuple[str, ...] = ()


def run(suite, sizes, names=None):
    """Yields the rows of each size, as a list.

    Args:
      suite: one of `SUITES`.
      sizes: such as `64x1000`.
      names: of contenders; None measures all.

    Raises:
      ValueError: a size of another form, or an unknown name.
    """
    for size in sizes:
        parse_size(size)
    if not sizes:
        raise ValueError("there is no size to measure at: give one such as 64x1000")
    known = list(dict.fromkeys(step.name for size in sizes for step in _contenders(suite, size)))
    for name in names or ():
        if name not in known:
            raise ValueError(f"suite {suite!r} measures no {name!r}; it measures: {', '.join(known)}")
    for size in sizes:
        steps = _with_baselines([s for s in _contenders(suite, size) if names is None or s.name in names])
        if not steps:
            continue  # every one of these names is left out at this size
        peaks = _measure_memory(suite, size, steps)
        large = {step for step, peak in peaks.items() if peak and peak > LARGE_MB}
        seconds = {step: _measure_alone(suite, size, step) for step in large}
        seconds |= _measure_time({step: _build(suite, step, size) for step in steps if step not in large})
        seconds = {step: value for step, value in seconds.items() if value is not None}
        baselines = {step.name: step for step in seconds if not step.against}
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
            )
            for step in steps
            for baseline in step.against
            if step in seconds and baseline in baselines
        ]


def parse_size(size):
    """Returns batch size and number of classes.

    >>> parse_size("64x1000")
    (64, 1000)
    """
    batch, _, n = size.partition("x")
    if not (batch.isdecimal() and n.isdecimal() and int(batch) > 0 and int(n) > 1):
        raise ValueError(f"size {size!r} is not of the form BATCHxCLASSES, such as 64x1000")
    return int(batch), int(n)


def table(rows):
    """Returns the cells of one size's rows: a line a contender, a column for each baseline."""
    present = [b for b in BASELINES if any(row.baseline == b for row in rows)]
    memory_of = present[0]
    header = ["name", "XLA", "ms", *(f"x {b}" for b in present), "peak MB", f"memory x {memory_of}"]
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
    return cells


def to_json(row):
    return json.dumps(dataclasses.asdict(row))


def _contenders(suite, size):
    return {"losses": _loss_steps, "metrics": _metric_steps}[suite](size)


def _with_baselines(contenders):
    needed = dict.fromkeys(baseline for step in contenders for baseline in step.against)
    return [*(Step(name) for name in needed), *contenders]


def _loss_steps(size):
    steps = []
    batch, n = parse_size(size)
    for name in (*losses.names(), *_LAMBDA_WEIGHTED):
        if name in _SORT_EVERY_SAMPLE and batch * n > 1_000_000:
            continue
        against = ["softmax_ce", "floor"]
        if _fits_tf_ranking(name, size):
            against.append(f"tensorflow_ranking:{name}")
        steps.append(Step(name, False, tuple(against)))
        if name not in _QUADRATIC_UNDER_XLA or n <= 1000:
            steps.append(Step(name, True, tuple(against)))
    return steps


def _metric_steps(size):
    steps = []
    for name in _METRICS:
        for labels in ("", _DENSE):
            against = [f"naive:{name}{labels}", f"tensorflow_ranking:{name}", "floor"]
            steps += [Step(name + labels, xla, tuple(against)) for xla in (False, True)]
    return steps


_LAMBDA_WEIGHTED = {
    "pairwise_logistic ndcg": ("pairwise_logistic", "ndcg"),
    "pairwise_logistic mrr": ("pairwise_logistic", "mrr"),
}
_TF_RANKING_LOSSES = {
    "softmax": tfr.keras.losses.SoftmaxLoss,
    "calibrated_softmax": tfr.keras.losses.CalibratedSoftmaxLoss,
    "unique_softmax": tfr.keras.losses.UniqueSoftmaxLoss,
    "pairwise_logistic": tfr.keras.losses.PairwiseLogisticLoss,
    "pairwise_logistic ndcg": lambda: tfr.keras.losses.PairwiseLogisticLoss(
        lambda_weight=tfr.keras.losses.NDCGLambdaWeight(smooth_fraction=1.0)
    ),
    "pairwise_hinge": tfr.keras.losses.PairwiseHingeLoss,
    "pairwise_soft_zero_one": tfr.keras.losses.PairwiseSoftZeroOneLoss,
    "pairwise_mse": tfr.keras.losses.PairwiseMSELoss,
    "yeti_logistic": tfr.keras.losses.YetiLogisticLoss,
    "approx_ndcg": tfr.keras.losses.ApproxNDCGLoss,
    "approx_mrr": tfr.keras.losses.ApproxMRRLoss,
    "gumbel_approx_ndcg": tfr.keras.losses.GumbelApproxNDCGLoss,
    "list_mle": tfr.keras.losses.ListMLELoss,
    "coupled_rank_distil": tfr.keras.losses.CoupledRankDistilLoss,
    "mse": tfr.keras.losses.MeanSquaredLoss,
    "sigmoid_cross_entropy": tfr.keras.losses.SigmoidCrossEntropyLoss,
    "ordinal": lambda: tfr.keras.losses.OrdinalLoss(ordinal_size=2),
    "mixture_em": tfr.keras.losses.MixtureEMLoss,
    "click_em": tfr.keras.losses.ClickEMLoss,
}
_LINEAR_IN_TF_RANKING = {
    "softmax",
    "calibrated_softmax",
    "list_mle",
    "mse",
    "sigmoid_cross_entropy",
    "ordinal",
    "mixture_em",
    "click_em",
}
_TF_RANKING_PAIRS = {
    "pairwise_logistic",
    "pairwise_hinge",
    "pairwise_soft_zero_one",
    "approx_ndcg",
    "approx_mrr",
}
# Sorting eight noisy copies of millions of scores takes minutes a step: left out.
_SORT_EVERY_SAMPLE = {"yeti_logistic", "coupled_rank_distil"}
# They take running sums, for which XLA takes O(n^2) on CPUs.
_QUADRATIC_UNDER_XLA = {"list_mle", "coupled_rank_distil"}
_METRICS = {
    "top5_accuracy": functools.partial(metrics_impl.HitsMetric, topn=5),
    "ndcg@5": functools.partial(metrics_impl.NDCGMetric, topn=5),
    "ndcg": functools.partial(metrics_impl.NDCGMetric, topn=None),
    "mrr": functools.partial(metrics_impl.MRRMetric, topn=None),
    "mean_rank": metrics_impl.ARPMetric,
    "precision@5": functools.partial(metrics_impl.PrecisionMetric, topn=5),
    "recall@5": functools.partial(metrics_impl.RecallMetric, topn=5),
    "map": functools.partial(metrics_impl.MeanAveragePrecisionMetric, topn=None),
}
_DENSE = " dense"


def _fits_tf_ranking(name, size):
    """Whether TF-Ranking's form, with its tensors of `[B, n, n]`, is there and fits in memory."""
    if name not in _TF_RANKING_LOSSES:
        return False
    batch, n = parse_size(size)
    lists = batch * losses.get(_loss_of(name)[0]).knobs.get("samples", 1)
    items = lists * n if name in _LINEAR_IN_TF_RANKING else lists * n * n
    alive = 9 if name in _TF_RANKING_PAIRS else 20  # tensors of that size, as seen
    return alive * 4 * items < 0.7 * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _build(suite, step, size):
    """Returns the step as a function of no arguments."""
    batch, n = parse_size(size)
    scores = tf.random.stateless_normal([batch, n], [1, 2])
    labels = tf.random.stateless_uniform([batch], [3, 4], maxval=n, dtype=tf.int32)
    kind, _, of = step.name.partition(":")
    if kind == "floor":
        return _Compiled(_read_and_write if suite == "losses" else _read, step.xla, scores)
    if suite == "metrics":
        if kind == "tensorflow_ranking" or kind.endswith(_DENSE) or of.endswith(_DENSE):
            labels = tf.one_hot(labels, n)
        return _Compiled(_metric(kind, of), step.xla, scores, labels)
    if kind == "softmax_ce":
        return _Compiled(_value_and_gradient(_softmax_ce), step.xla, scores, labels)
    name, _ = _loss_of(of or kind)
    if registry.LOSSES[name].heads:
        scores = tf.stack([scores, scores / 2.0], axis=-1)
    if kind == "tensorflow_ranking":
        loss, labels = _TF_RANKING_LOSSES[of](), tf.one_hot(labels, n)
    else:
        loss = _our_loss(kind)
    return _Compiled(_value_and_gradient(lambda s, y: loss(y, s)), step.xla, scores, labels)


def _loss_of(name):
    return _LAMBDA_WEIGHTED.get(name, (name, "none"))


def _our_loss(name):
    base, weight = _loss_of(name)
    return losses.get(base, lambda_weight=weight) if name in _LAMBDA_WEIGHTED else losses.get(base)


def _read_and_write(scores):
    return -scores


def _read(scores):
    return tf.reduce_sum(scores, axis=-1)


def _softmax_ce(scores, labels):
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores))


def _value_and_gradient(loss):
    def step(scores, labels):
        with tf.GradientTape() as tape:
            tape.watch(scores)
            value = loss(scores, labels)
        return value, tape.gradient(value, scores)

    return step


def _metric(kind, of):
    """The mean of a metric over a batch: ours, TF-Ranking's, or the naive one by a sort of all scores."""
    if kind == "tensorflow_ranking":
        theirs = _METRICS[of](None)
        return lambda scores, labels: theirs.compute(labels, scores)[0]
    name = (of or kind).removesuffix(_DENSE)
    ours = losses.get_metric(name)
    if kind != "naive":
        return lambda scores, labels: ours.function(scores, labels, **ours.knobs)

    def naive(scores, labels):
        places = tf.argsort(tf.argsort(scores, direction="DESCENDING")) + 1
        if labels.shape.rank == 2:
            labels = tf.argmax(labels, axis=-1)
        return ours.of_rank(tf.cast(tf.gather(places, labels, batch_dims=1), tf.float32))

    return naive


class _Compiled:
    """A function with its arguments, traced, compiled and run once."""

    def __init__(self, function, xla, *arguments):
        traced = tf.function(function, jit_compile=xla, autograph=False)
        self._arguments = arguments
        self._function = traced.get_concrete_function(*arguments)
        self.arguments_mb = sum(x.shape.num_elements() * x.dtype.size for x in arguments) / 2**20
        self()

    def __call__(self):
        for result in self.results():
            if result.shape.rank < 2:
                result.numpy()  # waits for the device

    def results(self):
        return tf.nest.flatten(self._function(*self._arguments))


def _measure_time(steps):
    """Returns the median seconds of every step; they take turns, in another order every round."""
    times = {step: [_seconds(function)] for step, function in steps.items()}
    repeats = {step: _repeats(first[0]) for step, first in times.items()}
    shuffled = random.Random(0)
    for i in range(max(repeats.values())):
        for step in shuffled.sample(list(steps), len(steps)):
            if i < repeats[step]:
                times[step].append(_seconds(steps[step]))
    return {step: statistics.median(values) for step, values in times.items()}


def _repeats(seconds):
    if seconds > LONG_STEP:
        return 0
    return int(min(MAX_REPEATS, max(MIN_REPEATS, SECONDS_A_STEP / seconds)))


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
    return _measure_time({step: _build(suite, step, size)})[step]


def _new_process():
    spawn = multiprocessing.get_context("spawn")
    return concurrent.futures.ProcessPoolExecutor(max_workers=1, mp_context=spawn)


_MEASURABLE = {
    "TF_ONEDNN_USE_SYSTEM_ALLOCATOR": "1",
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TRIM_THRESHOLD_": "65536",
}


def _peak_mb(suite, step, size):
    function = _build(suite, step, size)
    gc.collect()
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")  # forgets the highest resident size so far
    resting = _status_mb("VmRSS")
    function()
    return _status_mb("VmHWM") - resting + function.arguments_mb


def _status_mb(field):
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(field)) / 1024
