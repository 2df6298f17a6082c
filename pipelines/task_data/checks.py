"""Checks of an experiment before anything is loaded: ranges of fields, and combinations of parts.

Ranges of options are checked by the function or class that has them.
"""

from collections.abc import Iterator

import numpy as np

from rank4class import arguments, losses, models
from rank4class.losses.metrics.names import stated_coverage
from rank4class.losses.ops import ranks
from rank4class.pipelines import config
from rank4class.pipelines.task_data import class_frequencies, count_priors, rank_functions
from rank4class.registry import DATASETS, OPTIMIZERS, SET_SCORES, SORTERS, THRESHOLDS

_POSITIVE = (
    "data.max_length",
    "data.windows",
    "data.max_examples",
    "data.max_train_examples",
    "batch_size",
    "accumulation_steps",
    "steps_per_execution",
    "checkpoint_steps",
    "steps",
    "minutes",
    "evaluations_per_epoch",
    "evaluation_batch_size",
)
_NOT_NEGATIVE = ("data.split_seed", "data.name_examples", "epochs", "min_steps", "patience")
_CHOICES = {
    "data.augmentation": ("none", "flip", "affine_flip", "random_crop"),
    "class_encoder.init": tuple(config.STARTS),
    "precision": ("float32", "mixed_float16", "mixed_bfloat16"),
    "calibration": ("auto", "none"),
    "words": ("auto", "none"),
    "optimizer.selection": ("likelihood", "monitor"),
}
_PROBED = 1_000  # classes that a loss is tried with, at most; `loss.k` may exceed it


def check(experiment: config.Experiment, *, trains: bool = True) -> None:
    """Raises ValueError, with the field and the remedy, if an experiment cannot run.

    A description of its dataset, which trains nothing, needs no weights of its encoder.
    """
    config.check_types(experiment)
    values = config.values(experiment)
    arguments.check_positive(**{name: values[name] for name in _POSITIVE})
    arguments.check_at_least(0, **{name: values[name] for name in _NOT_NEGATIVE})
    for name, choices in _CHOICES.items():
        if name in values:
            arguments.check_choice(choices, **{name: values[name]})
    arguments.check_at_least(2, section="data.", image_size=experiment.data.image_size)
    arguments.check_seed(experiment.seed)
    _check_options(experiment, trains)
    check_optimizer(experiment.optimizer)
    for name in experiment.metrics:
        losses.get_metric(name)
    for is_wrong, message in _combinations(experiment, trains):
        if is_wrong:
            raise ValueError(message)
    count_priors.get(experiment.count_prior).check(experiment.metrics, experiment.loss)


def _check_options(experiment: config.Experiment, trains: bool) -> None:
    data = experiment.data
    encoder = experiment.encoder
    class_encoder = experiment.class_encoder
    if data.name in DATASETS:  # or the data are in memory
        with arguments.in_section("data."):
            DATASETS.check(data.name, data.options())
    with arguments.in_section("encoder."):
        if "path" not in encoder.fields:
            models.get("encoder", encoder.name, **encoder.options())
        elif trains:  # without reading the weights
            models.ENCODERS.check(encoder.name, encoder.options())
    with arguments.in_section("class_encoder."):
        if class_encoder.name == "embedding":
            models.get("class_encoder", "embedding", num_classes=2, width=2, **class_encoder.options())
    with arguments.in_section("interaction."):
        models.get("interaction", experiment.interaction.name, **experiment.interaction.options())
    if experiment.thresholds.name != "none":
        with arguments.in_section("thresholds."):
            counts = {"hits": np.ones(1), "decided": np.ones(1), "relevant": 1}
            THRESHOLDS.build(experiment.thresholds.name, **counts, **experiment.thresholds.options())
    if experiment.sets.name != "none":
        with arguments.in_section("sets."):
            two_classes = {"probabilities": np.full([1, 2], 0.5, np.float32), "places": np.array([[0, 1]])}
            SET_SCORES.build(experiment.sets.name, **two_classes, **experiment.sets.options())
            arguments.check_fraction(False, fraction=experiment.sets.fraction)
    rank_functions.check(experiment.loss)
    with arguments.in_section("loss."):
        _check_loss(experiment.loss)


