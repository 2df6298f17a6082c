"""ELECTRA, whose layers are those of BERT."""

from collections.abc import Mapping

from rank4class.models import checkpoints
from rank4class.models.encoders import base, bert
from rank4class.models.registry import ENCODERS


@base.serializable
@checkpoints.HUGGING_FACE.register("electra")
class Electra(bert.Bert):
    """ELECTRA's discriminator: BERT's network without a pooler, possibly with narrower embeddings.

    Features and arguments are the same as for `Bert`; `pooling` is "cls", the default, "mean",
    "normalized_cls" or "normalized_mean".

    References:
      Clark et al. (2020), "ELECTRA"; Rank4Class, appendix B.2.
    """

    POOLINGS = ("cls", "mean", "normalized_cls", "normalized_mean")
    NAME = "electra"
    ARCHITECTURE = "ElectraModel"
    SCOPE = "electra"
    CONFIG_FIELDS: Mapping[str, str] = {**bert.Bert.CONFIG_FIELDS, "embedding_size": "embedding_size"}


@ENCODERS.register("electra")
def electra(
    path: str, dropout: float = 0.1, output_dropout: float = 0.0, pooling: str | None = None
) -> Electra:
    """Returns the ELECTRA encoder of a checkpoint, with its weights; see `bert`."""
    return base.load(Electra, path, dropout=dropout, output_dropout=output_dropout, pooling=pooling)


@checkpoints.TENSOR_FORMATS.register("electra")
def _google(tensors: checkpoints.Tensors) -> checkpoints.Checkpoint:
    unused = "(generator|generator_predictions|discriminator_predictions)/.*"
    name_map = bert.google_names("electra", unused)
    # Its gelu is exact, unlike that of google-research's BERT.
    settings = bert.settings_of_shapes(tensors, name_map, activation="gelu")
    return checkpoints.Checkpoint("google-research ELECTRA", Electra, settings, name_map, tensors)
