"""Reverse dictionary: the words of a definition, from WordNet 3.0."""

import gzip
import os
import re
import zlib
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from absl import logging

from rank4class.data.dataset import Dataset, Split, check_fractions, draw_uniformly
from rank4class.data.labels import Labels, listed
from rank4class.data.readers import files, rows, tables
from rank4class.data.readers.columns import Columns, normalize_text
from rank4class.data.registry import DATASETS, LABELED

PARTS = ("data.noun", "data.verb", "data.adj", "data.adv")
SYNSET = re.compile(r"\d{8} \d\d [nvasr] ([0-9a-f]{2}) (.+?) \| (.+)")  # see wndb(5WN)
TESTS = ("descriptions.tsv", "seen.tsv", "unseen.tsv")
COLUMNS = Columns(text_column="text", label_column="label")

# Of the GNU Collaborative International Dictionary of English, as Debian's dict-gcide has it.
ENTRY = re.compile(r"\n\n(?=\S)")  # the other paragraphs of an entry are indented
HEADWORD = re.compile(r"(\w[\w'-]*) \\")  # before its syllables
BRACKETS = r"\[[^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*\]"  # around etymologies, sources and letters
HEAD = re.compile(rf"[^\n\[]*(?:{BRACKETS}[^\n\[]*)*\n")
SENSE = re.compile(r"(?:^|\n) +(?:\d+\.|\([a-z]\))\s")
NUMBERED = re.compile(r" +\d+\.\s")
NOT_CLEAN = re.compile(r"\w\[|\]\w|\[(?:Obs|Archaic)|[?\\*]")
NOTE = re.compile(r"(?:imp|pp?|pl|pr|prop|a|n|v|adj|adv|abl)\.|of [A-Z]|[a-z]+$|[^(]*\)")  # on a form
DOMAIN = re.compile(r"(?:\([A-Z][^)]*\) *|Fig\.:? *)+")
# What follows a definition: quotations, authors, examples, references, and other sentences.
END = re.compile(
    r'"|``|--|\b(?:as|esp)[,:;.]|\b(?:also |)(?:[Ss]ee|[Cc]f\.|[Cc]alled|[Ss]ame as) |[.;] +(?=[A-Z])'
)


class Definition(NamedTuple):
    """A definition of one or several words."""

    text: str
    words: set[str]
    origin: str


@DATASETS.register("reverse_dictionary")
def reverse_dictionary(
    path: str,
    tests: str | None = None,
    gcide: str | None = None,
    validation_fraction: float = 0.02,
    test_fraction: float = 0.02,
    split_seed: int = 0,
    on_invalid_row: str = "fail",
) -> Dataset:
    """Definitions of WordNet 3.0; the classes are its 83,118 words.

    An example is the definition of a synset: its gloss without the example sentences. Its labels are the
    lemmas of one word, in lower case. A synset without one is left out; equal definitions are one example.

    The test sets of Hill et al. (2016) are read from the folder `tests`: `descriptions.tsv` is the test
    split, and `evaluate --data.path` reads the others. All definitions of the words of `unseen.tsv` are left
    out of training and validation. Those of `seen.tsv` are never drawn for validation. Words of the three
    files that WordNet lacks become classes without a definition, so that no test example is lost.

    Args:
      path: a folder with `data.noun`, `data.verb`, `data.adj` and `data.adv` of WordNet 3.0, such
        as Debian's package `wordnet-base` installs.
      tests: a folder with `descriptions.tsv`, `seen.tsv` and `unseen.tsv`, each with the columns `text` and
        `label`, a word. None draws the test split from the definitions.
      gcide: `gcide.dict.dz` of Debian's package `dict-gcide`, which adds its definitions of the words to
        training, about as many again. Obsolete senses are left out, and entries with parts of WordNet.
      validation_fraction, test_fraction: fraction of WordNet's definitions to draw, in (0, 1), whatever their
        words, so that some of these have no definition in training.
      split_seed: seed of the splits, at least 0.
      on_invalid_row: "fail" or "skip", for rows of the tests; see `text_file`.

    Returns:
      A `Dataset` with the feature `text`, strings `[N]`, and sparse labels, of sorted words.

    References:
      Hill et al. (2016), Learning to understand phrases by embedding the dictionary. Zhang et al. (2020),
      Multi-channel reverse dictionary model.
    """
    fractions = check_fractions(validation_fraction, test_fraction)
    bad_rows = rows.BadRows(on_invalid_row)
    test_paths = [os.path.join(tests, name) for name in TESTS] if tests else []
    test_tables = [_read_words(each, bad_rows) for each in test_paths]
    definitions = merge_equal(read_wordnet(path))
    words = set().union(*(each.words for each in definitions))
    others = _read_gcide(gcide, words, definitions) if gcide else []
    class_names = tuple(sorted(words.union(*(table.labels.codes for table in test_tables))))
    if len(class_names) > len(words):
        missing = listed([name for name in class_names if name not in words])
        logging.warning("data.tests: words without a definition in WordNet: %s", missing)
    tested = {}
    stays = None
    if test_tables:
        described, seen, unseen = test_tables
        definitions, others = (
            [each for each in part if each.words.isdisjoint(unseen.labels.codes)]
            for part in (definitions, others)
        )
        stays = np.array([not each.words.isdisjoint(seen.labels.codes) for each in definitions])
        tested = {"test": _to_split(test_paths[0], described, class_names)}
        del fractions["test"]
    drawn = draw_uniformly(len(definitions), fractions, seed=split_seed, stays=stays)
    parts = {name: [definitions[i] for i in indices] for name, indices in drawn.items()}
    parts["train"] += others
    splits = {name: _of_definitions(part, class_names) for name, part in parts.items()} | tested
    sources = [*(os.path.join(path, part) for part in PARTS), *test_paths, *([gcide] if gcide else [])]
    hashes = {source: files.sha256(source) for source in sources}
    return Dataset(class_names, splits, tuple(bad_rows.messages), hashes)


