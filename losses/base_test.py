"""Keras losses: compile, fit, save, load, weights, half precision, replicas, invalid labels."""

import pickle

import numpy as np
import pytest
import tensorflow as tf

from rank4class import losses
from rank4class.losses import batch, metrics
from rank4class.losses.ops import ranks, set_sizes


def toy(n=4):
    rng = np.random.default_rng(0)
    features = rng.normal(size=[64, 3]).astype(np.float32)
    return features, np.argmax(features @ rng.normal(size=[3, n]), axis=1)


def linear(n=4, heads=False):
    init = tf.keras.initializers.GlorotUniform(seed=0)
    model = tf.keras.Sequential([tf.keras.Input([3])])
    model.add(tf.keras.layers.Dense(2 * n if heads else n, kernel_initializer=init))
    if heads:
        model.add(tf.keras.layers.Reshape([n, 2]))
    return model


ANOTHER = {"max_relevant": 2, "top_k": 2, "normalize": "none", "lambda_weight": "mrr"}
ANOTHER |= {"metric": "map@2", "use_fraction_label": True, "rank_fn": ranks.sigmoid_ranks}


@pytest.mark.parametrize("name", losses.names())
class TestEveryLoss:
    def test_config_round_trip(self, name):
        defaults = losses.get(name).options
        options = {key: ANOTHER[key] if key in ANOTHER else value + 1 for key, value in defaults.items()}
        loss = losses.get(name, reduction=tf.keras.losses.Reduction.SUM, **options)
        again = tf.keras.losses.deserialize(tf.keras.losses.serialize(loss))
        assert type(again) is type(loss)
        assert again.get_config() == loss.get_config()
        assert (again.options, again.name) == (options, name)

    def test_columns_of_ids_of_half_precision_and_one_hot(self, name):
        """Float16 scores on a column of ids equal float32 scores on one-hot labels, and so do gradients."""
        loss = losses.get(name)
        labels = np.arange(4)
        scores = tf.constant(np.random.default_rng(0).normal(size=[4, 5, 2]), tf.float16)
        scores = scores if loss.heads else scores[..., 0]
        results = []
        for x, y in ((scores, labels[:, None]), (tf.cast(scores, tf.float32), np.eye(5)[labels])):
            with tf.GradientTape() as tape:
                tape.watch(x)
                value = loss(y, x)
            gradient = tape.gradient(value, x)
            assert gradient.dtype == x.dtype
            results.append((value, tf.cast(gradient, tf.float32)))
        np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-2)
        np.testing.assert_allclose(results[0][1], results[1][1], rtol=2e-2, atol=2e-3)

    def test_sample_weights(self, name):
        scores = tf.constant([[1.0, 2.0, 0.0], [0.5, 0.0, 2.0]])
        if losses.get(name).heads:
            scores = tf.stack([scores, scores / 2], axis=-1)
        each = losses.get(name, reduction=tf.keras.losses.Reduction.NONE)([0, 2], scores)
        assert each.shape == [2]
        weighted = losses.get(name)([0, 2], scores, sample_weight=[1.0, 3.0])
        np.testing.assert_allclose(weighted, (each[0] + 3 * each[1]) / 2, rtol=1e-5)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("gumbel_approx_ndcg", {"seed": 3}),
        ("approx_ndcg", {"rank_fn": ranks.sigmoid_ranks}),
        ("mixture_em", {}),  # two scores per class
    ],
)
def test_a_trained_model_can_be_saved(name, options, tmp_path):
    features, labels = toy()
    loss = losses.get(name, **options)
    model = linear(heads=loss.heads)
    metrics = [] if loss.heads else [losses.TopKError(1), losses.NDCG(3)]
    model.compile("adam", loss=loss, metrics=metrics)
    model.fit(features, labels, verbose=0)
    last = model.evaluate(features, labels, verbose=0, return_dict=True)
    model.save(tmp_path / "model.keras")
    again = tf.keras.models.load_model(tmp_path / "model.keras")
    assert again.loss.get_config() == loss.get_config()
    loaded = again.evaluate(features, labels, verbose=0, return_dict=True)
    assert loaded == pytest.approx(last, rel=1e-6)


@pytest.mark.nightly
def test_two_replicas_sum_to_one(mirrored):
    """Tests three losses; the base class reduces them all."""
    names = ("softmax", "approx_ndcg", "mixture_em")
    features, labels = toy()
    results = []
    for strategy in (tf.distribute.get_strategy(), mirrored):
        with strategy.scope():
            inputs = tf.keras.Input([3])
            compiled = [losses.get(name) for name in names]
            model = tf.keras.Model(inputs, [linear(heads=loss.heads)(inputs) for loss in compiled])
            metrics = [[losses.NDCG(3)], [losses.MeanRank()], []]
            model.compile("sgd", loss=compiled, metrics=metrics)
        data = tf.data.Dataset.from_tensor_slices((features, (labels,) * 3)).batch(16)
        model.fit(data, verbose=0)
        results.append(model.evaluate(data, verbose=0))
    assert len(results[0]) == 6  # the sum, the losses and the metrics
    np.testing.assert_allclose(results[0], results[1], rtol=2e-5)


