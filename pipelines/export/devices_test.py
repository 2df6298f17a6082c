"""Predictions and evaluations on two devices equal those on one, to the bit and in order."""

import numpy as np
import pytest
import tensorflow as tf

import rank4class
from rank4class.pipelines import tpu_test

pytestmark = pytest.mark.nightly
make = tpu_test.make


def write_array(folder):
    np.save(folder / "images.npy", np.random.default_rng(0).random([55, 8, 8, 1], np.float32))
    return folder / "images.npy"


def write_lines(folder, lines):
    (folder / "lines.txt").write_text("".join(f"{line}\n" for line in lines))
    return folder / "lines.txt"


# Config -> function of the folder of its data to a file or folder of inputs, and changes.
KINDS = {
    "digits_mlp": (write_array, {"encoder.hidden": (16,)}),
    "goemotions_bert": (
        lambda folder: write_lines(folder, (text * (1 + i % 3) for text, i in tpu_test.texts(40))),
        {"metrics": ("top1_error", "mean_rank"), "monitor": "top1_error"},
    ),
    "image_folder_cnn": (lambda folder: folder / "images", {"data.image_size": 16}),
    "letor_linear": (
        lambda folder: folder / "train.txt",
        {"loss.name": "softmax", "metrics": ("ndcg@10",)},
    ),
    "movielens_100k": (
        lambda folder: write_lines(folder, range(29, -1, -1)),
        {"loss.name": "softmax", "metrics": ("map@10",)},
    ),
}


@pytest.fixture
def on_both(make, mirrored, tmp_path):
    """Returns a function of a config's name to its run, which has not trained, on one and two devices."""

    def loaded(name):
        options = {"steps": None, "epochs": 0.0, "evaluation_batch_size": 7, "jit_compile": False}
        rank4class.train(make(name, **options, **KINDS[name][1]), tmp_path / "run", progress=False)
        runs = [rank4class.load(tmp_path / "run", strategy=strategy) for strategy in (None, mirrored)]
        assert [run._trained.strategy.num_replicas_in_sync for run in runs] == [1, 2]
        return runs

    return loaded


def predicted(runs, path, folder, **options):
    """Returns the files of predictions and the values of `predict_file` of each run."""
    results = []
    for i, run in enumerate(runs):
        output = folder / f"predictions-{i}.jsonl"
        results.append((run.predict_file(path, output, **options), output.read_bytes()))
    return results


@pytest.mark.parametrize("name", KINDS)
def test_each_kind_of_input(name, on_both, tmp_path):
    runs = on_both(name)
    path = KINDS[name][0](tmp_path)
    # The last pair of batches may be one of a single input, and then none.
    for batch_size in {"digits_mlp": (9, 100), "letor_linear": (2,)}.get(name, (9,)):
        one, two = predicted(
            runs, path, tmp_path, batch_size=batch_size, exclude_known=name == "movielens_100k"
        )
        assert one == two
        assert one[0][0] > min(batch_size, 10)
    one, two = (run.evaluate() for run in runs)
    # An evaluation divides its batches, and scores of half a batch may differ in the last bit.
    calibrations = [metrics.pop("calibration", {"after": {"nll": 0.0}})["after"] for metrics in (one, two)]
    assert one == two
    assert calibrations[1]["nll"] == pytest.approx(calibrations[0]["nll"], rel=1e-6)


def test_scores_and_exports(on_both, tmp_path):
    runs = on_both("digits_mlp")
    images = np.load(write_array(tmp_path))
    scores = [run.scores(images) for run in runs]
    np.testing.assert_array_equal(*scores)
    runs[1].export(tmp_path / "model")
    score = tf.saved_model.load(str(tmp_path / "model")).signatures["score"]
    np.testing.assert_allclose(score(image=images)["scores"], scores[0], rtol=1e-5, atol=1e-6)


def test_an_image_that_cannot_be_read(on_both, tmp_path):
    runs = on_both("image_folder_cnn")
    broken = tmp_path / "images" / "anger" / "4.jpg"
    broken.write_bytes(broken.read_bytes()[:100])
    one, two = predicted(runs, tmp_path / "images", tmp_path, batch_size=5, on_invalid_row="skip")
    assert one == two
    (count, [message]), _ = one
    assert count == 8 * 12 - 1
    assert message.startswith(f"{broken}: cannot be read: ")
