"""Where datasets come from: lines of a text file, or TensorFlow Datasets."""

import os


def lines(path):
    """Yields (`path:number`, line) for every line of a UTF-8 file, which may not be empty."""
    if not os.path.isfile(path):
        raise FileNotFoundError(f"no file {path}")
    number = 0
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                # utf-8-sig: some editors put a byte order mark before the first line.
                yield f"{path}:{number}", line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise ValueError(f"{path}:{number} is not UTF-8: {error.reason}") from error
    if not number:
        raise ValueError(f"{path} is empty")


def tfds_builder(name, title):
    """Returns TensorFlow Datasets' builder of that name, its files prepared.

    Args:
      name: as TensorFlow Datasets calls the dataset.
      title: what an error calls it.

    Raises:
      OSError: the files are not there and cannot be downloaded.
    """
    import tensorflow_datasets as tfds  # slow to import, and not needed for a folder

    builder = tfds.builder(name, try_gcs=False)
    try:
        builder.download_and_prepare()
    except OSError as error:
        raise OSError(
            f"{title} could not be downloaded; set data.path to a folder of its files ({error})"
        ) from error
    return builder
