import errno
import json
import os

import pytest

from rank4class.pipelines.storage import files


@pytest.mark.parametrize("scheme", ["", "ram://"])
def test_writing_and_reading(tmp_path, scheme):
    folder = f"{scheme}{tmp_path}/here"
    assert files.names_in(folder) == []
    files.make_folder(folder)
    path = os.path.join(folder, "x.json")
    assert not files.exists(path)
    for content in ("old", "new"):
        files.write(path, content)
        assert files.read_text(path) == content
    files.write(path, b"\x00\xff")
    assert files.read_bytes(path) == b"\x00\xff"
    assert files.names_in(folder) == ["x.json"]
    files.make_folder(os.path.join(folder, "sub"))
    assert files.names_in(folder) == ["sub", "x.json"]
    files.remove([path, os.path.join(folder, "sub"), os.path.join(folder, "never there")])
    assert files.names_in(folder) == []


def test_failed_writes_keep_the_old_content(tmp_path, monkeypatch):
    path = str(tmp_path / "x.json")
    files.write(path, "old")

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match=r"x\.json: No space left on device$"):
        files.write(path, "new")
    assert files.read_text(path) == "old"
    assert os.listdir(tmp_path) == ["x.json"]


def test_errors_name_the_file(tmp_path):
    (tmp_path / "file").write_text("")
    remedy = r": Not a directory\. Choose a folder that can be written\.$"
    with pytest.raises(OSError, match=rf"^--workdir=.*/file/sub{remedy}"):
        files.make_folder(str(tmp_path / "file" / "sub"))
    with pytest.raises(OSError, match=rf"^--output=x{remedy}"):
        files.make_writable(str(tmp_path / "file" / "sub"), "--output=x")
    with (
        pytest.raises(OSError, match=rf"^output=.*/file/sub{remedy}"),
        files.new_folder(tmp_path / "file" / "sub"),
    ):
        pass
    with pytest.raises(OSError, match=r"nowhere: No such file"):
        files.read_text(str(tmp_path / "nowhere"))
    with pytest.raises(OSError, match="^ram:///nowhere: "):
        files.read_text("ram:///nowhere")


@pytest.mark.parametrize("scheme", ["", "ram://"])
def test_links_have_the_content(tmp_path, scheme):
    source = f"{scheme}{tmp_path}/source"
    files.write(source, "content")
    files.write(tmp_path / "target", "old")
    files.link(source, tmp_path / "target")
    assert (tmp_path / "target").read_text() == "content"


def test_json_of_numbers_that_are_not_finite():
    value = {"a": [1.5, float("nan"), {"b": -float("inf")}], "c": (1, None, "Infinity"), "d": True}
    expected = {"a": [1.5, None, {"b": None}], "c": [1, None, "Infinity"], "d": True}
    assert json.loads(files.to_json(value, indent=2), parse_constant=pytest.fail) == expected


def test_a_new_folder_appears_whole_or_not_at_all(tmp_path):
    with files.new_folder(tmp_path / "new") as folder:
        files.write(f"{folder}/a", "1")
        assert not (tmp_path / "new").exists()
    assert (tmp_path / "new" / "a").read_text() == "1"
    with pytest.raises(ZeroDivisionError), files.new_folder(tmp_path / "other"):
        1 / 0  # noqa: B018
    with pytest.raises(OSError, match=r"new: "), files.new_folder(tmp_path / "new"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
