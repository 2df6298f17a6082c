"""Lists of items in TF-Ranking's TFRecord files of `ExampleListWithContext` or of `SequenceExample`.

They are parsed without TF-Ranking, which requires a TensorFlow before 2.16.
"""

import contextlib
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from rank4class import compat
from rank4class.data.labels import listed

BLOCK = 128  # records that are parsed at a time
PADDING = -1  # the label of an item that has none

Features = Mapping[str, Any]  # `tf.train.Feature` by name
Specs = dict[str, tf.io.FixedLenFeature]
# The number of items of each list, int `[B]`; the features of all items, `[R, k]`, and of contexts, `[B, k]`.
Parsed = tuple[np.ndarray, dict[str, np.ndarray], dict[str, tf.Tensor]]


def is_records(path: str) -> bool:
    """Returns whether a file has the name of TFRecord files."""
    return ".tfrecord" in os.path.basename(path)


def blocks(
    path: str, features: Sequence[str], label: str | None
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yields the lists of a TFRecord file by blocks.

    Args:
      path: the file.
      features: numeric features of the items, or of the context, which all items of a list share.
      label: feature of the items with their labels; None gives 0 to all.

    Yields:
      The number of items of each list, int `[B]`, and of all items of the block the values of the features,
      float32 `[R, d]`, and the labels, float32 `[R]`, negative for items without one.

    Raises:
      ValueError: a record cannot be read, or an item lacks a feature or has another number of values.
    """
    try:
        is_sequence, of_items, of_context = _specs(path, features, label)
        parse = _parse_sequences if is_sequence else _parse_example_lists
        first = 1
        for records in tf.data.TFRecordDataset(path).batch(BLOCK).as_numpy_iterator():
            names = [f"query {number}" for number in range(first, first + len(records))]
            first += len(records)
            sizes, columns, contexts = parse(records, names, of_items, of_context)
            columns |= {name: np.repeat(values, sizes, axis=0) for name, values in contexts.items()}
            values = np.concatenate([np.float32(columns[name]) for name in features], axis=1)
            labels = np.zeros(len(values)) if label is None else columns[label][:, 0]
            yield sizes, values, np.float32(labels)
    except (tf.errors.OpError, DecodeError) as error:
        raise ValueError(
            f"{path}: cannot be read: {compat.reason(error)}. Write each query as an ExampleListWithContext, "
            "or each as a SequenceExample, and give each document the same features."
        ) from error


def _specs(path: str, features: Sequence[str], label: str | None) -> tuple[bool, Specs, Specs]:
    """Returns whether records are sequences, and the specs of features of items and of contexts.

    The first values of a feature determine its spec.
    """
    of_items: Specs = {}
    of_context: Specs = {}
    unknown = {*features, *([label] if label else [])}
    present: set[str] = set()
    for record in tf.data.TFRecordDataset(path).as_numpy_iterator():
        is_sequence, context, items = _read(record)
        for specs, example in ((of_context, context), *((of_items, item) for item in items)):
            present |= {*example}
            for name in unknown & {*example}:
                is_float = example[name].HasField("float_list")
                values = example[name].float_list.value if is_float else example[name].int64_list.value
                if values:
                    unknown.remove(name)
                    default = PADDING if name == label else None
                    dtype = tf.float32 if is_float else tf.int64
                    specs[name] = tf.io.FixedLenFeature([len(values)], dtype, default)
        if not unknown:
            return is_sequence, of_items, of_context
    raise ValueError(
        f"{path}: no number in {listed(sorted(unknown))}. Choose data.feature_names and data.label "
        f"among {listed(sorted(present))}."
    )


def _read(record: bytes) -> tuple[bool, Features, list[Features]]:
    """Returns whether a record is a `SequenceExample`, and its context and items, of that the first one."""
    with contextlib.suppress(DecodeError):
        sequence = tf.train.SequenceExample.FromString(record)
        lists = sequence.feature_lists.feature_list
        # Names read from an ExampleListWithContext are serialized features, which begin with a line end.
        if lists and not any(name[:1] in ("", "\n") for name in lists):
            item = {name: each.feature[0] for name, each in lists.items() if each.feature}
            return True, sequence.context.feature, [item]
    context, items = _split(record)
    of_context, *of_items = (tf.train.Example.FromString(x).features.feature for x in (context, *items))
    return False, of_context, of_items


def _split(record: bytes) -> tuple[bytes, Sequence[bytes]]:
    """Returns the serialized context and items of an `ExampleListWithContext`.

    It has the items in field 1 and the context in field 2. Messages with bytes in these fields read them.
    """
    contexts = tf.compat.v1.AttrValue.ListValue.FromString(record).s
    return b"".join(contexts), tf.train.BytesList.FromString(record).value


def _parse_example_lists(
    records: Sequence[bytes], names: Sequence[str], of_items: Specs, of_context: Specs
) -> Parsed:
    contexts, lists = zip(*map(_split, records), strict=True)
    sizes = np.array([*map(len, lists)])
    items = tf.constant([*itertools.chain(*lists)], tf.string)
    columns = tf.io.parse_example(items, of_items, np.repeat(names, sizes)) if of_items else {}
    of_contexts = tf.io.parse_example(contexts, of_context, names) if of_context else {}
    return sizes, {name: values.numpy() for name, values in columns.items()}, of_contexts


def _parse_sequences(
    records: Sequence[bytes], names: Sequence[str], of_items: Specs, of_context: Specs
) -> Parsed:
    of_lists = {
        name: tf.io.FixedLenSequenceFeature(spec.shape, spec.dtype, allow_missing=True)
        for name, spec in of_items.items()
    }
    contexts, lists, lengths = tf.io.parse_sequence_example(records, of_context, of_lists, names)
    sizes = np.max([*lengths.values()], axis=0)
    columns = {}
    for name, values in lists.items():
        is_value = np.arange(sizes.max()) < lengths[name].numpy()[:, None]
        for i in np.flatnonzero(lengths[name] < sizes).tolist():
            if of_items[name].default_value is None:
                raise tf.errors.InvalidArgumentError(
                    None,
                    None,
                    f"{names[i]} has {sizes[i]} documents, but {lengths[name][i]} values of {name}",
                )
        columns[name] = np.full([*is_value.shape, values.shape[2]], PADDING, values.dtype.as_numpy_dtype)
        columns[name][is_value] = values.numpy()[is_value[:, : values.shape[1]]]
    is_item = np.arange(sizes.max()) < sizes[:, None]
    return sizes, {name: values[is_item] for name, values in columns.items()}, contexts