@LABELED.register("reverse_dictionary")
def labeled_texts(path: str, class_names: Sequence[str], bad_rows: rows.BadRows, **_: object) -> Split:
    """Returns all rows of a file with the columns `text` and `label`, a word, as one split."""
    return _to_split(path, _read_words(path, bad_rows), class_names)


def _read_words(path, bad_rows):
    """Returns the `Table` of a file of texts and words, with labels as those of definitions."""
    table = tables.Reader(COLUMNS, bad_rows).table([path])
    table.labels.several = True
    return table


def _to_split(path, table, class_names):
    """Returns a table as a split; an example with an unknown word has no class, and so the worst metrics."""
    labels, is_unknown = table.labels.encode(class_names)
    if is_unknown.any():
        unknown = listed([table.labels.names_of(i)[0] for i in np.flatnonzero(is_unknown)])
        logging.warning("%s: words of no class, which count as errors: %s", path, unknown)
    return Split(table.features, labels, table.origins)


def _of_definitions(definitions, class_names):
    labels = Labels(several=True)
    for definition in definitions:
        labels.append(definition.words)
    texts, origins = (np.array([each[i] for each in definitions], object) for i in (0, 2))
    return Split({"text": texts}, labels.encode(class_names)[0], origins)


def _read_gcide(path, words, definitions):
    """Returns the definitions of words in GCIDE that are not among other definitions."""
    known = {normalize_text(each.text) for each in definitions}
    read = merge_equal(read_gcide(path, words))
    others = [each for each in read if normalize_text(each.text) not in known]
    if not others:
        raise ValueError(
            f"data.gcide={path}: no definition of a word. Set it to gcide.dict.dz of dict-gcide."
        )
    return others


def merge_equal(definitions: Iterator[Definition]) -> list[Definition]:
    """Returns definitions with different texts, each with the words of all that are equal to it."""
    merged: dict[str, Definition] = {}
    for definition in definitions:
        first = merged.setdefault(normalize_text(definition.text), definition)
        first.words.update(definition.words)
    return list(merged.values())


def read_wordnet(folder: str) -> Iterator[Definition]:
    """Yields the definition of each synset with a lemma of one word, from a folder of WordNet 3.0."""
    for name in PARTS:
        path = os.path.join(folder, name)
        rows.check_text(path)
        with open(path, encoding="latin-1", newline="") as file:
            content = file.read()
        *lines, rest = content.split("\n")
        if rest or " WordNet 3.0 Copyright" not in content[:4096]:
            raise ValueError(f"{path}: not a complete file of WordNet 3.0. Set data.path to a folder of it.")
        for number, line in enumerate(lines, 1):
            if match := SYNSET.fullmatch(line):  # the others are the license
                lemmas = match[2].split(" ")[: 2 * int(match[1], 16) : 2]
                words = {re.sub(r"\((a|p|ip)\)$", "", each).lower() for each in lemmas if "_" not in each}
                text = definition_of(match[3])
                if words and text:
                    yield Definition(text, words, f"{path}:{number}")


def definition_of(gloss: str) -> str:
    """Returns a gloss up to its example sentences.

    >>> definition_of('be almost asleep; "The old man sat nodding by the fireplace"  ')
    'be almost asleep'
    >>> definition_of('significant progress (especially in the phrase "make strides"); "big strides"')
    'significant progress'
    """
    return re.sub(r"\([^)]*$", "", gloss.partition('"')[0]).strip(" ;:,")


def read_gcide(path: str, words: Collection[str]) -> Iterator[Definition]:
    """Yields the definition of each sense of the words, except obsolete or unclear ones.

    Entries with definitions from WordNet are skipped: copies of its definitions may not be trained on.
    """
    if not os.path.isfile(path):
        raise FileNotFoundError(f"data.gcide={path}: no such file. Set it to gcide.dict.dz of dict-gcide.")
    try:
        with gzip.open(path, "rt", encoding="utf-8", errors="replace") as file:
            entries = ENTRY.split(file.read())
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise files.damaged(path, f"not a complete gzip file ({error})") from error
    for entry in entries:
        headword = HEADWORD.match(entry)
        if headword and headword[1].lower() in words and "WordNet" not in entry:
            for sense in _senses(entry):
                if definition := _definition(sense):
                    yield Definition(definition, {headword[1].lower()}, f"{path}: {headword[1]}")


def _senses(entry: str) -> Iterator[str]:
    """Yields the parts of an entry after its head, without quotations, notes, synonyms and phrases."""
    first, *others = re.split(r"\n\s*\n", re.sub(r"\\[^\\]*\\", "", entry))
    head = HEAD.match(first)
    for paragraph in [first[head.end() :] if head else "", *filter(NUMBERED.match, others)]:
        yield from SENSE.split(paragraph)


def _definition(sense: str) -> str:
    """Returns the first sentence of a sense, empty if it is not clean.

    >>> _definition('(Law) A {contract}, or bond; as, a bond of [ae]gis. [1913 Webster]')
    'A contract, or bond'
    """
    sense = sense.replace("[ae]", "ae").replace("[oe]", "oe")
    if NOT_CLEAN.search(sense):
        return ""
    text = " ".join(re.sub(rf"{BRACKETS}|[{{}}]", "", sense).split())
    definition = re.sub(r"\([^)]*$", "", END.split(DOMAIN.sub("", text, 1), 1)[0]).strip(" .;,:")
    return "" if NOTE.match(definition) else definition
