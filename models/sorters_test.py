"""Sorters against the exact ranks, arithmetic written out, and what a rank function has to keep."""

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from rank4class.models import sorters

SCORES = np.random.default_rng(1).normal(size=[8, 10]).astype(np.float32)
TIED = np.round(SCORES)


def made(name):
    return sorters.get(name, n=10)


def true_ranks(scores):
    return scipy.stats.rankdata(-scores, axis=1)


@pytest.fixture(scope="module", params=sorters.SORTERS)
def sorter(request):
    """Returns each sorter, made once."""
    return made(request.param)


def assert_ranks_and_finite_gradients(sorter, jit_compile):
    cases = [SCORES, TIED, np.zeros_like(SCORES), 1e4 * SCORES, 1e4 + SCORES, -1e4 * TIED, 1e-20 * SCORES]

    @tf.function(jit_compile=jit_compile)
    def ranks_and_gradient(scores):
        with tf.GradientTape() as tape:
            tape.watch(scores)
            ranks = sorter(scores)
            loss = tf.reduce_sum(ranks * tf.range(10.0))
        return ranks, tape.gradient(loss, scores, unconnected_gradients="zero")

    for scores in cases:
        ranks, gradient = ranks_and_gradient(tf.constant(scores))
        assert ranks.dtype == tf.float32
        assert ((ranks.numpy() > 0.0) & (ranks.numpy() < 1.0 + 1e-6)).all(), scores
        assert np.isfinite(gradient).all(), scores


@pytest.mark.nightly
def test_every_sorter_gives_ranks_and_finite_gradients_for_any_scores(sorter):
    assert_ranks_and_finite_gradients(sorter, jit_compile=False)


@pytest.mark.nightly
@pytest.mark.parametrize("name", sorters.SORTERS)
def test_every_sorter_gives_ranks_and_finite_gradients_under_xla(name):
    knobs = {"trained": None, "units": 4, "layers": 1} if name == "lstm" else {}  # compiled in half the time
    assert_ranks_and_finite_gradients(sorters.get(name, n=10, **knobs), jit_compile=True)


def test_shapes_and_places(sorter):
    lists = tf.constant(SCORES.reshape(2, 4, 10))
    ranks = sorter(lists)
    assert ranks.shape == [2, 4, 10]
    np.testing.assert_array_equal(tf.reshape(ranks, [8, 10]), sorter(SCORES))
    np.testing.assert_allclose(sorter.rank_fn(lists), 10.0 * ranks, rtol=1e-6)
    half = sorter(tf.cast(SCORES[0], tf.float16))
    assert half.shape == [10]
    assert half.dtype == tf.float32


def test_exact_ranks_share_places_among_ties():
    exact = sorters.get("exact")
    for scores in (SCORES, TIED, np.zeros_like(SCORES)):
        np.testing.assert_allclose(exact.rank_fn(scores), true_ranks(scores), rtol=1e-6)
    with tf.GradientTape() as tape:
        scores = tf.constant(SCORES)
        tape.watch(scores)
        ranks = exact(scores)
    assert tape.gradient(ranks, scores) is None


def test_handcrafted_written_out():
    found = sorters.get("handcrafted", sharpness=3.0)(SCORES).numpy()
    for scores, ranks in zip(SCORES.astype(float), found, strict=True):
        for i in range(10):
            ahead = sum(1 / (1 + np.exp(-3.0 * (scores[j] - scores[i]))) for j in range(10) if j != i)
            assert ranks[i] == pytest.approx((1 + ahead) / 10, rel=1e-5)


def written_out(scores, sharpness):
    """The equivariant sorter's definition, a pair at a time."""
    n = len(scores)
    places = (scores - scores.mean()) / scores.std() * n / np.sqrt(12)
    ranks = np.full(n, 0.5)
    for i in range(n):
        for j in range(n):
            x = sharpness * (places[j] - places[i])
            ranks[i] += 0.5 * np.exp(x) if x < 0 else 1 - 0.5 * np.exp(-x)
    return ranks


def test_equivariant_written_out():
    sorter = sorters.get("equivariant")
    sharpness = float(np.exp(sorter.weights[0].numpy()))
    expected = [written_out(scores.astype(float), sharpness) for scores in SCORES]
    np.testing.assert_allclose(sorter.rank_fn(SCORES), expected, rtol=1e-5)
    assert sorter.count_params() == 1


