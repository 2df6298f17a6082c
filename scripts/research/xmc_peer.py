r"""Trains the label trees of napkinXC or PECOS on a reverse dictionary, beside which a model is judged.

    python -m rank4class.scripts.research.xmc_peer --path=/usr/share/wordnet --tests=TESTS \
        --gcide=/usr/share/dictd/gcide.dict.dz

Their linear classifiers read the TF-IDF of words and pairs of words. It needs the package napkinxc, or for
`--peer=pecos` libpecos with NumPy 1 and a SciPy before 1.14.
"""

import importlib
import os
import tempfile
import time
from collections.abc import Callable

import numpy as np
import scipy.sparse
from absl import flags
from sklearn.feature_extraction.text import TfidfVectorizer

from rank4class.scripts import cli

_PATH = flags.DEFINE_string("path", None, "Folder of WordNet 3.0.", required=True)
_TESTS = flags.DEFINE_string("tests", None, "Folder of the test sets of Hill et al.", required=True)
_GCIDE = flags.DEFINE_string("gcide", None, "gcide.dict.dz, for more definitions.")
_PEER = flags.DEFINE_enum("peer", "napkinxc", ["napkinxc", "pecos"], "The package of the label trees.")

BEST = 100  # words of each description


def found_at(best: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Returns the index of each example's class among its best, `BEST` if it is not there, int `[N]`.

    >>> found_at(np.array([[4, 7], [1, 2]]), np.array([7, 3])).tolist()
    [1, 100]
    """
    found = best == labels[:, None]
    return np.where(found.any(axis=1), found.argmax(axis=1), BEST)


def _train_napkinxc(features: scipy.sparse.csr_matrix, labels: scipy.sparse.csr_matrix) -> Callable:
    tree = importlib.import_module("napkinxc.models").PLT(tempfile.mkdtemp())
    tree.fit(features, labels)
    return lambda features: np.array(tree.predict(features, top_k=BEST))


def _train_pecos(features: scipy.sparse.csr_matrix, labels: scipy.sparse.csr_matrix) -> Callable:
    xmc = importlib.import_module("pecos.xmc")
    clusters = xmc.Indexer.gen(xmc.LabelEmbeddingFactory.create(labels, features))
    model = importlib.import_module("pecos.xmc.xlinear.model").XLinearModel.train(
        features, labels, C=clusters
    )

    def predict(features: scipy.sparse.csr_matrix) -> np.ndarray:
        scores = model.predict(features, beam_size=BEST, only_topk=BEST)
        return np.argsort(-scores.toarray(), axis=1, kind="stable")[:, :BEST]

    return predict


def main() -> None:
    from rank4class.data.datasets import reverse_dictionary as words
    from rank4class.data.readers import rows
    from rank4class.pipelines.reporting import tables

    dataset = words.reverse_dictionary(_PATH.value, _TESTS.value, _GCIDE.value)
    unseen = words.labeled_texts(
        os.path.join(_TESTS.value, "unseen.tsv"), dataset.class_names, rows.BadRows("fail")
    )
    train = dataset.splits["train"]
    tests = {"descriptions": dataset.splits["test"], "unseen words": unseen}
    vectorizer = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2), min_df=2, dtype=np.float32)
    features = vectorizer.fit_transform(train.features["text"].tolist())
    labels = scipy.sparse.csr_matrix(train.class_matrix(len(dataset.class_names)), dtype=np.float32)
    started = time.monotonic()
    predict = {"napkinxc": _train_napkinxc, "pecos": _train_pecos}[_PEER.value](features, labels)
    print(f"Training: {time.monotonic() - started:.0f} s")
    lines = [["test", "@1", "@10", "@100", "median rank"]]
    for title, split in tests.items():
        best = predict(vectorizer.transform(split.features["text"].tolist()))
        place = found_at(best, split.class_matrix(len(dataset.class_names)).indices)
        median = np.median(place) + 1
        rank = f"{median:g}" if median <= BEST else f"over {BEST}"
        lines.append([title, *(f"{100.0 * np.mean(place < k):.1f}" for k in (1, 10, BEST)), rank])
    print(tables.text_table(lines))


if __name__ == "__main__":
    cli.run(main)
