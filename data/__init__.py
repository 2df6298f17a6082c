"""Data: files to `tf.data` batches of `(features, labels, weights)`."""

from rank4class.data.datasets import Dataset, Split, get
from rank4class.data.pipeline import evaluation_batches, training_batches
from rank4class.data.text import WordPiece

__all__ = ["Dataset", "Split", "WordPiece", "evaluation_batches", "get", "training_batches"]
