"""MIND as TensorFlow Datasets keeps it: prepared once, in shards, read back without the published files."""

import dataclasses
from collections.abc import Callable

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds

COLUMNS = ("id", "category", "title", "abstract", "origin")


@dataclasses.dataclass(eq=False)
class MindConfig(tfds.core.BuilderConfig):
    """Which files: `name` follows from their content, so that others are prepared apart.

    Attributes:
      read: function that returns split -> articles (dicts by column), and the messages of the rows that
        it left out. It is called only where nothing is prepared yet.
    """

    read: Callable | None = None


class _Info(tfds.core.DatasetInfo):
    def initialize_from_bucket(self):
        """Nothing of it is published: the network is not asked."""


class Mind(tfds.core.GeneratorBasedBuilder):
    """Articles; the metadata keeps the messages of the rows that were left out.

    TensorFlow Datasets writes into a folder of another name and renames it at the end: what was killed
    on the way is not taken for prepared.
    """

    VERSION = tfds.core.Version("1.0.0")  # what older code prepared is not read by code of a newer one

    def _info(self):
        features = tfds.features.FeaturesDict({column: tfds.features.Text() for column in COLUMNS})
        return _Info(builder=self, features=features, metadata=tfds.core.MetadataDict())

    def _split_generators(self, dl_manager):
        del dl_manager  # nothing is downloaded
        splits, skipped = self.builder_config.read()
        for name, articles in splits.items():
            if not articles:  # which TensorFlow Datasets cannot write
                raise ValueError(f"the {name} split has no example")
        self.info.metadata["skipped"] = skipped
        return {name: self._generate_examples(articles) for name, articles in splits.items()}

    def _generate_examples(self, articles):
        for article in articles:
            yield article["id"], {column: article[column] for column in COLUMNS}


def prepared(config, data_dir=None):
    """Returns what is prepared of some files, after preparing it where it is not.

    Args:
      config: a `MindConfig`.
      data_dir: folder of what TensorFlow Datasets has prepared; None takes its own.

    Returns:
      split -> column -> strings object `[N]`, in the order of the ids; and the messages of the rows that
      were left out.

    Raises:
      OSError: the folder cannot be written.
      ValueError: what is prepared is damaged; or as `config.read` raises.
    """
    builder = Mind(config=config, data_dir=data_dir)
    _prepare(builder)
    try:
        splits = {split: _in_order(builder, split) for split in builder.info.splits}
    except (tf.errors.DataLossError, tf.errors.NotFoundError) as error:
        raise ValueError(f"{builder.data_dir} is damaged: remove it, and it is prepared again") from error
    return splits, list(builder.info.metadata["skipped"])


def _prepare(builder):
    try:
        builder.download_and_prepare(download_config=tfds.download.DownloadConfig(try_download_gcs=False))
    except OSError as error:
        if not builder.data_path.exists():  # else another program has prepared it in the meantime
            raise OSError(f"data.tfds_dir: {builder.data_dir} cannot be written ({error})") from error


def _in_order(builder, split):
    columns = tfds.as_numpy(builder.as_dataset(split=split, batch_size=-1))
    order = columns["id"].argsort()
    return {
        name: np.array([value.decode() for value in values[order]], object)
        for name, values in columns.items()
    }
