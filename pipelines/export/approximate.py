"""Approximate search of the best classes with ScaNN, for hundreds of thousands of classes."""

import dataclasses
import functools
import math
from typing import Any

import tensorflow as tf
from absl import logging

from rank4class import compat
from rank4class.models import interactions
from rank4class.pipelines.evaluation.trained_model import TrainedModel
from rank4class.pipelines.export.answers import Answers, Features

MIN_CLASSES = 1_000  # below this many, the exact scores take less time than the search
SAMPLE = 250_000  # classes from which the partitions are learned
# `benchmark --suite=retrieval` measures these two: recall of 0.97 to 0.99 on vectors with some structure.
SEARCHED = 0.2  # fraction of the partitions that a search looks at
RESCORED = 100  # candidates per returned class whose exact scores are computed


class ApproximateAnswers(Answers):
    """`Answers` whose `classify` finds most of the best classes, in `O(d sqrt(n))` time per input.

    The vectors of the classes are partitioned and quantized. A search looks at a fifth of the partitions, and
    computes the exact scores of the most promising classes. The returned scores are exact; some of the best
    classes may be missing. There are no probabilities and no decided classes.

    Raises:
      ValueError: an interaction whose scores are no products of vectors, a calibration that changes the
        order of the classes, too few classes, or `k` is out of range.
      ImportError: the package `scann` is missing, or was built for another TensorFlow.

    References:
      Guo, Sun, Lindgren, Geng, Simcha, Chern, Kumar (2020), "Accelerating large-scale inference with
      anisotropic vector quantization".
    """

    def __init__(self, trained: TrainedModel, k: int):
        if trained.detector is not None:
            note = (
                "index='scann': does not score all classes; unknown inputs, which need them, are not detected"
            )
            logging.warning(note)
        super().__init__(dataclasses.replace(trained, detector=None))
        self.check_k(k)
        interaction = interactions.protocol_of(getattr(trained.model, "interaction", None))
        if not interaction.has_products:
            raise ValueError(
                f"index='scann': the interaction is {trained.experiment.interaction.name!r}, and only dot "
                "products and cosines can be searched. Set it to 'exact'."
            )
        if trained.model.words is not None and trained.model.words.weight != 0.0:
            raise ValueError(
                "index='scann': the scores of words cannot be searched. Train with words='none'."
            )
        if trained.calibration is not None and not trained.calibration.keeps_order:
            raise ValueError(
                "index='scann': searches by scores, but the calibrated probabilities have another order. Set "
                "it to 'exact'."
            )
        n = len(self.class_names)
        if n < MIN_CLASSES:
            raise ValueError(
                f"index='scann': {n} classes are fewer than {MIN_CLASSES:,}. Exact scores take less time. "
                "Set it to 'exact'."
            )
        vectors = tf.convert_to_tensor(self.encode_classes()["vectors"])
        self._query = interaction.query
        if interaction.use_bias:  # the product with a query that ends with 1
            vectors = tf.concat([vectors, tf.cast(interaction.bias, tf.float32)[:, None]], axis=1)
            self._query = functools.partial(tf.pad, paddings=[[0, 0], [0, 1]], constant_values=1.0)
        self._index = build_index(vectors, k).serialize_to_module()

    def classify(self, features: Features, k: int | None) -> dict[str, tf.Tensor]:
        if "excluded" in features:
            raise ValueError("index='scann': known classes cannot be excluded. Set it to 'exact'.")
        queries = self._query(self.encode(features)["vectors"])
        index = scann_ops().searcher_from_module(self._index)
        ids, scores = index.search_batched(queries, final_num_neighbors=k)
        return {"classes": tf.gather(self._names, ids), "scores": scores}


def build_index(vectors: tf.Tensor, k: int) -> Any:
    """Returns ScaNN's index of vectors, float32 `[n, d]`, with the settings of exports, the same each time.

    Its method `search_batched(queries)` returns the ids, int32 `[B, k]`, and dot products, float32 `[B, k]`,
    of the vectors with the largest ones.
    """
    n = len(vectors)
    leaves = math.isqrt(n)
    return (
        scann_ops()
        .builder(vectors, k, "dot_product")
        # Random initial centers would take no seed; k-means++ has one.
        .tree(leaves, math.ceil(SEARCHED * leaves), training_sample_size=min(n, SAMPLE), random_init=False)
        .score_ah(2, anisotropic_quantization_threshold=0.2)
        .reorder(min(n, RESCORED * k))
        .build()
    )


def scann_ops() -> Any:
    """Returns ScaNN's module of TensorFlow operations; raises ImportError with a remedy."""
    compat.require_extra("scann")
    try:
        from scann import scann_ops
    except (ImportError, tf.errors.NotFoundError) as error:
        raise ImportError(
            f"index='scann': the installed scann was built for another TensorFlow than {tf.__version__}. "
            "Install the version that its documentation names."
        ) from error
    return scann_ops
