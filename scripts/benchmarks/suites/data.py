"""The benchmark's suite of data: what reads the examples of each dataset, alone and beside a training step.

The files are generated, in the published layouts and about as large an example as the real ones. A step reads
many batches of a new iterator, so that nothing is read ahead while another step is measured.
"""

import atexit
import functools
import os
import shutil
import tempfile
import time

import numpy as np
import tensorflow as tf

from rank4class.pipelines import config
from rank4class.pipelines.configs import cifar10_vgg16, goemotions_minilm, imagenet_resnet50
from rank4class.pipelines.task import loading
from rank4class.pipelines.training import optimization
from rank4class.pipelines.training.train_step import build_steps
from rank4class.scripts.benchmarks.suite import Step, Suite

BATCHES = 400  # of a step; some 0.2 seconds go to making the iterator
LARGE_BATCHES = 20  # of images that are decoded, and of training steps
PHOTOGRAPHS = 200


class Reading:
    """Reads batches, and does nothing with them."""

    arguments_mb = 0.0

    def __init__(self, batches, count):
        self._batches = batches.take(count)
        self()

    def __call__(self):
        for _ in self._batches:
            pass


class Trainer:
    """Takes training steps: on new batches, measuring how long it waits for them, or on one and the same."""

    arguments_mb = 0.0

    def __init__(self, steps, batches, one_batch):
        self._steps = steps
        self._batches = batches.take(1).cache().repeat() if one_batch else batches
        self()

    def __call__(self):
        batches, waited, started = iter(self._batches), 0.0, time.perf_counter()
        for _ in range(LARGE_BATCHES):
            waited += self._steps(batches, first=0, count=1).waited
        self.waiting_share = waited / (time.perf_counter() - started)


def _steps(size):
    del size  # everything is measured at every size
    reading = [Step(name, against=(f"one_thread:{name}",)) for name in EXPERIMENTS]
    return [*reading, Step("minilm_step", against=("step:minilm",))]


def _build(step, size):
    [batch_size] = size
    kind, _, of = step.name.partition(":")
    training = step.name == "minilm_step" or kind == "step"
    name = "goemotions" if training else of or kind
    experiment = EXPERIMENTS[name]()
    experiment.batch_size = batch_size
    loaded = loading.load(experiment, _folder())
    batches = loaded.training_batches(experiment)
    if not training:
        batches = batches.with_options(_one_thread()) if kind == "one_thread" else batches
        return Reading(batches, _count(step))
    model = loaded.build_model(experiment)
    optimizer = optimization.build_optimizer(experiment.optimizer, experiment.optimizer.learning_rate)
    optimizer.build(model.trainable_variables)
    strategy = tf.distribute.get_strategy()
    loss = optimization.build_loss(experiment, 1)
    scorer = loaded.scorer(model, "train")
    steps = build_steps(strategy, model, scorer, loss, optimizer, experiment)
    return Trainer(steps, batches, one_batch=kind == "step")


def _count(step):
    return LARGE_BATCHES if "imagenet" in step.name or "minilm" in step.name else BATCHES


def _one_thread():
    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    options.threading.max_intra_op_parallelism = 1
    return options


@functools.cache
def _folder():
    path = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, path)
    return path


def _goemotions():
    experiment = goemotions_minilm.get_config()
    experiment.data.path = _goemotions_files(experiment.encoder.path)
    return experiment


def _mind():
    experiment = goemotions_minilm.get_config()
    path = _mind_files(experiment.encoder.path)
    experiment.data = config.Data(name="mind", path=path, tfds_dir=_folder(), max_length=128)
    return experiment


@functools.cache
def _goemotions_files(encoder_path):
    """Writes comments of GoEmotions' length, 12.8 words on average."""
    folder, texts = os.path.join(_folder(), "goemotions"), _Texts(encoder_path)
    os.mkdir(folder)
    _write(folder, "emotions.txt", [f"emotion{i}" for i in range(28)])
    for name, count in (("train", 5000), ("dev", 100), ("test", 100)):
        _write(folder, f"{name}.tsv", [f"{texts.of(12.8)}\t{i % 28}\t{name}{i}" for i in range(count)])
    return folder


@functools.cache
def _mind_files(encoder_path):
    """Writes articles of MIND's length, titles of 10.8 words and abstracts of 43 on average."""
    folder, texts = os.path.join(_folder(), "mind"), _Texts(encoder_path)
    os.mkdir(folder)
    rows = [f"N{i}\tclass{i % 18}\t\t{texts.of(10.8)}\t{texts.of(43.0)}\t\t[]\t[]" for i in range(5000)]
    _write(folder, "news.tsv", rows)
    return folder


