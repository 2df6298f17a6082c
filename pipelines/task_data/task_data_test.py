"""Tasks: preprocessing of features, class texts, held-out classes, caches, unreadable images."""

import dataclasses
import pathlib
import re
import shutil
import types

import numpy as np
import pytest
import tensorflow as tf

import rank4class
from rank4class import data, losses, models
from rank4class.data.datasets import imagenet_test
from rank4class.models import class_encoders
from rank4class.pipelines import config
from rank4class.pipelines.evaluation import evaluator, trained_model
from rank4class.pipelines.evaluation.model_building import new_model
from rank4class.pipelines.storage.cache import Cache
from rank4class.pipelines.storage.run_directory import TrainingDirectory
from rank4class.pipelines.task_data import checks, class_texts, description, frozen_features, hashing
from rank4class.pipelines.task_data.task_data import TaskData
from rank4class.pipelines.training import rank_training, trainable_rank_model

pytestmark = pytest.mark.usefixtures("generated_data")


@pytest.fixture
def image_files(tmp_path):
    """Writes a dark and a bright class in ImageNet's layout; returns its path."""
    for i, name in enumerate(("dark", "bright")):
        for folder in ("train", "val"):
            (tmp_path / folder / name).mkdir(parents=True)
            content = tf.io.encode_jpeg(tf.fill([20 + i, 30, 3], tf.constant(20 + 200 * i, tf.uint8)))
            tf.io.write_file(str(tmp_path / folder / name / "image.JPEG"), content)
    return str(tmp_path)


@pytest.fixture
def cifar10_files(tmp_path):
    """Writes CIFAR-10's layout with one shade of gray for each class; returns its path."""
    (tmp_path / "batches.meta.txt").write_text("".join(f"class{i}\n" for i in range(10)))
    for name in ("data_batch_1.bin", "test_batch.bin"):
        (tmp_path / name).write_bytes(b"".join(bytes([i % 10, *[25 * (i % 10)] * 3072]) for i in range(100)))
    return str(tmp_path)


def loaded_with(section, **fields):
    experiment = config.Experiment(data=section, evaluation_batch_size=8, **fields)
    checks.check(experiment)
    return experiment, rank_training.load_data(experiment, cache_dir="unused")


def first_batch(loaded, split="validation"):
    features, labels, _ = next(iter(loaded.evaluation_batches(split, 8)))
    return features, labels.numpy()


@pytest.mark.nightly
def test_image_files_are_decoded(image_files):
    section = config.Data("imagenet", path=image_files)
    experiment, loaded = loaded_with(section, encoder=config.Encoder("small_cnn", units=4))
    features, labels = first_batch(loaded)
    assert loaded.class_names == ("bright", "dark")
    expected = np.where(labels == 0, 220, 20)[:, None, None, None] / 255
    np.testing.assert_allclose(features["image"], np.broadcast_to(expected, [8, 224, 224, 3]), atol=0.01)
    assert new_model(experiment, loaded)(features).shape == [8, 2]
    other = tf.io.encode_jpeg(tf.zeros([40, 40, 3], tf.uint8))
    before = frozen_features._keys(loaded.splits["validation"])
    np.testing.assert_array_equal(frozen_features._keys(loaded.splits["validation"]), before)
    tf.io.write_file(f"{image_files}/val/dark/image.JPEG", other)
    assert np.sum(frozen_features._keys(loaded.splits["validation"]) != before) == 1


def test_bytes_become_floats_and_floats_stay(cifar10_files):
    experiment, loaded = loaded_with(config.Data("cifar10", path=cifar10_files))
    features, labels = first_batch(loaded)
    expected = 25 * labels[:, None, None, None] / 255
    np.testing.assert_allclose(features["image"], np.broadcast_to(expected, [8, 32, 32, 3]), rtol=1e-6)
    assert new_model(experiment, loaded)(features).shape == [8, 10]
    features, _ = first_batch(loaded_with(config.Data())[1])
    np.testing.assert_array_equal(
        features["image"], data.get("digits").splits["validation"].features["image"][:8]
    )


