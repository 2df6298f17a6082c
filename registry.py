"""Functions and classes by name, such as losses and datasets. The arguments of a signature are its options.

The package's entries are read from their source files, so that a command shows its help and reports a wrong
flag before the seconds that the import of TensorFlow takes. `LOSSES["softmax"]` imports the file of an entry.
The entries of a user are known once the module that registers them is imported.
"""

import ast
import difflib
import functools
import importlib
import inspect
import os
import pathlib
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

REQUIRED = inspect.Parameter.empty
_ROOT = pathlib.Path(__file__).parent
_TYPES = {"bool": bool, "int": int, "float": float, "str": str}
_REGISTRIES: "list[Registry]" = []


class Option(NamedTuple):
    """An argument of an entry; the type is of bool, int, float, str, tuples and unions of these, or None."""

    type: Any
    default: Any


class Registry:
    """The functions or classes of one kind, by name, in files of the package or registered by a user.

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

    def __init__(self, kind: str, decorator: str = "", *files: str):
        self.kind, self._decorator, self._files = kind, decorator, files
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
        return {
            parameter.name: Option(_type(_annotation(parameter)), parameter.default)
            for parameter in inspect.signature(function).parameters.values()
            if parameter.name != "self" and not parameter.kind.description.startswith("variadic")
        }

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
        """Name -> module and options, of the entries in the package's files."""
        sources = {}
        for path in (path for pattern in self._files for path in sorted(_ROOT.glob(pattern))):
            module = ".".join(["rank4class", *path.relative_to(_ROOT).with_suffix("").parts])
            body: Any = ast.parse(path.read_text(encoding="utf-8")).body
            definitions = {n.name: n for n in body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
            for node in definitions.values():
                for decorator in map(ast.unparse, node.decorator_list):
                    text, _, argument = decorator.partition("(")
                    if text == self._decorator and not path.name.endswith("_test.py"):
                        function = _function(node, definitions)
                        name = ast.literal_eval(argument[:-1]) if argument else function.name
                        sources[name] = module, _options(function)
            for node in body:
                match node:  # CLASS = base.keras_loss("CLASS", function)
                    case ast.Assign(value=ast.Call(ast.Attribute(attr="keras_loss"), [_, ast.Name(name)])):
                        sources[name] = module, _options(_function(definitions[name], definitions))
        return sources


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


def _annotation(parameter: inspect.Parameter) -> ast.expr:
    """Returns an annotation, which is a type or its text, as in a source file."""
    annotation = parameter.annotation
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return ast.parse(text, mode="eval").body


def _type(node: ast.expr | None) -> Any:
    """Returns the type that an annotation names; None if it is not one of an `Option`."""
    match node:
        case ast.Name(name):
            return _TYPES.get(name)
        case ast.Constant(None):
            return types.NoneType
        case ast.Subscript(ast.Name("tuple"), ast.Tuple([item, ast.Constant()])) if _type(item):
            return tuple[_type(item), ...]  # type: ignore[misc]
        case ast.BinOp(left, ast.BitOr(), right) if _type(left) and _type(right):
            return _type(left) | _type(right)
    return None


def _function(node: Any, definitions: dict[str, Any]) -> Any:
    """Returns the definition of the function whose arguments are the options of an entry; None if unknown."""
    if node is None or isinstance(node, ast.FunctionDef):
        return node
    for keyword in node.keywords:
        if keyword.arg == "function":
            return definitions[ast.unparse(keyword.value)]
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
            return statement
    return _function(definitions.get(ast.unparse(node.bases[0])), definitions)


def _options(function: ast.FunctionDef | None) -> dict[str, Option]:
    if function is None:
        return {}
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    required = len(positional) - len(arguments.defaults)
    defaults = [*[None] * required, *arguments.defaults, *arguments.kw_defaults]
    return {
        argument.arg: Option(
            _type(argument.annotation), REQUIRED if default is None else ast.literal_eval(default)
        )
        for argument, default in zip([*positional, *arguments.kwonlyargs], defaults, strict=True)
        if argument.arg != "self"
    }


DATASETS = Registry("dataset", "DATASETS.register", "data/datasets/*.py")
FILES = Registry("dataset of checked files", "FILES.register", "data/readers/*.py")
ENCODERS = _Layers("encoder", "ENCODERS.register", "models/encoders/*.py", "models/item_model.py")
CLASS_ENCODERS = _Layers("class_encoder", "CLASS_ENCODERS.register", "models/class_encoders.py")
INTERACTIONS = _Layers("interaction", "INTERACTIONS.register", "models/interactions.py")
COUNT_PRIORS = _Layers("count_prior", "COUNT_PRIORS.register", "models/count_priors.py")
SORTERS = _Layers("sorter", "SORTERS.register", "models/sorters/layers.py")
LOSSES = _Losses("loss", "base.register", "losses/*.py")
THRESHOLDS = Registry("thresholds", "THRESHOLDS.register", "pipelines/evaluation/thresholds.py")
CANDIDATES = Registry("candidates", "CANDIDATES.register", "data/candidates.py")
SET_SCORES = Registry("sets", "SET_SCORES.register", "pipelines/evaluation/prediction_sets.py")
OPTIMIZERS = Registry("optimizer", "OPTIMIZERS.register", "pipelines/training/optimizers.py")
