"""Import of published encoder weights: finders of what lies at a path, and one strict reader.

The reader assigns every variable or raises; a tensor that no variable takes has to be listed as known
to be unused in the source's name map.
"""

import collections
import dataclasses
import functools
import glob
import json
import math
import os
import re
import shutil
from collections.abc import Callable

import h5py
import numpy as np
import safetensors
import safetensors.numpy
import tensorflow as tf

from rank4class.models import name_maps
from rank4class.models.name_maps import NameMap


@dataclasses.dataclass(frozen=True)
class Source:
    """A checkpoint that was found.

    Attributes:
      format: what it is, in words.
      encoder: the name of the encoder that takes it, as in `registry.ENCODERS`.
      path: of the file that holds the tensors.
      settings: the arguments that its encoder is built with.
      name_map: a `NameMap`.
      shapes: tensor's name -> shape.
      tensor: function of a tensor's name to its values.
    """

    format: str
    encoder: str
    path: str
    settings: dict
    name_map: NameMap
    shapes: dict
    tensor: Callable

    @property
    def folder(self):
        """Of what lies beside the file, such as the vocabulary."""
        return os.path.dirname(self.path) or "."

    def assign(self, variables):
        """Assigns every variable its tensor, or none at all.

        Args:
          variables: our name -> variable.

        Raises:
          ValueError: a tensor is missing, left over, of another shape or not finite; the message
            lists them.
        """
        left, assignments, problems = set(self.shapes), [], []
        for name, variable in variables.items():
            source = self.name_map.source(name)
            if source not in left:
                problems.append(f"{source} is missing")
                continue
            left.discard(source)
            value = self.tensor(source)
            if not tf.as_dtype(value.dtype).is_floating:
                problems.append(f"{source} holds {value.dtype}, not floats")
                continue
            if re.fullmatch(self.name_map.transposed, name):
                value = value.T
            if not _splits_into(value.shape, variable.shape):
                shape = tuple(self.shapes[source])
                problems.append(f"{source} has shape {shape}, not that of {name} {tuple(variable.shape)}")
            elif not np.isfinite(value).all():
                problems.append(f"{source} has values that are not finite")
            assignments.append((variable, value))
        unused = self.name_map.unused
        problems += [f"{name} is left over" for name in sorted(left) if not re.fullmatch(unused, name)]
        if problems:
            raise ValueError(f"{self.path} does not fit this encoder: " + "; ".join(problems))
        for variable, value in assignments:
            variable.assign(value.reshape(variable.shape))


def find(path):
    """Finds out what checkpoint lies at a path.

    Args:
      path: a Hugging Face folder (BERT or ELECTRA, `model.safetensors`); a google-research folder (BERT
        or ELECTRA, a TF1 checkpoint); a Model Garden checkpoint (BERT encoder or ResNet backbone, TF2);
        Keras's file of ResNet50 weights (`.h5`); or a folder that `save` wrote. A TensorFlow checkpoint
        can be named by its folder or by its prefix, the name without `.index`.

    Returns:
      A `Source`.

    Raises:
      FileNotFoundError: nothing is there, or a file is missing.
      ValueError: it is of no known format, or its parts do not fit one another.
    """
    path = _without_file(os.fspath(path))
    for recognize in (_own, _hugging_face, _tensorflow, _keras_resnet):
        source = recognize(path)
        if source is not None:
            if "vocab_size" in source.settings:
                _check_vocabulary(source)
            return source
    if not os.path.exists(path):
        raise FileNotFoundError(
            f"{path}: no such file or folder, and nothing is downloaded. Download the checkpoint yourself "
            f"and give the path of {_FORMATS}."
        )
    raise ValueError(f"{path} holds no checkpoint of a known format: {_FORMATS}")


_FORMATS = (
    "a Hugging Face folder (config.json, model.safetensors, vocab.txt), a TensorFlow checkpoint (*.index, "
    "and vocab.txt of a text encoder), Keras's ResNet50 weights (.h5) or a converted folder (encoder.json)"
)


def _without_file(path):
    """Returns the folder or prefix that is meant by one of a checkpoint's files."""
    if os.path.basename(path) in (_OWN_FILE, _TENSORS, "config.json") and os.path.isfile(path):
        return os.path.dirname(path) or "."
    return re.sub(r"\.(index|data-\d+-of-\d+)$", "", path)


def encoder_of(path):
    """Returns the name of the encoder that takes a checkpoint; raises as `find` does."""
    return find(path).encoder


