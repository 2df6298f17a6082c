"""Formats: every format gives the same network, and errors for invalid files."""

import json
import os
import shutil

import h5py
import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

from rank4class import models
from rank4class.models import checkpoints, encoders

GELU = {"hidden_act": "gelu_new"}  # called gelu by google-research's BERT and the Model Garden


def assert_refused(path, message, encoder="bert"):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        models.get("encoder", encoder, path=str(path))


def tokens():
    ids = np.random.default_rng(1).integers(1, 20, size=[3, 5]).astype(np.int32)
    mask = np.array([[1] * 5, [1] * 3 + [0] * 2, [1] * 4 + [0]], np.int32)
    return dict(zip(encoders.Bert.FEATURES, map(tf.constant, (ids, mask, ids % 2)), strict=True))


def write_tensorflow(prefix, tensors):
    names = sorted(tensors)
    tf.raw_ops.SaveV2(
        prefix=str(prefix),
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        tensors=[tensors[name] for name in names],
    )


def google_names(tensors, scope):
    """Returns Hugging Face's tensors under google-research's names, as in the published conversion."""
    renamed = {}
    for name, value in tensors.items():
        if name == "embeddings.position_ids":
            continue
        parts = name.replace("layer.", "layer_").split(".")
        if "LayerNorm" in parts:
            parts[-1] = {"weight": "gamma", "bias": "beta"}[parts[-1]]
        elif parts[-1] == "weight":
            table = parts[-2].endswith("_embeddings")
            parts[-1:] = [] if table else ["kernel"]
            value = value if table else value.T
        renamed["/".join([scope, *parts])] = value
    return renamed


def write_google(folder, hugging_face, tensors, kind):
    """Writes a google-research folder, with a config file of sizes for BERT but not for ELECTRA."""
    folder.mkdir()
    published = google_names(tensors, kind)
    if kind == "bert":
        published |= {"cls/predictions/output_bias": np.ones(20, np.float32)}
        config = json.loads((hugging_face / "config.json").read_text())
        del config["model_type"]
        (folder / "bert_config.json").write_text(json.dumps({**config, "hidden_act": "gelu"}))
    else:
        published |= {
            "discriminator_predictions/dense/kernel": np.ones([8, 8], np.float32),
            "generator/encoder/layer_0/output/dense/bias": np.ones(4, np.float32),
            "generator_predictions/output_bias": np.ones(20, np.float32),
            "electra/embeddings/word_embeddings/adam_m": np.ones([20, 4], np.float32),
            "global_step": np.int64(7),
        }
    write_tensorflow(folder / "model.ckpt", published)
    shutil.copy(hugging_face / "vocab.txt", folder)
    return published


def write_model_garden(folder, encoder, make, vocabulary):
    """Writes an encoder's weights, and an optimizer, as a checkpoint of a Model Garden network."""
    folder.mkdir()
    sizes = encoder.config
    network = make(
        vocab_size=sizes["vocab_size"],
        hidden_size=sizes["hidden_size"],
        num_layers=sizes["num_layers"],
        num_attention_heads=sizes["num_heads"],
        max_sequence_length=sizes["max_positions"],
        type_vocab_size=sizes["num_types"],
        inner_dim=sizes["inner_size"],
        embedding_width=sizes["embedding_size"],
        name="garden",
    )
    network({name: tf.zeros([1, 1], tf.int32) for name in encoders.Bert.FEATURES})
    values = encoder.named_variables()
    for variable in network.variables:
        name = variable.name.removeprefix("garden/").removesuffix(":0").removeprefix("transformer/")
        variable.assign(values[name.replace("embeddings/layer_norm", "layer_norm")])
    optimizer = tf.keras.optimizers.legacy.SGD(momentum=0.9)  # with slot variables, as in the Model Garden
    optimizer.apply_gradients((tf.zeros_like(v), v) for v in network.trainable_variables)
    tf.train.Checkpoint(encoder=network, optimizer=optimizer).save(str(folder / "ckpt"))
    shutil.copy(vocabulary, folder)


@pytest.fixture(scope="module")
def written_layouts(tmp_path_factory, write_bert_folder):
    """Writes one BERT in every layout; returns the folder."""
    folder = tmp_path_factory.mktemp("layouts")
    networks = pytest.importorskip("official.nlp.modeling.networks")
    tensors = write_bert_folder(folder / "hugging_face", **GELU)
    encoder = models.get("encoder", "bert", path=str(folder / "hugging_face"))
    write_google(folder / "google", folder / "hugging_face", tensors, "bert")
    vocabulary = folder / "hugging_face" / "vocab.txt"
    write_model_garden(folder / "model_garden", encoder, networks.BertEncoderV2, vocabulary)
    return folder


