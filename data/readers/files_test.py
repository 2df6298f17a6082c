"""Hashes of files."""

import hashlib

from rank4class.data.readers import files


def test_sha256(tmp_path):
    content = bytes(range(256)) * 10_000
    (tmp_path / "file").write_bytes(content)
    assert files.sha256(str(tmp_path / "file")) == hashlib.sha256(content).hexdigest()
