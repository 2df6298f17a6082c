"""Formats of published encoder checkpoints: registered functions, which `find` tries in turn."""

import os
import re
from typing import Any

import h5py
import numpy as np
import tensorflow as tf

from rank4class import compat, strict_json
from rank4class.models.checkpoints.checkpoint import (
    Checkpoint,
    NameMap,
    Tensors,
    read_safetensors,
    read_tensorflow,
)
from rank4class.registry import Registry

# Function of a path that returns its `Checkpoint`, or None if the path holds another format. The names are
# descriptions for users.
FORMATS = Registry("checkpoint format")
# Function of the `Tensors` of a TensorFlow checkpoint that returns its `Checkpoint`. The names are those of
# the top-level scope of the encoder.
TENSORFLOW_FORMATS = Registry("TensorFlow checkpoint format")
TENSORS_FILE = "model.safetensors"


def find(path: str | os.PathLike) -> Checkpoint:
    """Returns the checkpoint at a path, in whichever known format.

    Args:
      path: a Hugging Face folder (BERT or ELECTRA, `model.safetensors`); a google-research folder (BERT
        or ELECTRA, a TF1 checkpoint); a Model Garden checkpoint (BERT encoder or ResNet backbone, TF2);
        Keras's file of ResNet50 weights, or of the VGG16 weights for CIFAR of github.com/geifmany/cifar-vgg
        (`.h5`). A TensorFlow checkpoint is its folder or its prefix, the name without `.index`; those of
        images may be in object storage.

    Raises:
      FileNotFoundError: nothing is there, or a file is missing.
      ValueError: it is of no known format, or its parts do not fit one another.
    """
    path = os.fspath(path)
    if os.path.basename(path) in (TENSORS_FILE, "config.json") and os.path.isfile(path):
        path = os.path.dirname(path) or "."
    path = re.sub(r"\.(index|data-\d+-of-\d+)$", "", path)
    for name in FORMATS:
        checkpoint = FORMATS[name](path)
        if checkpoint is not None:
            return checkpoint
    known = "; ".join(FORMATS)
    if not os.path.exists(path):
        raise FileNotFoundError(
            f"{path}: no such file or folder, and nothing is downloaded. Download the checkpoint yourself "
            f"and give its path: {known}."
        )
    raise ValueError(f"{path}: no checkpoint of a known format. Give the path of one: {known}.")


# The BERT of google-research, and of ELECTRA, which shares its code.
_LAYER = r"transformer/layer_(\d+)"
_GOOGLE_MODULES = {
    "word_embeddings": "embeddings/word_embeddings",
    "position_embedding": "embeddings/position_embeddings",
    "type_embeddings": "embeddings/token_type_embeddings",
    "embeddings/layer_norm": "embeddings/LayerNorm",
    "embedding_projection": "embeddings_project",
    f"{_LAYER}/self_attention/(query|key|value)": r"encoder/layer_\1/attention/self/\2",
    f"{_LAYER}/self_attention/attention_output": r"encoder/layer_\1/attention/output/dense",
    f"{_LAYER}/self_attention_layer_norm": r"encoder/layer_\1/attention/output/LayerNorm",
    f"{_LAYER}/(intermediate|output)": r"encoder/layer_\1/\2/dense",
    f"{_LAYER}/output_layer_norm": r"encoder/layer_\1/output/LayerNorm",
    "pooler_transform": "pooler/dense",
}
# Hugging Face writes the same names with dots.
HUGGING_FACE_NAMES = NameMap(
    {ours: name.replace("layer_", "layer/").replace("/", ".") for ours, name in _GOOGLE_MODULES.items()},
    # A buffer of positions, and the heads of pre-training, classification and question answering.
    unused=r"embeddings\.position_ids|(cls|classifier|qa_outputs|discriminator_predictions)\..*",
    parameters=dict.fromkeys(("embeddings", "kernel", "gamma"), ".weight")
    | dict.fromkeys(("bias", "beta"), ".bias"),
    transposed="kernel",
)


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
    kind = config.get("model_type")
    if kind not in ("bert", "electra"):
        raise ValueError(
            f"{config_path}: model_type {kind!r} is not 'bert' or 'electra'. Choose another checkpoint."
        )
    file = read_safetensors(tensors_path)
    # A model saved with a head has its encoder under "bert." or "electra."; one converted from TensorFlow has
    # TensorFlow's names of layer normalization.
    names = {
        name.removeprefix(f"{kind}.")
        .replace("Norm.gamma", "Norm.weight")
        .replace("Norm.beta", "Norm.bias"): name
        for name in file.shapes
    }
    shapes = {name: file.shapes[stored] for name, stored in names.items()}
    tensors = Tensors(tensors_path, shapes, lambda name: file.read(names[name]))
    settings = _settings_of_config(config_path, config)
    if kind == "bert":  # Transformers' models of masked tokens have no pooler
        settings["pooler"] = "pooler.dense.weight" in shapes
    return Checkpoint(f"Hugging Face {kind.upper()} folder", kind, settings, HUGGING_FACE_NAMES, tensors)


