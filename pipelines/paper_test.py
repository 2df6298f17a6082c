"""A training step of the paper's experiments at full size, on random examples."""

import gc
import importlib

import numpy as np
import pytest
import tensorflow as tf

from rank4class import data
from rank4class.models import encoders
from rank4class.pipelines.evaluation.model_building import new_model
from rank4class.pipelines.task_data import inputs, task_data
from rank4class.pipelines.training import optimization
from rank4class.pipelines.training.train_step import build_steps

# Config -> number of classes and of weights. The other configs of texts have such a network too;
# `tpu_test.py` compiles the steps of all six configs with fewer layers.
CASES = {
    "mind_bert": (18, 110_000_000),
    "imagenet_resnet50": (1000, 25_500_000),
    "cifar10_vgg16": (10, 15_000_000),
}
MAKERS = {
    "bert": lambda **options: encoders.Bert(vocab_size=30522, **options),
    "resnet50": encoders.ResNet50,
    "vgg16": encoders.Vgg16,
}
IMAGE_SIZES = {"imagenet": 224, "cifar10": 32}


def build_task(experiment, num_classes, examples=2):
    """Returns the task of an experiment, with random weights and a few random examples."""
    rng = np.random.default_rng(0)
    if experiment.data.name in IMAGE_SIZES:
        size = IMAGE_SIZES[experiment.data.name]
        features = {"image": rng.random([examples, size, size, 3], np.float32)}
    else:
        ids = rng.integers(1000, 30522, size=[examples, experiment.data.max_length]).astype(np.int32)
        ids[0, 10:] = 0
        mask = (ids > 0).astype(np.int32)
        features = {"input_word_ids": ids, "input_mask": mask, "input_type_ids": np.zeros_like(ids)}
    split = data.Split(features, rng.integers(num_classes, size=examples).astype(np.int32))
    encoder_options = {n: value for n, value in experiment.encoder.options().items() if n != "path"}
    return task_data.TaskData(
        class_names=tuple(map(str, range(num_classes))),
        splits=dict.fromkeys(("train", "validation", "test"), split),
        preprocess=None,
        make_encoder=lambda: MAKERS[experiment.encoder.name](**encoder_options),
        inputs=inputs.Inputs({}),
    )


@pytest.fixture(autouse=True)
def _eager():
    """Runs functions eagerly, since tracing takes longer than a step; then frees the 2 GB of a model."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)
    tf.keras.backend.clear_session()
    gc.collect()  # the model and its optimizer have reference cycles


@pytest.mark.nightly
@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore:Even though the")  # functions of tf.data remain graphs
def test_a_step_at_full_size(name):
    experiment = importlib.import_module(f"rank4class.pipelines.configs.{name}").get_config()
    experiment.batch_size = experiment.evaluation_batch_size = 2
    num_classes, num_weights = CASES[name]
    loaded = build_task(experiment, num_classes)
    model = new_model(experiment, loaded)
    assert model.count_params() == pytest.approx(num_weights, rel=0.02)
    experiment.optimizer.warmup_fraction = 0.0  # the peak rate from the first step on
    schedule = optimization.build_schedule(experiment.optimizer, 2)
    optimizer = optimization.build_optimizer(experiment.optimizer, schedule)
    optimizer.build(model.trainable_variables)
    strategy = tf.distribute.get_strategy()
    loss = optimization.build_loss(experiment.loss, seed=experiment.seed)
    scorer = loaded.scorer(model, "train")
    steps = build_steps(strategy, model, scorer, loss, optimizer, experiment)
    before = [tf.reduce_sum(variable) for variable in model.trainable_variables]
    results = steps(iter(loaded.training_batches(experiment.batch_size, experiment.seed)), first=0, count=1)
    assert np.isfinite(results.losses).all()
    assert np.isfinite(results.gradient_norms).all()
    after = [tf.reduce_sum(variable) for variable in model.trainable_variables]
    # A step changes few of the 30,522 word vectors, and every kernel.
    moved = [not np.array_equal(x, y) for x, y in zip(before, after, strict=True)]
    assert np.mean(moved) > 0.9
