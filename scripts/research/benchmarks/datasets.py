"""Generated datasets in the published layouts, with examples about as large as the real ones."""

import atexit
import functools
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from rank4class.pipelines import config
from rank4class.pipelines.configs import cifar10_vgg16, goemotions_minilm, imagenet_resnet50

IMAGES = 200
# Of the word pieces of GoEmotions' training comments with one label; the last is the 99.9% quantile.
GOEMOTIONS_DECILES = (1, 6, 8, 11, 14, 16, 19, 22, 25, 29, 42)


@functools.cache
def root() -> str:
    path = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, path)
    return path


def _goemotions() -> config.Experiment:
    experiment = goemotions_minilm.get_config()
    experiment.data.path = _goemotions_files(experiment.encoder.path)
    return experiment


def _mind() -> config.Experiment:
    experiment = goemotions_minilm.get_config()
    path = _mind_files(experiment.encoder.path)
    experiment.data = config.Data(name="mind", path=path, max_length=128)
    return experiment


@functools.cache
def _goemotions_files(encoder_path: str) -> str:
    """Writes comments of GoEmotions' lengths in word pieces, 17 on average."""
    folder, rng, words = os.path.join(root(), "goemotions"), np.random.default_rng(0), _words(encoder_path)
    os.mkdir(folder)
    _write(folder, "emotions.txt", [f"emotion{i}" for i in range(28)])
    for name, count in (("train", 5000), ("dev", 100), ("test", 100)):
        lengths = np.interp(rng.uniform(0.0, 10.0, count), range(11), GOEMOTIONS_DECILES).round().astype(int)
        rows = [f"{_text(rng, words, n)}\t{i % 28}\t{name}{i}" for i, n in enumerate(lengths)]
        _write(folder, f"{name}.tsv", rows)
    return folder


@functools.cache
def _mind_files(encoder_path: str) -> str:
    """Writes articles of MIND's length, titles of 10.8 words and abstracts of 43 on average."""
    folder, rng, words = os.path.join(root(), "mind"), np.random.default_rng(0), _words(encoder_path)
    os.mkdir(folder)
    rows = []
    for i in range(5000):
        title, abstract = (_text(rng, words, 1 + rng.poisson(mean)) for mean in (9.8, 42.0))
        rows.append(f"N{i}\tclass{i % 18}\t\t{title}\t{abstract}\t\t[]\t[]")
    _write(folder, "news.tsv", rows)
    return folder


def _words(encoder_path: str) -> list[str]:
    """Returns words of an encoder's vocabulary, of one piece each."""
    with open(os.path.join(encoder_path, "vocab.txt"), encoding="utf-8") as file:
        return [word for word in map(str.strip, file) if word.isalpha() and word.isascii()]


def _text(rng: np.random.Generator, words: Sequence[str], length: int) -> str:
    return " ".join(words[i] for i in rng.integers(len(words), size=length))


def _write(folder: str, name: str, lines: list[str]) -> None:
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        file.write("".join(f"{line}\n" for line in lines))


def _cifar10(augmentation: str) -> config.Experiment:
    experiment = cifar10_vgg16.get_config()
    experiment.data.path = _cifar10_files()
    experiment.data.augmentation = augmentation
    return experiment


@functools.cache
def _cifar10_files() -> str:
    folder = os.path.join(root(), "cifar10")
    os.mkdir(folder)
    rng = np.random.default_rng(0)
    _write(folder, "batches.meta.txt", [f"class{i}" for i in range(10)])
    for name, count in (("data_batch_1.bin", 5000), ("test_batch.bin", 100)):
        records = rng.integers(0, 256, [count, 3073], dtype=np.uint8)
        records[:, 0] = np.arange(count) % 10
        records.tofile(os.path.join(folder, name))
    return folder


def _imagenet(files: Callable[[], str], augmentation: str) -> config.Experiment:
    experiment = imagenet_resnet50.get_config()
    experiment.data.path = files()
    experiment.data.augmentation = augmentation
    return experiment


@functools.cache
def _imagenet_files() -> str:
    folder = os.path.join(root(), "imagenet")
    for name in ("train", "val"):
        for synset in ("n0", "n1"):
            os.makedirs(os.path.join(folder, name, synset))
        for i, image in enumerate(_images(name)):
            tf.io.write_file(os.path.join(folder, name, f"n{i % 2}", f"{i}.JPEG"), image)
    return folder


@functools.cache
def _imagenet_records() -> str:
    """Writes the images of `_imagenet_files` as the Model Garden's records."""
    folder = os.path.join(root(), "records")
    os.mkdir(folder)
    for split, name in (("train", "train"), ("validation", "val")):
        with tf.io.TFRecordWriter(os.path.join(folder, f"{split}-00000-of-00001")) as writer:
            for i, image in enumerate(_images(name)):
                synset = tf.train.BytesList(value=[f"n{i % 2}".encode()])
                feature = {
                    "image/encoded": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image])),
                    "image/class/label": tf.train.Feature(int64_list=tf.train.Int64List(value=[i % 2 + 1])),
                    "image/class/synset": tf.train.Feature(bytes_list=synset),
                }
                example = tf.train.Example(features=tf.train.Features(feature=feature))
                writer.write(example.SerializeToString())
    return folder


def _images(name: str) -> list[bytes]:
    """Returns JPEG images of random pixels, 500 x 375 and about 110 KB, as ImageNet's are on average."""
    rng, count = np.random.default_rng(0), IMAGES if name == "train" else 2
    pixels = rng.integers(0, 256, [count, 375, 500, 3], dtype=np.uint8)
    return [tf.io.encode_jpeg(image, quality=75).numpy() for image in pixels]


def _synthetic() -> config.Experiment:
    return config.Experiment(
        data=config.Data(name="synthetic", num_examples=50_000), encoder=config.Encoder(name="identity")
    )


EXPERIMENTS: dict[str, Callable[[], config.Experiment]] = {
    "synthetic": _synthetic,
    "goemotions": _goemotions,
    "mind": _mind,
    "cifar10": lambda: _cifar10("none"),
    "cifar10 affine_flip": lambda: _cifar10("affine_flip"),
    "imagenet": lambda: _imagenet(_imagenet_files, "none"),
    "imagenet random_crop": lambda: _imagenet(_imagenet_files, "random_crop"),
    "imagenet records": lambda: _imagenet(_imagenet_records, "none"),
}
