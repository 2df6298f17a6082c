"""A trained model as functions of raw inputs, in one `tf.Module` that predicts and is exported."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from rank4class import arguments, models
from rank4class.losses.ops import set_sizes
from rank4class.pipelines.evaluation.calibration import Platt, Temperature
from rank4class.pipelines.evaluation.detector import logits_of
from rank4class.pipelines.evaluation.stages.decisions import Rule, decision_rule
from rank4class.pipelines.evaluation.trained_model import TrainedModel
from rank4class.pipelines.export.outputs import OF_INPUTS
from rank4class.pipelines.task_data import class_frequencies, count_priors

Features = Mapping[str, tf.Tensor]


class Answers(tf.Module):
    """Scores, best classes and vectors of raw inputs by the model of a run, with its `class_names`.

    The attribute `inputs` is how raw inputs become the model's features, an `inputs.Inputs`.

    Args:
      trained: the model.
      coverage: of prediction sets, in (0, 1); their classes are then the decided ones. None decides for
        inputs of several classes by `decisions.decision_rule`.
      prior: relative frequencies of the classes among the inputs, for examples of one class; None: those of
        the training. They change the scores; see `score`.
      neighbors: number of training examples beside each answer, see `TrainedModel.neighbors`; or None.

    Raises:
      ValueError: the run has no prediction sets, or too few calibration examples for the coverage; or a
        prior does not fit the run.
    """

    def __init__(
        self,
        trained: TrainedModel,
        coverage: float | None = None,
        prior: Sequence[float] | None = None,
        neighbors: int | None = None,
    ):
        super().__init__()
        if prior is not None and coverage is not None:
            raise ValueError(f"coverage={coverage}: it holds for the training frequencies. Leave out prior.")
        inputs = trained.description.inputs
        self.class_names = trained.description.class_names
        self._names = tf.constant(self.class_names)
        self.inputs = inputs
        self._calibration = trained.calibration
        self.thresholds = trained.thresholds if coverage is None else None
        self.coverage = coverage
        self.sets = None
        if coverage is not None:
            self.sets = trained.sets_of(coverage)
            self.limits = self.sets.limits(coverage)
        self._prior_shift = None if prior is None else _prior_shift(trained, prior)
        self._count_prior = count_priors.get(trained.experiment.count_prior)
        several = trained.description.multi_label and not self.has_items
        self._rule: Rule | None = None
        if coverage is None and (several or self._count_prior.is_model or self.thresholds is not None):
            self._rule = decision_rule(trained.experiment, trained.fitted)
        model = trained.model
        parts = [inputs.preprocess, inputs.encoder, inputs.words]
        if isinstance(model, models.RankModel):
            # An export has the vectors of the classes in place of the class encoder.
            with trained.strategy.scope():
                self._class_vectors = tf.Variable(trained.encode_classes(), trainable=False)
            self._encoder = model.encoder

            def score(features: Features, training: bool) -> tuple[tf.Tensor, Any]:
                h = model.encoder(features, training=training)
                c = tf.convert_to_tensor(self._class_vectors)
                return h, model.score(h, features, training=training, class_vectors=c)

            self._scorer = score
            parts += [model.interaction, model.count_prior, model.words]
        else:
            self._scorer = lambda features, training: (None, model(features, training=training))
            parts.append(model)
        self.detector = None
        if trained.detector is not None:
            with trained.strategy.scope():
                arrays = trained.detector.arrays.items()
                self._detector_variables = {name: tf.Variable(x, trainable=False) for name, x in arrays}
            self.detector = dataclasses.replace(trained.detector, **self._detector_variables)
        self._num_neighbors = neighbors
        if neighbors is not None:
            stored = trained.neighbors(neighbors)
            with trained.strategy.scope():
                self._neighbor_vectors = tf.Variable(stored.vectors, trainable=False)
            self._neighbors = dataclasses.replace(stored, vectors=self._neighbor_vectors)
        # Parts that an export has to hold; a dataclass is not tracked.
        self._tracked = [part for part in parts if isinstance(part, tf.Module)]

    @property
    def specs(self) -> dict[str, tf.TensorSpec]:
        """Name -> `tf.TensorSpec` of the raw features of a batch; images in files are their `image_bytes`."""
        return self.inputs.kind.raw_specs(self.inputs.specs)

    def specs_of_batch(self, with_excluded: bool = False) -> dict[str, tf.TensorSpec]:
        """Returns the `specs`, with `excluded` if it is given, as it always is for lists of items.

        It is bool `[B, n]`, True for the classes or items that are not ranked.
        """
        if not (with_excluded or self.has_items):
            return self.specs
        classes = None if self.has_items else len(self.class_names)
        return {**self.specs, "excluded": tf.TensorSpec([None, classes], tf.bool)}

    @property
    def has_items(self) -> bool:
        """Whether each input has a list of items, which are ranked in place of classes."""
        return self.inputs.kind.ranks_items

    def check_k(self, k: int) -> None:
        """Raises ValueError if `k` is not positive or there are not `k` classes; lists may be shorter."""
        arguments.check_integer(1, None if self.has_items else len(self.class_names), top_k=k)

    def score(self, features: Features) -> dict[str, tf.Tensor]:
        r"""Returns "scores" of all classes, or of all items, float32 `[B, n]`.

        If the scores are calibrated, "probabilities" of the classes too, float32 `[B, n]`. With a count prior
        these are the marginals, and "counts" are the probabilities of `0..m` classes, float32 `[B, m + 1]`.

        With a coverage, and for inputs of several classes, "in_set", bool `[B, n]`, has the decided
        classes, and "set_size", int32 `[B]`, their number. The most probable set by a count prior has the
        highest scores. A prediction set has all classes if a score is not finite.

        If the run detects unknown inputs, "unknown", bool `[B]`, and "p_value", float32 `[B]`, are those of
        its `detector.Detector`. With `neighbors` the outputs of `Neighbors.find` follow.

        With a prior $q$, the scores $s$ of a run with the temperature $T$ become

        $$s_j + T (\log q_j - (1 - \tau) \log \pi_j)$$

        for the training frequencies $\pi$ and $\tau$, `loss.prior_temperature`, whose share of them the
        scores of the run leave out already (Saerens, Latinne, Decaestecker, 2002).
        """
        vectors, outputs = self._call(self._scorer, features)
        where = None if "excluded" not in features else ~features["excluded"]
        log_counts = None
        if isinstance(outputs, dict):
            outputs, log_counts = outputs["scores"], outputs["log_counts"]
        scores = tf.cast(outputs, tf.float32)
        of_inputs = {}
        if self.detector is not None:
            p_values = self.detector.p_values(vectors, logits_of(scores))
            of_inputs = {"unknown": p_values <= self.detector.rate, "p_value": p_values}
        if self._num_neighbors is not None:
            of_inputs |= self._neighbors.find(vectors, self._num_neighbors)
        if self._prior_shift is not None:
            scores += self._prior_shift
        log_counts = self._count_prior.log_counts(scores, log_counts, where)
        results = {"scores": scores, **of_inputs}
        in_set = None
        if log_counts is not None:
            results["probabilities"] = set_sizes.marginals(scores, log_counts, where=where)
            results["counts"] = tf.exp(log_counts)
        elif self._calibration is not None:
            results["probabilities"] = self._calibration.apply(scores, where)
        if self._rule is not None:
            in_set = self._rule(scores, log_counts, where)
        if self.sets is not None:
            unusual = self.sets.scores(results.get("probabilities"), self.ranking(scores), where)
            finite = tf.reduce_all(tf.math.is_finite(scores), axis=1, keepdims=True)
            in_set = (unusual <= self.limits) | ~finite
        if in_set is not None:
            set_size = tf.math.count_nonzero(in_set, axis=1, dtype=tf.int32)
            results |= {"in_set": in_set, "set_size": set_size}
        return results

    def classify(self, features: Features, k: int | None) -> dict[str, tf.Tensor]:
        """Returns the `k` best classes, the best first; of equal ones the lower id first.

        Calibrated classes are ranked by `Calibration.ranking`, all others by their scores. There are
        "classes", their names, string `[B, k]`, and "scores", float32 `[B, k]`; and if `score` returns them
        "probabilities", float32 `[B, k]`, "in_set", bool `[B, k]`, and of each input "set_size", the number
        of all decided classes, "unknown", "p_value" and the neighbors.

        None returns the decided classes, as many as the largest "set_size". After the end of a set, the
        scores are minus infinity. There is no "in_set".
        """
        results = self.score(features)
        if k is None:
            features = {**features, "excluded": ~results.pop("in_set")}
            k = tf.reduce_max(results["set_size"])
        scores, ids = self._best(features, results["scores"], k)
        best = {"classes": tf.gather(self._names, ids), "scores": scores}
        for name in {"probabilities", "in_set"} & results.keys():
            best[name] = tf.gather(results[name], ids, batch_dims=1)
        return best | {name: results[name] for name in OF_INPUTS & results.keys()}

    def rank(self, features: Features) -> dict[str, tf.Tensor]:
        """Returns the "positions" of the items, int32 `[B, m]`, the best first, and their "scores"."""
        scores = self.score(features)["scores"]
        scores, positions = self._best(features, scores, tf.shape(scores)[1])
        return {"positions": positions, "scores": scores}

    def encode(self, features: Features) -> dict[str, tf.Tensor]:
        """Returns "vectors" of the inputs, float32 `[B, d]`."""
        return {"vectors": tf.cast(self._call(self._encoder, features), tf.float32)}

    def encode_classes(self) -> dict[str, tf.Tensor]:
        """Returns "vectors" of all classes, float32 `[n, d]`, and their names, "classes", string `[n]`."""
        return {"classes": self._names, "vectors": tf.cast(self._class_vectors, tf.float32)}

    def ranking(self, scores: tf.Tensor) -> tf.Tensor:
        """Returns numbers in the order in which the classes are ranked, float32 `[B, n]`."""
        return scores if self._calibration is None else self._calibration.ranking(scores)

    def _best(self, features: Features, scores: tf.Tensor, k: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the scores and ids of the `k` best classes or items, by their ranking."""
        ranking = self.ranking(scores)
        # The k highest of scores with a NaN need not include it, and minus infinity is that of left out ones.
        finite = tf.reduce_all(tf.math.is_finite(ranking), axis=1, keepdims=True)
        scores = tf.where(finite, scores, np.nan)
        if "excluded" in features:
            scores, ranking = (tf.where(features["excluded"], -np.inf, each) for each in (scores, ranking))
        _, ids = tf.math.top_k(ranking, k)
        return tf.gather(scores, ids, batch_dims=1), ids

    def _call(self, layer: Callable[..., Any], features: Features) -> Any:
        """Returns a layer's outputs for raw features."""
        raw = {name: value for name, value in features.items() if name != "excluded"}
        for name, x in raw.items():
            if x.dtype.is_floating:  # some operations turn NaN into numbers
                raw[name] = tf.debugging.assert_all_finite(x, f"{name}: a number is not finite. Correct it.")
        return layer(self.inputs(raw), training=False)


def _prior_shift(trained: TrainedModel, prior: Sequence[float]) -> np.ndarray:
    """Returns the change of the scores for other class frequencies, float32 `[n]`; see `Answers.score`."""
    experiment = trained.experiment
    described = trained.description
    fitted = trained.calibration
    has_counts = count_priors.get(experiment.count_prior).is_model
    of_several = described.inputs.kind.ranks_items or has_counts or isinstance(fitted, Platt)
    for is_wrong, reason in (
        (of_several, "it needs examples of one class each. Leave it out."),
        (fitted is None, "the run has no temperature. Train with calibration='auto'."),
        (
            experiment.data.class_weights != "none",
            "data.class_weights has changed the frequencies. Train with loss.prior_temperature in its place.",
        ),
        (described.seen is not None, "some classes have no training example. Leave it out."),
    ):
        if is_wrong:
            raise ValueError(f"prior: {reason}")
    assert isinstance(fitted, Temperature)
    log_pi = class_frequencies.log_frequencies(described.training_counts)
    log_q = np.log(prior) - np.log(np.sum(prior))
    return np.float32(fitted.temperature * (log_q - (1.0 - experiment.loss.prior_temperature) * log_pi))
