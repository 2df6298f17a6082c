"""Images: crops, formats, EXIF orientation, augmentation, batches, and errors for invalid files."""

import functools
import io
import itertools
import math
import struct

import numpy as np
import PIL.Image
import PIL.ImageOps
import pytest
import scipy.ndimage
import tensorflow as tf

from rank4class import data
from rank4class.data.datasets import imagenet_test


def photograph(height, width, seed=0):
    """Returns a smooth image of random colors, uint8 `[height, width, 3]`."""
    colors = np.random.default_rng(seed).integers(0, 256, [4, 5, 3], dtype=np.uint8)
    return np.asarray(PIL.Image.fromarray(colors).resize([width, height], PIL.Image.Resampling.BICUBIC))


def save_image(folder, image, kind="JPEG", mode="RGB"):
    path = folder / f"{kind}_{mode}_{image.shape[0]}.JPEG"
    PIL.Image.fromarray(image).convert(mode).save(path, format=kind)
    return str(path)


def central_crops(files):
    batches = tf.data.Dataset.from_tensors({"file": tf.constant(files)}).map(data.DecodeAndCrop())
    assert batches.element_spec == {"image": tf.TensorSpec([len(files), 224, 224, 3], tf.float32)}
    return batches.get_single_element()["image"].numpy()


@pytest.mark.nightly
@pytest.mark.parametrize(("height", "width"), [(301, 433), (80, 50)])
def test_central_crop_matches_the_model_garden(tmp_path, height, width):
    preprocess_ops = pytest.importorskip("official.vision.ops.preprocess_ops")
    file = save_image(tmp_path, photograph(height, width))
    content = tf.io.read_file(file)
    crop = preprocess_ops.center_crop_image_v2(content, tf.image.extract_jpeg_shape(content), 224 / 256)
    expected = tf.image.resize(crop, [224, 224], method="bilinear") / 255.0
    # The Model Garden decodes only the crop, so colors at its border are interpolated without neighbors.
    difference = np.abs(central_crops([file])[0] - expected)
    assert difference.max() < 0.03
    assert difference.mean() < 0.001


def test_small_squares_keep_the_border(tmp_path):
    image = np.zeros([32, 64, 3], np.uint8)
    image[:, 16:48] = np.arange(32)[:, None, None]
    file = {"file": tf.constant([save_image(tmp_path, image, "PNG")])}
    decode = data.DecodeAndCrop(32)
    expected = np.tile(np.arange(32, dtype=np.float32)[:, None, None] / 255, [1, 32, 3])
    np.testing.assert_allclose(decode(file)["image"][0], expected, atol=1e-7)
    cropped = data.DecodeAndCrop.from_settings({**decode.settings, "central_crop": 0.5})
    rows = 255 * cropped(file)["image"].numpy()[0, :, 0, 0]
    np.testing.assert_allclose([rows[0], rows[-1]], [8.0, 23.0], atol=1e-4)


def test_central_crop_of_a_gradient(tmp_path):
    image = np.zeros([256, 512, 3], np.uint8)
    image[16:240, 144:368] = np.arange(224)[:, None, None]
    expected = np.tile(np.arange(224, dtype=np.float32)[:, None, None] / 255, [1, 224, 3])
    np.testing.assert_allclose(central_crops([save_image(tmp_path, image, "PNG")])[0], expected, atol=1e-7)


FORMATS = [
    ("JPEG", "L"), ("JPEG", "CMYK"), ("PNG", "RGB"), ("PNG", "RGBA"), ("PNG", "P"), ("PNG", "LA"),
    ("GIF", "P"), ("BMP", "RGB"), ("BMP", "RGBA"),
]  # fmt: skip


