"""Hashes and names of files, and the limit on the size of compressed ones."""

import hashlib
import zipfile


def sha256(path: str) -> str:
    """Returns the SHA-256 of a file, hexadecimal."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def damaged(path: str, problem: str) -> ValueError:
    """Returns the error for a file that differs from the published one.

    >>> damaged("images.gz", "truncated")
    ValueError('images.gz: truncated. Download it again.')
    """
    return ValueError(f"{path}: {problem}. Download it again.")


def check_inflated_size(path: str, member: zipfile.ZipInfo, max_bytes: int) -> None:
    """Raises for a member of a zip file that would take too much memory to read.

    Args:
      path: the zip file.
      member: its stated size may be wrong; read no more bytes than it states.
      max_bytes: the limit on its inflated size.

    Raises:
      NotImplementedError: a compression that Python inflates as a whole.
      ValueError: the stated size exceeds the limit.
    """
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise NotImplementedError("that compression method is not supported")
    if member.file_size > max_bytes:
        size, limit = member.file_size / 1e9, max_bytes / 1e9
        raise damaged(path, f"{member.filename} inflates to {size:,.1f} GB, more than {limit:g} GB")


def check_name(path: str) -> None:
    """Raises ValueError if a path is not UTF-8, as TensorFlow and text files need it."""
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{path!r}: the name is not UTF-8. Rename the file.") from error
