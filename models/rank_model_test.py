"""Rank model with every part: saving in every Keras format, candidates, gradients, XLA, half precision."""

import functools
import pickle
import re
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from rank4class import models
from rank4class.models import class_encoders, count_priors, encoders, interactions, precision, registry

B = 3
N = 5
D = 4
TINY = {"vocab_size": 20, "hidden_size": D, "num_layers": 1, "num_heads": 2, "inner_size": 4}


def tokens(rows=B):
    ids = np.arange(1, 1 + 4 * rows, dtype=np.int32).reshape(rows, 4) % 20
    return {"input_word_ids": ids, "input_mask": np.ones_like(ids), "input_type_ids": np.zeros_like(ids)}


def images(size, channels=1):
    shape = [B, size, size, channels]
    return {"image": np.random.default_rng(0).uniform(size=shape).astype(np.float32)}


def rank_model(encoder, class_encoder=None, interaction=None, count_prior=None):
    class_encoder = class_encoder or class_encoders.Embedding(N, encoder.width)
    return models.RankModel(encoder, class_encoder, interaction or interactions.Dot(), N, count_prior)


VECTORS = np.random.default_rng(0).normal(size=[N, D]).astype(np.float32)
MODELS = {
    "identity": (lambda: rank_model(encoders.Identity(D)), {"embedding": VECTORS[:B]}),
    "embedding": (lambda: rank_model(encoders.InstanceEmbedding(5, D)), {"id": np.array([4, 0, 4])}),
    "mlp": (lambda: rank_model(encoders.Mlp((D,))), images(2)),
    "small_cnn": (lambda: rank_model(encoders.SmallCnn((2,), D)), images(4)),
    "bert": (lambda: rank_model(encoders.Bert(**TINY)), tokens()),
    "electra": (lambda: rank_model(encoders.Electra(**TINY, embedding_size=2)), tokens()),
    "mpnet": (lambda: rank_model(encoders.Mpnet(**TINY)), tokens()),
    "xlm-roberta": (lambda: rank_model(encoders.XlmRoberta(**TINY)), tokens()),
    "static": (lambda: rank_model(encoders.Static(20, D)), tokens()),
    "vgg16": (lambda: rank_model(encoders.Vgg16()), images(32, 3)),
    "efficientnet_lite0": (lambda: rank_model(encoders.EfficientNetLite0()), images(32, 3)),
    "resnet50": (lambda: rank_model(encoders.ResNet50()), images(32, 3)),
    "added words": (
        lambda: models.RankModel(
            encoders.Identity(D),
            class_encoders.Embedding(N, D),
            interactions.Dot(),
            N,
            words=models.AddedScores(N),
        ),
        {"embedding": VECTORS[:B], "words": np.ones([B, 2], np.float32)},
    ),
    "items": (lambda: models.ItemModel(hidden=(4,)), {"items": np.ones([B, N, 2], np.float32)}),
    "an encoder of one tensor": (
        lambda: rank_model(tf.keras.layers.Dense(D), class_encoders.Embedding(N, D)),
        VECTORS[:B],
    ),
    "text, bilinear": (
        lambda: rank_model(encoders.Bert(**TINY), class_encoders.Text(tokens(N)), interactions.Bilinear()),
        tokens(),
    ),
    "frozen_text, cosine, learned": (
        lambda: rank_model(
            encoders.Mlp((D,)),
            class_encoders.Residual(class_encoders.FrozenText([N, D], D, VECTORS), N, D),
            interactions.Cosine(learned=True),
            count_priors.LearnedCounts(2, (3,)),
        ),
        images(2),
    ),
    "lc_mlp, fixed": (
        lambda: rank_model(
            encoders.Mlp((D,)),
            class_encoders.Embedding(N, D),
            interactions.LatentCrossMlp(4),
            count_priors.FixedCounts([0.25, 0.75]),
        ),
        images(2),
    ),
    "text, concat_mlp": (
        lambda: rank_model(encoders.Bert(**TINY), class_encoders.Text(tokens(N)), interactions.ConcatMlp(4)),
        tokens(),
    ),
}
WITH_CASE = {part for name in MODELS for part in name.split(", ")} | {"dot"}  # the default of `rank_model`
MODELS |= {
    name: (
        lambda name=name: rank_model(encoders.Mlp((D,)), interaction=models.get("interaction", name)),
        images(2),
    )
    for name in registry.INTERACTIONS
    if name not in WITH_CASE
}
FORMATS = {
    "keras": lambda model, path: model.save(path + ".keras"),
    "folder": lambda model, path: model.save(path, save_format="tf"),
    # Without traced functions: large networks have many.
    "lean folder": lambda model, path: model.save(path, save_format="tf", save_traces=False),
    "weights": lambda model, path: model.save_weights(path + ".weights.h5"),
    "old weights": lambda model, path: model.save_weights(path + ".old.h5", save_format="h5"),
    "checkpoint": lambda model, path: model.save_weights(path),
    "serving": lambda model, path: tf.saved_model.save(model, path),
    "export": lambda model, path: model.export(path),
}
IN_ALL = ("mlp", "items")
LARGE = {"vgg16": "keras", "resnet50": "lean folder", "efficientnet_lite0": "keras"}
CASES = [(name, form) for name in IN_ALL for form in FORMATS if form != "lean folder"]
OTHERS = [name for name in MODELS if name not in {*IN_ALL, *LARGE}]
LEAN = ("bert", "text, bilinear", "frozen_text, cosine, learned", "lc_mlp, fixed")
CASES += [(name, "keras") for name in OTHERS] + [(name, "lean folder") for name in LEAN]
CASES += [*LARGE.items(), ("bert", "serving"), ("an encoder of one tensor", "serving")]
# Weights are loaded into the model of the `.keras` file, after its weights are set to 0.
IN_A_NEW_PROCESS = """
import pickle, sys
import numpy as np
import tensorflow as tf
from rank4class import models

path = sys.argv[1]
with open(path + "/cases.pickle", "rb") as file:
    cases, features = pickle.load(file)
outputs = {}
for name, form in cases:
    saved_path, inputs = f"{path}/{name} {form}", features[name]
    tensors = tf.nest.map_structure(tf.constant, inputs)
    if form == "keras":
        model = tf.keras.models.load_model(saved_path + ".keras")
        outputs[name, form] = model(inputs)
    elif "folder" in form:
        outputs[name, form] = tf.keras.models.load_model(saved_path)(inputs)
    elif form == "serving":
        loaded = tf.saved_model.load(saved_path)
        serve = loaded.signatures["serving_default"]
        outputs[name, form] = serve(**tensors) if isinstance(inputs, dict) else serve(tensors)
    elif form == "export":
        loaded = tf.saved_model.load(saved_path)
        outputs[name, form] = loaded.serve(tensors)
    else:
        model.set_weights([np.zeros_like(weight) for weight in model.get_weights()])
        endings = {"weights": ".weights.h5", "old weights": ".old.h5", "checkpoint": ""}
        model.load_weights(saved_path + endings[form])
        outputs[name, form] = model(inputs)
with open(path + "/outputs.pickle", "wb") as file:
    pickle.dump({key: tf.nest.map_structure(np.asarray, value) for key, value in outputs.items()}, file)
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Returns two dicts `(name, form)` -> outputs: of the models, and as loaded in a new process."""
    path = str(tmp_path_factory.mktemp("saved"))
    before = {}
    built = {}
    for name, form in CASES:
        if name not in built:
            tf.keras.utils.set_random_seed(0)
            make, features = MODELS[name]
            built[name] = make()
            built[name](features)
        before[name, form] = built[name](MODELS[name][1])
        FORMATS[form](built[name], f"{path}/{name} {form}")
    with open(path + "/cases.pickle", "wb") as file:
        pickle.dump((CASES, {name: features for name, (_, features) in MODELS.items()}), file)
    subprocess.run([sys.executable, "-c", IN_A_NEW_PROCESS, path], check=True)
    with open(path + "/outputs.pickle", "rb") as file:
        return before, pickle.load(file)


