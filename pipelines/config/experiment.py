"""The typed description of an experiment, and its checks.

A field that is None leaves the choice to what it configures (a loss's own temperature, say); a field
set to a value that its owner does not know is an error.

The checks import TensorFlow when they are called: a command reports a wrong flag, and lists the fields,
without the seconds that this import takes.
"""

import copy
import dataclasses
import difflib
import functools
import json
import math
import os
import types
import typing


@dataclasses.dataclass
class Data:
    """Which dataset, and what becomes of its examples.

    The fields that default to None are the dataset's own, see its function in `data`; the others mean the
    same for all datasets.

    Attributes:
      max_length: tokens of a text.
      image_size: height and width of the images that come as files.
      augmentation: "none", "affine_flip" or "random_crop", of the training images; see `data.image`.
      class_weights: "none", "balanced" (every class weighs the same), or a file: a class a line, name,
        tab, weight. The weight of an example in the training loss.
      max_examples: draws that many of each split where it has more; of users, who are known by their ids
        alone, validation and test keep those that training does.
      split_seed: what is drawn of the dataset (splits, `max_examples`) hangs on it.
      cache: whether to preprocess every example once and keep it in memory.
      held_out: classes that training and validation know nothing of; the test split is then their
        examples, each ranked among all the classes.
    """

    name: str = "digits"
    path: str | None = None
    tfds_dir: str | None = None
    on_invalid_row: str | None = None
    multi_label: bool | None = None
    release: str | None = None
    classes: str | None = None
    text_column: str | None = None
    text_pair_column: str | None = None
    label_column: str | None = None
    validation_fraction: float | None = None
    test_fraction: float | None = None
    num_classes: int | None = None
    num_examples: int | None = None
    num_relevant: int | None = None
    features: str | None = None
    width: int | None = None
    spread: float | None = None
    max_length: int = 32
    image_size: int = 224
    augmentation: str = "none"
    class_weights: str = "none"
    max_examples: int | None = None
    split_seed: int = 0
    cache: bool = False
    held_out: tuple[str, ...] = ()


@dataclasses.dataclass
class Encoder:
    """Instance encoder. `frozen` keeps its weights and trains on its outputs, which are computed once.

    "items" is a model of its own, of instances that bring the items to be ranked, such as a query its
    documents: the class encoder and the interaction stay as they are, and do nothing.
    """

    name: str = "mlp"
    frozen: bool = False
    path: str | None = None
    pooling: str | None = None
    dropout: float | None = None
    output_dropout: float | None = None
    weight_decay: float | None = None
    hidden: tuple[int, ...] | None = None
    filters: tuple[int, ...] | None = None
    units: int | None = None


@dataclasses.dataclass
class ClassEncoder:
    """Class encoder, and self-attention among the classes on top of it.

    "text" sends the classes' names through the instance encoder, which learns from them; "frozen_text"
    sends them once through the encoder as it is at the start, or that of `path`, and learns a linear map.
    `texts` is a file of descriptions in place of the names: a class a line, name, tab, description.
    `weight_decay` times the squares of the vectors of an "embedding" is added to the loss.
    `attention_layers` counts the blocks on top.
    """

    name: str = "embedding"
    texts: str | None = None
    path: str | None = None
    weight_decay: float | None = None
    attention_layers: int = 0
    attention_heads: int = 4
    attention_dropout: float = 0.0


@dataclasses.dataclass
class Interaction:
    name: str = "dot"
    units: int | None = None
    dropout: float | None = None
    use_bias: bool | None = None
    temperature: float | None = None