def _check_loss(part: config.Loss) -> None:
    arguments.check_positive(final_temperature=part.final_temperature)
    class_frequencies.check_loss(part)
    rank_fn = {"rank_fn": ranks.sigmoid_ranks} if part.rank_fn else {}
    loss = losses.get(part.name, **part.options(), **rank_fn)
    if loss.heads or not loss.of_classes:
        raise ValueError(
            f"name={part.name!r}: it does not accept class scores. Compile a Keras model with it instead."
        )
    k = min(getattr(part, "k", 2), _PROBED)
    if hasattr(part, "k"):
        loss = losses.get(part.name, **{**part.options(), "k": k}, **rank_fn)
    loss([0], [[0.0] * max(2, k)])  # checks the options against the scores


def _combinations(experiment: config.Experiment, trains: bool) -> Iterator[tuple[bool, str]]:
    """Yields whether parts do not fit together, and the error."""
    data = experiment.data
    encoder = experiment.encoder
    class_encoder = experiment.class_encoder
    yield (
        data.augmentation != "none" and encoder.frozen,
        f"data.augmentation={data.augmentation!r}: a frozen encoder encodes each image once. Set "
        "encoder.frozen=False or data.augmentation='none'.",
    )
    yield (
        data.augmentation == "random_crop" and data.cache,
        "data.cache=True: the cache keeps no whole images, which data.augmentation='random_crop' needs. Set "
        "it to False.",
    )
    yield (
        trains and encoder.frozen and not encoder.path,
        "encoder.frozen=True: a frozen encoder requires pretrained weights. Set encoder.path.",
    )
    yield (
        config.STARTS.get(class_encoder.init, False) and not encoder.path and encoder.name != "identity",
        f"class_encoder.init={class_encoder.init!r}: needs the vectors of a pretrained encoder. Set "
        "encoder.path.",
    )
    yield (
        class_encoder.init == "probe" and experiment.interaction.name != "dot",
        "class_encoder.init='probe': solves interaction 'dot'. Choose it, or another start.",
    )
    yield (
        class_encoder.name == "text" and encoder.frozen,
        "class_encoder.name='text': it shares the instance encoder, which is frozen. Use 'frozen_text'.",
    )
    for kind in ("class_encoder", "interaction", "count_prior"):
        for field, value in getattr(experiment, kind).changed().items():
            yield (
                encoder.name == "items",
                f"{kind}.{field}={value!r}: encoder 'items' is a whole model, in which it has no effect. "
                "Leave it out, or set --interactions=dot in a sweep.",
            )
    rank_fn = experiment.loss.rank_fn
    has_length = rank_fn is not None and rank_fn in SORTERS and "n" in SORTERS.options(rank_fn)
    for is_wrong, problem in (
        (encoder.name == "items", "encoder 'items' scores the items of each example, no classes"),
        (experiment.count_prior.name != "none", "a count prior is of all classes"),
        (experiment.loss.name in losses.BATCH_LOSSES, f"loss {experiment.loss.name!r} ranks examples"),
        (has_length, f"loss.rank_fn={rank_fn!r} sorts lists of one length"),
    ):
        yield (
            is_wrong and experiment.candidates.name != "all",
            f"candidates={experiment.candidates.name!r}: {problem}. Choose 'all'.",
        )
    for field, plain in (("jit_compile", False), ("accumulation_steps", 1)):
        value = getattr(experiment, field)
        yield (
            experiment.optimizer.name == "lazy_adam" and value != plain,
            f"{field}={value}: not supported by optimizer 'lazy_adam', whose gradients have as many rows as "
            f"the batch looks up. Set {field} to {plain}, or choose 'adam'.",
        )
    for is_wrong, other in (
        (not config.is_fixed(encoder), "a frozen encoder, or 'identity'. Choose one"),
        (experiment.interaction.name != "dot", "interaction 'dot'. Choose it"),
        (class_encoder.name != "embedding", "class encoder 'embedding'. Choose it"),
        (experiment.candidates.name != "all", "candidates 'all'. Choose it"),
        (experiment.count_prior.name == "learned", "no learned count prior. Choose 'empirical'"),
        (experiment.loss.name in losses.BATCH_LOSSES, "a loss of single examples. Choose 'softmax'"),
        (experiment.loss.fine_tune, "a fixed sorter. Set loss.fine_tune=False"),
        (experiment.loss.final_temperature is not None, "one temperature. Leave out loss.final_temperature"),
    ):
        yield (
            is_wrong and "learning_rate" not in experiment.optimizer.fields,
            f"optimizer={experiment.optimizer.name!r}: needs {other}, or optimizer 'adam' with "
            "learning_rate=0.001.",
        )
    sets = experiment.sets.name
    has_prior = count_priors.get(experiment.count_prior).is_model
    yield (
        sets not in ("none", "rank") and experiment.calibration == "none" and not has_prior,
        f"sets={sets!r}: needs probabilities. Set calibration to 'auto', or sets to 'rank'.",
    )
    rate = experiment.unknown
    yield (
        rate is not None and not 0.0 < rate < 1.0,
        f"unknown={rate}: not in (0, 1). Choose a share of the known inputs, such as 0.05.",
    )
    yield (
        rate is not None and bool(data.held_out),
        f"unknown={rate}: no calibration example has the classes of data.held_out. Leave one of both out.",
    )
    for name in ("unknown", "unknown_train"):
        path = getattr(data, name)
        yield (
            path is not None and rate is None,
            f"data.{name}={path}: is for the detection of unknown inputs. Set unknown, such as 0.05.",
        )
    for metric in experiment.metrics:
        is_of_sets = stated_coverage(metric) is not None
        yield (
            is_of_sets and sets == "none",
            f"metrics={metric!r}: needs prediction sets. Set sets to 'threshold'.",
        )
        yield (
            is_of_sets and metric == experiment.monitor,
            f"monitor={metric!r}: validation, which selects the checkpoint, has no prediction sets. Choose "
            "another metric.",
        )
    a_b = experiment.propensity
    yield (
        len(a_b) != 2 or min(a_b) < 0.0 or a_b[1] == 0.0,
        f"propensity={a_b}: not an A of at least 0 and a positive B. Write two numbers.",
    )
    yield (
        experiment.monitor not in experiment.metrics,
        f"monitor={experiment.monitor!r}: not among the metrics. Choose one of: "
        f"{', '.join(experiment.metrics)}.",
    )


def check_optimizer(optimizer: config.Optimizer) -> None:
    """Raises ValueError, with the field, if an optimizer cannot be built."""
    with arguments.in_section("optimizer."):
        if "learning_rate" not in optimizer.fields:
            OPTIMIZERS.build(optimizer.name, **optimizer.options())
            return
        arguments.check_choice(config.DECAYS, decay=optimizer.decay)
        arguments.check_positive(learning_rate=optimizer.learning_rate, clip_norm=optimizer.clip_norm)
        arguments.check_fraction(warmup_fraction=optimizer.warmup_fraction)
        multipliers = {name: rate for name, rate in vars(optimizer).items() if name.endswith("_multiplier")}
        arguments.check_positive(layer_decay=optimizer.layer_decay, **multipliers)
        if optimizer.ema_momentum is not None:
            arguments.check_fraction(False, ema_momentum=optimizer.ema_momentum)
        OPTIMIZERS.build(optimizer.name, schedule=optimizer.learning_rate, **optimizer.options())
