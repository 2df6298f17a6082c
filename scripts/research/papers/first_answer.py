"""First answers on a user's data: ours, solved and trained, beside logistic regressions of scikit-learn.

Each answer is timed from the files to the test metrics, with an empty cache of encoded texts. The vectors of
the peers are those of our encoder, whose time is theirs too.
"""

import functools
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, PredefinedSplit
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import StandardScaler, normalize

from rank4class import data, losses
from rank4class.pipelines import config
from rank4class.pipelines.storage import files
from rank4class.pipelines.storage.run_directory import RunDirectory, check_folder, read_json, write_json
from rank4class.pipelines.task_data import hashing, loading
from rank4class.pipelines.training import rank_training
from rank4class.scripts.research.sorters import study

SOLVED, TRAINED = "solved", "trained"  # titles of ours
STRENGTHS = (1.0, 10.0, 100.0)  # `C` of the peers
FOLDS = 3  # that choose it, of data without a validation split
Values = Mapping[str, np.ndarray]  # metric -> its values for the test examples, `[N]`


def run(
    experiment: config.Experiment,
    folder: str | os.PathLike,
    seeds: Sequence[int],
    encoders: Sequence[str] = (),
) -> dict[str, Any]:
    """Writes the answers to `study.json`, with their minutes; those without a seed count for each of them.

    Heads are solved for the encoder of the experiment, and for those of some folders too. Answers of an
    earlier call on the same data are not repeated.

    Raises:
      ValueError: a seed is repeated, or the folder holds the answers on other data.
    """
    study.check_seeds(seeds)
    dataset = loading.read_dataset(experiment.data, with_folds=True)
    hashes = hashing.data_hashes(dataset.class_names, dataset.splits)
    record = {**dataset.files, **hashes}
    folder = check_folder(folder, "study of first answers")
    study.check_result(folder, record)
    files.make_folder(folder)
    os.environ["RANK4CLASS_CACHE"] = "off"
    solved = {SOLVED: config.override(experiment, _frozen(experiment))}
    for path in encoders:
        title = f"{SOLVED}, {os.path.basename(path)}"
        solved[title] = config.override(experiment, {"encoder.path": path, "encoder.frozen": True})
    found = {
        **{
            title: [_timed(folder, title, functools.partial(_ours, each))] * len(seeds)
            for title, each in solved.items()
        },
        TRAINED: [
            _timed(
                folder,
                f"{TRAINED}-seed{seed}",
                functools.partial(_ours, config.override(experiment, {"seed": seed})),
            )
            for seed in seeds
        ],
    }
    for title, features in _peers(experiment, dataset).items():
        peer = functools.partial(_logistic_regression, dataset, experiment.metrics, features)
        found[title] = [_timed(folder, title, peer)] * len(seeds)
    return study.write_result(
        folder,
        seeds,
        {
            title: {m: [one["test"][m] for one in ones] for m in experiment.metrics}
            for title, ones in found.items()
        },
        {name: len(split) for name, split in dataset.splits.items()},
        record,
        list({id(one): one["session"] for ones in found.values() for one in ones}.values()),
        test_hash=hashes["test"],
        axis="answer",
        minutes={
            title: np.mean([one["session"]["seconds"] for one in ones]) / 60.0
            for title, ones in found.items()
        },
    )


def _frozen(experiment: config.Experiment) -> dict[str, Any]:
    """Returns the changes after which the head alone is learned."""
    is_text = experiment.encoder.name != "mlp"
    return {"encoder.frozen": True} if is_text else {"encoder.name": "identity"}


def _timed(folder: str, name: str, answer: Callable[[str], Values]) -> dict[str, Any]:
    """Returns the test values in percent and the session of an answer, from its file if there is one."""
    path = os.path.join(folder, f"{name}.json")
    if not files.exists(path):
        started = time.monotonic()
        with tempfile.TemporaryDirectory() as scratch:
            values = answer(scratch)
        session = study.session(started)
        write_json(path, {"test": {m: (100.0 * v).tolist() for m, v in values.items()}, "session": session})
    result = read_json(path)
    figures = ", ".join(f"{metric} {np.mean(values):.2f}" for metric, values in result["test"].items())
    print(f"{name}: {figures}, {result['session']['seconds']:,.0f} seconds", flush=True)
    return result


def _ours(experiment: config.Experiment, scratch: str) -> Values:
    path = os.path.join(scratch, "run")
    rank_training.train(experiment, path)
    return RunDirectory(path).test_values()


Features = Callable[[str], Mapping[str, Any]]  # of a folder for scratch: split -> `[N, d]`, dense or sparse


def _peers(experiment: config.Experiment, dataset: data.Dataset) -> dict[str, Features]:
    """Returns the features of each peer, by its title."""
    if "text" not in dataset.splits["train"].features:
        return {"scikit-learn, standardized columns": functools.partial(_columns, dataset)}
    words = functools.partial(_words, dataset)
    vectors = functools.partial(_vectors, experiment)
    return {
        "scikit-learn, words": words,
        "scikit-learn, vectors": vectors,
        "scikit-learn, both": functools.partial(_both, words, vectors),
    }


def _columns(dataset: data.Dataset, scratch: str) -> dict[str, Any]:
    del scratch
    scaler = StandardScaler().fit(dataset.splits["train"].features["embedding"])
    return {name: scaler.transform(split.features["embedding"]) for name, split in dataset.splits.items()}


def _words(dataset: data.Dataset, scratch: str) -> dict[str, Any]:
    del scratch
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
    vectorizer.fit(dataset.splits["train"].features["text"])
    return {name: vectorizer.transform(split.features["text"]) for name, split in dataset.splits.items()}


def _vectors(experiment: config.Experiment, scratch: str) -> dict[str, Any]:
    changes = {"encoder.frozen": True, "words": "none", "data.name_examples": 0}
    encoded = loading.load_data(config.override(experiment, changes), scratch)
    return {name: normalize(split.features["embedding"]) for name, split in encoded.splits.items()}


def _both(words: Features, vectors: Features, scratch: str) -> dict[str, Any]:
    dense = vectors(scratch)
    return {name: scipy.sparse.hstack([dense[name], x]).tocsr() for name, x in words(scratch).items()}


def _logistic_regression(
    dataset: data.Dataset, metrics: Sequence[str], features: Features, scratch: str
) -> Values:
    """Returns the test values of a regression on training and validation examples; the latter choose `C`."""
    x = features(scratch)
    several = dataset.splits["train"].multi_label
    labels: dict[str, Any] = {
        name: split.label_matrix.toarray() if several else split.labels
        for name, split in dataset.splits.items()
    }
    choices: Any = FOLDS
    names = [name for name in ("train", "validation") if name in dataset.splits]
    if "validation" in names:
        choices = PredefinedSplit(np.repeat([-1, 0], [len(dataset.splits[name]) for name in names]))
    stack = scipy.sparse.vstack if scipy.sparse.issparse(x["train"]) else np.concatenate
    y = [labels[name] for name in names]
    model = LogisticRegression(max_iter=1000)
    search = GridSearchCV(
        OneVsRestClassifier(model) if several else model,
        {"estimator__C" if several else "C": STRENGTHS},
        scoring="f1_micro",
        cv=choices,
    )
    search.fit(stack([x[name] for name in names]), np.concatenate(y))
    scores = search.decision_function(x["test"]).astype(np.float32)
    expected = labels["test"].astype(np.float32) if several else labels["test"]
    ranking: Any = losses.get_metric
    return {name: ranking(name).of_scores(scores, expected).numpy() for name in metrics}
