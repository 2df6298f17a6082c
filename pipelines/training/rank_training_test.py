"""Runs on small datasets: their files, repeated runs, early stopping, errors, replicas."""

import contextlib
import dataclasses
import glob
import io
import json
import os
import pathlib
import re
import shutil

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import rank4class
from rank4class import data, progress
from rank4class.pipelines import config, distribution
from rank4class.pipelines.configs import digits_mlp
from rank4class.pipelines.evaluation import baselines, evaluator, model_building, trained_model
from rank4class.pipelines.evaluation.model_building import new_model
from rank4class.pipelines.reporting import plots
from rank4class.pipelines.storage.cache import Cache
from rank4class.pipelines.storage.run_directory import RunDirectory
from rank4class.pipelines.training import heads, rank_training, tensorboard, trainable_rank_model, trainer

pytestmark = pytest.mark.usefixtures("names_of_a_new_process")


def small(**changes):
    base = {"epochs": 2.0, "encoder.hidden": (16,), "encoder.dropout": 0.2}
    return config.override(digits_mlp.get_config(), {**base, **changes})


@pytest.fixture(scope="module")
def finished_once(tmp_path_factory):
    """Trains `small()`; returns its folder, which tests must not change, and the printed text."""
    path = str(tmp_path_factory.mktemp("finished") / "run")
    tf.keras.backend.clear_session()
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        rank_training.train(small(), path, draw=plots.draw_evaluation)
    return path, printed.getvalue()


@pytest.fixture
def finished(finished_once, tmp_path):
    """Returns a copy of the folder of a finished run of `small()`."""
    shutil.copytree(finished_once[0], tmp_path / "run")
    return tmp_path / "run"


def test_files_of_a_run(finished_once, monkeypatch):
    path, printed = finished_once
    monkeypatch.setattr(rank_training, "load_data", lambda *_: pytest.fail("loaded again"))
    events = glob.glob("events.out.tfevents.*", root_dir=path)
    assert len(events) == 1
    assert sorted({*os.listdir(path)} - {*events}) == [
        "calibration.json",
        "checkpoints",
        "config.json",
        "data.json",
        "lock",
        "metrics.jsonl",
        "model",
        "projector",
        "projector_config.pbtxt",
        "results.json",
        "sessions.jsonl",
        "test_values.npz",
    ]
    results = rank_training.train(small(), path)  # it is already finished
    assert results == json.loads(pathlib.Path(path, "results.json").read_text())
    assert results["train_examples"] == 1078
    assert (results["validation"]["examples"], results["test"]["examples"]) == (359, 360)
    assert results["test"]["top1_error"] < 85.0  # 90 by chance
    assert results["steps"] == 34  # ceil(2 epochs x 1078 examples / batches of 64)
    assert set(results) >= {"seed", "best_step"}
    [session] = RunDirectory(path).sessions()
    assert set(session) >= {"git", "packages", "command", "started", "seconds", "strategy", "replicas"}
    assert "environment" in session
    assert (session["from_step"], session["to_step"]) == (0, 34)
    low, high = results["test"]["intervals"]["ndcg@5"]
    assert low <= results["test"]["ndcg@5"] <= high
    history = RunDirectory(path).history()
    assert [line["step"] for line in history] == [17, 34]
    assert max(history, key=lambda line: line["ndcg@5"])["step"] == results["best_step"]
    first, *lines = printed.splitlines()
    assert first == "Training: epochs=2, steps=34, batch_size=64"  # ceil(2 x 1078 / 64)
    assert re.fullmatch(
        r"step 17 of 34, epoch 1 of 2, loss \d\.\d{4}, [\d,.]+ examples/s, "
        r"waited for data \d+\.\d% of the time(, \d+ s left)?",
        lines[0],
    )
    assert lines[1].startswith("  validation: top1_error ")
    assert lines[2].startswith("step 34 of 34, epoch 2 of 2, ")
    assert len(lines) == 4


