"""The typed description of an experiment: its fields, their JSON form, and changes by dotted names."""

import copy
import csv
import dataclasses
import functools
import json
import math
import os
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from rank4class import strict_json
from rank4class.pipelines.config import parts
from rank4class.registry import did_you_mean

# Choices that flags offer before TensorFlow is imported.
DECAYS = ("none", "linear", "cosine", "step")
STRATEGIES = ("default", "mirrored", "multi_worker", "tpu")
CHECKPOINTS = ("best", "last")
EXPORT_FORMATS = ("saved_model", "huggingface")
EXPORT_INDICES = ("exact", "scann")

LARGEST_INT = 2**31 - 1
ALTERNATIVES = {"epochs": "steps", "steps": "epochs"}  # fields of which a training uses one
_REMEDY = "Restore the file, or choose another --workdir."
SMALLEST, LARGEST = 1e-30, 1e30  # magnitudes of float32 numbers that can still be multiplied


@dataclasses.dataclass
class Experiment:
    """Everything that determines the results of a run.

    Attributes:
      data, encoder, class_encoder, interaction, loss, count_prior, optimizer: see `config.parts`.
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
      evaluations_per_epoch: how often the validation split is evaluated and a checkpoint is saved; 0.2 is
        every fifth epoch. Both happen at the end too.
      monitor: the validation metric that selects the best checkpoint.
      patience: number of evaluations without improvement after which training stops; 0 never stops early.
      metrics: names of the reported metrics; rates are in percent.
      calibration: how scores become probabilities: "temperature" for examples of one class, "platt" for
        several, "auto" selects by the labels, "none" leaves it out.
      seed: random seed of the run.
      init_from: folder of a run whose best weights this one starts from, as far as they fit; None starts from
        random weights, or those of the encoder's checkpoint.
    """

    data: parts.Data = dataclasses.field(default_factory=parts.Data)
    encoder: parts.Encoder = dataclasses.field(default_factory=parts.Encoder)
    class_encoder: parts.ClassEncoder = dataclasses.field(default_factory=parts.ClassEncoder)
    interaction: parts.Interaction = dataclasses.field(default_factory=parts.Interaction)
    loss: parts.Loss = dataclasses.field(default_factory=parts.Loss)
    count_prior: parts.CountPrior = dataclasses.field(default_factory=parts.CountPrior)
    optimizer: parts.Optimizer = dataclasses.field(default_factory=parts.Optimizer)
    batch_size: int = 32
    accumulation_steps: int = 1
    precision: str = "float32"
    jit_compile: bool = False
    steps_per_execution: int = 1
    checkpoint_steps: int | None = None
    epochs: float = 1.0
    steps: int | None = None
    evaluations_per_epoch: float = 1.0
    evaluation_batch_size: int = 256
    monitor: str = "ndcg@5"
    patience: int = 0
    metrics: tuple[str, ...] = ("top1_error", "top5_error", "ndcg@5")
    calibration: str = "auto"
    seed: int = 0
    init_from: str | None = None


AnyExperiment = TypeVar("AnyExperiment")


def values(experiment: Any) -> dict[str, Any]:
    """Returns the value of every field, dotted name -> value.

    >>> values(Experiment())["loss.name"]
    'softmax'
    """
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(experiment):
        value = getattr(experiment, field.name)
        if isinstance(value, parts.Part):
            fields |= {f"{field.name}.{name}": inner for name, inner in vars(value).items()}
        else:
            fields[field.name] = value
    return fields


def value_of(experiment: Any, dotted: str) -> Any:
    """Returns the value of a field.

    >>> value_of(Experiment(), "loss.name")
    'softmax'
    """
    return functools.reduce(getattr, dotted.split("."), experiment)


def has_field(experiment: Any, dotted: str) -> bool:
    """Returns whether an experiment has a field.

    >>> has_field(Experiment(), "loss.k"), has_field(Experiment(loss=parts.Loss("rankmax")), "loss.k")
    (False, True)
    """
    return dotted in values(experiment)


def changed_fields(experiment: Any) -> dict[str, Any]:
    """Returns the fields that differ from their defaults, dotted name -> value.

    >>> changed_fields(override(Experiment(), {"loss.name": "rankmax", "loss.k": 3, "seed": 3}))
    {'loss.name': 'rankmax', 'loss.k': 3, 'seed': 3}
    """
    changed: dict[str, Any] = {}
    for field in dataclasses.fields(experiment):
        value = getattr(experiment, field.name)
        if isinstance(value, parts.Part):
            changed |= {
                f"{field.name}.{name}": changed_value for name, changed_value in value.changed().items()
            }
        elif value != field.default:
            changed[field.name] = value
    return changed


