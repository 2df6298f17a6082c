"""Functions and classes by name, with the options that their signatures declare."""

import ast
import difflib
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any

_REGISTRIES: "list[Registry]" = []


class Registry:
    """The functions or classes of one kind, by name.

    An entry's options are the arguments of its signature. Arguments without a default are required.
    `registered` lists the entries of all imported modules, a user's too.

    Args:
      kind: the word for an entry in error messages, such as "loss".
      signature: returns the `inspect.Signature` whose parameters are an entry's options.

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

    def __init__(self, kind: str, signature: Callable[[Any], inspect.Signature] | None = None):
        self.kind = kind
        self._signature = signature or _signature
        self._entries: dict[str, Any] = {}
        _REGISTRIES.append(self)

    def register(self, name: str) -> Callable[[Any], Any]:
        """Returns a decorator that adds a function or class under a name.

        A definition that runs again, such as a cell of a notebook, replaces its entry.
        """

        def add(entry: Any) -> Any:
            if name in self._entries and _origin(self._entries[name]) != _origin(entry):
                raise ValueError(
                    f"{self.kind}={name!r}: already registered. Choose another name, or import its file once."
                )
            self._entries[name] = entry
            return entry

        return add

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __getitem__(self, name: str) -> Any:
        """Returns an entry; raises ValueError, which lists close matches, if there is none of that name."""
        if name not in self._entries:
            hint = did_you_mean(name, self._entries)
            raise ValueError(f"{self.kind}={name!r}: unknown. {hint}There are: {', '.join(self._entries)}.")
        return self._entries[name]

    def signature(self, name: str) -> inspect.Signature:
        """Returns the signature whose parameters are an entry's options."""
        return self._signature(self[name])

    def parameters(self, name: str) -> list[inspect.Parameter]:
        """Returns an entry's options as `read_signatures` does."""
        return [_plain(parameter) for parameter in self.signature(name).parameters.values()]

    def option_names(self, name: str) -> tuple[str, ...]:
        """Returns the names of an entry's options."""
        return tuple(self.signature(name).parameters)

    def check(self, name: str, options: dict[str, Any]) -> None:
        """Raises ValueError if the entry lacks one of the options, or requires one that is missing."""
        parameters = self.signature(name).parameters
        for option in options:
            if option not in parameters:
                known = ", ".join(parameters) or "none"
                raise ValueError(f"{option}: {self.kind} {name!r} has no such option. It has: {known}.")
        for option, parameter in parameters.items():
            if parameter.default is inspect.Parameter.empty and option not in options:
                raise ValueError(f"{option}: {self.kind} {name!r} requires it. Set it.")

    def build(self, name: str, **options: Any) -> Any:
        """Returns the result of calling an entry with the options; raises ValueError as `check` does."""
        self.check(name, options)
        return self[name](**options)


def registered(kind: str) -> dict[str, Registry]:
    """Returns the name of each entry of a kind, in all modules that are imported -> its registry."""
    return {name: registry for registry in _REGISTRIES if registry.kind == kind for name in registry}


def _origin(entry: Any) -> tuple[str, str]:
    return entry.__module__, entry.__qualname__


def _plain(parameter: inspect.Parameter) -> inspect.Parameter:
    """Returns an option with its type, or `empty` if that is not plain, as its annotation."""
    annotation = parameter.annotation
    if annotation is not parameter.empty and not isinstance(annotation, str):
        annotation = inspect.formatannotation(annotation)
    type_ = parameter.empty if annotation is parameter.empty else _plain_type(annotation)
    has_value = type_ is not parameter.empty and parameter.default is not parameter.empty
    default = parameter.default if has_value or parameter.default is parameter.empty else None
    return parameter.replace(kind=parameter.KEYWORD_ONLY, annotation=type_, default=default)


def _signature(entry: Any) -> inspect.Signature:
    # Python 3.10 reports an empty signature for Keras classes: take the constructor's.
    signature = inspect.signature(entry.__init__ if inspect.isclass(entry) else entry)
    kept = [p for p in signature.parameters.values() if p.name != "self" and p.kind is not p.VAR_KEYWORD]
    return signature.replace(parameters=kept)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns a hint at the closest of the known names, with a space after it; "" if none is close.

    >>> did_you_mean("soft-max", ["softmax", "mse"])
    "Did you mean 'softmax'? "
    """
    close = difflib.get_close_matches(name.replace("-", "_"), list(known), n=1)
    return f"Did you mean {close[0]!r}? " if close else ""


_PLAIN_TYPES = {"int": int, "float": float, "str": str, "bool": bool, "tuple": tuple, "None": None}


def read_signatures(paths: Iterable[str], registry: str) -> dict[str, list[inspect.Parameter]]:
    """Reads the options of registered functions and classes from source files, without importing them.

    A command reports a wrong flag and shows its help before the seconds that the import of TensorFlow takes.
    Two forms are read: a function or a class below `@REGISTRY.register("name")`, and a Keras loss below
    `@...register`, whose name and options are those of its `function`.

    Args:
      paths: of the files.
      registry: name of the registry's variable.

    Returns:
      Name -> its options, in the order of the files. The annotation of an option is its type, or
      `inspect.Parameter.empty` if that is no plain type (a number, a string, a bool, a tuple of these, or
      None).
    """
    entries: dict[str, list[inspect.Parameter]] = {}
    for path in paths:
        with open(path, encoding="utf-8") as file:
            tree = ast.parse(file.read())
        definitions: dict[str, Any] = {
            node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)
        }
        for node in definitions.values():
            for decorator in map(ast.unparse, node.decorator_list):
                if decorator.startswith(f"{registry}.register("):
                    name = ast.literal_eval(decorator.removeprefix(f"{registry}.register"))
                    entries[name] = _parameters(_callable(node, definitions))
                elif decorator.endswith("register"):
                    [name] = [s.value.args[0].id for s in node.body if _assigns(s, "function")]
                    entries[name] = _parameters(definitions[name])
    return entries


def _callable(node: Any, definitions: dict[str, Any]) -> Any:
    """Returns the function, or the constructor of a class, inherited within its file too, or None."""
    if node is None or isinstance(node, ast.FunctionDef):
        return node
    constructors = [s for s in node.body if isinstance(s, ast.FunctionDef) and s.name == "__init__"]
    bases = [definitions.get(ast.unparse(base)) for base in node.bases]
    return constructors[0] if constructors else _callable(bases[0], definitions)


def _assigns(node: ast.stmt, name: str) -> bool:
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name


def _parameters(function: Any) -> list[inspect.Parameter]:
    if function is None:
        return []
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    missing = len(positional) - len(arguments.defaults)
    defaults = [*[None] * missing, *arguments.defaults, *arguments.kw_defaults]
    return [
        inspect.Parameter(
            argument.arg,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if default is None else ast.literal_eval(default),
            annotation=_plain_type(ast.unparse(argument.annotation))
            if argument.annotation
            else inspect.Parameter.empty,
        )
        for argument, default in zip([*positional, *arguments.kwonlyargs], defaults, strict=True)
        if argument.arg != "self"
    ]


def _plain_type(annotation: str) -> Any:
    names = {node.id for node in ast.walk(ast.parse(annotation)) if isinstance(node, ast.Name)}
    if not names <= _PLAIN_TYPES.keys():
        return inspect.Parameter.empty
    return eval(annotation, {"__builtins__": {}}, _PLAIN_TYPES)
