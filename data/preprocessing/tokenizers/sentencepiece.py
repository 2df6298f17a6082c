"""The tokenizers of ALBERT and XLM-RoBERTa, of SentencePiece models."""

import base64
import os

import tensorflow as tf
import tensorflow_text as tf_text

from rank4class.data.preprocessing.tokenizers import base

ALBERT = "spiece.model"
XLM_ROBERTA = "sentencepiece.bpe.model"
# Name of the file of a model -> that of its tokenizer in transformers.
_CLASSES = {ALBERT: "AlbertTokenizer", XLM_ROBERTA: "XLMRobertaTokenizer"}
_ALBERT_TOKENS = ["<pad>", "[CLS]", "[SEP]"]
_UNKNOWN = 3  # in XLM-RoBERTa, whose other pieces have the id of the model plus one


@base.TOKENIZERS.register("SentencePiece")
class SentencePiece(base.Tokenizer):
    """A SentencePiece model with the special tokens of ALBERT or of XLM-RoBERTa; see `Tokenizer`.

    | file | tokens | ids | texts |
    |---|---|---|---|
    | `spiece.model` | [CLS] text [SEP] pair [SEP] | those of the model | as ALBERT cleans them |
    | `sentencepiece.bpe.model` | <s> text </s></s> pair </s> | those of fairseq | as they are |

    ALBERT replaces two backquotes or apostrophes by a quote, removes accents and lower-cases. The ids of
    fairseq are 0 for <s>, 1 for <pad>, 2 for </s>, 3 for <unk>, those of the model plus 1 for other pieces,
    and the last for <mask>.

    Texts never yield special tokens, as with `WordPiece`. Numbers before a comma are those of Hugging Face's
    fast tokenizer, which does not split them again.

    Args:
      model: content of the file, in base64.
      file: its name, one of the two above.
      max_length, static_length: see `Tokenizer`.
      lower_case: whether ALBERT lower-cases.

    References:
      Kudo & Richardson (2018), "SentencePiece"; Lan et al. (2020), "ALBERT"; Conneau et al. (2020),
      "Unsupervised cross-lingual representation learning at scale".
    """

    def __init__(
        self, model: str, file: str, max_length: int, lower_case: bool = True, *, static_length: bool = False
    ):
        self._content = base64.b64decode(model)
        self._file = file
        self._lower_case = lower_case
        self._tokenizer = tf_text.SentencepieceTokenizer(self._content)
        special = base.SpecialTokens(1, 0, 2, two_separators=True)
        size = int(self._tokenizer.vocab_size())
        if file == ALBERT:
            padding, start, end = map(int, self._tokenizer.string_to_id(_ALBERT_TOKENS))
            special = base.SpecialTokens(padding, start, end)
        settings = {"model": model, "file": file, "max_length": max_length, "lower_case": lower_case}
        super().__init__(settings, special, size + 2 * special.two_separators, static_length)

    @property
    def assets(self) -> dict[str, bytes]:
        config = self._config_file(tokenizer_class=_CLASSES[self._file], do_lower_case=self._lower_case)
        return {self._file: self._content, **config}

    @classmethod
    def from_folder(cls, folder: str, max_length: int) -> "SentencePiece":
        """Returns the tokenizer of an encoder.

        Args:
          folder: the encoder's folder, with `spiece.model` or `sentencepiece.bpe.model`.
            `tokenizer_config.json`, if there is one, states `do_lower_case`.
          max_length: see `Tokenizer`.

        Raises:
          FileNotFoundError: neither of the two files.
          ValueError: the file is damaged or lacks a special token, or `tokenizer_config.json` describes
            another tokenizer.
        """
        paths = [os.path.join(folder, file) for file in _CLASSES]
        path = next(filter(os.path.isfile, paths), None)
        if path is None:
            raise FileNotFoundError(
                f"{paths[0]}: no such file, and no {XLM_ROBERTA}; a text encoder needs one of them. Add the "
                "published one."
            )
        file = os.path.basename(path)
        config = base.read_config(folder) or {}
        supported = {
            "tokenizer_class": (f"{_CLASSES[file]}Fast", _CLASSES[file]),
            "do_lower_case": (True, False),
            "keep_accents": (False,),
            "remove_space": (True,),
        }
        base.check_supported(folder, config, supported)
        with open(path, "rb") as opened:
            model = base64.b64encode(opened.read()).decode()
        try:
            tokenizer = cls(model, file, max_length, config.get("do_lower_case", True))
        except tf.errors.OpError as error:
            raise ValueError(f"{path}: not a complete SentencePiece model. Download it again.") from error
        known = tokenizer._tokenizer.id_to_string(tokenizer.special[:3]).numpy().astype(str)
        for token, piece in zip(_ALBERT_TOKENS, known, strict=True):
            if token != piece and file == ALBERT:
                raise ValueError(f"{path}: no {token}. Give the model of an ALBERT encoder.")
        return tokenizer

    def pieces(self, texts: tf.Tensor) -> tf.RaggedTensor:
        if self._file == XLM_ROBERTA:
            pieces = self._tokenizer.tokenize(texts)
            ids = pieces.flat_values
            return pieces.with_flat_values(tf.where(ids == 0, _UNKNOWN, ids + 1))
        texts = tf.strings.regex_replace(texts, r"[\t-\r\x{1c}-\x{1f}\x{85}\p{Z}]+", " ")
        texts = tf.strings.regex_replace(tf.strings.strip(texts), "``|''", '"')
        texts = base.without_accents(texts, "NFKD")
        return self._tokenizer.tokenize(base.lower(texts) if self._lower_case else texts)