class _Texts:
    """Draws texts of words of an encoder's vocabulary."""

    def __init__(self, encoder_path):
        with open(os.path.join(encoder_path, "vocab.txt"), encoding="utf-8") as file:
            self._words = np.array(
                [word for word in map(str.strip, file) if word.isalpha() and word.isascii()]
            )
        self._rng = np.random.default_rng(0)

    def of(self, mean_length):
        return " ".join(self._rng.choice(self._words, 1 + self._rng.poisson(mean_length - 1)))


def _write(folder, name, lines):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        file.write("".join(f"{line}\n" for line in lines))


def _cifar10(augmentation):
    experiment = cifar10_vgg16.get_config()
    experiment.data.path = _cifar10_files()
    experiment.data.augmentation = augmentation
    return experiment


@functools.cache
def _cifar10_files():
    folder = os.path.join(_folder(), "cifar10")
    os.mkdir(folder)
    rng = np.random.default_rng(0)
    _write(folder, "batches.meta.txt", [f"class{i}" for i in range(10)])
    for name, count in (("data_batch_1.bin", 5000), ("test_batch.bin", 100)):
        records = rng.integers(0, 256, [count, 3073], dtype=np.uint8)
        records[:, 0] = np.arange(count) % 10
        records.tofile(os.path.join(folder, name))
    return folder


def _imagenet(files, augmentation):
    experiment = imagenet_resnet50.get_config()
    experiment.data.path = files()
    experiment.data.augmentation = augmentation
    return experiment


@functools.cache
def _imagenet_files():
    folder = os.path.join(_folder(), "imagenet")
    for name in ("train", "val"):
        for synset in ("n0", "n1"):
            os.makedirs(os.path.join(folder, name, synset))
        for i, image in enumerate(_photographs(name)):
            tf.io.write_file(os.path.join(folder, name, f"n{i % 2}", f"{i}.JPEG"), image)
    return folder


@functools.cache
def _imagenet_records():
    """Writes the same as the Model Garden's records."""
    folder = os.path.join(_folder(), "records")
    os.mkdir(folder)
    for split, name in (("train", "train"), ("validation", "val")):
        with tf.io.TFRecordWriter(os.path.join(folder, f"{split}-00000-of-00001")) as writer:
            for i, image in enumerate(_photographs(name)):
                synset = tf.train.BytesList(value=[f"n{i % 2}".encode()])
                feature = {
                    "image/encoded": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image])),
                    "image/class/label": tf.train.Feature(int64_list=tf.train.Int64List(value=[i % 2 + 1])),
                    "image/class/synset": tf.train.Feature(bytes_list=synset),
                }
                example = tf.train.Example(features=tf.train.Features(feature=feature))
                writer.write(example.SerializeToString())
    return folder


def _photographs(name):
    """Returns JPEG images of 500 x 375 pixels and about 110 KB, as ImageNet's are on average."""
    rng = np.random.default_rng(0)
    count = PHOTOGRAPHS if name == "train" else 2
    return [tf.io.encode_jpeg(_photograph(rng), quality=95).numpy() for _ in range(count)]


def _photograph(rng):
    coarse = tf.image.resize(rng.integers(0, 200, [12, 16, 3]), [375, 500], method="bicubic")
    return tf.cast(tf.clip_by_value(coarse + rng.normal(scale=12.0, size=[375, 500, 3]), 0, 255), tf.uint8)


def _synthetic():
    return config.Experiment(
        data=config.Data(name="synthetic", num_examples=50_000), encoder=config.Encoder(name="identity")
    )


EXPERIMENTS = {
    "synthetic": _synthetic,
    "goemotions": _goemotions,
    "mind": _mind,
    "cifar10": lambda: _cifar10("none"),
    "cifar10 affine_flip": lambda: _cifar10("affine_flip"),
    "imagenet": lambda: _imagenet(_imagenet_files, "none"),
    "imagenet random_crop": lambda: _imagenet(_imagenet_files, "random_crop"),
    "imagenet records": lambda: _imagenet(_imagenet_records, "none"),
}

SUITE = Suite(
    axes="BATCH",
    sizes=("32",),
    contenders=_steps,
    build=_build,
    examples=lambda step, size: _count(step) * size[0],
    values=lambda size: size[0] * 224 * 224 * 3,
)
