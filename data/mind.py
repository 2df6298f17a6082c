"""MIND: news articles by category."""

import hashlib
import os

import numpy as np
from absl import logging

from rank4class.data import sources
from rank4class.data.splits import Dataset, Split

FOLDERS = ("MINDlarge_train", "MINDlarge_dev", "MINDlarge_test", "MINDsmall_train", "MINDsmall_dev")
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


def mind(path=None):
    """MIND, news articles by category (Rank4Class, appendix B.1).

    The articles of all files, each id once and in the order of the ids. The split, about 60/20/20, is
    a function of the id alone: an article is in the same split whichever files are there.

    Args:
      path: folder with any of the published `MIND{large,small}_{train,dev,test}/news.tsv`, or with one
        `news.tsv` (`COLUMNS`, neither header nor quotes).

    Returns:
      A `Dataset` with the features `text` (titles) and `text_pair` (abstracts, some empty), strings
      `[N]`. The classes are the categories, sorted; of a rare one the training split may have no
      example, which is logged.

    Raises:
      FileNotFoundError: no `news.tsv`.
      ValueError: no path; a row is broken, or two rows of one article disagree, the message names file
        and line.
    """
    if not path:
        raise ValueError(
            "MIND's licence does not let it be passed on: download it from https://msnews.github.io and "
            "set data.path to its folder"
        )
    articles = _mind_articles(path)
    class_names = tuple(sorted({article["category"] for article in articles.values()}))
    rows = {"train": [], "validation": [], "test": []}
    for news_id in sorted(articles):
        rows[_mind_split(news_id)].append(articles[news_id])
    trained = {article["category"] for article in rows["train"]}
    for name in class_names:
        if name not in trained:
            logging.warning("%s: no article of the category %r falls into the training split", path, name)
    return Dataset(class_names, {name: _mind_examples(part, class_names) for name, part in rows.items()})


def _mind_articles(folder):
    """Returns id -> article, a dict by column with the `where` of its first row."""
    candidates = [os.path.join(folder, name, "news.tsv") for name in ("", *FOLDERS)]
    paths = [path for path in candidates if os.path.isfile(path)]
    if not paths:
        raise FileNotFoundError(f"no news.tsv in {folder}, nor in its {', '.join(FOLDERS)}")
    articles = {}
    for path in paths:
        for where, line in sources.lines(path):
            article = {"where": where, **_mind_row(where, line)}
            first = articles.setdefault(article["id"], article)
            for column in ("title", "category"):
                if article[column] != first[column]:
                    raise ValueError(
                        f"{where} has article {article['id']} with the {column} {article[column]!r}, but "
                        f"{first['where']} has it with {first[column]!r}"
                    )
    return articles


def _mind_row(where, line):
    columns = line.split("\t")
    if len(columns) != len(COLUMNS):
        raise ValueError(
            f"{where} has {len(columns)} tab-separated columns, not {len(COLUMNS)} ({', '.join(COLUMNS)})"
        )
    row = dict(zip(COLUMNS, columns, strict=True))
    for column in ("id", "category", "title"):
        if not row[column].strip():
            raise ValueError(f"{where} has no {column}")
    return {column: row[column] for column in ("id", "category", "title", "abstract")}


def _mind_split(news_id):
    percent = int(hashlib.sha256(news_id.encode()).hexdigest()[:8], 16) % 100
    if percent < 60:
        return "train"
    return "validation" if percent < 80 else "test"


def _mind_examples(articles, class_names):
    features = {
        "text": np.array([article["title"] for article in articles], object),
        "text_pair": np.array([article["abstract"] for article in articles], object),
    }
    labels = [class_names.index(article["category"]) for article in articles]
    return Split(features, np.array(labels, np.int32))
