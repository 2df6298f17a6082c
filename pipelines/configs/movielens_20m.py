r"""MovieLens 20M: users by the movies that they have rated (Rankmax, section 4).

    python -m rank4class.scripts.train --config=movielens_20m \
        --config.data.path=FOLDER --workdir=runs/movielens_20m

FOLDER holds `ratings.csv` and `movies.csv` (138,493 users, 26,744 movies, 20,000,263 ratings); without it
TensorFlow Datasets downloads them. See `movielens_100k` for what is ranked and counted.

Running time: 1 s a step and 541 steps an epoch on 2 cores that had other work, with 19,725,064 generated
ratings, and 3.8 GB of memory. Expected: not measured. The paper has for Rankmax AP@10 21.0, accuracy 39.7,
Recall@100 49.2.
"""

from rank4class.pipelines import config
from rank4class.pipelines.configs import movielens_100k


def get_config() -> config.Experiment:
    experiment = movielens_100k.get_config()
    experiment.data.release = "20m"
    experiment.encoder.units = 128
    experiment.batch_size = 256
    experiment.epochs = 20.0
    experiment.patience = 3
    return experiment
