"""The experiments of the papers that can be run here, by the table or figure that they reproduce."""

import dataclasses
from collections.abc import Mapping

from rank4class.registry import did_you_mean

SOFTMAX_DOT = {"loss": "softmax", "interaction": "dot"}


@dataclasses.dataclass(frozen=True)
class Command:
    """A sweep, or a study of sorters.

    Attributes:
      line: the command with its flags, without `--workdir`. FOLDER is the folder of the data and CHECKPOINT
        that of an encoder's weights.
      name: parts of a cell's name besides its loss and its interaction.
    """

    line: str
    name: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Reproduction:
    """A table or a figure of a paper, or a study of a claim.

    Attributes:
      title: what it measures.
      claims: ids of the claims that it tests.
      commands: the commands. Cells of equal names in several of them are one cell: of more seeds, or of parts
        of a test set such as folds.
      data: what FOLDER and CHECKPOINT have to hold; None if the data are generated or installed.
      baseline: name of the cell that the others are compared with.
      paper: name of the paper's table in `paper_values`, if there is one.
      metrics: metrics that the cells are compared in; all of their config if empty.
      margin: difference of metrics in percent, in points, below which two cells are equivalent.
      curves: whether the validation values of all evaluations are results too; for a monitored metric whose
        higher values are better.
      test_to_train: number of test examples over that of training examples, if each seed draws another split
        of the same examples.
    """

    title: str
    claims: tuple[str, ...]
    commands: tuple[Command, ...]
    data: str | None = None
    baseline: Mapping[str, str] | None = None
    paper: str | None = None
    metrics: tuple[str, ...] = ()
    margin: float = 0.5
    curves: bool = False
    test_to_train: float = 0.0

    def command_lines(self) -> list[str]:
        """Returns the command lines, with `--workdir`."""
        return [f"rank4class {command.line} --workdir=WORKDIR/{i}" for i, command in enumerate(self.commands)]


def get(name: str) -> Reproduction:
    """Returns a reproduction by its name.

    >>> get("rankmax/table2").claims
    ('K1', 'K5')
    >>> get("rankmax/table_2")
    Traceback (most recent call last):
    ...
    ValueError: only='rankmax/table_2': no such reproduction. Did you mean 'rankmax/table2'? \
See --list for all of them.
    """
    if name not in REPRODUCTIONS:
        hint = did_you_mean(name, REPRODUCTIONS)
        raise ValueError(f"only={name!r}: no such reproduction. {hint}See --list for all of them.")
    return REPRODUCTIONS[name]


DATA = "--config.data.path=FOLDER"
LOSSES = "--losses=softmax,pairwise_logistic,approx_ndcg,gumbel_approx_ndcg,mse"
GRID = f"{LOSSES} --interactions=dot,lc_mlp,concat_mlp"


def _sweep(config: str, *flags: str, seeds: int = 5) -> str:
    """Returns the command of a sweep with some seeds from 0 on."""
    return " ".join([f"sweep --config={config}", *flags, *(f"--seed={seed}" for seed in range(seeds))])


def _rates(*rates: str) -> str:
    return f"--tune=optimizer.learning_rate={','.join(rates)}"


def _grid(paper: str | None, title: str, data: str, line: str) -> Reproduction:
    """Returns a reproduction of Rank4Class's grid of losses and interactions."""
    claims = ("R3", "R4", "R5", "R6", "R7", "R9")
    return Reproduction(title, claims, (Command(line),), data, SOFTMAX_DOT, paper)


def _published_grid(number: int, config: str, data: str) -> Reproduction:
    """Returns the reproduction of a table of Rank4Class with the paper's own dataset and encoder."""
    encoder = "--config.encoder.path=CHECKPOINT" if "CHECKPOINT" in data else ""
    grid = GRID.replace("mse", "rescaled_mse") if config.startswith("imagenet") else GRID
    rates = _rates("0.000003", "0.00001", "0.00003", "0.0001")
    line = _sweep(config, DATA, *filter(None, [encoder]), grid, rates)
    return _grid(f"rank4class/table{number}", f"Rank4Class, Table {number}", data, line)


