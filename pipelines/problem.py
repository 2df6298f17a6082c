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
    """

    class_names: tuple
    splits: dict
    preprocess: Callable | None
    make_encoder: Callable

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
        class_encoder = models.get(
            "class encoder", experiment.class_encoder.name, num_classes=n, width=encoder.width
        )
        interaction = models.get(
            "interaction", experiment.interaction.name, **config.knobs(experiment.interaction)
        )
        model = models.RankModel(encoder, class_encoder, interaction, num_classes=n)
        features, _, _ = next(iter(self.evaluation_batches(experiment, "train")))
        model(features)
        return model


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
    return _encode(experiment, problem, cache_dir) if experiment.encoder.frozen else problem


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
    return data.WordPiece(experiment.encoder.path, experiment.data.max_length)


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
    return Problem(
        raw.class_names, splits, None, lambda: models.get("encoder", "identity", width=encoder.width)
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
