"""The help of a command: its flags, and the fields of the config, with their defaults."""

import re
import sys
import textwrap

from absl import flags

from rank4class.pipelines import config

MODULE = re.compile(r"python -m rank4class\.scripts\.(?:research\.)?(\w+)")  # a command in a docstring
_WIDTH = 100  # characters
_CLI = "rank4class.scripts.cli"
NOT_NONE = "must have a value other than None"  # absl's message of flags that are required


def flags_of(module: str) -> list[flags.Flag]:
    """Returns the flags that a module, `sys.argv[0]` if it runs, and `cli` define, by name."""
    defined = [flag for name in (module, _CLI) for flag in flags.FLAGS.get_flags_for_module(name)]
    return sorted((flag for flag in defined if flag.name != "help"), key=lambda flag: flag.name)


def help_of(flag: flags.Flag) -> str:
    """Returns the help of a flag, without the line that absl adds for flags that may be repeated."""
    return flag.help.split(";\n")[0]


def default_of(flag: flags.Flag) -> str:
    """Returns "required", or the default of a flag in words."""
    if is_required(flag):
        return "required"
    return "default: none" if flag.default == [] else f"default: {flag.default_as_str or None}"


def as_typed(text: str) -> str:
    """Returns a docstring with its commands as a user types them."""
    return MODULE.sub(r"rank4class \1", text)


def is_required(flag: flags.Flag) -> bool:
    """Returns whether a command cannot do without a flag. Bounds of numbers are validators too."""
    return any(NOT_NONE in validator.message for validator in flag.validators)


def text_of_command(experiment: config.Experiment | None) -> str:
    """Returns the help of the running command: flags and config fields with their values."""
    lines = [as_typed((sys.modules["__main__"].__doc__ or "").strip()), "", "Flags:"]
    for flag in flags_of(sys.argv[0]):
        text = f"{help_of(flag)} ({default_of(flag)})"
        lines += [f"  --{flag.name}", textwrap.indent(textwrap.fill(text, _WIDTH - 6), 6 * " ")]
    if "config" in flags.FLAGS:
        values = config.values(experiment or config.Experiment())
        width = max(map(len, values))
        name = flags.FLAGS["config"].value or "config.Experiment()"
        lines += ["", f"Config fields, with the values of {name}:"]
        lines += [f"  --config.{field:{width}}  {value!r}" for field, value in values.items()]
    return "\n".join(lines)
