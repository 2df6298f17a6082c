"""TensorBoard logs, as read by TensorBoard's readers."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from tensorboard import context
from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer
from tensorboard.plugins import base_plugin
from tensorboard.plugins.hparams import (
    api_pb2,
    backend_context,
    get_experiment,
    list_session_groups,
    metadata,
)

from rank4class.pipelines import config
from rank4class.pipelines.reporting import plots
from rank4class.pipelines.training import tensorboard
from rank4class.pipelines.training.rank_training_test import events_of

EXPERIMENT = config.override(
    config.Experiment(), {"loss.name": "approx_ndcg", "encoder.hidden": (64, 32), "data.cache": True}
)
METRICS = ("top1_error", "ndcg@5")
RESULTS = {
    "validation": {"top1_error": 20.0, "ndcg@5": 90.0, "examples": 5},
    "test": {"top1_error": 21.0, "examples": 5},
}
PICTURE = plots.pixels(plots.confusion_matrix([0, 1], [0, 0], ["a", "b"]))


def test_summaries_of_a_run(tmp_path):
    summaries = tensorboard.Summaries(str(tmp_path))
    summaries.write_start(EXPERIMENT)
    summaries.write_pictures("validation", {"confusion": PICTURE}, 4)
    summaries.write_end(RESULTS, METRICS, 7)
    result = events_of(tmp_path)
    ((step, picture),) = result.pop("validation/confusion").items()
    assert step == 4
    np.testing.assert_array_equal(tf.io.decode_png(tf.make_ndarray(picture.tensor)[2]), PICTURE)
    ((step, start),) = result.pop(metadata.SESSION_START_INFO_TAG).items()
    info = metadata.parse_session_start_info_plugin_data(start.metadata.plugin_data.content)
    assert (step, info.group_name) == (0, tensorboard.group_name(EXPERIMENT))
    assert info.group_name.startswith("approx_ndcg-dot ")
    assert set(info.hparams) == set(tensorboard.hyperparameters(EXPERIMENT))
    fields = tensorboard.hyperparameters(config.override(EXPERIMENT, {"encoder.hidden": (64, 32)}))
    assert fields["encoder.hidden"] == "64, 32"
    assert not {"seed", "steps"} & set(fields)
    assert info.hparams["batch_size"].number_value == EXPERIMENT.batch_size
    assert info.hparams["data.cache"].bool_value is True
    assert info.hparams["loss.name"].string_value == "approx_ndcg"
    (end,) = result.pop(metadata.SESSION_END_INFO_TAG).values()
    status = metadata.parse_session_end_info_plugin_data(end.metadata.plugin_data.content).status
    assert status == api_pb2.STATUS_SUCCESS
    numbers = {
        tag: {step: tf.make_ndarray(value.tensor).item() for step, value in values.items()}
        for tag, values in result.items()
    }
    assert numbers == {
        "validation_best/top1_error": {7: 20.0},
        "validation_best/ndcg@5": {7: 90.0},
        "test/top1_error": {7: 21.0},
    }


@pytest.mark.parametrize("where", ["", "ram://"])
def test_projector_has_points_and_names_of_classes(tmp_path, where):
    folder = f"{where}{tmp_path}"
    tf.io.gfile.makedirs(folder)
    names = ["plain", "tab\tand\nnewline\r", " \n", "naïve £"]
    vectors = np.array([[1.0, -2.5], [1e-9, 3.0], [0.0, 1 / 3], [1e9, 4.0]], np.float64)
    columns = {"error (%)": np.array([1 / 3, 0.0, np.nan, 100.0]), "examples": np.array([3, 0, 1_000_000, 2])}
    tensorboard.write_projector(folder, names, vectors, columns, columns["examples"])
    classes, points, settings = (
        tf.io.gfile.GFile(f"{folder}/{name}").read()
        for name in ("projector/classes.tsv", "projector/vectors.tsv", "projector_config.pbtxt")
    )
    assert classes.splitlines() == [
        "class\terror (%)\texamples",
        "plain\t0.333333\t3",
        "tab and newline\t0\t0",
        "2\t\t1e+06",
        "naïve £\t100\t2",
    ]
    rows = [[float(cell) for cell in line.split("\t")] for line in points.splitlines()]
    np.testing.assert_allclose(rows, vectors, rtol=1e-5)
    assert 'tensor_path: "projector/vectors.tsv"' in settings
    assert "tensor_shape: 4" in settings


@pytest.mark.parametrize(
    ("points", "numbers", "expected"), [(3, 100, [0, 2, 4]), (100, 9, [0, 2, 3, 4]), (100, 100, range(5))]
)
def test_projector_has_the_most_frequent_classes(tmp_path, monkeypatch, points, numbers, expected):
    monkeypatch.setattr(tensorboard, "MAX_POINTS", points)
    monkeypatch.setattr(tensorboard, "MAX_NUMBERS", numbers)
    counts = np.array([3, 1, 4, 2, 4])
    vectors = np.arange(10.0).reshape(5, 2)
    tensorboard.write_projector(str(tmp_path), list("abcde"), vectors, {"examples": counts}, counts)
    header, *rows = (tmp_path / "projector" / "classes.tsv").read_text().splitlines()
    assert header == "class\texamples"
    assert rows == [f"{'abcde'[i]}\t{counts[i]}" for i in expected]
    written = np.loadtxt(tmp_path / "projector" / "vectors.tsv")
    np.testing.assert_array_equal(written, vectors[list(expected)])


def test_classes_with_numbers_for_names_are_labels_of_the_projector(tmp_path):
    tensorboard.write_projector(str(tmp_path), ["7", "8"], np.zeros([2, 2]), {}, np.ones(2))
    assert (tmp_path / "projector" / "classes.tsv").read_text() == "class\nclass 7\nclass 8\n"


def write_points(folder, steps):
    writer = tf.summary.create_file_writer(str(folder))
    with writer.as_default():
        for step in steps:
            tf.summary.scalar("loss", float(step), step=step)
    writer.close()


def with_rate(rate, seed):
    loss = "mse" if rate == 0.25 else "softmax"
    return config.override(EXPERIMENT, {"loss.name": loss, "optimizer.learning_rate": rate, "seed": seed})


@pytest.mark.nightly
def test_the_hparams_tab_has_a_row_for_the_seeds_of_a_cell(tmp_path):
    rates = {"slow": 0.25, "fast": 0.5}
    for (name, rate), seed in itertools.product(rates.items(), (0, 1)):
        folder = f"{tmp_path}/{name}-seed{seed}"
        write_points(folder, range(0, 50, 10))
        summaries = tensorboard.Summaries(folder)
        summaries.write_start(with_rate(rate, seed))
        summaries.write_end(RESULTS | {"test": {"top1_error": rate * (1 + seed)}}, METRICS, 40)
    multiplexer = plugin_event_multiplexer.EventMultiplexer().AddRunsFromDirectory(str(tmp_path)).Reload()
    provider = data_provider.MultiplexerDataProvider(multiplexer, str(tmp_path))
    backend = backend_context.Context(base_plugin.TBContext(data_provider=provider))
    asked = context.RequestContext(), backend, ""
    shown = get_experiment.Handler(*asked, api_pb2.GetExperimentRequest()).run()
    assert {"loss.name", "optimizer.learning_rate"} <= {info.name for info in shown.hparam_infos}
    assert "test/top1_error" in {info.name.tag for info in shown.metric_infos}
    request = api_pb2.ListSessionGroupsRequest(slice_size=10, allowed_statuses=[api_pb2.STATUS_SUCCESS])
    request.col_params.add(metric={"tag": "test/top1_error"})
    groups = list_session_groups.Handler(*asked, request).run().session_groups
    assert {group.name: {one.name for one in group.sessions} for group in groups} == {
        tensorboard.group_name(with_rate(rate, 0)): {f"{name}-seed0", f"{name}-seed1"}
        for name, rate in rates.items()
    }
    for group in groups:
        rate = group.hparams["optimizer.learning_rate"].number_value
        means = {one.name.tag: one.value for one in group.metric_values}
        assert means["test/top1_error"] == 1.5 * rate
