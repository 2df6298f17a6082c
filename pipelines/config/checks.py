"""Checks of an experiment before anything is loaded.

Ranges of options are checked by the function or class that has them. This module checks the fields of the
framework, and combinations of parts. It imports TensorFlow when a check is called.
"""

import collections
import contextlib
from collections.abc import Iterator
from typing import Any

from rank4class import arguments
from rank4class.pipelines.config.experiment import Experiment, check_types, value_of
from rank4class.registry import DATASETS, OPTIMIZERS

DECAYS = ("none", "linear", "cosine", "step")
PRECISIONS = ("float32", "mixed_float16", "mixed_bfloat16")
AUGMENTATIONS = ("none", "affine_flip", "random_crop")
CALIBRATIONS = ("auto", "temperature", "platt", "none")
STRATEGIES = ("default", "mirrored", "multi_worker", "tpu")  # of `distribution.get`
CLASS_INITS = ("random", "zeros", "names", "means")
CHECKPOINTS = ("best", "last")  # of `rank_training.restore`
EXPORT_FORMATS = ("saved_model", "huggingface")  # of `Run.export`
EXPORT_INDICES = ("exact", "scann")
_PROBED = 1_000  # classes that a loss is tried with, at most; `loss.k` may exceed it
POSITIVE = (
    "data.max_length",
    "data.max_examples",
    "data.max_train_examples",
    "class_encoder.attention_heads",
    "batch_size",
    "accumulation_steps",
    "steps_per_execution",
    "checkpoint_steps",
    "steps",
    "evaluations_per_epoch",
    "evaluation_batch_size",
)


def check(experiment: Experiment, *, trains: bool = True) -> None:
    """Raises ValueError, with the field and the remedy, if an experiment cannot run.

    Args:
      experiment: the experiment.
      trains: whether it needs the weights of its encoder; a description of its dataset does not.
    """
    check_types(experiment)
    for name in POSITIVE:
        arguments.check_positive(**{name: value_of(experiment, name)})
    arguments.check_at_least(0, epochs=experiment.epochs, patience=experiment.patience)
    _check_data(experiment)
    _check_encoder(experiment, trains)
    _check_class_encoder(experiment)
    _check_items(experiment)
    _check_interaction(experiment)
    _check_loss(experiment)
    _check_count_prior(experiment)
    check_optimizer(experiment.optimizer)
    _check_lazy(experiment)
    arguments.check_choice(PRECISIONS, precision=experiment.precision)
    arguments.check_choice(CALIBRATIONS, calibration=experiment.calibration)
    if experiment.init_from == "":
        raise ValueError("init_from='': empty. Set it to the folder of a run, or to None.")
    arguments.check_seed(experiment.seed)
    _check_metrics(experiment)


def _check_lazy(experiment: Experiment) -> None:
    """Raises ValueError if a step would need gradients of all rows."""
    if experiment.optimizer.name != "lazy_adam":
        return
    for field, plain in (("jit_compile", False), ("accumulation_steps", 1)):
        value = getattr(experiment, field)
        if value != plain:
            raise ValueError(
                f"{field}={value}: not supported by optimizer 'lazy_adam', whose gradients have as many rows "
                f"as the batch looks up. Set {field} to {plain}, or choose 'adam'."
            )


def check_optimizer(optimizer: Any, prefix: str = "optimizer.") -> None:
    """Raises ValueError, with the field, if a `config.Optimizer` cannot be built."""
    with fields_of(prefix):
        arguments.check_choice(DECAYS, decay=optimizer.decay)
        _check_step_decay(optimizer)
        arguments.check_positive(learning_rate=optimizer.learning_rate, clip_norm=optimizer.clip_norm)
        if optimizer.ema_momentum is not None:
            arguments.check_fraction(False, ema_momentum=optimizer.ema_momentum)
        arguments.check_fraction(warmup_fraction=optimizer.warmup_fraction)
        if optimizer.name in OPTIMIZERS:  # or it is that of a run, see `RunDirectory.experiment`
            OPTIMIZERS.build(optimizer.name, schedule=optimizer.learning_rate, **optimizer.options())


def _check_step_decay(optimizer: Any) -> None:
    if optimizer.decay == "step":
        if optimizer.decay_epochs is None:
            raise ValueError("decay_epochs=None: decay 'step' requires it. Set it, such as to 100.")
        arguments.check_positive(decay_epochs=optimizer.decay_epochs)
        arguments.check_fraction(False, decay_factor=optimizer.decay_factor)
        return
    for field, default in (("decay_epochs", None), ("decay_factor", 0.5)):
        value = getattr(optimizer, field)
        if value != default:
            raise ValueError(
                f"{field}={value}: it has no effect with decay {optimizer.decay!r}. Leave it out, or set "
                "decay to 'step'."
            )


