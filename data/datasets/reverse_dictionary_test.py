"""The reverse dictionary: definitions and words of WordNet, Hill's tests, and damaged files."""

import gzip
import pathlib

import numpy as np
import pytest

from rank4class import data

WORDNET = pathlib.Path("/usr/share/wordnet")  # of Debian's wordnet-base
LICENSE = "  1 This software and database is being provided to you.  \n  2 WordNet 3.0 Copyright 2006.  \n"
# The lemmas of each synset, and its gloss.
SYNSETS = {
    "noun": [
        (["home", "home_base"], 'the place where you live; "deliver the package to my home"'),
        (["progress"], 'significant progress (especially in the phrase "make strides"); "big strides"'),
        (["ice_cream"], "a frozen dessert"),
        (["Polish"], "the Slavic language of Poland"),
        (["cat", "True_cat"], "a feline mammal"),
        (["dog"], 'a member of the genus Canis: "the dog barked"'),
        (["rose"], "any of many shrubs"),
    ],
    "verb": [
        (["polish", "smooth"], "make shiny"),
        (["nod"], "be almost asleep"),
        (["snore"], "breathe noisily"),
    ],
    "adj": [(["sly(a)", "tricksy", "Foxy(ip)"], "marked by skill in deception"), (["tart"], "tasting sour")],
    "adv": [(["slyly"], "in a sly manner"), (["well"], "In a  good manner"), (["good"], "in a good manner")],
}
WORDS = (
    "cat", "dog", "foxy", "good", "home", "nod", "polish", "progress", "rose", "sly", "slyly", "smooth",
    "snore", "tart", "tricksy", "well",
)  # fmt: skip


def write_wordnet(folder, synsets=SYNSETS):
    """Writes the files of WordNet; each synset points to the next one of its file."""
    for part, (name, entries) in enumerate(synsets.items()):
        letter = "nvar"[part]
        content = LICENSE
        for i, (lemmas, gloss) in enumerate(entries):
            words = f"{len(lemmas):02x} {' '.join(f'{lemma} 0' for lemma in lemmas)}"
            pointers = "000"
            rest = f"| {gloss}  \n"
            if i + 1 < len(entries):
                length = len(f"00000000 00 {letter} {words} 001 ~ 00000000 {letter} 0000 {rest}")
                pointers = f"001 ~ {len(content) + length:08} {letter} 0000"
            content += f"{len(content):08} 00 {letter} {words} {pointers} {rest}"
        (folder / f"data.{name}").write_text(content)
    return folder


@pytest.fixture
def wordnet(tmp_path):
    (tmp_path / "wordnet").mkdir()
    return write_wordnet(tmp_path / "wordnet")


@pytest.fixture
def hill(tmp_path):
    """Returns a folder of tests; the first words of `unseen` and `descriptions` are in `SYNSETS`."""
    (tmp_path / "tests").mkdir()
    tests = {"descriptions": ["home", "trousers"], "seen": ["cat", "dog"], "unseen": ["tricksy"]}
    for name, words in tests.items():
        lines = [f"what people call {word}\t{word}\n" for word in words]
        (tmp_path / "tests" / f"{name}.tsv").write_text("text\tlabel\n" + "".join(lines))
    return tmp_path / "tests"


def load(folder, **options):
    options = {"validation_fraction": 0.2, "test_fraction": 0.2, **options}
    return data.get("reverse_dictionary", path=folder, **options)


def labeled(dataset, *names):
    """Returns text -> the words of splits, joined by commas."""
    splits = [dataset.splits[name] for name in names]
    return {
        text: ",".join(dataset.class_names[i] for i in split.labels[[row]].indices)
        for split in splits
        for row, text in enumerate(split.features["text"])
    }


def test_definitions_and_their_words(wordnet):
    dataset = load(wordnet)
    other = load(wordnet, split_seed=1)
    assert dataset.class_names == WORDS
    assert {n: len(split) for n, split in dataset.splits.items()} == {"train": 7, "validation": 3, "test": 3}
    assert labeled(other, "test") != labeled(dataset, "test")
    assert labeled(dataset, *dataset.splits) == {
        "the place where you live": "home",
        "significant progress": "progress",
        "the Slavic language of Poland": "polish",
        "a feline mammal": "cat",
        "a member of the genus Canis": "dog",
        "any of many shrubs": "rose",
        "make shiny": "polish,smooth",
        "be almost asleep": "nod",
        "breathe noisily": "snore",
        "marked by skill in deception": "foxy,sly,tricksy",
        "tasting sour": "tart",
        "in a sly manner": "slyly",
        "In a  good manner": "good,well",  # equal definitions
    }
    train = dataset.splits["train"]
    origins = dict(zip(train.features["text"], train.origins, strict=True))
    assert origins["make shiny"] == f"{wordnet}/data.verb:3"
    assert set(dataset.files) == {str(wordnet / f"data.{part}") for part in SYNSETS}