@pytest.mark.parametrize("name", ["exact", "equivariant"])
@pytest.mark.parametrize("n", [10, *(pytest.param(n, marks=pytest.mark.nightly) for n in (2, 100, 1000))])
@pytest.mark.parametrize("digits", [0, 6])
def test_to_permute_the_scores_permutes_the_ranks_bit_for_bit(name, n, digits, rng):
    sorter = sorters.get(name)
    scores = rng.normal(size=[4, n]).round(digits).astype(np.float32)  # with ties, and with hardly any
    ranks = sorter(scores).numpy()
    for _ in range(5):
        order = rng.permutation(n)
        np.testing.assert_array_equal(sorter(scores[:, order]).numpy(), ranks[:, order])


def test_equivariant_keeps_the_order_and_the_sum_and_knows_no_scale(rng):
    sorter = sorters.get("equivariant")
    for scores in (SCORES, TIED, rng.standard_cauchy(size=[20, 300]).astype(np.float32)):
        n = scores.shape[1]
        ranks = sorter.rank_fn(scores).numpy()
        np.testing.assert_allclose(ranks.sum(axis=1), n * (n + 1) / 2, rtol=1e-5)
        order = np.argsort(-scores, axis=1, kind="stable")
        assert (np.diff(np.take_along_axis(ranks, order, axis=1), axis=1) >= 0).all()
        for of_list, own in zip(scores, ranks, strict=True):
            assert all(np.ptp(own[of_list == score]) == 0.0 for score in of_list)
        np.testing.assert_allclose(sorter.rank_fn(1e4 * scores - 7e3), ranks, rtol=1e-2)
    np.testing.assert_array_equal(sorter.rank_fn(np.full([1, 5], 7.0, np.float32)), [[3.0] * 5])


def test_the_gradient_is_the_derivative(rng):
    for name in ("handcrafted", "equivariant"):
        sorter = sorters.get(name)
        scores = SCORES[:2].astype(np.float32)
        weights = rng.normal(size=scores.shape).astype(np.float32)
        with tf.GradientTape() as tape:
            watched = tf.constant(scores)
            tape.watch(watched)
            total = tf.reduce_sum(sorter(watched) * weights)
        gradient = tape.gradient(total, watched).numpy()
        for i in range(10):
            step = np.zeros_like(scores)
            step[:, i] = 1e-3
            ends = [(sorter(scores + sign * step).numpy() * weights).sum(axis=1) for sign in (1, -1)]
            np.testing.assert_allclose(gradient[:, i], (ends[0] - ends[1]) / 2e-3, atol=2e-3)


def test_ties_have_the_gradient_of_either_side():
    """The comparison's derivative is continuous: nothing jumps where two scores meet."""
    sorter = sorters.get("equivariant")

    def gradient(second):
        scores = tf.constant([[1.0, second, 0.0, -1.0]])
        with tf.GradientTape() as tape:
            tape.watch(scores)
            first = sorter(scores)[0, 0]
        return tape.gradient(first, scores).numpy()

    at = gradient(1.0)
    assert abs(at[0, 0]) > 0.1
    for nearby in (1.0 - 1e-4, 1.0 + 1e-4):
        np.testing.assert_allclose(gradient(nearby), at, atol=2e-3)


@pytest.mark.parametrize("name", ["exact", "handcrafted", "equivariant"])
def test_the_ranks_of_those_that_take_part_are_those_of_the_list_without_the_others(name):
    sorter = sorters.get(name)
    where = np.arange(10) < 6
    spoiled = np.where(where, SCORES, 1e9).astype(np.float32)
    found = sorter.rank_fn(spoiled, where).numpy()
    np.testing.assert_allclose(found[:, :6], sorter.rank_fn(SCORES[:, :6]), rtol=1e-5)
    np.testing.assert_allclose(found[:, 6:], 7.0, rtol=1e-6)
    none = sorter(SCORES, np.zeros_like(SCORES, bool))
    assert np.isfinite(none).all()
    one = sorter.rank_fn(SCORES, np.arange(10) == 3)
    np.testing.assert_allclose(one[:, 3], 1.0, rtol=1e-6)


