"""The contents of a dataset's examples: duplicates, readable images, and numbers of tokens."""

import itertools
from collections.abc import Mapping

import numpy as np
import pandas as pd
import sklearn.preprocessing

from rank4class import data
from rank4class.data.kinds.arrays import digests
from rank4class.progress import Progress

BATCH = 1_000  # examples in memory at a time


def read_images(name: str, split: data.Split) -> pd.DataFrame:
    """Reads all image files of a split; raises ValueError if none can be read.

    Returns:
      A row for each image, with its `digest`, `height` and `width`, or the `error` that it raises.
    """
    rows = []
    images = data.read_each(split, data.ContentAndSize())
    for features, error in Progress(f"reading {name}", "image", len(split)).over(images):
        if features is None:
            rows.append((None, None, None, error))
        else:
            rows.append((*digests([features["content"][0].numpy()]), *features["size"][0].numpy(), None))
    table = pd.DataFrame(rows, columns=["digest", "height", "width", "error"])
    if table["error"].notna().all():
        raise ValueError(f"{name}: no image of this split can be read. The first: {table['error'][0]}")
    return table


def find_duplicates(examples: pd.DataFrame, others: pd.DataFrame) -> tuple[pd.Series, int]:
    """Returns the first copy of each example in other ones (earlier, in one split), and relabeled copies.

    Args:
      examples, others: `content` and `label` of the examples of two splits, or twice those of one.

    Returns:
      The index of the first copy by the index of the example, and the number of examples that have a copy
      with another label.
    """
    copies = others.groupby("content")["label"].agg(["first", "nunique"])
    copies["index"] = others.drop_duplicates("content").reset_index().set_index("content")["index"]
    joined = examples.join(copies, on="content", how="inner")
    differs = joined["label"] != joined["first"]
    if others is examples:  # copies are compared with earlier ones
        differs = differs.groupby(joined["content"]).cummax()[joined["content"].duplicated()]
        joined = joined.loc[differs.index]
    else:
        differs |= joined["nunique"] > 1
    return joined["index"], int(differs.sum())


def pixel_statistics(images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns mean and standard deviation of each channel, float64 `[channels]`."""
    scaler = sklearn.preprocessing.StandardScaler()
    for start in range(0, len(images), BATCH):
        pixels = images[start : start + BATCH].reshape(-1, images.shape[-1])
        scaler.partial_fit(pixels.astype(np.float64))
    return scaler.mean_, np.sqrt(scaler.var_)


def class_sizes(counts: Mapping[str, np.ndarray]) -> pd.DataFrame:
    """Returns a histogram: numbers of classes by their number of examples in each split."""
    ends = [0, *(2**i for i in range(int(max(values.max() for values in counts.values())).bit_length() + 1))]
    ranges = [str(a) if b - a == 1 else f"{a:,}-{b - 1:,}" for a, b in itertools.pairwise(ends)]
    return pd.DataFrame({"examples": ranges} | {n: np.histogram(v, ends)[0] for n, v in counts.items()})