@pytest.mark.nightly
def test_pairs_of_texts(tmp_path, tiny_bert):
    path = tmp_path / "mine.csv"
    rows = [f"{('great day', 'bad mess')[i % 2]} {i},{'the table' * (i % 3)},{i % 2}\n" for i in range(80)]
    path.write_text("".join(rows))
    columns = {"text_column": "1", "text_pair_column": "2", "label_column": "3"}
    section = config.Data(name="text_file", path=str(path), max_length=8, test_fraction=0.2, **columns)
    experiment, loaded = loaded_with(section, encoder=config.Encoder("bert", path=tiny_bert), batch_size=8)
    assert [len(split) for split in loaded.splits.values()] == [56, 8, 16]
    features, labels, _ = next(iter(loaded.training_batches(experiment.batch_size, experiment.seed)))
    assert set(labels.numpy()) == {0, 1}
    assert features["input_type_ids"].numpy().any()  # of the second texts


def load_texts(folder, encoder, cache_dir="unused", held_out=(), frozen=False, **class_encoder):
    experiment = config.Experiment(
        data=config.Data(name="goemotions", path=str(folder), max_length=8, held_out=held_out),
        encoder=config.Encoder(name="bert", path=encoder, frozen=frozen),
        class_encoder=config.ClassEncoder(**class_encoder),
        interaction=config.Interaction(name="dot", use_bias=False),
        batch_size=8,
        evaluation_batch_size=4,
        metrics=("top1_error", "mean_rank"),
        monitor="top1_error",
        epochs=0.0,
    )
    checks.check(experiment)
    return experiment, rank_training.load_data(experiment, cache_dir=str(cache_dir))


def test_texts_that_are_cut_are_counted_once(tiny_goemotions, tiny_bert, caplog):
    experiment, loaded = load_texts(tiny_goemotions, tiny_bert)
    assert not caplog.text
    train = loaded.splits["train"]
    longest = sum(text.startswith(b"the table is here") for text in train.features["text"].astype(bytes))
    shorter = config.override(experiment, {"data.max_length": 6})  # these have seven tokens
    rank_training.load_data(shorter, cache_dir="unused")
    share = 100.0 * longest / len(train)
    [record] = [each for each in caplog.records if "are cut" in each.getMessage()]
    assert f"{share:.0f}% of the training texts have more than 6 tokens, and are cut" in record.getMessage()


@pytest.fixture(scope="module")
def features_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("features")


@pytest.fixture
def features(features_folder, tiny_goemotions, tiny_bert, monkeypatch):
    """Returns the file of cached outputs of `tiny_bert` for `tiny_goemotions`."""
    monkeypatch.setenv("RANK4CLASS_CACHE", str(features_folder))
    if not list(features_folder.iterdir()):
        load_texts(tiny_goemotions, tiny_bert, frozen=True)
    [path] = features_folder.glob("features-*")
    return path


@pytest.mark.nightly
def test_class_texts_for_the_shared_encoder(tiny_goemotions, tiny_bert, tmp_path, monkeypatch):
    texts = tmp_path / "texts.tsv"
    texts.write_text("anger\tawful bad\nneutral\tthe table is here\njoy\tgreat\n")
    experiment, loaded = load_texts(tiny_goemotions, tiny_bert, name="text", texts=str(texts))
    ids = loaded.class_inputs["features"]["input_word_ids"]  # the longest text has six tokens
    vocabulary = (tmp_path / "encoder" / "vocab.txt").read_text().split("\n")
    assert [[vocabulary[i] for i in row] for row in ids] == [
        ["[CLS]", "great", "[SEP]", "[PAD]", "[PAD]", "[PAD]"],
        ["[CLS]", "awful", "bad", "[SEP]", "[PAD]", "[PAD]"],
        ["[CLS]", "the", "table", "is", "here", "[SEP]"],
    ]
    eager = []
    rows = class_encoders._rows
    monkeypatch.setattr(class_encoders, "_rows", lambda *x: eager.append(tf.executing_eagerly()) or rows(*x))
    model = new_model(experiment, loaded)
    assert not any(eager)  # which would encode the texts of all classes
    [(features, _, _)] = loaded.evaluation_batches("test", experiment.evaluation_batch_size).take(1)
    c = model.encoder({name: tf.constant(value) for name, value in loaded.class_inputs["features"].items()})
    np.testing.assert_allclose(
        model(features), tf.matmul(model.encoder(features), c, transpose_b=True), rtol=1e-5, atol=1e-5
    )


