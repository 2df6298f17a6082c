"""Functions and classes by name, with the options that their signatures declare."""

import difflib
import inspect
from collections.abc import Callable, Iterator
from typing import Any


class Registry:
    """The functions or classes of one kind, by name.

    An entry's options are the arguments of its signature. Arguments without a default are required.

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

    def register(self, name: str) -> Callable[[Any], Any]:
        """Returns a decorator that adds a function or class under a name."""

        def add(entry: Any) -> Any:
            if name in self._entries:
                raise ValueError(f"{self.kind}={name!r}: already registered. Choose another name.")
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
            raise ValueError(f"{self.kind}={name!r}: unknown. {self.suggestion(name)}")
        return self._entries[name]

    def suggestion(self, name: str) -> str:
        """Returns the remedy for an unknown name: the closest match and the names there are."""
        close = difflib.get_close_matches(name.replace("-", "_"), self._entries, n=1)
        hint = f"Did you mean {close[0]!r}? " if close else ""
        return f"{hint}There are: {', '.join(self._entries)}."

    def option_names(self, name: str) -> tuple[str, ...]:
        """Returns the names of an entry's options."""
        return tuple(self._signature(self[name]).parameters)

    def check(self, name: str, options: dict[str, Any]) -> None:
        """Raises ValueError if the entry lacks one of the options, or requires one that is missing."""
        parameters = self._signature(self[name]).parameters
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


def _signature(entry: Any) -> inspect.Signature:
    # Python 3.10 reports an empty signature for Keras classes: take the constructor's.
    signature = inspect.signature(entry.__init__ if inspect.isclass(entry) else entry)
    kept = [p for p in signature.parameters.values() if p.name != "self" and p.kind is not p.VAR_KEYWORD]
    return signature.replace(parameters=kept)
