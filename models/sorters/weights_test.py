"""Weights of sorters: files, shipped weights, and serialization of rank functions."""

import numpy as np
import pytest
import safetensors
import tensorflow as tf

from rank4class.models import sorters

SCORES = np.random.default_rng(1).normal(size=[8, 10]).astype(np.float32)


def test_weights_are_restored_from_a_file(tmp_path):
    path = tmp_path / "weights.safetensors"
    sorter = sorters.get("equivariant", trained=None)
    sorter.weights[0].assign(0.25)
    path.write_bytes(sorters.to_bytes(sorter, sizes="10"))
    with safetensors.safe_open(path, "np") as file:
        assert file.metadata() == {"sorter": "equivariant", "sizes": "10"}
    assert sorters.get("equivariant", trained=str(path)).get_weights() == [0.25]
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(ValueError, match="weights.safetensors: cannot be read"):
        sorters.get("equivariant", trained=str(path))


@pytest.mark.parametrize("case", ["shipped", "changed", "from a file"])
def test_a_rank_function_is_saved_with_its_sorter_and_does_not_need_its_file(case, tmp_path):
    sorter = sorters.get("equivariant")
    if case != "shipped":
        sorter.weights[0].assign(0.25)
    path = tmp_path / "weights.safetensors"
    path.write_bytes(sorters.to_bytes(sorter))
    rank_fn = sorters.get("equivariant", trained=str(path)).rank_fn if "file" in case else sorter.rank_fn
    expected = rank_fn(SCORES)
    path.unlink()
    for _ in range(2):  # a restored one is saved again
        config = tf.keras.utils.serialize_keras_object(rank_fn)
        rank_fn = tf.keras.utils.deserialize_keras_object(config)
        np.testing.assert_array_equal(rank_fn(SCORES), expected)
