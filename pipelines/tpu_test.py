"""TPU support, tested without a TPU: the steps of all configs, and the connection to a TPU.

A TPU runs programs that XLA compiles, with static shapes and without ops of the host. These tests lower the
training and evaluation step of each config to XLA's HLO. Lowering fails for ops without an XLA kernel; the
HLO text shows dynamic shapes and calls to the host. Both steps are also traced under TensorFlow's TPUStrategy
with CPUs as its devices. The tests do not cover:

- Kernels of TPUs. The tests use XLA's CPU backend, which supports more: float64 linear algebra, complex128,
  and more types of convolutions and sorts.
- Speed of 64 bits, which a TPU emulates. The tests allow float64 only in n-choose-k losses, whose sums over
  sets require it. int64 is limited to a few numbers, such as steps and the states of random generators.
- Random ops without an explicit algorithm, which draw other numbers on a TPU. The noise of losses and the
  seeds of dropout have an explicit algorithm; the masks of dropout differ between TPU and CPU.
- Soft placement, TensorFlow's default: ops without a TPU kernel run on the host, slowly and silently.
- Memory, layouts, padding (a TPU pads to 8 x 128), compilation time, and running the traced program.
"""

import collections
import functools
import importlib
import os
import re
import time
import types

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.tpu import tpu_system_metadata

from rank4class import losses, models
from rank4class.data.datasets import cifar10_test, letor_test
from rank4class.data.datasets.reverse_dictionary_test import write_wordnet
from rank4class.models import encoders
from rank4class.pipelines import config, distribution
from rank4class.pipelines.configs import digits_mlp, goemotions_minilm
from rank4class.pipelines.storage.run_directory import RunDirectory
from rank4class.pipelines.task_data import checks, count_priors, task_data
from rank4class.pipelines.training import optimization, rank_training, train_step
from rank4class.pipelines.training.trainable_rank_model import TrainableRankModel

FOLDER = os.path.join(os.path.dirname(__file__), "configs")
CONFIGS = sorted(name[:-3] for name in os.listdir(FOLDER) if name.endswith(".py") and name != "__init__.py")
CLASSES = ("admiration", "anger", "fear", "gratitude", "joy", "neutral", "sadness", "surprise")
WORDS = ("great", "happy", "awful", "bad", "the", "table", "is", "here")
# Config -> config with the same steps; only data and sizes differ.
SAME_STEPS = {
    "mnist_cnn": "image_folder_cnn",
    "mind_bert": "goemotions_bert",
    "mind_electra": "goemotions_electra",
    "movielens_20m": "movielens_100k",
}
SIZES = (
    "batch_size", "steps", "min_steps", "epochs", "evaluations_per_epoch", "patience", "encoder.units",
    "optimizer.learning_rate",
)  # fmt: skip
# Lowered with options, or solved on the host.
NOT_LOWERED = ("goemotions_minilm", "cifar10_vgg16", "goemotions_minilm_frozen", "text_file_words")


@pytest.fixture
def make(tmp_path, monkeypatch, write_bert_folder):
    """Returns a function from a config's name to its experiment on small files in the published layout.

    The networks have fewer blocks than the published ones.
    """
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *CLASSES, *WORDS]
    monkeypatch.setattr(encoders.Vgg16, "BLOCKS", ((64, 2), (128, 1)))
    stages = [("bottleneck", 64, 2), ("bottleneck", 128, 1), ("bottleneck", 256, 1), ("bottleneck", 512, 1)]

    def encoder(kind="bert"):
        write_bert_folder(tmp_path / kind, words, kind=kind, layers=1)  # several have the same ops
        return str(tmp_path / kind)

    monkeypatch.setattr(goemotions_minilm, "minilm_folder", encoder)

    def experiment(name, **changes):
        made = importlib.import_module(f"rank4class.pipelines.configs.{name}").get_config()
        if made.encoder.name == "resnet50":
            resnet = pytest.importorskip("official.vision.modeling.backbones.resnet")
            monkeypatch.setitem(resnet.RESNET_SPECS, 50, stages)
        if made.encoder.name in ("bert", "electra"):
            made.encoder.path = encoder(made.encoder.name)
        if "path" in made.data.fields:
            made.data.path = str(WRITERS.get(made.data.name, str)(tmp_path))
        if made.candidates.name != "all":
            made.candidates.count = 16
        made.data.max_length = min(made.data.max_length, 32)  # number of positions of the small encoder
        made.batch_size = 8
        made.evaluation_batch_size = 16
        made.jit_compile = True
        made = config.override(made, changes)
        checks.check(made)
        return made

    return experiment


