"""Trainings with candidates: their loss and gradient, resumption, and errors."""

import numpy as np
import pytest
import tensorflow as tf

from rank4class import data
from rank4class.data.candidates import Sampled
from rank4class.models import sorters
from rank4class.pipelines import config
from rank4class.pipelines.storage.run_directory import RunDirectory
from rank4class.pipelines.task_data import checks
from rank4class.pipelines.task_data.task_data import ModelOutputs
from rank4class.pipelines.training import optimization, rank_training, trainable_rank_model
from rank4class.pipelines.training.preemption import Interrupted
from rank4class.pipelines.training.train_state import TrainState
from rank4class.pipelines.training.trainer import Trainer

pytestmark = pytest.mark.usefixtures("names_of_a_new_process", "generated_data")


def small(**changes):
    experiment = config.Experiment(
        data=config.Data("synthetic", num_classes=60, num_examples=300, width=8, spread=1.1),
        encoder=config.Encoder("identity"),
        optimizer=config.Optimizer("adam", learning_rate=3e-3, decay="linear"),
        batch_size=16,
        epochs=2.0,
    )
    return config.override(experiment, changes)


SAMPLED = {"candidates.name": "sampled", "candidates.count": 20}
MINED = {**SAMPLED, "candidates.name": "mined", "candidates.count": 30}


def test_as_many_candidates_as_classes_are_all():
    for jit_compile, count, is_all in (
        (False, 60, True),
        (False, 59, False),
        (True, 44, True),  # and the 16 of the batch
        (True, 43, False),
    ):
        experiment = small(**{**SAMPLED, "candidates.count": count, "jit_compile": jit_compile})
        loaded = rank_training.load_data(experiment, "unused")
        strategy = tf.distribute.get_strategy()
        built = trainable_rank_model.build_candidates(experiment, loaded, strategy)
        assert (built is None) == is_all


@pytest.mark.nightly
def test_a_training_learns_and_its_loss_estimates_that_of_all_classes(tmp_path):
    losses = []
    for i, changes in enumerate(({}, {**SAMPLED, "accumulation_steps": 2}, MINED)):
        results = rank_training.train(
            small(**{"data.num_examples": 1_500, "epochs": 6.0}, **changes), tmp_path / str(i), progress=False
        )
        assert results["test"]["top1_error"] < 85.0  # 98 by chance
        losses.append([line["loss"] for line in RunDirectory(tmp_path / str(i)).history()])
    for some in losses[1:]:
        np.testing.assert_allclose(some, losses[0], rtol=0.1)


@pytest.mark.parametrize(
    "changes",
    [
        {"interaction.name": "lc_mlp"},  # plans its blocks
        {"interaction.name": "concat_mlp"},
        pytest.param(
            {"loss.name": "approx_ndcg", "loss.rank_fn": "equivariant", "loss.fine_tune": True},
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_parts_of_any_number_of_classes_take_candidates(changes, tmp_path):
    experiment = small(epochs=0.1, **SAMPLED, **changes)
    results = rank_training.train(experiment, tmp_path / "run", progress=False)
    assert np.isfinite(results["test"]["ndcg@5"])


@pytest.mark.nightly
def test_a_killed_training_ends_with_the_same_bits(tmp_path, monkeypatch, assert_same_run):
    experiment = small(checkpoint_steps=5, **{**MINED, "optimizer.name": "lazy_adam"})
    save = TrainState.save
    rank_training.train(experiment, tmp_path / "whole", progress=False)

    def killing(state):
        save(state)
        if state.progress.step == 15:  # an evaluation was at step 12
            raise Interrupted("here", 15)

    tf.keras.backend.clear_session()
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_should_stop", lambda _: True)  # while it mines
        with pytest.raises(Interrupted, match="after step 0"):
            rank_training.train(experiment, tmp_path / "killed", progress=False)
    tf.keras.backend.clear_session()
    monkeypatch.setattr(TrainState, "save", killing)
    with pytest.raises(Interrupted):
        rank_training.train(experiment, tmp_path / "killed", progress=False)
    monkeypatch.setattr(TrainState, "save", save)
    tf.keras.backend.clear_session()
    rank_training.train(experiment, tmp_path / "killed", progress=False)
    assert_same_run(tmp_path / "whole", tmp_path / "killed")


@pytest.mark.nightly
def test_gradient_of_softmax_approaches_that_of_all_classes(rng):
    n, size, steps = 50, 200, 4_000  # enough that the draws differ less than the bias
    temperature = 0.5
    labels = rng.integers(n, size=size).astype(np.int32)
    split = data.Split({"image": np.arange(size, dtype=np.float32)[:, None]}, labels)
    scores = tf.constant(rng.normal(size=n), tf.float32)
    loss = optimization.build_loss(config.Loss("softmax", temperature=temperature), log_q=True)

    def add_gradient(total, batch):
        features, places, weights = batch
        ids = features["candidates"]
        with tf.GradientTape() as tape:
            tape.watch(scores)
            some = tf.repeat(tf.gather(scores, ids)[None], 8, axis=0)
            outputs = ModelOutputs(some, ~features["excluded"], class_ids=ids, log_q=features["log_q"])
            value = tf.reduce_mean(loss(0, places, outputs, weights))
        return total + tf.convert_to_tensor(tape.gradient(value, scores))

    def error(count):
        """Returns the distance of the mean gradient from that of all classes, relative to the latter."""
        sampled = Sampled(split, n, 8, count=count, power=0.5)
        batches = data.training_batches(split, batch_size=8, seed=0, candidates=sampled).take(steps)
        mean = batches.reduce(tf.zeros([n]), add_gradient) / steps
        expected = (tf.nn.softmax(scores / temperature) - split.class_counts(n) / size) / temperature
        return np.linalg.norm(mean - expected) / np.linalg.norm(expected)

    assert error(20) < 0.5 * error(3)
    assert error(20) < 0.05


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encoder.name": "items"}, "encoder 'items' scores the items of each example"),
        ({"count_prior.name": "learned", "loss.name": "n_choose_k"}, "a count prior is of all classes"),
        ({"loss.name": "mean_average_precision", "loss.rank_fn": "sigmoid"}, "loss 'mean_.*' ranks examples"),
        (
            {"loss.name": "approx_ndcg", "loss.rank_fn": "of_a_length"},
            "loss.rank_fn='of_a_length' sorts lists of one",
        ),
    ],
)
def test_parts_that_need_all_classes_are_refused(changes, message, restored_registries):
    sorters.SORTERS.register("of_a_length")(
        type("Fixed", (sorters.Sorter,), {"__init__": lambda self, n: None})
    )
    with pytest.raises(ValueError, match=rf"^candidates='sampled': .*{message}.*\. Choose 'all'\.$"):
        checks.check(small(**SAMPLED, **changes))
    with pytest.raises(ValueError, match=r"candidates\.count=61: more than the 60 classes"):
        rank_training.train(small(**{**SAMPLED, "candidates.count": 61}), "unused")
