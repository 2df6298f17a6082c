"""Images to float inputs of an encoder, in the graph, with random augmentation for training."""

import math
from typing import Any

import tensorflow as tf

Features = dict[str, tf.Tensor]
CENTRAL_CROP = 0.875  # of the shorter side
LEAST_CROPPED = 128  # pixels; smaller squares keep the whole shorter side


class DecodeAndCrop:
    """Decoding and central crop of image files, as the Model Garden's ResNet evaluates.

    A call on features with `file` `[B]`, paths, returns `image` float32 `[B, size, size, 3]`, RGB in
    `[0, 1]`: the central square of each image, resized bilinearly. For sizes of at least `LEAST_CROPPED` it
    is 224/256 of the shorter side, for smaller ones all of it. The content
    decides the format (JPEG, PNG, WebP, GIF, BMP), not the name of the file. Transparency is ignored. A JPEG
    is rotated by its EXIF orientation. An image with a side of one pixel cannot be read.

    With `offset` int64 `[B]`, the image is in the record that starts at this byte of a file of TFRecords: a
    `tf.train.Example` with `image` (TensorFlow Datasets) or `image/encoded` (Model Garden). `image_bytes`
    `[B]` in place of `file` are the bytes of the files.

    Args:
      size: height and width, in pixels.
      central_crop: share of the shorter side in the square; None depends on the size.
    """

    def __init__(self, size: int = 224, central_crop: float | None = None):
        self._size = size
        self._crop = central_crop or (CENTRAL_CROP if size >= LEAST_CROPPED else 1.0)
        self.settings = {
            "size": size,
            "central_crop": self._crop,
            "orientation": "exif",
        }

    @classmethod
    def from_settings(cls, settings: dict[str, Any]) -> "DecodeAndCrop":
        """Returns the function of some `settings`."""
        return cls(settings["size"], settings["central_crop"])

    def __call__(self, features: Features) -> Features:
        def square(source):
            return _resize(_central_crop(decode(_content(source)), self._crop), self._size)

        return {"image": tf.map_fn(square, _sources(features), fn_output_signature=tf.float32)}


class DecodeAndRandomCrop:
    """Decoding and random crop of image files, as the Model Garden's ResNet trains.

    A call on the features of `DecodeAndCrop` and seeds int64 `[B, 2]` takes a random rectangle of each image,
    of 8 to 100 percent of the area and an aspect of 3:4 to 4:3, resizes it to a square, and flips it with
    probability 1/2.

    Args:
      size: height and width, in pixels.
    """

    def __init__(self, size: int = 224):
        self._size = size

    def __call__(self, features: Features, seeds: tf.Tensor) -> Features:
        def square(source_and_seed):
            source, seed = source_and_seed
            image = _random_crop(decode(_content(source)), seed)
            return _resize(tf.image.stateless_random_flip_left_right(image, [seed[0], ~seed[1]]), self._size)

        return {"image": tf.map_fn(square, (_sources(features), seeds), fn_output_signature=tf.float32)}


class ContentAndSize:
    """A call on the features of `DecodeAndCrop` returns the bytes and size of the images.

    They are `content` string `[B]`, and `size` int32 `[B, 2]`, height and width after the EXIF rotation.
    """

    def __call__(self, features: Features) -> Features:
        def measure(source):
            content = _content(source)
            return {"content": content, "size": tf.shape(decode(content))[:2]}

        signature = {"content": tf.string, "size": tf.int32}
        return tf.map_fn(measure, _sources(features), fn_output_signature=signature)


class Rescale:
    """The feature `image` from uint8 to float32 in `[0, 1]`.

    >>> Rescale()({"image": tf.constant([0, 255], tf.uint8)})["image"].numpy().tolist()
    [0.0, 1.0]
    """

    def __init__(self):
        self.settings = {"divisor": 255}

    @classmethod
    def from_settings(cls, settings: dict[str, Any]) -> "Rescale":
        """Returns the function of some `settings`."""
        del settings  # there is one divisor
        return cls()

    def __call__(self, features: Features) -> Features:
        return {"image": tf.cast(features["image"], tf.float32) / 255.0}


