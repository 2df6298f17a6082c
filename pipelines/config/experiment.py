"""The typed description of an experiment: its fields, their JSON form, and changes by dotted names."""

import copy
import csv
import dataclasses
import json
import math
import types
import typing
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from rank4class import strict_json
from rank4class.pipelines.config import parts
from rank4class.registry import did_you_mean

# Choices that flags offer before TensorFlow is imported.
DECAYS = ("none", "linear", "cosine")
# Start of the head -> whether it needs the vectors of a pretrained encoder.
STARTS = {"random": False, "zeros": False, "names": True, "means": True, "probe": True}
STRATEGIES = ("default", "mirrored", "multi_worker", "tpu")
EXPORT_FORMATS = ("saved_model", "onnx", "huggingface", "static")
EXPORT_INDICES = ("exact", "scann")
QUANTIZATIONS = ("none", "int8")

_SEVERAL_LABELS = ("label_separator", "label_columns", "multi_label")  # fields of `data`
_REMEDY = "Restore the file, or choose another --workdir."


@dataclasses.dataclass
class Experiment:
    """Everything that determines the results of a run.

    Attributes:
      data, encoder, class_encoder, interaction, loss, candidates, count_prior, thresholds, sets, optimizer:
        see `config.parts`.
      batch_size: number of examples per step, of all replicas together.
      accumulation_steps: number of parts into which a replica divides its share of a batch, to save memory;
        the gradient is that of the whole batch, except with losses of a batch and batch normalization.
      precision: "float32", "mixed_float16" (with loss scaling) or "mixed_bfloat16".
      jit_compile: whether XLA compiles the steps.
      steps_per_execution: number of steps that run on the device without returning to the host.
      checkpoint_steps: number of steps between checkpoints, in addition to one at every evaluation.
      epochs: number of passes over the training split, not necessarily an integer; 0 evaluates the initial
        model.
      steps: number of training steps; None derives it from `epochs`. A change of `epochs` sets it to None.
      min_steps: least number of training steps that `epochs` gives, for small datasets. A change of `epochs`
        sets it to 0.
      minutes: time in which the training ends, with its data and evaluations: heads are solved first, and as
        many epochs follow as fit at the measured speed, up to ten, in place of `epochs`. The number of steps
        is in the run's folder, and a run that is resumed has what is left. None has no limit.
      evaluations_per_epoch: how often the validation split is evaluated and a checkpoint is saved; 0.2 is
        every fifth epoch. Both happen at the end too.
      evaluation_batch_size: number of examples per step of evaluations and predictions.
      monitor: the validation metric that selects the best checkpoint; see also `optimizer.selection`.
      patience: number of evaluations without improvement after which training stops; 0 never stops early.
      metrics: names of the reported metrics; rates are in percent.
      propensity: `A` and `B` of the propensities of the metrics "psp@K", "psndcg@K" and "psr@K"; see
        `losses.metrics.propensities`.
      unknown: largest share of inputs like the calibration examples, in (0, 1), that are called unknown, such
        as 0.05; see `detector.Detector`. These examples are those of `sets`. None detects no unknown inputs.
      calibration: "auto" calibrates probabilities, by a temperature for examples of one class and by Platt
        scaling for several; "none" leaves it out.
      words: "auto" adds the scores of solved word vectors, see encoder "words", to those of a text encoder,
        weighted at each evaluation by their likelihood on the validation examples, if these prefer them;
        "none" leaves them out.
      seed: random seed of the run.
      init_from: folder of a run whose best weights this one starts from, as far as they fit; None starts from
        random weights, or those of the encoder's checkpoint.
    """

    data: parts.Data = dataclasses.field(default_factory=parts.Data)
    encoder: parts.Encoder = dataclasses.field(default_factory=parts.Encoder)
    class_encoder: parts.ClassEncoder = dataclasses.field(default_factory=parts.ClassEncoder)
    interaction: parts.Interaction = dataclasses.field(default_factory=parts.Interaction)
    loss: parts.Loss = dataclasses.field(default_factory=parts.Loss)
    candidates: parts.Candidates = dataclasses.field(default_factory=parts.Candidates)
    count_prior: parts.CountPrior = dataclasses.field(default_factory=parts.CountPrior)
    thresholds: parts.Thresholds = dataclasses.field(default_factory=parts.Thresholds)
    sets: parts.Sets = dataclasses.field(default_factory=parts.Sets)
    optimizer: parts.Optimizer = dataclasses.field(default_factory=parts.Optimizer)
    batch_size: int = 32
    accumulation_steps: int = 1
    precision: str = "float32"
    jit_compile: bool = False
    steps_per_execution: int = 1
    checkpoint_steps: int | None = None
    epochs: float = 1.0
    steps: int | None = None
    min_steps: int = 0
    minutes: float | None = None
    evaluations_per_epoch: float = 1.0
    evaluation_batch_size: int = 256
    monitor: str = "ndcg@5"
    patience: int = 0
    metrics: tuple[str, ...] = ("top1_error", "top5_error", "ndcg@5")
    propensity: tuple[float, ...] = (0.55, 1.5)
    unknown: float | None = None
    calibration: str = "auto"
    words: str = "none"
    seed: int = 0
    init_from: str | None = None