@FORMATS.register("a TensorFlow checkpoint (*.index)")
def _tensorflow(path: str) -> Checkpoint | None:
    prefix = _prefix(path)
    if prefix is None:
        return None
    tensors = read_tensorflow(prefix)
    scopes = {name.partition("/")[0] for name in tensors.shapes}
    for scope in TENSORFLOW_FORMATS:
        if scope in scopes:
            return TENSORFLOW_FORMATS[scope](tensors)
    raise ValueError(
        f"{prefix}: a TensorFlow checkpoint, but not one of an encoder, as its tensors are in none of the "
        f"scopes {', '.join(TENSORFLOW_FORMATS)}. Choose another checkpoint."
    )


def _prefix(path: str) -> str | None:
    """Returns the prefix of the TensorFlow checkpoint that a path names, also in object storage, or None."""
    try:
        if tf.io.gfile.exists(path + ".index"):
            return path
        if latest := tf.train.latest_checkpoint(path):
            return latest
        files = sorted(tf.io.gfile.listdir(path)) if tf.io.gfile.isdir(path) else []
    except tf.errors.UnimplementedError:  # a scheme that TensorFlow does not read, such as hf://
        return None
    except tf.errors.OpError as error:
        raise OSError(f"{path}: {compat.reason(error)}") from error
    names = [f.removesuffix(".index") for f in files if f.endswith(".index") and not f.startswith(".")]
    prefixes = [os.path.join(path, name) for name in names]
    if len(prefixes) > 1:
        raise ValueError(f"{path}: several checkpoints. Give the path of one: {', '.join(prefixes)}.")
    return prefixes[0] if prefixes else None


_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"


@TENSORFLOW_FORMATS.register("backbone")
def _model_garden_resnet(tensors: Tensors) -> Checkpoint:
    name_map = NameMap(
        {r"layer_(\d+)": r"layer_with_weights-\1", r"layer_(\d+)/(\w+)": r"layer_with_weights-\1/_\2"},
        unused=r"(?!backbone/).*|.*/\.OPTIMIZER_SLOT/.*",
        prefix="backbone/",
        suffix=_VALUE,
    )
    settings = {"variant": "model_garden"}
    return Checkpoint("Model Garden ResNet50 backbone", "resnet50", settings, name_map, tensors)


@TENSORFLOW_FORMATS.register("encoder")
def _model_garden_bert(tensors: Tensors) -> Checkpoint:
    layer = r"_transformer_layers/\1"
    name_map = NameMap(
        {
            "word_embeddings": "_embedding_layer",
            "position_embedding": "_position_embedding_layer",
            "type_embeddings": "_type_embedding_layer",
            "embeddings/layer_norm": "_embedding_norm_layer",
            "embedding_projection": "_embedding_projection",
            f"{_LAYER}/self_attention/(query|key|value)": rf"{layer}/_attention_layer/_\2_dense",
            f"{_LAYER}/self_attention/attention_output": f"{layer}/_attention_layer/_output_dense",
            f"{_LAYER}/self_attention_layer_norm": f"{layer}/_attention_layer_norm",
            f"{_LAYER}/(intermediate|output)": rf"{layer}/_\2_dense",
            f"{_LAYER}/output_layer_norm": f"{layer}/_output_layer_norm",
            "pooler_transform": "_pooler_layer",
        },
        unused=r"(?!encoder/).*|.*/\.OPTIMIZER_SLOT/.*",  # heads, optimizer and counters of the training
        prefix="encoder/",
        suffix=_VALUE,
    )
    settings = _settings_of_shapes(tensors, name_map, activation="gelu_new")  # the default there
    return Checkpoint("Model Garden BERT encoder", "bert", settings, name_map, tensors)


_GOOGLE_SLOTS = r"global_step|.*/adam_[mv]"


@TENSORFLOW_FORMATS.register("electra")
def _google_electra(tensors: Tensors) -> Checkpoint:
    name_map = NameMap(
        _GOOGLE_MODULES,
        unused=rf"(generator|generator_predictions|discriminator_predictions)/.*|{_GOOGLE_SLOTS}",
        parameters={"embeddings": ""},
        prefix="electra/",
    )
    # Its gelu is exact, unlike that of google-research's BERT.
    settings = _settings_of_shapes(tensors, name_map, activation="gelu")
    return Checkpoint("google-research ELECTRA", "electra", settings, name_map, tensors)


