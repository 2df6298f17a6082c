"""Files of the weights of sorters, including those that are shipped."""

from typing import Any

import numpy as np
import tensorflow as tf

from rank4class import compat
from rank4class.registry import SORTERS

SHIPPED = "shipped"


def to_bytes(sorter: tf.keras.layers.Layer, dtype: type = np.float16, **metadata: str) -> bytes:
    """Returns the weights of a sorter and metadata, such as the `sizes` of lists, in safetensors format."""
    tensors: dict[str, np.ndarray] = {
        name: np.array(weight, dtype) for name, weight in by_name(sorter).items()
    }
    return safetensors_numpy().save(tensors, metadata={"sorter": name_of(sorter), **metadata})


def restore(sorter: tf.keras.layers.Layer, trained: str) -> None:
    """Assigns a sorter the weights in a file, or the shipped ones; raises ValueError if they do not fit."""
    path = sorter.shipped_file if trained == SHIPPED else trained
    metadata, tensors = load(path)
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


def safetensors_numpy() -> Any:
    """Returns the module `safetensors.numpy`, which programs with other sorters do not need."""
    return compat.import_extra("safetensors.numpy", "models")


def load(path: str) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """Returns the metadata and the weights in a file, name -> text and name -> array."""
    safetensors = compat.import_extra("safetensors", "models")
    try:
        with safetensors.safe_open(path, "np") as file:
            return file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, safetensors.SafetensorError) as error:
        raise ValueError(
            f"trained={path}: cannot be read: {error}. Choose a file that train_sorter has written."
        ) from error