def affine_flip(features: Features, seeds: tf.Tensor) -> Features:
    """Rotates, shifts and flips `image` float `[B, height, width, channels]` by seeds int64 `[B, 2]`.

    Angles are up to 15 degrees, shifts up to a tenth of height and width, and flips have probability 1/2.
    Pixels outside the image take the values of its border.

    Reference: github.com/geifmany/cifar-vgg, cited in Rank4Class, appendix B.2.
    """
    image = features["image"]
    draws = tf.map_fn(
        lambda seed: tf.random.stateless_uniform([4], seed, -1.0, 1.0), seeds, fn_output_signature=tf.float32
    )
    angle, down, right, side = tf.unstack(draws, axis=1)
    height = image.shape[1]
    width = image.shape[2]
    matrix = _affine(
        math.radians(15.0) * angle,
        0.1 * height * down,
        0.1 * width * right,
        tf.where(side < 0.0, -1.0, 1.0),
        image.shape,
    )
    augmented = tf.raw_ops.ImageProjectiveTransformV3(
        images=image,
        transforms=matrix,
        output_shape=[height, width],
        fill_value=0.0,
        interpolation="BILINEAR",
        fill_mode="NEAREST",
    )
    return {**features, "image": tf.ensure_shape(augmented, image.shape)}


def flip(features: Features, seeds: tf.Tensor) -> Features:
    """Mirrors half of `image` float `[B, height, width, channels]`, drawn by seeds int64 `[B, 2]`.

    >>> image = tf.reshape(tf.range(2.0), [1, 1, 2, 1])
    >>> images, seeds = tf.repeat(image, 8, axis=0), tf.stack([tf.range(8), tf.zeros(8, tf.int32)], axis=1)
    >>> sorted(set(flip({"image": images}, seeds)["image"][:, 0, 0, 0].numpy().tolist()))
    [0.0, 1.0]
    """
    image = features["image"]
    draws = tf.map_fn(
        lambda seed: tf.random.stateless_uniform([], seed), seeds, fn_output_signature=tf.float32
    )
    return {**features, "image": tf.where(draws[:, None, None, None] < 0.5, image[:, :, ::-1], image)}


AUGMENTATIONS = {"affine_flip": affine_flip, "flip": flip}


def _affine(angle, down, right, side, shape):
    """Returns the transforms `[B, 8]` from positions in the output to positions in the input.

    About the center, columns are multiplied by `side` (1 or -1), then shifted, then rotated.
    """
    cos = tf.cos(angle)
    sin = tf.sin(angle)
    middle_row = (shape[1] - 1) / 2
    middle_column = (shape[2] - 1) / 2
    row = [-side * sin, cos, cos * down - sin * right]
    column = [side * cos, sin, sin * down + cos * right]
    row[2] += middle_row - row[0] * middle_column - row[1] * middle_row
    column[2] += middle_column - column[0] * middle_column - column[1] * middle_row
    zero = tf.zeros_like(angle)
    return tf.stack([*column, *row, zero, zero], axis=1)


READ_AHEAD = 1 << 17  # bytes, about one image; the rest would be discarded


def _sources(features):
    return {name: features[name] for name in ("image_bytes", "file", "offset") if name in features}


def _content(source):
    if "image_bytes" in source:
        return source["image_bytes"]
    return _image_of_record(**source) if "offset" in source else tf.io.read_file(source["file"])


def _central_crop(image, share=CENTRAL_CROP):
    size = tf.cast(tf.shape(image)[:2], tf.float32)
    side = share * tf.reduce_min(size)
    top, left = tf.unstack(tf.cast((size - side) / 2.0, tf.int32))
    side = tf.cast(side, tf.int32)
    return image[top : top + side, left : left + side]


