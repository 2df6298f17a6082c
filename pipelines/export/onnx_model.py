"""An exported ONNX model, which needs neither TensorFlow nor its run."""

import collections
import functools
import itertools
import json
import math
import os
import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from rank4class import compat

DESCRIPTION = "model.json"
TOKENIZER = "tokenizer.json"
ENCODER, ANSWERS = "encoder.onnx", "answers.onnx"
WORDS = "words.npz"
BATCH = 16  # texts of similar lengths that are encoded at a time: more of them have more padding
_CHARACTERS = 512  # of a text, those whose runs are terms; see `models.encoders.Words`
_HAN = re.compile(
    "([\u2e80-\u2fd5\u3005\u3007\u3021-\u3029\u3038-\u303b\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufad9"
    "\U00016fe2-\U00016fe3\U00016ff0-\U00016ff1\U00020000-\U000323af])"
)
_IGNORED = re.compile(  # Unicode's property Default_Ignorable_Code_Point
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_NO_COLUMN = -1  # of a term that is not known
_SPACES = re.compile("[ \t\n\v\f\r]+")


def is_model(folder: str | os.PathLike) -> bool:
    """Whether a folder is that of an ONNX model."""
    return os.path.isfile(os.path.join(folder, DESCRIPTION))


Inputs = Sequence[str] | np.ndarray  # texts, or an array [N, ...]


class OnnxModel:
    """A model that `export --format=onnx` wrote, for ONNX Runtime.

    Attributes:
      class_names: names of the classes, by id.
      coverage: of the prediction sets, or None.
      several: whether a text may have several classes.
      columns: those of the table of the training, the arguments of `Columns`, by name.
      features: function of inputs to the inputs of the graph of the answers, by name.

    Args:
      folder: of the model.
      threads: number of threads of the encoder; 0 is one for each core.

    Raises:
      FileNotFoundError: the folder holds no such model.
    """

    def __init__(self, folder: str | os.PathLike, threads: int = 0):
        path = os.path.join(folder, DESCRIPTION)
        if not is_model(folder):
            raise FileNotFoundError(
                f"{path}: no such file. Give a folder of rank4class export --format=onnx."
            )
        with open(path, encoding="utf-8") as file:
            described = json.load(file)
        self.class_names = tuple(described["classes"])
        self.coverage: float | None = described["coverage"]
        self.several: bool = described["several"]
        self.columns: dict[str, Any] = described["columns"]
        is_of_texts = os.path.isfile(os.path.join(folder, TOKENIZER))
        # Of texts, those are small products.
        self._answers = session(os.path.join(folder, ANSWERS), 1 if is_of_texts else threads)
        self.features: TextFeatures | ArrayFeatures = (
            TextFeatures(folder, described["prefix"], threads)
            if is_of_texts
            else ArrayFeatures(self._answers)
        )

    def predict(self, inputs: Inputs, k: int = 5) -> list[dict[str, Any]]:
        """Returns the answer to each input: its `k` best "classes", "scores", "probabilities", and others.

        These are "in_set" of the best classes and "set_size", and "unknown" and "p_value", if the model has
        them.
        """
        answers = self.answers(inputs, k)
        return [
            {"classes": names} | {n: x.tolist() for n, x in outputs.items()} for names, outputs in answers
        ]

    def answers(self, inputs: Inputs, k: int | None) -> Iterator[tuple[list[str], dict[str, Any]]]:
        """Yields the `k` best classes of each input, the best first, and its outputs, those of these classes.

        None yields the classes that are decided, without "in_set".
        """
        outputs = self.outputs(inputs)
        ranking = outputs.pop("ranking")
        for i, ids in enumerate(np.argsort(-ranking, axis=1, kind="stable")):
            ids = ids[outputs["in_set"][i, ids]] if k is None else ids[:k]
            of_input = {name: x[i, ids] if x.ndim == 2 else x[i] for name, x in outputs.items()}
            if k is None:
                del of_input["in_set"]
            yield [self.class_names[j] for j in ids], of_input

    def outputs(self, inputs: Inputs) -> dict[str, np.ndarray]:
        """Returns "scores" of all classes `[N, n]`, "ranking", by which they are ranked, and the others."""
        names = [output.name for output in self._answers.get_outputs()]
        return dict(zip(names, self._answers.run(names, self.features(inputs)), strict=True))


class Spec(NamedTuple):
    """The shape and the dtype of an array; strings are objects, and None is a size that varies."""

    shape: tuple[int | None, ...]
    dtype: np.dtype

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether an array may have a shape."""
        return len(shape) == len(self.shape) and all(
            size in (None, other) for size, other in zip(self.shape, shape, strict=True)
        )


class ArrayFeatures:
    """Arrays, `[N, ...]`, as the only feature of a model.

    Args:
      session: of the answers.
    """

    def __init__(self, session: Any):
        [feature] = session.get_inputs()
        self.name = feature.name
        name = feature.type.removeprefix("tensor(").removesuffix(")")
        shape = tuple(size if isinstance(size, int) else None for size in feature.shape)
        self.spec = Spec(shape, np.dtype({"float": "float32"}.get(name, name)))

    def __call__(self, inputs: Inputs) -> dict[str, np.ndarray]:
        """Returns the feature; ValueError for other shapes, and numbers that are not finite."""
        array = np.asarray(inputs)
        shape, dtype = self.spec
        if not self.spec.fits(array.shape):
            raise ValueError(f"inputs: shape {array.shape}, but the model takes {shape}. Reshape them.")
        if array.dtype.kind not in "biuf":
            raise ValueError(f"inputs: {array.dtype}, expected {dtype}. Give numbers.")
        with np.errstate(over="ignore", invalid="ignore"):  # overflow gives infinity
            numbers = array.astype(dtype, copy=False)
        if not np.isfinite(array).all() or not np.isfinite(numbers).all():
            raise ValueError("inputs: a number is not finite. Correct it.")
        if dtype.kind != "f" and not np.array_equal(numbers, array):
            raise ValueError(f"inputs: {array.dtype}, expected the range of {dtype}. Convert the array.")
        return {self.name: numbers}


class TextFeatures:
    """The vectors of texts, and the scores of their words if the model has any.

    Attributes:
      num_cut: number of texts so far that were cut at `limit` tokens.
    """

    def __init__(self, folder: str | os.PathLike, prefix: str, threads: int):
        self._prefix = prefix
        tokenizers = compat.import_extra("tokenizers", "onnx")
        self._tokenizer = tokenizers.Tokenizer.from_file(os.path.join(folder, TOKENIZER))
        self.limit: int = self._tokenizer.truncation["max_length"]
        self.num_cut = 0
        self._encoder = session(os.path.join(folder, ENCODER), threads)
        path = os.path.join(folder, WORDS)
        self._words = Words(**np.load(path)) if os.path.isfile(path) else None

    def __call__(self, texts: Inputs) -> dict[str, np.ndarray]:
        """Returns "embedding", the vectors of texts `[N, d]`, and "words", the scores of words `[N, n]`."""
        features = {"embedding": self.encode(texts)}
        if self._words is not None:
            features["words"] = np.stack([self._words(text) for text in texts])
        return features

    def encode(self, texts: Inputs) -> np.ndarray:
        """Returns the vectors of texts, float32 `[N, d]`, encoded in batches of similar lengths."""
        if isinstance(texts, str) or not len(texts):
            raise ValueError(f"texts={texts[:80]!r}: no list with a text. Give a list of texts.")
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        used = {each.name for each in self._encoder.get_inputs()}
        parts = []
        for first in range(0, len(order), BATCH):
            encodings = self._tokenizer.encode_batch(
                [self._prefix + texts[i] for i in order[first : first + BATCH]]
            )
            self.num_cut += sum(bool(each.overflowing) for each in encodings)
            ids = {"input_word_ids": "ids", "input_mask": "attention_mask", "input_type_ids": "type_ids"}
            feeds = {
                name: np.array([getattr(each, attribute) for each in encodings], np.int32)
                for name, attribute in ids.items()
            }
            parts.append(self._encoder.run(None, {name: feeds[name] for name in used})[0])
        vectors = np.concatenate(parts)
        return vectors[np.argsort(order)]


def session(path: str, threads: int = 0) -> Any:
    """Returns a session of ONNX Runtime on CPUs."""
    runtime = compat.import_extra("onnxruntime", "onnx")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    # Waiting threads would take the time of the other session, and of the words.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # The fused operator is several times as slow as its parts.
    fusions = ["SkipLayerNormFusion"]
    return runtime.InferenceSession(
        path, options, providers=["CPUExecutionProvider"], disabled_optimizers=fusions
    )


class Words:
    """Scores of the words of a text: those of `models.encoders.Words` and `models.AddedScores`, by NumPy.

    Args:
      hashes, idf: of the `d` terms, see `models.encoders.Words`.
      kernel, bias: of the scores, `[d, n]` and `[n]`.
    """

    def __init__(self, hashes: np.ndarray, idf: np.ndarray, kernel: np.ndarray, bias: np.ndarray):
        columns = {value: i for i, value in enumerate(hashes.tolist())}
        self._idf, self._kernel, self._bias = idf, kernel, bias
        fingerprint = compat.import_extra("farmhash", "onnx").fingerprint64

        @functools.lru_cache(1 << 18)
        def column(term: str, kind: int) -> int:
            return columns.get(2 * (fingerprint(term) % 2**62) + kind, _NO_COLUMN)

        self._column = column

    def __call__(self, text: str) -> np.ndarray:
        """Returns float32 `[n]`."""
        scores = self._bias.copy()
        for kind, terms in enumerate(_terms(text)):
            counts = collections.Counter(map(self._column, terms, itertools.repeat(kind)))
            counts.pop(_NO_COLUMN, None)
            if counts:
                columns = [*counts]
                values = (1.0 + np.log([*counts.values()])) * self._idf[columns]
                scores += np.float32(values @ self._kernel[columns] / math.sqrt(values @ values))
        return scores


def _terms(text: str) -> tuple[list[str], list[str]]:
    """Returns the words and pairs of words of a text, and its runs of two to four characters.

    The text is in Unicode's form NFKC_Casefold.
    """
    folded = unicodedata.normalize("NFKC", _IGNORED.sub("", text)).casefold()
    folded = unicodedata.normalize("NFKC", folded)
    spaced = _HAN.sub(r" \1 ", folded)
    words = "".join(c if c == "_" or unicodedata.category(c)[0] in "LMN" else " " for c in spaced).split(" ")
    words = [word for word in words if word]
    pairs = [" ".join(pair) for pair in itertools.pairwise(words)]
    runs = (f" {run} " for run in _SPACES.split(folded[:_CHARACTERS]) if run)
    characters = [run[i : i + size] for run in runs for size in (2, 3, 4) for i in range(len(run) - size + 1)]
    return words + pairs, characters
