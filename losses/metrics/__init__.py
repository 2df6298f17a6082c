"""Ranking metrics: pure functions, streaming Keras metrics, and metrics of sets."""

from rank4class.losses.metrics.decisions import *
from rank4class.losses.metrics.functional import *
from rank4class.losses.metrics.keras import *
from rank4class.losses.metrics.keras import METRICS
from rank4class.losses.metrics.names import *
from rank4class.losses.metrics.propensity import *
from rank4class.losses.metrics.set_likelihoods import *
