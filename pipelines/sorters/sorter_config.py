"""The typed description of a sorter's training, and its checks; it imports no TensorFlow."""

import dataclasses

from rank4class.pipelines import config

LEARNED = ("cnn", "lstm", "equivariant")  # `models.sorters.LEARNED`
_LONGEST = 10_000  # scores: all vectors of the held-out test are drawn at once


@dataclasses.dataclass
class SorterExperiment:
    """All that decides what the training of a sorter computes.

    Attributes:
      sorter: one of `LEARNED`.
      sizes: lengths of the vectors, of one step after the other, then again from the first.
      move: how far, in places, the scores move at most to where the sorter is to rank them; 0 lets them stay.
      epochs: of 100,000 vectors each; an evaluation and a checkpoint after each.
      batch_size, accumulation_steps, precision, jit_compile, steps_per_execution, checkpoint_steps,
        evaluation_batch_size, seed: see `config.Experiment`.
    """

    sorter: str = "equivariant"
    sizes: tuple[int, ...] = (100,)
    move: float = 0.0
    optimizer: config.Optimizer = dataclasses.field(default_factory=config.Optimizer)
    epochs: float = 10.0
    batch_size: int = 512
    accumulation_steps: int = 1
    precision: str = "float32"
    jit_compile: bool = False
    steps_per_execution: int = 1
    checkpoint_steps: int | None = None
    evaluation_batch_size: int = 500
    seed: int = 0

    @property
    def command(self):
        """The command that trains it."""
        flags = []
        for dotted, value in config.changed_fields(self).items():
            text = ",".join(map(str, value)) if isinstance(value, tuple) else value
            flags.append(f" --{dotted.removeprefix('optimizer.')}={text}")
        return "python -m rank4class.scripts.train_sorter" + "".join(flags)


def check(experiment):
    """Raises ValueError, naming the flag, where a sorter cannot be trained so."""
    config.check_types(experiment)
    if experiment.sorter not in LEARNED:
        raise ValueError(f"sorter {experiment.sorter!r} learns nothing: {', '.join(LEARNED)} do")
    if not experiment.sizes or min(experiment.sizes) < 2 or max(experiment.sizes) > _LONGEST:
        raise ValueError(f"sizes {experiment.sizes} are not whole numbers in 2 .. {_LONGEST}")
    if not 0.0 <= experiment.move < 100.0:
        raise ValueError(f"move {experiment.move} is not in [0, 100)")
    if experiment.sorter == "equivariant" and not experiment.move:
        raise ValueError(
            "sorter 'equivariant' needs a move, such as 1: where the scores stay, sharper comparisons always "
            "rank them better, until there is no gradient left"
        )
    for name in ("epochs", "batch_size", "steps_per_execution", "checkpoint_steps"):
        value = getattr(experiment, name)
        if value is not None and not 0 < value < 2**31:
            raise ValueError(f"{name} {value} is not positive")
    config.check_seed(experiment.seed)
    config.check_optimizer(experiment.optimizer, prefix="")


def default_move(sorter):
    """Returns the `move` that the command trains a sorter with unless another is set.

    >>> default_move("equivariant"), default_move("cnn")
    (1.0, 0.0)
    """
    return 1.0 if sorter == "equivariant" else 0.0


def parse_sizes(texts):
    """Returns the numbers of the flag `--sizes`; raises ValueError where they are none."""
    try:
        return tuple(map(int, texts))
    except ValueError as error:
        raise ValueError(f"--sizes={','.join(texts)} are not whole numbers, such as 10,100") from error