def test_gumbel_wraps_losses_without_random_draws():
    scores = tf.constant([[0.1, 0.2, 0.0], [1.0, 0.0, 0.5]])
    labels = [0, 2]
    noisy = losses.get("gumbel_approx_ndcg", samples=4, seed=3, temperature=0.5)
    wrapped = losses.Gumbel(losses.ApproxNDCG(temperature=0.5), samples=4, seed=3)
    np.testing.assert_array_equal(noisy(labels, scores), wrapped(labels, scores))
    other_seed = losses.get("gumbel_approx_ndcg", samples=4, seed=2, temperature=0.5)
    assert noisy(labels, scores) != other_seed(labels, scores)
    hinge = losses.get("gumbel_pairwise_hinge", gumbel_temperature=2.0, normalize="none")
    again = tf.keras.losses.deserialize(tf.keras.losses.serialize(hinge))
    assert again.options == hinge.options
    assert again.name == "gumbel_pairwise_hinge"
    np.testing.assert_array_equal(again(labels, scores), hinge(labels, scores))
    assert hinge(labels, scores) != losses.get("pairwise_hinge", normalize="none")(labels, scores)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(hinge))(labels, scores), hinge(labels, scores))
    with pytest.raises(ValueError, match="gumbel: list_mle draws noise already"):
        losses.get("gumbel_list_mle")
    message = r"loss='softmax': not a loss of this package\. Pass one such as Softmax"
    with pytest.raises(TypeError, match=message):
        losses.Gumbel("softmax")
    with pytest.raises(ValueError, match=r"labels\[1\]=3: outside the classes 0\.\.2"):
        hinge([0, 3], scores)


@pytest.mark.parametrize(("dtype", "exact"), [(tf.bfloat16, 256), (tf.float16, 2048)])
def test_class_ids_in_half_precision(dtype, exact):
    loss = losses.Softmax()
    last = tf.cast([exact - 1], dtype)
    expected = loss(tf.constant([exact - 1]), tf.zeros([1, exact], dtype))
    assert loss(last, tf.zeros([1, exact], dtype)) == expected
    with pytest.raises(ValueError, match=f"labels={dtype.name}: inexact for {exact + 1} classes"):
        loss(last, tf.zeros([1, exact + 1], dtype))
    signature = [tf.TensorSpec([1], dtype), tf.TensorSpec([1, None], dtype)]
    with pytest.raises(ValueError, match=f"labels={dtype.name}: inexact for many classes"):
        tf.function(loss, input_signature=signature)(last, tf.zeros([1, exact], dtype))


def test_rank_functions_of_the_user():
    scores = tf.constant([[3.0, 1.0, 2.0]])
    labels = [2]
    for function in (ranks.all_ranks, lambda scores, where: ranks.all_ranks(scores, where)):
        for y in (labels, [[0.0, 0.0, 1.0]]):
            ndcg = losses.ApproxNDCG(rank_fn=function)(y, scores)
            np.testing.assert_allclose(ndcg, -1 / np.log2(3), rtol=1e-6)
            np.testing.assert_allclose(losses.ApproxMRR(rank_fn=function)(y, scores), -1 / 2, rtol=1e-6)
    exact = losses.ApproxMRR(rank_fn=ranks.all_ranks)
    assert tf.keras.losses.deserialize(tf.keras.losses.serialize(exact)).options == exact.options
    for name in ("approx_ndcg", "approx_mrr"):
        loss = losses.get(name, rank_fn=ranks.sigmoid_ranks)
        again = tf.keras.losses.deserialize(tf.keras.losses.serialize(loss))
        for y in (labels, [[0.0, 1.0, 3.0]]):
            np.testing.assert_allclose(again(y, scores), losses.get(name)(y, scores), rtol=1e-5)


