"""Images to the floats of an encoder, in the graph; for training with random changes."""

import math

import tensorflow as tf


class DecodeAndCrop:
    """Image files to squares, as the Model Garden's ResNet evaluates.

    Called on features with `file` `[B]`, paths, it returns `image` float32 `[B, size, size, 3]`, RGB in
    `[0, 1]`: of each image the central square, 224/256 of the shorter side, resized bilinearly. The
    content decides the format, whatever the file's name (JPEG, greyscale and CMYK too, PNG, GIF, BMP).
    A JPEG is turned upright as its EXIF orientation says. An image with a side of one pixel cannot be read.

    With `offset` int64 `[B]` beside it, an image is that of the record which starts there in a file of
    TFRecords: a `tf.train.Example` with `image` (TensorFlow Datasets) or `image/encoded` (Model Garden).

    `settings` holds all that its output depends on, beside the files.

    Args:
      size: height and width, in pixels.
    """

    def __init__(self, size=224):
        self._size = size
        self.settings = {
            "size": size,
            "central_crop": _model_garden().CENTER_CROP_FRACTION,
            "orientation": "exif",
        }

    def __call__(self, features):
        def square(source):
            return _resized(_central_crop(_decoded(_content(source))), self._size)

        return {"image": tf.map_fn(square, _sources(features), fn_output_signature=tf.float32)}


class DecodeAndRandomCrop:
    """Image files to squares, as the Model Garden's ResNet trains.

    Called on the features of `DecodeAndCrop` and on seeds int64 `[B, 2]`: of each image a rectangle
    drawn by its seed, of 8 to 100 percent of the area and an aspect of 3:4 to 4:3, resized to a square and
    every other time flipped.

    Args:
      size: height and width, in pixels.
    """

    def __init__(self, size=224):
        self._size = size

    def __call__(self, features, seeds):
        def square(source):
            source, seed = source
            image = _random_crop(_decoded(_content(source)), seed)
            return _resized(tf.image.stateless_random_flip_left_right(image, [seed[0], ~seed[1]]), self._size)

        return {"image": tf.map_fn(square, (_sources(features), seeds), fn_output_signature=tf.float32)}


class ContentAndSize:
    """Image files to what they hold.

    Called on the features of `DecodeAndCrop` it returns `content` string `[B]`, the bytes of each image,
    and `size` int32 `[B, 2]`, its height and width in pixels once it is upright.
    """

    def __call__(self, features):
        def measure(source):
            content = _content(source)
            return {"content": content, "size": tf.shape(_decoded(content))[:2]}

        signature = {"content": tf.string, "size": tf.int32}
        return tf.map_fn(measure, _sources(features), fn_output_signature=signature)


class Rescale:
    """Bytes to floats: the feature `image` from uint8 to float32 in `[0, 1]`.

    `settings` holds all that its output depends on.

    >>> Rescale()({"image": tf.constant([0, 255], tf.uint8)})["image"].numpy().tolist()
    [0.0, 1.0]
    """

    def __init__(self):
        self.settings = {"divisor": 255}

    def __call__(self, features):
        return {"image": tf.cast(features["image"], tf.float32) / 255.0}


ROTATION = 15.0  # degrees
SHIFT = 0.1  # of height and width


def affine_flip(features, seeds):
    """Rotates, shifts and flips images, as VGG16 for CIFAR-10 is trained.

    By up to 15 degrees and a tenth of height and width; flipped every other time. Where the image ends,
    its border is continued.

    Args:
      features: `image` float `[B, height, width, channels]`.
      seeds: int64 `[B, 2]`.

    Returns:
      The features with the changed images.

    References:
      github.com/geifmany/cifar-vgg, which Rank4Class, appendix B.2, names.
    """
    image = features["image"]
    draws = tf.map_fn(
        lambda seed: tf.random.stateless_uniform([4], seed, -1.0, 1.0), seeds, fn_output_signature=tf.float32
    )
    angle, down, right, side = tf.unstack(draws, axis=1)
    height, width = image.shape[1], image.shape[2]
    matrix = _affine(
        math.radians(ROTATION) * angle,
        SHIFT * height * down,
        SHIFT * width * right,
        tf.where(side < 0.0, -1.0, 1.0),
        image.shape,
    )
    changed = tf.raw_ops.ImageProjectiveTransformV3(
        images=image,
        transforms=matrix,
        output_shape=[height, width],
        fill_value=0.0,
        interpolation="BILINEAR",
        fill_mode="NEAREST",
    )
    return {**features, "image": tf.ensure_shape(changed, image.shape)}


