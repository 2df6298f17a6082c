"""Import of published encoder weights: one declarative name map a source, and one strict reader.

A map goes from the name of our variable, relative to the encoder, to the name of the source's
tensor and how it is turned. The reader assigns every variable or raises; a source tensor that no
variable takes has to be listed as known to be unused.
"""

import json
import math
import os
import re

import numpy as np
import safetensors

# Hugging Face's BERT -> tf-models-official's BertEncoderV2. "T" transposes a matrix (PyTorch keeps
# dense kernels as [out, in]); a reshape to the variable's own shape then splits the heads.
HUGGING_FACE_BERT = {
    r"word_embeddings/embeddings": ("embeddings.word_embeddings.weight", ""),
    r"position_embedding/embeddings": ("embeddings.position_embeddings.weight", ""),
    r"type_embeddings/embeddings": ("embeddings.token_type_embeddings.weight", ""),
    r"embeddings/layer_norm/gamma": ("embeddings.LayerNorm.weight", ""),
    r"embeddings/layer_norm/beta": ("embeddings.LayerNorm.bias", ""),
    r"transformer/layer_(\d+)/self_attention/(query|key|value)/kernel": (
        r"encoder.layer.\1.attention.self.\2.weight",
        "T",
    ),
    r"transformer/layer_(\d+)/self_attention/(query|key|value)/bias": (
        r"encoder.layer.\1.attention.self.\2.bias",
        "",
    ),
    r"transformer/layer_(\d+)/self_attention/attention_output/kernel": (
        r"encoder.layer.\1.attention.output.dense.weight",
        "T",
    ),
    r"transformer/layer_(\d+)/self_attention/attention_output/bias": (
        r"encoder.layer.\1.attention.output.dense.bias",
        "",
    ),
    r"transformer/layer_(\d+)/self_attention_layer_norm/gamma": (
        r"encoder.layer.\1.attention.output.LayerNorm.weight",
        "",
    ),
    r"transformer/layer_(\d+)/self_attention_layer_norm/beta": (
        r"encoder.layer.\1.attention.output.LayerNorm.bias",
        "",
    ),
    r"transformer/layer_(\d+)/intermediate/kernel": (r"encoder.layer.\1.intermediate.dense.weight", "T"),
    r"transformer/layer_(\d+)/intermediate/bias": (r"encoder.layer.\1.intermediate.dense.bias", ""),
    r"transformer/layer_(\d+)/output/kernel": (r"encoder.layer.\1.output.dense.weight", "T"),
    r"transformer/layer_(\d+)/output/bias": (r"encoder.layer.\1.output.dense.bias", ""),
    r"transformer/layer_(\d+)/output_layer_norm/gamma": (r"encoder.layer.\1.output.LayerNorm.weight", ""),
    r"transformer/layer_(\d+)/output_layer_norm/beta": (r"encoder.layer.\1.output.LayerNorm.bias", ""),
    r"pooler_transform/kernel": ("pooler.dense.weight", "T"),
    r"pooler_transform/bias": ("pooler.dense.bias", ""),
}
# A buffer that only counts the positions, and the heads of models saved for pre-training.
HUGGING_FACE_BERT_UNUSED = r"embeddings\.position_ids|cls\..*"


_BERT_SIZES = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "inner_size": "intermediate_size",
    "max_positions": "max_position_embeddings",
    "num_types": "type_vocab_size",
}


