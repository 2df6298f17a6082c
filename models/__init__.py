"""Models: features to scores of all classes."""

from rank4class.models import checkpoints, class_encoders, count_priors, encoders, interactions
from rank4class.models.added_scores import AddedScores
from rank4class.models.item_model import ItemModel
from rank4class.models.rank_model import RankModel
from rank4class.models.registry import CLASS_ENCODERS, COUNT_PRIORS, ENCODERS, INTERACTIONS, get