def test_formats_agree(tmp_path):
    image = photograph(256, 256)
    images = central_crops([save_image(tmp_path, image, kind, mode) for kind, mode in FORMATS])
    for actual, (kind, mode) in zip(images, FORMATS, strict=True):
        expected = image[16:240, 16:240] / 255
        if mode in ("L", "LA"):
            expected = np.tile(expected @ [[0.299], [0.587], [0.114]], [1, 1, 3])
        tolerance = 0.1 if mode == "P" else 0.02  # a palette has 256 colors
        assert np.abs(actual - expected).mean() < tolerance, (kind, mode)
        assert actual.min() >= 0
        assert actual.max() <= 1


@pytest.mark.parametrize("lossless", [False, True])
@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "P"])
def test_webp_equals_pillow(mode, lossless):
    image = PIL.Image.fromarray(photograph(30, 40)).convert(mode)
    if mode == "RGBA":
        image.putalpha(PIL.Image.fromarray(photograph(30, 40)[..., 0]))
    file = io.BytesIO()
    image.save(file, format="WEBP", lossless=lossless, exact=True)
    expected = tf.io.encode_png(PIL.Image.open(file).convert("RGB")).numpy()
    actual = data.DecodeAndCrop(16)({"image_bytes": tf.constant([file.getvalue(), expected])})["image"]
    np.testing.assert_array_equal(actual[0], actual[1])


def test_16_bit_and_animated_images(tmp_path):
    image = photograph(30, 40)
    deep = tf.io.encode_png(image.astype(np.uint16) * 257).numpy()
    contents = [deep, animated("GIF"), animated("PNG"), tf.io.encode_png(image).numpy()]
    actual = data.DecodeAndCrop(16)(write_files(tmp_path, contents))["image"].numpy()
    np.testing.assert_array_equal(actual[0], actual[3])
    assert np.abs(actual[1] - actual[3]).mean() < 0.05  # a palette has 256 colors
    np.testing.assert_array_equal(actual[2], actual[3])


def bmp(bits, compression=0):
    content = bytearray(encode_image("BMP"))
    content[28:34] = struct.pack("<HI", bits, compression)
    return bytes(content)


def encode_image(kind, mode="RGB"):
    file = io.BytesIO()
    PIL.Image.fromarray(photograph(30, 40)).convert(mode).save(file, format=kind)
    return file.getvalue()


def animated(kind):
    file = io.BytesIO()
    frames = [PIL.Image.fromarray(image) for image in (photograph(30, 40), 255 - photograph(30, 40))]
    frames[0].save(file, format=kind, save_all=True, append_images=frames[1:])
    return file.getvalue()


UNSUPPORTED = {
    "animated webp": ("animated WebP", animated("WEBP")),
    **{
        f"bmp {bits} {compression}": ("BMP other than uncompressed 24 or 32-bit", bmp(bits, compression))
        for bits, compression in ((1, 0), (4, 0), (8, 0), (16, 0), (8, 1), (24, 4), (24, 5))
    },
}


def test_unsupported_formats(tmp_path):
    files = write_files(tmp_path, [each for _, each in UNSUPPORTED.values()])["file"].numpy().astype(str)
    split = data.Split({"file": files.astype(object)}, np.zeros(len(files), np.int32), files)
    messages = dict(data.unreadable(split, data.DecodeAndCrop(8)))
    for i, (name, _) in enumerate(UNSUPPORTED.values()):
        reason = f"assertion failed: [{name} files are not supported; convert it to PNG or JPEG]"
        assert messages[i] == f"{files[i]}: cannot be read: {reason}. Correct or remove it."


def exif(orientation, order="<", kind=3, others=1):
    """Returns an EXIF block with the orientation between other tags."""
    value = struct.pack(f"{order}HH", orientation, 0)
    entries = [struct.pack(f"{order}HHI4s", 0x010F + i, 2, 3, b"ab\0\0") for i in range(others)]
    entries.append(struct.pack(f"{order}HHI", 0x0112, kind, 1) + value)
    entries.append(struct.pack(f"{order}HHII", 0x0131, 4, 1, 6))
    head = {"<": b"II*\0", ">": b"MM\0*"}[order] + struct.pack(f"{order}I", 8)
    return head + struct.pack(f"{order}H", len(entries)) + b"".join(entries) + bytes(4)


