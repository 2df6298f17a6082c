"""Definitions in the GNU Collaborative International Dictionary of English, as Debian's dict-gcide has it."""

import gzip
import os
import re
import zlib
from collections.abc import Collection, Iterator

from rank4class.data.readers import files

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


def read_gcide(path: str, words: Collection[str]) -> Iterator[tuple[str, str, str]]:
    """Yields (`path: headword`, definition, word) of the senses of words, except obsolete or unclear ones.

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
                    yield f"{path}: {headword[1]}", definition, headword[1].lower()


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
