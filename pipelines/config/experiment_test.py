import dataclasses
import pathlib

import pytest

from rank4class.pipelines import config

CONFIGS = pathlib.Path(__file__).parent / "configs"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data.name": "digit"}, "dataset='digit': unknown. Did you mean 'digits'"),
        ({"data.path": "x"}, "path: dataset 'digits' has no such option"),
        ({"data.max_examples": 0}, "data.max_examples 0 is not positive"),
        ({"data.augmentation": "flip"}, "data.augmentation 'flip' is unknown; there are: none, affine_flip"),
        ({"data.split_seed": -1}, "data.split_seed -1 is negative"),
        ({"precision": "float16"}, "precision 'float16' is unknown; there are: float32, mixed_float16"),
        ({"optimizer.ema_momentum": 1.0}, r"optimizer.ema_momentum 1.0 is not in \(0, 1\)"),
        ({"optimizer.clip_norm": 0.0}, "optimizer.clip_norm 0.0 is not positive"),
        ({"optimizer.clip_norm": 1e39}, r"optimizer.clip_norm 1e\+39 is not between 1e-30 and 1e\+30"),
        ({"optimizer.learning_rate": 1e-50}, "optimizer.learning_rate 1e-50 is not between 1e-30 and"),
        ({"accumulation_steps": 0}, "accumulation_steps 0 is not positive"),
        ({"checkpoint_steps": -1}, "checkpoint_steps -1 is not positive"),
        ({"batch_size": 2**40}, r"batch_size 1099511627776 is not below 2\*\*31"),
        ({"data.test_fraction": 0.2}, "test_fraction: dataset 'digits' has no such option"),
        ({"data.name": "synthetic", "data.num_classes": 0}, "data.num_classes 0 is not positive"),
        ({"data.name": "text_file", "data.test_fraction": 1.0}, r"data.test_fraction 1.0 is not in \(0, 1\)"),
        (
            {"encoder.name": "bert-base-uncased"},
            "encoder='bert-base-uncased': unknown. Nothing is downloaded: set encoder.name to 'bert' or ",
        ),
        (
            {"encoder.name": "google/electra-small"},
            r"encoder.path to the folder of a checkpoint \(config.json",
        ),
        ({"encoder.name": "small-cnn"}, "encoder='small-cnn': unknown. Did you mean 'small_cnn'"),
        ({"encoder.name": "mpl"}, "encoder='mpl': unknown. Did you mean 'mlp'"),
        ({"encoder.pooling": "mean"}, "pooling: encoder 'mlp' has no such option. It has: hidden, dropout"),
        ({"encoder.hidden": (3.5,)}, r"encoder.hidden \(3.5,\) is not of type tuple\[int, ...\]"),
        ({"encoder.frozen": 1}, "encoder.frozen 1 is not of type bool"),
        (
            {"class_encoder.name": "txt"},
            "class_encoder.name 'txt' is unknown; there are: embedding, text, frozen",
        ),
        (
            {"class_encoder.name": "attention"},
            "set class_encoder.attention_layers, and a name of embedding, ",
        ),
        ({"class_encoder.attention_layers": -1}, "class_encoder.attention_layers -1 is negative"),
        ({"class_encoder.attention_dropout": 1.0}, r"class_encoder.attention_dropout 1.0 is not in \[0, 1\)"),
        ({"class_encoder.texts": "names.tsv"}, "class_encoder.texts needs class_encoder.name='text'"),
        ({"class_encoder.path": "bert"}, "class_encoder.path needs class_encoder.name='frozen_text'"),
        (
            {
                "class_encoder.name": "text",
                "encoder.name": "bert",
                "encoder.path": "b",
                "encoder.frozen": True,
            },
            "class_encoder.name 'text' shares the instance encoder, which is frozen: set it to 'frozen_text'",
        ),
        (
            {"class_encoder.attention_layers": 1, "data.held_out": ("3",)},
            "class_encoder.attention_layers lets the other classes see those of data.held_out: use only one",
        ),
        (
            {"optimizer.name": "adamw", "optimizer.weight_decay": -0.1},
            "optimizer.weight_decay -0.1 is negative",
        ),
        ({"optimizer.weight_decay": -0.1}, "optimizer.weight_decay -0.1 is negative"),
        ({"encoder.weight_decay": -0.1}, "encoder.weight_decay -0.1 is negative"),
        ({"metrics": ()}, "metrics=..: there is nothing to report. Name a metric, such as 'ndcg@5'."),
        ({"data.path": pathlib.Path("x")}, r"data.path=PosixPath.'x'.: expected str. Write 'x'."),
        ({"steps": 0}, "steps 0 is not positive"),
        ({"encoder.name": "vgg16", "encoder.weight_decay": -1.0}, "encoder.weight_decay -1.0 is negative"),
        ({"interaction.units": 3}, "units: interaction 'dot' has no such option"),
        ({"loss.name": "softmx"}, "loss='softmx': unknown. Did you mean 'softmax'"),
        ({"loss.kappa": 2.0}, "kappa: loss 'softmax' has no such option. It has: temperature"),
        ({"loss.temperature": 0.0}, "loss.temperature 0.0 is not positive"),
        ({"optimizer.name": "sgd"}, "optimizer.name 'sgd' is unknown; there are: adam, adamw, adagrad"),
        ({"optimizer.decay": "cubic"}, "optimizer.decay 'cubic' is unknown; there are: none, linear, cosine"),
        ({"optimizer.learning_rate": -1.0}, "optimizer.learning_rate -1.0 is not positive"),
        ({"optimizer.learning_rate": float("nan")}, "optimizer.learning_rate nan is not a finite number"),
        ({"epochs": float("inf")}, "epochs inf is not a finite number"),
        ({"encoder.hidden": ()}, r"encoder.hidden \(\) leaves encoder 'mlp' without a layer"),
        ({"encoder.name": "small_cnn", "encoder.filters": ()}, r"encoder.filters \(\) is not positive"),
        ({"encoder.hidden": (8, 0)}, r"encoder.hidden \(8, 0\) is not positive"),
        ({"encoder.dropout": 1.0}, r"encoder.dropout 1.0 is not in \[0, 1\)"),
        ({"encoder.frozen": True}, "encoder.frozen needs encoder.path"),
        ({"interaction.name": "lc_mlp", "interaction.units": 0}, "interaction.units 0 is not positive"),
        ({"loss.name": "rescaled_mse", "loss.kappa": -3.0}, "kappa=-3.0: not positive"),
        ({"loss.name": "ordinal"}, "loss 'ordinal' needs several scores a class"),
        ({"loss.name": "gumbel_list_mle"}, "list_mle draws noise already"),
        (
            {"loss.name": "pairwise_hinge", "loss.lambda_weight": "ndgc"},
            "lambda_weight='ndgc': unknown. Choose one of",
        ),
        (
            {"loss.name": "pairwise_logistic", "loss.normalize": "mean"},
            "normalize='mean': unknown. Choose one of",
        ),
        ({"metrics": ("top0_error", "ndcg@5")}, "top0_error needs K of at least 1, got 0"),
        ({"optimizer.warmup_fraction": 1.0}, r"optimizer.warmup_fraction 1.0 is not in \[0, 1\)"),
        ({"optimizer.weight_decay": 0.1}, "optimizer.weight_decay 0.1 needs optimizer.name='adamw'"),
        ({"loss.name": "rankmax", "loss.k": 0}, "loss.k 0 is not positive"),
        ({"loss.final_temperature": -1.0}, "loss.final_temperature -1.0 is not positive"),
        (
            {"loss.name": "mse", "loss.final_temperature": 0.5},
            "loss.final_temperature: loss 'mse' has no temperature",
        ),
        ({"batch_size": 0}, "batch_size 0 is not positive"),
        ({"batch_size": 2.5}, "batch_size 2.5 is not of type int"),
        ({"epochs": 0.0}, "epochs 0.0 is not positive"),
        ({"patience": -1}, "patience -1 is negative"),
        ({"seed": -1}, r"seed -1 is not in 0 \.\. 2\*\*32 - 1"),
        ({"metrics": ("ndgc",)}, "monitor 'ndcg@5' is not among the metrics ndgc"),
        ({"metrics": ("ndcg@5", "ndgc")}, "metric='ndgc': unknown"),
    ],
)
def test_what_cannot_run_is_refused(changes, message):
    config.check(config.Experiment())
    with pytest.raises(ValueError, match=message):
        config.check(config.override(config.Experiment(), changes))