def vocabulary_folder(path):
    """Returns the folder of what lies beside a checkpoint, which may be named by its prefix."""
    path = os.fspath(path)
    return path if os.path.isdir(path) else os.path.dirname(path) or "."


def save(folder, *, encoder, settings, variables, vocabulary_from=None):
    """Writes an encoder in our own format: `encoder.json`, `model.safetensors`, and its vocabulary.

    Args:
      folder: made where it is not there; must be empty. It appears whole or not at all.
      encoder: name, as in `registry.ENCODERS`.
      settings: the arguments that it is built with.
      variables: our name -> variable.
      vocabulary_from: folder with the tokenizer's files.

    Raises:
      FileExistsError: the folder holds something.
    """
    folder = os.path.normpath(folder)
    if os.path.isdir(folder) and os.listdir(folder):
        raise FileExistsError(f"{folder} is not empty: choose another folder")
    partial = f"{folder}.partial-{os.getpid()}"
    os.makedirs(partial)
    tensors = {name: variable.numpy() for name, variable in variables.items()}
    safetensors.numpy.save_file(tensors, os.path.join(partial, _TENSORS))
    for name in ("vocab.txt", "tokenizer_config.json"):
        if vocabulary_from and os.path.isfile(os.path.join(vocabulary_from, name)):
            shutil.copyfile(os.path.join(vocabulary_from, name), os.path.join(partial, name))
    with open(os.path.join(partial, _OWN_FILE), "w", encoding="utf-8") as file:
        json.dump({"encoder": encoder, "settings": settings}, file, indent=2)
    os.replace(partial, folder)


ENCODERS = ("bert", "electra", "resnet50", "vgg16")
_OWN_FILE, _TENSORS = "encoder.json", "model.safetensors"


def _own(path):
    description = os.path.join(path, _OWN_FILE)
    if not os.path.isfile(description):
        return None
    published = _read_json(description)
    if published.get("encoder") not in ENCODERS or not isinstance(published.get("settings"), dict):
        raise ValueError(f"{description} does not describe one of the encoders {', '.join(ENCODERS)}")
    tensors_path = os.path.join(path, _TENSORS)
    return Source(
        "rank4class folder",
        published["encoder"],
        tensors_path,
        published["settings"],
        name_maps.OWN,
        *_safetensors(tensors_path),
    )


def _hugging_face(path):
    config_path = os.path.join(path, "config.json")
    if not os.path.isfile(config_path):
        return None
    tensors_path = os.path.join(path, _TENSORS)
    if os.path.isfile(tensors_path + ".index.json"):
        raise ValueError(f"{path} holds its tensors in shards: save them in one model.safetensors")
    if not os.path.isfile(tensors_path):
        raise FileNotFoundError(
            f"no {tensors_path}: of a Hugging Face folder the safetensors file is read, not pytorch_model.bin"
        )
    published = _read_json(config_path)
    kind = published.get("model_type")
    if kind not in ("bert", "electra"):
        raise ValueError(f"{config_path} has model_type {kind!r}, which is not 'bert' or 'electra'")
    shapes, tensor = _safetensors(tensors_path)
    theirs = {}
    for name in shapes:
        # A model saved with a head keeps its encoder under "bert." or "electra."; what was once converted
        # from TensorFlow has TensorFlow's names of the normalisation.
        ours = (
            name.removeprefix(f"{kind}.")
            .replace("Norm.gamma", "Norm.weight")
            .replace("Norm.beta", "Norm.bias")
        )
        if ours in theirs:
            raise ValueError(f"{tensors_path} holds both {theirs[ours]} and {name}: which one is meant?")
        theirs[ours] = name
    return Source(
        f"Hugging Face {kind.upper()} folder",
        kind,
        tensors_path,
        _published_sizes(config_path, published),
        name_maps.HUGGING_FACE,
        {name: shapes[original] for name, original in theirs.items()},
        lambda name: tensor(theirs[name]),
    )


def _tensorflow(path):
    prefix = _prefix(path)
    if prefix is None:
        return None
    reader = _opened(prefix)
    shapes = reader.get_variable_to_shape_map()
    scopes = {name.partition("/")[0] for name in shapes}
    for scope, recognize in _SCOPES.items():
        if scope in scopes:
            return recognize(prefix, shapes, functools.partial(_tensor, reader, prefix))
    raise ValueError(
        f"{prefix} is a TensorFlow checkpoint, but not one of an encoder: its tensors stand under none of "
        f"{', '.join(scope + '/' for scope in _SCOPES)}"
    )


