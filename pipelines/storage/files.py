"""Files of a run, on disk or in object storage, with errors that name them."""

import contextlib
import json
import math
import os
import re
import uuid
import zipfile

import tensorflow as tf


@contextlib.contextmanager
def errors_of(path):
    """Turns what TensorFlow's file system raises within the block into an `OSError` on `path`."""
    try:
        yield
    except tf.errors.OpError as error:
        raise OSError(f"{path}: {reason(error)}") from error


_AROUND = re.compile(r"Graph execution error|Detected at|  File|\s*\[\[|Additional GRPC|:\{|\s*$")


def reason(error):
    """Returns the first line of an error's own words, without the operation and the file of which they are.

    >>> message = ["Graph execution error:", "", "{{node Save}} /a/b; No space left on device [Op:SaveV2]"]
    >>> reason(tf.errors.ResourceExhaustedError(None, None, chr(10).join(message)))
    'No space left on device'
    """
    lines = (getattr(error, "message", None) or str(error)).splitlines()
    line = next((line.strip() for line in lines if not _AROUND.match(line)), type(error).__name__)
    return re.sub(r"^(\{\{.*?\}\} )?(\S+; )?(.*?)( \[Op:\w+\])?$", r"\3", line)


def exists(path):
    with errors_of(path):
        return tf.io.gfile.exists(path)


def read_text(path):
    """Returns a file's text; raises ValueError where it is not UTF-8."""
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is damaged (no UTF-8 text): restore it, or choose another --workdir"
        ) from error


def read_bytes(path):
    with errors_of(path), tf.io.gfile.GFile(path, "rb") as file:
        return file.read()


def check_stored(npz):
    """Raises ValueError where arrays of `np.load` are compressed: a small file may take gigabytes to read."""
    if any(member.compress_type != zipfile.ZIP_STORED for member in npz.zip.infolist()):
        raise ValueError("its arrays are compressed")


def write(path, content):
    """Writes a whole file, of text or bytes, or nothing; raises OSError where it cannot."""
    with writing(path) as file:
        file.write(content)


@contextlib.contextmanager
def writing(path):
    """Gives a file to write text or bytes to; once the block has ended the whole of it is there, or nothing.

    Raises:
      OSError: it cannot be written.
    """
    partial = f"{path}.partial-{uuid.uuid4().hex}"  # others may be writing the same file
    with errors_of(path):
        try:
            with tf.io.gfile.GFile(partial, "wb") as file:
                yield file
            tf.io.gfile.rename(partial, path, overwrite=True)
        except BaseException:
            remove([partial])
            raise


def names_in(folder):
    """Returns the names in a folder, folders without a slash at the end; none where it does not exist."""
    with errors_of(folder):
        if not tf.io.gfile.exists(folder):
            return []
        return sorted(name.rstrip("/") for name in tf.io.gfile.listdir(folder))


def make_folder(path):
    with errors_of(path):
        tf.io.gfile.makedirs(path)


def make_writable(path):
    """Makes a folder and writes to it once; raises OSError where that fails."""
    make_folder(path)
    probe = os.path.join(path, f"partial-{uuid.uuid4().hex}")
    with errors_of(path):
        try:
            with tf.io.gfile.GFile(probe, "wb") as file:
                file.write(b"\n")
        finally:
            remove([probe])


def remove(paths):
    """Removes files and folders, as many as it can."""
    for path in paths:
        with contextlib.suppress(tf.errors.OpError):
            if tf.io.gfile.isdir(path):
                tf.io.gfile.rmtree(path)
            else:
                tf.io.gfile.remove(path)


def is_local(path):
    return "://" not in os.fspath(path)


def to_json(value, *, indent=None):
    """Returns a value as JSON; numbers that are not finite, which JSON cannot hold, become null.

    >>> to_json({"mean_rank": math.inf, "interval": [1.0, math.nan]})
    '{"mean_rank": null, "interval": [1.0, null]}'
    """
    return json.dumps(_finite(value), indent=indent, allow_nan=False)


def _finite(value):
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def printable(text):
    """Returns a text whose control characters, ends of lines and broken characters are escaped.

    >>> print(printable("one\\ntwo"))
    one\\ntwo
    """
    control = r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]"
    return re.sub(control, lambda found: found[0].encode("unicode_escape").decode(), text)
