"""First answers: ours and the peers' on the same test examples, timed, and kept."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from rank4class import data
from rank4class.pipelines import config
from rank4class.pipelines.configs import table_mlp
from rank4class.scripts.research.papers import first_answer


@pytest.fixture
def table(tmp_path):
    """Returns the folder of a table with training and test rows, and no validation split."""
    x, y = load_digits(n_class=3, return_X_y=True)
    frame = pd.DataFrame(x[:, 16:32], columns=[f"p{i}" for i in range(16)]).assign(label=y)
    folder = tmp_path / "table"
    folder.mkdir()
    frame[:200].to_csv(folder / "train.csv", index=False)
    frame[200:400].to_csv(folder / "test.csv", index=False)
    return folder


def test_answers_are_timed_and_kept(table, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("RANK4CLASS_CACHE", "off")
    changes = {"data.path": str(table), "epochs": 1.0, "metrics": ("top1_error", "ndcg@5")}
    experiment = config.override(table_mlp.get_config(), changes)
    first_answer.run(experiment, tmp_path / "study", seeds=[0, 1])
    printed = capsys.readouterr().out
    study = json.loads((tmp_path / "study" / "study.json").read_text())
    peer = "scikit-learn, standardized columns"
    assert set(study["test"]) == set(study["minutes"]) == {"solved", "trained", peer}
    assert all(np.shape(values["top1_error"]) == (2, 200) for values in study["test"].values())
    assert study["axis"] == "answer"
    assert study["examples"] == {"train": 200, "test": 200}
    trained = study["test"]["trained"]["ndcg@5"]
    assert trained[0] != trained[1]
    for title in ("solved", peer):
        assert study["test"][title]["ndcg@5"][0] == study["test"][title]["ndcg@5"][1]

    splits = data.get("table", path=str(table), validation_fraction=0.0).splits
    x = {name: split.features["embedding"] for name, split in splits.items()}
    models = [
        make_pipeline(StandardScaler(), LogisticRegression(C=C, max_iter=1000)) for C in (1.0, 10.0, 100.0)
    ]
    errors = [
        100.0 * (model.fit(x["train"], splits["train"].labels).predict(x["test"]) != splits["test"].labels)
        for model in models
    ]
    assert any((study["test"][peer]["top1_error"][0] == each).all() for each in errors)

    assert first_answer.run(experiment, tmp_path / "study", seeds=[0, 1]) == study
    again = capsys.readouterr().out
    assert "Training:" in printed
    assert "Training:" not in again
    with pytest.raises(ValueError, match="the result of a study of other data or seeds"):
        first_answer.run(
            config.override(experiment, {"data.validation_fraction": 0.2}), tmp_path / "study", seeds=[0]
        )


def test_peers_read_words():
    texts = np.array(["a red car", "a blue car", "green tea", "blue sky"], object)
    split = data.Split({"text": texts}, np.array([0, 1, 2, 1], np.int32))
    dataset = data.Dataset(("red", "blue", "green"), {"train": split, "validation": split, "test": split})
    words = first_answer._words(dataset, "")
    assert words["test"].shape == (4, 10)
    values = first_answer._logistic_regression(dataset, ("top1_error",), lambda _: words, "")
    assert values["top1_error"].tolist() == [0.0, 0.0, 0.0, 0.0]