@pytest.mark.parametrize(
    ("changes", "examples", "steps", "epochs", "evaluation_steps"),
    [
        ({"epochs": 50.0, "evaluations_per_epoch": 0.1}, 11, 55, 50.0, 11),  # no step is added by rounding
        ({"epochs": 3.0, "evaluations_per_epoch": 0.3}, 21, 7, 3.0, 7),
        ({"epochs": 3.0, "min_steps": 20}, 40, 20, 5.0, 4),
        ({"epochs": 3.0, "min_steps": 20}, 100, 30, 3.0, 10),
        ({"epochs": 3.0}, 40, 12, 3.0, 4),
        ({"steps": 2}, 40, 2, 0.5, 4),
    ],
)
def test_the_steps_of_a_schedule(changes, examples, steps, epochs, evaluation_steps):
    experiment = config.override(config.Experiment(batch_size=10), changes)
    schedule = rank_training.build_schedule(experiment, examples)
    found = schedule.total_steps, schedule.epochs, schedule.evaluation_steps
    assert found == (steps, epochs, evaluation_steps)


def test_evaluations_show_their_progress(finished_once, monkeypatch, capsys):
    monkeypatch.setattr(progress, "LOG_SECONDS", 0.0)
    trained = trained_model.restore(finished_once[0])
    trained.evaluate(trained.load_task())
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("|")[-1].split(" ")[1] for line in lines] == ["0/360", "256/360", "360/360", "360/360"]


