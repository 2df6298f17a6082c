"""An experiment's dataset and encoder brought together, the frozen encoder's outputs from a cache."""

import dataclasses
import typing
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from rank4class import data, models
from rank4class.losses.ops import set_sizes
from rank4class.models import class_encoders


class ModelOutputs(typing.NamedTuple):
    """What a model makes of a batch.

    Attributes:
      scores: `[B, n]`.
      where: bool `[B, n]`, the classes that take part in the ranking, or None where all do.
      log_counts: log-probabilities that an example has `0..m` classes, `[B, m + 1]`, or None.
    """

    scores: tf.Tensor
    where: tf.Tensor | None = None
    log_counts: tf.Tensor | None = None


@dataclasses.dataclass(frozen=True)
class Task:
    """What a model is trained and judged on.

    Attributes:
      class_names: the names of the classes, by id.
      splits: name -> `data.Split`.
      preprocess: function of a batch's features, or None.
      augment: function of a training batch's features and seeds in place of `preprocess`, or None.
      class_weights: `[n]`, what a training example weighs by its class, or None.
      make_encoder: returns a new instance encoder for the preprocessed features.
      class_texts: what describes the classes, or None where nothing does.
      class_features: the classes' texts as features of the instance encoder, or None.
      class_vectors: float `[n, e]`, the classes' texts encoded, or None.
      hashes: of the classes and of each split's examples, by which another run tells other data.
      seen: ids of the classes that training and validation know, whose labels count only these; None
        where they know all.
    """

    class_names: tuple
    splits: dict
    preprocess: Callable | None
    make_encoder: Callable
    augment: Callable | None = None
    class_weights: np.ndarray | None = None
    class_texts: tuple | None = None
    class_features: dict | None = None
    class_vectors: np.ndarray | None = None
    hashes: dict = dataclasses.field(default_factory=dict)
    seen: np.ndarray | None = None

    def training_batches(self, experiment, start_step=0, context=None):
        """Returns the batches of the training from a step on; see `data.training_batches`."""
        preprocess = self.preprocess
        return data.training_batches(
            self.splits["train"],
            batch_size=experiment.batch_size,
            seed=experiment.seed,
            start_step=start_step,
            preprocess=self.augment or (preprocess and (lambda features, seeds: preprocess(features))),
            class_weights=self.class_weights,
            context=context,
        )

    def training_examples(self, experiment, step):
        """Returns the indices of the examples of a training step, from 0."""
        indices = data.training_indices(
            len(self.splits["train"]),
            batch_size=experiment.batch_size,
            seed=experiment.seed,
            start_step=step,
        )
        return next(iter(indices)).numpy()

    def raise_first_unreadable(self, experiment, step):
        """Raises ValueError on the first example of a training step that cannot be read, if any."""
        data.raise_first_unreadable(
            self.splits["train"], self.training_examples(experiment, step), self.preprocess
        )

    def evaluation_batches(self, experiment, split, context=None):
        """Returns the batches of a split, every example once; see `data.evaluation_batches`."""
        return data.evaluation_batches(
            self.splits[split],
            batch_size=experiment.evaluation_batch_size,
            preprocess=self.preprocess,
            context=context,
        )

    def read(self, experiment, split, strategy=None):
        """Returns `evaluation_batches`, of a strategy's replicas, that name what they cannot read."""
        size, examples = experiment.evaluation_batch_size, self.splits[split]

        def indices_of(number):
            return range(number * size, min((number + 1) * size, len(examples)))

        if strategy is None:
            batches = self.evaluation_batches(experiment, split)
        else:
            batches = strategy.distribute_datasets_from_function(
                lambda context: self.evaluation_batches(experiment, split, context)
            )
        return data.ErrorReportingIterator(batches, examples, indices_of, self.preprocess)

    def build_encoder(self, experiment):
        """Makes a new encoder with its variables created.

        Raises:
          ValueError: it does not take what the dataset holds.
        """
        features, _, _ = next(iter(self.read(experiment, "train")))
        encoder = self.make_encoder()
        missing = [name for name in encoder.FEATURES if name not in features]
        if missing:
            raise ValueError(
                f"encoder {experiment.encoder.name!r} needs {', '.join(missing)}, but dataset "
                f"{experiment.data.name!r} has {', '.join(features)}"
            )
        encoder(features)
        return encoder

    def build_model(self, experiment):
        """Joins a new encoder, class encoder and interaction to a `models.RankModel` with its variables.

        Where instances bring the items to be ranked, the encoder "items" is the whole model.
        """
        n = len(self.class_names)
        encoder = self.build_encoder(experiment)
        if isinstance(encoder, models.ItemModel):
            return encoder
        class_encoder = self._class_encoder(experiment.class_encoder, encoder.width)
        interaction = models.get(
            "interaction", experiment.interaction.name, **experiment.interaction.options()
        )
        count_prior = self._count_prior(experiment.count_prior)
        model = models.RankModel(encoder, class_encoder, interaction, num_classes=n, count_prior=count_prior)
        features, _, _ = next(iter(self.read(experiment, "train")))
        model(features)
        return model

    def _class_encoder(self, section, width):
        if section.name == "embedding":
            knobs = {"num_classes": len(self.class_names), "width": width, **section.options()}
        elif section.name == "text":
            knobs = {"features": self.class_features}
        else:
            knobs = {"shape": self.class_vectors.shape, "width": width, "vectors": self.class_vectors}
        class_encoder = models.get("class_encoder", section.name, **knobs)
        if not section.attention_layers:
            return class_encoder
        return class_encoders.Attention(
            base=class_encoder,
            width=width,
            num_layers=section.attention_layers,
            num_heads=section.attention_heads,
            dropout=section.attention_dropout,
        )

    def _count_prior(self, section):
        if section.name == "fixed":
            return models.get("count_prior", "fixed", probabilities=section.probabilities)
        if section.name == "empirical":
            shares = np.bincount(self.splits["train"].num_relevant()) / len(self.splits["train"])
            return models.get("count_prior", "fixed", probabilities=shares)
        if section.name == "learned":
            most = section.most or self.max_relevant("train")
            return models.get("count_prior", "learned", **{**section.options(), "most": most})
        return None

    def scorer(self, model, split, count_prior="none"):
        """Returns a function of features to the `ModelOutputs` that a split's labels are about.

        Args:
          model: a `models.RankModel`.
          split: name.
          count_prior: name; the Poisson-binomial one is not the model's own, and training does without it.
        """

        def outputs(features, training=False):
            made = model(features, training=training)
            scores, log_counts = (
                (made["scores"], made["log_counts"]) if isinstance(made, dict) else (made, None)
            )
            if self.seen is not None and split != "test":
                scores = tf.gather(scores, self.seen, axis=1)
            where = ~features["excluded"] if "excluded" in features else None
            if count_prior == "poisson_binomial" and not training:
                log_counts = set_sizes.poisson_binomial(scores, where=where)
            return ModelOutputs(scores, where, log_counts)

        return outputs

    def max_relevant(self, *splits):
        """Returns how many classes an example of these splits has at most, or None where it has one."""
        each = [self.splits[split].max_relevant() for split in splits]
        return max((most for most in each if most is not None), default=None)

    def num_scored(self, split):
        """Returns the number of classes that a split's examples are ranked among."""
        return len(self.scored_class_names(split))

    def scored_class_names(self, split):
        """Returns the names of the classes that a split's examples are ranked among, by its labels' ids."""
        if self.seen is None or split == "test":
            return self.class_names
        return tuple(self.class_names[i] for i in self.seen)
