"""The model card: names as Markdown shows them, and no paths of the machine."""

import dataclasses

import numpy as np

from rank4class.pipelines import config
from rank4class.pipelines.evaluation import prediction_sets
from rank4class.pipelines.reporting import model_card


def test_names_are_escaped_and_paths_are_cut():
    experiment = config.Experiment(
        data=config.Data(name="text_file", path="/home/me/secret/mine.tsv", text_column="title/body"),
        encoder=config.Encoder(name="bert", path="gs://bucket/private/minilm/"),
        init_from="runs/before",
    )
    session = {"git": "abc", "packages": {"tensorflow": "2.20"}, "started": "now", "seconds": 3.0}
    hashes = {"classes": "0f", "train": "1e"}
    card = model_card.model_card(experiment, ["a|b", "c_d*", "new\nline"], None, hashes, [session], "usage")
    assert r"Ranks 3 classes: a\|b, c\_d\*, new\\nline." in card
    assert "| train" in card
    assert "`1e`" in card
    shown = config.from_json(card.split("```json\n")[1].split("```")[0], "card")
    assert (shown.data.path, shown.encoder.path, shown.init_from) == ("mine.tsv", "minilm", "before")
    assert shown.data.text_column == "title/body"
    for part in ("home", "secret", "private", "runs"):
        assert part not in card
    assert experiment.data.path == "/home/me/secret/mine.tsv"


def test_a_model_of_lists_counts_the_items_of_the_longest_list():
    experiment = config.Experiment(data=config.Data(name="letor"), encoder=config.Encoder(name="items"))
    session = {"git": "abc", "packages": {"tensorflow": "2.20"}, "started": "now", "seconds": 3.0}
    names = [f"document {i}" for i in range(1, 1201)]
    card = model_card.model_card(experiment, names, None, {"classes": "0f"}, [session], "usage")
    assert "\nRanks the items of a list. The longest list of its data has 1,200 items.\n" in card
    assert "document 1" not in card
    assert "1,200 classes" not in card
    card = model_card.model_card(experiment, names, None, {"classes": "0f"}, [], "usage")
    assert "The training has just begun." in card


def test_prediction_sets_state_their_guarantee():
    sets = prediction_sets.fit("rank", {}, np.ones(99, np.float32), np.arange(99) % 3)

    def card(sets, results=None, coverage=0.9):
        return model_card.model_card(config.Experiment(), ["a"], results, {}, [], "usage", sets, coverage)

    low, high = prediction_sets.coverage_interval(99, 0.9)
    assert "contains the class of an input with a probability of at least 0.9, if inputs" in card(sets)
    assert "- Score: rank\n- Calibration examples: 99\n- Coverage over draws" in card(sets)
    assert f": {low:.3f} to {high:.3f} in 95%\n\n## Data" in card(sets)
    several = card(dataclasses.replace(sets, weights=sets.weights / 2))
    assert "contains an expected share of at least 0.9 of the classes of an input, if inputs" in several
    assert "Calibration examples: 99\n\n## Data" in several
    by_class = card(dataclasses.replace(sets, examples=np.array([99, 33])))
    assert "- Score: rank, with separate limits by class\n- Calibration examples: 99\n\n" in by_class
    tested = {"score": "rank", "set_coverage@90": 91.0, "set_size@90": 2.5}
    tested["intervals"] = {"set_coverage@90": [88.0, 93.0], "set_size@90": None}
    plain = {"examples": 9, "top1_error": 1.0, "intervals": {"top1_error": None}}
    results = {"train_examples": 9, "validation": plain, "test": {**plain, "sets": tested}}
    line = "- On test: coverage 91.00% [88.00, 93.00], mean size 2.50 no interval\n"
    assert line in card(sets, results)
    assert "On test" not in card(sets, results, 0.95)
    assert "On test" not in card(dataclasses.replace(sets, after_training=True), results)
