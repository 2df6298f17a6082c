r"""GoEmotions with the frozen MiniLM encoder. Texts are encoded once; then each run takes seconds.

    python -m rank4class.scripts.sweep --config=goemotions_minilm_frozen \
        --config.data.path=FOLDER --workdir=runs/goemotions_grid \
        --tune=optimizer.learning_rate=0.001,0.003,0.01,0.03

Running time: 20 seconds per run on one core that had other work; the grid took two hours, with 243 runs for
the choice of learning rates and 75 final ones. Expected on the 4,590 test comments, in percent, softmax with
dot, over 5 seeds: top-1 error 47.1, top-5 error 14.9, NDCG@5 70.3.
"""

from rank4class.pipelines import config
from rank4class.pipelines.configs import goemotions_minilm


def get_config() -> config.Experiment:
    experiment = goemotions_minilm.get_config()
    experiment.encoder.frozen = True
    experiment.optimizer = config.Optimizer(name="adam", learning_rate=1e-3, decay="linear")
    experiment.batch_size = 256
    experiment.epochs = 10.0
    return experiment
