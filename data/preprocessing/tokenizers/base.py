"""The registry of tokenizers, and their base class, which surrounds pieces by special tokens."""

import json
import os
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_text as tf_text

from rank4class import arguments, strict_json
from rank4class.registry import Registry

# By the name that a checkpoint states, and that the files of a run have.
TOKENIZERS = Registry("tokenizer")
# Numbers of tokens that batches are padded to: few, for XLA compiles a program for each, and close enough
# that at most a fifth of a text beyond 12 tokens is padding.
PADDED_LENGTHS = (*range(8, 32, 4), *(n * 2**i for i in range(4) for n in (32, 40, 48, 56)))

CONFIG_FILE = "tokenizer_config.json"
_ADDED = {"prefix": "", "windows": 1}  # attributes that are settings too


class SpecialTokens(NamedTuple):
    """Ids of the tokens around the pieces of a text."""

    padding: int
    start: int
    end: int
    # Whether two ends separate a text from its pair, whose type is 0, as in RoBERTa.
    two_separators: bool = False


class Tokenizer(tf.Module):
    """The tokenizer of a text encoder, as a function on batches of strings; the base class of all.

    A call on features with `text` `[B]` returns `input_word_ids`, `input_mask` and `input_type_ids`, int32
    `[B, length]`: the start, the first `max_length - 2` pieces, the end, and padding. With `text_pair`
    `[B]`: the start, the text, the end, its pair, the end. The longer of the two is cut first, the type of
    the pair and of its end is 1, and an empty pair is omitted. Other features stay as they are.

    `length` is the smallest of `PADDED_LENGTHS` and `max_length` that holds the longest text of the batch.

    With several `windows` the outputs are `[B, windows, length]`: a text is cut into windows of `max_length`
    tokens, of which each shares a quarter with the one before. The mask is 0 in those that it does not need.

    A subclass is registered in `TOKENIZERS` under its name. The arguments of its constructor are its
    `settings`, and it has `assets`, `from_folder` and `pieces`.

    Attributes:
      size: number of ids, as many as the encoder has vectors of tokens.
      special: the special tokens.
      prefix: text before each text, not before its pair, such as the "query: " of E5.
      windows: the largest number of windows of a text.

    Args:
      settings: all that determines the tokens, as JSON holds it, with `max_length`: at least 3, for pairs at
        least 5, or 6 with two separators.
      special, size: see above.
      static_length: whether `length` is `max_length` for every batch, as TPUs need it.

    Raises:
      ValueError: `max_length` is too small (for pairs, the call raises).
    """

    def __init__(self, settings: dict[str, Any], special: SpecialTokens, size: int, static_length: bool):
        super().__init__()
        self._settings = json.dumps(settings)
        self.prefix = ""
        self.windows = 1
        self._max_length = settings["max_length"]
        arguments.check_at_least(3, section="data.", max_length=self._max_length)
        self.special = special
        self.size = size
        shorter = () if static_length else (length for length in PADDED_LENGTHS if length < self._max_length)
        self._lengths = (*shorter, self._max_length)
        # One trace for the graphs of all pipelines.
        self._inputs = tf.function(self._traced, autograph=False)

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments, and prefix and windows if any, from which `from_settings` returns the tokenizer."""
        changed = {name: getattr(self, name) for name, default in _ADDED.items()}
        changed = {name: value for name, value in changed.items() if value != _ADDED[name]}
        return {**json.loads(self._settings), **changed}

    @classmethod
    def from_settings(cls, settings: dict[str, Any], static_length: bool = False) -> "Tokenizer":
        """Returns the tokenizer of some `settings`."""
        of_class = {name: value for name, value in settings.items() if name not in _ADDED}
        tokenizer = cls(**of_class, static_length=static_length)
        for name, default in _ADDED.items():
            setattr(tokenizer, name, settings.get(name, default))
        return tokenizer

    @classmethod
    def from_folder(cls, folder: str, max_length: int) -> "Tokenizer":  # type: ignore[empty-body]
        """Returns the tokenizer of an encoder from its published files.

        Raises:
          FileNotFoundError: a file is missing.
          ValueError: the files describe another tokenizer.
        """

    @property
    def assets(self) -> dict[str, bytes]:  # type: ignore[empty-body]
        """The files, by name, from which `from_folder` and transformers read the tokenizer."""

    def _config_file(self, **config: Any) -> dict[str, bytes]:
        config["model_max_length"] = self._max_length
        return {CONFIG_FILE: json.dumps(config, indent=2).encode()}

    def pieces(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of the pieces of texts `[B]`, ragged int32 `[B, pieces]`."""

    def with_static_length(self) -> "Tokenizer":
        """Returns the tokenizer that pads every batch to `max_length`."""
        return self.from_settings(self.settings, static_length=True)

    def __call__(self, features: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        texts = {name: features[name] for name in ("text", "text_pair") if name in features}
        others = {name: each for name, each in features.items() if name not in texts}
        return {**self._inputs(texts), **others}

    def _traced(self, features):
        two_separators = self.special.two_separators
        counts = None
        if self.windows > 1:
            first, counts = self._cut(features)
            pair = []
        else:
            trimmer = tf_text.RoundRobinTrimmer(self._max_length - 1 + two_separators)
            first, *pair = trimmer.trim(self._segments(features))
            if two_separators:
                first = first[:, 1:]
        tokens = tf.concat([first, *pair, tf.fill([first.nrows(), 1], self.special.end)], axis=1)
        length = self._padded(tf.reduce_max(tokens.row_lengths()))
        mask = tf.sequence_mask(tokens.row_lengths(), length, tf.int32)
        in_pair = tf.range(length) > first.row_lengths()[:, None]
        outputs = {
            "input_word_ids": tokens.to_tensor(
                self.special.padding, shape=tf.stack([tokens.nrows(), length])
            ),
            "input_mask": mask,
            "input_type_ids": tf.zeros_like(mask) if two_separators else mask * tf.cast(in_pair, tf.int32),
        }
        is_static = len(self._lengths) == 1
        shape = [features["text"].shape[0], self._max_length if is_static else None]  # static for XLA
        if counts is not None:
            most = self.windows if is_static else None
            outputs = {
                name: tf.RaggedTensor.from_row_lengths(tokens, counts).to_tensor(shape=[None, most, None])
                for name, tokens in outputs.items()
            }
            shape.insert(1, most)
        return {name: tf.ensure_shape(tokens, shape) for name, tokens in outputs.items()}

    @property
    def most_tokens(self) -> int:
        """Number of tokens of a text that are read, with special ones; the others are cut."""
        return self._max_length + (self.windows - 1) * self._stride

    @property
    def _stride(self):
        size = self._max_length - 2
        return size - size // 4

    def _num_windows(self, lengths):
        """Returns the number of windows of texts with a number of tokens, int64 `[B]`."""
        rest = tf.maximum(lengths - self._max_length, 0)
        return tf.minimum(1 + (rest + self._stride - 1) // self._stride, self.windows)

    def _cut(self, features):
        """Returns the tokens of the windows of all texts, ragged, without the end, and each text's number."""
        if "text_pair" in features:
            raise ValueError(f"data.windows={self.windows}: a pair of texts has no windows. Set it to 1.")
        size = self._max_length - 2
        pieces = self.pieces(tf.strings.join([self.prefix, features["text"]]))
        lengths = pieces.row_lengths()
        counts = self._num_windows(lengths + 2)
        texts = tf.repeat(tf.range(pieces.nrows()), counts)
        start, length = (tf.gather(values, texts) for values in (pieces.row_starts(), lengths))
        first = self._stride * tf.ragged.range(counts).flat_values
        first = start + tf.minimum(first, tf.maximum(length - size, 0))
        windows = tf.ragged.range(first, tf.minimum(first + size, start + length))
        windows = tf.gather(pieces.flat_values, windows)
        return tf.concat([tf.fill([windows.nrows(), 1], self.special.start), windows], axis=1), counts

    def lengths(self, features: dict[str, tf.Tensor]) -> tf.Tensor:
        """Returns the numbers of tokens before cutting, with the special ones: int64 `[B]`."""
        ends = 1 - self.special.two_separators
        return sum(segment.row_lengths() for segment in self._segments(features)) + ends

    def padded_lengths(self, features: dict[str, tf.Tensor]) -> tf.Tensor:
        """Returns the `length` that each example needs, of all its windows together, int64 `[B]`."""
        lengths = self.lengths(features)
        return self._num_windows(lengths) * self._padded(tf.minimum(lengths, self._max_length))

    def _padded(self, lengths):
        sizes = tf.constant(self._lengths, tf.int64)
        return tf.reduce_min(tf.where(sizes >= lengths[..., None], sizes, self._max_length), axis=-1)

    def _segments(self, features):
        """Returns the ragged tokens of the text, and of its pair if any, without the last end.

        With two separators the text has two starts, so that the longer of the two has more pieces.
        """
        text = self.pieces(tf.strings.join([self.prefix, features["text"]]))
        count = 1 + self.special.two_separators
        segments = [tf.concat([tf.fill([text.nrows(), count], self.special.start), text], axis=1)]
        if "text_pair" in features:
            arguments.check_at_least(4 + count, section="data.", max_length=self._max_length)
            # Counting the separators to the pair omits empty pairs and cuts the others as BERT does.
            pair = self.pieces(features["text_pair"])
            separators = [self.special.end * tf.ones_like(pair[:, :1])] * count
            segments.append(tf.concat([*separators, pair], axis=1))
        return segments


def lower(texts: tf.Tensor) -> tf.Tensor:
    """Returns texts in small letters, in any locale."""
    # Without it, the locale of the process decides: in Turkish, the small letter of I is another one.
    return tf.strings.lower(tf.strings.regex_replace(texts, "I", "i"), encoding="utf-8")


def without_accents(texts: tf.Tensor, form: str) -> tf.Tensor:
    """Returns texts in a decomposed normal form of Unicode, "NFD" or "NFKD", without their accents."""
    return tf.strings.regex_replace(tf_text.normalize_utf8(texts, form), r"\p{Mn}", "")


def read_config(folder: str) -> dict[str, Any] | None:
    """Returns the content of `tokenizer_config.json` in a folder; None if there is no such file."""
    path = os.path.join(folder, CONFIG_FILE)
    return strict_json.read_object(path) if os.path.isfile(path) else None


def check_supported(folder: str, config: dict[str, Any], supported: dict[str, tuple]) -> None:
    """Raises ValueError for a setting of `tokenizer_config.json` that has none of its supported values.

    The first of the values is the default, the message names the last.
    """
    for name, values in supported.items():
        value = config.get(name, values[0])
        if value not in values:
            raise ValueError(
                f"{os.path.join(folder, CONFIG_FILE)}: {name} {value!r} is not supported, only "
                f"{values[-1]!r}. Choose another encoder."
            )