def test_every_part_has_a_case():
    of_texts = {"words"}  # whose vectors are computed before the model
    assert {*registry.ENCODERS, *registry.CLASS_ENCODERS, *registry.COUNT_PRIORS} <= WITH_CASE | of_texts


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "form"), CASES)
def test_a_new_process_loads_the_same_model(saved, name, form):
    before, after = (outputs[name, form] for outputs in saved)
    if form == "serving" and not isinstance(before, dict):
        (after,) = after.values()
    tf.nest.map_structure(lambda x, y: np.testing.assert_allclose(y, x, rtol=1e-5, atol=1e-6), before, after)


EVERY = [pytest.param(name, marks=[pytest.mark.nightly] * (name in LARGE)) for name in MODELS]


@pytest.mark.parametrize("name", EVERY)
def test_every_trainable_weight_gets_a_gradient(name):
    make, features = MODELS[name]
    model = make()
    model(features)
    with tf.GradientTape() as tape:
        outputs = tf.nest.flatten(model(features, training=True))
        value = sum(tf.reduce_sum(tf.square(output)) for output in outputs)
    gradients = tape.gradient(value, model.trainable_variables)
    assert all(gradient is not None for gradient in gradients)


@pytest.mark.parametrize("name", [name for name in MODELS if name not in {*LARGE, "items"}])
def test_scores_of_some_or_encoded_classes_are_those_of_all(name):
    make, features = MODELS[name]
    model = make()
    ids = [1, 3, 3]
    model(features)
    for variable in model.interaction.trainable_variables:  # biases start at 0
        variable.assign_add(tf.random.stateless_normal(variable.shape, [1, 2]))
    with tf.GradientTape() as tape:
        all_scores = model(features)
        scores = model(features, class_ids=tf.constant(ids))
        encoded = model(features, class_vectors=model.encode_classes(training=False))
        if isinstance(scores, dict):
            all_scores, scores, encoded = (each["scores"] for each in (all_scores, scores, encoded))
        value = tf.reduce_sum(scores)
    np.testing.assert_allclose(scores, tf.gather(all_scores, ids, axis=1), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(encoded, all_scores)
    h = model.encoder(features)
    c = model.class_encoder(tf.range(N), encode=model.encoder)
    np.testing.assert_allclose(model.interaction([h, c]), all_scores, rtol=1e-5, atol=1e-6)
    if name == "mlp":
        gradients = tape.gradient(value, [model.interaction.bias, model.class_encoder.table])
        assert [gradient.indices.numpy().tolist() for gradient in gradients] == [ids, ids]  # not dense


@pytest.mark.nightly
@pytest.mark.parametrize("name", [name for name in MODELS if name not in LARGE])  # of TensorFlow's operations
def test_xla(name):
    make, features = MODELS[name]
    model = make()
    expected = model(features)
    actual = tf.function(model, jit_compile=True)(features)
    tf.nest.map_structure(
        functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5), actual, expected
    )


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("name", EVERY)
def test_a_loaded_model_keeps_its_half_precision(name, policy, tmp_path):
    make, features = MODELS[name]
    with precision.scope(policy):
        model = make()
        before = model(features)
    half = policy.removeprefix("mixed_")
    assert half in {
        each.compute_dtype for each in model.submodules if isinstance(each, tf.keras.layers.Layer)
    }
    assert {weight.dtype for weight in model.trainable_variables} == {tf.float32}
    for outputs in tf.nest.flatten(before):
        assert outputs.dtype == tf.float32
        assert np.isfinite(outputs).all()
        assert np.any(outputs != tf.cast(tf.cast(outputs, half), tf.float32))  # not rounded
    model.save(tmp_path / "model.keras")
    after = tf.keras.models.load_model(tmp_path / "model.keras")(features)
    tf.nest.map_structure(np.testing.assert_array_equal, after, before)


