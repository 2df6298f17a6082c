"""The runs of a sweep and the cells of its grid."""

import dataclasses
from collections.abc import Iterable
from typing import Any

from rank4class.pipelines import config
from rank4class.pipelines.sweep import space


def cell_of(experiment: config.Experiment, varied: Iterable[str] = ()) -> dict[str, str]:
    """Returns the cell of an experiment, which the runs of all seeds share: axis -> value."""
    values = config.values(experiment)
    fields = {field: space.format_value(values[field]) if field in values else "-" for field in varied}
    return {"loss": experiment.loss.title, "interaction": experiment.interaction.name, **fields}


def cell_name(experiment: config.Experiment, varied: Iterable[str] = ()) -> str:
    """Returns the name of an experiment's cell, with which the names of its folders begin."""
    return "-".join(cell_of(experiment, varied).values())


@dataclasses.dataclass(eq=False)
class GridRun:
    """A run of a sweep, equal to itself alone."""

    experiment: config.Experiment
    path: str
    ignored: tuple[str, ...] = ()
    varied: tuple[str, ...] = ()
    results: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def cell(self) -> dict[str, str]:
        return cell_of(self.experiment, self.varied)

    @property
    def name(self) -> str:
        return cell_name(self.experiment, self.varied)

    def epochs(self, steps: int) -> float:
        """Converts a number of training steps to epochs."""
        return steps * self.experiment.batch_size / self.results["train_examples"]
