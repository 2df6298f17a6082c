"""Lines and invalid rows: contents, skipped rows and messages."""

import pytest

from rank4class.data.readers import rows


def test_lines_have_their_numbers(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"\xef\xbb\xbfone\r\n\ntwo \xc3\xa9\n")
    assert list(rows.lines(str(path))) == [(f"{path}:1", "one"), (f"{path}:2", ""), (f"{path}:3", "two é")]


@pytest.mark.parametrize("read", [rows.lines, rows.csv_records])
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16(tmp_path, read, encoding):
    path = tmp_path / "file"
    path.write_text("\ufeffone\ntwo\n", encoding=encoding)
    with pytest.raises(ValueError, match=f"^{path}: the file is in UTF-16. Save it as UTF-8.$"):
        list(read(str(path), rows.BadRows("skip")))
