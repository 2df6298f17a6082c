"""An experiment's dataset and encoder brought together, the frozen encoder's outputs from a cache."""

import dataclasses
import hashlib
import json
import os
import sys
import zipfile
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from absl import logging

from rank4class import data, models
from rank4class.pipelines import config


@dataclasses.dataclass(frozen=True)
class Problem:
    """What a model is trained and judged on.

    Attributes:
      class_names: the names of the classes, by id.
      splits: name -> `data.Split`.
      preprocess: function of a batch's features, or None.
      make_encoder: returns a new instance encoder for the preprocessed features.
      class_texts: what describes the classes, or None where nothing does.
      class_features: the classes' texts as features of the instance encoder, or None.
      class_vectors: float `[n, e]`, the classes' texts encoded, or None.
      seen: ids of the classes that training and validation know, whose labels count only these; None
        where they know all.
    """

    class_names: tuple
    splits: dict
    preprocess: Callable | None
    make_encoder: Callable
    class_texts: tuple | None = None
    class_features: dict | None = None
    class_vectors: np.ndarray | None = None
    seen: np.ndarray | None = None

    def training_batches(self, experiment, start_step):
        return data.training_batches(
            self.splits["train"],
            batch_size=experiment.batch_size,
            seed=experiment.seed,
            start_step=start_step,
            preprocess=self.preprocess,
        )

    def evaluation_batches(self, experiment, split):
        return data.evaluation_batches(
            self.splits[split], batch_size=experiment.evaluation_batch_size, preprocess=self.preprocess
        )

    def build_encoder(self, experiment):
        """Makes a new encoder with its variables created.

        Raises:
          ValueError: it does not take what the dataset holds.
        """
        features, _, _ = next(iter(self.evaluation_batches(experiment, "train")))
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
        """Joins a new encoder, class encoder and interaction to a `models.RankModel` with its variables."""
        n = len(self.class_names)
        encoder = self.build_encoder(experiment)
        class_encoder = self._class_encoder(experiment.class_encoder, encoder.width)
        interaction = models.get(
            "interaction", experiment.interaction.name, **config.knobs(experiment.interaction)
        )
        model = models.RankModel(encoder, class_encoder, interaction, num_classes=n)
        features, _, _ = next(iter(self.evaluation_batches(experiment, "train")))
        model(features)
        return model

    def _class_encoder(self, section, width):
        if section.name == "embedding":
            knobs = {"num_classes": len(self.class_names), "width": width}
        elif section.name == "text":
            knobs = {"features": self.class_features}
        else:
            knobs = {"shape": self.class_vectors.shape, "width": width, "vectors": self.class_vectors}
        class_encoder = models.get("class encoder", section.name, **knobs)
        if not section.attention_layers:
            return class_encoder
        return models.get(
            "class encoder",
            "attention",
            base=class_encoder,
            width=width,
            num_layers=section.attention_layers,
            num_heads=section.attention_heads,
            dropout=section.attention_dropout,
        )

    def scorer(self, model, split):
        """Returns a function of features to the scores that a split's labels count: of the seen classes."""
        if self.seen is None or split == "test":
            return model
        return lambda features, training: tf.gather(model(features, training=training), self.seen, axis=1)

    def num_scored(self, split):
        """Returns the number of classes that a split's examples are ranked among."""
        return len(self.class_names) if self.seen is None or split == "test" else len(self.seen)


def load(experiment, cache_dir):
    """Loads an experiment's problem.

    With a frozen encoder the splits hold its outputs, and the encoder passes them on: they are
    computed once and kept in `cache_dir`, under a name that follows from what they depend on.

    Args:
      experiment: a checked `config.Experiment`.
      cache_dir: folder for the outputs of a frozen encoder.

    Raises:
      FileNotFoundError, ValueError: the dataset or the encoder cannot be loaded, or they do not fit.
    """
    dataset = data.get(experiment.data.name, **config.dataset_knobs(experiment.data))
    problem = Problem(
        dataset.class_names,
        dataset.splits,
        _preprocess(experiment, dataset),
        lambda: models.get("encoder", experiment.encoder.name, **config.knobs(experiment.encoder)),
    )
    problem = dataclasses.replace(problem, **_class_texts(experiment, dataset.class_names))
    if experiment.encoder.frozen:
        problem = _encode(experiment, problem, cache_dir)
    return _hold_out(problem, experiment.data.held_out)


def _preprocess(experiment, dataset):
    features = dataset.splits["train"].features
    if "file" in features:
        return data.DecodeAndCrop()
    if "text" not in features:
        return data.Rescale() if features["image"].dtype == np.uint8 else None
    if not experiment.encoder.path:
        raise ValueError(
            f"dataset {experiment.data.name!r} holds text: set encoder.path to the folder of a text encoder"
        )
    return _tokenizer(experiment.encoder.path, experiment.data.max_length)


def _tokenizer(path, max_length):
    models.encoder_of(path)  # says what is wrong with the path, before its vocabulary is looked for
    return data.WordPiece(models.vocabulary_folder(path), max_length)