@dataclasses.dataclass
class Loss:
    """What is minimised.

    Attributes:
      name: of the loss; its knobs are fields of their own.
      final_temperature: the temperature goes there exponentially, from the first step to the last.
      rank_fn: of a loss that takes one: "sigmoid", "neural_sort", "soft_sort", or a sorter, "exact",
        "handcrafted", "cnn", "lstm" or "equivariant".
      sorter: file of a sorter's weights; None is those that are shipped.
      fine_tune: whether the sorter goes on learning: with the model, and to rank the model's scores.
      l1_epochs: how long the mean absolute error runs beside the loss, with the weight `l1`; None: always.
    """

    name: str = "softmax"
    rank_fn: str | None = None
    sorter: str | None = None
    fine_tune: bool = False
    form: str | None = None
    l1: float | None = None
    l1_epochs: float | None = None
    temperature: float | None = None
    final_temperature: float | None = None
    normalize: str | None = None
    samples: int | None = None
    gumbel_temperature: float | None = None
    kappa: float | None = None
    target: float | None = None
    lambda_weight: str | None = None
    virtual_label: float | None = None
    top_k: int | None = None
    k: int | None = None
    levels: int | None = None


@dataclasses.dataclass
class CountPrior:
    """How many classes an example has: what an n-choose-k model knows beside its scores.

    Attributes:
      name: "none"; "learned" from the instance, its likelihood added to the loss; "empirical", the training
        examples' shares; "fixed"; or "poisson_binomial", what the scores say if each class comes on its own,
        which with the loss `sigmoid_cross_entropy` is logistic regression.
      most: the largest count of a learned one; None is the training examples'.
      hidden: widths of the dense layers of a learned one, before its last.
      probabilities: of a fixed one, of 0, 1, ... classes.
    """

    name: str = "none"
    most: int | None = None
    hidden: tuple[int, ...] | None = None
    probabilities: tuple[float, ...] | None = None


@dataclasses.dataclass
class Optimizer:
    """`learning_rate` is the peak: reached after `warmup_fraction` of all steps, then kept or let fall.

    `decay` is "none", "linear" or "cosine" (both to 0 at the last step). `clip_norm` scales gradients of a
    larger norm, over all weights together, down to it. `ema_momentum` keeps a moving average of the weights,
    which is what validation, the best checkpoint and the results are of.
    """

    name: str = "adam"
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    warmup_fraction: float = 0.0
    decay: str = "none"
    clip_norm: float | None = None
    ema_momentum: float | None = None


@dataclasses.dataclass
class Experiment:
    """Everything that decides what a run computes.

    Attributes:
      batch_size: examples a step, of all replicas together.
      accumulation_steps: parts in which a replica takes its share of a batch, one after the other, where
        memory is short: the gradient is that of the whole.
      precision: "float32", "mixed_float16" (the loss is scaled) or "mixed_bfloat16".
      jit_compile: whether XLA compiles the steps.
      steps_per_execution: steps that a device takes on its own before it answers; an accelerator wants many.
      checkpoint_steps: steps between checkpoints, besides the one at every evaluation; None: only those.
      epochs: passes over the training split, not necessarily a whole number.
      steps: how many steps to train; None takes as many as `epochs` make.
      evaluations_per_epoch: how often the validation split is judged and a checkpoint kept.
      monitor: the validation metric that picks the best checkpoint.
      patience: stop after that many evaluations without a better one; 0 never stops early.
      metrics: what is reported, shares in percent.
      seed: every random draw hangs on it.
    """

    data: Data = dataclasses.field(default_factory=Data)
    encoder: Encoder = dataclasses.field(default_factory=Encoder)
    class_encoder: ClassEncoder = dataclasses.field(default_factory=ClassEncoder)
    interaction: Interaction = dataclasses.field(default_factory=Interaction)
    loss: Loss = dataclasses.field(default_factory=Loss)
    count_prior: CountPrior = dataclasses.field(default_factory=CountPrior)
    optimizer: Optimizer = dataclasses.field(default_factory=Optimizer)
    batch_size: int = 32
    accumulation_steps: int = 1
    precision: str = "float32"
    jit_compile: bool = False
    steps_per_execution: int = 1
    checkpoint_steps: int | None = None
    epochs: float = 1.0
    steps: int | None = None
    evaluations_per_epoch: int = 1
    evaluation_batch_size: int = 256
    monitor: str = "ndcg@5"
    patience: int = 0
    metrics: tuple[str, ...] = ("top1_error", "top5_error", "ndcg@5")
    seed: int = 0


