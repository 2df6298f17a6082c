"""Text files: formats, columns, splits, classes, and errors for invalid files."""

import csv
import gzip
import hashlib
import io
import json
import re

import numpy as np
import pytest

from rank4class import data
from rank4class.data.readers import tables

ROWS = [(f"text {i}", f"pair {i}", ("ham", "spam", "jam")[i % 3]) for i in range(60)]
KEYS = ("text", "other", "label")


def tsv(rows, header=KEYS):
    return "".join("\t".join(row) + "\n" for row in ([header] if header else []) + list(rows))


def as_csv(rows, header=KEYS):
    file = io.StringIO()
    csv.writer(file).writerows(([header] if header else []) + list(rows))
    return file.getvalue()


def jsonl(rows):
    return "".join(json.dumps(dict(zip(KEYS, row, strict=True))) + "\n" for row in rows)


WRITERS = {"tsv": tsv, "csv": as_csv, "jsonl": jsonl}


def load(path, **options):
    return data.get("text_file", path=path, **options)


def labeled(rows):
    return sorted((text, label) for text, _, label in rows)


def examples(dataset, *splits):
    """Returns the sorted (text, class name) pairs of some splits, by default all."""
    actual = []
    for name in splits or dataset.splits:
        split = dataset.splits[name]
        actual += zip(split.features["text"], [dataset.class_names[i] for i in split.labels], strict=True)
    return sorted(actual)


@pytest.mark.parametrize("windows", [False, True])  # with a byte order mark and line endings of Windows
@pytest.mark.parametrize("extension", WRITERS)
def test_formats_agree(tmp_path, extension, windows):
    path = tmp_path / f"mine.{extension}"
    content = WRITERS[extension](ROWS)
    path.write_text(content)
    if windows:
        path.write_bytes(b"\xef\xbb\xbf" + content.replace("\r\n", "\n").replace("\n", "\r\n").encode())
    dataset = load(path, text_pair_column="other")
    assert dataset.class_names == ("ham", "jam", "spam")
    assert {n: len(s) for n, s in dataset.splits.items()} == {"train": 48, "validation": 6, "test": 6}
    assert examples(dataset) == labeled(ROWS)
    header = extension != "jsonl"
    for split in dataset.splits.values():
        assert split.labels.dtype == np.int32
        for text, pair, origin in zip(*split.features.values(), split.origins, strict=True):
            i = int(text.removeprefix("text "))
            assert (pair, origin) == (f"pair {i}", f"{path}:{i + 1 + header}")
    assert dataset.files == {str(path): hashlib.sha256(path.read_bytes()).hexdigest()}
    assert dataset.skipped == ()


@pytest.mark.parametrize("extension", WRITERS)
def test_compressed_files(tmp_path, extension):
    content = gzip.compress(WRITERS[extension](ROWS).encode())
    (tmp_path / f"mine.{extension}.GZ").write_bytes(content)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / f"train.{extension}.gz").write_bytes(content)
    for path in (tmp_path / f"mine.{extension}.GZ", tmp_path / "folder"):
        assert examples(load(path)) == labeled(ROWS)
    for end in (-1, 20):
        (tmp_path / f"cut.{extension}.gz").write_bytes(content[:end])
        with pytest.raises(ValueError, match=r"cut\..*: not a complete gzip file \(.*Download it again\."):
            load(tmp_path / f"cut.{extension}.gz", on_invalid_row="skip")


def test_quotes_commas_and_line_breaks_in_csv(tmp_path):
    path = tmp_path / "train.csv"
    quoted = 'a "quote", and\r\na\nline' + 1_200_000 * "x"  # more than a block of the file's hash
    rows = [(quoted, "", "ham"), ("after", "", "spam"), *ROWS]
    path.write_text(as_csv(rows) + "\n")  # and a blank line
    dataset = load(path)
    origins = {
        text: origin
        for split in dataset.splits.values()
        for text, origin in zip(split.features["text"], split.origins, strict=True)
    }
    assert origins[quoted] == f"{path}:2"
    assert origins["after"] == f"{path}:5"
    assert dataset.files == {str(path): hashlib.sha256(path.read_bytes()).hexdigest()}


