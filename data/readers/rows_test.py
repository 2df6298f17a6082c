"""Lines and invalid rows: contents, skipped rows and messages."""

import pytest

from rank4class.data.readers import rows


def test_lines_have_their_numbers(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"\xef\xbb\xbfone\r\n\ntwo \xc3\xa9\n")
    assert list(rows.lines(str(path))) == [(f"{path}:1", "one"), (f"{path}:2", ""), (f"{path}:3", "two é")]


def test_line_with_a_nul_character(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"one\nt\0wo\nthree\n")
    message = (
        f"{path}:2: the line has a NUL character. Remove it, or save the file as UTF-8 if it is in UTF-16."
    )
    with pytest.raises(ValueError, match=f"^{message} To skip it, set data.on_invalid_row=skip"):
        list(rows.lines(str(path), rows.BadRows("fail")))
    bad_rows = rows.BadRows("skip")
    assert [line for _, line in rows.lines(str(path), bad_rows)] == ["one", "three"]
    assert bad_rows.messages == [message]


def test_csv_record_with_a_nul_character(tmp_path):
    path = tmp_path / "file.csv"
    path.write_bytes(b'one,a\n"t\nw\0o",b\nthree,c\n')
    with pytest.raises(ValueError, match=f"^{path}:2: the row has a NUL character"):
        list(rows.csv_records(str(path), rows.BadRows("fail")))
    bad_rows = rows.BadRows("skip")
    records = list(rows.csv_records(str(path), bad_rows))
    assert records == [(f"{path}:1", ["one", "a"]), (f"{path}:4", ["three", "c"])]
    assert len(bad_rows.messages) == 1


@pytest.mark.parametrize("read", [rows.lines, rows.csv_records])
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16(tmp_path, read, encoding):
    path = tmp_path / "file"
    path.write_text("\ufeffone\ntwo\n", encoding=encoding)
    with pytest.raises(ValueError, match=f"^{path}: the file is in UTF-16. Save it as UTF-8.$"):
        list(read(str(path), rows.BadRows("skip")))


def test_lines_that_end_with_cr_alone(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"one\rtwo\r")
    with pytest.raises(ValueError, match=f"^{path}: its lines end with CR alone. Save the file with LF or"):
        list(rows.lines(str(path), rows.BadRows("skip")))
    path.write_bytes(b"one\rmore\r\ntwo\r")
    assert [line for _, line in rows.lines(str(path))] == ["one\rmore", "two"]


def test_warns_of_a_possibly_truncated_file(tmp_path, caplog):
    path = tmp_path / "file"
    path.write_text("one\ntwo")
    assert [line for _, line in rows.lines(str(path), rows.BadRows("fail"))] == ["one", "two"]
    assert f"{path}:2 has no line ending: was the file cut short?" in caplog.text
    caplog.clear()
    path.write_text("one\n")
    assert len(list(rows.lines(str(path), rows.BadRows("fail")))) == 1
    assert not caplog.text


def test_missing_and_empty_files(tmp_path):
    with pytest.raises(FileNotFoundError, match="nothing: no such file"):
        list(rows.lines(str(tmp_path / "nothing")))
    (tmp_path / "empty").write_text("")
    with pytest.raises(ValueError, match="empty: the file is empty"):
        list(rows.lines(str(tmp_path / "empty")))


@pytest.mark.parametrize(("count", "others"), [(1, "To skip it"), (2, "1 more row is invalid. To skip them")])
def test_invalid_rows_of_a_whole_file(count, others):
    def read(bad_rows):
        with bad_rows.whole_file():
            for number in range(count):
                with bad_rows.row():
                    raise ValueError(f"file:{number}: no text.")

    with pytest.raises(ValueError, match=f"^file:0: no text. {others}, set data.on_invalid_row=skip.$"):
        read(rows.BadRows("fail"))
    bad_rows = rows.BadRows("skip")
    read(bad_rows)
    assert len(bad_rows.messages) == count


def test_only_the_first_error_is_kept_if_rows_are_not_skipped():
    bad_rows = rows.BadRows("fail", None)

    def read():
        with bad_rows.whole_file():
            for number in range(10):
                with bad_rows.row():
                    raise ValueError(f"file:{number}: no text.")

    with pytest.raises(ValueError, match=r"^file:0: no text\. 9 more rows are invalid\.$"):
        read()
    assert bad_rows.messages == ["file:0: no text."]


def test_errors_of_a_whole_file_take_precedence():
    bad_rows = rows.BadRows("fail")

    def read():
        with bad_rows.whole_file():
            with bad_rows.row():
                raise ValueError("file:1: no text.")
            raise ValueError("file: no example.")

    with pytest.raises(ValueError, match="^file: no example.$"):
        read()
    with pytest.raises(ValueError, match="^other:1: no text. To skip it"), bad_rows.row():
        raise ValueError("other:1: no text.")
    with bad_rows.whole_file():  # its file has no invalid row
        pass
