r"""GoEmotions with the frozen MiniLM encoder: encoded once, then every loss trains in seconds.

    python -m rank4class.scripts.sweep --config=pipelines/configs/goemotions_minilm_frozen.py \
        --config.data.path=FOLDER --workdir=runs/goemotions_grid

Running time: TODO on 2 cores. Expected: TODO
"""

from rank4class.pipelines import config
from rank4class.pipelines.configs import goemotions_minilm


def get_config():
    experiment = goemotions_minilm.get_config()
    experiment.encoder.frozen = True
    experiment.optimizer = config.Optimizer(name="adam", learning_rate=1e-3, decay="linear")
    experiment.batch_size = 256
    experiment.epochs = 10.0
    return experiment