def test_quotes_in_tsv_are_literal(tmp_path):
    path = tmp_path / "train.tsv"
    texts = (
        '"open', '"quoted"', '"Hello" she said', '"He said "hi" to me"', '"', '""', '""""', '""twice""',
        '"""A docstring."""', 'a ""pair""', '"one" ""two"" "three"', "5\" x 7\"", 'closed"',
    )  # fmt: skip
    like_headers = [("text", "", "ham"), ("a text", "", "label"), ("label", "text", "ham")]
    rows = [(text, "", "ham") for text in texts] + like_headers + ROWS
    path.write_text(tsv(rows))
    assert examples(load(path)) == labeled(rows)


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
@pytest.mark.parametrize(
    "row",
    [
        ('Dear team, the "code" is late.', "", "ham"),
        ('"Hello" she said', "", "ham"),
        ("Dear team,\n\nthe code\tis late.", "", "ham"),
        ('The "code"\nis late.', "a pair\nof two lines", "ham"),
        ("a text", "", "ham "),
    ],
)
def test_tsv_with_quotes_as_in_csv(tmp_path, row, quoting):
    path = tmp_path / "mine.tsv"
    rows = [ROWS[0], row, ("after", "", "ham"), *ROWS[1:]]
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        csv.writer(file, delimiter="\t", lineterminator="\n", quoting=quoting).writerows([KEYS, *rows])
    dataset = load(path, text_pair_column="other")
    assert examples(dataset) == sorted((text, label.strip()) for text, _, label in rows)
    parts = (split.origins[split.features["text"] == "after"] for split in dataset.splits.values())
    [origin] = np.concatenate([*parts])
    assert origin == f"{path}:{4 + row[0].count(chr(10)) + row[1].count(chr(10))}"


def test_tsv_whose_quotes_contradict_each_other(tmp_path):
    path = tmp_path / "mine.tsv"
    path.write_text(tsv([*ROWS, ('"an ""open"" end"', "", "ham"), ('"Hello" she said', "", "ham")]))
    message = f"{path}:{len(ROWS) + 3}: the record up to line {len(ROWS) + 3} is not CSV with tabs"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}, as other rows are: .*expected"):
        load(path, on_invalid_row="skip")


JOINED = ["joy", "anger", "joy;anger", "joy;pride", "pride; anger", "surprise;fear"]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (JOINED, "4 of 6 labels contain ';', such as 'joy;anger', and each is a separate class. For sev"),
        ([label.replace(";", "|") for label in JOINED], "4 of 6 labels contain '|', such as 'joy|anger'"),
        (["a", "b", "a,b"], "1 of 3 labels contain ',', such as 'a,b'"),
        (["Bosnia, Herzegovina", "Trinidad, Tobago", "France"], None),
        (["Sports; Football", "Sports; Tennis", "Arts; Music", "Arts; Film"], None),
    ],
)
def test_labels_that_are_joined(tmp_path, caplog, labels, message):
    path = tmp_path / "mine.tsv"
    path.write_text(tsv([(f"{label} {i}", "", label) for label in labels for i in range(10)]))
    assert load(path).class_names == tuple(sorted(labels))
    assert (f"{path}: {message}" in caplog.text) if message else ("labels contain" not in caplog.text)
    caplog.clear()
    (tmp_path / "classes.txt").write_text("".join(f"{label}\n" for label in labels))
    load(path, classes=str(tmp_path / "classes.txt"))  # the user has named these classes
    assert "labels contain" not in caplog.text


def test_class_names_that_differ_in_case_and_spaces(tmp_path, caplog):
    path = tmp_path / "mine.tsv"
    labels = ["Delivery", "delivery ", "refund"]
    path.write_text(tsv([(f"{label} {i}", "", label) for label in labels for i in range(10)]))
    load(path)
    assert f"{path}: 'Delivery' and 'delivery' are two classes. Correct the labels" in caplog.text
    assert "refund" not in caplog.text


@pytest.mark.parametrize("name", ["validation", "dev", "val", "valid"])
def test_split_files(tmp_path, name):
    for file, part in (("train", ROWS[:40]), (name, ROWS[40:50]), ("test", ROWS[50:])):
        (tmp_path / f"{file}.tsv").write_text(tsv(part))
    dataset = load(tmp_path)
    for split, part in (("train", ROWS[:40]), ("validation", ROWS[40:50]), ("test", ROWS[50:])):
        assert examples(dataset, split) == sorted((text, label) for text, _, label in part)
    assert set(dataset.files) == {str(tmp_path / f"{file}.tsv") for file in ("train", name, "test")}


def test_missing_split_is_drawn_from_train(tmp_path):
    (tmp_path / "train.TSV").write_text(tsv(ROWS[:50]))
    (tmp_path / "test.Csv").write_text(as_csv(ROWS[50:]))
    dataset = load(tmp_path, validation_fraction=0.2)
    assert len(dataset.splits["validation"]) == 10
    assert examples(dataset, "test") == sorted((text, label) for text, _, label in ROWS[50:])
    assert examples(dataset, "train", "validation") == sorted((text, label) for text, _, label in ROWS[:50])


