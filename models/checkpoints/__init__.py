"""Checkpoints of published encoders: recognition of their formats, strict import, and conversion."""

from rank4class.models.checkpoints.conversion import convert, save
from rank4class.models.checkpoints.formats import FORMATS, TENSORFLOW_FORMATS, Checkpoint, find
from rank4class.models.checkpoints.hugging_face import hugging_face_files