def segment(kind, content):
    return b"\xff" + bytes([kind]) + struct.pack(">H", 2 + len(content)) + content


JFIF = segment(0xE0, b"JFIF\0\1\1\0\0\1\0\1\0\0")


def jpeg(image, *segments):
    """Returns a JPEG file with other segments in place of the JFIF segment."""
    file = io.BytesIO()
    PIL.Image.fromarray(image).save(file, format="JPEG", quality=95)
    content = file.getvalue()
    assert content.startswith(b"\xff\xd8" + JFIF)
    return b"".join([content[:2], *segments, content[2 + len(JFIF) :]])


def with_exif(image, block):
    return jpeg(image, JFIF, segment(0xE1, b"Exif\0\0" + block))


def write_files(folder, contents):
    """Writes files; returns the feature `file`."""
    files = [folder / f"{i}.jpg" for i in range(len(contents))]
    for file, content in zip(files, contents, strict=True):
        file.write_bytes(content)
    return {"file": tf.constant([str(file) for file in files])}


@pytest.mark.nightly
def test_exif_orientation_matches_pillow(tmp_path):
    """An image with an EXIF orientation equals the same image that Pillow has transposed."""
    image = photograph(60, 100)
    contents = []
    uprights = []
    for order, orientation in itertools.product("<>", range(1, 9)):
        contents.append(with_exif(image, exif(orientation, order)))
        with PIL.Image.open(io.BytesIO(contents[-1])) as opened:
            assert opened.getexif()[0x0112] == orientation
            upright = np.asarray(PIL.ImageOps.exif_transpose(opened))
        assert upright.shape[:2] == ((100, 60) if orientation >= 5 else (60, 100))
        uprights.append(tf.io.encode_png(upright).numpy())
    for folder in ("stored", "upright"):
        (tmp_path / folder).mkdir()
    stored = write_files(tmp_path / "stored", contents)
    upright = write_files(tmp_path / "upright", uprights)
    sizes = ([[60, 100]] * 4 + [[100, 60]] * 4) * 2
    for features in (stored, upright):
        assert data.ContentAndSize()(features)["size"].numpy().tolist() == sizes
    center, expected = (data.DecodeAndCrop(32)(features)["image"].numpy() for features in (stored, upright))
    np.testing.assert_allclose(center, expected, atol=0.03)
    np.testing.assert_array_equal(center[:8], center[8:])


def test_exif_at_any_position(tmp_path):
    block = segment(0xE1, b"Exif\0\0" + exif(6))
    comment = segment(0xFE, b"Exif\0\0")
    xmp = segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0<x/>")
    profile = segment(0xE2, b"ICC_PROFILE\0" + bytes(60_000))
    image = photograph(20, 30)
    contents = [
        jpeg(image, block),
        jpeg(image, block, JFIF),
        jpeg(image, JFIF, block, xmp),
        jpeg(image, JFIF, comment, xmp, profile, profile, block),
        jpeg(image, JFIF, b"\xff" + block),  # bytes that fill the space before a marker
        jpeg(image, b"\xff\xff\xff" + block),
        jpeg(image, segment(0xE1, b"Exif\0\0" + exif(6, others=0))),
        jpeg(image, segment(0xE1, b"Exif\0\0" + exif(6, ">", others=20) + bytes(50_000))),  # a small preview
        jpeg(image, JFIF, segment(0xE1, b"Exif\0\0" + exif(3)), block),  # the first block is used
    ]
    sizes = data.ContentAndSize()(write_files(tmp_path, contents))["size"].numpy().tolist()
    assert sizes == [[30, 20]] * 8 + [[20, 30]]