def _fine_tuned(part: str, claims: tuple[str, ...], epochs: int, *cells: str, seeds: int = 5) -> Reproduction:
    """Returns a part of the grid of GoEmotions with a fine-tuned encoder, a sweep for each of the cells."""
    commands = tuple(
        Command(
            _sweep(
                f"goemotions_minilm {DATA} --config.data.max_train_examples=6000 --config.epochs={epochs}",
                f"{flags} --tuning_seeds=1 --widen=1 {_rates('0.00003', '0.0001', '0.0003')}",
                seeds=seeds,
            )
        )
        for flags in cells
    )
    title = f"Rank4Class's {part}, on 6,000 comments of GoEmotions with fine-tuned MiniLM"
    return Reproduction(title, claims, commands, _TSV, SOFTMAX_DOT, "rank4class/table7", curves=True)


def _image_grid(paper: str | None, images: str, data: str, config: str) -> Reproduction:
    """Returns the grid on images with a CNN of 16 and 32 filters."""
    line = _sweep(
        f"{config} --config.encoder.filters='(16, 32)' {DATA} --config.data.max_examples=9000",
        f"{GRID} --tuning_seeds=1 --widen=1 {_rates('0.001', '0.003', '0.01')}",
    )
    return _grid(paper, f"Rank4Class's grid on {images} with a small CNN", data, line)


def _over_splits(
    config: str, loss: str, *flags: str, name: Mapping[str, str] | None = None, splits: int = 5
) -> list[Command]:
    """Returns a sweep for each of several splits of the data, whose seed is the seed of its run too."""
    return [
        Command(
            f"sweep --config={config} {DATA} --config.data.split_seed={seed} --losses={loss} "
            f"--interactions=dot {' '.join([*flags, f'--seed={seed}'])}",
            name or {},
        )
        for seed in range(splits)
    ]


def _study(
    title: str, claim: str, line: str, baseline: str, data: str | None = None, test_to_train: float = 0.0
) -> Reproduction:
    """Returns a reproduction of a study of losses on ranks."""
    command = Command(f"sorter_experiments {line}")
    baseline_cell = {"loss": baseline}
    return Reproduction(title, (claim,), (command,), data, baseline_cell, test_to_train=test_to_train)


def _practice(title: str, *commands: Command) -> Reproduction:
    """Returns a study of losses on frozen features; the first command has the baseline."""
    title = f"Losses on frozen MiniLM features of GoEmotions: {title}"
    baseline = {**SOFTMAX_DOT, **commands[0].name}
    return Reproduction(title, (), commands, data=_TSV, baseline=baseline, curves=True)


def _losses(flags: str, name: Mapping[str, str] | None = None) -> Command:
    """Returns a sweep of losses with frozen features."""
    losses = "--losses=softmax,rankmax,sparsemax,pairwise_logistic,approx_ndcg,mse"
    return _frozen(" ".join(filter(None, [flags, losses])), "", name or {})


def _smoothed(flags: str) -> Command:
    """Returns a sweep of the softmax with tuned label smoothing."""
    tune = "--tune=loss.label_smoothing=0.1,0.3,0.5"
    return _frozen(f"{flags} --losses=softmax", f" {tune}", {"label smoothing": "tuned"})


def _frozen(flags: str, tune: str, name: Mapping[str, str]) -> Command:
    rates = _rates("0.001", "0.003", "0.01", "0.03")
    line = _sweep(
        f"goemotions_minilm_frozen {DATA} {flags} --interactions=dot", f"--tuning_seeds=1 {rates}{tune}"
    )
    return Command(line, name)


def _held_out(flags: str, trained: str) -> list[Command]:
    """Returns a sweep for each third of the emotions, held out of training."""
    return [
        Command(
            _sweep(
                f'goemotions_zero_shot {DATA} --config.data.held_out="{_EMOTIONS[i::3]}" {flags}',
                "--losses=softmax --config.calibration=none",
            ),
            {"trained on": trained},
        )
        for i in range(3)
    ]


