r"""MIND with ELECTRA base (Rank4Class, Table 10).

    python -m rank4class.scripts.train --config=mind_electra \
        --config.data.path=FOLDER --config.encoder.path=CHECKPOINT --workdir=runs/mind_electra

FOLDER holds MIND's published folders. CHECKPOINT and all other settings are those of `goemotions_electra`.

Running time: not measured; it requires an accelerator. Expected in percent, softmax with dot, by the paper:
top-1 error 27.09, top-5 error 4.25, NDCG@5 85.73.
"""

from rank4class.pipelines import config
from rank4class.pipelines.configs import goemotions_electra


def get_config() -> config.Experiment:
    experiment = goemotions_electra.get_config()
    experiment.data = config.Data(name="mind", max_length=128)
    return experiment
