"""The cache of outputs of encoders: its folder, and errors of one that cannot be written."""

import os

import numpy as np
import pytest

from rank4class.data import lazy_arrays
from rank4class.pipelines.storage import cache, files

GROUP, OTHER = (f"features-{16 * digit}" for digit in "ab")


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Returns the shared folder, which does not exist yet, and the folder of a run."""
    monkeypatch.delenv(lazy_arrays.CACHE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    return tmp_path / "xdg" / "rank4class", tmp_path / "run"


def test_runs_share_the_folder_of_the_user(folders):
    shared, run = folders
    path = cache.Cache(run).path("a")
    assert path == str(shared / "a")
    assert cache.Cache(run).find("a") is None
    files.write(path, "x")
    assert cache.Cache(run.parent / "other").find("a") == path
    assert not run.exists()


def test_the_home_folder_is_the_default(folders, monkeypatch, tmp_path):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache.Cache(folders[1]).path("a") == str(tmp_path / "home" / ".cache" / "rank4class" / "a")


def test_another_folder_and_none(folders, monkeypatch, tmp_path):
    shared, run = folders
    monkeypatch.setenv(lazy_arrays.CACHE, str(tmp_path / "mine"))
    assert cache.Cache(run).path("a") == str(tmp_path / "mine" / "a")
    monkeypatch.setenv(lazy_arrays.CACHE, "off")
    off = cache.Cache(run)
    assert off.find("a") is None
    assert off.path("a") == str(run / "a")
    assert not shared.exists()
    monkeypatch.setenv(lazy_arrays.CACHE, "")
    with pytest.raises(ValueError, match="^--cache='': empty. Set it to a folder."):
        cache.Cache(run)


def test_a_folder_that_cannot_be_written(folders, tmp_path):
    (tmp_path / "xdg").write_text("a file, in which no folder can be made")
    with pytest.raises(OSError, match=f"^--cache={folders[0]}: .*Choose a folder that can be written"):
        cache.Cache(folders[1]).path("a")


def test_the_oldest_files_make_room(folders, monkeypatch):
    shared, run = folders
    monkeypatch.setattr(cache, "LARGEST", 2_500)
    one = cache.Cache(run)
    for i in range(4):  # of about 1,000 bytes
        one.add(GROUP, np.array([b"%d" % i], "S16"), np.full([1, 125], i, np.float32))
        for path in shared.iterdir():
            os.utime(path, ns=(0, path.stat().st_mtime_ns - 10**9))
    left = {keys[0]: vectors[0, 0] for keys, vectors in one.vectors(GROUP)}
    assert left == {b"2": 2.0, b"3": 3.0}
    monkeypatch.setattr(cache, "LARGEST", 1)
    one.add(OTHER, np.array([b"4"], "S16"), np.zeros([1, 125], np.float32))
    assert [path.name[:25] for path in shared.iterdir()] == [OTHER]
    # What a process left that was killed, and files of the user, are no outputs.
    for name in (f"{OTHER}-{16 * 'c'}.npz.partial-1", "features-2024.csv"):
        (shared / name).write_text("x")
    assert len(list(one.vectors(OTHER))) == 1
    assert len(cache.stored(str(shared))) == 2