@pytest.mark.nightly
def test_class_texts_frozen(tiny_goemotions, tiny_bert, features, tmp_path, monkeypatch):
    monkeypatch.setenv("RANK4CLASS_CACHE", str(tmp_path))
    shutil.copy(features, tmp_path)
    experiment, loaded = load_texts(
        tiny_goemotions, tiny_bert, frozen=True, name="frozen_text", residual=True
    )
    tokens = data.TOKENIZERS["WordPiece"].from_folder(tiny_bert, 8)({"text": tf.constant(loaded.class_names)})
    expected = models.get("encoder", "bert", path=tiny_bert)(tokens)
    np.testing.assert_allclose(loaded.class_inputs["vectors"], expected, rtol=1e-5, atol=1e-6)
    model = new_model(experiment, loaded)
    assert type(model.class_encoder).__name__ == "Residual"
    np.testing.assert_array_equal(model.class_encoder.base.vectors, loaded.class_inputs["vectors"])
    assert "embedding" in loaded.splits["train"].features


def test_encoders_that_are_missing(tiny_goemotions, tiny_bert):
    with pytest.raises(FileNotFoundError, match=f"{tiny_bert}x: no such file or folder, and nothing is"):
        load_texts(tiny_goemotions, tiny_bert + "x")
    for name, remedy in (("text", "encoder.path"), ("frozen_text", "class_encoder.path")):
        experiment = config.Experiment(class_encoder=config.ClassEncoder(name))
        message = f"{remedy}=None: class encoder .{name}. needs a text encoder. Set it to its folder"
        with pytest.raises(ValueError, match=message):
            rank_training.load_data(experiment, cache_dir="unused")


