"""Parts of an experiment, with the options of registered functions and classes."""

import copy
import pathlib
from typing import Literal

import pytest

from rank4class import losses, registry
from rank4class.pipelines import config


@pytest.mark.usefixtures("restored_registries")
def test_signatures_json_has_the_signatures_of_the_package():
    """Commands read the options of the package's entries from it, since the modules import TensorFlow."""
    path = pathlib.Path(registry.__file__).with_name("signatures.json")
    assert path.read_text() == registry.signatures(), "run: rank4class render_docs"


@pytest.mark.parametrize("kind", config.PARTS)
def test_options_of_signatures_equal_those_of_imported_functions(kind, monkeypatch):
    entries = config.PARTS[kind].entries
    names = [name for name in entries if entries[name] and entries.module_of_user(name) is None]
    imported = {name: list(entries.options(name).items()) for name in names}
    monkeypatch.setattr(entries, "_entries", {})
    assert imported == {name: list(entries.options(name).items()) for name in entries}


GAMMA = 2.0


def focal(
    scores, labels, *, where=None, weights=None, gamma: float = GAMMA, form: "Literal['a', 'b'] | None" = "a"
):
    """A loss with a default that is a constant of the module, and a choice."""


@pytest.mark.usefixtures("restored_registries")
def test_constants_choices_and_names_for_type_checkers():
    registered = losses.LOSSES.register  # under another name than in the package
    registered("focal")(focal)
    options = config.Loss("focal").fields
    assert options["gamma"] == (float, 2.0)
    assert options["form"] == (str | None, "a")

    @losses.LOSSES.register("unknown_type")
    def unknown_type(scores, labels, *, where=None, weights=None, form: "Unknown"):  # noqa: F821
        pass

    with pytest.raises(ValueError, match=r"loss='unknown_type': argument 'form' has no default"):
        config.Loss("unknown_type")


def test_options_of_losses_equal_those_of_the_functions():
    for name in [*config.Loss.names(), "gumbel_softmax"]:
        options = config.Loss(name).options()
        defaults = losses.get(name).options
        assert set(options) == set(losses.option_names(name)) - set(config.Loss.provided)
        assert options == {option: defaults[option] for option in options}


@pytest.mark.parametrize("kind", config.PARTS)
def test_flags_can_parse_the_type_of_every_field(kind):
    for name in config.PARTS[kind].names():
        part = config.PARTS[kind](name)
        assert part.name == name
        assert isinstance(part, config.PARTS[kind])
        for field, (kind_of_values, default, *_) in part.fields.items():
            assert default is None or kind_of_values
            assert getattr(part, field) == default


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
    assert copy.copy(part) == part


def test_options_omit_required_fields_that_are_not_set():
    assert "path" not in config.Encoder("bert").options()
    assert config.Encoder("bert", path="x").options()["path"] == "x"


def test_the_path_of_an_encoder_chooses_it(tmp_path):
    base = config.Experiment(encoder=config.Encoder("bert", path="other", pooling="mean", dropout=0.2))
    (tmp_path / "config.json").write_text('{"model_type": "mpnet"}')
    folder = str(tmp_path)
    chosen = config.override(base, {"encoder.path": folder, "encoder.dropout": 0.3}).encoder
    assert chosen == config.Encoder("mpnet", path=folder, pooling="mean", dropout=0.3)
    named = config.override(base, {"encoder.path": folder, "encoder.name": "electra"}).encoder
    assert named.name == "electra"
    (tmp_path / "config.json").write_text('{"model_type": "model2vec"}')
    assert config.override(base, {"encoder.path": folder}).encoder == config.Encoder("static", path=folder)
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')  # is refused when it is loaded
    for path in (folder, str(tmp_path / "checkpoint.ckpt"), None):
        assert config.override(base, {"encoder.path": path}).encoder.name == "bert"
