"""The cache of outputs of encoders: its folder, its fallback, and several processes."""

import os
import pathlib

import pytest

from rank4class.data import lazy_arrays
from rank4class.pipelines.storage import cache, files


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Returns the shared folder, which does not exist yet, and the folder of a run."""
    monkeypatch.delenv(lazy_arrays.CACHE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    return tmp_path / "xdg" / "rank4class", tmp_path / "run"


def write(name, content="x"):
    return lambda folder: files.write(os.path.join(folder, name), content)


def test_runs_share_the_folder_of_the_user(folders):
    shared, run = folders
    assert cache.Cache(run).write(write("a")) == str(shared)
    assert cache.Cache(run.parent / "other").find("a") == str(shared / "a")
    assert cache.Cache(run).find("b") is None
    assert not run.exists()


def test_the_home_folder_is_the_default(folders, monkeypatch, tmp_path):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache.Cache(folders[1]).write(write("a")) == str(tmp_path / "home" / ".cache" / "rank4class")


def test_another_folder_and_none(folders, monkeypatch, tmp_path):
    shared, run = folders
    monkeypatch.setenv(lazy_arrays.CACHE, str(tmp_path / "mine"))
    assert cache.Cache(run).write(write("a")) == str(tmp_path / "mine")
    monkeypatch.setenv(lazy_arrays.CACHE, "off")
    off = cache.Cache(run)
    assert off.find("a") is None
    assert off.write(write("a")) == str(run)
    assert not shared.exists()
    monkeypatch.setenv(lazy_arrays.CACHE, "")
    with pytest.raises(ValueError, match="^--cache='': empty. Set it to a folder."):
        cache.Cache(run)


def test_a_folder_that_cannot_be_written_is_replaced_by_that_of_the_run(folders, caplog, tmp_path):
    _, run = folders
    (tmp_path / "xdg").write_text("a file, in which no folder can be made")
    refused = cache.Cache(run)
    assert [refused.write(write(name)) for name in "ab"] == [str(run)] * 2
    assert refused.find("b") == str(run / "b")
    [message] = caplog.messages
    assert message.startswith(f"--cache={tmp_path}/xdg/rank4class: ")
    assert message.endswith(f". The outputs of the encoder go to {run}")


def test_a_full_disk_loses_no_outputs(folders):
    shared, run = folders

    def full(folder):
        if folder == str(shared):
            raise OSError(f"{folder}: No space left on device")
        write("a")(folder)

    assert cache.Cache(run).write(full) == str(run)
    with pytest.raises(OSError, match="No space left"):
        cache.Cache(shared).write(full)


def test_a_file_is_found_when_it_is_complete(folders):
    """Another process that looks while a file is written finds none; the last of two writers remains."""
    shared, run = folders

    def slow(folder):
        with files.writing(os.path.join(folder, "a")) as file:
            file.write("first half, ")
            file.flush()
            assert cache.Cache(run).find("a") is None
            assert [path.name for path in shared.iterdir()] != []
            file.write("second half")

    cache.Cache(run).write(slow)
    assert pathlib.Path(cache.Cache(run).find("a")).read_text() == "first half, second half"
    cache.Cache(run).write(write("a", "again"))
    assert [path.read_text() for path in shared.iterdir()] == ["again"]
