"""Experiments that cannot run, and the error of each."""

import pathlib

import pytest

from rank4class.pipelines import config
from rank4class.pipelines.task import checks


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"data.name": "digit"},
            r"data='digit': unknown\. Did you mean 'digits'\? There are: cifar10, digits,",
        ),
        ({"data.path": "x"}, "path: dataset 'digits' has no such option"),
        ({"data.max_examples": 0}, r"data\.max_examples=0: not positive\. Choose a positive number\."),
        (
            {"data.augmentation": "flip"},
            r"data\.augmentation='flip': unknown\. There are: none, affine_flip, random_crop\.",
        ),
        ({"data.split_seed": -1}, r"data\.split_seed=-1: too small\. Choose at least 0\."),
        (
            {"precision": "float16"},
            r"precision='float16': unknown\. There are: float32, mixed_float16, mixed_bfloat16\.",
        ),
        (
            {"optimizer.ema_momentum": 1.0},
            r"optimizer\.ema_momentum=1\.0: not in \(0, 1\)\. Choose another value\.",
        ),
        (
            {"optimizer.clip_norm": 0.0},
            r"optimizer\.clip_norm=0\.0: not positive\. Choose a positive number\.",
        ),
        (
            {"optimizer.clip_norm": 1e39},
            r"optimizer\.clip_norm=1e\+39: magnitude not between 1e-30 and 1e\+30\. Change it\.",
        ),
        (
            {"optimizer.learning_rate": 1e-50},
            r"optimizer\.learning_rate=1e-50: magnitude not between 1e-30 and 1e\+30\. Change it\.",
        ),
        ({"accumulation_steps": 0}, r"accumulation_steps=0: not positive\. Choose a positive number\."),
        ({"checkpoint_steps": -1}, r"checkpoint_steps=-1: not positive\. Choose a positive number\."),
        (
            {"batch_size": 2**40},
            r"batch_size=1099511627776: magnitude of 2\*\*31 or more\. Choose a smaller number\.",
        ),
        ({"data.test_fraction": 0.2}, "test_fraction: dataset 'digits' has no such option"),
        (
            {"encoder.name": "bert-base-uncased"},
            "encoder='bert-base-uncased': unknown. Nothing is downloaded: set encoder.name to 'bert' or ",
        ),
        (
            {"encoder.name": "google/electra-small"},
            r"encoder.path to the folder of a checkpoint \(config.json",
        ),
        ({"encoder.name": "small-cnn"}, "encoder='small-cnn': unknown. Did you mean 'small_cnn'"),
        (
            {"metrics": ("ndcg@5", "ndcg@5")},
            r"metrics=\('ndcg@5', 'ndcg@5'\): 'ndcg@5' is repeated\. Name it",
        ),
        ({"encoder.name": "mpl"}, "encoder='mpl': unknown. Did you mean 'mlp'"),
        (
            {"encoder.pooling": "mean"},
            r"encoder\.pooling: encoder 'mlp' has no such option\. Choose an entry that has it with",
        ),
        (
            {"encoder.hidden": (3.5,)},
            r"encoder\.hidden=\(3\.5,\): expected tuple\[int, \.\.\.\]\. Change its type\.",
        ),
        (
            {"encoder.name": "bert", "encoder.path": "b", "encoder.frozen": 1},
            r"encoder\.frozen=1: expected bool\. Change its type\.",
        ),
        (
            {"class_encoder.name": "txt"},
            r"class_encoder='txt': unknown\. Did you mean 'text'\? There are: embedding, text,",
        ),
        (
            {"class_encoder.name": "attention"},
            r"class_encoder='attention': unknown\. There are: embedding, text, frozen_text\.",
        ),
        (
            {"class_encoder.attention_layers": -1},
            r"class_encoder\.attention_layers=-1: too small\. Choose at least 0\.",
        ),
        (
            {"class_encoder.attention_dropout": 1.0},
            r"class_encoder\.attention_dropout=1\.0: not in \[0, 1\)\. Choose another value\.",
        ),
        (
            {"class_encoder.attention_heads": 7},
            r"class_encoder\.attention_heads=7: has no effect without attention\. Set class_encoder",
        ),
        (
            {"class_encoder.attention_dropout": 0.5},
            r"class_encoder\.attention_dropout=0\.5: has no effect without attention\. Set class_encoder\.",
        ),
        (
            {"class_encoder.texts": "names.tsv"},
            r"class_encoder\.texts: class_encoder 'embedding' has no such option\. Choose an entry that",
        ),
        (
            {"class_encoder.path": "bert"},
            r"class_encoder\.path: class_encoder 'embedding' has no such option\. Choose an entry that",
        ),
        (
            {
                "class_encoder.name": "text",
                "encoder.name": "bert",
                "encoder.path": "b",
                "encoder.frozen": True,
            },
            r"class_encoder\.name='text': it shares the instance encoder, which is frozen\. Use",
        ),
        (
            {"class_encoder.attention_layers": 1, "data.held_out": ("3",)},
            r"class_encoder\.attention_layers=1: the training classes would attend to those of",
        ),
        (
            {"optimizer.name": "adamw", "optimizer.weight_decay": -0.1},
            r"optimizer\.weight_decay=-0\.1: too small\. Choose at least 0\.",
        ),
        (
            {"optimizer.weight_decay": -0.1},
            r"optimizer\.weight_decay: optimizer 'adam' has no such option\. Choose an entry that has it",
        ),
        (
            {"encoder.weight_decay": -0.1},
            r"encoder\.weight_decay: encoder 'mlp' has no such option\. Choose an entry that has it",
        ),
        ({"metrics": ()}, "metrics=..: there is nothing to report. Name a metric, such as 'ndcg@5'."),
        (
            {"data.name": "goemotions", "data.path": pathlib.Path("x")},
            "data.path=PosixPath.'x'.: expected str. Write 'x'.",
        ),
        ({"steps": 5, "epochs": 3.0}, r"steps=5: epochs=3\.0 is set too\. Set one of them\."),
        ({"steps": 0}, r"steps=0: not positive\. Choose a positive number\."),
        (
            {"encoder.name": "items", "encoder.weight_decay": -1.0},
            r"encoder\.weight_decay=-1\.0: too small\. Choose at least 0\.",
        ),
        ({"interaction.units": 3}, "units: interaction 'dot' has no such option"),
        ({"loss.name": "softmx"}, "loss='softmx': unknown. Did you mean 'softmax'"),
        (
            {"loss.kappa": 2.0},
            r"loss\.kappa: loss 'softmax' has no such option\. Choose an entry that has it with --loss:",
        ),
        ({"loss.temperature": 0.0}, r"loss\.temperature=0\.0: not positive\. Choose a positive number\."),
        (
            {"loss.label_smoothing": 1.0},
            r"loss\.label_smoothing=1\.0: not in \[0, 1\)\. Choose another value\.",
        ),
        (
            {"optimizer.name": "adamax"},
            r"optimizer='adamax': unknown\. Did you mean 'adam'\? There are: adam, lazy_adam,",
        ),
        (
            {"optimizer.name": "sgd", "optimizer.momentum": 1.0},
            r"optimizer\.momentum=1\.0: not in \[0, 1\)\. Choose another value\.",
        ),
        (
            {"optimizer.name": "sgd", "optimizer.nesterov": True},
            r"optimizer\.nesterov=True: it has no effect without momentum\. Set momentum\.",
        ),
        (
            {"optimizer.name": "lazy_adam", "accumulation_steps": 2},
            r"accumulation_steps=2: not supported by optimizer 'lazy_adam'.* Set accumulation_steps to 1, or",
        ),
        (
            {"optimizer.name": "lazy_adam", "jit_compile": True},
            r"jit_compile=True: not supported by optimizer 'lazy_adam'",
        ),
        (
            {"optimizer.decay": "cubic"},
            r"optimizer\.decay='cubic': unknown\. There are: none, linear, cosine, step\.",
        ),
        (
            {"optimizer.learning_rate": -1.0},
            r"optimizer\.learning_rate=-1\.0: not positive\. Choose a positive number\.",
        ),
        (
            {"optimizer.learning_rate": float("nan")},
            r"optimizer\.learning_rate=nan: not a finite number\. Choose one\.",
        ),
        ({"epochs": float("inf")}, r"epochs=inf: not a finite number\. Choose one\."),
        ({"encoder.hidden": ()}, r"encoder\.hidden=\(\): at least 1 needed\. Add a width\."),
        (
            {"encoder.name": "small_cnn", "encoder.filters": ()},
            r"encoder\.filters=\(\): at least 1 needed\.",
        ),
        ({"encoder.hidden": (8, 0)}, r"encoder\.hidden=\(8, 0\): 0 is not a positive integer\. Choose one\."),
        ({"encoder.dropout": 1.0}, r"encoder\.dropout=1\.0: not in \[0, 1\)\. Choose another value\."),
        (
            {"encoder.name": "resnet50", "encoder.frozen": True},
            "requires pretrained weights",
        ),
        (
            {"interaction.name": "lc_mlp", "interaction.units": 0},
            r"interaction\.units=0: not an integer of at least 1\. Choose one\.",
        ),
        ({"loss.name": "rescaled_mse", "loss.kappa": -3.0}, "kappa=-3.0: not positive"),
        (
            {"loss.name": "ordinal"},
            r"loss\.name='ordinal': it does not accept class scores\. Compile a Keras model with it",
        ),
        ({"loss.name": "gumbel_list_mle"}, "list_mle draws noise already"),
        (
            {"loss.name": "pairwise_hinge", "loss.lambda_weight": "ndgc"},
            "lambda_weight='ndgc': unknown. There are:",
        ),
        (
            {"loss.name": "pairwise_logistic", "loss.normalize": "mean"},
            "normalize='mean': unknown. There are:",
        ),
        ({"metrics": ("top0_error", "ndcg@5")}, "top0_error: k=0: not an integer of at least 1"),
        (
            {"optimizer.warmup_fraction": 1.0},
            r"optimizer\.warmup_fraction=1\.0: not in \[0, 1\)\. Choose another value\.",
        ),
        (
            {"optimizer.decay": "step"},
            r"optimizer\.decay_epochs=None: decay 'step' requires it\. Set it, such as to 100\.",
        ),
        (
            {"optimizer.decay": "step", "optimizer.decay_epochs": 1.0, "optimizer.decay_factor": 1.0},
            r"optimizer\.decay_factor=1\.0: not in \(0, 1\)\. Choose another value\.",
        ),
        (
            {"optimizer.decay": "linear", "optimizer.decay_epochs": 3.0},
            r"optimizer\.decay_epochs=3\.0: it has no effect with decay 'linear'\. Leave it out, or",
        ),
        (
            {"optimizer.weight_decay": 0.1},
            r"optimizer\.weight_decay: optimizer 'adam' has no such option\. .*--optimizer: adamw\.",
        ),
        ({"loss.name": "rankmax", "loss.k": 0}, r"loss\.k=0: not an integer in 1\.\.2\. Choose one\."),
        (
            {"loss.final_temperature": -1.0},
            r"loss\.final_temperature=-1\.0: not positive\. Choose a positive number\.",
        ),
        (
            {"loss.name": "mse", "loss.final_temperature": 0.5},
            r"loss\.final_temperature: loss 'mse' has no such option\. Choose an entry that has it with",
        ),
        ({"batch_size": 0}, r"batch_size=0: not positive\. Choose a positive number\."),
        ({"batch_size": 2.5}, r"batch_size=2\.5: expected int\. Change its type\."),
        ({"epochs": -1.0}, r"epochs=-1\.0: too small\. Choose at least 0\."),
        (
            {"class_encoder.init": "mean"},
            r"class_encoder\.init='mean': unknown\. There are: random, zeros, names",
        ),
        (
            {"class_encoder.init": "means"},
            r"class_encoder\.init='means': needs the vectors of a pretrained encoder\. Set encoder\.path\.",
        ),
        ({"patience": -1}, r"patience=-1: too small\. Choose at least 0\."),
        ({"seed": -1}, r"seed=-1: not an integer in 0\.\.4294967295\. Choose one\."),
        ({"metrics": ("ndgc",)}, r"monitor='ndcg@5': not among the metrics\. Choose one of: ndgc\."),
        ({"metrics": ("ndcg@5", "ndgc")}, "metric='ndgc': unknown"),
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
        ({"loss": "softmax"}, r"^loss='softmax': expected config.Loss. Write config.Loss.name='softmax'.\.$"),
        ({"data": None}, r"^data=None: expected config.Data. Write config.Data.....\.$"),
        ({"encoder": {"name": "mlp"}}, r"^encoder=..name.: 'mlp'.: expected config.Encoder. Write config."),
        ({"optimizer": config.Loss()}, r"^optimizer=Loss.*: expected config.Optimizer. Write config."),
    ],
)
def test_sections_of_wrong_type(sections, message):
    with pytest.raises(ValueError, match=message):
        checks.check(config.Experiment(**sections))
