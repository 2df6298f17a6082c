"""Predictions and evaluations on two devices equal those on one, to the bit and in order."""

import numpy as np
import pytest
import tensorflow as tf

import rank4class
from rank4class.pipelines import config
from rank4class.pipelines.configs import digits_mlp

pytestmark = pytest.mark.nightly


def loaded_on_both(experiment, path, mirrored):
    rank4class.train(experiment, path, progress=False)
    runs = [rank4class.load(path, strategy=strategy) for strategy in (None, mirrored)]
    assert [run._trained.strategy.num_replicas_in_sync for run in runs] == [1, 2]
    return runs


def predicted(runs, path, folder, **options):
    """Returns the files of predictions and the values of `predict_file` of each run."""
    results = []
    for i, run in enumerate(runs):
        output = folder / f"predictions-{i}.jsonl"
        results.append((run.predict_file(path, output, **options), output.read_bytes()))
    return results


def evaluated(runs, *arguments, **options):
    return [run.evaluate(*arguments, **options) for run in runs]


def test_images(tmp_path, mirrored):
    changes = {"epochs": 1.0, "encoder.hidden": (16,), "evaluation_batch_size": 33}  # odd
    runs = loaded_on_both(config.override(digits_mlp.get_config(), changes), tmp_path / "run", mirrored)
    np.save(tmp_path / "images.npy", np.random.default_rng(0).random([55, 8, 8, 1], np.float32))
    # The last pair of batches is one of a single image, and then none.
    for batch_size in (9, 100):
        one, two = predicted(runs, tmp_path / "images.npy", tmp_path, k=10, batch_size=batch_size)
        assert one == two
        assert one[0] == (55, [])
    one, two = evaluated(runs)
    for name in ("top1_error", "top5_error", "ndcg@5", "examples", "intervals"):
        assert one[name] == two[name]
    np.testing.assert_array_equal(*(run.scores(np.zeros([3, 8, 8, 1])) for run in runs))
    scores = []
    for i, run in enumerate(runs):
        run.export(tmp_path / f"model-{i}")
        model = tf.saved_model.load(str(tmp_path / f"model-{i}"))
        images = tf.constant(np.load(tmp_path / "images.npy"))
        scores.append(model.signatures["score"](image=images)["scores"])
    np.testing.assert_array_equal(*scores)


def test_texts(tmp_path, tiny_bert, mirrored):
    words = ["great", "happy", "day", "awful", "bad", "mess", "the", "table", "is", "here"]
    rng = np.random.default_rng(0)
    lines = [f"{' '.join(rng.choice(words, 4))}\t{'abc'[i % 3]}\n" for i in range(40)]
    (tmp_path / "texts.tsv").write_text("text\tlabel\n" + "".join(lines))
    experiment = config.Experiment(
        data=config.Data(name="text_file", path=str(tmp_path / "texts.tsv"), max_length=8),
        encoder=config.Encoder(name="bert", path=tiny_bert),
        metrics=("top1_error", "mean_rank"),
        monitor="top1_error",
        batch_size=8,
        evaluation_batch_size=6,
        steps=4,
    )
    runs = loaded_on_both(experiment, tmp_path / "run", mirrored)
    one, two = predicted(runs, tmp_path / "texts.tsv", tmp_path, batch_size=7)
    assert one == two
    one, two = evaluated(runs, tmp_path / "texts.tsv")
    assert one["examples"] == 40
    # An evaluation divides its batches, and scores of half a batch may differ in the last bit.
    calibrations = [metrics.pop("calibration")["after"] for metrics in (one, two)]
    assert one == two
    assert calibrations[1]["nll"] == pytest.approx(calibrations[0]["nll"], rel=1e-6)


def test_an_image_that_cannot_be_read(tmp_path, mirrored):
    for i in range(12):
        (tmp_path / "images" / "ab"[i % 2]).mkdir(parents=True, exist_ok=True)
        content = tf.io.encode_jpeg(tf.fill([20, 20, 3], tf.constant(20 * i, tf.uint8)))
        tf.io.write_file(str(tmp_path / "images" / "ab"[i % 2] / f"{i:02}.jpg"), content)
    experiment = config.Experiment(
        data=config.Data(
            name="image_folder",
            path=str(tmp_path / "images"),
            image_size=16,
            validation_fraction=0.25,
            test_fraction=0.25,
        ),
        encoder=config.Encoder(name="small_cnn", filters=(4,), units=4),
        metrics=("top1_error",),
        monitor="top1_error",
        batch_size=4,
        steps=2,
    )
    runs = loaded_on_both(experiment, tmp_path / "run", mirrored)
    broken = tmp_path / "images" / "a" / "04.jpg"
    broken.write_bytes(broken.read_bytes()[:100])
    one, two = predicted(runs, tmp_path / "images", tmp_path, batch_size=2, on_invalid_row="skip")
    assert one == two
    (count, [message]), _ = one
    assert count == 11
    assert message.startswith(f"{broken}: cannot be read: ")


def test_users_and_their_known_items(tmp_path, mirrored):
    rng = np.random.default_rng(0)
    pairs = sorted({(u, i) for u in range(1, 21) for i in rng.choice(30, 9, replace=False)})
    (tmp_path / "ratings.csv").write_text(
        "userId,movieId,rating\n" + "".join(f"{user},{item},4.0\n" for user, item in pairs)
    )
    experiment = config.Experiment(
        data=config.Data(name="movielens", path=str(tmp_path / "ratings.csv")),
        encoder=config.Encoder(name="embedding", units=8),
        metrics=("map@5",),
        monitor="map@5",
        batch_size=4,
    )
    runs = loaded_on_both(experiment, tmp_path / "run", mirrored)
    (tmp_path / "users.txt").write_text("".join(f"{user}\n" for user in range(20, 0, -1)))
    one, two = predicted(runs, tmp_path / "users.txt", tmp_path, batch_size=3, exclude_known=True)
    assert one == two


def test_lists_of_items(tmp_path, write_queries, mirrored):
    write_queries(tmp_path)
    experiment = config.Experiment(
        data=config.Data(name="letor", path=str(tmp_path)),
        encoder=config.Encoder(name="items"),
        metrics=("ndcg@5",),
        monitor="ndcg@5",
        batch_size=8,
        steps=3,
    )
    runs = loaded_on_both(experiment, tmp_path / "run", mirrored)
    one, two = predicted(runs, tmp_path / "train.txt", tmp_path, batch_size=5)
    assert one == two
    assert one[0] == (24, [])
