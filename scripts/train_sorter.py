"""Trains a sorter on random vectors, or goes on where it was interrupted.

python -m rank4class.scripts.train_sorter --sorter=equivariant --workdir=runs/equivariant
"""

from absl import flags

from rank4class.pipelines import config
from rank4class.pipelines.sorters import sorter_config
from rank4class.scripts import cli

_USUAL = sorter_config.SorterExperiment()
_SORTER = flags.DEFINE_enum("sorter", _USUAL.sorter, sorter_config.LEARNED, "What to train.")
_SIZES = flags.DEFINE_list(
    "sizes", list(map(str, _USUAL.sizes)), "Lengths of the vectors, of one step after the other."
)
_MOVE = flags.DEFINE_float(
    "move",
    None,
    "How far, in places, the scores move at most to where they are to be ranked; by default "
    + ", ".join(f"{sorter_config.default_move(sorter):g} for {sorter}" for sorter in sorter_config.LEARNED)
    + ".",
)
_EPOCHS = flags.DEFINE_float("epochs", _USUAL.epochs, "How long, in epochs of 100,000 vectors.")
_BATCH_SIZE = flags.DEFINE_integer("batch_size", _USUAL.batch_size, "Vectors a step.")
_LEARNING_RATE = flags.DEFINE_float("learning_rate", _USUAL.optimizer.learning_rate, "Adam's, its peak.")
_DECAY = flags.DEFINE_enum("decay", _USUAL.optimizer.decay, config.DECAYS, "Of the learning rate.")
_WARMUP_SHARE = flags.DEFINE_float("warmup_fraction", _USUAL.optimizer.warmup_fraction, "Of all steps.")
_CLIP_NORM = flags.DEFINE_float("clip_norm", _USUAL.optimizer.clip_norm, "Largest norm of a gradient.")
_CHECKPOINT_STEPS = flags.DEFINE_integer(
    "checkpoint_steps", _USUAL.checkpoint_steps, "Steps between checkpoints, besides one an epoch."
)
_SEED = flags.DEFINE_integer("seed", _USUAL.seed, "Every random draw hangs on it.")
_STRATEGY = cli.define_strategy()
_WORKDIR = flags.DEFINE_string("workdir", None, "The run's folder.", required=True)


def main() -> None:
    from rank4class.pipelines.sorters import training

    experiment = sorter_config.SorterExperiment(
        sorter=_SORTER.value,
        sizes=sorter_config.parse_sizes(_SIZES.value),
        move=sorter_config.default_move(_SORTER.value) if _MOVE.value is None else _MOVE.value,
        optimizer=config.Optimizer(
            learning_rate=_LEARNING_RATE.value,
            decay=_DECAY.value,
            warmup_fraction=_WARMUP_SHARE.value,
            clip_norm=_CLIP_NORM.value,
        ),
        epochs=_EPOCHS.value,
        batch_size=_BATCH_SIZE.value,
        checkpoint_steps=_CHECKPOINT_STEPS.value,
        seed=_SEED.value,
    )
    results = training.train(experiment, _WORKDIR.value, strategy=_STRATEGY())
    print(training.results_table(results))
    print(f"Weights, results and checkpoints: {_WORKDIR.value}")
    print(f"TensorBoard: tensorboard --logdir {_WORKDIR.value}")


if __name__ == "__main__":
    cli.run(main, resumes=True)
