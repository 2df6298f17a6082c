"""The words of texts, as vectors beside or in place of those of a text encoder."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from absl import logging

from rank4class import data, models
from rank4class.data.dataset import map_splits
from rank4class.pipelines.task_data.task_data import TaskData

MAX_WEIGHTS = 2**26  # terms times classes
MAX_PRODUCTS = 10**11  # multiplications of the solver in a pass over the examples


def add(raw: Mapping[str, data.Split], options: Mapping[str, Any], task_data: TaskData) -> TaskData:
    """Returns a task with the vectors of the words, of a new encoder or of that of its `inputs`.

    They are the feature `words`; of a task whose encoder is "words" they are the only one, `embedding`. The
    values of the columns beside the texts, `cells`, follow those of the words.

    Args:
      raw: the splits of the task with their texts.
      options: of a new encoder.
      task_data: the task after its texts have been encoded. It stays as it is if the words beside an encoder
        would have too many weights, or take too long to solve, or if no two texts share one.
    """
    inputs = task_data.inputs
    words = inputs.words
    if words is None:
        words = models.get("encoder", "words", **options)
        cells = raw["train"].features.get("cells")
        try:
            words.adapt(raw["train"].features)
        except ValueError:
            if inputs.preprocess is None or cells is not None:
                raise
            return task_data
        inputs = dataclasses.replace(inputs, words=words)
        if cells is not None:
            inputs = dataclasses.replace(inputs, cells=data.CellEncoder.fit_scaled(cells))
    assert words.width is not None
    vectors = map_splits(lambda split: inputs.rows_of_words(split.features), raw)
    name = inputs.name_of_words
    n = len(task_data.class_names)
    if name == "words" and (words.width * n > MAX_WEIGHTS or vectors["train"].nnz * n > MAX_PRODUCTS):
        if inputs.cells is not None:
            columns = inputs.columns[inputs.num_texts :]
            raise ValueError(
                f"data.feature_columns={columns}: join words, and {n:,} classes of {words.width:,} words are "
                "too many. Choose data.text_column alone."
            )
        logging.info("words='auto': %d classes of %d words are too many, and are left out", n, words.width)
        return task_data
    splits = {}
    for key, split in task_data.splits.items():
        others = split.features if name == "words" else {}
        splits[key] = dataclasses.replace(split, features={**others, name: vectors[key]})
    task_data = dataclasses.replace(task_data, splits=splits, inputs=inputs)
    if name == "words":
        return task_data
    identity = functools.partial(models.get, "encoder", "identity", width=vectors["train"].shape[1])
    return dataclasses.replace(task_data, preprocess=None, make_encoder=identity)