def test_tests_hold_out_unseen_words(wordnet, hill, caplog):
    dataset = load(wordnet, tests=hill, validation_fraction=0.4)
    assert dataset.class_names == tuple(sorted([*WORDS, "trousers"]))
    tests = {f"what people call {word}": word for word in ("home", "trousers")}
    assert labeled(dataset, "test") == tests
    rest = labeled(dataset, "train", "validation")
    assert len(rest) == 12
    assert "marked by skill in deception" not in rest
    for seed in range(5):
        train = labeled(load(wordnet, tests=hill, validation_fraction=0.8, split_seed=seed), "train")
        assert {"a feline mammal", "a member of the genus Canis"} <= train.keys()
    assert "data.tests: words without a definition in WordNet: trousers" in caplog.text


def test_labeled_files(wordnet, hill, caplog):
    names = load(wordnet).class_names
    split = data.get_labeled("reverse_dictionary", names, path=hill / "descriptions.tsv", tests=None)
    assert split.labels.shape == (2, len(WORDS))
    np.testing.assert_array_equal(split.num_relevant(), [1, 0])
    assert names[split.labels.indices[0]] == "home"
    assert "descriptions.tsv: words of no class, which count as errors: trousers" in caplog.text


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("noun", lambda text: text.replace("3.0", "3.1")),
        ("adj", lambda text: text.split("\n", 2)[2]),
        ("adj", lambda text: text.partition("sly")[0]),
    ],
)
def test_damaged_files(wordnet, part, change):
    path = wordnet / f"data.{part}"
    path.write_bytes(change(path.read_text()).encode())
    with pytest.raises(ValueError, match=rf"data\.{part}: not a complete file of WordNet 3\.0\. Set"):
        load(wordnet)


def test_missing_files(wordnet, hill):
    (hill / "seen.tsv").unlink()
    with pytest.raises(FileNotFoundError, match=r"seen\.tsv: no such file"):
        load(wordnet, tests=hill)
    (wordnet / "data.adv").unlink()
    with pytest.raises(FileNotFoundError, match=r"data\.adv: no such file\. Check the path"):
        load(wordnet)


GCIDE = """
00-database-info
   A dictionary.

Cat \\Cat\\ (k[a^]t), n. [AS. catt; akin to [e^]
   LG. katte.]
   1. (Zool.) Any animal of the {Felid[ae]}, as the lion; as, a
      {big cat}. See {Wildcat}. [Written also {catt}.]
      [1913 Webster]

            Laying aside the cat.   --Shak.
      [1913 Webster]

   2. (Naut.)
      (a) A strong vessel. It carried coals.
      (b) A double tripod; -- used "in games".
          [1913 Webster]

   3. A sail. [Obs.]

   {Cat and dog}, a game.

Tricksy \\Trick"sy\\, a.
   Exhibiting artfulness.
   [1913 Webster]

Foxy \\Fox"y\\, a.
   1. Resembling a fox.

   Syn: crafty.
        [WordNet 1.5]

Smooth \\Smooth\\, v. t.
   Make shiny.
   [1913 Webster]

Unknown \\Un*known"\\, a.
   Not known.
   [1913 Webster]

Well \\Well\\, v.
   p. p. of {Wax}.
"""


def test_definitions_of_gcide(wordnet, hill, tmp_path):
    path = tmp_path / "gcide.dict.dz"
    path.write_bytes(gzip.compress(GCIDE.encode()))
    without = load(wordnet, tests=hill)
    dataset = load(wordnet, tests=hill, gcide=path)
    more = dict(labeled(dataset, "train").items() - labeled(without, "train").items())
    texts = ("Any animal of the Felidae, as the lion", "A strong vessel", "A double tripod")
    assert more == dict.fromkeys(texts, "cat")
    for name in ("validation", "test"):
        assert labeled(dataset, name) == labeled(without, name)
    assert dataset.splits["train"].origins[-1] == f"{path}: Cat"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ValueError, match=r"gcide\.dict\.dz: not a complete gzip file"):
        load(wordnet, gcide=path)
    path.write_bytes(gzip.compress(b"nothing"))
    with pytest.raises(ValueError, match=r"data\.gcide=.*: no definition of a word\. Set it"):
        load(wordnet, gcide=path)
    with pytest.raises(FileNotFoundError, match=r"data\.gcide=x: no such file"):
        load(wordnet, gcide="x")


@pytest.mark.nightly
def test_real_wordnet_and_tests(real_data):
    if not (WORDNET / "data.noun").is_file():
        pytest.skip(f"no WordNet in {WORDNET}: install Debian's wordnet-base")
    path = pathlib.Path("/usr/share/dictd/gcide.dict.dz")  # of Debian's dict-gcide
    gcide, train = (str(path), 173663) if path.is_file() else (None, 89142)
    tests = real_data("reverse_dictionary")
    dataset = data.get("reverse_dictionary", path=WORDNET, tests=tests, gcide=gcide)
    sizes = {name: len(split) for name, split in dataset.splits.items()}
    assert sizes == {"train": train, "validation": 1819, "test": 200}
    assert len(dataset.class_names) == 83124
    [unseen] = (
        data.get_labeled("reverse_dictionary", dataset.class_names, path=path)
        for path in dataset.files
        if path.endswith("unseen.tsv")
    )
    assert len(np.unique(unseen.labels.indices)) == 500
    for name in ("train", "validation"):
        assert not dataset.splits[name].labels[:, unseen.labels.indices].nnz
