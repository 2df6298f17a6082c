"""Text to BERT's inputs, in the graph."""

import os
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tensorflow_text as tf_text

from rank4class import arguments, strict_json
from rank4class.data.readers import rows

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
# Numbers of tokens that batches are padded to: few, for XLA compiles a program for each, and close enough
# that at most a fifth of a text beyond 12 tokens is padding.
PADDED_LENGTHS = (*range(8, 32, 4), *(n * 2**i for i in range(4) for n in (32, 40, 48, 56)))


class WordPiece(tf.Module):
    """BERT's tokenizer as a function on batches of strings.

    A call on features with `text` `[B]` returns `input_word_ids`, `input_mask` and `input_type_ids`, int32
    `[B, length]`: [CLS], the first `max_length - 2` word pieces, [SEP], and padding. With `text_pair`
    `[B]`: [CLS], the text, [SEP], its pair, [SEP]. The longer of the two is cut first, the type of the pair
    and of its [SEP] is 1, and an empty pair is omitted.

    `length` is the smallest of `PADDED_LENGTHS` and `max_length` that holds the longest text of the batch.

    Texts never yield special tokens: a literal `[CLS]` becomes the pieces of "[", its letters and "]", as in
    google-research's tokenizer; Hugging Face's yields the token. Punctuation follows TensorFlow's Unicode 15.

    Args:
      vocab: the word pieces by id.
      max_length: at least 3, for pairs at least 5.
      lower_case: whether texts are lower-cased and lose their accents.
      static_length: whether `length` is `max_length` for every batch, as TPUs need it.

    Raises:
      ValueError: `max_length` is too small (for pairs, the call raises).
    """

    def __init__(
        self, vocab: Sequence[str], max_length: int, lower_case: bool = True, *, static_length: bool = False
    ):
        super().__init__()
        arguments.check_at_least(3, section="data.", max_length=max_length)
        self._padding, _, self._start, self._end = map(vocab.index, SPECIAL_TOKENS)
        self._vocab, self._max_length, self._lower_case = tuple(vocab), max_length, lower_case
        shorter = () if static_length else (length for length in PADDED_LENGTHS if length < max_length)
        self._lengths = (*shorter, max_length)
        ids = tf.lookup.KeyValueTensorInitializer(vocab, tf.range(len(vocab), dtype=tf.int64))
        self._tokenizer = tf_text.WordpieceTokenizer(
            tf.lookup.StaticVocabularyTable(ids, num_oov_buckets=1),
            token_out_type=tf.int32,
            max_bytes_per_word=4 * _LONGEST_WORD,
        )
        # One trace for the graphs of all pipelines.
        self._inputs = tf.function(self._traced, autograph=False)

    @property
    def settings(self) -> dict[str, Any]:
        """All that determines the tokens, as JSON holds it."""
        return {
            "vocab": list(self._vocab),
            "lower_case": self._lower_case,
            "max_length": self._max_length,
            "words": [_SINGLE_CHARACTER_WORD, _LONGEST_WORD],
        }

    @classmethod
    def from_settings(cls, settings: dict[str, Any]) -> "WordPiece":
        """Returns the tokenizer of some `settings`."""
        return cls(settings["vocab"], settings["max_length"], settings["lower_case"])

    @classmethod
    def from_folder(cls, folder: str, max_length: int) -> "WordPiece":
        """Returns the tokenizer of an encoder.

        Args:
          folder: the encoder's folder, with `vocab.txt`, or the `tokenizer.json` that Transformers 5 saves in
            its place. Lower-casing follows `tokenizer_config.json`, or `tokenizer.json` if that does not
            state it. Without `tokenizer_config.json` it applies to vocabularies without capital letters.
          max_length: see the class.

        Raises:
          FileNotFoundError: neither of the two files.
          ValueError: the vocabulary lacks a special token, or `tokenizer_config.json` describes another
            tokenizer.
        """
        path, vocab = _vocabulary(folder)
        for token in SPECIAL_TOKENS:
            if token not in vocab:
                raise ValueError(f"{path}: no {token}. Give the vocabulary of a BERT encoder.")
        return cls(vocab, max_length, _lower_case(folder, vocab))

    def with_static_length(self) -> "WordPiece":
        """Returns the tokenizer that pads every batch to `max_length`."""
        return WordPiece(self._vocab, self._max_length, self._lower_case, static_length=True)

    def __call__(self, features: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return self._inputs(features)

    def _traced(self, features):
        segments = tf_text.RoundRobinTrimmer(self._max_length - 1).trim(self._segments(features))
        ends = tf.fill([segments[0].nrows(), 1], self._end)
        tokens = tf.concat([*segments, ends], axis=1)
        length = self._padded(tf.reduce_max(tokens.row_lengths()))
        mask = tf.sequence_mask(tokens.row_lengths(), length, tf.int32)
        in_pair = tf.range(length) > segments[0].row_lengths()[:, None]
        outputs = {
            "input_word_ids": tokens.to_tensor(self._padding, shape=tf.stack([tokens.nrows(), length])),
            "input_mask": mask,
            "input_type_ids": mask * tf.cast(in_pair, tf.int32),
        }
        static_length = self._max_length if len(self._lengths) == 1 else None
        shape = [features["text"].shape[0], static_length]  # static for XLA
        return {name: tf.ensure_shape(tokens, shape) for name, tokens in outputs.items()}

    def lengths(self, features: dict[str, tf.Tensor]) -> tf.Tensor:
        """Returns the numbers of tokens before cutting, with [CLS] and [SEP]: int64 `[B]`."""
        return sum(segment.row_lengths() for segment in self._segments(features)) + 1

    def padded_lengths(self, features: dict[str, tf.Tensor]) -> tf.Tensor:
        """Returns the `length` that each example needs, int64 `[B]`."""
        return self._padded(tf.minimum(self.lengths(features), self._max_length))

    def _padded(self, lengths):
        sizes = tf.constant(self._lengths, tf.int64)
        indices = tf.searchsorted(sizes, tf.reshape(lengths, [-1]))
        return tf.reshape(tf.gather(sizes, indices), tf.shape(lengths))

    def _segments(self, features):
        """Returns the ragged tokens of the text, and of its pair if any, without the last [SEP]."""
        text = self._pieces(features["text"])
        segments = [tf.concat([tf.fill([text.nrows(), 1], self._start), text], axis=1)]
        if "text_pair" in features:
            arguments.check_at_least(5, section="data.", max_length=self._max_length)
            # Counting the first [SEP] to the pair omits empty pairs and cuts the others as BERT does.
            pair = self._pieces(features["text_pair"])
            segments.append(tf.concat([self._end * tf.ones_like(pair[:, :1]), pair], axis=1))
        return segments

    def _pieces(self, texts):
        return self._tokenizer.tokenize(_words(texts, self._lower_case)).merge_dims(1, 2)


_LONGEST_WORD = 100  # characters; a longer one is unknown
_IDEOGRAPHS = (
    r"\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2B73F}\x{2B740}-\x{2B81F}"
    r"\x{2B820}-\x{2CEAF}\x{F900}-\x{FAFF}\x{2F800}-\x{2FA1F}"
)
_SINGLE_CHARACTER_WORD = rf"[!-/:-@\[-`{{-~\p{{P}}{_IDEOGRAPHS}]"


def _words(texts, lower_case):
    """Splits texts into words as BERT's reference does, ragged `[B, words]`.

    tensorflow-text's BertTokenizer differs in compatibility and control characters and in spaces.
    """
    texts = tf.strings.regex_replace(texts, r"[\t\n\r\p{Z}]", " ")
    texts = tf.strings.regex_replace(texts, r"[\p{C}\x{FFFD}]", "")
    if lower_case:
        # Without it, the locale of the process decides: in Turkish, the small letter of I is another one.
        texts = tf.strings.regex_replace(texts, "I", "i")
        texts = tf_text.normalize_utf8(tf.strings.lower(texts, encoding="utf-8"), "NFD")
        texts = tf.strings.regex_replace(texts, r"\p{Mn}", "")
    words = tf_text.regex_split(texts, f" |{_SINGLE_CHARACTER_WORD}", _SINGLE_CHARACTER_WORD)
    too_long = tf.strings.length(words.flat_values, unit="UTF8_CHAR") > _LONGEST_WORD
    return words.with_flat_values(tf.where(too_long, "\N{REPLACEMENT CHARACTER}", words.flat_values))


def _vocabulary(folder):
    """Returns the path of the word pieces of a folder, and the pieces by id."""
    path, newer = (os.path.join(folder, name) for name in ("vocab.txt", "tokenizer.json"))
    if os.path.isfile(path):
        return path, [line for _, line in rows.lines(path)]
    if not os.path.isfile(newer):
        raise FileNotFoundError(f"{path}: no such file, which a text encoder needs. Add the published one.")
    model = strict_json.read_object(newer).get("model", {})
    if model.get("type") != "WordPiece":
        raise ValueError(f"{newer}: not of word pieces. Give the folder of a BERT encoder.")
    return newer, sorted(model["vocab"], key=model["vocab"].get)


# Name in `tokenizer_config.json` -> name in the normalizer of `tokenizer.json`.
_OF_NORMALIZER = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}


