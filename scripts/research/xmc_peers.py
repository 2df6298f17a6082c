r"""Label trees of napkinXC and PECOS on the definitions of a reverse dictionary, beside which ours is judged.

    python -m rank4class.scripts.research.xmc_peers --path=/usr/share/wordnet --tests=TESTS \
        --gcide=/usr/share/dictd/gcide.dict.dz

Both learn linear classifiers on TF-IDF of words and pairs of words. It needs the packages napkinxc and
libpecos, which run with NumPy 1 or in another environment than TensorFlow's.
"""

import importlib
import importlib.metadata
import os
import tempfile
import time
from collections.abc import Callable

import numpy as np
import scipy.sparse
from absl import flags
from sklearn.feature_extraction.text import TfidfVectorizer

from rank4class.pipelines.reporting import tables
from rank4class.scripts import cli

_PATH = flags.DEFINE_string("path", None, "Folder of WordNet 3.0.", required=True)
_TESTS = flags.DEFINE_string("tests", None, "Folder of the test sets of Hill et al.", required=True)
_GCIDE = flags.DEFINE_string("gcide", None, "gcide.dict.dz, for more definitions.")

BEST = 100  # words of each description

Peer = Callable[[scipy.sparse.csr_matrix, scipy.sparse.csr_matrix], Callable]


def of_napkinxc(features: scipy.sparse.csr_matrix, labels: scipy.sparse.csr_matrix) -> Callable:
    """Trains a probabilistic label tree; returns its best classes of other features, int `[N, BEST]`."""
    napkin = importlib.import_module("napkinxc.models")
    tree = napkin.PLT(tempfile.mkdtemp())
    tree.fit(features, labels)

    def best(tested: scipy.sparse.csr_matrix) -> np.ndarray:
        return np.array(tree.predict(tested, top_k=BEST))

    return best


def of_pecos(features: scipy.sparse.csr_matrix, labels: scipy.sparse.csr_matrix) -> Callable:
    """Trains a linear model of a label tree by the mean features of each class; see `of_napkinxc`."""
    xmc = importlib.import_module("pecos.xmc")
    linear = importlib.import_module("pecos.xmc.xlinear.model").XLinearModel
    embedding = xmc.LabelEmbeddingFactory.create(labels, features)
    model = linear.train(features, labels, C=xmc.Indexer.gen(embedding))

    def best(tested: scipy.sparse.csr_matrix) -> np.ndarray:
        scores = model.predict(tested, beam_size=BEST, only_topk=BEST).toarray()
        return np.argsort(-scores, axis=1, kind="stable")[:, :BEST]

    return best


PEERS: dict[str, Peer] = {"napkinxc": of_napkinxc, "libpecos": of_pecos}


def found_at(best: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Returns the index of each example's class among its best, `BEST` if it is not there, int `[N]`.

    >>> found_at(np.array([[4, 7], [1, 2]]), np.array([7, 3])).tolist()
    [1, 100]
    """
    found = best == labels[:, None]
    return np.where(found.any(axis=1), found.argmax(axis=1), BEST)


def main() -> None:
    from rank4class.data.datasets import reverse_dictionary as words
    from rank4class.data.readers import rows

    dataset = words.reverse_dictionary(_PATH.value, _TESTS.value, _GCIDE.value)
    unseen = words.labeled_texts(
        os.path.join(_TESTS.value, "unseen.tsv"), dataset.class_names, rows.BadRows("fail")
    )
    train, tests = dataset.splits["train"], {"descriptions": dataset.splits["test"], "unseen words": unseen}
    vectorizer = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2), min_df=2, dtype=np.float32)
    features = vectorizer.fit_transform(train.features["text"].tolist())
    labels = scipy.sparse.csr_matrix(train.class_matrix(len(dataset.class_names)), dtype=np.float32)
    lines = [["model", "test", "@1", "@10", "@100", "median rank", "training (s)"]]
    for name, train_peer in PEERS.items():
        started = time.monotonic()
        best = train_peer(features, labels)
        seconds = time.monotonic() - started
        for title, split in tests.items():
            tested = vectorizer.transform(split.features["text"].tolist())
            place = found_at(best(tested), split.class_matrix(len(dataset.class_names)).indices)
            shares = [f"{100.0 * np.mean(place < k):.1f}" for k in (1, 10, BEST)]
            median = np.median(place) + 1
            rank = f"{median:g}" if median <= BEST else f"> {BEST}"
            version = importlib.metadata.version(name)
            lines.append([f"{name} {version}", title, *shares, rank, f"{seconds:.0f}"])
    print(tables.text_table(lines))


if __name__ == "__main__":
    cli.run(main)
