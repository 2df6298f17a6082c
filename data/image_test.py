"""Images: the Model Garden's own evaluation crop, and every format that lies under a .JPEG name."""

import pathlib

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


def test_content_and_size_of_files(tmp_path):
    files = [saved(tmp_path, photograph(30, 20)), saved(tmp_path, photograph(8, 9), "PNG", "L")]
    found = data.ContentAndSize()({"file": tf.constant(files)})
    assert found["size"].numpy().tolist() == [[30, 20], [8, 9]]
    assert found["content"].numpy().tolist() == [pathlib.Path(file).read_bytes() for file in files]


def test_content_and_size_of_records(tmp_path):
    path, records, contents = str(tmp_path / "images.tfrecord"), [], []
    for name, height in (("image", 5), ("image/encoded", 7)):
        contents.append(tf.io.encode_png(photograph(height, 9)).numpy())
        value = tf.train.Feature(bytes_list=tf.train.BytesList(value=[contents[-1]]))
        example = tf.train.Example(features=tf.train.Features(feature={name: value}))
        records.append(example.SerializeToString())
    with tf.io.TFRecordWriter(path) as writer:
        for record in records:
            writer.write(record)
    # A record stands between its length with a checksum (12 bytes) and a checksum of its own (4 bytes).
    found = data.ContentAndSize()(
        {"file": tf.constant([path] * 2), "offset": tf.constant([0, len(records[0]) + 16], tf.int64)}
    )
    assert found["size"].numpy().tolist() == [[5, 9], [7, 9]]
    assert found["content"].numpy().tolist() == contents


def test_reading_goes_on_past_what_cannot_be_read(tmp_path):
    (tmp_path / "broken.JPEG").write_bytes(b"no image")
    files = [saved(tmp_path, photograph(8, 9)), str(tmp_path / "broken.JPEG"), str(tmp_path / "nowhere")]
    files.append(files[0])
    split = data.Split({"file": np.array(files, object)}, np.zeros(4, np.int32), np.array([*"abcd"], object))
    features, messages = zip(*data.read_each(split, data.ContentAndSize()), strict=True)
    assert messages[0] is messages[3] is None
    assert [features[i]["size"].numpy().tolist() for i in (0, 3)] == [[[8, 9]]] * 2
    assert messages[1].startswith("b cannot be read: ")
    assert messages[2].startswith("c cannot be read: ")
    assert features[1] is features[2] is None
    assert list(data.unreadable(split, data.DecodeAndCrop())) == [(1, messages[1]), (2, messages[2])]


def test_rescale():
    image = tf.range(256, dtype=tf.int32)[None, :, None, None]
    features = data.Rescale()({"image": tf.cast(image, tf.uint8)})
    assert features["image"].dtype == tf.float32
    np.testing.assert_array_equal(features["image"][0, :, 0, 0], np.arange(256, dtype=np.float32) / 255)


def test_settings_tell_them_apart():
    assert data.DecodeAndCrop().settings == {"size": 224, "central_crop": 0.875}
    assert data.Rescale().settings == {"divisor": 255}