def decode(content: tf.Tensor) -> tf.Tensor:
    """Returns the upright image of the content of a file, uint8 `[height, width, 3]`."""
    has_alpha, is_animated = _webp_flags(content)

    def with_channels(channels):
        return tf.io.decode_image(content, channels, expand_animations=False)[:, :, :3]

    with tf.control_dependencies([_check_format(content, is_animated)]):
        # TensorFlow ignores the alpha channel of PNG, and refuses that of WebP.
        image = tf.cond(has_alpha, lambda: with_channels(4), lambda: with_channels(3))
    image = _upright(image, _orientation(content))
    # The central crop of one pixel is empty.
    large = tf.reduce_all(tf.shape(image)[:2] > 1)
    tf.raw_ops.Assert(condition=large, data=["a side of one pixel, at least two are required"])
    return image


# A separate tf.function, so that it is traced once for all pipelines.
@tf.function(input_signature=[tf.TensorSpec([], tf.string)], autograph=False)
def _orientation(content):
    """Returns the EXIF orientation of an image file, int64 1 to 8; 1 if it has none."""
    start, size = _exif(content)
    upright = tf.constant(1, tf.int64)
    return tf.cond(
        size > 0, lambda: _parse_orientation(tf.strings.substr(content, start, size)), lambda: upright
    )


def _webp_flags(content):
    """Returns whether an image file is a WebP with an alpha channel, and whether it is an animated WebP.

    The flags are in byte 20 of the extended format, and in byte 24 of a lossless image (RFC 9649).
    """
    head = tf.strings.join([tf.strings.substr(content, 0, 25), bytes(25)])
    kind = tf.strings.substr(head, 8, 8)
    numbers = tf.io.decode_raw(head, tf.uint8)
    is_extended = kind == b"WEBPVP8X"
    is_lossless = kind == b"WEBPVP8L"
    alpha, animation = (tf.bitwise.bitwise_and(numbers, flag) > 0 for flag in (0x10, 0x02))
    return (is_extended & alpha[20]) | (is_lossless & alpha[24]), is_extended & animation[20]


def _check_format(content, is_animated):
    """Returns an operation that raises for a BMP or a WebP that TensorFlow decodes wrongly or not at all."""
    head = tf.strings.join([tf.strings.substr(content, 0, 34), bytes(34)])
    # TensorFlow decodes compressed BMP files as if they were not compressed, and ignores palettes.
    bits = tf.strings.substr(head, 28, 2)
    compression = tf.strings.substr(head, 30, 4)
    is_plain = tf.reduce_any(bits == [b"\x18\0", b"\x20\0"])
    is_plain &= tf.reduce_any(compression == [bytes(4), b"\3\0\0\0"])
    is_other_bmp = (tf.strings.substr(head, 0, 2) == b"BM") & ~is_plain
    name = tf.where(is_animated, "animated WebP", "BMP other than uncompressed 24 or 32-bit")
    reason = tf.strings.join([name, " files are not supported; convert it to PNG or JPEG"])
    return tf.raw_ops.Assert(condition=~(is_animated | is_other_bmp), data=[reason])


def _upright(image, orientation):
    """Rotates and mirrors an image by its EXIF orientation."""

    def rotated():
        transposed = tf.transpose(image, tf.where(orientation >= 5, [1, 0, 2], [0, 1, 2]))
        down, across = (tf.reduce_any(orientation == values) for values in ([3, 4, 7, 8], [2, 3, 6, 7]))
        return tf.reverse(transposed, tf.boolean_mask([0, 1], tf.stack([down, across])))

    return tf.ensure_shape(tf.cond(orientation > 1, rotated, lambda: image), [None, None, 3])


