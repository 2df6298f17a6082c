"""Ranking losses and metrics, as pure functions and as Keras classes: one family of losses per module."""

from rank4class.losses import metrics
from rank4class.losses.approx import *
from rank4class.losses.base import BATCH_LOSSES, LOSSES, RankingLoss, register
from rank4class.losses.batch import *
from rank4class.losses.cross_entropy import *
from rank4class.losses.margin import *
from rank4class.losses.metrics.keras import *
from rank4class.losses.metrics.names import get_metric
from rank4class.losses.pairwise import *
from rank4class.losses.permutation import *
from rank4class.losses.pointwise import *
from rank4class.losses.registry import get, names, option_names
from rank4class.losses.stochastic import *
from rank4class.losses.subsets import *