def _tensor(reader, prefix, name):
    try:
        return reader.get_tensor(name)
    except (tf.errors.OpError, IndexError, RuntimeError) as error:
        raise ValueError(f"{prefix} is not a whole checkpoint: {name} cannot be read") from error


def _model_garden_resnet(prefix, shapes, tensor):
    return Source(
        "Model Garden ResNet50 backbone",
        "resnet50",
        prefix,
        {"variant": "model_garden"},
        name_maps.MODEL_GARDEN_RESNET,
        shapes,
        tensor,
    )


def _model_garden_bert(prefix, shapes, tensor):
    theirs = _by_attributes(shapes)
    shapes = {name: shapes[original] for name, original in theirs.items()}
    return Source(
        "Model Garden BERT encoder",
        "bert",
        prefix,
        _sizes_in(prefix, name_maps.MODEL_GARDEN_BERT, shapes),
        name_maps.MODEL_GARDEN_BERT,
        shapes,
        lambda name: tensor(theirs[name]),
    )


def _google_electra(prefix, shapes, tensor):
    return Source(
        "google-research ELECTRA",
        "electra",
        prefix,
        _sizes_in(prefix, name_maps.GOOGLE_ELECTRA, shapes),
        name_maps.GOOGLE_ELECTRA,
        shapes,
        tensor,
    )


def _google_bert(prefix, shapes, tensor):
    config_path = os.path.join(os.path.dirname(prefix), "bert_config.json")
    settings = _published_sizes(config_path, _read_json(config_path))
    if settings["activation"] == "gelu":
        settings["activation"] = "gelu_new"  # what that code calls gelu is the tanh approximation
    return Source("google-research BERT", "bert", prefix, settings, name_maps.GOOGLE_BERT, shapes, tensor)


_SCOPES = {
    "backbone": _model_garden_resnet,
    "encoder": _model_garden_bert,
    "electra": _google_electra,
    "bert": _google_bert,
}


def _keras_resnet(path):
    if not os.path.isfile(path) or not h5py.is_hdf5(path):
        return None
    try:
        tensors = _read_keras(path)
    except OSError as error:
        raise ValueError(f"{path} is not a whole HDF5 file: {error}") from error
    shapes = {name: value.shape for name, value in tensors.items()}
    return Source(
        "Keras ResNet50 weights",
        "resnet50",
        path,
        {"variant": "keras"},
        name_maps.KERAS_RESNET,
        shapes,
        tensors.__getitem__,
    )


def _read_keras(path):
    with h5py.File(path) as file:
        layers = file.get("model_weights", file)
        if "conv1_conv" not in layers:
            raise ValueError(f"{path} holds no ResNet50 weights of keras.applications: it has no conv1_conv")
        return {
            _text(name).removesuffix(":0"): np.array(layer[name])
            for layer in layers.values()
            for name in layer.attrs.get("weight_names", ())
            if name in layer
        }


def _text(name):
    return name.decode() if isinstance(name, bytes) else name


def _prefix(path):
    """Returns the prefix of the TensorFlow checkpoint that a path names, or None."""
    if os.path.isfile(path + ".index"):
        return path
    if not os.path.isdir(path):
        return None
    latest = tf.train.latest_checkpoint(path)
    if latest:
        return latest
    found = sorted(
        name.removesuffix(".index") for name in glob.glob(os.path.join(glob.escape(path), "*.index"))
    )
    if len(found) > 1:
        raise ValueError(f"{path} holds several checkpoints, name one of them: {', '.join(found)}")
    return found[0] if found else None


def _opened(prefix):
    try:
        return tf.train.load_checkpoint(prefix)
    except (tf.errors.OpError, RuntimeError, ValueError) as error:
        raise ValueError(f"{prefix} is not a whole TensorFlow checkpoint: {error}") from error


def _safetensors(path):
    """Returns the shapes of a file's tensors by name, and a function from a name to its values."""
    try:
        file = safetensors.safe_open(path, framework="numpy")
    except safetensors.SafetensorError as error:
        raise ValueError(f"{path} is not a whole safetensors file: {error}") from error
    parts = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 (not a dict)

    def tensor(name):
        dtype = parts[name].get_dtype()
        if dtype not in ("F16", "F32", "F64"):
            raise ValueError(f"{path} holds {name} as {dtype}, which is not read: save it in float32")
        return file.get_tensor(name)

    return {name: tuple(part.get_shape()) for name, part in parts.items()}, tensor


_SIZES = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "inner_size": "intermediate_size",
    "max_positions": "max_position_embeddings",
    "num_types": "type_vocab_size",
}