@pytest.mark.nightly
def test_held_out_classes(tiny_goemotions, tiny_bert, tmp_path):
    full = data.get("goemotions", path=str(tiny_goemotions)).splits
    experiment, loaded = load_texts(tiny_goemotions, tiny_bert, tmp_path, held_out=("anger",), name="text")
    np.testing.assert_array_equal(loaded.seen, [0, 2])
    for split in ("train", "validation"):
        labels = full[split].labels[full[split].labels != 1]
        np.testing.assert_array_equal(loaded.splits[split].labels, labels // 2)  # neutral's id is now 1
    test = loaded.splits["test"]
    assert len(test) == (full["test"].labels == 1).sum() > 0
    assert set(test.labels) == {1}
    results = rank_training.train(experiment, str(tmp_path / "run"), task_data=loaded, progress=False)
    assert results["test"]["examples"] == len(test)
    assert 1.0 <= results["validation"]["mean_rank"] <= 2.0
    run = rank4class.load(tmp_path / "run")
    assert set(run.predict(["great"], k=3)["class"]) == {"joy", "anger", "neutral"}
    assert run.evaluate(split="test")["mean_rank"] == pytest.approx(results["test"]["mean_rank"])
    model = new_model(experiment, loaded)
    [(features, _, _)] = loaded.evaluation_batches("validation", experiment.evaluation_batch_size).take(1)
    scores = model(features)
    np.testing.assert_array_equal(loaded.scorer(model, "test")(features).scores, scores)
    seen = loaded.scorer(model, "validation")(features, training=False)
    np.testing.assert_array_equal(seen.scores, scores.numpy()[:, [0, 2]])


def test_classes_that_cannot_be_held_out(tiny_goemotions, tiny_bert):
    with pytest.raises(ValueError, match=r"data\.held_out='angr': no such class\. Did you mean 'anger'\?"):
        load_texts(tiny_goemotions, tiny_bert, held_out=("angr",))
    (tiny_goemotions / "test.tsv").write_text("great\t0\tid\n")
    with pytest.raises(ValueError, match="data.held_out=.*: the test split has no example left"):
        load_texts(tiny_goemotions, tiny_bert, held_out=("anger",))
    section = config.Data("embedded_digits", num_examples=60, held_out=("1",))
    with pytest.raises(ValueError, match=r"data\.held_out=.*: an example of several classes"):
        loaded_with(section, class_encoder=config.ClassEncoder("frozen_text", path=tiny_bert))


@pytest.mark.nightly
def test_runs_share_features(tiny_goemotions, tiny_bert, features, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(TaskData, "collect", lambda *_: pytest.fail("encoded again"))
    experiment, loaded = load_texts(tiny_goemotions, tiny_bert, tmp_path / "run", frozen=True)
    cached = loaded.splits["test"].features["embedding"]
    with np.load(features) as file:
        assert {*map(tuple, cached)} <= {*map(tuple, file["vectors"])}
    assert f"Vectors of 61 examples in {features.parent}, 0 of them new" in capsys.readouterr().out
    assert not (tmp_path / "run").exists()
    assert [v.shape for v in new_model(experiment, loaded).weights] == [[3, 8]]
    _, live = load_texts(tiny_goemotions, tiny_bert)
    computed = live.make_encoder()(first_batch(live, "test")[0])
    np.testing.assert_allclose(computed, cached[:8], rtol=1e-5, atol=1e-6)
    monkeypatch.undo()
    monkeypatch.setenv("RANK4CLASS_CACHE", "off")
    load_texts(tiny_goemotions, tiny_bert, tmp_path / "run", frozen=True)
    [path] = (tmp_path / "run").iterdir()
    assert re.search(
        rf"Vectors of 61 examples in {path.parent}, [1-9]\d of them new", capsys.readouterr().out
    )


@pytest.mark.nightly
def test_class_texts_are_encoded_in_batches_of_similar_lengths(tiny_bert, tmp_path, monkeypatch):
    monkeypatch.setenv("RANK4CLASS_CACHE", str(tmp_path))
    monkeypatch.setattr(frozen_features, "TEXTS", 6)
    texts = [f"great {'day ' * (9 * i % 20)}" for i in range(20)]
    tokenizer = data.TOKENIZERS["WordPiece"].from_folder(tiny_bert, 20)
    encoder = models.get("encoder", "bert", path=tiny_bert)
    shapes = set()
    call = models.encoders.Bert.call

    def recorded(self, features, training=None):
        shapes.add(tuple(features["input_word_ids"].shape))
        return call(self, features, training=training)

    monkeypatch.setattr(models.encoders.Bert, "call", recorded)
    vectors = class_texts.encode(texts, encoder, tokenizer, Cache(tmp_path))
    assert {rows for rows, _ in shapes - {(1, 1)}} == {frozen_features.TEXTS}
    again = class_texts.encode(texts, encoder, tokenizer, Cache(tmp_path))
    np.testing.assert_array_equal(again, vectors)
    for text, vector in zip(texts, vectors, strict=True):
        expected = encoder(tokenizer({"text": tf.constant([text])}))[0]
        np.testing.assert_allclose(vector, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.nightly
def test_warnings_of_class_texts(tiny_goemotions, tiny_bert, tmp_path, monkeypatch, caplog):
    texts = tmp_path / "texts.tsv"
    texts.write_text("anger\tunheard of\nneutral\tnever seen\njoy\tgreat\n")
    load_texts(tiny_goemotions, tiny_bert, name="text", texts=str(texts))
    assert "each step" not in caplog.text
    monkeypatch.setattr(trainable_rank_model, "_MANY_TEXTS", 2)
    loaded = load_texts(tiny_goemotions, tiny_bert, name="text")
    trainable_rank_model.build_candidates(*loaded, tf.distribute.get_strategy())
    assert "class_encoder='text': each step encodes all 3 class texts" in caplog.text


@pytest.mark.nightly
def test_changed_class_texts_are_refused(tiny_goemotions, tiny_bert, tmp_path):
    texts = tmp_path / "texts.tsv"
    path = str(tmp_path / "run")
    texts.write_text("joy\tgreat\nanger\tawful\nneutral\ttable\n")
    experiment, loaded = load_texts(tiny_goemotions, tiny_bert, name="text", texts=str(texts))
    rank_training.train(experiment, path, task_data=loaded, progress=False)
    before = trained_model.restore(path).model.encode_classes().numpy()
    texts.write_text("joy\tawful\nanger\tgreat\nneutral\ttable\n")
    # A restored model keeps the texts of its training.
    np.testing.assert_array_equal(trained_model.restore(path).model.encode_classes(), before)
    (tmp_path / "run" / "results.json").unlink()
    with pytest.raises(ValueError, match=r"run: made with other class texts\. Restore those in"):
        rank_training.train(experiment, path, progress=False)


def test_max_examples_applies_to_every_split():
    _, loaded = loaded_with(config.Data(max_examples=300))
    _, full = loaded_with(config.Data(max_examples=359))
    assert {name: len(split) for name, split in loaded.splits.items()} == dict.fromkeys(loaded.splits, 300)
    all_images = {image.tobytes() for image in full.splits["validation"].features["image"]}
    capped = [image.tobytes() for image in loaded.splits["validation"].features["image"]]
    assert set(capped) < all_images
    _, other = loaded_with(config.Data(max_examples=300, split_seed=1))
    assert capped != [image.tobytes() for image in other.splits["validation"].features["image"]]
    _, loaded = loaded_with(config.Data(max_train_examples=100))
    assert [len(split) for split in loaded.splits.values()] == [100, 359, 360]


def test_class_weights_of_training_batches(tmp_path):
    experiment, loaded = loaded_with(config.Data(class_weights="balanced"), batch_size=1078)
    [(_, labels, weights)] = loaded.training_batches(experiment.batch_size, experiment.seed).take(1)
    sums = np.bincount(labels, weights=weights, minlength=10)
    np.testing.assert_allclose(sums, np.full(10, 107.8), rtol=1e-5)
    (tmp_path / "weights.tsv").write_text("".join(f"{i}\t{i / 2}\n" for i in range(10)))
    _, loaded = loaded_with(config.Data(class_weights=str(tmp_path / "weights.tsv")))
    _, labels, weights = next(iter(loaded.training_batches(8, 0)))
    np.testing.assert_array_equal(weights, labels.numpy() / 2)


@pytest.mark.nightly
def test_changed_files_of_weights_are_refused(tmp_path):
    weights = tmp_path / "weights.tsv"
    sorter = tmp_path / "sorter.safetensors"
    weights.write_text("".join(f"{name}\t1\n" for name in range(10)))
    sorter.write_bytes(b"first")
    loss = config.Loss(name="mean_average_precision", rank_fn="equivariant", sorter=str(sorter))
    experiment, loaded = loaded_with(config.Data(class_weights=str(weights)), loss=loss)
    run = TrainingDirectory(str(tmp_path / "run"), experiment)
    run.claim(loaded.hashes | hashing.file_hashes(experiment))
    run.unlock()
    run.check_data(hashing.file_hashes(experiment))
    for file, field in ((weights, "data.class_weights"), (sorter, "loss.sorter")):
        before = file.read_bytes()
        file.write_bytes(before.replace(b"\t1", b"\t2").replace(b"first", b"second"))
        with pytest.raises(ValueError, match=rf"run: made with another file of {field}\. Restore the data"):
            run.check_data(hashing.file_hashes(experiment))
        file.write_bytes(before)


@pytest.mark.nightly
def test_changed_vocabularies_and_frozen_encoders_are_noticed(tiny_goemotions, tiny_bert, tmp_path):
    def hash_of(**encoder):
        (tmp_path / "cache").mkdir(exist_ok=True)
        _, loaded = load_texts(tiny_goemotions, tiny_bert, tmp_path / "cache", **encoder)
        return loaded.hashes["encoder.path"]

    tiny_bert = str(shutil.copytree(tiny_bert, tmp_path / "bert"))
    before = [hash_of(frozen=frozen) for frozen in (False, True)]
    assert before[0] != before[1]
    assert before == [hash_of(frozen=frozen) for frozen in (False, True)]
    vocab = pathlib.Path(tiny_bert) / "vocab.txt"
    words = vocab.read_text().splitlines()
    vocab.write_text("\n".join([*words[:-2], words[-1], words[-2]]) + "\n")
    after = [hash_of(frozen=frozen) for frozen in (False, True)]
    assert set(before).isdisjoint(after)


@pytest.mark.nightly
def test_cached_batches_equal_preprocessed_batches(image_files, tiny_goemotions, tiny_bert):
    """The test of augmentations compares those of images in memory."""
    for section, encoder in (
        (config.Data(name="imagenet", path=image_files, image_size=16), config.Encoder(name="small_cnn")),
        (
            config.Data(name="goemotions", path=str(tiny_goemotions), max_length=8),
            config.Encoder(name="bert", path=tiny_bert),
        ),
    ):
        experiment, live = loaded_with(section, encoder=encoder)
        cached_experiment = config.override(experiment, {"data.cache": True})
        cached = rank_training.load_data(cached_experiment, cache_dir="unused")
        assert cached.preprocess is None
        for split in live.splits:
            for (ours, labels, _), (theirs, _, _) in zip(
                cached.read(split, cached_experiment.evaluation_batch_size),
                live.read(split, experiment.evaluation_batch_size),
                strict=True,
            ):
                assert len(labels) == 8
                tf.nest.map_structure(np.testing.assert_array_equal, ours, theirs)


def test_training_images_are_augmented_with_and_without_cache(cifar10_files):
    section = config.Data(name="cifar10", path=cifar10_files, augmentation="affine_flip")
    experiment, live = loaded_with(section)
    _, cached = loaded_with(config.Data(**vars(section) | {"cache": True}))
    _, plain = loaded_with(config.Data(**vars(section) | {"augmentation": "none"}))
    batches = [
        next(iter(loaded.training_batches(experiment.batch_size, experiment.seed)))[0]["image"].numpy()
        for loaded in (live, cached, plain)
    ]
    np.testing.assert_array_equal(batches[0], batches[1])
    assert batches[0].shape == (32, 32, 32, 3)
    # Each image is a single gray, and borders are extended.
    np.testing.assert_allclose(batches[0], batches[2], atol=1e-6)


def test_invalid_augmentations(image_files, tiny_goemotions, tiny_bert):
    text = {"name": "goemotions", "path": str(tiny_goemotions), "max_length": 8}
    for section, encoder, message in (
        ({"augmentation": "random_crop"}, {}, "it needs images that are read from files"),
        (
            {"name": "imagenet", "path": image_files, "augmentation": "random_crop", "cache": True},
            {},
            "data.cache=True: the cache keeps no whole images",
        ),
        (
            {**text, "augmentation": "affine_flip"},
            {"name": "bert", "path": tiny_bert},
            "data.augmentation='affine_flip': the dataset has no images",
        ),
        (
            {"augmentation": "affine_flip"},
            {"name": "resnet50", "path": "x", "frozen": True},
            "a frozen encoder encodes each image once",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            loaded_with(config.Data(**section), encoder=config.Encoder(**encoder))


def write_corrupt(path):
    path.write_bytes((path.parent / "image.JPEG").read_bytes()[:300])
    return str(path)


@pytest.mark.nightly
def test_errors_of_corrupt_images(image_files, tmp_path, monkeypatch):
    corrupt_image = write_corrupt(tmp_path / "train" / "dark" / "cut.JPEG")
    experiment, loaded = loaded_with(config.Data(name="imagenet", path=image_files))
    with pytest.raises(ValueError, match=f"{corrupt_image}: cannot be read: "):
        next(iter(loaded.read("train", experiment.evaluation_batch_size)))
    single = config.override(experiment, {"batch_size": 1, "evaluation_batch_size": 1})
    with pytest.raises(ValueError, match=f"{corrupt_image}: cannot be read: "):
        rank_training.train(single, str(tmp_path / "run"), task_data=loaded, progress=False)
    assert len(list(loaded.read("validation", experiment.evaluation_batch_size))) == 1
    cut = write_corrupt(tmp_path / "val" / "dark" / "cut.JPEG")
    _, loaded = loaded_with(config.Data(name="imagenet", path=image_files))
    monkeypatch.setattr(rank_training, "build_trainer", None)  # the training does not start
    with pytest.raises(ValueError, match=f"{cut}: cannot be read: "):
        rank_training.train(experiment, str(tmp_path / "other"), task_data=loaded, progress=False)


@pytest.mark.nightly
def test_corrupt_images_are_skipped_and_reported(image_files, tmp_path, caplog):
    corrupt_image = write_corrupt(tmp_path / "train" / "dark" / "cut.JPEG")
    (tmp_path / "val" / "dark" / "empty.JPEG").write_bytes(b"")  # validation and test are the same split
    experiment, loaded = loaded_with(config.Data(name="imagenet", path=image_files, on_invalid_row="skip"))
    assert f"2 left out, the first: {corrupt_image}: cannot be read: " in caplog.text
    assert sorted(loaded.splits["train"].labels) == [0, 1]
    assert loaded.splits["test"] is loaded.splits["validation"]
    next(iter(loaded.training_batches(experiment.batch_size, experiment.seed)))
    for path in (tmp_path / "train").glob("*/*"):
        path.write_bytes(b"")
    with pytest.raises(ValueError, match="the train split has no example"):
        loaded_with(config.Data(name="imagenet", path=image_files, on_invalid_row="skip"))


@pytest.mark.nightly
def test_corrupt_images_in_records(tmp_path, caplog):
    dark = imagenet_test.garden_row(1, 20)
    bright = imagenet_test.garden_row(2, 220)
    corrupt = bright | {"image/encoded": bright["image/encoded"][:300]}
    imagenet_test.write_records(tmp_path / "train-00000-of-00001", [dark, bright, corrupt, dark])
    imagenet_test.write_records(tmp_path / "validation-00000-of-00001", [dark, bright, dark])
    section = config.Data(name="imagenet", path=str(tmp_path), image_size=8, augmentation="random_crop")
    experiment, loaded = loaded_with(section)
    indices = loaded.training_examples(experiment.batch_size, experiment.seed, 0)
    with pytest.raises(ValueError, match=f"{tmp_path}/train-00000-of-00001 record 3: cannot be read: "):
        data.raise_first_unreadable(loaded.splits["train"], indices, loaded.preprocess)
    experiment, loaded = loaded_with(config.Data(**vars(section) | {"on_invalid_row": "skip"}))
    assert f"1 left out, the first: {tmp_path}/train-00000-of-00001 record 3: cannot" in caplog.text
    assert loaded.splits["train"].labels.tolist() == [0, 1, 0]
    features, labels, _ = next(iter(loaded.training_batches(experiment.batch_size, experiment.seed)))
    np.testing.assert_allclose(features["image"][:, 0, 0, 0], np.where(labels == 1, 220, 20) / 255, atol=0.01)


def test_an_example_is_encoded_once(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK4CLASS_CACHE", "off")
    _, loaded = loaded_with(config.Data(), encoder=config.Encoder(name="small_cnn"))
    cache = Cache(tmp_path, progress=False)
    encoded = []
    collect = TaskData.collect

    def recorded(self, split, *args):
        encoded.append(len(self.splits[split]))
        return collect(self, split, *args)

    monkeypatch.setattr(TaskData, "collect", recorded)

    def encode(task_data, weights="weights", rows=32, **options):
        encoded.clear()
        encoder = loaded.build_encoder("small_cnn") if not options else models.get("encoder", **options)
        found = frozen_features.encode(task_data, encoder, weights, rows, cache, "examples")
        return found, sum(encoded)

    first, count = encode(loaded.of_splits("train", "validation"))
    assert count == len(loaded.splits["train"]) + len(loaded.splits["validation"])
    again, count = encode(loaded)
    assert count == len(loaded.splits["test"])  # alone
    for name, vectors in first.items():
        np.testing.assert_array_equal(again[name], vectors)
    test = loaded.of_splits("test")
    for options in ({"weights": "other"}, {"rows": 9}, {"name": "small_cnn", "filters": (8, 8, 8)}):
        assert encode(test, **options)[1] == len(test.splits["test"])
    assert encode(test)[1] == 0


def retrieval(**section):
    """Returns the experiment and task of a synthetic retrieval dataset."""
    experiment = config.Experiment(
        data=config.Data(
            name="synthetic_retrieval", num_classes=30, num_examples=40, num_relevant=6, **section
        ),
        evaluation_batch_size=16,
    )
    return experiment, rank_training.load_data(experiment, cache_dir="unused")


@pytest.mark.nightly
@pytest.mark.parametrize(("scale", "dtype"), [(1.0, tf.float32), (1e9, tf.bfloat16)])
def test_metrics_ignore_excluded_classes(scale, dtype):
    experiment, loaded = retrieval()
    all_scores = scale * tf.random.stateless_normal([16, 30], seed=[0, 1])
    all_scores = tf.cast(tf.where(all_scores < 0.7 * scale, all_scores, 0.0), dtype)  # with ties
    rounded = tf.cast(all_scores, tf.float32)
    changed = set()
    for split in ("validation", "test"):
        [(features, labels, _)] = loaded.evaluation_batches(split, experiment.evaluation_batch_size).take(1)
        outputs = loaded.scorer(lambda features, training: all_scores, split)(features, training=False)
        scores = evaluator.mask_scores(tf.cast(outputs.scores, tf.float32), outputs.where)
        for name in ("top1_error", "ndcg@5", "mrr", "mean_rank", "precision@3", "recall@5", "map", "map@5"):
            metric = losses.get_metric(name)
            ranked = {"where": ~features["excluded"], "ties": metric.ties, **metric.options}
            expected = metric.function(rounded, labels, **ranked)
            np.testing.assert_allclose(metric.of_scores(scores, labels), expected, rtol=1e-6, err_msg=name)
            if (metric.of_scores(rounded, labels) != expected).numpy().any():
                changed.add(name)
    assert changed >= {"ndcg@5", "mrr", "mean_rank", "recall@5", "map"}


def test_users():
    experiment, loaded = retrieval()
    train = loaded.splits["train"]
    most = {name: s.max_relevant() for name, s in loaded.splits.items()}
    assert loaded.max_relevant("test", "train", "validation") == max(most.values()) > min(most.values())
    single = dataclasses.replace(train, labels=np.zeros(len(train), np.int32))
    single = dataclasses.replace(loaded, splits={**loaded.splits, "train": single})
    assert single.max_relevant("train") is None
    assert single.max_relevant("train", "test") == most["test"]
    message = r"encoder='mlp': needs 'image' or 'embedding', but the dataset has id\. Choose another encoder"
    with pytest.raises(ValueError, match=message):
        new_model(experiment, loaded)
    # Training ranks all classes.
    [(features, _, _)] = loaded.training_batches(experiment.batch_size, experiment.seed).take(1)
    assert list(features) == ["id"]
    ones = tf.ones([32, 30])
    outputs = loaded.scorer(lambda features, training: ones, "train")(features, training=True)
    assert outputs.scores is ones
    assert outputs.where is None


def test_hashes_depend_on_labels_and_exclusions():
    _, loaded = retrieval()
    _, again = retrieval()
    _, other = retrieval(split_seed=1)
    assert loaded.hashes == again.hashes
    for split in loaded.splits:
        assert loaded.hashes[split] != other.hashes[split]
    split = loaded.splits["test"]
    hashes = {hashing._hash(split)}
    for part in ("labels", "excluded"):
        changed = getattr(split, part).copy()
        changed.indices[0] += 1
        hashes.add(hashing._hash(dataclasses.replace(split, **{part: changed})))
    hashes.add(hashing._hash(dataclasses.replace(split, excluded=None)))
    assert len(hashes) == 4


def test_max_examples_evaluates_the_users_of_training():
    _, loaded = retrieval(max_examples=10, cache=True)
    _, full = retrieval()
    trained = loaded.splits["train"].features["id"]
    assert len(trained) == 10
    for name in ("validation", "test"):
        expected = np.intersect1d(full.splits[name].features["id"], trained)
        assert 0 < len(expected) < len(full.splits[name])
        split = loaded.splits[name]
        rows = np.searchsorted(full.splits[name].features["id"], expected)
        assert list(split.features) == ["id"]
        np.testing.assert_array_equal(split.features["id"], expected)
        np.testing.assert_array_equal(split.excluded.toarray(), full.splits[name].excluded.toarray()[rows])
    _, same = retrieval(max_train_examples=10)
    for name, split in loaded.splits.items():
        np.testing.assert_array_equal(same.splits[name].features["id"], split.features["id"])


def test_users_that_no_split_has_are_not_known(tmp_path):
    """Their ids must not be read as users whose names are these numbers."""
    origins = np.array(["user 1", "user 7", "user 7"], object)
    split = data.Split({"id": np.array([0, 2, 2], np.int32)}, np.array([1, 0, 1]), origins)
    task = types.SimpleNamespace(splits={"train": split}, class_names=("a", "b"))
    description._write_instances(str(tmp_path), task)
    known = description.read_known(str(tmp_path))
    assert known.toarray().tolist() == [[False, True], [False, False], [True, True]]
    ids = description._read_instances(str(tmp_path))
    assert ids == {"1": 0, "7": 2}
    users = data.kind_of({"id"})
    assert users.features_of(7, {}, ids, "input") == {"id": 2}
    message = "input=2: not in the training data, whose first ids are 1, 7. Remove"
    with pytest.raises(ValueError, match=message):
        users.features_of(2, {}, ids, "input")