def spread(scores, where):
    """What `_spread` says, one list and one score at a time; and the exact ranks before and after."""
    scores = np.where(where, scores, 0.0).astype(np.float64)
    size, others = where.sum(), (~where).sum()
    in_order = np.sort(scores[where])[::-1]
    keys = np.arange(1, others + 1) * 40_503 % 65_536
    for i, j in zip(np.flatnonzero(~where), np.argsort(np.argsort(keys)) + 1, strict=True):
        place = (j - 1 / 6) * size / others + 0.5
        above = min(max(int(place), 1), size - 1)
        scores[i] = in_order[above - 1] + (place - above) * (in_order[above] - in_order[above - 1])
    before = scipy.stats.rankdata(-scores[where])
    after = scipy.stats.rankdata(-scores)[where]
    return scores.astype(np.float32), before, after


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["cnn", "lstm"])
def test_a_sorter_of_one_length_sees_the_others_among_those_that_take_part(name, rng):
    sorter = made(name)
    where = np.arange(10) % 5 < 3
    other = np.where(where, SCORES, rng.normal(size=SCORES.shape)).astype(np.float32)
    np.testing.assert_array_equal(sorter.rank_fn(SCORES, where), sorter.rank_fn(other, where))
    np.testing.assert_allclose(sorter.rank_fn(SCORES, where).numpy()[:, ~where], 7.0, rtol=1e-6)
    for scores, found in zip(SCORES, sorter.rank_fn(SCORES, where).numpy(), strict=True):
        filled, before, after = spread(scores, where)
        in_filled = sorter.rank_fn(filled[None]).numpy()[0, where]
        # Linear between whole places; beyond the first and the last it goes on, where np.interp does not.
        inner = (in_filled > after.min()) & (in_filled < after.max())
        expected = np.interp(in_filled, np.sort(after), np.sort(before))
        np.testing.assert_allclose(found[where][inner], expected[inner], rtol=1e-4)
        assert inner.sum() >= 3


@pytest.mark.parametrize(
    ("n", "size"), [(3, 2), (10, 1), (10, 2), (10, 5), (10, 8), (28, 20), (100, 20), (100, 98)]
)
def test_exact_ranks_among_the_others_are_exact_without_them(n, size, rng):
    where = np.argsort(rng.random([20, n]), axis=1) < size
    scores = tf.constant(rng.normal(size=[20, n]), tf.float32)
    filled = sorters._spread(scores, tf.constant(where))
    for found, own, mask in zip(filled.numpy(), scores.numpy(), where, strict=True):
        if size > 1:
            np.testing.assert_allclose(found, spread(own, mask)[0], rtol=1e-4, atol=1e-6)
    exact = sorters.get("exact")
    ranks = sorters._without_others(exact.rank_fn(filled), tf.constant(where))
    if size > 1:
        np.testing.assert_allclose(ranks[where], exact.rank_fn(scores, where)[where], rtol=1e-5)
    assert np.isfinite(ranks).all()


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["cnn", "lstm"])
@pytest.mark.parametrize(("n", "sizes"), [(28, [5]), (100, [20, 60])])
def test_few_of_a_list_are_ranked_about_as_well_as_a_whole_one(name, n, sizes, rng):
    """A sorter knows lists of the length and the spread that it was trained on."""
    sorter = sorters.get(name, n=n)
    scores = rng.normal(size=[100, n]).astype(np.float32)
    exact = sorters.get("exact")
    whole = np.abs(sorter.rank_fn(scores) - exact.rank_fn(scores)).mean() / n
    for size in sizes:
        where = np.argsort(rng.random([100, n]), axis=1) < size
        few = np.abs(sorter.rank_fn(scores, where) - exact.rank_fn(scores, where))[where].mean() / size
        assert few < 3.0 * whole, size


@pytest.mark.nightly
def test_what_is_out_of_bounds_comes_to_them_and_keeps_its_gradient():
    sorter = made("lstm")
    readout = sorter.net.get_layer("readout")
    readout.bias.assign([9.0])
    scores = tf.constant(SCORES)
    with tf.GradientTape() as tape:
        tape.watch(scores)
        ranks = sorter(scores)
        total = tf.reduce_sum(ranks * tf.range(10.0))
    np.testing.assert_array_equal(ranks, np.ones_like(SCORES))
    assert np.abs(tape.gradient(total, scores)).max() > 0


