"""GoEmotions with wrong training labels, to study losses."""

import dataclasses

import numpy as np

from rank4class.data.dataset import Dataset
from rank4class.data.datasets.goemotions import goemotions
from rank4class.data.registry import DATASETS


@DATASETS.register("noisy_goemotions")
def noisy_goemotions(path: str | None = None, label_noise: float = 0.2, split_seed: int = 0) -> Dataset:
    """GoEmotions' comments of one emotion, a fraction of the training examples with another class.

    Args:
      path: see `goemotions`.
      label_noise: fraction of the training examples that get another class, drawn uniformly.
      split_seed: seed of the draw.
    """
    dataset = goemotions(path)
    train = dataset.splits["train"]
    assert isinstance(train.labels, np.ndarray)
    rng, n = np.random.default_rng(split_seed), len(dataset.class_names)
    changed = rng.random(len(train)) < label_noise
    others = (train.labels + rng.integers(1, n, len(train))) % n
    labels = np.where(changed, others, train.labels).astype(train.labels.dtype)
    return dataclasses.replace(
        dataset, splits={**dataset.splits, "train": dataclasses.replace(train, labels=labels)}
    )
