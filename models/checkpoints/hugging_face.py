"""A text encoder as the files of Hugging Face's layout, which `formats.find` reads again."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from rank4class import compat
from rank4class.models.checkpoints.formats import CONFIG_FIELDS, HUGGING_FACE_NAMES, TENSORS_FILE


def hugging_face_files(
    encoder: Any, vocabulary: Sequence[str], *, lower_case: bool, max_length: int
) -> dict[str, bytes]:
    """Returns the files from which `AutoModel` and `AutoTokenizer` of transformers load a text encoder.

    `config.json` has the field `pooling` of the encoder, by which `encoders.bert` and `encoders.electra` pool
    it again. Transformers ignores the field: `pooler_output` is the pooling "pooler", the first vector of
    `last_hidden_state` is "cls", and their mean over `attention_mask` is "mean".

    Args:
      encoder: an `encoders.Bert` or `encoders.Electra`.
      vocabulary: the word pieces by id.
      lower_case: whether the tokenizer lower-cases texts.
      max_length: number of tokens to which texts are cut.

    Returns:
      Name of the file -> content.
    """
    network = encoder.config
    config = {
        "architectures": [f"{encoder.NAME.capitalize()}Model"],
        "model_type": encoder.NAME,
        **{field: network[ours] for ours, field in CONFIG_FIELDS.items()},
        "hidden_dropout_prob": network["dropout"],
        "attention_probs_dropout_prob": network["dropout"],
        "layer_norm_eps": 1e-12,
        "pad_token_id": vocabulary.index("[PAD]"),
        "pooling": encoder.pooling,
    }
    if encoder.NAME == "electra":
        config["embedding_size"] = network["embedding_size"]
    tokenizer = {"do_lower_case": lower_case, "model_max_length": max_length}
    # Transformers asks for the framework that wrote the tensors, of those that it knows.
    safetensors = compat.import_extra("safetensors.numpy", "models")
    tensors = safetensors.save(_tensors(encoder), metadata={"format": "pt"})
    return {
        TENSORS_FILE: tensors,
        "config.json": json.dumps(config, indent=2).encode(),
        "vocab.txt": "".join(f"{piece}\n" for piece in vocabulary).encode(),
        "tokenizer_config.json": json.dumps(tokenizer, indent=2).encode(),
    }


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
        tensors[HUGGING_FACE_NAMES.source(name)] = np.ascontiguousarray(value)
    return tensors