class _Field(NamedTuple):
    type: Any
    default: Any
    value: Any


def _fields(experiment: Experiment) -> dict[str, _Field]:
    """Returns the type, the default and the value of every field, by its dotted name."""
    fields: dict[str, _Field] = {}
    for field in dataclasses.fields(experiment):
        value = getattr(experiment, field.name)
        if isinstance(value, parts.Part) and type(value) is field.type:
            fields[f"{field.name}.name"] = _Field(str, value.default, value.name)
            for name, option in value.fields.items():
                fields[f"{field.name}.{name}"] = _Field(*option, getattr(value, name))
        else:
            fields[field.name] = _Field(field.type, field.default, value)
    return fields


def values(experiment: Experiment) -> dict[str, Any]:
    """Returns the value of every field, dotted name -> value.

    >>> values(Experiment())["loss.name"]
    'softmax'
    """
    return {name: field.value for name, field in _fields(experiment).items()}


def has_field(experiment: Experiment, dotted: str) -> bool:
    """Returns whether an experiment has a field."""
    return dotted in values(experiment)


def changed_fields(experiment: Experiment) -> dict[str, Any]:
    """Returns the fields that differ from their defaults, dotted name -> value.

    >>> changed_fields(override(Experiment(), {"loss.name": "rankmax", "loss.k": 3, "seed": 3}))
    {'loss.name': 'rankmax', 'loss.k': 3, 'seed': 3}
    """
    return {n: field.value for n, field in _fields(experiment).items() if field.value != field.default}


def user_parts(experiment: Experiment) -> dict[str, dict[str, str]]:
    """Returns the parts that a user's module registers: kind -> "name" and "module"."""
    chosen = {kind: getattr(experiment, kind) for kind in parts.PARTS}
    return {
        kind: {"name": part.name, "module": module}
        for kind, part in chosen.items()
        if (module := part.entries.module_of_user(part.name)) is not None
    }


def first_difference(left: Any, right: Any) -> tuple[str, Any, Any] | None:
    """Returns `(field, value in left, value in right)` of the first field that differs, or None."""
    left = values(left)
    right = values(right)
    differing = (name for name in {**left, **right} if left.get(name) != right.get(name))
    return next(((name, left.get(name), right.get(name)) for name in differing), None)