def _class_texts(experiment, class_names):
    """Returns the fields of a `Problem` that hold the classes' texts, as its class encoder takes them."""
    section = experiment.class_encoder
    if section.name == "embedding":
        return {}
    texts = data.class_descriptions(section.texts, class_names) if section.texts else class_names
    path = section.path or experiment.encoder.path
    if not path:
        remedy = "encoder.path" if section.name == "text" else "class_encoder.path"
        raise ValueError(
            f"class_encoder.name {section.name!r} needs a text encoder: set {remedy} to its folder"
        )
    tokens = _tokenizer(path, experiment.data.max_length)({"text": tf.constant(texts)})
    _warn_of_equal_texts(class_names, tokens["input_word_ids"].numpy())
    longest = int(tf.reduce_max(tf.reduce_sum(tokens["input_mask"], axis=1)))
    features = {name: value[:, :longest] for name, value in tokens.items()}
    fields = {"class_texts": tuple(texts)}
    if section.name == "text":
        lists = {name: value.numpy().tolist() for name, value in features.items()}
        return {**fields, "class_features": lists}
    knobs = {"pooling": "mean"} if section.path else config.knobs(experiment.encoder)
    encoder = models.get("encoder", models.encoder_of(path), **{**knobs, "path": path})
    return {**fields, "class_vectors": encoder(features, training=False).numpy()}


def _warn_of_equal_texts(class_names, ids):
    same = (ids[:, None] == ids).all(axis=2)
    for i, name in enumerate(class_names):
        twins = [class_names[j] for j in np.flatnonzero(same[i]) if j > i]
        if twins:
            logging.warning(
                "the texts of %s come out as the same tokens as that of %s", ", ".join(twins), name
            )


def _hold_out(problem, names):
    """Leaves classes out of training and validation, and the others' examples out of the test split."""
    if not names:
        return problem
    for name in names:
        if name not in problem.class_names:
            raise ValueError(
                f"data.held_out names {name!r}, which is none of {', '.join(problem.class_names)}"
            )
    held_out = np.isin(problem.class_names, names)
    seen = np.flatnonzero(~held_out)
    if len(seen) < 2:
        raise ValueError(f"data.held_out leaves {len(seen)} of {len(held_out)} classes to train on")
    splits = {}
    for split, examples in problem.splits.items():
        kept = held_out[examples.labels] == (split == "test")
        features = {name: values[kept] for name, values in examples.features.items()}
        labels = examples.labels[kept]
        if split != "test":
            labels = np.searchsorted(seen, labels).astype(np.int32)
        if not len(labels):
            raise ValueError(f"data.held_out leaves the {split} split without an example")
        splits[split] = data.Split(features, labels)
    return dataclasses.replace(problem, splits=splits, seen=seen)


def _encode(experiment, raw, cache_dir):
    encoder = raw.build_encoder(experiment)
    name = f"features-{_fingerprint(experiment, raw, encoder)}.npz"
    path = os.path.join(cache_dir, name)
    if not os.path.exists(path):
        print(f"Computing the frozen encoder's outputs, once, to {path}")
        encoded = {split: _outputs(experiment, raw, encoder, split) for split in raw.splits}
        os.makedirs(cache_dir, exist_ok=True)
        partial = os.path.join(cache_dir, f"partial-{os.getpid()}-{name}")
        np.savez(partial, **encoded)
        os.replace(partial, path)
    try:
        with np.load(path) as file:
            outputs = {split: file[split] for split in raw.splits}
    except (zipfile.BadZipFile, ValueError, KeyError) as error:
        raise ValueError(f"{path} is damaged: remove it, and it is computed again") from error
    splits = {name: data.Split({"embedding": h}, raw.splits[name].labels) for name, h in outputs.items()}
    return dataclasses.replace(
        raw,
        splits=splits,
        preprocess=None,
        make_encoder=lambda: models.get("encoder", "identity", width=encoder.width),
    )


def _outputs(experiment, raw, encoder, split):
    encode = tf.function(lambda features: encoder(features, training=False), autograph=False)
    batches = raw.evaluation_batches(experiment, split)
    bar = tf.keras.utils.Progbar(len(batches), verbose=1 if sys.stdout.isatty() else 2, unit_name="batch")
    outputs = []
    for features, _, weights in batches:
        outputs.append(encode(features).numpy()[weights.numpy() > 0])
        bar.add(1)
    return np.concatenate(outputs)


def _fingerprint(experiment, raw, encoder):
    """A hash of all that decides the outputs: settings, weights and the examples, wherever they lie."""
    settings = {**encoder.get_config(), "name": experiment.encoder.name}
    if raw.preprocess is not None:
        settings["preprocess"] = raw.preprocess.settings
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for weight in encoder.get_weights():
        digest.update(weight.tobytes())
    for split in raw.splits.values():
        for array in split.features.values():
            digest.update(repr(array.tolist()).encode() if array.dtype == object else array.tobytes())
    return digest.hexdigest()[:16]
