"""Pipelines: experiments of losses, models and data, from their config to their report."""

import os

from rank4class import compat

compat.require_extra("train")
compat.choose_keras_2()
compat.require_keras_2("rank4class.pipelines")
# A notebook shows what TensorFlow writes of devices when it is imported; set it to 0 to read that.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
