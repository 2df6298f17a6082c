"""MIND: news articles by category."""

import hashlib
import os

import numpy as np

from rank4class.data.dataset import Dataset, Split
from rank4class.data.readers import files, rows
from rank4class.data.registry import DATASETS

SPLITS = ("train", "validation", "test")
PARTS = ("MINDlarge_train", "MINDlarge_dev", "MINDlarge_test", "MINDsmall_train", "MINDsmall_dev")
COLUMNS = (
    "id", "category", "subcategory", "title", "abstract", "url", "title entities", "abstract entities",
)  # fmt: skip


@DATASETS.register("mind")
def mind(path: str) -> Dataset:
    """MIND, news articles by category (Rank4Class, appendix B.1).

    The dataset has the articles of all files, each id once, in the order of the ids. The split, about
    60/20/20, is a function of the id.

    Args:
      path: folder with any of the published `MIND{large,small}_{train,dev,test}`, each a folder
        with `news.tsv`, or with one `news.tsv` (columns `COLUMNS`, no header).

    Returns:
      A `Dataset` with the features `text` (titles) and `text_pair` (abstracts, some empty), strings
      `[N]`. The classes are the categories, sorted. Categories without a training example are logged.
    """
    hashes = {name: files.sha256(os.path.join(path, name)) for name in _find_files(path)}
    articles = _articles(path, hashes)
    class_names = tuple(sorted({article["category"] for article in articles.values()}))
    splits = {name: _examples(part, class_names) for name, part in _split(articles).items()}
    hashes = {os.path.join(path, name): sha256 for name, sha256 in hashes.items()}
    return Dataset(class_names, splits, files=hashes)


def _find_files(folder):
    """Returns the names of the files with articles, relative to the folder."""
    names = ["news.tsv", *(os.path.join(part, "news.tsv") for part in PARTS)]
    present = [name for name in names if os.path.isfile(os.path.join(folder, name))]
    if not present:
        raise FileNotFoundError(
            f"data.path={folder}: no news.tsv, nor any of {', '.join(PARTS)} with one. Set it to the folder "
            "of MIND, with its zip files unpacked."
        )
    return present


def _articles(folder, names):
    """Returns id -> article, a dict by column with the `origin` of its first row."""
    articles: dict[str, dict[str, str]] = {}
    for name in names:
        with open(os.path.join(folder, name), "rb") as news:
            for where, line in rows.lines(name, file=news):
                columns = line.split("\t")
                if len(columns) != len(COLUMNS) or not all(columns[i].strip() for i in (0, 1, 3)):
                    form = f"{len(COLUMNS)} columns separated by tabs ({', '.join(COLUMNS)})"
                    raise ValueError(f"{where}: not {form} with id, category and title. Correct the row.")
                row = dict(zip(COLUMNS, columns, strict=True))
                article = {"origin": where, **row, "category": row["category"].strip()}
                articles.setdefault(article["id"], article)
    return articles


def _split(articles):
    splits: dict[str, list[dict[str, str]]] = {name: [] for name in SPLITS}
    for news_id, article in articles.items():
        percent = int(hashlib.sha256(news_id.encode()).hexdigest()[:8], 16) % 100
        splits["train" if percent < 60 else "validation" if percent < 80 else "test"].append(article)
    return splits


def _examples(articles, class_names):
    ids = {name: i for i, name in enumerate(class_names)}
    articles = sorted(articles, key=lambda article: article["id"])
    titles, abstracts, origins = (
        np.array([article[name] for article in articles], object) for name in ("title", "abstract", "origin")
    )
    labels = np.array([ids[article["category"]] for article in articles], np.int32)
    return Split({"text": titles, "text_pair": abstracts}, labels, origins)
