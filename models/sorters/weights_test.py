"""Weights of sorters: files, shipped weights, and serialization of rank functions."""

import numpy as np
import pytest
import safetensors
import tensorflow as tf

from rank4class.models import sorters

SCORES = np.random.default_rng(1).normal(size=[8, 10]).astype(np.float32)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["lstm", "cnn", "equivariant"])
def test_weights_are_restored_from_a_file(name, tmp_path, rng):
    options = {"units": 4, "layers": 1} if name == "lstm" else {}
    sorter = sorters.get(name, n=10, trained=None, **options)
    for weight in sorter.weights:
        weight.assign(rng.normal(size=weight.shape).astype(np.float16).astype(np.float32) ** 2)
    path = tmp_path / "weights.safetensors"
    path.write_bytes(sorters.to_bytes(sorter, sizes="10"))
    restored = sorters.get(name, n=10, trained=str(path), **options)
    for actual, expected in zip(restored.get_weights(), sorter.get_weights(), strict=True):
        np.testing.assert_array_equal(np.asarray(actual, np.float16), np.asarray(expected, np.float16))
    other = {"lstm": "cnn", "cnn": "equivariant", "equivariant": "cnn"}[name]
    problem = f"(for lists of 10|other weights than those of sorter '{other}')"
    with pytest.raises(ValueError, match=f"weights.safetensors: {problem}"):
        sorters.get(other, n=10, trained=str(path))
    if name != "equivariant":
        with pytest.raises(ValueError, match="weights.safetensors: for lists of 10 scores, not of 11"):
            sorters.get(name, n=11, trained=str(path), **options)
        changed = {**options, "units": 5} if options else {"filters": 3}
        with pytest.raises(ValueError, match="weights.safetensors: other weights than those of sorter"):
            sorters.get(name, n=10, trained=str(path), **changed)
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(ValueError, match="weights.safetensors: cannot be read"):
        sorters.get(name, n=10, trained=str(path), **options)


def test_a_file_names_the_options_of_its_sorter(tmp_path):
    path = tmp_path / "weights.safetensors"
    sorter = sorters.get("cnn", n=10, trained=None, layers=2, filters=3)
    path.write_bytes(sorters.to_bytes(sorter, sizes="10"))
    restored = sorters.get("cnn", n=10, trained=str(path))
    assert (restored.layers, restored.filters, restored.width) == (2, 3, 25)
    np.testing.assert_allclose(restored(SCORES), sorter(SCORES), atol=2e-3)
    path.write_bytes(sorters.to_bytes(sorters.get("equivariant"), sizes="10"))
    with safetensors.safe_open(path, "np") as file:
        assert file.metadata() == {"sorter": "equivariant", "sizes": "10"}


def test_metadata_of_the_shipped_weights():
    assert sorters.about("cnn", 28)["sizes"] == "28"
    assert sorters.about("equivariant", 28)["sizes"] == "100"
    with pytest.raises(ValueError, match="n=None: no weights of sorter 'cnn' for lists of None are shipped"):
        sorters.about("cnn")
    with pytest.raises(ValueError, match="sorter='bubble': unknown"):
        sorters.about("bubble")


@pytest.mark.parametrize("case", ["shipped", "changed", "random", "from a file"])
def test_a_rank_function_is_saved_with_its_sorter_and_does_not_need_its_file(case, tmp_path):
    sorter = sorters.get("cnn", n=10, trained=None) if case == "random" else sorters.get("equivariant")
    if case in ("changed", "from a file"):
        sorter.weights[0].assign(0.25)
    path = tmp_path / "weights.safetensors"
    path.write_bytes(sorters.to_bytes(sorter, sizes="10"))
    rank_fn = sorters.get("equivariant", trained=str(path)).rank_fn if "file" in case else sorter.rank_fn
    expected = rank_fn(SCORES)
    for _ in range(2):  # a restored one is saved again
        config = tf.keras.utils.serialize_keras_object(rank_fn)
        assert ("weights" in config["config"]) == (case != "shipped")
        path.unlink(missing_ok=True)
        rank_fn = tf.keras.utils.deserialize_keras_object(config)
        np.testing.assert_array_equal(rank_fn(SCORES), expected)
