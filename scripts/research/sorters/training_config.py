"""The config of a sorter's training, and its checks. It imports no TensorFlow."""

import dataclasses
from typing import Any

from rank4class import arguments
from rank4class.pipelines import config
from rank4class.registry import SORTERS

# Sorters with weights have the argument `trained`.
LEARNED = tuple(name for name in SORTERS if "trained" in SORTERS.options(name))
NETWORKS = tuple(name for name in SORTERS if "layers" in SORTERS.options(name))
_MAX_SIZE = 10_000  # all vectors of the held-out test are drawn at once


@dataclasses.dataclass
class SorterExperiment:
    """Config of the training of a sorter; other fields are those of `config.Experiment`."""

    sorter: str = "equivariant"  # one of `LEARNED`
    sizes: tuple[int, ...] = (100,)  # lengths of the vectors; successive steps cycle through them
    layers: int | None = None  # number of layers of a network, "cnn" or "lstm"; None is its default
    move: float = 0.0  # largest distance, in ranks, that the scores move before the sorter ranks them
    optimizer: config.Optimizer = dataclasses.field(default_factory=config.Optimizer)
    epochs: float = 10.0  # of 100,000 vectors each, followed by an evaluation and a checkpoint
    batch_size: int = 512
    accumulation_steps: int = 1
    precision: str = "float32"
    jit_compile: bool = False
    steps_per_execution: int = 1
    checkpoint_steps: int | None = None
    evaluation_batch_size: int = 500
    seed: int = 0

    @property
    def options(self) -> dict[str, int]:
        """The arguments of the sorter that are set."""
        return {} if self.layers is None else {"layers": self.layers}

    @property
    def command(self) -> str:
        """The command that trains the sorter."""
        changed = config.changed_fields(self).items()
        flags = (f" --{field.removeprefix('optimizer.')}={text_of(value)}" for field, value in changed)
        return "python -m rank4class.scripts.research.train_sorter" + "".join(flags)


def check(experiment: SorterExperiment) -> None:
    """Raises ValueError, naming the flag, if the config is invalid."""
    from rank4class.pipelines.task import checks  # imports TensorFlow

    config.check_types(experiment)
    arguments.check_choice(LEARNED, sorter=experiment.sorter)
    SORTERS.check(experiment.sorter, experiment.options)
    for size in experiment.sizes:
        arguments.check_integer(2, _MAX_SIZE, sizes=size)
    arguments.check_at_least(0, move=experiment.move)
    if experiment.sorter == "equivariant" and not experiment.move:
        raise ValueError(
            "move=0: sorter 'equivariant' needs a positive one, such as 1. Without a move, ever sharper "
            "comparisons rank better, until no gradient is left."
        )
    arguments.check_positive(epochs=experiment.epochs)
    for name in ("layers", "batch_size", "steps_per_execution", "checkpoint_steps"):
        if getattr(experiment, name) is not None:
            arguments.check_integer(1, 2**31 - 1, **{name: getattr(experiment, name)})
    arguments.check_seed(experiment.seed)
    checks.check_optimizer(experiment.optimizer)


def default_move(sorter: str) -> float:
    """Returns the default `move` of the command for a sorter."""
    return 1.0 if sorter == "equivariant" else 0.0


def text_of(value: Any) -> str | None:
    """Returns a value as a flag has it."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return None if value is None else str(value)
