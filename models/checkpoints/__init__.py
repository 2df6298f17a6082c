"""Checkpoints of published encoders: recognition of their formats, strict import."""

from rank4class.models.checkpoints import pytorch
from rank4class.models.checkpoints.checkpoint import (
    FORMATS,
    TENSOR_FORMATS,
    Checkpoint,
    NameMap,
    Tensors,
    model_garden_names,
)
from rank4class.models.checkpoints.formats import find
from rank4class.models.checkpoints.hugging_face import hugging_face_files, sentence_pooling
from rank4class.registry import HUGGING_FACE