OPTIMIZERS = ("adam", "adamw", "adagrad")
DECAYS = ("none", "linear", "cosine")
PRECISIONS = ("float32", "mixed_float16", "mixed_bfloat16")
STRATEGIES = ("default", "mirrored", "multi_worker", "tpu")  # of `strategies.get`
CHECKPOINTS = ("best", "last")  # of `trainer.restore`
SMALLEST, LARGEST = 1e-30, 1e30  # of numbers that go into float32, with room to multiply
POSITIVE = (
    "data.max_length",
    "data.image_size",
    "data.max_examples",
    "data.num_classes",
    "data.num_examples",
    "data.num_relevant",
    "data.width",
    "encoder.hidden",
    "encoder.filters",
    "encoder.units",
    "class_encoder.attention_heads",
    "interaction.units",
    "interaction.temperature",
    "loss.temperature",
    "loss.final_temperature",
    "loss.samples",
    "loss.k",
    "loss.gumbel_temperature",
    "loss.l1",
    "loss.l1_epochs",
    "count_prior.most",
    "count_prior.hidden",
    "batch_size",
    "accumulation_steps",
    "steps_per_execution",
    "checkpoint_steps",
    "epochs",
    "steps",
    "evaluations_per_epoch",
    "evaluation_batch_size",
)


def knobs(section):
    """Returns the fields of a section that are set, all but those that say what becomes of the whole."""
    fields = dataclasses.asdict(section)
    whole = ("name", "frozen", "final_temperature", "rank_fn", "sorter", "fine_tune", "l1_epochs")
    return {name: value for name, value in fields.items() if name not in whole and value is not None}


def title(section):
    """Returns what a `config.Loss` is called in a grid: its name, and its rank function's where it has one.

    >>> title(Loss("approx_ndcg", rank_fn="lstm")), title(Loss("mse"))
    ('approx_ndcg@lstm', 'mse')
    """
    return section.name if section.rank_fn is None else f"{section.name}@{section.rank_fn}"


def parse_title(text):
    """Returns the changes to an experiment that make its loss one of such a title.

    >>> parse_title("approx_ndcg@lstm")
    {'loss.name': 'approx_ndcg', 'loss.rank_fn': 'lstm'}
    """
    name, mark, rank_fn = text.partition("@")
    return {"loss.name": name, "loss.rank_fn": rank_fn} if mark else {"loss.name": name}


def dataset_knobs(section):
    """Returns the fields of a `Data` section that its dataset takes."""
    from rank4class import data

    own = [field.name for field in dataclasses.fields(Data) if field.default is None]
    given = {name: getattr(section, name) for name in own if name != "max_examples"}
    given = {name: value for name, value in given.items() if value is not None}
    if "split_seed" in data.DATASETS.option_names(section.name):
        given["split_seed"] = section.split_seed
    return given


def foreign_fields(experiment):
    """Returns the fields that are set although the loss or the interaction does not take them.

    A grid combines many losses and interactions with one experiment, whose fields apply to some of them.

    Returns:
      Dotted name -> the field's default.

    >>> foreign_fields(override(Experiment(), {"loss.name": "mse", "loss.temperature": 0.5}))
    {'loss.temperature': None}
    """
    from rank4class import losses, models

    known = {
        "loss": losses.option_names(experiment.loss.name),
        "interaction": models.INTERACTIONS.option_names(experiment.interaction.name),
    }
    foreign = [
        f"{section}.{option}"
        for section, options in known.items()
        for option in knobs(getattr(experiment, section))
        if option not in options
    ]
    if "temperature" not in known["loss"]:
        foreign.append("loss.final_temperature")
    if "rank_fn" not in known["loss"]:
        foreign += ["loss.rank_fn", "loss.sorter", "loss.fine_tune", "loss.l1_epochs"]
    defaults = {field: value_of(Experiment(), field) for field in foreign}
    return {field: value for field, value in defaults.items() if value_of(experiment, field) != value}


