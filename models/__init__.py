"""Models: features to scores of all classes."""

from rank4class.models.rank_model import RankModel
from rank4class.models.registry import get_class_encoder, get_encoder, get_interaction

__all__ = ["RankModel", "get_class_encoder", "get_encoder", "get_interaction"]