def test_standardize():
    found = sorters.standardize(tf.constant(1e4 + SCORES))
    np.testing.assert_allclose(tf.reduce_mean(found, axis=1), 0.0, atol=1e-5)
    np.testing.assert_allclose(tf.math.reduce_std(found, axis=1), 1.0, rtol=1e-5)
    huge = sorters.standardize(tf.constant([[1e30, -1e30, 0.0]]))
    np.testing.assert_allclose(huge, [[1.2247, -1.2247, 0.0]], atol=1e-4)
    where = tf.constant([[True, True, False]])
    np.testing.assert_allclose(sorters.standardize(tf.constant([[3.0, 1.0, 9.0]]), where), [[1.0, -1.0, 0.0]])


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["lstm", "cnn", "equivariant"])
def test_weights_come_back_from_their_file(name, tmp_path, rng):
    knobs = {"units": 4, "layers": 1} if name == "lstm" else {}
    sorter = sorters.get(name, n=10, trained=None, **knobs)
    for weight in sorter.weights:
        weight.assign(rng.normal(size=weight.shape).astype(np.float16).astype(np.float32) ** 2)
    path = tmp_path / "mine.safetensors"
    path.write_bytes(sorters.to_bytes(sorter, sizes="10"))
    again = sorters.get(name, n=10, trained=str(path), **knobs)
    for ours, theirs in zip(sorter.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(np.asarray(ours, np.float16), np.asarray(theirs, np.float16))
    other = {"lstm": "cnn", "cnn": "equivariant", "equivariant": "cnn"}[name]
    with pytest.raises(ValueError, match=f"mine.safetensors holds a sorter '{name}', not '{other}'"):
        sorters.get(other, n=10, trained=str(path))
    if name != "equivariant":
        with pytest.raises(ValueError, match="mine.safetensors is for lists of 10 scores, not of 11"):
            sorters.get(name, n=11, trained=str(path), **knobs)
        with pytest.raises(ValueError, match="mine.safetensors holds other weights than those of sorter"):
            sorters.get(name, n=10, trained=str(path), **({**knobs, "units": 5} if knobs else {"filters": 3}))
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(ValueError, match="mine.safetensors cannot be read"):
        sorters.get(name, n=10, trained=str(path), **knobs)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"name": "bubble"},
            "unknown sorter 'bubble'; there are: exact, handcrafted, cnn, lstm, equivariant",
        ),
        ({"name": "lstm"}, "sorter 'lstm' needs n, the length of the lists"),
        ({"name": "cnn", "n": 57}, "no weights of sorter 'cnn' for lists of 57 are shipped.*train_sorter"),
        ({"name": "cnn", "n": 1, "trained": None}, "n 1 is not a whole number of at least 2"),
        ({"name": "exact", "sharpness": 2.0}, "sorter 'exact' has no knob 'sharpness'"),
        ({"name": "cnn", "n": 9, "trained": "nowhere"}, "nowhere cannot be read"),
        ({"name": "lstm", "n": 10, "units": 4}, "sorter 'lstm' with units of your own needs trained=None"),
    ],
)
def test_mistakes(arguments, message):
    with pytest.raises(ValueError, match=message):
        sorters.get(**arguments)


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([[1, 2]], r"scores must be floats of shape \[..., n\], got int32 \(1, 2\)"),
        (0.5, r"scores must be floats of shape \[..., n\], got float32 \(\)"),
    ],
)
def test_scores_that_are_none(scores, message):
    with pytest.raises(ValueError, match=message):
        made("equivariant")(scores)
    assert made("equivariant")([0.5, 0.1]).shape == [2]


@pytest.mark.nightly
def test_another_length():
    sorter = made("cnn")
    with pytest.raises(ValueError, match="sorter 'cnn' is for lists of 10 scores, these have 9"):
        sorter(SCORES[:, :9])
    of_any = tf.function(sorter, input_signature=[tf.TensorSpec([None, None])])
    np.testing.assert_allclose(of_any(SCORES), sorter(SCORES), rtol=1e-5)
    with pytest.raises(tf.errors.InvalidArgumentError, match="is for lists of 10 scores"):
        of_any(SCORES[:5, :4])


def test_what_is_known_of_what_ships():
    assert sorters.about("cnn", 28)["sizes"] == "28"
    assert sorters.about("equivariant", 28)["sizes"] == "100"
    with pytest.raises(ValueError, match="sorter 'cnn' needs n"):
        sorters.about("cnn")
    with pytest.raises(ValueError, match="unknown sorter 'bubble'"):
        sorters.about("bubble")


@pytest.mark.nightly
def test_a_short_list_ends_where_it_ends(sorter, rng):
    """A sorter of one length sees little of such a list; its ranks still are within it."""
    alone = np.eye(10)[[3] * 8] > 0
    scores = tf.constant(SCORES)
    with tf.GradientTape() as tape:
        tape.watch(scores)
        places = sorter.rank_fn(scores, alone)
    np.testing.assert_allclose(places[:, 3], 1.0, rtol=1e-6)
    gradient = tape.gradient(places, scores, unconnected_gradients="zero")
    np.testing.assert_array_equal(gradient, np.zeros([8, 10]))
    where = rng.random(SCORES.shape) < 0.4
    size = where.sum(axis=1, keepdims=True)
    places = sorter.rank_fn(SCORES, where).numpy()
    assert (np.where(where, places, 1.0) > 0.0).all()
    assert (places <= np.where(where, size, size + 1) * (1 + 1e-6)).all()
    np.testing.assert_array_equal(sorter.rank_fn(SCORES, np.zeros([8, 10], bool)), np.ones([8, 10]))