def value_of(experiment, dotted):
    """Returns the value of a field.

    >>> value_of(Experiment(), "loss.name")
    'softmax'
    """
    return functools.reduce(getattr, dotted.split("."), experiment)


def check_field(dotted):
    """Raises ValueError where an experiment has no such field, naming the ones it has.

    >>> check_field("loss.nme")
    Traceback (most recent call last):
    ...
    ValueError: an experiment has no field 'loss.nme', did you mean 'loss.name'?
    """
    known = _field_names(Experiment)
    if dotted not in known:
        close = difflib.get_close_matches(dotted, known, n=1)
        hint = f", did you mean {close[0]!r}?" if close else f"; it has: {', '.join(known)}"
        raise ValueError(f"an experiment has no field {dotted!r}{hint}")


def number_type(dotted):
    """Returns int or float, what a field takes; raises ValueError where it is no field or takes no number.

    >>> number_type("loss.top_k")
    <class 'int'>
    """
    check_field(dotted)
    *sections, name = dotted.split(".")
    owner = Experiment
    for section in sections:
        owner = {field.name: field.type for field in dataclasses.fields(owner)}[section]
    kind = {field.name: field.type for field in dataclasses.fields(owner)}[name]
    kinds = typing.get_args(kind) or (kind,)
    for number in (int, float):
        if number in kinds and typing.get_origin(kind) is not tuple:
            return number
    raise ValueError(f"{dotted} is not a field of one number")


def parse_number(dotted, text):
    """Returns the value of a field of a number from its text; raises ValueError where it is none.

    >>> parse_number("optimizer.learning_rate", "0.1")
    0.1
    """
    kind = number_type(dotted)
    try:
        return kind(text)
    except ValueError as error:
        what = "whole number" if kind is int else "number"
        raise ValueError(f"{dotted} {text!r} is no {what}") from error


def check(experiment, *, trains=True):
    """Raises ValueError, naming the field and the remedy, where an experiment cannot run.

    Args:
      experiment: an `Experiment`.
      trains: whether it needs the weights of its encoder; a description of its data does without.
    """
    from rank4class import data, losses, models
    from rank4class.losses.ops import ranks
    from rank4class.pipelines.config import rank_functions

    check_types(experiment)
    for section in ("encoder", "class_encoder"):
        decay = getattr(experiment, section).weight_decay
        if decay is not None and decay < 0.0:
            raise ValueError(f"{section}.weight_decay {decay} is negative")
    data.DATASETS.check(experiment.data.name, dataset_knobs(experiment.data))
    encoder_knobs = knobs(experiment.encoder)
    if not trains and "path" in models.ENCODERS.option_names(experiment.encoder.name):
        encoder_knobs.setdefault("path", None)
    models.ENCODERS.check(experiment.encoder.name, encoder_knobs)
    _check_data(experiment)
    _check_class_encoder(experiment)
    _check_items(experiment)
    models.INTERACTIONS.check(experiment.interaction.name, knobs(experiment.interaction))
    for name in POSITIVE:
        _check_positive(name, value_of(experiment, name))
    for name in (
        "encoder.dropout",
        "encoder.output_dropout",
        "class_encoder.attention_dropout",
        "interaction.dropout",
    ):
        rate = value_of(experiment, name)
        if rate is not None and not 0.0 <= rate < 1.0:
            raise ValueError(f"{name} {rate} is not in [0, 1)")
    if trains and experiment.encoder.frozen and not experiment.encoder.path:
        raise ValueError("encoder.frozen needs encoder.path: random weights are not worth keeping")
    rank_functions.check(experiment.loss)
    given = {} if experiment.loss.rank_fn is None else {"rank_fn": ranks.sigmoid_ranks}
    loss = losses.get(experiment.loss.name, **knobs(experiment.loss), **given)
    if not loss.of_classes:
        raise ValueError(
            f"loss {experiment.loss.name!r} is for scores of no classes: compile a Keras model with it"
        )
    if loss.heads:
        raise ValueError(
            f"loss {experiment.loss.name!r} needs several scores a class; a rank model gives one"
        )
    if experiment.loss.final_temperature and "temperature" not in loss.options:
        raise ValueError(f"loss.final_temperature: loss {experiment.loss.name!r} has no temperature")
    # One instance shows whether the loss can make sense of its knobs.
    loss([0], [[0.0] * max(2, experiment.loss.k or 0)])
    check_optimizer(experiment.optimizer)
    _one_of("precision", experiment.precision, PRECISIONS)
    if experiment.patience < 0:
        raise ValueError(f"patience {experiment.patience} is negative")
    check_seed(experiment.seed)
    if not experiment.metrics:
        raise ValueError(
            f"metrics=(): there is nothing to report. Name a metric, such as {experiment.monitor!r}."
        )
    if experiment.monitor not in experiment.metrics:
        raise ValueError(
            f"monitor {experiment.monitor!r} is not among the metrics {', '.join(experiment.metrics)}"
        )
    for name in experiment.metrics:
        losses.get_metric(name)
    _check_count_prior(experiment)


