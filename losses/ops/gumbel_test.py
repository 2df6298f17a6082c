import numpy as np
import tensorflow as tf

from rank4class.losses.ops import gumbel


def test_noise_is_a_pure_function_of_the_seed_in_every_mode():
    scores = tf.constant([[1.0, 2.0, 3.0]])
    seed = tf.constant([3, 4])

    def draw(seed):  # an argument: a constant would be computed before XLA compiles
        return gumbel.perturb(scores, samples=4, seed=seed)

    assert draw(seed).shape == [4, 1, 3]
    for other in (draw, tf.function(draw), tf.function(draw, jit_compile=True)):
        np.testing.assert_allclose(other(seed), draw(seed), rtol=1e-5)
    assert not np.allclose(gumbel.perturb(scores, samples=4, seed=[3, 5]), draw(seed))


def test_noise_has_the_bits_of_its_formula():
    scores = tf.random.stateless_normal([2, 1000], [1, 2])
    uniform = tf.random.stateless_uniform([3, 2, 1000], [3, 4], minval=1.1754944e-38, alg="philox")
    expected = -tf.math.log(-tf.math.log(uniform))
    np.testing.assert_array_equal(gumbel.noise([3, 2, 1000], [3, 4]), expected)
    perturbed = gumbel.perturb(scores, samples=3, seed=[3, 4], temperature=0.7)
    np.testing.assert_array_equal(perturbed, (scores + expected) / 0.7)


def test_seed_depends_on_values_and_positions_of_scores():
    scores = tf.constant([[1.0, 2.0, 3.0]])
    seed = gumbel.seed_from_scores(7, scores).numpy()
    assert seed[0] == 7
    compiled = tf.function(gumbel.seed_from_scores, jit_compile=True)
    np.testing.assert_array_equal(compiled(7, scores), seed)
    next_number = np.nextafter(np.float32(3), np.float32(4))
    for other in ([[1.0, 2.0, next_number]], [[2.0, 1.0, 3.0]], [[-1.0, -2.0, 3.0]]):
        assert gumbel.seed_from_scores(7, tf.constant(other, tf.float32)).numpy()[1] != seed[1]
