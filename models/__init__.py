"""Models: features to scores of all classes."""

from rank4class import compat

compat.require_extra("models")
compat.require_keras_2("rank4class.models")

from rank4class.models import checkpoints, class_encoders, count_priors, encoders, interactions
from rank4class.models.item_model import ItemModel
from rank4class.models.rank_model import RankModel
from rank4class.models.registry import CLASS_ENCODERS, COUNT_PRIORS, ENCODERS, INTERACTIONS, get