@pytest.mark.parametrize("name", ["mlp", "items"])
def test_a_loaded_model_keeps_its_name_and_stays_frozen(name, tmp_path):
    make, features = MODELS[name]
    config = {**make().get_config(), "name": "mine"}
    model = type(make()).from_config(config)
    model(features)
    model.trainable = False
    model.save(tmp_path / "model.keras")
    loaded = tf.keras.models.load_model(tmp_path / "model.keras")
    assert (loaded.name, loaded.trainable, loaded.trainable_variables) == ("mine", False, [])


@pytest.mark.nightly
def test_text_encoder_in_a_functional_model(tmp_path):
    inputs = {name: tf.keras.Input([4], dtype=tf.int32) for name in encoders.Bert.FEATURES}
    model = tf.keras.Model(inputs, encoders.Bert(**TINY)(inputs))
    model.save(tmp_path / "model", save_traces=False)
    loaded = tf.keras.models.load_model(tmp_path / "model")
    np.testing.assert_array_equal(loaded(tokens()), model(tokens()))


@pytest.mark.parametrize("method", ["call", "fit"])
@pytest.mark.parametrize(
    ("name", "features", "message"),
    [
        ("mlp", np.ones([B, 2, 2, 1]), "2, 2, 1): Mlp needs a dict with 'image' or 'embedding'. Pass one."),
        ("items", np.ones([B, N, 2]), "5, 2): ItemModel needs a dict with 'items'. Pass one."),
        ("mlp", {"pixels": np.ones([B, 4])}, "['pixels']: Mlp needs a dict with 'image' or 'embedding"),
        ("bert", {"input_word_ids": np.ones([B, 4])}, "needs a dict with 'input_mask', 'input_type_ids'"),
    ],
)
def test_invalid_features(name, features, message, method):
    model = MODELS[name][0]()
    model.compile("sgd", loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    with pytest.raises(ValueError, match=re.escape(message)):
        model(features) if method == "call" else model.fit(features, np.arange(B), verbose=0)


def test_a_model_with_two_outputs_requires_named_labels_and_losses():
    model = rank_model(encoders.Identity(D), count_prior=count_priors.LearnedCounts(N - 1))
    loss = tf.keras.losses.MeanSquaredError()
    labels = np.ones([B, N], np.float32)
    both = ("scores", "log_counts")
    named_loss = dict.fromkeys(both, loss)
    named_labels = dict.fromkeys(both, labels)
    for some_loss, some_labels in ((loss, labels), (named_loss, labels), (loss, named_labels)):
        model.compile("sgd", loss=some_loss)
        with pytest.raises(ValueError, match="RankModel with a count prior has two outputs, which labels"):
            model.fit({"embedding": VECTORS[:B]}, some_labels, verbose=0)
    model.compile("sgd", loss=named_loss)
    model.fit({"embedding": VECTORS[:B]}, named_labels, verbose=0)


def test_saving_requires_a_call(tmp_path):
    with pytest.raises(ValueError, match="RankModel: no weights to save yet. Call it on features first"):
        rank_model(encoders.Identity(D)).save(tmp_path / "model.keras")