def texts(count):
    """Yields texts and the ids of their classes."""
    for i in range(count):
        yield f"{WORDS[i % 8]} {WORDS[i % 3]} {CLASSES[i % 8]}", i % 8


def write_goemotions(folder):
    folder.joinpath("emotions.txt").write_text("".join(f"{name}\n" for name in CLASSES))
    for name in ("train", "dev", "test"):
        rows = [f"{text}\t{label}\tid{i}{name}\n" for i, (text, label) in enumerate(texts(24))]
        folder.joinpath(f"{name}.tsv").write_text("".join(rows))
    return folder


def write_images(folder, ending, count):
    rng = np.random.default_rng(0)
    for name in CLASSES:
        (folder / name).mkdir(parents=True)
        for i in range(count):
            image = tf.io.encode_jpeg(rng.integers(0, 256, [20, 24, 3], dtype=np.uint8)).numpy()
            (folder / name / f"{i}.{ending}").write_bytes(image)
    return folder


def write_imagenet(folder):
    for name in ("train", "val"):
        write_images(folder / name, "JPEG", 2)
    return folder


def write_movielens(folder):
    rows = [f"{user},{(7 * user + 11 * i) % 130},4.0,9\n" for user in range(30) for i in range(20)]
    folder.joinpath("ratings.csv").write_text("userId,movieId,rating,timestamp\n" + "".join(rows))
    return folder


def write_definitions(folder):
    nouns = [([f"{CLASSES[label]}{i}"], f"{text} {i}") for i, (text, label) in enumerate(texts(120))]
    return write_wordnet(folder, {"noun": nouns, "verb": [], "adj": [], "adv": []})


def write_texts(folder):
    rows = [f"{text} {i}\t{CLASSES[label]}\n" for i, (text, label) in enumerate(texts(160))]
    folder.joinpath("texts.tsv").write_text("text\tlabel\n" + "".join(rows))
    return folder / "texts.tsv"


def write_table(folder):
    rng = np.random.default_rng(0)
    np.savez(folder / "table.npz", x=rng.normal(size=[120, 6]), y=np.arange(120) % 4)
    return folder / "table.npz"


WRITERS = {
    "letor": letor_test.write_letor,
    "movielens": write_movielens,
    "goemotions": write_goemotions,
    "reverse_dictionary": write_definitions,
    "text_file": write_texts,
    "table": write_table,
    "cifar10": cifar10_test.write_cifar10,
    "image_folder": lambda folder: write_images(folder / "images", "jpg", 12),
    "imagenet": write_imagenet,
}


class Built:
    """The task, model, optimizer and steps of an experiment under a strategy."""

    def __init__(self, experiment, folder, strategy=None):
        self.experiment = experiment
        self.strategy = strategy or tf.distribute.get_strategy()
        self.task = rank_training.load_data(experiment, str(folder)).with_static_lengths()
        schedule = rank_training.build_schedule(experiment, len(self.task.splits["train"]))
        self.trainable = trainable = TrainableRankModel(experiment, self.task, schedule, self.strategy)
        self.model = trainable.model
        self.evaluators = trainable._evaluators
        with self.strategy.scope():
            optimizer = optimization.build_optimizer(
                experiment.optimizer, schedule.learning_rate, experiment.precision
            )
            optimizer.build(self.model.trainable_variables)
        self.step = train_step.replica_step(
            self.strategy, self.model, trainable.forward, trainable.loss, optimizer, experiment
        )

    def splits_to_evaluate(self):
        """Returns splits that cover all scorers: test may score classes that training does not."""
        return ("test",) if self.task.seen is None else ("validation", "test")

    def lower_training(self):
        batch = next(iter(self.trainable.training_batches(0, tf.distribute.InputContext())))
        double = self.experiment.loss.name in IN_DOUBLE_PRECISION
        return lower(self.step, tf.constant(3, tf.int64), tf.constant(False), *batch, double=double)

    def lower_evaluation(self, split):
        evaluator = self.evaluators[split]
        batch = next(iter(self.task.evaluation_batches(split, self.experiment.evaluation_batch_size)))
        prior = count_priors.get(self.experiment.count_prior)  # metrics of sets are n-choose-k models
        double = prior.is_model or self.experiment.loss.name in IN_DOUBLE_PRECISION
        return lower(lambda *batch: evaluator.evaluate_batch(*batch, True), *batch, double=double)