def check_seed(seed):
    """Raises ValueError where a seed is out of bounds."""
    if not 0 <= seed < 2**32:
        raise ValueError(f"seed {seed} is not in 0 .. 2**32 - 1")


def check_optimizer(section, prefix="optimizer."):
    """Raises ValueError, naming the field, where a `config.Optimizer` makes no sense."""
    _one_of(f"{prefix}name", section.name, OPTIMIZERS)
    _one_of(f"{prefix}decay", section.decay, DECAYS)
    for name in ("learning_rate", "clip_norm"):
        _check_positive(f"{prefix}{name}", getattr(section, name))
    momentum = section.ema_momentum
    if momentum is not None and not 0.0 < momentum < 1.0:
        raise ValueError(f"{prefix}ema_momentum {momentum} is not in (0, 1)")
    if not 0.0 <= section.warmup_fraction < 1.0:
        raise ValueError(f"{prefix}warmup_fraction {section.warmup_fraction} is not in [0, 1)")
    if section.weight_decay < 0.0:
        raise ValueError(f"{prefix}weight_decay {section.weight_decay} is negative")
    if section.weight_decay and section.name != "adamw":
        raise ValueError(f"{prefix}weight_decay {section.weight_decay} needs {prefix}name='adamw'")


AUGMENTATIONS = ("none", "affine_flip", "random_crop")


def _check_data(experiment):
    section = experiment.data
    _one_of("data.augmentation", section.augmentation, AUGMENTATIONS)
    if section.augmentation != "none" and experiment.encoder.frozen:
        raise ValueError("data.augmentation changes the images every time, a frozen encoder sees them once")
    for name in ("validation_fraction", "test_fraction"):
        share = getattr(section, name)
        if share is not None and not 0.0 < share < 1.0:
            raise ValueError(f"data.{name} {share} is not in (0, 1)")
    if section.image_size < 2:
        raise ValueError(f"data.image_size {section.image_size} is less than 2, which no encoder can take")
    if section.split_seed < 0:
        raise ValueError(f"data.split_seed {section.split_seed} is negative")


CLASS_ENCODERS = ("embedding", "text", "frozen_text")


