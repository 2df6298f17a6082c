"""Losses with a rank function of the config: checks, training, fine-tuning, restoring, grids."""

import json

import numpy as np
import pytest
import tensorflow as tf

from rank4class import losses
from rank4class.models import sorters
from rank4class.pipelines import config
from rank4class.pipelines.configs import digits_mlp
from rank4class.pipelines.evaluation import trained_model
from rank4class.pipelines.task_data import checks, rank_functions, task_data
from rank4class.pipelines.training import optimization, rank_training

NAMES = ("sigmoid", "neural_sort", "soft_sort", "exact", "handcrafted", "equivariant")
SCORES = np.random.default_rng(0).normal(size=[6, 10]).astype(np.float32)


def small(**changes):
    base = {"epochs": 1.0, "encoder.hidden": (16,), "loss.name": "approx_ndcg", "loss.rank_fn": "equivariant"}
    return config.override(digits_mlp.get_config(), {**base, **changes})


def test_rank_functions_of_all_names():
    for name in NAMES:
        ranked = rank_functions.get_rank_fn(name, 10)(tf.constant(SCORES))
        assert ranked.shape == [6, 10]
        np.testing.assert_allclose(tf.reduce_sum(ranked, axis=1), 55.0, rtol=1e-4)


def test_build_loss_uses_the_rank_function():
    for name in ("sigmoid", "equivariant", "soft_sort"):
        rank_fn = rank_functions.get_rank_fn(name, 10)
        built = optimization.build_loss(small(**{"loss.rank_fn": name}).loss, rank_fn=rank_fn)
        labels = tf.constant([0, 1, 2, 3, 4, 5])
        values = built(
            tf.constant(0, tf.int64), labels, task_data.ModelOutputs(tf.constant(SCORES)), tf.ones([6])
        )
        expected = losses.approx_ndcg(SCORES, labels, rank_fn=rank_fn)
        np.testing.assert_allclose(values, expected, rtol=1e-6)


@pytest.mark.nightly
def test_a_sorter_file_of_the_user(tmp_path):
    blunt = sorters.get("equivariant", trained=None)
    blunt.weights[0].assign(-3.0)
    path = tmp_path / "blunt.safetensors"
    path.write_bytes(sorters.to_bytes(blunt, sizes="10"))
    user_rank_fn, shipped = (
        rank_functions.get_rank_fn("equivariant", 10, trained) for trained in (path, None)
    )
    np.testing.assert_allclose(user_rank_fn(SCORES), blunt.rank_fn(SCORES), rtol=1e-3)
    assert np.abs(user_rank_fn(SCORES) - shipped(SCORES)).max() > 0.5
    tuned = small(
        **{
            "loss.sorter": str(path),
            "loss.name": "mean_average_precision",
            "loss.fine_tune": True,
            "epochs": 0.1,
        }
    )
    rank_training.train(tuned, tmp_path / "tuned", progress=False)
    path.rename(tmp_path / "moved.safetensors")
    assert trained_model.restore(str(tmp_path / "tuned")).model.rank_sorter.get_weights()
    with pytest.raises(ValueError, match=r"^loss\.sorter=.*blunt\.safetensors: cannot be read"):
        rank_training.train(tuned, tmp_path / "again", progress=False)


def test_losses_of_a_batch_with_one_example_per_part(tmp_path):
    experiment = small(**{"loss.name": "mean_average_precision", "batch_size": 64, "accumulation_steps": 64})
    message = "batch_size=64: loss 'mean_average_precision' ranks the examples of a part of a batch"
    with pytest.raises(ValueError, match=message):
        rank_training.train(experiment, tmp_path, progress=False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss.rank_fn": "bubble"}, r"loss\.rank_fn='bubble': unknown\. There are: sigmoid, neural_sort,"),
        ({"loss.rank_fn": "exact"}, r"loss\.rank_fn='exact': it has no gradient\. Choose another, such as"),
        ({"loss.name": "mse"}, r"loss\.rank_fn: loss 'mse' has no such option\. Choose an entry that has it"),
        (
            {"loss.name": "mean_average_precision", "loss.rank_fn": None},
            r"loss\.rank_fn=None: loss 'mean_average_precision' requires it\. Choose one of: sigmoid,",
        ),
        ({"loss.name": "spearman"}, r"loss\.name='spearman': it does not accept class scores\. Compile a"),
        (
            {"loss.rank_fn": "sigmoid", "loss.fine_tune": True},
            r"loss\.fine_tune=True: rank function 'sigmoid' has no weights\. Choose: equivariant",
        ),
        ({"loss.rank_fn": None, "loss.fine_tune": True}, "loss.fine_tune=True: rank function None has no"),
        ({"loss.name": "mean_average_precision", "loss.form": "roc"}, "form='roc': unknown"),
        ({"loss.name": "mean_average_precision", "loss.l1": -1.0}, "loss.l1=-1.0: too small"),
    ],
)
def test_errors(changes, message):
    with pytest.raises(ValueError, match=message):
        checks.check(small(**changes))


@pytest.mark.parametrize("name", sorted({*NAMES} - {"exact"}))
def test_losses_serialize_their_rank_function(name):
    loss = losses.ApproxNDCG(rank_fn=rank_functions.get_rank_fn(name, 10))
    saved = json.dumps(tf.keras.utils.serialize_keras_object(loss))
    again = tf.keras.utils.deserialize_keras_object(json.loads(saved))
    labels = np.arange(6)
    np.testing.assert_allclose(again(labels, SCORES), loss(labels, SCORES), rtol=1e-6)


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file")
@pytest.mark.parametrize(
    ("name", "form"), [("sigmoid", "h5"), ("handcrafted", "keras"), ("equivariant", "folder")]
)
def test_saved_keras_models_have_their_metrics_and_rank_function(tmp_path, name, form):
    features = np.eye(10, dtype=np.float32)
    labels = np.arange(10)
    model = tf.keras.Sequential([tf.keras.layers.Input([10]), tf.keras.layers.Dense(10)])
    model.compile(
        "sgd", loss=losses.ApproxNDCG(rank_fn=rank_functions.get_rank_fn(name, 10)), metrics=[losses.MRR()]
    )
    before = model.evaluate(features, labels, verbose=0)
    model.save(tmp_path / f"model.{form}")
    again = tf.keras.models.load_model(tmp_path / f"model.{form}")
    assert again.evaluate(features, labels, verbose=0) == pytest.approx(before, rel=1e-5)