IN_DOUBLE_PRECISION = ("n_choose_k", "top_k_gain")


def lower(function, *arguments, double=False):
    """Returns the HLO text of a function that a TPU can run, with float64 only if `double`.

    Raises:
      ValueError: XLA has no kernel for an op.
      AssertionError: a shape is not static, or the host is called.
    """
    if not isinstance(function, tf.types.experimental.GenericFunction):
        function = tf.function(function, autograph=False, jit_compile=True)
    hlo = function.experimental_get_compiler_ir(*arguments)(stage="hlo")
    check_hlo(hlo, double)
    return hlo


def check_hlo(hlo, double=False):
    """Raises AssertionError with the first line of HLO that a TPU cannot run."""
    for pattern, problem in (
        (r" (custom-call|infeed|outfeed|send|send-done|recv|recv-done)\(", "not for a TPU"),
        ("<=", "the shape is not static"),  # as in f32[<=4,3]
        (r"\bc128\[" if double else r"\b(f64|c128)\[", "double precision"),
    ):
        unsupported = [line for line in hlo.splitlines() if re.search(pattern, line)]
        assert not unsupported, f"{problem}: {unsupported[0]}"


@pytest.mark.nightly
@pytest.mark.parametrize("name", [name for name in CONFIGS if name not in (*SAME_STEPS, *NOT_LOWERED)])
def test_configs_can_run_on_a_tpu(name, make, tmp_path):
    built = Built(make(name), tmp_path)
    for replicas in (1, 2, 8) if name in ("digits_mlp", "movielens_100k", "goemotions_zero_shot") else (8,):
        check_batches(built.experiment, built.task, replicas)
    assert built.lower_training()
    for split in built.splits_to_evaluate():
        assert built.lower_evaluation(split)


@pytest.mark.nightly
@pytest.mark.parametrize("name", SAME_STEPS)
def test_configs_with_the_same_steps(name, make):
    experiment = make(name)
    lowered = make(SAME_STEPS[name])
    fields, lowered_fields = (
        {
            field: value
            for field, value in config.changed_fields(each).items()
            if not field.startswith("data.") and field not in SIZES
        }
        for each in (experiment, lowered)
    )
    assert fields == lowered_fields


def check_batches(experiment, loaded, replicas):
    context = tf.distribute.InputContext(
        num_input_pipelines=1, input_pipeline_id=0, num_replicas_in_sync=replicas
    )
    size = experiment.evaluation_batch_size
    evaluated = [(size, loaded.evaluation_batches(split, size, context)) for split in ("validation", "test")]
    trained = loaded.training_batches(experiment.batch_size, experiment.seed, 0, context)
    for size, batches in [(experiment.batch_size, trained), *evaluated]:
        specs = tf.nest.flatten(batches.element_spec)
        assert {spec.shape[0] for spec in specs} == {size // replicas}
        assert all(spec.shape.is_fully_defined() for spec in specs)
        assert {spec.dtype for spec in specs} <= {tf.float32, tf.int32, tf.bool}


METRICS = ("mrr", "mean_rank", "precision@3", "recall@3", "map", "ndcg")
CLIPPED_AND_AVERAGED = {"optimizer.clip_norm": 1.0, "optimizer.ema_momentum": 0.9}
OF_TRAINING = ("accumulation_steps", "encoder.dropout", "optimizer.", "data.class_weights")


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("goemotions_minilm", {"class_encoder.name": "text", "precision": "mixed_bfloat16"}),
        (
            "image_folder_cnn",
            {"precision": "mixed_bfloat16", "accumulation_steps": 2, "encoder.dropout": 0.2}
            | CLIPPED_AND_AVERAGED,
        ),
        ("cifar10_vgg16", {"accumulation_steps": 2}),
        (
            "goemotions_minilm_frozen",
            {"data.multi_label": True, "loss.name": "n_choose_k"}
            | {"count_prior.name": "learned", "metrics": ("nll", "exact_match"), "monitor": "nll"},
        ),
        (
            "digits_mlp",
            {"precision": "mixed_bfloat16", "interaction.name": "lc_mlp", "optimizer.name": "adamw"}
            | {"optimizer.weight_decay": 0.1, **CLIPPED_AND_AVERAGED},
        ),
        (
            "digits_mlp",
            {"optimizer.name": "adagrad", "data.class_weights": "balanced", "metrics": METRICS}
            | {"monitor": "mrr"},
        ),
    ],
)
def test_options_can_run_on_a_tpu(name, changes, make, tmp_path):
    built = Built(make(name, **changes), tmp_path)
    hlo = built.lower_training()
    assert ("bf16[" in hlo) == (built.experiment.precision == "mixed_bfloat16")
    is_lowered = name not in NOT_LOWERED and all(field.startswith(OF_TRAINING) for field in changes)
    if not is_lowered:  # or its evaluation is the config's
        assert built.lower_evaluation("test")