def _check_class_encoder(experiment):
    section = experiment.class_encoder
    if section.name == "attention":
        raise ValueError(
            "class_encoder.name 'attention' needs class encodings to attend to: set "
            f"class_encoder.attention_layers, and a name of {', '.join(CLASS_ENCODERS)}"
        )
    _one_of("class_encoder.name", section.name, CLASS_ENCODERS)
    if section.attention_layers < 0:
        raise ValueError(f"class_encoder.attention_layers {section.attention_layers} is negative")
    if section.texts and section.name == "embedding":
        raise ValueError("class_encoder.texts needs class_encoder.name='text' or 'frozen_text'")
    if section.path and section.name != "frozen_text":
        raise ValueError("class_encoder.path needs class_encoder.name='frozen_text'")
    if section.weight_decay and section.name != "embedding":
        raise ValueError("class_encoder.weight_decay needs class_encoder.name='embedding'")
    if section.attention_layers and experiment.data.held_out:
        raise ValueError(
            "class_encoder.attention_layers lets the other classes see those of data.held_out: use only one"
        )
    if section.name == "text" and experiment.encoder.frozen:
        raise ValueError(
            "class_encoder.name 'text' shares the instance encoder, which is frozen: set it to 'frozen_text'"
        )


COUNT_PRIORS = {
    "none": (),
    "learned": ("most", "hidden"),
    "empirical": (),
    "fixed": ("probabilities",),
    "poisson_binomial": (),
}


def _check_count_prior(experiment):
    from rank4class import losses
    from rank4class.models import count_priors

    section = experiment.count_prior
    _one_of("count_prior.name", section.name, COUNT_PRIORS)
    for knob in knobs(section):
        if knob not in COUNT_PRIORS[section.name]:
            raise ValueError(f"count_prior.name {section.name!r} has no count_prior.{knob}")
    if section.name == "fixed":
        if section.probabilities is None:
            raise ValueError("count_prior.name 'fixed' needs count_prior.probabilities, of 0, 1, ... classes")
        try:
            count_priors.check_probabilities(section.probabilities)
        except ValueError as error:
            raise ValueError(f"count_prior.{error}") from error
    if section.name == "none":
        needing = [name for name in experiment.metrics if name in losses.metrics.SET_METRICS]
        if needing:
            others = ", ".join(name for name in COUNT_PRIORS if name != "none")
            raise ValueError(
                f"metric {needing[0]!r} needs a prior of the count: set count_prior.name: {others}"
            )
    elif experiment.loss.levels not in (None, 2):
        raise ValueError(
            f"count_prior.name {section.name!r} counts the classes of one level, loss.levels "
            f"{experiment.loss.levels} has more"
        )


def _check_items(experiment):
    section = experiment.encoder
    if section.name != "items":
        if section.hidden == ():
            raise ValueError(f"encoder.hidden () leaves encoder {section.name!r} without a layer")
        return
    if section.frozen:
        raise ValueError("encoder.name 'items' is a model of its own: frozen, it would learn nothing")
    for name in ("class_encoder", "interaction", "count_prior"):
        difference = first_difference(getattr(experiment, name), getattr(Experiment(), name))
        if difference:
            field, value, _ = difference
            raise ValueError(
                f"encoder.name 'items' is a model of its own, in which {name}.{field} {value!r} does "
                "nothing: leave it out"
            )


def to_json(experiment):
    return json.dumps(dataclasses.asdict(experiment), indent=2) + "\n"


def from_json(text, path, kind=Experiment):
    """Rebuilds an experiment of a kind; raises ValueError where `path` does not hold one."""
    from rank4class.data import sources

    try:
        values = sources.parse_json(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}:{error.lineno} is not JSON: {error.msg}") from error
    except ValueError as error:
        raise ValueError(f"{path} {error}") from error
    return _build(kind, values, path)


def first_difference(left, right):
    """Returns `(field, left's value, right's value)` of the first field that differs, or None."""
    for field in dataclasses.fields(left):
        ours, theirs = getattr(left, field.name), getattr(right, field.name)
        if dataclasses.is_dataclass(ours):
            difference = first_difference(ours, theirs)
            if difference:
                return (f"{field.name}.{difference[0]}", *difference[1:])
        elif ours != theirs:
            return field.name, ours, theirs
    return None


