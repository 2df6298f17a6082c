"""Data: files to `tf.data` batches of `(features, labels, weights)`."""

import importlib.util
import typing

from rank4class import compat

compat.choose_keras_2()  # tensorflow_text uses tf.keras when it is imported
compat.require_extra("data")

if typing.TYPE_CHECKING:
    from rank4class.data.names import *


def __getattr__(name: str) -> object:
    """Imports all names, and TensorFlow, at the first use of one: checks of files need neither."""
    if importlib.util.find_spec(f"{__name__}.{name}"):
        raise AttributeError(name)  # Python imports the module
    names = importlib.import_module(f"{__name__}.names")
    globals().update({public: value for public, value in vars(names).items() if public[0] != "_"})
    return getattr(names, name)