def user_parts(experiment: Any) -> dict[str, dict[str, Any]]:
    """Returns the parts that a user's module registers: kind -> "name", "module", and "defaults" by field."""
    chosen = {kind: getattr(experiment, kind) for kind in parts.PARTS if hasattr(experiment, kind)}
    return {
        kind: {
            "name": part.name,
            "module": module,
            "defaults": {name: field.default for name, field in part.fields.items()},
        }
        for kind, part in chosen.items()
        if (module := part.entries.module_of_user(part.name)) is not None
    }


def first_difference(left: Any, right: Any) -> tuple[str, Any, Any] | None:
    """Returns `(field, value in left, value in right)` of the first field that differs, or None."""
    left_values, right_values = values(left), values(right)
    for name in dict.fromkeys([*left_values, *right_values]):
        pair = left_values.get(name), right_values.get(name)
        if pair[0] != pair[1]:
            return name, *pair
    return None


def override(experiment: AnyExperiment, changes: Mapping[str, Any]) -> AnyExperiment:
    """Returns a copy of an experiment with changed fields.

    Args:
      experiment: an `Experiment`.
      changes: dotted name -> value. The name of a part swaps the part, before its other fields are set; see
        `parts.Part.swapped`.

    Raises:
      ValueError: the experiment has no such field, or the changes set both `epochs` and `steps`.

    >>> override(Experiment(), {"loss.k": 5, "loss.name": "rankmax"}).loss.k
    5
    """
    copied = copy.deepcopy(experiment)
    for dotted, value in changes.items():
        section, _, field = dotted.rpartition(".")
        if field == "name" and section in parts.PARTS:
            setattr(copied, section, getattr(copied, section).swapped(value))
    for dotted, value in changes.items():
        check_field(copied, dotted)
        section, _, field = dotted.rpartition(".")
        if field != "name" or section not in parts.PARTS:
            setattr(getattr(copied, section) if section else copied, field, value)
    clear_alternatives(copied, changes)
    return copied


def clear_alternatives(experiment: Any, changes: Mapping[str, Any]) -> None:
    """Sets `steps` of a changed experiment to None if `epochs` is among the changes.

    Raises:
      ValueError: both are.

    >>> override(Experiment(steps=100), {"epochs": 3.0}).steps is None
    True
    """
    if changes.get("epochs") is None or getattr(experiment, "steps", None) is None:
        return
    if changes.get("steps") is not None:
        raise ValueError(f"steps={changes['steps']}: epochs={changes['epochs']} is set too. Set one of them.")
    experiment.steps = None


def check_field(experiment: Any, dotted: str) -> None:
    """Raises ValueError if an experiment has no such field, naming the closest ones.

    >>> check_field(Experiment(), "los.name")
    Traceback (most recent call last):
    ...
    ValueError: los.name: no such field of an experiment. Did you mean 'loss.name'?
    """
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


def value_type(experiment: Any, dotted: str) -> tuple[type, bool]:
    """Returns the type of a field, bool, int, float or str, and whether it may be None.

    Raises:
      ValueError: there is no such field, or it holds several values.

    >>> value_type(Experiment(), "optimizer.learning_rate"), value_type(Experiment(), "steps")
    ((<class 'float'>, False), (<class 'int'>, True))
    """
    kind = _type_of(experiment, dotted)
    kinds = (kind,) if typing.get_origin(kind) is tuple else typing.get_args(kind) or (kind,)
    for single in (bool, int, float, str):
        if single in kinds:
            return single, types.NoneType in kinds
    raise ValueError(f"{dotted}: holds several values. Choose another field.")


def _type_of(experiment: Any, dotted: str) -> Any:
    check_field(experiment, dotted)
    section, _, name = dotted.rpartition(".")
    if section:
        return str if name == "name" else getattr(experiment, section).fields[name].type
    return {field.name: field.type for field in dataclasses.fields(experiment)}[name]


def parse_value(experiment: Any, dotted: str, text: str) -> Any:
    """Returns the value of a field that a text holds; raises ValueError if it holds none.

    >>> [parse_value(Experiment(), *pair) for pair in (("optimizer.learning_rate", "0.1"), ("steps", "none"))]
    [0.1, None]
    >>> parse_value(Experiment(), "encoder.hidden", "(16, 32)"), parse_value(Experiment(), "metrics", "mrr")
    ((16, 32), ('mrr',))
    """
    kind = _type_of(experiment, dotted)
    if typing.get_origin(kind) is tuple:
        return tuple(_parse(dotted, item, typing.get_args(kind)[0]) for item in _items(text))
    kind, is_optional = value_type(experiment, dotted)
    return None if is_optional and text.lower() == "none" else _parse(dotted, text, kind)


def _parse(dotted: str, text: str, kind: Any) -> Any:
    try:
        return {"true": True, "false": False}[text.lower()] if kind is bool else kind(text)
    except (KeyError, ValueError) as error:
        wanted = {bool: "true or false", int: "an integer", float: "a number"}[kind]
        raise ValueError(f"{dotted}={text!r}: not {wanted}. Write {wanted}.") from error


