"""Functions and classes by name, such as losses and datasets. The arguments of a signature are its options.

The options of the package's entries are in `signatures.json`, so that a command shows its help and reports
a wrong flag before the seconds that the import of TensorFlow takes. `LOSSES["softmax"]` imports the module of
an entry. The entries of a user are known once the module that registers them is imported.
"""

import contextlib
import difflib
import functools
import importlib
import inspect
import json
import operator
import os
import pathlib
import pkgutil
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

REQUIRED = inspect.Parameter.empty
_ROOT = pathlib.Path(__file__).parent
_SIGNATURES = _ROOT / "signatures.json"
_REGISTRIES: "list[Registry]" = []


class Option(NamedTuple):
    """An argument of an entry; the type is of bool, int, float, str, tuples and unions of these, or None."""

    type: Any
    default: Any = REQUIRED


class Registry:
    """The functions or classes of one kind, by name, of the package or registered by a user.

    The options of a class are the arguments of its attribute `function`, or else of its constructor.

    >>> shapes = Registry("shape")
    >>> @shapes.register("disc")
    ... def disc(radius: float, filled: bool = True):
    ...     return radius, filled
    >>> shapes.build("disc", radius=2.0)
    (2.0, True)
    >>> shapes.build("disk", radius=2.0)
    Traceback (most recent call last):
    ...
    ValueError: shape='disk': unknown. Did you mean 'disc'? There are: disc.
    """

    def __init__(self, kind: str):
        self.kind = kind
        self._entries: dict[str, Any] = {}  # those of imported modules
        _REGISTRIES.append(self)

    def register(self, name: str) -> Callable[[Any], Any]:
        """Returns a decorator that adds a function or class under a name.

        A definition that runs again, such as a cell of a notebook, replaces its entry.
        """

        def add(entry: Any) -> Any:
            known = self._entries.get(name)
            if known and (known.__module__, known.__qualname__) != (entry.__module__, entry.__qualname__):
                raise ValueError(
                    f"{self.kind}={name!r}: already registered. Choose another name, or import its file once."
                )
            self._entries[name] = entry
            return entry

        return add

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._sources, *self._entries]))

    def __contains__(self, name: object) -> bool:
        return name in self._entries or name in self._sources

    def __getitem__(self, name: str) -> Any:
        """Returns an entry; raises ValueError, which lists close matches, if there is none of that name."""
        if name not in self._entries and name in self._sources:
            importlib.import_module(self._sources[name][0])
        if name not in self._entries:
            hint = did_you_mean(name, self)
            raise ValueError(f"{self.kind}={name!r}: unknown. {hint}There are: {', '.join(self)}.")
        return self._entries[name]

    def options(self, name: str) -> dict[str, Option]:
        """Returns the options of an entry, by name."""
        if name not in self._entries and name in self._sources:
            return self._sources[name][1]
        entry = self[name]
        function = getattr(entry, "function", None) or entry.__init__ if inspect.isclass(entry) else entry
        options = {}
        for parameter in inspect.signature(function).parameters.values():
            annotation = parameter.annotation
            if parameter.name == "self" or parameter.kind.description.startswith("variadic"):
                continue
            if isinstance(annotation, str):
                with contextlib.suppress(NameError):  # a name that is imported for type checkers alone
                    annotation = eval(annotation, inspect.unwrap(function).__globals__)
            options[parameter.name] = Option(_type(annotation), parameter.default)
        return options

    def module_of_user(self, name: str) -> str | None:
        """Returns the module or file of a user's entry; None for an entry of this package."""
        if name in self._sources or name not in self._entries:
            return None
        module = self._entries[name].__module__
        program = getattr(sys.modules["__main__"], "__file__", None)
        return os.path.abspath(program) if module == "__main__" and program else module

    def check(self, name: str, options: dict[str, Any]) -> None:
        """Raises ValueError if the entry lacks one of the options, or requires one that is missing."""
        known = self.options(name)
        for option in options:
            if option not in known:
                has = ", ".join(known) or "none"
                raise ValueError(f"{option}: {self.kind} {name!r} has no such option. It has: {has}.")
        for option, (_, default) in known.items():
            if default is REQUIRED and option not in options:
                raise ValueError(f"{option}: {self.kind} {name!r} requires it. Set it.")

    def build(self, name: str, **options: Any) -> Any:
        """Returns the result of calling an entry with the options; raises ValueError as `check` does."""
        self.check(name, options)
        return self[name](**options)

    @functools.cached_property
    def _sources(self) -> dict[str, tuple[str, dict[str, Option]]]:
        """Name -> module and options, of the entries of the package."""
        entries = json.loads(_SIGNATURES.read_text()).get(self.kind, {})
        return {
            name: (module, {option: _from_json(*each) for option, each in options.items()})
            for name, (module, options) in entries.items()
        }