def test_without_validation_the_test_examples_stay(tmp_path):
    (tmp_path / "mine.tsv").write_text(tsv(ROWS))
    drawn = load(tmp_path / "mine.tsv")
    whole = load(tmp_path / "mine.tsv", validation_fraction=0.0)
    assert set(whole.splits) == {"train", "test"}
    assert examples(whole, "test") == examples(drawn, "test")
    assert examples(whole, "train") == examples(drawn, "train", "validation")


def test_equal_texts_are_in_one_split(tmp_path):
    rows = [(("text {}", "Text  {}")[i // 40].format(i % 20), "", ("ham", "spam")[i % 2]) for i in range(80)]
    rows.append(("text 0", "", "spam"))  # once with another label
    (tmp_path / "mine.tsv").write_text(tsv(rows))
    dataset = load(tmp_path / "mine.tsv", validation_fraction=0.2, test_fraction=0.2)
    texts = [set(map(data.normalize_text, split.features["text"])) for split in dataset.splits.values()]
    assert [len(part) for part in texts] == [12, 4, 4]
    assert len(set.union(*texts)) == 20
    assert examples(dataset) == labeled(rows)


def test_class_list_fixes_class_ids(tmp_path):
    (tmp_path / "mine.tsv").write_text(tsv(ROWS))
    classes = tmp_path / "classes.txt"
    classes.write_text("spam\nham\njam\n")
    dataset = load(tmp_path / "mine.tsv", classes=str(classes))
    assert dataset.class_names == ("spam", "ham", "jam")
    assert examples(dataset) == labeled(ROWS)
    assert str(classes) in dataset.files


def test_invalid_class_lists(tmp_path):
    for names, message in (
        ("spam\nham\njam\nham\n", r"class_names: 'ham' is repeated\. Rename one"),
        ("spam\nham\n\njam\n", r"classes\.txt:3: no class name"),
        ("spam\n", r"classes\.txt: spam is the only class"),
        ("", r"classes\.txt: the file is empty"),
        ("spam\nham\n", r"mine\.tsv:4: class 'jam' is not in .*classes\.txt\. To skip it,"),
    ):
        (tmp_path / "mine.tsv").write_text(tsv(ROWS))
        (tmp_path / "classes.txt").write_text(names)
        with pytest.raises(ValueError, match=message):
            load(tmp_path / "mine.tsv", classes=str(tmp_path / "classes.txt"))


@pytest.mark.parametrize(
    ("extension", "row", "message"),
    [
        ("tsv", b"a text\tham\n", "2 columns, but 3 in the first line"),
        ("tsv", b" \n", "1 column, but 3 in the first line"),
        ("tsv", b"\t\tham\n", "'text' is empty"),
        ("tsv", b"a text\t\t \n", "'label' is empty"),
        ("csv", b"a text,,-.50\n", r"label -\.50 is a decimal number, not a class\. Write names"),
        ("tsv", b"a \0 text\t\tham\n", "the line has a NUL character"),
        ("csv", b"a \0 text,,ham\n", "the row has a NUL character"),
        ("tsv", b"caf\xe9\t\tham\n", "the line is not UTF-8: invalid continuation byte"),
        ("csv", b"a text,ham\n", "2 columns, but 3"),
        ("csv", b"caf\xe9,,ham\n", "the row is not UTF-8"),
        ("jsonl", b'{"text": "a text", "label": \n', "not JSON: Expecting value at column"),
        ("jsonl", b'{"text": "caf\xe9", "label": "ham"}\n', "the line is not UTF-8: invalid continuation"),
        ("jsonl", b'["a text", "ham"]\n', "not a JSON object"),
        ("jsonl", b'{"text": "a text", "text": "", "label": "ham"}\n', "the text has the key 'text' twice"),
        ("jsonl", b'{"text": "a text"}\n', r"no 'label'\. The .* 'text'\. Choose .* with"),
        ("jsonl", b'{"text": [[]], "label": "ham"}\n', r"text \[\[\]\] is not a string"),
        ("jsonl", b'{"text": "a text", "label": true}\n', "label True is not a string"),
        ("jsonl", b'{"text": "a text", "label": ""}\n', "'label' is empty"),
        ("jsonl", b'{"text": "a", "label": "b", "x": {"y": 1, "y": 1}}\n', "the text has the key 'y' twice"),
    ],
)
def test_invalid_rows(tmp_path, extension, row, message):
    path = tmp_path / f"mine.{extension}"
    path.write_bytes(WRITERS[extension](ROWS).encode() + row)
    message = rf"mine\.{extension}:{61 if extension == 'jsonl' else 62}: " + message
    with pytest.raises(ValueError, match=message + r".* To skip it, set data\.on_invalid_row=skip\."):
        load(path)
    dataset = load(path, on_invalid_row="skip")
    assert re.search(message, dataset.skipped[0])
    assert examples(dataset) == labeled(ROWS)


def test_first_invalid_row_of_labeled_files(tmp_path):
    path = tmp_path / "mine.tsv"
    path.write_text(tsv([("", "", "ham"), ROWS[0], ("a", "", " "), *ROWS]))
    message = f"{path}:2: 'text' is empty. To skip it, set data.on_invalid_row=skip."
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        data.get_labeled("text_file", ("ham", "jam", "spam"), path=path)
    path.write_text(tsv(ROWS))
    with pytest.raises(ValueError, match=r"mine\.tsv:2: class 'ham' is not one of the model's\. To skip it"):
        data.get_labeled("text_file", ("spam", "eggs"), path=path)


@pytest.mark.parametrize("on_invalid_row", ["fail", "skip"])
@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('"a "broken" record,,ham\n', """:10: the record up to line 10 is not CSV: ',' expected after '"'"""),
        ('"open,,ham\n', ":10: the record up to line 61 is not CSV: unexpected end of data"),
    ],
)
def test_reading_stops_at_an_invalid_csv_record(tmp_path, on_invalid_row, row, message):
    rows = as_csv(ROWS).splitlines(keepends=True)
    path = tmp_path / "mine.csv"
    path.write_text("".join([*rows[:9], row, *rows[9:60]]))
    with pytest.raises(ValueError, match=f"^{re.escape(f'{path}{message}. Correct it.')}$"):
        load(path, on_invalid_row=on_invalid_row)


@pytest.mark.parametrize("extension", ["tsv", "csv"])
@pytest.mark.parametrize("header", [KEYS, ("Sentence", "other", "CLASS"), ("\ufefftext", "other", "label ")])
def test_header_with_columns_by_position(tmp_path, extension, header):
    path = tmp_path / f"mine.{extension}"
    path.write_text(WRITERS[extension]([header, *ROWS], None))
    columns = {"text_column": "1", "label_column": "3"}
    message = f"{path}:1: the row is a header line, but data.text_column=1 is a position in a file with"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}.* Select .* To skip it"):
        load(path, **columns)
    dataset = load(path, **columns, on_invalid_row="skip")
    assert examples(dataset) == labeled(ROWS)
    assert len(dataset.skipped) == 1