@contextlib.contextmanager
def fields_of(prefix: str) -> Iterator[None]:
    """Puts the name of a section before the field in a ValueError that is raised within the block."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{prefix}{error}") from error


def _check_data(experiment: Experiment) -> None:
    data = experiment.data
    if data.name in DATASETS:  # or the data are those of a run, see `RunDirectory.experiment`
        with fields_of("data."):
            DATASETS.check(data.name, data.options())
    arguments.check_choice(AUGMENTATIONS, section="data.", augmentation=data.augmentation)
    if data.augmentation != "none" and experiment.encoder.frozen:
        raise ValueError(
            f"data.augmentation={data.augmentation!r}: a frozen encoder encodes each image once. Set "
            "encoder.frozen=False or data.augmentation='none'."
        )
    arguments.check_at_least(2, section="data.", image_size=data.image_size)
    arguments.check_at_least(0, section="data.", split_seed=data.split_seed)


def _check_encoder(experiment: Experiment, trains: bool) -> None:
    from rank4class import models

    encoder, options = experiment.encoder, experiment.encoder.options()
    reads_weights = "path" in encoder.fields
    if not trains and reads_weights:
        options.setdefault("path", None)
    with fields_of("encoder."):
        models.ENCODERS.check(encoder.name, options)
        if not reads_weights:
            models.ENCODERS.build(encoder.name, **options)
    if trains and reads_weights and encoder.frozen and not encoder.path:
        raise ValueError(
            "encoder.frozen=True: a frozen encoder requires pretrained weights. Set encoder.path."
        )


def _check_class_encoder(experiment: Experiment) -> None:
    from rank4class import models

    class_encoder = experiment.class_encoder
    with fields_of("class_encoder."):
        arguments.check_at_least(0, attention_layers=class_encoder.attention_layers)
        arguments.check_fraction(attention_dropout=class_encoder.attention_dropout)
        arguments.check_choice(CLASS_INITS, init=class_encoder.init)
    for field in ("attention_heads", "attention_dropout"):
        if field in class_encoder.changed() and not class_encoder.attention_layers:
            raise ValueError(
                f"class_encoder.{field}={getattr(class_encoder, field)}: has no effect without attention. "
                "Set class_encoder.attention_layers."
            )
    if class_encoder.name == "embedding":
        with fields_of("class_encoder."):
            models.get("class_encoder", "embedding", num_classes=2, width=2, **class_encoder.options())
    needs_encoder = class_encoder.init in ("names", "means")
    if needs_encoder and not experiment.encoder.path and experiment.encoder.name != "identity":
        raise ValueError(
            f"class_encoder.init={class_encoder.init!r}: needs the vectors of a pretrained encoder. Set "
            "encoder.path."
        )
    if class_encoder.attention_layers and experiment.data.held_out:
        raise ValueError(
            f"class_encoder.attention_layers={class_encoder.attention_layers}: the training classes would "
            "attend to those of data.held_out. Set only one of the two."
        )
    if class_encoder.name == "text" and experiment.encoder.frozen:
        raise ValueError(
            "class_encoder.name='text': it shares the instance encoder, which is frozen. Use 'frozen_text'."
        )


def _check_items(experiment: Experiment) -> None:
    if experiment.encoder.name != "items":
        return
    for kind in ("class_encoder", "interaction", "count_prior"):
        for field, value in getattr(experiment, kind).changed().items():
            raise ValueError(
                f"{kind}.{field}={value!r}: encoder 'items' is a whole model, in which it has no effect. "
                "Leave it out."
            )


def _check_interaction(experiment: Experiment) -> None:
    from rank4class import models

    with fields_of("interaction."):
        models.get("interaction", experiment.interaction.name, **experiment.interaction.options())


def _check_loss(experiment: Experiment) -> None:
    from rank4class import losses
    from rank4class.losses.ops import ranks
    from rank4class.pipelines.config import rank_functions

    part = experiment.loss
    rank_functions.check(part)
    rank_fn = {"rank_fn": ranks.sigmoid_ranks} if part.rank_fn else {}
    with fields_of("loss."):
        arguments.check_positive(final_temperature=part.final_temperature)
        loss = losses.get(part.name, **part.options(), **rank_fn)
        # A call checks the options against the scores.
        if loss.of_classes and not loss.heads:
            k = getattr(part, "k", 0)
            if k > _PROBED:
                k = _PROBED
                loss = losses.get(part.name, **{**part.options(), "k": k}, **rank_fn)
            loss([0], [[0.0] * max(2, k)])
    if not loss.of_classes:
        raise ValueError(
            f"loss={part.name!r}: it does not accept class scores. Compile a Keras model with it instead."
        )
    if loss.heads:
        raise ValueError(
            f"loss={part.name!r}: it requires several scores per class, and a rank model has one. Choose "
            "another loss."
        )


def _check_count_prior(experiment: Experiment) -> None:
    from rank4class.pipelines.config import count_priors

    count_priors.get(experiment.count_prior).check(experiment.metrics, experiment.loss)


def _check_metrics(experiment: Experiment) -> None:
    from rank4class import losses

    if not experiment.metrics:
        raise ValueError(
            f"metrics=(): there is nothing to report. Name a metric, such as {experiment.monitor!r}."
        )
    if experiment.monitor not in experiment.metrics:
        raise ValueError(
            f"monitor={experiment.monitor!r}: not among the metrics. Choose one of: "
            f"{', '.join(experiment.metrics)}."
        )
    for name, count in collections.Counter(experiment.metrics).items():
        losses.get_metric(name)
        if count > 1:
            raise ValueError(f"metrics={experiment.metrics}: {name!r} is repeated. Name it once.")
