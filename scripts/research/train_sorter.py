"""Trains a sorter on random vectors; continues an interrupted training after its last epoch.

python -m rank4class.scripts.research.train_sorter --sorter=equivariant --workdir=runs/equivariant
"""

from absl import flags

from rank4class.pipelines import config
from rank4class.scripts import cli
from rank4class.scripts.research import sorters

_SORTER = flags.DEFINE_enum("sorter", "equivariant", sorters.LEARNED, "Sorter to train.")
_SIZES = flags.DEFINE_list("sizes", ["100"], "Lengths of the vectors; successive steps cycle through them.")
flags.register_validator(
    "sizes", lambda sizes: all(map(str.isdecimal, sizes)), "not integers. Write integers."
)
_MOVE = flags.DEFINE_float(
    "move",
    None,
    "Largest distance, in ranks, that the scores move before the sorter ranks them; None: 1 for equivariant, "
    "0 for the others.",
    lower_bound=0.0,
)
_EPOCHS = flags.DEFINE_integer("epochs", 10, "Number of epochs of 100,000 vectors.", lower_bound=1)
_BATCH_SIZE = flags.DEFINE_integer("batch_size", 512, "Number of vectors per step.", lower_bound=1)
_RATE = flags.DEFINE_float("learning_rate", 1e-3, "Learning rate before any decay.")
_DECAY = flags.DEFINE_enum("decay", "none", config.DECAYS, "Decay of the learning rate.")
_WARMUP = flags.DEFINE_float("warmup_fraction", 0.0, "Warmup, as a fraction of all steps.")
_CLIP_NORM = flags.DEFINE_float("clip_norm", None, "Largest norm of the gradient.")
_SEED = flags.DEFINE_integer("seed", 0, "Seed of all random draws.", lower_bound=0)
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the weights and results.", required=True)
_OF_TRAINING = (_SORTER, _SIZES, _MOVE, _EPOCHS, _BATCH_SIZE, _RATE, _DECAY, _WARMUP, _CLIP_NORM, _SEED)


def main() -> None:
    from rank4class.pipelines.reporting import tables
    from rank4class.scripts.research.sorters import accuracy, training

    texts = [flags.FLAGS[flag.name].serialize() for flag in _OF_TRAINING if flag.value != flag.default]
    move = _MOVE.value if _MOVE.value is not None else float(_SORTER.value == "equivariant")
    optimizer = config.Optimizer(
        learning_rate=_RATE.value,
        decay=_DECAY.value,
        warmup_fraction=_WARMUP.value,
        clip_norm=_CLIP_NORM.value,
    )
    results = training.train(
        _WORKDIR.value,
        _SORTER.value,
        optimizer,
        sizes=[*map(int, _SIZES.value)],
        move=move,
        epochs=_EPOCHS.value,
        batch_size=_BATCH_SIZE.value,
        seed=_SEED.value,
        command=" ".join(["python -m rank4class.scripts.research.train_sorter", *texts]),
    )
    rows = [["mean absolute error of the ranks", *results]]
    for name in results["test"]:
        rows.append([name, *(accuracy.with_interval(errors[name]) for errors in results.values())])
    print(tables.text_table(rows))
    print(f"Weights, results, checkpoints and files of TensorBoard: {_WORKDIR.value}")


if __name__ == "__main__":
    cli.run(main, resumes=True)
