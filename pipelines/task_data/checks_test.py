"""Experiments that cannot run, and the error of each."""

import pathlib

import pytest

from rank4class.pipelines import config
from rank4class.pipelines.task_data import checks


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data.name": "digit"}, r"data='digit': unknown\. Did you mean 'digits'\? There are: cifar10,"),
        ({"data.path": "x"}, "data.path: dataset 'digits' has no such option. Choose"),
        ({"data.max_examples": 0}, r"data\.max_examples=0: not positive\. Choose a positive number\."),
        ({"data.augmentation": "turn"}, r"data\.augmentation='turn': unknown\. There are: none,"),
        ({"data.split_seed": -1}, r"data\.split_seed=-1: too small\. Choose at least 0\."),
        ({"precision": "float16"}, r"precision='float16': unknown\. There are: float32, mixed_float16,"),
        ({"optimizer.ema_momentum": 1.0}, r"optimizer\.ema_momentum=1\.0: not in \(0, 1\)\. Choose another"),
        ({"optimizer.clip_norm": 0.0}, r"optimizer\.clip_norm=0\.0: not positive\. Choose a positive"),
        ({"checkpoint_steps": -1}, r"checkpoint_steps=-1: not positive\. Choose a positive number\."),
        (
            {"encoder.name": "bert-base/uncased"},
            "unknown. Nothing is downloaded: set encoder.path to the folder of a checkpoint",
        ),
        ({"encoder.name": "small-cnn"}, "encoder='small-cnn': unknown. Did you mean 'small_cnn'"),
        ({"encoder.pooling": "mean"}, r"encoder\.pooling: encoder 'mlp' has no such option\. Choose an"),
        ({"encoder.hidden": (3.5,)}, r"encoder\.hidden=\(3\.5,\): expected tuple\[int, \.\.\.\]\. Change"),
        ({"encoder.name": "bert", "encoder.path": "b", "encoder.frozen": 1}, r"encoder\.frozen=1: expected"),
        ({"class_encoder.texts": "names.tsv"}, r"class_encoder\.texts: class_encoder 'embedding' has no"),
        (
            {
                "class_encoder.name": "text",
                "encoder.name": "bert",
                "encoder.path": "b",
                "encoder.frozen": True,
            },
            r"class_encoder\.name='text': it shares the instance encoder, which is frozen\. Use",
        ),
        ({"optimizer.name": "adamw", "optimizer.weight_decay": -0.1}, r"optimizer\.weight_decay=-0\.1: too"),
        ({"optimizer.weight_decay": 0.1}, r"weight_decay: optimizer 'adam' has no .*--optimizer: adamw\."),
        ({"metrics": ()}, "monitor='ndcg@5': not among the metrics."),
        (
            {"data.name": "goemotions", "data.path": pathlib.Path("x")},
            "data.path=.*: expected str . None. Change its type.",
        ),
        ({"steps": 5, "epochs": 3.0}, r"steps=5: epochs=3\.0 is set too\. Set one of them\."),
        ({"encoder.name": "items", "encoder.weight_decay": -1.0}, r"encoder\.weight_decay=-1\.0: too"),
        ({"loss.temperature": 0.0}, r"loss\.temperature=0\.0: not positive\. Choose a positive number\."),
        ({"loss.label_smoothing": 1.0}, r"loss\.label_smoothing=1\.0: not in \[0, 1\)\. Choose another"),
        ({"optimizer.name": "sgd", "optimizer.momentum": 1.0}, r"optimizer\.momentum=1\.0: not in \[0,"),
        ({"optimizer.name": "lazy_adam", "accumulation_steps": 2}, "accumulation_steps=2: not supported by"),
        ({"optimizer.name": "lazy_adam", "jit_compile": True}, "jit_compile=True: not supported by"),
        ({"optimizer.decay": "cubic"}, r"optimizer\.decay='cubic': unknown\. There are: none, linear,"),
        ({"optimizer.learning_rate": float("nan")}, r"optimizer\.learning_rate=nan: not a finite number\."),
        ({"epochs": float("inf")}, r"epochs=inf: not a finite number\. Choose one\."),
        ({"encoder.hidden": ()}, r"encoder\.hidden=\(\): at least 1 needed\. Add a width\."),
        ({"encoder.name": "small_cnn", "encoder.filters": ()}, r"encoder\.filters=\(\): at least 1 needed\."),
        ({"encoder.hidden": (8, 0)}, r"encoder\.hidden=0: not an integer of at least 1\. Choose one\."),
        ({"encoder.dropout": 1.0}, r"encoder\.dropout=1\.0: not in \[0, 1\)\. Choose another value\."),
        ({"encoder.name": "resnet50", "encoder.frozen": True}, "requires pretrained weights"),
        ({"interaction.name": "lc_mlp", "interaction.units": 0}, r"interaction\.units=0: not an integer of"),
        ({"loss.name": "rescaled_mse", "loss.kappa": -3.0}, "kappa=-3.0: not positive"),
        ({"loss.name": "ordinal"}, r"loss\.name='ordinal': it does not accept class scores\. Compile a"),
        ({"loss.name": "gumbel_list_mle"}, "list_mle draws noise already"),
        ({"loss.name": "pairwise_hinge", "loss.lambda_weight": "ndgc"}, "lambda_weight='ndgc': unknown."),
        ({"loss.name": "pairwise_logistic", "loss.normalize": "mean"}, "normalize='mean': unknown. There"),
        ({"metrics": ("top0_error", "ndcg@5")}, "top0_error: k=0: not an integer of at least 1"),
        ({"optimizer.warmup_fraction": 1.0}, r"optimizer\.warmup_fraction=1\.0: not in \[0, 1\)\. Choose"),
        ({"loss.name": "rankmax", "loss.k": 0}, r"loss\.k=0: not an integer in 1\.\.2\. Choose one\."),
        ({"loss.final_temperature": -1.0}, r"loss\.final_temperature=-1\.0: not positive\. Choose a"),
        ({"loss.name": "mse", "loss.final_temperature": 0.5}, r"loss\.final_temperature: loss 'mse' has no"),
        ({"batch_size": 2.5}, r"batch_size=2\.5: expected int\. Change its type\."),
        ({"epochs": -1.0}, r"epochs=-1\.0: too small\. Choose at least 0\."),
        ({"class_encoder.init": "mean"}, r"class_encoder\.init='mean': unknown\. There are: random, zeros,"),
        ({"class_encoder.init": "means"}, r"class_encoder\.init='means': needs the vectors of a pretrained"),
        ({"seed": -1}, r"seed=-1: not an integer in 0\.\.4294967295\. Choose one\."),
        ({"metrics": ("mrr",)}, r"monitor='ndcg@5': not among the metrics\. Choose one of: mrr\."),
        ({"metrics": ("ndgc",)}, "metric='ndgc': unknown"),
        ({"metrics": ("ndcg@5", "ndgc")}, "metric='ndgc': unknown"),
        ({"loss.name": "gumbel_sftmax"}, "loss='gumbel_sftmax': unknown"),
        ({"loss.prior_temperature": -0.5}, r"loss\.prior_temperature=-0\.5: too small\. Choose at least 0"),
        (
            {
                "loss.name": "mean_average_precision",
                "loss.rank_fn": "sigmoid",
                "loss.prior_temperature": 1.0,
            },
            r"loss\.prior_temperature=1\.0: loss 'mean_average_precision' ranks",
        ),
        ({"calibration": "beta"}, r"calibration='beta': unknown\. There are: auto, none"),
        (
            {"thresholds.name": "precision"},
            r"thresholds\.at_least: thresholds 'precision' requires it\. Set it\.",
        ),
        (
            {"thresholds.name": "recall", "thresholds.at_least": 1.0},
            r"thresholds\.at_least=1\.0: not in \(0, 1\)\. Choose another value\.",
        ),
        (
            {"thresholds.name": "f1", "thresholds.at_least": 0.5},
            r"thresholds\.at_least: thresholds 'f1' has no such option",
        ),
        ({"thresholds.name": "f2"}, r"thresholds='f2': unknown\. There are: none, f1, precision, recall\."),
    ],
)
def test_experiments_that_cannot_run_are_refused(changes, message):
    checks.check(config.Experiment())
    with pytest.raises(ValueError, match=message):
        checks.check(config.override(config.Experiment(), changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encoder.name": "bert"}, "encoder.path: encoder 'bert' requires it. Set it."),
        ({"encoder.name": "resnet50", "encoder.frozen": True}, "encoder requires pretrained weights. Set"),
    ],
)
def test_describing_data_requires_no_weights(changes, message):
    experiment = config.override(config.Experiment(), changes)
    checks.check(experiment, trains=False)
    with pytest.raises(ValueError, match=message):
        checks.check(experiment)


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"loss": "softmax"}, r"^loss='softmax': expected Loss\. Change its type\.$"),
        ({"data": None}, r"^data=None: expected Data\. Change its type\.$"),
        ({"encoder": {"name": "mlp"}}, r"^encoder=..name.: 'mlp'.: expected Encoder\. Change its type\.$"),
        ({"optimizer": config.Loss()}, r"^optimizer=Loss.*: expected Optimizer\. Change its type\.$"),
    ],
)
def test_sections_of_wrong_type(sections, message):
    with pytest.raises(ValueError, match=message):
        checks.check(config.Experiment(**sections))
