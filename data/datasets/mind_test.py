"""MIND: the union of its files, the split by article id, and errors for invalid files."""

import hashlib

import numpy as np
import pytest

from rank4class import data


def load(folder):
    return data.get("mind", path=folder)


def article(news_id, category="news", title="a title", abstract="an abstract"):
    return f"{news_id}\t{category}\tsub\t{title}\t{abstract}\thttps://x\t[]\t[]\n"


@pytest.fixture
def tiny_mind(tmp_path):
    """Writes a small folder in MIND's published layout, with two overlapping files; returns its path."""
    for folder, ids in (("MINDlarge_train", range(70)), ("MINDlarge_dev", range(50, 100))):
        rows = [
            article(f"N{i}", ("sports", "autos")[i % 2], f'the "title" {i}', f"abstract {i}" if i % 3 else "")
            for i in ids
        ]
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "news.tsv").write_text("".join(rows))
    return tmp_path


def test_dataset_is_the_union_of_its_files(tiny_mind):
    dataset = load(tiny_mind)
    assert dataset.class_names == ("autos", "sports")
    seen = {}
    for split in dataset.splits.values():
        rows = zip(split.features["text"], split.features["text_pair"], split.labels, strict=True)
        seen.update({title: (abstract, label) for title, abstract, label in rows})
        for origin, title in zip(split.origins, split.features["text"], strict=True):
            i = int(title.rsplit(" ", 1)[1])
            part, line = ("train", i + 1) if i < 70 else ("dev", i - 49)
            assert origin == f"MINDlarge_{part}/news.tsv:{line}"
    assert list(dataset.splits) == ["train", "validation", "test"]
    assert sum(len(split) for split in dataset.splits.values()) == 100
    files = {f"{tiny_mind}/MINDlarge_{part}/news.tsv" for part in ("train", "dev")}
    assert set(dataset.files) == files
    assert seen == {f'the "title" {i}': (f"abstract {i}" if i % 3 else "", 1 - i % 2) for i in range(100)}


def test_split_depends_only_on_the_article_id(tiny_mind):
    def ids(split):
        return [int(title.rsplit(" ", 1)[1]) for title in split.features["text"]]

    whole = {name: ids(split) for name, split in load(tiny_mind).splits.items()}
    for name, numbers in whole.items():
        percent = [int(hashlib.sha256(f"N{i}".encode()).hexdigest()[:8], 16) % 100 for i in numbers]
        assert {("train", "validation", "test")[(p >= 60) + (p >= 80)] for p in percent} == {name}
        assert numbers == sorted(numbers, key="N{}".format)
    dev = load(tiny_mind / "MINDlarge_dev").splits
    for name, split in dev.items():
        assert ids(split) == [i for i in whole[name] if i >= 50]


COLUMNS = r"news\.tsv:71: not 8 columns separated by tabs \(id, category, .*\) with id, category and title\."


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (b"N1\tnews\tsub\ttitle\n", COLUMNS),
        (article("N100").replace("\n", "\tmore\n").encode(), COLUMNS),
        (article("N100", title=" ").encode(), COLUMNS),
        (article("N100", title="caf\xe9").encode("latin-1"), r"news\.tsv:71: the line is not UTF-8: invalid"),
    ],
)
def test_invalid_rows(tiny_mind, row, message):
    with open(tiny_mind / "MINDlarge_train" / "news.tsv", "ab") as file:
        file.write(row)
    with pytest.raises(ValueError, match=message):
        load(tiny_mind)


def test_missing_path_and_files(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"^data\.path=.*: no news\.tsv, nor any of"):
        load(tmp_path)
    (tmp_path / "MINDsmall_dev").mkdir()
    (tmp_path / "MINDsmall_dev" / "news.tsv").write_text("")
    with pytest.raises(ValueError, match=r"MINDsmall_dev.news\.tsv: the file is empty"):
        load(tmp_path)


def test_quotes_entities_and_windows_line_endings(tmp_path):
    entities = r'[{"Label": "A \"B\", C", "WikidataId": "Q1", "SurfaceForms": ["a\tb", "caf\u00e9"]}]'
    rows = [f'N{i}\tnews\tsub\t"Quoted, it\'s" {i}\t\thttps://x\t{entities}\t\r\n' for i in range(20)]
    (tmp_path / "news.tsv").write_bytes(b"\xef\xbb\xbf" + "".join(rows).encode())
    splits = load(tmp_path).splits
    titles = np.concatenate([split.features["text"] for split in splits.values()])
    assert set(titles) == {f'"Quoted, it\'s" {i}' for i in range(20)}
    assert {abstract for split in splits.values() for abstract in split.features["text_pair"]} == {""}
