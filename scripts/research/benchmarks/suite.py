"""A suite of benchmarks: steps that are compared with one another, and how to build a step at a size."""

import dataclasses
import gc
import math
import os
import re
from collections.abc import Callable, Iterable

import tensorflow as tf

Size = tuple[int, ...]  # the numbers of a size such as 64x1000
BATCH_AND_CLASSES = ("64x28", "64x1000", "16x5000", "16x10000", "16x1000000")

TENSORS = 3  # of a step's largest size that are in memory at one time: scores, dense labels, a gradient


def memory_bytes() -> float:
    """Returns how much memory a benchmark may take: most of this machine's."""
    return 0.7 * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@dataclasses.dataclass(frozen=True)
class Step:
    """A contender or a baseline.

    Attributes:
      name: a contender's name, or `KIND:CONTENDER` for a baseline that depends on the contender.
      xla: whether XLA compiles the step.
      against: the names of a contender's baselines.
    """

    name: str
    xla: bool = False
    against: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """The part of the name before the colon."""
        return self.name.partition(":")[0]

    @property
    def contender(self) -> str:
        """The part of the name after the colon, or all of it."""
        return self.name.rpartition(":")[2]


def with_and_without_xla(name: str, *against: str) -> list[Step]:
    """Returns a contender's two steps."""
    return [Step(name, xla, against) for xla in (False, True)]


class Workload:
    """The work of a step, which a call repeats. The constructor runs it once, which compiles it.

    Attributes:
      arguments_mb: memory of the arguments, in MiB.
    """

    arguments_mb = 0.0

    def __call__(self) -> None:
        raise NotImplementedError

    def peak_mb(self) -> float:
        """Returns the peak memory of a call with its arguments, in MiB. Only Linux reports it."""
        gc.collect()
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")  # resets the highest resident size
        resting = _status_mb("VmRSS")
        self()
        return _status_mb("VmHWM") - resting + self.arguments_mb


def _status_mb(field: str) -> float:
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(field)) / 1024


class Compiled(Workload):
    """A function of tensors with its arguments."""

    def __init__(self, function: Callable, xla: bool, *arguments: tf.Tensor):
        traced = tf.function(function, jit_compile=xla, autograph=False)
        self._arguments = arguments
        self._function = traced.get_concrete_function(*arguments)
        self.arguments_mb = sum(x.shape.num_elements() * x.dtype.size for x in arguments) / 2**20
        self()

    def __call__(self) -> None:
        for result in self.results():
            if result.shape.rank < 2:
                result.numpy()  # waits for the device

    def results(self) -> list[tf.Tensor]:
        """Returns the function's results."""
        return tf.nest.flatten(self._function(*self._arguments))


@dataclasses.dataclass(frozen=True)
class Suite:
    """Steps that are compared with one another.

    Attributes:
      axes: the axes that the numbers of a size count, such as "BATCHxCLASSES".
      sizes: the default sizes.
      contenders: the steps at a size that have baselines.
      build: the workload of a step at a size.
      examples: the number of examples that a step reads; None if steps read none.
      computed: values of a step that are not measured, by their titles in the table.
      min_repeats: the least number of repeats of a step, unless it is very long.
      values: the number of float32 values of the largest tensor of a step.
    """

    axes: str
    sizes: tuple[str, ...]
    contenders: Callable[[Size], list[Step]]
    build: Callable[[Step, Size], Workload]
    examples: Callable[[Step, Size], int] | None = None
    computed: Callable[[Step, Size], dict[str, float]] = lambda step, size: {}
    min_repeats: int = 3
    values: Callable[[Size], int] = lambda size: math.prod(size[:2])

    def parse(self, size: str) -> Size:
        """Returns a size's numbers; raises ValueError for another form, or if memory is too small.

        >>> Suite("BATCHxCLASSES", ("64x28",), None, None).parse("64x1000")
        (64, 1000)
        """
        match = re.fullmatch(re.sub("[A-Z]+", r"([1-9]\\d*)", self.axes), size)
        parsed = tuple(map(int, match.groups())) if match else ()
        if not parsed or parsed[1:2] == (1,):  # classes
            raise ValueError(
                f"size={size!r}: not of the form {self.axes}. Choose one such as {self.sizes[0]}."
            )
        if self.axes.endswith("xK") and parsed[-1] > parsed[1]:
            raise ValueError(f"size={size!r}: K exceeds the number of classes. Choose a smaller K.")
        needed = TENSORS * 4 * self.values(parsed)
        memory = memory_bytes()
        if needed > memory:
            raise ValueError(
                f"size={size!r}: needs {needed / 2**30:,.0f} GB or more of {memory / 2**30:,.0f} GB of "
                "memory. Choose a smaller size."
            )
        return parsed

    def steps(self, size: Size, names: Iterable[str] | None = None) -> list[Step]:
        """Returns the contenders at a size, by default all, and before them their baselines."""
        contenders = [step for step in self.contenders(size) if names is None or step.name in names]
        baselines = dict.fromkeys(name for step in contenders for name in step.against)
        return [*map(Step, baselines), *contenders]


def scores_and_labels(batch: int, n: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns normal scores `[batch, n]` and random class ids `[batch]`."""
    labels = tf.random.stateless_uniform([batch], [3, 4], maxval=n, dtype=tf.int32)
    return tf.random.stateless_normal([batch, n], [1, 2]), labels


def softmax_ce(scores: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Returns TensorFlow's cross entropy, the baseline of most losses."""
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores))


def value_and_gradient(loss: Callable) -> Callable:
    """Returns the function from scores and labels to a loss and its gradient."""

    def step(scores: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(scores)
            value = loss(scores, labels)
        return value, tape.gradient(value, scores)

    return step