def _lower_case(folder, vocab):
    path = os.path.join(folder, "tokenizer_config.json")
    if not os.path.isfile(path):
        words = (word for word in vocab if not word.startswith("["))  # special tokens are always capitals
        return not any(word != word.lower() for word in words)
    settings, newer = strict_json.read_object(path), os.path.join(folder, "tokenizer.json")
    if "do_lower_case" not in settings and os.path.isfile(newer):  # of PreTrainedTokenizerFast
        normalizer = strict_json.read_object(newer).get("normalizer") or {}
        settings |= {name: normalizer.get(there) for name, there in _OF_NORMALIZER.items()}
    lower_case = settings.get("do_lower_case", True)
    _check_same_words(path, settings, lower_case)
    return lower_case


def _check_same_words(path, settings, lower_case):
    """Raises ValueError for settings of Hugging Face's tokenizers that give words other than `_words`."""
    supported = {
        "do_lower_case": (True, False),
        "strip_accents": (None, lower_case),
        "tokenize_chinese_chars": (True,),
        "do_basic_tokenize": (True,),
        "word_tokenizer_type": ("basic",),
        "subword_tokenizer_type": ("wordpiece",),
    }
    for name, values in supported.items():
        value = settings.get(name, values[0])
        if value not in values:
            raise ValueError(
                f"{path}: {name} {value!r} is not supported, only {values[-1]!r}. Choose another encoder."
            )
