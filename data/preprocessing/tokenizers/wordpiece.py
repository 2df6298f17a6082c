"""BERT's tokenizer, of word pieces."""

import os
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tensorflow_text as tf_text

from rank4class import strict_json
from rank4class.data.preprocessing.tokenizers import base
from rank4class.data.readers import rows

_SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
_OF_MPNET = ("<pad>", "[UNK]", "<s>", "</s>")
_OF_STATIC = ("[PAD]", "[UNK]", "[UNK]", "[UNK]")
_LONGEST_WORD = 100  # characters; a longer one is unknown
_IDEOGRAPHS = (
    r"\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2B73F}\x{2B740}-\x{2B81F}"
    r"\x{2B820}-\x{2CEAF}\x{F900}-\x{FAFF}\x{2F800}-\x{2FA1F}"
)
_SINGLE_CHARACTER_WORD = rf"[!-/:-@\[-`{{-~\p{{P}}{_IDEOGRAPHS}]"


@base.TOKENIZERS.register("WordPiece")
class WordPiece(base.Tokenizer):
    """BERT's tokenizer, with [CLS] at the start and [SEP] at the end; see `Tokenizer`.

    That of MPNet, whose vocabulary begins with <s>, has <s> and </s> in their places, and two separators. A
    vocabulary of static vectors has neither; [UNK], which they leave out, is there in their places.

    Texts never yield special tokens: a literal `[CLS]` becomes the pieces of "[", its letters and "]", as in
    google-research's tokenizer; Hugging Face's yields the token. Punctuation follows TensorFlow's Unicode 15.

    Args:
      vocab: the word pieces by id.
      max_length, static_length: see `Tokenizer`.
      lower_case: whether texts are lower-cased and lose their accents.
      words: pattern of the words of one character, and length of the longest that is known;
        None is those of BERT.
    """

    def __init__(
        self,
        vocab: Sequence[str],
        max_length: int,
        lower_case: bool = True,
        words: Sequence[Any] | None = None,
        *,
        static_length: bool = False,
    ):
        padding, _, start, end = map(vocab.index, _special_tokens(vocab))
        words = words or [_SINGLE_CHARACTER_WORD, _LONGEST_WORD]
        settings = {"vocab": vocab, "lower_case": lower_case, "max_length": max_length, "words": words}
        special = base.SpecialTokens(padding, start, end, two_separators=vocab[start] == "<s>")
        super().__init__(settings, special, len(vocab), static_length)
        self._lower_case, (self._single, self._longest) = lower_case, words
        ids = tf.lookup.KeyValueTensorInitializer(vocab, tf.range(len(vocab), dtype=tf.int64))
        self._tokenizer = tf_text.WordpieceTokenizer(
            tf.lookup.StaticVocabularyTable(ids, num_oov_buckets=1),
            token_out_type=tf.int32,
            max_bytes_per_word=4 * self._longest,
        )

    @property
    def assets(self) -> dict[str, bytes]:
        vocab = "".join(f"{piece}\n" for piece in self.settings["vocab"]).encode()
        return {"vocab.txt": vocab, **self._config_file(do_lower_case=self._lower_case)}

    @classmethod
    def from_folder(cls, folder: str, max_length: int) -> "WordPiece":
        """Returns the tokenizer of an encoder.

        Args:
          folder: the encoder's folder, with `vocab.txt`, or the `tokenizer.json` that Transformers 5 saves in
            its place. Lower-casing follows `tokenizer_config.json`, or `tokenizer.json` if that does not
            state it. Without `tokenizer_config.json` it applies to vocabularies without capital letters.
          max_length: see `Tokenizer`.

        Raises:
          FileNotFoundError: neither of the two files.
          ValueError: the vocabulary lacks a special token, or `tokenizer_config.json` describes another
            tokenizer.
        """
        path, vocab = _vocabulary(folder)
        for token in _special_tokens(vocab):
            if token not in vocab:
                raise ValueError(f"{path}: no {token}. Give the vocabulary of a BERT encoder.")
        return cls(vocab, max_length, _lower_case(folder, vocab))

    def pieces(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Splits texts into words as BERT's reference does, and these into pieces.

        tensorflow-text's BertTokenizer differs in compatibility and control characters and in spaces.
        """
        texts = tf.strings.regex_replace(texts, r"[\t\n\r\p{Z}]", " ")
        texts = tf.strings.regex_replace(texts, r"[\p{C}\x{FFFD}]", "")
        if self._lower_case:
            texts = base.without_accents(base.lower(texts), "NFD")
        words = tf_text.regex_split(texts, f" |{self._single}", self._single)
        too_long = tf.strings.length(words.flat_values, unit="UTF8_CHAR") > self._longest
        known = tf.where(too_long, "\N{REPLACEMENT CHARACTER}", words.flat_values)
        return self._tokenizer.tokenize(words.with_flat_values(known)).merge_dims(1, 2)


def _special_tokens(vocab):
    if "<s>" in vocab[:1]:
        return _OF_MPNET
    return _SPECIAL_TOKENS if {"[CLS]", "[SEP]"} & set(vocab) else _OF_STATIC


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
    config = base.read_config(folder)
    newer = os.path.join(folder, "tokenizer.json")
    if config is None:
        words = (word for word in vocab if not word.startswith("["))  # special tokens are always capitals
        return not any(word != word.lower() for word in words)
    if "do_lower_case" not in config and os.path.isfile(newer):  # of PreTrainedTokenizerFast
        normalizer = strict_json.read_object(newer).get("normalizer") or {}
        config |= {name: normalizer.get(there) for name, there in _OF_NORMALIZER.items()}
    lower_case = config.get("do_lower_case", True)
    # Other settings give other words.
    supported = {
        "do_lower_case": (True, False),
        "strip_accents": (None, lower_case),
        "tokenize_chinese_chars": (True,),
        "do_basic_tokenize": (True,),
        "word_tokenizer_type": ("basic",),
        "subword_tokenizer_type": ("wordpiece",),
    }
    base.check_supported(folder, config, supported)
    return lower_case
