"""The rank model: an instance encoder, a class encoder and an interaction."""

import functools
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from rank4class.models import precision
from rank4class.models.encoders.base import check_features
from rank4class.models.interactions import protocol_of
from rank4class.models.registry import KERAS_3


def create_variables(model: tf.keras.Model, features: Mapping[str, tf.Tensor] | tf.Tensor) -> None:
    """Creates the variables of a model by tracing it: a call would encode the texts of all classes."""
    tf.function(model, autograph=False).get_concrete_function(features)


def _describe(features: Any) -> dict[str, Any]:
    """Returns name, or "" -> shape and dtype."""
    named = features if isinstance(features, Mapping) else {"": features}
    return {name: (x.shape.as_list(), x.dtype.name) for name, x in named.items()}


@tf.keras.utils.register_keras_serializable(package="rank4class")
class RankModel(tf.keras.Model):
    r"""Scores all classes for an instance: $s_i = I(H(x), C(i))$.

    It is called on a dict of features and returns scores, float32 `[B, n]`. With a count prior it returns a
    dict of "scores" and "log_counts", float32 `[B, m + 1]`, the log-probabilities of `0..m` relevant classes.
    `compile` it with a ranking loss, as any Keras model; with a count prior, use one loss per output (see
    `losses.CountLikelihood`). Save it as `.keras` or as a SavedModel folder, not as `.h5`. With `class_ids`,
    int `[m]`, it scores these classes alone, at a cost that does not depend on `n`. With `class_vectors`, the
    result of `encode_classes`, it does not encode the classes.

    Args:
      encoder: instance encoder, from features to `h` `[B, d]`. With a Keras layer that takes one tensor, the
        model takes one tensor too.
      class_encoder: layer from the ids of all classes to `c` `[n, d]`; it may call the instance encoder,
        `encode`.
      interaction: layer from `[h, c]` to scores `[B, n]`.
      num_classes: `n`.
      count_prior: layer from `h` to `log_counts` (see `models.count_priors`), or None.
      words: layer from the feature `words`, `[B, e]`, to scores that are added except in training (see
        `models.AddedScores`), or None.

    References:
      Rank4Class, Figure 2.
    """

    PARTS = ("encoder", "class_encoder", "interaction", "count_prior", "words")

    def __init__(
        self,
        encoder: tf.keras.layers.Layer,
        class_encoder: tf.keras.layers.Layer,
        interaction: tf.keras.layers.Layer,
        num_classes: int,
        count_prior: tf.keras.layers.Layer | None = None,
        words: tf.keras.layers.Layer | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.encoder = encoder
        self.class_encoder = class_encoder
        self.interaction = interaction
        self.num_classes = num_classes
        self.count_prior = count_prior
        self.words = words

    def call(
        self,
        features: Mapping[str, tf.Tensor] | tf.Tensor,
        training: bool | None = None,
        class_ids: tf.Tensor | None = None,
        class_vectors: tf.Tensor | None = None,
    ) -> tf.Tensor | dict[str, tf.Tensor]:
        check_features(self.encoder, features)
        if KERAS_3:  # which keeps the shapes, but no dtypes
            self._specs = _describe(features)
        h = self.encoder(features, training=training)
        return self.score(h, features, training, class_ids, class_vectors)

    def score(
        self,
        h: tf.Tensor,
        features: Mapping[str, tf.Tensor] | tf.Tensor,
        training: bool | None = None,
        class_ids: tf.Tensor | None = None,
        class_vectors: tf.Tensor | None = None,
    ) -> tf.Tensor | dict[str, tf.Tensor]:
        """Returns the result of a call on features, of which the encoder's outputs are `h`, `[B, d]`."""
        c = self.encode_classes(training, class_ids) if class_vectors is None else class_vectors
        protocol = protocol_of(self.interaction)
        options: dict[str, Any] = {"prepared": True} if protocol.takes_prepared else {}
        if class_ids is not None and protocol.takes_class_ids:
            options["class_ids"] = class_ids
        scores = tf.cast(self.interaction([h, c], training=training, **options), tf.float32)
        if self.words is not None and not training:
            scores += self.words(features["words"], class_ids)
        if self.count_prior is None:
            return scores
        return {"scores": scores, "log_counts": self.count_prior(h)}

    def encode_classes(self, training: bool | None = None, class_ids: tf.Tensor | None = None) -> tf.Tensor:
        """Returns vectors of all classes or of `class_ids`, float `[n, d]`, as the interaction takes them.

        Args:
          training: whether this is a step of training, in which an encoder of texts has dropout.
          class_ids: optional int `[m]`, whose vectors are `[m, d]`.

        Raises:
          ValueError: the class encoder has another number of classes than the model.
        """
        if class_ids is None:
            size = getattr(self.class_encoder, "num_classes", self.num_classes)
            if size != self.num_classes:
                problem = f"the class encoder has {size} classes. Set it to that number."
                raise ValueError(f"num_classes={self.num_classes}: {problem}")
            class_ids = tf.range(self.num_classes)
        encode = functools.partial(self.encoder, training=training)
        c = self.class_encoder(class_ids, encode=encode, training=training)
        return protocol_of(self.interaction).prepare(c)

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None
    ) -> tf.Tensor:
        # Keras pairs one tensor of labels, or one loss, with whichever output is the first by name.
        if self.count_prior is not None and (tf.is_tensor(y) or not isinstance(self.loss, Mapping)):
            raise ValueError(
                "y: a RankModel with a count prior has two outputs, which labels and losses must name. Pass "
                'y={"scores": y, "log_counts": y} and compile with loss={"scores": ..., "log_counts": ...}.'
            )
        return super().compute_loss(x, y, y_pred, sample_weight)

    def get_config(self) -> dict[str, Any]:
        parts = {name: getattr(self, name) for name in self.PARTS}
        serialized = {name: part and tf.keras.layers.serialize(part) for name, part in parts.items()}
        fields = {name: getattr(self, name) for name in ("name", "trainable", "num_classes")}
        return {**super().get_config(), **serialized, **fields, "dtype": self.dtype_policy.name}

    def get_build_config(self) -> dict[str, Any]:
        """Returns the features that a loaded model is built with: name, or "" -> shape and dtype.

        Raises:
          ValueError: the model has not been called yet.
        """
        called = self.built if KERAS_3 else self.save_spec()
        if not called:
            raise ValueError("RankModel: no weights to save yet. Call it on features first.")
        return dict(self._specs) if KERAS_3 else _describe(called[0][0])

    def build_from_config(self, config: dict[str, Any]) -> None:
        empty = {
            name: tf.zeros([size or 1 for size in shape], dtype) for name, (shape, dtype) in config.items()
        }
        with precision.scope(self.dtype_policy.name):  # blocks of a transformer create layers when called
            create_variables(self, empty.get("", empty))

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None) -> "RankModel":
        parts = {name: config[name] for name in cls.PARTS if config.get(name)}
        with precision.scope(config.get("dtype")):
            built = {name: tf.keras.layers.deserialize(part, custom_objects) for name, part in parts.items()}
            return cls(**{**config, **built})
