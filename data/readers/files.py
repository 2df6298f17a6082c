"""Hashes, names and contents of files, compressed ones too, and the error for damaged ones."""

import contextlib
import gzip
import hashlib
import zlib
from collections.abc import Iterator
from typing import Any

IMAGE_ENDINGS = (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".gif", ".bmp")


def sha256(path: str) -> str:
    """Returns the SHA-256 of a file, hexadecimal."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def uncompressed(path: str) -> str:
    """Returns a path in lower case, without the ending of a gzip file.

    >>> uncompressed("Rows.CSV.gz")
    'rows.csv'
    """
    return path.lower().removesuffix(".gz")


@contextlib.contextmanager
def opened(path: str, mode: str = "rb", **options: Any) -> Iterator[Any]:
    """Opens a file, whose content is decompressed if its path ends in .gz; ValueError for a damaged one."""
    try:
        with (gzip.open if str(path).lower().endswith(".gz") else open)(path, mode, **options) as file:
            yield file
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise damaged(path, f"not a complete gzip file ({error})") from error


def check_image(path: str) -> None:
    """Raises ValueError if a path does not end as an image does, or is not UTF-8, as TensorFlow needs it."""
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{path!r}: the name is not UTF-8. Rename the file.") from error
    if not path.lower().endswith(IMAGE_ENDINGS):
        raise ValueError(f"{path}: not an image ({', '.join(IMAGE_ENDINGS)}). Convert or move it.")


def damaged(path: str, problem: str) -> ValueError:
    """Returns the error for a file that differs from the published one."""
    return ValueError(f"{path}: {problem}. Download it again.")