@pytest.fixture
def layouts(tmp_path, written_layouts):
    """Copies one BERT in every layout; returns layout -> path."""
    folder = shutil.copytree(written_layouts, tmp_path / "layouts")
    return {path.name: str(path) for path in folder.iterdir()}


@pytest.mark.parametrize("name", ["google", pytest.param("model_garden", marks=pytest.mark.nightly)])
def test_bert_layouts_agree(layouts, name):
    formats = {"google": "google-research BERT", "model_garden": "Model Garden BERT encoder"}
    assert checkpoints.find(layouts[name]).format == formats[name]
    assert checkpoints.find(layouts[name]).tokenizer == "WordPiece"
    first, other = (models.get("encoder", "bert", path=layouts[n])(tokens()) for n in ("hugging_face", name))
    assert np.ptp(first) > 0.1
    np.testing.assert_allclose(other, first, atol=1e-5)


@pytest.mark.nightly
@pytest.mark.parametrize("embedding", ["narrow", "wide"])
def test_electra_layouts_agree(tmp_path, write_bert_folder, embedding):
    published = {"num_attention_heads": 1}  # google-research has one head per 64 units, and the exact GELU
    change = {}
    drop = ()
    if embedding == "wide":  # as ELECTRA base: no projection
        rng = np.random.default_rng(2)
        names = ("word_embeddings.weight", "position_embeddings.weight", "token_type_embeddings.weight")
        for name, rows in zip(names, (20, 32, 2), strict=True):
            change[f"embeddings.{name}"] = rng.normal(size=[rows, 8]).astype(np.float32)
        change |= {f"embeddings.LayerNorm.{part}": np.ones(8, np.float32) for part in ("weight", "bias")}
        drop = ("embeddings_project.weight", "embeddings_project.bias")
        published["embedding_size"] = 8
    options = {"kind": "electra", "change": change, "drop": drop, **published}
    tensors = write_bert_folder(tmp_path / "hugging_face", **options)
    write_google(tmp_path / "google", tmp_path / "hugging_face", tensors, "electra")
    folders = [str(tmp_path / name) for name in ("hugging_face", "google")]
    stated = ["Hugging Face ELECTRA folder", "google-research ELECTRA"]
    assert [checkpoints.find(path).format for path in folders] == stated
    first, *others = (models.get("encoder", "electra", path=path)(tokens()) for path in folders)
    assert np.ptp(first) > 0.1
    for h in others:
        np.testing.assert_allclose(h, first, atol=1e-5)


def shake(network):
    """Changes all weights of a network from their initial values, such as 0 and 1."""
    for i, variable in enumerate(network.variables):
        noise = tf.random.stateless_uniform(variable.shape, [i, 1], 0.5, 1.5)
        variable.assign(variable * noise + (0.1 * noise if "kernel" not in variable.name else 0.0))


IMAGES = {"image": tf.random.stateless_uniform([2, 64, 64, 3], [1, 2])}


@pytest.mark.nightly
def test_resnet50_of_the_model_garden(tmp_path):
    published = encoders.ResNet50()
    shake(published.network)
    path = tf.train.Checkpoint(backbone=published.network, step=tf.Variable(3)).save(str(tmp_path / "ckpt"))
    assert checkpoints.find(path).format == "Model Garden ResNet50 backbone"
    encoder = models.get("encoder", "resnet50", path=path)
    assert encoder.variant == "model_garden"
    expected = published(IMAGES)
    assert np.ptp(expected) > 0.1
    np.testing.assert_allclose(encoder(IMAGES), expected, rtol=1e-5)

    for file in tmp_path.glob("ckpt-1.*"):  # in object storage, without the file `checkpoint`
        for name in (file.name, f"._{file.name}"):  # macOS adds hidden files
            tf.io.gfile.copy(str(file), f"ram://resnet50/{name}", overwrite=True)
    for path in ("ram://resnet50", "ram://resnet50/ckpt-1"):
        assert checkpoints.find(path).path == "ram://resnet50/ckpt-1"
    stored = models.get("encoder", "resnet50", path="ram://resnet50")
    np.testing.assert_array_equal(stored(IMAGES), encoder(IMAGES))