def _exif(content):
    """Returns the start and the size of the EXIF block of a JPEG; the size is at most 0 without one."""
    length = tf.strings.length(content)

    def is_before(position, size):
        return (size == 0) & (position + 10 <= length)

    def next_segment(position, size):
        head = tf.io.decode_raw(tf.strings.substr(content, position, 4), tf.uint16, little_endian=False)
        marker, size = tf.unstack(tf.cast(head, tf.int32), num=2)
        is_exif = (marker == 0xFFE1) & (tf.strings.substr(content, position + 4, 6) == b"Exif\0\0")
        # Only application data and comments may precede EXIF.
        after = tf.where(marker >= 0xFFE0, position + 2 + size, length)
        after = tf.where(marker == 0xFFFF, position + 1, after)  # a byte that fills the space before a marker
        return tf.where(is_exif, position + 10, after), tf.where(is_exif, size - 8, 0)

    is_jpeg = tf.strings.substr(content, 0, 2) == b"\xff\xd8"
    return tf.while_loop(is_before, next_segment, [tf.where(is_jpeg, 2, length), 0])


def _parse_orientation(exif):
    """Returns the orientation in an EXIF block, a TIFF file, as `_orientation` does."""
    size = tf.cast(tf.strings.length(exif), tf.int64)
    # The zeros after it are an empty directory, for blocks without a directory.
    numbers = tf.cast(tf.io.decode_raw(tf.strings.join([exif, bytes(8)]), tf.uint8), tf.int64)
    magic = tf.strings.substr(exif, 0, 4)
    is_little = magic == b"II*\0"
    low_first = tf.constant([1, 256], tf.int64)
    high_first = tf.constant([256, 1], tf.int64)

    def short(pairs):
        return tf.reduce_sum(pairs * tf.where(is_little, low_first, high_first), axis=-1)

    first, second = tf.unstack(short(tf.reshape(numbers[4:8], [2, 2])))
    start = tf.where(is_little, first + 65536 * second, 65536 * first + second)
    start = tf.where(is_little | (magic == b"MM\0*"), tf.minimum(start, size), size)
    count = tf.clip_by_value(short(numbers[start : start + 2]), 0, tf.maximum((size - start - 2) // 12, 0))
    entries = tf.reshape(numbers[start + 2 : start + 2 + 12 * count], [-1, 12])
    tag, kind, value = (short(entries[:, i : i + 2]) for i in (0, 2, 8))
    is_valid = (tag == 0x0112) & (kind == 3) & (value >= 1) & (value <= 8)
    return tf.concat([value[is_valid], [1]], axis=0)[0]


def _image_of_record(file, offset):
    types = {"output_types": [tf.string], "output_shapes": [tf.TensorShape([])]}
    # tf.data.TFRecordDataset has no public argument for the first byte.
    records = tf.raw_ops.TFRecordDatasetV2(
        filenames=[file],
        compression_type="",
        buffer_size=tf.constant(READ_AHEAD, tf.int64),
        byte_offsets=offset[None],
    )
    first = tf.raw_ops.TakeDataset(input_dataset=records, count=tf.constant(1, tf.int64), **types)
    [record] = tf.raw_ops.DatasetToSingleElement(dataset=first, **types)
    names = ("image", "image/encoded")
    parsed = tf.io.parse_single_example(
        record, {name: tf.io.FixedLenFeature([], tf.string, default_value="") for name in names}
    )
    return tf.strings.join([parsed[name] for name in names])


def _random_crop(image, seed):
    area = (0.08, 1.0)
    aspect = (3 / 4, 4 / 3)
    begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
        tf.shape(image),
        tf.constant([[[0.0, 0.0, 1.0, 1.0]]]),
        seed=seed,
        min_object_covered=area[0],
        aspect_ratio_range=aspect,
        area_range=area,
        max_attempts=10,
    )
    # A failed draw returns the whole image. Take the center instead, as in evaluation.
    return tf.cond(
        tf.reduce_all(size[:2] == tf.shape(image)[:2]),
        lambda: _central_crop(image),
        lambda: tf.slice(image, begin, size),
    )


def _resize(image, size):
    return tf.ensure_shape(tf.image.resize(image, [size, size]) / 255.0, [size, size, 3])