@pytest.mark.parametrize("name", ["Test.tsv", "evaluation.tsv", "eval.CSV"])
def test_file_that_is_not_a_split(tmp_path, name):
    (tmp_path / "train.tsv").write_text(tsv(ROWS))
    (tmp_path / "classes.txt").write_text("ham\nspam\njam\n")
    (tmp_path / ".hidden").write_text("")
    (tmp_path / "README.md").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / name).write_text("")
    formats = ", ".join(tables.FORMATS)
    expected = f"train, validation (dev, val, valid), test with {formats}"
    message = f"{tmp_path / name}: none of {expected}. Rename or move it."
    with pytest.raises(ValueError, match="^" + re.escape(message)):
        load(tmp_path, classes=str(tmp_path / "classes.txt"))
    assert load(tmp_path, classes=f"{tmp_path}/./classes.txt", on_invalid_row="skip").skipped == (message,)


def test_example_in_two_split_files_stays_with_a_warning(tmp_path, caplog):
    (tmp_path / "train.tsv").write_text(tsv(ROWS))
    (tmp_path / "dev.tsv").write_text(tsv([("new", "", "ham"), ("newer", "", "jam")]))
    rows = [("newest", "", "ham"), ("new", "", "ham"), ("Text  7", "", "ham")]
    (tmp_path / "test.tsv").write_text(tsv(rows))
    assert examples(load(tmp_path), "test") == labeled(rows)
    assert re.search(r"2 examples are also .*such as \S*test\.tsv:3, a copy of \S*dev\.tsv:2:", caplog.text)
    caplog.clear()
    load(tmp_path, text_pair_column="other")
    assert "1 examples are also" in caplog.text