@pytest.mark.nightly
def test_resnet50_of_keras_and_of_a_converted_folder(tmp_path):
    published = encoders.ResNet50(variant="keras")
    shake(published.network)
    path = str(tmp_path / "resnet50.h5")
    whole = tf.keras.applications.ResNet50(weights=None)  # with the classifier on top, as published
    for layer in published.network.layers:
        if layer.weights:
            whole.get_layer(layer.name).set_weights(layer.get_weights())
    whole.save_weights(path)
    assert checkpoints.find(path).format == "Keras ResNet50 weights"
    encoder = models.get("encoder", "resnet50", path=path)
    assert encoder.variant == "keras"
    expected = published(IMAGES)
    assert np.ptp(expected) > 0.1
    np.testing.assert_allclose(encoder(IMAGES), expected, rtol=1e-5)
    with h5py.File(path, "a") as file:
        del file["conv1_conv/conv1_conv/bias:0"]  # its name remains in the list of weights
    assert_refused(path, "conv1_conv/bias is missing", "resnet50")
    with open(path, "r+b") as file:
        file.truncate(10_000)
    assert_refused(path, r"resnet50\.h5: not a complete HDF5 file", "resnet50")


def test_h5_file_without_keras_weights(tmp_path):
    with h5py.File(tmp_path / "weights.h5", "w") as file:
        file.create_group("dense")
    assert_refused(tmp_path / "weights.h5", "its tensors are in none of the scopes", "resnet50")


def cifar_vgg():
    """Returns the network of github.com/geifmany/cifar-vgg up to its last hidden layer, and its head."""
    layers = tf.keras.layers
    network = tf.keras.Sequential([tf.keras.layers.Input([32, 32, 3])])
    for i in range(1, 15):
        if i == 14:
            network.add(layers.Flatten())
        width = (64, 128, 256, 512, 512)[(i > 2) + (i > 4) + (i > 7) + (i > 10)]
        weights = layers.Conv2D(width, 3, padding="same", name=f"conv2d_{i}")
        network.add(layers.Dense(512, name="dense_1") if i == 14 else weights)
        network.add(layers.ReLU())
        network.add(layers.BatchNormalization(name=f"batch_normalization_{i}"))
        if i in (2, 4, 7, 10, 13):
            network.add(layers.MaxPooling2D())
    return network, layers.Dense(10, name="dense_2")


@pytest.mark.nightly
def test_vgg16_of_cifar_vgg(tmp_path):
    network, head = cifar_vgg()
    shake(network)
    path = str(tmp_path / "cifar10vgg.h5")
    whole = tf.keras.Sequential([*network.layers, head])
    whole.build([None, 32, 32, 3])
    whole.save_weights(path)
    assert checkpoints.find(path).format == "Keras VGG16 weights for CIFAR"
    features = {"image": tf.random.stateless_uniform([2, 32, 32, 3], [1, 2])}
    encoder = models.get("encoder", "vgg16", path=path)
    expected = network((255.0 * features["image"] - 120.707) / (64.15 + 1e-7))
    assert np.ptp(expected) > 0.1
    np.testing.assert_allclose(encoder(features), expected, rtol=1e-4, atol=1e-4)
    with h5py.File(path, "a") as file:
        del file["conv2d_13/conv2d_13/kernel:0"]
    assert_refused(path, r"cifar10vgg\.h5: does not fit this encoder: conv2d_13/kernel is missing", "vgg16")
    assert_refused(path, "Keras VGG16 weights for CIFAR is of 'vgg16', not 'resnet50'", "resnet50")


def test_checkpoint_by_one_of_its_files(layouts, monkeypatch):
    monkeypatch.chdir(layouts["google"])
    for name in ("model.ckpt", "model.ckpt.index", "model.ckpt.data-00000-of-00001", "."):
        assert checkpoints.find(name).format == "google-research BERT"
        assert checkpoints.find(name).folder == "."


def test_names_of_a_published_bert(tmp_path, write_bert_folder):
    """The published bert-base-uncased has TensorFlow's names of normalizations, under "bert."."""
    tensors = write_bert_folder(tmp_path / "new")
    renamed = {
        f"bert.{name}".replace("LayerNorm.weight", "LayerNorm.gamma").replace("Norm.bias", "Norm.beta"): value
        for name, value in tensors.items()
    }
    shutil.copytree(tmp_path / "new", tmp_path / "old")
    safetensors.numpy.save_file(renamed, tmp_path / "old" / "model.safetensors")
    new, old = (models.get("encoder", "bert", path=str(tmp_path / name))(tokens()) for name in ("new", "old"))
    np.testing.assert_array_equal(old, new)


def test_models_with_a_head_and_without_a_pooler(tmp_path, write_bert_folder):
    """Transformers saves those of masked tokens, and of token classification, so."""
    drop = ["pooler.dense.weight", "pooler.dense.bias"]
    heads = ["cls.predictions.bias", "lm_head.bias", "qa_outputs.bias"]
    write_bert_folder(tmp_path / "with")
    write_bert_folder(tmp_path / "without", drop=drop, change=dict.fromkeys(heads, np.ones(3, np.float32)))

    def load(name, **options):
        return models.get("encoder", "bert", path=str(tmp_path / name), **options)

    for pooling in ("cls", "mean"):
        expected, pooled = (load(name, pooling=pooling)(tokens()) for name in ("with", "without"))
        np.testing.assert_array_equal(pooled, expected)
    encoder = load("without")
    assert encoder.pooling == "cls"
    assert encoders.Bert.from_config(encoder.get_config()).pooler is None
    with pytest.raises(ValueError, match="pooling='pooler': unknown. There are: cls, mean"):
        load("without", pooling="pooler")


