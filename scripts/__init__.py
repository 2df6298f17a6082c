"""The commands: absl binaries. Importing this package chooses Keras 2 and silences TensorFlow's start-up."""

import os
import warnings

from rank4class import compat

compat.require_extra("train")
compat.choose_keras_2()
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
warnings.filterwarnings("ignore", category=FutureWarning, module=r"google\.api_core")
warnings.filterwarnings("ignore", message="pkg_resources is deprecated", category=UserWarning)