def _top_k(title: str, paper: str, flags: str) -> Reproduction:
    """Returns a part of n-choose-k's Table 1, with linear scores of the pixels."""
    commands = [
        *_over_splits("embedded_digits_top_k", "sigmoid_cross_entropy", flags, splits=_SPLITS),
        *(
            command
            for k in ("1", "3", "5")
            for command in _over_splits(
                "embedded_digits_top_k",
                "top_k_gain",
                f"--config.loss.k={k} --config.monitor=top{k}_accuracy",
                flags,
                name={"k": k},
                splits=_SPLITS,
            )
        ),
    ]
    return Reproduction(
        f"Training for top-K accuracy {title}, over splits of the data",
        ("N4",),
        tuple(commands),
        data=_MNIST,
        baseline={"loss": "top_k_gain", "interaction": "dot", "k": "1"},
        paper=f"n_choose_k/table1/embedded_mnist/{paper}",
        test_to_train=_RANDOM_SPLITS,
    )


_SPLITS = 10  # of the data, of the training for top-K accuracy
_RANDOM_SPLITS = 0.2 / 0.6  # test over training examples
_TSV = "the published TSV files of GoEmotions"
_MNIST = "MNIST's files; those of t10k suffice"
_MOVIELENS = (
    "--config.epochs=100 --config.evaluations_per_epoch=0.25 --config.patience=6 --config.calibration=none"
)
_RETRIEVAL = Command(
    _sweep(
        f"movielens_100k {DATA} {_MOVIELENS}",
        "--losses=softmax,rankmax,sparsemax --interactions=dot",
        f"--tuning_seeds=1 --widen=1 {_rates('0.003', '0.01', '0.03')}",
        "--tune=class_encoder.weight_decay=0.00001,0.0001,0.001",
        seeds=10,
    )
)
# Those of GoEmotions without "neutral".
_EMOTIONS = (
    *("admiration", "amusement", "anger", "annoyance", "approval", "caring", "confusion", "curiosity"),
    *("desire", "disappointment", "disapproval", "disgust", "embarrassment", "excitement", "fear"),
    *("gratitude", "grief", "joy", "love", "nervousness", "optimism", "pride", "realization", "relief"),
    *("remorse", "sadness", "surprise"),
)
_PENALTIES = "--tuning_seeds=1 --tune=class_encoder.weight_decay=0.0003,0.003,0.03"
REPRODUCTIONS: dict[str, Reproduction] = {
    "rank4class/goemotions_frozen": _grid(
        "rank4class/table7",
        "Rank4Class's grid on GoEmotions with frozen MiniLM features",
        _TSV,
        _sweep("goemotions_minilm_frozen", DATA, GRID, _rates("0.001", "0.003", "0.01", "0.03")),
    ),
    "rank4class/goemotions_minilm": _fine_tuned(
        "grid with 2 epochs",
        ("R3", "R4", "R5", "R6", "R7"),
        2,
        f"{LOSSES} --interactions=dot",
        f"{LOSSES} --interactions=lc_mlp,concat_mlp",
    ),
    "rank4class/goemotions_minilm_ten_epochs": _fine_tuned(
        "LC+MLP and pairwise logistic with 10 epochs",
        ("R3", "R4", "R6"),
        10,
        "--losses=softmax --interactions=dot,lc_mlp",
        "--losses=pairwise_logistic --interactions=dot",
        seeds=3,
    ),
    "rank4class/fashion_mnist": _image_grid(
        None, "9,000 images of Fashion-MNIST", "the published files of Fashion-MNIST", "mnist_cnn"
    ),
    "rank4class/cifar10_subset": _image_grid(
        "rank4class/table12",
        "9,000 images of CIFAR-10",
        "CIFAR-10's binary files",
        "cifar10_vgg16 --encoder=small_cnn --config.epochs=10",
    ),
    "rank4class/interactions_frozen": Reproduction(
        "LC+MLP with tuned units and optimizer on frozen MiniLM features of GoEmotions",
        ("R6",),
        (
            Command(
                _sweep(
                    f"goemotions_minilm_frozen {DATA} --losses=softmax,pairwise_logistic,approx_ndcg,mse",
                    # The paper's ranges: of 1,024 units a run takes minutes.
                    "--interactions=dot,lc_mlp --trials=16 --tuning_seeds=1 --widen=0",
                    "--tune=optimizer.name=adam,adagrad --tune=interaction.units=64,128,256,512",
                    _rates("0.001", "0.003", "0.01", "0.03", "0.1", "0.3"),
                )
            ),
        ),
        data=_TSV,
        baseline=SOFTMAX_DOT,
    ),
    "rank4class/held_out_classes": Reproduction(
        "Emotions held out of training and ranked by their names, with frozen MiniLM features of GoEmotions",
        (),
        (
            # A step this small leaves the scores at those of the encoder.
            *_held_out(
                "--interactions=cosine --config.steps=1 --config.optimizer.learning_rate=1e-9", "nothing"
            ),
            *_held_out("--interactions=cosine,dot", "other emotions"),
        ),
        data=_TSV,
        baseline={"loss": "softmax", "interaction": "cosine", "trained on": "nothing"},
        metrics=("top1_error", "top5_error", "ndcg@5"),
    ),
    "rank4class/many_classes": Reproduction(
        "Squared errors with 1,000 synthetic classes",
        ("R8",),
        (
            Command(
                _sweep(
                    "synthetic_thousand --losses=softmax,rescaled_mse,mse --interactions=dot",
                    _rates("0.001", "0.003", "0.01", "0.03"),
                )
            ),
        ),
        baseline={"loss": "mse", "interaction": "dot"},
    ),
    "rankmax/table2": Reproduction(
        "Retrieval of movies for users of MovieLens",
        ("K1", "K5"),
        (_RETRIEVAL,),
        data="ratings.csv and movies.csv of MovieLens latest-small",
        baseline=SOFTMAX_DOT,
        paper="rankmax/table2/movielens_100k",
        curves=True,
    ),
    "rankmax/movielens_100k": Reproduction(
        "Retrieval of movies for users of MovieLens 100K",
        ("K1", "K5"),
        (_RETRIEVAL,),
        data="u.data and u.item of MovieLens 100K",
        baseline=SOFTMAX_DOT,
        curves=True,
    ),
    "rankmax/annealing": Reproduction(
        "Retrieval of movies with a softmax of annealed temperature",
        ("K4",),
        tuple(
            Command(
                _sweep(
                    f"movielens_100k {DATA} {_MOVIELENS} --losses=softmax --interactions=dot",
                    f"--config.class_encoder.weight_decay=0.01 --config.loss.final_temperature={temperature}",
                    f"--tuning_seeds=1 {_rates('0.001', '0.003', '0.01')}",
                ),
                {"final temperature": temperature},
            )
            for temperature in ("1.0", "0.7", "0.5", "0.3")
        ),
        data="ratings.csv and movies.csv of MovieLens latest-small",
        baseline={**SOFTMAX_DOT, "final temperature": "1.0"},
    ),
    "sodeep/table1": Reproduction(
        "Errors of the ranks of 10, 28 and 100 random scores, and of those predicted after a small move",
        ("S1",),
        (
            Command(
                "sorter_experiments --task=sorting "
                "--rank_fns=exact,handcrafted,cnn,lstm,equivariant,neural_sort,soft_sort"
            ),
        ),
        baseline={"loss": "cnn"},
        paper="sodeep/table1",
    ),
    "sodeep/retrieval": _study(
        "Losses of ranks and of scores that match two views",
        "S5",
        "--task=recall --epochs=100 --rank_fns=handcrafted,equivariant",
        "triplet",
    ),
    "sodeep/average_precision": _study(
        "Losses of ranks, HingeAP and cross entropy that find relevant vectors",
        "S2",
        "--task=map --rank_fns=handcrafted,equivariant,cnn "
        + " ".join(f"--seed={seed}" for seed in range(10)),
        "hinge_ap",
    ),
    "sodeep/regression": _study(
        "Spearman's loss and squared error on a table",
        "S3",
        "--task=regression --table=FOLDER --target=price --rank_fns=handcrafted,equivariant "
        + " ".join(f"--seed={seed}" for seed in range(10)),
        "mse",
        "FOLDER: a CSV file of 10,000 rows of the diamonds of R's ggplot2",
        test_to_train=_RANDOM_SPLITS,
    ),
    "sodeep/multi_label": _study(
        "A loss of ranks beside cross entropy on GoEmotions with several labels",
        "S4",
        f"--task=multi_label --rank_fns=handcrafted,equivariant,soft_sort "
        f"--config=goemotions_minilm_frozen {DATA} --config.data.multi_label=True",
        "sigmoid_cross_entropy",
        _TSV,
    ),
    "sodeep/approx_ndcg": Reproduction(
        "ApproxNDCG with the ranks of sorters, on frozen MiniLM features of GoEmotions",
        (),
        (
            _frozen("--losses=softmax,approx_ndcg@equivariant,approx_ndcg@cnn,approx_ndcg@lstm", "", {}),
            # These ranks depend on the scale of the scores, which the other sorters standardize.
            _frozen(
                "--losses=approx_ndcg,approx_ndcg@handcrafted,approx_ndcg@neural_sort",
                " --tune=loss.temperature=0.1,1",
                {},
            ),
        ),
        _TSV,
        SOFTMAX_DOT,
    ),
    "n_choose_k/section5.1": Reproduction(
        "The number of digits in an image, over splits of the data",
        ("N2",),
        (
            *_over_splits("embedded_digits_logistic", "sigmoid_cross_entropy"),
            *_over_splits("embedded_digits", "n_choose_k"),
        ),
        data=_MNIST,
        baseline={"loss": "sigmoid_cross_entropy", "interaction": "dot"},
        paper="n_choose_k/section5.1",
        test_to_train=_RANDOM_SPLITS,
    ),
    "n_choose_k/table1": _top_k("with a penalty chosen on validation", "strong_l2", _PENALTIES),
    "n_choose_k/table1_weak_l2": _top_k(
        "without a penalty",
        "weak_l2",
        "--config.class_encoder.weight_decay=0.0 --config.epochs=60",
    ),
    **{
        f"n_choose_k/letor_{name}": Reproduction(
            f"Learning to rank with linear scores, and LightGBM, on five folds of {title}",
            ("N3",),
            (
                *(
                    Command(
                        _sweep(
                            f"letor_linear --config.data.path=FOLDER/Fold{fold}",
                            "--losses=n_choose_k,softmax,pairwise_logistic,approx_ndcg --interactions=dot",
                            "--tune=encoder.weight_decay=0.1,1,10",
                        )
                    )
                    for fold in range(1, 6)
                ),
                *(
                    Command(f"lightgbm_peer --config=letor_linear --config.data.path=FOLDER/Fold{fold}")
                    for fold in range(1, 6)
                ),
            ),
            metrics=("ndcg@1", "ndcg@5", "ndcg@10"),
            data=f"Fold1 to Fold5 in LETOR's layout: {title}, query i is in the test of fold i mod 5",
            baseline={"loss": "softmax", "interaction": "dot"},
        )
        for name, title in (
            ("lightgbm", "LightGBM's example"),
            ("mslr", "rankeval's sample of MSLR-WEB10K, its features scaled to [0, 1] in each query"),
        )
    },
    "practice/examples_500": _practice(
        "500 training examples",
        _losses(
            "--config.data.max_train_examples=500 --config.epochs=200 --config.evaluations_per_epoch=0.05"
        ),
    ),
    "practice/examples_2000": _practice(
        "2,000 training examples, with the checkpoint that is best on validation, and with the last",
        *(
            _losses(
                "--config.data.max_train_examples=2000 --config.epochs=100 "
                f"--config.evaluations_per_epoch={evaluations}",
                {"checkpoint": checkpoint},
            )
            for checkpoint, evaluations in (("best", 0.1), ("last", 0.01))  # one evaluation at the end
        ),
    ),
    "practice/examples_36308": _practice("all training examples", _losses("")),
    **{
        f"practice/noise_{percent}": _practice(
            f"{percent}% of the training labels wrong",
            _losses(f"--config.data.label_noise={percent / 100}", {"label smoothing": "none"}),
            _smoothed(f"--config.data.label_noise={percent / 100}"),
        )
        for percent in (20, 40)
    },
    "rank4class/table7": _published_grid(7, "goemotions_bert", "GoEmotions; CHECKPOINT: BERT-base"),
    "rank4class/table8": _published_grid(8, "goemotions_electra", "GoEmotions; CHECKPOINT: ELECTRA-base"),
    "rank4class/table9": _published_grid(9, "mind_bert", "MIND; CHECKPOINT: BERT-base"),
    "rank4class/table10": _published_grid(10, "mind_electra", "MIND; CHECKPOINT: ELECTRA-base"),
    "rank4class/table11": _published_grid(11, "imagenet_resnet50", "ImageNet; CHECKPOINT: ResNet50"),
    "rank4class/table12": _published_grid(12, "cifar10_vgg16", "CIFAR-10"),
}