def _items(text: str) -> list[str]:
    """Returns the items of `a,b` or `(a, b)`; those with a comma need quotes."""
    inner = text[1:-1] if (text[:1], text[-1:]) in (("(", ")"), ("[", "]")) else text
    [items] = csv.reader([inner], quotechar='"' if '"' in inner else "'", skipinitialspace=True)
    return [item.strip() for item in items if item.strip()]


def to_json(experiment: Any) -> str:
    """Returns an experiment as JSON."""
    return json.dumps(vars(experiment), default=vars, indent=2) + "\n"


def from_json(
    text: str,
    path: str,
    kind: type[Any] = Experiment,
    unregistered: Mapping[str, Mapping[str, Any]] = types.MappingProxyType({}),
) -> Any:
    """Returns the experiment of a kind that a text holds.

    Args:
      text: from `to_json`.
      path: of the file, for error messages.
      kind: `Experiment`, or another dataclass with parts.
      unregistered: the `user_parts` that no module has registered in this program.

    Raises:
      ValueError: the text holds no such experiment.
    """
    try:
        content = strict_json.parse(text)
        return _build(kind, content, unregistered)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}:{error.lineno}: not JSON: {error.msg}. {_REMEDY}") from error
    except ValueError as error:
        raise ValueError(f"{path}: {str(error).rstrip('.')}. {_REMEDY}") from error


def _build(kind: type[Any], content: Any, unregistered: Mapping[str, Mapping[str, Any]]) -> Any:
    _check_object(kind, content)
    fields = {field.name: field.type for field in dataclasses.fields(kind)}
    built = {}
    for name, value in content.items():
        if name not in fields:
            raise ValueError(f"{name}: {kind.__name__} has no such field")
        if fields[name] in parts.PARTS.values():
            built[name] = _build_part(fields[name], value, unregistered.get(name))
        else:
            built[name] = _from_list(value)
    return kind(**built)


def _check_object(kind: type[Any], content: Any) -> None:
    if not isinstance(content, dict):
        raise ValueError(f"{content!r} stands for the fields of {kind.__name__}")


def _build_part(kind: Any, content: Any, unregistered: Mapping[str, Any] | None) -> parts.Part:
    _check_object(kind, content)
    values = {name: _from_list(value) for name, value in content.items()}
    if unregistered:
        defaults = {name: _from_list(value) for name, value in unregistered["defaults"].items()}
        return kind.of_defaults(values.pop("name"), defaults, values)
    return kind(**values)


def _from_list(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def check_types(experiment: Any) -> None:
    """Raises ValueError if a field has a value of another type, or a number out of the range of its type."""
    for field in dataclasses.fields(experiment):
        value = getattr(experiment, field.name)
        if field.type not in parts.PARTS.values():
            _check_type(field.name, value, field.type)
        elif type(value) is field.type:
            for name, each in value.fields.items():
                _check_type(f"{field.name}.{name}", getattr(value, name), each.type)
        else:
            argument = f"name={value!r}" if isinstance(value, str) else "..."
            expected = f"config.{getattr(field.type, '__name__', field.type)}"
            raise ValueError(f"{field.name}={value!r}: expected {expected}. Write {expected}({argument}).")


def _check_type(name: str, value: Any, kind: Any) -> None:
    if isinstance(value, os.PathLike) and _fits("", kind):
        raise ValueError(f"{name}={value!r}: expected str. Write {os.fspath(value)!r}.")
    if not _fits(value, kind):
        wanted = kind if typing.get_args(kind) else kind.__name__
        raise ValueError(f"{name}={value!r}: expected {wanted}. Change its type.")
    for number in value if isinstance(value, tuple) else (value,):
        _check_range(name, number)


def _check_range(name: str, number: float) -> None:
    if isinstance(number, int) and not -LARGEST_INT <= number <= LARGEST_INT and name != "seed":
        raise ValueError(f"{name}={number}: magnitude of 2**31 or more. Choose a smaller number.")
    if isinstance(number, float):
        if not math.isfinite(number):
            raise ValueError(f"{name}={number}: not a finite number. Choose one.")
        if number and not SMALLEST <= abs(number) <= LARGEST:
            raise ValueError(
                f"{name}={number:g}: magnitude not between {SMALLEST:g} and {LARGEST:g}. Change it."
            )


def _fits(value: Any, kind: Any) -> bool:
    if isinstance(kind, types.UnionType):
        return any(_fits(value, one) for one in typing.get_args(kind))
    if typing.get_origin(kind) is tuple:
        return isinstance(value, tuple) and all(_fits(item, typing.get_args(kind)[0]) for item in value)
    if kind is float:
        return isinstance(value, float | int) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, kind)
