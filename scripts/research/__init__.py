"""Reproduces, measures and draws for the papers. It may import everything, and nothing imports it."""

from absl import flags

from rank4class.pipelines import config
from rank4class.scripts import cli


def check_used(*parts: str) -> None:
    """Raises ValueError for a part or field of the config on the command line that is not among `parts`."""
    named = (kind for kind in config.PARTS if flags.FLAGS[kind].value is not None)
    for name in (*named, *(f"config.{field}" for field in cli.overrides())):
        if name.removeprefix("config.").partition(".")[0] not in parts:
            raise ValueError(f"--{name}: has no effect on this command. Leave it out.")