def changed_fields(experiment):
    """Returns the fields that are not at their defaults, dotted name -> value.

    >>> changed_fields(override(Experiment(), {"loss.name": "mse", "seed": 3}))
    {'loss.name': 'mse', 'seed': 3}
    """
    defaults = values(type(experiment)())
    return {name: value for name, value in values(experiment).items() if value != defaults[name]}


def values(experiment):
    """Returns the value of every field, dotted name -> value.

    >>> values(Experiment())["loss.name"]
    'softmax'
    """
    names = _field_names(type(experiment))
    return {name: value_of(experiment, name) for name in names}


def override(experiment, changes):
    """Returns a copy with dotted fields replaced.

    >>> override(Experiment(), {"loss.name": "mse", "seed": 3}).loss.name
    'mse'
    """
    copied = copy.deepcopy(experiment)
    for dotted, value in changes.items():
        check_field(dotted)
        *sections, name = dotted.split(".")
        setattr(functools.reduce(getattr, sections, copied), name, value)
    return copied


def _build(cls, values, path):
    if not isinstance(values, dict):
        raise ValueError(f"{path} has {values!r} where the fields of {cls.__name__} should stand")
    fields = {field.name: field for field in dataclasses.fields(cls)}
    for name in values:
        if name not in fields:
            raise ValueError(f"{path} has the field {name!r}, which {cls.__name__} does not know")
    built = {}
    for name, value in values.items():
        if dataclasses.is_dataclass(fields[name].type):
            built[name] = _build(fields[name].type, value, path)
        else:
            built[name] = tuple(value) if isinstance(value, list) else value
    return cls(**built)


def _field_names(cls, prefix=""):
    names = []
    for field in dataclasses.fields(cls):
        if dataclasses.is_dataclass(field.type):
            names += _field_names(field.type, f"{prefix}{field.name}.")
        else:
            names.append(prefix + field.name)
    return names


def check_types(section, prefix=""):
    """Raises ValueError where a field of an experiment, or of one of its sections, has another type."""
    for field in dataclasses.fields(section):
        name, value = prefix + field.name, getattr(section, field.name)
        if dataclasses.is_dataclass(field.type):
            if not isinstance(value, field.type):
                kind = f"config.{field.type.__name__}"
                argument = f"name={value!r}" if isinstance(value, str) else "..."
                raise ValueError(f"{name}={value!r}: expected {kind}. Write {kind}({argument}).")
            check_types(value, f"{name}.")
        elif isinstance(value, os.PathLike) and _fits("", field.type):
            raise ValueError(f"{name}={value!r}: expected str. Write {os.fspath(value)!r}.")
        elif not _fits(value, field.type):
            wanted = getattr(field.type, "__name__", None) if isinstance(field.type, type) else None
            raise ValueError(f"{name} {value!r} is not of type {wanted or field.type}")
        elif isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{name} {value} is not a finite number")


def _fits(value, kind):
    if isinstance(kind, types.UnionType):
        return any(_fits(value, one) for one in typing.get_args(kind))
    if typing.get_origin(kind) is tuple:
        return isinstance(value, tuple) and all(_fits(item, typing.get_args(kind)[0]) for item in value)
    if kind is float:
        return isinstance(value, float | int) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, kind)


def _one_of(field, value, known):
    if value not in known:
        raise ValueError(f"{field} {value!r} is unknown; there are: {', '.join(known)}")


def _check_positive(field, value):
    values = value if isinstance(value, tuple) else (value,)
    none = not values and field != "encoder.hidden"  # which `_check_items` is about
    if none or any(one is not None and not one > 0 for one in values):
        raise ValueError(f"{field} {value} is not positive")
    for one in values:
        if isinstance(one, int) and one >= 2**31:
            raise ValueError(f"{field} {one} is not below 2**31")
        if isinstance(one, float) and not SMALLEST <= one <= LARGEST:
            raise ValueError(f"{field} {one:g} is not between {SMALLEST:g} and {LARGEST:g}")
