"""Data: files to `tf.data` batches of `(features, labels, weights)`."""

from rank4class.data.class_tables import balanced_class_weights, class_descriptions, class_weights
from rank4class.data.datasets import get, warn_of_skipped
from rank4class.data.image import AUGMENTATIONS, ContentAndSize, DecodeAndCrop, DecodeAndRandomCrop, Rescale
from rank4class.data.pipeline import (
    UNREADABLE,
    NamingErrors,
    blame,
    evaluation_batches,
    read_each,
    training_batches,
    training_indices,
    unreadable,
)
from rank4class.data.splits import Dataset, Split, draw, draw_pairs
from rank4class.data.text import WordPiece
from rank4class.data.text_file import folded

__all__ = [
    "AUGMENTATIONS",
    "UNREADABLE",
    "ContentAndSize",
    "Dataset",
    "DecodeAndCrop",
    "DecodeAndRandomCrop",
    "NamingErrors",
    "Rescale",
    "Split",
    "WordPiece",
    "balanced_class_weights",
    "blame",
    "class_descriptions",
    "class_weights",
    "draw",
    "draw_pairs",
    "evaluation_batches",
    "folded",
    "get",
    "read_each",
    "training_batches",
    "training_indices",
    "unreadable",
    "warn_of_skipped",
]
