r"""MIND with BERT base (Rank4Class, Table 9).

    python -m rank4class.scripts.train --config=mind_bert \
        --config.data.path=FOLDER --config.encoder.path=CHECKPOINT --workdir=runs/mind_bert

FOLDER holds MIND's published folders. CHECKPOINT and all other settings are those of `goemotions_bert`.

Running time: not measured; it requires an accelerator. Expected in percent, softmax with dot, by the paper:
top-1 error 30.90, top-5 error 6.15, NDCG@5 82.78.
"""

from rank4class.pipelines import config
from rank4class.pipelines.configs import goemotions_bert


def get_config() -> config.Experiment:
    experiment = goemotions_bert.get_config()
    experiment.data = config.Data(name="mind", max_length=128)
    return experiment