def override(experiment: Experiment, changes: Mapping[str, Any]) -> Experiment:
    """Returns a copy of an experiment with changed fields, dotted name -> value.

    The name of a part swaps the part, before its other fields are set; see `parts.Part.swapped`. Some changes
    choose others, unless these are given too:

    - `epochs` sets `steps` to None and `min_steps` to 0.
    - The path of an encoder, if it is a folder of Hugging Face's layout, chooses that of its `model_type`.
    - An encoder that becomes frozen, or "identity", chooses the optimizer "lbfgs" if it can solve the head,
      unless fields of another optimizer, `epochs`, `steps` or `batch_size` change.
    - With the optimizer "lbfgs", `monitor` chooses `optimizer.selection`.
    - An encoder that becomes frozen, and another interaction than "dot", replace the start "probe" by
      "random".
    - The fields of `data` for several labels replace the default loss by "sigmoid_cross_entropy".

    Raises:
      ValueError: the experiment has no such field, or the changes set both `epochs` and `steps`.

    >>> override(Experiment(), {"loss.k": 5, "loss.name": "rankmax"}).loss.k
    5
    """
    copied: Any = copy.deepcopy(experiment)
    names = {kind: changes[f"{kind}.name"] for kind in parts.PARTS if f"{kind}.name" in changes}
    if "encoder" not in names and (name := parts.Encoder.name_of(changes.get("encoder.path"))) is not None:
        names["encoder"] = name
    for kind, name in names.items():
        setattr(copied, kind, getattr(copied, kind).swapped(name))
    is_frozen = changes.get("encoder.frozen", False) or is_fixed(copied.encoder)
    freezes = is_frozen and not is_fixed(experiment.encoder)
    if freezes and not trains_by_steps(copied, changes):
        copied.optimizer = parts.Optimizer("lbfgs")
    if "monitor" in changes and "selection" in copied.optimizer.fields:
        copied.optimizer.selection = "monitor"  # unless the changes say "likelihood"
    if copied.class_encoder.init == "probe" and (freezes or names.get("interaction", "dot") != "dot"):
        copied.class_encoder.init = "random"  # unless the changes say "probe"
    for dotted, value in changes.items():
        check_field(copied, dotted)
        section, _, field = dotted.rpartition(".")
        if field != "name":
            setattr(getattr(copied, section) if section else copied, field, value)
    has_several = any(changes.get(f"data.{name}") for name in _SEVERAL_LABELS)
    if has_several and copied.loss == parts.Loss() and "loss.name" not in changes:
        copied.loss = parts.Loss("sigmoid_cross_entropy")
    if "epochs" in changes and "min_steps" not in changes:
        copied.min_steps = 0
    if changes.get("epochs") is not None and copied.steps is not None:
        if (steps := changes.get("steps")) is not None:
            raise ValueError(f"steps={steps}: epochs={changes['epochs']} is set too. Set one of them.")
        copied.steps = None
    return copied


def is_fixed(encoder: parts.Encoder) -> bool:
    """Returns whether the outputs of an encoder are the same in all steps."""
    return encoder.frozen or encoder.name in ("identity", "words")


def trains_by_steps(experiment: Experiment, changes: Collection[str] = ()) -> bool:
    """Returns whether changes set an optimizer with steps, or a part of the experiment needs one."""
    is_solved = {"class_encoder": "embedding", "interaction": "dot", "candidates": "all"}
    return (
        any(
            name.startswith("optimizer.")
            and name not in ("optimizer.C", "optimizer.tol", "optimizer.selection")
            for name in changes
        )
        or not {"epochs", "steps", "batch_size"}.isdisjoint(changes)
        or any(getattr(experiment, kind).name != name for kind, name in is_solved.items())
        or experiment.count_prior.name == "learned"
    )


def check_field(experiment: Experiment, dotted: str) -> None:
    """Raises ValueError if an experiment has no such field, naming the closest ones."""
    known = values(experiment)
    if dotted in known:
        return
    if dotted in parts.PARTS:
        raise ValueError(f"{dotted}: a part of the experiment. Choose one with --{dotted}=NAME.")
    section, _, field = dotted.rpartition(".")
    if section in parts.PARTS:
        getattr(experiment, section).check_fields([field])
    remedy = did_you_mean(dotted, known).rstrip() or f"It has: {', '.join(known)}."
    raise ValueError(f"{dotted}: no such field of an experiment. {remedy}")


def value_type(experiment: Experiment, dotted: str) -> tuple[type, bool]:
    """Returns the type of a field, bool, int, float or str, and whether it may be None.

    A field of several values raises ValueError.
    """
    check_field(experiment, dotted)
    kind = _fields(experiment)[dotted].type
    kinds = (kind,) if typing.get_origin(kind) is tuple else typing.get_args(kind) or (kind,)
    for single in (bool, int, float, str):
        if single in kinds:
            return single, types.NoneType in kinds
    raise ValueError(f"{dotted}: holds several values. Choose another field.")


