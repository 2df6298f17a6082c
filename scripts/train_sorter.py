"""Trains a sorter on random vectors; continues an interrupted training.

python -m rank4class.scripts.train_sorter --sorter=equivariant --workdir=runs/equivariant

SoDeep's schedule halves the learning rate every 100 epochs: --decay=step --decay_epochs=100.
"""

from typing import Any

from absl import flags

from rank4class.pipelines import config
from rank4class.pipelines.training import sorter_config
from rank4class.scripts import cli

_DEFAULT = sorter_config.SorterExperiment()
_SORTER = flags.DEFINE_enum("sorter", _DEFAULT.sorter, sorter_config.LEARNED, "Sorter to train.")
_SIZES = flags.DEFINE_list(
    "sizes", list(map(str, _DEFAULT.sizes)), "Lengths of the vectors; successive steps cycle through them."
)
_LAYERS = flags.DEFINE_integer(
    "layers", None, f"Number of layers of {' or '.join(sorter_config.NETWORKS)}; None: its default."
)
_MOVE = flags.DEFINE_float(
    "move",
    None,
    "Largest distance, in ranks, that the scores move before the sorter ranks them; None: "
    + ", ".join(f"{sorter_config.default_move(sorter):g} for {sorter}" for sorter in sorter_config.LEARNED)
    + ".",
)
_EPOCHS = flags.DEFINE_float("epochs", _DEFAULT.epochs, "Number of epochs of 100,000 vectors.")
_BATCH_SIZE = flags.DEFINE_integer("batch_size", _DEFAULT.batch_size, "Number of vectors per step.")
_LEARNING_RATE = flags.DEFINE_float(
    "learning_rate", _DEFAULT.optimizer.learning_rate, "Learning rate before any decay."
)
_DECAY = flags.DEFINE_enum("decay", _DEFAULT.optimizer.decay, config.DECAYS, "Decay of the learning rate.")
_DECAY_EPOCHS = flags.DEFINE_float(
    "decay_epochs", _DEFAULT.optimizer.decay_epochs, "Epochs between two multiplications by --decay=step."
)
_DECAY_FACTOR = flags.DEFINE_float(
    "decay_factor", _DEFAULT.optimizer.decay_factor, "Factor of --decay=step, in (0, 1)."
)
_WARMUP_FRACTION = flags.DEFINE_float(
    "warmup_fraction", _DEFAULT.optimizer.warmup_fraction, "Warmup, as a fraction of all steps."
)
_CLIP_NORM = flags.DEFINE_float("clip_norm", _DEFAULT.optimizer.clip_norm, "Largest norm of the gradient.")
_CHECKPOINT_STEPS = flags.DEFINE_integer(
    "checkpoint_steps", _DEFAULT.checkpoint_steps, "Steps between checkpoints; each epoch ends with one, too."
)
_SEED = flags.DEFINE_integer("seed", _DEFAULT.seed, "Seed of all random draws.")
_STRATEGY = cli.define_strategy()
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run.", required=True)


def main() -> None:
    from rank4class.pipelines.reporting import plots
    from rank4class.pipelines.training import sorter_training

    experiment = sorter_config.SorterExperiment(
        sorter=_SORTER.value,
        sizes=sorter_config.parse_sizes(_SIZES.value),
        layers=_LAYERS.value,
        move=sorter_config.default_move(_SORTER.value) if _MOVE.value is None else _MOVE.value,
        optimizer=config.Optimizer(
            learning_rate=_LEARNING_RATE.value,
            decay=_DECAY.value,
            decay_epochs=_DECAY_EPOCHS.value,
            decay_factor=_DECAY_FACTOR.value,
            warmup_fraction=_WARMUP_FRACTION.value,
            clip_norm=_CLIP_NORM.value,
        ),
        epochs=_EPOCHS.value,
        batch_size=_BATCH_SIZE.value,
        checkpoint_steps=_CHECKPOINT_STEPS.value,
        seed=_SEED.value,
    )
    results = sorter_training.train(experiment, _WORKDIR.value, strategy=_STRATEGY(), draw=plots.rank_sweep)
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
