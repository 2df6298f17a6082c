"""The functions of an exported model that a server calls, by the names of TensorFlow Serving."""

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rank4class import compat
from rank4class.pipelines.export.onnx_model import Inputs, OnnxModel, Spec, TextFeatures

Arrays = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Signature:
    """A function of named arrays `[B, ...]` to named arrays, one at a time; ValueError for wrong ones."""

    inputs: Mapping[str, Spec]
    outputs: Mapping[str, Spec]
    call: Callable[[Arrays], Arrays]
    model: Any = None  # that has the variables


def of_saved_model(folder: str | os.PathLike) -> dict[str, Signature]:
    """Returns the signatures of a SavedModel by name."""
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  the operations of tokenizers

    model = tf.saved_model.load(os.fspath(folder))

    def signature(function: Any) -> Signature:
        specs = function.structured_input_signature[1]

        def call(arrays: Arrays) -> Arrays:
            tensors = {name: tf.constant(arrays[name], spec.dtype) for name, spec in specs.items()}
            try:
                outputs = function(**tensors)
            except tf.errors.OpError as error:
                raise ValueError(compat.reason(error)) from error
            return {name: _decoded(tensor.numpy()) for name, tensor in outputs.items()}

        return Signature(of_tensors(specs), of_tensors(function.structured_outputs), call, model)

    def of_tensors(specs: Mapping[str, Any]) -> dict[str, Spec]:
        return {
            name: Spec(tuple(spec.shape), np.dtype(spec.dtype.as_numpy_dtype)) for name, spec in specs.items()
        }

    return {name: signature(function) for name, function in model.signatures.items()}


def _decoded(array: np.ndarray) -> np.ndarray:
    """Returns an array with strings in place of bytes."""
    return np.char.decode(array.astype(bytes), "utf-8").astype(object) if array.dtype == object else array


def of_onnx_model(folder: str | os.PathLike) -> dict[str, Signature]:
    """Returns the signatures of an ONNX model by name: "classify", "score", and of texts "encode".

    The first returns the five best classes, or with prediction sets all.
    """
    model = OnnxModel(folder)
    n = len(model.class_names)
    k = min(5, n) if model.coverage is None else n

    features = model.features

    def classify(inputs: Inputs) -> Arrays:
        answers = [
            {"classes": np.array(classes, object), **outputs} for classes, outputs in model.answers(inputs, k)
        ]
        return {name: np.stack([answer[name] for answer in answers]) for name in answers[0]}

    def score(inputs: Inputs) -> Arrays:
        return {name: values for name, values in model.outputs(inputs).items() if name != "ranking"}

    def signature(function: Callable[[Inputs], Arrays]) -> Signature:
        def call(arrays: Arrays) -> Arrays:
            [values] = arrays.values()
            if values.dtype == object:
                return function([text if isinstance(text, str) else text.decode() for text in values])
            return function(values)

        outputs = {name: Spec((None, *x.shape[1:]), x.dtype) for name, x in call(example).items()}
        return Signature(specs, outputs, call)

    functions: dict[str, Callable[[Inputs], Arrays]] = {"classify": classify, "score": score}
    if isinstance(features, TextFeatures):
        specs = {"text": Spec((None,), np.dtype(object))}
        example = {"text": np.array(["a text"], object)}
        functions["encode"] = lambda texts: {"vectors": features.encode(texts)}
    else:
        spec = features.spec
        specs = {features.name: spec}
        example = {features.name: np.zeros([size or 1 for size in spec.shape], spec.dtype)}
    signatures = {name: signature(function) for name, function in functions.items()}
    return {**signatures, "serving_default": signatures["classify"]}
