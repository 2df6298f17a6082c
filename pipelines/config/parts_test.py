"""Parts of an experiment: their classes follow from the registered signatures."""

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
def test_signatures_are_those_of_the_registry(kind):
    """The source files are read without importing them; the registry knows the imported functions."""
    part, registry = config.PARTS[kind], REGISTRIES[kind]
    assert set(part.signatures()) == set(registry)
    for name in registry:
        options = registry.signature(name).parameters
        assert [p.name for p in part.signatures()[name]] == list(options)
        for parameter in part.signatures()[name]:
            assert parameter.default == options[parameter.name].default
            if parameter.annotation is not parameter.empty:
                assert parameter.annotation == options[parameter.name].annotation


def test_signatures_of_losses_are_those_of_the_registry():
    signatures = config.Loss.signatures()
    assert set(signatures) == {*losses.LOSSES, *losses.BATCH_LOSSES}
    for name in [*signatures, "gumbel_softmax"]:
        provided = {*config.Loss.provided, "scores", "labels", "where", "weights"}
        names = {p.name for p in config.Loss.parameters(name)} - provided
        assert names == set(losses.option_names(name)) - provided
        defaults = losses.get(name).options
        assert config.Loss(name).options() == {option: defaults[option] for option in names}


@pytest.mark.parametrize("kind", config.PARTS)
def test_every_field_has_a_type_that_flags_can_parse(kind):
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
def test_mistakes_are_named(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_a_field_that_a_part_lacks_cannot_be_set():
    with pytest.raises(AttributeError):
        config.Loss("mse").temperature = 1.0
    with pytest.raises(AttributeError):
        config.Loss("mse").rank_fn = "cnn"
    assert config.Loss("mse").rank_fn is None


def test_a_swapped_part_keeps_the_changed_fields_that_it_has():
    softmax = config.Loss("softmax", temperature=0.5, final_temperature=0.1)
    assert softmax.swapped("rankmax") == config.Loss("rankmax", temperature=0.5, final_temperature=0.1)
    assert softmax.swapped("mse") == config.Loss("mse")
    assert config.Loss("softmax").swapped("approx_ndcg").temperature == 0.1  # its own default


def test_a_part_is_copied_and_compared_by_value():
    part = config.Data("text_file", path="x", held_out=("a",))
    assert copy.deepcopy(part) == part
    assert copy.deepcopy(part) is not part
    assert part != config.Data("text_file", path="x")
    assert dataclasses.replace(part, path="y").path == "y"


def test_options_leave_out_what_is_required_and_not_set():
    assert "path" not in config.Encoder("bert").options()
    assert config.Encoder("bert", path="x").options()["path"] == "x"


@pytest.mark.nightly
def test_nothing_here_imports_tensorflow():
    program = (
        "import sys; from rank4class.pipelines import config; config.Experiment(); "
        "assert 'tensorflow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
