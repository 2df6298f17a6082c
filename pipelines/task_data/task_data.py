"""A dataset together with the encoder of its instances, from which models are built."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from rank4class import data
from rank4class.data.candidates import Sampled
from rank4class.data.dataset import map_splits
from rank4class.models.encoders.base import missing_features
from rank4class.pipelines.task_data import count_priors
from rank4class.pipelines.task_data.inputs import Inputs
from rank4class.progress import Progress


class ModelOutputs(NamedTuple):
    """The outputs of a model for a batch."""

    scores: tf.Tensor  # `[B, n]`
    where: tf.Tensor | None = None  # bool `[B, n]`, the classes that are ranked; None for all
    log_counts: tf.Tensor | None = None  # log-probabilities of `0..m` classes, `[B, m + 1]`
    class_ids: tf.Tensor | None = None  # of candidates, int32 `[n]`, by the ids of the labels; None for all
    log_q: tf.Tensor | None = None  # of candidates, `[B, n]`, see `data.training_batches`


@dataclasses.dataclass(frozen=True)
class TaskData:
    """The data that a model is trained and evaluated on, and its encoder."""

    class_names: tuple[str, ...]
    splits: dict[str, data.Split]
    preprocess: Any  # function of the features of a batch, or None
    make_encoder: Callable[[], tf.keras.layers.Layer]  # for the preprocessed features
    inputs: Inputs  # how raw examples, of this or other data, become the model's features
    encoder_files: Callable[[], str] | None = None  # returns the path of a frozen encoder without endings
    augment: Callable | None = None  # of the features and seeds of a training batch, for `preprocess`
    class_weights: np.ndarray | None = None  # `[n]`, see `data.training_batches`
    class_texts: tuple[str, ...] | None = None  # descriptions of the classes
    class_inputs: dict[str, Any] = dataclasses.field(default_factory=dict)  # see `class_texts.add`
    hashes: dict[str, str] = dataclasses.field(default_factory=dict)  # see `hashing`
    # Of the training examples, `[N]`, which validate out of their folds; -1 for those that only train.
    folds: np.ndarray | None = None
    seen: np.ndarray | None = None  # ids of the classes of the splits `of_seen`, by label; None for all
    of_seen: tuple[str, ...] = ("train", "validation")  # splits that rank the classes `seen` alone

    @property
    def evaluated(self) -> tuple[str, ...]:
        """The splits of the final evaluation."""
        return tuple(name for name in ("validation", "test") if name in self.splits)

    def examples(self, split: str) -> data.Split:
        """Returns a split; ValueError if there is none, such as the validation split of a run with folds."""
        if split not in self.splits:
            raise ValueError(
                f"split={split!r}: not in the data of the run; if its training examples validate, by folds, "
                "results.json has their metrics. Choose another split."
            )
        return self.splits[split]

    def training_batches(
        self,
        batch_size: int,
        seed: int,
        start_step: int = 0,
        context: tf.distribute.InputContext | None = None,
        candidates: Sampled | None = None,
    ) -> tf.data.Dataset:
        """Returns the training batches from a step on; see `data.training_batches`."""
        preprocess = self.preprocess
        return data.training_batches(
            self.without("words").splits["train"],
            batch_size=batch_size,
            seed=seed,
            start_step=start_step,
            preprocess=self.augment or (preprocess and (lambda features, seeds: preprocess(features))),
            class_weights=self.class_weights,
            candidates=candidates,
            context=context,
        )

    def training_examples(self, batch_size: int, seed: int, step: int) -> np.ndarray:
        """Returns the indices of the examples of a training step; steps count from 0."""
        train = self.splits["train"]
        return next(
            iter(data.training_indices(train, batch_size=batch_size, seed=seed, start_step=step))
        ).numpy()

    def evaluation_batches(
        self, split: str, batch_size: int, context: tf.distribute.InputContext | None = None
    ) -> tf.data.Dataset:
        """Returns the batches of a split, with every example once; see `data.evaluation_batches`."""
        return data.evaluation_batches(
            self.splits[split], batch_size=batch_size, preprocess=self.preprocess, context=context
        )

    def read(
        self, split: str, batch_size: int, strategy: tf.distribute.Strategy | None = None, title: str = ""
    ) -> Iterator[tuple]:
        """Returns `evaluation_batches` for the replicas of a strategy, with errors that name the example.

        A title, such as "evaluating", shows the progress.
        """
        examples = self.splits[split]
        if strategy is None:
            batches = self.evaluation_batches(split, batch_size)
        else:
            batches = strategy.distribute_datasets_from_function(
                lambda context: self.evaluation_batches(split, batch_size, context)
            )
        named = data.naming_errors(batches, examples, batch_size, self.preprocess)
        if not title:
            return named
        return Progress(f"{title} {split}", "example", len(examples)).over(named, batch_size)

    def collect(
        self, split: str, batch_size: int, function: Callable[[Any], Mapping[str, Any]], title: str
    ) -> dict[str, np.ndarray]:
        """Returns name -> the results of a function of a batch's features, of all examples in their order."""
        parts = []
        indices = []
        for features, _, batch_indices in self.read(split, batch_size, title=title):
            parts.append({name: np.asarray(values) for name, values in function(features).items()})
            indices.append(batch_indices.numpy())
        order = np.concatenate(indices)
        return {
            name: data.in_order(np.concatenate([part[name] for part in parts]), order) for name in parts[0]
        }

    def without_labels(self) -> "TaskData":
        """Returns the task with one class for all examples, whose batches hold nothing per class."""
        splits = {
            name: dataclasses.replace(split, labels=np.zeros(len(split), np.int32), excluded=None)
            for name, split in self.splits.items()
        }
        return dataclasses.replace(self, splits=splits)

    def without(self, feature: str) -> "TaskData":
        """Returns the task without a feature of its examples."""

        def select(split: data.Split) -> data.Split:
            features = {name: values for name, values in split.features.items() if name != feature}
            return dataclasses.replace(split, features=features)

        return dataclasses.replace(self, splits=map_splits(select, self.splits))

    def of_splits(self, *names: str) -> "TaskData":
        """Returns the task with some of its splits."""
        return dataclasses.replace(self, splits={name: self.splits[name] for name in names})

    def with_static_lengths(self) -> "TaskData":
        """Returns the task with texts padded to `data.max_length` in every batch, as TPUs need them."""
        if self.inputs.tokenizer is None or self.preprocess is None:  # or the splits hold tokens, or vectors
            return self
        return dataclasses.replace(self, preprocess=self.preprocess.with_static_length())

    def build_encoder(self, name: str) -> tf.keras.layers.Layer:
        """Returns a new encoder with its variables; ValueError if the dataset lacks a feature."""
        features = self.first_example()
        encoder = self.make_encoder()
        if missing := missing_features(encoder, features):
            raise ValueError(
                f"encoder={name!r}: needs {', '.join(missing)}, but the dataset has {', '.join(features)}. "
                "Choose another encoder."
            )
        encoder(features)
        return encoder

    def first_example(self) -> dict[str, tf.Tensor]:
        """Returns the features of a training example, as a batch."""
        return next(iter(self.read("train", 1)))[0]

    def scorer(
        self, model: tf.keras.Model, split: str, count_prior: count_priors.CountPrior = count_priors.NONE
    ) -> Callable[..., ModelOutputs]:
        """Returns a function of features and `training` to the `ModelOutputs` for the classes of a split.

        It passes other arguments to the model, such as `class_vectors`.
        """

        def outputs(features: dict[str, tf.Tensor], training: bool = False, **options: Any) -> ModelOutputs:
            where = ~features["excluded"] if "excluded" in features else None
            if (class_ids := features.get("candidates")) is not None:
                ids = class_ids if self.ranks_all(split) else tf.gather(self.seen, class_ids)
                scores = model(features, training=training, class_ids=ids)
                return ModelOutputs(scores, where, class_ids=class_ids, log_q=features["log_q"])
            result = model(features, training=training, **options)
            scores = result
            log_counts = None
            if isinstance(result, dict):
                scores = result["scores"]
                log_counts = result["log_counts"]
            if not self.ranks_all(split):
                scores = tf.gather(scores, self.seen, axis=1)
            return ModelOutputs(scores, where, count_prior.log_counts(scores, log_counts, where, training))

        return outputs

    def training_counts(self, split: str) -> np.ndarray:
        """Returns the number of training examples of each class that the model scores for a split, int64."""
        counts = self.splits["train"].class_counts(self.num_scored("train"))
        if self.seen is None or not self.ranks_all(split):
            return counts
        of_all = np.zeros(len(self.class_names), np.int64)
        of_all[self.seen] = counts
        return of_all

    def max_relevant(self, *splits: str) -> int | None:
        """Returns the largest number of classes of an example in these splits; None for class ids."""
        counts = [self.splits[split].max_relevant() for split in splits]
        return max((count for count in counts if count is not None), default=None)

    def num_scored(self, split: str) -> int:
        """Returns the number of classes that the model scores for a split."""
        return len(self.scored_class_names(split))

    def scored_class_names(self, split: str) -> tuple[str, ...]:
        """Returns the names of the classes that the model scores for a split, by the ids of its labels."""
        if self.seen is None or self.ranks_all(split):
            return self.class_names
        return tuple(self.class_names[i] for i in self.seen)

    def ranks_all(self, split: str) -> bool:
        """Returns whether the examples of a split are ranked among all classes."""
        return self.seen is None or split not in self.of_seen

    def unseen(self, split: str) -> tuple[np.ndarray, np.ndarray] | None:
        """Returns which examples have an unseen class, `[N]`, and which classes these are, `[n]`.

        None if all examples or none have one.
        """
        if self.seen is None or not self.ranks_all(split):
            return None
        is_unseen = ~np.isin(np.arange(len(self.class_names)), self.seen)
        unseen = self.splits[split].class_matrix(len(is_unseen)).astype(np.int64) @ is_unseen > 0
        return (unseen, is_unseen) if 0 < unseen.sum() < len(unseen) else None
