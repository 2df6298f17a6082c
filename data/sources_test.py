"""Lines and bad rows: what is read, what is left out, and what is said of it."""

import hashlib

import pytest

from rank4class.data import sources


def test_lines_say_where_they_stand(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"\xef\xbb\xbfone\r\n\ntwo \xc3\xa9\n")
    assert list(sources.lines(str(path))) == [(f"{path}:1", "one"), (f"{path}:2", ""), (f"{path}:3", "two é")]


def test_a_line_that_is_not_utf8(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"one\n\xff\nthree\n")
    with pytest.raises(
        ValueError, match=r"file:2 is not UTF-8: .*\(data\.on_invalid_row=skip would leave it out"
    ):
        list(sources.lines(str(path)))
    bad_rows = sources.BadRows("skip")
    assert [line for _, line in sources.lines(str(path), bad_rows)] == ["one", "three"]
    assert bad_rows.messages == [f"{path}:2 is not UTF-8: invalid start byte"]


def test_a_line_with_a_nul_character(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"one\nt\0wo\nthree\n")
    message = (
        f"{path}:2: the line has a NUL character. Remove it, or save the file as UTF-8 if it is in UTF-16."
    )
    with pytest.raises(ValueError, match=f"^{message} .data.on_invalid_row=skip would leave it out"):
        list(sources.lines(str(path)))
    bad_rows = sources.BadRows("skip")
    assert [line for _, line in sources.lines(str(path), bad_rows)] == ["one", "three"]
    assert bad_rows.messages == [message]


def test_a_csv_record_with_a_nul_character(tmp_path):
    path = tmp_path / "file.csv"
    path.write_bytes(b'one,a\n"t\nw\0o",b\nthree,\xff\n')
    with pytest.raises(ValueError, match=f"^{path}:2: the row has a NUL character"):
        list(sources.csv_records(str(path), sources.BadRows("fail")))
    bad_rows = sources.BadRows("skip")
    rows = list(sources.csv_records(str(path), bad_rows))
    assert rows == [(f"{path}:1", ["one", "a"]), (f"{path}:4", ["three", "\udcff"])]
    assert len(bad_rows.messages) == 1


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16(tmp_path, encoding):
    path = tmp_path / "file"
    path.write_text("\ufeffone\ntwo\n", encoding=encoding)
    with pytest.raises(ValueError, match=f"^{path} is UTF-16: save it as UTF-8$"):
        list(sources.lines(str(path), sources.BadRows("skip")))


def test_a_file_that_may_be_cut_short(tmp_path, caplog):
    path = tmp_path / "file"
    path.write_text("one\ntwo")
    assert [line for _, line in sources.lines(str(path))] == ["one", "two"]
    assert f"{path}:2 has no end of line: was the file cut short?" in caplog.text
    caplog.clear()
    path.write_text("one\n")
    assert len(list(sources.lines(str(path)))) == 1
    assert not caplog.text


def test_missing_and_empty_files(tmp_path):
    with pytest.raises(FileNotFoundError, match="no file .*nothing"):
        list(sources.lines(str(tmp_path / "nothing")))
    (tmp_path / "empty").write_text("")
    with pytest.raises(ValueError, match="empty is empty"):
        list(sources.lines(str(tmp_path / "empty")))


def test_a_bad_row_is_only_a_value_error():
    bad_rows = sources.BadRows("skip")
    with pytest.raises(KeyError), bad_rows.row():
        raise KeyError("a bug")
    assert not bad_rows.messages


def test_unknown_policy():
    with pytest.raises(ValueError, match="^data.on_invalid_row 'ignore' is not one of fail, skip"):
        sources.BadRows("ignore")


def test_sha256(tmp_path):
    content = bytes(range(256)) * 10_000
    (tmp_path / "file").write_bytes(content)
    assert sources.sha256(str(tmp_path / "file")) == hashlib.sha256(content).hexdigest()