AUGMENTATIONS = {"none": None, "affine_flip": affine_flip}


def _affine(angle, down, right, side, shape):
    """Returns the transforms `[B, 8]` from places in the output to places in the input.

    Around the centre: columns times `side` (1 or -1), then shifted, then rotated.
    """
    cos, sin = tf.cos(angle), tf.sin(angle)
    middle_row, middle_column = (shape[1] - 1) / 2, (shape[2] - 1) / 2
    row = [-side * sin, cos, cos * down - sin * right]
    column = [side * cos, sin, sin * down + cos * right]
    row[2] += middle_row - row[0] * middle_column - row[1] * middle_row
    column[2] += middle_column - column[0] * middle_column - column[1] * middle_row
    zero = tf.zeros_like(angle)
    return tf.stack([*column, *row, zero, zero], axis=1)


READ_AHEAD = 1 << 17  # bytes, about one image: more would be read in vain


def _sources(features):
    return {name: features[name] for name in ("file", "offset") if name in features}


def _content(source):
    return _image_of_record(**source) if "offset" in source else tf.io.read_file(source["file"])


def _model_garden():
    from official.vision.ops import preprocess_ops  # a second to import, and only image files need it

    return preprocess_ops


def _central_crop(image):
    return _model_garden().center_crop_image(image)


def _decoded(content):
    with tf.control_dependencies([_check_format(content)]):
        image = tf.io.decode_image(content, channels=3, expand_animations=False)
    is_bmp = tf.strings.substr(content, 0, 2) == b"BM"
    image = tf.cond(is_bmp, lambda: _with_palette(image, content), lambda: image)
    image = _upright(image, _orientation(content))
    # The central crop of one pixel is none.
    large = tf.reduce_all(tf.shape(image)[:2] > 1)
    tf.raw_ops.Assert(condition=large, data=["a side of one pixel, two are needed"])
    return image


# A function of its own, so that it is traced once and not for every pipeline.
@tf.function(input_signature=[tf.TensorSpec([], tf.string)], autograph=False)
def _orientation(content):
    """Returns the EXIF orientation of an image file, int64 1 to 8; 1 where none can be read."""
    start, size = _exif(content)
    upright = tf.constant(1, tf.int64)
    return tf.cond(
        size > 0, lambda: _stated_orientation(tf.strings.substr(content, start, size)), lambda: upright
    )


# Formats that are not read: where their four bytes are, and the name.
FOREIGN = (
    (8, b"WEBP", "WebP"), (0, b"II*\0", "TIFF"), (0, b"MM\0*", "TIFF"), (4, b"ftyp", "HEIC or AVIF"),
    (4, b"jP  ", "JPEG 2000"), (0, b"8BPS", "Photoshop"), (0, b"%PDF", "PDF"), (0, b"<svg", "SVG"),
    (0, b"<?xm", "SVG or XML"), (0, b"\0\0\1\0", "ICO"),
)  # fmt: skip


def _check_format(content):
    """Returns an operation that raises where a format is one of `FOREIGN`, or a BMP that is not read."""
    head = tf.strings.join([tf.strings.substr(content, 0, 34), bytes(34)])
    offsets, magic, names = zip(*FOREIGN, strict=True)
    is_foreign = tf.strings.substr(tf.fill([len(FOREIGN)], head), offsets, [4] * len(FOREIGN)) == list(magic)
    name = tf.boolean_mask([*names, ""], tf.concat([is_foreign, [True]], 0))[0]
    # TensorFlow reads compressed BMP files as if they were not.
    bits, compression = tf.strings.substr(head, 28, 2), tf.strings.substr(head, 30, 4)
    is_plain = tf.reduce_any(bits == [b"\x08\0", b"\x18\0", b"\x20\0"])
    is_plain &= tf.reduce_any(compression == [bytes(4), b"\3\0\0\0"])
    is_other_bmp = (tf.strings.substr(head, 0, 2) == b"BM") & ~is_plain
    name = tf.where(is_other_bmp, "compressed or 1, 4 or 16-bit BMP", name)
    reason = tf.strings.join([name, " files are not read: convert it to PNG or JPEG"])
    return tf.raw_ops.Assert(condition=name == "", data=[reason])


