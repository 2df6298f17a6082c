"""Problems: what a dataset holds decides how its features are prepared."""

import numpy as np
import pytest
import tensorflow as tf

from rank4class import data
from rank4class.pipelines import config, problem


@pytest.fixture
def image_files(tmp_path):
    """Writes ImageNet's layout with a dark class and a bright one; returns its path."""
    for i, name in enumerate(("dark", "bright")):
        for folder in ("train", "val"):
            (tmp_path / folder / name).mkdir(parents=True)
            content = tf.io.encode_jpeg(tf.fill([20 + i, 30, 3], tf.constant(20 + 200 * i, tf.uint8)))
            tf.io.write_file(str(tmp_path / folder / name / "image.JPEG"), content)
    return str(tmp_path)


@pytest.fixture
def cifar10_files(tmp_path):
    """Writes CIFAR-10's layout, the images of a class all of one grey; returns its path."""
    (tmp_path / "batches.meta.txt").write_text("".join(f"class{i}\n" for i in range(10)))
    for name in ("data_batch_1.bin", "test_batch.bin"):
        (tmp_path / name).write_bytes(b"".join(bytes([i % 10, *[25 * (i % 10)] * 3072]) for i in range(100)))
    return str(tmp_path)


def batch(dataset, folder, **encoder):
    experiment = config.Experiment(
        data=config.Data(name=dataset, path=folder, max_length=8),
        encoder=config.Encoder(**encoder),
        evaluation_batch_size=8,
    )
    loaded = problem.load(experiment, cache_dir="unused")
    [(features, labels, _)] = loaded.evaluation_batches(experiment, "validation").take(1)
    return loaded, experiment, features, labels.numpy()


def test_image_files_are_decoded(image_files):
    loaded, experiment, features, labels = batch("imagenet", image_files, name="small_cnn", units=4)
    assert isinstance(loaded.preprocess, data.DecodeAndCrop)
    assert loaded.class_names == ("bright", "dark")
    expected = np.where(labels == 0, 220, 20)[:, None, None, None] / 255
    np.testing.assert_allclose(features["image"], np.broadcast_to(expected, [8, 224, 224, 3]), atol=0.01)
    assert loaded.build_model(experiment)(features).shape == [8, 2]


def test_bytes_become_floats(cifar10_files):
    loaded, experiment, features, labels = batch("cifar10", cifar10_files, name="mlp", hidden=(4,))
    assert isinstance(loaded.preprocess, data.Rescale)
    expected = 25 * labels[:, None, None, None] / 255
    np.testing.assert_allclose(features["image"], np.broadcast_to(expected, [8, 32, 32, 3]), rtol=1e-6)
    assert loaded.build_model(experiment)(features).shape == [8, 10]


def test_floats_stay_as_they_are():
    loaded, _, features, _ = batch("digits", None, name="mlp")
    assert loaded.preprocess is None
    np.testing.assert_array_equal(
        features["image"], data.get("digits").splits["validation"].features["image"][:8]
    )


def test_titles_and_abstracts_become_two_segments(tmp_path, tiny_bert):
    rows = [f"N{i}\tnews\tsub\tgreat day\t{'bad mess' * (i % 2)}\turl\t[]\t[]\n" for i in range(99)]
    (tmp_path / "news.tsv").write_text("".join(rows))
    _, _, features, _ = batch("mind", str(tmp_path), name="bert", path=tiny_bert)
    types = {tuple(row) for row in features["input_type_ids"].numpy()}
    assert types == {(0, 0, 0, 0, 0, 0, 0, 0), (0, 0, 0, 0, 1, 1, 1, 0)}