UNREADABLE_EXIF = {
    "none": b"",
    "only a byte order": b"II",
    "no directory": b"II*\0",
    "no byte order": b"XX*\0" + exif(6)[4:],
    "an unknown byte order": b"IM*\0" + exif(6)[4:],
    "no orientation": exif(6).replace(b"\x12\x01", b"\x13\x01"),
    "orientation 0": exif(0),
    "orientation 9": exif(9),
    "orientation 65535": exif(65535),
    "orientation as text": exif(6, kind=2),
    "directory beyond the end": b"II*\0\xff\xff\0\0" + exif(6)[8:],
    "directory far beyond the end": b"II*\0\xff\xff\xff\xff" + exif(6)[8:],
    "directory at the last byte": b"II*\0" + bytes([len(exif(6)) - 1, 0, 0, 0]) + exif(6)[8:],
    "cut within the entry": exif(6)[:30],
}


def test_unreadable_exif_is_ignored(tmp_path):
    image = photograph(20, 30)
    contents = [with_exif(image, block) for block in UNREADABLE_EXIF.values()]
    plain = jpeg(image, JFIF)
    contents += [plain, jpeg(image, JFIF, segment(0xE1, b"Exif")), jpeg(image, JFIF, segment(0xE1, b""))]
    actual = data.DecodeAndCrop(16)(write_files(tmp_path, contents))["image"].numpy()
    for image, name in zip(actual, [*UNREADABLE_EXIF, "plain", "Exif", "empty"], strict=True):
        np.testing.assert_array_equal(image, actual[len(UNREADABLE_EXIF)], err_msg=name)


@pytest.mark.nightly
def test_images_with_a_side_of_one_pixel(tmp_path):
    images = [photograph(*size) for size in ((1, 30), (30, 1), (1, 1), (2, 2))]
    files = write_files(tmp_path, [tf.io.encode_png(image).numpy() for image in images])["file"].numpy()
    split = data.Split({"file": files}, np.zeros(4, np.int32), np.array([*"abcd"], object))
    reason = "assertion failed: [a side of one pixel, at least two are required]"
    message = f"cannot be read: {reason}. Correct or remove it."
    crop = data.DecodeAndRandomCrop(8)
    for preprocess in (data.DecodeAndCrop(8), data.ContentAndSize(), lambda f: crop(f, seeds(0))):
        actual = list(data.unreadable(split, preprocess))
        assert actual == [(i, f"{name}: {message}") for i, name in enumerate("abc")]


def seeds(*numbers, seed=0):
    return tf.constant([[seed, number] for number in numbers], tf.int64)


def flip_and_shift(images, *numbers, seed=0):
    features = {"image": tf.constant(images, tf.float32)}
    return data.AUGMENTATIONS["affine_flip"](features, seeds(*numbers, seed=seed))["image"].numpy()


def noise(*shape):
    return np.random.default_rng(0).random(shape).astype(np.float32)


def draws(number):
    """Returns the random angle (radians), shifts (fractions of height and width) and side of an example."""
    angle, down, right, side = tf.random.stateless_uniform([4], seeds(number)[0], -1.0, 1.0).numpy()
    return math.radians(15 * angle), 0.1 * down, 0.1 * right, np.sign(side)


def test_affine_flip_of_images_that_are_not_square():
    images = noise(4, 12, 30, 2)
    for number, (image, actual) in enumerate(zip(images, flip_and_shift(images, *range(4)), strict=True)):
        angle, down, right, side = draws(number)
        rows, columns = np.indices([12, 30])
        row = rows - 5.5 + 12 * down
        column = columns - 14.5 + 30 * right
        positions = [
            5.5 + math.cos(angle) * row - math.sin(angle) * column,
            14.5 + math.sin(angle) * row + math.cos(angle) * column,
        ]
        for channel in range(2):
            expected = scipy.ndimage.map_coordinates(image[..., channel], positions, order=1, mode="nearest")
            expected = expected if side > 0 else expected[:, ::-1]
            np.testing.assert_allclose(actual[..., channel], expected, atol=1e-5)