def test_splits_of_one_example(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(progress, "LOG_SECONDS", 0.0)
    metrics = ("top1_error", "mean_rank", "ndcg@5")
    experiment = small(**{"data.max_examples": 1, "metrics": metrics, "epochs": 1.0})
    results = rank_training.train(experiment, str(tmp_path / "run"), progress=False)
    assert capsys.readouterr().out == ""
    assert results["test"]["intervals"]["mean_rank"] is None
    for path in (tmp_path / "run").glob("*.json*"):
        for line in [path.read_text()] if path.suffix == ".json" else path.read_text().splitlines():
            json.loads(line, parse_constant=lambda name, path=path: pytest.fail(f"{path} holds {name}"))
    assert rank_training.train(experiment, str(tmp_path / "run")) == results


def test_metrics_that_are_not_finite_are_restored(tmp_path):
    run_dir = RunDirectory(str(tmp_path))
    split = {"mean_rank": np.inf, "nll": 2.0, "examples": 3, "intervals": {"mean_rank": None}}
    results = {"validation": split, "test": split, "best_step": None}
    run_dir.write_results(results)
    run_dir.write_history([{"step": 3, "loss": 1.5, "mean_rank": np.inf}])
    assert "Infinity" not in "".join(path.read_text() for path in tmp_path.iterdir())
    assert run_dir.results() == results
    assert run_dir.history() == [{"step": 3, "loss": 1.5, "mean_rank": np.inf}]


def events_of(folder):
    """Returns the summaries of a run, tag -> step -> value."""
    (path,), values = pathlib.Path(folder).glob("events*"), {}
    for record in tf.compat.v1.train.summary_iterator(str(path)):
        for value in record.summary.value:
            values.setdefault(value.tag, {})[record.step] = value
    return values


def test_tensorboard_has_losses_metrics_and_config(finished_once):
    events = events_of(finished_once[0])
    metrics = ("top1_error", "top5_error", "ndcg@5")
    assert set(events) == {
        "_hparams_/session_start_info",
        "_hparams_/session_end_info",
        "loss/train/softmax",  # losses of different scales have separate charts
        "loss/validation/softmax",
        "optimization/gradient_norm",
        "optimization/learning_rate",
        "speed/examples_per_second",
        "speed/waiting_share",
        *(f"{s}/{name}" for s in ("metrics/validation", "validation_best", "test") for name in metrics),
        "test/confusion_matrix",
        "test/rank_of_the_true_class",
        "test/reliability_diagram",
        "test/risk_coverage",
    }
    trained = trained_model.restore(finished_once[0])
    loaded = trained.load_task()
    scores = trained.evaluate(loaded, "validation", keep_scores=True).scores
    log_probabilities = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    labels = loaded.splits["validation"].labels
    last = tf.make_ndarray(events["loss/validation/softmax"][34].tensor)
    assert last == pytest.approx(-log_probabilities[np.arange(len(labels)), labels].mean(), rel=1e-4)


def test_the_projector_has_errors_and_examples_of_the_classes(finished_once):
    table = pd.read_csv(f"{finished_once[0]}/projector/classes.tsv", sep="\t")
    error = "top1_error of test (%)"
    assert list(table) == ["class", error, "training examples"]
    assert table["class"].tolist() == [f"class {i}" for i in range(10)]
    assert table["training examples"].sum() == 1078
    trained = trained_model.restore(finished_once[0])
    counts = trained.load_task().splits["test"].class_counts(10)
    expected = trained.run_dir.results()["test"]["top1_error"]
    assert table[error] @ counts / counts.sum() == pytest.approx(expected, abs=1e-3)


def test_losses_that_select_all_classes_are_refused(tmp_path, digits):
    experiment = small(**{"loss.name": "rankmax", "loss.k": 10})
    with pytest.raises(ValueError, match=r"loss\.k=10: selects all 10 training classes\. Lower it\."):
        rank_training.train(experiment, tmp_path / "run", task_data=digits)
    assert not (tmp_path / "run" / "config.json").exists()


@pytest.mark.nightly
def test_tensorboard_of_a_long_training(tmp_path, monkeypatch):
    """Trains with a changing temperature and plots at each evaluation."""
    monkeypatch.setattr(tensorboard, "SECONDS_BETWEEN_PICTURES", 0.0)
    changes = {"loss.temperature": 2.0, "loss.final_temperature": 0.5}
    rank_training.train(small(**changes), str(tmp_path), progress=False, draw=plots.draw_evaluation)
    events = events_of(tmp_path)
    temperatures = [tf.make_ndarray(one.tensor) for one in events["optimization/temperature"].values()]
    np.testing.assert_allclose(temperatures, 2.0 * 0.25 ** (np.arange(34) / 33), rtol=1e-5)
    for name in ("confusion_matrix", "rank_of_the_true_class"):
        assert list(events[f"validation/{name}"]) == [17, 34]
    assert list(events["test/confusion_matrix"]) == list(events["test/ndcg@5"])


@pytest.fixture(scope="module")
def digits():
    """Returns the task of `small()`."""
    return rank_training.load_data(small(), "unused")


def test_losses_that_are_not_finite_stop_training(tmp_path, digits):
    experiment = small(**{"loss.name": "mse", "optimizer.learning_rate": 1e30, "checkpoint_steps": 1})
    with pytest.raises(
        FloatingPointError,
        match=r"loss='mse': (inf|nan|[\d.e+]+ but its gradient is not finite) at step \d+, learning rate "
        r"[\d.]+e\+\d+\. Lower the learning rate, or look at the data \(example \d+, example \d+, "
        r"example \d+ and 61 more; all in .*not_finite.json\); the last checkpoint is from before\.",
    ):
        rank_training.train(experiment, str(tmp_path), task_data=digits, progress=False)
    assert RunDirectory(str(tmp_path)).results() is None
    report = json.loads((tmp_path / "not_finite.json").read_text())
    [newest] = [int(path.stem[5:]) for path in (tmp_path / "checkpoints" / "last").glob("*.index")][-1:]
    assert report["loss"] == "mse"
    assert report["step"] > newest >= 1
    indices = digits.training_examples(experiment.batch_size, experiment.seed, report["step"] - 1)
    assert report["examples"] == [f"example {i}" for i in indices]


@pytest.mark.parametrize("precision", ["float32", "mixed_float16"])  # float16 lowers its scale first
def test_gradients_that_are_not_finite_stop_training_before_a_checkpoint(
    tmp_path, monkeypatch, digits, precision
):
    @tf.custom_gradient
    def broken(x):
        return x, lambda upstream: upstream * np.nan

    def build(*arguments):
        model = build_model(*arguments)
        scores = model.interaction.call
        model.interaction.call = lambda pair: broken(scores(pair))
        return model

    build_model = trainable_rank_model.build_model
    monkeypatch.setattr(trainable_rank_model, "build_model", build)
    with pytest.raises(FloatingPointError, match=r"but its gradient is not finite at step \d+, learning"):
        rank_training.train(small(precision=precision), str(tmp_path), task_data=digits, progress=False)
    assert not (tmp_path / "checkpoints" / "last").exists()


@pytest.mark.nightly
def test_early_stopping_restores_the_best(tmp_path, monkeypatch):
    values = iter([50.0, 60.0, 55.0, 59.0])
    means = evaluator.means

    def scripted(figures, names):
        actual = means(figures, names)
        return {**actual, "ndcg@5": next(values, actual["ndcg@5"])}

    monkeypatch.setattr(evaluator, "means", scripted)
    results = rank_training.train(small(epochs=10.0, patience=2), str(tmp_path), progress=False)
    assert (results["best_step"], results["steps"]) == (34, 68)


@pytest.mark.usefixtures("generated_data")
def test_top5_is_not_defined_for_three_classes(tmp_path):
    experiment = config.Experiment(
        data=config.Data(name="synthetic", num_classes=3, num_examples=60),
        encoder=config.Encoder(name="identity"),
        monitor="top5_error",
    )
    with pytest.raises(ValueError, match="monitor='top5_error': not defined for 3 classes. Choose another"):
        rank_training.train(experiment, str(tmp_path / "x"))


def test_encoders_of_other_features_are_refused(tmp_path, tiny_goemotions, tiny_bert):
    bert = config.override(digits_mlp.get_config(), {"encoder.name": "bert", "encoder.path": tiny_bert})
    with pytest.raises(ValueError, match="encoder='bert': needs 'input_word_ids', 'input_mask',"):
        rank_training.train(bert, str(tmp_path / "run"))
    with pytest.raises(ValueError, match="dataset 'goemotions' holds texts. Set it to the folder"):
        rank_training.train(
            small(**{"data.name": "goemotions", "data.path": str(tiny_goemotions)}), str(tmp_path / "run")
        )


@pytest.mark.nightly
def test_a_training_of_no_epoch_is_the_initial_model(tmp_path):
    experiment = small(
        **{
            "epochs": 0.0,
            "optimizer.decay": "cosine",
            "optimizer.warmup_fraction": 0.1,
            "loss.name": "rankmax",
        }
    )
    experiment.loss.final_temperature = 0.1
    path = str(tmp_path / "run")
    results = rank_training.train(experiment, path, progress=False)
    assert (results["best_step"], results["steps"]) == (0, 0)
    [evaluation] = RunDirectory(path).history()
    assert (evaluation["step"], evaluation["loss"]) == (0, np.inf)  # there is no training loss
    assert evaluation["ndcg@5"] == pytest.approx(results["validation"]["ndcg@5"])
    best = trained_model.restore(path)
    assert best.step == 0
    assert best.evaluate(best.load_task()).means()["ndcg@5"] == pytest.approx(results["test"]["ndcg@5"])
    os.remove(f"{path}/results.json")  # a kill before the end
    assert rank_training.train(experiment, path, progress=False) == results


@pytest.mark.nightly
def test_class_vectors_start_at_names_or_means(tmp_path, tiny_goemotions, tiny_bert):
    experiment = config.Experiment(
        data=config.Data("goemotions", path=str(tiny_goemotions), max_length=8),
        encoder=config.Encoder("bert", path=tiny_bert, pooling="mean", frozen=True),
        metrics=("top1_error", "mrr"),
        monitor="mrr",
        epochs=0.0,
    )
    encoded = baselines.load(experiment, str(tmp_path))
    train = encoded.splits["train"]
    h = train.features["embedding"]
    means = np.stack([h[train.labels == c].mean(axis=0) for c in range(3)])
    for init, frozen, expected in (
        ("names", True, encoded.class_inputs["vectors"]),
        ("means", False, means),
    ):
        started = config.override(experiment, {"class_encoder.init": init, "encoder.frozen": frozen})
        loaded = rank_training.load_data(started, str(tmp_path))
        model = new_model(started, loaded)
        heads.start(model, started.class_encoder, heads.Sources(loaded, "bert", 32, Cache(tmp_path), None))
        expected = expected / np.maximum(np.linalg.norm(expected, axis=1, keepdims=True), 1e-12)
        np.testing.assert_allclose(model.class_encoder.table, expected, rtol=1e-4, atol=1e-6)
        if init == "names":  # the cosine ranks as the dot product with vectors of length 1
            for split in ("validation", "test"):
                evaluate = model_building.build_evaluators(started, loaded, model)[split]
                evaluated = evaluate(loaded.read(split, started.evaluation_batch_size)).means()
                [of_names, _] = baselines.evaluate(encoded, split, experiment.metrics, 8).values()
                assert of_names["mrr"] == pytest.approx(evaluated["mrr"])


@pytest.mark.parametrize(
    ("part", "problem"), [("train", "examples of the train split"), ("classes", "classes")]
)
def test_runs_of_other_data_are_refused(finished, digits, part, problem):
    trained = trained_model.restore(finished)
    hashes = json.loads((finished / "data.json").read_text())
    assert hashes[part] == digits.hashes[part]
    (finished / "data.json").write_text(json.dumps(hashes | {part: "0" * 16}))
    message = f"{finished}: made with other {problem}. Restore the data, or choose another"
    with pytest.raises(ValueError, match=message):
        trained.load_task()
    with pytest.raises(ValueError, match=message):  # finished, and the data are given
        rank_training.train(small(), str(finished), task_data=digits, progress=False)
    (finished / "results.json").unlink()
    with pytest.raises(ValueError, match=message):
        rank_training.train(small(), str(finished), progress=False)


@pytest.mark.nightly
def test_a_dataset_in_memory_without_a_test_split(finished, tmp_path):
    """It trains the same weights; the run has no figure of a test, and does not hold its data."""
    digits = data.get("digits")
    path = tmp_path / "memory"
    train = digits.splits["train"]
    validation = digits.splits["validation"]
    in_memory = data.Dataset(digits.class_names, {"train": train, "validation": validation})
    run = rank4class.train(small(), path, dataset=in_memory, progress=False)
    assert run.experiment.data == config.Data("memory")
    weights = trained_model.restore(finished).model.get_weights()
    assert all(map(np.array_equal, run.model.get_weights(), weights))
    expected = {name: value for name, value in RunDirectory(finished).results().items() if name != "test"}
    assert run.results == rank_training.train(small(), path, dataset=in_memory) == expected
    assert "test_values.npz" not in os.listdir(path)
    with pytest.raises(ValueError, match=r"data='memory': the data were in memory, and are not stored with"):
        run.evaluate()
    other = dataclasses.replace(in_memory, splits={"train": validation, "validation": validation})
    with pytest.raises(ValueError, match="made with other examples of the train split"):
        rank_training.train(small(), path, dataset=other)
    with pytest.raises(ValueError, match=r"dataset\.splits: no 'validation'\. Add it"):
        rank_training.train(
            small(), tmp_path / "x", dataset=dataclasses.replace(other, splits={"train": train})
        )
    assert not (tmp_path / "x").exists()


def test_hashes_do_not_depend_on_file_names(tmp_path):
    for name in ("a", "b"):
        for folder in ("train", "val"):
            (tmp_path / folder / name).mkdir(parents=True)
            (tmp_path / folder / name / "image.JPEG").write_bytes(b"x" * (3 if name == "a" else 4))
    experiment = config.Experiment(data=config.Data(name="imagenet", path=str(tmp_path)))
    before = rank_training.load_data(experiment, "unused").hashes
    (tmp_path / "val" / "a" / "image.JPEG").write_bytes(b"x" * 5)
    after = rank_training.load_data(experiment, "unused").hashes
    assert [name for name in before if before[name] != after[name]] == ["validation", "test"]


def test_folders_with_glob_characters(tmp_path):
    with pytest.raises(ValueError, match=r"run \[1\]: '\[' is a glob character. Choose another path."):
        rank_training.train(small(), str(tmp_path / "run [1]"))


@pytest.mark.nightly
def test_remote_tpus_get_tokens_instead_of_texts(tmp_path, tiny_goemotions, tiny_bert, monkeypatch):
    monkeypatch.setattr(distribution, "reads_remotely", lambda _: True)
    monkeypatch.setattr(trainer.Trainer, "train", lambda _: {"steps": 1})
    experiment = config.Experiment(
        data=config.Data(name="goemotions", path=str(tiny_goemotions), max_length=8),
        encoder=config.Encoder(name="bert", path=tiny_bert),
        metrics=("mrr",),
        monitor="mrr",
    )
    with pytest.raises(ValueError, match="data.cache=False: the servers of this TPU cannot tokenize text."):
        rank_training.train(experiment, str(tmp_path / "run"), progress=False)
    cached = config.override(experiment, {"data.cache": True})
    assert rank_training.train(cached, str(tmp_path / "run"), progress=False)["steps"] == 1


@pytest.mark.usefixtures("generated_data")
@pytest.mark.nightly
def test_evaluators_use_max_relevant_of_all_splits(tmp_path):
    section = config.Data(name="synthetic_retrieval", num_classes=30, num_examples=40, num_relevant=6)
    experiment = config.Experiment(data=section, metrics=("recall@5", "mrr"), evaluation_batch_size=64)
    loaded = rank_training.load_data(experiment, tmp_path)
    evaluators = model_building.build_evaluators(
        experiment, loaded, lambda features, training: tf.random.normal([64, 30])
    )
    most = {name: loaded.max_relevant(name) for name in loaded.splits}
    assert len(set(most.values())) > 1
    for name in loaded.splits:
        assert np.isfinite(evaluators[name](loaded.read(name, experiment.evaluation_batch_size)).ranks).all()
