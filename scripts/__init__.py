"""The commands: absl binaries. Importing this package silences the start-up messages of TensorFlow."""

import os
import warnings

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
warnings.filterwarnings("ignore", category=FutureWarning, module=r"google\.api_core")
warnings.filterwarnings("ignore", message="pkg_resources is deprecated", category=UserWarning)
