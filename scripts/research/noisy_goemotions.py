"""GoEmotions with wrong training labels, to study losses."""

import dataclasses

import numpy as np

from rank4class.data.dataset import Dataset
from rank4class.data.datasets.goemotions import goemotions
from rank4class.data.registry import DATASETS

# Emotions of one sentiment, by Demszky et al. (2020), "GoEmotions"; "neutral" is in none.
SENTIMENTS = (
    "admiration amusement approval caring desire excitement gratitude joy love optimism pride relief",
    "anger annoyance disappointment disapproval disgust embarrassment fear grief nervousness remorse sadness",
    "confusion curiosity realization surprise",
)


@DATASETS.register("noisy_goemotions")
def noisy_goemotions(
    path: str | None = None, label_noise: float = 0.2, confusable: bool = False, split_seed: int = 0
) -> Dataset:
    """GoEmotions' comments of one emotion, a fraction of the training examples with another class.

    Args:
      path: see `goemotions`.
      label_noise: fraction of the training examples that get another class, drawn uniformly.
      confusable: whether the other class has the same sentiment, but for neutral comments.
      split_seed: seed of the draw.
    """
    dataset = goemotions(path)
    train = dataset.splits["train"]
    assert isinstance(train.labels, np.ndarray)
    rng = np.random.default_rng(split_seed)
    n = len(dataset.class_names)
    changed = rng.random(len(train)) < label_noise
    others = (train.labels + rng.integers(1, n, len(train))) % n
    if confusable:
        group = {name: i for i, names in enumerate(SENTIMENTS) for name in names.split()}
        groups = np.array([group.get(name, -1) for name in dataset.class_names])
        alike = (groups[:, None] == groups) & ~np.eye(n, dtype=bool)
        for c in np.flatnonzero(alike.any(axis=1)):
            others[train.labels == c] = rng.choice(np.flatnonzero(alike[c]), np.sum(train.labels == c))
    labels = np.where(changed, others, train.labels).astype(train.labels.dtype)
    return dataclasses.replace(
        dataset, splits={**dataset.splits, "train": dataclasses.replace(train, labels=labels)}
    )
