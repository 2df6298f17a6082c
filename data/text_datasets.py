"""Datasets of text: GoEmotions and MIND."""

import hashlib
import os

import numpy as np
from absl import logging

from rank4class.data import sources
from rank4class.data.splits import Dataset, Split


def goemotions(path=None):
    """GoEmotions, the comments with exactly one emotion (Rank4Class, appendix B.1).

    Args:
      path: folder of the published files, `{train,dev,test}.tsv` (text, comma-separated label ids,
        comment id) and `emotions.txt` (a name a line, in the order of the ids). Without it the
        dataset comes from TensorFlow Datasets, which downloads it once.

    Returns:
      A `Dataset` with the feature `text`, strings `[N]`.

    Raises:
      FileNotFoundError: a file is missing.
      ValueError: a row is broken; the message names file and line.
    """
    return _goemotions_from_folder(path) if path else _goemotions_from_tfds()


def _goemotions_from_folder(folder):
    names_path = os.path.join(folder, "emotions.txt")
    class_names = []
    for where, name in sources.lines(names_path):
        if not name.strip() or name in class_names:
            raise ValueError(
                f"{where} has {'no class name' if not name.strip() else f'the class name {name!r} again'}"
            )
        class_names.append(name)
    class_names = tuple(class_names)
    splits = {}
    for name, file in (("train", "train.tsv"), ("validation", "dev.tsv"), ("test", "test.tsv")):
        texts, labels = [], []
        for where, line in sources.lines(os.path.join(folder, file)):
            columns = line.split("\t")
            if len(columns) != 3:
                raise ValueError(
                    f"{where} has {len(columns)} tab-separated columns, not 3 (text, label ids, comment id)"
                )
            ids = [_class_id(field, class_names, where) for field in columns[1].split(",")]
            if len(ids) == 1:
                texts.append(columns[0])
                labels.append(ids[0])
        splits[name] = Split({"text": np.array(texts, object)}, np.array(labels, np.int32))
    return Dataset(class_names, splits)


def _goemotions_from_tfds():
    builder = sources.tfds_builder("goemotions", "GoEmotions")
    class_names = tuple(name for name in builder.info.features if name != "comment_text")
    splits = {}
    for name in ("train", "validation", "test"):
        texts, labels = [], []
        for example in builder.as_dataset(split=name, shuffle_files=False).as_numpy_iterator():
            ids = [i for i, emotion in enumerate(class_names) if example[emotion]]
            if len(ids) == 1:
                texts.append(example["comment_text"].decode())
                labels.append(ids[0])
        splits[name] = Split({"text": np.array(texts, object)}, np.array(labels, np.int32))
    return Dataset(class_names, splits)


def _class_id(field, class_names, where):
    if not field.isdecimal():
        raise ValueError(f"{where} has the label {field!r}, which is not a class id")
    if int(field) >= len(class_names):
        raise ValueError(f"{where} has the label {field}, outside the classes 0..{len(class_names) - 1}")
    return int(field)


MIND_FOLDERS = ("MINDlarge_train", "MINDlarge_dev", "MINDlarge_test", "MINDsmall_train", "MINDsmall_dev")
MIND_COLUMNS = (
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
        `news.tsv` (`MIND_COLUMNS`, neither header nor quotes).

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
    candidates = [os.path.join(folder, name, "news.tsv") for name in ("", *MIND_FOLDERS)]
    paths = [path for path in candidates if os.path.isfile(path)]
    if not paths:
        raise FileNotFoundError(f"no news.tsv in {folder}, nor in its {', '.join(MIND_FOLDERS)}")
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
    if len(columns) != len(MIND_COLUMNS):
        raise ValueError(
            f"{where} has {len(columns)} tab-separated columns, not {len(MIND_COLUMNS)} "
            f"({', '.join(MIND_COLUMNS)})"
        )
    row = dict(zip(MIND_COLUMNS, columns, strict=True))
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
