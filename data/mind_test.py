"""MIND: the union of its files, the split by the id, and one clear line for every broken row."""

import hashlib

import numpy as np
import pytest

from rank4class import data


def article(news_id, category="news", title="a title", abstract="an abstract"):
    return f"{news_id}\t{category}\tsub\t{title}\t{abstract}\thttps://x\t[]\t[]\n"


@pytest.fixture
def tiny_mind(tmp_path):
    """Writes a small folder in MIND's published layout, two files that share articles; returns its path."""
    for folder, ids in (("MINDlarge_train", range(70)), ("MINDlarge_dev", range(50, 100))):
        rows = [
            article(f"N{i}", ("sports", "autos")[i % 2], f'the "title" {i}', f"abstract {i}" if i % 3 else "")
            for i in ids
        ]
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "news.tsv").write_text("".join(rows))
    return tmp_path


def test_mind_is_the_union_of_its_files(tiny_mind):
    dataset = data.get("mind", path=str(tiny_mind))
    assert dataset.class_names == ("autos", "sports")
    seen = {}
    for split in dataset.splits.values():
        rows = zip(split.features["text"], split.features["text_pair"], split.labels, strict=True)
        seen.update({title: (abstract, label) for title, abstract, label in rows})
    assert sum(len(split) for split in dataset.splits.values()) == 100
    assert seen == {
        f'the "title" {i}': (f"abstract {i}" if i % 3 else "", 1 if i % 2 == 0 else 0) for i in range(100)
    }


def test_mind_splits_by_the_id_alone(tiny_mind):
    def ids(split):
        return [int(title.rsplit(" ", 1)[1]) for title in split.features["text"]]

    whole = {name: ids(split) for name, split in data.get("mind", path=str(tiny_mind)).splits.items()}
    for name, found in whole.items():
        percent = [int(hashlib.sha256(f"N{i}".encode()).hexdigest()[:8], 16) % 100 for i in found]
        assert {("train", "validation", "test")[(p >= 60) + (p >= 80)] for p in percent} == {name}
        assert found == sorted(found, key="N{}".format)
    alone = data.get("mind", path=str(tiny_mind / "MINDlarge_dev")).splits
    for name, split in alone.items():
        assert ids(split) == [i for i in whole[name] if i >= 50]


def test_mind_splits_about_60_20_20(tmp_path):
    (tmp_path / "news.tsv").write_text("".join(article(f"N{i}") for i in range(10000)))
    sizes = [len(split) for split in data.get("mind", path=str(tmp_path)).splits.values()]
    np.testing.assert_allclose(sizes, [6000, 2000, 2000], atol=150)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            b"N1\tnews\tsub\ttitle\n",
            r"train.news\.tsv:71 has 4 tab-separated columns, not 8 \(id, category, ",
        ),
        (article("N100").replace("\n", "\tmore\n").encode(), r"news\.tsv:71 has 9 tab-separated columns"),
        (b"\n", r"news\.tsv:71 has 1 tab-separated columns"),
        (
            article("N100", title="caf\xe9").encode("latin-1"),
            r"news\.tsv:71 is not UTF-8: invalid continuation",
        ),
        (article("N100", title=" ").encode(), r"news\.tsv:71 has no title"),
        (article("N100", category="").encode(), r"news\.tsv:71 has no category"),
        (article("").encode(), r"news\.tsv:71 has no id"),
        (
            article("N3", "autos", "other").encode(),
            r"train.news\.tsv:71 has article N3 with the title 'other', but .*train.news\.tsv:4 has it with "
            """'the "title" 3'""",
        ),
        (
            article("N99", "sports", 'the "title" 99').encode(),
            r"dev.news\.tsv:50 has article N99 with the category 'autos', but .*train.news\.tsv:71 has it "
            "with 'sports'",
        ),
    ],
)
def test_a_broken_mind_row_is_named(tiny_mind, row, message):
    with open(tiny_mind / "MINDlarge_train" / "news.tsv", "ab") as file:
        file.write(row)
    with pytest.raises(ValueError, match=message):
        data.get("mind", path=str(tiny_mind))


def test_mind_has_to_be_downloaded_by_hand(tmp_path):
    with pytest.raises(ValueError, match=r"licence.*download it from https://msnews.*set data\.path"):
        data.get("mind")
    with pytest.raises(
        FileNotFoundError, match=r"no news\.tsv in .*, nor in its MINDlarge_train, .*MINDsmall"
    ):
        data.get("mind", path=str(tmp_path))
    (tmp_path / "MINDsmall_dev").mkdir()
    (tmp_path / "MINDsmall_dev" / "news.tsv").write_text("")
    with pytest.raises(ValueError, match=r"MINDsmall_dev.news\.tsv is empty"):
        data.get("mind", path=str(tmp_path))


def test_mind_names_a_category_that_training_lacks(tiny_mind, caplog):
    with open(tiny_mind / "MINDlarge_train" / "news.tsv", "ab") as file:
        file.write(article("N101", "kids").encode())  # falls into the test split
    dataset = data.get("mind", path=str(tiny_mind))
    kids = dataset.class_names.index("kids")
    assert kids in dataset.splits["test"].labels
    assert kids not in dataset.splits["train"].labels
    assert "no article of the category 'kids' falls into the training split" in caplog.text
