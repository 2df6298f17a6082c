"""Trains a sorter on random vectors; continues an interrupted training.

python -m rank4class.scripts.research.train_sorter --sorter=equivariant --workdir=runs/equivariant
"""

from typing import Any

from absl import flags

from rank4class.pipelines import config
from rank4class.scripts import cli
from rank4class.scripts.research.sorters import training_config

_EXPERIMENT = training_config.SorterExperiment()
_MOVES = {name: training_config.default_move(name) for name in training_config.LEARNED}
_MEANINGS = {
    "sorter": f"Sorter to train: {', '.join(training_config.LEARNED)}.",
    "sizes": "Lengths of the vectors; successive steps cycle through them.",
    "layers": f"Number of layers of {' or '.join(training_config.NETWORKS)}; None: its default.",
    "move": "Largest distance, in ranks, that the scores move before the sorter ranks them; None: "
    f"{', '.join(f'{move:g} for {name}' for name, move in _MOVES.items())}.",
    "epochs": "Number of epochs of 100,000 vectors.",
    "batch_size": "Number of vectors per step.",
    "optimizer.learning_rate": "Learning rate before any decay.",
    "optimizer.decay": f"Decay of the learning rate: {', '.join(config.DECAYS)}.",
    "optimizer.warmup_fraction": "Warmup, as a fraction of all steps.",
    "optimizer.clip_norm": "Largest norm of the gradient.",
    "checkpoint_steps": "Steps between checkpoints; each epoch ends with one, too.",
    "seed": "Seed of all random draws.",
}
_DEFAULTS = {**config.values(_EXPERIMENT), "move": None}
_FLAGS = {
    field: flags.DEFINE_string(
        field.removeprefix("optimizer."), training_config.text_of(_DEFAULTS[field]), meaning
    )
    for field, meaning in _MEANINGS.items()
}
_STRATEGY = cli.define_strategy()
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run.", required=True)


def main() -> None:
    from rank4class.scripts.research.sorters import training

    texts = {field: flag.value for field, flag in _FLAGS.items() if flag.value is not None}
    values = {field: config.parse_value(_EXPERIMENT, field, text) for field, text in texts.items()}
    move = training_config.default_move(values["sorter"])
    experiment = config.override(_EXPERIMENT, {"move": move, **values})
    results = training.train(experiment, _WORKDIR.value, strategy=_STRATEGY())
    print(_results_table(results))
    print(f"Weights, results and checkpoints: {_WORKDIR.value}")
    print(f"TensorBoard: tensorboard --logdir {_WORKDIR.value}")


def _results_table(results: dict[str, Any]) -> str:
    """Returns the errors of a trained sorter with their intervals, as text for a terminal."""
    from rank4class.pipelines.reporting import tables

    rows = [["mean absolute error of the ranks", "validation", "test"]]
    for name in results["test"]["intervals"]:
        cells = []
        for split in ("validation", "test"):
            low, high = results[split]["intervals"][name]
            cells.append(f"{results[split][name]:.5f}  [{low:.5f}, {high:.5f}]")
        rows.append([name, *cells])
    return tables.text_table(rows)


if __name__ == "__main__":
    cli.run(main, resumes=True)
