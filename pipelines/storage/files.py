"""Files of a run, on disk or in object storage, with errors that name them."""

import contextlib
import hashlib
import io
import json
import math
import os
import re
import shutil
import sys
import uuid
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from rank4class import compat


class _Disk:
    """The functions of `tf.io.gfile` for files on disk, since TensorFlow takes seconds to import."""

    GFile = staticmethod(open)
    copy = staticmethod(shutil.copyfile)
    exists = staticmethod(os.path.exists)
    isdir = staticmethod(os.path.isdir)
    listdir = staticmethod(os.listdir)
    remove = staticmethod(os.remove)
    rmtree = staticmethod(shutil.rmtree)

    @staticmethod
    def makedirs(path: str | os.PathLike) -> None:
        os.makedirs(path, exist_ok=True)

    @staticmethod
    def rename(source: str | os.PathLike, target: str | os.PathLike, overwrite: bool = False) -> None:
        os.replace(source, target)


def _system(path: str | os.PathLike) -> Any:
    """Returns the file system of a path."""
    if is_local(path):
        return _Disk
    import tensorflow as tf

    return tf.io.gfile


@contextlib.contextmanager
def errors_of(path: str | os.PathLike, remedy: str = "") -> Iterator[None]:
    """Turns the errors of file systems within the block into an `OSError` that names `path`."""
    try:
        yield
    except OSError as error:
        if error.errno is None:  # it names its file already
            raise
        raise OSError(f"{path}: {error.strerror}{remedy}") from error
    except Exception as error:
        tf = sys.modules.get("tensorflow")
        if tf is None or not isinstance(error, tf.errors.OpError):
            raise
        raise OSError(f"{path}: {compat.reason(error)}{remedy}") from error


def exists(path: str | os.PathLike) -> bool:
    """Whether a file or folder exists."""
    with errors_of(path):
        return _system(path).exists(path)


def check_folder_name(field: str, path: str) -> str:
    """Returns the path of a folder; raises ValueError if TensorFlow would not find the files there."""
    if not path:
        raise ValueError(f"{field}='': empty. Set it to a folder.")
    for character in "[\\":
        if character in path:
            raise ValueError(f"{field}={path}: '{character}' is a glob character. Choose another path.")
    return path


def read_text(path: str | os.PathLike) -> str:
    """Returns a file's text, which is UTF-8."""
    return read_bytes(path).decode()


def read_bytes(path: str | os.PathLike) -> bytes:
    """Returns a file's content."""
    with errors_of(path), _system(path).GFile(path, "rb") as file:
        return file.read()


def write(path: str | os.PathLike, content: str | bytes) -> None:
    """Writes a file of text or bytes, completely or not at all; raises OSError if that fails."""
    with writing(path) as file:
        file.write(content)


@contextlib.contextmanager
def writing(path: str | os.PathLike) -> Iterator["_File"]:
    """Opens a file for text or bytes; at the end of the block all of it is at `path`, or nothing."""
    partial = f"{path}.partial-{uuid.uuid4().hex}"  # other processes may write the same file
    with errors_of(path):
        try:
            with _system(path).GFile(partial, "wb") as file:
                yield _File(file)
            _system(path).rename(partial, path, overwrite=True)
        except BaseException:
            remove([partial])
            raise


class _File(io.RawIOBase):
    """A file for writing, perhaps TensorFlow's, with all that `zipfile` and PyArrow expect of one."""

    def __init__(self, file: Any):
        self._file = file
        self._written = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._written

    def write(self, content: Any) -> int:
        content = content.encode() if isinstance(content, str) else bytes(content)
        self._file.write(content)
        self._written += len(content)
        return len(content)


def write_npz(path: str | os.PathLike, arrays: dict[str, np.ndarray]) -> None:
    """Writes arrays with `numpy.savez`; see `writing`."""
    with writing(path) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def read_npz(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """Returns the arrays that `write_npz` wrote."""
    with np.load(io.BytesIO(read_bytes(path))) as npz:
        return dict(npz)


@contextlib.contextmanager
def new_folder(path: str | os.PathLike) -> Iterator[str]:
    """Yields a folder to write to; at the end of the block all of it is at `path`, which may not exist."""
    path = os.fspath(path).rstrip("/")
    partial = f"{path}.partial-{uuid.uuid4().hex}"
    with errors_of(path):
        try:
            make_folder(partial, f"output={path}")
            yield partial
            _system(path).rename(partial, path)
        except BaseException:
            remove([partial])
            raise


def link(source: str | os.PathLike, target: str | os.PathLike) -> None:
    """Makes `target` a second name of a file on disk, or a copy where the file system has no such links."""
    remove([target])
    try:
        os.link(source, target)
    except OSError:
        with errors_of(target):
            _system(target if is_local(source) else source).copy(source, target)


def names_in(folder: str | os.PathLike) -> list[str]:
    """Returns the names in a folder, without a trailing slash; none if the folder does not exist."""
    with errors_of(folder):
        if not exists(folder):
            return []
        return sorted(name.rstrip("/") for name in _system(folder).listdir(folder))


_WRITABLE = ". Choose a folder that can be written."


def make_folder(path: str | os.PathLike, field: str | None = None) -> None:
    """Makes a folder and those above it; its OSError names the field that sets it (None: --workdir)."""
    with errors_of(field or f"--workdir={path}", _WRITABLE):
        _system(path).makedirs(path)


def make_writable(path: str | os.PathLike, field: str | None = None) -> None:
    """Makes a folder and writes a file to it once; raises OSError if that fails. See `make_folder`."""
    make_folder(path, field)
    probe = os.path.join(path, f"partial-{uuid.uuid4().hex}")
    with errors_of(field or f"--workdir={path}", _WRITABLE):
        try:
            with _system(path).GFile(probe, "wb") as file:
                file.write(b"\n")
        finally:
            remove([probe])


def remove(paths: Iterable[str | os.PathLike]) -> None:
    """Removes as many of the files and folders as possible."""
    for path in paths:
        system = _system(path)
        with contextlib.suppress(OSError), errors_of(path):
            if system.isdir(path):
                system.rmtree(path)
            else:
                system.remove(path)


def sha256(*parts: bytes | str) -> str:
    """Returns the SHA-256 of several parts, one after another."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode() if isinstance(part, str) else part)
    return digest.hexdigest()


def is_local(path: str | os.PathLike) -> bool:
    """Whether a path is on disk rather than in object storage."""
    return "://" not in os.fspath(path)


def to_json(value: Any, *, indent: int | None = None) -> str:
    """Returns a value as JSON. Numbers that are not finite, which JSON cannot hold, become null.

    >>> to_json({"mean_rank": math.inf, "interval": [1.0, math.nan]})
    '{"mean_rank": null, "interval": [1.0, null]}'
    """
    return json.dumps(_finite(value), indent=indent, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def printable(text: str) -> str:
    """Escapes a text's control characters, line ends and broken characters.

    >>> print(printable("one\\ntwo"))
    one\\ntwo
    """
    control = r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]"
    return re.sub(control, lambda match: match[0].encode("unicode_escape").decode(), text)
