"""Fixtures, the start of TensorFlow with two logical CPUs, and the CPU seconds of the tests."""

import contextlib
import gc
import importlib
import io
import json
import os
import pathlib
import random
import re
import runpy
import shutil
import signal
import subprocess
import sys
import traceback
from unittest import mock

import numpy as np
import pytest
import safetensors.numpy
from absl import logging
from absl.testing import flagsaver

from rank4class import compat

compat.choose_keras_2()
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# TensorFlow's pool would keep the memory of the largest test to the end: gigabytes in each worker.
os.environ.setdefault("TF_ONEDNN_USE_SYSTEM_ALLOCATOR", "1")


def pytest_configure(config):
    """Starts TensorFlow, except in the process that only distributes the tests."""
    is_controller = config.getoption("numprocesses", None) and not hasattr(config, "workerinput")
    if is_controller:
        return
    import tensorflow as tf

    # Small tensors gain nothing by threads, and pytest's workers share the cores. Commands in processes of
    # their own keep TensorFlow's defaults.
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )


FAST_TEST_CPU_SECONDS = 2.0


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Records CPU seconds, for `--junitxml` and for the summary."""
    started = _cpu_seconds()
    if "nightly" not in item.keywords:
        gc.disable()  # a collection frees the graphs of earlier tests
    try:
        result = yield
    finally:
        gc.enable()
    item.user_properties.append(("cpu_seconds", round(_cpu_seconds() - started, 3)))
    return result


def pytest_terminal_summary(terminalreporter):
    """Lists the tests of `make test` that are too long for it. None fails by the time of a busy machine."""
    too_long = [
        (seconds, report.nodeid)
        for report in terminalreporter.getreports("passed")
        if report.when == "call"
        and "nightly" not in report.keywords
        and (seconds := dict(report.user_properties)["cpu_seconds"]) > FAST_TEST_CPU_SECONDS
    ]
    if too_long:
        title = f"more than {FAST_TEST_CPU_SECONDS} CPU seconds: make smaller, or mark nightly"
        terminalreporter.section(title)
        for seconds, test in sorted(too_long, reverse=True):
            terminalreporter.line(f"{seconds:.1f}  {test}")


def _cpu_seconds():
    """Returns the CPU seconds of this process and its children."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


@pytest.fixture(scope="session", autouse=True)
def _warm():
    """Imports and warms up TensorFlow, so that the first tests do not pay for it."""
    import tensorflow as tf

    from rank4class import losses
    from rank4class.pipelines.training import rank_training  # noqa: F401  (it imports the rest)

    tf.keras.utils.set_random_seed(0)
    scores = tf.constant([[1.0, 0.0, 3.0]])
    for jit_compile in (False, True):
        tf.function(losses.Softmax(), jit_compile=jit_compile)([0], scores)
    model = tf.keras.Sequential([tf.keras.layers.Dense(3)])
    model.compile("adam", loss=losses.Softmax(), metrics=[losses.NDCG(2)])
    model.fit(scores, np.array([0]), verbose=0)
    gc.freeze()  # excludes TensorFlow's objects from garbage collection


@pytest.fixture(scope="session", autouse=True)
def _few_resamples():
    """Lets bootstraps draw 100 resamples: those of the library take a third of the time of a short run."""
    from rank4class.pipelines.evaluation import statistics

    with mock.patch.object(statistics, "RESAMPLES", 100):
        yield


@pytest.fixture
def all_resamples(monkeypatch):
    """Lets the bootstraps of a test draw as many resamples as those of a user."""
    from rank4class.pipelines.evaluation import statistics

    monkeypatch.setattr(statistics, "RESAMPLES", 2000)


@pytest.fixture(scope="session", autouse=True)
def _cache_folder(tmp_path_factory):
    """Keeps the outputs of encoders out of the user's cache."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(autouse=True)
def _repeatable():
    """Makes the draws of a test those of its last run."""
    import tensorflow as tf
    from tensorflow.python.eager import context
    from tf_keras.src import backend

    generators = context.context()._rng, backend._SEED_GENERATOR.generator  # they draw seeds of operations
    if any(generator.getstate() != random.Random(0).getstate() for generator in generators):
        tf.keras.utils.set_random_seed(0)  # discards all kernels, too slow for every test
    random.seed(0)
    np.random.seed(0)


@pytest.fixture
def rng():
    """Returns a random generator that draws the same in every test, whichever tests ran before."""
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def real_data():
    """Returns a function from a dataset's name to its folder of real files, skipping where it is absent."""
    root = pathlib.Path(os.environ.get("RANK4CLASS_DATA", pathlib.Path(__file__).parent / "../shared/data"))

    def folder(name):
        if not (root / name).is_dir():
            pytest.skip(f"no real {name} files: set RANK4CLASS_DATA to the folder that holds {name}/")
        return str(root / name)

    return folder