def rank_model_losses():
    single = [name for name in losses.names() if not losses.get(name).heads]
    return [*single, "gumbel_softmax", "gumbel_pairwise_logistic"]


def small(**changes):
    base = {"jit_compile": True, "encoder.hidden": (8,), "encoder.dropout": 0.2, "batch_size": 8}
    return config.override(digits_mlp.get_config(), {**base, **changes})


NIGHTLY = functools.partial(pytest.param, marks=pytest.mark.nightly)


@pytest.mark.parametrize("multi_label", [False, True])
@pytest.mark.parametrize(
    "name",
    [
        name if name in ("softmax", "rankmax", "gumbel_pairwise_logistic") else NIGHTLY(name)
        for name in rank_model_losses()
    ],
)
def test_losses_can_run_on_a_tpu(name, multi_label):
    most = 10 if multi_label else None
    loss = optimization.build_loss(small(**{"loss.name": name}).loss, max_relevant=most)
    labels = tf.ones([8, 10]) if multi_label else tf.zeros([8], tf.int32)

    def gradient(scores, labels):
        with tf.GradientTape() as tape:
            tape.watch(scores)
            value = loss(tf.constant(0, tf.int64), labels, task_data.ModelOutputs(scores), None)
        return value, tape.gradient(value, scores)

    assert lower(gradient, tf.ones([8, 10]), labels, double=name in IN_DOUBLE_PRECISION)


@pytest.mark.nightly
@pytest.mark.parametrize("name", models.INTERACTIONS)
def test_interactions_can_run_on_a_tpu(name):
    interaction = models.get("interaction", name)
    vectors = tf.ones([8, 4]), tf.ones([10, 4])
    interaction(vectors)

    def gradient(h, c):
        with tf.GradientTape() as tape:
            tape.watch([h, c])
            scores = interaction((h, c), training=True)
        return interaction((h, c)), tape.gradient(scores, [h, c, *interaction.trainable_variables])

    assert lower(gradient, *vectors)


def host(h):
    return tf.ensure_shape(tf.py_function(lambda x: x + 1.0, [h], tf.float32), h.shape)


def masked(h):
    return h + tf.reduce_sum(tf.boolean_mask(h, h[:, 0] > 0.5))


def double(h):
    return tf.cast(tf.cast(h, tf.float64) * 2.0, tf.float32)


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (host, ValueError, "No registered 'EagerPyFunc' OpKernel"),
        (masked, AssertionError, "the shape is not static"),
        (double, AssertionError, "double precision"),
    ],
)
def test_unsupported_ops_are_detected(function, error, message):
    with pytest.raises(error, match=message):
        lower(function, tf.ones([4, 3]))


def test_calls_to_the_host_are_detected():
    line = '  %call.1 = f32[2]{0} custom-call(f32[2]{0} %x), custom_call_target="xla_python_cpu_callback"'
    with pytest.raises(AssertionError, match="not for a TPU: .*xla_python_cpu_callback"):
        check_hlo(f"HloModule a\n{line}\n")


class CpuAssignment:
    """A device assignment with CPUs in place of TPU cores."""

    num_cores_per_replica = 1
    num_replicas = 2
    topology = types.SimpleNamespace(serialized=lambda: b"")
    core_assignment = np.array([[[0, 0, 0, 0]], [[1, 0, 0, 0]]])

    def tpu_device(self, replica, logical_core, job):
        del logical_core, job
        return f"/job:localhost/replica:0/task:0/device:CPU:{replica}"

    def host_device(self, replica):
        return self.tpu_device(0, replica, None)


