"""MIND's articles as a dataset of TensorFlow Datasets, which writes them once and reads them back."""

import dataclasses
from collections.abc import Callable

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds

from rank4class.data.readers import prepared

COLUMNS = ("id", "category", "title", "abstract", "origin")


@dataclasses.dataclass(eq=False)
class MindConfig(tfds.core.BuilderConfig):
    """The source files; `name` is derived from their content, so that other files are prepared separately.

    Attributes:
      read: function that returns split -> articles (dicts by column), and the messages of skipped rows.
        It is called only if nothing is prepared yet.
    """

    read: Callable | None = None


class _Info(tfds.core.DatasetInfo):
    def initialize_from_bucket(self) -> None:
        """Does nothing: no metadata is published, so that no network access is needed."""


class Mind(tfds.core.GeneratorBasedBuilder):
    """Articles; the metadata has the messages of skipped rows.

    TensorFlow Datasets writes to a temporary folder and renames it at the end: an interrupted preparation
    is never read.
    """

    VERSION = tfds.core.Version("1.0.0")  # raise it with the format: other versions are prepared again

    def _info(self):
        features = tfds.features.FeaturesDict({column: tfds.features.Text() for column in COLUMNS})
        return _Info(builder=self, features=features, metadata=tfds.core.MetadataDict())

    def _split_generators(self, dl_manager):
        del dl_manager  # nothing is downloaded
        splits, skipped = self.builder_config.read()
        self.info.metadata["skipped"] = skipped
        return {name: self._generate_examples(articles) for name, articles in splits.items()}

    def _generate_examples(self, articles):
        for article in articles:
            yield article["id"], {column: article[column] for column in COLUMNS}


def load(config: MindConfig, data_dir: str) -> tuple[dict[str, dict[str, np.ndarray]], list[str]]:
    """Returns the articles of a config, and prepares them first if necessary.

    Args:
      config: the source files.
      data_dir: folder of prepared datasets.

    Returns:
      split -> column -> strings object `[N]`, in the order of the ids; and the messages of skipped rows.

    Raises:
      OSError: the folder cannot be written.
      ValueError: the prepared files are damaged; or as `config.read` raises.
    """
    builder = Mind(config=config, data_dir=data_dir)
    try:
        prepared.prepare(builder)
    except OSError as error:
        if not builder.data_path.exists():  # otherwise another process has prepared it in the meantime
            raise OSError(
                f"data.tfds_dir={data_dir}: {builder.data_dir} cannot be written ({error}). Choose another "
                "folder."
            ) from error
    try:
        splits = {split: _in_order(builder, split) for split in builder.info.splits}
    except (tf.errors.DataLossError, tf.errors.NotFoundError) as error:
        raise ValueError(f"{builder.data_dir}: damaged. Remove it to prepare it again.") from error
    return splits, list(builder.info.metadata["skipped"])


def _in_order(builder, split):
    columns = tfds.as_numpy(builder.as_dataset(split=split, batch_size=-1))
    order = columns["id"].argsort()
    return {
        name: np.array([value.decode() for value in values[order]], object)
        for name, values in columns.items()
    }
