"""Checkpoints that are cut, changed, of another model, or incomplete after a kill."""

import os
import pathlib

import pytest
import tensorflow as tf

from rank4class.pipelines.storage import files
from rank4class.pipelines.storage.checkpoints import Checkpoints


def counter(folder, shape=(1000,), **kwargs):
    """Returns a variable and its checkpoints."""
    variable = tf.Variable(tf.zeros(shape))
    return variable, Checkpoints(str(folder), tf.train.Checkpoint(counter=variable), **kwargs)


def written(folder, *steps):
    variable, checkpoints = counter(folder)
    for step in steps:
        variable.assign(tf.fill([1000], float(step)))
        checkpoints.write(step)
    return checkpoints


def assert_newest(folder, step):
    """Asserts that a new process restores a step; returns its variable and its checkpoints."""
    variable, checkpoints = counter(folder)
    assert checkpoints.read_newest() == step
    assert float(variable[0]) == step
    return variable, checkpoints


@pytest.mark.parametrize("scheme", ["", "ram://"])
def test_restore_reads_the_newest(tmp_path, scheme):
    folder = scheme + str(tmp_path / "partial-step-of" / "last")
    assert written(folder, 5, 20, 100).steps() == [5, 20, 100]
    variable, checkpoints = assert_newest(folder, 100)
    checkpoints.read(20)
    assert float(variable[0]) == 20.0
    checkpoints.keep([20, 100])
    assert checkpoints.steps() == [20, 100]
    assert len(files.names_in(folder)) == 4
    assert counter(folder + "/none")[1].read_newest() is None


def test_other_files_of_the_user_are_kept(tmp_path):
    checkpoints = written(str(tmp_path), 5, 20)
    names = ["NOTES.md", ".gitkeep", "backup-of-best.index", "step-20-copy.index"]
    for name in names:
        (tmp_path / name).write_text("mine")
    checkpoints.keep([20])
    kept = {"step-20.index", "step-20.data-00000-of-00001", *names}
    assert set(os.listdir(tmp_path)) == kept


def test_a_reader_whose_checkpoints_are_replaced_reads_the_new_ones(tmp_path, monkeypatch):
    writer = written(str(tmp_path), 5, 20)
    _, reader = counter(tmp_path, writes=False)
    check = Checkpoints.check

    def replaced(self, step):
        if self is reader and writer.steps() == [5, 20]:
            writer.write(30)
            writer.keep([30])
        check(self, step)

    monkeypatch.setattr(Checkpoints, "check", replaced)
    assert reader.read_newest() == 30


def cut(path):
    path.write_bytes(path.read_bytes()[:-100])


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("suffix", "damage"),
    [
        (".data-00000-of-00001", cut),
        (".data-00000-of-00001", flip),
        (".data-00000-of-00001", pathlib.Path.unlink),
        (".index", cut),
        (".index", lambda path: path.write_bytes(b"")),
    ],
)
def test_damaged_checkpoints_are_skipped_and_written_again(tmp_path, caplog, suffix, damage):
    written(tmp_path, 5, 20)
    damage(tmp_path / f"step-20{suffix}")
    variable, checkpoints = assert_newest(tmp_path, 5)
    assert "step-20: the checkpoint is damaged (" in caplog.text
    assert "Going back to the one before." in caplog.text
    variable.assign(tf.fill([1000], 20.0))
    checkpoints.write(20)
    assert_newest(tmp_path, 20)


def test_checkpoints_of_another_model_are_skipped(tmp_path, caplog):
    written(tmp_path, 5)
    _, other = counter(tmp_path, shape=(7,))
    other.write(30)
    tf.train.Checkpoint(stranger=tf.Variable(1.0)).write(str(tmp_path / "step-40"))
    assert_newest(tmp_path, 5)
    assert "step-30: a checkpoint of another run (" in caplog.text
    assert "step-40: a checkpoint of another run (" in caplog.text


def test_restore_fails_if_all_checkpoints_are_damaged(tmp_path):
    written(tmp_path, 5, 20)
    for path in tmp_path.glob("*.data*"):
        cut(path)
    names = sorted(os.listdir(tmp_path))
    _, checkpoints = counter(tmp_path)
    with pytest.raises(ValueError, match="none of the checkpoints can be used. Restore it"):
        checkpoints.read_newest()
    assert sorted(os.listdir(tmp_path)) == names


def test_incomplete_checkpoints_are_ignored_and_removed(tmp_path):
    checkpoints = written(tmp_path, 5)
    (tmp_path / "partial-step-20_temp").mkdir()
    (tmp_path / "partial-step-20_temp" / "part-00000-of-00001.data-00000-of-00001").write_bytes(b"x")
    (tmp_path / "partial-step-20.index").write_bytes(b"")
    (tmp_path / "step-30.data-00000-of-00001").write_bytes(b"x")
    assert checkpoints.steps() == [5]
    checkpoints.keep(checkpoints.steps())
    assert sorted(os.listdir(tmp_path)) == ["step-5.data-00000-of-00001", "step-5.index"]


def test_failed_writes_keep_other_checkpoints(tmp_path, monkeypatch):
    checkpoints = written(tmp_path, 5)

    def full(_, prefix):
        pathlib.Path(prefix + ".data-00000-of-00001").write_bytes(b"x")
        raise tf.errors.ResourceExhaustedError(None, None, "/somewhere; No space left on device")

    monkeypatch.setattr(tf.train.Checkpoint, "write", full)
    with pytest.raises(OSError, match=r"step-20: the checkpoint cannot be written \(No space left on"):
        checkpoints.write(20)
    assert sorted(os.listdir(tmp_path)) == ["step-5.data-00000-of-00001", "step-5.index"]


def test_kill_while_a_checkpoint_is_written_again(tmp_path, monkeypatch):
    checkpoints = written(tmp_path, 5, 20)
    renamed = []
    rename = tf.io.gfile.rename

    def kill_at_the_second(source, target, **kwargs):
        renamed.append(target)
        if len(renamed) == 2:
            raise KeyboardInterrupt
        rename(source, target, **kwargs)

    monkeypatch.setattr(tf.io.gfile, "rename", kill_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        checkpoints.write(20)
    monkeypatch.undo()
    _, checkpoints = assert_newest(tmp_path, 5)
    checkpoints.keep([5])
    assert sorted(os.listdir(tmp_path)) == ["step-5.data-00000-of-00001", "step-5.index"]


def test_workers_that_do_not_write(tmp_path):
    written(tmp_path, 5)
    _, checkpoints = counter(tmp_path, writes=False)
    assert checkpoints.read_newest() == 5
    checkpoints.write(20)
    checkpoints.keep([])
    assert checkpoints.steps() == [5]
    cut(tmp_path / "step-5.data-00000-of-00001")
    written(tmp_path, 1)
    assert checkpoints.read_newest() == 1
