"""Images to the floats of an encoder, in the graph."""

import tensorflow as tf
from official.vision.ops import preprocess_ops

SIZE = 224


class DecodeAndCrop:
    """Image files to squares, as the Model Garden's ResNet evaluates.

    Called on features with `file` `[B]`, paths, it returns `image` float32 `[B, 224, 224, 3]`, RGB in
    `[0, 1]`: of each image the central square, 224/256 of the shorter side, resized bilinearly. The
    content decides the format, whatever the file's name (JPEG, greyscale and CMYK too, PNG, GIF, BMP).

    `settings` holds all that its output depends on, beside the files.
    """

    def __init__(self):
        self.settings = {"size": SIZE, "central_crop": preprocess_ops.CENTER_CROP_FRACTION}

    def __call__(self, features):
        return {"image": tf.map_fn(_square, features["file"], fn_output_signature=tf.float32)}


def _square(file):
    image = tf.io.decode_image(tf.io.read_file(file), channels=3, expand_animations=False)
    return tf.image.resize(preprocess_ops.center_crop_image(image), [SIZE, SIZE]) / 255.0


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
