"""From raw examples to the features of a model, and the files from which this is restored without data.

inputs.json          the features of a raw example, and the settings of their preprocessing
encoder.json         structure of a frozen encoder
encoder.safetensors  its weights
"""

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import safetensors.numpy
import tensorflow as tf

from rank4class import data, strict_json
from rank4class.pipelines.storage import files

_PREPROCESSORS = {cls.__name__: cls for cls in (data.DecodeAndCrop, data.Rescale, data.WordPiece)}


@dataclasses.dataclass(frozen=True)
class Inputs:
    """How raw examples become the features of a model.

    Attributes:
      specs: name -> `tf.TensorSpec` of the raw features of a batch, with None for the number of examples.
      preprocess: function of the raw features of a batch, or None.
      encoder: the frozen encoder of the preprocessed features, or None.
    """

    specs: dict[str, tf.TensorSpec]
    preprocess: Callable | None = None
    encoder: tf.keras.layers.Layer | None = None

    def __call__(self, features: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns the model's features of a batch of raw features."""
        if self.preprocess is not None:
            features = self.preprocess(features)
        if self.encoder is not None:
            features = {"embedding": self.encoder(features, training=False)}
        return features

    def to_json(self) -> str:
        """Returns the content of `inputs.json`."""
        preprocess: Any = self.preprocess
        if preprocess is not None:
            preprocess = {"name": type(preprocess).__name__, "settings": preprocess.settings}
        return files.to_json({"features": specs_to_json(self.specs), "preprocess": preprocess})


def specs_of(features: Mapping[str, np.ndarray]) -> dict[str, tf.TensorSpec]:
    """Returns the specs of the raw features of a split.

    >>> specs_of({"text": np.array(["a", "b"], object)})
    {'text': TensorSpec(shape=(None,), dtype=tf.string, name=None)}
    """
    specs = {}
    for name, values in features.items():
        shape = [None, *values.shape[1:]]
        if name == "items":
            shape[1] = None  # lists of any length
        specs[name] = tf.TensorSpec(shape, tf.string if values.dtype == object else values.dtype)
    return specs


def specs_to_json(specs: Mapping[str, tf.TensorSpec]) -> dict[str, Any]:
    """Returns name -> shape and dtype, as JSON holds them."""
    return {name: [spec.shape.as_list(), spec.dtype.name] for name, spec in specs.items()}


def specs_from_json(value: Mapping[str, Any]) -> dict[str, tf.TensorSpec]:
    """Returns the specs that `specs_to_json` wrote."""
    return {name: tf.TensorSpec(shape, dtype) for name, (shape, dtype) in value.items()}


def zeros(specs: Mapping[str, tf.TensorSpec]) -> dict[str, tf.Tensor]:
    """Returns zeros of some specs, of size 1 where a size is not known; a call on them builds a layer."""
    return {
        name: tf.zeros([1 if size is None else size for size in spec.shape], spec.dtype)
        for name, spec in specs.items()
    }


def write_encoder(prefix: str, encoder: tf.keras.layers.Layer, specs: Mapping[str, tf.TensorSpec]) -> None:
    """Writes a frozen encoder as `PREFIX.json` and `PREFIX.safetensors`, on disk or in object storage.

    Args:
      prefix: path of the files without their endings.
      encoder: with its variables created.
      specs: of the features that it encodes.
    """
    weights = {str(i): np.ascontiguousarray(weight) for i, weight in enumerate(encoder.get_weights())}
    files.write(f"{prefix}.safetensors", safetensors.numpy.save(weights))
    structure = {"structure": tf.keras.layers.serialize(encoder), "features": specs_to_json(specs)}
    files.write(f"{prefix}.json", files.to_json(structure))


def read(folder: str) -> Inputs:
    """Returns the `Inputs` in a folder.

    Raises:
      ValueError: a file is damaged, or written by another version of the preprocessing.
    """
    path = os.path.join(folder, "inputs.json")
    content = strict_json.parse_object(path, files.read_text(path))
    prefix = os.path.join(folder, "encoder")
    encoder = _read_encoder(prefix) if files.exists(f"{prefix}.json") else None
    return Inputs(specs_from_json(content["features"]), _preprocess(path, content["preprocess"]), encoder)


def _preprocess(path: str, content: dict[str, Any] | None) -> Callable | None:
    if content is None:
        return None
    preprocess = _PREPROCESSORS[content["name"]].from_settings(content["settings"])
    if preprocess.settings != content["settings"]:
        raise ValueError(
            f"{path}: {content['name']} has other settings in this version of rank4class. Predict with the "
            "version that trained the run; sessions.jsonl names it."
        )
    return preprocess


def _read_encoder(prefix: str) -> tf.keras.layers.Layer:
    content = strict_json.parse_object(f"{prefix}.json", files.read_text(f"{prefix}.json"))
    encoder = tf.keras.layers.deserialize(content["structure"])
    encoder(zeros(specs_from_json(content["features"])))
    try:
        weights = safetensors.numpy.load(files.read_bytes(f"{prefix}.safetensors"))
        encoder.set_weights([weights[str(i)] for i in range(len(weights))])
    except (safetensors.SafetensorError, KeyError, ValueError) as error:
        raise ValueError(f"{prefix}.safetensors: damaged ({error}). Restore it, or train again.") from error
    return encoder
