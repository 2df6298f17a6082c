"""XLM-RoBERTa, whose layers are those of BERT."""

from rank4class.models import checkpoints
from rank4class.models.encoders import base, bert
from rank4class.models.registry import ENCODERS


@base.serializable
@checkpoints.HUGGING_FACE.register("xlm-roberta")
class XlmRoberta(bert.Bert):
    """XLM-RoBERTa, a BERT of a hundred languages with SentencePiece's tokens.

    Features and arguments are the same as for `Bert`; there is one token type.

    References:
      Conneau et al. (2020), "Unsupervised cross-lingual representation learning at scale".
    """

    NAME = "xlm-roberta"
    TOKENIZER = "SentencePiece"
    ARCHITECTURE = "XLMRobertaModel"
    SCOPE = "roberta"
    EPSILON = 1e-5
    FIRST_POSITION = 2


@ENCODERS.register("xlm-roberta")
def xlm_roberta(
    path: str, dropout: float = 0.1, output_dropout: float = 0.0, pooling: str | None = None
) -> XlmRoberta:
    """Returns the XLM-RoBERTa encoder of a checkpoint, with its weights; see `bert`."""
    return base.load(XlmRoberta, path, dropout=dropout, output_dropout=output_dropout, pooling=pooling)