@pytest.mark.parametrize("changes", [{"encoder.name": "bert"}, {"encoder.frozen": True}])
def test_a_description_of_the_data_needs_no_weights(changes):
    experiment = config.override(config.Experiment(), changes)
    config.check(experiment, trains=False)
    with pytest.raises(ValueError, match="path: encoder 'bert' requires it|needs encoder.path"):
        config.check(experiment)
    with pytest.raises(ValueError, match="units: encoder 'bert' has no such option"):
        config.check(config.override(experiment, {"encoder.name": "bert", "encoder.units": 3}), trains=False)


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"loss": "softmax"}, r"^loss='softmax': expected config.Loss. Write config.Loss.name='softmax'.\.$"),
        ({"data": None}, r"^data=None: expected config.Data. Write config.Data.....\.$"),
        ({"encoder": {"name": "mlp"}}, r"^encoder=..name.: 'mlp'.: expected config.Encoder. Write config."),
        ({"optimizer": config.Loss()}, r"^optimizer=Loss.*: expected config.Optimizer. Write config."),
    ],
)
def test_a_section_of_another_type_is_named(sections, message):
    with pytest.raises(ValueError, match=message):
        config.check(config.Experiment(**sections))


def test_override_leaves_the_original_alone():
    first = config.Experiment()
    second = config.override(first, {"loss.name": "mse", "seed": 3})
    assert (first.loss.name, first.seed) == ("softmax", 0)
    assert config.first_difference(first, second) == ("loss.name", "softmax", "mse")
    assert config.first_difference(first, config.Experiment()) is None
    with pytest.raises(ValueError, match=r"no field 'los.name', did you mean 'loss.name'\?"):
        config.override(first, {"los.name": "mse"})