@pytest.fixture(scope="session")
def mirrored():
    """Returns the strategy over both logical CPUs, one a process: the sums of two would be mixed up."""
    from rank4class.pipelines import distribution

    return distribution.get("mirrored")


@pytest.fixture(scope="session")
def digits_run(tmp_path_factory):
    """Returns a small finished run on the digits, whose folder tests must not change."""
    import rank4class
    from rank4class.pipelines import config
    from rank4class.pipelines.configs import digits_mlp

    experiment = config.override(digits_mlp.get_config(), {"epochs": 2.0, "encoder.hidden": (16,)})
    return rank4class.train(experiment, tmp_path_factory.mktemp("digits") / "run", progress=False)


@pytest.fixture(scope="session")
def images():
    """Returns the test images of `digits_run`."""
    from rank4class import data

    return data.get("digits").splits["test"].features["image"]


@pytest.fixture(scope="session")
def command():
    """Returns a function that runs a command in this process, as `python -m` does in another.

    It takes the command's name and arguments, and returns a `subprocess.CompletedProcess` with its output.
    Flags, loggers, signal handlers and the environment are restored.
    """
    import tensorflow as tf

    from rank4class import __main__ as program
    from rank4class.scripts import cli  # noqa: F401, it defines a flag, once a process

    handler = logging.get_absl_handler().python_handler

    def run(name, *arguments):
        tf.keras.backend.clear_session()  # checkpoints hold the names of layers, which count up
        arguments = [name, *map(str, arguments)]
        output = io.StringIO()
        errors = io.StringIO()
        with contextlib.ExitStack() as stack:
            stack.enter_context(flagsaver.flagsaver())
            stack.enter_context(contextlib.redirect_stdout(output))
            stack.enter_context(contextlib.redirect_stderr(errors))
            stack.enter_context(mock.patch.object(sys, "argv", arguments))
            stack.enter_context(mock.patch.object(handler, "stream", errors))
            stack.enter_context(mock.patch.dict(os.environ))
            stack.callback(tf.get_logger().setLevel, tf.get_logger().level)
            stack.callback(logging.set_verbosity, logging.get_verbosity())
            stack.callback(handler.setFormatter, handler.formatter)
            for number in (signal.SIGTERM, signal.SIGINT):
                stack.callback(signal.signal, number, signal.getsignal(number))
            code = _exit_code_of(program.module_of(name))
        return subprocess.CompletedProcess(arguments, code, output.getvalue(), errors.getvalue())

    return run


@pytest.fixture
def error_of(command):
    """Returns a function that runs a command, which fails, and returns its only error line."""

    def run(name, *arguments):
        finished = command(name, *arguments)
        assert finished.returncode == 1
        assert "Traceback" not in finished.stderr
        (line,) = (line for line in finished.stderr.splitlines() if line.startswith("error: "))
        return line

    return run


@pytest.fixture(scope="session")
def output_of(command):
    """Returns a function that runs a command, which succeeds, and returns its output."""

    def run(name, *arguments):
        finished = command(name, *arguments)
        assert finished.returncode == 0, finished.stderr
        return finished.stdout

    return run


def _exit_code_of(module):
    """Runs a module as `python -m` does; returns the exit code, after printing the error as Python would."""
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return int(ended.code or 0)
        print(ended.code, file=sys.stderr)
        return 1
    except Exception:
        traceback.print_exc()
        return 1
    return 0


@pytest.fixture(scope="session")
def opened():
    """Returns a function that starts a command as a user does; it returns the `subprocess.Popen`."""

    def start(name, *arguments, environment=None):
        line = [sys.executable, "-m", "rank4class", name, *map(str, arguments)]
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(line, env=os.environ | (environment or {}), **streams)

    return start


@pytest.fixture
def restored_registries():
    """Removes the parts that a test registers; the package's are registered once, by their imports."""
    from rank4class import registry

    before = [(each, set(each._entries)) for each in registry._REGISTRIES]
    yield
    for each, names in before:
        for name in set(each._entries) - names - set(each._sources):
            del each._entries[name]


@pytest.fixture(scope="module")
def generated_data():
    """Registers the datasets of research that need no files: several classes, ids, and many classes."""
    from rank4class.data import DATASETS

    names = ("embedded_digits", "synthetic", "synthetic_retrieval")
    for name in names:
        module = importlib.import_module(f"rank4class.scripts.research.datasets.{name}")
        DATASETS.register(name)(vars(module)[name])
    yield
    for name in names:
        DATASETS._entries.pop(name, None)


@pytest.fixture
def names_of_a_new_process(monkeypatch):
    """Lets Keras name layers in each run as in a new process: checkpoints hold the names."""
    import tensorflow as tf

    from rank4class.pipelines.training import rank_training

    train = rank_training.train

    def in_a_process_of_its_own(*arguments, **kwargs):
        tf.keras.backend.clear_session()
        return train(*arguments, **kwargs)

    monkeypatch.setattr(rank_training, "train", in_a_process_of_its_own)


