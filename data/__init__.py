"""Data: files to `tf.data` batches of `(features, labels, weights)`."""

from rank4class.data.class_texts import class_descriptions
from rank4class.data.datasets import get
from rank4class.data.image import DecodeAndCrop, Rescale
from rank4class.data.pipeline import evaluation_batches, training_batches
from rank4class.data.splits import Dataset, Split
from rank4class.data.text import WordPiece

__all__ = [
    "Dataset",
    "DecodeAndCrop",
    "Rescale",
    "Split",
    "WordPiece",
    "class_descriptions",
    "evaluation_batches",
    "get",
    "training_batches",
]
