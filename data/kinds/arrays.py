"""Arrays of numbers: the base class of all kinds of examples."""

import hashlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse
import tensorflow as tf

from rank4class.data import lazy_arrays
from rank4class.data.kind import KINDS
from rank4class.data.readers import arrays, rows, tables, text_rows
from rank4class.data.readers.columns import Columns

RawInput = tuple[str, dict[str, Any]]
Arrays = Mapping[str, Any]  # see `Split.features`
Specs = Mapping[str, tf.TensorSpec]


@KINDS.register("array")
class Kind:
    """Examples of one array of numbers each, such as vectors; the base class of all kinds.

    Another kind is a class in a file of `data/kinds/`, registered under the name of its feature.

    Attributes:
      preprocessor: class of `preprocess`, with `settings` and `from_settings`; or None.
      reads_files: whether examples are read when they are used, and may be unreadable.
      tokenizes: whether `preprocess` is the tokenizer of a text encoder.
      has_ids: whether instances are known by their ids alone.
      ranks_items: whether the classes of an example are the positions in its list of items.
      has_rows: whether inputs of predictions are rows of text.
      has_pixels: whether examples are arrays of pixels.
      preprocesses_once: whether `preprocess` is applied once to all examples, and not to each batch.
      duplicates: a sentence that says which examples are duplicates.
      usage: feature -> inputs of an exported model, as Python for a model card.
    """

    preprocessor: Any = None
    reads_files = tokenizes = has_ids = ranks_items = has_rows = has_pixels = False
    preprocesses_once = False
    duplicates = "Examples whose values are all equal are duplicates."
    usage: Mapping[str, str] = {}

    def specs(self, features: Arrays) -> dict[str, tf.TensorSpec]:
        """Returns the specs of a batch of a split's features, with None for the number of examples.

        >>> Kind().specs({"text": np.array(["a", "b"], object)})
        {'text': TensorSpec(shape=(None,), dtype=tf.string, name=None)}
        """
        dtypes = {name: tf.string if v.dtype == object else v.dtype for name, v in features.items()}
        return {name: tf.TensorSpec([None, *features[name].shape[1:]], dtypes[name]) for name in features}

    def contents(self, *splits: Arrays) -> np.ndarray:
        """Returns a digest `[N]` for each example of the features of splits, equal to those of duplicates."""
        examples = (zip(*map(_rows_as_bytes, features.values()), strict=True) for features in splits)
        return digests(map(b"".join, itertools.chain(*examples)))

    def preprocess(self, features: Arrays, image_size: int, tokenizer: Callable) -> Callable | None:
        """Returns the function from a batch's features to an encoder's, or None, for the features of a split.

        `tokenizer` returns the tokenizer of the text encoder.
        """
        del features, image_size, tokenizer
        return None

    def restore(self, name: str, settings: dict[str, Any]) -> Any:
        """Returns what `preprocess` returned, from the name of its class and its `settings`."""
        del name
        return self.preprocessor.from_settings(settings)

    def augment(self, name: str, image_size: int, preprocess: Callable | None) -> Callable:
        """Returns the function of a training batch's features and seeds that replaces `preprocess`.

        Raises:
          ValueError: the augmentation does not fit the kind.
        """
        raise ValueError(f"data.augmentation={name!r}: the dataset has no images. Set it to 'none'.")

    def raw_specs(self, specs: Specs) -> dict[str, tf.TensorSpec]:
        """Returns the specs of a batch of inputs to predict, for those of a batch of examples."""
        return dict(specs)

    def read(
        self, path: str, specs: Specs, bad_rows: rows.BadRows, columns: Columns, ids: Mapping[str, int]
    ) -> Iterator[RawInput]:
        """Yields the inputs of a file or folder, as a model takes them.

        Args:
          path: texts or ids as `.txt` (one per line, without blank lines at the end), `.tsv`, `.csv` or
            `.jsonl`, or "-" for one per line of standard input; texts may be empty; an image, or a folder of
            images and folders; arrays as `.npy` or `.npz` `[N, ...]`, in the range of the training data;
            texts, images and vectors also as the tables of dataset `table`; or queries as SVMlight rows, or
            in a TFRecord file of TF-Ranking's, for a model trained on such files. A text file may be
            compressed, as `.csv.gz`.
          specs: from `raw_specs`.
          bad_rows: the policy for invalid rows.
          columns: of the inputs, and of labels, which are not read.
          ids: name -> id, for a model of ids.

        Yields:
          The name, `path:line`, `path[index]` or the image's path, and feature -> value.

        Raises:
          FileNotFoundError: no such file or folder.
          ValueError: an empty file, one of another format, or an invalid row.
        """
        if path != text_rows.STANDARD_INPUT or not self.has_rows:
            tables.check_exists(path)
        if columns.text_pair_column is not None and "text_pair" not in specs:
            raise ValueError(
                f"text_pair_column={columns.text_pair_column}: the model takes one text. Leave it out."
            )
        return self._read(path, specs, bad_rows, columns, ids)

    def _read(self, path, specs, bad_rows, columns, ids):
        if tables.files_of(path)[1:] == [os.path.join(path, arrays.PAIR[1])]:
            path = os.path.join(path, arrays.PAIR[0])
        if not path.lower().endswith((".npy", ".npz")):
            yield from self._read_table(path, specs, bad_rows, columns)
            return
        array = arrays.load(path, *specs, "x")
        if not array.shape or not len(array):
            raise ValueError(f"{path}: no row. Give an array with rows.")
        zeros = np.zeros(array.shape[1:], array.dtype)
        self.features_of(zeros, specs, ids, path)  # refuses the type or shape once for all rows
        for i, row in enumerate(array):
            with bad_rows.row():
                yield f"{path}[{i}]", self.features_of(row, specs, ids, f"{path}[{i}]")

    def _read_table(
        self, path: str, specs: Specs, bad_rows: rows.BadRows, columns: Columns
    ) -> Iterator[RawInput]:
        """Yields the vectors of a table."""
        if "embedding" not in specs:
            raise ValueError(f"{path}: unknown format. Give an array as .npy or .npz.")
        if not tables.is_table(path):
            raise text_rows.unknown_format(path, ".npy", *tables.FORMATS)
        files = tables.files_of(path)
        if not arrays.is_arrays(path):
            columns = tables.choose_inputs(columns, files[0])
        columns = columns.without_labels()._replace(has_header=not columns.by_position)
        reader = tables.Reader(columns, bad_rows, specs["embedding"].shape[1])
        for file in files:
            for block in filter(lambda block: block.numbers, reader.blocks(file)):
                vectors = block.features["embedding"]
                for number, i in zip(block.numbers, range(vectors.shape[0]), strict=True):
                    vector = vectors[[i]].toarray()[0] if scipy.sparse.issparse(vectors) else vectors[i]
                    yield tables.origin(file, number), {"embedding": vector}

    def check_columns(self, path: str, **columns: str) -> None:
        """Raises ValueError for a column, by the argument that selects it, that a path of `read` lacks."""
        for name, column in columns.items():
            if not self.has_rows:
                raise ValueError(f"{name}={column}: the inputs of the model have no columns. Leave it out.")
        text_rows.check_has_columns(path, **columns)

    def features_of(self, value: Any, specs: Specs, ids: Mapping[str, int], where: str) -> dict[str, Any]:
        """Returns the raw features of one input; raises ValueError if the model takes other inputs.

        It is an array, a text, a pair of texts, the path of an image, or the name of an id; `where` is its
        name in messages.
        """
        del ids
        [(name, spec)] = specs.items()
        array = np.asarray(value)
        if not spec.shape[1:].is_compatible_with(array.shape):
            raise ValueError(
                f"{where}: shape {array.shape}, but the model takes {spec.shape[1:]}. Reshape it."
            )
        return {name: self._numbers(where, array, spec)}

    def _numbers(self, source: str, array: np.ndarray, spec: tf.TensorSpec) -> np.ndarray:
        """Returns numbers in the dtype of the training; raises ValueError if they show another range."""
        fits = array.dtype.kind in ("iu" if spec.dtype.is_integer else "biuf")
        if fits:
            with np.errstate(over="ignore"):  # overflow gives infinity
                numbers = array.astype(spec.dtype.as_numpy_dtype)
            fits = not spec.dtype.is_integer or np.array_equal(numbers, array)
        if not fits:
            limits = f" in {spec.dtype.min}..{spec.dtype.max}" if spec.dtype.is_integer else ""
            raise ValueError(
                f"{source}: {array.dtype}, expected {spec.dtype.name}{limits}. Convert the array."
            )
        if not np.isfinite(numbers).all():
            raise ValueError(f"{source}: a number is not finite. Correct it.")
        return numbers

    def stack(self, inputs: Sequence[dict[str, Any]]) -> dict[str, np.ndarray]:
        """Returns the features of a batch of inputs."""
        dtypes = {name: getattr(value, "dtype", object) for name, value in inputs[0].items()}
        return {name: np.array([each[name] for each in inputs], dtypes[name]) for name in dtypes}


def digests(contents: Iterable[bytes]) -> np.ndarray:
    """Returns a digest of each content, bytes `[N]`."""
    return np.fromiter((hashlib.blake2b(each, digest_size=16).digest() for each in contents), "S16")


def _rows_as_bytes(array: Any) -> Iterator[bytes]:
    if not isinstance(array, scipy.sparse.csr_array):
        for block in lazy_arrays.blocks(array):
            content = block.tobytes()
            size = block[:1].nbytes
            yield from (content[start : start + size] for start in range(0, len(content), size))
        return
    for start, end in itertools.pairwise(array.indptr):
        yield array.indices[start:end].tobytes() + array.data[start:end].tobytes()
