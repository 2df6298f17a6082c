"""Text to BERT's inputs, in the graph."""

import os

import tensorflow as tf
import tensorflow_text as tf_text

from rank4class.data import sources


class WordPiece:
    """BERT's tokenizer as a function on batches of strings.

    Called on features with `text` `[B]` it returns `input_word_ids`, `input_mask` and
    `input_type_ids`, int32 `[B, max_length]`: [CLS], the first `max_length - 2` word pieces, [SEP],
    and padding. With `text_pair` `[B]` beside it: [CLS], the text, [SEP], its pair, [SEP]. The longer
    of the two is cut first, the type of the pair and of its [SEP] is 1, and an empty pair is left out.

    No text makes a special token. A literal `[CLS]`, `[SEP]`, `[PAD]`, `[UNK]` or `[MASK]` becomes the pieces
    of "[", its letters and "]", as in google-research's tokenizer; those of Hugging Face read the token.
    Punctuation is that of Unicode 15, as TensorFlow has it. It includes U+061D, a mark of Unicode 14; older
    tables, such as those of Hugging Face's `tokenizers`, make it part of a word.

    `settings` holds all that its output depends on.

    Args:
      folder: the encoder's, with `vocab.txt`; lower-casing follows its `tokenizer_config.json`
        where there is one, and otherwise is on for a vocabulary without capital letters.
      max_length: at least 3, for pairs at least 5.

    Raises:
      FileNotFoundError: no `vocab.txt`.
      ValueError: the vocabulary lacks a special token, or `max_length` is too short (for pairs: raised
        by the call).
    """

    def __init__(self, folder, max_length):
        vocab_path = os.path.join(folder, "vocab.txt")
        if max_length < 3:
            raise ValueError(f"max_length {max_length} leaves no room for a word beside [CLS] and [SEP]")
        vocab = [line for _, line in sources.lines(vocab_path)]
        if len(set(vocab)) < len(vocab):
            again = next(i for i, word in enumerate(vocab) if word in vocab[:i])
            raise ValueError(f"{vocab_path}:{again + 1} has the word piece {vocab[again]!r} again")
        special = {}
        for token in ("[PAD]", "[UNK]", "[CLS]", "[SEP]"):
            if token not in vocab:
                raise ValueError(f"{vocab_path} has no {token}")
            special[token] = vocab.index(token)
        self._start, self._end, self._padding = special["[CLS]"], special["[SEP]"], special["[PAD]"]
        self._max_length = max_length
        lower_case = _lower_case(folder, vocab)
        self.settings = {
            "vocab": vocab,
            "lower_case": lower_case,
            "max_length": max_length,
            "words": [_WORD_OF_ITS_OWN, _LONGEST_WORD],
        }
        self._lower_case = lower_case
        self._tokenizer = tf_text.WordpieceTokenizer(
            vocab_path, token_out_type=tf.int32, max_bytes_per_word=4 * _LONGEST_WORD
        )
        # Every reading of a split calls it in a graph of its own: it is traced once for all of them.
        self._inputs = tf.function(self._traced, autograph=False)

    def __call__(self, features):
        return self._inputs(features)

    def _traced(self, features):
        segments = tf_text.RoundRobinTrimmer(self._max_length - 1).trim(self._segments(features))
        ends = tf.fill([segments[0].nrows(), 1], self._end)
        tokens = tf.concat([*segments, ends], axis=1)
        shape = [features["text"].shape[0], self._max_length]  # static, as XLA needs it
        mask = tf.ones_like(tokens).to_tensor(shape=shape)
        in_pair = tf.range(self._max_length, dtype=tf.int64) > segments[0].row_lengths()[:, None]
        return {
            "input_word_ids": tokens.to_tensor(self._padding, shape=shape),
            "input_mask": mask,
            "input_type_ids": tf.ensure_shape(mask * tf.cast(in_pair, tf.int32), shape),
        }

    def lengths(self, features):
        """Returns how many tokens the examples would have uncut, [CLS] and [SEP] included: int64 `[B]`."""
        return sum(segment.row_lengths() for segment in self._segments(features)) + 1

    def _segments(self, features):
        """Returns the ragged tokens of the text, and of its pair where there is one, but the last [SEP]."""
        text = self._pieces(features["text"])
        segments = [tf.concat([tf.fill([text.nrows(), 1], self._start), text], axis=1)]
        if "text_pair" in features:
            if self._max_length < 5:
                raise ValueError(f"max_length {self._max_length} leaves no room for a word of each text")
            # Counting its [SEP] to the pair gives an empty pair no room and the others BERT's shares.
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
_WORD_OF_ITS_OWN = rf"[!-/:-@\[-`{{-~\p{{P}}{_IDEOGRAPHS}]"


def _words(texts, lower_case):
    """Splits texts into words as BERT's reference does, ragged `[B, words]`.

    tensorflow-text's BertTokenizer differs: it folds compatibility characters (a trade mark sign becomes
    the letters), puts a space for each control character, and knows the spaces of ASCII only.
    """
    texts = tf.strings.regex_replace(texts, r"[\t\n\r\p{Z}]", " ")
    texts = tf.strings.regex_replace(texts, r"[\p{C}\x{FFFD}]", "")
    if lower_case:
        texts = tf_text.normalize_utf8(tf.strings.lower(texts, encoding="utf-8"), "NFD")
        texts = tf.strings.regex_replace(texts, r"\p{Mn}", "")
    words = tf_text.regex_split(texts, f" |{_WORD_OF_ITS_OWN}", _WORD_OF_ITS_OWN)
    too_long = tf.strings.length(words.flat_values, unit="UTF8_CHAR") > _LONGEST_WORD
    return words.with_flat_values(tf.where(too_long, "\N{REPLACEMENT CHARACTER}", words.flat_values))


def _lower_case(folder, vocab):
    path = os.path.join(folder, "tokenizer_config.json")
    if os.path.isfile(path):
        return _stated_lower_case(path)
    words = (word for word in vocab if not word.startswith("["))  # [CLS] and its like are always capitals
    return not any(word != word.lower() for word in words)


def _stated_lower_case(path):
    try:
        with open(path, encoding="utf-8-sig") as file:
            settings = sources.json_object(path, file.read())
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8: {error.reason}") from error
    lower_case = settings.get("do_lower_case", True)
    if not isinstance(lower_case, bool):
        raise ValueError(f"{path} has do_lower_case {lower_case!r}, which is not true or false")
    return lower_case