def assert_depends_only_on_the_seeds(function, images):
    batch = function(images, *range(4))
    np.testing.assert_array_equal(function(images, *range(4)), batch)
    for i in range(4):
        np.testing.assert_array_equal(function(images[i : i + 1], i)[0], batch[i])
    of_seeds = [function(images[[0] * 4], *range(4), seed=seed) for seed in (0, 1)]
    for first, second in itertools.combinations(np.concatenate(of_seeds), 2):
        assert np.abs(first - second).max() > 0.01


def test_affine_flip_depends_only_on_the_seeds():
    assert_depends_only_on_the_seeds(flip_and_shift, noise(4, 16, 16, 3))


@functools.cache
def random_crop(size):
    return tf.function(data.DecodeAndRandomCrop(size))


def random_crops(features, *numbers, size=8, seed=0):
    features = {name: tf.constant(values) for name, values in features.items()}
    return random_crop(size)(features, seeds(*numbers, seed=seed))["image"].numpy()


@pytest.mark.nightly
def test_random_crop_ranges(tmp_path):
    height = 250
    width = 120
    image = np.stack([*np.indices([height, width]), np.zeros([height, width])], axis=2).astype(np.uint8)
    count = 300
    actual = 255 * random_crops({"file": [save_image(tmp_path, image, "PNG")] * count}, *range(count))
    assert actual.shape == (count, 8, 8, 3)
    # Output pixels are 1/8 of the crop apart, and the first is half of that from the edge of the crop.
    first = actual[:, 0, 0, :2]
    last = actual[:, 7, 7, :2]
    flipped = last[:, 1] < first[:, 1]
    step = np.abs(last - first) / 7
    crop = 8 * step
    begin = np.minimum(first, last) + 0.5 - step / 2
    assert begin.min() > -0.01
    assert (begin + crop).max(axis=0) == pytest.approx([height, width], abs=1)
    assert np.all(begin + crop < [height + 0.01, width + 0.01])
    area = crop.prod(axis=1) / (height * width)
    aspect = crop[:, 1] / crop[:, 0]
    assert 0.07 < area.min() < 0.12
    assert 0.5 < area.max() <= 1.001
    assert 0.73 < aspect.min() < 0.78
    assert 1.28 < aspect.max() < 1.37
    assert abs(flipped.mean() - 0.5) < 4 * 0.5 / math.sqrt(count)
    # The first and last columns show the same rows: nothing is rotated.
    np.testing.assert_allclose(actual[:, :, 0, 0], actual[:, :, 7, 0], atol=0.01)


def test_central_crop_if_no_random_crop_is_possible(tmp_path):
    # A crop of 8 percent of this image is wider than 4:3.
    file = save_image(tmp_path, photograph(10, 600), "PNG")
    [center] = data.DecodeAndCrop(8, 0.875)({"file": tf.constant([file])})["image"].numpy()
    assert np.abs(center - center[:, ::-1]).max() > 0.01
    for actual in random_crops({"file": [file] * 4}, *range(4)):
        assert min(np.abs(actual - side).max() for side in (center, center[:, ::-1])) < 1e-6


def write_records(path, rows):
    """Writes records with one bytes feature each; returns the features that locate them."""
    imagenet_test.write_records(path, [{name: value} for name, value in rows])
    contents = tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
    offsets = np.cumsum([0, *(len(content) + 16 for content in contents)])[:-1]
    return {"file": np.array([str(path)] * len(rows), object), "offset": offsets}


