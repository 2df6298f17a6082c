"""The public names of `rank4class.data`, which imports them at the first use of one."""

from rank4class.data.batching import (
    UNREADABLE,
    evaluation_batches,
    evaluation_order,
    example_weights,
    in_order,
    naming_errors,
    raise_first_unreadable,
    read_each,
    training_batches,
    training_indices,
    unreadable,
)
from rank4class.data.dataset import Dataset, Split, draw, draw_pairs
from rank4class.data.kind import KINDS, kind_of
from rank4class.data.kinds.arrays import Kind, RawInput
from rank4class.data.lazy_arrays import Origins, StoredRows
from rank4class.data.preprocessing.cells import CellEncoder
from rank4class.data.preprocessing.images import (
    AUGMENTATIONS,
    ContentAndSize,
    DecodeAndCrop,
    DecodeAndRandomCrop,
    Rescale,
)
from rank4class.data.preprocessing.tokenizers import TOKENIZERS, Tokenizer
from rank4class.data.readers.class_tables import (
    balanced_class_weights,
    class_descriptions,
    class_frequencies,
    class_weights,
)
from rank4class.data.readers.columns import normalize_text
from rank4class.data.registry import DATASETS, LABELED, get, get_labeled, warn_of_skipped