def _with_palette(image, content):
    """Returns a BMP image in the colours of its palette, where it has one, which TensorFlow passes over."""
    head = tf.cast(tf.io.decode_raw(tf.strings.substr(content, 0, 30), tf.uint16), tf.int32)
    size, bits = head[7], head[14]

    def coloured():
        palette = tf.io.decode_raw(tf.strings.substr(content, 14 + size, 4 * 256), tf.uint8)
        palette = tf.reshape(palette[: tf.size(palette) // 4 * 4], [-1, 4])
        return tf.gather(palette[:, 2::-1], tf.cast(image[..., 0], tf.int32))

    return tf.cond(bits == 8, coloured, lambda: image)


def _upright(image, orientation):
    """Turns and mirrors an image as its EXIF orientation says."""

    def turned():
        transposed = tf.transpose(image, tf.where(orientation >= 5, [1, 0, 2], [0, 1, 2]))
        down, across = (tf.reduce_any(orientation == values) for values in ([3, 4, 7, 8], [2, 3, 6, 7]))
        return tf.reverse(transposed, tf.boolean_mask([0, 1], tf.stack([down, across])))

    return tf.ensure_shape(tf.cond(orientation > 1, turned, lambda: image), [None, None, 3])


def _exif(content):
    """Returns where the EXIF block of a JPEG begins and its size, at most 0 where there is none."""
    length = tf.strings.length(content)

    def is_before(position, size):
        return (size == 0) & (position + 10 <= length)

    def next_segment(position, size):
        head = tf.io.decode_raw(tf.strings.substr(content, position, 4), tf.uint16, little_endian=False)
        marker, size = tf.unstack(tf.cast(head, tf.int32), num=2)
        is_exif = (marker == 0xFFE1) & (tf.strings.substr(content, position + 4, 6) == b"Exif\0\0")
        # Application data and comments may come before EXIF, all else comes after it.
        after = tf.where(marker >= 0xFFE0, position + 2 + size, length)
        return tf.where(is_exif, position + 10, after), tf.where(is_exif, size - 8, 0)

    is_jpeg = tf.strings.substr(content, 0, 2) == b"\xff\xd8"
    return tf.while_loop(is_before, next_segment, [tf.where(is_jpeg, 2, length), 0])


def _stated_orientation(exif):
    """Returns the orientation in an EXIF block, which is a TIFF file, as `_orientation` does."""
    size = tf.cast(tf.strings.length(exif), tf.int64)
    # The zeros behind it are a directory without entries: a directory that is not there begins at `size`.
    numbers = tf.cast(tf.io.decode_raw(tf.strings.join([exif, bytes(8)]), tf.uint8), tf.int64)
    magic = tf.strings.substr(exif, 0, 4)
    is_little = magic == b"II*\0"
    low_first, high_first = tf.constant([1, 256], tf.int64), tf.constant([256, 1], tf.int64)

    def short(pairs):
        return tf.reduce_sum(pairs * tf.where(is_little, low_first, high_first), axis=-1)

    first, second = tf.unstack(short(tf.reshape(numbers[4:8], [2, 2])))
    start = tf.where(is_little, first + 65536 * second, 65536 * first + second)
    start = tf.where(is_little | (magic == b"MM\0*"), tf.minimum(start, size), size)
    count = tf.clip_by_value(short(numbers[start : start + 2]), 0, tf.maximum((size - start - 2) // 12, 0))
    entries = tf.reshape(numbers[start + 2 : start + 2 + 12 * count], [-1, 12])
    tag, kind, value = (short(entries[:, i : i + 2]) for i in (0, 2, 8))
    is_stated = (tag == 0x0112) & (kind == 3) & (value >= 1) & (value <= 8)
    return tf.concat([value[is_stated], [1]], axis=0)[0]


def _image_of_record(file, offset):
    types = {"output_types": [tf.string], "output_shapes": [tf.TensorShape([])]}
    # tf.data.TFRecordDataset has no public argument for where to begin.
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
    area, aspect = (0.08, 1.0), (3 / 4, 4 / 3)
    begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
        tf.shape(image),
        tf.constant([[[0.0, 0.0, 1.0, 1.0]]]),
        seed=seed,
        min_object_covered=area[0],
        aspect_ratio_range=aspect,
        area_range=area,
        max_attempts=10,
    )
    # What could not be drawn is the whole image: then the centre, as in evaluation.
    return tf.cond(
        tf.reduce_all(size[:2] == tf.shape(image)[:2]),
        lambda: _central_crop(image),
        lambda: tf.slice(image, begin, size),
    )


def _resized(image, size):
    return tf.ensure_shape(tf.image.resize(image, [size, size]) / 255.0, [size, size, 3])
