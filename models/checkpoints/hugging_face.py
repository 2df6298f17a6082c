"""Text encoders in the files of Hugging Face's layout."""

import json
import os
from typing import Any

import numpy as np
from absl import logging

from rank4class import compat, strict_json
from rank4class.models.checkpoints.checkpoint import (
    FORMATS,
    Checkpoint,
    Tensors,
    read_safetensors,
)
from rank4class.registry import HUGGING_FACE

TENSORS_FILE = "model.safetensors"


@FORMATS.register(f"a Hugging Face folder (config.json, {TENSORS_FILE})")
def _hugging_face(path: str) -> Checkpoint | None:
    config_path = os.path.join(path, "config.json")
    if not os.path.isfile(config_path):
        return None
    tensors_path = os.path.join(path, TENSORS_FILE)
    if os.path.isfile(tensors_path + ".index.json"):
        raise ValueError(f"{path}: the tensors are in shards. Save them in one {TENSORS_FILE}.")
    if not os.path.isfile(tensors_path):
        raise FileNotFoundError(
            f"{tensors_path}: no such file, and pytorch_model.bin is not supported. Save it as safetensors."
        )
    config = strict_json.read_object(config_path)
    kind: Any = config.get("model_type")
    if kind not in HUGGING_FACE:
        known = " or ".join(map(repr, HUGGING_FACE))
        raise ValueError(f"{config_path}: model_type {kind!r} is not {known}. Choose another checkpoint.")
    file = read_safetensors(tensors_path)
    architecture = HUGGING_FACE[kind]
    # A model saved with a head has its encoder under "bert." or the like; one converted from TensorFlow has
    # TensorFlow's names of layer normalization.
    names = {
        name.removeprefix(f"{architecture.SCOPE}.")
        .replace("Norm.gamma", "Norm.weight")
        .replace("Norm.beta", "Norm.bias"): name
        for name in file.shapes
    }
    shapes = {name: file.shapes[stored] for name, stored in names.items()}
    tensors = Tensors(tensors_path, shapes, lambda name: file.read(names[name]))
    settings = architecture.settings_of_config(config_path, config, shapes)
    title = f"Hugging Face {kind.upper()} folder"
    name_map = architecture.HUGGING_FACE_NAMES
    return Checkpoint(title, architecture, settings, name_map, tensors)


_POOLINGS = {"cls": "cls", "cls_token": "cls", "mean": "mean", "mean_tokens": "mean"}


def sentence_pooling(folder: str) -> str | None:
    """Returns the pooling that sentence-transformers' files of a folder state; None without them.

    It warns of poolings, or of a layer after them, that no encoder has, and leaves them out.
    """
    path = os.path.join(folder, "modules.json")
    if not os.path.isfile(path):
        return None
    with open(path, encoding="utf-8") as file:
        listed = strict_json.parse_object(path, f'{{"modules": {file.read()}}}')["modules"]
    modules = {each["type"].rpartition(".")[2]: each["path"] for each in listed}
    of_pooling = os.path.join(folder, modules.get("Pooling", ""), "config.json")
    if not os.path.isfile(of_pooling):
        raise FileNotFoundError(f"{of_pooling}: no such file, which {path} names. Download the whole folder.")
    config = strict_json.read_object(of_pooling)
    start = "pooling_mode_"  # before version 5.3 of sentence-transformers a field for each mode
    modes = config.get("pooling_mode", [n[len(start) :] for n in config if n.startswith(start) and config[n]])
    modes = [modes] if isinstance(modes, str) else modes
    pooling = _POOLINGS.get(modes[0]) if len(modes) == 1 else None
    if others := sorted({*modules, *([] if pooling else modes)} - {"Transformer", "Pooling", "Normalize"}):
        logging.warning("%s: %s is not supported, and left out", path, ", ".join(others))
    return f"normalized_{pooling}" if pooling and "Normalize" in modules else pooling


def hugging_face_files(encoder: Any, pad_token_id: int) -> dict[str, bytes]:
    """Returns the files from which `find`, and `AutoModel` of transformers, load a text encoder.

    `config.json` has the field `pooling` of the encoder, by which `encoders.bert` and `encoders.electra` pool
    it again. Transformers ignores the field: `pooler_output` is the pooling "pooler", the first vector of
    `last_hidden_state` is "cls", their mean over `attention_mask` is "mean", and that over
    its root mean square "normalized_mean".

    Args:
      encoder: an `encoders.Bert`, `encoders.Electra` or other class of `HUGGING_FACE`.
      pad_token_id: id of the tokenizer's padding.

    Returns:
      Name of the file -> content.
    """
    config = {**encoder.published_config(), "pad_token_id": pad_token_id}
    # Transformers asks for the framework that wrote the tensors, of those that it knows.
    safetensors = compat.import_extra("safetensors.numpy", "models")
    tensors = safetensors.save(_tensors(encoder), metadata={"format": "pt"})
    return {TENSORS_FILE: tensors, "config.json": json.dumps(config, indent=2).encode()}


def _tensors(encoder: Any) -> dict[str, np.ndarray]:
    """Returns the weights by Hugging Face's names, whose kernels are `[out, in]`."""
    values = {name: variable.numpy() for name, variable in encoder.named_variables().items()}
    tensors = {}
    for name, value in values.items():
        module, _, parameter = name.rpartition("/")
        if parameter == "bias":
            value = value.reshape(-1)  # of all heads
        elif parameter == "kernel":
            value = value.reshape(-1, values[f"{module}/bias"].size).T
        tensors[encoder.HUGGING_FACE_NAMES.source(name)] = np.ascontiguousarray(value)
    return tensors