def test_what_takes_no_part_may_be_anything(sorter):
    where = np.tile(np.arange(10) < 7, [8, 1])
    where[5] = False
    scores = tf.constant(np.where(where, SCORES, np.nan))
    with tf.GradientTape() as tape:
        tape.watch(scores)
        places = sorter.rank_fn(scores, where)
    np.testing.assert_allclose(places, sorter.rank_fn(np.where(where, SCORES, 0.0), where), rtol=1e-6)
    assert np.isfinite(tape.gradient(places, scores, unconnected_gradients="zero")).all()


@pytest.mark.parametrize("changed", [False, True])
def test_a_rank_function_is_saved_with_its_sorter(changed):
    sorter = sorters.get("equivariant")
    if changed:
        sorter.weights[0].assign(0.25)
    config = tf.keras.utils.serialize_keras_object(sorter.rank_fn)
    assert ("weights" in config["config"]) == changed
    again = tf.keras.utils.deserialize_keras_object(config)
    np.testing.assert_array_equal(again(SCORES), sorter.rank_fn(SCORES))


@pytest.mark.nightly
def test_an_untrained_rank_function_is_saved_with_its_weights():
    places = sorters.get("lstm", n=10, trained=None, units=4, layers=1).rank_fn
    again = tf.keras.utils.deserialize_keras_object(tf.keras.utils.serialize_keras_object(places))
    np.testing.assert_array_equal(again(SCORES), places(SCORES))


def test_a_saved_rank_function_outlives_the_file_of_its_weights(tmp_path):
    trained = sorters.get("equivariant")
    trained.weights[0].assign(0.7)
    path = tmp_path / "mine.safetensors"
    path.write_bytes(sorters.to_bytes(trained, sizes="10"))
    places = sorters.get("equivariant", trained=str(path)).rank_fn
    before = places(SCORES)
    config = tf.keras.utils.serialize_keras_object(places)
    path.unlink()
    again = tf.keras.utils.deserialize_keras_object(config)
    np.testing.assert_array_equal(again(SCORES), before)
    np.testing.assert_array_equal(
        tf.keras.utils.deserialize_keras_object(tf.keras.utils.serialize_keras_object(again))(SCORES), before
    )


def test_a_rank_function_of_a_length_that_is_not_shipped_is_saved():
    places = sorters.get("cnn", n=5, trained=None).rank_fn
    again = tf.keras.utils.deserialize_keras_object(tf.keras.utils.serialize_keras_object(places))
    scores = tf.constant([[0.3, -1.0, 2.0, 0.1, 0.7]])
    np.testing.assert_array_equal(again(scores), places(scores))


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["cnn", "lstm"])
def test_one_may_be_trained_for_several_lengths(name):
    sorter = sorters.get(name, trained=None)
    for n in (2, 5, 28, 101):
        assert sorter(tf.zeros([3, n])).shape == [3, n]


def test_the_cnn_has_eight_convolutions():
    sorter = sorters.get("cnn", trained=None)
    assert sum(isinstance(layer, tf.keras.layers.Conv1D) for layer in sorter.net.layers) == 8


def test_the_recurrence_and_its_derivatives(rng):
    factors = tf.constant(rng.random((3, 9)))
    terms = tf.constant(rng.normal(size=(3, 9)))

    def one_after_the_other(factors, terms):
        values = [terms[:, 0]]
        for i in range(1, 9):
            values.append(factors[:, i] * values[-1] + terms[:, i])
        return tf.stack(values, axis=1)

    def value_and_derivatives(recurrence):
        with tf.GradientTape() as outer:
            outer.watch([factors, terms])
            with tf.GradientTape() as inner:
                inner.watch([factors, terms])
                value = tf.reduce_sum(tf.sin(recurrence(factors, terms)))
            first = inner.gradient(value, [factors, terms])
            mixed = tf.reduce_sum(first[0] ** 2) + tf.reduce_sum(first[1] ** 3)
        return [value, *first, *outer.gradient(mixed, [factors, terms])]

    expected = value_and_derivatives(one_after_the_other)
    for found, sought in zip(value_and_derivatives(sorters._recurrence), expected, strict=True):
        np.testing.assert_allclose(found, sought, atol=1e-12)