def parse_value(experiment: Experiment, dotted: str, text: str) -> Any:
    """Returns the value of a field that a text holds; raises ValueError if it holds none.

    >>> [parse_value(Experiment(), *pair) for pair in (("optimizer.learning_rate", "0.1"), ("steps", "none"))]
    [0.1, None]
    >>> parse_value(Experiment(), "encoder.hidden", "(16, 32)"), parse_value(Experiment(), "metrics", "mrr")
    ((16, 32), ('mrr',))
    >>> parse_value(Experiment(count_prior=parts.CountPrior("fixed")), "count_prior.probabilities", "0.2,0.8")
    (0.2, 0.8)
    """
    check_field(experiment, dotted)
    kind = _fields(experiment)[dotted].type
    kind = typing.get_args(kind)[0] if isinstance(kind, types.UnionType) else kind
    if typing.get_origin(kind) is tuple:
        # The items of `a,b` or `(a, b)`; those with a comma need quotes.
        inner = text[1:-1] if (text[:1], text[-1:]) in (("(", ")"), ("[", "]")) else text
        quote = '"' if '"' in inner else "'"
        [items] = csv.reader([inner], quotechar=quote, skipinitialspace=True)
        kind = typing.get_args(kind)[0]
        return tuple(_parse(dotted, item.strip(), kind) for item in items if item.strip())
    kind, is_optional = value_type(experiment, dotted)
    return None if is_optional and text.lower() == "none" else _parse(dotted, text, kind)


def _parse(dotted: str, text: str, kind: Any) -> Any:
    try:
        return {"true": True, "false": False}[text.lower()] if kind is bool else kind(text)
    except (KeyError, ValueError) as error:
        wanted = {bool: "true or false", int: "an integer", float: "a number"}[kind]
        raise ValueError(f"{dotted}={text!r}: not {wanted}. Write {wanted}.") from error


def to_json(experiment: Experiment) -> str:
    """Returns an experiment as JSON."""
    return json.dumps(vars(experiment), default=vars, indent=2) + "\n"


def from_json(text: str, path: str) -> Experiment:
    """Returns the experiment that a text from `to_json` holds; errors name the path."""
    content = strict_json.parse_object(path, text)
    try:
        return _build(Experiment, content)
    except ValueError as error:
        raise ValueError(f"{path}: {str(error).rstrip('.')}. {_REMEDY}") from error


def _build(kind: Any, content: Mapping[str, Any]) -> Any:
    """Returns the experiment or the part of a kind that JSON describes, in which tuples are lists."""
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in content.items()
    }
    if issubclass(kind, parts.Part):
        return kind(**values)
    types_ = {field.name: field.type for field in dataclasses.fields(kind)}
    for name, value in values.items():
        if name not in types_:
            raise ValueError(f"{name}: {kind.__name__} has no such field")
        if types_[name] in parts.PARTS.values():
            values[name] = _build(types_[name], value)
    return kind(**values)


def check_types(experiment: Experiment) -> None:
    """Raises ValueError if a field has a value of another type, or a number that is not finite."""
    for name, (kind, _, value) in _fields(experiment).items():
        if not _fits(value, kind):
            wanted = kind if typing.get_args(kind) else kind.__name__
            raise ValueError(f"{name}={value!r}: expected {wanted}. Change its type.")
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, float) and not math.isfinite(number):
                raise ValueError(f"{name}={number}: not a finite number. Choose one.")


def _fits(value: Any, kind: Any) -> bool:
    if isinstance(kind, types.UnionType):
        return any(_fits(value, one) for one in typing.get_args(kind))
    if typing.get_origin(kind) is tuple:
        return isinstance(value, tuple) and all(_fits(item, typing.get_args(kind)[0]) for item in value)
    if isinstance(value, bool):
        return kind in (bool, object)
    return isinstance(value, (int, float) if kind is float else kind)
