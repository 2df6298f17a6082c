"""rank4class: multiclass classification as ranking, on TensorFlow and TF-Ranking.

The instance is the query, the classes are the items to rank. The packages are `losses`, `models`, `data`,
`pipelines` and `scripts`. For programs without flags:

    experiment = rank4class.get_config("text_file_minilm")  # or a config.Experiment
    run = rank4class.train(experiment, "runs/mine")  # or rank4class.load("runs/mine")
    run.predict(["a text", "another"], k=3)
    run.evaluate("labeled.tsv")
    run.export("models/mine/1")

With scikit-learn's interface, for data in memory:

    classifier = rank4class.RankClassifier().fit(texts, labels)
    classifier.predict(["a text", "another"])

The documentation in docs/ describes all of them.
"""

import typing

if typing.TYPE_CHECKING:
    from rank4class.pipelines.configs import get_config
    from rank4class.pipelines.estimator import RankClassifier
    from rank4class.pipelines.run import Run, compare, load, train

__all__ = ["RankClassifier", "Run", "compare", "get_config", "load", "train"]
__version__ = "1.0.0"


def __getattr__(name: str) -> object:
    """Imports the pipelines at the first use of a name of `__all__`: losses need none of them."""
    if name not in __all__:
        raise AttributeError(f"module 'rank4class' has no attribute {name!r}")
    from rank4class.pipelines import configs

    if name == "get_config":  # imports no TensorFlow
        return configs.get_config
    from rank4class.pipelines import estimator, run

    return getattr(estimator if name == "RankClassifier" else run, name)