RAGGED = [[1.0, 0.0, 0.0], [1.0], [0.0, 1.0]]
NOT_DENSE = {
    "ragged": (lambda: tf.ragged.constant(RAGGED), r"{}=RaggedTensor \(3, None\): .* Pass {}\.to_tensor\(\)"),
    "lists": (lambda: RAGGED, r"{}=list: not a dense tensor \(.*\)\. Pass one, or lists of one length"),
    "sparse": (lambda: tf.sparse.from_dense(np.eye(3)), r"{}=SparseTensor: not a dense tensor \("),
    "strings": (lambda: ["joy", "anger", "joy"], r"{}=string \(3,\): numbers are needed\. Number the"),
    "dict": (lambda: {"scores": np.eye(3)}, r"{}=dict: not a dense tensor \("),
    "None": (lambda: None, r"{}=NoneType: not a dense tensor \("),
}
CALLS = {
    "labels": lambda bad: losses.softmax(np.eye(3), bad),
    "scores": lambda bad: losses.rankmax(bad, [0, 1, 2]),
    "weights": lambda bad: losses.softmax(np.eye(3), [0, 1, 2], weights=bad),
    "where": lambda bad: losses.softmax(np.eye(3), [0, 1, 2], where=bad),
    "labels of a metric": lambda bad: metrics.ndcg(np.eye(3), bad),
    "scores of a metric": lambda bad: metrics.recall(bad, [0, 1, 2], k=1),
    "labels of a batch": lambda bad: batch.mean_average_precision(np.eye(3), bad, rank_fn=ranks.mean_ranks),
    "scores of sets": lambda bad: metrics.nll(bad, [0, 1, 2], np.log([0.5, 0.5])),
    "log_prior of sets": lambda bad: set_sizes.count_nll(bad, [0, 1, 2]),
    "y_true of a Keras loss": lambda bad: losses.Softmax()(bad, np.eye(3)),
    "y_pred of a Keras loss": lambda bad: losses.ApproxNDCG()([0, 1, 2], bad),
    "y_true of CountLikelihood": lambda bad: losses.CountLikelihood()(bad, np.eye(3)),
    "y_true of a Keras metric": lambda bad: losses.NDCG().update_state(bad, np.eye(3)),
    "sample_weight of a metric": lambda bad: losses.MRR().update_state([0, 1, 2], np.eye(3), bad),
}


@pytest.mark.parametrize("kind", NOT_DENSE)
@pytest.mark.parametrize("call", CALLS)
def test_arguments_that_are_not_dense_tensors(call, kind):
    name = call.split(" ", 1)[0]
    make, message = NOT_DENSE[kind]
    if kind == "None" and name in ("weights", "where", "sample_weight"):
        CALLS[call](None)  # the default
        return
    with pytest.raises(ValueError, match=message.format(name, name)):
        CALLS[call](make())


def test_ragged_lists_become_dense_by_the_remedy_of_the_message():
    labels = tf.ragged.constant([[1.0, 0.0, 0.0], [0.0, 1.0]])
    scores = tf.ragged.constant([[0.5, 1.0, 0.0], [0.5, 1.0]])
    where = tf.sequence_mask(labels.row_lengths())
    value = losses.Softmax().of_scores(scores.to_tensor(), labels.to_tensor(), where=where)
    each = [losses.softmax([s], [t])[0] for s, t in zip(scores.to_list(), labels.to_list(), strict=True)]
    np.testing.assert_allclose(value, each, rtol=1e-6)


ONE_BASED = r"labels: not all within the classes 0\.\.3\. Number them from 0\. .*:\] \[\d\] \[4\]"
NOT_GAINS = r"labels: not all finite values of at least 0\. .* Least and largest:\] \[-1\] \[1\]"


@pytest.mark.parametrize(
    ("loss", "wrong", "message"),
    [
        (losses.ApproxNDCG, lambda labels: labels + 1, ONE_BASED),
        (losses.Softmax, lambda labels: 2.0 * np.eye(4)[labels] - 1.0, NOT_GAINS),
    ],
)
def test_fit_and_evaluate_refuse_invalid_labels(loss, wrong, message):
    features, labels = toy()
    model = linear()
    model.compile("sgd", loss=loss(), jit_compile=False)
    for call in (model.fit, model.evaluate):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            call(features, wrong(labels), verbose=0)


def test_compiled_losses_take_bool_labels_and_refuse_scores_of_unknown_rank():
    labels = tf.constant([[True, False, True]])
    value = losses.Softmax()(tf.cast(labels, tf.float32), [[0.0, 1.0, 2.0]])
    np.testing.assert_allclose(tf.function(losses.Softmax())(labels, [[0.0, 1.0, 2.0]]), value, rtol=1e-6)

    @tf.function(input_signature=[tf.TensorSpec(None)])
    def of_any(scores):
        return losses.Softmax()([0], scores)

    with pytest.raises(ValueError, match="scores=float32 <unknown>: not floats of shape"):
        of_any(tf.zeros([1, 3]))


def test_xla_cannot_raise_on_labels_outside_the_classes():
    features, labels = toy()
    model = linear()
    model.compile("sgd", loss=losses.Softmax(), metrics=[losses.MRR()], jit_compile=True)
    history = model.fit(features, np.full_like(labels, 4), verbose=0).history
    assert np.isnan(history["loss"]).all()
    assert history["mrr"] == [0.0]
