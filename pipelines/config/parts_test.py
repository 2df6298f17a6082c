"""Parts of an experiment, whose classes are generated from registered signatures."""

import copy
import dataclasses
import subprocess
import sys

import pytest

from rank4class import data, losses, models
from rank4class.pipelines import config
from rank4class.pipelines.config import optimizers

REGISTRIES = {
    "data": data.DATASETS,
    "encoder": models.ENCODERS,
    "class_encoder": models.CLASS_ENCODERS,
    "interaction": models.INTERACTIONS,
    "count_prior": models.COUNT_PRIORS,
    "optimizer": optimizers.OPTIMIZERS,
}


@pytest.mark.parametrize("kind", REGISTRIES)
def test_signatures_equal_those_of_the_registry(kind):
    """Parts read the source files without importing them; the registry holds the imported functions."""
    part, registry = config.PARTS[kind], REGISTRIES[kind]
    assert set(part.signatures()) == set(registry)
    for name in registry:
        options = registry.signature(name).parameters
        assert [p.name for p in part.signatures()[name]] == list(options)
        for parameter in part.signatures()[name]:
            assert parameter.default == options[parameter.name].default
            if parameter.annotation is not parameter.empty:
                assert parameter.annotation == options[parameter.name].annotation


def test_signatures_of_losses_equal_those_of_the_registry():
    signatures = config.Loss.signatures()
    assert set(signatures) == {*losses.LOSSES, *losses.BATCH_LOSSES}
    for name in [*signatures, "gumbel_softmax"]:
        provided = {*config.Loss.provided, "scores", "labels", "where", "weights"}
        names = {p.name for p in config.Loss.parameters(name)} - provided
        assert names == set(losses.option_names(name)) - provided
        defaults = losses.get(name).options
        assert config.Loss(name).options() == {option: defaults[option] for option in names}


@pytest.mark.parametrize("kind", config.PARTS)
def test_flags_can_parse_the_type_of_every_field(kind):
    for name in config.PARTS[kind].names():
        part = config.PARTS[kind](name)
        assert part.name == name
        assert isinstance(part, config.PARTS[kind])
        for field in dataclasses.fields(part):
            assert not isinstance(field.type, str)
            assert config.value_of(part, field.name) == field.default


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: config.Loss("softmx"), "loss='softmx': unknown. Did you mean 'softmax'"),
        (lambda: config.Loss("gumbel_sftmax"), "loss='gumbel_sftmax': unknown"),
        (
            lambda: config.Encoder("bert-base/uncased"),
            "bert-base/uncased': unknown. Nothing is downloaded",
        ),
        (lambda: config.Data(num_classes=3), "data.num_classes: dataset 'digits' has no such option. Choose"),
        (lambda: config.Loss("rankmax", temprature=1.0), "loss.temprature: .* Did you mean 'temperature'"),
        (lambda: config.Loss("mse", rank_fn="cnn"), "loss.rank_fn: loss 'mse' has no such option. Choose"),
    ],
)
def test_errors(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_unknown_fields_cannot_be_set():
    with pytest.raises(AttributeError):
        config.Loss("mse").temperature = 1.0
    with pytest.raises(AttributeError):
        config.Loss("mse").rank_fn = "cnn"
    assert config.Loss("mse").rank_fn is None


def test_swapped_keeps_changed_fields():
    softmax = config.Loss("softmax", temperature=0.5, final_temperature=0.1)
    assert softmax.swapped("rankmax") == config.Loss("rankmax", temperature=0.5, final_temperature=0.1)
    assert softmax.swapped("mse") == config.Loss("mse")
    assert config.Loss("softmax").swapped("approx_ndcg").temperature == 0.1  # the default of approx_ndcg


def test_parts_are_copied_and_compared_by_value():
    part = config.Data("text_file", path="x", held_out=("a",))
    assert copy.deepcopy(part) == part
    assert copy.deepcopy(part) is not part
    assert part != config.Data("text_file", path="x")
    assert dataclasses.replace(part, path="y").path == "y"


def test_options_omit_required_fields_that_are_not_set():
    assert "path" not in config.Encoder("bert").options()
    assert config.Encoder("bert", path="x").options()["path"] == "x"


@pytest.mark.nightly
def test_config_does_not_import_tensorflow():
    program = (
        "import sys; from rank4class.pipelines import config; config.Experiment(); "
        "assert 'tensorflow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
