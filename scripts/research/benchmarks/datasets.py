"""Generated datasets in the published layouts, with examples about as large as the real ones."""

import atexit
import functools
import os
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from rank4class.pipelines import config, configs
from rank4class.pipelines.configs import goemotions_minilm
from rank4class.scripts.research.datasets import synthetic  # noqa: F401, registers it

IMAGES = 200
# Of the word pieces of GoEmotions' training comments with one label; the last is the 99.9% quantile.
GOEMOTIONS_DECILES = (1, 6, 8, 11, 14, 16, 19, 22, 25, 29, 42)


@functools.cache
def root() -> str:
    path = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, path)
    return path


@functools.cache
def _folder_of(write: Callable[[str], None]) -> str:
    folder = os.path.join(root(), write.__name__)
    os.mkdir(folder)
    write(folder)
    return folder


def _goemotions(folder: str) -> None:
    """Writes comments of GoEmotions' lengths in word pieces, 17 on average."""
    rng = np.random.default_rng(0)
    words = _words()
    _write(folder, "emotions.txt", [f"emotion{i}" for i in range(28)])
    for name, count in (("train", 5000), ("dev", 100), ("test", 100)):
        lengths = np.interp(rng.uniform(0.0, 10.0, count), range(11), GOEMOTIONS_DECILES).round().astype(int)
        rows = [f"{_text(rng, words, n)}\t{i % 28}\t{name}{i}" for i, n in enumerate(lengths)]
        _write(folder, f"{name}.tsv", rows)


def _mind(folder: str) -> None:
    """Writes articles of MIND's length, titles of 10.8 words and abstracts of 43 on average."""
    rng = np.random.default_rng(0)
    words = _words()
    rows = []
    for i in range(5000):
        title, abstract = (_text(rng, words, 1 + rng.poisson(mean)) for mean in (9.8, 42.0))
        rows.append(f"N{i}\tclass{i % 18}\t\t{title}\t{abstract}\t\t[]\t[]")
    _write(folder, "news.tsv", rows)


def _words() -> list[str]:
    """Returns words of MiniLM's vocabulary, of one piece each."""
    vocabulary = pathlib.Path(goemotions_minilm.minilm_folder() or "", "vocab.txt").read_text(
        encoding="utf-8"
    )
    return [word for word in vocabulary.split() if word.isalpha() and word.isascii()]


def _text(rng: np.random.Generator, words: Sequence[str], length: int) -> str:
    return " ".join(words[i] for i in rng.integers(len(words), size=length))


def _write(folder: str, name: str, lines: list[str]) -> None:
    pathlib.Path(folder, name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _cifar10(folder: str) -> None:
    rng = np.random.default_rng(0)
    _write(folder, "batches.meta.txt", [f"class{i}" for i in range(10)])
    for name, count in (("data_batch_1.bin", 5000), ("test_batch.bin", 100)):
        records = rng.integers(0, 256, [count, 3073], dtype=np.uint8)
        records[:, 0] = np.arange(count) % 10
        records.tofile(os.path.join(folder, name))


def _imagenet(folder: str) -> None:
    for name in ("train", "val"):
        for i, image in enumerate(_images(name)):
            tf.io.write_file(os.path.join(folder, name, f"n{i % 2}", f"{i}.JPEG"), image)  # makes the folder


def _imagenet_records(folder: str) -> None:
    """Writes the images of `_imagenet` as the Model Garden's records."""
    for split, name in (("train", "train"), ("validation", "val")):
        with tf.io.TFRecordWriter(os.path.join(folder, f"{split}-00000-of-00001")) as writer:
            for i, image in enumerate(_images(name)):
                example = tf.train.Example()
                features = example.features.feature
                features["image/encoded"].bytes_list.value.append(image)
                features["image/class/label"].int64_list.value.append(i % 2 + 1)
                features["image/class/synset"].bytes_list.value.append(f"n{i % 2}".encode())
                writer.write(example.SerializeToString())


def _images(name: str) -> list[bytes]:
    """Returns JPEG images of random pixels, 500 x 375 and about 110 KB, as ImageNet's are on average."""
    rng = np.random.default_rng(0)
    count = IMAGES if name == "train" else 2
    pixels = rng.integers(0, 256, [count, 375, 500, 3], dtype=np.uint8)
    return [tf.io.encode_jpeg(image, quality=75).numpy() for image in pixels]


def _synthetic() -> config.Experiment:
    return config.Experiment(
        data=config.Data(name="synthetic", num_examples=50_000), encoder=config.Encoder(name="identity")
    )


def _on_files(packaged: str, write: Callable[[str], None], **data: Any) -> Callable[[], config.Experiment]:
    """Returns the function to a packaged config on generated files, with other fields of its data."""

    def experiment() -> config.Experiment:
        changes = {f"data.{field}": value for field, value in data.items()}
        return config.override(configs.get_config(packaged), {"data.path": _folder_of(write), **changes})

    return experiment


EXPERIMENTS: dict[str, Callable[[], config.Experiment]] = {
    "synthetic": _synthetic,
    "goemotions": _on_files("goemotions_minilm", _goemotions),
    "mind": _on_files("goemotions_minilm", _mind, name="mind", max_length=128),
    "cifar10": _on_files("cifar10_vgg16", _cifar10, augmentation="none"),
    "cifar10 affine_flip": _on_files("cifar10_vgg16", _cifar10, augmentation="affine_flip"),
    "imagenet": _on_files("imagenet_resnet50", _imagenet, augmentation="none"),
    "imagenet random_crop": _on_files("imagenet_resnet50", _imagenet, augmentation="random_crop"),
    "imagenet records": _on_files("imagenet_resnet50", _imagenet_records, augmentation="none"),
}