def test_paths_without_a_checkpoint(tmp_path, layouts):
    for path in ("google/electra", "hf://google/electra"):
        assert_refused(path, f"^{path}: no such file or folder, and nothing is downloaded", "electra")
    empty = tmp_path / "empty"
    empty.mkdir()
    known = (
        r"a TensorFlow checkpoint \(\*\.index\); Keras's ResNet50 or CIFAR VGG16 weights \(\.h5\); "
        r"a Hugging Face folder \(config\.json, model\.safetensors\); "
        r"a PyTorch file of tensors \(\*\.pth, of before PyTorch 1\.6\)\.$"
    )
    assert_refused(empty, f"empty: no checkpoint of a known format. Give the path of one: {known}")
    write_tensorflow(empty / "model", {"dense/kernel": np.ones(3, np.float32)})
    assert_refused(empty, "its tensors are in none of the scopes encoder, bert, _conv")
    write_tensorflow(empty / "other", {"dense/kernel": np.ones(3, np.float32)})
    assert_refused(empty, "empty: several checkpoints. Give the path of one: .*model, .*other")
    message = "the google-research BERT is of 'bert', not 'electra'. Set the encoder's name to 'bert'"
    assert_refused(layouts["google"], message, "electra")
    data = os.path.join(layouts["google"], "model.ckpt.data-00000-of-00001")
    with open(data, "r+b") as file:
        file.truncate(100)
    assert_refused(layouts["google"], r"not a complete TensorFlow checkpoint: bert/\S+ cannot be read")
    os.remove(os.path.join(layouts["google"], "bert_config.json"))
    assert_refused(layouts["google"], r"No such file or directory: .*bert_config\.json")


def test_invalid_hugging_face_folders(tmp_path, write_bert_folder):
    for broken, message in (
        ({"drop": ["pooler.dense.bias"]}, "pooler.dense.bias is missing"),
        ({"change": {"decoder.weight": np.ones(3, np.float32)}}, "decoder.weight is left over"),
        (
            {"change": {"encoder.layer.0.output.dense.weight": np.ones([8, 15], np.float32)}},
            r"layer.0.output.dense.weight has shape \(8, 15\), not that of layer_0/output/kernel",
        ),
        ({"num_hidden_layers": 1}, "encoder.layer.1.attention.output.LayerNorm.bias is left over"),
        ({"vocab_size": 21}, r"word_embeddings.weight has shape \(20, 8\), not that of word_embeddings/embe"),
        ({"model_type": "gpt2"}, "config.json: model_type 'gpt2' is not 'bert' or 'electra' or 'mpnet'"),
        ({"hidden_size": None}, "model.safetensors: its configuration does not describe this encoder"),
        ({"num_attention_heads": 3}, "model.safetensors: does not fit this encoder"),
        ({"layer_norm_eps": 1e-5}, "layer_norm_eps 1e-05 is not 1e-12"),
        ({"change": {"pooler.dense.bias": np.ones(8, np.int8)}}, "bias is I8, which is not supported"),
        ({"change": {"pooler.dense.bias": np.full(8, np.nan, np.float32)}}, "bias has values that are not"),
        ({"hidden_act": "swish"}, "not describe this encoder: activation='swish': unknown. There are: gelu"),
    ):
        write_bert_folder(tmp_path, **broken)
        assert_refused(tmp_path, message)


def test_missing_and_truncated_files(tmp_path, write_bert_folder):
    write_bert_folder(tmp_path)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-10])
    assert_refused(tmp_path, r"model\.safetensors: not a complete safetensors file")
    for content, message in (
        ("{", "not JSON: .* at column 2"),
        ("3", "not a JSON object"),
        ('{"model_type": "bert", "model_type": "electra"}', ".*has the key 'model_type' twice"),
    ):
        (tmp_path / "config.json").write_text(content)
        assert_refused(tmp_path, f"{tmp_path / 'config.json'}: {message}")
    os.remove(path)
    assert_refused(tmp_path, r"pytorch_model.bin is not supported. Save it as safe")
    (tmp_path / "model.safetensors.index.json").write_text("{}")
    assert_refused(tmp_path, r"the tensors are in shards. Save them in one model\.safetensors")
