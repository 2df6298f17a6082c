"""Lines and records: files in UTF-16."""

import pytest

from rank4class.data.readers import rows


@pytest.mark.parametrize("read", [rows.lines, rows.csv_records])
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16(tmp_path, read, encoding):
    path = tmp_path / "file"
    path.write_text("\ufeffone\ntwo\n", encoding=encoding)
    with pytest.raises(ValueError, match=f"^{path}: the file is in UTF-16. Save it as UTF-8.$"):
        list(read(str(path), rows.BadRows("skip")))
