"""Datasets that TensorFlow Datasets prepares."""

import contextlib
import io
import sys
from typing import Any

from absl import logging


def builder(name: str, title: str, data_dir: str | None = None) -> Any:
    """Returns TensorFlow Datasets' `DatasetBuilder` of that name; OSError if it cannot be prepared."""
    import tensorflow_datasets as tfds  # slow to import
    from tensorflow_datasets.core.download.download_manager import NonMatchingChecksumError

    builder = tfds.builder(name, data_dir=data_dir, try_gcs=False)
    if builder.is_prepared():
        return builder
    logging.info("TensorFlow Datasets prepares %s in %s", builder.name, builder.data_dir)
    tfds.display_progress_bar(sys.stderr.isatty())
    config = tfds.download.DownloadConfig(try_download_gcs=False)  # not from Google's copy
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            builder.download_and_prepare(download_config=config)
    except (OSError, NonMatchingChecksumError) as error:  # the publisher may have changed the files
        raise OSError(
            f"data.tfds_dir={data_dir}: {title} cannot be downloaded to and prepared in {builder.data_dir} "
            f"({error}). Set data.path to a folder of its files."
        ) from error
    return builder