@pytest.fixture(scope="session")
def assert_same_run():
    """Returns a function that asserts that two runs ended with the same bytes.

    It compares all files except the report and the records of the starts and of the time. The second run may
    hold more checkpoints and partial files, since kills leave them.
    """

    def contents(folder):
        paths = (path.relative_to(folder) for path in pathlib.Path(folder).rglob("*"))
        others = re.compile(r"lock|sessions\.jsonl|report\.html|events\..*")
        names = (path for path in paths if not others.fullmatch(path.parts[0]))
        return {name.as_posix(): content(folder / name) for name in names if (folder / name).is_file()}

    def content(path):
        if path.suffix != ".safetensors":  # whose metadata have no order
            return path.read_bytes()
        tensors = safetensors.numpy.load_file(path)
        return {name: (tensor.shape, tensor.tobytes()) for name, tensor in tensors.items()}

    def check(undisturbed, disturbed):
        expected = contents(pathlib.Path(undisturbed))
        actual = contents(pathlib.Path(disturbed))
        changed = {name for name in expected if actual.get(name) != expected[name]}
        left = re.compile(r"checkpoints/.*|.*\.partial-.*")
        added = {name for name in actual if name not in expected and not left.fullmatch(name)}
        assert not changed | added
        assert "results.json" in expected

    return check


@pytest.fixture
def copied_before_changes():
    """Returns a function that copies a folder before each change of its files, as a kill would leave it.

    It returns a context of the list of copies. TensorFlow's functions that change files are replaced.
    """
    import tensorflow as tf

    @contextlib.contextmanager
    def context(folder, copies_folder):
        copies = []

        def copying(function):
            def copy_and_call(*args, **kwargs):
                if os.path.exists(folder):
                    copies.append(shutil.copytree(folder, copies_folder / str(len(copies))))
                return function(*args, **kwargs)

            return copy_and_call

        with contextlib.ExitStack() as stack:
            changing = [(tf.io.gfile, name) for name in ("makedirs", "remove", "rename", "rmtree")]
            for module, name in [*changing, (tf.train.Checkpoint, "write")]:
                stack.enter_context(mock.patch.object(module, name, copying(getattr(module, name))))
            yield copies

    return context


@pytest.fixture(scope="session")
def write_queries():
    """Returns a function that writes a fold of LETOR's layout, whose grades follow from a feature."""

    def write(folder):
        rng = np.random.default_rng(0)
        for name, size in (("train", 24), ("vali", 8), ("test", 9)):
            rows = []
            for query in range(size):
                for _ in range(rng.integers(2, 8)):
                    x = rng.random(4)
                    fields = " ".join(f"{i}:{value:.3f}" for i, value in enumerate(x, 1))
                    rows.append(f"{int(5 * x[1])} qid:{query} {fields} #docid = {query}\n")
            (folder / f"{name}.txt").write_text("".join(rows))

    return write


@pytest.fixture(scope="session")
def write_records():
    """Returns a function that writes lists as TF-Ranking's records: contexts and items, name -> values."""
    import tensorflow as tf
    from tensorflow_serving.apis import input_pb2

    def feature(values):
        if isinstance(values[0], str):
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=[each.encode() for each in values]))
        if isinstance(values[0], int):
            return tf.train.Feature(int64_list=tf.train.Int64List(value=values))
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))

    def features(named):
        return tf.train.Features(feature={name: feature(values) for name, values in named.items()})

    def message(context, items, form):
        if form == "example_list_with_context":
            examples = [tf.train.Example(features=features(item)) for item in items]
            context = tf.train.Example(features=features(context))
            return input_pb2.ExampleListWithContext(examples=examples, context=context)
        lists = {
            name: tf.train.FeatureList(feature=[feature(item[name]) for item in items if name in item])
            for name in {name for item in items for name in item}
        }
        lists = tf.train.FeatureLists(feature_list=lists)
        return tf.train.SequenceExample(context=features(context), feature_lists=lists)

    def write(path, lists, form):
        with tf.io.TFRecordWriter(str(path)) as writer:
            for context, items in lists:
                writer.write(message(context, items, form).SerializeToString())

    return write


@pytest.fixture
def tiny_goemotions(tmp_path):
    """Writes a small folder in GoEmotions' published layout; returns its path."""
    folder = tmp_path / "goemotions"
    folder.mkdir()
    folder.joinpath("emotions.txt").write_text("joy\nanger\nneutral\n")
    words = ("great happy day", "awful bad mess", "the table is here")
    for name, size in (("train", 40), ("dev", 10), ("test", 11)):
        rows = [f"{words[i % 3]} {i}\t{i % 3}\tid{name}{i}\n" for i in range(size)]
        rows.append(f"both at once\t0,1\tid{name}both\n")
        folder.joinpath(f"{name}.tsv").write_text("".join(rows))
    return folder