def _published_sizes(path, published):
    """Returns the arguments of a text encoder that BERT's or ELECTRA's config file states."""
    sizes = {ours: published.get(theirs) for ours, theirs in _SIZES.items()}
    if published.get("model_type") == "electra":
        sizes["embedding_size"] = published.get("embedding_size")
    for ours, size in sizes.items():
        if not isinstance(size, int) or size < 1:
            raise ValueError(f"{path} has no positive whole number {_SIZES.get(ours, ours)}")
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
    return {**sizes, "activation": published["hidden_act"]}


def _sizes_in(prefix, name_map, shapes):
    """Returns the arguments of a text encoder as the shapes of its tensors show them.

    ELECTRA's code derives the heads from the width, 64 to a head; the Model Garden's tensors show them.
    Both activate by the tanh approximation of GELU.
    """

    def shape(name, *ranks):
        source = name_map.source(name)
        if source not in shapes:
            raise ValueError(f"{prefix} does not fit a text encoder: {source} is missing")
        if len(shapes[source]) not in ranks:
            raise ValueError(f"{prefix} does not fit a text encoder: {source} has shape {shapes[source]}")
        return shapes[source]

    first = "transformer/layer_0/"
    vocab_size, embedding_size = shape("word_embeddings/embeddings", 2)
    hidden_size, inner_size = shape(first + "intermediate/kernel", 2)
    query = shape(first + "self_attention/query/kernel", 2, 3)
    layers = 0
    while name_map.source(f"transformer/layer_{layers}/intermediate/kernel") in shapes:
        layers += 1
    return {
        "vocab_size": int(vocab_size),
        "hidden_size": int(hidden_size),
        "embedding_size": int(embedding_size),
        "num_layers": layers,
        "num_heads": int(query[1]) if len(query) == 3 else max(1, int(hidden_size) // 64),
        "inner_size": int(inner_size),
        "max_positions": int(shape("position_embedding/embeddings", 2)[0]),
        "num_types": int(shape("type_embeddings/embeddings", 2)[0]),
        "activation": "gelu_new",
    }


def _by_attributes(shapes):
    """Returns the names of a Model Garden encoder's tensors by attributes -> as they stand.

    The Model Garden has saved its encoder as a layer, whose tensors go by attributes, and as a
    functional model, whose tensors go by the places of its layers.
    """
    place = re.compile(r"encoder/layer_with_weights-(\d+)/(.*)")
    rests = {}
    for name in shapes:
        match = place.fullmatch(name)
        if match:
            rests.setdefault(int(match[1]), []).append(match[2])
    if not rests:
        return {name: name for name in shapes}
    last = max(rests)
    layers = [
        "_embedding_layer",
        "_position_embedding_layer",
        "_type_embedding_layer",
        "_embedding_norm_layer",
    ]
    if not any(rest.startswith("_attention_layer") for rest in rests.get(4, ())):
        layers.append("_embedding_projection")
    layers += [f"_transformer_layers/{i}" for i in range(last - len(layers))]
    layers.append("_pooler_layer")
    return {
        place.sub(lambda match: f"encoder/{layers[int(match[1])]}/{match[2]}", name): name for name in shapes
    }


def _check_vocabulary(source):
    path = os.path.join(source.folder, "vocab.txt")
    if not os.path.isfile(path):
        raise FileNotFoundError(f"no {path}: a text encoder needs its vocabulary")
    with open(path, "rb") as file:
        words = sum(1 for _ in file)
    if words != source.settings["vocab_size"]:
        raise ValueError(
            f"{source.path} has a vocabulary of {source.settings['vocab_size']}, but {path} has {words} lines"
        )


def _read_json(path):
    if not os.path.isfile(path):
        raise FileNotFoundError(f"no {path}")
    try:
        with open(path, encoding="utf-8-sig") as file:
            published = json.load(file, object_pairs_hook=_once_each, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}:{error.lineno} is not JSON: {error.msg}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8: {error.reason}") from error
    except RecursionError as error:
        raise ValueError(f"{path} is nested too deeply") from error
    except ValueError as error:
        raise ValueError(f"{path} is not read: {error}") from error
    if not isinstance(published, dict):
        raise ValueError(f"{path} has no JSON object")
    return published


def _once_each(pairs):
    fields = dict(pairs)
    if len(fields) < len(pairs):
        [(repeated, _)] = collections.Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"it has the key {repeated[:80]!r} twice")
    return fields


def _no_number(constant):
    raise ValueError(f"it has {constant}, which is no number of JSON")


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
