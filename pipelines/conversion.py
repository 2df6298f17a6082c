"""Conversion of a published encoder checkpoint to the project's own format."""

import numpy as np

from rank4class import models
from rank4class.models import checkpoints


def convert(path, folder):
    """Reads an encoder's checkpoint of any known format and writes it in our own.

    What was written is read again and compared, before it is called done.

    Args:
      path: see `models.checkpoints.find`.
      folder: where to write; a folder that is empty or not there yet.

    Returns:
      What was found, in words, and the number of its weights.

    Raises:
      FileNotFoundError, FileExistsError, ValueError: the checkpoint cannot be read, or written there.
      OSError: what was written is not what was read.
    """
    source = checkpoints.find(path)
    variables = models.get("encoder", source.encoder, path=path).named_variables()
    checkpoints.save(
        folder,
        encoder=source.encoder,
        settings=source.settings,
        variables=variables,
        vocabulary_from=source.folder,
    )
    written = models.get("encoder", source.encoder, path=folder).named_variables()
    for name, variable in variables.items():
        if not np.array_equal(variable, written[name]):
            raise OSError(f"{folder} does not hold the {name} that was written: is its disk sound?")
    return source.format, sum(int(np.prod(variable.shape)) for variable in variables.values())
