r"""GoEmotions with ELECTRA base (Rank4Class, Table 8).

    python -m rank4class.scripts.train --config=goemotions_electra \
        --config.data.path=FOLDER --config.encoder.path=CHECKPOINT --workdir=runs/goemotions_electra

CHECKPOINT is ELECTRA-Base, in any format that `models.checkpoints` reads; the paper uses google-research's.
FOLDER and all other settings are those of `goemotions_bert`.

Running time: not measured; it requires an accelerator. Expected in percent, softmax with dot, by the paper:
top-1 error 38.45, top-5 error 10.45, NDCG@5 76.96.
"""

from rank4class.pipelines import config
from rank4class.pipelines.configs import goemotions_bert


def get_config() -> config.Experiment:
    experiment = goemotions_bert.get_config()
    experiment.encoder = config.Encoder(name="electra", pooling="cls", dropout=0.1, output_dropout=0.1)
    return experiment