class _Losses(Registry):
    """Losses; `gumbel_NAME` is the loss of that name, averaged over Gumbel noise on the scores."""

    def noiseless(self, name: str) -> str | None:
        """Returns `NAME` of `gumbel_NAME`; None for the name of a registered or unknown loss."""
        loss = name.removeprefix("gumbel_")
        return loss if loss != name and name not in self and loss in self else None

    def options(self, name: str) -> dict[str, Option]:
        loss = self.noiseless(name)
        if loss is not None:
            noise = self.options("gumbel_approx_ndcg")
            return self.options(loss) | {n: noise[n] for n in ("samples", "gumbel_temperature", "seed")}
        common = ("scores", "labels", "where", "weights")
        return {n: option for n, option in super().options(name).items() if n not in common}


class _Layers(Registry):
    """Layers that Keras can load, the package's as `rank4class>NAME`; a decorator may choose another name."""

    def register(self, name: str) -> Callable[[Any], Any]:
        add = super().register(name)

        def add_serializable(layer: Any) -> Any:
            import tensorflow as tf

            if inspect.isclass(layer) and tf.keras.utils.get_registered_name(layer) == layer.__name__:
                package = "rank4class" if layer.__module__.startswith("rank4class.") else "Custom"
                tf.keras.utils.register_keras_serializable(package)(layer)
            return add(layer)

        return add_serializable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns a hint at the closest of the known names, with a space after it; "" if none is close.

    >>> did_you_mean("soft-max", ["softmax", "mse"])
    "Did you mean 'softmax'? "
    """
    close = difflib.get_close_matches(name.replace("-", "_"), list(known), n=1)
    return f"Did you mean {close[0]!r}? " if close else ""


def _type(annotation: Any) -> Any:
    """Returns the type of an option with an annotation; None if the argument is no option."""
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    if annotation in (bool, int, float, str, types.NoneType):
        return annotation
    if origin is typing.Literal:
        return functools.reduce(operator.or_, map(type, arguments))
    if origin is tuple and arguments[1:] == (...,) and _type(arguments[0]):
        return tuple[_type(arguments[0]), ...]  # type: ignore[misc]
    if origin in (types.UnionType, typing.Union) and all(map(_type, arguments)):
        return functools.reduce(operator.or_, map(_type, arguments))
    return None


def signatures() -> str:
    """Returns the content of `signatures.json`; imports all modules of losses, models, data and pipelines.

    It has kind -> name -> module and arguments, each with its type and its default, if it has one.
    """
    modules = [
        module.name
        for package in ("data", "losses", "models", "pipelines")
        for module in pkgutil.walk_packages([str(_ROOT / package)], f"rank4class.{package}.")
        if not module.name.endswith("_test")
    ]
    for name in modules:
        importlib.import_module(name)
    content: dict[str, dict[str, Any]] = {
        registry.kind: {
            name: [entry.__module__, {n: _to_json(*each) for n, each in registry.options(name).items()}]
            for name, entry in sorted(registry._entries.items(), key=lambda item: item[1].__module__)
            if entry.__module__ in modules
        }
        for registry in sorted(_REGISTRIES, key=lambda registry: registry.kind)
    }
    return json.dumps({kind: each for kind, each in content.items() if each}, indent=1) + "\n"


def _to_json(kind: Any, default: Any) -> list[Any]:
    return [kind and inspect.formatannotation(kind), *([] if default is REQUIRED else [default])]


def _from_json(kind: str | None, *default: Any) -> Option:
    return Option(kind and eval(kind), *(tuple(each) if isinstance(each, list) else each for each in default))


DATASETS = Registry("dataset")
FILES = Registry("dataset of checked files")
ENCODERS = _Layers("encoder")
HUGGING_FACE = Registry("model_type")  # classes of text encoders, by the field of Hugging Face's config
CLASS_ENCODERS = _Layers("class_encoder")
INTERACTIONS = _Layers("interaction")
COUNT_PRIORS = _Layers("count_prior")
SORTERS = _Layers("sorter")
LOSSES = _Losses("loss")
THRESHOLDS = Registry("thresholds")
CANDIDATES = Registry("candidates")
SET_SCORES = Registry("sets")
OPTIMIZERS = Registry("optimizer")