def test_json_round_trip():
    experiment = config.override(config.Experiment(), {"encoder.hidden": (3, 4), "loss.temperature": 0.5})
    assert config.from_json(config.to_json(experiment), "x") == experiment
    with pytest.raises(
        ValueError, match="config.json has the field 'colour', which Experiment does not know"
    ):
        config.from_json('{"colour": 3}', "config.json")
    for text in ("[]", "null", '{"loss": "mse"}'):
        with pytest.raises(
            ValueError, match="config.json has .* where the fields of (Experiment|Loss) should stand"
        ):
            config.from_json(text, "config.json")
    with pytest.raises(ValueError, match=r"config.json:2 is not JSON"):
        config.from_json("{\n", "config.json")


def test_fields_that_a_loss_or_an_interaction_does_not_take():
    changes = {
        "interaction.units": 8,
        "loss.temperature": 0.5,
        "loss.final_temperature": 0.1,
        "loss.l1_epochs": 1,
    }
    base = config.override(config.Experiment(), changes)
    lc_mlp = config.override(base, {"interaction.name": "lc_mlp"})
    assert config.foreign_fields(lc_mlp) == {"loss.l1_epochs": None}
    fine_tuned = config.override(base, {"loss.name": "mse", "loss.rank_fn": "cnn", "loss.fine_tune": True})
    assert config.foreign_fields(fine_tuned) == {
        "loss.temperature": None,
        "interaction.units": None,
        "loss.final_temperature": None,
        "loss.rank_fn": None,
        "loss.fine_tune": False,
        "loss.l1_epochs": None,
    }
    assert config.foreign_fields(config.Experiment()) == {}


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("[a-z]*.py")), ids=lambda path: path.stem)
def test_every_config_is_sound_and_says_how_to_run_it(path):
    namespace = {}
    exec(compile(path.read_text(), str(path), "exec"), namespace)
    try:
        experiment = namespace["get_config"]()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    if "--config.encoder.path=CHECKPOINT" in namespace["__doc__"]:
        experiment.encoder.path = "CHECKPOINT"  # which the command gives
    config.check(experiment)
    for word in (f"--config={path.stem} ", "Running time:", "Expected"):
        assert word in namespace["__doc__"], f"{path.name} does not say {word}"


def test_every_field_has_a_type_that_flags_can_parse():
    for section in (config.Data, config.Encoder, config.Loss, config.Optimizer, config.Experiment):
        assert all(not isinstance(field.type, str) for field in dataclasses.fields(section))
