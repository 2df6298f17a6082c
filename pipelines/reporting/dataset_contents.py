"""The contents of a dataset's examples: duplicates, readable images, and numbers of tokens."""

import dataclasses
import hashlib
import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import sklearn.preprocessing
import tensorflow as tf

from rank4class import data
from rank4class.progress import Progress

BATCH = 1_000  # examples in memory at a time


@dataclasses.dataclass(frozen=True)
class Images:
    """The images of a split; `sizes` are heights and widths, int32 `[N, 2]`, `unreadable` messages."""

    readable: data.Split
    sizes: np.ndarray
    digests: list[bytes]
    unreadable: list[str]


def read_images(name: str, split: data.Split) -> Images:
    """Reads all image files of a split; raises ValueError if none can be read."""
    readable, sizes, digests, unreadable = [], [], [], []
    images = data.read_each(split, data.ContentAndSize())
    for i, (features, message) in enumerate(Progress(f"reading {name}", "image", len(split)).over(images)):
        if message is None:
            assert features is not None
            readable.append(i)
            sizes.append(features["size"][0].numpy())
            digests.append(hashlib.blake2b(features["content"][0].numpy(), digest_size=16).digest())
        else:
            unreadable.append(message)
    if not readable:
        raise ValueError(f"{name}: no image of this split can be read. The first: {unreadable[0]}")
    return Images(split.select(readable), np.array(sizes), digests, unreadable)


def find_duplicates(
    split: str, other: str, contents: Mapping[str, Iterable[Any]], labels: Mapping[str, Iterable[Any]]
) -> tuple[list[tuple[int, int]], int]:
    """Returns pairs of an example and its first copy (earlier, in one split); how many have other labels."""
    seen: dict[Any, tuple[int, set]] = {}  # content -> index of its first example, labels of all
    pairs, relabeled = [], 0
    for name in dict.fromkeys((other, split)):
        for i, (content, label) in enumerate(zip(contents[name], labels[name], strict=True)):
            if name == split and content in seen:
                first, known_labels = seen[content]
                pairs.append((i, first))
                relabeled += known_labels != {label}
            if name == other:
                seen.setdefault(content, (i, set()))[1].add(label)
    return pairs, relabeled


def token_counts(tokenizer: data.Tokenizer, split: data.Split) -> np.ndarray:
    """Returns the number of tokens of each text before cutting, int64 `[N]`."""
    lengths = []
    progress = Progress("counting tokens", "text", len(split))
    for start in progress.over(range(0, len(split), BATCH), BATCH):
        texts = {name: tf.constant(v[start : start + BATCH]) for name, v in split.features.items()}
        lengths.append(tokenizer.lengths(texts))
    return np.concatenate(lengths)


def pixel_statistics(images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns mean and standard deviation of each channel, float64 `[channels]`."""
    scaler = sklearn.preprocessing.StandardScaler()
    for start in range(0, len(images), BATCH):
        pixels = images[start : start + BATCH].reshape(-1, images.shape[-1])
        scaler.partial_fit(pixels.astype(np.float64))
    return scaler.mean_, np.sqrt(scaler.var_)


def truncation(lengths: np.ndarray, max_length: int, limit: int) -> str:
    """Returns a sentence on the texts that `data.max_length` cuts."""
    cut, longest = np.mean(lengths > max_length), lengths.max()
    if not cut:
        return f"data.max_length={max_length} cuts no training text; the longest has {longest:,} tokens."
    of_encoder = f"; the encoder takes at most {limit:,}" if longest > limit else ""
    return f"data.max_length={max_length} cuts {cut:.2%} of the training texts{of_encoder}."


def class_sizes(counts: Mapping[str, np.ndarray]) -> list[list[str]]:
    """Returns the rows of a histogram: numbers of classes by their number of examples in each split."""
    ends = [0, *(2**i for i in range(int(max(values.max() for values in counts.values())).bit_length() + 1))]
    histograms = [np.histogram(values, ends)[0] for values in counts.values()]
    ranges = [str(a) if b - a == 1 else f"{a:,}-{b - 1:,}" for a, b in itertools.pairwise(ends)]
    rows = zip(ranges, *([f"{count:,}" for count in each] for each in histograms), strict=True)
    return [["examples", *counts], *map(list, rows)]
