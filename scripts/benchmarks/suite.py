"""What a suite of the benchmark is: steps, and how one is made at a size."""

import dataclasses
import math
import os
from collections.abc import Callable

import tensorflow as tf

TENSORS = 3  # of a step's largest size that are in memory at one time: scores, dense labels, a gradient


def memory_bytes():
    """Returns how much memory a benchmark may take: most of this machine's."""
    return 0.7 * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@dataclasses.dataclass(frozen=True)
class Step:
    """What is measured: a contender or a baseline. `against` names a contender's baselines."""

    name: str
    xla: bool = False
    against: tuple[str, ...] = ()


class Compiled:
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


@dataclasses.dataclass(frozen=True)
class Suite:
    """Steps that are compared with one another.

    Attributes:
      axes: what the numbers of a size count, such as "BATCHxCLASSES".
      sizes: those measured by default.
      contenders: function of a size, a tuple of ints, to the `Step`s that have baselines.
      build: function of a step and a size to a `Compiled`, or what is called like it.
      examples: function of a step and a size to the examples that it reads, or None where it reads none.
      error: function of a step and a size to by how much its value is wrong, relative to it, or None where
        nobody knows; None where all are right but for rounding.
      min_repeats: how often a step is measured at least, unless it is very long.
      values: function of a size to the float32 values of the largest tensor that a step reads.
    """

    axes: str
    sizes: tuple[str, ...]
    contenders: Callable
    build: Callable
    examples: Callable | None = None
    error: Callable | None = None
    min_repeats: int = 3
    values: Callable = lambda size: math.prod(size[:2])

    def parse(self, size):
        """Returns a size's numbers; raises ValueError where it is not of the suite's form, or too large.

        >>> Suite("BATCHxCLASSES", ("64x28",), None, None).parse("64x1000")
        (64, 1000)
        """
        numbers = size.split("x")
        if (
            len(numbers) != len(self.axes.split("x"))
            or not all(number.isdecimal() and int(number) > 0 for number in numbers)
            or int((*numbers, 2)[1]) < 2  # classes
        ):
            raise ValueError(f"size {size!r} is not of the form {self.axes}, such as {self.sizes[0]}")
        parsed = tuple(map(int, numbers))
        needed, memory = TENSORS * 4 * self.values(parsed), memory_bytes()
        if needed > memory:
            raise ValueError(
                f"size {size!r} needs {needed / 2**30:,.0f} GB or more of {memory / 2**30:,.0f} GB of "
                "memory. Choose a smaller size."
            )
        return parsed

    def steps(self, size, names=None):
        """Returns the contenders at a size, those of the given names, and before them their baselines."""
        contenders = [s for s in self.contenders(self.parse(size)) if names is None or s.name in names]
        needed = dict.fromkeys(baseline for step in contenders for baseline in step.against)
        return [*(Step(name) for name in needed), *contenders]


def scores_and_labels(batch, n):
    """Returns normal scores `[batch, n]` and a random class each."""
    labels = tf.random.stateless_uniform([batch], [3, 4], maxval=n, dtype=tf.int32)
    return tf.random.stateless_normal([batch, n], [1, 2]), labels


def softmax_ce(scores, labels):
    """TensorFlow's own loss, against which others are measured."""
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores))


def value_and_gradient(loss):
    """Returns the function of scores and labels to a loss and its gradient."""

    def step(scores, labels):
        with tf.GradientTape() as tape:
            tape.watch(scores)
            value = loss(scores, labels)
        return value, tape.gradient(value, scores)

    return step
