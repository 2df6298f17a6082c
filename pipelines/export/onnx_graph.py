"""ONNX graphs of text encoders, of operators that ONNX Runtime computes fast.

Converted from TensorFlow's operations the same network has three times as many operators, half of which
quantization leaves as they are.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rank4class import compat
from rank4class.models.encoders.bert import Bert
from rank4class.models.encoders.mpnet import Mpnet
from rank4class.models.encoders.static import Static

OPSET = 17
INPUTS = Bert.FEATURES
OUTPUT = "vectors"
_RUNTIME = "com.microsoft"  # domain of the operators of ONNX Runtime


class _Graph:
    """Nodes and weights; a call adds a node with new names of outputs. Inputs are names or weights."""

    def __init__(self) -> None:
        self._onnx = compat.import_extra("onnx", "onnx")
        self._nodes: list[Any] = []
        self._weights: list[Any] = []

    def __call__(
        self, operator: str, *inputs: str | np.ndarray, domain: str = "", outputs: int = 1, **attributes: Any
    ) -> Any:
        names = [f"{operator}_{len(self._nodes)}_{i}" for i in range(outputs)]
        of_node = [each if isinstance(each, str) else self._weight(each) for each in inputs]
        self._nodes.append(self._onnx.helper.make_node(operator, of_node, names, domain=domain, **attributes))
        return names[0] if outputs == 1 else names

    def _weight(self, value: np.ndarray) -> str:
        name = f"weight_{len(self._weights)}"
        self._weights.append(self._onnx.numpy_helper.from_array(np.array(value, order="C"), name))
        return name

    def model(self, output: str, width: int) -> Any:
        """Returns the `onnx.ModelProto` with the output `[batch, width]`."""
        helper, types = self._onnx.helper, self._onnx.TensorProto
        nodes = [*self._nodes, helper.make_node("Identity", [output], [OUTPUT])]
        inputs = [helper.make_tensor_value_info(name, types.INT32, ["batch", "length"]) for name in INPUTS]
        outputs = [helper.make_tensor_value_info(OUTPUT, types.FLOAT, ["batch", width])]
        graph = helper.make_graph(nodes, "encoder", inputs, outputs, self._weights)
        versions = [helper.make_opsetid("", OPSET), helper.make_opsetid(_RUNTIME, 1)]
        model = helper.make_model(graph, opset_imports=versions)
        model.ir_version = 10  # that of opset 17's runtimes
        return model


def of_encoder(encoder: Bert | Static) -> Any:
    """Returns the `onnx.ModelProto` of an encoder: `INPUTS`, int32 `[B, length]`, to vectors `[B, d]`.

    The vectors are those of the encoder but for the rounding of float32.
    """
    return _of_static(encoder) if isinstance(encoder, Static) else _of_bert(encoder)


def _of_static(encoder: Static) -> Any:
    add = _Graph()
    table = encoder.table.numpy()
    table[list(encoder.left_out)] = 0.0
    sums, _ = _sums(add, add("Gather", table, "input_word_ids"))
    return add.model(_unit(add, sums, encoder.width), encoder.width)


def _of_bert(encoder: Bert) -> Any:
    weights = {name: variable.numpy() for name, variable in encoder.named_variables().items()}
    config, first = encoder.config, encoder.FIRST_POSITION
    width, heads = config["hidden_size"], config["num_heads"]
    add = _Graph()

    def product(x: str, name: str) -> str:
        kernel = weights[f"{name}/kernel"]
        return add("MatMul", x, kernel.reshape(-1, weights[f"{name}/bias"].size))

    def dense(x: str, name: str) -> str:
        return add("Add", product(x, name), weights[f"{name}/bias"].reshape(-1))

    def normalized(x: str, name: str) -> str:
        parameters = (weights[f"{name}/{parameter}"] for parameter in ("gamma", "beta"))
        return add("LayerNormalization", x, *parameters, epsilon=encoder.EPSILON)

    def joined(name: str, parameter: str, shape: Sequence[int]) -> np.ndarray:
        parts = (weights[f"{name}/{part}/{parameter}"] for part in ("query", "key", "value"))
        return np.concatenate([part.reshape(shape) for part in parts], axis=-1)

    length = add("Gather", add("Shape", "input_word_ids"), np.array([1]))
    end = add("Add", length, np.array([first]))
    positions = add("Slice", weights["position_embedding/embeddings"], np.array([first]), end, np.array([0]))
    x = add("Add", add("Gather", weights["word_embeddings/embeddings"], "input_word_ids"), positions)
    if encoder.types is not None:
        x = add("Add", x, add("Gather", weights["type_embeddings/embeddings"], "input_type_ids"))
    x = normalized(x, "layer_norm")
    if encoder.projection is not None:
        x = dense(x, "embedding_projection")
    biases = [_biases(add, encoder, weights, length)] if isinstance(encoder, Mpnet) else []
    for i in range(config["num_layers"]):
        layer = f"layer_{i}"
        name = f"{layer}/self_attention"
        states = add("MatMul", x, joined(name, "kernel", [width, width]))
        parts = add("Split", states, np.full(3, width), axis=2, outputs=3)
        operands = [*parts, joined(name, "bias", [width]), "input_mask", *biases]
        change = add("MultiHeadAttention", *operands, domain=_RUNTIME, num_heads=heads)
        change = dense(change, f"{name}/attention_output")
        x = normalized(add("Add", x, change), f"{layer}/self_attention_layer_norm")
        change = _activated(add, product(x, f"{layer}/intermediate"), weights, layer, config["activation"])
        x = normalized(add("Add", x, dense(change, f"{layer}/output")), f"{layer}/output_layer_norm")
    if encoder.pooling in ("mean", "normalized_mean"):
        x = add("Div", *_sums(add, x))
    else:
        x = add("Gather", x, np.array(0), axis=1)
    if encoder.pooling == "pooler":
        x = add("Tanh", dense(x, "pooler_transform"))
    if encoder.pooling.startswith("normalized_"):
        x = _unit(add, x, width)
    return add.model(x, width)


def _sums(add: _Graph, x: str) -> list[str]:
    """Returns the sum of the tokens' vectors, `[B, d]`, and their number, `[B, 1]`."""
    mask = add("Unsqueeze", add("Cast", "input_mask", to=1), np.array([2]))  # 1: float32
    return [add("ReduceSum", each, np.array([1]), keepdims=0) for each in (add("Mul", x, mask), mask)]


def _unit(add: _Graph, x: str, width: int) -> str:
    """Returns vectors over their root mean square."""
    unit = add("LpNormalization", x, axis=1, p=2)
    return add("Mul", unit, np.array(math.sqrt(width), np.float32))


def _activated(add: _Graph, x: str, weights: dict[str, np.ndarray], layer: str, activation: str) -> str:
    bias = weights[f"{layer}/intermediate/bias"]
    if activation == "relu":
        return add("Relu", add("Add", x, bias))
    return add({"gelu": "BiasGelu", "gelu_new": "FastGelu"}[activation], x, bias, domain=_RUNTIME)


def _biases(add: _Graph, encoder: Mpnet, weights: dict[str, np.ndarray], length: str) -> str:
    """Returns the summands of the scores of attention, `[1, heads, length, length]`."""
    ends = add("Concat", length, length, axis=0)
    buckets = add("Slice", encoder.buckets(), np.array([0, 0]), ends, np.array([0, 1]))
    biases = add("Gather", weights["relative_attention_bias/embeddings"], buckets)
    return add("Unsqueeze", add("Transpose", biases, perm=[2, 0, 1]), np.array([0]))
