"""MIND: news articles by category."""

import hashlib
import io
import os
import re
import zipfile
import zlib

import numpy as np
from absl import logging

from rank4class.data import sources
from rank4class.data.dataset import Dataset, Split
from rank4class.data.registry import DATASETS

SPLITS = ("train", "validation", "test")
MOST_BYTES = 10**9  # of a news.tsv in a zip file; that of MINDlarge has 85 million
PARTS = ("MINDlarge_train", "MINDlarge_dev", "MINDlarge_test", "MINDsmall_train", "MINDsmall_dev")
COLUMNS = (
    "id",
    "category",
    "subcategory",
    "title",
    "abstract",
    "url",
    "title entities",
    "abstract entities",
)


@DATASETS.register("mind")
def mind(path=None, on_invalid_row="fail", tfds_dir=None):
    """MIND, news articles by category (Rank4Class, appendix B.1).

    The articles of all files, each id once and in the order of the ids. The split, about 60/20/20, is
    a function of the id alone: an article is in the same split whichever files are there.

    The first time TensorFlow Datasets prepares them in `tfds_dir`, under a name that follows from the
    SHA-256 of the files; after that the files are hashed and not read.

    Args:
      path: folder with any of the published `MIND{large,small}_{train,dev,test}`, each a folder with
        `news.tsv` or a zip file of it (the folder, where there are both), or with one `news.tsv`
        (`COLUMNS`, neither header nor quotes). In a zip file it may have up to 1 GB, some ten times the
        published size. Files are named from there: `MINDsmall_dev/news.tsv:17`.
      on_invalid_row: "fail" or "skip", see `sources.BadRows`. A row is bad that has other columns, is not
        UTF-8, has a NUL character, has no id, category or title, is a header line, or has another title or
        category than a row before it of the same article, in whichever file.
      tfds_dir: folder of what TensorFlow Datasets has prepared; None takes its own.

    Returns:
      A `Dataset` with the features `text` (titles) and `text_pair` (abstracts, some empty), strings
      `[N]`. The classes are the categories, sorted; of a rare one the training split may have no
      example, which is logged.

    Raises:
      FileNotFoundError: no `news.tsv`.
      OSError: `tfds_dir` cannot be written.
      ValueError: no path; a file is empty, or a zip file that cannot be read; a row is bad, the message
        names file and line.
    """
    if not path:
        raise ValueError(
            "MIND's licence does not let it be passed on: download it from https://msnews.github.io and "
            "set data.path to its folder"
        )
    from rank4class.data import mind_builder  # imports TensorFlow Datasets, which is slow

    bad_rows = sources.BadRows(on_invalid_row)
    files = {name: sources.sha256(os.path.join(path, name)) for name in _files(path)}
    digest = hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()

    def read():
        return _split(_articles(path, files, bad_rows)), bad_rows.messages

    config = mind_builder.MindConfig(name=f"sha256_{digest[:16]}", read=read)
    columns, skipped = mind_builder.prepared(config, tfds_dir)
    if skipped and on_invalid_row == "fail":  # prepared when they were to be skipped
        with bad_rows.row():
            raise ValueError(skipped[0])
    class_names = tuple(sorted(set().union(*(split["category"] for split in columns.values()))))
    splits = {name: _examples(columns[name], class_names) for name in SPLITS}
    _log(path, files, class_names, splits)
    files = {os.path.join(path, name): sha256 for name, sha256 in files.items()}
    return Dataset(class_names, splits, tuple(skipped), files)


def _files(folder):
    """Returns the names of the files that hold articles, as seen from the folder."""
    places = [["news.tsv"], *([os.path.join(part, "news.tsv"), f"{part}.zip"] for part in PARTS)]
    found = [[name for name in names if os.path.isfile(os.path.join(folder, name))] for names in places]
    if not any(found):
        parts = ", ".join(PARTS)
        raise FileNotFoundError(f"no news.tsv in {folder}, nor in its {parts}, as folders or zip files")
    return [names[0] for names in found if names]


def _articles(folder, files, bad_rows):
    """Returns id -> article, a dict by column with the `origin` of its first row."""
    articles = {}
    for file in files:
        news, name = _opened(folder, file)
        with news:
            for where, line in sources.lines_of(news, name, bad_rows):
                with bad_rows.row():
                    article = _article(where, line)
                    _check_same(article, articles.get(article["id"], article))
                    articles.setdefault(article["id"], article)
    return articles


def _opened(folder, file):
    """Opens a news.tsv, or the one in a zip file, as bytes; returns what to call it too."""
    path = os.path.join(folder, file)
    if not file.endswith(".zip"):
        return open(path, "rb"), file
    try:
        with zipfile.ZipFile(path) as archive:
            member = _member(archive, path)
            sources.check_inflated_size(path, member, MOST_BYTES)
            with archive.open(member) as news:
                content = news.read(member.file_size)  # all of it: the end has a checksum
            return io.BytesIO(content), f"{file}/{member.filename}"
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise ValueError(f"{path} is not a whole zip file ({error}): download it again") from error
    except RuntimeError as error:  # encrypted, or compressed by another method
        raise ValueError(f"{path} cannot be read ({error}): unpack it to {path[:-4]}") from error


def _member(archive, path):
    """Returns the `ZipInfo` of the only news.tsv at the top of a zip file or in a folder there."""
    members = [info for info in archive.infolist() if re.fullmatch(r"([^/]+/)?news\.tsv", info.filename)]
    if len(members) != 1:
        names = " and ".join(info.filename for info in members)
        raise ValueError(f"{path} holds {names or 'no news.tsv'}, not one news.tsv")
    return members[0]


def _article(where, line):
    columns = line.split("\t")
    if len(columns) != len(COLUMNS):
        raise ValueError(
            f"{where} has {len(columns)} tab-separated columns, not {len(COLUMNS)} ({', '.join(COLUMNS)})"
        )
    row = dict(zip(COLUMNS, columns, strict=True))
    if (row["category"].strip().lower(), row["title"].strip().lower()) == ("category", "title"):
        raise ValueError(f"{where}: this row is a header line. Remove it.")
    for column in ("id", "category", "title"):
        if not row[column].strip():
            raise ValueError(f"{where} has no {column}")
    return {"origin": where, **row}


def _check_same(article, first):
    for column in ("title", "category"):
        if article[column] != first[column]:
            raise ValueError(
                f"{article['origin']} has article {article['id']} with the {column} {article[column]!r}, but "
                f"{first['origin']} has it with {first[column]!r}"
            )


def _split(articles):
    splits = {name: [] for name in SPLITS}
    for news_id, article in articles.items():
        percent = int(hashlib.sha256(news_id.encode()).hexdigest()[:8], 16) % 100
        splits["train" if percent < 60 else "validation" if percent < 80 else "test"].append(article)
    return splits


def _examples(columns, class_names):
    ids = {name: i for i, name in enumerate(class_names)}
    labels = np.array([ids[category] for category in columns["category"]], np.int32)
    features = {"text": columns["title"], "text_pair": columns["abstract"]}
    return Split(features, labels, columns["origin"])


def _log(path, files, class_names, splits):
    for name, sha256 in files.items():
        logging.info("%s: SHA-256 %s", os.path.join(path, name), sha256)
    logging.info("MIND has the classes %s", ", ".join(class_names))
    logging.info("MIND has %s", ", ".join(f"{len(split)} {name} articles" for name, split in splits.items()))
