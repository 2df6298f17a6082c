"""An experiment's dataset and encoder brought together, the frozen encoder's outputs from a cache."""

import contextlib
import dataclasses
import difflib
import hashlib
import io
import json
import os
import sys
import typing
import zipfile
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from absl import logging

from rank4class import data, models
from rank4class.losses.ops import set_sizes
from rank4class.pipelines import config, files


class Outputs(typing.NamedTuple):
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
class Problem:
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

    def blame_training(self, experiment, step):
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
            "interaction", experiment.interaction.name, **config.knobs(experiment.interaction)
        )
        count_prior = self._count_prior(experiment.count_prior)
        model = models.RankModel(encoder, class_encoder, interaction, num_classes=n, count_prior=count_prior)
        features, _, _ = next(iter(self.read(experiment, "train")))
        model(features)
        return model

    def _class_encoder(self, section, width):
        if section.name == "embedding":
            decay = section.weight_decay or 0.0
            knobs = {"num_classes": len(self.class_names), "width": width, "weight_decay": decay}
        elif section.name == "text":
            knobs = {"features": self.class_features}
        else:
            knobs = {"shape": self.class_vectors.shape, "width": width, "vectors": self.class_vectors}
        class_encoder = models.get("class_encoder", section.name, **knobs)
        if not section.attention_layers:
            return class_encoder
        return models.get(
            "class_encoder",
            "attention",
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
            return models.get("count_prior", "learned", **{**config.knobs(section), "most": most})
        return None

    def scorer(self, model, split, count_prior="none"):
        """Returns a function of features to the `Outputs` that a split's labels are about.

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
            return Outputs(scores, where, log_counts)

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


def load(experiment, cache_dir):
    """Loads an experiment's problem.

    With a frozen encoder the splits hold its outputs, and the encoder passes them on: they are
    computed once and kept in `cache_dir`, under a name that follows from what they depend on, unless one of
    the two folders above it keeps them.

    Args:
      experiment: a checked `config.Experiment`.
      cache_dir: folder for the outputs of a frozen encoder.

    Raises:
      FileNotFoundError, ValueError: the dataset or the encoder cannot be loaded, or they do not fit.
    """
    dataset = read_dataset(experiment.data)
    check_class_weights(experiment.data, dataset.splits["train"])
    splits = limit_examples(dataset.splits, experiment.data)
    preprocess = preprocess_of(experiment, dataset)
    if experiment.data.on_invalid_row == "skip":
        splits = _without_unreadable(dataset.class_names, splits, preprocess)
    problem = Problem(
        dataset.class_names,
        splits,
        preprocess,
        _encoder_maker(experiment.encoder, splits),
        augment=augment_of(experiment, dataset),
        hashes=_hashes(dataset.class_names, splits),
    )
    problem = dataclasses.replace(problem, **_class_texts(experiment, dataset.class_names))
    if experiment.encoder.frozen:
        problem = _encode(experiment, problem, cache_dir)
    elif experiment.data.cache:
        problem = _preprocessed_once(experiment, problem)
    problem = _hold_out(problem, experiment.data.held_out)
    return dataclasses.replace(problem, class_weights=_weights_of_seen(experiment.data, problem))


def _encoder_maker(section, splits):
    knobs = config.knobs(section)
    if section.name == "embedding" and "id" in splits["train"].features:
        knobs["num_ids"] = 1 + max(int(split.features["id"].max()) for split in splits.values())
    return lambda: models.get("encoder", section.name, **knobs)


def with_encoder(problem, section):
    """Returns a problem, of an encoder that is not frozen, with one of other knobs."""
    return dataclasses.replace(problem, make_encoder=_encoder_maker(section, problem.splits))


def read_dataset(section):
    """Returns the `data.Dataset` of a `config.Data`, whole."""
    return data.get(section.name, **config.dataset_knobs(section))


def limit_examples(splits, section):
    """Returns name -> split, at most `max_examples` of each.

    Of instances that are known by their ids alone the other splits keep those that training does: of the
    others nothing is learnt.

    Raises:
      ValueError: that leaves a split without an example.
    """
    if section.max_examples is not None and "id" in splits["train"].features:
        return _of_trained(splits, section)
    different = {id(split): split for split in splits.values()}  # one may be two splits
    kept = {key: drawn(split, section.max_examples, section.split_seed) for key, split in different.items()}
    return {name: kept[id(split)] for name, split in splits.items()}


def _of_trained(splits, section):
    trained = drawn(splits["train"], section.max_examples, section.split_seed).features["id"]
    kept = {name: split.select(np.isin(split.features["id"], trained)) for name, split in splits.items()}
    for name, split in kept.items():
        if not len(split):
            most = section.max_examples
            raise ValueError(f"data.max_examples {most} leaves the {name} split without an example: raise it")
    return kept


def drawn(split, most, seed):
    """Returns a split of at most so many examples, drawn where it has more; None keeps all."""
    if most is None or len(split) <= most:
        return split
    return split.select(np.sort(np.random.default_rng(seed).permutation(len(split))[:most]))


def _hashes(class_names, splits):
    different = {id(split): split for split in splits.values()}  # one may be two splits
    of_split = {key: _hash(split) for key, split in different.items()}
    classes = hashlib.sha256(repr(class_names).encode()).hexdigest()
    return {"classes": classes, **{name: of_split[id(split)] for name, split in splits.items()}}


def _hash(split):
    digest = hashlib.sha256()
    for part in (*_bytes(split.labels), *_bytes(split.excluded), *_contents(split)):
        digest.update(part)
    for path in _image_files(split):
        digest.update(str(tf.io.gfile.stat(path).length).encode())
    return digest.hexdigest()


def _bytes(labels):
    """Yields what tells labels, or what is excluded, from others."""
    if isinstance(labels, np.ndarray):
        yield labels.tobytes()
    elif labels is not None:
        yield from (repr(labels.shape).encode(), labels.data.tobytes())
        yield from (ids.astype(np.int64).tobytes() for ids in (labels.indices, labels.indptr))


def _contents(split):
    for array in split.features.values():
        yield repr(array.tolist()).encode() if array.dtype == object else array.tobytes()


def _image_files(split):
    return np.unique(split.features.get("file", []))


def _without_unreadable(class_names, splits, preprocess):
    """Leaves out the images that cannot be read, which takes reading all; what is held as arrays can be."""
    if "file" not in splits["train"].features:
        return splits
    readable, messages = {}, []
    for split in splits.values():
        if id(split) not in readable:  # ImageNet's validation and test are one
            bad = dict(data.unreadable(split, preprocess))
            messages += bad.values()
            readable[id(split)] = split.select([i for i in range(len(split)) if i not in bad])
    data.warn_of_skipped(messages)
    # A dataset says what is wrong with a split or a class that is left without an example.
    return data.Dataset(class_names, {name: readable[id(split)] for name, split in splits.items()}).splits


def _preprocessed_once(experiment, problem):
    splits = {}
    for name, split in problem.splits.items():
        parts = [
            {key: value.numpy()[weights.numpy() > 0] for key, value in features.items() if key != "excluded"}
            for features, _, weights in problem.read(experiment, name)
        ]
        features = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
        splits[name] = dataclasses.replace(split, features=features)
    augment = data.AUGMENTATIONS[experiment.data.augmentation]
    return dataclasses.replace(problem, splits=splits, preprocess=None, augment=augment)


def check_class_weights(section, train):
    """Raises ValueError where `data.class_weights` is to weigh training examples of several classes."""
    if section.class_weights != "none" and train.multi_label:
        raise ValueError(
            "data.class_weights is for single-label data: an example of several classes has several"
        )


def class_weights(section, class_names, counts):
    """Returns what a training example weighs by its class, float32 `[n]`, or None.

    Args:
      section: a `config.Data`.
      class_names: of all `n` classes.
      counts: of their training examples, 0 of those that are held out.
    """
    if section.class_weights == "none":
        return None
    if section.class_weights == "balanced":
        return data.balanced_class_weights(counts)
    if not os.path.exists(section.class_weights):
        raise FileNotFoundError(
            f"data.class_weights {section.class_weights!r} is neither 'none' nor 'balanced' nor a file"
        )
    return data.class_weights(section.class_weights, class_names)


def _weights_of_seen(section, problem):
    seen = np.arange(len(problem.class_names)) if problem.seen is None else problem.seen
    counts = np.zeros(len(problem.class_names), np.int64)
    counts[seen] = problem.splits["train"].class_counts(len(seen))
    weights = class_weights(section, problem.class_names, counts)
    return None if weights is None else weights[seen]


def augment_of(experiment, dataset):
    """Returns the function of a training batch's features and seeds, or None."""
    name = experiment.data.augmentation
    if name == "none":
        return None
    features = dataset.splits["train"].features
    if "image" not in features and "file" not in features:
        raise ValueError(
            f"data.augmentation {name!r} is for images; dataset {experiment.data.name!r} has none"
        )
    if name == "random_crop":
        if "file" not in features:
            raise ValueError("data.augmentation 'random_crop' is for images that come as files")
        if experiment.data.cache:
            raise ValueError("data.cache keeps no whole images, which data.augmentation 'random_crop' needs")
        return data.DecodeAndRandomCrop(experiment.data.image_size)
    preprocess, augment = preprocess_of(experiment, dataset), data.AUGMENTATIONS[name]
    return augment if preprocess is None else lambda features, seeds: augment(preprocess(features), seeds)


def preprocess_of(experiment, dataset):
    """Returns the function of a batch's features, or None."""
    features = dataset.splits["train"].features
    if "file" in features:
        return data.DecodeAndCrop(experiment.data.image_size)
    if not features.keys().isdisjoint({"embedding", "id", "items"}):
        return None
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
    names_of = {}
    for name, tokens in zip(class_names, ids, strict=True):
        names_of.setdefault(tokens.tobytes(), []).append(name)
    for first, *others in names_of.values():
        if others:
            logging.warning(
                "the texts of %s come out as the same tokens as that of %s", ", ".join(others), first
            )


def _hold_out(problem, names):
    """Leaves classes out of training and validation, and the others' examples out of the test split."""
    if not names:
        return problem
    check_held_out(problem.class_names, names)
    if problem.splits["train"].multi_label:
        raise ValueError(
            "data.held_out is for single-label data: an example of several classes belongs to both"
        )
    held_out = np.isin(problem.class_names, names)
    seen = np.flatnonzero(~held_out)
    if len(seen) < 2:
        raise ValueError(f"data.held_out leaves {len(seen)} of {len(held_out)} classes to train on")
    splits = {}
    for split, examples in problem.splits.items():
        kept = held_out[examples.labels] == (split == "test")
        splits[split] = examples.select(kept)
        if split != "test":
            labels = np.searchsorted(seen, splits[split].labels).astype(np.int32)
            splits[split] = dataclasses.replace(splits[split], labels=labels)
        if not kept.any():
            raise ValueError(f"data.held_out leaves the {split} split without an example")
    return dataclasses.replace(problem, splits=splits, seen=seen)


def check_held_out(class_names, names):
    """Raises ValueError where `data.held_out` names what is no class."""
    unknown = sorted(set(names) - set(class_names))
    if unknown:
        close = difflib.get_close_matches(unknown[0], class_names, n=1)
        hint = f", did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"data.held_out names {unknown[0]!r}, which is no class{hint}")


def _encode(experiment, raw, cache_dir):
    encoder = raw.build_encoder(experiment)
    name = f"features-{_fingerprint(experiment, raw, encoder)}.npz"
    path = _kept(cache_dir, name)
    if path is None:
        path = os.path.join(cache_dir, name)
        files.make_writable(cache_dir)
        print(f"Computing the frozen encoder's outputs, once, to {path}")
        encode = tf.function(lambda features: encoder(features, training=False), autograph=False)
        encoded = {split: _outputs(experiment, raw, encode, split) for split in raw.splits}
        content = io.BytesIO()
        np.savez(content, **encoded)
        files.write(path, content.getvalue())
    try:
        with np.load(io.BytesIO(files.read_bytes(path))) as file:
            files.check_stored(file)
            outputs = {split: file[split] for split in raw.splits}
    # A single array is no context, which is a TypeError.
    except (zipfile.BadZipFile, ValueError, KeyError, EOFError, TypeError, MemoryError) as error:
        raise ValueError(f"{path} is damaged: remove it, and it is computed again") from error
    splits = {
        name: dataclasses.replace(raw.splits[name], features={"embedding": h}) for name, h in outputs.items()
    }
    return dataclasses.replace(
        raw,
        splits=splits,
        preprocess=None,
        augment=None,
        make_encoder=lambda: models.get("encoder", "identity", width=encoder.width),
    )


def _kept(folder, name):
    """Returns the path of a file in a folder or the two above it, or None.

    A grid keeps one cache for all of its runs, which are in `ROOT/run` and `ROOT/tuning/run`. The name
    says what the cache depends on, so it does not matter whose it is.
    """
    if files.exists(os.path.join(folder, name)):
        return os.path.join(folder, name)
    above = os.path.abspath(folder) if files.is_local(folder) else folder.rstrip("/")
    for _ in range(2):
        above = os.path.dirname(above)
        with contextlib.suppress(OSError):  # what is above a run's folder may be closed to us
            if files.exists(os.path.join(above, name)):
                return os.path.join(above, name)
    return None


def _outputs(experiment, raw, encode, split):
    total = len(raw.evaluation_batches(experiment, split))
    bar = tf.keras.utils.Progbar(total, verbose=1 if sys.stdout.isatty() else 2, unit_name="batch")
    outputs = []
    for features, _, weights in raw.read(experiment, split):
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
        for part in _contents(split):
            digest.update(part)
        for path in _image_files(split):
            state = tf.io.gfile.stat(path)  # to read every image would take as long as to encode it
            digest.update(f"{state.length} {state.mtime_nsec}".encode())
    return digest.hexdigest()[:16]
