"""The report of labels that look wrong, its table, and the correction of a file by it."""

import os

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from rank4class.pipelines import config, configs
from rank4class.pipelines.reporting import label_report
from rank4class.pipelines.task_data import loading

WORDS = {
    "bill": "invoice charge refund fee",
    "post": "parcel courier package letter",
    "key": "login user name",
}


def experiment_of(path, **changes):
    experiment = configs.get_config("text_file_words")
    return config.override(experiment, {"data.path": str(path), **changes})


def report_of(path, **changes):
    experiment = experiment_of(path, **changes)
    return label_report.LabelReport(loading.load_data(label_report.for_vectors(experiment), path.parent))


@pytest.fixture(scope="module")
def letters(tmp_path_factory):
    """A table of 120 letters, of which those in lines 7 and 50 have wrong labels."""
    rng = np.random.default_rng(0)
    lines = []
    for i in range(120):
        label = list(WORDS)[i % 3]
        text = " ".join(rng.choice(WORDS[label].split(), 2, replace=False))
        lines.append(f"<b>{text}</b> {i},{label}")
    lines[5] = lines[5].replace("key", "bill")
    lines[48] = lines[48].replace("bill", "post")
    path = tmp_path_factory.mktemp("letters") / "letters.csv"
    path.write_text("\n".join(["text,label", *lines]) + "\n")
    return path


def test_report_page_and_corrected_file(letters, tmp_path):
    report = report_of(letters)
    assert "120 labels are wrong at random; for 2 another class is more probable." in report.answer()
    assert "letters.csv:7" in report.text()
    assert os.fspath(letters) not in report.text()
    page = tf.io.gfile.GFile(report.write(tmp_path, ["a command"])).read()
    shown = ("letters.csv:50<br>&lt;b&gt;", "post<br>→ bill (", "a command", "unlike all others")
    for text in shown:
        assert text in page
    table = pd.read_csv(tmp_path / "labels.csv", encoding="utf-8-sig")
    assert set(table["example"]) == {f"{letters}:7", f"{letters}:50"}
    assert set(zip(table["label"], table["suggested"], strict=True)) == {("bill", "key"), ("post", "bill")}
    assert table["nearest"].str.contains(r"letters.csv:\d+ \((?:bill|key), 0.\d\d\)").all()
    table["correct_label"] = table["suggested"]
    saved = tmp_path / "saved.csv"
    table.to_csv(saved, sep=";", index=False)  # as spreadsheets do in some countries
    parts = experiment_of(letters).data
    count, written = label_report.apply(str(saved), parts, str(tmp_path))
    assert (count, written) == (2, [str(tmp_path / "letters.csv")])
    before, after = (path.read_text().splitlines() for path in (letters, tmp_path / "letters.csv"))
    assert [i for i, (a, b) in enumerate(zip(before, after, strict=True), 1) if a != b] == [7, 50]
    assert len(report_of(tmp_path / "letters.csv").table()) == 0


def test_errors_of_a_table(letters, tmp_path):
    table = report_of(letters).table()
    parts = experiment_of(letters).data
    path = tmp_path / "labels.csv"
    table.assign(correct_label="kei").to_csv(path, index=False)
    with pytest.raises(
        ValueError, match=r"labels.csv:2: class 'kei' is not one of the data. Did you mean 'key'"
    ):
        label_report.apply(str(path), parts, str(tmp_path / "new"))
    table.assign(example="photos/a.png", correct_label="key").to_csv(path, index=False)
    with pytest.raises(
        ValueError, match=r"labels.csv:2: photos/a.png is not a line of a file of the data that ends in .tsv"
    ):
        label_report.apply(str(path), parts, str(tmp_path / "new"))
    for content in (b"", "label,correct_label\nkäse,kräm\n".encode("latin-1")):  # as some spreadsheets save
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"labels.csv: not a table in UTF-8 \(.*\). Save it as CSV"):
            label_report.apply(str(path), parts, str(tmp_path / "new"))
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="no column '.*'. Give a table that check_labels wrote"):
        label_report.apply(str(path), parts, str(tmp_path / "new"))


def test_several_labels_and_similar_names(letters, tmp_path):
    path = tmp_path / "several.csv"
    text = letters.read_text().replace(",bill", ",bill;Bill").replace(",key", ",key;office")
    path.write_text(text)
    report = report_of(path, **{"data.label_separator": ";"})
    assert "labels look missing" in report.answer()
    assert "Class names that may be one: 'Bill' and 'bill'." in report.text()
    assert set(report.table()["example"]) == {f"{path}:7", f"{path}:50"}
    assert not report.can_apply
    parts = experiment_of(path, **{"data.label_separator": ";"}).data
    with pytest.raises(ValueError, match="apply=labels.csv: rows may have several labels. Correct them in"):
        label_report.apply("labels.csv", parts, str(tmp_path))


def test_all_files_of_splits_are_written(letters, tmp_path):
    header, *lines = letters.read_text().splitlines()
    folder = tmp_path / "data"
    folder.mkdir()
    for name, part in (("train", lines[:80]), ("test", lines[80:])):
        (folder / f"{name}.csv").write_text("\n".join([header, *part]) + "\n")
    report = label_report.LabelReport(
        loading.load_data(label_report.for_vectors(experiment_of(folder)), tmp_path)
    )
    assert report.can_apply
    table = report.table()
    table["correct_label"] = table["suggested"]
    table.to_csv(tmp_path / "labels.tsv", index=False)
    parts = experiment_of(folder).data
    count, written = label_report.apply(str(tmp_path / "labels.tsv"), parts, str(tmp_path / "new"))
    assert (count, sorted(map(os.path.basename, written))) == (2, ["test.csv", "train.csv"])
    assert (tmp_path / "new" / "test.csv").read_text() == (folder / "test.csv").read_text()


def test_an_encoder_that_is_not_pretrained_judges_no_labels():
    with pytest.raises(ValueError, match="encoder='mlp': not pretrained, .* Set encoder.path, or choose"):
        label_report.for_vectors(configs.get_config("digits_mlp"))