# Of a `model_type`: dense layers beside BERT's blocks, `[out, in]`, and the fields of `config.json` that
# BERT's does not have or has with another value.
ARCHITECTURES = {
    "bert": ({"pooler.dense": [8, 8]}, {}),
    "electra": ({"embeddings_project": [8, 4]}, {"embedding_size": 4}),
    "mpnet": (
        {"pooler.dense": [8, 8]},
        {"type_vocab_size": None, "layer_norm_eps": 1e-5},
    ),
    "xlm-roberta": ({"pooler.dense": [8, 8]}, {"type_vocab_size": 1, "layer_norm_eps": 1e-5}),
}
# Those of MPNet's layers.
NAMES_OF_MPNET = {
    **{f"attention.self.{name}": f"attention.attn.{name[0]}" for name in ("query", "key", "value")},
    "attention.output.dense": "attention.attn.o",
    "attention.output.LayerNorm": "attention.LayerNorm",
}


@pytest.fixture(scope="session")
def write_bert_folder():
    """Returns a function that writes a small encoder of `ARCHITECTURES` in Hugging Face's layout.

    The weights are random. It follows the published layout, not our import of it.
    """

    def write(folder, words=None, drop=(), change=None, kind="bert", layers=2, **published):
        words = words or [f"word{i}" for i in range(20)]
        folder.mkdir(exist_ok=True)
        width = 8
        inner = 16
        others, fields = ARCHITECTURES[kind]
        config = {
            "model_type": kind,
            "hidden_act": "gelu",
            "vocab_size": len(words),
            "hidden_size": width,
            "num_hidden_layers": layers,
            "num_attention_heads": 2,
            "intermediate_size": inner,
            "max_position_embeddings": 32,
            "type_vocab_size": 2,
            **fields,
        }
        embedding = fields.get("embedding_size", width)
        positions = config["max_position_embeddings"]
        shapes = {
            "embeddings.word_embeddings.weight": [len(words), embedding],
            "embeddings.position_embeddings.weight": [positions, embedding],
        }
        if types := config["type_vocab_size"]:
            shapes["embeddings.token_type_embeddings.weight"] = [types, embedding]
        else:
            del config["type_vocab_size"]
            shapes["encoder.relative_attention_bias.weight"] = [32, config["num_attention_heads"]]
        dense = {}  # name -> [out, in]
        norms = {"embeddings.LayerNorm": embedding}
        for layer in (f"encoder.layer.{i}." for i in range(layers)):
            for part in ("self.query", "self.key", "self.value", "output.dense"):
                dense[f"{layer}attention.{part}"] = [width, width]
            dense[f"{layer}intermediate.dense"] = [inner, width]
            dense[f"{layer}output.dense"] = [width, inner]
            norms |= {f"{layer}attention.output.LayerNorm": width, f"{layer}output.LayerNorm": width}
        for name, (outputs, inputs) in {**dense, **others}.items():
            shapes |= {f"{name}.weight": [outputs, inputs], f"{name}.bias": [outputs]}
        rng = np.random.default_rng(0)
        tensors = {name: rng.normal(size=shape, scale=0.5) for name, shape in shapes.items()}
        for norm, size in norms.items():
            tensors |= {
                f"{norm}.weight": rng.normal(1.0, 0.1, size=[size]),
                f"{norm}.bias": rng.normal(size=[size]),
            }
        names = NAMES_OF_MPNET if kind == "mpnet" else {}

        def stored(name):
            pattern = "|".join(map(re.escape, names)) or "$ "
            return re.sub(pattern, lambda found: names[found[0]], name)

        tensors = {stored(name): value.astype(np.float32) for name, value in tensors.items()}
        tensors["embeddings.position_ids"] = np.arange(positions)[None]
        tensors = {name: value for name, value in {**tensors, **(change or {})}.items() if name not in drop}
        safetensors.numpy.save_file(tensors, folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps({**config, **published}))
        (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in words))
        return tensors

    return write


@pytest.fixture(scope="session")
def write_tiny_bert(write_bert_folder):
    """Returns a function that writes an encoder of one layer whose vocabulary knows `tiny_goemotions`."""

    def write(folder):
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
        words = ["great", "happy", "day", "awful", "bad", "mess", "the", "table", "is", "here"]
        write_bert_folder(folder, words=[*special, *words], layers=1)
        return str(folder)

    return write


@pytest.fixture
def tiny_bert(tmp_path, write_tiny_bert):
    """Returns the folder of the encoder of `write_tiny_bert`."""
    return write_tiny_bert(tmp_path / "encoder")