@TENSORFLOW_FORMATS.register("bert")
def _google_bert(tensors: Tensors) -> Checkpoint:
    name_map = NameMap(
        _GOOGLE_MODULES, unused=rf"cls/.*|{_GOOGLE_SLOTS}", parameters={"embeddings": ""}, prefix="bert/"
    )
    config_path = os.path.join(os.path.dirname(tensors.path), "bert_config.json")
    settings = _settings_of_config(config_path, strict_json.read_object(config_path))
    if settings["activation"] == "gelu":
        settings["activation"] = "gelu_new"  # google-research's gelu is the tanh approximation
    return Checkpoint("google-research BERT", "bert", settings, name_map, tensors)


# The layers of github.com/geifmany/cifar-vgg, which Keras numbers in order; `dense_2` is the head.
_CONVOLUTIONS = [f"conv_{block}_{i}" for block, n in enumerate((2, 2, 3, 3, 3), 1) for i in range(1, n + 1)]
_CIFAR_VGG_NAMES = NameMap(
    {
        **{name: f"conv2d_{i}" for i, name in enumerate(_CONVOLUTIONS, 1)},
        "dense": "dense_1",
        **{f"{name}_norm": f"batch_normalization_{i}" for i, name in enumerate([*_CONVOLUTIONS, "dense"], 1)},
    },
    unused=r"dense_2/.*",
)


@FORMATS.register("Keras's ResNet50 or CIFAR VGG16 weights (.h5)")
def _keras_weights(path: str) -> Checkpoint | None:
    if not os.path.isfile(path) or not h5py.is_hdf5(path):
        return None
    try:
        with h5py.File(path) as file:
            values = {
                (name.decode() if isinstance(name, bytes) else name).removesuffix(":0"): np.array(layer[name])
                for layer in file.get("model_weights", file).values()
                for name in layer.attrs.get("weight_names", ())
                if name in layer
            }
    except OSError as error:
        raise ValueError(f"{path}: not a complete HDF5 file: {error}. Download it again.") from error
    tensors = Tensors(path, {name: value.shape for name, value in values.items()}, values.__getitem__)
    if "conv1_conv/kernel" in values:
        name_map = NameMap({r"(.*)": r"\1"}, unused=r"predictions/.*")
        return Checkpoint("Keras ResNet50 weights", "resnet50", {"variant": "keras"}, name_map, tensors)
    if "conv2d_1/kernel" in values:
        return Checkpoint("Keras VGG16 weights for CIFAR", "vgg16", {}, _CIFAR_VGG_NAMES, tensors)
    raise ValueError(
        f"{path}: neither ResNet50 weights of keras.applications nor VGG16 weights of cifar-vgg, as it has "
        "no conv1_conv and no conv2d_1. Choose another file."
    )


CONFIG_FIELDS = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "inner_size": "intermediate_size",
    "max_positions": "max_position_embeddings",
    "num_types": "type_vocab_size",
    "activation": "hidden_act",
}


def _settings_of_config(path: str, config: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments of a text encoder that BERT's or ELECTRA's config file states."""
    narrow = {"embedding_size": "embedding_size"} if config.get("model_type") == "electra" else {}
    settings: dict[str, Any] = {ours: config.get(field) for ours, field in (CONFIG_FIELDS | narrow).items()}
    if config.get("layer_norm_eps", 1e-12) != 1e-12:
        problem = f"layer_norm_eps {config['layer_norm_eps']} is not 1e-12, as in BERT"
        raise ValueError(f"{path}: {problem}. Choose another checkpoint.")
    if "pooling" in config:  # of our exports; Hugging Face ignores it
        settings["pooling"] = config["pooling"]
    return settings


def _settings_of_shapes(tensors: Tensors, name_map: NameMap, activation: str) -> dict[str, Any]:
    """Returns the arguments of a text encoder: its activation, and those that its tensors' shapes show.

    The Model Garden's tensors show the number of heads; ELECTRA's code has one for every 64 units.
    """

    def shape(name: str) -> tuple[int, ...]:
        source = name_map.source(name)
        if source not in tensors.shapes:
            problem = f"does not fit a text encoder: {source} is missing"
            raise ValueError(f"{tensors.path}: {problem}. Choose another checkpoint.")
        return tensors.shapes[source]

    vocab_size, embedding_size = shape("word_embeddings/embeddings")
    hidden_size, inner_size = shape("transformer/layer_0/intermediate/kernel")
    query = shape("transformer/layer_0/self_attention/query/kernel")
    num_layers = 0
    while name_map.source(f"transformer/layer_{num_layers}/intermediate/kernel") in tensors.shapes:
        num_layers += 1
    return {
        "vocab_size": vocab_size,
        "hidden_size": hidden_size,
        "embedding_size": embedding_size,
        "num_layers": num_layers,
        "num_heads": query[1] if len(query) == 3 else max(1, hidden_size // 64),
        "inner_size": inner_size,
        "max_positions": shape("position_embedding/embeddings")[0],
        "num_types": shape("type_embeddings/embeddings")[0],
        "activation": activation,
    }