def test_class_of_another_split_alone(tmp_path):
    (tmp_path / "train.tsv").write_text(tsv(ROWS))
    (tmp_path / "test.tsv").write_text(tsv([("new", "", "ham"), ("newer", "", "eggs")]))
    message = r"test\.tsv:3: class 'eggs' is not in \S*train\.tsv\. Name all classes in a file, data\.classes"
    with pytest.raises(ValueError, match=message):
        load(tmp_path)


@pytest.mark.parametrize("on_invalid_row", ["fail", "skip"])
@pytest.mark.parametrize(("extension", "header"), [("tsv", "text\tlabel\tgr\xf6n"), ("csv", "text,label,\0")])
def test_header_that_is_invalid(tmp_path, extension, header, on_invalid_row):
    path = tmp_path / f"mine.{extension}"
    path.write_bytes(f"{header}\n".encode("latin-1") + WRITERS[extension](ROWS, None).encode())
    with pytest.raises(ValueError, match=rf"mine\.{extension}:1: the (line is not UTF-8|row has a NUL)"):
        load(path, on_invalid_row=on_invalid_row)


def test_invalid_tables_and_options(tmp_path):
    for header, rows, options, message in (
        (KEYS, [], {}, r"mine\.tsv: no example\. Add rows to its header"),
        (KEYS, ROWS, {"label_column": "lable"}, r"no column 'lable'\. Did you mean 'label'\? The columns"),
        (("Text ", "other", "label"), ROWS, {}, r": no column 'text'\. Did you mean 'Text '\? The columns"),
        (
            [f"{i} {'x' * 99}" for i in range(12)],
            [],
            {},
            rf"are '0 {'x' * 38}', .*, '9 {'x' * 38}' and 2 more\. ",
        ),
        (
            ["x"],
            [],
            {},
            r"Choose among them with data\.text_column and data\.label_column, or rename one\.$",
        ),
        (["text;label"], [("a;ham",)], {}, "They seem to be separated by ';'.$"),
        (KEYS, ROWS, {"text_column": "1", "label_column": "4"}, r"no column '4'\. The columns are '1"),
        (KEYS, ROWS, {"text_column": "1"}, r": no column '1'\. The columns are 'text', 'other', 'label"),
        (KEYS, ROWS, {"text_column": "label"}, "data.text_column=label, .*: the same column twice"),
        (KEYS, [ROWS[0]] * 9, {}, r"mine\.tsv: ham is the only class\. Give at least two"),
        (KEYS, ROWS, {"on_invalid_row": "drop"}, "^data.on_invalid_row='drop': unknown. There are:"),
        (KEYS, ROWS[:4], {}, "validation_fraction=0.1: no class has 3 examples"),
    ):
        (tmp_path / "mine.tsv").write_text(tsv(rows, header))
        with pytest.raises(ValueError, match=message):
            load(tmp_path / "mine.tsv", **options)


def test_invalid_files(tmp_path):
    for file, content, message in (
        ("mine.xlsx", "a", r"mine\.xlsx: a spreadsheet\. Export it as CSV\."),
        ("mine.doc", "a", r"mine\.doc: unknown format\. Give a file that ends in \.tsv, \.csv, \.jsonl"),
        ("mine.csv.gz", "text,label\n", r"mine\.csv\.gz: not a complete gzip file \(Not a gzipped file"),
        ("mine.txt", "a", r"mine\.txt: a \.txt file has texts without labels\. Give a file with a column"),
        ("mine.tsv", "", r"mine\.tsv: the file is empty"),
        ("mine.csv", "", r"mine\.csv: the file is empty"),
        ("mine.csv", "text\tlabel\na\tham\n", r"They seem to be separated by '\\t'\.$"),
        ("mine.jsonl", '{"txt": "a"}\n', r"mine\.jsonl: no example\. All rows are invalid, the first"),
    ):
        (tmp_path / file).write_text(content)
        with pytest.raises(ValueError, match=message):
            load(tmp_path / file, on_invalid_row="skip")


def test_missing_files(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"mine\.tsv: no such file or folder"):
        load(tmp_path / "mine.tsv")
    with pytest.raises(FileNotFoundError, match=r": no train\.tsv or train\.csv or .* Add one"):
        load(tmp_path)
    (tmp_path / "train.tsv").write_text(tsv(ROWS))
    with pytest.raises(FileNotFoundError, match=r"classes\.txt: no such file"):
        load(tmp_path, classes=str(tmp_path / "classes.txt"))
    (tmp_path / "dev.tsv").write_text(tsv(ROWS))
    (tmp_path / "val.csv").write_text(as_csv(ROWS))
    with pytest.raises(ValueError, match=r"dev\.tsv and val\.csv are each a validation split\. Remove all"):
        load(tmp_path)
