"""Packaged experiments, one per file, and the loading of experiments by name."""

import os

from rank4class.pipelines import config
from rank4class.registry import did_you_mean


def names() -> list[str]:
    """Returns the names of the packaged experiments."""
    [folder] = __path__
    files = (os.path.splitext(file) for file in sorted(os.listdir(folder)))
    return [name for name, ending in files if ending == ".py" and name != "__init__"]


def get_config(name: str | os.PathLike) -> config.Experiment:
    """Returns a new experiment by its name, as `--config` does.

    Args:
      name: path of a Python file that defines `get_config()`, or name of a packaged experiment.

    Raises:
      FileNotFoundError: neither exists; the message lists the packaged experiments.
      ValueError: the file raises an error, or returns no experiment.

    >>> get_config("digits_mlp").batch_size
    64
    """
    path = name
    if not os.path.isfile(path):
        if name not in names():
            hint = did_you_mean(os.path.splitext(os.path.basename(name))[0], names())
            raise FileNotFoundError(
                f"config={name}: neither a file nor a packaged config. {hint}Packaged: {', '.join(names())}."
            )
        path = os.path.join(__path__[0], f"{name}.py")
    try:
        experiment = vars(config.import_file(os.fspath(path)))["get_config"]()
        if not isinstance(experiment, config.Experiment):
            raise TypeError(f"get_config() returns {type(experiment).__name__}, not config.Experiment")
        config.check_types(experiment)
    except Exception as error:  # the user's file may raise any exception
        raise ValueError(
            f"config={path}: the file cannot be loaded. {type(error).__name__}: {error}"
        ) from error
    return experiment
