"""Files of the weights of sorters, including those that are shipped."""

import glob
import json
import os
from typing import Any

import numpy as np
import tensorflow as tf

from rank4class import compat
from rank4class.registry import SORTERS

SHIPPED = "shipped"
_FOLDER = os.path.join(os.path.dirname(__file__), "shipped_weights")


def to_bytes(sorter: tf.keras.layers.Layer, **metadata: str) -> bytes:
    """Returns the weights of a sorter in half precision, in safetensors format.

    The metadata, such as the `sizes` of lists, include the options that differ from the sorter's defaults.
    """
    tensors = {name: np.array(weight, np.float16) for name, weight in by_name(sorter).items()}
    name, config = name_of(sorter), sorter.get_config()
    changed = {
        option: config[option]
        for option, (_, default) in SORTERS.options(name).items()
        if option not in ("n", "trained") and config.get(option, default) != default
    }
    if changed:
        metadata["options"] = json.dumps(changed)
    return safetensors_numpy().save(tensors, metadata={"sorter": name, **metadata})


def about(name: str, n: int | None = None) -> dict[str, str]:
    """Returns the metadata of the shipped weights of a sorter.

    >>> sorted(about("equivariant"))
    ['command', 'l1', 'sizes', 'sorter']
    """
    return _load(_shipped_file(name, n))[0]


def options(name: str, path: str) -> dict[str, Any]:
    """Returns the options of the sorter in a file that differ from the defaults; {} for another sorter."""
    metadata, _ = _load(path)
    return json.loads(metadata.get("options", "{}")) if metadata.get("sorter") == name else {}


def restore(sorter: tf.keras.layers.Layer, trained: str) -> None:
    """Assigns a sorter the weights in a file, or the shipped ones; raises ValueError if they do not fit."""
    name = name_of(sorter)
    path = _shipped_file(name, sorter.n) if trained == SHIPPED else trained
    metadata, tensors = _load(path)
    sizes = metadata.get("sizes")
    if sorter.n is not None and sizes and str(sorter.n) not in sizes.split(","):
        raise ValueError(f"trained={path}: for lists of {sizes} scores, not of {sorter.n}. Choose another n.")
    assign(sorter, tensors, path)


def assign(sorter: tf.keras.layers.Layer, tensors: dict[str, np.ndarray], source: str) -> None:
    """Assigns tensors to the weights of a sorter; raises ValueError, naming the source, if they differ."""
    variables = by_name(sorter)
    if {name: tuple(v.shape) for name, v in variables.items()} != {k: x.shape for k, x in tensors.items()}:
        raise ValueError(
            f"trained={source}: other weights than those of sorter {sorter.name!r} with n={sorter.n}. "
            "Set the options that it was trained with."
        )
    for name, variable in variables.items():
        variable.assign(tensors[name].astype(np.float32))


def are_shipped(sorter: tf.keras.layers.Layer) -> bool:
    """Returns whether a sorter was restored from the shipped weights and still has them."""
    if sorter.trained != SHIPPED:
        return False
    _, tensors = _load(_shipped_file(name_of(sorter), sorter.n))
    return all(np.array_equal(w, tensors[name].astype(np.float32)) for name, w in by_name(sorter).items())


def by_name(sorter: tf.keras.layers.Layer) -> dict[str, tf.Variable]:
    """Returns the variables by names that are the same in every process."""
    paths = [compat.variable_path(v).removeprefix(f"{sorter.name}/") for v in sorter.weights]
    return dict(zip([path.removeprefix("net/") for path in paths], sorter.weights, strict=True))


def name_of(sorter: tf.keras.layers.Layer) -> str:
    """Returns the name of a sorter in `SORTERS`; raises ValueError if it has none."""
    for name in SORTERS:
        if SORTERS[name] is type(sorter):
            return name
    raise ValueError(f"sorter={type(sorter).__name__}: not registered. Register it as one of `SORTERS`.")


def _shipped_file(name: str, n: int | None) -> str:
    """Returns the file of the shipped weights of a sorter for lists of a length."""
    any_length = "n" not in SORTERS.options(name)
    paths = glob.glob(os.path.join(_FOLDER, f"{name}*"))
    by_size = {int(size): path for path in paths for size in _load(path)[0]["sizes"].split(",")}
    if any_length and paths:
        return paths[0]
    if n is None or n not in by_size:
        raise ValueError(
            f"n={n}: no weights of sorter {name!r} for lists of {n} are shipped, only for: "
            f"{', '.join(map(str, sorted(by_size))) or 'none'}. Train them with rank4class train_sorter in a "
            "checkout, or choose the sorter 'equivariant', which takes any length."
        )
    return by_size[n]


def safetensors_numpy() -> Any:
    """Returns the module `safetensors.numpy`, which programs with other sorters do not need."""
    return compat.import_extra("safetensors.numpy", "models")


def _load(path: str) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """Returns the metadata and the weights in a file, name -> text and name -> array."""
    safetensors = compat.import_extra("safetensors", "models")
    try:
        with safetensors.safe_open(path, "np") as file:
            return file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, safetensors.SafetensorError) as error:
        raise ValueError(
            f"trained={path}: cannot be read: {error}. Choose a file that train_sorter has written."
        ) from error