def tpu_strategy():
    """Returns a TPUStrategy with variables on two CPUs; it traces programs, and cannot run them."""
    names = [f"/job:localhost/replica:0/task:0/device:TPU:{i}" for i in range(2)]
    devices = [types.SimpleNamespace(name=name) for name in names]
    metadata = tpu_system_metadata.TPUSystemMetadata(2, 1, 2, None, devices)
    resolver = types.SimpleNamespace(get_tpu_system_metadata=lambda: metadata)
    return tf.distribute.TPUStrategy(resolver, experimental_device_assignment=CpuAssignment())


def op_types(graph):
    """Returns the number of ops of each type in a graph and its functions."""
    definition = graph.as_graph_def()
    functions = [function.node_def for function in definition.library.function]
    return collections.Counter(node.op for nodes in (definition.node, *functions) for node in nodes)


def compiled_functions(graph):
    """Returns the functions of a graph that XLA must compile, with `jit_compile`."""
    return [f for f in graph.as_graph_def().library.function if f.attr["_XlaMustCompile"].b]


TRACED = {
    "digits_mlp": {"accumulation_steps": 2, "encoder.dropout": 0.2, "precision": "mixed_bfloat16"}
    | CLIPPED_AND_AVERAGED,
    "cifar10_vgg16": {},
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", TRACED)
def test_steps_are_traced_under_a_tpu_strategy(name, make, tmp_path):
    built = Built(make(name, **TRACED[name]), tmp_path, tpu_strategy())
    strategy = built.strategy
    loaded = built.task
    experiment = built.experiment
    batches = strategy.distribute_datasets_from_function(
        lambda context: loaded.training_batches(experiment.batch_size, experiment.seed, 0, context)
    )
    host_loop = train_step.loop(strategy, built.step)
    numbers = tf.constant(0, tf.int64), tf.constant(5), tf.constant(False)
    traced = host_loop.get_concrete_function(iter(batches), *numbers)
    assert [output.shape for output in traced.outputs] == [[None, 3], []]
    ops = op_types(traced.graph)
    assert ops["TPUReplicateMetadata"] == 1
    assert ops["CrossReplicaSum"] >= len(built.model.trainable_variables)
    assert not [op for op in ops if op.startswith(("Collective", "Nccl"))]
    # A TPU compiles the program as a whole; functions with `jit_compile` are for other devices.
    assert not compiled_functions(traced.graph)
    normalized = [m for m in built.model.submodules if isinstance(m, tf.keras.layers.BatchNormalization)]
    assert all(layer.synchronized for layer in normalized)
    for split in built.splits_to_evaluate():
        batch = next(iter(loaded.read(split, experiment.evaluation_batch_size, strategy)))
        evaluation = built.evaluators[split].evaluate_batch.get_concrete_function(*batch, True)
        assert {"values", "scores"} < set(evaluation.structured_outputs)
        assert evaluation.structured_outputs["values"].shape[0] == experiment.evaluation_batch_size
        assert not compiled_functions(evaluation.graph)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "reason"), [("local", "TPUs not found in the cluster"), ("grpc://127.0.0.1:1", "refused")]
)
def test_machines_without_a_tpu_fail_quickly(name, reason):
    started = time.monotonic()
    with pytest.raises(ValueError, match=f"^tpu='{name}': no TPU .*{reason}.*. Run on a TPU VM") as raised:
        distribution.get("tpu", name)
    assert "\n" not in str(raised.value)
    assert time.monotonic() - started < 120.0


@pytest.mark.nightly
def test_train_with_a_fake_tpu(tmp_path, command, mirrored, monkeypatch):
    monkeypatch.setattr(distribution, "_tpu", {"local": mirrored}.__getitem__)
    config_file = os.path.join(FOLDER, "digits_mlp.py")
    arguments = ["--strategy=tpu", "--tpu=local", f"--config={config_file}", f"--workdir={tmp_path}/run"]
    arguments += ["--config.epochs=1", "--config.steps_per_execution=5", "--config.encoder.hidden=(16,)"]
    finished = command("train", *arguments)
    assert finished.returncode == 0, finished.stderr
    workdir = RunDirectory(f"{tmp_path}/run")
    assert workdir.results()["steps"] == 17
    assert workdir.sessions()[0]["replicas"] == 2
