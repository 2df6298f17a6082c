"""The commands: absl binaries. Importing this package chooses Keras 2, and keeps the home folder clean."""

import os
import warnings

from rank4class import compat

compat.require_extra("train")
compat.choose_keras_2()
# Without them, Keras writes a file to the home folder, and Matplotlib makes a folder besides its cache.
_CACHE = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
os.environ.setdefault("KERAS_HOME", os.devnull)
os.environ.setdefault("MPLCONFIGDIR", os.path.join(_CACHE, "matplotlib"))
warnings.filterwarnings("ignore", category=FutureWarning, module=r"google\.api_core")
warnings.filterwarnings("ignore", message="pkg_resources is deprecated", category=UserWarning)
