"""Images: the Model Garden's own evaluation crop, and every format that lies under a .JPEG name."""

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf
from official.vision.ops import preprocess_ops

from rank4class import data


def photograph(height, width, seed=0):
    """Returns a smooth image of random colours, uint8 `[height, width, 3]`."""
    colours = np.random.default_rng(seed).integers(0, 256, [4, 5, 3], dtype=np.uint8)
    return np.asarray(PIL.Image.fromarray(colours).resize([width, height], PIL.Image.Resampling.BICUBIC))


def saved(folder, image, kind="JPEG", mode="RGB"):
    path = folder / f"{kind}_{mode}_{image.shape[0]}.JPEG"
    PIL.Image.fromarray(image).convert(mode).save(path, format=kind)
    return str(path)


def decoded(files):
    batches = tf.data.Dataset.from_tensors({"file": tf.constant(files)}).map(data.DecodeAndCrop())
    assert batches.element_spec == {"image": tf.TensorSpec([len(files), 224, 224, 3], tf.float32)}
    return batches.get_single_element()["image"].numpy()


@pytest.mark.parametrize(("height", "width"), [(301, 433), (256, 256), (80, 50)])
def test_the_crop_is_the_model_gardens(tmp_path, height, width):
    file = saved(tmp_path, photograph(height, width))
    content = tf.io.read_file(file)
    crop = preprocess_ops.center_crop_image_v2(
        content, tf.image.extract_jpeg_shape(content), 224 / (224 + 32)
    )
    expected = tf.image.resize(crop, [224, 224], method="bilinear") / 255.0
    # They decode the crop alone, so its outermost colours are interpolated without their neighbours.
    difference = np.abs(decoded([file])[0] - expected)
    assert difference.max() < 0.03
    assert difference.mean() < 0.001


def test_the_centre_is_kept_by_hand(tmp_path):
    image = np.zeros([256, 512, 3], np.uint8)
    image[16:240, 144:368] = np.arange(224)[:, None, None]
    expected = np.tile(np.arange(224, dtype=np.float32)[:, None, None] / 255, [1, 224, 3])
    np.testing.assert_allclose(decoded([saved(tmp_path, image, "PNG")])[0], expected, atol=1e-7)


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        ("JPEG", "L"),
        ("JPEG", "CMYK"),
        ("PNG", "RGB"),
        ("PNG", "RGBA"),
        ("PNG", "P"),
        ("GIF", "P"),
        ("BMP", "RGB"),
    ],
)
def test_formats_agree(tmp_path, kind, mode):
    image = photograph(256, 256)
    expected = image[16:240, 16:240] / 255
    if mode == "L":
        expected = np.tile(expected @ [[0.299], [0.587], [0.114]], [1, 1, 3])
    tolerance = 0.1 if mode == "P" else 0.02  # a palette has 256 colours
    [found] = decoded([saved(tmp_path, image, kind, mode)])
    assert np.abs(found - expected).mean() < tolerance
    assert found.min() >= 0
    assert found.max() <= 1


def test_a_batch_of_many_sizes_and_formats_keeps_its_order(tmp_path):
    files = [
        saved(tmp_path, photograph(60 + i, 90, seed=i), kind, mode)
        for i, (kind, mode) in enumerate([("JPEG", "RGB"), ("PNG", "RGB"), ("JPEG", "CMYK"), ("JPEG", "L")])
    ]
    batch = decoded(files)
    for i, file in enumerate(files):
        np.testing.assert_array_equal(batch[i], decoded([file])[0])


def test_a_missing_image_is_named(tmp_path):
    with pytest.raises(tf.errors.NotFoundError, match=r"gone\.JPEG"):
        decoded([str(tmp_path / "gone.JPEG")])


def test_rescale():
    image = tf.range(256, dtype=tf.int32)[None, :, None, None]
    features = data.Rescale()({"image": tf.cast(image, tf.uint8)})
    assert features["image"].dtype == tf.float32
    np.testing.assert_array_equal(features["image"][0, :, 0, 0], np.arange(256, dtype=np.float32) / 255)


def test_settings_tell_them_apart():
    assert data.DecodeAndCrop().settings == {"size": 224, "central_crop": 0.875}
    assert data.Rescale().settings == {"divisor": 255}
