"""Checkpoints of published encoders: recognition of their formats, strict import."""

from rank4class.models.checkpoints.checkpoint import Checkpoint
from rank4class.models.checkpoints.formats import FORMATS, TENSORFLOW_FORMATS, find
from rank4class.models.checkpoints.hugging_face import hugging_face_files