def read_bert_config(folder):
    """Reads `config.json` of a Hugging Face BERT folder.

    Args:
      folder: holds `config.json`, `vocab.txt` and `model.safetensors`.

    Returns:
      The keyword arguments of `encoders.Bert`.

    Raises:
      FileNotFoundError: the folder or one of its three files is missing.
      ValueError: the file is not a BERT config, or its vocabulary is not the size of `vocab.txt`.
    """
    for name in ("config.json", "vocab.txt", "model.safetensors"):
        path = os.path.join(folder, name)
        if not os.path.isfile(path):
            raise FileNotFoundError(
                f"no {path}: an encoder's folder holds config.json, vocab.txt, model.safetensors"
            )
    path = os.path.join(folder, "config.json")
    with open(path, encoding="utf-8") as file:
        try:
            published = json.load(file)
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}:{error.lineno} is not JSON: {error.msg}") from error
    if not isinstance(published, dict) or published.get("model_type") != "bert":
        raise ValueError(f"{path} does not describe a model of model_type 'bert'")
    sizes = {}
    for ours, theirs in _BERT_SIZES.items():
        sizes[ours] = published.get(theirs)
        if not isinstance(sizes[ours], int) or sizes[ours] < 1:
            raise ValueError(f"{path} has no positive whole number {theirs}")
    if sizes["hidden_size"] % sizes["num_heads"]:
        raise ValueError(
            f"{path}: hidden_size {sizes['hidden_size']} does not split into {sizes['num_heads']} heads"
        )
    if published.get("hidden_act") not in ("gelu", "gelu_new", "relu"):
        raise ValueError(
            f"{path}: hidden_act {published.get('hidden_act')!r} is not one of gelu, gelu_new, relu"
        )
    if published.get("layer_norm_eps", 1e-12) != 1e-12:
        raise ValueError(f"{path}: layer_norm_eps {published['layer_norm_eps']} is not 1e-12, BERT's own")
    with open(os.path.join(folder, "vocab.txt"), encoding="utf-8") as file:
        words = sum(1 for _ in file)
    if words != sizes["vocab_size"]:
        raise ValueError(f"{path} states vocab_size {sizes['vocab_size']}, but vocab.txt has {words} lines")
    return {**sizes, "activation": published["hidden_act"]}


def load_hugging_face_bert(encoder, folder):
    """Assigns the weights in `folder/model.safetensors` to a built `BertEncoderV2`.

    Args:
      encoder: the network, with all variables created.
      folder: see `read_bert_config`.

    Raises:
      ValueError: a tensor is missing, left over or of another shape; the message lists them.
    """
    path = os.path.join(folder, "model.safetensors")
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except safetensors.SafetensorError as error:
        raise ValueError(f"{path} is not a whole safetensors file: {error}") from error
    # A model saved with a head keeps its encoder under "bert.".
    tensors = {name.removeprefix("bert."): value for name, value in tensors.items()}
    _assign(encoder, tensors, HUGGING_FACE_BERT, HUGGING_FACE_BERT_UNUSED, path)


def _assign(encoder, tensors, name_map, unused, path):
    left, assignments, problems = set(tensors), [], []
    for variable in encoder.variables:
        name = variable.name.rsplit(encoder.name + "/", 1)[-1].removesuffix(":0")
        source, turn = _source(name, name_map)
        if source not in tensors:
            problems.append(f"{source} is missing")
            continue
        left.discard(source)
        value = tensors[source].T if turn == "T" else tensors[source]
        if not _splits_into(value.shape, variable.shape):
            problems.append(
                f"{source} has shape {tensors[source].shape}, not that of {name} {variable.shape}"
            )
        elif not np.isfinite(value).all():
            problems.append(f"{source} has values that are not finite")
        assignments.append((variable, value))
    problems += [f"{name} is left over" for name in sorted(left) if not re.fullmatch(unused, name)]
    if problems:
        raise ValueError(f"{path} does not fit this encoder: " + "; ".join(problems))
    for variable, value in assignments:
        variable.assign(value.reshape(variable.shape))


def _source(name, name_map):
    for pattern, (template, turn) in name_map.items():
        match = re.fullmatch(pattern, name)
        if match:
            return match.expand(template), turn
    raise ValueError(f"the name map has no entry for the variable {name}")


def _splits_into(shape, finer):
    """Whether `finer` is `shape` with some axes split in order, as heads are split off the width."""
    axes = iter(finer)
    for size in shape:
        product = 1
        while product < size:
            product *= next(axes, math.inf)
        if product != size:
            return False
    return next(axes, None) is None