@pytest.mark.nightly
def test_records_and_files_give_equal_images(tmp_path):
    files = [
        save_image(tmp_path, photograph(60 + i, 90, seed=i), kind, mode)
        for i, (kind, mode) in enumerate([("JPEG", "RGB"), ("PNG", "RGB"), ("JPEG", "CMYK"), ("JPEG", "L")])
    ]
    contents = [tf.io.read_file(file).numpy() for file in files]
    # A large image in between, which exceeds the bytes read ahead.
    large = (255 * noise(400, 500, 3)).astype(np.uint8)
    contents.insert(2, tf.io.read_file(save_image(tmp_path, large, "PNG")).numpy())
    assert len(contents[2]) > 1 << 18
    names = itertools.cycle(["image", "image/encoded"])
    records = write_records(tmp_path / "records", list(zip(names, contents, strict=False)))
    shuffled = {key: values[[4, 1, 0, 3]] for key, values in records.items()}
    files = [files[i] for i in (3, 1, 0, 2)]
    np.testing.assert_array_equal(
        data.DecodeAndCrop(16)(shuffled | {"offset": tf.constant(shuffled["offset"])})["image"],
        data.DecodeAndCrop(16)({"file": tf.constant(files)})["image"],
    )
    np.testing.assert_array_equal(random_crops(shuffled, *range(4)), random_crops({"file": files}, *range(4)))


def greys(tmp_path, size):
    """Writes images of the shades of gray `10 * i`; returns their split, with the labels `i`."""
    files = []
    for i in range(size):
        path = tmp_path / f"image_{i}.JPEG"
        PIL.Image.new("L", (40, 30), 10 * i).save(path)
        files.append(str(path))
    files = np.array(files, object)
    return data.Split({"file": files}, np.arange(size, dtype=np.int32), files)


def in_records(tmp_path, split):
    rows = [("image", tf.io.read_file(file).numpy()) for file in split.features["file"]]
    features = write_records(tmp_path / "records", rows)
    origins = np.array([f"{tmp_path}/records record {i + 1}" for i in range(len(rows))], object)
    return data.Split(features, split.labels, origins)


DAMAGES = {
    "jpeg::Uncompress failed. Invalid JPEG data or crop window": lambda content: content[: len(content) // 2],
    "Unknown image file format. One of JPEG, PNG, GIF, BMP": lambda content: b"<html>404</html>",
    "Input is empty": lambda content: b"",
}


@pytest.mark.nightly
@pytest.mark.parametrize(("reason", "kind"), zip(DAMAGES, ["files", "records", "files"], strict=True))
def test_invalid_image_is_named(tmp_path, kind, reason):
    split = greys(tmp_path, 10)
    path = tmp_path / "image_7.JPEG"
    path.write_bytes(DAMAGES[reason](path.read_bytes()))
    if kind == "records":
        split = in_records(tmp_path, split)
    message = f"{split.origins[7]}: cannot be read: {reason}"
    [(i, actual)] = data.unreadable(split, data.DecodeAndCrop(8))
    assert (i, actual[: len(message)]) == (7, message)


@pytest.mark.nightly
def test_damaged_records_are_named(tmp_path):
    split = in_records(tmp_path, greys(tmp_path, 4))
    path = tmp_path / "records"
    preprocess = data.DecodeAndCrop(8)
    content = path.read_bytes()
    path.write_bytes(content[:-100])
    [(i, message)] = data.unreadable(split, preprocess)
    assert (i, message.partition("read: ")[0]) == (3, f"{path} record 4: cannot be ")
    path.write_bytes(content[: split.features["offset"][2]])
    assert [i for i, _ in data.unreadable(split, preprocess)] == [2, 3]
    path.write_bytes(content[:100] + b"\xff\x00" + content[102:])
    message = f"{path} record 1: cannot be read: corrupted record at 12. Correct or remove it."
    assert list(data.unreadable(split, preprocess)) == [(0, message)]
    path.unlink()
    assert [i for i, _ in data.unreadable(split, preprocess)] == [0, 1, 2, 3]


@pytest.mark.nightly
def test_random_crops_depend_only_on_the_seeds(tmp_path):
    files = np.array([save_image(tmp_path, photograph(90 + i, 100, seed=i)) for i in range(4)])

    def crops(files, *numbers, seed=0):
        return random_crops({"file": files}, *numbers, seed=seed)

    assert_depends_only_on_the_seeds(crops, files)
